//! `watchbell bench queue`: how many runs per second are submitted, claimed and completed, each step durable, and how
//! soon is a run started?
//!
//! A server is started as a child. In this process some clients submit runs in batches, and as many workers claim and
//! complete them by the same protocol as any other worker. Runs do nothing, so what is measured is the queue.
//!
//! - `load`: as many as it can do; `latency`: how soon a run is started, alone and under half of that load
//! - `wire`: what clients and workers say

mod latency;
mod load;
mod wire;

use std::time::Duration;

use serde::Serialize;
use store::clock::Stopwatch;
use store::speed::Latencies;

use self::latency::Pace;
use self::load::Load;
pub(super) use self::wire::Door;
use self::wire::Worker;
use super::subject::{Subject, Used};
use crate::args::bench::QueueBenchArgs;
use crate::exit::Ending;
use crate::progress::Progress;
use crate::table::{self, grouped};

const QUEUE: &str = "bench";

/// What a server did with a queue.
#[derive(Serialize)]
pub(super) struct Queued {
    batch: u32,
    clients: u32,
    waiting: u64,
    /// The lesser of what was submitted and what was completed: where runs wait from before, more may be completed.
    runs_per_s: f64,
    /// If nothing else waits, and nothing else goes on.
    start_idle: Option<StartMs>,
    /// If half of `runs_per_s` is submitted, whatever becomes of it.
    start_half_load: Option<StartMs>,
    half_load_runs_per_s: Option<f64>,
    commits_per_s: f64,
    /// What a run needs of a processor: of the server, of the clients and workers, and of the store's engine.
    cpu_us_per_run: f64,
    client_cpu_us_per_run: f64,
    engine_cpu_us_per_run: Option<f64>,
    memory: Option<WaitingMemory>,
    /// From the start of a server on what waits to the first answer that gives a run.
    restart_s: Option<f64>,
}

/// From when a run is to be submitted to the answer that gives it to a worker.
#[derive(Serialize)]
struct StartMs {
    p50: f64,
    p99: f64,
    p999: f64,
}

/// What a run that waits takes of the server's memory.
#[derive(Serialize)]
struct WaitingMemory {
    /// What became resident while they were submitted. The store's tables and caches, which have their own bounds, grow by the
    /// same writes and are in it.
    bytes_grown: f64,
    /// What a server that was just started on them has more than one that was just started on nothing. What was needed to
    /// read them, and is kept by the allocator, is in it.
    bytes_after_restart: Option<f64>,
}

impl From<Latencies> for StartMs {
    fn from(Latencies { p50, p99, p999, .. }: Latencies) -> Self {
        let [p50, p99, p999] = [p50, p99, p999].map(|time| time.as_secs_f64() * 1_000.0);
        Self { p50, p99, p999 }
    }
}

pub(super) fn shown(queued: &[Queued]) -> String {
    let head = [
        "batch",
        "clients",
        "waiting",
        "runs/s",
        "start ms",
        "at half load",
        "commits/s",
        "CPU µs/run",
        "clients'",
        "bytes/waiting",
        "restart s",
    ];
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let start = |ms: &Option<StartMs>| {
        let ms = ms.as_ref();
        or_none(ms.map(|ms| format!("{:.1} / {:.1} / {:.1}", ms.p50, ms.p99, ms.p999)))
    };
    let rows = queued.iter().map(|row| {
        let memory = row.memory.as_ref();
        let restarted = memory.and_then(|memory| memory.bytes_after_restart);
        vec![
            grouped(row.batch),
            grouped(row.clients),
            grouped(row.waiting),
            format!("{:.0}", row.runs_per_s),
            start(&row.start_idle),
            start(&row.start_half_load),
            format!("{:.0}", row.commits_per_s),
            format!("{:.1}", row.cpu_us_per_run),
            format!("{:.1}", row.client_cpu_us_per_run),
            or_none(restarted.map(|bytes| format!("{bytes:.0}"))),
            or_none(row.restart_s.map(|time| format!("{time:.1}"))),
        ]
    });
    let rows = std::iter::once(head.map(str::to_owned).to_vec()).chain(rows).collect();
    format!(
        "{}\nA run is submitted, claimed and completed, each durable in the store. Server and clients share this machine.\n\
         Start: from when a run is to be submitted to the answer that gives it to a worker, p50 / p99 / p99.9.\n",
        table::rows(rows, 0)
    )
}

/// What was measured, and what a server that is started again is measured by.
pub(super) struct Measured {
    queued: Queued,
    /// What was resident before anything was submitted, in KiB.
    memory_empty: u32,
    /// Runs that wait in the end.
    waiting: u64,
}

