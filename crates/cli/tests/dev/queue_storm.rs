//! Queues while servers and workers are killed: every run that was acknowledged ends in one recorded state.
//!
//! Servers are killed with `kill -9` at random moments, while the workers of [`queue_crowd`](super::queue_crowd) go on.

use std::time::Duration;

use rig::etcd::{Etcd, Setup};
use rig::postgres::Postgres;
use rig::{Random, machine, redis};
use sim::slot_records::SlotRecords;

use super::cluster::fleet::Fleet;
use super::cluster::opened;
use super::process::{Dev, place};
use super::queue_crowd::{Crowd, check};

/// One server on a file, killed and started again.
async fn storm_on_file(runs: usize, kills: usize) {
    let (_dir, data) = place();
    let mut server = Dev::start(&data);
    let crowd = Crowd::start(vec![server.client.clone()], runs).await;
    let mut random = Random::new(runs as u64);
    for _ in 0..kills {
        // Not a wait for anything: how long the server lives.
        tokio::time::sleep(Duration::from_millis(200 + random.below(1_500))).await;
        server.kill();
        server = Dev::start(&data);
        *crowd.doors.lock().unwrap() = vec![server.client.clone()];
    }
    let happened = crowd.finish().await;
    server.stop().await;
    check(&happened, &SlotRecords::read(&data).await.runs, &format!("{kills} servers killed"));
}

/// Three servers on one store, of which one after the other is killed and brought back.
async fn storm_on(url: &str, runs: usize, kills: usize) {
    let direct = opened(url).await;
    let mut fleet = Fleet::on(&["a", "b", "c"], url, &direct).await;
    fleet.settled().await;
    let clients = |fleet: &Fleet| {
        let names = fleet.names();
        names.iter().map(|name| fleet.patient_client(name)).collect::<Vec<_>>()
    };
    let crowd = Crowd::start(clients(&fleet), runs).await;
    let mut random = Random::new(runs as u64);
    for _ in 0..kills {
        let names = fleet.names();
        let name = names[usize::try_from(random.below(3)).unwrap()].clone();
        // Not a wait for anything: how long the server lives.
        tokio::time::sleep(Duration::from_millis(500 + random.below(2_000))).await;
        fleet.kill(&name);
        fleet.bring_back(&name).await;
    }
    let happened = crowd.finish().await;
    for name in fleet.names() {
        fleet.stop(&name).await;
    }
    check(&happened, &SlotRecords::of(&direct).await.runs, &format!("{kills} servers killed"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_run_ends_in_one_state_though_the_server_is_killed() {
    let _machine = machine::works().await;
    storm_on_file(3_000, 8).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_run_ends_in_one_state_though_servers_of_a_cluster_are_killed() {
    let _machine = machine::works().await;
    let postgres = tokio::task::block_in_place(|| Postgres::start(&[]));
    storm_on(&postgres.url(), 1_500, 3).await;
}

#[ignore = "some minutes: make soak"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_run_of_twenty_thousand_ends_in_one_state_on_every_engine() {
    let _machine = machine::works().await;
    storm_on_file(20_000, 100).await;
    let postgres = tokio::task::block_in_place(|| Postgres::start(&[]));
    storm_on(&postgres.url(), 20_000, 30).await;
    let redis = tokio::task::block_in_place(|| redis::Setup::durable().start());
    storm_on(&redis.url(), 20_000, 30).await;
    let etcd = tokio::task::block_in_place(|| Etcd::start(3, &Setup::default()));
    storm_on(&format!("etcd://{}/queues", etcd.hosts()), 20_000, 30).await;
}
