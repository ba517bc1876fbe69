//! Dead runs of queues: how they come to be kept, are redriven, and go.
//!
//! A run that is redriven is a new run, with an id, attempts and deaths of its own; which one it is carried out again for is
//! part of it. What was kept of the dead run goes in the same unit, so it is redriven once, whatever becomes of the answer.
//! What the dead run was about is read by whoever asks for it: it never changes, and if it is gone by now, so is the run.
//!
//! A run of a trigger whose runs must not overlap gets a record first, as one on demand does, and waits there for others of
//! its trigger. If the trigger is gone, so is its rule.

use std::sync::Arc;

use crate::id::{ProjectId, RunId, SerialId};
use crate::instant::Instant;
use crate::limits::{DEAD_RUNS_FORGOTTEN_AT_ONCE, DEAD_RUNS_FORGOTTEN_FOR_ONE};
use crate::mutant::{Mutant, pick};
use crate::past::{End, Finished};
use crate::policy::{Overlap, Policy};
use crate::queue::backlog::ClaimOrder;
use crate::queue::dead::{DeadRecord, DeadRun};
use crate::queue::feed::{Feed, FeedForm};
use crate::queue::given::GivenPolicy;
use crate::queue::record::{QueueRecord, QueuedRecord, UniqueRecord};
use crate::queue::submitted::{RunPlace, TriggerSlot};
use crate::queue::unfinished::QueueDelta;
use crate::target::Target;

use super::command::{Done, Rejection};
use super::hear::ShardAnswer;
use super::memory::Delta;
use super::record::{RunRecord, RunState};
use super::runs::RunsBefore;
use super::submit::queued;
use super::{Now, Shard, Ticket, Unit};

/// A dead run, and what it was about.
#[derive(Clone)]
pub struct DeadDefinition {
    /// Its number.
    pub sequence: u64,
    /// As it was submitted, with what a worker is to do.
    pub record: Box<QueuedRecord>,
}

/// What became of a wish to redrive a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedriveResult {
    /// It waits again, as this run: in its queue, or for another one of its trigger to end.
    Waits(RunId),
    /// It is not among the dead runs: somebody redrove it, or it is not kept any longer.
    Gone,
    /// Its unique key stands for this run now.
    KeyTaken(RunId),
    /// As many runs of its queue wait as may.
    NoRoom,
}

impl RedriveResult {
    /// The run that waits now.
    pub fn run(&self) -> Option<RunId> {
        match self {
            Self::Waits(run) => Some(*run),
            Self::Gone | Self::KeyTaken(_) | Self::NoRoom => None,
        }
    }
}

impl Shard {
    /// How a run leaves its queue: dead, if it can be redriven.
    pub(super) fn leaves_queue(&self, place: RunPlace, run: &Finished) -> Delta {
        if !can_be_redriven(run.end) {
            return Delta::Decided(QueueDelta::Ended(place));
        }
        let last = run.attempts.last().cloned();
        let run = Finished { attempts: last.into_iter().collect(), ..run.clone() };
        let dead = DeadRun::of(self.id, self.cluster, place, &run);
        let ClaimOrder { priority, due, .. } = place.order;
        let record = DeadRecord { run, priority, due, has_body: place.has_body };
        Delta::Died(Box::new((dead, record)))
    }

    /// Lets dead runs of a queue wait again, as many as there is room for.
    pub(super) fn redrive(
        &mut self,
        queue: SerialId,
        runs: Vec<DeadDefinition>,
        now: Now,
    ) -> Result<Done, Rejection> {
        let record = Arc::clone(self.queues.get(queue).ok_or(Rejection::NoSuchQueue)?);
        let mut unit = Unit::default().by(now.wall);
        let mut results = Vec::with_capacity(runs.len());
        for run in runs {
            let result = match self.check_redrive(&record, &run) {
                Ok(()) => self.redrive_one(&record, run, &mut unit, now),
                // The asker is told why, if nothing else was done.
                Err(why) if results.is_empty() => return Err(why),
                Err(_) => RedriveResult::NoRoom,
            };
            results.push(result);
        }
        if !unit.changes.is_empty() {
            self.outbox.push(unit);
        }
        Ok(Done::Redriven(results.into()))
    }

    /// Whether there is room for a dead run to wait again.
    fn check_redrive(&self, queue: &QueueRecord, run: &DeadDefinition) -> Result<(), Rejection> {
        if run.record.trigger.is_some() {
            self.runs.check_room(queue.id.project, true, 1)?;
        }
        let more = RunsBefore { runs: 1, long: usize::from(run.record.has_body()) };
        self.check_room_in(queue, more)
    }

