//! A run of a queue, while it is unfinished: what a shard knows of it, and where its records are.
//!
//! What it is about, such as its payload, is in the store.

use std::sync::Arc;

use crate::id::{RunId, SerialId};
use crate::instant::Instant;

use super::backlog::{ClaimOrder, ConcurrencyKey};
use super::given::GivenPolicy;
use super::pick::RunRole;

/// What a shard has to know of a run while it is unfinished. What it is about is in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubmittedRun {
    /// The queue that it is in.
    pub queue: SerialId,
    /// Its place among the runs of its queue, as it was submitted.
    pub order: ClaimOrder,
    /// When it was submitted, or the slot that it is a run of.
    pub born: Instant,
    /// Whether what it is about has a record of its own.
    pub has_body: bool,
    /// By which rules it is given again.
    pub policy: GivenPolicy,
    /// Whether it has parts, or is one.
    pub role: RunRole,
    /// What not every run has.
    pub details: Option<Arc<RunDetails>>,
}

/// What not every run has. Runs that have the same share it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct RunDetails {
    /// When it expires, if nobody was given it by then.
    pub expires: Option<Instant>,
    /// The trigger that it is a run of.
    pub trigger: Option<TriggerSlot>,
    /// Its concurrency key.
    pub key: Option<NamedKey>,
    /// No other run with the same text is taken for a while.
    pub unique: Option<UniqueKey>,
    /// By what it is found: `env=prod,team=billing`.
    pub labels: Option<Box<str>>,
    /// The dead run that it is carried out again for.
    pub redriven_from: Option<RunId>,
}

/// A concurrency key with its text.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NamedKey {
    /// The key.
    pub key: ConcurrencyKey,
    /// Its text.
    pub text: Box<str>,
}

impl NamedKey {
    /// The key with this text.
    pub fn of(text: &str) -> Self {
        Self { key: ConcurrencyKey::of(text), text: text.into() }
    }
}

/// Which slot of which trigger a run is of.
#[derive(Debug, Clone, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct TriggerSlot {
    /// The trigger.
    #[serde(with = "crate::id::text")]
    pub serial: SerialId,
    /// Its name, which may be gone.
    pub name: Box<str>,
    /// By which generation of its schedule; none for a run on demand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u32>,
}

/// What keeps other runs from being taken.
#[derive(Debug, Clone, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct UniqueKey {
    /// Its text.
    pub key: Box<str>,
    /// So long after the end of its run it still counts, in milliseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub window_ms: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Where the records of a run are: they stay there while it is unfinished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunPlace {
    /// The queue that it is in.
    pub queue: SerialId,
    /// Its place in the order, as it was submitted: a retry is due later, and stays where it is.
    pub order: ClaimOrder,
    /// Whether what it is about has a record of its own.
    pub has_body: bool,
    /// Where is recorded that it was given.
    pub given: GivenPlace,
    /// Whether it has parts, or is one: what a part is about lies with its run.
    pub role: RunRole,
}

/// Where is recorded that a run was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GivenPlace {
    /// It never was.
    Nowhere,
    /// In a record that it shares with others of the same claim.
    Shared,
    /// In a record of its own.
    Own,
}
