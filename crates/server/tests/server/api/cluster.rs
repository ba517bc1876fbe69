//! The cluster as a whole: who is there, letting a server go, and what all of them are asked.

use client::AuditFilter;
use client::cluster::{Cluster, Drain};
use client::event::{Event, EventKind};
use client::scheduler::{Firing as WireFiring, SchedulerStatus};
use engine::instant::Instant;
use rig::{PATIENCE, until};
use server::handle::FiringState;
use server::peers::View;

use super::super::receiver::{Receiver, answer};
use super::bench::{Bench, NOW};
use super::pair::{HALVES, Pair, Who};

#[tokio::test]
async fn shards_that_nobody_has_are_told() {
    let pair = Pair::new().await;
    pair.deal([Who::A, Who::Nobody, Who::B, Who::Nobody]);
    let cluster: Cluster = pair.a.json("GET", "/v1/cluster", "").await.body();
    let orphans: Vec<u16> = cluster.orphans.iter().map(|orphan| orphan.shard).collect();
    assert_eq!((orphans, cluster.shards), (vec![1, 3], 4));
    let metrics = pair.a.json("GET", "/metrics", "").await.0;
    for line in ["servers 2", "shards 1", "shards_without_owner 2", "clock_apart 0"] {
        assert!(metrics.contains(&format!("\nwatchbell_cluster_{line}\n")), "{metrics}");
    }
}

#[tokio::test]
async fn a_server_is_drained_through_any_other_and_told_when_it_has_no_shard() {
    let pair = Pair::new().await;
    let Pair { a, b } = &pair;
    let path = "/v1/cluster/nodes/b/drain";
    let begun = a.with_headers("POST", path, "idempotency-key: k\r\n", "").await;
    assert_eq!((begun.status(), begun.header("watchbell-served-by")), (202, Some("b")));
    let expected = Drain { node: "b".to_owned(), draining: true, shards: vec![2, 3] };
    assert_eq!(begun.body::<Drain>(), expected);
    assert_eq!((*a.peers.drained().borrow(), *b.peers.drained().borrow()), (false, true));
    // Under the same key it is told how it is now.
    let again = a.with_headers("POST", path, "idempotency-key: k\r\n", "").await;
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    pair.deal([Who::A; 4]);
    let done = b.json("POST", path, "").await;
    assert_eq!((done.status(), done.body::<Drain>().shards), (200, vec![]));
    let undone = a.json("DELETE", path, "").await;
    assert_eq!((undone.status(), undone.body::<Drain>().draining), (200, false));
    assert!(!*b.peers.drained().borrow());
    let audit = a.client.audit(&AuditFilter::default()).await.unwrap().items;
    let mut actions: Vec<_> = audit.iter().map(|line| line.action.as_str()).collect();
    actions.sort_unstable();
    assert_eq!(actions, ["cluster.drain", "cluster.drain", "cluster.undrain"]);
    let unknown = a.json("POST", "/v1/cluster/nodes/c/drain", "").await.problem(404);
    assert!(unknown.detail.contains("these are there: a, b"), "{}", unknown.detail);
}

fn hold_firing(bench: &Bench) {
    let why = "the clock went forward".to_owned();
    bench.status.send_modify(|status| status.firing = FiringState::Suspended { since: NOW, why });
}

#[tokio::test]
async fn every_server_is_shown_and_told_that_its_clock_is_right() {
    let pair = Pair::new().await;
    let firing = |status: &SchedulerStatus| {
        let servers = status.servers.iter();
        servers.map(|server| (server.node.clone(), server.firing)).collect::<Vec<_>>()
    };
    let of = |a, b| vec![("a".to_owned(), Some(a)), ("b".to_owned(), Some(b))];
    hold_firing(&pair.a);
    hold_firing(&pair.b);
    let status = pair.a.client.scheduler().await.unwrap();
    assert_eq!(firing(&status), of(WireFiring::Suspended, WireFiring::Suspended));
    let status = pair.a.client.confirm_time().await.unwrap();
    assert_eq!(firing(&status), of(WireFiring::Going, WireFiring::Going));
    assert_eq!(pair.b.status.borrow().firing, FiringState::Going);
    // One that cannot be reached is named.
    hold_firing(&pair.b);
    let gone = rig::free_port();
    pair.tell_of(Who::A, HALVES, &format!("http://127.0.0.1:{gone}"));
    let told = pair.a.json("POST", "/v1/scheduler/confirm-time", "").await;
    assert_eq!(told.status(), 202, "{}", told.0);
    let status: SchedulerStatus = told.body();
    assert!(status.servers[1].unreached.is_some() && status.servers[1].firing.is_none());
    assert_ne!(pair.b.status.borrow().firing, FiringState::Going);
}

#[tokio::test]
async fn shards_that_nobody_has_for_ten_seconds_are_notified_and_that_it_is_over() {
    let receiver = Receiver::start(answer(200, &[], b"")).await;
    let bench = Bench::telling(&receiver.url("/hook")).await;
    let next = async || {
        let body = receiver.next().await.body;
        serde_json::from_slice::<Event>(&body).unwrap().what
    };
    let whole = (*bench.peers.view()).clone();
    let mut owners = whole.owners.clone();
    owners[3] = None;
    bench.peers.show(View { owners, ..whole.clone() });
    // It has seen that, and the clock goes on.
    until("it is seen", PATIENCE, || async { (!bench.peers.orphaned().is_empty()).then_some(()) })
        .await;
    bench.set_now(Instant(NOW.0 + 10_000));
    assert_eq!(next().await, EventKind::ShardsOrphaned { count: 1, shards: vec![3] });
    bench.peers.show(whole);
    assert_eq!(next().await, EventKind::ShardsOwned);
    assert_eq!(receiver.requests(), 2);
}
