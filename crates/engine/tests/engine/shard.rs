//! What a shard does in situations that chance seldom finds. The simulator tries the others.

#[path = "shard/backfill.rs"]
mod backfill;
#[path = "shard/bench.rs"]
mod bench;
#[path = "shard/feed.rs"]
mod feed;
#[path = "shard/former.rs"]
mod former;
#[path = "shard/handover.rs"]
mod handover;
#[path = "shard/lag.rs"]
mod lag;
#[path = "shard/long_run.rs"]
mod long_run;
#[path = "shard/notice.rs"]
mod notice;
#[path = "shard/output.rs"]
mod output;
#[path = "shard/pick.rs"]
mod pick;
#[path = "shard/queue.rs"]
mod queue;
#[path = "shard/queue_alert.rs"]
mod queue_alert;
#[path = "shard/queue_bound.rs"]
mod queue_bound;
#[path = "shard/queue_failure.rs"]
mod queue_failure;

use std::time::Duration;

use bench::{BEGIN, Bench, draft};
use engine::id::ProjectId;
use engine::outcome::{Lost, NotSent, Outcome};
use engine::past::{End, Line, Reason};
use engine::shard::command::{Command, Done, PruneProgress};
use engine::shard::record::RunState;

const OK: Outcome = Outcome::Answered { status: 200, retry_after: None };

