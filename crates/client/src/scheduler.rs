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
    /// Each server of the cluster; all else is told by the one that was asked, of itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<ServerStatus>,
}

/// How a server of the cluster is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ServerStatus {
    /// The name of the server.
    pub node: String,
    /// Why it could not be asked. Then nothing else is known, and it was told nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreached: Option<String>,
    /// Whether slots of its shards are fired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firing: Option<Firing>,
    /// Since when they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Why they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// What its clock shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<Timestamp>,
    /// The version of Watchbell that it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// Whether slots are fired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Firing {
    /// Slots are fired.
    Going,
    /// They are not, until a person says that the clock is right.
    Suspended,
    /// They are not, until a person starts the scheduler again.
    Stopped,
}
