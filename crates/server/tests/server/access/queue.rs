//! Queues over HTTP: what is submitted is carried out by whoever claims it, and nothing else happens to it.

use client::key::Scope;
use client::queue::{LeaseKind, Queue, Submitted, SubmittedBatch};
use client::run::{Run, RunState};
use client::worker::{ClaimAnswer, ClaimedRun, Worker};
use client::{ListPage, Timestamp};
use serde_json::{Value, json};
use store::Commit;
use tokio::sync::Notify;

use super::house::{Answer, House, NOON};

/// A worker of the tests: one claim at a time, and it says what it is told to.
pub(super) struct Hand<'a> {
    pub(super) house: &'a House,
    pub(super) key: String,
    pub(super) name: &'static str,
    pub(super) incarnation: u64,
    pub(super) number: u64,
    pub(super) cookie: String,
    pub(super) queues: Vec<&'static str>,
}

impl<'a> Hand<'a> {
    pub(super) async fn new(house: &'a House, project: &str, name: &'static str) -> Self {
        let key = house.key(project, &[Scope::Worker]).await;
        let (cookie, queues) = (String::new(), vec!["mail"]);
        let mut hand = Self { house, key, name, incarnation: 1, number: 0, cookie, queues };
        // A first claim gets the cookie and nothing else.
        assert_eq!(hand.claim(json!({"free": 9})).await.runs, []);
        hand
    }

    fn body(&mut self, more: Value) -> Value {
        self.number += 1;
        let mut body = json!({
            "worker": self.name, "incarnation": self.incarnation, "number": self.number,
            "settled": self.number - 1, "cookie": self.cookie, "queues": self.queues,
        });
        extend(&mut body, more);
        body
    }

    pub(super) async fn say(&mut self, more: Value) -> Answer {
        let body = self.body(more);
        self.house.ask_as(&self.key, "POST", "/v1/claim").body(&body).await
    }

    pub(super) async fn claim(&mut self, more: Value) -> ClaimAnswer {
        let answer: ClaimAnswer = self.say(more).await.is(200).read();
        self.cookie.clone_from(&answer.cookie);
        answer
    }

    /// Claims one run, which is there.
    pub(super) async fn one(&mut self) -> ClaimedRun {
        let mut runs = self.claim(json!({"free": 1, "wait_ms": 20_000})).await.runs;
        assert_eq!(runs.len(), 1);
        runs.remove(0)
    }

    /// Reports what came of a run. Whether it counted.
    pub(super) async fn done(&mut self, run: &ClaimedRun, result: Value) -> bool {
        let mut done = json!({"id": run.id, "token": run.token});
        extend(&mut done, result);
        let answer = self.claim(json!({"done": [done]})).await;
        assert_eq!(answer.acks.len(), 1, "{answer:?}");
        answer.acks[0].counted
    }
}

/// Gives an object more fields, or other values.
fn extend(object: &mut Value, more: Value) {
    let Value::Object(more) = more else { panic!("{more} is no object") };
    object.as_object_mut().unwrap().extend(more);
}

pub(super) async fn submit(house: &House, more: Value) -> Submitted {
    let mut run = json!({"queue": "mail", "handler": "send"});
    extend(&mut run, more);
    let answer = house.ask("POST", "/v1/runs").body(&run).await;
    assert!([200, 201].contains(&answer.status), "{answer:?}");
    answer.read()
}

async fn switch(house: &House, how: &str) {
    let answer = house.ask("POST", &format!("/v1/scheduler/{how}")).send().await;
    assert!([200, 202].contains(&answer.status), "{answer:?}");
}

pub(super) async fn show(house: &House, id: &str) -> Run {
    house.ask("GET", &format!("/v1/runs/{id}")).send().await.is(200).read()
}

pub(super) async fn queue(house: &House) -> Queue {
    house.ask("GET", "/v1/queues/mail").send().await.is(200).read()
}

