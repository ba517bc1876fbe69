//! `watchbell bench queue`: how many runs per second are submitted, claimed and completed, each step durable?
//!
//! A server is started as a child. In this process some clients submit runs in batches, and as many workers claim and
//! complete them by the same protocol as any other worker. Runs do nothing, so what is measured is the queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use client::queue::{BatchSpec, RunSpec};
use client::worker::{ClaimRequest, DoneRun, RunResult};
use client::{Client, ClientError};
use serde::Serialize;
use store::clock::Stopwatch;
use store::machine::{Machine as _, System};
use store::speed::Latencies;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::subject::Subject;
use crate::args::bench::QueueBenchArgs;
use crate::exit::Ending;
use crate::progress::Progress;
use crate::table::{self, grouped};

const QUEUE: &str = "bench";

/// Batches of each client that may be submitted and not completed.
const BATCHES_AHEAD: usize = 4;

/// Runs that are submitted at once to let so many wait, and clients that do.
const FILL_BATCH: u64 = 100;
const FILL_CLIENTS: u64 = 8;

/// What a server did with a queue.
#[derive(Serialize)]
pub(super) struct Queued {
    batch: u32,
    clients: u32,
    waiting: u64,
    runs_per_s: f64,
    /// From the answer to a submission to the answer that gives the run to a worker, if nothing else waits.
    start_p50_ms: Option<f64>,
    start_p99_ms: Option<f64>,
    commits_per_s: f64,
    /// What the server needs of a processor for a run, and of memory for one that waits.
    cpu_us_per_run: f64,
    bytes_per_waiting: Option<f64>,
    /// From the start of a server on what waits to the first answer that gives a run.
    restart_s: Option<f64>,
}

pub(super) fn shown(queued: &[Queued]) -> String {
    let head = [
        "batch",
        "clients",
        "waiting",
        "runs/s",
        "start p50 ms",
        "p99 ms",
        "commits/s",
        "CPU µs/run",
        "bytes/waiting",
        "restart s",
    ];
    let ms = |time: Option<f64>| time.map_or_else(|| "-".to_owned(), |time| format!("{time:.1}"));
    let rows = queued.iter().map(|row| {
        vec![
            grouped(row.batch),
            grouped(row.clients),
            grouped(row.waiting),
            format!("{:.0}", row.runs_per_s),
            ms(row.start_p50_ms),
            ms(row.start_p99_ms),
            format!("{:.0}", row.commits_per_s),
            format!("{:.1}", row.cpu_us_per_run),
            ms(row.bytes_per_waiting),
            ms(row.restart_s),
        ]
    });
    let rows = std::iter::once(head.map(str::to_owned).to_vec()).chain(rows).collect();
    format!(
        "{}\nA run is submitted, claimed and completed, each durable in the store. Server and clients share this machine.\n",
        table::rows(rows, 0)
    )
}

/// What clients and workers share.
struct Bench {
    client: Client,
    batch: usize,
    completed: AtomicU64,
    is_over: AtomicBool,
    /// Room for what may be submitted and not completed.
    ahead: Semaphore,
}

