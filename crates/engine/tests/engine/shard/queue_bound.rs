//! Bounds of queues that keep one project, one queue or one request from stopping others.

use engine::id::ProjectId;
use engine::instant::Instant;
use engine::limits::RUNS_BEFORE_QUEUES_MAX;
use engine::past::Reason;
use engine::queue::draft::RunDraft;
use engine::queue::given::AttemptResult;
use engine::shard::command::{Command, Done, Rejection};
use engine::shard::{RedriveResult, Submission};
use serde_json::value::RawValue;

use super::bench::{BEGIN, Bench, draft};
use super::feed::{Clerk, EVERY_TEN, at_most, feeding, run};

/// So many runs wait in a queue, each about so many bytes.
fn submit(bench: &mut Bench, queue: &str, count: usize, bytes: usize) -> Option<Done> {
    let payload = RawValue::from_string(format!("\"{}\"", "x".repeat(bytes))).unwrap();
    let (handler, payload) = (Some("h".to_owned()), Some(payload));
    let draft = RunDraft { handler, payload, ..RunDraft::default() };
    let run: Submission = draft.build(Instant(BEGIN)).unwrap();
    let (project, queue, author) = (ProjectId::DEFAULT, queue.into(), String::new());
    bench.ask(Command::Submit { project, queue, runs: vec![run; count], author })
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
