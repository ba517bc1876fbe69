//! Whose turn it is, whoever comes and goes: the cases of the ancestor's tests, and those that it got wrong.

use std::collections::BTreeMap;
use std::time::Duration;

use client::ring::{MAIN, RingEvent, SubscriptionSpec};
use engine::rotation::rotate;
use rig::etcd::Etcd;
use rig::machine;

use super::super::cluster::{fleet::Fleet, opened};
use super::super::process::{Dev, place};
use super::crowd::{Crowd, Watcher, make, singles};

/// Whether each turn is of the next member after the one before, among these.
fn follows(turns: &[&str], members: &[&str]) -> bool {
    turns.windows(2).all(|pair| {
        let next = rotate(members, pair[0], 1).next();
        next.is_some_and(|next| *next == pair[1])
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_take_turns_in_the_order_of_their_names() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    let servers = [dev.client.clone()];
    make(&dev.client, "checks", &SubscriptionSpec::every("100ms")).await;
    let mut crowd = Crowd::default();
    // Not in their order.
    crowd.join_all(&servers, "checks", &["d", "b", "a", "c"]).await;
    let watcher = Watcher::start(&servers, "checks", MAIN).await;
    let turns = watcher.turns(9).await;
    assert!(follows(&singles(&turns), &["a", "b", "c", "d"]), "{turns:?}");
    let ring = dev.client.ring("checks").await.unwrap();
    assert_eq!(ring.members, 4);
    watcher.seen().check_order();
    dev.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_joins_has_the_place_of_its_name_and_whoever_leaves_is_passed_over() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    let servers = [dev.client.clone()];
    make(&dev.client, "checks", &SubscriptionSpec::every("100ms")).await;
    let mut crowd = Crowd::default();
    crowd.join_all(&servers, "checks", &["a", "c", "e"]).await;
    let watcher = Watcher::start(&servers, "checks", MAIN).await;
    watcher.turns(4).await;
    crowd.join(&servers, "checks", "b").await;
    let before = watcher.seen().turns().len();
    let turns = watcher.turns(before + 9).await;
    // The turn that was under way may be without it.
    assert!(follows(&singles(&turns[before + 1..]), &["a", "b", "c", "e"]), "{turns:?}");
    crowd.leave("c").await;
    let before = watcher.seen().turns().len();
    let turns = watcher.turns(before + 8).await;
    let after = singles(&turns[before + 1..]);
    assert!(!after.contains(&"c") && follows(&after, &["a", "b", "e"]), "{turns:?}");
    let named = |event: &RingEvent| match event {
        RingEvent::Add { member } => Some(format!("+{member}")),
        RingEvent::Remove { member } => Some(format!("-{member}")),
        _ => None,
    };
    let told: Vec<_> = watcher.seen().others.iter().filter_map(named).collect();
    assert!(told.ends_with(&["+b".to_owned(), "-c".to_owned()]), "{told:?}");
    dev.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_next_member_is_removed_its_successor_goes() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    let servers = [dev.client.clone()];
    make(&dev.client, "checks", &SubscriptionSpec::every("1s")).await;
    let mut crowd = Crowd::default();
    crowd.join_all(&servers, "checks", &["a", "b", "c"]).await;
    let watcher = Watcher::start(&servers, "checks", MAIN).await;
    watcher.turns(1).await;
    let main = dev.client.subscription("checks", MAIN).await.unwrap();
    let (last, next) = (main.position.unwrap(), main.next_members[0].clone());
    crowd.leave(&next).await;
    let before = watcher.seen().turns().len();
    let turns = watcher.turns(before + 1).await;
    let others: Vec<&str> = ["a", "b", "c"].into_iter().filter(|name| *name != next).collect();
    let successor = *rotate(&others, &last, 1).next().unwrap();
    assert_eq!(turns[before][0], successor, "{last} had the turn, and {next} has left: {turns:?}");
    dev.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_members_have_a_turn_and_none_is_served_twice_before_all_others() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    let servers = [dev.client.clone()];
    // Of three members: fewer, more, and many more than there are.
    for count in [2, 4, 7] {
        let ring = format!("of-{count}");
        make(&dev.client, &ring, &SubscriptionSpec::every("100ms").count(count)).await;
        let mut crowd = Crowd::default();
        crowd.join_all(&servers, &ring, &["a", "b", "c"]).await;
        let watcher = Watcher::start(&servers, &ring, MAIN).await;
        let turns = watcher.turns(6).await;
        assert!(turns.iter().all(|turn| turn.len() as u64 == count), "{turns:?}");
        let served: Vec<&str> = turns.iter().flatten().map(String::as_str).collect();
        assert!(follows(&served, &["a", "b", "c"]), "{turns:?}");
        let mut times: BTreeMap<&str, usize> = BTreeMap::new();
        for name in served {
            *times.entry(name).or_default() += 1;
        }
        let (least, most) = (times.values().min().unwrap(), times.values().max().unwrap());
        assert!(most - least <= 1, "{times:?}");
    }
    dev.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscriptions_have_positions_of_their_own_over_one_membership() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    let servers = [dev.client.clone()];
    make(&dev.client, "checks", &SubscriptionSpec::every("100ms")).await;
    let slow = SubscriptionSpec::every("250ms").count(2);
    dev.client.set_subscription("checks", "slow", &slow, Some(0)).await.unwrap();
    let mut crowd = Crowd::default();
    crowd.join_all(&servers, "checks", &["a", "b", "c"]).await;
    let main = Watcher::start(&servers, "checks", MAIN).await;
    let slow = Watcher::start(&servers, "checks", "slow").await;
    let (of_main, of_slow) = (main.turns(7).await, slow.turns(4).await);
    assert!(follows(&singles(&of_main), &["a", "b", "c"]), "{of_main:?}");
    let served: Vec<&str> = of_slow.iter().flatten().map(String::as_str).collect();
    assert!(follows(&served, &["a", "b", "c"]), "{of_slow:?}");
    let ring = dev.client.ring("checks").await.unwrap();
    let names: Vec<&str> = ring.subscriptions.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["main", "slow"]);
    dev.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_follows_again_is_told_what_it_missed_or_that_it_is_gone() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    let servers = [dev.client.clone()];
    make(&dev.client, "checks", &SubscriptionSpec::every("20ms")).await;
    let mut crowd = Crowd::default();
    crowd.join_all(&servers, "checks", &["a", "b"]).await;
    let first = Watcher::start(&servers, "checks", MAIN).await;
    first.turns(3).await;
    let seen = first.seen();
    let (generation, number) = *seen.order.last().unwrap();
    // Others see more than a page meanwhile.
    first.turns(100).await;
    let place = format!("{generation}.{number}");
    let again = Watcher::start_after(&servers, "checks", MAIN, Some(&place)).await;
    again.turns(100).await;
    let told = again.seen();
    assert_eq!(told.order[0], (generation, number + 1), "the next one comes first");
    told.check_order();
    told.check_agrees(&first.seen());
    // One that never was in this generation's pages.
    let lost =
        Watcher::start_after(&servers, "checks", MAIN, Some(&format!("{generation}.0"))).await;
    lost.turns(2).await;
    lost.seen().check_order();
    // The kept ones as a list: the last ones, and those after a place.
    let filter = client::RingFilter { limit: Some(5), ..client::RingFilter::default() };
    let page = dev.client.ring_entries("checks", MAIN, &filter).await.unwrap();
    let numbers: Vec<u64> = page.items.iter().map(|entry| entry.number).collect();
    assert_eq!(numbers.len(), 5);
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
    let filter = client::RingFilter { cursor: Some(place.clone()), ..filter };
    let after = dev.client.ring_entries("checks", MAIN, &filter).await.unwrap();
    assert_eq!(after.items[0].number, number + 1);
    assert!(after.next.is_some(), "there are more than five");
    dev.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_ring_rests_and_goes_on_when_somebody_joins() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    let servers = [dev.client.clone()];
    make(&dev.client, "checks", &SubscriptionSpec::every("100ms")).await;
    let watcher = Watcher::start(&servers, "checks", MAIN).await;
    let skips = |seen: &super::crowd::Seen| {
        let is_skip = |event: &&RingEvent| matches!(event, RingEvent::Skip { .. });
        seen.entries.values().filter(is_skip).count()
    };
    watcher.sees("nobody has the first turn", |seen| skips(seen) == 1).await;
    // It rests: nothing more is written, for many intervals.
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(watcher.seen().entries.len(), 1, "{:?}", watcher.seen());
    let mut crowd = Crowd::default();
    crowd.join(&servers, "checks", "a").await;
    watcher.turns(2).await;
    let seen = watcher.seen();
    assert_eq!(skips(&seen), 2, "the empty stretch is one skip: {seen:?}");
    seen.check_order();
    dev.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_position_is_kept_when_all_servers_die() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let mut last: Option<String> = None;
    for round in 0..3 {
        let dev = Dev::start(&data);
        let servers = [dev.client.clone()];
        if round == 0 {
            make(&dev.client, "checks", &SubscriptionSpec::every("200ms")).await;
        }
        let mut crowd = Crowd::default();
        crowd.join_all(&servers, "checks", &["a", "b", "c"]).await;
        let watcher = match &last {
            None => Watcher::start(&servers, "checks", MAIN).await,
            Some(place) => Watcher::start_after(&servers, "checks", MAIN, Some(place)).await,
        };
        watcher.turns(4).await;
        let seen = watcher.seen();
        seen.check_order();
        if last.is_some() {
            // From the last life into this one: with the members that were there all the time, each was next.
            let turns = seen.turns();
            assert!(follows(&singles(&turns), &["a", "b", "c"]), "{turns:?}");
        }
        let (generation, number) = *seen.order.last().unwrap();
        last = Some(format!("{generation}.{number}"));
        dev.kill();
    }
}

/// Three servers on three members of etcd; each has a member and a watcher of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_servers_tell_the_same_turns_of_one_subscription() {
    let _machine = machine::works().await;
    let etcd = tokio::task::block_in_place(Etcd::three);
    let url = format!("etcd://{}/watchbell", etcd.hosts());
    let store = opened(&url).await;
    let fleet = Fleet::on(&["a", "b", "c"], &url, &store).await;
    let clients: Vec<_> = ["a", "b", "c"].iter().map(|name| fleet.patient_client(name)).collect();
    make(&clients[0], "checks", &SubscriptionSpec::every("200ms")).await;
    let (mut crowd, mut watchers) = (Crowd::default(), Vec::new());
    for (client, name) in clients.iter().zip(["m", "k", "z"]) {
        crowd.join(std::slice::from_ref(client), "checks", name).await;
    }
    for client in &clients {
        watchers.push(Watcher::start(std::slice::from_ref(client), "checks", MAIN).await);
    }
    for watcher in &watchers {
        let turns = watcher.turns(20).await;
        assert!(follows(&singles(&turns), &["k", "m", "z"]), "{turns:?}");
        watcher.seen().check_order();
    }
    for pair in watchers.windows(2) {
        pair[0].seen().check_agrees(&pair[1].seen());
    }
}
