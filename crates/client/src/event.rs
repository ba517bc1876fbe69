//! Events, as the API tells them while they happen.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::account::Reason;
use crate::project::Occasion;
use crate::run::RunState;

/// Something that happened, and is durable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Event {
    /// When.
    pub at: Timestamp,
    /// What.
    #[serde(flatten)]
    pub what: What,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum What {
    /// A run ended.
    RunEnded {
        /// Its id.
        run: String,
        /// Its trigger.
        trigger: String,
        /// What it tells somebody of, if it is a notification.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        event: Option<Occasion>,
        /// The instant that it is a run of.
        slot: Timestamp,
        /// How it ended.
        state: RunState,
        /// Attempts begun.
        attempt: u32,
    },
    /// Slots were skipped.
    SlotsSkipped {
        /// Their trigger.
        trigger: String,
        /// The first one.
        from: Timestamp,
        /// The last one.
        to: Timestamp,
        /// How many they are.
        count: u64,
        /// Why.
        reason: Reason,
    },
    /// Somebody changed something.
    Changed {
        /// What was done: `trigger.create`, `project.disable`, …
        action: String,
        /// To what.
        object: String,
        /// By whom.
        author: String,
    },
    /// A server has come: for admins, as are all that follow up to `reset`.
    ServerJoined {
        /// Its name.
        node: String,
    },
    /// A server has left in order, having handed over what it had.
    ServerLeft {
        /// Its name.
        node: String,
    },
    /// A server is gone without a word.
    ServerLost {
        /// Its name.
        node: String,
    },
    /// Nobody has these shards any more: nothing of them fires until somebody does.
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
    /// It is as those of others are again.
    ClockRight {
        /// The name of the server.
        node: String,
    },
    /// What happened since the event that was named last is not known here: read again what matters.
    Reset,
}

impl What {
    /// The name of its kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::RunEnded { .. } => "run_ended",
            Self::SlotsSkipped { .. } => "slots_skipped",
            Self::Changed { .. } => "changed",
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
