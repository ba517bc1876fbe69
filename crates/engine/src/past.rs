//! The past: one record for each slot that is decided and done, packed by the batch.
//!
//! A commit of a shard writes the runs that finished, and the slots that were skipped, as one record. A
//! range of skipped slots is one line. What a person asks about a trigger (why did it not run?) is
//! answered from here. In the background these records become pages, by trigger and day: [`page`]. What did not
//! simply succeed is found by its project as well: [`exception`]. How much is kept is a matter of [`retain`], and how
//! one knows of [`floor`].

pub mod exception;
pub mod floor;
pub mod page;
pub mod retain;

use serde::{Deserialize, Serialize};

use crate::id::{ProjectId, RunId, SerialId};
use crate::instant::Instant;
use crate::notice::Occasion;
use crate::record::{Format, RecordError, decode};

const FORMAT: Format = Format(1);

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
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
}

/// Why a slot was skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The trigger was paused.
    Paused,
    /// A run of the same trigger was not finished.
    Overlap,
    /// It passed while nobody was there to fire it, or waited for its host for too long.
    Misfire,
    /// It was one of too many that were missed.
    Cap,
    /// The trigger's last run had been had.
    Limit,
    /// The trigger was changed, cancelled or deleted, or a later slot took its place.
    Superseded,
    /// The project was disabled.
    Disabled,
    /// None was: the trigger had ended long ago, and was deleted.
    Pruned,
    /// As many runs waited in the trigger's queue as may.
    QueueFull,
}

/// What came of one attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// When it left.
    pub at: Instant,
    /// How long the attempt took, in milliseconds.
    pub ms: u32,
    /// The status of the receiver's answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// What went wrong, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The beginning of the body of the receiver's answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<String>,
    /// The worker that made it, if it is one of a queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<Box<str>>,
    /// The exit code of the worker's program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
}

impl Default for Attempt {
    fn default() -> Self {
        Self {
            at: Instant(0),
            ms: 0,
            status: None,
            error: None,
            response: None,
            worker: None,
            exit_code: None,
        }
    }
}

/// One line of the past.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// A run that ended.
    Run(Finished),
    /// Slots that were skipped.
    Skip(Skipped),
}

/// A run that ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finished {
    /// The project of its trigger.
    #[serde(default, skip_serializing_if = "ProjectId::is_default")]
    pub project: ProjectId,
    /// The trigger that it is a run of.
    #[serde(with = "crate::id::text")]
    pub trigger: SerialId,
    /// The instant that it is a run of.
    pub slot: Instant,
    /// By which generation of the schedule; none for a run on demand and for a notice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u32>,
    /// Its sequence number, if it is a run on demand or a notice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<u64>,
    /// What it tells somebody of, if it is a notice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<Occasion>,
    /// What it was as a run of a queue, if it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<Box<PastOfQueue>>,
    /// How the run ended.
    pub end: End,
    /// When the run ended.
    pub at: Instant,
    /// Attempts begun; more than are told of if some were in doubt.
    pub attempt: u32,
    /// What came of each attempt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<Attempt>,
}

/// What is kept of a run because a queue had it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastOfQueue {
    /// The name of the queue.
    pub name: Box<str>,
    /// Its concurrency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Box<str>>,
    /// Its labels: `env=prod,team=billing`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<Box<str>>,
    /// Too many workers died under it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub poison: bool,
    /// The dead run that it was carried out again for.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::id::text_option")]
    pub redriven_from: Option<RunId>,
}

/// Slots that were skipped: all of a generation in `from..=to`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// The project of their trigger.
    #[serde(default, skip_serializing_if = "ProjectId::is_default")]
    pub project: ProjectId,
    /// The trigger that they are slots of.
    #[serde(with = "crate::id::text")]
    pub trigger: SerialId,
    /// By which generation of the schedule.
    pub generation: u32,
    /// The first one.
    pub from: Instant,
    /// The last one.
    pub to: Instant,
    /// How many slots were skipped.
    pub count: u64,
    /// Why they were skipped.
    pub reason: Reason,
    /// When that was decided.
    pub at: Instant,
}

impl Finished {
    /// Whether it was submitted to a queue: then it is nobody's but its own, and has its number in its trigger's place.
    pub fn is_submitted(&self) -> bool {
        self.queue.is_some() && self.sequence == Some(self.trigger.0)
    }

    /// Whether it is a run of a trigger, or tells of one.
    pub fn has_trigger(&self) -> bool {
        !self.is_submitted() && (self.queue.is_none() || self.notice.is_none())
    }
}

impl Line {
    /// The same without what receivers said, which may be long.
    #[must_use]
    pub fn without_responses(mut self) -> Self {
        if let Self::Run(run) = &mut self {
            for attempt in &mut run.attempts {
                attempt.response = None;
            }
        }
        self
    }

    /// The project of its trigger.
    pub fn project(&self) -> ProjectId {
        match self {
            Self::Run(run) => run.project,
            Self::Skip(skip) => skip.project,
        }
    }

    /// The trigger that the line is about.
    pub fn trigger(&self) -> SerialId {
        match self {
            Self::Run(run) => run.trigger,
            Self::Skip(skip) => skip.trigger,
        }
    }

    /// When it was written.
    pub fn written(&self) -> Instant {
        match self {
            Self::Run(run) => run.at,
            Self::Skip(skip) => skip.at,
        }
    }

    /// The last slot that it is about.
    pub fn slot(&self) -> Instant {
        match self {
            Self::Run(run) => run.slot,
            Self::Skip(skip) => skip.to,
        }
    }
}

/// A batch of the past.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Segment {
    /// In the order in which they were decided; in a page, newest slot first.
    pub lines: Vec<Line>,
}

impl Segment {
    /// The segment as it is stored.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut lines = Vec::new();
        for line in &self.lines {
            Self::append(&mut lines, line);
        }
        Self::enclose(&lines)
    }

    /// Adds a line to others, as a JSON list without its brackets.
    pub(crate) fn append(lines: &mut Vec<u8>, line: &Line) {
        if !lines.is_empty() {
            lines.push(b',');
        }
        serde_json::to_writer(lines, line).expect("plain structs with text keys always serialize");
    }

    /// Lines that were appended, as they are stored.
    pub(crate) fn enclose(lines: &[u8]) -> Vec<u8> {
        let begin = format!(r#"{{"format":{FORMAT},"lines":["#);
        [begin.as_bytes(), lines, b"]}"].concat()
    }

    /// Reads a segment as it was stored.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RecordError> {
        decode(bytes, FORMAT)
    }
}
