//! Parts of turns that have to be accepted.

use std::collections::BTreeMap;
use std::time::Duration;

use client::ring::{AcceptRequest, MAIN, RingEvent, SubscriptionSpec};
use client::{ClientError, RingMember};
use rig::{PATIENCE, machine, until};

use super::super::process::{Dev, place};
use super::crowd::{Crowd, Watcher, make};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_that_is_not_accepted_passes_on_and_only_one_acts() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    let servers = [dev.client.clone()];
    make(&dev.client, "checks", &SubscriptionSpec::every("500ms").accept("200ms")).await;
    let mut crowd = Crowd::default();
    crowd.join_all(&servers, "checks", &["b", "c"]).await;
    // It is there, and accepts nothing.
    let mut lazy = RingMember::new(servers.clone(), "checks", "a");
    let attending = async {
        loop {
            let _ = lazy.attend().await;
        }
    };
    let watcher = Watcher::start(&servers, "checks", MAIN).await;
    let looking = watcher.sees("a part has passed on, and was accepted", |seen| {
        let passed = seen.entries.values().filter_map(|event| match event {
            RingEvent::Pass { turn, part, from, to, .. } if from == "a" => Some((turn, part, to)),
            _ => None,
        });
        let mut passed = passed;
        passed.any(|(turn, part, to)| {
            seen.entries.values().any(|event| {
                matches!(event, RingEvent::Accepted { turn: of, part: place, member }
                    if of == turn && place == part && member == to)
            })
        })
    });
    let seen = tokio::select! {
        () = attending => unreachable!(),
        seen = looking => seen,
    };
    seen.check_order();
    let mut acted: BTreeMap<(u64, u64), Vec<String>> = BTreeMap::new();
    for (member, turn) in crowd.acts() {
        acted.entry((turn.number, turn.part)).or_default().push(member);
    }
    assert!(acted.values().all(|by| by.len() == 1), "{acted:?}");
    dev.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_accepts_ends_unaccepted_and_accepting_late_or_for_others_is_refused() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    let servers = [dev.client.clone()];
    make(&dev.client, "checks", &SubscriptionSpec::every("1h").accept("1s")).await;
    dev.client.delete_ring("checks").await.unwrap();
    until("the name is free", PATIENCE, || async {
        let spec = SubscriptionSpec::every("300ms").accept("200ms");
        dev.client.set_ring("checks", &spec, Some(0)).await.ok()
    })
    .await;
    let mut lazy = RingMember::new(servers.clone(), "checks", "a");
    let turn = until("a turn comes", PATIENCE, || {
        let mut member = lazy.clone();
        async move { member.attend().await.unwrap().turns.into_iter().next() }
    })
    .await;
    lazy.attend().await.unwrap();
    assert!(turn.accept && turn.accept_ms == Some(200), "{turn:?}");
    let accept = |member: &str, number| {
        let request = AcceptRequest { member: member.to_owned(), part: 0, generation: None };
        let client = dev.client.clone();
        async move { client.accept_turn("checks", MAIN, number, &request).await }
    };
    for (member, number) in [("b", turn.number), ("a", turn.number + 1_000)] {
        let refused = accept(member, number).await.unwrap_err();
        assert!(matches!(refused, ClientError::Conflict(_)), "{member} {number}: {refused:?}");
    }
    let watcher = Watcher::start(&servers, "checks", MAIN).await;
    let attending = async {
        loop {
            let _ = lazy.attend().await;
        }
    };
    let looking = watcher.sees("a part ends unaccepted", |seen| {
        seen.entries.values().any(|event| matches!(event, RingEvent::Unaccepted { .. }))
    });
    let seen = tokio::select! {
        () = attending => unreachable!(),
        seen = looking => seen,
    };
    let ended = seen.entries.values().find_map(|event| match event {
        RingEvent::Unaccepted { turn, .. } => Some(*turn),
        _ => None,
    });
    let refused = accept("a", ended.unwrap()).await.unwrap_err();
    assert!(matches!(refused, ClientError::Conflict(_)), "{refused:?}");
    dev.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_acceptance_is_answered_the_same() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    make(&dev.client, "checks", &SubscriptionSpec::every("300ms").accept("10s")).await;
    let mut member = RingMember::new([dev.client.clone()], "checks", "a");
    let turn = loop {
        if let Some(turn) = member.attend().await.unwrap().turns.into_iter().next() {
            break turn;
        }
    };
    assert!(member.accept(&turn).await.unwrap());
    assert!(member.accept(&turn).await.unwrap(), "its answer may have been lost");
    dev.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_left_has_no_turn_and_nothing_late_brings_it_back() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    let servers = [dev.client.clone()];
    make(&dev.client, "checks", &SubscriptionSpec::every("100ms")).await;
    let mut member = RingMember::new(servers.clone(), "checks", "a").wait(Duration::ZERO);
    member.attend().await.unwrap();
    // Another request of the same visit, which comes when it has left.
    let mut late = member.clone();
    let mut crowd = Crowd::default();
    crowd.join(&servers, "checks", "b").await;
    let watcher = Watcher::start(&servers, "checks", MAIN).await;
    member.leave().await.unwrap();
    let before = watcher.seen().turns().len();
    let refused = late.attend().await.unwrap_err();
    assert!(!RingMember::is_taken(&refused), "{refused:?}");
    let kind = refused.problem().unwrap().kind.clone();
    assert_eq!(kind, client::ring::MEMBER_GONE);
    let turns = watcher.turns(before + 6).await;
    let after: Vec<_> = turns[before + 1..].iter().flatten().collect();
    assert!(after.iter().all(|name| *name == "b"), "{turns:?}");
    // It joins anew, as somebody who was never there: `attend` has forgotten the visit.
    late.attend().await.unwrap();
    assert!(late.visit() > member.visit());
    dev.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_later_of_two_processes_has_the_name_and_the_earlier_is_told_so() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    make(&dev.client, "checks", &SubscriptionSpec::every("1s")).await;
    let own = || RingMember::new([dev.client.clone()], "checks", "a").wait(Duration::ZERO);
    let (mut earlier, mut later) = (own(), own());
    earlier.attend().await.unwrap();
    later.attend().await.unwrap();
    let told = earlier.attend().await.unwrap_err();
    assert!(RingMember::is_taken(&told), "{told:?}");
    later.attend().await.unwrap();
    dev.stop().await;
}

/// Silent members are taken out by their server: within 5 s of their last request, and what the machine adds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_is_silent_is_taken_out() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    let servers = [dev.client.clone()];
    make(&dev.client, "checks", &SubscriptionSpec::every("200ms")).await;
    let mut crowd = Crowd::default();
    crowd.join_all(&servers, "checks", &["a", "b"]).await;
    let watcher = Watcher::start(&servers, "checks", MAIN).await;
    watcher.turns(2).await;
    crowd.kill("a");
    watcher
        .sees("it is taken out", |seen| {
            let is_gone =
                |event: &RingEvent| matches!(event, RingEvent::Remove { member } if member == "a");
            seen.others.iter().any(is_gone)
        })
        .await;
    assert_eq!(dev.client.ring("checks").await.unwrap().members, 1);
    dev.stop().await;
}
