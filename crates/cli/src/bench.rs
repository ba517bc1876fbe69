//! `watchbell bench`: how fast is a server, on this machine and a store of yours?
//!
//! `queue` and `overload` are in files of their own. `fires`: how many webhooks per second does a server send and record, on this store?
//!
//! A store is filled with triggers that are due every second, `watchbell dev` or `watchbell server` is started
//! on it as a child, and this process is the receiver of its webhooks. The figures are what the server's own
//! `/metrics` say. What matters to those who change Watchbell (memory, lateness on arrival, idle cost, a bare
//! client loop beside it) is measured by `bench/` in its source.

mod fill;
mod overload;
mod queue;
mod subject;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use engine::instant::Instant;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use store::clock::Stopwatch;
use store::machine::{Machine as _, System};
use store::{Range, Store, StoreUrl, conformance, open_existing, open_or_create};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::args::OutputFormat;
use crate::args::bench::{BenchVerb, FiresArgs, QueueBenchArgs};
use crate::check::unless_interrupted;
use crate::exit::Ending;
use crate::progress::Progress;
use crate::table::{self, grouped};
use subject::{Metrics, Subject};

/// Hosts over which webhooks are spread: to one host only so many are under way at once.
const HOSTS: usize = 8;

/// For connections to be made and catching up to be over.
const WARM_UP: Duration = Duration::from_secs(3);

/// How often the API is asked for something while a server is measured.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// How often its memory is looked at.
const MEMORY_LOOKS: u32 = 10;

/// What a server did when so many webhooks were due every second.
#[derive(Serialize)]
struct Fired {
    asked_per_s: u32,
    recorded_per_s: f64,
    /// Slots that ended in any other way.
    not_succeeded: u64,
    /// 99 of 100 left no later than this; as exact as the server's histogram.
    late_p99_ms: Option<f64>,
    commits_per_s: f64,
    /// Time on a processor for each that was recorded.
    cpu_us_each: f64,
    /// The most memory that the server had, in MB.
    memory_max_mb: f64,
    /// What was resident, in MB: at equal distances, from the first second to the last.
    memory_mb: Vec<f64>,
    /// 99 of 100 requests for a page of triggers were answered within this.
    api_p99_ms: f64,
    stopped_after_s: f64,
}

/// Measures, and shows what was found. If it is interrupted, the server and the directory go with it.
pub(crate) async fn bench(verb: &BenchVerb) -> Result<(), Ending> {
    let measured = async {
        match verb {
            BenchVerb::Fires(typed) => Ok(text(typed.site.output, &fires(typed).await?, shown)),
            BenchVerb::Overload(typed) => {
                Ok(text(typed.site.output, &[overload::measure(typed).await?], overload::shown))
            }
            BenchVerb::Queue(typed) => {
                Ok(text(typed.site.output, &[queues(typed).await?], queue::shown))
            }
        }
    };
    let Some(text) = unless_interrupted(measured).await else {
        return Err(Ending::failed("the measurement was interrupted"));
    };
    let text: Result<String, Ending> = text;
    Ok(io::stdout().write_all(text?.as_bytes())?)
}

fn text<T: Serialize>(output: OutputFormat, rows: &[T], shown: fn(&[T]) -> String) -> String {
    match output {
        OutputFormat::Table => {
            let build = if cfg!(debug_assertions) { "This is an UNOPTIMISED BUILD.\n" } else { "" };
            format!("{}{build}", shown(rows))
        }
        OutputFormat::Json => {
            let json = serde_json::to_string_pretty(rows);
            format!("{}\n", json.expect("a plain struct always serializes"))
        }
    }
}

/// A directory for what is made meanwhile.
fn scratch(place: &Path) -> Result<TempDir, Ending> {
    let dir = tempfile::Builder::new().prefix("watchbell-bench-").tempdir_in(place);
    dir.map_err(|why| {
        let place = place.display();
        Ending::wrong_input(format!("--dir: cannot make a directory in {place}: {why}"))
    })
}

/// The store to measure on, which is empty.
async fn empty_store(url: &StoreUrl) -> Result<Store, Ending> {
    let store = open_or_create(url).await?;
    if store.scan(Range::all(), 1).await?.entries.is_empty() {
        return Ok(store);
    }
    Err(Ending::refused(format!(
        "--store: {url} is not empty, and would be emptied: give another database or prefix"
    )))
}

