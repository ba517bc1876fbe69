//! Dead runs over HTTP: they are kept with what they were about, and are carried out again once, when somebody asks for it.

use client::ListPage;
use client::audit::AuditEntry;
use client::key::Scope;
use client::queue::Submitted;
use client::redrive::{CancelledRuns, Redriven};
use client::run::{Run, RunState};
use serde_json::{Value, json};

use super::house::{House, NOON};
use super::queue::{Hand, queue, show, submit};

/// Submits a run, and has it fail for good.
async fn fails(hand: &mut Hand<'_>, more: Value) -> String {
    let made = submit(hand.house, more).await;
    let run = hand.one().await;
    assert_eq!(run.id, made.id);
    let failed = json!({"result": "failed", "final_failure": true, "error": "no route"});
    assert!(hand.done(&run, failed).await);
    made.id
}

/// Submits a run, and has its only attempt fail.
async fn dies(hand: &mut Hand<'_>, more: Value) -> String {
    let made = submit(hand.house, more).await;
    let run = hand.one().await;
    assert!(hand.done(&run, json!({"result": "failed", "error": "no route"})).await);
    assert_eq!(show(hand.house, &made.id).await.state, RunState::Dead);
    made.id
}

fn once(more: &Value) -> Value {
    let mut run = json!({"retry": {"attempts": 1}});
    run.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    run
}

async fn dead(house: &House, query: &str) -> Vec<Run> {
    let path = format!("/v1/queues/mail/dead?{query}");
    house.ask("GET", &path).send().await.is(200).read::<ListPage<Run>>().items
}

async fn redrive(house: &House, request: Value) -> Redriven {
    house.ask("POST", "/v1/queues/mail/redrive").body(&request).await.is(200).read()
}

async fn cancel(house: &House, request: Value) -> CancelledRuns {
    house.ask("POST", "/v1/queues/mail/cancel").body(&request).await.is(200).read()
}

#[tokio::test]
async fn a_dead_run_waits_again_once_as_a_new_run_with_all_that_it_was() {
    let house = House::open().await;
    let mut hand = Hand::new(&house, "default", "w1").await;
    let (short, long) = (json!({"to": "ann"}), json!("x".repeat(5_000)));
    for payload in [&short, &long] {
        let was = json!({
            "payload": payload, "priority": 2, "key": "k", "timeout": "5m", "labels": {"env": "prod"},
        });
        let former = dies(&mut hand, once(&was)).await;
        let told = dead(&house, "").await;
        assert_eq!((told.len(), &told[0].id, told[0].state), (1, &former, RunState::Dead));
        assert_eq!(told[0].attempts[0].error.as_deref(), Some("no route"));
        assert_eq!(queue(&house).await.state.unwrap().dead, 1);

        let path = format!("/v1/runs/{former}/retry");
        let ask = || house.ask("POST", &path).header("idempotency-key", &former).send();
        let made: Submitted = ask().await.is(201).read();
        let again: Submitted = ask().await.is(201).read();
        assert_eq!((made.created, &made.id), (true, &again.id), "the same request is done once");
        house.ask("POST", &path).send().await.is(404);
        let waits = show(&house, &made.id).await;
        assert_eq!(waits.queued.unwrap().redriven_from.as_deref(), Some(&*former));
        let run = hand.one().await;
        assert_eq!((&run.id, run.attempt, run.payload.as_ref()), (&made.id, 1, Some(payload)));
        assert_eq!((run.key.as_deref(), run.timeout_ms), (Some("k"), Some(300_000)));
        assert!(hand.done(&run, json!({"result": "succeeded"})).await);
        let ended = show(&house, &made.id).await;
        assert_eq!(ended.state, RunState::Succeeded);
        let part = ended.queued.unwrap();
        assert_eq!(part.redriven_from.as_deref(), Some(&*former));
        assert_eq!(part.labels["env"], "prod");
        assert_eq!(show(&house, &former).await.state, RunState::Dead, "that stays as it was");
        assert_eq!(queue(&house).await.state.unwrap().dead, 0);
    }
    let audit: ListPage<AuditEntry> = house.ask("GET", "/v1/audit").send().await.is(200).read();
    let retried = audit.items.iter().filter(|entry| entry.action == "run.retry");
    assert_eq!(retried.count(), 2, "what did nothing is not written down");
}

