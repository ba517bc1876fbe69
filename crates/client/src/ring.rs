//! Rings: who is in one, whose turn it is, and how a program takes part.
//!
//! A ring has members and subscriptions. A subscription comes around by a schedule of its own: each turn is of the next
//! `count` members in the order of their names. A ring is made with the subscription `main`, and most have no other.
//!
//! Whoever wants to be a member sends a [`MemberRequest`] again and again, and is answered with the turns that it has
//! ([`MemberAnswer`]). Whoever wants to see everything follows the entries of a subscription ([`RingEvent`]).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::spec::{CatchUp, ScheduleSpec};

/// The subscription that a ring is made with.
pub const MAIN: &str = "main";

/// The type of the problem that a member is told that was taken out of the ring: it may join anew.
pub const MEMBER_GONE: &str = "urn:watchbell:problem:member-gone";

/// The type of the problem that a member is told whose name somebody else has joined under since.
pub const MEMBER_TAKEN: &str = "urn:watchbell:problem:member-taken";

/// A subscription as one writes it: when its turns come, and how many members each has.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(example = serde_json::json!({"schedule": {"every": "1s"}, "count": 2}))
)]
#[serde(default, deny_unknown_fields)]
pub struct SubscriptionSpec {
    /// When turns come: as for triggers, without `at`, `start`, `end`, `limit` and `jitter`. An interval may be as short as
    /// `20ms`, and lies where the names of ring and subscription say if it has no `phase`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<ScheduleSpec>,
    /// How many members each turn has, also more than there are; 1, if it is not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 64)))]
    pub count: Option<u64>,
    /// The parts of a turn are spread over so many percent of the time to the next one; 0, if it is not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 100)))]
    pub splay_percent: Option<u64>,
    /// What becomes of turns that are more than 5 s late: `latest`, if it is not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub catch_up: Option<CatchUp>,
    /// How many of them come at most, with [`CatchUp::All`].
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1_000)))]
    pub catch_up_cap: Option<u64>,
    /// A part of a turn that its member has not accepted within this time, 200 ms to 1 h, passes to the next member; without it,
    /// nothing is to be accepted, and no part passes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(
            regex(pattern = "^([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$"),
            length(min = 2)
        )
    )]
    pub accept: Option<String>,
}

impl SubscriptionSpec {
    /// One whose turns come in this interval: `5s`, `200ms`.
    pub fn every(interval: impl Into<String>) -> Self {
        let schedule = ScheduleSpec { every: vec![interval.into()], ..ScheduleSpec::default() };
        Self { schedule: Some(schedule), ..Self::default() }
    }

    /// One whose turns come by this cron pattern.
    pub fn cron(pattern: impl Into<String>) -> Self {
        let schedule = ScheduleSpec { cron: vec![pattern.into()], ..ScheduleSpec::default() };
        Self { schedule: Some(schedule), ..Self::default() }
    }

    /// The same with so many members in each turn.
    #[must_use]
    pub fn count(self, count: u64) -> Self {
        Self { count: Some(count), ..self }
    }

    /// The same where a part that is not accepted within this time passes on.
    #[must_use]
    pub fn accept(self, within: impl Into<String>) -> Self {
        Self { accept: Some(within.into()), ..self }
    }
}

/// A ring.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Ring {
    /// The ring's name.
    pub name: String,
    /// How many members it has.
    pub members: u64,
    /// Its subscriptions, by name.
    pub subscriptions: Vec<Subscription>,
}

/// A subscription: how it is meant, and how it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Subscription {
    /// The name of its ring.
    pub ring: String,
    /// Its name.
    pub name: String,
    /// Tells this subscription from a former one of the same name.
    pub generation: u64,
    /// Grows with each change of `spec`.
    pub revision: u64,
    /// When its turns come, and how many members each has.
    pub spec: SubscriptionSpec,
    /// Whether turns come.
    pub state: SubscriptionState,
    /// The number of its last entry; 0 before the first.
    pub number: u64,
    /// The member that had the last place of the last turn: the next turn begins after its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<String>,
    /// Up to which instant it is decided who had the turn.
    pub decided: Timestamp,
    /// When the next turn comes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Timestamp>,
    /// Who will have it, if nobody joins and nobody leaves.
    #[serde(default)]
    pub next_members: Vec<String>,
    /// How many parts of turns are not accepted yet.
    #[serde(default)]
    pub waiting: u64,
    /// The server that decided last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writer: Option<String>,
}