async fn swept(url: &StoreUrl) -> Result<(), Ending> {
    let emptied = conformance::sweep(&open_existing(url).await?, "").await;
    emptied
        .map(drop)
        .map_err(|why| Ending::failed(format!("the store could not be emptied: {why}")))
}

async fn queues(typed: &QueueBenchArgs) -> Result<queue::Queued, Ending> {
    let dir = scratch(&typed.site.dir)?;
    let data = dir.path().join("store");
    let subject = match &typed.site.store {
        Some(url) => {
            drop(empty_store(&StoreUrl::parse(url)?).await?);
            Subject::on_engine(&this_binary()?, url, dir.path()).await?
        }
        None => Subject::on_file(&this_binary()?, &data).await?,
    };
    let door = subject.door(dir.path());
    let measured = queue::measure(typed, &subject, &door, &Progress::on_stderr()).await?;
    subject.stop().await?;
    let queued = if typed.waiting > 0 && typed.site.store.is_none() {
        let watch = Stopwatch::start();
        let subject = Subject::on_file(&this_binary()?, &data).await?;
        queue::claim_first(&subject.door(dir.path())).await?;
        let queued = measured.restarted(watch.elapsed(), subject.used().memory);
        subject.stop().await?;
        queued
    } else {
        measured.queued()
    };
    if let Some(url) = &typed.site.store {
        swept(&StoreUrl::parse(url)?).await?;
    }
    Ok(queued)
}

fn shown(fired: &[Fired]) -> String {
    shown_rows(fired)
}

fn shown_rows<'a>(fired: impl IntoIterator<Item = &'a Fired>) -> String {
    let head = [
        "asked/s",
        "recorded/s",
        "not succeeded",
        "left p99 ≤ ms",
        "commits/s",
        "CPU µs each",
        "memory MB",
        "API p99 ms",
        "stop s",
    ];
    let rows = fired.into_iter().map(|row| {
        let late = row.late_p99_ms.map_or_else(|| "-".to_owned(), |late| format!("{late:.0}"));
        vec![
            grouped(row.asked_per_s),
            format!("{:.0}", row.recorded_per_s),
            grouped(row.not_succeeded),
            late,
            format!("{:.1}", row.commits_per_s),
            format!("{:.1}", row.cpu_us_each),
            format!("{:.0}", row.memory_max_mb),
            format!("{:.0}", row.api_p99_ms),
            format!("{:.1}", row.stopped_after_s),
        ]
    });
    let rows = std::iter::once(head.map(str::to_owned).to_vec()).chain(rows).collect();
    format!(
        "{}\nRecorded: succeeded, and durable in the store. Server and receiver share this machine.\n",
        table::rows(rows, 0)
    )
}

async fn fires(typed: &FiresArgs) -> Result<Vec<Fired>, Ending> {
    let binary = typed.server.clone().map_or_else(this_binary, Ok)?;
    let site = FiresSite::open(binary, typed.site.store.clone(), &typed.site.dir).await?;
    let mut fired = Vec::new();
    for rate in &typed.rates {
        fired.push(site.measure(*rate, typed.seconds).await?);
    }
    Ok(fired)
}

/// Where servers are measured: their binary and store, and the receivers of their webhooks.
struct FiresSite {
    binary: PathBuf,
    store: Option<String>,
    dir: TempDir,
    hosts: Vec<SocketAddr>,
    progress: Progress,
    /// They end with this.
    _receivers: JoinSet<()>,
}

impl FiresSite {
    async fn open(binary: PathBuf, store: Option<String>, place: &Path) -> Result<Self, Ending> {
        let dir = scratch(place)?;
        let (mut hosts, mut receivers) = (Vec::new(), JoinSet::new());
        for _ in 0..HOSTS {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            hosts.push(listener.local_addr()?);
            receivers.spawn(receive(listener));
        }
        let progress = Progress::on_stderr();
        Ok(Self { binary, store, dir, hosts, progress, _receivers: receivers })
    }
}

/// Says `ok` to whatever comes.
async fn receive(listener: TcpListener) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(async move {
            let ok = service_fn(|request: Request<Incoming>| async {
                request.into_body().collect().await?;
                Ok::<_, hyper::Error>(Response::new(Full::new(Bytes::from_static(b"ok"))))
            });
            // A sender that breaks off is the sender's affair.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), ok).await;
        });
        while connections.try_join_next().is_some() {}
    }
}