#[tokio::test]
async fn dead_runs_are_redriven_by_filter_in_pieces_and_a_dry_run_counts() {
    let house = House::open().await;
    let mut hand = Hand::new(&house, "default", "w1").await;
    for (key, env) in [("a", "prod"), ("b", "prod"), ("a", "test")] {
        dies(&mut hand, once(&json!({"key": key, "labels": {"env": env}}))).await;
    }
    let failed = fails(&mut hand, json!({"key": "a", "labels": {"env": "prod"}})).await;
    assert_eq!(dead(&house, "state=failed").await[0].id, failed);
    assert_eq!(dead(&house, "state=dead&label=env=prod&key=a").await.len(), 1);
    assert_eq!(dead(&house, "state=poison").await.len(), 0);
    for (filter, count) in [
        (json!({}), 4),
        (json!({"state": ["dead"]}), 3),
        (json!({"state": ["poison"]}), 0),
        (json!({"labels": {"env": "prod"}}), 3),
        (json!({"labels": {"env": "prod"}, "key": "a", "state": ["failed"]}), 1),
        (json!({"until": NOON}), 0),
        (json!({"since": NOON}), 4),
    ] {
        let mut dry = filter.clone();
        dry.as_object_mut().unwrap().insert("dry_run".to_owned(), json!(true));
        let told = redrive(&house, dry).await;
        assert_eq!((told.matched, told.redriven, told.next), (count, 0, None), "{filter}");
    }
    // Also by a successor, which knows them from the store.
    let (key, number) = (hand.key.clone(), hand.number);
    let house = house.restart("2027-01-15T12:30:00Z").await;
    assert_eq!(queue(&house).await.state.unwrap().dead, 4);
    let first = redrive(&house, json!({"labels": {"env": "prod"}, "limit": 2})).await;
    assert_eq!((first.matched, first.redriven, first.skipped), (2, 2, 0));
    let (name, queues, cookie) = ("w1", vec!["mail"], String::new());
    let mut hand = Hand { house: &house, key, name, incarnation: 1, number, cookie, queues };
    hand.claim(json!({"free": 0})).await;
    let run = hand.one().await;
    assert!(hand.done(&run, json!({"result": "failed", "final_failure": true})).await);
    let next = json!({"labels": {"env": "prod"}, "cursor": first.next.unwrap()});
    let second = redrive(&house, next).await;
    assert_eq!((second.redriven, second.next), (1, None), "what died again since is left alone");
    assert_eq!(dead(&house, "").await.len(), 2);
    let wrong = json!({"since": NOON, "until": NOON});
    house.ask("POST", "/v1/queues/mail/redrive").body(&wrong).await.is(422);
    let wrong = json!({"cursor": "x"});
    house.ask("POST", "/v1/queues/mail/redrive").body(&wrong).await.is(422);
}

#[tokio::test]
async fn what_cannot_be_read_is_not_taken_for_gone() {
    let house = House::open().await;
    let mut hand = Hand::new(&house, "default", "w1").await;
    let long = json!({"payload": "x".repeat(5_000)});
    let ids = [dies(&mut hand, once(&json!({}))).await, dies(&mut hand, once(&long)).await];
    for part in ["queue", "body"] {
        house.running.lose_sight_of(Some(part));
        house.ask("POST", "/v1/queues/mail/redrive").body(&json!({})).await.is(503);
        house.ask("POST", &format!("/v1/runs/{}/retry", ids[1])).send().await.is(503);
    }
    house.running.lose_sight_of(None);
    assert_eq!(redrive(&house, json!({})).await.redriven, 2);
}

