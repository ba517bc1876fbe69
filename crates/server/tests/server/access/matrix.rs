//! Every route with every kind of key.

use client::key::Scope;
use serde_json::json;

use super::house::{Ask, House};
use crate::server::node::world::HOUR_MS;

/// Who may ask this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Everybody,
    /// Whoever has a key.
    Key,
    Reader,
    Writer,
    Node,
    Worker,
    Admin,
}
use Who::{Admin, Everybody, Key, Node, Reader, Worker, Writer};

/// The whole API, as it ought to be. A route that is missing here fails the test.
const TABLE: &[(&str, &str, Who)] = &[
    ("GET", "/v1/triggers", Reader),
    ("POST", "/v1/triggers", Writer),
    ("GET", "/v1/triggers/{name}", Reader),
    ("PUT", "/v1/triggers/{name}", Writer),
    ("DELETE", "/v1/triggers/{name}", Writer),
    ("POST", "/v1/triggers/{name}/pause", Writer),
    ("POST", "/v1/triggers/{name}/resume", Writer),
    ("POST", "/v1/triggers/{name}/cancel", Writer),
    ("POST", "/v1/triggers/{name}/run", Writer),
    ("POST", "/v1/triggers/{name}/backfill", Writer),
    ("GET", "/v1/triggers/{name}/next", Reader),
    ("GET", "/v1/triggers/{name}/runs", Reader),
    ("GET", "/v1/triggers/{name}/explain", Reader),
    ("GET", "/v1/runs", Reader),
    ("GET", "/v1/runs/{id}", Reader),
    ("POST", "/v1/runs", Writer),
    ("POST", "/v1/runs/batch", Writer),
    ("POST", "/v1/runs/{id}/cancel", Writer),
    ("POST", "/v1/runs/{id}/output", Worker),
    ("GET", "/v1/runs/{id}/output", Reader),
    ("GET", "/v1/queues", Reader),
    ("GET", "/v1/queues/{name}", Reader),
    ("GET", "/v1/queues/{name}/runs", Reader),
    ("PUT", "/v1/queues/{name}", Writer),
    ("DELETE", "/v1/queues/{name}", Writer),
    ("POST", "/v1/queues/{name}/pause", Writer),
    ("POST", "/v1/queues/{name}/resume", Writer),
    ("GET", "/v1/queues/{name}/dead", Reader),
    ("POST", "/v1/queues/{name}/redrive", Writer),
    ("POST", "/v1/queues/{name}/cancel", Writer),
    ("POST", "/v1/runs/{id}/retry", Writer),
    ("GET", "/v1/workers", Reader),
    ("GET", "/v1/workers/{name}", Reader),
    ("POST", "/v1/workers/{name}/drain", Writer),
    ("DELETE", "/v1/workers/{name}/drain", Writer),
    ("PUT", "/v1/triggers/{name}/reservation", Writer),
    ("DELETE", "/v1/triggers/{name}/reservation", Writer),
    ("POST", "/v1/claim", Worker),
    ("POST", "/v1/workers/{name}/beat", Worker),
    ("GET", "/v1/projects", Admin),
    ("POST", "/v1/projects", Admin),
    ("GET", "/v1/projects/{name}", Admin),
    ("PUT", "/v1/projects/{name}", Admin),
    ("POST", "/v1/projects/{name}/enable", Admin),
    ("POST", "/v1/projects/{name}/disable", Admin),
    ("POST", "/v1/projects/{name}/rotate", Admin),
    ("GET", "/v1/keys", Admin),
    ("POST", "/v1/keys", Admin),
    ("GET", "/v1/keys/self", Key),
    ("GET", "/v1/keys/{id}", Admin),
    ("DELETE", "/v1/keys/{id}", Admin),
    ("POST", "/v1/keys/{id}/rotate", Admin),
    ("GET", "/v1/elections", Reader),
    ("GET", "/v1/elections/{name}", Reader),
    ("POST", "/v1/elections/{name}/resign", Writer),
    ("POST", "/v1/elections/{name}/approve", Writer),
    ("POST", "/v1/elections/{name}/campaign", Node),
    ("POST", "/v1/elections/{name}/release", Node),
    ("GET", "/v1/store", Node),
    ("POST", "/v1/store/scan", Node),
    ("POST", "/v1/store/commit", Node),
    ("GET", "/v1/store/watch", Node),
    ("GET", "/v1/scheduler", Reader),
    ("POST", "/v1/scheduler/start", Admin),
    ("POST", "/v1/scheduler/stop", Admin),
    ("POST", "/v1/scheduler/confirm-time", Admin),
    ("GET", "/v1/events", Reader),
    ("GET", "/v1/cluster", Admin),
    ("POST", "/v1/cluster/nodes/{name}/drain", Admin),
    ("DELETE", "/v1/cluster/nodes/{name}/drain", Admin),
    ("POST", "/v1/cluster/shards/{id}/quiesce", Admin),
    ("POST", "/v1/cluster/shards/{id}/resume", Admin),
    ("GET", "/v1/backup", Admin),
    ("GET", "/v1/audit", Admin),
    ("GET", "/livez", Everybody),
    ("GET", "/readyz", Everybody),
    ("GET", "/metrics", Everybody),
    ("GET", "/openapi.json", Everybody),
    ("GET", "/", Everybody),
];

