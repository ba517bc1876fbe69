//! Workers that lose their servers, and servers that lose their workers.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use rig::{FaultProxy, Manner, machine};
use worker::EndReason;

use super::super::process::{Dev, place};
use super::gate::gate;
use super::*;

fn through(proxy: &FaultProxy) -> Client {
    Client::builder(&proxy.url()).retries(0).build().unwrap()
}

/// Where nobody listens.
fn nowhere() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_run_is_carried_out_once_though_requests_and_answers_are_lost_repeated_and_late() {
    let _machine = machine::works().await;
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    let proxies = [FaultProxy::to(dev.address(), 5).await, FaultProxy::to(dev.address(), 6).await];
    for proxy in &proxies {
        proxy.set(Manner::Faulty);
    }
    let carried_out = CarriedOut::default();
    let builder = noting("web-1", &through(&proxies[0]), &carried_out);
    let builder = builder.servers([through(&proxies[1])]).capacity(7);
    let worker = Working::start(builder.build().unwrap());
    let ids = submit(&dev.client, "note", 100).await;
    let runs = have_succeeded(&dev.client, &ids).await;
    assert!(runs.iter().all(|run| run.attempt == 1), "{:?}", proxies.map(|it| it.counts()));
    assert_eq!(carried_out.counts(&ids), vec![1; 100]);
    worker.drain().await.unwrap();
    dev.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_whose_server_is_killed_goes_on_and_reports_when_it_is_back() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    let proxy = FaultProxy::to(dev.address(), 0).await;
    let (gate, _reasons) = gate();
    let carried_out = CarriedOut::default();
    let builder = gate.stands_in(noting("web-1", &through(&proxy), &carried_out));
    let worker = Working::start(builder.build().unwrap());
    let id = submit(&dev.client, "gate", 1).await.remove(0);
    gate.has_begun(1).await;
    dev.kill();
    worker.sees("no server answers", |sight| sight.servers_gone_for().is_some()).await;
    gate.let_pass(1);
    worker.sees("it keeps the result", |sight| sight.unreported.get() == 1).await;

    let dev = Dev::start(&data);
    proxy.lead_to(dev.address());
    let run = is_in(&dev.client, &id, RunState::Succeeded).await;
    assert_eq!(run.attempt, 1);
    worker.sees("a server answers again", |sight| sight.servers_gone_for().is_none()).await;
    let next = submit(&dev.client, "note", 5).await;
    have_succeeded(&dev.client, &next).await;
    // That a claim and a beat reported it at once is no second attempt.
    assert_eq!(is_in(&dev.client, &id, RunState::Succeeded).await.attempts.len(), 1);
    worker.drain().await.unwrap();
    dev.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_under_a_token_that_is_not_current_does_not_count_and_is_told() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    let proxy = FaultProxy::to(dev.address(), 0).await;
    let (slow, _reasons) = gate();
    let nobody = CarriedOut::default();
    let builder = slow.stands_in(noting("web-1", &through(&proxy), &nobody)).lease(SHORT);
    let first = Working::start(builder.build().unwrap());
    let id = submit(&dev.client, "gate", 1).await.remove(0);
    slow.has_begun(1).await;
    // It is cut off, and finishes after another has been given the run.
    proxy.lead_to(nowhere());
    let (fast, _reasons) = gate();
    fast.let_pass(1);
    let second = fast.stands_in(noting("web-2", &dev.client, &nobody));
    let second = Working::start(second.build().unwrap());
    let run = is_in(&dev.client, &id, RunState::Succeeded).await;
    assert_eq!(run.attempt, 2);
    slow.let_pass(1);
    first.sees("it keeps the result", |sight| sight.unreported.get() == 1).await;
    proxy.lead_to(dev.address());
    first.sees("it is told", |sight| sight.uncounted.get() == 1).await;
    assert_eq!(dev.client.run_by_id(&id).await.unwrap().attempt, 2);
    assert_eq!(first.sight.unreported.get(), 0);
    first.drain().await.unwrap();
    second.drain().await.unwrap();
    dev.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_was_given_to_another_is_told_that_it_is_lost() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    let proxy = FaultProxy::to(dev.address(), 0).await;
    let (slow, mut reasons) = gate();
    let nobody = CarriedOut::default();
    let builder = slow.stands_in(noting("web-1", &through(&proxy), &nobody)).lease(SHORT);
    let first = Working::start(builder.build().unwrap());
    let id = submit(&dev.client, "gate", 1).await.remove(0);
    slow.has_begun(1).await;
    proxy.lead_to(nowhere());
    let (other, _reasons) = gate();
    let second = other.stands_in(noting("web-2", &dev.client, &nobody));
    let second = Working::start(second.build().unwrap());
    other.has_begun(1).await;
    proxy.lead_to(dev.address());
    assert_eq!(timeout(PATIENCE, reasons.recv()).await.unwrap(), Some(EndReason::Lost));
    first.sees("it is forgotten", |sight| sight.lost.get() == 1 && sight.held.get() == 0).await;
    other.let_pass(1);
    is_in(&dev.client, &id, RunState::Succeeded).await;
    first.drain().await.unwrap();
    second.drain().await.unwrap();
    dev.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_of_a_strict_queue_ends_when_no_server_confirms_it() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    let strict = json!({"lease": "strict"});
    let strict = serde_json::from_value(strict).unwrap();
    dev.client.set_queue("mail", &strict, None).await.unwrap();
    let proxy = FaultProxy::to(dev.address(), 0).await;
    let (slow, mut reasons) = gate();
    let nobody = CarriedOut::default();
    let builder = slow.stands_in(noting("web-1", &through(&proxy), &nobody)).lease(SHORT);
    let worker = Working::start(builder.build().unwrap());
    let id = submit(&dev.client, "gate", 1).await.remove(0);
    slow.has_begun(1).await;
    proxy.lead_to(nowhere());
    assert_eq!(timeout(PATIENCE, reasons.recv()).await.unwrap(), Some(EndReason::Unconfirmed));
    proxy.lead_to(dev.address());
    slow.let_pass(1);
    is_in(&dev.client, &id, RunState::Succeeded).await;
    worker.drain().await.unwrap();
    dev.stop().await;
}
