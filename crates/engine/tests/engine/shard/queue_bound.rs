//! Bounds of queues that keep one project, one queue or one request from stopping others.

use std::sync::Arc;

use engine::id::ProjectId;
use engine::instant::Instant;
use engine::limits::{
    ACTION_INLINE_BYTES_MAX, ACTIONS_KEPT_BYTES_MAX, CLAIM_RUNS_MAX, DEAD_RUNS_PER_QUEUE_MAX,
    FILTER_LOOKED_AT_MAX, QUEUE_CHANGES_AT_ONCE, RUNS_BEFORE_QUEUES_MAX, SUBMIT_RUNS_MAX,
    WORKERS_PER_PROJECT_MAX, WORKERS_PER_SHARD_MAX,
};
use engine::past::{Attempt, Reason};
use engine::queue::draft::RunDraft;
use engine::queue::given::AttemptResult;
use engine::shard::command::{Command, Done, Rejection};
use engine::shard::{
    ClaimCall, DoneCall, QueueView, RedriveResult, ShardAnswer, Submission, Ticket, WorkerCall,
    WorkerReply,
};
use serde_json::value::RawValue;

use super::bench::{BEGIN, Bench, draft};
use super::feed::{Clerk, EVERY_TEN, at_most, feeding, run};

/// A worker that says nothing yet.
fn worker(number: usize) -> WorkerCall {
    WorkerCall {
        project: ProjectId::DEFAULT,
        worker: format!("w{number}").into(),
        incarnation: 1,
        number: 1,
        settled: 0,
        lease_ms: 60_000,
        since: 0,
        is_draining: false,
        done: Vec::new(),
        released: Vec::new(),
        running: None,
        claim: None,
    }
}

/// The second request of a worker: a claim, with the cookie of the first one's answer.
fn claim(number: usize, cookie: u64, free: usize, wait_ms: u64) -> WorkerCall {
    let queues = vec!["mail".into()];
    let claim = Some(ClaimCall { cookie, queues, free, wait_ms, labels: Arc::default() });
    WorkerCall { number: 2, settled: 1, running: Some(Vec::new()), claim, ..worker(number) }
}

/// The cookie of the shard's memory.
fn cookie(bench: &mut Bench) -> u64 {
    bench.work(worker(0)).cookie
}

/// So many runs wait in a queue, each about so many bytes.
fn submit(bench: &mut Bench, queue: &str, count: usize, bytes: usize) -> Option<Done> {
    let payload = RawValue::from_string(format!("\"{}\"", "x".repeat(bytes))).unwrap();
    let (handler, payload) = (Some("h".to_owned()), Some(payload));
    let draft = RunDraft { handler, payload, ..RunDraft::default() };
    let run: Submission = draft.build(Instant(BEGIN)).unwrap();
    let (project, queue, author) = (ProjectId::DEFAULT, queue.into(), String::new());
    bench.ask(Command::Submit { project, queue, runs: vec![run; count], author })
}

/// How a queue stands.
fn view(bench: &mut Bench, queue: &str) -> QueueView {
    bench.shard.show_queue(ProjectId::DEFAULT, queue, Ticket(5), bench.now());
    match bench.answer() {
        Some(ShardAnswer::Queue(Some(view))) => *view,
        other => panic!("{other:?}"),
    }
}

