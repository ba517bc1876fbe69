//! Triggers that feed queues, through a real server: by what people type, and while it is killed.

use std::collections::BTreeMap;
use std::process::Command;

use client::account::{Account, Fate};
use client::run::RunState;
use client::spec::{CatchUp, TriggerSpec};
use client::trigger::PauseRequest;
use client::worker::{ClaimRequest, ClaimedRun, DoneRun, RunResult};
use client::{Client, Timestamp};
use rig::{PATIENCE, machine, until};
use store::clock::Stopwatch;

use super::command::{said, watchbell};
use super::process::{Dev, WATCHBELL, place};

/// A worker of the queue `mail` that carries out what it is given.
struct FeedWorker {
    incarnation: u64,
    number: u64,
    cookie: Option<String>,
    done: Vec<DoneRun>,
    /// The ids under which it was given the run of each slot.
    given: BTreeMap<Timestamp, Vec<String>>,
}

impl FeedWorker {
    fn new() -> Self {
        let (done, given) = (Vec::new(), BTreeMap::new());
        Self { incarnation: 1, number: 0, cookie: None, done, given }
    }

    /// Another life, which has forgotten everything but what it was given.
    fn begin_anew(&mut self) {
        self.incarnation += 1;
        self.done.clear();
    }

    /// Reports what is done, and claims a run.
    async fn claim(&mut self, client: &Client) -> Vec<ClaimedRun> {
        self.number += 1;
        let request = ClaimRequest {
            worker: "clerk".to_owned(),
            incarnation: self.incarnation,
            number: self.number,
            settled: self.number - 1,
            cookie: self.cookie.clone(),
            queues: vec!["mail".to_owned()],
            free: 1,
            wait_ms: 5_000,
            done: self.done.clone(),
            ..ClaimRequest::default()
        };
        let answer = client.claim(&request).await.unwrap();
        self.cookie = Some(answer.cookie);
        self.done.retain(|done| answer.acks.iter().all(|ack| ack.id != done.id));
        for run in &answer.runs {
            let ids = self.given.entry(run.scheduled).or_default();
            if !ids.contains(&run.id) {
                ids.push(run.id.clone());
            }
            self.done.push(DoneRun {
                id: run.id.clone(),
                token: run.token,
                result: RunResult::Succeeded,
                final_failure: false,
                retry_after_ms: None,
                error: None,
                exit_code: None,
                started: None,
                took_ms: None,
            });
        }
        answer.runs
    }

    /// Goes on until it was given the runs of so many slots.
    async fn serve(&mut self, client: &Client, slots: usize) {
        let begun = Stopwatch::start();
        while self.given.len() < slots {
            self.claim(client).await;
            assert!(begun.elapsed() < PATIENCE, "{} of {slots} slots", self.given.len());
        }
    }

