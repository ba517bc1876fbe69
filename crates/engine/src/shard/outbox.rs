//! What is decided and not written yet: the part of a shard between its memory and the store.
//!
//! Units go to the store in order, as many at a time as fit one commit. Memory is ahead of the store, so
//! what a head says is kept apart, in a shadow that follows the units as they are written.

use std::collections::{BTreeSet, VecDeque};

use crate::id::{SerialId, ShardId};
use crate::instant::Instant;
use crate::limits::{COMMIT_WRITES_MIN, UNITS_WAITING_MAX};
use crate::queue::unfinished::QueueDelta;

use super::Ticket;
use super::batch::{Pile, Room, ShardBatch};
use super::command::Done;
use super::hear::ShardAnswer;
use super::memory::Delta;
use super::record::{HeadRecord, Mark, OpenRun};

/// Changes that belong together, and what may happen once they are written.
#[derive(Debug, Default)]
pub(super) struct Unit {
    pub(super) changes: Vec<Delta>,
    /// Attempts that may leave once it is written.
    pub(super) launches: Vec<u64>,
    /// Attempts that are broken off once it is written.
    pub(super) aborts: Vec<u64>,
    pub(super) reply: Option<(Ticket, Done)>,
    /// What is answered from memory once it is written.
    pub(super) answers: Vec<(Ticket, ShardAnswer)>,
    /// When it is to be written, at the latest.
    pub(super) by: Option<Instant>,
}

impl Unit {
    pub(super) fn of(changes: Vec<Delta>) -> Self {
        Self { changes, ..Self::default() }
    }

    pub(super) fn by(mut self, by: Instant) -> Self {
        self.by = Some(by);
        self
    }

    /// Whether somebody waits for it: nobody does for what is done in the background.
    fn is_asked(&self) -> bool {
        let is_asked = self.reply.as_ref().is_some_and(|(_, done)| *done != Done::Rewritten);
        is_asked || !self.answers.is_empty()
    }
}

/// Units that wait to be written, and those that are on their way.
pub(super) struct Outbox {
    units: VecDeque<Unit>,
    shadow: Shadow,
    /// The batch that is on its way.
    sent: Option<Vec<Unit>>,
    /// When something is to be written, and for how many units somebody waits.
    due_by: Option<Instant>,
    asked: usize,
    /// Writes that a commit takes, as far as is known.
    writes_max: usize,
    /// Answers that wait for nothing.
    ready: Vec<(Ticket, ShardAnswer)>,
}

/// What the head says in the store, once what is on its way is there.
struct Shadow {
    decided_through: Mark,
    open: BTreeSet<OpenRun>,
    sequence: u64,
    youngest: SerialId,
}

/// What is decided.
impl Outbox {
    /// An outbox for what is decided from here on, while the store says this.
    pub(super) fn new(head: HeadRecord) -> Self {
        let HeadRecord { decided_through, open, sequence, youngest } = head;
        let shadow =
            Shadow { decided_through, open: open.into_iter().collect(), sequence, youngest };
        Self {
            units: VecDeque::new(),
            shadow,
            sent: None,
            due_by: None,
            asked: 0,
            writes_max: COMMIT_WRITES_MIN,
            ready: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, unit: Unit) {
        self.due_by = self.due_by.into_iter().chain(unit.by).min();
        self.asked += usize::from(unit.is_asked());
        self.units.push_back(unit);
    }

    /// Answers from memory, once everything is written that memory knows.
    pub(super) fn answer(&mut self, ticket: Ticket, answer: ShardAnswer) {
        if let Some(last) = self.units.back_mut() {
            last.answers.push((ticket, answer));
            self.asked += 1;
        } else if let Some(last) = self.sent.as_mut().and_then(|sent| sent.last_mut()) {
            last.answers.push((ticket, answer));
        } else {
            self.ready.push((ticket, answer));
        }
    }

    /// Answers that wait for nothing.
    pub(super) fn take_ready(&mut self) -> Vec<(Ticket, ShardAnswer)> {
        std::mem::take(&mut self.ready)
    }

    pub(super) fn len(&self) -> usize {
        self.units.len()
    }

    /// Whether so many units wait that nothing more is decided until some are written.
    pub(super) fn is_full(&self) -> bool {
        self.units.len() >= UNITS_WAITING_MAX
    }

    /// Whether so many units wait that runs of queues have to leave the rest of the room to slots.
    pub(super) fn is_half_full(&self) -> bool {
        self.units.len() >= UNITS_WAITING_MAX / 2
    }

    /// Changes that memory does not know of are written with the unit that was pushed when so many waited.
    pub(super) fn write_with(&mut self, unit: usize, changes: impl IntoIterator<Item = Delta>) {
        self.units[unit].changes.extend(changes);
    }

    /// What was to be written soon by a clock that was ahead is to be written now.
    pub(super) fn hurry(&mut self, now: Instant) {
        for by in self.units.iter_mut().map(|unit| &mut unit.by).chain([&mut self.due_by]) {
            *by = by.map(|by| by.min(now));
        }
    }

    /// Adds this to the key of every attempt that a unit launches.
    pub(super) fn renumber(&mut self, ahead: u64) {
        for unit in &mut self.units {
            unit.launches.iter_mut().for_each(|key| *key += ahead);
        }
    }
}

/// What is written.
impl Outbox {
    pub(super) fn commit_by(&self) -> Option<Instant> {
        self.due_by.filter(|_| !self.is_writing())
    }

