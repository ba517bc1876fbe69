//! The cases.

use std::fs;
use std::path::Path;
use std::time::Duration;

use client::Timestamp;
use client::queue::{CommandSpec, LeaseKind, QueueSpec, RunSpec};
use client::run::{Run, RunState};
use client::spec::RetrySpec;
use client::worker::WorkerState;
use rig::{Manner, PATIENCE, until};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::place::{House, Library, Plan, spec};

/// Leases that lapse within a test.
const SHORT_MS: u64 = 1_000;

fn once() -> RetrySpec {
    RetrySpec { attempts: Some(1), ..RetrySpec::default() }
}

fn error(run: &Run) -> &str {
    run.attempts.first().and_then(|attempt| attempt.error.as_deref()).unwrap_or_default()
}

fn gate(path: &Path) -> Value {
    json!({ "file": path })
}

pub(super) async fn results(library: Library) {
    let house = House::of(library).await;
    let worker = house.start(&Plan::default());
    let echo = house.submit_as(spec("echo")).await;
    let last = house.submit("fail", json!({ "final": true })).await;
    let payload = Some(json!({ "final": false }));
    let tried = house.submit_as(RunSpec { payload, retry: Some(once()), ..spec("fail") }).await;
    let payload = Some(json!({ "ms": 1_500 }));
    let retry = Some(RetrySpec { delay: Some("1s".to_owned()), ..RetrySpec::default() });
    let later = house.submit_as(RunSpec { payload, retry, ..spec("later") }).await;
    let fits = house.submit("typed", json!({ "to": "ann" })).await;
    let unfit = house.submit("typed", json!({ "too": 1 })).await;
    let unknown = house.submit_as(spec("nobody")).await;
    let command = CommandSpec { argv: vec!["/bin/true".to_owned()], ..CommandSpec::default() };
    let command = house.submit_as(RunSpec { command: Some(command), ..RunSpec::default() }).await;

    let run = house.ended(&echo).await;
    assert_eq!((run.state, run.attempt), (RunState::Succeeded, 1), "{run:?}");
    worker.says(&format!("end {echo} 1")).await;
    let run = house.ended(&last).await;
    assert_eq!((run.state, run.attempt, error(&run)), (RunState::Failed, 1, "no"), "{run:?}");
    let run = house.ended(&tried).await;
    assert_eq!((run.state, run.attempt, error(&run)), (RunState::Dead, 1, "no"), "{run:?}");
    let run = house.ended(&later).await;
    assert_eq!((run.state, run.attempt, error(&run)), (RunState::Succeeded, 2, "busy"), "{run:?}");
    let [first, second] = &run.attempts[..] else { panic!("{run:?}") };
    let pause = second.at.as_millisecond() - first.at.as_millisecond();
    assert!(pause >= 1_500, "{run:?}");
    let run = house.ended(&fits).await;
    assert_eq!(run.state, RunState::Succeeded, "{run:?}");
    for (id, why) in
        [(&unfit, "the payload does not fit"), (&unknown, "nobody"), (&command, "commands")]
    {
        let run = house.ended(id).await;
        assert_eq!((run.state, run.attempt), (RunState::Failed, 1), "{run:?}");
        assert!(error(&run).contains(why), "{why}: {run:?}");
        assert_eq!(worker.begun(id), 0);
    }
}

pub(super) async fn sight(library: Library) {
    let house = House::of(library).await;
    let _worker = house.start(&Plan::default());
    let id = house.submit_as(spec("progress")).await;
    house.ended(&id).await;
    let output = house.client().run_output(&id).await.unwrap();
    let [chunk] = &output.chunks[..] else { panic!("{output:?}") };
    assert_eq!(chunk.bytes().unwrap(), b"hello\n");
    let at = chunk.at.expect("the worker said when");
    let run = house.run(&id).await;
    let (born, ended) = (run.slot, run.ended.expect("it has ended"));
    let room = Duration::from_secs(1);
    assert!(born - room <= at && at <= ended + room, "{at}: {run:?}");
    let progress = output.progress.expect("the worker said how far it was");
    assert_eq!((progress.percent, progress.text.as_deref()), (Some(50), Some("half")));
    let worker = house.client().worker("web-1").await.unwrap().worker;
    let labels: Vec<String> =
        worker.labels.iter().map(|(name, is)| format!("{name}={is}")).collect();
    assert_eq!(labels, ["version=7", "zone=b"]);
    assert!(worker.heard.is_some_and(|heard| heard > Timestamp::UNIX_EPOCH), "{worker:?}");
}

