//! Who is told what, at a node: followers of subscriptions, and members that wait for their parts.
//!
//! Both are told what the record says and nothing else, each after its own cursor. What is in memory is told at once; what lies
//! behind that is read from the store for whoever needs it, and nobody else waits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use engine::limits::RING_FOLLOWERS_MAX;
use engine::mutant::{Mutant, active};
use engine::ring::{MemberName, NumberedEntry, PartId, RingEntry, TurnRecord};

use super::call::{Call, answer};
use super::feed::Follower;
use super::flow::Agenda;
use super::node::RingNode;
use super::state::{RingState, Subscription, Waiter};
use super::view::Kept;
use super::{Cursor, Cursors, OwnPart, RingError, RingEvent, RingEventKind, SubscriptionId};

/// Entries that were read from pages for a call: by subscription.
pub(super) type Recalled = BTreeMap<Arc<str>, Vec<Arc<NumberedEntry>>>;

impl RingState {
    /// Tells followers and members what is new in a subscription.
    pub(super) fn tell(&mut self, node: &mut RingNode, agenda: &mut Agenda, name: &str) {
        if let Some(subscription) = self.subscription(name) {
            subscription.tell_followers(agenda);
        }
        self.note_offers(node, agenda, name);
        self.tell_waiters(node, agenda, name);
    }

    /// Somebody follows a subscription.
    pub(super) fn follow(&mut self, node: &mut RingNode, agenda: &mut Agenda, call: Call) {
        let (shown, need) = (self.look.shown, self.next_look());
        let Call::Follow { subscription: id, from, answer: to } = call else { return };
        if node.stats.followers >= RING_FOLLOWERS_MAX {
            let why = format!(
                "{RING_FOLLOWERS_MAX} followers are told of rings by this server, which is as many as it takes: follow at another"
            );
            return answer(to, Err(RingError::Limit(why)));
        }
        let Some(subscription) = self.subscription(&id.name) else { return };
        let Cursor { generation, number } = subscription.present();
        // It may have heard more at another server than is known here.
        let is_ahead = |from: Cursor| {
            from.generation == generation && from.number > number || from.generation > generation
        };
        if from.is_some_and(is_ahead) && shown == 0 {
            self.pending.push((need, Call::Follow { subscription: id, from, answer: to }));
            return self.look(node, agenda, super::state::Members::IfMoved);
        }
        let cursor = match from {
            None => Cursor { generation, number },
            Some(from)
                if from.generation == generation || active(Mutant::CursorWithoutGeneration) =>
            {
                Cursor { generation, number: from.number }
            }
            Some(_) => Cursor { generation, number: 0 },
        };
        node.followers_begun += 1;
        let (follower, feed) = Follower::new(node.followers_begun, cursor);
        subscription.followers.push(follower);
        node.stats.followers += 1;
        answer(to, Ok(feed));
        subscription.tell_followers(agenda);
    }

    /// What a follower missed has been read.
    pub(super) fn caught_up(
        &mut self,
        _node: &mut RingNode,
        agenda: &mut Agenda,
        name: &str,
        follower: u64,
        record: &Arc<TurnRecord>,
        kept: Result<Kept, RingError>,
    ) {
        let Some(subscription) = self.subscription(name) else { return };
        let config = Arc::clone(&subscription.config);
        let found = subscription.followers.iter().position(|one| one.id == follower);
        let Some(at) = found else { return };
        let follower = &mut subscription.followers[at];
        follower.is_catching_up = false;
        let told = match kept {
            Ok(Kept { entries, gap }) => {
                let gap = gap.map(|(from, to)| RingEvent::of(RingEventKind::Gap { from, to }));
                let events = entries.iter().map(|e| RingEvent::of_entry(record, &config, e));
                let told = gap.into_iter().chain(events).try_for_each(|e| follower.tell(&e));
                // Also where nothing is kept at all.
                let last = Cursor { generation: record.generation, number: record.number };
                follower.cursor = follower.cursor.max(last);
                told
            }
            Err(why) => {
                follower.ends(RingEventKind::Error { text: why.to_string() });
                Err(super::feed::Cut)
            }
        };
        if told.is_err() {
            subscription.followers.swap_remove(at);
        }
        subscription.tell_followers(agenda);
    }

