//! What a driver knows of a ring: a copy of what the store showed last, and what it does about it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use engine::instant::Instant;
use engine::limits::RING_PAGE_ENTRIES;
use engine::record::{Format, RecordError, decode, encode};
use engine::ring::member::{MemberRecord, Visit};
use engine::ring::{MemberName, NumberedEntry, PartId, SubscriptionConfig, TurnRecord};
use serde::{Deserialize, Serialize};

use super::call::{Answer, Call, Change};
use super::feed::Follower;
use super::{Cursors, Heard, Note, OwnPart, Put, RingId, SubscriptionId};
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
    /// The store had it when it was looked at last.
    pub(super) exists: bool,
    /// It was deleted, and what is left of it is being cleared away.
    pub(super) is_swept: bool,
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
    pub(super) sponsored: BTreeMap<MemberName, Sponsored>,
    /// Who is to be written as this server's.
    pub(super) joining: BTreeSet<MemberName>,
    pub(super) is_enrolling: bool,
    /// How often enrolling met a conflict in a row.
    pub(super) conflicts: u32,
    pub(super) is_taking_out: bool,
    /// A commit that took several out met a conflict: one at a time.
    pub(super) one_by_one: bool,
    pub(super) look: Looking,
    /// When a commit of its own was last acknowledged, and how many are under way: hints of these are no news.
    pub(super) own_commit: Option<Mono>,
    pub(super) own_under_way: u32,
    pub(super) waiters: BTreeMap<MemberName, Vec<Waiter>>,
    /// What is asked of it, or of a subscription, that was not there yet when this server looked last.
    pub(super) pending: Vec<(u64, Call)>,
}

/// How a ring is looked at.
#[derive(Debug, Default)]
pub(super) struct Looking {
    pub(super) is_under_way: bool,
    /// Once more after that.
    pub(super) again: Option<Members>,
    /// The number of the look that was begun last, and of the last one that showed something.
    pub(super) begun: u64,
    pub(super) shown: u64,
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
    /// By this its servers are put in line.
    pub(super) line: Arc<str>,
    pub(super) config: Arc<SubscriptionConfig>,
    pub(super) record: Arc<TurnRecord>,
    pub(super) version: Version,
    /// When it was seen to have moved.
    pub(super) seen: Mono,
    /// Its last entries, without a gap up to the record's last.
    pub(super) recent: VecDeque<Arc<NumberedEntry>>,
    /// A commit is under way, or what became of it is being looked up.
    pub(super) is_busy: bool,
    /// A write that failed: what is to be done when it was looked up.
    pub(super) failed: Option<Failed>,
    /// A look before a write, at this version.
    pub(super) acting: Option<Version>,
    /// The version that a server in line has looked at.
    pub(super) looked_at: Option<Version>,
    /// The slot from which an empty ring goes on, and the version that rests.
    pub(super) wake: Option<(Version, Instant)>,
    /// Nothing is tried before.
    pub(super) not_before: Mono,
    /// Which of its alarms counts.
    pub(super) alarm: u64,
    pub(super) part_alarm: u64,
    pub(super) followers: Vec<Follower>,
    /// Since when each open part is offered, as this server saw it: by part and offer.
    pub(super) offers: BTreeMap<(PartId, u64), Mono>,
    pub(super) asked: Vec<AskedPart>,
    pub(super) changes: Vec<AskedChange>,
}

/// A write that did not succeed, as far as is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Failed {
    /// What it was to replace.
    pub(super) base: Version,
    /// It was turns, and met a conflict for the first time: if that was the roll, the second try names who was chosen.
    pub(super) may_name: bool,
}

/// A part that somebody wants to accept.
pub(super) struct AskedPart {
    pub(super) part: PartId,
    pub(super) member: MemberName,
    pub(super) answer: Answer<u64>,
    pub(super) asked: Mono,
    /// The look that must have shown something before it is refused.
    pub(super) need: u64,
}

/// A change that somebody wants.
pub(super) struct AskedChange {
    pub(super) what: WantedChange,
    pub(super) asked: Mono,
    /// The look that must have shown something before it is refused.
    pub(super) need: u64,
}

/// Which.
pub(super) enum WantedChange {
    PassOver(Note, Answer<String>),
    Change(Box<Change>, Answer<Put>),
}

impl RingState {
    pub(super) fn new(id: RingId, born: u64) -> Self {
        Self {
            id,
            exists: false,
            is_swept: false,
            born,
            roll: None,
            read_at: Mono::ZERO,
            members: BTreeMap::new(),
            names: Arc::new([]),
            subscriptions: BTreeMap::new(),
            sponsored: BTreeMap::new(),
            joining: BTreeSet::new(),
            is_enrolling: false,
            conflicts: 0,
            is_taking_out: false,
            one_by_one: false,
            look: Looking::default(),
            own_commit: None,
            own_under_way: 0,
            waiters: BTreeMap::new(),
            pending: Vec::new(),
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

    pub(super) fn subscription(&mut self, name: &str) -> Option<&mut Subscription> {
        self.subscriptions.get_mut(name)
    }

    /// The number that the next look will have.
    pub(super) fn next_look(&self) -> u64 {
        self.look.begun + 1
    }
}

impl Subscription {
    /// The entries after this number, if none of them is missing in memory.
    pub(super) fn recent_after(
        &self,
        number: u64,
    ) -> Option<impl Iterator<Item = &Arc<NumberedEntry>>> {
        let first = self.recent.front().map_or(self.record.number + 1, |entry| entry.number());
        let skipped = (number + 1).checked_sub(first)?;
        Some(self.recent.iter().skip(usize::try_from(skipped).unwrap_or(usize::MAX)))
    }

    /// Remembers what the record says now. `new` is what is known of the entries since the last one.
    pub(super) fn remember(&mut self, new: &[Arc<NumberedEntry>]) {
        let follows = new.first().is_none_or(|first| {
            self.recent.back().is_none_or(|last| last.number() + 1 == first.number())
        });
        if !follows {
            self.recent.clear();
        }
        self.recent.extend(new.iter().cloned());
        let kept = RING_PAGE_ENTRIES.max(new.len());
        self.recent.drain(..self.recent.len().saturating_sub(kept));
    }
}
