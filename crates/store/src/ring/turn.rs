//! Turns at a node: what a record is seen to say, when this node may write the next, and what became of that.
//!
//! Whoever wrote last writes at the slot. The others look a little later, which tells them of a turn whose hint was lost; only who
//! has looked at a record, and has seen it stand still since its slot was due, stands in. After a commit that did not succeed, for
//! whatever reason, the node looks and decides anew: the condition on the record lets at most one copy of anything land.

use std::sync::Arc;
use std::time::Duration;

use engine::instant::Instant;
use engine::limits::RING_STAND_IN;
use engine::mutant::{Mutant, active};
use engine::ring::line::{place, stand_in_delay};
use engine::ring::{
    Decision, MemberName, PutPage, RingEntry, SubscriptionConfig, TurnRecord, turn,
};

use super::flow::{Agenda, Alarm, Purpose, TurnWrite};
use super::key::{Head, read_head};
use super::node::RingNode;
use super::state::{Failed, Members, Mono, RingState, Subscription, from_value, to_value};
use super::view::PageRecord;
use super::{RingEventKind, SubscriptionId, noted};
use crate::{Class, Commit, CommitError, Condition, Entry, Version};

/// The longest wait for a turn without a look at the wall clock.
const ALARM_MAX: Duration = Duration::from_secs(10);

/// After a write that could not even be tried, the next try.
const NOT_NOW: Duration = Duration::from_millis(250);

/// After a slot that was found not to be due yet.
const SOON: Duration = Duration::from_millis(2);

/// What to do about a subscription, and when.
enum Step {
    /// Nothing, until something changes.
    Rest,
    /// Looks at it.
    Look(Mono),
    /// Writes what is due by then.
    Write(Mono),
}

impl RingState {
    /// Takes in what the store says of the ring.
    pub(super) fn shown(&mut self, node: &mut RingNode, agenda: &mut Agenda, heads: &[Entry]) {
        let has = |head: &Head| {
            heads.iter().any(|entry| read_head(&entry.key).is_some_and(|(_, h)| h == *head))
        };
        self.exists = has(&Head::Ring);
        if has(&Head::Sweep) && !self.is_swept && node.advances() {
            self.is_swept = true;
            agenda.sweep(self.id.clone());
        }
        let is_left = |name: &str| {
            heads.iter().any(|entry| {
            matches!(read_head(&entry.key), Some((_, Head::Turn(turn))) if *turn == *name)
        })
        };
        self.subscriptions.retain(|name, subscription| {
            let stays = self.exists && is_left(name);
            if !stays {
                subscription.end();
            }
            stays
        });
        if !self.exists {
            self.close(&RingEventKind::Closing);
            return;
        }
        for entry in heads {
            if let Some((_, Head::Turn(name))) = read_head(&entry.key) {
                self.turn_shown(node, agenda, &name, entry);
            }
        }
    }

