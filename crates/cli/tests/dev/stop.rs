//! SIGTERM while webhooks are under way.

use std::collections::BTreeMap;
use std::time::Duration;

use client::run::RunState;
use client::spec::{Delivery, TriggerSpec};
use client::trigger::PauseRequest;
use client::{Client, RunFilter};
use rig::{PATIENCE, Receiver, Reply, machine, until};

use super::process::{Dev, place};

/// How long an ordered stop may take.
const STOP_MAX: Duration = Duration::from_secs(5);

/// How long a start may take if nobody has to be waited for: a session lasts longer.
const START_MAX: Duration = Duration::from_secs(3);

/// Waits until so many calls are under way.
async fn under_way(receiver: &Receiver, calls: usize) {
    until("calls are under way", PATIENCE, || async {
        let heard = receiver.heard();
        let under_way = heard.iter().filter(|call| call.answered_us.is_none()).count();
        (under_way >= calls).then_some(())
    })
    .await;
}

async fn rest(client: &Client) {
    until("every run ends", PATIENCE, || async {
        for state in RunState::ALL.into_iter().filter(|state| !state.is_end()) {
            let filter = RunFilter { states: vec![state], limit: Some(1), ..RunFilter::default() };
            if !client.runs(&filter).await.unwrap().items.is_empty() {
                return None;
            }
        }
        Some(())
    })
    .await;
}

#[tokio::test]
async fn a_stop_lets_webhooks_end_and_sends_none_of_them_again() {
    let _machine = machine::waits().await;
    let receiver = Receiver::start(4, |_| Reply::Status(200, Duration::from_secs(1)));
    let (_dir, data) = place();
    let mut dev = Dev::start(&data);
    let names: Vec<String> = (0..20).map(|number| format!("t{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        let url = receiver.url(number % 4, &format!("/{name}"));
        let mut spec = TriggerSpec::webhook(name, url).every("1s");
        let is_careful = number % 3 == 0;
        spec.delivery = is_careful.then_some(Delivery::AtMostOnce);
        dev.client.create_trigger(&spec).await.unwrap();
    }
    let mut starts = Vec::new();
    for _ in 0..3 {
        under_way(&receiver, 12).await;
        let took = dev.stop().await;
        assert!(took < STOP_MAX, "it took {took:?} to stop");
        dev = Dev::start(&data);
        starts.push(dev.took);
    }
    // A busy machine may delay some of them; a session that was left behind would delay them all.
    let shortest = starts.iter().min().unwrap();
    assert!(*shortest < START_MAX, "it took {starts:?} to start again");
    for name in &names {
        dev.client.pause(name, &PauseRequest::default()).await.unwrap();
    }
    rest(&dev.client).await;
    // A list does not tell of runs that left within the last second: each one is asked about.
    for call in receiver.heard() {
        let run = until("the run ends", PATIENCE, || async {
            let run = dev.client.run_by_id(&call.run).await.unwrap();
            run.state.is_end().then_some(run)
        })
        .await;
        // One that waited for its host at a stop was begun once more, and had not left before.
        assert_eq!((run.state, run.attempts.len()), (RunState::Succeeded, 1), "{run:?}");
    }
    let mut calls: BTreeMap<String, usize> = BTreeMap::new();
    for call in receiver.heard() {
        *calls.entry(call.run).or_default() += 1;
    }
    assert!(calls.values().all(|calls| *calls == 1), "{calls:?}");
    dev.stop().await;
}

#[tokio::test]
async fn a_stop_does_not_wait_for_ever_and_what_is_in_doubt_is_told() {
    let _machine = machine::waits().await;
    // It answers the second time only.
    let receiver = Receiver::start(2, |call| match (call.path.as_str(), call.attempt) {
        ("/again", 2..) => Reply::FINE,
        _ => Reply::Never,
    });
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    let mut again = TriggerSpec::webhook("again", receiver.url(0, "/again"));
    again.webhook.get_or_insert_default().timeout = Some("30s".to_owned());
    let mut once = TriggerSpec::webhook("once", receiver.url(1, "/once"));
    once.webhook.get_or_insert_default().timeout = Some("30s".to_owned());
    once.delivery = Some(Delivery::AtMostOnce);
    let mut runs = Vec::new();
    for spec in [&again, &once] {
        dev.client.create_trigger(spec).await.unwrap();
        runs.push(dev.client.run(spec.name.as_ref().unwrap(), None).await.unwrap().id);
    }
    under_way(&receiver, 2).await;
    let took = dev.stop().await;
    assert!(took < STOP_MAX, "it took {took:?} to stop");

    let dev = Dev::start(&data);
    rest(&dev.client).await;
    let [again, once] = &runs[..] else { panic!("two runs: {runs:?}") };
    let again = dev.client.run_by_id(again).await.unwrap();
    assert_eq!((again.state, again.attempt), (RunState::Succeeded, 2), "{again:?}");
    let once = dev.client.run_by_id(once).await.unwrap();
    assert_eq!((once.state, once.attempt), (RunState::Unknown, 1), "{once:?}");
    assert_eq!(receiver.slots("/once").len(), 1);
    dev.stop().await;
}

#[tokio::test]
async fn a_request_that_waits_does_not_hold_a_stop_up() {
    let _machine = machine::waits().await;
    let receiver = Receiver::start(1, |_| Reply::Never);
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    let mut spec = TriggerSpec::webhook("bell", receiver.url(0, "/bell"));
    spec.webhook.get_or_insert_default().timeout = Some("30s".to_owned());
    dev.client.create_trigger(&spec).await.unwrap();
    let client = dev.client.clone();
    let waiting = client.run("bell", Some(Duration::from_secs(60)));
    let stopping = async {
        under_way(&receiver, 1).await;
        dev.stop().await
    };
    let (_, took) = tokio::join!(waiting, stopping);
    assert!(took < STOP_MAX, "it took {took:?} to stop");
}
