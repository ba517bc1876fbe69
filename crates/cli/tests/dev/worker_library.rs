//! The worker library for Rust, against a real server.

mod calm;
mod crash;
mod ending;
mod gate;
mod loss;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use client::Client;
use client::queue::{BatchSpec, RunSpec};
use client::run::{Run, RunState};
use parking_lot::Mutex;
use rig::{PATIENCE, until};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use worker::{Context, Control, HandlerError, Sight, Worker, WorkerBuilder, WorkerEnd};

/// A worker that works.
struct Working {
    tell: mpsc::Sender<Control>,
    life: JoinSet<Result<(), WorkerEnd>>,
    sight: Arc<Sight>,
}

impl Drop for Working {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the worker stands so: {:?}", self.sight);
        }
    }
}

impl Working {
    fn start(worker: Worker) -> Self {
        let (tell, control) = mpsc::channel(2);
        let sight = worker.sight();
        let mut life = JoinSet::new();
        life.spawn(worker.run(control));
        Self { tell, life, sight }
    }

    /// Tells it to drain, and waits for its end.
    async fn drain(self) -> Result<(), WorkerEnd> {
        self.tell.send(Control::Drain).await.unwrap();
        self.end().await
    }

    /// Waits for its end.
    async fn end(mut self) -> Result<(), WorkerEnd> {
        let ended = timeout(PATIENCE, self.life.join_next()).await;
        ended.expect("it ends").expect("it was started").expect("it does not panic")
    }

    async fn sees<F: Fn(&Sight) -> bool>(&self, what: &str, is_so: F) {
        until(what, PATIENCE, || async { is_so(&self.sight).then_some(()) }).await;
    }
}

/// Which runs were carried out, and how often.
#[derive(Debug, Clone, Default)]
struct CarriedOut(Arc<Mutex<HashMap<String, u32>>>);

impl CarriedOut {
    fn note(&self, context: &Context) {
        *self.0.lock().entry(context.run().id.clone()).or_default() += 1;
    }

    /// How often each of them was.
    fn counts(&self, ids: &[String]) -> Vec<u32> {
        let carried_out = self.0.lock();
        ids.iter().map(|id| carried_out.get(id).copied().unwrap_or_default()).collect()
    }
}

/// A worker of the queue `mail` at this server, with a handler `note` that notes its runs.
fn noting(name: &str, server: &Client, carried_out: &CarriedOut) -> WorkerBuilder {
    let carried_out = carried_out.clone();
    let note = move |context: Context, _: serde_json::Value| {
        carried_out.note(&context);
        std::future::ready(Ok::<(), HandlerError>(()))
    };
    Worker::new(name, ["mail"]).servers([server.clone()]).handler("note", note)
}

fn run_of(handler: &str) -> RunSpec {
    RunSpec {
        handler: Some(handler.to_owned()),
        payload: Some(json!({"to": "ann@example.com"})),
        ..RunSpec::default()
    }
}

/// Lets the queue `mail` have so many runs of a handler.
async fn submit(client: &Client, handler: &str, count: usize) -> Vec<String> {
    let runs = vec![run_of(handler); count];
    let batch = BatchSpec { queue: "mail".to_owned(), runs };
    let taken = client.submit_batch(&batch).await.unwrap();
    taken.runs.into_iter().map(|run| run.id).collect()
}

/// A run, once it is in this state.
async fn is_in(client: &Client, id: &str, state: RunState) -> Run {
    let what = format!("the run is {}", state.as_str());
    until(&what, PATIENCE, || async {
        let run = client.run_by_id(id).await.ok();
        run.filter(|run| run.state == state)
    })
    .await
}

/// All of them, once they have succeeded.
async fn have_succeeded(client: &Client, ids: &[String]) -> Vec<Run> {
    let mut runs = Vec::new();
    for id in ids {
        runs.push(is_in(client, id, RunState::Succeeded).await);
    }
    runs
}

const SHORT: Duration = Duration::from_secs(1);
