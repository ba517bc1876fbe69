//! The account of a trigger: what became of each of its slots, and why.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::run::RunState;
use crate::trigger::{Pause, Status};

/// What became of the slots in a span of time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Account {
    /// The trigger's id.
    pub id: String,
    /// The trigger's name.
    pub name: String,
    /// Whether it fires.
    pub status: Status,
    /// Since when and why it is paused, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Pause>,
    /// The first instant that was asked about.
    pub from: Timestamp,
    /// The end of what was asked about; the next span begins with this instant.
    pub to: Timestamp,
    /// From when on the present schedule counts; what was before is told from the records alone.
    pub schedule_since: Timestamp,
    /// The slots in the order of time; each is in exactly one row.
    pub rows: Vec<Row>,
    /// How many slots are in which state.
    pub totals: Totals,
    /// When it fires next.
    pub next: Vec<Timestamp>,
    /// The rows end here because there are more than fit: ask again from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub more_from: Option<Timestamp>,
    /// Slots before this may have had records that are not kept any more; from here on none is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_from: Option<Timestamp>,
    /// Firing is suspended for the whole node, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended: Option<String>,
    /// What to type to let it go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cure: Option<String>,
    /// Its host cannot keep up since then: what is due waits for it, in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_lags_since: Option<Timestamp>,
}

/// One slot, or several that share a fate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Row {
    /// The slot, or the first one.
    pub from: Timestamp,
    /// The last one.
    pub to: Timestamp,
    /// How many slots surely lie in what was asked about.
    pub count: u64,
    /// What became of them.
    pub fate: Fate,
    /// Why they were skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The range that this is a part of, if nobody knows how many of it lie in what was asked about: the
    /// schedule that it comes from is not there any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part_of: Option<Whole>,
    /// The run, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunFacts>,
}

/// A range of slots of a former schedule, of which a part was asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Whole {
    /// Its first slot.
    pub from: Timestamp,
    /// Its last one.
    pub to: Timestamp,
    /// How many there are.
    pub count: u64,
}

/// What is worth telling of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunFacts {
    /// The run's id.
    pub id: String,
    /// Where it is, or how it ended.
    pub state: RunState,
    /// Whether somebody started it by hand; such a run is no slot.
    pub on_demand: bool,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// How many attempts were begun.
    pub attempt: u32,
    /// How much later than it should its first attempt left, in milliseconds, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_ms: Option<u64>,
    /// How many attempts left no record: the server stopped meanwhile and the run was sent again, or they could not leave.
    #[serde(default)]
    pub untold: u32,
    /// When the last attempt left that is on record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<Timestamp>,
    /// The last status that the receiver answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The last thing that went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What became of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// It became a run.
    Run,
    /// It was skipped, for a reason that is on record.
    Skipped,
    /// It is not fired because the trigger is paused now; the record comes when that ends.
    Paused,
    /// The calendar excludes it.
    Excluded,
    /// It is due and not decided yet.
    Pending,
    /// It lies in the future.
    Coming,
    /// It is further back than one request reads: ask for a shorter span, later.
    Unread,
    /// It is further back than records are kept.
    Forgotten,
    /// It should be on record, and is not. This is a fault of Watchbell.
    Missing,
}

/// Why slots were skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The trigger was paused.
    Paused,
    /// Another run of it was not finished.
    Overlap,
    /// Nobody was there to fire them, or their host had no room for long.
    Misfire,
    /// They were among too many that were missed.
    Cap,
    /// The limit of runs was reached.
    Limit,
    /// The trigger was changed, cancelled or deleted, or a later slot took their place.
    Superseded,
    /// The project was disabled.
    Disabled,
    /// No slot was skipped: the trigger had ended long ago, and was deleted.
    Pruned,
    /// As many runs waited in the trigger's queue as may.
    QueueFull,
}

/// How many slots are in which state. Runs on demand are not slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[expect(missing_docs, reason = "the states tell themselves")]
pub struct Totals {
    pub slots: u64,
    pub succeeded: u64,
    pub failed: u64,
    pub under_way: u64,
    pub skipped: u64,
    pub paused: u64,
    pub excluded: u64,
    pub pending: u64,
    pub coming: u64,
    pub unread: u64,
    #[serde(default)]
    pub forgotten: u64,
    pub missing: u64,
    /// Of those that became runs, so many left more than a second late.
    #[serde(default)]
    pub late: u64,
}
