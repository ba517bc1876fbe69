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
    let (mut random, mut busy) = (Random::new(runs as u64), 0);
    for _ in 0..kills {
        crowd.allow(runs / kills);
        // Not a wait for anything: how long the server lives.
        tokio::time::sleep(Duration::from_millis(10 + random.below(300))).await;
        busy += usize::from(crowd.is_busy());
        server.kill();
        server = Dev::start(&data);
        *crowd.doors.lock().unwrap() = vec![server.client.clone()];
    }
    let happened = crowd.finish().await;
    server.stop().await;
    check(&happened, &SlotRecords::read(&data).await.runs, &trouble(kills, busy));
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
    let (mut random, mut busy) = (Random::new(runs as u64), 0);
    for _ in 0..kills {
        let names = fleet.names();
        let name = names[usize::try_from(random.below(3)).unwrap()].clone();
        crowd.allow(runs / kills);
        // Not a wait for anything: how long the server lives.
        tokio::time::sleep(Duration::from_millis(20 + random.below(2_000))).await;
        busy += usize::from(crowd.is_busy());
        fleet.kill(&name);
        fleet.bring_back(&name).await;
    }
    let happened = crowd.finish().await;
    for name in fleet.names() {
        fleet.stop(&name).await;
    }
    check(&happened, &SlotRecords::of(&direct).await.runs, &trouble(kills, busy));
}

fn trouble(kills: usize, busy: usize) -> String {
    format!("{kills} servers killed, {busy} of them while runs executed")
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_run_ends_in_one_state_though_servers_on_redis_are_killed() {
    let _machine = machine::works().await;
    let redis = tokio::task::block_in_place(|| redis::Setup::durable().start());
    storm_on(&redis.url(), 500, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_run_ends_in_one_state_though_servers_on_etcd_are_killed() {
    let _machine = machine::works().await;
    let etcd = tokio::task::block_in_place(|| Etcd::start(1, &Setup::default()));
    storm_on(&format!("etcd://{}/queues", etcd.hosts()), 500, 2).await;
}

/// What the long ones do, which take some minutes each.
const RUNS_LONG: usize = 20_000;
const KILLS_ON_FILE_LONG: usize = 250;
const KILLS_LONG: usize = 30;

#[ignore = "some minutes: make soak"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_run_of_twenty_thousand_ends_in_one_state_on_a_file() {
    let _machine = machine::works().await;
    storm_on_file(RUNS_LONG, KILLS_ON_FILE_LONG).await;
}

#[ignore = "some minutes: make soak"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_run_of_twenty_thousand_ends_in_one_state_on_postgres() {
    let _machine = machine::works().await;
    let postgres = tokio::task::block_in_place(|| Postgres::start(&[]));
    storm_on(&postgres.url(), RUNS_LONG, KILLS_LONG).await;
}

#[ignore = "some minutes: make soak"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_run_of_twenty_thousand_ends_in_one_state_on_redis() {
    let _machine = machine::works().await;
    let redis = tokio::task::block_in_place(|| redis::Setup::durable().start());
    storm_on(&redis.url(), RUNS_LONG, KILLS_LONG).await;
}

#[ignore = "some minutes: make soak"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_run_of_twenty_thousand_ends_in_one_state_on_etcd() {
    let _machine = machine::works().await;
    let etcd = tokio::task::block_in_place(|| Etcd::start(3, &Setup::default()));
    storm_on(&format!("etcd://{}/queues", etcd.hosts()), RUNS_LONG, KILLS_LONG).await;
}