    /// Takes in what the store says of a subscription, if that is news.
    fn turn_shown(
        &mut self,
        node: &mut RingNode,
        agenda: &mut Agenda,
        name: &Arc<str>,
        entry: &Entry,
    ) {
        let known = self.subscriptions.get(name).map(|subscription| subscription.version);
        if known.is_some_and(|known| known >= entry.version) {
            return;
        }
        let id = SubscriptionId { ring: self.id.clone(), name: Arc::clone(name) };
        let record = match from_value::<TurnRecord>(&entry.value) {
            Ok(record) => Arc::new(record),
            Err(why) => {
                tracing::error!(subscription = %id, %why, "a subscription cannot be read: it takes no turns here");
                return;
            }
        };
        if let Some(subscription) = self.subscriptions.get_mut(name) {
            if subscription.record.draft != record.draft {
                let Some(config) = built(&id, &record) else { return };
                subscription.config = config;
            }
            // A store that failed over may have forgotten some of it.
            let goes_on = subscription.record.generation == record.generation
                && subscription.record.number <= record.number;
            let last = if goes_on { subscription.record.number } else { 0 };
            if !goes_on {
                subscription.recent.clear();
            }
            subscription.remember(record.after(last));
            // What was missed may have left the record already.
            if subscription.recent.back().is_none_or(|entry| entry.number() != record.number) {
                subscription.recent.clear();
            }
            (subscription.record, subscription.version) = (record, entry.version);
            subscription.seen = node.now();
        } else {
            let Some(config) = built(&id, &record) else { return };
            let still = config.stillness_at(record.decided);
            let mut subscription = Subscription {
                line: format!("{}/{}/{name}", self.id.project, self.id.name).into(),
                id,
                config,
                version: entry.version,
                seen: node.now().saturating_sub(still),
                recent: record.page.iter().cloned().collect(),
                record,
                is_busy: false,
                failed: None,
                acting: None,
                looked_at: None,
                wake: None,
                not_before: Mono::ZERO,
                alarm: 0,
                part_alarm: 0,
                followers: Vec::new(),
                offers: std::collections::BTreeMap::new(),
                asked: Vec::new(),
                changes: Vec::new(),
            };
            subscription.remember(&[]);
            self.subscriptions.insert(Arc::clone(name), subscription);
        }
        self.tell(node, agenda, name);
        self.arm(node, agenda, name);
    }

    /// Plans what is next in each subscription.
    pub(super) fn arm_all(&mut self, node: &RingNode, agenda: &mut Agenda) {
        let names: Vec<Arc<str>> = self.subscriptions.keys().cloned().collect();
        for name in names {
            self.arm(node, agenda, &name);
        }
    }

    /// Plans what is next.
    pub(super) fn arm(&mut self, node: &RingNode, agenda: &mut Agenda, name: &str) {
        let is_empty = self.names.is_empty();
        let Some(subscription) = self.subscription(name) else { return };
        if subscription.is_busy || subscription.acting.is_some() || !node.advances() {
            return;
        }
        subscription.alarm += 1;
        let at = match subscription.step(node, is_empty) {
            Step::Rest => return,
            Step::Look(at) | Step::Write(at) => at,
        };
        // The wall clock may be steered or set meanwhile.
        let at = at.min(node.now() + ALARM_MAX);
        agenda.alarm(at, Alarm::Turn(subscription.id.clone(), subscription.alarm));
    }

    pub(super) fn turn_is_due(
        &mut self,
        node: &mut RingNode,
        agenda: &mut Agenda,
        name: &str,
        alarm: u64,
    ) {
        let is_empty = self.names.is_empty();
        let Some(subscription) = self.subscription(name) else { return };
        if subscription.alarm != alarm || subscription.is_busy || subscription.acting.is_some() {
            return;
        }
        let now = node.now();
        match subscription.step(node, is_empty) {
            Step::Look(at) if at <= now => self.look_before_write(node, agenda, name),
            Step::Write(at) if at <= now && subscription.place(node) == 0 => {
                self.write_turns(node, agenda, name, false);
            }
            Step::Write(at) if at <= now => self.look_before_write(node, agenda, name),
            Step::Rest | Step::Look(_) | Step::Write(_) => self.arm(node, agenda, name),
        }
    }

    fn look_before_write(&mut self, node: &mut RingNode, agenda: &mut Agenda, name: &str) {
        if let Some(subscription) = self.subscription(name) {
            subscription.acting = Some(subscription.version);
        }
        self.look(node, agenda, Members::IfMoved);
    }

    /// A look has shown something: whoever waited for it goes on.
    pub(super) fn after_look(&mut self, node: &mut RingNode, agenda: &mut Agenda) {
        let names: Vec<Arc<str>> = self.subscriptions.keys().cloned().collect();
        for name in names {
            let is_empty = self.names.is_empty();
            let Some(subscription) = self.subscription(&name) else { continue };
            if let Some(failed) = subscription.failed.take() {
                subscription.is_busy = false;
                if failed.may_name && subscription.version == failed.base {
                    self.write_turns(node, agenda, &name, true);
                    continue;
                }
            }
            if let Some(acting) = subscription.acting.take()
                && acting == subscription.version
            {
                subscription.looked_at = Some(acting);
                let now = node.now();
                if matches!(subscription.step(node, is_empty), Step::Write(at) if at <= now) {
                    self.write_turns(node, agenda, &name, false);
                    continue;
                }
            }
            self.go_on(node, agenda, &name);
        }
    }

