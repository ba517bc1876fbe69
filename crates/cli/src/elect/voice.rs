//! What a candidate says: log lines by level on stderr, transitions on stdout.
//!
//! There are ten moments that a log tells. In the place of the Redis scheduler they are told in its words, capitals
//! and all, since people search and alert by them; else in ours.

use serde_json::Value;
use tracing::Level;

use crate::args::OutputFormat;
use crate::outlet::OutletStream;
use crate::transitions::{Subject, Transitions};

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
    out: Option<Transitions>,
}

impl Voice {
    /// One that tells transitions in this form; the Redis scheduler told none on stdout.
    pub(super) fn new(
        dialect: LogDialect,
        election: &str,
        node: &str,
        output: OutputFormat,
    ) -> Self {
        let subject = Subject {
            kind: "election",
            name: election.to_owned(),
            node: node.to_owned(),
            event_chars: 9,
        };
        let out = match dialect {
            LogDialect::Ours => Some(Transitions::new(subject, output, OutletStream::Stdout)),
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
        if let Some(out) = &self.out {
            out.tell(event, words, facts);
        }
    }

    /// Waits until all is written that somebody reads, but not for long.
    pub(super) fn finish(mut self) {
        if let Some(out) = self.out.take() {
            out.finish();
        }
    }
}
