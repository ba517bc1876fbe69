//! What people and programs see of queues: events, metrics, how a queue stands, and why its runs wait.

use client::queue::{Queue, QueueState, Submitted};
use client::run::Run;
use client::worker::{ClaimAnswer, ClaimedRun};
use serde_json::{Value, json};

use super::event::{Event, Watching};
use super::house::House;

/// A worker that claims from the queue `mail` and has one claim open at a time.
struct Claimer<'a> {
    house: &'a House,
    number: u64,
    cookie: String,
}

impl<'a> Claimer<'a> {
    async fn new(house: &'a House) -> Self {
        let mut claimer = Self { house, number: 0, cookie: String::new() };
        // A first claim gets the cookie and nothing else.
        assert_eq!(claimer.claim(0, &[], &[]).await.runs, []);
        claimer
    }

    /// Says what is done and what runs, and asks for so many more.
    async fn claim(&mut self, free: u64, done: &[Value], running: &[Value]) -> ClaimAnswer {
        self.number += 1;
        let body = json!({
            "worker": "w1", "incarnation": 1, "number": self.number, "settled": self.number - 1,
            "cookie": self.cookie, "queues": ["mail"], "free": free, "done": done, "running": running,
        });
        let answer: ClaimAnswer =
            self.house.ask("POST", "/v1/claim").body(&body).await.is(200).read();
        self.cookie.clone_from(&answer.cookie);
        answer
    }
}

fn held(run: &ClaimedRun) -> Value {
    json!({"id": run.id, "token": run.token})
}

fn done(run: &ClaimedRun) -> Value {
    json!({"id": run.id, "token": run.token, "result": "succeeded"})
}

async fn submit(house: &House, run: Value) -> Submitted {
    let mut body = json!({"queue": "mail", "handler": "send"});
    body.as_object_mut().unwrap().extend(run.as_object().unwrap().clone());
    house.ask("POST", "/v1/runs").body(&body).await.is(201).read()
}

async fn set(house: &House, settings: Value) {
    house.ask("PUT", "/v1/queues/mail").body(&settings).await.is(200);
}

async fn queue(house: &House) -> Queue {
    house.ask("GET", "/v1/queues/mail").send().await.is(200).read()
}

async fn state(house: &House) -> QueueState {
    queue(house).await.state.unwrap()
}

async fn why_queue(house: &House) -> String {
    state(house).await.why.unwrap()
}

async fn why_run(house: &House, run: &Submitted) -> String {
    let run: Run = house.ask("GET", &format!("/v1/runs/{}", run.id)).send().await.is(200).read();
    run.queued.unwrap().why.unwrap()
}

/// The next event of a kind.
async fn next(watching: &mut Watching, kind: &str) -> Event {
    loop {
        let event = watching.next().await.unwrap();
        if event.kind == kind {
            return event;
        }
    }
}

#[tokio::test]
async fn what_happens_in_a_queue_is_told_shown_and_counted() {
    let house = House::open().await;
    let mut watching = Watching::begin(house.ask("GET", "/v1/events")).await;
    set(&house, json!({"alert_after": "1s"})).await;
    let changed = next(&mut watching, "changed").await;
    assert_eq!(
        (&changed.data["action"], &changed.data["object"]),
        (&json!("queue.set"), &json!("mail"))
    );
    let made = submit(&house, json!({})).await;
    let overdue = next(&mut watching, "queue_overdue").await;
    assert_eq!(overdue.data["queue"], "mail");
    assert!(queue(&house).await.overdue.is_some());
    let told = house.ask("GET", "/metrics").send().await.is(200).text;
    assert!(told.contains("\nwatchbell_queues_overdue 1\n"), "{told}");

    let mut claimer = Claimer::new(&house).await;
    assert_eq!(next(&mut watching, "worker_came").await.data["worker"], "w1");
    let run = claimer.claim(1, &[], &[]).await.runs.remove(0);
    let given = next(&mut watching, "run_given").await.data;
    assert_eq!(
        (&given["run"], &given["worker"], &given["attempt"]),
        (&json!(made.id), &json!("w1"), &json!(1))
    );
    let told = house.ask("GET", "/metrics").send().await.is(200).text;
    for line in
        ["queue_given_total 1", "queue_start_delay_seconds_count 1", "workers{state=\"busy\"} 1"]
    {
        assert!(told.contains(&format!("\nwatchbell_{line}\n")), "{line}: {told}");
    }
    assert_eq!(claimer.claim(0, &[done(&run)], &[]).await.acks.len(), 1);
    next(&mut watching, "run_ended").await;
    assert_eq!(next(&mut watching, "queue_well").await.data["queue"], "mail");
    assert_eq!(queue(&house).await.overdue, None);
    let QueueState { given_last_minute, ended_last_minute, .. } = state(&house).await;
    assert_eq!((given_last_minute, ended_last_minute), (1, 1));
    let told = house.ask("GET", "/metrics").send().await.is(200).text;
    for line in
        ["queue_ends_total{state=\"succeeded\"} 1", "workers{state=\"idle\"} 1", "queues_overdue 0"]
    {
        assert!(told.contains(&format!("\nwatchbell_{line}\n")), "{line}: {told}");
    }
}

