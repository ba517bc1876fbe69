//! The worker protocol: what workers say, and what they are answered. docs/queues.md tells how to write one.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::queue::CommandSpec;

/// What a worker says: what came of runs, what it has, and how many more it wants.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ClaimRequest {
    /// The worker's name, which no other worker of the project has.
    #[cfg_attr(
        feature = "schema",
        schemars(length(min = 1, max = 100), regex(pattern = "^[A-Za-z0-9._-]+$"))
    )]
    pub worker: String,
    /// Which life of the worker: greater than all before, such as its start in microseconds.
    pub incarnation: u64,
    /// Which request of this life: greater than all before.
    pub number: u64,
    /// The highest number of a claim that is answered, or whose answer is not listened to any more.
    #[serde(default)]
    pub settled: u64,
    /// The cookie of the last answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cookie: Option<String>,
    /// From which queues, the first before the second: up to 32.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 32)))]
    pub queues: Vec<String>,
    /// So many runs at most, up to 1,000.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(max = 1_000)))]
    pub free: u64,
    /// So long to wait if there is no run, up to 30,000, and no longer than two beats: two fifths of the lease. A request
    /// that reports results does not wait.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(max = 30_000)))]
    pub wait_ms: u64,
    /// So long the worker may be silent before its runs are given to others, 1,000 to 86,400,000; 15,000 if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1_000, max = 86_400_000)))]
    pub lease_ms: Option<u64>,
    /// What came of runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub done: Vec<DoneRun>,
    /// All other runs that the worker has, begun or not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub running: Vec<HeldRun>,
    /// Runs that it gives back, and has not begun.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub released: Vec<HeldRun>,
    /// The life with which the worker's log of what it begins was begun; 0 if that was never lost. What earlier lives had under
    /// another log, and nobody names, may have begun.
    #[serde(default)]
    pub since: u64,
    /// It takes no more runs, and ends when it has none.
    #[serde(default)]
    pub draining: bool,
    /// Words by which people tell workers apart, such as `zone` and `version`: up to 16, as those of a run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// The same without a claim: that the worker is there, and what it has.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct BeatRequest {
    /// Which life of the worker.
    pub incarnation: u64,
    /// Which request of this life: greater than all before, claims included.
    pub number: u64,
    /// The highest number of a claim that is answered, or whose answer is not listened to any more.
    #[serde(default)]
    pub settled: u64,
    /// The queues that it claims from.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 32)))]
    pub queues: Vec<String>,
    /// As in a claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1_000, max = 86_400_000)))]
    pub lease_ms: Option<u64>,
    /// What came of runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub done: Vec<DoneRun>,
    /// All other runs that the worker has. Without this list nothing follows from what the request does not name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<Vec<HeldRun>>,
    /// Runs that it gives back, and has not begun.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub released: Vec<HeldRun>,
    /// As in a claim.
    #[serde(default)]
    pub since: u64,
    /// It takes no more runs, and ends when it has none.
    #[serde(default)]
    pub draining: bool,
}

/// A run, and the token under which a worker has it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct HeldRun {
    /// The run's id.
    pub id: String,
    /// The token.
    pub token: u64,
}

/// What came of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DoneRun {
    /// The run's id.
    pub id: String,
    /// The token under which the worker had it.
    pub token: u64,
    /// What came of it.
    pub result: RunResult,
    /// If it failed: do not try it again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub final_failure: bool,
    /// If it failed: try it again no sooner than this, up to 3,600,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(max = 3_600_000)))]
    pub retry_after_ms: Option<u64>,
    /// What went wrong, in a sentence: up to 1,000 characters are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The exit code of the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// When the attempt began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
    /// How long it took, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
}

/// What came of an attempt of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunResult {
    /// It was carried out.
    Succeeded,
    /// It failed.
    Failed,
    /// It was ended because somebody had cancelled it.
    Cancelled,
    /// It was begun and ended early, as by a worker that stops.
    Stopped,
    /// A former life of the worker had begun it, and left no result.
    Died,
}

