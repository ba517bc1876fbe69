//! A feed: what a trigger lets a queue have, instead of calling a webhook.
//!
//! A person names the queue, and a handler or a command, as for a run that is submitted by hand; the rest (when, retries,
//! delivery, lateness) are policies of the trigger. A feed comes in two parts, like a webhook: its [`FeedForm`], which
//! many triggers share, and its action, which is its own.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::hash::{hash, mix};
use crate::instant::Instant;
use crate::limits::ACTION_INLINE_BYTES_MAX;
use crate::trigger::build::Faults;
use crate::trigger::draft::object;
use crate::trigger::{BadField, check_name};

use super::draft::{CommandDraft, RunDraft};
use super::pick::Pick;

/// What a trigger lets a queue have, as a person writes it.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields are those of the API, and docs/queues.md tells them")]
pub struct FeedDraft {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handler: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<Payload>,
    #[serde(deserialize_with = "object::option", skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandDraft>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pick: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
}

/// Any JSON, as it was written. Two are equal if they are written alike.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Payload(pub Box<RawValue>);

impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}

impl Eq for Payload {}

/// What a trigger lets a queue have, checked.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Feed {
    /// Which queue, and how.
    pub form: Arc<FeedForm>,
    /// What a worker is to do, as JSON.
    pub action: Box<str>,
}

/// What many feeds share.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FeedForm {
    /// The name of the queue.
    pub queue: Box<str>,
    /// From 0, which is claimed first, to 9.
    pub priority: u8,
    /// The concurrency key of all its runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Box<str>>,
    /// How long an attempt may take, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// For how many workers each of its runs is.
    #[serde(default, skip_serializing_if = "Pick::is_any")]
    pub pick: Pick,
}

impl FeedForm {
    /// A number for the queue: no host has the same but by chance.
    pub fn origin(&self) -> u64 {
        mix(hash(&self.queue, "queue"))
    }
}

impl Feed {
    /// What a worker is to do, as runs keep it.
    pub fn raw_action(&self) -> Box<RawValue> {
        RawValue::from_string(self.action.to_string()).expect("it was JSON when it was built")
    }

    /// Whether what a worker is to do is so long that a run keeps it in a record of its own.
    pub fn is_long(&self) -> bool {
        self.action.len() > ACTION_INLINE_BYTES_MAX
    }
}

impl fmt::Debug for Feed {
    /// Without what it is about, which may be secret.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?} {} B", self.form, self.action.len())
    }
}

impl fmt::Debug for FeedDraft {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "FeedDraft({:?})", self.name)
    }
}

impl FeedDraft {
    /// What it means. What is wrong is noted with pointers below `/queue`.
    pub(crate) fn build(&self, faults: &mut Faults) -> Option<Feed> {
        let name = self.name.as_deref().unwrap_or_default();
        let is_named = faults.take("/queue/name", check_name(name)).is_some();
        let run = RunDraft {
            handler: self.handler.clone(),
            payload: self.payload.clone().map(|payload| payload.0),
            command: self.command.clone(),
            priority: self.priority,
            key: self.key.clone(),
            timeout: self.timeout.clone(),
            pick: self.pick.clone(),
            count: self.count,
            ..RunDraft::default()
        };
        // No field that has to do with time is handed on, so any instant will do.
        let run = run.build(Instant(0)).map_err(|found| {
            let below =
                |fault: BadField| BadField { pointer: format!("/queue{}", fault.pointer), ..fault };
            faults.0.extend(found.into_iter().map(below));
        });
        let run = run.ok().filter(|_| is_named)?;
        let (queue, priority, key, timeout_ms, pick) =
            (name.into(), run.priority, run.key, run.timeout_ms, run.pick);
        let form = Arc::new(FeedForm { queue, priority, key, timeout_ms, pick });
        Some(Feed { form, action: run.action.get().into() })
    }
}