impl FiresSite {
    /// Measures a server with so many triggers that are due every second, for so many seconds.
    async fn measure(&self, rate: u32, seconds: u16) -> Result<Fired, Ending> {
        let Self { binary, dir, progress, .. } = self;
        let data = dir.path().join(format!("store-{rate}"));
        let url = match &self.store {
            Some(url) => StoreUrl::parse(url)?,
            None => StoreUrl::File(data.clone()),
        };
        let store = empty_store(&url).await?;
        progress.show(format_args!("making {} triggers", grouped(rate)));
        let begin = fill::fill(store, rate, &self.hosts).await?;
        let subject = match &self.store {
            Some(url) => Subject::on_engine(binary, url, dir.path()).await?,
            None => Subject::on_file(binary, &data).await?,
        };
        let warm = begin.max(now()).after(WARM_UP);
        progress.show(format_args!("{} per second: warming up", grouped(rate)));
        tokio::time::sleep(Duration::from_millis((warm.0 - now().0).max(0).unsigned_abs())).await;
        progress.show(format_args!("{} per second: measuring", grouped(rate)));
        let (before, used, watch) = (subject.metrics().await?, subject.used(), Stopwatch::start());
        let watched = watch_for(&subject, Duration::from_secs(seconds.into())).await?;
        let (after, seconds) = (subject.metrics().await?, watch.elapsed().as_secs_f64());
        let cpu = subject.used().cpu.saturating_sub(used.cpu);
        let memory_max = subject.used().memory_max;
        let stopped_after = subject.stop().await?;
        match &self.store {
            Some(_) => swept(&url).await?,
            None => std::fs::remove_dir_all(&data)?,
        }
        let rose = |read: fn(&Metrics) -> f64| read(&after) - read(&before);
        let recorded = rose(Metrics::succeeded);
        Ok(Fired {
            asked_per_s: rate,
            recorded_per_s: recorded / seconds,
            not_succeeded: whole(rose(Metrics::slots) - recorded),
            late_p99_ms: after.late_p99_ms(&before),
            commits_per_s: rose(Metrics::commits) / seconds,
            cpu_us_each: cpu.as_secs_f64() * 1e6 / recorded.max(1.0),
            memory_max_mb: megabytes(memory_max),
            memory_mb: watched.memory_mb,
            api_p99_ms: watched.api_p99.as_secs_f64() * 1e3,
            stopped_after_s: stopped_after.as_secs_f64(),
        })
    }
}

/// What was seen of a server while it was measured.
struct Watched {
    /// 99 of 100 requests for a page of triggers were answered within this.
    api_p99: Duration,
    memory_mb: Vec<f64>,
}

/// Asks a server for a page of triggers twenty times a second for so long, and looks at its memory.
async fn watch_for(subject: &Subject, length: Duration) -> Result<Watched, Ending> {
    let watch = Stopwatch::start();
    let (mut took, mut memory_mb) = (Vec::new(), Vec::new());
    while watch.elapsed() < length {
        if watch.elapsed()
            >= length * u32::try_from(memory_mb.len()).unwrap_or(u32::MAX) / MEMORY_LOOKS
        {
            memory_mb.push(megabytes(subject.used().memory));
        }
        took.push(subject.asked().await?);
        tokio::time::sleep(ASK_EVERY).await;
    }
    took.sort_unstable();
    let api_p99 = took.get(took.len() * 99 / 100).copied().unwrap_or_default();
    Ok(Watched { api_p99, memory_mb })
}

/// From KiB, which the kernel calls kB.
fn megabytes(kib: u32) -> f64 {
    f64::from(kib) * 1_024.0 / 1e6
}

/// The binary that this process runs.
fn this_binary() -> Result<PathBuf, Ending> {
    std::env::current_exe()
        .map_err(|why| Ending::failed(format!("cannot find the server to start: {why}")))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a count, far below 2^53"
)]
fn whole(count: f64) -> u64 {
    count.max(0.0).round() as u64
}

/// The wall clock.
fn now() -> Instant {
    Instant(i64::try_from(System.wall_us() / 1_000).unwrap_or(i64::MAX))
}