    /// A member waits for its parts. `recalled` is what was read for it from pages.
    pub(super) fn attend(
        &mut self,
        node: &mut RingNode,
        agenda: &mut Agenda,
        call: Call,
        recalled: Recalled,
    ) {
        let Call::Attend { ring, member, after, wait, answer: to } = call else { return };
        let mut cursors = after.clone();
        match self.parts_of(&member, &mut cursors, &recalled) {
            Ok(parts) if parts.is_empty() && !wait.is_zero() => {
                let until = node.now() + wait;
                let waiter = Waiter { cursors, until, answer: to };
                self.waiters.entry(member).or_default().push(waiter);
            }
            Ok(parts) => answer(to, Ok((parts, cursors))),
            Err(Behind { subscription, after: number }) => {
                let record = Arc::clone(&self.subscriptions[&subscription.name].record);
                let call = Call::Attend { ring, member, after, wait, answer: to };
                agenda.recall(call, subscription, record, number, recalled);
            }
        }
    }

    /// What was read from pages for a call is there.
    pub(super) fn recalled(
        &mut self,
        node: &mut RingNode,
        agenda: &mut Agenda,
        call: Call,
        (id, kept): (&SubscriptionId, Result<Kept, RingError>),
        mut recalled: Recalled,
    ) {
        match kept {
            Ok(kept) => {
                recalled.insert(Arc::clone(&id.name), kept.entries);
                self.attend(node, agenda, call, recalled);
            }
            Err(why) => call.refuse(why),
        }
    }

    /// Tells members of their parts in what is new.
    fn tell_waiters(&mut self, node: &mut RingNode, agenda: &mut Agenda, name: &str) {
        if self.waiters.is_empty() {
            return;
        }
        let Some(subscription) = self.subscriptions.get(name) else { return };
        let mut chosen: Vec<MemberName> = Vec::new();
        for entry in &subscription.recent {
            match entry.entry() {
                RingEntry::Turn { members, .. } => chosen.extend(members.iter().cloned()),
                RingEntry::Pass { to, .. } => chosen.push(to.clone()),
                _ => {}
            }
        }
        chosen.sort_unstable();
        chosen.dedup();
        for member in chosen {
            for waiter in self.waiters.remove(&member).into_iter().flatten() {
                let wait = waiter.until.saturating_sub(node.now());
                let (ring, member) = (self.id.clone(), member.clone());
                let Waiter { cursors: after, answer, .. } = waiter;
                let call = Call::Attend { ring, member, after, wait, answer };
                self.attend(node, agenda, call, BTreeMap::new());
            }
        }
    }

    /// Answers those who have waited for as long as they wanted.
    pub(super) fn look_after_waiters(&mut self, node: &RingNode) {
        let now = node.now();
        for waiters in self.waiters.values_mut() {
            for waiter in std::mem::take(waiters) {
                if waiter.answer.is_closed() {
                    continue;
                }
                if waiter.until <= now {
                    answer(waiter.answer, Ok((Vec::new(), waiter.cursors)));
                } else {
                    waiters.push(waiter);
                }
            }
        }
        self.waiters.retain(|_, waiters| !waiters.is_empty());
    }

    /// Ends all feeds and waits.
    pub(super) fn close(&mut self, why: &RingEventKind) {
        for subscription in self.subscriptions.values_mut() {
            for follower in subscription.followers.drain(..) {
                follower.ends(why.clone());
            }
        }
        for waiter in std::mem::take(&mut self.waiters).into_values().flatten() {
            answer(waiter.answer, Ok((Vec::new(), waiter.cursors)));
        }
    }

    /// Tells every follower of the ring.
    pub(super) fn tell_all(&mut self, kind: RingEventKind) {
        if self.subscriptions.values().all(|subscription| subscription.followers.is_empty()) {
            return;
        }
        let event: Arc<RingEvent> = RingEvent::of(kind);
        for subscription in self.subscriptions.values_mut() {
            subscription.followers.retain_mut(|follower| follower.tell(&event).is_ok());
        }
    }

    /// The parts of a member after its cursors, which move on.
    fn parts_of(
        &self,
        member: &MemberName,
        cursors: &mut Cursors,
        recalled: &Recalled,
    ) -> Result<Vec<OwnPart>, Behind> {
        let mut parts = Vec::new();
        for (name, subscription) in &self.subscriptions {
            let present = subscription.present();
            let from = cursors.get(&**name).copied();
            let after = match from {
                Some(from) if from.generation == present.generation => from.number,
                Some(_) => 0,
                None => {
                    parts.extend(subscription.open_parts_of(member));
                    cursors.insert(name.to_string(), present);
                    continue;
                }
            };
            if let Some(recalled) = recalled.get(name) {
                let new = recalled.iter().filter(|entry| entry.number() > after);
                parts.extend(new.flat_map(|entry| subscription.parts_in(entry, member)));
            } else if after < present.number {
                let Some(new) = subscription.recent_after(after) else {
                    return Err(Behind { subscription: subscription.id.clone(), after });
                };
                parts.extend(new.flat_map(|entry| subscription.parts_in(entry, member)));
            }
            let last = recalled.get(name).and_then(|entries| entries.last());
            let number = last.map_or(present.number.max(after), |entry| entry.number().max(after));
            cursors.insert(name.to_string(), Cursor { number, ..present });
        }
        Ok(parts)
    }
}