pub(super) async fn cancel(library: Library) {
    let house = House::of(library).await;
    let worker = house.start(&Plan { lease_ms: 2_000, ..Plan::default() });
    let open = house.gate("open");
    let deaf = house.submit("deaf", gate(&open)).await;
    let looks = house.submit_as(spec("looks")).await;
    let sleep = house.submit("sleep", json!({ "seconds": 60 })).await;
    for id in [&deaf, &looks, &sleep] {
        worker.says(&format!("begin {id} 1")).await;
    }
    for id in [&deaf, &looks, &sleep] {
        house.cancel(id).await;
    }
    for id in [&looks, &sleep] {
        worker.says(&format!("told {id} cancelled")).await;
        let run = house.ended(id).await;
        assert_eq!((run.state, run.attempt), (RunState::Cancelled, 1), "{run:?}");
    }
    // Whoever was told of those that were cancelled later was told of this one.
    fs::write(&open, "").unwrap();
    let run = house.ended(&deaf).await;
    assert_eq!((run.state, run.attempt), (RunState::Succeeded, 1), "{run:?}");
}

pub(super) async fn timeout(library: Library) {
    let house = House::of(library).await;
    let worker = house.start(&Plan::default());
    let timeout = || Some("1s".to_owned());
    let payload = Some(json!({ "seconds": 60 }));
    let sleep = RunSpec { payload, timeout: timeout(), retry: Some(once()), ..spec("sleep") };
    let sleep = house.submit_as(sleep).await;
    let looks = RunSpec { timeout: timeout(), retry: Some(once()), ..spec("looks") };
    let looks = house.submit_as(looks).await;
    for id in [&sleep, &looks] {
        worker.says(&format!("told {id} timeout")).await;
        let run = house.ended(id).await;
        assert_eq!((run.state, run.attempt), (RunState::Dead, 1), "{run:?}");
        assert!(error(&run).contains("it took longer than"), "{run:?}");
    }
}

pub(super) async fn lost_answers(library: Library) {
    let house = House::of(library).await;
    let worker = house.start(&Plan::default());
    let first = house.submit_as(spec("echo")).await;
    house.ended(&first).await;
    // Those that give runs.
    house.proxy.set(Manner::LosesAnswers);
    let mut ids = Vec::new();
    for _ in 0..6 {
        ids.push(house.submit_as(spec("echo")).await);
    }
    house.proxy.answers_lost(house.proxy.counts().answers_lost + 3).await;
    house.proxy.set(Manner::Faithful);
    let open = house.gate("open");
    for _ in 0..6 {
        ids.push(house.submit("deaf", gate(&open)).await);
    }
    for id in &ids[6..] {
        worker.says(&format!("begin {id} 1")).await;
    }
    // Those that take results.
    house.proxy.set(Manner::LosesAnswers);
    fs::write(&open, "").unwrap();
    for id in &ids[6..] {
        worker.says(&format!("end {id} 1")).await;
    }
    house.proxy.answers_lost(house.proxy.counts().answers_lost + 3).await;
    house.proxy.set(Manner::Faithful);
    for id in &ids {
        let run = house.ended(id).await;
        assert_eq!((run.state, run.attempt), (RunState::Succeeded, 1), "{run:?}");
        assert_eq!(worker.begun(id), 1, "{id}");
    }
}