    /// The store was away: everybody waits for its place again.
    pub(super) fn look_failed(&mut self, node: &mut RingNode, agenda: &mut Agenda) {
        let now = node.now();
        for subscription in self.subscriptions.values_mut() {
            if subscription.failed.take().is_some() {
                subscription.is_busy = false;
            }
            subscription.acting = None;
            (subscription.seen, subscription.not_before) = (now, now + NOT_NOW);
        }
        self.arm_all(node, agenda);
    }

    /// Does what waits in a subscription, if nothing is under way there.
    pub(super) fn go_on(&mut self, node: &mut RingNode, agenda: &mut Agenda, name: &str) {
        self.accept_asked(node, agenda, name);
        self.change_wanted(node, agenda, name);
        self.arm(node, agenda, name);
    }

    /// Writes what is due. A second try, after one that may have lost to a change of members, rests on those who are chosen, and not
    /// on the whole roll: in a storm of joins the roll never stands still.
    fn write_turns(&mut self, node: &mut RingNode, agenda: &mut Agenda, name: &str, second: bool) {
        let (roll, names) = (self.roll, Arc::clone(&self.names));
        let (roll_key, ring_key) = (self.id.roll_key(), self.id.ring_key());
        let Some(subscription) = self.subscription(name) else { return };
        if subscription.is_busy {
            return;
        }
        let now = node.now();
        let Some(roll) = roll.filter(|_| node.may_write()) else {
            subscription.not_before = now + NOT_NOW;
            return self.arm(node, agenda, name);
        };
        let mut record = subscription.renewed(node).unwrap_or_else(|| subscription.record.clone());
        if active(Mutant::SuccessorSkipsSlot)
            && subscription.place(node) > 0
            && let Some(slot) = turn::next_due(&record, &subscription.config)
        {
            record = Arc::new(TurnRecord { decided: slot, ..(*record).clone() });
        }
        let Some(decision) = turn::decide(&record, &subscription.config, &names, node.wall())
        else {
            subscription.not_before = now + SOON;
            return self.arm(node, agenda, name);
        };
        let mut conditions = vec![Condition::At(roll_key, roll)];
        if second && let Some(chosen) = self.chosen(node, &decision) {
            conditions = chosen;
            conditions.push(Condition::Present(ring_key));
        } else if active(Mutant::TurnWithoutRoll) {
            conditions.clear();
        }
        let names_chosen = second;
        self.write(node, agenda, name, decision, conditions, Purpose::Turns { names_chosen });
    }

    /// That those whose turn it is are as they were read, if so many conditions fit into a commit.
    fn chosen(&self, node: &RingNode, decision: &Decision) -> Option<Vec<Condition>> {
        let turns = decision.entries.iter().filter_map(|entry| match entry {
            RingEntry::Turn { members, .. } => Some(members),
            _ => None,
        });
        let chosen: std::collections::BTreeSet<&MemberName> = turns.flatten().collect();
        let fits = chosen.len() + 2 <= node.store().limits().writes && !chosen.is_empty();
        if !fits {
            return None;
        }
        let at = |member: &&MemberName| {
            let seen = self.members.get(*member)?;
            Some(Condition::At(self.id.member_key(member), seen.version))
        };
        chosen.iter().map(at).collect()
    }

