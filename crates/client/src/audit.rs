//! The audit, as the API tells of it: who changed what, when, from where.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// One change that somebody made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AuditEntry {
    /// When the change was made.
    pub at: Timestamp,
    /// What was done: `trigger.create`, `project.disable`, …
    pub action: String,
    /// What was changed: the name of a trigger, the id of a key, …
    pub object: String,
    /// In which project; none, for what concerns all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// By whom: the name of a key, or `anonymous` where none is needed.
    pub author: String,
    /// By which key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// From which address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The server that says it has passed the request on, if it did not come from whoever asked: then `address` is that
    /// server's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<String>,
    /// The id of the request, under which it stands in the log.
    pub request_id: String,
}
