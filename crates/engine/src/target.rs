//! A target: where a run goes when its time has come.
//!
//! A trigger's definition has one, each run keeps the one that it was made with, and an attempt that leaves carries
//! it to whoever carries it out. All of them pass it on whole: what a target is made of concerns its ends only,
//! the draft that it is built from, the sender that takes a webhook, and the queue that takes a feed.

use serde::{Deserialize, Serialize};

use crate::queue::feed::Feed;
use crate::webhook::Webhook;

/// Where a run goes. In a record it is one field, named after the variant: `"webhook": {…}`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// A request to a receiver.
    Webhook(Webhook),
    /// A queue, from which a worker claims it.
    Queue(Feed),
}

impl Target {
    /// A number for what it leads to, by which load is counted: for a webhook its
    /// [host](crate::webhook::Form::origin).
    pub fn origin(&self) -> u64 {
        match self {
            Self::Webhook(webhook) => webhook.form.origin(),
            Self::Queue(feed) => feed.form.origin(),
        }
    }

    /// The origin of the host that it goes to; none, if it goes to a queue.
    pub fn host(&self) -> Option<u64> {
        match self {
            Self::Webhook(webhook) => Some(webhook.form.origin()),
            Self::Queue(_) => None,
        }
    }

    /// How long an attempt that left for a receiver may take in all. Workers see to the time of runs of queues.
    pub fn timeout_ms(&self) -> u32 {
        match self {
            Self::Webhook(webhook) => webhook.form.timeout_ms,
            Self::Queue(_) => 0,
        }
    }

    /// What of it is its own, rather than shared with other targets: a path, and a body or action.
    pub fn own_texts(&self) -> (&str, Option<&str>) {
        match self {
            Self::Webhook(webhook) => (&webhook.path, webhook.body.as_deref()),
            Self::Queue(feed) => ("", Some(&feed.action)),
        }
    }

    /// How many bytes of it are its own.
    pub fn own_bytes(&self) -> usize {
        let (path, body) = self.own_texts();
        path.len() + body.map_or(0, str::len)
    }

    /// What a queue is to have, if it leads to one.
    pub fn feed(&self) -> Option<&Feed> {
        match self {
            Self::Webhook(_) => None,
            Self::Queue(feed) => Some(feed),
        }
    }
}