pub(super) async fn bad_network(library: Library) {
    let house = House::of(library).await;
    house.proxy.set(Manner::Faulty);
    let mut worker = house.start(&Plan::default());
    let mut ids = Vec::new();
    for _ in 0..40 {
        ids.push(house.submit_as(spec("echo")).await);
    }
    for id in &ids {
        let run = house.ended(id).await;
        assert_eq!((run.state, run.attempt), (RunState::Succeeded, 1), "{run:?}");
        assert_eq!(worker.begun(id), 1, "{id}");
    }
    worker.signal(Signal::TERM);
    assert_eq!(worker.end().await.code(), Some(0));
}

pub(super) async fn stale_token(library: Library) {
    let house = House::of(library).await;
    let frozen = house.start(&Plan { name: "frozen", lease_ms: SHORT_MS, ..Plan::default() });
    let open = house.gate("open");
    let sleep = house.submit("sleep", json!({ "seconds": 60 })).await;
    let deaf = house.submit("deaf", gate(&open)).await;
    let both = [&sleep, &deaf];
    for id in both {
        frozen.says(&format!("begin {id} 1")).await;
    }
    frozen.signal(Signal::STOP);
    let awake = house.start(&Plan { name: "awake", ..Plan::default() });
    for id in both {
        awake.says(&format!("begin {id} 2")).await;
    }
    fs::write(&open, "").unwrap();
    let run = house.ended(&deaf).await;
    assert_eq!((run.state, run.attempt), (RunState::Succeeded, 2), "{run:?}");
    // One result comes under a stale token, and one run is told to be lost while it executes.
    frozen.signal(Signal::CONT);
    frozen.says(&format!("end {deaf} 1")).await;
    frozen.says(&format!("told {sleep} lost")).await;
    frozen.says(&format!("end {sleep} 1")).await;
    let last = house.run(&deaf).await.attempts.pop().expect("it was carried out");
    assert_eq!(last.worker.as_deref(), Some("awake"), "{last:?}");
    house.cancel(&sleep).await;
    awake.says(&format!("told {sleep} cancelled")).await;
    let run = house.ended(&sleep).await;
    assert_eq!((run.state, run.attempt), (RunState::Cancelled, 2), "{run:?}");
}

pub(super) async fn drain(library: Library) {
    let house = House::of(library).await;
    let mut worker = house.start(&Plan { capacity: 2, ..Plan::default() });
    let open = house.gate("open");
    let mut executing = Vec::new();
    for _ in 0..2 {
        let id = house.submit("deaf", gate(&open)).await;
        worker.says(&format!("begin {id} 1")).await;
        executing.push(id);
    }
    let waiting = house.submit_as(spec("echo")).await;
    worker.signal(Signal::TERM);
    until("servers know that it drains", PATIENCE, || async {
        let worker = house.client().worker("web-1").await.unwrap().worker;
        (worker.state == WorkerState::Draining).then_some(())
    })
    .await;
    fs::write(&open, "").unwrap();
    assert_eq!(worker.end().await.code(), Some(0));
    assert_eq!(worker.lines().last().map(String::as_str), Some("drained"));
    for id in &executing {
        assert_eq!(house.run(id).await.state, RunState::Succeeded);
    }
    assert_eq!(house.run(&waiting).await.state, RunState::Waiting);
    assert_eq!(worker.begun(&waiting), 0);
}

pub(super) async fn stop(library: Library) {
    let house = House::of(library).await;
    let mut worker = house.start(&Plan::default());
    let payload = Some(json!({ "seconds": 60 }));
    let sleep = RunSpec { payload, retry: Some(once()), ..spec("sleep") };
    let sleep = house.submit_as(sleep).await;
    let looks = house.submit_as(RunSpec { retry: Some(once()), ..spec("looks") }).await;
    for id in [&sleep, &looks] {
        worker.says(&format!("begin {id} 1")).await;
    }
    worker.signal(Signal::TERM);
    until("servers know that it drains", PATIENCE, || async {
        let worker = house.client().worker("web-1").await.unwrap().worker;
        (worker.state == WorkerState::Draining).then_some(())
    })
    .await;
    worker.signal(Signal::TERM);
    worker.end().await;
    for id in [&sleep, &looks] {
        let run = house.run(id).await;
        // It had one attempt, and that was no failure.
        let waits = matches!(run.state, RunState::Waiting | RunState::Backoff);
        assert!(waits && run.attempt == 1, "{run:?}");
        // One that is dropped in the middle is told nothing.
        worker.says(&format!("end {id} 1")).await;
    }
}

