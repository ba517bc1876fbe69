//! What must hold of rings, whoever dies when.
//!
//! The checker sees commits as they land, and what members and listeners are told. It shares nothing with drivers but the form of
//! records and schedules: whose turn it ought to be it works out from who was in the ring, as the store had it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::instant::Instant;
use engine::record::{Format, decode};
use engine::ring::member::MemberRecord;
use engine::ring::{NumberedEntry, PartId, RingEntry, SubscriptionConfig, TurnRecord};
use serde::Deserialize;
use store::ring::{Cursor, RingEvent, RingEventKind};
use store::{Commit, Write};

use super::CALM;
use crate::clock::{MS, TrueTime};
use crate::world::{World, seconds};

/// How often which things happened.
#[derive(Debug, Clone, Copy, Default)]
pub struct RingCounts {
    /// Turns that were written.
    pub turns: u64,
    /// Slots that were skipped.
    pub skipped: u64,
    /// Times that another server wrote than the time before.
    pub take_overs: u64,
    /// Members that joined, and that left or were taken out.
    pub joins: u64,
    /// Members that left or were taken out.
    pub gone: u64,
    /// Parts that passed on.
    pub passed: u64,
    /// Parts that were accepted.
    pub accepted: u64,
    /// Events that listeners were told.
    pub told: u64,
    /// Subscriptions that were made anew.
    pub generations: u64,
    /// Gaps that listeners were told.
    pub gaps: u64,
}

/// Looks out for what is wrong.
#[derive(Default)]
pub struct RingChecker(Mutex<RingState>);

#[derive(Default)]
struct RingState {
    violation: Option<String>,
    counts: RingCounts,
    subscriptions: BTreeMap<String, Truth>,
    members: BTreeMap<String, Presence>,
    /// When a member died that is not back, and when one was told that it has left.
    dead: BTreeMap<String, TrueTime>,
    left: BTreeMap<String, TrueTime>,
    favourite: Option<usize>,
}

/// What the store says of a subscription, from its first entry.
#[derive(Default)]
struct Truth {
    generation: u64,
    entries: BTreeMap<Cursor, RingEntry>,
    last: u64,
    decided: Option<Instant>,
    config: Option<Arc<SubscriptionConfig>>,
    /// When a turn landed last.
    landed: TrueTime,
    /// Since when each was served last, and how often each other has been served since.
    served: BTreeMap<String, (TrueTime, BTreeMap<String, u32>)>,
    is_spared: bool,
}

/// Whether a member is in the ring, and since when.
#[derive(Default)]
struct Presence {
    since: Option<TrueTime>,
    visit: u64,
    /// The greatest visit that was over.
    over: u64,
}

#[derive(Deserialize)]
struct Page {
    entries: Vec<Arc<NumberedEntry>>,
}

impl RingChecker {
    fn lock(&self) -> MutexGuard<'_, RingState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was wrong first.
    pub fn violation(&self) -> Option<String> {
        self.lock().violation.clone()
    }

    /// Whether anything was.
    pub fn is_broken(&self) -> bool {
        self.lock().violation.is_some()
    }

    /// How often which things happened.
    pub fn counts(&self) -> RingCounts {
        self.lock().counts
    }

    /// The node that wrote last.
    pub fn favourite(&self) -> Option<usize> {
        self.lock().favourite
    }

    /// A commit has landed.
    pub fn lands(&self, world: &World, commit: &Commit) {
        let mut state = self.lock();
        let mut pages: Vec<Arc<NumberedEntry>> = Vec::new();
        for write in &commit.then {
            let key = write.key().as_str().to_owned();
            if let Some(member) = key.strip_prefix("ring/member/default/watch/") {
                state.member(world, member, write);
            } else if let Write::Put(_, value) = write
                && key.starts_with("ring/page/")
            {
                let page: Page = decode(value.as_bytes(), Format(1)).expect("a page");
                pages.extend(page.entries);
            }
        }
        for write in &commit.then {
            let key = write.key().as_str();
            let Some(name) = key.strip_prefix("ring/head/default/watch/turn/") else { continue };
            match write {
                Write::Put(_, value) => {
                    let record: TurnRecord = decode(value.as_bytes(), Format(1)).expect("a record");
                    state.record(world, name, &record, &pages);
                }
                Write::Delete(_) => {
                    state.subscriptions.remove(name);
                }
            }
        }
    }

