//! The spool: what a worker must not forget when its process dies.
//!
//! A run that was begun may have done something, and a result that no server has taken exists only here. So a worker writes
//! down, in a directory of its own,
//!
//! - **who it is**: the number of this life, durable before the first request leaves, so that servers tell a former life that
//!   comes late from this one;
//! - **what it begins**, before it begins it. The next life reports what was begun and has no result as `died`;
//! - **results**, durable before they are reported, and before the run's place is given to another;
//! - **what is over**: a server has taken the result, or the run was lost.
//!
//! What it begins is not synced: that outlives the death of the process, and after the death of the machine nothing that was
//! begun executes. Then, and whenever the log of begins may not be whole, the new life says `since`, and servers wait for its
//! former runs as for those of a worker that fell silent.
//!
//! # The directory
//!
//! ```text
//! DIR/NAME/lock       held while a worker uses the directory; names its process
//! DIR/NAME/programs   held by what guards the programs of the worker, which ends with them; never by a program
//! DIR/NAME/log        what is written down
//! DIR/NAME/log.tmp    a log that was being made at a stop; made again
//! DIR/NAME/damaged-N  a log of which something could not be read; kept for a person, the last 8 of them
//! ```
//!
//! A line of the log is a checksum, a blank, a [`record::Record`] as JSON, and a newline: a person can read it. Each start reads the log
//! and makes a new one, with nothing in it but what is not over; so does a log that has grown to several times of that. A last line
//! without an end is what a crash left, and is cut. Any other line that cannot be read is damage.
//!
//! # When the disk is full
//!
//! The worker claims nothing more, gives back what it has not begun, says so once, and keeps results in memory, from where
//! they are reported. Every second it tries to write a new log with all that it has, and goes on when that was possible. Any other
//! failure of the disk is met in the same way; after a failed sync nothing that was written before is relied on.

mod journal;
mod lock;
mod log;
mod record;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use client::worker::{DoneRun, HeldRun, RunResult};

pub(crate) use self::journal::Journal;
use self::log::{Log, Reading};
use self::record::{FORMAT, LifeRecord};
use crate::clock;

/// How long a worker waits for programs of a former life.
const PROGRAMS_PATIENCE: Duration = Duration::from_secs(30);

/// The spool of one worker, in a directory of its own.
pub struct Spool {
    /// Both are held for as long as the spool is used.
    _lock: File,
    programs: Arc<OwnedFd>,
    log: Log,
    incarnation: u64,
    since: u64,
    left: Vec<DoneRun>,
}

/// Why a spool cannot be used. Each variant is one thing to do about it.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// Give the worker another name.
    #[error("a worker with a spool cannot be called {0:?}: give it another name")]
    Name(String),
    /// Another process has it: end that one, or give this worker another name.
    #[error("another worker uses the spool {path:?}{}: one name, one process", holder(*pid))]
    Taken {
        /// Where it is.
        path: PathBuf,
        /// Who has it, if that is known.
        pid: Option<u32>,
    },
    /// Programs of a former life execute still: end them.
    #[error(
        "after {waited:?} programs of a former life of this worker execute still: end those below the processes that `fuser {}` \
         names (`pstree -p PID`), not these themselves: they guard the programs, and end with them", path.display()
    )]
    ProgramsExecute {
        /// The file that their guards hold.
        path: PathBuf,
        /// So long was waited for them.
        waited: Duration,
    },
    /// A newer version wrote it: upgrade, or give the worker another spool.
    #[error(
        "the spool {path:?} has format {found}, and this version knows {FORMAT}: upgrade, or give the worker another spool"
    )]
    Newer {
        /// Where it is.
        path: PathBuf,
        /// Its format.
        found: u64,
    },
    /// It cannot be read or written: make room, or correct the permissions.
    #[error("the spool cannot be used: {what} {path:?}: {why}")]
    Unusable {
        /// Which file.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What happened.
        why: std::io::Error,
    },
}

fn holder(pid: Option<u32>) -> String {
    pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
}

impl Spool {
    /// Opens the spool of the worker with this name below `dir`, and makes it if it is not there. Waits up to 30 seconds until no
    /// program of a former life executes.
    pub async fn open(dir: impl AsRef<Path>, name: &str) -> Result<Self, SpoolError> {
        Self::open_within(dir.as_ref(), name, PROGRAMS_PATIENCE).await
    }

    async fn open_within(dir: &Path, name: &str, patience: Duration) -> Result<Self, SpoolError> {
        if matches!(name, "" | "." | "..") || name.contains('/') {
            return Err(SpoolError::Name(name.to_owned()));
        }
        let dir = dir.join(name);
        lock::make_private(&dir)?;
        let lock = lock::take(&dir).await?;
        let programs = lock::programs(&dir, patience).await?;
        let reading = log::read(&dir)?;
        Self::begin_life(&dir, name, reading, lock, programs)
    }

    /// Writes the log of a new life, which is durable when this returns.
    fn begin_life(
        dir: &Path,
        name: &str,
        reading: Reading,
        lock: File,
        programs: OwnedFd,
    ) -> Result<Self, SpoolError> {
        if let Some(damage) = &reading.damage {
            let kept = log::set_aside(dir, clock::wall_us())?;
            tracing::error!(
                %damage, kept = %kept.display(), results = reading.results.len(),
                "the spool was damaged: what can be read of it is kept"
            );
        }
        let incarnation = clock::wall_us().max(reading.incarnation + 1);
        let boot = boot_id();
        let is_whole = reading.is_whole() && boot.is_some() && boot == reading.boot;
        let since = if is_whole { reading.since } else { incarnation };
        let life = LifeRecord {
            format: FORMAT,
            name: name.to_owned(),
            incarnation,
            since,
            boot: boot.unwrap_or_default(),
        };
        let mut results = reading.results;
        results.extend(reading.begun.into_iter().map(|held| (held.clone(), died(held))));
        let left = results.values().cloned().collect();
        let log = Log::create(dir, life, BTreeSet::new(), results)
            .map_err(|why| log::unusable(dir, "write", why))?;
        Ok(Self { _lock: lock, programs: Arc::new(programs), log, incarnation, since, left })
    }

    /// A lock that the guards of programs hold, so that it is free only when all of their trees are empty.
    pub fn programs_lock(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.programs)
    }

    /// How many results of former lives no server has taken yet.
    pub fn unreported(&self) -> usize {
        self.left.len()
    }

    pub(crate) fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Lives before this one may have begun what nobody wrote down.
    pub(crate) fn since(&self) -> u64 {
        self.since
    }

    /// What former lives left to be reported.
    pub(crate) fn left(&self) -> &[DoneRun] {
        &self.left
    }
}

impl fmt::Debug for Spool {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Spool")
            .field("incarnation", &self.incarnation)
            .field("unreported", &self.left.len())
            .finish_non_exhaustive()
    }
}

/// What a run that a former life had begun is reported as.
fn died(held: HeldRun) -> DoneRun {
    DoneRun {
        id: held.id,
        token: held.token,
        result: RunResult::Died,
        final_failure: false,
        retry_after_ms: None,
        error: Some("the worker's process ended before it knew what came of the run".to_owned()),
        exit_code: None,
        started: None,
        took_ms: None,
    }
}

/// Another one after each start of the machine; nothing, if it cannot be read.
fn boot_id() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}
