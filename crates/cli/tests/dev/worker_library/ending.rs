//! How runs and workers are told to end.

use std::sync::atomic::{AtomicBool, Ordering};

use client::queue::CommandSpec;
use client::spec::Delivery;
use client::worker::WorkerState;
use rig::machine;
use worker::{EndReason, Outcome};

use super::super::process::{Dev, place};
use super::gate::gate;
use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_cancelled_is_told_so_and_ends_as_cancelled() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    let (gate, mut reasons) = gate();
    let worker = noting("web-1", &dev.client, &CarriedOut::default()).lease(SHORT);
    let worker = Working::start(gate.stands_in(worker).build().unwrap());
    let id = submit(&dev.client, "gate", 1).await.remove(0);
    gate.has_begun(1).await;
    dev.client.cancel_run(&id).await.unwrap();
    is_in(&dev.client, &id, RunState::Cancelled).await;
    assert_eq!(reasons.recv().await, Some(EndReason::Cancelled));
    worker.drain().await.unwrap();
    dev.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_never_began_is_given_back_and_may_be_carried_out_once_all_the_same() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    let is_first = Arc::new(AtomicBool::new(true));
    let builder = Worker::new("web-1", ["mail"]).servers([dev.client.clone()]);
    let worker = builder.commands(move |_| {
        let outcome = if is_first.swap(false, Ordering::Relaxed) {
            Outcome::never_began(EndReason::Unconfirmed, "the machine slept")
        } else {
            Outcome::succeeded()
        };
        std::future::ready(outcome)
    });
    let worker = Working::start(worker.build().unwrap());
    let command = CommandSpec { argv: vec!["/bin/true".to_owned()], ..CommandSpec::default() };
    let once = RunSpec {
        queue: Some("mail".to_owned()),
        command: Some(command),
        delivery: Some(Delivery::AtMostOnce),
        ..RunSpec::default()
    };
    let id = dev.client.submit(&once).await.unwrap().id;
    let run = is_in(&dev.client, &id, RunState::Succeeded).await;
    assert_eq!((run.attempt, run.attempts.len()), (1, 1), "{run:?}");
    worker.drain().await.unwrap();
    dev.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_takes_too_long_is_dropped_and_its_run_failed() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    let for_ever = async |_: Context, _: serde_json::Value| std::future::pending().await;
    let builder = noting("web-1", &dev.client, &CarriedOut::default()).capacity(1);
    let builder = builder.handler("for-ever", for_ever).grace(Duration::from_millis(10));
    let worker = Working::start(builder.build().unwrap());
    let retry = client::spec::RetrySpec { attempts: Some(1), ..Default::default() };
    let slow = RunSpec {
        queue: Some("mail".to_owned()),
        timeout: Some("1s".to_owned()),
        retry: Some(retry),
        ..run_of("for-ever")
    };
    let slow = dev.client.submit(&slow).await.unwrap().id;
    let run = is_in(&dev.client, &slow, RunState::Dead).await;
    assert_eq!(run.attempts[0].error.as_deref(), Some("it took longer than its time-out of 1s"));
    // Its place is free again.
    let next = submit(&dev.client, "note", 1).await;
    have_succeeded(&dev.client, &next).await;
    worker.drain().await.unwrap();
    dev.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_drains_finishes_what_it_has_and_leaves_the_rest() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    let (gate, _reasons) = gate();
    let builder = noting("web-1", &dev.client, &CarriedOut::default()).capacity(2);
    let worker = Working::start(gate.stands_in(builder).build().unwrap());
    let ids = submit(&dev.client, "gate", 5).await;
    gate.has_begun(2).await;
    worker.tell.send(Control::Drain).await.unwrap();
    until("the server has heard it", PATIENCE, || async {
        let worker = dev.client.worker("web-1").await.unwrap().worker;
        (worker.state == WorkerState::Draining).then_some(())
    })
    .await;
    assert!(worker.sight.is_draining());
    gate.let_pass(2);
    let sight = Arc::clone(&worker.sight);
    worker.end().await.unwrap();
    assert_eq!(sight.succeeded.get(), 2);
    let mut states = Vec::new();
    for id in &ids {
        states.push(dev.client.run_by_id(id).await.unwrap().state);
    }
    let waiting = states.iter().filter(|state| **state == RunState::Waiting).count();
    assert_eq!(waiting, 3, "{states:?}");
    dev.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_a_server_tells_to_drain_ends() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    let (gate, _reasons) = gate();
    let builder = noting("web-1", &dev.client, &CarriedOut::default()).lease(SHORT);
    let worker = Working::start(gate.stands_in(builder).build().unwrap());
    let id = submit(&dev.client, "gate", 1).await.remove(0);
    gate.has_begun(1).await;
    dev.client.drain_worker("web-1").await.unwrap();
    worker.sees("it drains", Sight::is_draining).await;
    gate.let_pass(1);
    worker.end().await.unwrap();
    is_in(&dev.client, &id, RunState::Succeeded).await;
    dev.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_left_after_the_drain_timeout_or_a_second_signal_is_stopped_and_given_to_others() {
    let _machine = machine::waits().await;
    for control in [Control::Drain, Control::Stop] {
        let (_dir, data) = place();
        let dev = Dev::start(&data);
        let (gate, _reasons) = gate();
        let builder = gate.stands_in(noting("web-1", &dev.client, &CarriedOut::default()));
        let builder = builder.drain_timeout(Duration::from_millis(10)).grace(Duration::ZERO);
        let worker = Working::start(builder.build().unwrap());
        let id = submit(&dev.client, "gate", 1).await.remove(0);
        gate.has_begun(1).await;
        worker.tell.send(control).await.unwrap();
        let sight = Arc::clone(&worker.sight);
        worker.end().await.unwrap();
        assert_eq!(sight.stopped.get(), 1, "{control:?}");
        let run = dev.client.run_by_id(&id).await.unwrap();
        assert!(!run.state.is_end(), "{control:?}: {run:?}");
        let carried_out = CarriedOut::default();
        let other = gate.stands_in(noting("web-2", &dev.client, &carried_out));
        let other = Working::start(other.build().unwrap());
        gate.let_pass(1);
        let run = is_in(&dev.client, &id, RunState::Succeeded).await;
        assert_eq!(run.attempt, 2, "{control:?}");
        other.drain().await.unwrap();
        dev.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_workers_with_one_name_the_older_stops_and_says_so() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    let carried_out = CarriedOut::default();
    let worker = || noting("web-1", &dev.client, &carried_out).lease(SHORT).build().unwrap();
    let older = Working::start(worker());
    older.sees("it is heard", |sight| sight.unheard_for().is_some()).await;
    let newer = Working::start(worker());
    let ended = older.end().await.unwrap_err();
    assert!(matches!(&ended, WorkerEnd::Superseded(_)), "{ended}");
    assert!(ended.to_string().contains("another process its name"), "{ended}");
    let ids = submit(&dev.client, "note", 3).await;
    have_succeeded(&dev.client, &ids).await;
    newer.drain().await.unwrap();
    dev.stop().await;
}
