//! Some seconds without a process: every slot is accounted for.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use client::Timestamp;
use client::account::{Account, Fate, Reason};
use client::run::RunState;
use client::spec::{CatchUp, TriggerSpec};
use client::trigger::PauseRequest;
use rig::{Heard, PATIENCE, Receiver, Reply, machine, until};
use rustix::process::Signal;
use store::machine::{Machine, System};

use super::process::{Dev, place};

const POLICIES: [(&str, CatchUp); 3] =
    [("skip", CatchUp::Skip), ("latest", CatchUp::Latest), ("all", CatchUp::All)];

/// How many missed slots of `all` run.
const CAP: u64 = 2;

/// How long nobody is there.
const LENGTH: Duration = Duration::from_secs(6);

#[tokio::test]
async fn explain_accounts_for_every_slot_while_there_was_no_process() {
    let _machine = machine::waits().await;
    explain_accounts(async |dev: Dev, data: &Path| {
        dev.kill();
        pass(LENGTH).await;
        Dev::start(data)
    })
    .await;
}

#[tokio::test]
async fn explain_accounts_for_every_slot_while_the_process_was_suspended() {
    let _machine = machine::waits().await;
    let receiver = explain_accounts(async |dev: Dev, _: &Path| {
        dev.signal(Signal::STOP);
        pass(LENGTH).await;
        dev.signal(Signal::CONT);
        dev
    })
    .await;
    for (name, _) in POLICIES {
        let slots = receiver.slots(&format!("/{name}"));
        let once: BTreeSet<&String> = slots.iter().collect();
        assert_eq!(once.len(), slots.len(), "nothing was in doubt: {slots:?}");
    }
}

#[tokio::test]
async fn an_answer_that_came_while_the_process_was_suspended_counts() {
    let _machine = machine::waits().await;
    let timeout = Duration::from_secs(2);
    let receiver = Receiver::start(1, move |_| Reply::Status(200, timeout / 2));
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    let mut spec = TriggerSpec::webhook("bell", receiver.url(0, "/bell"));
    spec.webhook.get_or_insert_default().timeout = Some("2s".to_owned());
    dev.client.create_trigger(&spec).await.unwrap();
    let id = dev.client.run("bell", None).await.unwrap().id;
    until("the call arrives", PATIENCE, || async { (!receiver.heard().is_empty()).then_some(()) })
        .await;
    dev.signal(Signal::STOP);
    pass(timeout * 2).await;
    assert!(receiver.heard()[0].answered_us.is_some());
    dev.signal(Signal::CONT);
    let run = until("the run ends", PATIENCE, || async {
        let run = dev.client.run_by_id(&id).await.unwrap();
        run.state.is_end().then_some(run)
    })
    .await;
    assert_eq!((run.state, run.attempt), (RunState::Succeeded, 1), "{run:?}");
    dev.stop().await;
}

async fn pass(length: Duration) {
    let end = now() + length;
    until("some seconds pass", PATIENCE, || async { (now() >= end).then_some(()) }).await;
}

async fn explain_accounts(outage: impl AsyncFnOnce(Dev, &Path) -> Dev) -> Receiver {
    let receiver = Receiver::start(1, |_| Reply::FINE);
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    let begun = now();
    for (name, catch_up) in POLICIES {
        let url = receiver.url(0, &format!("/{name}"));
        let mut spec = TriggerSpec::webhook(name, url).every("1s");
        spec.catch_up = Some(catch_up);
        spec.catch_up_cap = (catch_up == CatchUp::All).then_some(CAP);
        dev.client.create_trigger(&spec).await.unwrap();
    }
    for (name, _) in POLICIES {
        heard_after(&receiver, name, begun).await;
    }
    let outage_begins = now();
    let dev = outage(dev, &data).await;
    let started = now();
    for (name, catch_up) in POLICIES {
        heard_after(&receiver, name, started).await;
        dev.client.pause(name, &PauseRequest::default()).await.unwrap();
        let account = until("it rests", PATIENCE, || async {
            let account = dev.client.account(name, Some(begun), None).await.unwrap();
            let totals = &account.totals;
            (totals.pending + totals.under_way == 0).then_some(account)
        })
        .await;
        check(&account, catch_up, outage_begins, &calls(&receiver, name));
        let mut told: Vec<String> = runs(&account).map(|slot| slot.to_string()).collect();
        let mut heard = receiver.slots(&format!("/{name}"));
        heard.sort();
        heard.dedup();
        told.sort();
        assert_eq!(told, heard, "{name}");
    }
    dev.stop().await;
    receiver
}

fn now() -> Timestamp {
    Timestamp::from_microsecond(System.wall_us().cast_signed()).unwrap()
}

/// Waits until a slot after this instant has come.
async fn heard_after(receiver: &Receiver, name: &str, after: Timestamp) {
    until(&format!("{name} rings"), PATIENCE, || async {
        let slots = receiver.slots(&format!("/{name}"));
        slots.iter().any(|slot| slot.parse::<Timestamp>().unwrap() > after).then_some(())
    })
    .await;
}

fn calls(receiver: &Receiver, name: &str) -> Vec<Heard> {
    let path = format!("/{name}");
    receiver.heard().into_iter().filter(|call| call.path == path).collect()
}

fn runs(account: &Account) -> impl Iterator<Item = Timestamp> {
    account.rows.iter().filter(|row| row.fate == Fate::Run).map(|row| row.from)
}

/// Each second is in one row, and those of the outage are told as the rule says. Others may have been missed as well,
/// if the machine was too busy for a while.
fn check(account: &Account, catch_up: CatchUp, outage_begins: Timestamp, calls: &[Heard]) {
    let outage_ends = outage_begins + LENGTH;
    let second = Duration::from_secs(1);
    for (one, next) in account.rows.iter().zip(account.rows.iter().skip(1)) {
        assert_eq!(one.to + second, next.from, "{account:?}");
    }
    assert_eq!(account.totals.missing + account.totals.failed, 0, "{account:?}");
    let reason = if catch_up == CatchUp::All { Reason::Cap } else { Reason::Misfire };
    let missed = account.rows.iter().find(|row| {
        row.reason == Some(reason) && row.from <= outage_ends && outage_begins <= row.to
    });
    let Some(missed) = missed else { panic!("a row for what was missed: {account:?}") };
    let kept = match catch_up {
        CatchUp::Skip => 0,
        CatchUp::Latest => 1,
        CatchUp::All => u32::try_from(CAP).unwrap(),
    };
    // What was due up to a second before it was back was missed. It was back when it decided so, which was after the
    // outage, and before it called for any later slot.
    let last_missed = missed.to + second * kept;
    let is_later = |call: &&Heard| call.slot.parse::<Timestamp>().unwrap() > missed.to;
    let back_us = calls.iter().filter(is_later).map(|call| call.at_us).min().unwrap();
    assert!(outage_ends - 2 * second <= last_missed, "{account:?}");
    assert!(last_missed.as_microsecond() <= back_us.cast_signed(), "{account:?}");
    assert!(missed.count >= 2, "{account:?}");
}
