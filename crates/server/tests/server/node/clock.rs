//! Clocks that are set, and machines that sleep.

use client::spec::CatchUp;
use client::trigger::PauseRequest;
use engine::id::{ProjectId, ShardId};
use rig::{PATIENCE, until};

use super::world::{HOUR_MS, MINUTE_MS, Running, World, catching_up};

#[track_caller]
fn check_once(slots: &[String]) {
    let mut once = slots.to_vec();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), slots.len(), "a slot came twice: {slots:?}");
}

/// The name of another trigger in the same shard.
fn neighbour_of(name: &str) -> String {
    let shard = |name: &str| ShardId::of(ProjectId::DEFAULT, name, 32);
    let mut names = (0..).map(|number| format!("n{number}"));
    names.find(|other| shard(other) == shard(name)).unwrap()
}

/// A node at half past twelve with a trigger that rings on the minute.
async fn on_the_minute(world: &World, catch_up: CatchUp) -> Running {
    let node = world.start("2027-03-01T12:29:30Z").await;
    node.create(catching_up(world.spec("bell").cron("* * * * *"), catch_up)).await;
    node
}

#[tokio::test]
async fn a_long_way_forward_suspends_firing_until_a_person_confirms() {
    let world = World::new();
    let node = on_the_minute(&world, CatchUp::Latest).await;
    node.clocks.set_wall_by(HOUR_MS);
    node.wait_suspended(true).await;
    let status = node.client.scheduler().await.unwrap();
    let why = status.why.unwrap();
    // To the millisecond, which two clocks round each on its own.
    let is_an_hour = ["3600", "3599.99"].iter().any(|by| why.contains(&format!("forward by {by}")));
    assert!(is_an_hour, "{why}");
    let account = node.client.account("bell", None, None).await.unwrap();
    assert!(account.suspended.is_some() && account.totals.pending == 60, "{account:?}");
    assert_eq!(world.slots("bell"), [""; 0]);

    node.client.confirm_time().await.unwrap();
    assert!(!node.is_suspended().await);
    assert_eq!(world.heard("bell", 1).await, ["2027-03-01T13:29:00Z"]);
    let account = node.settled("bell", "2027-03-01T12:29:30Z").await;
    let totals = account.totals;
    assert_eq!((totals.slots, totals.succeeded, totals.skipped), (60, 1, 59), "{account:?}");
    node.kill();
}

#[tokio::test]
async fn a_short_way_forward_is_caught_up_with_and_suspends_nothing() {
    let world = World::new();
    let node = on_the_minute(&world, CatchUp::All).await;
    node.clocks.set_wall_by(5 * MINUTE_MS - 1_000);
    // All of them, since they come in any order.
    let mut slots = world.heard("bell", 5).await;
    slots.sort();
    let expected: Vec<String> =
        (30..35).map(|minute| format!("2027-03-01T12:{minute}:00Z")).collect();
    assert_eq!(slots[..5], expected);
    assert!(!node.is_suspended().await);
    node.kill();
}

#[tokio::test]
async fn a_clock_that_comes_back_needs_nobody_and_nothing_is_skipped_for_it() {
    let world = World::new();
    let node = world.start("2027-03-01T12:29:30Z").await;
    for (name, catch_up) in [("skip", CatchUp::Skip), ("latest", CatchUp::Latest)] {
        node.create(catching_up(world.spec(name).every("1s"), catch_up)).await;
    }
    world.heard("skip", 1).await;
    node.clocks.set_wall_by(HOUR_MS);
    node.wait_suspended(true).await;
    node.clocks.set_wall_by(-HOUR_MS);
    node.wait_suspended(false).await;
    for name in ["skip", "latest"] {
        let heard = world.slots(name).len();
        let slots = world.heard(name, heard + 3).await;
        check_once(&slots);
        let account = node.client.account(name, None, None).await.unwrap();
        // While it was held, a few slots were missed; a clock that was believed would have skipped an hour.
        assert!(account.totals.skipped < 60, "{account:?}");
        assert!(slots.iter().all(|slot| slot.as_str() < "2027-03-01T12:45:00Z"), "{slots:?}");
    }
    node.kill();
}

#[tokio::test]
async fn what_is_asked_for_while_firing_is_suspended_is_not_dated_by_the_wrong_clock() {
    let world = World::new();
    let node = world.start("2027-03-01T12:29:30Z").await;
    node.create(world.spec("paused").every("1s")).await;
    world.heard("paused", 1).await;
    node.clocks.set_wall_by(HOUR_MS);
    node.wait_suspended(true).await;
    node.create(world.spec("new").every("1s")).await;
    node.client.pause("paused", &PauseRequest::default()).await.unwrap();
    node.client.resume("paused").await.unwrap();
    node.clocks.set_wall_by(-HOUR_MS);
    node.wait_suspended(false).await;
    for name in ["new", "paused"] {
        let slots = world.heard(name, 3).await;
        check_once(&slots);
        assert!(slots.iter().all(|slot| slot.as_str() < "2027-03-01T12:45:00Z"), "{slots:?}");
    }
    node.kill();
}

