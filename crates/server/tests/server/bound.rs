//! Bounds: what one host may take, and that a dead one delays nobody else.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use engine::limits::{BREAKER_FAILURES_MAX, HOST_WINDOW_MIN, NAME_AGE_MAX};
use engine::outcome::{HostSignal, Lost, NotSent, Outcome, Verdict};
use tokio::sync::Semaphore;

use super::handle::{NodeHandle, check_not_sent, get, hasty, status};
use super::receiver::{Manner, Receiver, answer};

#[tokio::test]
async fn a_host_has_no_more_under_way_than_its_limit() {
    let permits = Arc::new(Semaphore::new(0));
    let receiver = Receiver::start(Manner::Permitted(Arc::clone(&permits))).await;
    let mut handle = NodeHandle::with(|config| {
        config.allow = vec!["127.0.0.1".parse().unwrap()];
        config.per_host_max = 4;
    });
    let keys: BTreeSet<u64> = (0..20).map(|_| handle.send(get(&receiver.url("/")))).collect();
    for _ in 0..4 {
        receiver.next().await;
    }
    assert_eq!((handle.dispatcher.in_flight(), handle.dispatcher.waiting()), (4, 16));
    permits.add_permits(20);
    let mut ended = BTreeSet::new();
    for _ in 0..20 {
        ended.insert(handle.next().await.key);
    }
    assert_eq!(ended, keys, "each call ends once, and none is lost");
    assert_eq!(receiver.open_max(), 4);
    assert!(receiver.connections() <= 4, "{}", receiver.connections());
}

#[tokio::test]
async fn a_host_that_has_yet_to_answer_gets_a_few_calls_and_then_all_of_its_limit() {
    let permits = Arc::new(Semaphore::new(0));
    let receiver = Receiver::start(Manner::Permitted(Arc::clone(&permits))).await;
    let mut handle = NodeHandle::local();
    for _ in 0..300 {
        handle.send(get(&receiver.url("/")));
    }
    for _ in 0..HOST_WINDOW_MIN {
        receiver.next().await;
    }
    assert_eq!(handle.dispatcher.in_flight(), HOST_WINDOW_MIN);
    permits.add_permits(300 - 64);
    for _ in 0..300 - 64 {
        handle.next().await;
    }
    for _ in HOST_WINDOW_MIN..300 {
        receiver.next().await;
    }
    assert_eq!((handle.dispatcher.in_flight(), handle.dispatcher.waiting()), (64, 0));
    assert_eq!(receiver.open_max(), 64);
}

#[tokio::test]
async fn a_host_that_never_answers_does_not_delay_another() {
    let dead = Receiver::start(Manner::Silent).await;
    let alive = Receiver::start(answer(200, &[], b"")).await;
    let mut handle = NodeHandle::with(|config| {
        config.allow = vec!["127.0.0.1".parse().unwrap()];
        config.senders = 1;
        config.in_flight_max = 32;
    });
    let hanging: BTreeSet<u64> = (0..100).map(|_| handle.send(get(&dead.url("/")))).collect();
    dead.next().await;
    for _ in 0..200 {
        handle.send(get(&alive.url("/")));
    }
    for _ in 0..200 {
        let finished = handle.next().await;
        assert!(!hanging.contains(&finished.key), "it hangs for 30 s");
        assert_eq!(status(&finished), 200);
    }
    let rest = handle.stop();
    let keys: BTreeSet<u64> = rest.iter().map(|finished| finished.key).collect();
    assert_eq!((rest.len(), keys), (100, hanging), "also those end once when it stops");
    let left = Outcome::Lost { why: Lost::Cancelled };
    let lost = rest.iter().filter(|finished| finished.outcome == left).count();
    assert_eq!(lost, HOST_WINDOW_MIN, "what had left is in doubt, the others surely did not leave");
}

#[tokio::test]
async fn dead_hosts_however_many_leave_places_to_those_that_answer() {
    let dead = Receiver::start(Manner::Silent).await;
    let alive = Receiver::start(answer(200, &[], b"")).await;
    let mut handle = NodeHandle::with(|config| {
        config.allow = vec!["127.0.0.1".parse().unwrap()];
        config.senders = 1;
        config.in_flight_max = 16;
    });
    assert_eq!(status(&handle.call(get(&alive.url("/"))).await), 200);
    for number in 0..50 {
        let name = format!("dead-{number}.test");
        handle.script.set(&name, &[&["127.0.0.1"]]);
        for _ in 0..10 {
            handle.send(get(&format!("http://{name}:{}/", dead.address.port())));
        }
    }
    for _ in 0..8 {
        dead.next().await;
    }
    for _ in 0..200 {
        handle.send(get(&alive.url("/")));
    }
    for _ in 0..200 {
        assert_eq!(status(&handle.next().await), 200);
    }
    assert_eq!((handle.dispatcher.in_flight(), handle.dispatcher.waiting()), (8, 492));
    assert_eq!(handle.stop().len(), 500);
}