/// Whether turns of a subscription come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SubscriptionState {
    /// Turns come.
    Turning,
    /// The ring is empty: turns come when somebody joins.
    Resting,
}

impl SubscriptionState {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Turning, Self::Resting];

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Turning => "turning",
            Self::Resting => "resting",
        }
    }
}

/// A member of a ring.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Member {
    /// Its name.
    pub name: String,
    /// The number of this membership: it grows whenever somebody joins anew under this name.
    pub visit: u64,
    /// Whose session keeps it in the ring: the server by which it joined, or its own.
    pub by: String,
    /// Whether that session is its own.
    #[serde(default)]
    pub own_session: bool,
    /// Since when it is in the ring, or came by this session, by the clock of whoever wrote it.
    pub since: Timestamp,
}

/// What a member sends, again and again: the first request joins, each further one is a sign of life.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(example = serde_json::json!({"visit": 3, "after": "main=1.17", "wait_ms": 2000}))
)]
#[serde(default, deny_unknown_fields)]
pub struct MemberRequest {
    /// The visit that the last answer told; none in the first request, which joins anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub visit: Option<u64>,
    /// What the last answer told: turns after that are answered. Without it, those from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(max = 4096)))]
    pub after: Option<String>,
    /// How long the answer may wait for a turn, in milliseconds. While it waits it counts as a sign of life.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 30000)))]
    pub wait_ms: u64,
    /// Only turns of these subscriptions; of all, if none is named.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 16)))]
    pub subscriptions: Vec<String>,
}

/// What a member is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(example = serde_json::json!({
        "visit": 3, "beat_ms": 1000, "after": "main=1.18", "turns": [{
            "subscription": "main", "generation": 1, "number": 18, "slot": "2026-11-19T12:00:00Z", "at": "2026-11-19T12:00:00Z",
            "part": 0, "token": 1_800_000_000_000_000_u64, "accept": false,
        }],
    }))
)]
pub struct MemberAnswer {
    /// To be sent with the next request.
    pub visit: u64,
    /// The next request is to be sent within this time after the answer, in milliseconds: after 5 s of silence a member is
    /// taken out.
    pub beat_ms: u64,
    /// To be sent with the next request.
    pub after: String,
    /// The turns that it has, oldest first.
    pub turns: Vec<MemberTurn>,
}

/// A part of a turn, as its member is told of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MemberTurn {
    /// Of which subscription.
    pub subscription: String,
    /// Tells the subscription from a former one of the same name.
    pub generation: u64,
    /// The number of the turn.
    pub number: u64,
    /// The instant of which it is the turn.
    pub slot: Timestamp,
    /// When the part is to be carried out: later than the slot, if the subscription has a splay.
    pub at: Timestamp,
    /// Which of the places of the turn, from 0.
    pub part: u64,
    /// To be shown to whatever is acted upon, which refuses a smaller one than it has seen.
    pub token: u64,
    /// Whether it is to be accepted first. Whoever acts before its acceptance is answered may not be alone.
    #[serde(default)]
    pub accept: bool,
    /// How long there is to accept it before it passes to the next member, in milliseconds after it was offered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accept_ms: Option<u64>,
}

/// How a member accepts its part of a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(example = serde_json::json!({"member": "web-1", "part": 0}))
)]
#[serde(deny_unknown_fields)]
pub struct AcceptRequest {
    /// Who accepts it.
    #[cfg_attr(
        feature = "schema",
        schemars(length(min = 1, max = 100), regex(pattern = "^[A-Za-z0-9._-]+$"))
    )]
    pub member: String,
    /// Which of the places of the turn, from 0.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(max = 63)))]
    pub part: u64,
    /// The generation that came with the turn; that of now, if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
}

/// That a part of a turn is accepted: its member, and nobody else, carries it out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Accepted {
    /// The number of the turn.
    pub number: u64,
    /// Which of its places.
    pub part: u64,
    /// Who carries it out.
    pub member: String,
    /// The token of the part.
    pub token: u64,
}

/// What stands in a subscription: its turns, and all else that was decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RingEntry {
    /// Tells the subscription from a former one of the same name.
    pub generation: u64,
    /// Entries are numbered from 1, without a gap.
    pub number: u64,
    /// What was decided.
    #[serde(flatten)]
    pub what: RingEvent,
}

