//! Workers, as people see them, and those that are to drain.

use std::collections::BTreeMap;

use client::ListPage;
use client::key::Scope;
use client::worker::{Worker, WorkerDetails, WorkerState};
use engine::limits::{LABEL_CHARS_MAX, LABELS_MAX, WORKER_DRAINS_PER_PROJECT_MAX};
use serde_json::json;
use store::{Commit, Key};

use super::house::{House, NOON};
use super::queue::{Hand, submit};
use crate::server::node::world::World;

async fn worker(house: &House, name: &str) -> WorkerDetails {
    house.ask("GET", &format!("/v1/workers/{name}")).send().await.is(200).read()
}

#[tokio::test]
async fn a_worker_is_shown_with_the_runs_that_it_has() {
    let house = House::open().await;
    house.project("team").await;
    let mut hand = Hand::new(&house, "default", "w1").await;
    hand.queues = vec!["mail", "reports", "other"];
    hand.claim(json!({})).await;
    let mail = submit(&house, json!({})).await;
    let report = submit(&house, json!({ "queue": "reports" })).await;
    let given = hand.claim(json!({ "free": 9 })).await.runs;
    assert_eq!(given.len(), 2);
    let shown = worker(&house, "w1").await;
    assert_eq!((shown.worker.running, shown.worker.state), (2, WorkerState::Busy));
    assert_eq!(shown.worker.queues, ["mail", "other", "reports"]);
    assert_eq!((shown.lease_ms, shown.drain.clone()), (Some(15_000), None));
    let mut ids: Vec<&str> = shown.runs.iter().map(|run| run.id.as_str()).collect();
    let mut expected = [mail.id.as_str(), report.id.as_str()];
    ids.sort_unstable();
    expected.sort_unstable();
    assert_eq!(ids, expected);
    assert!(shown.runs.iter().all(|run| run.attempt == 1));
    for unknown in ["w2", "w%2F1", "%20", "w1%00"] {
        let answer = house.ask("GET", &format!("/v1/workers/{unknown}")).send().await.is(404);
        assert_eq!(answer.problem().unwrap(), "no-worker", "{unknown}");
        house.ask("POST", &format!("/v1/workers/{unknown}/drain")).send().await.is(404);
        house.ask("DELETE", &format!("/v1/workers/{unknown}/drain")).send().await.is(404);
    }
    let stranger = house.key("team", &[Scope::Write]).await;
    house.ask_as(&stranger, "GET", "/v1/workers/w1").send().await.is(404);
    house.ask_as(&stranger, "POST", "/v1/workers/w1/drain").send().await.is(404);
}

#[tokio::test]
async fn a_worker_is_shown_with_its_labels_also_when_it_has_as_many_as_may_be() {
    let house = House::open().await;
    let mut hand = Hand::new(&house, "default", "w1").await;
    // Of several shards, some hear only beats.
    hand.queues = vec!["mail", "reports", "other"];
    let labels: BTreeMap<String, String> =
        (0..LABELS_MAX).map(|number| (format!("k{number}"), "v".repeat(LABEL_CHARS_MAX))).collect();
    hand.claim(json!({ "labels": labels })).await;
    assert_eq!(worker(&house, "w1").await.worker.labels, labels);
    let listed: ListPage<Worker> = house.ask("GET", "/v1/workers").send().await.is(200).read();
    assert_eq!(listed.items[0].labels, labels);
    hand.incarnation += 1;
    hand.number = 0;
    hand.claim(json!({ "labels": { "zone": "b" } })).await;
    let shown = worker(&house, "w1").await.worker.labels;
    assert_eq!(shown, BTreeMap::from([("zone".to_owned(), "b".to_owned())]));
}

