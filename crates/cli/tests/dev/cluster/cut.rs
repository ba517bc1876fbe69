//! Packets between a server and its store are lost, one way and both, for longer than T. The server learns it by its own
//! clock, others have its shards within bounded time, and once packets arrive again it is soon as before: it waits for no
//! connection that has gone silent. The kernel goes on repeating what was sent on such a one, and that may arrive when
//! others have taken over long ago: the balance is right all the same.

use std::net::SocketAddr;
use std::time::Duration;

use rig::etcd::{Etcd, Setup};
use rig::{Ask, PATIENCE, Receiver, Reply, machine, until};
use store::clock::Stopwatch;

use super::balance;
use super::fleet::{Fleet, Place};
use super::opened;
use crate::dev::island::{self, HUB, Island, Lost, STORE};

/// T of a server.
const TTL: Duration = Duration::from_secs(3);

/// Others have waited for 1.25 T by then, and taken over, also on a machine that is busy.
const TAKEN_OVER_MAX: Duration = Duration::from_secs(20);

/// By then a server that reaches its store again has a new session, and its shards.
const BACK_MAX: Duration = Duration::from_secs(20);

const TRIGGERS: usize = 1_000;
const EVERY_S: usize = 5;

const NAMES: [&str; 3] = ["a", "b", "c"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_whose_packets_are_lost_is_replaced_and_comes_back() {
    let _machine = machine::works().await;
    if !island::is_apart() {
        let test = "dev::cluster::cut::a_server_whose_packets_are_lost_is_replaced_and_comes_back";
        tokio::task::block_in_place(|| island::run_apart(test));
        return;
    }
    island::make_hub();
    let setup = Setup { also_at: Some(STORE), ..Setup::default() };
    let etcd = tokio::task::block_in_place(|| Etcd::start(3, &setup));
    let direct = format!("etcd://{}/watchbell", etcd.hosts());
    let store = opened(&direct).await;
    let receiver = Receiver::start_at(HUB, 8, |_| Reply::FINE);
    let urls: Vec<String> = (0..8).map(|door| receiver.url(door, "")).collect();
    balance::fill(&store, TRIGGERS, EVERY_S, &urls).await;
    let hosts: Vec<String> =
        (0..etcd.len()).map(|member| format!("{STORE}:{}", etcd.address(member).port())).collect();
    let url = format!("etcd://{}/watchbell", hosts.join(","));
    let on_island = |(name, number)| (name, url.clone(), Place::Island(Island::make(number)));
    let fleet = Fleet::start(&store, NAMES.into_iter().zip(2..).map(on_island).collect()).await;
    fleet.settled().await;

    for (name, lost) in NAMES.into_iter().zip([Lost::There, Lost::Back, Lost::Both]) {
        lose(&fleet, name, lost).await;
    }

    fleet.patient_client("a").stop_scheduler().await.unwrap();
    let ledger = balance::at_rest(&store).await;
    balance::check(&ledger, &receiver.heard(), EVERY_S);
    for name in NAMES {
        let log = fleet.log(name);
        assert!(!log.contains("panicked"), "{name}: {log}");
    }
}

/// Packets of one server are lost until others have its shards, and longer than T; then they arrive again, until it has
/// its shards.
async fn lose(fleet: &Fleet, name: &str, lost: Lost) {
    let others: Vec<&str> = NAMES.into_iter().filter(|other| *other != name).collect();
    let begun = Stopwatch::start();
    fleet.lose(name, lost);
    fleet.settled_among(&others).await;
    let taken_over = begun.elapsed();
    says_ready(fleet, name, 503).await;
    // Not a wait for anything: how long it lasts.
    tokio::time::sleep((TTL * 3 / 2).saturating_sub(begun.elapsed())).await;
    let begun = Stopwatch::start();
    fleet.lose(name, Lost::Nothing);
    fleet.settled().await;
    let back = begun.elapsed();
    says_ready(fleet, name, 200).await;
    println!("{name} lost {lost:?}: replaced after {taken_over:.2?}, back after {back:.2?}");
    assert!(taken_over < TAKEN_OVER_MAX, "{name} was replaced after {taken_over:?}");
    assert!(back < BACK_MAX, "{name} was back after {back:?}");
}

/// Waits until a server says this of itself. It can be asked all the time: only packets of the store are lost.
async fn says_ready(fleet: &Fleet, name: &str, status: u16) {
    let address: SocketAddr = fleet.servers[name].process.as_ref().unwrap().address;
    until(&format!("{name} says {status}"), PATIENCE, || async {
        let answer = Ask::new(address, "GET", "/readyz").send().await;
        (answer.status == status).then_some(())
    })
    .await;
}