    /// A listener is told something.
    pub fn told(&self, world: &World, name: &str, last: Option<Cursor>, event: &RingEvent) {
        let mut state = self.lock();
        state.counts.told += 1;
        if matches!(event.kind, RingEventKind::Gap { .. }) {
            state.counts.gaps += 1;
        }
        let Some(cursor) = event.cursor else { return };
        if let Some(last) = last {
            let follows = if last.generation == cursor.generation {
                cursor.number == last.number + 1
            } else {
                cursor.generation > last.generation && cursor.number == 1
            };
            if !follows {
                state.accuse(world, format!("a listener is told {cursor} after {last}"));
            }
        }
        let Some(truth) = state.subscriptions.get(name) else { return };
        if truth.generation != cursor.generation {
            return;
        }
        let is_so = truth.entries.get(&cursor).is_some_and(|entry| is_told_by(entry, &event.kind));
        if !is_so {
            let truth = truth.entries.get(&cursor);
            let what =
                format!("at {cursor} a listener is told {:?}, and there is {truth:?}", event.kind);
            state.accuse(world, what);
        }
    }

    /// A listener was told of a gap: it goes on behind it.
    pub fn is_kept(&self, name: &str, generation: u64, number: u64) -> bool {
        let state = self.lock();
        let truth = state.subscriptions.get(name);
        truth.is_some_and(|truth| truth.generation == generation && truth.last >= number)
    }

    /// A member was told that it has accepted a part, and acts.
    pub fn acts(&self, world: &World, name: &str, generation: u64, part: PartId, member: &str) {
        let mut state = self.lock();
        let Some(truth) = state.subscriptions.get(name) else { return };
        if truth.generation != generation {
            return;
        }
        let mut entries = truth.entries.values();
        let is_so = entries.any(|entry| matches!(entry, RingEntry::Accepted { part: p, member: m } if *p == part && **m == *member));
        if !is_so {
            state.accuse(
                world,
                format!("{member} acts on {part:?} of {name}, which it has not accepted"),
            );
        }
    }

    /// A member was told that it has left; and it is about to join anew.
    pub fn left(&self, world: &World, member: &str) {
        self.lock().left.insert(member.to_owned(), world.now());
    }

    /// A member begins to join.
    pub fn joins(&self, member: &str) {
        let mut state = self.lock();
        state.left.remove(member);
        state.dead.remove(member);
    }

    /// A member has died.
    pub fn dies(&self, world: &World, member: &str) {
        self.lock().dead.insert(member.to_owned(), world.now());
    }

    /// The run is over: did everything go on?
    pub fn ends(&self, world: &World) {
        let mut state = self.lock();
        let now = world.now();
        if state.violation.is_some() || now < CALM + 30_000 * MS {
            return;
        }
        let is_in = state.members.values().any(|member| member.since.is_some());
        let stalled: Vec<String> = state
            .subscriptions
            .iter()
            .filter(|(_, truth)| is_in && truth.landed + 8_000 * MS < now)
            .map(|(name, truth)| format!("{name} had its last turn at {}", seconds(truth.landed)))
            .collect();
        for stalled in stalled {
            state.accuse(world, stalled);
        }
    }
}