#[tokio::test]
async fn a_claim_whose_runs_cannot_be_read_is_told_so_and_loses_none() {
    let house = House::open().await;
    submit(&house, json!({"payload": "x".repeat(5_000)})).await;
    // Later than it was submitted, or it would not be due.
    let house = house.restart("2027-01-15T12:01:00Z").await;
    let mut hand = Hand::new(&house, "default", "w1").await;
    house.running.lose_sight_of(Some("body"));
    hand.say(json!({"free": 1})).await.is(503);
    house.running.lose_sight_of(None);
    let run = hand.one().await;
    assert_eq!(run.attempt, 1);
}

#[tokio::test]
async fn redriving_respects_the_queue_its_unique_keys_and_other_projects() {
    let house = House::open().await;
    let mut hand = Hand::new(&house, "default", "w1").await;
    let unique = once(&json!({"unique_key": "report/1", "unique_window": "1h"}));
    let former = dies(&mut hand, unique.clone()).await;
    dies(&mut hand, once(&json!({}))).await;
    house.project("other").await;
    let stranger = house.key("other", &[Scope::Write]).await;
    let path = format!("/v1/runs/{former}/retry");
    house.ask_as(&stranger, "POST", &path).send().await.is(404);
    house.ask_as(&stranger, "GET", "/v1/queues/mail/dead").send().await.is(404);
    let reader = house.key("default", &[Scope::Read]).await;
    house.ask_as(&reader, "POST", &path).send().await.is(403);

    house.ask("PUT", "/v1/queues/mail").body(&json!({"waiting_max": 1})).await.is(200);
    let told = redrive(&house, json!({})).await;
    assert_eq!((told.matched, told.redriven), (1, 1), "there is room for one");
    let next = json!({"cursor": told.next.unwrap()});
    let full = house.ask("POST", "/v1/queues/mail/redrive").body(&next).await.is(429);
    assert!(full.text.contains("at most 1 may"), "{}", full.text);
    house.ask("PUT", "/v1/queues/mail").body(&json!({})).await.is(200);

    // The unique key went to the run that waits now.
    let waits = submit(&house, unique.clone()).await;
    assert!(!waits.created);
    assert_eq!(show(&house, &waits.id).await.queued.unwrap().redriven_from, Some(former.clone()));
    let run = hand.one().await;
    assert!(hand.done(&run, json!({"result": "failed"})).await);
    let house = house.restart("2027-01-15T14:00:00Z").await;
    let other = submit(&house, unique).await;
    assert!(other.created, "the window is over");
    let path = format!("/v1/runs/{}/retry", run.id);
    let taken = house.ask("POST", &path).header("idempotency-key", "k").send().await.is(409);
    assert!(taken.text.contains(&other.id), "{}", taken.text);
    house.ask("POST", &path).header("idempotency-key", "k").send().await.is(409);
    let told = redrive(&house, json!({})).await;
    assert_eq!((told.matched, told.redriven, told.skipped), (2, 1, 1));
}

#[tokio::test]
async fn unfinished_runs_are_cancelled_by_filter_in_pieces_and_a_dry_run_counts() {
    let house = House::open().await;
    let mut hand = Hand::new(&house, "default", "w1").await;
    for (key, env) in [("a", "prod"), ("b", "prod"), ("c", "test"), ("d", "prod")] {
        submit(&house, json!({"key": key, "labels": {"env": env}})).await;
    }
    let run = hand.one().await;
    let filter = json!({"labels": {"env": "prod"}});
    let dry = cancel(&house, json!({"labels": {"env": "prod"}, "dry_run": true})).await;
    assert_eq!((dry.matched, dry.running, dry.next), (3, 1, None));
    let state = json!({"state": ["waiting"], "key": "b", "dry_run": true});
    assert_eq!(cancel(&house, state).await.matched, 1);
    assert_eq!(cancel(&house, json!({"until": NOON, "dry_run": true})).await.matched, 0);
    let first = cancel(&house, json!({"labels": {"env": "prod"}, "limit": 2})).await;
    assert_eq!((first.matched, first.running), (2, 1));
    submit(&house, json!({"labels": {"env": "prod"}})).await;
    let rest = json!({"labels": {"env": "prod"}, "cursor": first.next.unwrap()});
    let rest = cancel(&house, rest).await;
    assert_eq!((rest.matched, rest.next), (1, None), "what came since is not meant");
    let held = json!([{"id": run.id, "token": run.token}]);
    assert_eq!(hand.claim(json!({"running": held})).await.cancel.len(), 1);
    assert_eq!(cancel(&house, filter).await.matched, 1, "that one, and none twice");
    let left = queue(&house).await.state.unwrap();
    assert_eq!((left.waiting, left.running), (1, 1));
    house.ask("POST", "/v1/queues/none/cancel").body(&json!({})).await.is(404);
}