#[tokio::test]
async fn what_waits_is_recalled_and_what_is_under_way_goes_on() {
    let permits = Arc::new(Semaphore::new(0));
    let receiver = Receiver::start(Manner::Permitted(Arc::clone(&permits))).await;
    let mut handle = NodeHandle::local();
    for _ in 0..100 {
        handle.send(get(&receiver.url("/")));
    }
    for _ in 0..HOST_WINDOW_MIN {
        receiver.next().await;
    }
    handle.dispatcher.recall(0..=u64::MAX, || ());
    for _ in HOST_WINDOW_MIN..100 {
        let outcome = handle.next().await.outcome;
        assert_eq!(outcome, Outcome::NotSent { why: NotSent::Cancelled });
    }
    permits.add_permits(HOST_WINDOW_MIN);
    for _ in 0..HOST_WINDOW_MIN {
        assert_eq!(status(&handle.next().await), 200);
    }
}

#[tokio::test]
async fn hosts_take_turns() {
    let permits = Arc::new(Semaphore::new(0));
    let busy = Receiver::start(Manner::Permitted(Arc::clone(&permits))).await;
    let quiet = Receiver::start(Manner::Permitted(Arc::clone(&permits))).await;
    let mut handle = NodeHandle::with(|config| {
        config.allow = vec!["127.0.0.1".parse().unwrap()];
        config.senders = 1;
        config.in_flight_max = 4;
    });
    for _ in 0..1_000 {
        handle.send(get(&busy.url("/")));
    }
    busy.next().await;
    handle.send(get(&quiet.url("/")));
    let release = async {
        loop {
            permits.add_permits(1);
            handle.next().await;
        }
    };
    tokio::select! {
        _ = quiet.next() => (),
        () = release => (),
    }
    assert!(busy.requests() < 500, "it did not wait for all of them: {}", busy.requests());
}

#[tokio::test]
async fn a_host_that_cannot_be_reached_is_left_alone_and_tried_again() {
    let receiver = Receiver::start(answer(500, &[], b"")).await;
    let url = format!("http://late.test:{}/", receiver.address.port());
    // One at a time, and all of them asked for before the pause can be over.
    let mut handle = NodeHandle::with(|config| {
        config.allow = vec!["127.0.0.1".parse().unwrap()];
        config.per_host_max = 1;
    });
    for _ in 0..=BREAKER_FAILURES_MAX {
        handle.send(get(&url));
    }
    let (mut failed, mut untried) = (0, 0);
    for _ in 0..=BREAKER_FAILURES_MAX {
        let finished = handle.next().await;
        if let Verdict::Untried { retry_after } = finished.outcome.verdict() {
            assert!(retry_after <= Duration::from_secs(1));
            assert!(finished.error.unwrap().contains("is left alone"));
            untried += 1;
        } else {
            check_not_sent(&finished, NotSent::Name, "late.test");
            failed += 1;
        }
    }
    assert_eq!((failed, untried), (BREAKER_FAILURES_MAX, 1));
    // Others do not suffer from it.
    assert_eq!(status(&handle.call(get(&receiver.url("/"))).await), 500);

    handle.script.set("late.test", &[&["127.0.0.1"]]);
    handle.machine.forward(NAME_AGE_MAX);
    assert_eq!(status(&handle.call(get(&url)).await), 500, "any answer is life");
    for _ in 0..20 {
        handle.send(get(&url));
    }
    for _ in 0..20 {
        assert_eq!(status(&handle.next().await), 500);
    }
}

#[tokio::test]
async fn a_host_that_never_answers_is_left_alone_and_its_queue_is_told() {
    let dead = Receiver::start(Manner::Silent).await;
    let mut handle = NodeHandle::local();
    for _ in 0..100 {
        handle.send(hasty(&dead.url("/"), 1_000));
    }
    let (mut lost, mut starved, mut resting) = (0, 0, 0);
    for _ in 0..100 {
        let finished = handle.next().await;
        match finished.outcome {
            Outcome::NotSent { why: NotSent::Resting { .. } } => resting += 1,
            // The sender itself did not run for a while, which is not held against the host.
            _ if finished.latency >= Duration::from_millis(1_500) => starved += 1,
            // Also one that was short of time to connect; it counts as the others do.
            outcome if outcome.host_signal() == HostSignal::Unresponsive => lost += 1,
            _ => panic!("{finished:?}"),
        }
    }
    // The window's worth, and those that took the places of the first to fail.
    assert!(lost < 2 * HOST_WINDOW_MIN, "{lost}");
    assert!(resting > 0 && lost + starved + resting == 100, "{lost} {starved} {resting}");
}

#[tokio::test]
async fn time_that_passed_while_this_process_did_not_run_is_not_held_against_a_host() {
    let silent = Receiver::start(Manner::Silent).await;
    let mut handle = NodeHandle::local();
    let failures = usize::try_from(BREAKER_FAILURES_MAX).unwrap();
    for _ in 0..failures {
        handle.send(hasty(&silent.url("/"), 6_000));
    }
    for _ in 0..failures {
        silent.next().await;
    }
    handle.machine.forward(Duration::from_secs(60));
    for _ in 0..failures {
        assert_eq!(handle.next().await.outcome, Outcome::Lost { why: Lost::TimedOut });
    }
    let finished = handle.call(hasty(&silent.url("/"), 2_000)).await;
    assert_eq!(finished.outcome, Outcome::Lost { why: Lost::TimedOut }, "it is not left alone");
}