/// The key of somebody who asks.
#[derive(Debug, Clone, Copy)]
enum KeyState {
    Nothing,
    Wrong,
    Expired,
    Scope(Scope),
}

/// The status that tells somebody off, or none if they are let in.
fn refusal(who: Who, key_state: KeyState) -> Option<u16> {
    let scope = match key_state {
        _ if who == Everybody => return None,
        KeyState::Nothing | KeyState::Wrong | KeyState::Expired => return Some(401),
        KeyState::Scope(scope) => scope,
    };
    let may = match who {
        Everybody | Key => true,
        Reader => matches!(scope, Scope::Read | Scope::Write | Scope::Admin),
        Writer => matches!(scope, Scope::Write | Scope::Admin),
        Node => matches!(scope, Scope::Node | Scope::Admin),
        Worker => matches!(scope, Scope::Worker | Scope::Admin),
        Admin => scope == Scope::Admin,
    };
    (!may).then_some(403)
}

#[test]
fn the_table_names_every_route_and_no_other() {
    let mut known: Vec<_> = TABLE.iter().map(|(method, path, _)| (*method, *path)).collect();
    let there = server::api::table();
    let mut there: Vec<_> =
        there.iter().map(|(method, path, _)| (method.as_str(), *path)).collect();
    known.sort_unstable();
    there.sort_unstable();
    assert_eq!(known, there, "add the new route to the table, with who may ask it");
}

#[tokio::test]
async fn every_route_lets_in_whom_it_should_and_nobody_else() {
    let house = House::open().await;
    house.project("mine").await;
    let expired = expired_key(&house).await;
    let mut keys = Vec::new();
    for scope in Scope::ALL {
        keys.push((KeyState::Scope(scope), Some(house.key("mine", &[scope]).await)));
    }
    let wrong = format!("wbk_{}_{}", "0".repeat(13), "0".repeat(52));
    keys.extend([
        (KeyState::Nothing, None),
        (KeyState::Wrong, Some(wrong)),
        (KeyState::Expired, Some(expired)),
    ]);
    let mut cases = 0;
    for (method, path, who) in TABLE {
        // Nothing is there under these names, and bodies are wrong: whoever is let in changes nothing.
        let path = path.replace("{name}", "nothing").replace("{id}", "nothing");
        for (key_state, key) in &keys {
            let mut ask = Ask::new(house.running.address, method, &path);
            if let Some(key) = key {
                ask = ask.key(key);
            }
            let status = begin(ask).await;
            let told_off = matches!(status, 401 | 403).then_some(status);
            assert_eq!(
                told_off,
                refusal(*who, *key_state),
                "{method} {path} with {key_state:?}: {status}"
            );
            cases += 1;
        }
    }
    assert_eq!(cases, TABLE.len() * 8);
}

/// The status of the answer: the rest of it may never end, as that of events does not.
async fn begin(ask: Ask) -> u16 {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(ask.to()).await.unwrap();
    stream.write_all(ask.with_bad_body().text().as_bytes()).await.unwrap();
    let mut head = [0; 12];
    stream.read_exact(&mut head).await.unwrap();
    String::from_utf8_lossy(&head[9..]).parse().unwrap()
}

