//! A trigger, as the API tells of it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::run::RunSummary;
use crate::spec::TriggerSpec;

/// A trigger, with what was written and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Trigger {
    /// Its id, which never changes.
    pub id: String,
    /// Its name, which never changes.
    pub name: String,
    /// Whether it fires.
    pub status: Status,
    /// What was written.
    pub spec: TriggerSpec,
    /// Why it does not fire although it would by its schedule: its project is disabled, or the scheduler is stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended: Option<String>,
    /// Since when and why it is paused, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Pause>,
    /// Since when it is cancelled, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled: Option<Timestamp>,
    /// How many runs are left, if there is a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining: Option<u64>,
    /// How many runs failed in a row.
    #[serde(default)]
    pub failures: u32,
    /// Which text this is: 1, 2, … It is the entity tag too.
    pub revision: u64,
    /// When it was made.
    pub created: Timestamp,
    /// When this text was written.
    pub written: Timestamp,
    /// Who wrote this text.
    pub author: String,
    /// The run that ended last, if it is not long ago. Answers to a request that makes or changes a trigger leave it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<RunSummary>,
    /// When it fires next, up to five times.
    pub next: Vec<Timestamp>,
}

/// Whether a trigger fires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// By its schedule.
    Scheduled,
    /// When somebody runs it.
    OnDemand,
    /// Not while it is paused.
    Paused,
    /// Not any more: its schedule is over, or its limit reached.
    Expired,
    /// Not any more: somebody said so.
    Cancelled,
}

impl Status {
    /// All the statuses there are.
    pub const ALL: [Self; 5] =
        [Self::Scheduled, Self::OnDemand, Self::Paused, Self::Expired, Self::Cancelled];

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::OnDemand => "on_demand",
            Self::Paused => "paused",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A pause of a trigger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Pause {
    /// Since when it is paused.
    pub since: Timestamp,
    /// Until when, if it ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Who did it.
    pub author: String,
    /// Why it is paused, in the words of who did it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// What one sends to pause a trigger.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct PauseRequest {
    /// Why: up to 500 characters.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 500)))]
    pub note: String,
    /// It resumes by itself then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// What one sends to run slots of the past again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct BackfillRequest {
    /// A name for it, like one of a trigger: the same name again runs no slot twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(length(min = 1, max = 100), regex(pattern = "^[A-Za-z0-9._-]+$"))
    )]
    pub request: Option<String>,
    /// From this slot on.
    pub from: Timestamp,
    /// Before this one.
    pub to: Timestamp,
}

/// What came of a backfill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Backfilled {
    /// By which name to ask again.
    pub request: String,
    /// How many slots there are.
    pub slots: u64,
    /// How many runs were started now; the others had been started before.
    pub started: u64,
}

/// When a trigger fires next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NextSlots {
    /// The coming slots, in the order of time.
    pub items: Vec<Timestamp>,
    /// Why there are none, or fewer than were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}