/// Measures a queue of a server, with as many runs waiting from the beginning as are asked for.
pub(super) async fn measure(
    typed: &QueueBenchArgs,
    subject: &Subject,
    client: Client,
    progress: &Progress,
) -> Result<Queued, Ending> {
    let batch = usize::try_from(typed.batch).expect("a small number");
    let clients = usize::try_from(typed.clients).expect("a small number");
    let bytes_per_waiting = fill(&client, typed.waiting, subject, progress).await?;
    let ahead = Semaphore::new(batch * clients * BATCHES_AHEAD);
    let (completed, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let bench = Arc::new(Bench { client, batch, completed, is_over, ahead });
    let mut tasks = JoinSet::new();
    for number in 0..typed.clients {
        tasks.spawn(submit(Arc::clone(&bench)));
        tasks.spawn(work(Arc::clone(&bench), format!("bench-{number}")));
    }
    progress.show(format_args!("batches of {batch}, {clients} clients: measuring"));
    // Connections are made, and the first batches are under way.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (before, watch) = (subject.metrics().await?, Stopwatch::start());
    let (begun, used) = (bench.completed.load(Ordering::SeqCst), subject.used());
    tokio::time::sleep(Duration::from_secs(typed.seconds.into())).await;
    let done = bench.completed.load(Ordering::SeqCst) - begun;
    let cpu = subject.used().cpu.saturating_sub(used.cpu);
    let (after, seconds) = (subject.metrics().await?, watch.elapsed().as_secs_f64());
    bench.is_over.store(true, Ordering::SeqCst);
    bench.ahead.close();
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(|why| Ending::failed(why.to_string()))??;
    }
    progress.show("measuring how soon a run is started that nothing keeps waiting");
    let starts = if typed.waiting == 0 { starts(&bench).await? } else { Vec::new() };
    let starts = (!starts.is_empty()).then(|| Latencies::of(starts));
    let ms = |time: Duration| time.as_secs_f64() * 1_000.0;
    let count = |number: u64| f64::from(u32::try_from(number).unwrap_or(u32::MAX));
    Ok(Queued {
        batch: typed.batch,
        clients: typed.clients,
        waiting: typed.waiting,
        runs_per_s: count(done) / seconds,
        start_p50_ms: starts.as_ref().map(|starts| ms(starts.p50)),
        start_p99_ms: starts.as_ref().map(|starts| ms(starts.p99)),
        commits_per_s: (after.commits() - before.commits()) / seconds,
        cpu_us_per_run: cpu.as_secs_f64() * 1e6 / count(done.max(1)),
        bytes_per_waiting,
        restart_s: None,
    })
}

impl Queued {
    /// The same with how long it took from the start of a server until it gave the first run.
    pub(super) fn restarted(self, took: Duration) -> Self {
        Self { restart_s: Some(took.as_secs_f64()), ..self }
    }
}

/// Claims until a run is given.
pub(super) async fn claim_first(client: &Client) -> Result<(), ClientError> {
    let mut said = ClaimRequest {
        worker: "first".to_owned(),
        incarnation: System.wall_us(),
        queues: vec![QUEUE.to_owned()],
        free: 1,
        wait_ms: 1_000,
        ..ClaimRequest::default()
    };
    loop {
        said.number += 1;
        said.settled = said.number - 1;
        let answer = client.claim(&said).await?;
        if !answer.runs.is_empty() {
            return Ok(());
        }
        said.cookie = Some(answer.cookie);
    }
}

fn runs(count: usize) -> BatchSpec {
    let run = RunSpec { handler: Some("nothing".to_owned()), ..RunSpec::default() };
    BatchSpec { queue: QUEUE.to_owned(), runs: vec![run; count] }
}

/// Lets so many runs wait. Tells how much memory the server has for each.
async fn fill(
    client: &Client,
    waiting: u64,
    subject: &Subject,
    progress: &Progress,
) -> Result<Option<f64>, Ending> {
    if waiting == 0 {
        return Ok(None);
    }
    let before = subject.used().memory;
    let left = Arc::new(AtomicU64::new(waiting));
    let mut tasks = JoinSet::new();
    for _ in 0..FILL_CLIENTS {
        tasks.spawn(fill_from(Arc::clone(&left), client.clone()));
    }
    while !tasks.is_empty() {
        progress.show(format_args!("{} runs are to wait", grouped(left.load(Ordering::SeqCst))));
        if let Ok(Some(ended)) = timeout(Duration::from_secs(1), tasks.join_next()).await {
            ended.map_err(|why| Ending::failed(why.to_string()))??;
        }
    }
    let more = f64::from(subject.used().memory.saturating_sub(before)) * 1_024.0;
    Ok(Some(more / f64::from(u32::try_from(waiting).unwrap_or(u32::MAX))))
}

