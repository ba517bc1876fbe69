//! The cluster, as the API tells of it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cluster {
    /// Its id, which never changes.
    pub id: String,
    /// How many shards it has.
    pub shards: u16,
    /// What an acknowledgement of its store is worth: `A`, `S` or `B`.
    pub store_class: String,
    /// What that means.
    pub store_means: String,
    /// Who takes part, by name.
    pub nodes: Vec<Node>,
}

/// A process that takes part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Where others reach it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// What it does.
    pub roles: Vec<String>,
    /// For how long it may act after a sign of life, in milliseconds.
    pub ttl_ms: u64,
    /// What its clock showed at its last sign of life.
    pub seen: Timestamp,
}
