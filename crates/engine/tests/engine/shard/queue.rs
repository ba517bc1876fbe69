//! Queues beside triggers, and workers that are merely alive.

use engine::id::{ProjectId, RunId};
use engine::instant::Instant;
use engine::limits::{QUEUES_PER_SHARD_MAX, WORKER_FORGOTTEN_MS};
use engine::queue::draft::{QueueDraft, RunDraft};
use engine::queue::given::RunToken;
use engine::queue::news::{QueueHappening, WorkerTurn};
use engine::shard::command::{Command, Done};
use engine::shard::{ClaimCall, ShardAnswer, Submission, Ticket, WorkerCall};

use super::bench::{BEGIN, Bench, draft};

const LEASE_MS: u32 = 30_000;

#[test]
fn a_thousand_workers_with_a_hundred_runs_each_are_alive_without_a_write() {
    let mut bench = Bench::new();
    for _ in 0..100 {
        assert!(submit(&mut bench, ProjectId::DEFAULT, "jobs", 1_000).is_some());
    }
    let mut held = Vec::new();
    for worker in 0..1_000 {
        let cookie = claim(&mut bench, worker, (1, 0), 0).0;
        held.push(claim(&mut bench, worker, (2, cookie), 100).1);
    }
    assert!(held.iter().all(|runs| runs.len() == 100), "{:?}", held.iter().map(Vec::len).max());
    let written = bench.commits();
    for beat in 0..20 {
        bench.steady += u64::from(LEASE_MS) / 5;
        bench.wall += i64::from(LEASE_MS) / 5;
        for (worker, runs) in held.iter().enumerate() {
            bench.shard.hear(call(worker, 3 + beat, Some(runs.clone())), Ticket(9), bench.now());
        }
        bench.step();
        assert_eq!(bench.shard.commit_by(), None, "beat {beat}");
    }
    assert_eq!(bench.commits(), written);
    // They were heard: a fifth of this silence would have been too long.
    let (_, again) = claim(&mut bench, 1_000, (1, 0), 100);
    assert!(again.is_empty(), "nothing was taken for lost");
}

