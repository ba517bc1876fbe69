//! A shard that goes from one owner to another while attempts are under way.

use engine::id::SerialId;
use engine::instant::Instant;
use engine::outcome::{NotSent, Outcome};
use engine::past::{End, Reason};
use engine::shard::command::Command;
use engine::shard::record::{RemoteAttempt, RunState};
use engine::shard::{HandedOverAttempt, Now};

use super::OK;
use super::bench::{Bench, draft};

const A: &str = "node/a/0000000000000001";
const B: &str = "node/b/0000000000000002";

/// How long an attempt is left alone whose sender is there: 1.25 times its timeout of 15 s, and a second.
const PATIENCE: i64 = 19_750;

/// One trigger that fires every minute, by these policies, and an attempt of it that left at 60 s and was handed over.
fn handed_over(policy: &str) -> (Bench, SerialId, HandedOverAttempt) {
    let mut bench = Bench::new();
    let trigger = bench.create(draft(r#"{"cron": "0 * * * * *"}"#, policy));
    bench.go(60_000);
    assert_eq!(bench.left.len(), 1, "it is under way, for up to 15 s");
    let handed_over = bench.hand_over(A, 60_500);
    (bench, trigger, handed_over[0])
}

#[test]
fn what_is_under_way_at_a_former_owner_is_left_alone_until_its_report() {
    let (mut bench, _, handed_over) = handed_over("{}");
    assert_eq!(bench.shard.senders().into_iter().collect::<Vec<_>>(), [A.into()]);
    bench.go(70_000);
    assert!(bench.left.is_empty() && bench.past.is_empty());
    bench.write_report(handed_over, A, OK);
    bench.read_reports();
    assert!(bench.shard.senders().is_empty());
    bench.go(119_000);
    assert!(bench.left.is_empty(), "{:?}", bench.left);
    assert_eq!((bench.ends(), bench.reports()), (vec![End::Succeeded], 0));
}

#[test]
fn a_report_goes_in_the_commit_that_says_what_came_of_it() {
    for (outcome, unfinished) in
        [(OK, 0), (Outcome::Answered { status: 500, retry_after: None }, 1)]
    {
        let (mut bench, _, handed_over) = handed_over("{}");
        bench.commit();
        bench.write_report(handed_over, A, outcome);
        bench.room.writes = 1;
        bench.read_reports();
        assert!(bench.commit_one());
        assert_eq!(bench.reports(), 0);
        assert_eq!(bench.runs().count(), unfinished);
        assert!(bench.runs().all(|run| matches!(run.state, RunState::Backoff(_))));
        assert!(bench.runs().all(|run| run.remote.is_none() && run.tries == 1));
    }
}

#[test]
fn what_is_under_way_at_a_former_owner_is_in_doubt_when_its_time_is_over() {
    let (mut bench, _, handed_over) = handed_over("{}");
    bench.go(60_500 + PATIENCE - 1);
    assert!(bench.left.is_empty(), "{:?}", bench.left);
    bench.go(60_500 + PATIENCE);
    assert_eq!(bench.left[0].attempt, 2, "it leaves again");
    bench.write_report(handed_over, A, Outcome::Answered { status: 404, retry_after: None });
    bench.read_reports();
    bench.commit();
    assert_eq!((bench.ends(), bench.reports()), (vec![], 0), "nobody waits for its report");
    bench.finish(OK);
    bench.go(81_000);
    assert_eq!(bench.ends(), [End::Succeeded]);
}

#[test]
fn what_a_sender_that_is_gone_had_under_way_is_in_doubt() {
    let (mut bench, ..) = handed_over("{}");
    bench.go(62_000);
    bench.shard.sender_gone(B, bench.now());
    bench.go(63_000);
    assert!(bench.left.is_empty(), "somebody else is gone");
    bench.shard.sender_gone(A, bench.now());
    bench.go(63_000);
    assert_eq!(bench.left[0].attempt, 2);
    assert!(bench.runs().all(|run| run.remote.is_none()));
    let (mut bench, ..) = handed_over(r#"{"delivery": "at_most_once"}"#);
    bench.shard.sender_gone(A, bench.now());
    bench.go(63_000);
    assert_eq!((bench.left.len(), bench.ends()), (0, vec![End::Unknown]));
}

#[test]
fn a_sender_that_is_not_there_is_not_waited_for() {
    let (mut bench, ..) = handed_over("{}");
    bench.senders.clear();
    bench.take_over(61_000);
    bench.go(61_000);
    assert_eq!(bench.left[0].attempt, 2);
}

#[test]
fn a_report_counts_although_its_sender_is_gone() {
    let (mut bench, _, handed_over) = handed_over(r#"{"delivery": "at_most_once"}"#);
    bench.write_report(handed_over, A, OK);
    bench.senders.clear();
    bench.take_over(61_000);
    bench.go(61_100);
    assert_eq!((bench.ends(), bench.reports()), (vec![End::Succeeded], 0));
}

#[test]
fn a_report_of_another_attempt_or_of_another_sender_is_not_taken() {
    let (mut bench, _, handed_over) = handed_over("{}");
    let refused = Outcome::Answered { status: 404, retry_after: None };
    bench.write_report(handed_over, B, refused);
    bench.read_reports();
    bench.write_report(HandedOverAttempt { attempt: 2, ..handed_over }, A, refused);
    bench.write_report(HandedOverAttempt { sequence: 99, ..handed_over }, A, refused);
    bench.read_reports();
    bench.go(62_000);
    assert_eq!((bench.ends(), bench.reports()), (vec![], 0));
    bench.write_report(handed_over, A, OK);
    bench.read_reports();
    bench.go(62_100);
    assert_eq!(bench.ends(), [End::Succeeded]);
}

#[test]
fn a_report_that_is_told_twice_is_taken_once() {
    let (mut bench, _, handed_over) = handed_over("{}");
    bench.write_report(handed_over, A, OK);
    bench.read_reports();
    bench.read_reports();
    bench.go(61_000);
    assert_eq!((bench.ends(), bench.reports()), (vec![End::Succeeded], 0));
}

#[test]
fn what_has_not_left_is_handed_over_as_waiting() {
    let mut bench = Bench::new();
    bench.create(draft(r#"{"cron": "*/10 * * * * *"}"#, r#"{"delivery": "at_least_once"}"#));
    bench.go(9_600);
    assert_eq!(bench.head.open.len(), 1, "it is launched ahead");
    assert!(bench.hand_over(A, 9_700).is_empty());
    assert!(bench.shard.senders().is_empty());
    bench.go(10_000);
    assert_eq!(bench.left.iter().map(|left| left.attempt).collect::<Vec<_>>(), [1]);
}

#[test]
fn what_was_recalled_before_it_was_sent_is_sent_by_the_new_owner() {
    let mut bench = Bench::new();
    bench.create(draft(r#"{"cron": "0 * * * * *"}"#, r#"{"delivery": "at_most_once"}"#));
    bench.go(60_000);
    bench.shard.begin_handover(bench.now());
    bench.finish(Outcome::NotSent { why: NotSent::Cancelled });
    assert!(bench.hand_over(A, 60_100).is_empty());
    bench.go(61_000);
    assert_eq!(bench.left.iter().map(|left| left.attempt).collect::<Vec<_>>(), [2]);
}

#[test]
fn what_is_in_doubt_stays_so_when_it_is_handed_over() {
    let mut bench = Bench::new();
    bench.create(draft(r#"{"cron": "0 * * * * *"}"#, "{}"));
    bench.go(60_000);
    bench.take_over(60_500);
    bench.step();
    assert!(bench.hand_over(A, 60_600).is_empty(), "it was to leave again, and has not");
    let runs = bench.runs().map(|run| (run.state, run.attempt, run.remote));
    assert_eq!(runs.collect::<Vec<_>>(), [(RunState::Running, 1, None)]);
    bench.go(60_700);
    assert_eq!(bench.left[0].attempt, 2);
}

#[test]
fn nothing_leaves_and_nothing_is_decided_after_a_hand_over_has_begun() {
    let mut bench = Bench::new();
    bench.create(draft(r#"{"cron": "*/10 * * * * *"}"#, "{}"));
    bench.go(9_900);
    bench.shard.begin_handover(bench.now());
    bench.go(10_500);
    assert!(bench.left.is_empty());
    bench.shard.hand_over_attempts(A, bench.now());
    bench.commit();
    let head = bench.head.clone();
    // Whatever happens to its node meanwhile.
    bench.shard.stop(bench.now());
    bench.shard.set_back(Now { wall: Instant(0), ..bench.now() });
    bench.go(60_000);
    assert!(bench.left.is_empty() && bench.shard.is_settled());
    assert_eq!((bench.shard.next_wake(bench.now()), bench.head.clone()), (None, head));
}

#[test]
fn a_shard_that_is_handed_on_waits_for_its_first_sender_for_what_is_left() {
    let (mut bench, _, handed_over) = handed_over("{}");
    bench.go(70_500);
    assert!(bench.hand_over(B, 70_600).is_empty(), "nothing is under way here");
    let remote: Vec<Option<RemoteAttempt>> = bench.runs().map(|run| run.remote).collect();
    // 9,750 ms are left to wait, of which 8,750 are 1.25 times this.
    assert_eq!(remote, [Some(RemoteAttempt { sender: A.into(), left_ms: 7_000 })]);
    bench.go(70_600 + 9_749);
    assert!(bench.left.is_empty());
    bench.write_report(handed_over, A, OK);
    bench.read_reports();
    bench.go(81_000);
    assert_eq!(bench.ends(), [End::Succeeded]);
}

#[test]
fn a_hand_over_that_is_called_off_leaves_an_owner_that_waits_for_itself() {
    let mut bench = Bench::new();
    bench.create(draft(r#"{"cron": "0 * * * * *"}"#, "{}"));
    bench.go(60_000);
    let first = bench.left[0].key;
    let handed_over = bench.hand_over(A, 60_500)[0];
    bench.shard.number_from(first + 1);
    bench.go(61_000);
    assert!(bench.left.is_empty(), "its own attempt is still under way");
    bench.write_report(handed_over, A, OK);
    bench.read_reports();
    bench.go(120_000);
    assert_eq!(bench.ends(), [End::Succeeded]);
    assert!(bench.left[0].key > first, "and no other has its key");
}

#[test]
fn attempts_that_begin_with_a_take_over_have_keys_of_their_own_too() {
    let mut bench = Bench::new();
    let trigger = bench.create(draft(r#"{"at": ["2030-01-01T00:00:00Z"]}"#, "{}"));
    bench.replace(trigger, draft(r#"{"cron": "*/10 * * * * *"}"#, r#"{"overlap": "queue_one"}"#));
    bench.go(10_000);
    bench.go(20_000);
    let handed_over = bench.hand_over(A, 20_100)[0];
    bench.write_report(handed_over, A, OK);
    bench.take_over(20_200);
    bench.shard.number_from(1_000);
    bench.go(20_300);
    let keys: Vec<u64> = bench.left.iter().map(|left| left.key).collect();
    assert_eq!(keys, [1_000], "the one that was queued starts with the take-over");
    bench.finish(OK);
    bench.go(20_500);
    assert_eq!(bench.ends(), [End::Succeeded, End::Succeeded]);
}

#[test]
fn a_run_waits_for_another_one_of_its_trigger_at_a_former_owner() {
    let (mut bench, trigger, handed_over) = handed_over(r#"{"overlap": "queue_one"}"#);
    bench.ask(Command::Run { trigger, author: String::new() });
    bench.go(62_000);
    assert!(bench.left.is_empty(), "it waits for the other one");
    bench.write_report(handed_over, A, OK);
    bench.read_reports();
    bench.go(62_100);
    assert_eq!(bench.left.len(), 1, "and leaves when that has ended");
}

#[test]
fn a_slot_that_must_not_overlap_is_skipped_while_a_former_owner_is_at_work() {
    let mut bench = Bench::new();
    bench.create(draft(r#"{"cron": "*/10 * * * * *"}"#, r#"{"overlap": "skip"}"#));
    bench.go(10_000);
    let handed_over = bench.hand_over(A, 10_500)[0];
    bench.go(20_000);
    assert_eq!(bench.skips(), [(20_000, 20_000, Reason::Overlap)]);
    bench.write_report(handed_over, A, OK);
    bench.read_reports();
    bench.go(30_000);
    assert_eq!(bench.left.len(), 1, "nothing is held back once it is reported");
}

#[test]
fn what_replaces_a_run_at_a_former_owner_is_held_back_for_what_is_left() {
    let mut bench = Bench::new();
    bench.create(draft(r#"{"cron": "*/10 * * * * *"}"#, r#"{"overlap": "replace"}"#));
    bench.go(10_000);
    let handed_over = bench.hand_over(A, 19_900)[0];
    bench.go(20_000);
    assert_eq!(bench.ends(), [End::Cancelled]);
    bench.write_report(handed_over, A, OK);
    bench.read_reports();
    bench.go(20_100);
    assert_eq!((bench.left.len(), bench.reports()), (0, 0));
    // Whoever is next holds it back for no less.
    bench.hand_over(B, 20_100);
    bench.go(19_900 + PATIENCE);
    assert!(bench.left.is_empty(), "{:?}", bench.left);
    bench.go(20_100 + PATIENCE);
    assert_eq!(bench.left.len(), 1);
}

#[test]
fn what_is_in_doubt_waits_for_another_one_of_its_trigger_at_a_former_owner() {
    let mut bench = Bench::new();
    let schedule = r#"{"cron": "*/10 * * * * *"}"#;
    let trigger = bench.create(draft(schedule, r#"{"overlap": "skip"}"#));
    bench.go(10_000);
    bench.hand_over(A, 10_100);
    bench.replace(trigger, draft(schedule, r#"{"overlap": "allow"}"#));
    bench.go(20_000);
    let second = bench.hand_over(B, 20_100)[0];
    // 15 s since the first is in doubt are over sooner than its successor's 19.75 s.
    bench.shard.sender_gone(A, bench.now());
    let allowed = bench.left.len();
    bench.go(38_000);
    assert!(bench.left.iter().skip(allowed).all(|left| left.attempt == 1), "{:?}", bench.left);
    bench.write_report(second, B, OK);
    bench.read_reports();
    while !bench.left.is_empty() {
        bench.finish(OK);
    }
    bench.go(38_200);
    assert_eq!(bench.left.iter().map(|left| left.attempt).collect::<Vec<_>>(), [2]);
}

#[test]
fn a_cancellation_ends_what_a_former_owner_has_under_way_as_unknown() {
    let (mut bench, trigger, handed_over) = handed_over("{}");
    bench.ask(Command::Cancel { trigger, author: String::new() });
    assert_eq!(bench.ends(), [End::Unknown]);
    bench.write_report(handed_over, A, OK);
    bench.read_reports();
    bench.go(100_000);
    assert_eq!((bench.ends(), bench.reports()), (vec![End::Unknown], 0));
}

#[test]
fn a_pause_leaves_alone_what_has_left_by_a_clock_that_was_ahead() {
    let mut bench = Bench::new();
    let trigger = bench.create(draft(r#"{"cron": "0 * * * * *"}"#, "{}"));
    bench.go(60_000);
    let handed_over = bench.hand_over(A, 58_000)[0];
    bench.pause(trigger);
    bench.write_report(handed_over, A, OK);
    bench.read_reports();
    bench.go(61_000);
    assert_eq!(bench.ends(), [End::Succeeded]);
}
