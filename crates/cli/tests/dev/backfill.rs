//! Slots of the past, run again at a server and a receiver that run.

use client::RunFilter;
use client::run::RunState;
use client::spec::TriggerSpec;
use rig::{PATIENCE, Receiver, Reply, machine, until};

use super::command::{said, watchbell};
use super::process::{Dev, place};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_receiver_is_told_the_slots_instant_and_no_slot_twice() {
    let _machine = machine::waits().await;
    let receiver = Receiver::start(1, |_| Reply::FINE);
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    let mut spec = TriggerSpec::webhook("report", receiver.url(0, "/x")).cron("0 0 1 1 *");
    spec.schedule.as_mut().unwrap().limit = Some(5);
    dev.client.create_trigger(&spec).await.unwrap();
    let window = ["--from", "2020-01-01T00:00:00Z", "--to", "2024-01-01T00:00:00Z"];
    let backfill = [&["trigger", "backfill", "report"], &window[..]].concat();
    let (out, _) = said(&watchbell(&dev, &[&backfill[..], &["--dry-run"]].concat()).await, 0);
    assert!(out.starts_with("2020-01-01T00:00:00Z\n2021-") && out.contains("4 slots"), "{out}");
    let named = [&backfill[..], &["--request", "again", "--rate", "1000/s"]].concat();
    let (out, _) = said(&watchbell(&dev, &named).await, 0);
    assert!(out.contains("4 of 4 slots of report were started"), "{out}");
    let (out, _) = said(&watchbell(&dev, &named).await, 0);
    assert!(out.contains("0 of 4 slots"), "{out}");
    let runs = until("four runs have ended", PATIENCE, || async {
        let runs = dev.client.runs_of("report", &RunFilter::default()).await.unwrap().items;
        let all = runs.iter().all(|run| run.state == RunState::Succeeded);
        (runs.len() == 4 && all).then_some(runs)
    })
    .await;
    let mut slots: Vec<String> = runs.iter().map(|run| run.slot.to_string()).collect();
    slots.sort();
    let expected = ["2020", "2021", "2022", "2023"].map(|year| format!("{year}-01-01T00:00:00Z"));
    assert_eq!(slots, expected);
    assert!(runs.iter().all(|run| run.on_demand));
    let mut told: Vec<String> = receiver.heard().into_iter().map(|call| call.slot).collect();
    told.sort();
    assert_eq!(told, expected);
    assert_eq!(dev.client.trigger("report").await.unwrap().remaining, Some(5));
    let account = dev.client.account("report", None, None).await.unwrap();
    assert_eq!(account.totals.missing, 0);
    dev.kill();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_slots_are_asked_about_and_the_future_is_refused() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    let spec = TriggerSpec::webhook("report", "http://127.0.0.1:1/x").cron("0 0 * * *");
    dev.client.create_trigger(&spec).await.unwrap();
    for (from, to, code, told) in [
        ("2024-01-01T00:00:00Z", "2024-04-11T00:00:00Z", 2, "nothing was started"),
        ("2024-01-01T00:00:00Z", "2099-01-01T00:00:00Z", 2, "--to: it lies in the future"),
        ("2024-01-02T00:00:00Z", "2024-01-01T00:00:00Z", 2, "--from: it must lie before --to"),
        ("1700-01-01T00:00:00Z", "2024-01-01T00:00:00Z", 2, "at most 100,000 slots"),
    ] {
        let args = ["trigger", "backfill", "report", "--from", from, "--to", to];
        let (_, err) = said(&watchbell(&dev, &args).await, code);
        assert!(err.contains(told), "{err}");
    }
    dev.kill();
}
