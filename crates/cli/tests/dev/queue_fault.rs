//! Queues behind a bad network: requests and answers that are lost, repeated and late, and servers that die in between.

use std::time::Duration;

use client::Client;
use client::queue::RunSpec;
use client::run::RunState;
use client::worker::{ClaimRequest, RunResult};
use rig::{Ask, FaultProxy, Manner, PATIENCE, Random, machine, until};
use rustix::process::Signal;
use sim::slot_records::SlotRecords;
use tokio::task::JoinSet;

use super::process::{Dev, place};
use super::queue_crowd::{Crowd, check};
use super::queue_worker::{TestWorker, done};

/// A client that sends everything once.
fn through(proxy: &FaultProxy) -> Client {
    Client::builder(&proxy.url()).retries(0).build().unwrap()
}

/// Runs of which everything goes through two proxies with faults, while the server is killed so often.
async fn storm_through_proxies(runs: usize, kills: usize, seed: u64) {
    let (_dir, data) = place();
    let mut server = Dev::start(&data);
    let proxies = [
        FaultProxy::to(server.address(), seed).await,
        FaultProxy::to(server.address(), seed + 1).await,
    ];
    for proxy in &proxies {
        proxy.set(Manner::Faulty);
    }
    let crowd = Crowd::start(proxies.iter().map(through).collect(), runs).await;
    let mut random = Random::new(seed);
    for _ in 0..kills {
        crowd.allow(runs / kills);
        // Not a wait for anything: how long the server lives.
        tokio::time::sleep(Duration::from_millis(300 + random.below(1_500))).await;
        server.kill();
        server = Dev::start(&data);
        for proxy in &proxies {
            proxy.lead_to(server.address());
        }
    }
    let happened = crowd.finish().await;
    server.stop().await;
    let counts = proxies.map(|proxy| proxy.counts());
    let was_faulty = counts.iter().all(|it| it.lost > 0 && it.repeated > 0 && it.answers_lost > 0);
    assert!(was_faulty, "hardly anything went through: {counts:?}");
    let trouble = format!("seed {seed}, {kills} servers killed, {counts:?}");
    check(&happened, &SlotRecords::read(&data).await.runs, &trouble);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_run_ends_in_one_state_though_answers_are_lost_repeated_and_late() {
    let _machine = machine::works().await;
    storm_through_proxies(500, 2, 1).await;
}

#[ignore = "long: make soak"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_run_ends_in_one_state_through_many_faults() {
    let _machine = machine::works().await;
    for seed in 0..10 {
        storm_through_proxies(5_000, 20, seed * 2).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_completion_counts_once_though_the_server_dies_before_it_is_told_so() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let mut server = Dev::start(&data);
    let proxy = FaultProxy::to(server.address(), 0).await;
    let client = through(&proxy);
    let id = submitted(&client).await;
    let mut worker = TestWorker::new("web-1", "mail");
    let run = worker.claim_one(&client).await;
    assert_eq!((&run.id, run.attempt), (&id, 1));

    proxy.set(Manner::LosesAnswers);
    let request =
        ClaimRequest { done: vec![done(&run, RunResult::Succeeded)], ..worker.request(0, 0) };
    let lost = worker.send(&client, &request).await;
    assert!(lost.is_err(), "{lost:?}");
    proxy.answers_lost(1).await;
    server.kill();
    server = Dev::start(&data);
    proxy.lead_to(server.address());
    proxy.set(Manner::Faithful);
    assert!(!worker.report(&client, &run).await, "it had counted before");
    has_succeeded_at_once(&server.client, &id).await;
    assert_eq!(worker.send(&client, &worker.clone().request(5, 0)).await.unwrap().runs, []);
    server.kill();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_completion_counts_once_whenever_the_server_dies() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let mut random = Random::new(19);
    let mut server = Dev::start(&data);
    let mut worker = TestWorker::new("web-1", "mail");
    for round in 0..6 {
        let id = submitted(&server.client).await;
        let run = worker.claim_one(&server.client).await;
        assert_eq!(run.id, id, "round {round}");
        let done = vec![done(&run, RunResult::Succeeded)];
        let body = serde_json::to_value(ClaimRequest { done, ..worker.request(0, 0) }).unwrap();
        let told = Ask::new(server.address(), "POST", "/v1/claim").with(&body);
        let stream = tokio::net::TcpStream::connect(server.address()).await.unwrap();
        let mut asked = JoinSet::new();
        asked.spawn(told.over(stream));
        // Not a wait for anything: how long the server lives.
        tokio::time::sleep(Duration::from_micros(random.below(8_000))).await;
        server.signal(Signal::KILL);
        let told = asked.join_next().await.expect("it was asked").unwrap();
        server.kill();
        server = Dev::start(&data);
        let counts_now = worker.report(&server.client, &run).await;
        if told.is_ok() {
            assert!(!counts_now, "round {round}: it was acknowledged before: {told:?}");
        }
        has_succeeded_at_once(&server.client, &id).await;
    }
    server.kill();
}

/// Submits a run until somebody says that it is there.
async fn submitted(client: &Client) -> String {
    let spec = RunSpec {
        queue: Some("mail".to_owned()),
        handler: Some("work".to_owned()),
        ..RunSpec::default()
    };
    let submitted =
        until("a run is submitted", PATIENCE, || async { client.submit(&spec).await.ok() });
    submitted.await.id
}

/// A run was carried out by its first attempt, and nobody was given it again.
async fn has_succeeded_at_once(client: &Client, id: &str) {
    let run =
        until("the run is shown", PATIENCE, || async { client.run_by_id(id).await.ok() }).await;
    assert_eq!(
        (run.state, run.attempt, run.attempts.len()),
        (RunState::Succeeded, 1, 1),
        "{run:?}"
    );
}
