//! The cluster, as the API tells of it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A cluster: the servers and candidates that share a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cluster {
    /// Its id, which never changes.
    pub id: String,
    /// How many shards it has.
    pub shards: u16,
    /// What an acknowledgement of its store is worth: `A`, `S` or `B`.
    pub store_class: String,
    /// What that class means, in a sentence.
    pub store_means: String,
    /// Who takes part, by name.
    pub nodes: Vec<Node>,
    /// Shards without an owner: nothing of them fires.
    #[serde(default)]
    pub orphans: Vec<Orphan>,
}

/// A shard without an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Orphan {
    /// The shard's number.
    pub shard: u16,
    /// Since when it has none, as far as the server that answers has seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

/// A process that takes part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Node {
    /// The name of the node.
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
    /// How it is, if it is a server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerNode>,
}

/// A server that takes part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ServerNode {
    /// How it is.
    pub state: NodeState,
    /// Which Watchbell it is.
    pub version: String,
    /// The shards that it has.
    pub shards: Vec<u16>,
    /// The shards that it cannot run: its log says why.
    pub unable: Vec<u16>,
    /// How far its clock is ahead of the median of all servers, in milliseconds.
    pub clock_ahead_ms: i64,
}

/// How a server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// It has no shard yet.
    Joining,
    /// It does what its roles say.
    Ready,
    /// It hands its shards over, and takes none.
    Draining,
    /// Its clock is so far from that of others that it takes no shard.
    Apart,
}

impl NodeState {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Joining => "joining",
            Self::Ready => "ready",
            Self::Draining => "draining",
            Self::Apart => "apart",
        }
    }
}

/// How far a server is with handing its shards over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Drain {
    /// The name of the server.
    pub node: String,
    /// Whether it is to have no shard.
    pub draining: bool,
    /// The shards that it has.
    pub shards: Vec<u16>,
}

/// A shard whose commits are held back for a moment, so that it can be read: what servers ask each other for a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QuiescedShard {
    /// Names the pause of its commits.
    pub quiesce: u64,
    /// The number of the last commit of the shard, which is durable.
    pub number: u64,
}

/// Lets a shard commit again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ResumeShard {
    /// What [`QuiescedShard`] said.
    pub quiesce: u64,
}