#[tokio::test]
async fn a_run_is_claimed_once_and_ends_as_its_worker_says() {
    let house = House::open().await;
    let mut hand = Hand::new(&house, "default", "w1").await;
    let made = submit(&house, json!({"payload": {"to": "ann"}, "timeout": "5m"})).await;
    let run = hand.one().await;
    assert_eq!((&run.id, run.attempt, run.handler.as_deref()), (&made.id, 1, Some("send")));
    assert_eq!((run.payload.clone(), run.timeout_ms), (Some(json!({"to": "ann"})), Some(300_000)));
    let has_it = show(&house, &made.id).await;
    assert_eq!(has_it.state, RunState::Running);
    assert_eq!(has_it.queued.unwrap().worker.as_deref(), Some("w1"));
    let held = json!([{"id": run.id, "token": run.token}]);
    assert_eq!(
        hand.claim(json!({"free": 1, "running": held})).await.runs,
        [],
        "nobody gets it twice"
    );
    assert!(hand.done(&run, json!({"result": "succeeded"})).await);
    assert!(!hand.done(&run, json!({"result": "failed"})).await, "a result counts once");
    let ended = show(&house, &made.id).await;
    assert_eq!((ended.state, ended.attempts.len()), (RunState::Succeeded, 1));
    assert_eq!(ended.attempts[0].worker.as_deref(), Some("w1"));
    let listed: ListPage<Run> = house.ask("GET", "/v1/runs").send().await.is(200).read();
    assert_eq!(listed.items.iter().filter(|run| run.id == made.id).count(), 1);
}

#[tokio::test]
async fn a_failed_run_is_tried_again_when_its_worker_says_so_and_dies_in_the_end() {
    let house = House::open().await;
    let mut hand = Hand::new(&house, "default", "w1").await;
    let retry = json!({"retry": {"attempts": 2, "delay": "1s", "backoff": "constant"}});
    let made = submit(&house, retry).await;
    let first = hand.one().await;
    assert!(hand.done(&first, json!({"result": "failed", "error": "no route"})).await);
    let waits = show(&house, &made.id).await;
    assert_eq!(waits.state, RunState::Backoff);
    assert_eq!(waits.attempts[0].error.as_deref(), Some("no route"));
    let second = hand.one().await;
    assert_eq!(second.attempt, 2);
    assert!(second.token > first.token);
    let stale = json!({"id": first.id, "token": first.token, "result": "succeeded"});
    let held = json!([{"id": second.id, "token": second.token}]);
    let answer = hand.claim(json!({"done": [stale], "running": held})).await;
    assert!(!answer.acks[0].counted, "a stale token counts for nothing");
    let second_held = json!({"id": second.id, "token": second.token, "result": "failed"});
    hand.claim(json!({"done": [second_held]})).await;
    assert_eq!(show(&house, &made.id).await.state, RunState::Dead);
    let once = submit(&house, json!({})).await;
    let run = hand.one().await;
    assert!(hand.done(&run, json!({"result": "failed", "final_failure": true})).await);
    assert_eq!(show(&house, &once.id).await.state, RunState::Failed);
}

#[tokio::test]
async fn runs_are_claimed_by_priority_and_in_order_and_not_before_they_are_due() {
    let house = House::open().await;
    let mut hand = Hand::new(&house, "default", "w1").await;
    let mut ids = Vec::new();
    for (priority, delay) in [(5, "0s"), (5, "0s"), (0, "1h"), (1, "0s")] {
        ids.push(submit(&house, json!({"priority": priority, "delay": delay})).await.id);
    }
    let runs = hand.claim(json!({"free": 9})).await.runs;
    let claimed: Vec<&str> = runs.iter().map(|run| run.id.as_str()).collect();
    assert_eq!(claimed, [&*ids[3], &*ids[0], &*ids[1]]);
    let later = show(&house, &ids[2]).await;
    assert!(later.queued.unwrap().why.unwrap().starts_with("it is not due before"));
}