/// The text of an admin's key that is not good any more.
async fn expired_key(house: &House) -> String {
    let expires = "2027-01-15T12:30:00Z";
    let body = json!({ "name": "short", "scopes": ["admin"], "expires": expires });
    let made = house.ask("POST", "/v1/keys").body(&body).await.is(201);
    let secret = made.json()["secret"].as_str().unwrap().to_owned();
    house.ask_as(&secret, "GET", "/v1/triggers").send().await.is(200);
    house.running.clocks.sleep_for(HOUR_MS);
    house.ask_as(&secret, "GET", "/v1/triggers").send().await.is(401);
    secret
}

#[tokio::test]
async fn what_belongs_to_another_project_is_not_there() {
    let house = House::open().await;
    house.project("mine").await;
    house.project("theirs").await;
    let mine = house.key("mine", &[Scope::Write]).await;
    let theirs = house.key("theirs", &[Scope::Write]).await;
    let made = house.ask_as(&mine, "POST", "/v1/triggers").body(&house.on_demand("bell")).await;
    let id = made.is(201).json()["id"].as_str().unwrap().to_owned();
    let started = house.ask_as(&mine, "POST", "/v1/triggers/bell/run?wait=10s").send().await;
    let run = started.is(200).json()["id"].as_str().unwrap().to_owned();
    house.ask_as(&mine, "GET", &format!("/v1/runs/{run}")).send().await.is(200);

    // The id with their own project in it: a lie, and no better.
    let lie = format!("{}{}{}", &id[..7], "0002", &id[11..]);
    for name in ["bell", id.as_str(), lie.as_str()] {
        for (method, path) in [
            ("GET", ""),
            ("DELETE", ""),
            ("POST", "/pause"),
            ("POST", "/resume"),
            ("POST", "/cancel"),
            ("POST", "/run"),
            ("GET", "/next"),
            ("GET", "/explain"),
        ] {
            let path = format!("/v1/triggers/{name}{path}");
            let answer = house.ask_as(&theirs, method, &path).send().await;
            assert_eq!(answer.status, 404, "{method} {path}: {answer:?}");
        }
    }
    house.ask_as(&theirs, "GET", &format!("/v1/runs/{run}")).send().await.is(404);
    for path in ["/v1/triggers", "/v1/runs"] {
        let list = house.ask_as(&theirs, "GET", path).send().await.is(200).json();
        assert_eq!(list["items"], json!([]), "{path}");
    }
    // Nor by naming the other project.
    let named = house.ask_as(&theirs, "GET", "/v1/triggers").header("watchbell-project", "mine");
    assert_eq!(named.send().await.is(404).problem().as_deref(), Some("no-project"));
    // Nor are runs that are not finished, by an id with a lie in it.
    let mut slow = house.on_demand("slow");
    slow["webhook"]["url"] = json!("http://10.255.255.1:9/never");
    let made = house.ask_as(&mine, "POST", "/v1/triggers").body(&slow).await.is(201);
    let slow = made.json()["id"].as_str().unwrap().to_owned();
    for _ in 0..3 {
        house.ask_as(&mine, "POST", "/v1/triggers/slow/run").send().await.is(202);
    }
    let slow = format!("{}{}{}", &slow[..7], "0002", &slow[11..]);
    let list = house.ask_as(&theirs, "GET", &format!("/v1/triggers/{slow}/runs")).send().await;
    assert_eq!(list.is(200).json()["items"], json!([]));
    // The runs of a trigger that is gone are not shown to others either, by whatever id.
    house.ask_as(&mine, "DELETE", "/v1/triggers/bell").send().await.is(204);
    let path = format!("/v1/triggers/{lie}/runs");
    let list = house.ask_as(&theirs, "GET", &path).send().await.is(200).json();
    assert_eq!(list["items"], json!([]));
    // The same name can be had in both.
    house.ask_as(&theirs, "POST", "/v1/triggers").body(&house.on_demand("bell")).await.is(201);
    house.ask_as(&mine, "POST", "/v1/triggers").body(&house.on_demand("bell")).await.is(201);
}
