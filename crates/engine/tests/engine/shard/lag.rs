//! Hosts that cannot keep up: slots wait for them, without a record each.

use engine::id::ProjectId;
use engine::past::{End, Reason};
use engine::shard::HostRoom;
use engine::shard::command::Command;
use engine::target::Target;
use engine::trigger::Draft;

use super::OK;
use super::bench::{BEGIN, Bench, draft};

const EVERY_SECOND: &str = r#"{"cron": "* * * * * *"}"#;
const EVERY_TEN: &str = r#"{"cron": "*/10 * * * * *"}"#;

/// For what is delivered at least once, and nothing else.
const BUSY: HostRoom = HostRoom { at_least_once: usize::MAX, at_most_once: 0 };

/// Lets so many attempts leave at a time.
const fn room(attempts: usize) -> HostRoom {
    HostRoom { at_least_once: attempts, at_most_once: attempts }
}

/// The slots of what has left, after the beginning.
fn left(bench: &Bench) -> Vec<i64> {
    bench.left.iter().map(|departure| departure.slot.0 - BEGIN).collect()
}

fn finish_all(bench: &mut Bench) {
    while !bench.left.is_empty() {
        bench.finish(OK);
    }
}

/// One that goes to another host.
fn elsewhere(schedule: &str, policy: &str) -> Draft {
    let mut draft = draft(schedule, policy);
    let webhook = draft.webhook.as_mut().unwrap();
    webhook.url = Some("http://other.test/x".to_owned());
    draft
}