#[tokio::test]
async fn a_unique_key_stands_for_the_first_run_and_for_its_window_after_that() {
    let house = House::open().await;
    let mut hand = Hand::new(&house, "default", "w1").await;
    let unique = json!({"unique_key": "report/1", "unique_window": "1h"});
    let first = submit(&house, unique.clone()).await;
    let body = json!({"queue": "mail", "handler": "send", "unique_key": "report/1"});
    let again = house.ask("POST", "/v1/runs").body(&body).await.is(200);
    assert_eq!(again.read::<Submitted>(), Submitted { id: first.id.clone(), created: false });
    let run = hand.one().await;
    assert!(hand.done(&run, json!({"result": "succeeded"})).await);
    assert_eq!(submit(&house, unique.clone()).await.id, first.id, "within the window");
    let house = house.restart("2027-01-15T12:30:00Z").await;
    assert_eq!(submit(&house, unique.clone()).await.id, first.id, "also at a successor");
    let house = house.restart("2027-01-15T13:30:00Z").await;
    assert!(submit(&house, unique).await.created, "its window is over");
}

#[tokio::test]
async fn a_batch_is_taken_whole_or_not_at_all() {
    let house = House::open().await;
    let bad =
        json!({"queue": "mail", "runs": [{"handler": "a"}, {"handler": "b", "priority": 10}, {}]});
    let refused = house.ask("POST", "/v1/runs/batch").body(&bad).await.is(422);
    let text = &refused.text;
    for pointer in ["/runs/1/priority", "/runs/2/handler"] {
        assert!(text.contains(pointer), "{text}");
    }
    house.ask("GET", "/v1/queues/mail").send().await.is(404);
    let good = json!({"queue": "mail", "runs": [{"handler": "a"}, {"handler": "b", "payload": 1}]});
    let ask = || house.ask("POST", "/v1/runs/batch").header("idempotency-key", "batch-1");
    let made: SubmittedBatch = ask().body(&good).await.is(201).read();
    let again: SubmittedBatch = ask().body(&good).await.is(201).read();
    assert_eq!(made, again, "the same request is done once");
    assert_eq!(queue(&house).await.state.unwrap().waiting, 2);
}

#[tokio::test]
async fn a_batch_has_up_to_a_thousand_runs() {
    let house = House::open().await;
    let batch = |len: usize| {
        let run = |number: usize| json!({"handler": "a", "unique_key": number.to_string()});
        json!({"queue": "mail", "runs": (0..len).map(run).collect::<Vec<_>>()})
    };
    let refused = house.ask("POST", "/v1/runs/batch").body(&batch(1_001)).await.is(422);
    assert!(refused.text.contains("1 to 1000 runs"), "{}", refused.text);
    let made: SubmittedBatch =
        house.ask("POST", "/v1/runs/batch").body(&batch(1_000)).await.is(201).read();
    assert!(made.runs.iter().all(|run| run.created), "each is new");
    assert_eq!(queue(&house).await.state.unwrap().waiting, 1_000);
}

#[tokio::test]
async fn limits_are_kept_and_why_a_run_waits_is_told() {
    let house = House::open().await;
    let mut hand = Hand::new(&house, "default", "w1").await;
    house.ask("PUT", "/v1/queues/mail").body(&json!({"concurrency": 2})).await.is(200);
    for key in ["a", "a", "b", "c"] {
        submit(&house, json!({"key": key})).await;
    }
    let runs = hand.claim(json!({"free": 9})).await.runs;
    let keys: Vec<_> = runs.iter().map(|run| run.key.as_deref().unwrap()).collect();
    assert_eq!(keys, ["a", "b"], "one of each key, and two in all");
    let why = queue(&house).await.state.unwrap().why.unwrap();
    assert_eq!(why, "the queue lets at most 2 execute at a time, and as many do");
}

#[tokio::test]
async fn a_queue_that_is_paused_gives_nothing_until_it_goes_on() {
    let house = House::open().await;
    let mut hand = Hand::new(&house, "default", "w1").await;
    submit(&house, json!({})).await;
    let pause = json!({"note": "the mail server moves"});
    house.ask("POST", "/v1/queues/mail/pause").body(&pause).await.is(200);
    house.ask("POST", "/v1/queues/mail/pause").send().await.is(409);
    assert_eq!(hand.claim(json!({"free": 1})).await.runs, []);
    let why = queue(&house).await.state.unwrap().why.unwrap();
    assert!(why.contains("paused by") && why.ends_with("the mail server moves"), "{why}");
    house.ask("POST", "/v1/queues/mail/resume").send().await.is(200);
    house.ask("POST", "/v1/queues/mail/resume").send().await.is(409);
    hand.one().await;
    house.ask("DELETE", "/v1/queues/mail").send().await.is(409);
}