/// What lies behind memory has to be read first.
struct Behind {
    subscription: SubscriptionId,
    after: u64,
}

impl Subscription {
    /// The place after its last entry.
    fn present(&self) -> Cursor {
        Cursor { generation: self.record.generation, number: self.record.number }
    }

    /// Tells each follower what comes after its cursor.
    fn tell_followers(&mut self, agenda: &mut Agenda) {
        if self.followers.is_empty() {
            return;
        }
        let present = self.present();
        let mut followers = std::mem::take(&mut self.followers);
        // Made once for all of them.
        let mut events: BTreeMap<u64, Arc<RingEvent>> = BTreeMap::new();
        followers.retain_mut(|follower| {
            if follower.is_catching_up {
                return true;
            }
            if follower.cursor.generation != present.generation {
                let number = if active(Mutant::CursorWithoutGeneration) {
                    follower.cursor.number
                } else {
                    0
                };
                follower.cursor = Cursor { number, ..present };
            }
            let after = follower.cursor.number;
            let Some(new) = self.recent_after(after) else {
                follower.is_catching_up = true;
                let record = Arc::clone(&self.record);
                agenda.catch_up(self.id.clone(), follower.id, record, after);
                return true;
            };
            for entry in new {
                let event = events
                    .entry(entry.number())
                    .or_insert_with(|| RingEvent::of_entry(&self.record, &self.config, entry));
                if follower.tell(event).is_err() {
                    return false;
                }
            }
            true
        });
        self.followers = followers;
    }

    /// The parts of an entry that are a member's.
    fn parts_in<'a>(&'a self, entry: &'a NumberedEntry, member: &'a MemberName) -> Vec<OwnPart> {
        match entry.entry() {
            RingEntry::Turn { slot, members } => {
                let mine = members.iter().zip(0_u16..).filter(|(name, _)| *name == member);
                let part = |part: u16| {
                    let id = PartId { turn: entry.number(), part };
                    let delay = self.config.delay(*slot, part.into(), members.len());
                    self.own_part(id, entry.number(), Some(*slot), delay, member)
                };
                mine.filter_map(|(_, number)| part(number)).collect()
            }
            RingEntry::Pass { part, to, .. } if to == member => {
                let slot = self.slot_of(part.turn);
                let part = self.own_part(*part, entry.number(), slot, Duration::ZERO, member);
                part.into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    /// The parts that a member is offered now.
    fn open_parts_of<'a>(&'a self, member: &'a MemberName) -> impl Iterator<Item = OwnPart> + 'a {
        let mine = self.record.open.iter().filter(move |open| open.member == *member);
        mine.filter_map(move |open| {
            let slot = self.slot_of(open.id.turn);
            self.own_part(open.id, open.offer, slot, Duration::ZERO, member)
        })
    }

    /// A part as its member is told of it; none if it has to be accepted and is not offered to this one any more.
    fn own_part(
        &self,
        id: PartId,
        offer: u64,
        slot: Option<engine::instant::Instant>,
        delay: Duration,
        member: &MemberName,
    ) -> Option<OwnPart> {
        let mut open = self.record.open.iter();
        let is_open = |open: &engine::ring::OpenPart| {
            open.id == id && open.offer == offer && open.member == *member
        };
        if self.config.accept.is_some() && !open.any(is_open) {
            return None;
        }
        let generation = self.record.generation;
        Some(OwnPart {
            subscription: self.id.name.to_string(),
            cursor: Cursor { generation, number: offer },
            part: id,
            slot,
            delay,
            token: TurnRecord::token_of(generation, offer),
            accept: self.config.accept,
        })
    }

    fn slot_of(&self, turn: u64) -> Option<engine::instant::Instant> {
        let entry = self.recent.iter().find(|entry| entry.number() == turn)?;
        match entry.entry() {
            RingEntry::Turn { slot, .. } => Some(*slot),
            _ => None,
        }
    }
}