    /// Writes a decision on a subscription's record as it is known here.
    pub(super) fn write(
        &mut self,
        node: &mut RingNode,
        agenda: &mut Agenda,
        name: &str,
        decision: Decision,
        conditions: Vec<Condition>,
        purpose: Purpose,
    ) {
        let Some(subscription) = self.subscriptions.get_mut(name) else { return };
        let (id, base) = (subscription.id.clone(), subscription.version);
        let Decision { record: mut new, entries } = decision;
        new.writer = Arc::clone(&node.me);
        if matches!(purpose, Purpose::Turns { .. }) {
            new.epoch = node.store().epoch().0.into();
        }
        let written = new.push(entries, node.wall());
        let at = if active(Mutant::TurnOnStaleRead) {
            Condition::Present(id.turn_key())
        } else {
            Condition::At(id.turn_key(), base)
        };
        let mut commit = Commit::new().when(at);
        commit.when.extend(conditions);
        commit = commit.put(id.turn_key(), to_value(&new));
        for page in written.pages {
            commit = match page {
                PutPage::Keep(number, entries) => {
                    let page = to_value(&PageRecord { entries });
                    commit.put(id.page_key(new.generation, number), page)
                }
                PutPage::Drop(number) => commit.delete(id.page_key(new.generation, number)),
            };
        }
        if let Purpose::Change(wanted, _) = &purpose {
            commit = noted(commit, wanted.what.note());
        }
        subscription.is_busy = true;
        self.own_under_way += 1;
        node.stats.tries += 1;
        let (new, entries) = (Arc::new(new), written.entries);
        if active(Mutant::TurnToldUnwon) {
            subscription.remember(&entries);
            let told = std::mem::replace(&mut subscription.record, Arc::clone(&new));
            self.tell(node, agenda, name);
            if let Some(subscription) = self.subscriptions.get_mut(name) {
                subscription.record = told;
            }
        }
        let write = TurnWrite { subscription: id, base, new, entries, purpose };
        agenda.write(write, commit);
    }

    /// What became of a write.
    pub(super) fn wrote(
        &mut self,
        node: &mut RingNode,
        agenda: &mut Agenda,
        write: TurnWrite,
        answer: &Result<Version, CommitError>,
    ) {
        self.own_under_way = self.own_under_way.saturating_sub(1);
        let name = Arc::clone(&write.subscription.name);
        let TurnWrite { base, new, entries, purpose, .. } = write;
        let Some(subscription) = self.subscription(&name) else {
            return purpose.is_lost();
        };
        let Ok(version) = answer else {
            node.stats.lost += 1;
            if let Err(CommitError::Refused(why)) = answer {
                tracing::warn!(subscription = %subscription.id, %why, "the store refused a turn");
                subscription.not_before = node.now() + NOT_NOW;
            }
            if matches!(answer, Err(CommitError::Unavailable(_))) {
                subscription.not_before = node.now() + NOT_NOW;
            }
            let is_conflict = matches!(answer, Err(CommitError::Conflict(_)));
            let may_name = is_conflict && matches!(purpose, Purpose::Turns { names_chosen: false });
            subscription.failed = Some(Failed { base, may_name });
            let need = self.next_look();
            self.ask_again(&name, purpose, need);
            return self.look(node, agenda, Members::IfMoved);
        };
        let former = subscription.record.generation;
        subscription.is_busy = false;
        // It may be known already, from a look.
        if *version > subscription.version {
            if new.generation != former {
                subscription.recent.clear();
            }
            subscription.remember(&entries);
            if subscription.record.draft != new.draft
                && let Some(config) = built(&subscription.id, &new)
            {
                subscription.config = config;
            }
            (subscription.record, subscription.version) = (Arc::clone(&new), *version);
            subscription.seen = node.now();
        }
        if new.generation != former {
            agenda.clear_pages(subscription.id.clone(), former);
        }
        self.own_commit = Some(node.now());
        count(node, &entries);
        self.tell(node, agenda, &name);
        self.is_done(purpose);
        self.go_on(node, agenda, &name);
    }