    /// Goes on until nothing is left.
    async fn finish(&mut self, client: &Client) {
        let begun = Stopwatch::start();
        loop {
            self.claim(client).await;
            let state = client.queue("mail").await.unwrap().state.unwrap();
            if state.waiting + state.running == 0 && self.done.is_empty() {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{state:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_slot_has_one_run_in_its_queue_although_the_server_is_killed() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    let mut spec = TriggerSpec::handler("tick", "mail", "welcome").cron("* * * * * *");
    spec.catch_up = Some(CatchUp::All);
    let created = dev.client.create_trigger(&spec).await.unwrap().created;
    let mut worker = FeedWorker::new();
    worker.serve(&dev.client, 3).await;
    dev.kill();
    let dev = Dev::start(&data);
    worker.begin_anew();
    worker.serve(&dev.client, 6).await;
    dev.client.pause("tick", &PauseRequest::default()).await.unwrap();
    let paused = dev.client.trigger("tick").await.unwrap().paused.unwrap().since;
    worker.finish(&dev.client).await;

    let account: Account = dev.client.account("tick", Some(created), Some(paused)).await.unwrap();
    let (mut succeeded, mut skipped) = (0, 0);
    for row in &account.rows {
        let state = row.run.as_ref().map(|run| run.state);
        match row.fate {
            Fate::Run => {
                assert_eq!((row.count, state), (1, Some(RunState::Succeeded)), "{row:?}");
                assert_eq!(worker.given.get(&row.from).map(Vec::len), Some(1), "{row:?}");
                succeeded += 1;
            }
            // What the pause took back had not been given to anybody.
            Fate::Skipped | Fate::Paused => {
                assert_eq!(worker.given.get(&row.from), None, "{row:?}");
                skipped += row.count;
            }
            _ => panic!("{row:?}"),
        }
    }
    assert_eq!(succeeded, worker.given.len(), "{account:?}");
    let seconds = paused.as_second() - created.as_second();
    assert_eq!(i64::try_from(succeeded).unwrap() + i64::try_from(skipped).unwrap(), seconds);
    dev.kill();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trigger_that_feeds_a_queue_is_typed_shown_moved_or_refused_and_deleted() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let started = Dev::start(&data);
    let dev = &started;
    let typed = |more: &'static [&'static str]| async move {
        watchbell(dev, &[&["trigger", "create", "--name", "digest"], more].concat()).await
    };
    let (out, _) = said(
        &typed(&["--queue", "mail", "--handler", "digest", "--payload", "{\"days\": 1}"]).await,
        0,
    );
    assert!(out.contains("queue     mail") && out.contains("handler digest"), "{out}");
    let (_, err) = said(&typed(&["--webhook", "http://127.0.0.1:9/"]).await, 1);
    assert!(err.contains("the name is"), "{err}");
    let (_, err) = said(&typed(&["--queue", "mail"]).await, 2);
    assert!(err.contains("handler"), "{err}");
    let (out, _) = said(&watchbell(dev, &["trigger", "list"]).await, 0);
    assert!(out.contains("queue mail"), "{out}");

    // It runs on demand, and is found with its trigger and its queue.
    let demanded = dev.client.run("digest", None).await.unwrap();
    let run = until("the run waits in its queue", PATIENCE, || async {
        dev.client.run_by_id(&demanded.id).await.ok().filter(|run| run.queued.is_some())
    })
    .await;
    assert_eq!((run.name.as_deref(), run.on_demand), (Some("digest"), true));
    let (out, _) = said(&watchbell(dev, &["run", "list", "--trigger", "digest"]).await, 0);
    assert!(out.contains(&demanded.id), "{out}");
    let (_, err) = said(&watchbell(dev, &["queue", "delete", "mail", "--yes"]).await, 1);
    assert!(err.contains("not finished"), "{err}");

    // A queue of another shard is not for it; another of its own shard would be.
    let moved = |queue: String| async move {
        let spec = TriggerSpec::handler("digest", queue, "digest");
        dev.client.put_trigger("digest", &spec, None).await
    };
    let mut answers = Vec::new();
    for number in 0..8 {
        answers.push(moved(format!("mail-{number}")).await);
    }
    let refused = answers.iter().filter_map(|answer| answer.as_ref().err());
    let refused: Vec<String> = refused.map(ToString::to_string).collect();
    assert!(refused.iter().all(|why| why.contains("lives in another shard")), "{refused:?}");
    assert!(!refused.is_empty(), "of eight queues one is elsewhere");

    let output = Command::new(WATCHBELL)
        .args(["trigger", "create", "--name", "digest", "--replace", "--server", dev.client.url()])
        .args(["--queue", "mail", "--overlap", "skip", "--env", "A=1", "--", "/bin/true", "-x"])
        .output();
    let (out, _) = said(&output.unwrap(), 0);
    assert!(out.contains("command /bin/true") && out.contains("overlap"), "{out}");
    said(&watchbell(dev, &["trigger", "delete", "digest", "--yes"]).await, 0);
    let run = dev.client.run_by_id(&demanded.id).await.unwrap();
    assert_eq!(run.state, RunState::Waiting, "its run goes on");
    started.kill();
}