#[tokio::test]
async fn a_stopped_scheduler_hands_nothing_out_and_touches_nothing_that_runs() {
    let house = House::open().await;
    let mut hand = Hand::new(&house, "default", "w1").await;
    submit(&house, json!({})).await;
    submit(&house, json!({})).await;
    let run = hand.one().await;
    switch(&house, "stop").await;
    let held = json!([{"id": run.id, "token": run.token}]);
    let answer = hand.claim(json!({"free": 1, "running": held})).await;
    assert_eq!((answer.runs.len(), answer.lost.len(), answer.cancel.len()), (0, 0, 0));
    let why = queue(&house).await.state.unwrap().why.unwrap();
    assert!(why.contains("the scheduler is stopped"), "{why}");
    assert!(hand.done(&run, json!({"result": "succeeded"})).await);
    switch(&house, "start").await;
    hand.one().await;
}

#[tokio::test]
async fn cancelling_ends_what_waits_and_tells_the_worker_of_what_runs() {
    let house = House::open().await;
    let mut hand = Hand::new(&house, "default", "w1").await;
    let running = submit(&house, json!({})).await.id;
    let run = hand.one().await;
    let waiting = submit(&house, json!({})).await.id;
    for id in [&waiting, &running] {
        house.ask("POST", &format!("/v1/runs/{id}/cancel")).send().await.is(202);
    }
    assert_eq!(show(&house, &waiting).await.state, RunState::Cancelled);
    assert!(show(&house, &running).await.queued.unwrap().cancelling);
    let held = json!([{"id": run.id, "token": run.token}]);
    let answer = hand.claim(json!({"free": 1, "wait_ms": 20_000, "running": held})).await;
    assert_eq!(answer.cancel[0].id, running, "it is told at once");
    assert!(hand.done(&run, json!({"result": "failed"})).await);
    assert_eq!(
        show(&house, &running).await.state,
        RunState::Cancelled,
        "cancel comes before retry"
    );
    house.ask("POST", &format!("/v1/runs/{running}/cancel")).send().await.is(404);
}

#[tokio::test]
async fn a_claim_waits_for_a_run_and_a_newer_one_makes_it_void() {
    let house = House::open().await;
    let mut hand = Hand::new(&house, "default", "w1").await;
    let waits = hand.body(json!({"free": 1, "wait_ms": 25_000}));
    let first = house.ask_as(&hand.key, "POST", "/v1/claim").body(&waits);
    let is_void = Notify::new();
    let first = async {
        first.await.is(409);
        is_void.notify_one();
    };
    let second = async {
        // Until the first is there, a second one would not make it void.
        somebody_waits(&house).await;
        hand.one().await
    };
    let submits = async {
        is_void.notified().await;
        somebody_waits(&house).await;
        submit(&house, json!({})).await
    };
    let ((), run, made) = tokio::join!(first, second, submits);
    assert_eq!(made.id, run.id);
}