#[test]
fn runs_that_wait_outside_their_queue_stop_no_trigger_and_have_a_bound_of_their_own() {
    let mut bench = Bench::new();
    let fed = bench.create(feeding(EVERY_TEN, r#"{"overlap": "skip"}"#));
    let other = bench.create(draft(r#"{"every": "1s"}"#, "{}"));
    bench.go(10_000);
    bench.left.clear();
    let asked = (0_usize..).find_map(|asked| Some((asked, bench.refused(run(fed))?)));
    let max = RUNS_BEFORE_QUEUES_MAX;
    let refused = Rejection::TooManyRunsBeforeQueues { waiting: max, max };
    assert_eq!(asked, Some((max, refused)));
    let backfill = Command::Backfill {
        trigger: fed,
        author: String::new(),
        request: "again".into(),
        from: Instant(BEGIN),
        to: Instant(BEGIN + 10_001),
    };
    assert!(matches!(bench.refused(backfill), Some(Rejection::TooManyRunsBeforeQueues { .. })));
    bench.commit();
    bench.go(11_000);
    assert_eq!((bench.left.len(), bench.queued().len()), (1, 1), "others fire");
    assert_eq!(bench.refused(run(other)), None);
    // What waits is as much for a successor.
    bench.commit();
    bench.take_over(11_500);
    assert_eq!(bench.refused(run(fed)), Some(refused));
    assert_eq!(bench.refused(run(other)), None);
}

#[test]
fn a_run_that_waits_outside_its_queue_takes_a_place_of_it() {
    let mut bench = Bench::new();
    let trigger = bench.create(feeding(EVERY_TEN, r#"{"overlap": "skip"}"#));
    bench.ask(at_most(2));
    bench.go(10_000);
    assert!(matches!(bench.ask(run(trigger)), Some(Done::Started(_))));
    bench.go(10_100);
    assert_eq!((bench.queued().len(), bench.runs().count()), (1, 1));
    let full = Some(Rejection::QueueIsFull { waiting: 2, max: 2 });
    assert_eq!(bench.refused(run(trigger)), full);
    assert!(submit(&mut bench, "mail", 1, 1).is_none());
    // A slot that may overlap finds no place either.
    bench.create(feeding(EVERY_TEN, "{}"));
    bench.go(20_000);
    let skips: Vec<Reason> = bench.skips().iter().map(|(.., reason)| *reason).collect();
    assert_eq!(skips, [Reason::Overlap, Reason::QueueFull]);
    // What waits outside comes in although all places are taken, by itself.
    let mut clerk = Clerk::default();
    assert!(clerk.claims(&mut bench));
    clerk.say(&mut bench, Some(AttemptResult::Succeeded));
    bench.go(20_100);
    assert_eq!((bench.queued().len(), bench.runs().count()), (1, 0));
    assert!(submit(&mut bench, "mail", 1, 1).is_some());
}

#[test]
fn as_many_dead_runs_are_redriven_as_there_is_room_for_though_they_wait_outside() {
    let mut bench = Bench::new();
    let trigger = bench.create(feeding(EVERY_TEN, r#"{"overlap": "skip"}"#));
    let mut clerk = Clerk::default();
    for second in [10, 20, 30] {
        bench.go(second * 1_000);
        assert!(clerk.claims(&mut bench));
        clerk.say(&mut bench, Some(AttemptResult::FailedForGood));
    }
    bench.pause(trigger);
    bench.ask(at_most(2));
    let (queue, runs) = (bench.queue("mail").id.serial, bench.dead());
    let Some(Done::Redriven(results)) = bench.ask(Command::Redrive { queue, runs }) else {
        panic!("there is room for two");
    };
    let [RedriveResult::Waits(_), RedriveResult::Waits(_), RedriveResult::NoRoom] = results[..]
    else {
        panic!("{results:?}");
    };
    let runs = bench.dead();
    let full = Some(Rejection::QueueIsFull { waiting: 2, max: 2 });
    assert_eq!(bench.refused(Command::Redrive { queue, runs }), full);
}

#[test]
fn what_is_given_in_one_step_is_bounded_however_many_claims_wait_for_however_much() {
    let mut bench = Bench::new();
    let runs = (3 * QUEUE_CHANGES_AT_ONCE).next_multiple_of(SUBMIT_RUNS_MAX);
    for _ in 0..runs / SUBMIT_RUNS_MAX {
        assert!(submit(&mut bench, "mail", SUBMIT_RUNS_MAX, 1).is_some());
    }
    let queue = bench.queue("mail").id.serial;
    let (author, note) = (String::new(), String::new());
    bench.ask(Command::PauseQueue { queue, author, note, until: None });
    let cookie = cookie(&mut bench);
    for number in 0..10 {
        bench.shard.hear(claim(number, cookie, CLAIM_RUNS_MAX, 20_000), Ticket(7), bench.now());
    }
    assert_eq!(bench.ask(Command::ResumeQueue { queue }), Some(Done::Resumed));
    bench.step();
    let given = view(&mut bench, "mail").census.running as usize;
    assert!(given > 0 && given <= QUEUE_CHANGES_AT_ONCE, "{given} in one step");
    for _ in 0..4 {
        bench.step();
        bench.commit();
    }
    assert_eq!(view(&mut bench, "mail").census.running as usize, runs, "the rest follows");
}

#[test]
fn dead_runs_go_as_fast_as_others_come() {
    let mut bench = Bench::new();
    let workers = DEAD_RUNS_PER_QUEUE_MAX / CLAIM_RUNS_MAX + 3;
    for _ in 0..workers {
        assert!(submit(&mut bench, "mail", CLAIM_RUNS_MAX, 1).is_some());
    }
    let cookie = cookie(&mut bench);
    // Nobody steps between what the workers say.
    for number in 0..workers {
        let reply = bench.work(claim(number, cookie, CLAIM_RUNS_MAX, 0));
        assert_eq!(reply.runs.len(), CLAIM_RUNS_MAX);
        let done = reply.runs.iter().map(|run| DoneCall {
            run: run.id,
            token: run.given.token,
            result: AttemptResult::FailedForGood,
            made: Some(Attempt::default()),
        });
        bench.work(WorkerCall { number: 3, settled: 2, done: done.collect(), ..worker(number) });
        let dead = view(&mut bench, "mail").dead;
        let died = (number + 1) * CLAIM_RUNS_MAX;
        assert_eq!(dead, died.min(DEAD_RUNS_PER_QUEUE_MAX), "after {number}");
    }
}

#[test]
fn the_workers_that_one_project_has_leave_room_to_those_of_others() {
    let mut bench = Bench::new();
    let mut hear = |project, number| {
        let call = WorkerCall { project: ProjectId(project), ..worker(number) };
        bench.shard.hear(call, Ticket(7), bench.now());
        match bench.answer() {
            Some(ShardAnswer::Worker(_)) => true,
            Some(ShardAnswer::TooManyWorkers) => false,
            other => panic!("{other:?}"),
        }
    };
    for number in 0..WORKERS_PER_PROJECT_MAX {
        assert!(hear(1, number));
    }
    assert!(!hear(1, WORKERS_PER_PROJECT_MAX), "one too many");
    assert!(hear(1, 0), "one that is known");
    for number in 0..WORKERS_PER_SHARD_MAX - WORKERS_PER_PROJECT_MAX {
        assert!(hear(2, number), "another project's");
    }
    assert!(!hear(3, 0), "the shard has as many as it may");
}

#[test]
fn a_queue_that_nobody_serves_leaves_room_in_memory_for_what_others_are_about() {
    let mut bench = Bench::new();
    let bytes = ACTION_INLINE_BYTES_MAX * 3 / 4;
    for _ in 0..2 * ACTIONS_KEPT_BYTES_MAX / bytes / SUBMIT_RUNS_MAX {
        assert!(submit(&mut bench, "stalled", SUBMIT_RUNS_MAX, bytes).is_some());
    }
    assert!(submit(&mut bench, "mail", 100, bytes).is_some());
    let cookie = cookie(&mut bench);
    let reply: WorkerReply = bench.work(claim(0, cookie, 100, 0));
    let in_memory = reply.runs.iter().filter(|run| run.queued.is_some()).count();
    assert_eq!((reply.runs.len(), in_memory), (100, 100));
}

#[test]
fn a_page_of_a_queue_looks_at_a_bounded_number_of_runs_and_says_where_to_go_on() {
    let mut bench = Bench::new();
    for _ in 0..=FILTER_LOOKED_AT_MAX / SUBMIT_RUNS_MAX {
        assert!(submit(&mut bench, "stalled", SUBMIT_RUNS_MAX, 1).is_some());
    }
    assert!(submit(&mut bench, "mail", 3, 1).is_some());
    let mut page = |after, most| {
        bench.shard.show_runs((ProjectId::DEFAULT, "mail"), after, most, Ticket(5), bench.now());
        match bench.answer() {
            Some(ShardAnswer::QueueRuns { runs, next }) => (runs.len(), next),
            other => panic!("{other:?}"),
        }
    };
    let (found, next) = page(0, 2);
    assert_eq!((found, next), (0, Some(FILTER_LOOKED_AT_MAX as u64)));
    let (found, next) = page(next.unwrap(), 2);
    assert_eq!(found, 2);
    assert_eq!(page(next.unwrap(), 2), (1, None));
}
