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
//! holds `decided_through` (stored as `fired`), up to where slots are decided, in the order in which they leave, and
//! `open`, the runs that were launched and are not past. Both are written in the commit that launches. So a successor
//! recomputes nothing: what is open may have left, and is in doubt; what is after the mark has not.
//! Everything else that is decided about a slot (that it is skipped, that it waits, that one run fewer is
//! left) is in the same unit as the mark that passes it.
//!
//! **Cursors.** A trigger has a cursor as well: slots up to it are decided. It is written when the order
//! of the mark is not enough: when a trigger is made, changed, paused, resumed, or catches up.
//!
//! **Parts.** A shard is composed of parts that own their fields. What is in the store is known by `triggers` and
//! `runs`, and changed by `memory` alone, live and in recovery. What follows from that is known by `agenda` (what is due
//! when), `waiting` (what runs wait for), `attempts` (what is under way) and `outbox` (what is to be written). The rules
//! need several parts: they are methods of [`Shard`], in the other files.
//!
//! **Bounds.** Each part says itself whether it is full, and those who put something into it ask it. `queues` is a part
//! beside `triggers` and `runs`, with bounds of its own: runs that wait in a queue stop no trigger, and those of triggers
//! stop no queue. What they share is the `outbox`, whose bound is for all that is decided.
//!
//! - [`record`]: what is in the store; `kind`: what triggers share
//! - [`command`]: what people ask; `change`, `backfill`: what that does; `account`: what becomes of slots then
//! - `due`: which slots fire; `enqueue`: how they come to queues; `lag`: hosts that cannot keep up; `project`: projects that
//!   are disabled; `prune`: triggers
//!   that ended long ago
//! - `queues`: the queues, and who works for them; `submit`: what people ask of them; `hear`: what workers say; `output`: what
//!   runs print
//! - `dead`: runs of queues that failed for good, and are redriven; `by_filter`: what is done to many runs of a queue at once
//! - `pick`: which workers runs are for, and what comes of the parts of runs
//! - `leave`: how attempts leave and end; `start`: when runs that wait go on; `run_property`: what an unfinished run is
//! - `notify`: who is told what; `queue_alert`: queues in which runs wait for too long; `queue_sight`: what those who
//!   watch and measure see of queues
//! - `doubt`: what a predecessor left; `handover`: what a former owner has under way, and how a shard is handed over
//! - `usage`: how much a project has, and may have; `name`: names of triggers that live in other shards
//! - `rewrite`: keeping the past elsewhere
//! - `batch`: what is written together

mod account;
mod agenda;
mod attempts;
mod backfill;
mod batch;
mod by_filter;
mod change;
pub mod command;
mod dead;
mod doubt;
mod due;
mod enqueue;
mod handover;
mod hear;
mod kind;
mod lag;
mod leave;
mod memory;
mod name;
mod notify;
mod outbox;
mod output;
mod pick;
mod project;
mod prune;
mod queue_alert;
mod queue_failure;
mod queue_sight;
mod queues;
pub mod record;
mod rewrite;
mod run_property;
mod runs;
mod start;
mod submit;
mod triggers;
mod usage;
mod view;
mod waiting;

use crate::id::{Birth, RunId, SerialId, ShardId, TriggerId};
use crate::instant::Instant;
use crate::mutant::{Mutant, pick};
use crate::notice::Audience;
use crate::queue::news::QueueNews;

use agenda::Agenda;
use attempts::Attempts;
pub use batch::{Put, Room, ShardBatch};
pub use by_filter::{FilterProgress, NumberSpan};
use command::Done;
pub use dead::{DeadDefinition, RedriveResult};
pub use doubt::{LoadError, Loading};
pub use handover::HandedOverAttempt;
pub use hear::{
    ClaimCall, DoneCall, GivenRun, QueueView, QueuedView, ShardAnswer, WorkerCall, WorkerReply,
    WorkerRun,
};
pub use kind::TriggerKinds;
pub use lag::{HostDemand, HostRoom, HostRoomOf};
pub use leave::{AttemptReport, Departure};
use memory::{Delta, Memory, apply};
use outbox::{Outbox, Unit};
pub use output::{LiveOutput, OutputCall, OutputTaken, OutputView, ToldProgress};
pub use pick::PartView;
use queues::Queues;
use record::{HeadRecord, Mark};
use runs::Runs;
pub use submit::{Submission, Taken};
use triggers::{Trigger, Triggers};
pub use usage::{Limit, Quota, Usage};
pub use view::{TriggerStatus, TriggerView};
use waiting::WaitingRuns;

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
/// It is told the runs that the command starts or submits.
pub type CommandNote = Box<dyn FnOnce(&[RunId]) -> Vec<Put> + Send>;

