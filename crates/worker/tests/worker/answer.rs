//! What a worker does about answers that a real server seldom gives.

use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use client::Client;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use worker::{Context, Control, EndReason, HandlerError, Worker, WorkerBuilder, WorkerEnd};

use super::script::{Answer, Said, Script, fine, run};

const PATIENCE: Duration = Duration::from_secs(30);

fn worker(server: &Script) -> WorkerBuilder {
    Worker::new("w", ["q"]).servers([server.client.clone()]).lease(Duration::from_secs(1))
}

/// What a handler saw, and lets the test see.
type Seen = (String, u64, Option<EndReason>);

/// Says when a run begins, and why it is told to end.
fn telling(builder: WorkerBuilder) -> (WorkerBuilder, mpsc::UnboundedReceiver<Seen>) {
    let (tell, told) = mpsc::unbounded_channel();
    let work = move |context: Context, (): ()| {
        let tell = tell.clone();
        async move {
            let (id, token) = (context.run().id.clone(), context.run().token);
            tell.send((id.clone(), token, None))?;
            let reason = context.told_to_end().await;
            tell.send((id, token, Some(reason)))?;
            Ok::<(), HandlerError>(())
        }
    };
    (builder.handler("work", work), told)
}

/// Works until this is over, and is stopped then.
async fn work<T>(worker: Worker, meanwhile: impl Future<Output = T>) -> T {
    let (tell, control) = mpsc::channel(1);
    let meanwhile = async {
        let done = timeout(PATIENCE, meanwhile).await.expect("it comes to pass");
        tell.send(Control::Stop).await.unwrap();
        done
    };
    let (ended, done) = tokio::join!(worker.run(control), meanwhile);
    ended.unwrap();
    done
}

#[tokio::test]
async fn a_newer_token_of_a_run_that_still_executes_ends_the_older_attempt_first() {
    let mut given = 0;
    let server = Script::start(move |said| {
        let may_have_more = said.is_claim && said.body["free"].as_u64() > Some(0) && given < 2;
        if !may_have_more {
            return fine(said, &json!({}));
        }
        given += 1;
        fine(said, &json!({"runs": [run("run_1", given)]}))
    });
    let (builder, mut told) = telling(worker(&server));
    let seen = work(builder.build().unwrap(), async {
        let mut seen = Vec::new();
        while seen.len() < 3 {
            seen.push(told.recv().await.unwrap());
        }
        seen
    });
    let id = || "run_1".to_owned();
    let expected = [(id(), 1, None), (id(), 1, Some(EndReason::Lost)), (id(), 2, None)];
    assert_eq!(seen.await, expected);
}

#[tokio::test]
async fn runs_that_are_given_to_a_claim_that_was_given_up_never_begin() {
    // The first claim that could have runs is answered when the worker drains already.
    let (asked, is_asked) = std::sync::mpsc::channel();
    let (drained, is_drained) = std::sync::mpsc::channel::<()>();
    let named = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&named);
    let server = Script::start(move |said| {
        if said.is_claim && said.body["free"].as_u64() > Some(0) {
            asked.send(()).unwrap();
            is_drained.recv().unwrap();
            return fine(said, &json!({"runs": [run("run_1", 1)]}));
        }
        heard.lock().unwrap().push(said.body.clone());
        fine(said, &json!({}))
    });
    let (builder, mut told) = telling(worker(&server));
    let (tell, control) = mpsc::channel(1);
    let life = builder.build().unwrap().run(control);
    let drains = async {
        tokio::task::spawn_blocking(move || is_asked.recv().unwrap()).await.unwrap();
        tell.send(Control::Drain).await.unwrap();
        drained.send(()).unwrap();
    };
    let (ended, ()) = timeout(PATIENCE, async { tokio::join!(life, drains) }).await.unwrap();
    ended.unwrap();
    assert!(told.try_recv().is_err());
    let said: Vec<Value> = named.lock().unwrap().clone();
    let says_farewell = |body: &Value| body["draining"] == true && body["settled"] == 1;
    assert!(said.iter().any(says_farewell), "{said:?}");
    assert!(said.iter().all(|body| body["running"].as_array().is_none_or(Vec::is_empty)));
}

