//! Doing something to many runs of a queue at once: redriving dead ones, cancelling unfinished ones.
//!
//! A request says which runs are meant, and each thing that it says must hold. What one request does is bounded: as long as
//! the answer has a `next`, send the request again with it as `cursor`. A dry run changes nothing, and counts all.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Which dead runs of a queue are to wait again.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RedriveRequest {
    /// Of these kinds; of all, if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub state: Vec<DeadKind>,
    /// With this concurrency key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// With all of these labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// That ended at or after this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// That ended before this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// At most so many in this request; as many as one commit takes, if it is not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub limit: Option<u64>,
    /// Where to go on: `next` of the last answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Counts, and changes nothing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// How a run ended that can be redriven.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DeadKind {
    /// All attempts failed, or too many workers died under it.
    Dead,
    /// Too many workers died under it.
    Poison,
    /// It failed, and was not to be tried again.
    Failed,
}

impl DeadKind {
    /// All the kinds there are.
    pub const ALL: [Self; 3] = [Self::Dead, Self::Poison, Self::Failed];

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Dead => "dead",
            Self::Poison => "poison",
            Self::Failed => "failed",
        }
    }
}

/// How far redriving has come.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Redriven {
    /// Dead runs that are meant and were looked at.
    pub matched: u64,
    /// Those that wait again. None, in a dry run.
    pub redriven: u64,
    /// Those that stay dead because another run has their unique key, or that are gone meanwhile.
    pub skipped: u64,
    /// Where to go on, if there are more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Which unfinished runs of a queue are to end.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct CancelRunsRequest {
    /// In these states; in any, if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub state: Vec<UnfinishedKind>,
    /// With this concurrency key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// With all of these labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Submitted at or after this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Submitted before this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// At most so many in this request; 1,000, if it is not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 10_000)))]
    pub limit: Option<u64>,
    /// Where to go on: `next` of the last answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Counts, and changes nothing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// Where an unfinished run of a queue is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum UnfinishedKind {
    /// No worker has begun it.
    Waiting,
    /// A worker has it.
    Running,
    /// It waits to be given again.
    Backoff,
}

/// How far cancelling has come.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CancelledRuns {
    /// Runs that are meant: they have ended, or, in a dry run, would.
    pub matched: u64,
    /// Those among them that workers have: they end when their workers are told.
    pub running: u64,
    /// Where to go on, if there are more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
