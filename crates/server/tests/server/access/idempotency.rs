//! Requests that are remembered: done once, however often they are sent.

use engine::instant::Instant;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::house::{Answer, Ask, House};
use crate::server::node::world::HOUR_MS;

const DAY_MS: i64 = 24 * HOUR_MS;

fn under(ask: Ask, key: &str) -> Ask {
    ask.header("idempotency-key", key)
}

/// Sends the same request many times at once.
async fn all_at_once(house: &House, path: &str, key: &str, body: Option<&Value>) -> Vec<Answer> {
    let mut tasks = JoinSet::new();
    for _ in 0..20 {
        let ask = under(house.ask("POST", path), key);
        let body = body.cloned();
        tasks.spawn(async move {
            match body {
                Some(body) => ask.body(&body).await,
                None => ask.send().await,
            }
        });
    }
    tasks.join_all().await
}

fn replayed(answers: &[Answer]) -> usize {
    answers.iter().filter(|answer| answer.header("idempotency-replayed") == Some("true")).count()
}

#[tokio::test]
async fn of_many_at_once_one_is_done_and_all_are_told_the_same() {
    let house = House::open().await;
    // Without a name: each would get one of its own.
    let spec = json!({ "webhook": { "url": house.world.receiver.url(0, "/bell") } });
    let made = all_at_once(&house, "/v1/triggers", "make", Some(&spec)).await;
    let ids: Vec<_> = made.iter().map(|answer| answer.json()["id"].clone()).collect();
    assert!(made.iter().all(|answer| answer.status == 201), "{made:?}");
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(replayed(&made), 19);
    let name = made[0].json()["name"].as_str().unwrap().to_owned();

    let path = format!("/v1/triggers/{name}/run?wait=10s");
    let ran = all_at_once(&house, &path, "run", None).await;
    let runs: Vec<_> = ran.iter().map(|answer| answer.json()["id"].clone()).collect();
    assert!(runs.iter().all(|run| *run == runs[0]), "{runs:?}");
    assert_eq!(replayed(&ran), 19);
    assert_eq!(house.world.slots("bell").len(), 1);

    let paused = all_at_once(&house, &format!("/v1/triggers/{name}/pause"), "pause", None).await;
    assert!(paused.iter().all(|answer| answer.status == 200), "{paused:?}");
    let body = json!({ "name": "team" });
    let projects = all_at_once(&house, "/v1/projects", "team", Some(&body)).await;
    assert!(projects.iter().all(|answer| answer.status == 201), "{projects:?}");
    let told = projects.iter().filter(|answer| answer.text.contains("whsec_")).count();
    assert_eq!(told, 1, "a secret is told once");
}

#[tokio::test]
async fn it_is_remembered_over_the_loss_of_the_node_and_for_a_day() {
    let house = House::open().await;
    let spec = house.on_demand("bell");
    house.ask("POST", "/v1/triggers").body(&spec).await.is(201);
    let path = "/v1/triggers/bell/run";
    let first = under(house.ask("POST", path), "k").send().await.is(202).json();
    house.world.heard("bell", 1).await;
    let at = Instant(house.running.handle.now().0 + 1_000).to_string();
    let house = house.restart(&at).await;
    let again = under(house.ask("POST", path), "k").send().await;
    assert_eq!(again.header("idempotency-replayed"), Some("true"), "{again:?}");
    assert_eq!(again.json()["id"], first["id"]);
    house.running.clocks.sleep_for(DAY_MS + HOUR_MS);
    let later = under(house.ask("POST", path), "k").send().await;
    assert_ne!(later.json()["id"], first["id"], "after a day it is a new one: {later:?}");
}

#[tokio::test]
async fn a_key_stands_for_one_request_of_one_project() {
    let house = House::open().await;
    house.project("team").await;
    let ask = || under(house.ask("POST", "/v1/triggers"), "k");
    ask().body(&house.on_demand("one")).await.is(201);
    let other = ask().body(&house.on_demand("two")).await.is(422);
    assert_eq!(other.json()["errors"][0]["parameter"], "idempotency-key");
    let theirs = ask().header("watchbell-project", "team");
    theirs.body(&house.on_demand("two")).await.is(201);
    // What was refused is not remembered: it may be mended and sent again.
    let bad = under(house.ask("POST", "/v1/triggers"), "b");
    bad.body(&json!({ "webhook": {} })).await.is(422);
    let mended = under(house.ask("POST", "/v1/triggers"), "b");
    mended.body(&house.on_demand("three")).await.is(201);
    let long = "x".repeat(256);
    under(house.ask("POST", "/v1/triggers"), &long).body(&house.on_demand("four")).await.is(422);
    let fits = "x".repeat(255);
    under(house.ask("POST", "/v1/triggers"), &fits).body(&house.on_demand("four")).await.is(201);
}