#[tokio::test]
async fn a_first_request_that_is_refused_ends_the_worker_and_says_why() {
    let server = Script::start(|_| {
        let problem =
            json!({"type": "about:blank", "title": "", "status": 401, "detail": "no key"});
        (401, problem)
    });
    let (builder, _told) = telling(worker(&server));
    let (_tell, control) = mpsc::channel(1);
    let ended = timeout(PATIENCE, builder.build().unwrap().run(control)).await.unwrap();
    let ended = ended.unwrap_err();
    assert!(matches!(ended, WorkerEnd::Refused(_)) && ended.to_string() == "no key", "{ended}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_passed_over_for_one_that_is() {
    let nowhere = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nobody = Client::builder(&format!("http://{nowhere}")).retries(0).build().unwrap();
    let mut is_given = false;
    let server = Script::start(move |said| {
        let is_first = said.is_claim && !std::mem::replace(&mut is_given, said.is_claim);
        let runs = if is_first { vec![run("run_1", 1)] } else { Vec::new() };
        fine(said, &json!({"runs": runs}))
    });
    let builder = Worker::new("w", ["q"]).servers([nobody, server.client.clone()]);
    let (builder, mut told) = telling(builder);
    let worker = builder.build().unwrap();
    let sight = worker.sight();
    let begun = work(worker, async { told.recv().await.unwrap() }).await;
    assert_eq!(begun, ("run_1".to_owned(), 1, None));
    assert!(sight.servers_gone_for().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_blocks_and_takes_too_long_is_reported_and_keeps_its_place() {
    let results = Arc::new(Mutex::new(Vec::new()));
    let hears = Arc::clone(&results);
    let (reported, is_reported) = mpsc::unbounded_channel();
    let mut is_given = false;
    let server = Script::start(move |said| -> Answer {
        let done = said.body["done"].as_array().cloned().unwrap_or_default();
        for done in done {
            hears.lock().unwrap().push(done);
            let _gone = reported.send(());
        }
        let is_first = said.is_claim && !std::mem::replace(&mut is_given, said.is_claim);
        let mut slow = run("run_1", 1);
        slow["timeout_ms"] = 1.into();
        let runs = if is_first { vec![slow] } else { Vec::new() };
        fine(said, &json!({"runs": runs}))
    });
    let open = Arc::new(Semaphore::new(0));
    let opens = Arc::clone(&open);
    let block = move |_: Context, (): ()| {
        let opens = Arc::clone(&opens);
        async move {
            // It lets nothing else of its task run.
            while opens.available_permits() == 0 {
                std::thread::yield_now();
            }
            Ok::<(), HandlerError>(())
        }
    };
    let builder = worker(&server).handler("work", block).grace(Duration::from_millis(1));
    let worker = builder.capacity(1).build().unwrap();
    let sight = worker.sight();
    let mut is_reported = is_reported;
    work(worker, async {
        is_reported.recv().await.unwrap();
        assert_eq!(sight.executing.get(), 1);
        open.add_permits(1);
        while sight.executing.get() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let results = results.lock().unwrap();
    // It is said until it is acknowledged, by a claim and by a beat.
    assert!(results.iter().all(|said| *said == results[0]), "it has one result: {results:?}");
    assert_eq!(results[0]["error"], "it took longer than its time-out of 1ms");
}

#[tokio::test]
async fn queues_with_weights_take_turns_in_standing_first() {
    let firsts = Arc::new(Mutex::new(Vec::new()));
    let hears = Arc::clone(&firsts);
    let mut token = 0;
    let server = Script::start(move |said: &Said| {
        if said.is_claim && said.body["free"].as_u64() > Some(0) {
            token += 1;
            hears.lock().unwrap().push(said.body["queues"][0].as_str().unwrap().to_owned());
            return fine(said, &json!({"runs": [run(&format!("run_{token}"), token)]}));
        }
        fine(said, &json!({}))
    });
    let (tell, mut told) = mpsc::unbounded_channel();
    let pass =
        move |_: Context, (): ()| std::future::ready(tell.send(()).map_err(HandlerError::from));
    let builder = Worker::new("w", Vec::<String>::new()).servers([server.client.clone()]);
    let builder = builder.weight("mail", 3).weight("reports", 1).handler("work", pass);
    work(builder.capacity(1).build().unwrap(), async {
        for _ in 0..8 {
            told.recv().await.unwrap();
        }
    })
    .await;
    let firsts = firsts.lock().unwrap()[..8].join(" ");
    assert_eq!(firsts, "mail mail reports mail mail mail reports mail");
}
