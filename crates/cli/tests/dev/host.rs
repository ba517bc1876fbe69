//! Hosts that misbehave do not delay the others.
//!
//! How late a good host's calls arrive is measured in one run without and with four bad hosts, each of which
//! gets a hundred calls a second. Machines that run tests are busy with other things, so a run in which the
//! difference is too large, or calls are missing, is repeated, and the best of three counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use client::Timestamp;
use client::spec::{CatchUp, RetrySpec, TriggerSpec};
use engine::instant::Instant;
use engine::trigger::Draft;
use rig::{PATIENCE, Receiver, Reply, machine, until};
use store::machine::{Machine, System};

use super::process::{Dev, place};

/// A good host that waited for bad ones would be later by most of a second, or by several.
const GROWTH_MAX: Duration = Duration::from_millis(250);
const RUNS_MAX: usize = 3;

/// Calls a second of each bad host, and of the good one.
const BAD: usize = 100;
const GOOD: usize = 100;

const KINDS: [&str; 4] = ["silent", "reset", "flood", "slow"];

fn answer(path: &str) -> Reply {
    match path.split('/').nth(1) {
        Some("silent") => Reply::Never,
        Some("reset") => Reply::Reset,
        Some("flood") => Reply::Flood,
        Some("slow") => Reply::Status(200, Duration::from_millis(800)),
        _ => Reply::FINE,
    }
}

/// How much the lateness of a good host grows; nothing, if too many of its calls are missing to tell.
async fn run_once(run: usize) -> Option<Duration> {
    let receiver = Receiver::start(1 + KINDS.len(), |call| answer(&call.path));
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    let mut good = Vec::new();
    for number in 0..GOOD {
        let name = format!("good-{number}");
        let spec = spec(&name, receiver.url(0, &format!("/good/{number}")));
        dev.client.create_trigger(&spec).await.unwrap();
        good.push(spec);
    }
    let alone = lateness(&receiver, &good, Duration::from_secs(5)).await?;
    for (door, kind) in KINDS.into_iter().enumerate() {
        for number in 0..BAD {
            let url = receiver.url(door + 1, &format!("/{kind}/{number}"));
            let spec = spec(&format!("{kind}-{number}"), url);
            dev.client.create_trigger(&spec).await.unwrap();
        }
    }
    // Until the bad ones are known for what they are, and for a while after that.
    let together = lateness(&receiver, &good, Duration::from_secs(8)).await?;
    let calls: Vec<usize> = KINDS.map(|kind| heard(&receiver, kind)).to_vec();
    println!(
        "run {run}: p99 of the good host {alone:?} alone, {together:?} with {KINDS:?} hosts that heard {calls:?} calls"
    );
    assert!(calls.iter().all(|calls| *calls > 0), "{calls:?}");
    dev.kill();
    Some(together.saturating_sub(alone))
}

fn heard(receiver: &Receiver, kind: &str) -> usize {
    let begin = format!("/{kind}/");
    receiver.heard().iter().filter(|call| call.path.starts_with(&begin)).count()
}

/// One that rings once a second, anywhere in it.
fn spec(name: &str, url: String) -> TriggerSpec {
    let mut spec = TriggerSpec::webhook(name, url).every("1s");
    spec.schedule.as_mut().unwrap().jitter = Some("1s".to_owned());
    spec.catch_up = Some(CatchUp::All);
    spec.webhook.get_or_insert_default().timeout = Some("5s".to_owned());
    spec.retry = Some(RetrySpec { attempts: Some(1), ..RetrySpec::default() });
    spec
}

/// The 99th percentile of how late the calls of this stretch of time arrive, if nine of ten do.
async fn lateness(
    receiver: &Receiver,
    good: &[TriggerSpec],
    stretch: Duration,
) -> Option<Duration> {
    // The first slot of the last trigger comes within two seconds.
    let begin = System.wall_us() + 2_000_000;
    let end = begin + u64::try_from(stretch.as_micros()).unwrap();
    until("the stretch is over", PATIENCE, || async {
        // And two seconds more for those that are late.
        (System.wall_us() > end + 2_000_000).then_some(())
    })
    .await;
    let schedules: Vec<_> = good.iter().map(schedule).collect();
    let mut late = Vec::new();
    for call in receiver.heard() {
        let Some(number) = call.path.strip_prefix("/good/") else { continue };
        let number: usize = number.parse().unwrap();
        let slot: Timestamp = call.slot.parse().unwrap();
        let name = good[number].name.as_ref().unwrap();
        let leaves_at = schedules[number].leaves_at(Instant(slot.as_millisecond()), name);
        let leaves_us = leaves_at.0.unsigned_abs() * 1_000;
        if (begin..end).contains(&leaves_us) {
            late.push(call.at_us.saturating_sub(leaves_us));
        }
    }
    late.sort_unstable();
    let expected = GOOD * usize::try_from(stretch.as_secs()).unwrap();
    println!("{} calls of {expected}", late.len());
    let is_enough = late.len() * 10 >= expected * 9;
    is_enough.then(|| Duration::from_micros(late[late.len() * 99 / 100]))
}

fn schedule(spec: &TriggerSpec) -> engine::schedule::Schedule {
    let draft: Draft = serde_json::from_value(serde_json::to_value(spec).unwrap()).unwrap();
    draft.build(Instant(0)).unwrap().schedule
}

/// What becomes of slots whose host does not answer for a while: they wait for it, and each has its record afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_for_a_host_that_does_not_answer_wait_until_it_does() {
    let is_well = Arc::new(AtomicBool::new(false));
    let known = Arc::clone(&is_well);
    let receiver =
        Receiver::start(
            1,
            move |_| {
                if known.load(Ordering::Relaxed) { Reply::FINE } else { Reply::Reset }
            },
        );
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    for number in 0..20 {
        let spec = spec(&format!("t-{number}"), receiver.url(0, &format!("/{number}")));
        dev.client.create_trigger(&spec).await.unwrap();
    }
    let account = || dev.client.account("t-7", None, None);
    let lagging = until("the host lags", PATIENCE, || async {
        Some(account().await.unwrap()).filter(|account| account.host_lags_since.is_some())
    })
    .await;
    assert_eq!(lagging.totals.missing, 0, "{lagging:?}");
    is_well.store(true, Ordering::Relaxed);
    let done = until("the host has kept up", PATIENCE, || async {
        let account = account().await.unwrap();
        let is_done = account.host_lags_since.is_none() && account.totals.succeeded > 0;
        is_done.then_some(account)
    })
    .await;
    assert_eq!((done.totals.missing, done.totals.unread), (0, 0), "{done:?}");
    dev.kill();
}

/// What is judged by time: see [`rig::machine`].
mod alone {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn hosts_that_misbehave_do_not_delay_a_good_one() {
        let _machine = machine::alone().await;
        let mut growths = Vec::new();
        for run in 1..=RUNS_MAX {
            let growth = run_once(run).await;
            if growth.is_some_and(|growth| growth <= GROWTH_MAX) {
                return;
            }
            growths.push(growth);
        }
        panic!(
            "the lateness of a good host grew by {growths:?}; where there is none, calls were missing"
        );
    }
}
