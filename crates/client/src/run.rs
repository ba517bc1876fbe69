//! A run, as the API tells of it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::account::Reason;
use crate::output::RunProgress;
use crate::project::Occasion;

/// A run, from before its first attempt to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Run {
    /// Its id: the same on every attempt, on every node.
    pub id: String,
    /// The id of its trigger; none, if it was submitted to a queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<String>,
    /// Its trigger's name, if that is still there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether it does what its trigger says, or notifies somebody.
    #[serde(default)]
    pub kind: RunKind,
    /// What it tells of, if it is a notification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<Occasion>,
    /// The instant that it is a run of.
    pub slot: Timestamp,
    /// Whether somebody started it by hand.
    pub on_demand: bool,
    /// Where it is, or how it ended.
    pub state: RunState,
    /// If it waits: it goes on no sooner than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// When it ended, if it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// How many attempts were begun.
    pub attempt: u32,
    /// What came of the attempts; fewer than were begun if some are in doubt, under way, or were never sent.
    pub attempts: Vec<Attempt>,
    /// What it is as a run of a queue, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued: Option<QueuedPart>,
    /// The slots that this stands for, if it is no run but slots that were skipped. Its id is the one that a
    /// run of the last of them would have had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<Skipped>,
}

/// What a run is as a run of a queue.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueuedPart {
    /// The name of the queue.
    pub queue: String,
    /// The handler that it calls. Told of a run that has not ended, if it is asked for by its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handler: Option<String>,
    /// The program that it runs, and its arguments. Told of a run that has not ended, if it is asked for by its id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub argv: Vec<String>,
    /// Its concurrency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Its labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// From 0, which is claimed first, to 9. Not told of runs that have ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// The worker that has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// Why it waits, as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Somebody has cancelled it, and its worker is being told.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cancelling: bool,
    /// It is dead because too many workers died under it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub poison: bool,
    /// How far it has come, as its worker says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<RunProgress>,
    /// The id of the dead run that it is carried out again for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redriven_from: Option<String>,
    /// Its parts, if it is for several workers, and these are chosen. Told if it is asked for by its id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<RunPart>,
    /// The id of the run that it is a part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part_of: Option<String>,
    /// The worker that was chosen for it, if it is a part that has not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen: Option<String>,
}

/// A part of a run: a worker is given it like a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunPart {
    /// Its id, by which it is found like a run.
    pub id: String,
    /// The worker that was chosen for it.
    pub chosen: String,
    /// The worker that has it, or carried it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// Where it is, or how it ended.
    pub state: RunState,
}

/// Slots that were skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Skipped {
    /// The first one.
    pub from: Timestamp,
    /// The last one.
    pub to: Timestamp,
    /// How many slots they are.
    pub count: u64,
    /// Why they were skipped.
    pub reason: Reason,
}

/// What a run is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunKind {
    /// It does what its trigger says.
    #[default]
    Run,
    /// It notifies somebody of what became of others.
    Notification,
}

impl RunKind {
    /// All the kinds there are.
    pub const ALL: [Self; 2] = [Self::Run, Self::Notification];

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Notification => "notification",
        }
    }
}

/// A run in few words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunSummary {
    /// The run's id.
    pub id: String,
    /// The instant that it is a run of.
    pub slot: Timestamp,
    /// How it ended.
    pub state: RunState,
    /// When it ended.
    pub ended: Timestamp,
}

/// Where a run is, or how it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// It has not left yet.
    Waiting,
    /// It waits for another run of its trigger to end.
    Blocked,
    /// An attempt failed, and another follows.
    Backoff,
    /// An attempt is under way.
    Running,
    /// The receiver took it.
    Succeeded,
    /// The receiver refused it for good.
    Failed,
    /// All attempts were used up.
    Dead,
    /// Somebody cancelled it.
    Cancelled,
    /// It could not leave in time.
    Expired,
    /// It may have arrived, and will not be sent again.
    Unknown,
    /// It did not come to a run.
    Skipped,
}

impl RunState {
    /// All the states there are.
    pub const ALL: [Self; 11] = [
        Self::Waiting,
        Self::Blocked,
        Self::Backoff,
        Self::Running,
        Self::Succeeded,
        Self::Failed,
        Self::Dead,
        Self::Cancelled,
        Self::Expired,
        Self::Unknown,
        Self::Skipped,
    ];

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Blocked => "blocked",
            Self::Backoff => "backoff",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
            Self::Unknown => "unknown",
            Self::Skipped => "skipped",
        }
    }

    /// Whether nothing more will come of it.
    pub fn is_end(self) -> bool {
        match self {
            Self::Waiting | Self::Blocked | Self::Backoff | Self::Running => false,
            Self::Succeeded
            | Self::Failed
            | Self::Dead
            | Self::Cancelled
            | Self::Expired
            | Self::Unknown
            | Self::Skipped => true,
        }
    }
}

/// What came of one attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Attempt {
    /// When it left.
    pub at: Timestamp,
    /// How long it took, in milliseconds.
    pub latency_ms: u32,
    /// The status that the receiver answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What the receiver said. Lists leave it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<String>,
    /// The worker that made it, if it is one of a queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// The exit code of the worker's program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
}

/// The answer to a run that was started by hand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Started {
    /// The run's id.
    pub id: String,
    /// The run, if its end was waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Run>,
}
