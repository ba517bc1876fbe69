//! What people ask of a trigger, and what they are told.

use serde_json::value::RawValue;

use crate::id::{RunId, TriggerId, Unique};
use crate::instant::Instant;
use crate::limits::{RUNS_PER_SHARD_MAX, TRIGGERS_PER_SHARD_MAX};
use crate::trigger::Definition;

/// What is asked.
#[derive(Debug, Clone)]
pub enum Command {
    /// Make a trigger whose name is not taken.
    Create {
        /// What it is.
        definition: Box<Definition>,
        /// What the user wrote.
        draft: Box<RawValue>,
        /// Who.
        author: String,
    },
    /// Give a trigger another text.
    Replace {
        /// Which.
        trigger: Unique,
        /// What it is from now on.
        definition: Box<Definition>,
        /// What the user wrote.
        draft: Box<RawValue>,
        /// Who.
        author: String,
        /// Only if it still has this revision.
        revision: Option<u64>,
    },
    /// Let nothing fire.
    Pause {
        /// Which.
        trigger: Unique,
        /// Who.
        author: String,
        /// Why.
        note: String,
        /// Until when; for ever, if it is not said.
        until: Option<Instant>,
    },
    /// Let it fire again.
    Resume {
        /// Which.
        trigger: Unique,
        /// Who.
        author: String,
    },
    /// Let nothing fire ever again.
    Cancel {
        /// Which.
        trigger: Unique,
        /// Who.
        author: String,
    },
    /// Forget it.
    Delete {
        /// Which.
        trigger: Unique,
        /// Who.
        author: String,
    },
    /// Run it now, whatever its schedule says.
    Run {
        /// Which.
        trigger: Unique,
        /// Who.
        author: String,
    },
}

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done {
    /// It has this id.
    Created(TriggerId),
    /// It has this revision.
    Replaced {
        /// The new one.
        revision: u64,
    },
    /// It said the same before.
    Unchanged,
    /// Nothing fires.
    Paused,
    /// It fires again.
    Resumed,
    /// It never fires again.
    Cancelled,
    /// It is gone.
    Deleted,
    /// This run was started.
    Started(RunId),
}

/// Why nothing was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// Look at the name.
    #[error("there is no such trigger")]
    NoSuchTrigger,
    /// Take another name, or replace that one.
    #[error("the name is taken by {0}")]
    NameTaken(TriggerId),
    /// Read it again, and decide anew.
    #[error("somebody else has changed it: it has revision {found} now")]
    RevisionMoved {
        /// What it has.
        found: u64,
    },
    /// Nothing to do.
    #[error("it is paused already")]
    AlreadyPaused,
    /// Nothing to do.
    #[error("it is not paused")]
    NotPaused,
    /// Make another one.
    #[error("it was cancelled, and a cancelled trigger never fires again")]
    AlreadyCancelled,
    /// Delete some, or begin with more shards.
    #[error("a shard has at most {TRIGGERS_PER_SHARD_MAX} triggers, and this one is full")]
    TooManyTriggers,
    /// Wait until some have ended.
    #[error("a shard has at most {RUNS_PER_SHARD_MAX} unfinished runs, and this one has as many")]
    TooManyRuns,
}