/// What happened once a batch was written.
#[derive(Debug, Default)]
pub struct Committed {
    /// Commands that are done, by their tickets.
    pub replies: Vec<(Ticket, Done)>,
    /// What is past now, in order.
    pub past: Vec<crate::past::Line>,
    /// Attempts that are to be broken off.
    pub aborts: Vec<u64>,
    /// What is answered from memory, by its tickets.
    pub answers: Vec<(Ticket, ShardAnswer)>,
    /// What those who watch are told about queues.
    pub news: Vec<QueueNews>,
}

/// A shard, as its owner has it.
pub struct Shard {
    id: ShardId,
    cluster: u64,
    triggers: Triggers,
    agenda: Agenda,
    runs: Runs,
    queues: Queues,
    waiting: WaitingRuns,
    attempts: Attempts,
    outbox: Outbox,
    audience: Audience,
    course: Course,
    /// Nothing is decided for as long as nobody knows what time it is.
    is_suspended: bool,
}

/// How far a shard is from being somebody else's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Course {
    Deciding,
    /// Nothing new is decided.
    Stopping,
    /// Nothing is decided at all; what was decided before is written.
    HandedOver,
}

/// How many triggers are in which state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TriggerCensus {
    /// How many will fire.
    pub scheduled: usize,
    /// How many are paused.
    pub paused: usize,
    /// How many are cancelled.
    pub cancelled: usize,
    /// How many are run on demand only, or have expired.
    pub idle: usize,
}

impl TriggerCensus {
    /// Adds the other counts.
    pub fn add(&mut self, other: Self) {
        self.scheduled += other.scheduled;
        self.paused += other.paused;
        self.cancelled += other.cancelled;
        self.idle += other.idle;
    }
}

impl Shard {
    /// The shard's id.
    pub fn id(&self) -> ShardId {
        self.id
    }

    /// How many triggers it has.
    pub fn len(&self) -> usize {
        self.triggers.len()
    }

    /// Whether it has no triggers.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Runs that are not finished, launched ahead or under way.
    pub fn unfinished(&self) -> usize {
        self.runs.len()
    }

    /// Decides all that is to be decided by now, with a look at how much room each host has.
    pub fn step(&mut self, now: Now, room: HostRoomOf<'_>) {
        if self.is_suspended || self.course == Course::HandedOver {
            return;
        }
        self.settle(now);
        if !self.is_stopping() {
            self.end_pauses(now);
            self.catch_up_enabled_projects(now);
            self.alert(now);
            self.due(room, now);
            self.step_queues(now);
        }
        self.start_due_runs(room, now);
        self.start_where_room_is(now);
        self.serve_hosts(room, now);
        self.write_out(now);
    }

    /// Nothing is decided until this is called again with `false`: nobody knows what time it is. So claims do not wait.
    pub fn set_suspended(&mut self, is_suspended: bool) {
        self.is_suspended = is_suspended;
        if is_suspended {
            let answers = self.queues.workers.stop_all_waiting();
            self.answer_all_waiting(answers);
        }
    }

    /// How many triggers are in which state.
    pub fn census(&self) -> TriggerCensus {
        let scheduled = self.agenda.scheduled();
        let (paused, cancelled) = self.triggers.paused_and_cancelled();
        let idle = self.len().saturating_sub(scheduled + paused + cancelled);
        TriggerCensus { scheduled, paused, cancelled, idle }
    }

    /// The owner was not there for a while, or the clock was set: slots that were due before now are missed.
    /// Later ones are not, whatever the clock showed meanwhile.
    pub fn awake(&mut self, now: Now) {
        self.agenda.miss(self.triggers.mark(), now);
        self.outbox.hurry(now.wall);
        self.queues.workers.was_away(now);
        self.queues.runs.rewind(now.wall);
        self.queues.alerts.look_soon();
    }

    /// When to call [`Shard::step`] or [`Shard::depart`] again, unless something happens before.
    pub fn next_wake(&self, now: Now) -> Option<Instant> {
        if self.is_suspended || self.course == Course::HandedOver {
            return None;
        }
        let slots = (!self.is_stopping())
            .then(|| self.agenda.next_wakes(now).chain(self.queues.next_wakes(now)));
        // What is due already waits for something else, which will tell.
        let runs = self.waiting.next_wakes(now).chain(self.attempts.next_wakes(now));
        let hosts = self.waits_for_hosts().then(|| self.waiting.next_look(now));
        let runs = runs.chain(hosts);
        let wakes = slots.into_iter().flatten().chain(runs);
        wakes.filter(|at| *at > now.wall).min()
    }