    pub(super) fn is_asked(&self) -> bool {
        self.asked > 0 && !self.is_writing()
    }

    pub(super) fn is_writing(&self) -> bool {
        self.sent.is_some()
    }

    pub(super) fn is_settled(&self) -> bool {
        self.units.is_empty() && !self.is_writing()
    }

    /// So many writes fit a commit.
    pub(super) fn set_writes_max(&mut self, writes_max: usize) {
        self.writes_max = writes_max;
    }

    /// So many writes fit a commit, as far as is known.
    pub(super) fn writes_max(&self) -> usize {
        self.writes_max
    }

    pub(super) fn take_batch(
        &mut self,
        shard: ShardId,
        number: u64,
        room: Room,
    ) -> Option<ShardBatch> {
        self.writes_max = room.writes;
        if self.sent.is_some() || self.units.is_empty() {
            return None;
        }
        let mut pile = Pile::default();
        let mut taken = Vec::new();
        while let Some(unit) = self.units.front() {
            let room = if taken.is_empty() { Room::MAX } else { room };
            if !pile.take(shard, unit, room) {
                break;
            }
            let unit = self.units.pop_front().expect("looked at above");
            for change in &unit.changes {
                self.shadow.follow(change);
            }
            taken.push(unit);
        }
        self.sent = Some(taken);
        self.due_by = self.units.iter().filter_map(|unit| unit.by).min();
        self.asked = self.units.iter().filter(|unit| unit.is_asked()).count();
        Some(ShardBatch { head: self.head(), puts: pile.into_puts(shard, number) })
    }

    pub(super) fn head(&self) -> HeadRecord {
        let open = self.shadow.open.iter().copied().collect();
        let Shadow { decided_through, sequence, youngest, .. } = self.shadow;
        HeadRecord { decided_through, open, sequence, youngest }
    }

    /// What was on its way is written: gives it back.
    pub(super) fn take_written(&mut self) -> Vec<Unit> {
        self.sent.take().unwrap_or_default()
    }
}

impl Shadow {
    fn follow(&mut self, change: &Delta) {
        match change {
            Delta::DecidedThrough(mark) => self.decided_through = *mark,
            Delta::Open(run) => {
                self.open.insert(*run);
            }
            Delta::Shut(run) => {
                self.open.remove(run);
            }
            Delta::Run(sequence, _) => self.sequence = self.sequence.max(*sequence),
            Delta::Submitted(run) => {
                self.sequence = self.sequence.max(run.place.order.sequence);
            }
            Delta::Queued(QueueDelta::Chosen(_, chosen)) => {
                self.sequence = self.sequence.max(chosen.last());
            }
            Delta::Queue(record) => self.youngest = self.youngest.max(record.id.serial),
            Delta::Trigger(written) => self.youngest = self.youngest.max(written.0.id.serial),
            Delta::State(..)
            | Delta::Gone(..)
            | Delta::RunGone(_)
            | Delta::Stopped(..)
            | Delta::Lag(..)
            | Delta::QueueGone(..)
            | Delta::Queued(_)
            | Delta::Decided(_)
            | Delta::Died(_)
            | Delta::DeadGone(_)
            | Delta::Picks(..)
            | Delta::Unique(..)
            | Delta::UniqueGone(..)
            | Delta::Reserved(..)
            | Delta::Past(_)
            | Delta::News(_)
            | Delta::Raw(_) => {}
        }
    }
}