/// What happens in a ring. All but `add`, `remove`, `gap`, `error` and `closing` are entries of the
/// subscription: everybody sees the same ones in the same order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum RingEvent {
    /// Somebody is in the ring.
    Add {
        /// The name of the member.
        member: String,
    },
    /// Somebody is in the ring no more.
    Remove {
        /// The name of the member.
        member: String,
    },
    /// A turn has come.
    Turn {
        /// The instant of which it is the turn.
        slot: Timestamp,
        /// Who has it, in their order.
        parts: Vec<RingPart>,
    },
    /// Nobody has the turn of these instants.
    Skip {
        /// The first one.
        from: Timestamp,
        /// The last one.
        to: Timestamp,
        /// How many they are.
        slots: u64,
        /// Why.
        reason: SkipReason,
    },
    /// A part was not accepted in time, or its member is gone: it passes to another one.
    Pass {
        /// The number of the turn.
        turn: u64,
        /// Which of its places.
        part: u64,
        /// Who had it.
        from: String,
        /// Who has it now.
        to: String,
        /// Its token from now on.
        token: u64,
    },
    /// A part was accepted.
    Accepted {
        /// The number of the turn.
        turn: u64,
        /// Which of its places.
        part: u64,
        /// By whom.
        member: String,
    },
    /// A part was accepted by nobody, and all were asked.
    Unaccepted {
        /// The number of the turn.
        turn: u64,
        /// Which of its places.
        part: u64,
    },
    /// Somebody had the next member passed over.
    PassedOver {
        /// Who would have been next.
        member: String,
    },
    /// The subscription is another one from here on.
    Schedule {
        /// What it is now.
        spec: Box<SubscriptionSpec>,
        /// Turns after this come by it.
        since: Timestamp,
    },
    /// The clock of a server had run far ahead: turns after this are decided once more.
    SetBack {
        /// Up to here it is decided.
        to: Timestamp,
    },
    /// What happened between these numbers is not kept any more.
    Gap {
        /// The number of the first entry that is missing.
        from: u64,
        /// The number of the last entry that is missing.
        to: u64,
    },
    /// The server cannot tell what happens at the moment; it goes on trying.
    Error {
        /// Why.
        why: String,
    },
    /// Nothing more comes by this connection: begin again at another server, with the last id.
    Closing {
        /// Why.
        why: String,
    },
}

/// A place of a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RingPart {
    /// Who has it.
    pub member: String,
    /// To be shown to whatever is acted upon.
    pub token: u64,
    /// When it is to be carried out, if that is not at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}

/// Why nobody has a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// The ring was empty.
    Empty,
    /// It was too late for it, by the subscription's `catch_up`.
    Missed,
}

impl RingEvent {
    /// Whether it is an entry of the subscription, with a number of its own.
    pub fn is_entry(&self) -> bool {
        match self {
            Self::Turn { .. }
            | Self::Skip { .. }
            | Self::Pass { .. }
            | Self::Accepted { .. }
            | Self::Unaccepted { .. }
            | Self::PassedOver { .. }
            | Self::Schedule { .. }
            | Self::SetBack { .. } => true,
            Self::Add { .. }
            | Self::Remove { .. }
            | Self::Gap { .. }
            | Self::Error { .. }
            | Self::Closing { .. } => false,
        }
    }

    /// The name of its kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Add { .. } => "add",
            Self::Remove { .. } => "remove",
            Self::Turn { .. } => "turn",
            Self::Skip { .. } => "skip",
            Self::Pass { .. } => "pass",
            Self::Accepted { .. } => "accepted",
            Self::Unaccepted { .. } => "unaccepted",
            Self::PassedOver { .. } => "passed_over",
            Self::Schedule { .. } => "schedule",
            Self::SetBack { .. } => "set_back",
            Self::Gap { .. } => "gap",
            Self::Error { .. } => "error",
            Self::Closing { .. } => "closing",
        }
    }
}

/// An event of a ring, and the entry that it is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FollowedEvent {
    /// The place after it: what [`Client::follow_ring`](crate::Client::follow_ring) begins with to go on from there.
    pub place: Option<String>,
    /// What happened.
    pub what: RingEvent,
}

impl FollowedEvent {
    /// Generation and number of the entry, if it is one.
    pub fn entry(&self) -> Option<(u64, u64)> {
        let place = self.place.as_deref().filter(|_| self.what.is_entry())?;
        let (generation, number) = place.split_once('.')?;
        Some((generation.parse().ok()?, number.parse().ok()?))
    }
}