    /// When something is to be written, at the latest. Nothing, while a batch is on its way.
    pub fn commit_by(&self) -> Option<Instant> {
        self.outbox.commit_by()
    }

    /// Whether somebody waits for something to be written.
    pub fn is_asked(&self) -> bool {
        self.outbox.is_asked()
    }

    /// Whether a batch is on its way.
    pub fn is_writing(&self) -> bool {
        self.outbox.is_writing()
    }

    /// Whether everything that was decided is written.
    pub fn is_settled(&self) -> bool {
        self.outbox.is_settled()
    }

    /// So much fits a commit. Whoever decides before the first batch is taken wants to know.
    pub fn set_room(&mut self, room: Room) {
        self.outbox.set_writes_max(room.writes);
    }

    /// Takes what is to be written next, as the chain's commit of this number. It is on its way until
    /// [`Shard::committed`].
    pub fn take_batch(&mut self, number: u64, room: Room) -> Option<ShardBatch> {
        self.outbox.take_batch(self.id(), number, room)
    }

    /// What the head says in the store, once what is on its way is there: whoever else writes the head, as one does
    /// who names a new owner, writes this.
    pub fn head(&self) -> HeadRecord {
        self.outbox.head()
    }

    /// Up to here slots are decided or wait for their host, whether or not that is written.
    pub fn decided_through(&self) -> Mark {
        self.triggers.mark()
    }

    /// What was on its way is written.
    pub fn committed(&mut self, now: Now) -> Committed {
        let mut done = Committed::default();
        for unit in self.outbox.take_written() {
            for key in unit.launches {
                self.attempts.release(key, now);
            }
            for key in unit.aborts {
                self.attempts.aborted(key);
                done.aborts.push(key);
            }
            done.replies.extend(unit.reply);
            done.answers.extend(unit.answers);
            for change in unit.changes {
                match change {
                    Delta::Past(line) => done.past.push(line),
                    Delta::News(news) => done.news.push(*news),
                    _ => {}
                }
            }
        }
        done
    }

    fn is_stopping(&self) -> bool {
        self.course != Course::Deciding
    }

    /// A decision is made: memory knows it from now on, and the store soon.
    fn enact(&mut self, unit: Unit) {
        for change in &unit.changes {
            self.apply(change);
        }
        for change in &unit.changes {
            // A notice may be given up in its own unit.
            if let Delta::Run(sequence, _) = change
                && let Some(run) = self.runs.get(*sequence)
            {
                self.waiting.add(*sequence, run);
            }
        }
        self.outbox.push(unit);
    }

    fn apply(&mut self, change: &Delta) {
        let Self { triggers, runs, queues, .. } = self;
        apply(change, Memory { triggers, runs, queues });
    }

    /// A decision is made, with changes that must be in its unit. The mutant writes those later.
    fn enact_with(&mut self, mut unit: Unit, also: impl IntoIterator<Item = Delta>, apart: Mutant) {
        let mut later = Unit { by: unit.by, ..Unit::default() };
        pick(apart, &mut unit, &mut later).changes.extend(also);
        self.enact(unit);
        if !later.changes.is_empty() {
            self.enact(later);
        }
    }

    /// Looks again when a trigger fires next.
    fn arm(&mut self, place: u32) {
        let trigger = self.triggers.at(place);
        let fires = trigger.fires() && !self.triggers.is_behind(trigger);
        let next = if fires { self.triggers.undecided(trigger) } else { None };
        self.arm_at(place, next.map(|(_, leaves_at)| leaves_at));
    }

    fn arm_at(&mut self, place: u32, leaves_at: Option<Instant>) {
        let Some(leaves_at) = leaves_at else { return self.agenda.disarm(place) };
        let trigger = self.triggers.at(place);
        let serial = trigger.serial;
        let is_passed = Mark(leaves_at, serial) <= self.triggers.mark();
        match trigger.host().filter(|host| is_passed && self.triggers.lags(*host)) {
            Some(host) => self.agenda.wait_for_host(place, serial, leaves_at, host),
            None => self.agenda.arm(place, serial, leaves_at),
        }
    }

    fn id_of(&self, trigger: &Trigger) -> TriggerId {
        TriggerId { shard: self.id, project: trigger.project(), serial: trigger.serial }
    }

    fn run_id(&self, trigger: SerialId, slot: Instant, birth: Birth) -> RunId {
        RunId { shard: self.id, trigger, slot, letters: birth.letters(self.cluster) }
    }
}
