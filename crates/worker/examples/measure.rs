//! Handlers per second of one worker beside a bare loop of claims, in one run: `measure http://127.0.0.1:7400 20000`.
//!
//! The bare loop claims 100 runs at a time, reports them with its next claim, and calls nothing. The worker has as many places,
//! and a handler that returns at once: in memory, and with a spool. It also tells how much memory 1,000 runs take that are under way.

use std::error::Error;
use std::time::Duration;

use client::Client;
use client::queue::{BatchSpec, RunSpec};
use client::worker::{ClaimRequest, DoneRun, RunResult};
use tokio::sync::mpsc;
use tokio::time::Instant;
use worker::{Context, Control, HandlerError, Spool, Worker};

const CAPACITY: usize = 100;

async fn submit(client: &Client, queue: &str, count: usize) -> Result<(), Box<dyn Error>> {
    let run = RunSpec {
        handler: Some("echo".to_owned()),
        payload: Some(serde_json::json!({"n": 1})),
        ..RunSpec::default()
    };
    for from in (0..count).step_by(1_000) {
        let runs = vec![run.clone(); (count - from).min(1_000)];
        client.submit_batch(&BatchSpec { queue: queue.to_owned(), runs }).await?;
    }
    Ok(())
}

async fn bare_loop(client: &Client, queue: &str, count: usize) -> Result<Duration, Box<dyn Error>> {
    let begun = Instant::now();
    let mut said = ClaimRequest {
        worker: queue.to_owned(),
        incarnation: 1,
        queues: vec![queue.to_owned()],
        free: CAPACITY as u64,
        wait_ms: 1_000,
        ..ClaimRequest::default()
    };
    let mut ended = 0;
    while ended < count {
        said.number += 1;
        said.settled = said.number - 1;
        let told = client.claim(&said).await?;
        ended += told.acks.len();
        said.cookie = Some(told.cookie);
        let done = told.runs.into_iter().map(|run| DoneRun {
            id: run.id,
            token: run.token,
            result: RunResult::Succeeded,
            final_failure: false,
            retry_after_ms: None,
            error: None,
            exit_code: None,
            started: None,
            took_ms: None,
        });
        said.done = done.collect();
    }
    Ok(begun.elapsed())
}

async fn handlers(
    client: &Client,
    queue: &str,
    count: usize,
    spool: Option<Spool>,
) -> Result<Duration, Box<dyn Error>> {
    let echo = |_: Context, _: serde_json::Value| std::future::ready(Ok::<(), HandlerError>(()));
    let builder = Worker::new(queue, [queue]).servers([client.clone()]).capacity(CAPACITY);
    let mut builder = builder.handler("echo", echo);
    if let Some(spool) = spool {
        builder = builder.spool(spool);
    }
    let worker = builder.build()?;
    let sight = worker.sight();
    let (tell, control) = mpsc::channel(1);
    let begun = Instant::now();
    let drains = async {
        while sight.begun.get() < count as u64 || sight.held.get() + sight.unreported.get() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let took = begun.elapsed();
        tell.send(Control::Drain).await.map(|()| took)
    };
    let (ended, took) = tokio::join!(worker.run(control), drains);
    ended?;
    Ok(took?)
}

/// How many KiB this process has more when it has 1,000 runs under way.
async fn memory_of_a_thousand(client: &Client) -> Result<u64, Box<dyn Error>> {
    submit(client, "under-way", 1_000).await?;
    let wait = async |context: Context, _: serde_json::Value| {
        context.told_to_end().await;
        Ok::<(), HandlerError>(())
    };
    let builder = Worker::new("under-way", ["under-way"]).servers([client.clone()]);
    let worker = builder.capacity(1_000).handler("echo", wait).build()?;
    let sight = worker.sight();
    let (tell, control) = mpsc::channel(1);
    let before = resident_kib()?;
    let looks = async {
        while sight.begun.get() < 1_000 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let now = resident_kib();
        let _told = tell.send(Control::Stop).await;
        now
    };
    let (ended, now) = tokio::join!(worker.run(control), looks);
    ended?;
    Ok(now?.saturating_sub(before))
}

fn resident_kib() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let client = Client::new(&args.next().ok_or("measure URL RUNS")?)?;
    let count: usize = args.next().ok_or("measure URL RUNS")?.parse()?;
    let dir = tempfile::tempdir()?;
    let under_way = memory_of_a_thousand(&client).await?;
    for queue in ["bare-1", "memory", "spool", "bare-2"] {
        submit(&client, queue, count).await?;
    }
    let spool = Spool::open(dir.path(), "spool").await?;
    let rows = [
        ("bare loop of claims", bare_loop(&client, "bare-1", count).await?),
        ("handlers", handlers(&client, "memory", count, None).await?),
        ("handlers, with a spool", handlers(&client, "spool", count, Some(spool)).await?),
        ("bare loop of claims, again", bare_loop(&client, "bare-2", count).await?),
    ];
    for (name, took) in rows {
        let runs = u32::try_from(count)?;
        println!("{name:<28} {:>10.0} runs/s", f64::from(runs) / took.as_secs_f64());
    }
    println!("{:<28} {under_way:>10} KiB", "1,000 runs under way");
    Ok(())
}