#[tokio::test]
async fn a_request_at_the_moment_of_a_jump_is_not_answered_before_the_jump_is_noticed() {
    let world = World::new();
    let node = on_the_minute(&world, CatchUp::Latest).await;
    let neighbour = neighbour_of("bell");
    node.create(world.spec(&neighbour)).await;
    node.clocks.set_wall_by(HOUR_MS);
    node.client.pause(&neighbour, &PauseRequest::default()).await.unwrap();
    assert!(node.is_suspended().await);
    node.client.confirm_time().await.unwrap();
    let account = node.settled("bell", "2027-03-01T12:29:30Z").await;
    let totals = account.totals;
    assert_eq!((totals.slots, totals.succeeded, totals.skipped), (60, 1, 59), "{account:?}");
    node.kill();
}

#[tokio::test]
async fn a_mark_in_the_future_suspends_firing_until_a_person_confirms() {
    let world = World::new();
    let node = world.start("2027-03-02T12:00:00Z").await;
    node.create(world.spec("bell").every("1s")).await;
    world.heard("bell", 2).await;
    node.kill();

    let node = world.start("2027-03-01T12:00:00Z").await;
    let status = node.client.scheduler().await.unwrap();
    assert!(status.why.unwrap().contains("lies in the future"));
    let before = world.slots("bell");
    node.client.confirm_time().await.unwrap();
    assert!(!node.is_suspended().await);
    // What is made now fires now; what was decided for tomorrow is not decided again.
    let neighbour = neighbour_of("bell");
    node.create(world.spec(&neighbour).every("1s")).await;
    let slots = world.heard(&neighbour, 3).await;
    assert!(slots.iter().all(|slot| slot.starts_with("2027-03-01T12:0")), "{slots:?}");
    check_once(&slots);
    // A run that was in doubt may have been sent again under its id.
    let mut after = world.slots("bell");
    after.retain(|slot| !before.contains(slot));
    assert!(after.iter().all(|slot| slot.starts_with("2027-03-02T12:0")), "{after:?}");
    node.kill();
}

#[tokio::test]
async fn a_mark_in_the_future_suspends_firing_until_the_clock_is_right() {
    let world = World::new();
    let node = world.start("2027-03-01T12:00:00Z").await;
    node.create(world.spec("bell").every("1s")).await;
    world.heard("bell", 2).await;
    node.kill();

    let node = world.start("2027-03-01T11:57:00Z").await;
    let status = node.client.scheduler().await.unwrap();
    assert!(status.why.unwrap().contains("lies in the future"));
    let before = world.slots("bell").len();
    node.clocks.set_wall_by(4 * MINUTE_MS);
    node.wait_suspended(false).await;
    world.heard("bell", before + 3).await;
    node.kill();
}

#[tokio::test]
async fn a_mark_in_the_future_and_a_leap_of_the_clock_wait_for_a_person() {
    let world = World::new();
    let node = world.start("2027-03-01T12:00:00Z").await;
    node.create(world.spec("bell").every("1s")).await;
    world.heard("bell", 2).await;
    node.kill();

    let node = world.start("2027-03-01T11:00:00Z").await;
    assert!(node.is_suspended().await);
    node.clocks.set_wall_by(HOUR_MS + MINUTE_MS);
    until("the leap is told", PATIENCE, || async {
        let why = node.client.scheduler().await.unwrap().why;
        assert!(why.is_some(), "it is suspended until a person confirms");
        why.filter(|why| why.contains("set forward"))
    })
    .await;
    let before = world.slots("bell").len();
    node.client.confirm_time().await.unwrap();
    world.heard("bell", before + 3).await;
    node.kill();
}

#[tokio::test]
async fn a_way_back_fires_nothing_twice_and_new_triggers_at_once() {
    let world = World::new();
    let node = world.start("2027-03-01T12:00:00Z").await;
    node.create(world.spec("bell").every("1s")).await;
    world.heard("bell", 2).await;
    node.clocks.set_wall_by(-HOUR_MS);
    node.create(world.spec("new").every("1s")).await;
    let slots = world.heard("new", 3).await;
    assert!(slots.iter().all(|slot| slot.starts_with("2027-03-01T11:0")), "{slots:?}");
    check_once(&slots);
    check_once(&world.slots("bell"));
    assert!(!node.is_suspended().await);
    node.kill();
}

#[tokio::test]
async fn a_short_way_back_fires_nothing_twice_and_goes_on() {
    let world = World::new();
    let node = world.start("2027-03-01T12:00:00Z").await;
    node.create(world.spec("bell").every("1s")).await;
    world.heard("bell", 2).await;
    node.clocks.set_wall_by(-3_000);
    let slots = world.heard("bell", 5).await;
    check_once(&slots);
    assert!(slots.is_sorted(), "{slots:?}");
    node.kill();
}

#[tokio::test]
async fn a_machine_that_slept_has_missed_slots_and_not_jumped() {
    let world = World::new();
    let node = on_the_minute(&world, CatchUp::Latest).await;
    node.clocks.sleep_for(HOUR_MS);
    assert_eq!(world.heard("bell", 1).await, ["2027-03-01T13:29:00Z"]);
    assert!(!node.is_suspended().await);
    let account = node.settled("bell", "2027-03-01T12:29:30Z").await;
    let totals = account.totals;
    assert_eq!((totals.slots, totals.succeeded, totals.skipped), (60, 1, 59), "{account:?}");
    node.kill();
}
