//! Pages of a list that changes meanwhile: what was there all the time is seen exactly once.
//!
//! A run that ends between two pages becomes another row, at another place: these are told apart here, as
//! docs/api.md does.

use std::collections::BTreeMap;
use std::time::Duration;

use rig::{Receiver, Reply};
use serde_json::Value;

use super::house::House;
use crate::server::node::world::World;

/// Items that are there from the beginning to the end.
const LASTING: usize = 40;

/// How often each list is read while it changes.
const ROUNDS: usize = 5;

/// All items of a list, page by page, and how many pages there were.
async fn read(house: &House, list: &str, limit: usize) -> (Vec<Value>, usize) {
    let (mut items, mut cursor, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let and = if list.contains('?') { '&' } else { '?' };
        let path = format!("/v1/{list}{and}limit={limit}&cursor={cursor}");
        let page = house.ask("GET", &path).send().await.is(200).json();
        items.extend(page["items"].as_array().unwrap().iter().cloned());
        pages += 1;
        match page["next"].as_str() {
            Some(next) => next.clone_into(&mut cursor),
            None => return (items, pages),
        }
    }
}

/// Each of these is there once, and nothing is there twice.
#[track_caller]
fn check(list: &str, items: &[Value], name: impl Fn(&Value) -> String, lasting: &[String]) {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for item in items {
        *seen.entry(name(item)).or_default() += 1;
    }
    for name in lasting {
        assert_eq!(seen.get(name), Some(&1), "{list}: {name} of {seen:?}");
    }
    let twice: Vec<_> = seen.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "{list}: {twice:?}");
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// What tells one line of the audit from another.
fn line(entry: &Value) -> String {
    format!("{} {}", text(&entry["request_id"]), text(&entry["action"]))
}

/// A run, and whether it has ended.
fn row(run: &Value) -> String {
    format!("{} {}", text(&run["id"]), run["ended"].is_string())
}

async fn make(house: &House, name: &str) {
    house.ask("POST", "/v1/triggers").body(&house.on_demand(name)).await.is(201);
}

/// Makes, changes, runs and deletes, beside everything that lasts, until it is dropped.
async fn stir(house: &House) {
    for number in 0.. {
        let brief = format!("bell-{:02}-brief-{number}", number % LASTING);
        make(house, &brief).await;
        for what in ["pause", "resume"] {
            let name = format!("bell-{:02}", number * 7 % LASTING);
            let path = format!("/v1/triggers/{name}/{what}");
            house.ask("POST", &path).send().await.is(200);
        }
        // Not all of one shard: of each only the newest commits are in the list of all runs.
        for name in [&brief, &format!("bell-{:02}", number % 5)] {
            house.ask("POST", &format!("/v1/triggers/{name}/run")).send().await.is(202);
        }
        if number % 3 > 0 {
            house.ask("DELETE", &format!("/v1/triggers/{brief}")).send().await.is(204);
        }
    }
}

#[tokio::test]
async fn what_is_there_all_the_time_is_seen_once_while_everything_else_changes() {
    // Runs take a while: some end between one page and the next.
    let reply = Reply::Status(200, Duration::from_millis(40));
    let house = House::of(World::with(Receiver::start(1, move |_| reply))).await;
    let names: Vec<String> = (0..LASTING).map(|number| format!("bell-{number:02}")).collect();
    for name in &names {
        make(&house, name).await;
    }
    let run = async |name: &str| {
        let path = format!("/v1/triggers/{name}/run?wait=20s");
        row(&house.ask("POST", &path).send().await.is(200).json()["run"])
    };
    let (mut of_all, mut of_one) = (Vec::new(), Vec::new());
    for name in &names {
        of_all.push(run(name).await);
        of_one.push(run(&names[0]).await);
    }
    let (audit, _) = read(&house, "audit", 500).await;
    let lines: Vec<String> = audit.iter().map(line).collect();

    let watch = async {
        for round in 0..ROUNDS {
            let limit = 3 + round;
            let (items, pages) = read(&house, "triggers", limit).await;
            check("triggers", &items, |item| text(&item["name"]), &names);
            assert!(pages >= LASTING / limit, "{pages} pages");
            for (list, runs) in [("runs", &of_all), ("triggers/bell-00/runs", &of_one)] {
                let (items, pages) = read(&house, list, limit).await;
                check(list, &items, row, runs);
                assert!(pages >= LASTING / limit, "{pages} pages");
            }
            let (items, _) = read(&house, "audit", limit).await;
            check("audit", &items, line, &lines);
        }
    };
    tokio::select! {
        () = stir(&house) => unreachable!("it goes on"),
        () = watch => {}
    }
}

#[tokio::test]
async fn keys_and_projects_that_stay_are_seen_once_while_others_come_and_go() {
    let house = House::open().await;
    let names: Vec<String> = (0..LASTING).map(|number| format!("team-{number:02}")).collect();
    for name in &names {
        house.project(name).await;
    }
    let (before, _) = read(&house, "keys", 500).await;
    let mut ids: Vec<String> = before.iter().map(|key| text(&key["id"])).collect();
    for _ in 0..LASTING {
        let body = serde_json::json!({ "name": "lasting", "scopes": ["read"] });
        let made = house.ask("POST", "/v1/keys").body(&body).await.is(201).json();
        ids.push(text(&made["key"]["id"]));
    }
    let stir = async {
        for number in 0.. {
            house.project(&format!("team-{:02}-brief-{number}", number % LASTING)).await;
            let body = serde_json::json!({ "name": "brief", "scopes": ["read"] });
            let made = house.ask("POST", "/v1/keys").body(&body).await.is(201).json();
            let id = text(&made["key"]["id"]);
            house.ask("DELETE", &format!("/v1/keys/{id}")).send().await.is(204);
        }
    };
    let watch = async {
        for round in 0..ROUNDS {
            let (items, _) = read(&house, "projects", 3 + round).await;
            check("projects", &items, |item| text(&item["name"]), &names);
            let (items, _) = read(&house, "keys", 3 + round).await;
            check("keys", &items, |item| text(&item["id"]), &ids);
        }
    };
    tokio::select! {
        () = stir => unreachable!("it goes on"),
        () = watch => {}
    }
}