#[tokio::test]
async fn each_reason_to_wait_has_its_sentence() {
    let house = House::open().await;
    let first = submit(&house, json!({"key": "a"})).await;
    let no_worker = "no worker that serves the queue has room for it";
    assert_eq!(why_run(&house, &first).await, no_worker);
    assert_eq!(why_queue(&house).await, no_worker);
    let second = submit(&house, json!({"key": "a"})).await;
    assert_eq!(why_run(&house, &second).await, "another run with its key comes before it");
    let later = submit(&house, json!({"delay": "1h"})).await;
    let why = why_run(&house, &later).await;
    assert!(why.starts_with("it is not due before 20"), "{why}");

    let mut claimer = Claimer::new(&house).await;
    let run = claimer.claim(9, &[], &[]).await.runs.remove(0);
    assert_eq!(
        why_run(&house, &second).await,
        "the queue lets at most 1 with its key execute at a time, and as many do"
    );
    assert_eq!(
        why_queue(&house).await,
        "none of its runs is due yet, or all that are due wait for their keys"
    );
    set(&house, json!({"concurrency": 1})).await;
    let full = "the queue lets at most 1 execute at a time, and as many do";
    assert_eq!(
        (why_run(&house, &second).await.as_str(), why_queue(&house).await.as_str()),
        (full, full)
    );
    set(&house, json!({"rate": {"runs": 1, "per": "1h"}})).await;
    claimer.claim(0, &[done(&run)], &[]).await;
    let run = claimer.claim(1, &[], &[]).await.runs.remove(0);
    submit(&house, json!({})).await;
    let why = why_queue(&house).await;
    assert!(
        why.starts_with("the queue's rate of 1 in 1h is reached; there is room again at 20"),
        "{why}"
    );

    let note = json!({"note": "the relay moves"});
    house.ask("POST", "/v1/queues/mail/pause").body(&note).await.is(200);
    for why in [why_queue(&house).await, why_run(&house, &later).await] {
        assert!(
            why.starts_with("the queue is paused by ") && why.ends_with(": the relay moves"),
            "{why}"
        );
    }
    house.ask("POST", "/v1/queues/mail/resume").send().await.is(200);
    let audited = house.ask("GET", "/v1/audit").send().await.is(200).text;
    assert!(audited.contains("queue.pause") && audited.contains("queue.resume"), "{audited}");

    let switch =
        async |how: &str| house.ask("POST", &format!("/v1/scheduler/{how}")).send().await.status;
    assert_eq!((switch("stop").await / 100, switch("stop").await), (2, 409));
    let why = why_queue(&house).await;
    assert!(why.contains("the scheduler is stopped"), "{why}");
    let answer = claimer.claim(1, &[], &[held(&run)]).await;
    assert_eq!((answer.runs.len(), answer.lost.len(), answer.cancel.len()), (0, 0, 0));
    assert_eq!((switch("start").await / 100, switch("start").await), (2, 409));
}