    fn redrive_one(
        &mut self,
        queue: &QueueRecord,
        run: DeadDefinition,
        unit: &mut Unit,
        now: Now,
    ) -> RedriveResult {
        let (serial, former) = (queue.id.serial, run.sequence);
        let dead = self.queues.dead.get(former).filter(|dead| dead.place.queue == serial);
        let Some(dead) = dead.copied() else { return RedriveResult::Gone };
        let record = renewed(*run.record, &dead, now);
        let sequence = self.runs.next_sequence();
        if let Some(unique) = &record.unique {
            let known = self.queues.unique(serial, &unique.key, now);
            if let Some(other) = known.filter(|known| known.sequence != former) {
                let (number, born) = (other.sequence, other.born);
                let id = RunId::submitted(self.id, number, born, self.cluster);
                return RedriveResult::KeyTaken(id);
            }
            let key = unique.key.clone();
            let unique = UniqueRecord { key, sequence, born: record.born, until: None };
            self.decide_in(unit, Delta::Unique(serial, Arc::new(unique)));
        }
        let gone = Delta::DeadGone(dead);
        self.apply(&gone);
        unit.changes.extend(pick(Mutant::RedrivenStaysDead, Some(gone), None));
        debug_assert!(record.action.is_some(), "whoever redrives a run has read what it was about");
        let priority = dead.place.order.priority;
        if let Some(run) = self.demanded_again(queue, priority, &record, now) {
            let run = Arc::new(run);
            self.decide_in(unit, Delta::Run(sequence, Arc::clone(&run)));
            self.waiting.add(sequence, &run);
            return RedriveResult::Waits(run.id(self.id, sequence, self.cluster));
        }
        let order = ClaimOrder { priority, due: now.wall, sequence };
        self.decide_in(unit, queued(serial, order, record));
        let waits = self.queues.runs.get(sequence).expect("it waits since this moment");
        RedriveResult::Waits(self.queued_id(&waits))
    }

    /// A dead run that is submitted again as a run on demand of its trigger, if it may have to wait for others of it.
    fn demanded_again(
        &self,
        queue: &QueueRecord,
        priority: u8,
        record: &QueuedRecord,
        now: Now,
    ) -> Option<RunRecord> {
        let trigger = self.triggers.get(record.trigger.as_ref()?.serial)?;
        if trigger.policy().overlap == Overlap::Allow {
            return None;
        }
        let (queue, key, timeout_ms) = (queue.name.clone(), record.key.clone(), record.timeout_ms);
        let form = Arc::new(FeedForm { queue, priority, key, timeout_ms, pick: record.pick });
        let action = record.action.as_ref()?.get().into();
        let time = record.expires.and_then(|at| u64::try_from(at.0 - now.wall.0).ok());
        let GivenPolicy { delivery, retry } = record.policy;
        let policy = Policy { delivery, retry, max_lateness_ms: time, ..*trigger.policy() };
        let run = trigger.run_record(now.wall, now.wall, RunState::Waiting(now.wall));
        Some(RunRecord {
            generation: None,
            target: Arc::new(Target::Queue(Feed { form, action })),
            policy,
            redriven_from: record.redriven_from,
            ..run
        })
    }

    /// Forgets dead runs of which there are too many, or that are too old, before others have their turn.
    pub(super) fn forget_dead(&mut self, now: Now) {
        self.forget_some_dead(DEAD_RUNS_FORGOTTEN_AT_ONCE, now);
    }

    /// Forgets as many dead runs as make room for one that died, and one more: however fast runs die, no more are kept than
    /// may be.
    pub(super) fn make_room_for_dead(&mut self, now: Now) {
        self.forget_some_dead(DEAD_RUNS_FORGOTTEN_FOR_ONE, now);
    }

    fn forget_some_dead(&mut self, most: usize, now: Now) {
        for _ in 0..most {
            let Some(dead) = self.queues.dead.next_to_go(now.wall) else { return };
            self.enact(Unit::of(vec![Delta::DeadGone(dead)]).by(now.wall));
        }
    }

    /// Tells where a dead run of a project is.
    pub fn show_dead(&mut self, project: ProjectId, id: RunId, ticket: Ticket) {
        let found = self.queues.dead.find(id).filter(|dead| {
            let queue = self.queues.get(dead.place.queue);
            queue.is_some_and(|queue| queue.id.project == project)
        });
        let found = found.copied();
        self.outbox.answer(ticket, ShardAnswer::Dead(found));
    }
}

/// Whether a run that ended so is kept to be redriven.
pub(super) fn can_be_redriven(end: End) -> bool {
    match end {
        End::Dead | End::Failed => true,
        End::Succeeded | End::Cancelled | End::Expired | End::Unknown => false,
    }
}

/// A dead run as it is submitted again: due at once, with as much time to be claimed as it had.
fn renewed(former: QueuedRecord, dead: &DeadRun, now: Now) -> QueuedRecord {
    let due = dead.place.order.due;
    QueuedRecord {
        born: now.wall,
        // It is a run on demand of the same trigger.
        trigger: former.trigger.map(|slot| TriggerSlot { generation: None, ..slot }),
        expires: former.expires.map(|at| Instant(now.wall.0 + at.0 - due.0)),
        redriven_from: Some(dead.id),
        ..former
    }
}
