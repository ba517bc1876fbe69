//! `-- triggers`: how fast, how punctual and how large is a server with triggers, on this machine?
//!
//! What is measured is the binary itself (`--watchbell`), from outside: a store is filled with triggers, `watchbell dev`
//! is started on it as a child, and so is a receiver for its webhooks. The clock of the receiver, the operating
//! system's account of the processes and `/metrics` are all that is looked at. Beside it, in the same run, a
//! bare client loop sends the same bytes to the same receiver, because a figure alone says little.
//!
//! - [`memory`], [`lateness`], [`fires`], [`idle`], [`takeover`]: what can be measured
//! - [`crowd`], [`fill`]: the triggers, and how they get into a store
//! - [`subject`], [`receiver`], [`bare`]: the three kinds of children, started by [`child`]; [`cluster`]: several subjects
//! - [`usage`], [`metrics`], [`machine`]: what is looked at
//! - [`report`]: what is told

mod args;
mod bare;
mod child;
mod cluster;
mod crowd;
mod fill;
mod fires;
mod idle;
mod lateness;
mod machine;
mod memory;
mod metrics;
mod receiver;
mod report;
mod subject;
mod takeover;
mod usage;

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser as _;
use engine::instant::Instant;
use store::machine::{Machine as _, System};
use tempfile::TempDir;

use args::{Args, Common, Measurement, Output};
use report::Report;

/// Why a measurement ended without figures.
#[derive(Debug)]
pub(crate) struct Ending(String);

impl Ending {
    fn failed(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

impl<E: std::error::Error> From<E> for Ending {
    fn from(why: E) -> Self {
        Self(why.to_string())
    }
}

/// Runs one of the measurements, or is one of their children.
pub fn main() -> ExitCode {
    // The first word brought us here.
    let args = Args::parse_from(std::env::args_os().skip(1));
    let done = match &args.measurement {
        Measurement::Receiver(typed) => receiver::serve::serve(typed),
        Measurement::Bare(typed) => bare::run(typed),
        measured => run(measured),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Ending(why)) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn run(measured: &Measurement) -> Result<(), Ending> {
    match measured {
        Measurement::Memory(typed) => show(&typed.common, memory::memory(typed)).await,
        Measurement::Lateness(typed) => show(&typed.common, lateness::lateness(typed)).await,
        Measurement::Fires(typed) => show(&typed.common, fires::fires(typed)).await,
        Measurement::Idle(typed) => show(&typed.common, idle::idle(typed)).await,
        Measurement::Takeover(typed) => show(&typed.common, takeover::takeover(typed)).await,
        Measurement::Receiver(_) | Measurement::Bare(_) => unreachable!("these are children"),
    }
}

/// Shows what a measurement found. If it is interrupted, its children and its directory go with it.
async fn show(
    common: &Common,
    measuring: impl Future<Output = Result<Report, Ending>>,
) -> Result<(), Ending> {
    let report = tokio::select! {
        report = measuring => report?,
        _ = tokio::signal::ctrl_c() => return Err(Ending::failed("the measurement was interrupted")),
    };
    let text = match common.output {
        Output::Table => report.table(),
        Output::Json => report.json(),
    };
    Ok(io::stdout().write_all(text.as_bytes())?)
}

/// What every measurement needs.
struct Bench {
    /// The binary that is measured.
    watchbell: PathBuf,
    progress: Progress,
    dir: TempDir,
    stores: u32,
}

impl Bench {
    fn new(common: &Common) -> Result<Self, Ending> {
        let dir = tempfile::Builder::new().prefix("watchbell-bench-").tempdir_in(&common.dir);
        let dir = dir.map_err(|why| {
            let place = common.dir.display();
            Ending::failed(format!("--dir: cannot make a directory in {place}: {why}"))
        })?;
        Ok(Self { watchbell: common.watchbell.clone(), progress: Progress, dir, stores: 0 })
    }

    /// A place for a store that was not used before.
    fn place(&mut self) -> PathBuf {
        self.stores += 1;
        self.dir.path().join(format!("store-{}", self.stores))
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Waits until this instant.
    async fn wait_until(&self, until: Instant, what: &str) {
        loop {
            let left = until.0 - now().0;
            if left <= 0 {
                return;
            }
            self.progress
                .show(format_args!("{what}: {} s left", left.unsigned_abs().div_ceil(1_000)));
            tokio::time::sleep(Duration::from_millis(left.unsigned_abs().min(1_000))).await;
        }
    }

    async fn wait(&self, length: Duration, what: &str) {
        self.wait_until(now().after(length), what).await;
    }
}

/// What takes so long, on stderr, for those who watch.
struct Progress;

impl Progress {
    fn show(&self, what: impl std::fmt::Display) {
        if io::stderr().is_terminal() {
            eprint!("\x1b[2K{what}\r");
        }
    }
}

/// Removes a store that is no longer needed: several large ones side by side fill a disk.
fn remove(store: &Path) {
    // What is left goes with the directory around it.
    let _ = std::fs::remove_dir_all(store);
}

/// The wall clock, in microseconds since 1970: the same for all processes of this machine.
fn wall_us() -> u64 {
    System.wall_us()
}

/// The wall clock.
fn now() -> Instant {
    Instant(i64::try_from(wall_us() / 1_000).unwrap_or(i64::MAX))
}