fn is_told_by(entry: &RingEntry, told: &RingEventKind) -> bool {
    match (entry, told) {
        (RingEntry::Turn { slot, members }, RingEventKind::Turn { slot: of, parts, .. }) => {
            slot == of && members.iter().eq(parts.iter().map(|part| &part.member))
        }
        (RingEntry::Skip { from, to, .. }, RingEventKind::Skip { from: f, to: t, .. }) => {
            (from, to) == (f, t)
        }
        (RingEntry::Pass { part, to, .. }, RingEventKind::Pass { part: p, to: t, .. }) => {
            (part, to) == (p, t)
        }
        (RingEntry::Accepted { part, member }, RingEventKind::Accepted { part: p, member: m }) => {
            (part, member) == (p, m)
        }
        (RingEntry::Unaccepted { part }, RingEventKind::Unaccepted { part: p }) => part == p,
        (RingEntry::PassedOver { member }, RingEventKind::PassedOver { member: m }) => member == m,
        (RingEntry::Changed { since, .. }, RingEventKind::Changed { since: s, .. }) => since == s,
        (RingEntry::SetBack { to }, RingEventKind::SetBack { to: t }) => to == t,
        _ => false,
    }
}

impl RingState {
    fn accuse(&mut self, world: &World, what: String) {
        let at = seconds(world.now());
        self.violation.get_or_insert(format!("{at:.6} s: {what}"));
    }

    /// A member's record was written.
    fn member(&mut self, world: &World, name: &str, write: &Write) {
        let record = match write {
            Write::Put(_, value) => {
                Some(decode::<MemberRecord>(value.as_bytes(), Format(1)).expect("a member"))
            }
            Write::Delete(_) => None,
        };
        let now = world.now();
        let presence = self.members.entry(name.to_owned()).or_default();
        let mut wrong = None;
        match record {
            Some(record) if record.session.is_some() => {
                if record.visit <= presence.over || record.visit < presence.visit {
                    wrong =
                        Some(format!("{name} is back by visit {}, which is over", record.visit));
                }
                presence.visit = record.visit;
                if presence.since.is_none() {
                    presence.since = Some(now);
                    self.counts.joins += 1;
                }
            }
            Some(record) => {
                presence.over = presence.over.max(record.visit);
                self.counts.gone += u64::from(presence.since.take().is_some());
            }
            None => {
                // A mark has gone; or a member without leaving one.
                presence.over = presence.over.max(presence.visit);
                self.counts.gone += u64::from(presence.since.take().is_some());
            }
        }
        if let Some(wrong) = wrong {
            self.accuse(world, wrong);
        }
    }

    /// A subscription's record was written.
    fn record(
        &mut self,
        world: &World,
        name: &str,
        record: &TurnRecord,
        pages: &[Arc<NumberedEntry>],
    ) {
        let node = record.writer.strip_prefix("node/n").and_then(|rest| rest.split('/').next());
        let node = node.and_then(|node| node.parse().ok());
        if self.favourite != node {
            self.counts.take_overs += 1;
            self.favourite = node;
        }
        let generation = record.generation;
        let truth = self.subscriptions.entry(name.to_owned()).or_default();
        if truth.generation != generation {
            let greater = truth.generation < generation;
            *truth = Truth { generation, landed: world.now(), ..Truth::default() };
            truth.decided = Some(record.decided);
            self.counts.generations += 1;
            if !greater {
                return self.accuse(world, format!("generation {generation} is not greater"));
            }
        }
        if truth.config.is_none() {
            let config = record.draft.build("watch", name, Instant(0));
            truth.config = Some(Arc::new(config.expect("it was checked")));
        }
        let last = truth.last;
        let mut wrong = Vec::new();
        for NumberedEntry(number, entry) in pages.iter().chain(&record.page).map(|entry| &**entry) {
            let cursor = Cursor { generation, number: *number };
            if *number <= last {
                if truth.entries.get(&cursor) != Some(entry) {
                    wrong.push(format!("entry {number} of {name} is another now: {entry:?}"));
                }
            } else if *number != truth.last + 1 {
                wrong.push(format!("entry {number} of {name} comes after {}", truth.last));
            } else {
                truth.last = *number;
                truth.entries.insert(cursor, entry.clone());
            }
        }
        if truth.last != record.number || record.number < last {
            wrong.push(format!("{name} says {} and has {}", record.number, truth.last));
        }
        if let Some(wrong) = wrong.into_iter().next() {
            return self.accuse(world, wrong);
        }
        let range = Cursor { generation, number: last + 1 }..;
        let new: Vec<RingEntry> = truth.entries.range(range).map(|(_, e)| e.clone()).collect();
        for entry in new {
            self.entry(world, name, &entry);
        }
    }

