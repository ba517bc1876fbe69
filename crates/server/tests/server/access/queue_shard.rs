//! Claims of queues that live in several shards of one server.

use std::collections::BTreeMap;

use serde_json::json;

use client::queue::Queue;
use tokio::sync::Notify;

use super::house::House;
use super::queue::{Hand, submit};

#[tokio::test]
async fn each_run_is_told_as_what_it_is_though_every_shard_counts_its_runs_from_the_first() {
    let queues = vec!["q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7"];
    let house = House::open().await;
    let mut hand = Hand::new(&house, "default", "w1").await;
    hand.queues.clone_from(&queues);
    let mut expected = BTreeMap::new();
    for queue in &queues {
        // Too long to be kept in memory by whoever takes the shard over.
        let payload = format!("{queue}{}", "x".repeat(5_000));
        submit(&house, json!({"queue": queue, "payload": payload})).await;
        expected.insert((*queue).to_owned(), json!(payload));
    }
    let shards = hand.claim(json!({})).await.cookie.split(',').count();
    assert!(shards > 1);
    let (key, number) = (hand.key.clone(), hand.number);
    // When all of them are due by the clock of whoever takes over.
    let house = house.restart("2027-01-15T12:01:00Z").await;
    let (name, cookie) = ("w1", String::new());
    let mut hand = Hand { house: &house, key, name, incarnation: 1, number, cookie, queues };
    // The cookies of all shards, once they are taken over.
    while hand.cookie.split(',').count() < shards {
        assert_eq!(hand.claim(json!({})).await.runs, []);
    }
    let runs = hand.claim(json!({"free": 8, "wait_ms": 20_000})).await.runs;
    let told: BTreeMap<_, _> =
        runs.into_iter().map(|run| (run.queue, run.payload.unwrap_or_default())).collect();
    assert!(told == expected, "{:?}", told.keys());
}

#[tokio::test]
async fn a_claim_that_names_no_queue_is_heard_from_another_server_only() {
    let house = House::open().await;
    let mut hand = Hand::new(&house, "default", "w1").await;
    hand.queues.clear();
    let refused = hand.say(json!({"free": 1})).await.is(422);
    assert!(refused.text.contains("/queues"), "{refused:?}");
    // It asks for shards in which the worker has runs and claims nothing.
    let body = json!({"worker": "w1", "incarnation": 1, "number": 9, "queues": []});
    let heard = house.ask_as(&hand.key, "POST", "/v1/claim").header("watchbell-forwarded", "a");
    heard.body(&body).await.is(200);
}

#[tokio::test]
async fn a_claim_waits_although_its_worker_has_a_run_of_a_shard_from_which_it_claims_nothing() {
    let house = House::open().await;
    let mut hand = Hand::new(&house, "default", "w1").await;
    let mut shards = BTreeMap::new();
    for queue in ["q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7"] {
        hand.queues = vec![queue];
        hand.cookie.clear();
        let cookie = hand.claim(json!({})).await.cookie;
        let (shard, _) = cookie.split_once(':').unwrap();
        shards.entry(shard.to_owned()).or_insert((queue, cookie));
    }
    let mut shards = shards.into_values();
    let ((there, cookie), (here, own)) = (shards.next().unwrap(), shards.next().unwrap());
    submit(&house, json!({"queue": there})).await;
    (hand.queues, hand.cookie) = (vec![there], cookie);
    let run = hand.one().await;
    (hand.queues, hand.cookie) = (vec![here], own);
    let running = json!([{"id": run.id, "token": run.token}]);
    let answered = Notify::new();
    let claims = async {
        let runs = hand.claim(json!({"free": 1, "wait_ms": 20_000, "running": running})).await.runs;
        answered.notify_one();
        runs
    };
    let submits = async {
        let waits = async {
            loop {
                let told = house.ask("GET", &format!("/v1/queues/{here}")).send().await;
                if told.status == 200 && told.read::<Queue>().state.unwrap().claims_waiting > 0 {
                    return;
                }
            }
        };
        tokio::select! {
            () = waits => {}
            () = answered.notified() => panic!("it was answered at once"),
        }
        submit(&house, json!({"queue": here})).await
    };
    let (runs, submitted) = tokio::join!(claims, submits);
    assert_eq!(runs.first().map(|run| &run.id), Some(&submitted.id));
}
