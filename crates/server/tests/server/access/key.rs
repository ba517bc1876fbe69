//! Keys: told once, stored as something else, replaced without a gap, and never the last way in.

use std::sync::Arc;

use client::key::{ApiKey, NewKey, Scope};
use engine::instant::Instant;
use serde_json::json;
use server::access::audit::AuditRecord;
use server::access::key::KeyText;
use server::access::record::{KeyRecord, KeyScope};
use server::access::{Access, Trail};
use store::Store;
use store::machine::{Machine, System};
use store::memory::MemoryStore;

use super::house::House;
use crate::server::node::world::HOUR_MS;

#[tokio::test]
async fn of_servers_that_start_at_once_one_makes_the_first_key() {
    let (store, machine) = (Store::new(MemoryStore::new()), Arc::new(System) as Arc<dyn Machine>);
    // Both have looked before there was one.
    let servers = [
        Access::open(&store, &machine).await.unwrap(),
        Access::open(&store, &machine).await.unwrap(),
    ];
    let mut made = Vec::new();
    for access in &servers {
        let text = KeyText::draw(&*machine, Instant(0));
        let audit = AuditRecord {
            at: Instant(0),
            action: "key.create".to_owned(),
            object: text.id().to_string(),
            project: None,
            author: "itself".to_owned(),
            key: None,
            address: None,
            via: None,
            request_id: "start".to_owned(),
        };
        let of = |id, tag, created| KeyRecord {
            id,
            name: "first admin".to_owned(),
            project: None,
            scopes: vec![KeyScope::Admin],
            tag,
            created,
            author: "itself".to_owned(),
            expires: None,
        };
        made.push(access.create_first_key(&text, &Trail::of(audit), of).await.unwrap());
    }
    assert_eq!(made, [true, false]);
    assert_eq!(servers[1].book().keys().count(), 1);
}

#[tokio::test]
async fn a_key_is_told_once_and_what_is_stored_lets_nobody_in() {
    let house = House::open().await;
    let secret = house.key("default", &[Scope::Read]).await;
    let listed = house.ask("GET", "/v1/keys").send().await.is(200);
    let keys = listed.json();
    let id = keys["items"][1]["id"].as_str().unwrap();
    let shown = house.ask("GET", &format!("/v1/keys/{id}")).send().await.is(200);
    for text in [&listed.text, &shown.text] {
        assert!(!text.contains(&secret[18..]), "{text}");
    }
    for entry in house.world.entries().await {
        let value = String::from_utf8_lossy(entry.value.as_bytes()).into_owned();
        assert!(!value.contains(&secret[18..]), "{}", entry.key);
    }
    let own: ApiKey = house.ask_as(&secret, "GET", "/v1/keys/self").send().await.is(200).read();
    assert_eq!((own.id.as_str(), own.project.as_deref()), (id, Some("default")));
}

#[tokio::test]
async fn a_key_that_is_taken_back_is_refused_at_once_and_one_that_is_used_says_when() {
    let house = House::open().await;
    let secret = house.key("default", &[Scope::Read]).await;
    let id = house.ask("GET", "/v1/keys").send().await.json()["items"][1]["id"].clone();
    let path = format!("/v1/keys/{}", id.as_str().unwrap());
    let unused: ApiKey = house.ask("GET", &path).send().await.is(200).read();
    assert_eq!(unused.last_used, None);
    house.ask_as(&secret, "GET", "/v1/triggers").send().await.is(200);
    let used: ApiKey = house.ask("GET", &path).send().await.is(200).read();
    assert!(used.last_used.is_some());
    house.ask("DELETE", &path).send().await.is(204);
    let answer = house.ask_as(&secret, "GET", "/v1/triggers").send().await.is(401);
    assert_eq!(answer.header("www-authenticate"), Some("bearer"));
    house.ask("DELETE", &path).send().await.is(404);
    let left = house.world.entries().await;
    let trace = format!("used/{}", id.as_str().unwrap());
    assert!(left.iter().all(|entry| entry.key.as_str() != trace), "nothing of it stays");
}

#[tokio::test]
async fn rotation_leaves_no_moment_without_a_key() {
    let house = House::open().await;
    let old = house.key("default", &[Scope::Read]).await;
    let id = house.ask("GET", "/v1/keys").send().await.json()["items"][1]["id"].clone();
    let path = format!("/v1/keys/{}/rotate", id.as_str().unwrap());
    let new: NewKey = house.ask("POST", &path).body(&json!({ "grace": "1h" })).await.is(201).read();
    assert_eq!(new.key.scopes, [Scope::Read]);
    let new = new.secret.unwrap();
    for key in [&old, &new] {
        house.ask_as(key, "GET", "/v1/triggers").send().await.is(200);
    }
    house.running.clocks.sleep_for(2 * HOUR_MS);
    house.ask_as(&new, "GET", "/v1/triggers").send().await.is(200);
    house.ask_as(&old, "GET", "/v1/triggers").send().await.is(401);
}

