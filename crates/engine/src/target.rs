//! A target: where a run goes when its time has come.
//!
//! A trigger's definition has one, each run keeps the one that it was made with, and an attempt that leaves carries
//! it to whoever carries it out. All of them pass it on whole: what a target is made of concerns its ends only,
//! the draft that it is built from and the sender that takes it.

use serde::{Deserialize, Serialize};

use crate::webhook::Webhook;

/// Where a run goes. In a record it is one field, named after the variant: `"webhook": {…}`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// A request to a receiver.
    Webhook(Webhook),
}

impl Target {
    /// A number for what it leads to, by which load is counted: for a webhook its
    /// [host](crate::webhook::Form::origin).
    pub fn origin(&self) -> u64 {
        match self {
            Self::Webhook(webhook) => webhook.form.origin(),
        }
    }

    /// The origin of the host that it goes to.
    pub fn host(&self) -> Option<u64> {
        Some(self.origin())
    }

    /// How long an attempt may take in all.
    pub fn timeout_ms(&self) -> u32 {
        match self {
            Self::Webhook(webhook) => webhook.form.timeout_ms,
        }
    }

    /// How many bytes of it are its own, rather than shared with other targets: path and body.
    pub fn own_bytes(&self) -> usize {
        match self {
            Self::Webhook(Webhook { path, body, .. }) => {
                path.len() + body.as_ref().map_or(0, |body| body.len())
            }
        }
    }
}
