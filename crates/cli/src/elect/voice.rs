//! What a candidate says: log lines by level on stderr, transitions on stdout.
//!
//! There are ten moments that a log tells. In the place of the Redis scheduler they are told in its words, capitals
//! and all, since people search and alert by them; else in ours.
//!
//! Transitions are written by a thread of their own. Whoever reads stdout slowly, or not at all, holds up nothing: what
//! does not fit in the queue is left out.

use std::io::{self, Write};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use client::Timestamp;
use engine::limits::TRANSITIONS_WAITING_MAX;
use serde_json::{Map, Value, json};
use store::machine::{Machine, System};
use tracing::Level;

use crate::args::OutputFormat;
use crate::exit::say;

/// A moment that the log tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ElectMoment {
    CannotCreate,
    CannotWrite,
    CannotServe,
    Created,
    Becoming,
    Writing,
    Ending,
    Closing,
    Creating,
    Refreshing,
}

impl ElectMoment {
    /// At which level it is told, how the Redis scheduler says it, and how we do.
    const fn words(self) -> (Level, &'static str, &'static str) {
        match self {
            Self::CannotCreate => (Level::ERROR, "Unable to create leader", "cannot campaign"),
            Self::CannotWrite => {
                (Level::ERROR, "Error writing leader", "the store takes no renewal or claim")
            }
            Self::CannotServe => {
                (Level::ERROR, "Unable to start HTTP Server", "metrics cannot be served")
            }
            Self::Created => (Level::INFO, "Created new leader", "campaigning"),
            Self::Becoming => (Level::INFO, "Becoming the leader", "leading"),
            Self::Writing => (Level::DEBUG, "Writing leader", "taking the claim"),
            Self::Ending => (Level::DEBUG, "Ending Goroutine.", "campaigning no more"),
            Self::Closing => (Level::DEBUG, "Closing gracefully.", "closing the session"),
            Self::Creating => (Level::DEBUG, "Creating leader", "opening the store"),
            Self::Refreshing => (Level::DEBUG, "Refreshing leader lock", "renewed"),
        }
    }
}

/// Whose words the log uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LogDialect {
    Ours,
    /// With the key that the Redis scheduler wrote its leader to.
    Ancestor(String),
}

/// Who says something about which election.
pub(super) struct Voice {
    pub(super) dialect: LogDialect,
    pub(super) election: String,
    pub(super) node: String,
    out: Option<Teller>,
}

impl Voice {
    /// One that tells transitions in this form; the Redis scheduler told none on stdout.
    pub(super) fn new(
        dialect: LogDialect,
        election: &str,
        node: &str,
        output: OutputFormat,
    ) -> Self {
        let out = match dialect {
            LogDialect::Ours => Some(Teller::new(output)),
            LogDialect::Ancestor(_) => None,
        };
        Self { dialect, election: election.to_owned(), node: node.to_owned(), out }
    }

    /// Tells a moment, with what else there is to say about it.
    pub(super) fn log(&self, moment: ElectMoment, detail: Option<&str>) {
        let (level, theirs, ours) = moment.words();
        let (election, node) = (&*self.election, &*self.node);
        match (&self.dialect, level) {
            (LogDialect::Ancestor(leader_key), Level::ERROR) => {
                tracing::error!(uuid = node, leader_key, detail, "{theirs}");
            }
            (LogDialect::Ancestor(leader_key), Level::INFO) => {
                tracing::info!(uuid = node, leader_key, detail, "{theirs}");
            }
            (LogDialect::Ancestor(leader_key), _) => {
                tracing::debug!(uuid = node, leader_key, detail, "{theirs}");
            }
            (LogDialect::Ours, Level::ERROR) => tracing::error!(election, node, detail, "{ours}"),
            (LogDialect::Ours, Level::INFO) => tracing::info!(election, node, detail, "{ours}"),
            (LogDialect::Ours, _) => tracing::debug!(election, node, detail, "{ours}"),
        }
    }

    /// Tells a transition on stdout: `words` for people, `facts` for programs.
    pub(super) fn tell(&self, event: &str, words: &str, facts: Value) {
        let Some(out) = &self.out else { return };
        let wall = i64::try_from(System.wall_us()).unwrap_or_default();
        let time = Timestamp::from_microsecond(wall).unwrap_or_default();
        let line = match out.output {
            OutputFormat::Table => format!("{time:.3}  {event:<9}  {words}\n"),
            OutputFormat::Json => {
                let mut line = Map::new();
                line.insert("time".into(), json!(format!("{time:.3}")));
                line.insert("event".into(), json!(event));
                line.insert("election".into(), json!(self.election));
                line.insert("node".into(), json!(self.node));
                if let Value::Object(facts) = facts {
                    line.extend(facts);
                }
                format!("{}\n", Value::Object(line))
            }
        };
        out.put(line);
    }

    /// Waits until all is written that somebody reads, but not for long.
    pub(super) fn finish(mut self) {
        if let Some(out) = self.out.take() {
            out.finish();
        }
    }
}

/// The thread that writes to stdout.
struct Teller {
    output: OutputFormat,
    lines: SyncSender<String>,
    thread: JoinHandle<()>,
}

/// How long the last lines may take, and how often it is looked.
const FINISH_MAX: Duration = Duration::from_millis(500);
const FINISH_STEP: Duration = Duration::from_millis(5);

impl Teller {
    fn new(output: OutputFormat) -> Self {
        let (lines, to_write) = sync_channel::<String>(TRANSITIONS_WAITING_MAX);
        let thread = thread::spawn(move || {
            let mut is_told = false;
            for line in to_write {
                let mut out = io::stdout().lock();
                let written = out.write_all(line.as_bytes()).and_then(|()| out.flush());
                if let Err(why) = written
                    && !std::mem::replace(&mut is_told, true)
                {
                    say(&format!("transitions cannot be written to stdout: {why}; it goes on"));
                }
            }
        });
        Self { output, lines, thread }
    }

    fn put(&self, line: String) {
        if let Err(TrySendError::Full(_)) = self.lines.try_send(line) {
            tracing::warn!("nobody reads stdout: a transition was left out");
        }
    }

    fn finish(self) {
        let Self { lines, thread, .. } = self;
        drop(lines);
        let mut waited = Duration::ZERO;
        while !thread.is_finished() && waited < FINISH_MAX {
            thread::sleep(FINISH_STEP);
            waited += FINISH_STEP;
        }
    }
}
