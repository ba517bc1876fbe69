//! Queues: what one sends to them, and what the API tells of them.
//!
//! Lengths of time are texts like `90s`, `5m` or `1h30m`. What is left out has a default, which docs/queues.md tells. The
//! server reads the same JSON with its own types; a test of the server holds the two together.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::spec::{Delivery, RetrySpec};
use crate::trigger::Pause;

/// A run that a queue is to have: a handler's name with a payload, or a command.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RunSpec {
    /// The name of the queue, which comes to be if it is not there. Runs of a batch leave it to the batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(length(min = 1, max = 100), regex(pattern = "^[A-Za-z0-9._-]+$"))
    )]
    pub queue: Option<String>,
    /// The handler that a worker is to call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 100)))]
    pub handler: Option<String>,
    /// What the handler gets: any JSON of up to 100 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Value>,
    /// The command that a worker is to run: the program, then its arguments. No shell is involved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandSpec>,
    /// From 0, which is claimed first, to 9; 5 if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(max = 9)))]
    pub priority: Option<u64>,
    /// No worker gets it before so much time has passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<String>,
    /// No worker gets it before this instant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// If no worker was given it within this time of being due, it expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_after: Option<String>,
    /// Only so many runs with the same key execute at a time: one, unless the queue says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 200)))]
    pub key: Option<String>,
    /// While there is a run with this text in the queue, another one is not taken: its id is answered instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 200)))]
    pub unique_key: Option<String>,
    /// The unique key goes on counting for so long after the run has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique_window: Option<String>,
    /// What becomes of it when nobody knows whether a worker carried it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<Delivery>,
    /// When a failed attempt is followed by another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetrySpec>,
    /// How long an attempt may take; workers see to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// How many workers it is for: `any`, the first that has room; `next`, so many whose turn it is; `all`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pick: Option<PickKind>,
    /// With `next`: for so many workers; one, if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 64)))]
    pub count: Option<u64>,
    /// Words by which it is found again.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// What a trigger lets a queue have: a handler's name with a payload, or a command. Retries, delivery and lateness are
/// those of the trigger.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FeedSpec {
    /// The name of the queue, which comes to be if it is not there.
    #[cfg_attr(
        feature = "schema",
        schemars(length(min = 1, max = 100), regex(pattern = "^[A-Za-z0-9._-]+$"))
    )]
    pub name: String,
    /// The handler that a worker is to call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 100)))]
    pub handler: Option<String>,
    /// What the handler gets: any JSON of up to 100 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Value>,
    /// The command that a worker is to run: the program, then its arguments. No shell is involved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandSpec>,
    /// From 0, which is claimed first, to 9; 5 if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(max = 9)))]
    pub priority: Option<u64>,
    /// Only so many runs with the same key execute at a time: one, unless the queue says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 200)))]
    pub key: Option<String>,
    /// How long an attempt may take; workers see to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// How many workers it is for: `any`, the first that has room; `next`, so many whose turn it is; `all`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pick: Option<PickKind>,
    /// With `next`: for so many workers; one, if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 64)))]
    pub count: Option<u64>,
}

impl fmt::Debug for FeedSpec {
    /// Without what it is about, which may be secret.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "FeedSpec({:?}, {:?})", self.name, self.handler)
    }
}

/// How many workers of its queue a run is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PickKind {
    /// The first that has room.
    #[default]
    Any,
    /// The next ones in turn, in the order of their names.
    Next,
    /// All of them.
    All,
}

/// A command, as a worker runs it.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CommandSpec {
    /// The program, by its absolute path, and its arguments.
    pub argv: Vec<String>,
    /// Variables of its environment, beside those that workers set.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Its working directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dir: Option<String>,
    /// What it reads from its standard input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
}

impl fmt::Debug for RunSpec {
    /// Without what it is about, which may be secret.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "RunSpec({:?}, {:?})", self.queue, self.handler)
    }
}

impl fmt::Debug for CommandSpec {
    /// The program alone: what it is given may be secret.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "CommandSpec({:?})", self.argv.first())
    }
}

/// Runs that one queue is to have, all or none.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct BatchSpec {
    /// The name of the queue.
    pub queue: String,
    /// Up to 1,000, and no more than one commit of the store takes: docs/queues.md has the numbers.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 1_000)))]
    pub runs: Vec<RunSpec>,
}

/// A run that a queue has taken, or has already.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Submitted {
    /// The run's id.
    pub id: String,
    /// Whether it is new. If not, it is the run that the unique key stands for.
    pub created: bool,
}

/// What became of the runs of a batch, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SubmittedBatch {
    /// One for each run.
    pub runs: Vec<Submitted>,
}

/// What a queue may. What is left out is not limited.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct QueueSpec {
    /// So many of its runs execute at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 100_000)))]
    pub concurrency: Option<u64>,
    /// So many of its runs with the same key execute at a time; one, if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 100_000)))]
    pub per_key: Option<u64>,
    /// So many of its runs are given to workers in any period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<RateSpec>,
    /// So many of its runs may wait, if that is less than the store takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 2_000_000)))]
    pub waiting_max: Option<u64>,
    /// Somebody is told when a run that a worker could have waits for longer: `5m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alert_after: Option<String>,
    /// What becomes of runs whose worker hears from no server for its lease; `loose`, if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseKind>,
}

/// What becomes of runs whose worker hears from no server for its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LeaseKind {
    /// They go on: one that is given to another meanwhile executes twice for a while.
    Loose,
    /// Their worker ends them: the limits of the queue are exact for what really executes.
    Strict,
}

impl LeaseKind {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Loose => "loose",
            Self::Strict => "strict",
        }
    }
}

/// So many runs in any stretch of time.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RateSpec {
    /// How many.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1_000_000)))]
    pub runs: u64,
    /// In how long: `1s` to `1d`.
    pub per: String,
}

/// A queue, as it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Queue {
    /// Its id, which never changes.
    pub id: String,
    /// Its name.
    pub name: String,
    /// What it may.
    pub spec: QueueSpec,
    /// Since when and why none of its runs is given, if it is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Pause>,
    /// Since when its oldest run waits for longer than `alert_after`, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overdue: Option<Timestamp>,
    /// Since when runs that were submitted to it fail, if somebody is notified of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing: Option<Timestamp>,
    /// How it stands; none, while its shard has no owner that could tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<QueueState>,
    /// Which settings these are: 1, 2, … It is the entity tag too.
    pub revision: u64,
    /// When it came to be.
    pub created: Timestamp,
    /// When its settings were written.
    pub written: Timestamp,
    /// Who wrote them.
    pub author: String,
}

/// How a queue stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueueState {
    /// Runs that wait, due or not.
    pub waiting: u64,
    /// Runs that workers have.
    pub running: u64,
    /// So many may wait.
    pub waiting_max: u64,
    /// Since when the oldest of those is due that a worker could have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest: Option<Timestamp>,
    /// Claims of workers that wait for its runs.
    pub claims_waiting: u64,
    /// Runs that were given to workers within the last minute, as far as the owner of its shard knows.
    #[serde(default)]
    pub given_last_minute: u64,
    /// Runs that ended within the last minute, likewise.
    #[serde(default)]
    pub ended_last_minute: u64,
    /// Dead runs that are kept, and can be redriven.
    #[serde(default)]
    pub dead: u64,
    /// Why its runs wait, as a sentence, if some do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}
