//! Events, as the API tells them while they happen.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::account::Reason;
use crate::election::{ElectionState, HandOverCause, HoldState, RiskReason};
use crate::output::RunProgress;
use crate::project::Occasion;
use crate::run::RunState;

/// Something that happened, and is durable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Event {
    /// When it happened.
    pub at: Timestamp,
    /// What it was.
    #[serde(flatten)]
    pub what: EventKind,
}

/// What can happen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum EventKind {
    /// A run ended.
    RunEnded {
        /// The run's id.
        run: String,
        /// The id of its trigger; none, if it was submitted to a queue.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        trigger: Option<String>,
        /// The name of its queue, if it was a run of one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        queue: Option<String>,
        /// What it tells somebody of, if it is a notification.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        event: Option<Occasion>,
        /// The instant that it is a run of.
        slot: Timestamp,
        /// How it ended.
        state: RunState,
        /// How many attempts were begun.
        attempt: u32,
    },
    /// Slots were skipped.
    SlotsSkipped {
        /// The id of their trigger.
        trigger: String,
        /// The first one.
        from: Timestamp,
        /// The last one.
        to: Timestamp,
        /// How many they are.
        count: u64,
        /// Why they were skipped.
        reason: Reason,
    },
    /// A worker said how far a run of a queue has come; told at most once a second of each run.
    RunProgress {
        /// The run's id.
        run: String,
        /// The name of its queue.
        queue: String,
        /// How far it has come.
        progress: RunProgress,
    },
    /// Somebody changed something.
    Changed {
        /// What was done: `trigger.create`, `project.disable`, …
        action: String,
        /// What was changed.
        object: String,
        /// The name of the key by which it was changed.
        author: String,
    },
    /// The oldest run of a queue waits for longer than the queue's `alert_after`.
    QueueOverdue {
        /// The name of the queue.
        queue: String,
        /// Since when the run is due.
        oldest: Timestamp,
    },
    /// No run of a queue waits for too long any more.
    QueueWell {
        /// The name of the queue.
        queue: String,
    },
    /// A run of a queue was given to a worker. It is told to those who watch at that moment, and not again.
    RunGiven {
        /// The run's id.
        run: String,
        /// The name of its queue.
        queue: String,
        /// The name of the worker.
        worker: String,
        /// Attempt number, from 1.
        attempt: u32,
    },
    /// The owner of a shard heard a worker for the first time, or the worker was started again. One that works for several queues may be
    /// told of several times.
    WorkerCame {
        /// The name of the worker.
        worker: String,
    },
    /// A worker was not heard of for so long that runs were taken from it.
    WorkerSilent {
        /// The name of the worker.
        worker: String,
        /// How many runs.
        runs: u64,
    },
    /// A worker without runs was not heard of for ten minutes, and is forgotten.
    WorkerGone {
        /// The name of the worker.
        worker: String,
    },
    /// An election, or what is held by it, is in another state, or somebody else has it. It is looked at once a second, so what
    /// lasted shorter may not be told.
    ElectionChanged {
        /// The name of the election.
        name: String,
        /// Whether somebody has it.
        state: ElectionState,
        /// What the program does, if it is a hold.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hold: Option<HoldState>,
        /// Who has it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        holder: Option<String>,
        /// The token of whoever has it, or had it last.
        token: u64,
        /// Why the program came to this holder, if it is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cause: Option<HandOverCause>,
    },
    /// An assumption of a hold was seen broken: its program may have run twice.
    HoldAtRisk {
        /// The name of the election.
        name: String,
        /// The node that saw it.
        node: String,
        /// Which assumption.
        reason: RiskReason,
        /// What was seen.
        what: String,
    },
    /// Nobody has had an election for twice as long as the longest T of those who campaign for it.
    ElectionUnheld {
        /// The name of the election.
        name: String,
        /// Who campaigns for it: up to 50.
        candidates: Vec<String>,
    },
    /// A server has come: for admins, as are all that follow up to `reset`.
    ServerJoined {
        /// The name of the server.
        node: String,
    },
    /// A server has left in order, having handed over what it had.
    ServerLeft {
        /// The name of the server.
        node: String,
    },
    /// A server is gone without a word.
    ServerLost {
        /// The name of the server.
        node: String,
    },
    /// These shards have no owner any more: nothing of them fires until they have.
    ShardsOrphaned {
        /// How many they are.
        count: u64,
        /// Which, or the first of them.
        shards: Vec<u16>,
    },
    /// Every shard has an owner again.
    ShardsOwned,
    /// The clock of a server is so far from that of others that it takes no shard: set it.
    ClockApart {
        /// The name of the server.
        node: String,
        /// How far it is ahead of the median of all, in milliseconds.
        ahead_ms: i64,
    },
    /// The clock of a server agrees with those of others again.
    ClockRight {
        /// The name of the server.
        node: String,
    },
    /// What happened since the event that was named last is not known here: read again what matters.
    Reset,
}

impl EventKind {
    /// The name of its kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::RunEnded { .. } => "run_ended",
            Self::SlotsSkipped { .. } => "slots_skipped",
            Self::RunProgress { .. } => "run_progress",
            Self::Changed { .. } => "changed",
            Self::QueueOverdue { .. } => "queue_overdue",
            Self::QueueWell { .. } => "queue_well",
            Self::RunGiven { .. } => "run_given",
            Self::WorkerCame { .. } => "worker_came",
            Self::WorkerSilent { .. } => "worker_silent",
            Self::WorkerGone { .. } => "worker_gone",
            Self::ElectionChanged { .. } => "election_changed",
            Self::HoldAtRisk { .. } => "hold_at_risk",
            Self::ElectionUnheld { .. } => "election_unheld",
            Self::ServerJoined { .. } => "server_joined",
            Self::ServerLeft { .. } => "server_left",
            Self::ServerLost { .. } => "server_lost",
            Self::ShardsOrphaned { .. } => "shards_orphaned",
            Self::ShardsOwned => "shards_owned",
            Self::ClockApart { .. } => "clock_apart",
            Self::ClockRight { .. } => "clock_right",
            Self::Reset => "reset",
        }
    }
}