async fn fill_from(left: Arc<AtomicU64>, client: Client) -> Result<(), ClientError> {
    loop {
        let take = |left: u64| Some(left.saturating_sub(FILL_BATCH));
        let left = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take);
        let count = left.unwrap_or_default().min(FILL_BATCH);
        if count == 0 {
            return Ok(());
        }
        let mut spec = runs(usize::try_from(count).expect("a small number"));
        // They are claimed after what is measured.
        spec.runs.iter_mut().for_each(|run| run.priority = Some(9));
        client.submit_batch(&spec).await?;
    }
}

async fn submit(bench: Arc<Bench>) -> Result<(), ClientError> {
    let (spec, permits) = (runs(bench.batch), u32::try_from(bench.batch).expect("a small number"));
    // Closed when the measurement is over.
    while let Ok(permit) = bench.ahead.acquire_many(permits).await {
        permit.forget();
        bench.client.submit_batch(&spec).await?;
    }
    Ok(())
}

/// Claims and completes, a batch at a time.
async fn work(bench: Arc<Bench>, worker: String) -> Result<(), ClientError> {
    let mut said = ClaimRequest {
        worker,
        incarnation: System.wall_us(),
        queues: vec![QUEUE.to_owned()],
        free: bench.batch as u64,
        wait_ms: 100,
        ..ClaimRequest::default()
    };
    while !bench.is_over.load(Ordering::SeqCst) || !said.done.is_empty() {
        said.number += 1;
        said.settled = said.number - 1;
        if bench.is_over.load(Ordering::SeqCst) {
            said.free = 0;
        }
        let answer = bench.client.claim(&said).await?;
        let counted = answer.acks.iter().filter(|ack| ack.counted).count();
        bench.completed.fetch_add(counted as u64, Ordering::SeqCst);
        bench.ahead.add_permits(if bench.ahead.is_closed() { 0 } else { counted });
        said.cookie = Some(answer.cookie);
        said.done = answer.runs.into_iter().map(|run| succeeded(run.id, run.token)).collect();
    }
    Ok(())
}

fn succeeded(id: String, token: u64) -> DoneRun {
    DoneRun {
        id,
        token,
        result: RunResult::Succeeded,
        final_failure: false,
        retry_after_ms: None,
        error: None,
        exit_code: None,
        started: None,
        took_ms: None,
    }
}

/// How long it takes from a submission to the answer that gives the run to a worker that waits, one after the other.
async fn starts(bench: &Bench) -> Result<Vec<Duration>, ClientError> {
    let mut said = ClaimRequest {
        worker: "starts".to_owned(),
        incarnation: System.wall_us(),
        queues: vec![QUEUE.to_owned()],
        free: 1,
        wait_ms: 5_000,
        ..ClaimRequest::default()
    };
    let mut starts = Vec::new();
    let spec = runs(1);
    for _ in 0..200 {
        said.number += 1;
        said.settled = said.number - 1;
        // What came of the last one goes first, so that the claim waits.
        if !said.done.is_empty() {
            let report = ClaimRequest { free: 0, ..said.clone() };
            bench.client.claim(&report).await?;
            said.done.clear();
            said.number += 1;
            said.settled = said.number - 1;
        }
        let claims = bench.client.claim(&said);
        let submits = async {
            bench.client.submit_batch(&spec).await?;
            Ok::<_, ClientError>(Stopwatch::start())
        };
        let (answer, submitted) = tokio::join!(claims, submits);
        let (answer, submitted) = (answer?, submitted?);
        if !answer.runs.is_empty() {
            starts.push(submitted.elapsed());
        }
        said.cookie = Some(answer.cookie);
        said.done = answer.runs.into_iter().map(|run| succeeded(run.id, run.token)).collect();
    }
    Ok(starts)
}
