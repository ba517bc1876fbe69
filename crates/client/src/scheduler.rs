//! The scheduler as a whole.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// How the scheduler is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SchedulerStatus {
    /// Whether slots are fired.
    pub firing: Firing,
    /// Since when they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Why not, and what to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Whether this node takes requests.
    pub ready: bool,
    /// What the node's clock shows.
    pub now: Timestamp,
    /// The cluster's id.
    pub cluster: String,
    /// How many shards it has.
    pub shards: u16,
    /// The version of the time zone database.
    pub tzdata: String,
    /// The version of the server.
    pub version: String,
}

/// Whether slots are fired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Firing {
    /// They are.
    Going,
    /// They are not, until a person says that the clock is right.
    Held,
    /// They are not, until a person starts the scheduler again.
    Stopped,
}