#[test]
fn a_slot_is_launched_ahead_and_leaves_on_time() {
    let mut bench = Bench::new();
    bench.create(draft(r#"{"cron": "*/10 * * * * *"}"#, "{}"));
    bench.go(9_600);
    assert_eq!(bench.head.open.len(), 1, "it is in the store");
    assert!(bench.left.is_empty(), "and has not left");
    bench.go(10_000);
    assert_eq!(bench.left.len(), 1);
    bench.finish(OK);
    bench.go(10_100);
    assert!(bench.head.open.is_empty());
    assert!(matches!(&bench.past[..], [Line::Run(run)] if run.end == End::Succeeded));
}

#[test]
fn the_pause_after_a_failure_does_not_grow_with_attempts_that_never_left() {
    let mut bench = Bench::new();
    let retry = r#"{"retry": {"attempts": 5, "delay": "10s", "max_delay": "1h"}}"#;
    bench.create(draft(r#"{"cron": "*/10 * * * * *", "limit": 1}"#, retry));
    bench.go(10_000);
    let resting = NotSent::Resting { rest: Duration::from_secs(1) };
    for second in 11..15 {
        bench.finish(Outcome::NotSent { why: resting });
        bench.go(second * 1_000);
        assert_eq!(bench.left.len(), 1, "it is tried again after the rest");
    }
    bench.finish(Outcome::Answered { status: 500, retry_after: None });
    bench.go(14_000);
    let until = bench.runs().find_map(|run| match run.state {
        RunState::Backoff(until) => Some(until.0 - BEGIN),
        _ => None,
    });
    assert!(until.is_some_and(|until| until <= 14_000 + 11_000), "{until:?}");
}

#[test]
fn a_queued_run_that_waits_for_nobody_starts_at_a_successor() {
    let mut bench = Bench::new();
    let policy = r#"{"overlap": "queue_one", "delivery": "at_most_once"}"#;
    bench.create(draft(r#"{"cron": "*/10 * * * * *"}"#, policy));
    bench.go(10_000);
    bench.go(20_000);
    assert_eq!(bench.runs().filter(|run| run.state == RunState::Blocked).count(), 1);
    // The one that it waits for ends, and the owner dies before it can start the other one.
    bench.finish(OK);
    bench.room.writes = 2;
    bench.commit_one();
    assert!(bench.head.open.is_empty());
    bench.take_over(20_200);
    bench.go(20_300);
    assert_eq!(bench.left.len(), 1, "it leaves");
}

#[test]
fn a_pause_takes_back_what_a_predecessor_has_put_back() {
    let mut bench = Bench::new();
    let trigger = bench.create(draft(r#"{"cron": "*/10 * * * * *"}"#, "{}"));
    bench.go(9_600);
    bench.stop();
    bench.take_over(9_700);
    bench.pause(trigger);
    bench.go(11_000);
    assert!(bench.left.is_empty());
    assert_eq!(bench.skips(), [(10_000, 10_000, Reason::Paused)]);
}

#[test]
fn a_new_trigger_never_has_the_id_of_one_that_is_gone() {
    let mut bench = Bench::new();
    bench.go(60_000);
    let first = bench.create(draft(r#"{"every": "1h"}"#, "{}"));
    bench.ask(Command::Delete { trigger: first, author: String::new() });
    // The clock of the next owner is behind.
    bench.take_over(1_000);
    let second = bench.create(draft(r#"{"every": "1h"}"#, "{}"));
    assert!(second > first);
}

#[test]
fn what_was_replaced_at_a_former_owner_is_waited_for_by_all_that_follow() {
    let mut bench = Bench::new();
    bench.create(draft(r#"{"cron": "*/10 * * * * *"}"#, r#"{"overlap": "replace"}"#));
    bench.go(10_000);
    assert_eq!(bench.left.len(), 1, "it is under way, for up to 15 s");
    // The next slot replaces it at a successor, which stops before the timeout is over.
    bench.take_over(19_000);
    bench.go(20_000);
    bench.stop();
    bench.take_over(20_500);
    bench.go(30_000);
    assert!(bench.left.is_empty(), "{:?}", bench.left);
    bench.go(35_600);
    assert_eq!(bench.left.len(), 1, "it leaves when the timeout is over");
}

#[test]
fn what_is_held_back_ends_with_its_trigger() {
    let mut bench = Bench::new();
    let policy = r#"{"overlap": "replace"}"#;
    let trigger = bench.create(draft(r#"{"cron": "*/10 * * * * *"}"#, policy));
    bench.go(10_000);
    bench.take_over(19_000);
    bench.go(20_000);
    assert!(bench.left.is_empty(), "the next one waits until the timeout of the first is over");
    bench.ask(Command::Delete { trigger, author: String::new() });
    bench.stop();
    bench.take_over(20_500);
    bench.go(40_000);
    assert!(bench.left.is_empty(), "{:?}", bench.left);
    assert_eq!(bench.ends(), [End::Cancelled, End::Cancelled]);
}

#[test]
fn what_was_due_and_has_not_left_ends_with_a_cancellation() {
    let mut bench = Bench::new();
    let trigger = bench.create(draft(r#"{"cron": "*/10 * * * * *", "limit": 1}"#, "{}"));
    bench.go(9_900);
    bench.set_clock(30_000);
    bench.ask(Command::Cancel { trigger, author: String::new() });
    assert_eq!(bench.ends(), [End::Cancelled]);
    bench.stop();
    // For this one, it would not be due yet, and could be taken back.
    bench.take_over(5_000);
    bench.ask(Command::Delete { trigger, author: String::new() });
    assert_eq!(bench.past.len(), 1, "{:?}", bench.past);
}

#[test]
fn what_could_overlap_is_waited_for_by_all_that_follow_once_that_has_changed() {
    let mut bench = Bench::new();
    let schedule = r#"{"cron": "*/10 * * * * *"}"#;
    let trigger = bench.create(draft(schedule, r#"{"delivery": "at_most_once"}"#));
    bench.go(10_000);
    assert_eq!(bench.left.len(), 1, "it is under way, for up to 15 s");
    bench.take_over(18_000);
    bench.go(18_100);
    assert_eq!(bench.ends(), [End::Unknown], "nobody waits for it");
    bench.take_over(18_200);
    bench.replace(trigger, draft(schedule, r#"{"overlap": "skip"}"#));
    bench.go(24_000);
    assert!(bench.left.is_empty(), "{:?}", bench.left);
    bench.go(33_300);
    assert_eq!(bench.left.len(), 1, "it leaves when the timeout is over");
}

#[test]
fn a_run_in_doubt_is_not_sent_again_after_a_cancellation() {
    let mut bench = Bench::new();
    let policy = r#"{"overlap": "skip"}"#;
    let trigger = bench.create(draft(r#"{"cron": "*/10 * * * * *"}"#, policy));
    bench.go(10_000);
    bench.take_over(11_000);
    bench.ask(Command::Cancel { trigger, author: String::new() });
    bench.go(40_000);
    assert!(bench.left.is_empty(), "{:?}", bench.left);
    assert_eq!(bench.ends(), [End::Unknown]);
}

#[test]
fn a_clock_that_is_set_does_not_shorten_how_long_something_is_held_back() {
    let mut bench = Bench::new();
    bench.create(draft(r#"{"cron": "*/10 * * * * *"}"#, r#"{"overlap": "replace"}"#));
    bench.go(10_000);
    bench.take_over(19_000);
    bench.go(20_000);
    bench.set_clock(29_000);
    bench.go(29_500);
    assert!(bench.left.is_empty(), "15 s since the take-over are not over");
}

#[test]
fn runs_that_wait_for_each_other_end_one_after_the_other() {
    let mut bench = Bench::new();
    let policy = r#"{"overlap": "skip", "max_lateness": "2s"}"#;
    let trigger = bench.create(draft(r#"{"cron": "*/10 * * * * *"}"#, policy));
    bench.go(10_000);
    for _ in 0..3 {
        bench.ask(Command::Run { trigger, author: String::new() });
        bench.go(11_000);
    }
    bench.wall = 14_500;
    bench.finish(OK);
    bench.go(14_600);
    assert_eq!(bench.ends(), [End::Succeeded, End::Expired, End::Expired, End::Expired]);
}

#[test]
fn a_mark_is_set_back_without_moving_cursors_of_schedules_that_are_used_up() {
    let mut bench = Bench::new();
    let trigger = bench.create(draft(r#"{"cron": "*/10 * * * * *", "limit": 1}"#, "{}"));
    bench.go(100_000);
    bench.finish(OK);
    bench.create(draft(r#"{"cron": "*/5 * * * * *"}"#, "{}"));
    bench.go(140_000);
    bench.take_over(1_000);
    assert!(bench.shard.is_ahead_of_clock(bench.now()));
    bench.shard.set_back(bench.now());
    bench.commit();
    assert_eq!(bench.state(trigger).cursor.unwrap().0, BEGIN + 10_000);
    assert_eq!(bench.head.decided_through.0.0, BEGIN + 1_000);
}

#[test]
fn what_follows_the_last_run_is_due_again_when_that_is_taken_back() {
    let mut bench = Bench::new();
    let schedule = r#"{"cron": "*/1 * * * * *", "limit": 1, "jitter": "1s"}"#;
    let trigger = bench.create(draft(schedule, "{}"));
    // Others move the mark past the slots after it.
    bench.create(draft(r#"{"every": "1s", "phase": "0s"}"#, "{}"));
    let mut wall = 0;
    while bench.head.open.iter().all(|run| run.trigger != trigger) {
        wall += 20;
        bench.go(wall);
    }
    bench.pause(trigger);
    let state = bench.state(trigger);
    let since = state.paused.expect("it is paused").since;
    assert_eq!(state.remaining, Some(1), "its run is given back");
    let skipped: i64 = bench.skips().iter().map(|(from, to, _)| (to - from) / 1_000 + 1).sum();
    assert_eq!(skipped, (since.0 - BEGIN) / 1_000, "every slot up to then is accounted for");
}

#[test]
fn what_is_stored_is_read_also_when_its_last_instant_has_passed() {
    let mut bench = Bench::new();
    let moment = r#"{"at": ["2027-01-15T08:00:00.5Z"]}"#;
    // It was judged before that instant, and written after it.
    let draft = draft(moment, "{}");
    bench.wall = 700;
    bench.create_judged_at(draft, 0);
    bench.take_over(2_000);
    assert_eq!(bench.shard.len(), 1);
}

#[test]
fn a_run_in_doubt_is_sent_again_or_unknown() {
    for (delivery, ends) in [("at_least_once", 0), ("at_most_once", 1)] {
        let mut bench = Bench::new();
        let policy = format!(r#"{{"delivery": "{delivery}"}}"#);
        bench.create(draft(r#"{"cron": "*/10 * * * * *", "limit": 1}"#, &policy));
        bench.go(10_000);
        bench.take_over(10_200);
        bench.go(10_300);
        assert_eq!(bench.left.len(), 1 - ends);
        assert_eq!(bench.past.len(), ends);
    }
}

#[test]
fn what_surely_never_left_is_tried_again_also_at_most_once() {
    let mut bench = Bench::new();
    let policy = r#"{"delivery": "at_most_once", "retry": {"delay": "1s"}}"#;
    bench.create(draft(r#"{"cron": "*/10 * * * * *", "limit": 1}"#, policy));
    bench.go(10_000);
    bench.finish(Outcome::NotSent { why: NotSent::Connect });
    bench.go(10_100);
    bench.go(11_500);
    bench.go(11_600);
    assert_eq!(bench.left.iter().map(|left| left.attempt).collect::<Vec<_>>(), [2]);
    bench.finish(Outcome::Lost { why: Lost::Closed });
    bench.go(11_700);
    assert!(matches!(&bench.past[..], [Line::Run(run)] if run.end == End::Unknown));
}

#[test]
fn now_for_a_trigger_is_not_before_its_cursor() {
    let mut bench = Bench::new();
    let trigger = bench.create(draft(r#"{"cron": "*/10 * * * * *"}"#, "{}"));
    bench.go(25_000);
    bench.pause(trigger);
    // The clock of the next owner is behind: what is paused up to 25 s stays decided.
    bench.take_over(12_000);
    bench.ask(Command::Resume { trigger, author: String::new() });
    bench.pause(trigger);
    let paused = bench.state(trigger).paused.expect("it is paused");
    assert_eq!(paused.since.0, BEGIN + 25_000);
    assert_eq!(bench.skips().len(), 0, "{:?}", bench.skips());
}

#[test]
fn every_command_is_answered_when_it_is_written() {
    let mut bench = Bench::new();
    let trigger = bench.create(draft(r#"{"cron": "*/10 * * * * *"}"#, "{}"));
    let author = String::new;
    for (command, done) in [
        (Command::Resume { trigger, author: author() }, None),
        (Command::Cancel { trigger, author: author() }, Some(Done::Cancelled)),
        (Command::Cancel { trigger, author: author() }, None),
        (Command::Delete { trigger, author: author() }, Some(Done::Deleted)),
        (Command::Delete { trigger, author: author() }, None),
    ] {
        assert_eq!(bench.ask(command), done);
    }
}

const DISABLE: Command = Command::Disable { project: ProjectId::DEFAULT };
const ENABLE: Command = Command::Enable { project: ProjectId::DEFAULT };

#[test]
fn a_disabled_project_fires_nothing_and_then_catches_up_by_policy() {
    for (policy, runs, skipped) in [("skip", 0, 50_000), ("latest", 1, 40_000), ("all", 5, 0)] {
        let mut bench = Bench::new();
        let policy = format!(r#"{{"catch_up": "{policy}", "overlap": "allow"}}"#);
        bench.create(draft(r#"{"cron": "*/10 * * * * *"}"#, &policy));
        bench.go(5_000);
        assert_eq!(bench.ask(DISABLE), Some(Done::Disabled));
        assert_eq!(bench.ask(DISABLE), Some(Done::Unchanged));
        for second in 6..=55 {
            bench.go(second * 1_000);
        }
        assert!(bench.left.is_empty() && bench.past.is_empty());
        assert_eq!(bench.ask(ENABLE), Some(Done::Enabled));
        bench.go(55_100);
        bench.go(55_200);
        assert_eq!(bench.left.len(), runs, "{policy}");
        let skips = bench.skips();
        let last = skips.last().map_or(0, |(_, to, reason)| {
            assert_eq!(*reason, Reason::Disabled);
            *to
        });
        assert_eq!(last, skipped, "{policy}");
        bench.go(60_000);
        assert_eq!(bench.left.len(), runs + 1, "from here on it fires as before");
    }
}

#[test]
fn a_disabled_project_is_so_for_a_successor_and_catches_up_once() {
    let mut bench = Bench::new();
    bench.create(draft(
        r#"{"cron": "*/10 * * * * *"}"#,
        r#"{"catch_up": "all", "overlap": "allow"}"#,
    ));
    bench.go(5_000);
    bench.ask(DISABLE);
    bench.take_over(25_000);
    bench.go(26_000);
    assert!(bench.left.is_empty() && bench.past.is_empty());
    assert_eq!(bench.ask(ENABLE), Some(Done::Enabled));
    bench.step();
    // One batch lands, and the owner dies.
    bench.commit_one();
    bench.take_over(27_000);
    bench.go(27_100);
    bench.go(27_200);
    let mut slots: Vec<i64> = bench.left.iter().map(|left| left.slot.0 - BEGIN).collect();
    slots.sort_unstable();
    assert_eq!(slots, [10_000, 20_000]);
    bench.go(30_000);
    assert_eq!(bench.left.len(), 3);
}

#[test]
fn what_waits_in_a_disabled_project_goes_on_waiting() {
    let mut bench = Bench::new();
    let skip = r#"{"catch_up": "skip"}"#;
    let trigger = bench.create(draft(r#"{"cron": "*/10 * * * * *"}"#, skip));
    bench.go(10_000);
    bench.finish(Outcome::Answered { status: 500, retry_after: None });
    bench.commit();
    bench.ask(DISABLE);
    bench.go(60_000);
    assert!(bench.left.is_empty(), "a retry waits");
    assert_eq!(bench.ask(Command::Run { trigger, author: String::new() }), None);
    bench.ask(ENABLE);
    bench.go(60_200);
    assert_eq!(bench.left.len(), 1);
    assert_eq!(bench.left[0].attempt, 2);
}

#[test]
fn what_comes_due_while_others_are_brought_up_to_date_is_not_lost() {
    let mut bench = Bench::new();
    let allow = r#"{"catch_up": "skip", "overlap": "allow"}"#;
    for _ in 0..300 {
        bench.create(draft(r#"{"cron": "* * * * * *"}"#, allow));
    }
    bench.ask(DISABLE);
    bench.go(10_400);
    assert_eq!(bench.ask(ENABLE), Some(Done::Enabled));
    // Not all of them in one step, and seconds between two steps.
    for second in 11..=20 {
        bench.steady += 1_000;
        bench.wall = second * 1_000 + 500;
        bench.step();
        bench.commit();
        bench.shard.depart(bench.now(), &mut bench.left);
    }
    bench.go(20_600);
    for trigger in bench.triggers() {
        let of = |line: &&Line| line.trigger() == trigger;
        let skipped: u64 = bench
            .past
            .iter()
            .filter(of)
            .map(|line| match line {
                Line::Skip(skip) => skip.count,
                Line::Run(_) => 0,
            })
            .sum();
        let left = bench.left.iter().filter(|left| left.run.trigger == trigger).count() as u64;
        assert_eq!(skipped + left, 20, "{trigger}: {skipped} skipped, {left} left");
    }
}

#[test]
fn of_many_slots_that_the_mark_has_passed_few_run_and_the_rest_is_skipped() {
    for (overlap, runs) in [("allow", 16), ("skip", 1), ("queue_one", 1), ("replace", 1)] {
        let mut bench = Bench::new();
        bench.create(draft(r#"{"cron": "* * * * * *"}"#, "{}"));
        bench.go(700);
        let instants: Vec<String> =
            (710..950).step_by(10).map(|ms| format!("\"2027-01-15T08:00:00.{ms}Z\"")).collect();
        let schedule = format!(r#"{{"at": [{}]}}"#, instants.join(","));
        let trigger = bench.create(draft(&schedule, &format!(r#"{{"overlap": "{overlap}"}}"#)));
        let made = bench.runs().filter(|run| run.trigger == trigger).count();
        let skipped: u64 = bench
            .past
            .iter()
            .map(|line| match line {
                Line::Skip(skip) if skip.trigger == trigger => skip.count,
                Line::Skip(_) | Line::Run(_) => 0,
            })
            .sum();
        assert_eq!((made, skipped), (runs, 24 - runs as u64), "{overlap}");
    }
}

#[test]
fn other_labels_are_another_revision_and_the_same_schedule() {
    let mut bench = Bench::new();
    let written = draft(r#"{"cron": "*/10 * * * * *", "limit": 3}"#, "{}");
    let trigger = bench.create(written.clone());
    bench.go(10_000);
    bench.finish(OK);
    bench.go(11_000);
    let before = bench.state(trigger);
    let mut labelled = written.clone();
    labelled.labels.insert("team".to_owned(), "billing".to_owned());
    bench.replace(trigger, labelled.clone());
    let record = bench.trigger(trigger);
    assert_eq!((record.revision, record.generation), (2, 1));
    assert_eq!(bench.state(trigger).remaining, before.remaining);
    assert!(bench.skips().is_empty(), "no slot was taken back: {:?}", bench.skips());
    assert_eq!(bench.replace_with(trigger, labelled.clone()), Some(Done::Unchanged));
    bench.take_over(12_000);
    assert_eq!(bench.replace_with(trigger, labelled), Some(Done::Unchanged));
    bench.replace(trigger, written);
    assert_eq!(bench.trigger(trigger).revision, 3);
}

const DAY_MS: i64 = 86_400_000;

fn prune(days: i64, from: u32) -> Command {
    Command::Prune { ended_before: engine::instant::Instant(BEGIN + days * DAY_MS), from }
}

fn pruned(deleted: u16, next: Option<u32>) -> Done {
    Done::Pruned(PruneProgress { deleted, next })
}

#[test]
fn what_ended_long_ago_is_deleted_and_nothing_else() {
    let mut bench = Bench::new();
    let author = String::new;
    let cancelled = bench.create(draft(r#"{"cron": "0 0 1 1 *"}"#, "{}"));
    bench.ask(Command::Cancel { trigger: cancelled, author: author() });
    let limited = bench.create(draft(r#"{"cron": "*/10 * * * * *", "limit": 1}"#, "{}"));
    let over = bench.create(draft(r#"{"at": ["2027-01-15T08:00:30Z"]}"#, "{}"));
    let busy = bench.create(draft(r#"{"at": ["2027-01-15T08:00:30Z"]}"#, "{}"));
    let mut no_schedule = draft(r#"{"cron": "0 0 1 1 *"}"#, "{}");
    no_schedule.schedule = None;
    let on_demand = bench.create(no_schedule);
    let goes_on = bench.create(draft(r#"{"cron": "0 0 1 1 *"}"#, "{}"));
    bench.go(10_000);
    bench.finish(OK);
    bench.go(30_000);
    assert_eq!(bench.left.len(), 2);
    // The first ends well, the other is under way.
    bench.finish(OK);
    bench.go(31_000);
    let mut open =
        bench.runs().map(|run| run.trigger).chain(bench.head.open.iter().map(|run| run.trigger));
    let under_way = open.next().unwrap();
    assert!(open.next().is_none() && [over, busy].contains(&under_way));
    drop(open);
    bench.go(DAY_MS);
    assert_eq!(bench.ask(prune(0, 0)), Some(pruned(0, None)));
    assert_eq!(bench.triggers().len(), 6, "not long enough ago");
    assert_eq!(bench.ask(prune(1, 0)), Some(pruned(3, None)));
    let mut left = bench.triggers();
    left.sort();
    let mut expected = vec![under_way, on_demand, goes_on];
    expected.sort();
    assert_eq!(left, expected);
    let said = bench.past.iter().filter_map(|line| match line {
        Line::Skip(skip) if skip.reason == Reason::Pruned => Some((skip.trigger, skip.count)),
        Line::Skip(_) | Line::Run(_) => None,
    });
    let mut said: Vec<_> = said.collect();
    said.sort();
    let over = if under_way == busy { over } else { busy };
    let mut gone = vec![(cancelled, 0), (limited, 0), (over, 0)];
    gone.sort();
    assert_eq!(said, gone);
    // Nobody knows what time it is: nothing is old.
    bench.shard.set_suspended(true);
    assert_eq!(bench.ask(prune(900, 0)), Some(pruned(0, None)));
}

#[test]
fn a_look_for_what_ended_deletes_as_many_as_it_may_and_goes_on_there() {
    let mut bench = Bench::new();
    let most = engine::limits::PRUNE_DELETED_MAX;
    for _ in 0..=most {
        let trigger = bench.create(draft(r#"{"cron": "0 0 1 1 *"}"#, "{}"));
        bench.ask(Command::Cancel { trigger, author: String::new() });
    }
    bench.go(1_000);
    let deleted = u16::try_from(most).unwrap();
    let next = Some(u32::from(deleted));
    assert_eq!(bench.ask(prune(1, 0)), Some(pruned(deleted, next)));
    assert_eq!(bench.ask(prune(1, 16)), Some(pruned(1, None)));
    assert!(bench.triggers().is_empty());
}
