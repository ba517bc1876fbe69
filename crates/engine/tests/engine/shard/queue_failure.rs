//! Runs that were submitted and fail: who is told of their queue, how often, and what a successor knows.

use engine::id::{ProjectId, RunId};
use engine::limits::QUEUE_WELL_AFTER;
use engine::notice::{Listener, Occasion, Occasions};
use engine::outcome::Outcome;
use engine::past::Attempt;
use engine::queue::draft::RunDraft;
use engine::queue::given::AttemptResult;
use engine::shard::command::{Command, Done};
use engine::shard::{ClaimCall, DoneCall, ShardAnswer, Ticket, WorkerCall, WorkerReply};
use serde_json::{Value, json};

use super::bench::Bench;

const OK: Outcome = Outcome::Answered { status: 200, retry_after: None };
const PROJECT: ProjectId = ProjectId::DEFAULT;
const FAILED: AttemptResult = AttemptResult::Failed { retry_after: None };

/// A queue, and a worker that serves it.
struct Served {
    bench: Bench,
    number: u64,
    cookie: u64,
}

impl Served {
    fn heard(on: Occasions) -> Self {
        let mut bench = Bench::new();
        bench.hear(Some(Listener::new("default", "http://chat.test/hook", on).unwrap()));
        Self { bench, number: 0, cookie: 0 }
    }

    /// Somebody else has the shard.
    fn take_over(&mut self) {
        self.bench.take_over(self.bench.wall + 1_000);
        self.bench.go(self.bench.wall + 60);
    }

    fn submit(&mut self, draft: &Value) -> RunId {
        let draft: RunDraft = serde_json::from_value(draft.clone()).unwrap();
        let runs = vec![draft.build(self.bench.now().wall).unwrap()];
        let (queue, author) = ("mail".into(), String::new());
        match self.bench.ask(Command::Submit { project: PROJECT, queue, runs, author }) {
            Some(Done::Submitted(taken)) => taken[0].id,
            other => panic!("{other:?}"),
        }
    }

    fn say(&mut self, done: Vec<DoneCall>, free: usize) -> WorkerReply {
        self.number += 1;
        let queues = vec!["mail".into()];
        let (cookie, labels) = (self.cookie, "".into());
        let call = WorkerCall {
            project: PROJECT,
            worker: "w".into(),
            incarnation: 1,
            number: self.number,
            settled: self.number - 1,
            lease_ms: 30_000,
            since: 0,
            is_draining: false,
            done,
            released: Vec::new(),
            running: Some(Vec::new()),
            claim: Some(ClaimCall { cookie, queues, free, wait_ms: 0, labels }),
        };
        self.bench.shard.hear(call, Ticket(self.number), self.bench.now());
        self.bench.commit();
        match self.bench.answer() {
            Some(ShardAnswer::Worker(reply)) => {
                self.cookie = reply.cookie;
                *reply
            }
            other => panic!("{other:?}"),
        }
    }

    /// A run is submitted, claimed and ends like this, a second later.
    fn run(&mut self, result: AttemptResult) {
        self.submit(&json!({"handler": "h", "retry": {"attempts": 1}}));
        self.say(Vec::new(), 0);
        let reply = self.say(Vec::new(), 1);
        let [given] = &reply.runs[..] else { panic!("{} runs", reply.runs.len()) };
        let (run, token) = (given.id, given.given.token);
        let error =
            matches!(result, AttemptResult::Failed { .. }).then(|| "the relay said 451".to_owned());
        let made = Some(Attempt { error, ..Attempt::default() });
        let reply = self.say(vec![DoneCall { run, token, result, made }], 0);
        assert_eq!(reply.acks.len(), 1);
        self.bench.go(self.bench.wall + 1_000);
    }

    /// What is on its way to whoever listens, which is taken.
    fn told(&mut self) -> Vec<Value> {
        let mut told = Vec::new();
        while let Some(left) = self.bench.left.first() {
            told.push(serde_json::from_str(left.webhook.body.as_ref().unwrap()).unwrap());
            self.bench.finish(OK);
        }
        self.bench.go(self.bench.wall + 60);
        told
    }

