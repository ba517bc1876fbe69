//! Queues through a real server, by what people type: a run is submitted, waits, is given to a worker and is cancelled.

use std::process::Command;

use client::queue::{Queue, Submitted};
use client::run::Run;
use client::worker::{BeatRequest, ClaimAnswer, ClaimRequest, ClaimedRun, HeldRun, Worker};
use client::{Client, ListPage};
use rig::{PATIENCE, machine, until};
use serde::de::DeserializeOwned;

use super::command::{said, watchbell};
use super::process::{Dev, WATCHBELL, place};

/// Types this, and reads what is said for programs.
async fn json<T: DeserializeOwned>(dev: &Dev, args: &[&str]) -> T {
    let (out, _) = said(&watchbell(dev, &[args, &["--output", "json"]].concat()).await, 0);
    serde_json::from_str(&out).unwrap_or_else(|why| panic!("{args:?}: {why}: {out}"))
}

/// Types this, and gives what is said for people.
async fn text(dev: &Dev, args: &[&str]) -> String {
    said(&watchbell(dev, args).await, 0).0
}

/// A worker of the queue `mail`, as far as it speaks.
struct TestWorker<'a> {
    client: &'a Client,
    number: u64,
    cookie: Option<String>,
}

impl<'a> TestWorker<'a> {
    fn new(client: &'a Client) -> Self {
        Self { client, number: 0, cookie: None }
    }

    /// Says which runs it has. The first answer has the cookie, without which a claim gets nothing.
    async fn beat(&mut self, running: Option<Vec<HeldRun>>) -> ClaimAnswer {
        self.number += 1;
        let request = BeatRequest {
            incarnation: 1,
            number: self.number,
            queues: vec!["mail".to_owned()],
            running,
            ..BeatRequest::default()
        };
        let answer = self.client.beat("web-1", &request).await.unwrap();
        self.cookie = Some(answer.cookie.clone());
        answer
    }

    /// Says that a run failed for good.
    async fn fail(&mut self, run: &ClaimedRun) {
        self.number += 1;
        let done = serde_json::json!([{
            "id": run.id, "token": run.token, "result": "failed", "error": "no route", "final_failure": true,
        }]);
        let request = BeatRequest {
            incarnation: 1,
            number: self.number,
            queues: vec!["mail".to_owned()],
            done: serde_json::from_value(done).unwrap(),
            ..BeatRequest::default()
        };
        assert_eq!(self.client.beat("web-1", &request).await.unwrap().acks.len(), 1);
    }

    /// Claims one run, and waits for it so long.
    async fn claim(&mut self, wait_ms: u64) -> Vec<ClaimedRun> {
        let settled = self.number;
        self.number += 1;
        let request = ClaimRequest {
            worker: "web-1".to_owned(),
            incarnation: 1,
            number: self.number,
            settled,
            cookie: self.cookie.clone(),
            queues: vec!["mail".to_owned()],
            free: 1,
            wait_ms,
            ..ClaimRequest::default()
        };
        self.client.claim(&request).await.unwrap().runs
    }
}

