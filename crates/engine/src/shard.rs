//! A shard: some of the triggers, and everything that is decided about them.
//!
//! A shard is a machine without arms. It is told what happened (a command, a commit that is done, an
//! answer) and what time it is, and says what shall be written and what shall leave. Whoever runs it
//! moves the bytes:
//!
//! ```text
//! command ─▶ ┌───────┐ ─▶ take_batch ─▶ the store ─▶ committed ─▶ replies
//! step    ─▶ │ Shard │
//! finished ▶ └───────┘ ─▶ depart ─▶ the receiver ─▶ finished
//! ```
//!
//! **Units.** A decision is a unit: changes that belong together, and what may happen once they are
//! written: launches, and replies. A unit is applied to memory at once, so that the next decision sees it,
//! and goes to the store in a later batch, in order. One batch is on its way at a time. A shard that
//! learns that its head was moved by somebody else is thrown away.
//!
//! **The mark.** Most runs succeed at once, and have no record of their own before they are past. The head
//! holds `fired`, up to where slots are decided, in the order in which they leave, and `open`, the runs
//! that were launched and are not past. Both are written in the commit that launches. So a successor
//! recomputes nothing: what is open may have left, and is in doubt; what is after the mark has not.
//! Everything else that is decided about a slot (that it is skipped, that it waits, that one run fewer is
//! left) is in the same unit as the mark that passes it.
//!
//! **Cursors.** A trigger has a cursor as well: slots up to it are decided. It is written when the order
//! of the mark is not enough: when a trigger is made, changed, paused, resumed, or catches up.
//!
//! - [`record`]: what is in the store
//! - [`command`]: what people ask
//! - `memory`: what a shard knows, and the only place where that changes; `kind`: what triggers share
//! - `due`: which slots fire
//! - `change`: what commands do; `account`: what becomes of slots then
//! - `flight`: attempts, from launch to past; `leave`: how they leave and end; `wait`: what waits
//! - `project`: projects that are disabled
//! - `notify`: who is told what
//! - `prune`: triggers that ended long ago
//! - `backpressure`: how much there is for a host already
//! - `run`: questions about a run that is not finished
//! - `doubt`: what a predecessor left; `handover`: what a former owner has under way, and how a shard is handed over
//! - `usage`: how much a project has, and may have
//! - `rewrite`: keeping the past elsewhere
//! - `batch`: what is written together

mod account;
mod attempts;
mod backfill;
mod backpressure;
mod batch;
mod change;
pub mod command;
mod doubt;
mod due;
mod handover;
mod kind;
mod leave;
mod memory;
mod notify;
mod project;
mod prune;
pub mod record;
mod rewrite;
mod run;
mod usage;
mod wait;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use crate::id::{RunId, ShardId, Unique};
use crate::instant::Instant;
use crate::limits::LOOK_AHEAD_MS;
use crate::mutant::{Mutant, pick};
use crate::notice::Audience;
use crate::wheel::Wheel;

use attempts::Attempts;
pub use backpressure::{Backpressure, Load};
use batch::Shadow;
pub use batch::{Batch, Put, Room};
use command::Done;
pub use doubt::{LoadError, Loading};
pub use handover::HandedOverAttempt;
pub use kind::Kinds;
pub use leave::{Departure, Report};
use memory::{Change, Memory};
pub use usage::{Limit, Quota, Usage};

/// What time it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// By the wall clock, which slots are about. It may step.
    pub wall: Instant,
    /// In milliseconds, by a clock that never steps.
    pub steady: u64,
    /// A number that nobody can guess.
    pub random: u64,
}

/// The caller's name for a command, by which it is told when it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Says what is to be written together with the first of what a command changes, if the command changes something.
/// It is told the run that the command starts, if it starts one.
pub type Note = Box<dyn FnOnce(Option<RunId>) -> Vec<Put> + Send>;

/// What happened once a batch was written.
#[derive(Debug, Default)]
pub struct Committed {
    /// Who is to be told what.
    pub replies: Vec<(Ticket, Done)>,
    /// What is past now, in order.
    pub past: Vec<crate::past::Line>,
    /// Attempts that are to be broken off.
    pub aborts: Vec<u64>,
}

