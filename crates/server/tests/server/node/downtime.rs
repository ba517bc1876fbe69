//! Nobody was there for a while: what runs afterwards, and how it is told.

use client::account::{Fate, Reason};
use client::run::RunState;
use client::spec::{Backoff, CatchUp, RetrySpec};
use rig::{PATIENCE, Receiver, Reply, until};

use super::world::{World, catching_up};

/// Kills a node at half past twelve and starts one an hour later; the slots are on the minute.
async fn an_hour_of_downtime(catch_up: CatchUp, cap: Option<u64>) -> (Vec<String>, [u64; 2]) {
    let world = World::new();
    let node = world.start("2027-03-01T12:29:30Z").await;
    let mut spec = catching_up(world.spec("bell").cron("* * * * *"), catch_up);
    spec.catch_up_cap = cap;
    node.create(spec).await;
    node.kill();

    let node = world.start("2027-03-01T13:29:30Z").await;
    let account = node.settled("bell", "2027-03-01T12:29:30Z").await;
    assert_eq!(account.totals.slots, 60, "{account:?}");
    assert_eq!(account.totals.succeeded + account.totals.skipped, 60, "{account:?}");
    let reason = if catch_up == CatchUp::All { Reason::Cap } else { Reason::Misfire };
    let skips = account.rows.iter().filter(|row| row.fate == Fate::Skipped);
    assert!(skips.clone().all(|row| row.reason == Some(reason)), "{account:?}");
    node.kill();
    (world.slots("bell"), [account.totals.succeeded, account.totals.skipped])
}

#[tokio::test]
async fn with_skip_nothing_that_was_missed_runs() {
    let (slots, counts) = an_hour_of_downtime(CatchUp::Skip, None).await;
    assert_eq!(slots, [""; 0]);
    assert_eq!(counts, [0, 60]);
}

#[tokio::test]
async fn with_latest_the_last_slot_that_was_missed_runs() {
    let (slots, counts) = an_hour_of_downtime(CatchUp::Latest, None).await;
    assert_eq!(slots, ["2027-03-01T13:29:00Z"]);
    assert_eq!(counts, [1, 59]);
}

#[tokio::test]
async fn with_all_the_last_slots_that_were_missed_run_up_to_the_cap() {
    let (mut slots, counts) = an_hour_of_downtime(CatchUp::All, Some(7)).await;
    slots.sort();
    let expected: Vec<String> =
        (23..30).map(|minute| format!("2027-03-01T13:{minute}:00Z")).collect();
    assert_eq!(slots, expected);
    assert_eq!(counts, [7, 53]);
    let (slots, counts) = an_hour_of_downtime(CatchUp::All, Some(60)).await;
    assert_eq!((slots.len(), counts), (60, [60, 0]));
}

#[tokio::test]
async fn a_zone_means_the_same_after_a_restart() {
    let world = World::new();
    let node = world.start("2027-03-27T12:00:00Z").await;
    let mut spec = world.spec("bell").cron("30 2 * * *");
    spec.schedule.as_mut().unwrap().tz = Some("Europe/Berlin".to_owned());
    node.create(spec).await;
    let before = node.client.next("bell", 300).await.unwrap();
    node.kill();
    // Clocks go from 02:00 to 03:00 at 01:00 UTC; until then there is time to ask.
    let node = world.start("2027-03-28T00:59:50Z").await;
    assert_eq!(node.client.next("bell", 300).await.unwrap(), before);
    assert_eq!(world.heard("bell", 1).await, ["2027-03-28T01:00:00Z"]);
    let account = node.settled("bell", "2027-03-27T12:00:00Z").await;
    assert_eq!((account.totals.slots, account.totals.succeeded), (1, 1), "{account:?}");
    assert_eq!(account.next[0].to_string(), "2027-03-29T00:30:00Z");
    node.kill();
}

#[tokio::test]
async fn a_retry_has_the_number_that_it_had_before_a_crash() {
    let receiver = Receiver::start(1, |call| {
        let status = if call.attempt < 4 { 500 } else { 200 };
        Reply::Status(status, std::time::Duration::ZERO)
    });
    let world = World::with(receiver);
    let node = world.start("2027-03-01T12:00:00Z").await;
    let mut spec = world.spec("bell");
    // Long enough that somebody who looks now and then sees it wait.
    let (delay, backoff) = (Some("5s".to_owned()), Some(Backoff::Constant));
    spec.retry = Some(RetrySpec { attempts: Some(5), delay, backoff, max_delay: None });
    node.create(spec).await;
    let run = node.client.run("bell", None).await.unwrap().id;
    until("two attempts have failed", PATIENCE, || async {
        let run = node.client.run_by_id(&run).await.unwrap();
        (run.state == RunState::Backoff && run.attempt == 2).then_some(())
    })
    .await;
    node.kill();

    let node = world.start("2027-03-01T12:00:30Z").await;
    let ended = until("the run ends", PATIENCE, || async {
        let run = node.client.run_by_id(&run).await.unwrap();
        run.state.is_end().then_some(run)
    })
    .await;
    assert_eq!((ended.state, ended.attempt), (RunState::Succeeded, 4), "{ended:?}");
    let heard = world.receiver.heard();
    assert!(heard.iter().all(|call| call.run == run), "{heard:?}");
    let attempts: Vec<u32> = heard.iter().map(|call| call.attempt).collect();
    assert_eq!(attempts, [1, 2, 3, 4]);
    node.kill();
}

#[tokio::test]
async fn a_limit_is_exact_across_crashes() {
    let world = World::new();
    let mut node = world.start("2027-03-01T12:00:00.500Z").await;
    let mut spec = catching_up(world.spec("bell").every("1s"), CatchUp::All);
    spec.schedule.as_mut().unwrap().limit = Some(6);
    node.create(spec).await;
    for (calls, wall) in [(2, "2027-03-01T12:00:03.600Z"), (4, "2027-03-01T12:00:05.600Z")] {
        world.heard("bell", calls).await;
        node.kill();
        node = world.start(wall).await;
    }
    let last = "2027-03-01T12:00:06Z".to_owned();
    until("the last slot comes", PATIENCE, || async {
        world.slots("bell").contains(&last).then_some(())
    })
    .await;
    let account = node.settled("bell", "2027-03-01T12:00:00Z").await;
    assert_eq!((account.totals.slots, account.totals.succeeded), (6, 6), "{account:?}");
    let trigger = node.client.trigger("bell").await.unwrap();
    assert_eq!((trigger.remaining, trigger.next.len()), (Some(0), 0), "{trigger:?}");
    let mut slots = world.slots("bell");
    slots.sort();
    slots.dedup();
    assert_eq!(slots.len(), 6, "{slots:?}");
    node.kill();
}
