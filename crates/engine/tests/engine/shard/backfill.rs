//! Slots of the past that are run again.

use engine::id::SerialId;
use engine::instant::Instant;
use engine::limits::BACKFILLS_REMEMBERED_MAX;
use engine::shard::command::{BackfillProgress, Command, Done};
use engine::shard::record::TriggerState;

use super::OK;
use super::bench::{BEGIN, Bench, draft};

const BACK: i64 = 60_000;

/// Asks for slots of the minute before the beginning, until there are no more. How many runs that started.
fn backfill(bench: &mut Bench, trigger: SerialId, request: &str, (from, to): (i64, i64)) -> u32 {
    let mut started = 0;
    loop {
        let (from, to) = (Instant(BEGIN + from), Instant(BEGIN + to));
        let request = request.to_owned();
        let command = Command::Backfill { trigger, author: String::new(), request, from, to };
        match bench.ask(command) {
            Some(Done::Backfilled(BackfillProgress { started: now, has_more })) => {
                started += now;
                if !has_more {
                    return started;
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_backfill_runs_each_slot_of_its_window_and_touches_neither_ledger_nor_limit() {
    let mut bench = Bench::new();
    let trigger = bench.create(draft(r#"{"cron": "*/5 * * * * *", "limit": 3}"#, "{}"));
    bench.go(1_000);
    assert_eq!(backfill(&mut bench, trigger, "again", (-BACK, -BACK + 40_000)), 8);
    let TriggerState { cursor, remaining, .. } = bench.state(trigger);
    assert_eq!((cursor, remaining), (None, None));
    bench.go(1_100);
    let slots: Vec<i64> = bench.left.iter().map(|left| left.slot.0 - BEGIN).collect();
    assert_eq!(slots, (0..8).map(|number| -BACK + 5_000 * number).collect::<Vec<_>>());
    assert!(bench.left.iter().all(|left| left.leaves_at.0 == BEGIN + 1_000));
    let mut ids: Vec<_> = bench.left.iter().map(|left| left.run).collect();
    ids.dedup();
    assert_eq!(ids.len(), 8);
    for _ in 0..8 {
        bench.finish(OK);
    }
    bench.go(4_000);
    assert!(bench.skips().is_empty(), "{:?}", bench.skips());
    assert_eq!(bench.state(trigger).remaining, None);
}

#[test]
fn a_backfill_that_is_asked_for_again_runs_nothing_twice() {
    let mut bench = Bench::new();
    let trigger = bench.create(draft(r#"{"cron": "*/5 * * * * *"}"#, "{}"));
    assert_eq!(backfill(&mut bench, trigger, "a", (-BACK, -BACK + 20_000)), 4);
    assert_eq!(backfill(&mut bench, trigger, "a", (-BACK, -BACK + 20_000)), 0);
    bench.go(100);
    for _ in 0..4 {
        bench.finish(OK);
    }
    bench.go(200);
    bench.take_over(300);
    assert_eq!(backfill(&mut bench, trigger, "a", (-BACK, -BACK + 20_000)), 0, "they have ended");
    assert_eq!(backfill(&mut bench, trigger, "a", (-BACK, -BACK + 30_000)), 2, "it goes on");
    assert_eq!(backfill(&mut bench, trigger, "b", (-BACK, -BACK + 30_000)), 6, "another one");
}

#[test]
fn a_backfill_goes_forward_without_a_gap() {
    let mut bench = Bench::new();
    let trigger = bench.create(draft(r#"{"cron": "*/5 * * * * *"}"#, "{}"));
    backfill(&mut bench, trigger, "a", (-BACK, -BACK + 20_000));
    for from in [-BACK - 1, -BACK + 20_001] {
        let (from, to) = (Instant(BEGIN + from), Instant(BEGIN));
        let (author, request) = (String::new(), "a".to_owned());
        let command = Command::Backfill { trigger, author, request, from, to };
        assert_eq!(bench.ask(command), None);
    }
}

#[test]
fn the_last_backfills_are_remembered_up_to_a_limit() {
    let mut bench = Bench::new();
    let trigger = bench.create(draft(r#"{"cron": "*/5 * * * * *"}"#, "{}"));
    let window = (-BACK, -BACK + 5_000);
    for number in 0..=BACKFILLS_REMEMBERED_MAX {
        assert_eq!(backfill(&mut bench, trigger, &format!("r{number}"), window), 1);
    }
    assert_eq!(bench.state(trigger).backfills.len(), BACKFILLS_REMEMBERED_MAX);
    assert_eq!(backfill(&mut bench, trigger, "r1", window), 0);
    assert_eq!(backfill(&mut bench, trigger, "r0", window), 1, "it is forgotten");
}

#[test]
fn another_schedule_does_not_forget_a_backfill_and_no_slot_of_the_future_is_run() {
    let mut bench = Bench::new();
    let trigger = bench.create(draft(r#"{"cron": "*/5 * * * * *"}"#, "{}"));
    assert_eq!(backfill(&mut bench, trigger, "a", (-BACK, -BACK + 20_000)), 4);
    bench.replace(trigger, draft(r#"{"cron": "*/10 * * * * *"}"#, "{}"));
    assert_eq!(backfill(&mut bench, trigger, "a", (-BACK, -BACK + 20_000)), 0);
    assert_eq!(backfill(&mut bench, trigger, "a", (-BACK, 60_000)), 4);
}