    /// Versions of a store that has failed over may be lower than those before.
    pub(super) fn forget_versions(&mut self) {
        self.roll = None;
        self.members.clear();
        for subscription in self.subscriptions.values_mut() {
            subscription.version = Version(0);
        }
    }
}

/// What a subscription's record means, if that can be read.
fn built(id: &SubscriptionId, record: &TurnRecord) -> Option<Arc<SubscriptionConfig>> {
    match record.draft.build(&id.ring.name, &id.name, Instant(0)) {
        Ok(config) => Some(Arc::new(config)),
        Err(bad) => {
            let why = super::RingError::Bad(bad);
            tracing::error!(subscription = %id, %why, "a subscription cannot be understood: it takes no turns here");
            None
        }
    }
}

fn count(node: &mut RingNode, entries: &[Arc<engine::ring::NumberedEntry>]) {
    let wall = node.wall();
    for entry in entries {
        match entry.entry() {
            RingEntry::Turn { slot, .. } => {
                node.stats.turns += 1;
                node.stats.late_by(u64::try_from(wall.0 - slot.0).unwrap_or(0));
            }
            RingEntry::Skip { slots, .. } => node.stats.skipped += slots,
            _ => {}
        }
    }
}

impl Subscription {
    /// This server's place in line.
    pub(super) fn place(&self, node: &RingNode) -> usize {
        let servers = node.sessions.iter().filter(|(_, is_server)| **is_server);
        let servers = servers.map(|(session, _)| &**session);
        place(servers, &node.me, &self.record.writer, &self.line)
    }

    /// What to do next, and when.
    fn step(&mut self, node: &RingNode, is_empty: bool) -> Step {
        let wall_us = node.wall_us();
        let wall = Instant(wall_us / 1_000);
        let mut slot = turn::next_due(&self.record, &self.config);
        if self.record.idle {
            if is_empty {
                self.wake = None;
                return Step::Rest;
            }
            // The first slot after somebody was seen to have joined.
            let wake = self.wake.filter(|(version, _)| *version == self.version).or_else(|| {
                let next = self.config.schedule.next(wall.max(self.record.decided))?;
                Some((self.version, next))
            });
            self.wake = wake;
            slot = wake.map(|(_, slot)| slot);
        }
        let (now, place) = (node.now(), self.place(node));
        let is_ahead = turn::is_ahead(&self.record, wall);
        let due = match slot {
            _ if is_ahead => self.seen,
            Some(slot) => {
                let left_us = slot.0.saturating_mul(1_000) - wall_us;
                let length = Duration::from_micros(left_us.unsigned_abs());
                if left_us >= 0 { now.saturating_add(length) } else { now.saturating_sub(length) }
            }
            None => return Step::Rest,
        };
        if place == 0 {
            return Step::Write(due.max(self.not_before));
        }
        if self.looked_at != Some(self.version) {
            return Step::Look((due.max(self.seen) + RING_STAND_IN).max(self.not_before));
        }
        let still = self.config.stillness_at(self.record.decided);
        let mine = due.max(self.seen + still) + stand_in_delay(place);
        Step::Write(mine.max(self.not_before))
    }

    /// Where the store may have forgotten what was told: the record under a new generation, unless it was written since.
    fn renewed(&self, node: &RingNode) -> Option<Arc<TurnRecord>> {
        let store = node.store();
        let epoch = store.epoch().0;
        if store.class() < Class::B || *self.record.epoch == *epoch {
            return None;
        }
        let generation = node.machine().wall_us().max(self.record.last_token() + 1);
        Some(Arc::new(self.record.renewed(generation, &epoch)))
    }

    /// It is gone.
    pub(super) fn end(&mut self) {
        for follower in self.followers.drain(..) {
            follower.ends(RingEventKind::Closing);
        }
        let gone = || super::RingError::NoSubscription(self.id.clone());
        for asked in self.asked.drain(..) {
            super::call::answer(asked.answer, Err(gone()));
        }
        for wanted in self.changes.drain(..) {
            wanted.what.refuse(gone());
        }
    }
}