/// Measures a queue of a server, with as many runs waiting from the beginning as are asked for.
pub(super) async fn measure(
    typed: &QueueBenchArgs,
    subject: &Subject,
    door: &Door,
    progress: &Progress,
) -> Result<Measured, Ending> {
    let batch = usize::try_from(typed.batch).expect("a small number");
    let memory_empty = subject.used().memory;
    if typed.waiting > 0 {
        load::fill(door, typed.waiting, progress).await?;
    }
    let memory = (typed.waiting > 0).then(|| WaitingMemory {
        bytes_grown: bytes_each(subject.used().memory, memory_empty, typed.waiting),
        bytes_after_restart: None,
    });
    progress.show(format_args!("batches of {batch}, {} clients: measuring", typed.clients));
    let load = Load::begin(door, batch, typed.clients);
    // Connections are made, and the first batches are under way.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let used = || {
        [
            subject.used(),
            Used::by_this_process(),
            typed.engine.map_or_else(Used::default, Used::by_family),
        ]
    };
    let (before, watch) = (subject.metrics().await?, Stopwatch::start());
    let ((submitted, completed), cpu) = (load.counts(), used());
    tokio::time::sleep(Duration::from_secs(typed.seconds.into())).await;
    let (counts, used) = (load.counts(), used());
    let (after, seconds) = (subject.metrics().await?, watch.elapsed().as_secs_f64());
    let runs = f64_of((counts.0 - submitted).min(counts.1 - completed).max(1));
    let [server, clients, engine] = [0, 1, 2].map(|place| {
        let cpu: Duration = used[place].cpu.saturating_sub(cpu[place].cpu);
        cpu.as_secs_f64() * 1e6 / runs
    });
    let (submitted, completed) = load.end().await?;
    let mut queued = Queued {
        batch: typed.batch,
        clients: typed.clients,
        waiting: typed.waiting,
        runs_per_s: runs / seconds,
        start_idle: None,
        start_half_load: None,
        half_load_runs_per_s: None,
        commits_per_s: (after.commits() - before.commits()) / seconds,
        cpu_us_per_run: server,
        client_cpu_us_per_run: clients,
        engine_cpu_us_per_run: typed.engine.map(|_| engine),
        memory,
        restart_s: None,
    };
    // Where runs wait, one that is submitted is not the only one to be started.
    if typed.waiting == 0 {
        queued.add_starts(typed, door, progress).await?;
    }
    let waiting = (typed.waiting + submitted).saturating_sub(completed);
    Ok(Measured { queued, memory_empty, waiting })
}

impl Queued {
    async fn add_starts(
        &mut self,
        typed: &QueueBenchArgs,
        door: &Door,
        progress: &Progress,
    ) -> Result<(), Ending> {
        progress.show("measuring how soon a run is started that nothing keeps waiting");
        self.start_idle = Some(latency::idle(door).await?.into());
        progress.show("measuring how soon a run is started at half of the load");
        let pace = Pace {
            batch: usize::try_from(typed.batch).expect("a small number"),
            clients: typed.clients,
            runs_per_s: self.runs_per_s / 2.0,
            length: Duration::from_secs(typed.seconds.into()),
        };
        let paced = latency::paced(door, pace).await?;
        self.half_load_runs_per_s = Some(paced.runs_per_s);
        self.start_half_load = Some(paced.latencies.into());
        Ok(())
    }
}

impl Measured {
    /// What was measured, of one server.
    pub(super) fn queued(self) -> Queued {
        self.queued
    }

    /// The same with a server that was started again on what waits: how long until it gave a run, and what it has in memory.
    pub(super) fn restarted(self, took: Duration, memory: u32) -> Queued {
        let bytes = bytes_each(memory, self.memory_empty, self.waiting);
        let memory = self.queued.memory;
        let memory =
            memory.map(|memory| WaitingMemory { bytes_after_restart: Some(bytes), ..memory });
        Queued { restart_s: Some(took.as_secs_f64()), memory, ..self.queued }
    }
}

/// Claims until a run is given.
pub(super) async fn claim_first(door: &Door) -> Result<(), Ending> {
    let mut worker = Worker::open(door, "first".to_owned()).await?;
    while worker.claim(1, 1_000).await?.given.is_empty() {}
    Ok(())
}

fn f64_of(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

/// How many more bytes each of so many takes, from sizes in KiB.
fn bytes_each(now: u32, before: u32, count: u64) -> f64 {
    f64::from(now.saturating_sub(before)) * 1_024.0 / f64_of(count.max(1))
}