pub(super) async fn drained_by_server(library: Library) {
    let house = House::of(library).await;
    let mut worker = house.start(&Plan::default());
    let echo = house.submit_as(spec("echo")).await;
    house.ended(&echo).await;
    house.client().drain_worker("web-1").await.unwrap();
    assert_eq!(worker.end().await.code(), Some(0));
    assert_eq!(worker.lines().last().map(String::as_str), Some("drained"));
}

pub(super) async fn server_gone(library: Library) {
    let mut house = House::of(library).await;
    let worker = house.start(&Plan::default());
    let open = house.gate("open");
    let id = house.submit("deaf", gate(&open)).await;
    worker.says(&format!("begin {id} 1")).await;
    house.kill_server();
    fs::write(&open, "").unwrap();
    worker.says(&format!("end {id} 1")).await;
    house.start_server();
    let run = house.ended(&id).await;
    assert_eq!((run.state, run.attempt), (RunState::Succeeded, 1), "{run:?}");
    let next = house.submit_as(spec("echo")).await;
    assert_eq!(house.ended(&next).await.state, RunState::Succeeded);
    assert_eq!(worker.begun(&id), 1);
}

pub(super) async fn strict(library: Library) {
    let mut house = House::of(library).await;
    let lease = QueueSpec { lease: Some(LeaseKind::Strict), ..QueueSpec::default() };
    house.client().set_queue("ledger", &lease, None).await.unwrap();
    let plan = Plan { queues: "ledger,mail", lease_ms: SHORT_MS, ..Plan::default() };
    let worker = house.start(&plan);
    let payload = Some(json!({ "seconds": 60 }));
    let strict = RunSpec { queue: Some("ledger".to_owned()), payload, ..spec("sleep") };
    let strict = house.submit_as(strict).await;
    let loose = house.submit("sleep", json!({ "seconds": 60 })).await;
    for id in [&strict, &loose] {
        worker.says(&format!("begin {id} 1")).await;
    }
    house.kill_server();
    worker.says(&format!("told {strict} unconfirmed")).await;
    worker.says(&format!("end {strict} 1")).await;
    house.start_server();
    worker.says(&format!("begin {strict} 2")).await;
    for id in [&strict, &loose] {
        house.cancel(id).await;
        worker.says(&format!("told {id} cancelled")).await;
        assert_eq!(house.ended(id).await.state, RunState::Cancelled);
    }
    assert_eq!(worker.begun(&loose), 1);
}

pub(super) async fn killed(library: Library) {
    let house = House::of(library).await;
    let mut first = house.start(&Plan { lease_ms: 600_000, ..Plan::default() });
    let open = house.gate("open");
    let id = house.submit("deaf", gate(&open)).await;
    first.says(&format!("begin {id} 1")).await;
    first.kill().await;
    // The next life of the name says what earlier ones may have begun, so nobody waits for the lease.
    let second = house.start(&Plan { lease_ms: 600_000, ..Plan::default() });
    second.says(&format!("begin {id} 2")).await;
    fs::write(&open, "").unwrap();
    let run = house.ended(&id).await;
    assert_eq!((run.state, run.attempt), (RunState::Succeeded, 2), "{run:?}");
}

pub(super) async fn poison(library: Library) {
    let house = House::of(library).await;
    let id = house.submit_as(spec("die")).await;
    for attempt in 1..=3 {
        let mut worker = house.start(&Plan::default());
        worker.says(&format!("begin {id} {attempt}")).await;
        assert_eq!(worker.end().await.code(), Some(9));
    }
    let last = house.start(&Plan::default());
    let run = house.ended(&id).await;
    assert_eq!((run.state, run.attempt), (RunState::Dead, 3), "{run:?}");
    assert!(run.queued.as_ref().is_some_and(|queued| queued.poison), "{run:?}");
    assert_eq!(last.begun(&id), 0);
}