/// Changes that belong together.
#[derive(Debug, Default)]
struct Unit {
    changes: Vec<Change>,
    /// Attempts that may leave once it is written.
    launches: Vec<u64>,
    /// Attempts that are broken off once it is written.
    aborts: Vec<u64>,
    reply: Option<(Ticket, Done)>,
    /// When it is to be written, at the latest.
    by: Option<Instant>,
}

/// A shard, as its owner has it.
pub struct Shard {
    memory: Memory,
    wheel: Wheel,
    /// What has left the wheel and is not decided, in the order of the mark.
    front: BTreeMap<(Instant, Unique), u32>,
    /// Where a place is in the front.
    front_of: HashMap<u32, Instant>,
    /// Up to here everything has left the wheel.
    horizon: Instant,
    /// Slots that leave up to here were missed: nobody was there.
    missed_until: Instant,
    /// Pauses that end by themselves.
    resumes: BTreeSet<(Instant, Unique)>,
    /// Triggers of projects that were enabled, to be brought up to date.
    behind: VecDeque<Unique>,
    /// Triggers that are overdue then, unless they succeed before, and when each is.
    alerts: BTreeSet<(Instant, Unique)>,
    alert_of: HashMap<Unique, Instant>,
    attempts: Attempts,
    backpressure: Arc<dyn Backpressure>,
    audience: Audience,
    units: VecDeque<Unit>,
    shadow: Shadow,
    /// The batch that is on its way.
    sent: Option<Vec<Unit>>,
    course: Course,
    /// Nothing is decided for as long as nobody knows what time it is.
    is_suspended: bool,
    /// When something is to be written, and for how many somebody waits.
    due_by: Option<Instant>,
    asked: usize,
}

/// How far a shard is from being somebody else's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Course {
    /// It decides.
    Deciding,
    /// Nothing new is decided.
    Stopping,
    /// Nothing is decided at all. What was is written.
    HandedOver,
}

/// How many triggers are what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Census {
    /// They will fire.
    pub scheduled: usize,
    /// They are paused.
    pub paused: usize,
    /// They never fire again.
    pub cancelled: usize,
    /// They are run on demand only, or have expired.
    pub idle: usize,
}

impl Census {
    /// These and those.
    pub fn add(&mut self, other: Self) {
        self.scheduled += other.scheduled;
        self.paused += other.paused;
        self.cancelled += other.cancelled;
        self.idle += other.idle;
    }
}

impl Shard {
    /// Which one it is.
    pub fn id(&self) -> ShardId {
        self.memory.shard
    }

    /// How many triggers it has.
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Runs that are not finished, launched ahead or under way.
    pub fn unfinished(&self) -> usize {
        self.memory.open.len() + self.memory.runs.len()
    }

    /// Decides all that is to be decided by now.
    pub fn step(&mut self, now: Now) {
        if self.is_suspended || self.course == Course::HandedOver {
            return;
        }
        self.settle(now);
        if !self.is_stopping() {
            self.end_pauses(now);
            self.catch_up(now);
            self.alert(now);
            self.due(now);
        }
        self.pump(now);
        self.write_out(now);
    }

    /// Nothing is decided until this is called again with `false`: nobody knows what time it is.
    pub fn set_suspended(&mut self, is_suspended: bool) {
        self.is_suspended = is_suspended;
    }

    /// How many triggers are what.
    pub fn census(&self) -> Census {
        let scheduled = self.wheel.len() + self.front.len();
        let (paused, cancelled) = (self.memory.paused, self.memory.cancelled);
        let idle = self.len().saturating_sub(scheduled + paused + cancelled);
        Census { scheduled, paused, cancelled, idle }
    }

    /// Somebody was not there for a while, or the clock was set, and slots that were due before are missed;
    /// those that are due after are not, whatever the clock showed meanwhile.
    pub fn awake(&mut self, now: Now) {
        self.missed_until = Instant(now.wall.0 - crate::limits::MISSED_AFTER_MS);
        // What was to be written soon by a clock that was ahead is to be written now.
        for by in self.units.iter_mut().map(|unit| &mut unit.by).chain([&mut self.due_by]) {
            *by = by.map(|by| by.min(now.wall));
        }
    }