/// Waits until a run is in this state.
async fn reaches(client: &Client, id: &str, state: &str) {
    until(&format!("{id} is {state}"), PATIENCE, || async {
        let run = client.run_by_id(id).await.ok()?;
        (run.state.as_str() == state).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_of_a_queue_is_submitted_held_back_and_cancelled() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    assert!(text(&dev, &["queue", "list"]).await.contains("There are no such queues"));
    assert!(text(&dev, &["worker", "list"]).await.contains("There are no workers"));

    let submit =
        ["run", "submit", "--queue", "mail", "--handler", "welcome", "--unique-key", "ann"];
    let first: Submitted = json(&dev, &submit).await;
    let again: Submitted = json(&dev, &submit).await;
    assert_eq!((first.created, again.created, &first.id), (true, false, &again.id));
    assert!(text(&dev, &submit).await.starts_with("Nothing was submitted: run_"));
    let output = Command::new(WATCHBELL)
        .args(["run", "submit", "--queue", "reports", "--server", dev.client.url()])
        .args(["--", "/bin/echo", "--server"])
        .output();
    let (out, _) = said(&output.unwrap(), 0);
    let (id, rest) = out.split_once(' ').unwrap();
    assert!(rest.starts_with("is submitted. Look at it: watchbell run show run_"), "{out}");
    let command = text(&dev, &["run", "show", id]).await;
    assert!(command.lines().any(|line| line.ends_with("  /bin/echo --server")), "{command}");
    let handler: Run = json(&dev, &["run", "show", &first.id]).await;
    let part = handler.queued.unwrap();
    assert_eq!((part.handler.as_deref(), part.argv), (Some("welcome"), Vec::new()));

    let shown = text(&dev, &["queue", "show", "mail"]).await;
    assert!(shown.contains("1 of at most") && shown.contains("no worker that serves"), "{shown}");
    let set = ["queue", "set", "mail", "--concurrency", "3", "--rate", "100/1m"];
    let set: Queue = json(&dev, &set).await;
    assert_eq!((set.spec.concurrency, set.spec.rate.map(|rate| rate.runs)), (Some(3), Some(100)));
    let set: Queue = json(&dev, &["queue", "set", "mail", "--per-key", "2"]).await;
    assert_eq!((set.spec.concurrency, set.spec.per_key), (None, Some(2)), "the others are lifted");
    let strict = text(&dev, &["queue", "set", "mail", "--lease", "strict"]).await;
    assert!(strict.lines().any(|line| line.split_whitespace().eq(["lease", "strict"])), "{strict}");
    assert!(text(&dev, &["queue", "list"]).await.contains("lease strict"));
    let loose = text(&dev, &["queue", "set", "mail", "--lease", "loose"]).await;
    assert!(loose.contains("limits") && !loose.contains("lease"), "{loose}");

    let paused = text(&dev, &["queue", "pause", "mail", "--note", "the relay moves"]).await;
    assert!(paused.contains("watchbell queue resume mail"), "{paused}");
    let shown = text(&dev, &["queue", "show", "mail"]).await;
    assert_eq!(shown.matches("the relay moves").count(), 2, "the pause, and why it waits: {shown}");
    let mut worker = TestWorker::new(&dev.client);
    worker.beat(None).await;
    assert_eq!(worker.claim(0).await, [], "a paused queue gives nothing");
    let resumed = text(&dev, &["queue", "resume", "mail"]).await;
    assert!(resumed.starts_with("mail goes on; runs that wait: 1"), "{resumed}");

    let given = worker.claim(20_000).await;
    assert_eq!(given.len(), 1, "{given:?}");
    assert_eq!((&given[0].id, given[0].handler.as_deref()), (&first.id, Some("welcome")));
    let workers: ListPage<Worker> = json(&dev, &["worker", "list"]).await;
    assert_eq!((workers.items[0].name.as_str(), workers.items[0].running), ("web-1", 1));
    assert!(text(&dev, &["worker", "list"]).await.contains("busy"));
    let cancelled = text(&dev, &["run", "cancel", &first.id]).await;
    assert!(cancelled.contains("is to end: its worker web-1 is told"), "{cancelled}");
    let held = HeldRun { id: given[0].id.clone(), token: given[0].token };
    assert_eq!(worker.beat(Some(vec![held.clone()])).await.cancel, [held]);
    dev.kill();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_is_deleted_when_its_last_run_is_cancelled() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    let submit = ["run", "submit", "--queue", "mail", "--handler", "welcome", "--delay", "1h"];
    let run: Submitted = json(&dev, &submit).await;
    let list = text(&dev, &["queue", "list", "--prefix", "ma"]).await;
    assert!(list.contains("mail") && list.contains("none"), "{list}");
    let delete = ["queue", "delete", "mail", "--yes"];
    let (_, err) = said(&watchbell(&dev, &delete).await, 1);
    assert!(err.contains("the queue has runs that are not finished, 1 of them"), "{err}");
    let cancelled = text(&dev, &["run", "cancel", &run.id]).await;
    assert!(cancelled.contains("is cancelled"), "{cancelled}");
    reaches(&dev.client, &run.id, "cancelled").await;
    let (_, err) = said(&watchbell(&dev, &["run", "cancel", &run.id]).await, 1);
    assert!(err.contains("has ended (cancelled), and cannot be cancelled"), "{err}");
    assert!(text(&dev, &delete).await.contains("mail is deleted"));
    let list: ListPage<Queue> = json(&dev, &["queue", "list"]).await;
    assert_eq!(list.items, []);
    dev.kill();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_with_a_run_or_a_queue_is_told_by_its_flag() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    let submit = ["run", "submit", "--queue", "mail", "--handler", "welcome"];
    let long = "k".repeat(201);
    for (args, code, told) in [
        (&["queue", "show", "none"][..], 1, "watchbell queue list"),
        (&["queue", "set", "mail", "--rate", "1/2d"], 2, "--rate: "),
        (&["queue", "set", "mail", "--per-key", "0"], 2, "--per-key: "),
        (&[&submit[..], &["--priority", "10"]].concat(), 2, "--priority: 0 to 9"),
        (&[&submit[..], &["--concurrency-key", &long]].concat(), 2, "--concurrency-key: 1 to 200"),
        (&[&submit[..], &["--retry-attempts", "11"]].concat(), 2, "--retry-attempts: 1 to 10"),
    ] {
        let (_, err) = said(&watchbell(&dev, args).await, code);
        assert!(err.contains(told) && !err.contains("/v1/"), "{args:?}: {err}");
    }
    let output = Command::new(WATCHBELL)
        .args(["run", "submit", "--queue", "mail", "--server", dev.client.url(), "--", "echo"])
        .output();
    let (_, err) = said(&output.unwrap(), 2);
    assert!(err.contains("the command: the program is an absolute path"), "{err}");
    dev.kill();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_runs_are_listed_and_redriven_and_others_cancelled_by_what_is_typed() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    let submit =
        ["run", "submit", "--queue", "mail", "--handler", "welcome", "--label", "env=prod"];
    let mut worker = TestWorker::new(&dev.client);
    worker.beat(None).await;
    let mut dead = Vec::new();
    for _ in 0..2 {
        let made: Submitted = json(&dev, &submit).await;
        let given = worker.claim(20_000).await;
        assert_eq!(given[0].id, made.id);
        worker.fail(&given[0]).await;
        reaches(&dev.client, &made.id, "failed").await;
        dead.push(made.id);
    }
    let listed = text(&dev, &["queue", "dead", "mail"]).await;
    assert!(listed.contains(&dead[0]) && listed.contains("no route"), "{listed}");
    assert!(text(&dev, &["queue", "show", "mail"]).await.contains("watchbell queue dead mail"));
    let list = ["run", "list", "--queue", "mail", "--state", "failed", "--label", "env=prod"];
    let listed = text(&dev, &list).await;
    assert!(listed.contains("queue") && !listed.contains("trigger"), "{listed}");
    assert_eq!(listed.matches("run_").count(), 2, "{listed}");

    let retried = text(&dev, &["run", "retry", &dead[0]]).await;
    assert!(retried.contains(&format!("{} waits again, as run_", dead[0])), "{retried}");
    said(&watchbell(&dev, &["run", "retry", &dead[0]]).await, 1);
    let redrive = ["queue", "redrive", "mail", "--label", "env=prod"];
    let dry = text(&dev, &[&redrive[..], &["--dry-run"]].concat()).await;
    assert!(dry.starts_with("1 dead runs of mail would wait again"), "{dry}");
    assert!(text(&dev, &redrive).await.starts_with("1 dead runs of mail wait again."));

    let waiting = text(&dev, &["run", "list", "--queue", "mail", "--state", "waiting"]).await;
    assert_eq!(waiting.matches("run_").count(), 2, "{waiting}");
    let cancel = ["queue", "cancel", "mail", "--state", "waiting"];
    let dry = text(&dev, &[&cancel[..], &["--dry-run"]].concat()).await;
    assert!(dry.starts_with("2 runs of mail would be cancelled, 0 of them running"), "{dry}");
    said(&watchbell(&dev, &cancel).await, 2);
    let done = text(&dev, &[&cancel[..], &["--yes"]].concat()).await;
    assert_eq!(done, "2 runs of mail are cancelled.\n");
    said(&watchbell(&dev, &["queue", "cancel", "mail", "--yes"]).await, 2);
    dev.kill();
}