#[tokio::test]
async fn runs_of_queues_that_have_ended_are_found_by_queue_state_key_and_label() {
    let house = House::open().await;
    let mut hand = Hand::new(&house, "default", "w1").await;
    let prod = dies(&mut hand, once(&json!({"key": "a", "labels": {"env": "prod"}}))).await;
    dies(&mut hand, once(&json!({"labels": {"env": "test"}}))).await;
    submit(&house, json!({"labels": {"env": "prod"}})).await;
    let run = hand.one().await;
    assert!(hand.done(&run, json!({"result": "succeeded"})).await);
    let ids = async |query: &str| -> Vec<String> {
        let page = house.ask("GET", &format!("/v1/runs?{query}")).send().await.is(200);
        page.read::<ListPage<Run>>().items.into_iter().map(|run| run.id).collect()
    };
    assert_eq!(ids("queue=mail").await.len(), 3);
    assert_eq!(ids("queue=mail&state=dead").await.len(), 2);
    assert_eq!(ids("queue=mail&state=dead&label=env=prod").await, std::slice::from_ref(&prod));
    assert_eq!(ids("key=a").await, [prod]);
    assert_eq!(ids("label=env=prod&state=succeeded").await, [run.id]);
    assert_eq!(ids("queue=other").await.len(), 0);
    assert_eq!(ids("queue=mail&state=dead&limit=1").await.len(), 1);
}

#[tokio::test]
async fn a_queue_takes_its_dead_runs_with_it_and_is_made_only_where_there_is_none() {
    let house = House::open().await;
    let mut hand = Hand::new(&house, "default", "w1").await;
    let former = dies(&mut hand, once(&json!({"payload": "x".repeat(5_000)}))).await;
    let put = async |body: Value| {
        let ask = house.ask("PUT", "/v1/queues/mail").header("if-none-match", "*");
        ask.body(&body).await
    };
    put(json!({})).await.is(412);
    house.ask("DELETE", "/v1/queues/mail").send().await.is(204);
    house.ask("POST", &format!("/v1/runs/{former}/retry")).send().await.is(404);
    assert_eq!(show(&house, &former).await.state, RunState::Dead);
    put(json!({"concurrency": 2})).await.is(200);
    assert_eq!(dead(&house, "").await.len(), 0);
}

#[tokio::test]
async fn ids_of_shards_that_do_not_exist_are_answered_without_asking_anybody() {
    let house = House::open().await;
    let mut hand = Hand::new(&house, "default", "w1").await;
    let made = submit(&house, json!({})).await.id;
    // The first letters behind the underscore are the shard.
    let forged = format!("run_0zz{}", &made[7..]);
    let held = json!({"id": forged, "token": 1});
    let answer = hand
        .claim(json!({
            "done": [{"id": forged, "token": 2, "result": "succeeded"}], "running": [held],
        }))
        .await;
    assert_eq!((answer.acks.len(), answer.lost.len(), answer.unheard.len()), (1, 1, 0));
    assert!(!answer.acks[0].counted);
    house.ask("GET", &format!("/v1/runs/{forged}")).send().await.is(404);
    for verb in ["cancel", "retry"] {
        house.ask("POST", &format!("/v1/runs/{forged}/{verb}")).send().await.is(404);
    }
}