#[tokio::test]
async fn a_worker_that_is_to_drain_is_told_and_given_nothing_until_it_lives_anew() {
    let house = House::open().await;
    let mut hand = Hand::new(&house, "default", "w1").await;
    let drain = || house.ask("POST", "/v1/workers/w1/drain").send();
    let undo = || house.ask("DELETE", "/v1/workers/w1/drain").send();
    assert_eq!(undo().await.is(409).problem().unwrap(), "not-draining");
    // A claim that waits is answered at once.
    let waiting = hand.claim(json!({ "free": 1, "wait_ms": 6_000 }));
    let (told, drained) = tokio::join!(waiting, async {
        let is_waiting = async || {
            let page: ListPage<Worker> =
                house.ask("GET", "/v1/workers").send().await.is(200).read();
            page.items.iter().any(|worker| worker.state == WorkerState::Waiting).then_some(())
        };
        rig::until("it waits", rig::PATIENCE, is_waiting).await;
        let shown: WorkerDetails = drain().await.is(200).read();
        shown
    });
    assert!(told.drain && told.runs.is_empty(), "{told:?}");
    assert_eq!(drained.worker.state, WorkerState::Draining);
    assert_eq!(drained.drain.unwrap().author, "admin");
    assert_eq!(drain().await.is(409).problem().unwrap(), "already-draining");
    submit(&house, json!({})).await;
    let told = hand.claim(json!({ "free": 1 })).await;
    assert!(told.drain && told.runs.is_empty(), "whatever it asks for");
    // Whoever has the shard now knows it too.
    let (key, number, cookie) = (hand.key.clone(), hand.number, hand.cookie.clone());
    let house = house.restart("2027-01-15T12:01:00Z").await;
    let (house, name, incarnation, queues) = (&house, "w1", 1, vec!["mail"]);
    let mut hand = Hand { house, key, name, incarnation, number, cookie, queues };
    hand.claim(json!({})).await;
    let told = hand.claim(json!({ "free": 1 })).await;
    assert!(told.drain && told.runs.is_empty(), "{told:?}");
    hand.incarnation += 1;
    let told = hand.claim(json!({ "free": 1 })).await;
    assert!(!told.drain && told.runs.len() == 1, "a new life is not drained: {told:?}");
    assert_eq!(worker(house, "w1").await.drain, None);
    let audit = house.ask("GET", "/v1/audit?action=worker.drain").send().await.is(200).json();
    assert_eq!(audit["items"][0]["object"], "w1");
}

#[tokio::test]
async fn a_drain_that_is_undone_leaves_a_worker_as_it_was() {
    let house = House::open().await;
    let mut hand = Hand::new(&house, "default", "w1").await;
    submit(&house, json!({})).await;
    house.ask("POST", "/v1/workers/w1/drain").send().await.is(200);
    assert!(hand.claim(json!({ "free": 1 })).await.runs.is_empty());
    house.ask("DELETE", "/v1/workers/w1/drain").send().await.is(200);
    let told = hand.claim(json!({ "free": 1 })).await;
    assert!(!told.drain && told.runs.len() == 1, "{told:?}");
}

#[tokio::test]
async fn a_project_that_asked_as_many_workers_to_drain_as_it_may_leaves_others_theirs() {
    let world = World::new();
    for number in 0..WORKER_DRAINS_PER_PROJECT_MAX {
        let key = Key::new(format!("access/drain/0/gone-{number}")).unwrap();
        let wish = json!({
            "format": 2, "project": 0, "worker": format!("gone-{number}"), "incarnation": 1, "since": NOON, "author": "me",
        });
        world.store().commit(Commit::new().put(key, wish.to_string())).await.unwrap();
    }
    let house = House::of(world).await;
    house.project("team").await;
    Hand::new(&house, "default", "w1").await;
    Hand::new(&house, "team", "w1").await;
    let drain = |project| {
        let ask = house.ask("POST", "/v1/workers/w1/drain");
        ask.header("watchbell-project", project).send()
    };
    assert_eq!(drain("default").await.is(429).problem().unwrap(), "too-many");
    drain("team").await.is(200);
    house.ask("DELETE", "/v1/workers/gone-7/drain").send().await;
    drain("default").await.is(200);
}