/// What a worker is answered.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClaimAnswer {
    /// Runs that the worker is given.
    pub runs: Vec<ClaimedRun>,
    /// Results and releases that are dealt with. What is missing is to be sent again.
    pub acks: Vec<Ack>,
    /// Runs that the worker has lost: it ends them, and forgets their results.
    pub lost: Vec<HeldRun>,
    /// Runs that somebody wants to end.
    pub cancel: Vec<HeldRun>,
    /// Runs that the request named and whose owner could not be asked: this answer does not confirm them.
    pub unheard: Vec<HeldRun>,
    /// Queues that the request named and that cannot be made: the project has as many as it may. The others were served.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<String>,
    /// Somebody wants the worker to drain: it is given nothing more, finishes what it has, and ends.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drain: bool,
    /// To be sent with the next claim.
    pub cookie: String,
    /// The highest number of the worker's requests that was heard: runs are good for `lease_ms` from when that was sent.
    pub as_of: u64,
    /// How often the worker is to be heard while it has runs, in milliseconds.
    pub beat_ms: u64,
    /// So long the worker may be silent before its runs are given to others.
    pub lease_ms: u64,
}

/// A run that a worker is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClaimedRun {
    /// Its id: the same in every attempt.
    pub id: String,
    /// The token of this attempt: greater than all before.
    pub token: u64,
    /// Attempt number, from 1.
    pub attempt: u32,
    /// The name of its queue.
    pub queue: String,
    /// When it was submitted, or the slot of its trigger.
    pub scheduled: Timestamp,
    /// The name of its trigger, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<String>,
    /// Its concurrency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// How long the attempt may take, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Its queue has a strict lease: the worker ends the run as soon as it is confirmed no more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strict: bool,
    /// The handler to call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handler: Option<String>,
    /// What the handler gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Value>,
    /// The command to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandSpec>,
}

/// That a result or a release is dealt with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Ack {
    /// The run's id.
    pub id: String,
    /// The token under which the worker had it.
    pub token: u64,
    /// Whether it counted: no, if the run was given to another meanwhile, or has ended.
    pub counted: bool,
}

/// A worker, as servers heard of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Worker {
    /// Its name.
    pub name: String,
    /// Which life of it.
    pub incarnation: u64,
    /// What it does.
    pub state: WorkerState,
    /// When it was last heard of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard: Option<Timestamp>,
    /// The queues that it claims from.
    pub queues: Vec<String>,
    /// How many runs it has.
    pub running: u64,
    /// What it said about itself with its last claim.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// A worker, with all that it has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WorkerDetails {
    /// As in a list.
    #[serde(flatten)]
    pub worker: Worker,
    /// So long it may be silent before its runs are given to others, in milliseconds; none, if it was not heard yet by those
    /// who own its queues now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    /// Who wants it to drain, if somebody does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<WorkerDrain>,
    /// The runs that it has, up to 1,000, those first that it was given first.
    pub runs: Vec<WorkerRun>,
}

/// That somebody wants a worker to drain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WorkerDrain {
    /// Since when.
    pub since: Timestamp,
    /// The name of the key by which it was asked for.
    pub author: String,
}

/// A run that a worker has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WorkerRun {
    /// The run's id.
    pub id: String,
    /// The name of its queue.
    pub queue: String,
    /// Since when the worker has it.
    pub since: Timestamp,
    /// Attempt number, from 1.
    pub attempt: u32,
}

/// What a worker does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum WorkerState {
    /// It waits for runs.
    Waiting,
    /// It has runs.
    Busy,
    /// It takes no more runs.
    Draining,
    /// It has neither runs nor a claim that waits.
    Idle,
    /// It was not heard of for longer than two beats: it has ended, or cannot be heard.
    Silent,
}

impl WorkerState {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Busy => "busy",
            Self::Draining => "draining",
            Self::Idle => "idle",
            Self::Silent => "silent",
        }
    }
}
