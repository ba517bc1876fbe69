//! What a driver knows of a ring: a copy of what the store showed last, and what it does about it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use engine::instant::Instant;
use engine::record::{Format, RecordError, decode, encode};
use engine::ring::member::{MemberRecord, Visit};
use engine::ring::{MemberName, PartId, SubscriptionConfig, TurnRecord};
use serde::{Deserialize, Serialize};

use super::call::{Answer, Change};
use super::feed::Follower;
use super::{Cursors, Heard, OwnPart, Put, RingId, SubscriptionId};
use crate::{Value, Version};

const FORMAT: Format = Format(1);

/// That there is a ring, or that members of it have changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RingRecord {
    /// When this was written, in milliseconds since 1970: for people.
    pub(super) at_ms: i64,
}

/// The greatest token that any subscription had, or may have had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct GenerationRecord {
    pub(super) last: u64,
}

/// A record as it is stored.
pub(super) fn to_value<T: Serialize>(record: &T) -> Value {
    encode(FORMAT, record).into()
}

/// A record as it was stored.
pub(super) fn from_value<T: serde::de::DeserializeOwned>(value: &Value) -> Result<T, RecordError> {
    decode(value.as_bytes(), FORMAT)
}

/// Time by the clock that waits: it stands still while the machine sleeps.
pub(super) type Mono = Duration;

/// A member, as it was seen last.
#[derive(Debug, Clone)]
pub(super) struct SeenMember {
    pub(super) version: Version,
    pub(super) record: MemberRecord,
    /// When it was seen first that this has to go: a mark, or a member whose sponsor is gone.
    pub(super) idle_since: Option<Mono>,
}

/// A member that is heard by this server.
pub(super) struct Sponsored {
    pub(super) visit: Visit,
    pub(super) heard: Mono,
    /// The store says so, as far as is known here.
    pub(super) is_in: bool,
    pub(super) answers: Vec<Answer<Heard>>,
    /// Since when the answers wait.
    pub(super) asked: Mono,
}

/// A ring.
pub(super) struct RingState {
    pub(super) id: RingId,
    /// Which round of polling saw it first.
    pub(super) born: u64,
    /// At which version of the roll the members were read.
    pub(super) roll: Option<Version>,
    /// When they were read.
    pub(super) read_at: Mono,
    pub(super) members: BTreeMap<MemberName, SeenMember>,
    /// Who is in the ring, in order.
    pub(super) names: Arc<[MemberName]>,
    pub(super) subscriptions: BTreeMap<Arc<str>, Subscription>,
    pub(super) sponsored: HashMap<MemberName, Sponsored>,
    /// Who is to be written as this server's.
    pub(super) joining: BTreeSet<MemberName>,
    pub(super) is_enrolling: bool,
    /// How often enrolling met a conflict in a row.
    pub(super) conflicts: u32,
    pub(super) is_taking_out: bool,
    /// A commit that took several out met a conflict: one at a time.
    pub(super) one_by_one: bool,
    pub(super) look: Looking,
    /// When a commit of its own was last acknowledged.
    pub(super) own_commit: Option<Mono>,
    pub(super) own_under_way: u32,
    pub(super) waiters: HashMap<MemberName, Vec<Waiter>>,
}

/// Whether a ring is being looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Looking {
    No,
    Yes,
    /// And once more after it.
    Again {
        members: Members,
    },
}

/// Whether members are read though the roll has not moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Members {
    IfMoved,
    Always,
}

/// Somebody who waits for parts of a member.
pub(super) struct Waiter {
    pub(super) cursors: Cursors,
    pub(super) until: Mono,
    pub(super) answer: Answer<(Vec<OwnPart>, Cursors)>,
}

/// A subscription.
pub(super) struct Subscription {
    pub(super) id: SubscriptionId,
    pub(super) key: Arc<str>,
    pub(super) config: Arc<SubscriptionConfig>,
    pub(super) record: Arc<TurnRecord>,
    pub(super) version: Version,
    /// When it was seen to have moved.
    pub(super) seen: Mono,
    pub(super) is_busy: bool,
    /// The version that a server in line has looked at.
    pub(super) looked_at: Option<Version>,
    /// The slot from which an empty ring goes on, and the version that rests.
    pub(super) wake: Option<(Version, Instant)>,
    /// Which of its alarms counts.
    pub(super) alarm: u64,
    pub(super) part_alarm: u64,
    pub(super) followers: Vec<Follower>,
    /// Since when each open part is offered, as this server saw it: by part and offer.
    pub(super) offers: HashMap<(PartId, u64), Mono>,
    pub(super) asked: Vec<AskedPart>,
    pub(super) changes: Vec<AskedChange>,
}

/// A part that somebody wants to accept.
pub(super) struct AskedPart {
    pub(super) part: PartId,
    pub(super) member: MemberName,
    pub(super) answer: Answer<u64>,
    pub(super) asked: Mono,
    /// The record was read after it was asked.
    pub(super) is_fresh: bool,
}

/// A change that somebody wants.
pub(super) struct AskedChange {
    pub(super) what: WantedChange,
    pub(super) asked: Mono,
    pub(super) is_fresh: bool,
}

/// Which.
pub(super) enum WantedChange {
    PassOver(Answer<String>),
    Change(Box<Change>, Answer<Put>),
}

impl RingState {
    pub(super) fn new(id: RingId, born: u64) -> Self {
        Self {
            id,
            born,
            roll: None,
            read_at: Mono::ZERO,
            members: BTreeMap::new(),
            names: Arc::new([]),
            subscriptions: BTreeMap::new(),
            sponsored: HashMap::new(),
            joining: BTreeSet::new(),
            is_enrolling: false,
            conflicts: 0,
            is_taking_out: false,
            one_by_one: false,
            look: Looking::No,
            own_commit: None,
            own_under_way: 0,
            waiters: HashMap::new(),
        }
    }

    /// Who is in the ring, when these sessions are there: a member of a server until it is taken out, and one with a session of
    /// its own as long as that is there.
    pub(super) fn present(&self, is_there: impl Fn(&str) -> bool) -> Vec<MemberName> {
        let is_in = |record: &MemberRecord| {
            record.session.as_ref().is_some_and(|session| !record.own || is_there(session))
        };
        let present = self.members.iter().filter(|(_, seen)| is_in(&seen.record));
        present.map(|(name, _)| name.clone()).collect()
    }
}