    /// Something new happened in a subscription.
    fn entry(&mut self, world: &World, name: &str, entry: &RingEntry) {
        let now = world.now();
        let Some(truth) = self.subscriptions.get_mut(name) else { return };
        let config = Arc::clone(truth.config.as_ref().expect("it was read"));
        let next = truth.decided.and_then(|decided| config.schedule.next(decided));
        let mut wrong = None;
        match entry {
            RingEntry::Turn { slot, members } => {
                self.counts.turns += 1;
                (truth.landed, truth.decided) = (now, Some(*slot));
                if Some(*slot) != next {
                    wrong = Some(format!("slot {slot} of {name} comes where {next:?} is next"));
                }
                for member in members {
                    if wrong.is_none() {
                        wrong = self.serve(now, name, member);
                    }
                }
            }
            RingEntry::Skip { from, to, slots, .. } => {
                self.counts.skipped += slots;
                (truth.landed, truth.decided) = (now, Some(*to));
                if Some(*from) != next {
                    wrong =
                        Some(format!("slot {from} of {name} is skipped where {next:?} is next"));
                }
            }
            RingEntry::Pass { .. } | RingEntry::PassedOver { .. } => {
                self.counts.passed += 1;
                truth.is_spared = true;
            }
            RingEntry::Accepted { .. } => self.counts.accepted += 1,
            RingEntry::Unaccepted { .. } => {}
            RingEntry::Changed { draft, since } => {
                let config = draft.build("watch", name, Instant(0)).expect("it was checked");
                truth.config = Some(Arc::new(config));
                truth.decided = Some(*since);
            }
            RingEntry::SetBack { to } => truth.decided = Some(*to),
        }
        if let Some(wrong) = wrong {
            self.accuse(world, wrong);
        }
    }

    /// A member has a turn. What is wrong with that, if anything is.
    fn serve(&mut self, now: TrueTime, name: &str, member: &str) -> Option<String> {
        let since = |member: &str| self.members.get(member).and_then(|presence| presence.since);
        if since(member).is_none() {
            return Some(format!("{member} has a turn, and is not in the ring"));
        }
        if let Some(left) = self.left.get(member) {
            return Some(format!("{member} has a turn, and left at {}", seconds(*left)));
        }
        if let Some(dead) = self.dead.get(member)
            && now > (*dead).max(CALM) + 25_000 * MS
        {
            return Some(format!("{member} has a turn, and died at {}", seconds(*dead)));
        }
        let there: Vec<(String, TrueTime)> =
            self.members.iter().filter_map(|(name, p)| Some((name.clone(), p.since?))).collect();
        let truth = self.subscriptions.get_mut(name)?;
        if truth.is_spared {
            // Whoever took over a part had a turn out of its order.
            truth.is_spared = false;
            truth.served.clear();
        }
        let former = truth.served.insert(member.to_owned(), (now, BTreeMap::new()));
        for (other, (_, counts)) in &mut truth.served {
            if other != member {
                *counts.entry(member.to_owned()).or_default() += 1;
            }
        }
        let (then, counts) = former?;
        let stayed = |who: &str| there.iter().any(|(name, since)| name == who && *since < then);
        if !stayed(member) {
            return None;
        }
        let mut others = there.iter().filter(|(other, since)| other != member && *since < then);
        let unfair = others.find(|(other, _)| counts.get(other).copied().unwrap_or(0) != 1)?;
        let times = counts.get(&unfair.0).copied().unwrap_or(0);
        Some(format!("between two turns of {member}, {} had {times}", unfair.0))
    }
}