#[test]
fn a_queue_that_is_full_stops_no_trigger_and_no_queue_of_another_project() {
    let mut bench = Bench::new();
    let settings = QueueDraft { waiting_max: Some(10), ..QueueDraft::default() };
    let set = Command::SetQueue {
        project: ProjectId::DEFAULT,
        name: "jobs".into(),
        settings: settings.build().unwrap(),
        author: String::new(),
        revision: None,
    };
    assert!(matches!(bench.ask(set), Some(Done::QueueSet { .. })));
    bench.create(draft(r#"{"every": "1s"}"#, "{}"));
    assert!(submit(&mut bench, ProjectId::DEFAULT, "jobs", 10).is_some());
    assert!(submit(&mut bench, ProjectId::DEFAULT, "jobs", 1).is_none(), "one too many");
    assert!(submit(&mut bench, ProjectId(7), "jobs", 11).is_some(), "another project's");
    for second in 1..=5 {
        bench.go(second * 1_000);
    }
    assert_eq!(bench.left.len(), 5, "the trigger fired every second");
}

/// Submits runs, which are those of the answer; nothing, if they are refused.
fn submit(bench: &mut Bench, project: ProjectId, queue: &str, count: usize) -> Option<Vec<RunId>> {
    let author = String::new();
    let runs = vec![submission(); count];
    match bench.ask(Command::Submit { project, queue: queue.into(), runs, author }) {
        Some(Done::Submitted(taken)) => Some(taken.iter().map(|taken| taken.id).collect()),
        None => None,
        other => panic!("{other:?}"),
    }
}

fn submission() -> Submission {
    let draft = RunDraft { handler: Some("h".to_owned()), ..RunDraft::default() };
    draft.build(Instant(BEGIN)).unwrap()
}

/// A claim of a worker, under a number and with the cookie that it was told: the cookie, and what it is given.
fn claim(
    bench: &mut Bench,
    worker: usize,
    (number, cookie): (u64, u64),
    free: usize,
) -> (u64, Vec<(RunId, RunToken)>) {
    let queues = vec!["jobs".into()];
    let claim = Some(ClaimCall { cookie, queues, free, wait_ms: 0, labels: "".into() });
    let call = WorkerCall { claim, ..call(worker, number, Some(Vec::new())) };
    bench.shard.hear(call, Ticket(2), bench.now());
    match bench.answer() {
        Some(ShardAnswer::Worker(reply)) => {
            let runs = reply.runs.iter().map(|run| (run.id, run.given.token));
            (reply.cookie, runs.collect())
        }
        other => panic!("{other:?}"),
    }
}

fn call(worker: usize, number: u64, running: Option<Vec<(RunId, RunToken)>>) -> WorkerCall {
    WorkerCall {
        project: ProjectId::DEFAULT,
        worker: format!("w{worker}").into(),
        incarnation: 1,
        number,
        settled: number - 1,
        lease_ms: LEASE_MS,
        since: 0,
        is_draining: false,
        done: Vec::new(),
        released: Vec::new(),
        running,
        claim: None,
    }
}

#[test]
fn claims_that_wait_are_answered_when_nobody_knows_what_time_it_is() {
    let mut bench = Bench::new();
    let cookie = claim(&mut bench, 0, (1, 0), 0).0;
    bench.commit();
    let (free, queues) = (1, vec!["jobs".into()]);
    let waits = ClaimCall { cookie, queues, free, wait_ms: 20_000, labels: "".into() };
    let waits = WorkerCall { claim: Some(waits), ..call(0, 2, Some(Vec::new())) };
    bench.shard.hear(waits, Ticket(7), bench.now());
    bench.commit();
    assert!(bench.answer().is_none(), "it waits");
    bench.shard.set_suspended(true);
    assert!(matches!(bench.answer(), Some(ShardAnswer::Worker(reply)) if reply.runs.is_empty()));
}

#[test]
fn a_claim_is_served_from_the_queues_that_there_are_and_told_which_cannot_be_made() {
    let mut bench = Bench::new();
    for number in 0..QUEUES_PER_SHARD_MAX {
        assert!(submit(&mut bench, ProjectId::DEFAULT, &format!("q{number}"), 1).is_some());
    }
    let mut ask = |number, cookie, queues: &[&str]| {
        let queues = queues.iter().map(|queue| (*queue).into()).collect();
        let (free, labels) = (1, "".into());
        let claim = Some(ClaimCall { cookie, queues, free, wait_ms: 10_000, labels });
        let call = WorkerCall { claim, ..call(0, number, Some(Vec::new())) };
        bench.shard.hear(call, Ticket(number), bench.now());
        bench.commit();
        let answer = bench.answer().or_else(|| {
            bench.go(bench.wall + 11_000);
            bench.answer()
        });
        match answer {
            Some(ShardAnswer::Worker(reply)) => {
                let refused: Vec<String> = reply.refused.iter().map(ToString::to_string).collect();
                (reply.cookie, reply.runs.len(), refused)
            }
            other => panic!("{other:?}"),
        }
    };
    let cookie = ask(1, 0, &["q0"]).0;
    assert_eq!(ask(2, cookie, &["more", "q0"]), (cookie, 1, vec!["more".to_owned()]));
    // One that waits for runs is told when its time is over, and one for which nothing is left at once.
    assert_eq!(ask(3, cookie, &["q0", "more"]).2, ["more"]);
    assert_eq!(ask(4, cookie, &["more", "others"]).2, ["more", "others"]);
}

/// What became of workers until the shard has nothing to do by itself any more, or for a quarter of an hour, and when.
fn told_of_workers(bench: &mut Bench) -> Vec<(i64, WorkerTurn)> {
    let (begun, mut told) = (bench.wall, Vec::new());
    while let Some(wake) = bench.shard.next_wake(bench.now())
        && wake.0 - BEGIN - begun < 900_000
    {
        bench.go(wake.0 - BEGIN);
        let news = bench.news.drain(..).chain(bench.shard.take_news());
        told.extend(news.filter_map(|news| match news.what {
            QueueHappening::Worker { turn, .. } => Some((news.at.0 - BEGIN - begun, turn)),
            _ => None,
        }));
    }
    told
}

#[test]
fn a_worker_that_is_silent_and_one_that_is_gone_are_told_though_nobody_else_is_heard() {
    let mut bench = Bench::new();
    bench.shard.set_watched(true);
    assert!(submit(&mut bench, ProjectId::DEFAULT, "jobs", 3).is_some());
    let cookie = claim(&mut bench, 0, (1, 0), 0).0;
    assert_eq!(claim(&mut bench, 0, (2, cookie), 2).1.len(), 2);
    bench.shard.hear(call(1, 1, Some(Vec::new())), Ticket(3), bench.now());
    bench.step();
    assert_eq!(bench.shard.take_news().len(), 2, "two came");
    bench.news.clear();
    let forgotten = i64::try_from(WORKER_FORGOTTEN_MS).unwrap();
    let told = told_of_workers(&mut bench);
    let turns: Vec<WorkerTurn> = told.iter().map(|(_, turn)| *turn).collect();
    assert_eq!(turns, [WorkerTurn::Silent { runs: 2 }, WorkerTurn::Gone, WorkerTurn::Gone]);
    let patience = i64::from(LEASE_MS) * 5 / 4;
    for ((at, turn), due) in told.iter().zip([patience, forgotten, forgotten]) {
        assert!((due..due + 1_000).contains(at), "{turn:?} at {at}, and due at {due}");
    }
    // Nobody is left to be told of.
    assert_eq!(told_of_workers(&mut bench), []);
}