#[test]
fn what_must_not_be_in_doubt_waits_while_too_much_is_under_way() {
    let mut bench = Bench::new();
    bench.create(draft(EVERY_TEN, r#"{"delivery": "at_most_once"}"#));
    bench.host_room = BUSY;
    bench.go(10_000);
    bench.go(10_500);
    assert_eq!((bench.head.open.len(), bench.runs().count(), bench.lags().len()), (0, 0, 1));
    bench.take_over(12_000);
    bench.host_room = HostRoom::ALL;
    bench.go(12_100);
    assert_eq!(left(&bench), [10_000], "it has surely not left before, and leaves now");
}

#[test]
fn slots_wait_for_their_host_without_a_record_each_and_leave_in_order() {
    let mut bench = Bench::new();
    bench.create(draft(EVERY_SECOND, "{}"));
    bench.host_room = HostRoom::NONE;
    for second in 1..=20 {
        bench.go(second * 1_000);
    }
    let lags = bench.lags();
    assert_eq!((bench.runs().count(), bench.head.open.len(), lags.len()), (0, 0, 1));
    assert!(bench.head.decided_through > lags[0].mark, "the shard's mark passes on");
    bench.host_room = room(3);
    bench.go(20_100);
    assert_eq!(left(&bench), [1_000, 2_000, 3_000]);
    finish_all(&mut bench);
    bench.host_room = HostRoom::ALL;
    bench.go(20_200);
    assert_eq!(left(&bench), (4..=20).map(|second| second * 1_000).collect::<Vec<_>>());
    finish_all(&mut bench);
    bench.go(20_400);
    assert!(bench.lags().is_empty(), "it lags no more");
    assert_eq!((bench.ends(), bench.skips()), (vec![End::Succeeded; 20], Vec::new()));
}

#[test]
fn a_host_that_lags_keeps_no_other_waiting() {
    let mut bench = Bench::new();
    let slow = bench.create(draft(EVERY_TEN, "{}"));
    bench.create(elsewhere(EVERY_TEN, "{}"));
    bench.host_room = HostRoom::NONE;
    bench.go(9_000);
    let mut shard_room = bench.shard.take_host_demands();
    shard_room.clear();
    let host = draft(EVERY_TEN, r#"{"name": "x"}"#).build(bench.now().wall).unwrap();
    let host = host.target.origin();
    bench.wall = 10_000;
    let now = bench.now();
    bench.shard.step(now, &|origin| if origin == host { HostRoom::NONE } else { HostRoom::ALL });
    bench.commit();
    bench.shard.depart(now, &mut bench.left);
    assert_eq!(bench.left.len(), 1);
    assert_ne!(bench.left[0].run.trigger, slow);
    let demand = bench.shard.take_host_demands();
    assert!(demand.iter().any(|demand| demand.origin == host && demand.waits), "{demand:?}");
}

#[test]
fn a_successor_goes_on_where_the_host_was() {
    let mut bench = Bench::new();
    bench.create(draft(EVERY_TEN, "{}"));
    bench.host_room = HostRoom::NONE;
    for second in 1..=30 {
        bench.go(second * 1_000);
    }
    // Nobody is there for the slots at 40 and 50 s, and of those the latest is made up.
    bench.take_over(55_000);
    bench.host_room = HostRoom::ALL;
    bench.go(55_100);
    assert_eq!(left(&bench), [10_000, 20_000, 30_000, 50_000]);
    assert_eq!(bench.skips(), [(40_000, 40_000, Reason::Misfire)]);
}

#[test]
fn slots_that_waited_for_too_long_are_left_to_catch_up() {
    let mut bench = Bench::new();
    bench.create(draft(EVERY_TEN, r#"{"catch_up": "latest", "retry": {"attempts": 1}}"#));
    bench.host_room = HostRoom::NONE;
    for second in 1..=300 {
        bench.go(second * 1_000);
    }
    assert_eq!(bench.runs().count(), 0);
    bench.host_room = HostRoom::ALL;
    bench.go(300_500);
    assert_eq!(bench.skips().first().map(|skip| (skip.0, skip.2)), Some((10_000, Reason::Misfire)));
    // When the slot at 10 s had waited for a minute, those up to 30 s went, and the one at 40 s was the latest of those that
    // had waited for half of that; so it went on, every 30 s.
    assert_eq!(left(&bench), (25..=30).map(|ten| ten * 10_000).collect::<Vec<_>>());
    assert!(bench.past.len() < 30, "a range is one line, whatever came between");
}

#[test]
fn what_is_too_late_expires_without_room() {
    let mut bench = Bench::new();
    bench.create(draft(EVERY_SECOND, r#"{"max_lateness": "2s"}"#));
    bench.host_room = HostRoom::NONE;
    for second in 1..=10 {
        bench.go(second * 1_000);
    }
    assert!(bench.ends().len() >= 6, "{:?}", bench.ends());
    assert!(bench.ends().iter().all(|end| *end == End::Expired));
    assert_eq!(bench.left.len(), 0);
}

#[test]
fn a_trigger_that_goes_to_another_host_takes_its_slots_along() {
    let mut bench = Bench::new();
    let trigger = bench.create(draft(EVERY_TEN, "{}"));
    bench.host_room = HostRoom::NONE;
    for second in 1..=30 {
        bench.go(second * 1_000);
    }
    let there = elsewhere(EVERY_TEN, "{}");
    let named = Draft { name: Some("there".to_owned()), ..there.clone() };
    let target = named.build(bench.now().wall).unwrap().target;
    bench.replace(trigger, there);
    bench.host_room = HostRoom::ALL;
    bench.go(30_100);
    bench.go(30_200);
    assert_eq!(left(&bench), [10_000, 20_000, 30_000]);
    assert!(bench.left.iter().all(|left| Target::Webhook(left.webhook.clone()) == target));
    assert!(bench.lags().is_empty() && bench.skips().is_empty());
}

#[test]
fn a_trigger_that_goes_to_another_host_takes_along_as_many_slots_as_fit_a_commit() {
    let mut bench = Bench::new();
    bench.room.writes = 9;
    let trigger = bench.create(draft(EVERY_SECOND, "{}"));
    bench.host_room = HostRoom::NONE;
    for second in 1..=20 {
        bench.go(second * 1_000);
    }
    bench.replace(trigger, elsewhere(EVERY_SECOND, "{}"));
    bench.host_room = HostRoom::ALL;
    bench.go(20_100);
    bench.go(20_200);
    assert_eq!(left(&bench), [1_000, 2_000]);
    assert_eq!(bench.skips(), [(3_000, 20_000, Reason::Cap)]);
    assert!(bench.writes_most <= 9, "every commit fits: {}", bench.writes_most);
}

#[test]
fn a_successor_knows_what_fits_a_commit_before_it_has_written_one() {
    let mut bench = Bench::new();
    let trigger = bench.create(draft(EVERY_TEN, "{}"));
    bench.host_room = HostRoom::NONE;
    for second in 1..=30 {
        bench.go(second * 1_000);
    }
    bench.take_over(30_050);
    bench.shard.set_room(bench.room);
    bench.replace(trigger, elsewhere(EVERY_TEN, "{}"));
    bench.host_room = HostRoom::ALL;
    bench.go(30_100);
    bench.go(30_200);
    assert_eq!((left(&bench), bench.skips()), (vec![10_000, 20_000, 30_000], vec![]));
}

#[test]
fn slots_that_wait_are_skipped_when_their_trigger_is_paused_or_its_project_disabled() {
    for (reason, command) in [
        (Reason::Paused, None),
        (Reason::Disabled, Some(Command::Disable { project: ProjectId::DEFAULT })),
    ] {
        let mut bench = Bench::new();
        let trigger = bench.create(draft(EVERY_TEN, "{}"));
        bench.host_room = HostRoom::NONE;
        for second in 1..=25 {
            bench.go(second * 1_000);
        }
        match command {
            None => bench.pause(trigger),
            Some(command) => drop(bench.ask(command)),
        }
        bench.host_room = HostRoom::ALL;
        bench.go(27_000);
        assert_eq!(bench.skips(), [(10_000, 20_000, reason)]);
        assert!(bench.left.is_empty() && bench.lags().is_empty());
    }
}

#[test]
fn a_run_that_was_asked_for_takes_turns_with_slots_that_wait() {
    let mut bench = Bench::new();
    let trigger = bench.create(draft(EVERY_SECOND, "{}"));
    bench.host_room = HostRoom::NONE;
    for second in 1..=20 {
        bench.go(second * 1_000);
    }
    bench.ask(Command::Run { trigger, author: String::new() });
    bench.go(20_050);
    bench.host_room = room(2);
    bench.wall += 50;
    bench.steady += 50;
    bench.step();
    bench.commit();
    bench.shard.depart(bench.now(), &mut bench.left);
    assert_eq!(left(&bench), [1_000, 20_000], "the first that waits, and what was asked for");
}