#[tokio::test]
async fn a_rotation_is_done_whole_or_not_at_all() {
    let house = House::open().await;
    let id = house.ask("GET", "/v1/keys/self").send().await.is(200).json()["id"].clone();
    let path = format!("/v1/keys/{}/rotate", id.as_str().unwrap());
    // The last admin's key may not be replaced by one that ends: nothing is made.
    let body = json!({ "expires": "2099-01-01T00:00:00Z" });
    let refused = house.ask("POST", &path).body(&body).await.is(409);
    assert_eq!(refused.problem().as_deref(), Some("last-admin"));
    let keys =
        || async { house.ask("GET", "/v1/keys").send().await.is(200).json()["items"].clone() };
    assert_eq!(keys().await.as_array().unwrap().len(), 1);
    let once = house.ask("POST", &path).header("idempotency-key", "r").send().await.is(201);
    assert!(once.json()["secret"].is_string());
    let again = house.ask("POST", &path).header("idempotency-key", "r").send().await.is(201);
    assert!(again.json()["secret"].is_null(), "{again:?}");
    let keys = keys().await;
    let [old, new] = keys.as_array().unwrap().as_slice() else { panic!("{keys}") };
    assert!(old["expires"].is_string() && new["expires"].is_null(), "{keys}");
}

#[tokio::test]
async fn a_key_that_has_expired_is_told_so() {
    let house = House::open().await;
    let body = json!({ "name": "short", "scopes": ["read"], "expires": "2027-01-15T12:30:00Z" });
    let made = house.ask("POST", "/v1/keys").body(&body).await.is(201).json();
    house.running.clocks.sleep_for(HOUR_MS);
    let key = made["secret"].as_str().unwrap();
    let refused = house.ask_as(key, "GET", "/v1/triggers").send().await.is(401);
    assert_eq!(refused.problem().as_deref(), Some("expired-key"));
}

#[tokio::test]
async fn the_last_way_in_is_not_closed() {
    let house = House::open().await;
    let id = house.ask("GET", "/v1/keys/self").send().await.is(200).json()["id"].clone();
    let path = format!("/v1/keys/{}", id.as_str().unwrap());
    let refused = house.ask("DELETE", &path).send().await.is(409);
    assert_eq!(refused.problem().as_deref(), Some("last-admin"));
    let other = house.key("default", &[Scope::Admin]).await;
    house.ask("DELETE", &path).send().await.is(204);
    house.ask_as(&other, "GET", "/v1/keys").send().await.is(200);
}

#[tokio::test]
async fn a_key_that_makes_no_sense_is_not_made() {
    let house = House::open().await;
    for (body, pointer) in [
        (json!({ "name": "", "scopes": ["read"] }), "/name"),
        (json!({ "name": "x".repeat(101), "scopes": ["read"] }), "/name"),
        (json!({ "name": "x", "scopes": [] }), "/scopes"),
        (json!({ "name": "x", "scopes": ["king"] }), "/scopes/0"),
        (json!({ "name": "x", "scopes": ["read"], "expires": "2020-01-01T00:00:00Z" }), "/expires"),
        (json!({ "name": "x", "scopes": ["read"], "colour": "red" }), "/colour"),
    ] {
        let answer = house.ask("POST", "/v1/keys").body(&body).await.is(422);
        assert_eq!(answer.json()["errors"][0]["pointer"], pointer, "{answer:?}");
    }
    let body = json!({ "name": "x".repeat(100), "scopes": ["read", "read"] });
    let made: NewKey = house.ask("POST", "/v1/keys").body(&body).await.is(201).read();
    assert_eq!(made.key.scopes, [Scope::Read]);
}

#[tokio::test]
async fn keys_and_projects_are_listed_in_pages() {
    let house = House::open().await;
    for number in 0..5 {
        house.project(&format!("p{number}")).await;
        house.key(&format!("p{number}"), &[Scope::Read]).await;
    }
    for (path, count) in [("/v1/keys", 6), ("/v1/projects", 6), ("/v1/keys?project=p3", 1)] {
        let (mut found, mut cursor) = (Vec::new(), String::new());
        loop {
            let sign = if path.contains('?') { '&' } else { '?' };
            let page = format!("{path}{sign}limit=2{cursor}");
            let page = house.ask("GET", &page).send().await.is(200).json();
            let items = page["items"].as_array().unwrap();
            found.extend(items.iter().map(|item| item["id"].as_str().unwrap().to_owned()));
            let Some(next) = page["next"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        assert_eq!(found.len(), count, "{path}: {found:?}");
        found.sort_unstable();
        found.dedup();
        assert_eq!(found.len(), count, "{path}: each once");
    }
    house.ask("GET", "/v1/keys?cursor=rubbish").send().await.is(422);
}
