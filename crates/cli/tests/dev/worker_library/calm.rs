//! What a worker does when nothing goes wrong.

use std::collections::BTreeMap;

use client::output::OutputStream;
use rig::machine;

use super::super::process::{Dev, place};
use super::*;

#[expect(dead_code, reason = "its main is for people")]
#[path = "../../../../worker/examples/mail.rs"]
mod mail;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_two_hundred_runs_is_carried_out_once() {
    let _machine = machine::works().await;
    let (dir, data) = place();
    let dev = Dev::start(&data);
    let ids = submit(&dev.client, "note", 200).await;
    let carried_out = CarriedOut::default();
    let spool = worker::Spool::open(dir.path().join("spool"), "web-1").await.unwrap();
    let labels = BTreeMap::from([("zone".to_owned(), "b".to_owned())]);
    let worker = noting("web-1", &dev.client, &carried_out).capacity(20).labels(labels);
    let worker = Working::start(worker.spool(spool).build().unwrap());
    let runs = have_succeeded(&dev.client, &ids).await;
    assert!(runs.iter().all(|run| run.attempt == 1 && run.attempts.len() == 1));
    assert_eq!(carried_out.counts(&ids), vec![1; 200]);
    assert_eq!(dev.client.worker("web-1").await.unwrap().worker.labels["zone"], "b");
    let sight = Arc::clone(&worker.sight);
    worker.drain().await.unwrap();
    assert_eq!((sight.given.get(), sight.begun.get(), sight.succeeded.get()), (200, 200, 200));
    assert_eq!((sight.held.get(), sight.executing.get(), sight.unreported.get()), (0, 0, 0));
    assert!(sight.unheard_for().is_some() && sight.servers_gone_for().is_none());
    // Nothing is left for the next life.
    let spool = worker::Spool::open(dir.path().join("spool"), "web-1").await.unwrap();
    assert_eq!(spool.unreported(), 0);
    dev.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_example_carries_out_what_fits_and_says_why_the_rest_does_not() {
    let _machine = machine::waits().await;
    let (dir, data) = place();
    let dev = Dev::start(&data);
    let fits = submit(&dev.client, "welcome", 1).await.remove(0);
    let with = |payload| RunSpec {
        queue: Some("mail".to_owned()),
        payload: Some(payload),
        ..run_of("welcome")
    };
    let no_address = dev.client.submit(&with(json!({"to": "ann"}))).await.unwrap().id;
    let no_payload = dev.client.submit(&with(json!({"to": 7}))).await.unwrap().id;
    let nobody = submit(&dev.client, "unheard-of", 1).await.remove(0);
    let worker = mail::mail_worker(dev.client.clone(), dir.path()).await.unwrap();
    let worker = Working::start(worker);

    is_in(&dev.client, &fits, RunState::Succeeded).await;
    let output = dev.client.run_output(&fits).await.unwrap();
    let printed = &output.chunks[0];
    assert_eq!(printed.text.as_deref(), Some("welcome, ann@example.com\n"));
    assert!(printed.stream == OutputStream::Stdout && printed.at.is_some());
    assert_eq!(output.progress.unwrap().text.as_deref(), Some("talking to the relay"));
    for (id, expected) in [
        (no_address, "\"ann\" is no address"),
        (no_payload, "the payload does not fit: to: invalid type: integer `7`, expected a string"),
        (nobody, "worker mail-1 has no handler \"unheard-of\"; it has: welcome"),
    ] {
        let run = is_in(&dev.client, &id, RunState::Failed).await;
        let error = run.attempts[0].error.clone().unwrap_or_default();
        assert!(error.contains(expected), "{error}");
        assert_eq!(run.attempt, 1, "it is not tried again");
    }
    worker.drain().await.unwrap();
    dev.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_panics_fails_its_run_and_nothing_else() {
    let _machine = machine::waits().await;
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    let carried_out = CarriedOut::default();
    let fails = async |_: Context, _: serde_json::Value| panic!("the relay is on fire");
    let builder = noting("web-1", &dev.client, &carried_out).handler("panics", fails);
    let worker = Working::start(builder.build().unwrap());
    let panics = submit(&dev.client, "panics", 1).await.remove(0);
    let run = until("an attempt failed", PATIENCE, || async {
        let run = dev.client.run_by_id(&panics).await.unwrap();
        (!run.attempts.is_empty()).then_some(run)
    })
    .await;
    assert_eq!(
        run.attempts[0].error.as_deref(),
        Some("the handler panicked: the relay is on fire")
    );
    let others = submit(&dev.client, "note", 3).await;
    have_succeeded(&dev.client, &others).await;
    worker.drain().await.unwrap();
    dev.stop().await;
}