async fn somebody_waits(house: &House) {
    loop {
        let told = house.ask("GET", "/v1/queues/mail").send().await;
        if told.status == 200 && told.read::<Queue>().state.unwrap().claims_waiting > 0 {
            return;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_claim_that_waits_for_a_queue_that_is_deleted_is_answered() {
    let house = House::open().await;
    let mut hand = Hand::new(&house, "default", "w1").await;
    let deletes = async {
        somebody_waits(&house).await;
        house.ask("DELETE", "/v1/queues/mail").send().await.is(204);
    };
    let (answer, ()) = tokio::join!(hand.claim(json!({"free": 1, "wait_ms": 25_000})), deletes);
    assert_eq!(answer.runs, [], "it is to come again");
    let again = async {
        somebody_waits(&house).await;
        submit(&house, json!({})).await
    };
    let (run, made) = tokio::join!(hand.one(), again);
    assert_eq!(run.id, made.id, "of the new queue of that name");
}

#[tokio::test]
async fn what_waits_and_what_runs_survives_a_killed_server() {
    let house = House::open().await;
    let mut hand = Hand::new(&house, "default", "w1").await;
    let first = submit(&house, json!({"payload": "x".repeat(5_000)})).await.id;
    let run = hand.one().await;
    let second = submit(&house, json!({"payload": "y".repeat(5_000)})).await.id;
    let (key, number) = (hand.key.clone(), hand.number);
    let house = house.restart(NOON).await;
    assert_eq!(show(&house, &first).await.state, RunState::Running);
    let (name, queues, cookie) = ("w1", vec!["mail"], String::new());
    let mut hand = Hand { house: &house, key, name, incarnation: 1, number, cookie, queues };
    assert!(
        hand.done(&run, json!({"result": "succeeded"})).await,
        "a result reaches the next owner"
    );
    let next = hand.one().await;
    assert_eq!(next.id, second);
    assert_eq!(
        next.payload,
        Some(json!("y".repeat(5_000))),
        "what it is about is read from the store"
    );
    assert_eq!(show(&house, &first).await.state, RunState::Succeeded);
    assert_eq!(show(&house, &second).await.state, RunState::Running);
}

#[tokio::test]
async fn a_later_life_of_a_worker_gives_back_what_never_began_and_ends_the_former_one() {
    let house = House::open().await;
    let mut hand = Hand::new(&house, "default", "w1").await;
    submit(&house, json!({})).await;
    let run = hand.one().await;
    let mut later = Hand {
        incarnation: 2,
        number: 0,
        cookie: hand.cookie.clone(),
        key: hand.key.clone(),
        ..hand
    };
    let again = later.one().await;
    assert_eq!((&again.id, again.attempt), (&run.id, 1), "its number is used again");
    assert!(again.token > run.token);
    let mut former = Hand {
        incarnation: 1,
        number: 9,
        cookie: later.cookie.clone(),
        key: later.key.clone(),
        ..later
    };
    former.say(json!({"free": 1})).await.is(409);
}

#[tokio::test]
async fn nothing_of_one_project_is_seen_or_changed_by_another() {
    let house = House::open().await;
    house.project("other").await;
    let mut hand = Hand::new(&house, "default", "w1").await;
    let made = submit(&house, json!({})).await.id;
    let run = hand.one().await;
    let mut stranger = Hand::new(&house, "other", "w1").await;
    assert_eq!(stranger.claim(json!({"free": 9})).await.runs, [], "it has a queue of its own");
    assert!(!stranger.done(&run, json!({"result": "succeeded"})).await, "nor does it end our runs");
    let held = json!([{"id": run.id, "token": run.token}]);
    let answer = stranger.claim(json!({"running": held, "wait_ms": 20_000})).await;
    assert_eq!(answer.lost.len(), 1, "what it does not have it has lost");
    let writer = house.key("other", &[Scope::Write]).await;
    house.ask_as(&writer, "GET", &format!("/v1/runs/{made}")).send().await.is(404);
    house.ask_as(&writer, "POST", &format!("/v1/runs/{made}/cancel")).send().await.is(404);
    let workers: ListPage<Worker> =
        house.ask_as(&writer, "GET", "/v1/workers").send().await.is(200).read();
    assert_eq!(workers.items.len(), 1, "its own, of the same name");
    assert_eq!(show(&house, &made).await.state, RunState::Running);
}

#[tokio::test]
async fn rubbish_is_refused_by_the_field_that_is_wrong() {
    let house = House::open().await;
    let mut hand = Hand::new(&house, "default", "w1").await;
    for (said, pointer) in [
        (json!({"free": 1_001}), "/free"),
        (json!({"wait_ms": 30_001}), "/wait_ms"),
        (json!({"lease_ms": 10}), "/lease_ms"),
        (json!({"queues": []}), "/queues"),
        (json!({"queues": ["a/b"]}), "/queues/0"),
        (json!({"worker": ""}), "/worker"),
        (json!({"incarnation": 0}), "/incarnation"),
        (json!({"running": [{"id": "run_x", "token": 1}]}), "/running/0/id"),
        (json!({"done": [{"id": "x", "token": 1, "result": "succeeded"}]}), "/done/0/id"),
        (json!({"done": [{"id": "x", "token": 1, "result": "great"}]}), "/done/0/result"),
        (json!({"labels": {"a b": "c"}}), "/labels/a b"),
        (json!({"labels": labels(17)}), "/labels"),
        (json!({"nonsense": 1}), "/nonsense"),
    ] {
        let refused = hand.say(said.clone()).await.is(422);
        assert!(refused.text.contains(&format!("\"{pointer}\"")), "{said}: {}", refused.text);
    }
    let at = |len: usize| json!({"queue": "mail", "handler": "a", "payload": "x".repeat(len - 2)});
    house.ask("POST", "/v1/runs").body(&at(102_400)).await.is(201);
    let refused = house.ask("POST", "/v1/runs").body(&at(102_401)).await.is(422);
    assert!(refused.text.contains("102400 bytes"), "{}", refused.text);
    let forged =
        json!({"id": "run_00y00000000000991m7psd688k6gsb", "token": 1, "result": "succeeded"});
    let answer = hand.claim(json!({"done": [forged]})).await;
    assert!(!answer.acks[0].counted);
}

fn labels(count: usize) -> Value {
    (0..count).map(|number| (format!("k{number}"), json!("v"))).collect()
}

#[tokio::test]
async fn runs_of_a_strict_queue_are_given_as_such_from_then_on() {
    let house = House::open().await;
    let mut hand = Hand::new(&house, "default", "w1").await;
    submit(&house, json!({})).await;
    assert!(!hand.one().await.strict);
    let set = async |spec: Value| -> Queue {
        house.ask("PUT", "/v1/queues/mail").body(&spec).await.is(200).read()
    };
    assert_eq!(set(json!({"lease": "loose"})).await.spec.lease, None);
    assert_eq!(set(json!({"lease": "strict"})).await.spec.lease, Some(LeaseKind::Strict));
    submit(&house, json!({})).await;
    let answer = hand.say(json!({"free": 1, "wait_ms": 20_000})).await.is(200);
    assert!(answer.text.contains("\"strict\":true"), "{}", answer.text);
    house.ask("PUT", "/v1/queues/mail").body(&json!({"lease": "exact"})).await.is(422);
}

#[tokio::test]
async fn a_queue_takes_no_more_than_it_may_and_says_so() {
    let house = House::open().await;
    house.ask("PUT", "/v1/queues/mail").body(&json!({"waiting_max": 2})).await.is(200);
    submit(&house, json!({})).await;
    submit(&house, json!({})).await;
    let body = json!({"queue": "mail", "handler": "a"});
    let refused = house.ask("POST", "/v1/runs").body(&body).await.is(429);
    assert!(refused.text.contains("at most 2 may"), "{}", refused.text);
    submit(&house, json!({"queue": "other"})).await;
    let found: ListPage<Queue> = house.ask("GET", "/v1/queues").send().await.is(200).read();
    let names: Vec<&str> = found.items.iter().map(|queue| queue.name.as_str()).collect();
    assert_eq!(names, ["mail", "other"]);
    assert!(found.items[0].created > Timestamp::UNIX_EPOCH);
}

#[tokio::test]
async fn the_unfinished_runs_of_a_queue_are_listed_by_state_key_and_label() {
    let house = House::open().await;
    let mut hand = Hand::new(&house, "default", "w1").await;
    for (key, team) in [("a", "red"), ("b", "red"), ("a", "blue"), ("c", "blue")] {
        submit(&house, json!({"key": key, "labels": {"team": team}})).await;
    }
    let run = hand.one().await;
    let page = async |query: &str| -> ListPage<Run> {
        house.ask("GET", &format!("/v1/queues/mail/runs?{query}")).send().await.is(200).read()
    };
    let len = async |query: &str| page(query).await.items.len();
    assert_eq!(page("state=running").await.items[0].id, run.id);
    assert_eq!((len("").await, len("state=waiting").await), (4, 3));
    assert_eq!((len("key=a").await, len("label=team=red").await), (2, 2));
    assert_eq!(len("key=a&label=team=blue&state=waiting").await, 1);
    let first = page("limit=3").await;
    assert_eq!(first.items.len(), 3);
    let rest = page(&format!("limit=3&cursor={}", first.next.unwrap())).await;
    assert_eq!((rest.items.len(), rest.next), (1, None));
    let told = house.ask("GET", "/metrics").send().await.is(200).text;
    for line in
        ["watchbell_queue_runs{state=\"waiting\"} 3", "watchbell_queue_runs{state=\"running\"} 1"]
    {
        assert!(told.contains(line), "{told}");
    }
}

#[tokio::test]
async fn what_is_given_back_unbegun_keeps_its_place_and_other_queues_keep_their_rate() {
    let house = House::open().await;
    let mut hand = Hand::new(&house, "default", "w1").await;
    // Queues of many shards, of which a claim with room for one gets one run.
    let names = ["mail", "q1", "q2", "q3", "q4", "q5", "q6", "q7"];
    hand.queues = names.to_vec();
    hand.claim(json!({"free": 0})).await;
    for queue in names {
        let rate = json!({"rate": {"runs": 2, "per": "10m"}});
        house.ask("PUT", &format!("/v1/queues/{queue}")).body(&rate).await.is(200);
        for payload in 0..2 {
            submit(&house, json!({"queue": queue, "payload": payload})).await;
        }
    }
    let mut claimed = Vec::new();
    for _ in 0..2 * names.len() {
        let run = hand.one().await;
        claimed.push((run.queue.clone(), run.payload.clone().unwrap()));
        assert!(hand.done(&run, json!({"result": "succeeded"})).await);
    }
    assert_eq!(claimed[..2], [("mail".to_owned(), json!(0)), ("mail".to_owned(), json!(1))]);
    // Queues that share a shard come together.
    claimed.sort_by_key(|(queue, run)| (queue.clone(), run.as_u64()));
    let expected = names.iter().flat_map(|name| [0, 1].map(|run| ((*name).to_owned(), json!(run))));
    assert_eq!(claimed, expected.collect::<Vec<_>>(), "no rate is used up for nothing");
    hand.queues = vec!["plain"];
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(submit(&house, json!({"queue": "plain"})).await.id);
    }
    hand.claim(json!({"free": 0})).await;
    let run = hand.one().await;
    hand.claim(json!({"released": [{"id": run.id, "token": run.token}]})).await;
    let runs = hand.claim(json!({"free": 3})).await.runs;
    assert_eq!(runs.iter().map(|run| run.id.clone()).collect::<Vec<_>>(), ids);
}

#[tokio::test]
async fn a_run_of_which_nobody_can_say_what_it_is_about_fails_and_holds_up_nobody() {
    let house = House::open().await;
    let hand = Hand::new(&house, "default", "w1").await;
    let mut ids = Vec::new();
    for name in ["gone", "rubbish", "good"] {
        ids.push(
            submit(&house, json!({"payload": format!("{name}{}", "x".repeat(5_000))})).await.id,
        );
    }
    // A successor reads what they are about when they are claimed.
    let (key, number) = (hand.key.clone(), hand.number);
    let house = house.restart("2027-01-15T12:30:00Z").await;
    let store = house.world.store();
    let bodies = house.world.entries().await.into_iter();
    let bodies: Vec<_> = bodies.filter(|entry| entry.key.as_str().contains("/body/")).collect();
    assert_eq!(bodies.len(), 3);
    store.commit(Commit::new().delete(bodies[0].key.clone())).await.unwrap();
    store.commit(Commit::new().put(bodies[1].key.clone(), "rubbish")).await.unwrap();
    let cookie = String::new();
    let mut hand = Hand {
        house: &house,
        key,
        number,
        cookie,
        incarnation: 1,
        name: "w1",
        queues: vec!["mail"],
    };
    hand.claim(json!({"free": 0})).await;
    let mut claimed = Vec::new();
    for _ in 0..3 {
        claimed.extend(hand.claim(json!({"free": 1})).await.runs.into_iter().map(|run| run.id));
    }
    assert_eq!(claimed, ids[2..], "those before it are out of its way");
    for id in &ids[..2] {
        let run = show(&house, id).await;
        assert_eq!(run.state, RunState::Failed);
        let error = run.attempts.last().and_then(|attempt| attempt.error.clone());
        assert_eq!(error.as_deref(), Some("what the run is about cannot be read from the store"));
    }
}
