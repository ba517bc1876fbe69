//! How soon a run is started: from when it is to be submitted to the answer that gives it to a worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use store::clock::Stopwatch;
use store::speed::Latencies;
use tokio::task::JoinSet;

use super::load::joined;
use super::wire::{Door, RunBatch, Submitter, Worker};
use crate::exit::Ending;

/// Runs that are submitted one after the other while nothing else goes on.
const IDLE_RUNS: usize = 500;

/// How much later than its claim a run is submitted, so that the claim waits.
const CLAIM_AHEAD: Duration = Duration::from_millis(2);

/// What is submitted in the beginning does not count: connections are made, and workers begin.
const WARM_UP: Duration = Duration::from_secs(1);

/// How long workers may take to complete what is left in the end.
const REST_MAX: Duration = Duration::from_secs(30);

/// How soon a run is started that nothing keeps waiting, one after the other.
pub(super) async fn idle(door: &Door) -> Result<Latencies, Ending> {
    let mut submitter = Submitter::open(door).await?;
    let mut worker = Worker::open(door, "idle".to_owned()).await?;
    let run = RunBatch::new(1, None, None);
    let mut took = Vec::new();
    for _ in 0..IDLE_RUNS {
        // What came of the last one goes first, so that the claim waits.
        worker.claim(0, 0).await?;
        let submits = async {
            tokio::time::sleep(CLAIM_AHEAD).await;
            let watch = Stopwatch::start();
            submitter.submit(&run).await.map(|()| watch)
        };
        let claims = async {
            let told = worker.claim(1, 5_000).await?;
            Ok::<_, Ending>((told, Stopwatch::start()))
        };
        let (begun, ended) = tokio::join!(submits, claims);
        let (begun, (told, ended)) = (begun?, ended?);
        if !told.given.is_empty() {
            took.push(begun.elapsed().saturating_sub(ended.elapsed()));
        }
    }
    worker.claim(0, 0).await?;
    Ok(Latencies::of(took))
}

/// A load that does not wait for answers.
pub(super) struct Pace {
    /// Runs in a submission, and in a claim.
    pub(super) batch: usize,
    pub(super) clients: u32,
    pub(super) runs_per_s: f64,
    pub(super) length: Duration,
}

/// What such a load met.
pub(super) struct Paced {
    pub(super) runs_per_s: f64,
    pub(super) latencies: Latencies,
}

/// What clients and workers of a pace share.
struct Shared {
    door: Door,
    pace: Pace,
    begun: Stopwatch,
    submitted: AtomicU64,
    completed: AtomicU64,
    submitting: AtomicU64,
}

/// Submits at a steady pace, whatever becomes of it, and tells how soon runs are started. Each carries the instant at which it
/// was to be submitted: what is submitted late, because the client waited for an answer, is not taken for quick.
pub(super) async fn paced(door: &Door, pace: Pace) -> Result<Paced, Ending> {
    let clients = pace.clients;
    let length = (pace.length + WARM_UP).as_secs_f64();
    let shared = Arc::new(Shared {
        door: door.clone(),
        pace,
        begun: Stopwatch::start(),
        submitted: AtomicU64::new(0),
        completed: AtomicU64::new(0),
        submitting: AtomicU64::new(clients.into()),
    });
    let (mut submitters, mut workers) = (JoinSet::new(), JoinSet::new());
    for number in 0..clients {
        submitters.spawn(submit(Arc::clone(&shared), number));
        workers.spawn(work(Arc::clone(&shared), number));
    }
    while let Some(ended) = submitters.join_next().await {
        joined(ended)?;
    }
    let mut took = Vec::new();
    while let Some(ended) = workers.join_next().await {
        took.extend(joined(ended)?);
    }
    let submitted = shared.submitted.load(Ordering::SeqCst);
    let runs_per_s = f64::from(u32::try_from(submitted).unwrap_or(u32::MAX)) / length;
    Ok(Paced { runs_per_s, latencies: Latencies::of(took) })
}

async fn submit(shared: Arc<Shared>, number: u32) -> Result<(), Ending> {
    let Pace { batch, clients, runs_per_s, length } = shared.pace;
    let mut submitter = Submitter::open(&shared.door).await?;
    let size = u32::try_from(batch).expect("a small number");
    // Of all clients; each has its own place in it.
    let interval = Duration::from_secs_f64(f64::from(size) / runs_per_s);
    let mut due = interval * number;
    while due < length + WARM_UP {
        tokio::time::sleep(due.saturating_sub(shared.begun.elapsed())).await;
        let micros = u64::try_from(due.as_micros()).unwrap_or(u64::MAX);
        submitter.submit(&RunBatch::new(batch, Some(micros), None)).await?;
        shared.submitted.fetch_add(size.into(), Ordering::SeqCst);
        due += interval * clients;
    }
    shared.submitting.fetch_sub(1, Ordering::SeqCst);
    Ok(())
}

/// Claims and completes until everything is. Says how long runs took that it was given.
async fn work(shared: Arc<Shared>, number: u32) -> Result<Vec<Duration>, Ending> {
    let mut worker = Worker::open(&shared.door, format!("paced-{number}")).await?;
    let mut took = Vec::new();
    loop {
        let told = worker.claim(shared.pace.batch, 100).await?;
        let now = shared.begun.elapsed();
        let due = told.given.into_iter().flatten().map(Duration::from_micros);
        took.extend(due.filter(|due| *due >= WARM_UP).map(|due| now.saturating_sub(due)));
        shared.completed.fetch_add(told.completed as u64, Ordering::SeqCst);
        let is_over = shared.submitting.load(Ordering::SeqCst) == 0
            && shared.completed.load(Ordering::SeqCst) >= shared.submitted.load(Ordering::SeqCst);
        if is_over && !worker.has_runs() {
            return Ok(took);
        }
        if now > shared.pace.length + WARM_UP + REST_MAX {
            return Err(Ending::failed("runs of half the load are left over"));
        }
    }
}