    /// When to call [`Shard::step`] or [`Shard::depart`] again, unless something happens before.
    pub fn next_wake(&self, now: Now) -> Option<Instant> {
        let ahead = |at: Instant| Instant(at.0 - LOOK_AHEAD_MS);
        if self.is_suspended || self.course == Course::HandedOver {
            return None;
        }
        let slots = if self.is_stopping() {
            [None; 5]
        } else {
            let front = self.front.keys().next().map(|(at, _)| *at);
            let wheel = self.wheel.next().map(|at| ahead(Instant(at.cast_signed())));
            let resume = self.resumes.first().map(|(at, _)| *at);
            let alert = self.alerts.first().map(|(at, _)| *at);
            [front, wheel, resume, alert, self.next_catch_up(now)]
        };
        // What is due already waits for something else, which will tell.
        let wakes = slots.into_iter().flatten().chain(self.attempts.next_wakes(now));
        wakes.filter(|at| *at > now.wall).min()
    }

    /// When something is to be written, at the latest. Nothing, while a batch is on its way.
    pub fn commit_by(&self) -> Option<Instant> {
        if self.sent.is_some() {
            return None;
        }
        self.due_by
    }

    /// Whether somebody waits for something to be written.
    pub fn is_asked(&self) -> bool {
        self.asked > 0 && self.sent.is_none()
    }

    /// Whether a batch is on its way.
    pub fn is_writing(&self) -> bool {
        self.sent.is_some()
    }

    /// Whether everything that was decided is written.
    pub fn is_settled(&self) -> bool {
        self.units.is_empty() && self.sent.is_none()
    }

    fn is_stopping(&self) -> bool {
        match self.course {
            Course::Deciding => false,
            Course::Stopping | Course::HandedOver => true,
        }
    }

    /// A decision is made: memory knows it from now on, and the store soon.
    fn enact(&mut self, unit: Unit) {
        for change in &unit.changes {
            self.memory.apply(change);
        }
        self.note(&unit);
        self.units.push_back(unit);
    }

    fn note(&mut self, unit: &Unit) {
        self.due_by = self.due_by.into_iter().chain(unit.by).min();
        // Nobody waits for what is done in the background.
        let is_asked = unit.reply.is_some_and(|(_, done)| done != Done::Rewritten);
        self.asked += usize::from(is_asked);
    }

    /// A decision is made with what must be in the same unit. The mutant writes that apart, and later.
    fn enact_with(
        &mut self,
        mut unit: Unit,
        also: impl IntoIterator<Item = Change>,
        apart: Mutant,
    ) {
        let mut later = Unit { by: unit.by, ..Unit::default() };
        pick(apart, &mut unit, &mut later).changes.extend(also);
        self.enact(unit);
        if !later.changes.is_empty() {
            self.enact(later);
        }
    }

    /// Looks again when a trigger fires next.
    fn arm(&mut self, place: u32) {
        let trigger = self.memory.at(place);
        let is_done = trigger.is_paused()
            || trigger.is_cancelled()
            || self.memory.is_behind(trigger)
            || trigger.remaining() == Some(0);
        let next = if is_done { None } else { self.memory.undecided(trigger) };
        self.arm_at(place, next.map(|(_, leaves)| leaves));
    }

    fn arm_at(&mut self, place: u32, leaves: Option<Instant>) {
        self.disarm(place);
        let Some(leaves) = leaves else { return };
        if leaves <= self.horizon {
            self.front.insert((leaves, self.memory.at(place).unique), place);
            self.front_of.insert(place, leaves);
        } else {
            self.wheel.arm(place, leaves.0.unsigned_abs());
        }
    }

    fn disarm(&mut self, place: u32) {
        self.wheel.cancel(place);
        if let Some(leaves) = self.front_of.remove(&place) {
            self.front.remove(&(leaves, self.memory.at(place).unique));
        }
    }
}

impl Unit {
    fn of(changes: Vec<Change>) -> Self {
        Self { changes, ..Self::default() }
    }

    fn by(mut self, by: Instant) -> Self {
        self.by = Some(by);
        self
    }
}