    fn events(&mut self) -> Vec<String> {
        self.told().iter().map(|told| told["event"].as_str().unwrap().to_owned()).collect()
    }

    fn pass(&mut self, ms: u128) {
        self.bench.go(self.bench.wall + i64::try_from(ms).unwrap());
    }
}

#[test]
fn ten_failures_of_a_queue_give_one_notice_and_a_success_after_them_another() {
    let mut served = Served::heard(Occasions::USUAL);
    served.run(AttemptResult::Succeeded);
    for _ in 0..10 {
        served.run(FAILED);
    }
    let [failure] = &served.told()[..] else { panic!("not one notice") };
    assert_eq!(failure["event"], "failure");
    assert_eq!(failure["text"], "mail (default) has a run that failed: the relay said 451");
    assert_eq!((&failure["queue"], failure.get("trigger")), (&json!("mail"), None));
    assert_eq!((&failure["state"], &failure["attempts"]), (&json!("dead"), &json!(1)));
    assert!(failure["run"].as_str().unwrap().starts_with("run_"), "{failure}");
    assert!(served.bench.queue("mail").failing.is_some());

    served.pass(QUEUE_WELL_AFTER.as_millis());
    served.run(AttemptResult::Succeeded);
    served.run(AttemptResult::Succeeded);
    let [recovery] = &served.told()[..] else { panic!("not one notice") };
    assert_eq!(recovery["event"], "recovery");
    assert_eq!(
        recovery["text"],
        "mail (default) has a run that succeeded, and none has failed for 5m"
    );
    assert_eq!(served.bench.queue("mail").failing, None);
    served.run(FAILED);
    assert_eq!(served.events(), ["failure"]);
}

#[test]
fn a_queue_of_which_some_runs_fail_is_told_of_once() {
    let mut served = Served::heard(Occasions::USUAL);
    for _ in 0..20 {
        served.run(FAILED);
        served.pass(QUEUE_WELL_AFTER.as_millis() / 2);
        served.run(AttemptResult::Succeeded);
    }
    assert_eq!(served.events(), ["failure"]);
}

#[test]
fn whoever_takes_over_tells_nobody_again_and_tells_of_the_recovery() {
    let mut served = Served::heard(Occasions::USUAL);
    served.run(FAILED);
    served.take_over();
    assert_eq!(served.events(), ["failure"], "the notice was durable with the failure");
    served.run(FAILED);
    served.take_over();
    assert_eq!(served.events(), [""; 0]);
    served.pass(QUEUE_WELL_AFTER.as_millis());
    served.run(AttemptResult::Succeeded);
    served.take_over();
    assert_eq!(served.events(), ["recovery"]);
}

#[test]
fn a_run_that_no_worker_was_given_in_time_is_a_failure_and_one_that_was_cancelled_is_none() {
    let mut served = Served::heard(Occasions::USUAL);
    let run = served.submit(&json!({"handler": "h"}));
    served.bench.ask(Command::CancelRun { project: PROJECT, run });
    assert_eq!(served.events(), [""; 0]);
    served.submit(&json!({"handler": "h", "expires_after": "1s"}));
    served.pass(2_000);
    let [failure] = &served.told()[..] else { panic!("not one notice") };
    assert_eq!(failure["text"], "mail (default) has a run that was given to no worker in time");
}

#[test]
fn only_those_who_asked_for_it_are_told_that_a_queue_is_well_again() {
    let mut served = Served::heard([Occasion::Recovery].into_iter().collect());
    served.run(FAILED);
    assert_eq!(served.events(), [""; 0]);
    served.pass(QUEUE_WELL_AFTER.as_millis());
    served.run(AttemptResult::Succeeded);
    assert_eq!(served.events(), ["recovery"]);

    let mut served = Served::heard([Occasion::Success].into_iter().collect());
    served.run(FAILED);
    served.run(AttemptResult::Succeeded);
    assert_eq!(served.events(), [""; 0], "a queue tells of no success");
    assert_eq!(served.bench.queue("mail").failing, None, "and nothing is written for nobody");
}
