//! How runs of triggers come to queues.
//!
//! A trigger that feeds a queue lives in the shard of its queue. So the run of a slot waits in the queue from the unit on
//! that moves the mark past the slot: whatever crashes, there is neither a slot without its run nor a run without its slot.
//! A slot may be enqueued before it is due, like others are launched ahead; no worker is given it before its instant.
//!
//! A run that cannot be enqueued with its slot has a record first, as one of a webhook has: it waits for another one of its
//! trigger (`queue_one`, `replace`), or is no slot that the mark passes (on demand, a backfill, slots that a change made
//! due, a dead run that is redriven). When it may start, one unit takes it from its record to the queue, under the same number and so the same id.
//!
//! **Overlap.** A run in a queue is unfinished from its slot until its end, whether it waits or a worker has it. `replace`
//! cancels it: one that waits ends at once; a worker that has it is told, and its successor waits for its end.
//!
//! **A full queue** takes no slot: it is skipped, and its record says why. A run on demand and a backfill are refused. What
//! has a record already has its place, and waits until there is room: so what waits outside a queue counts as waiting in it.
//! Beside that, a project may have so many runs outside its queues: see [`crate::limits::RUNS_BEFORE_QUEUES_MAX`]. A slot
//! that waits for another one of its trigger (`queue_one`, `replace`) is let through: of each trigger it is one.

use std::sync::Arc;
use std::time::Duration;

use crate::id::{ProjectId, SerialId};
use crate::instant::Instant;
use crate::limits::LAUNCH_LEAD_MS;
use crate::mutant::{Mutant, pick};
use crate::past::{PastOfQueue, Reason};
use crate::policy::Overlap;
use crate::queue::backlog::ClaimOrder;
use crate::queue::decided::Decided;
use crate::queue::feed::Feed;
use crate::queue::given::GivenPolicy;
use crate::queue::pick::Pick;
use crate::queue::record::{QueueRecord, QueuedRecord};
use crate::queue::submitted::TriggerSlot;
use crate::queue::unfinished::QueueDelta;
use crate::target::Target;

use super::change::ITSELF;
use super::command::Rejection;
use super::memory::Delta;
use super::record::{Mark, RunRecord, RunState, TriggerState};
use super::runs::RunsBefore;
use super::submit::queued;
use super::triggers::Trigger;
use super::{Now, Shard, Unit};

/// A queue that a run can go to.
struct FedQueue {
    serial: SerialId,
    /// Makes the queue, if it is not there.
    made: Option<Delta>,
}

/// From a trigger to its queue.
impl Shard {
    /// Lets a queue have the run of a slot, in the unit that passes the slot.
    pub(super) fn enqueue_slot(&mut self, place: u32, slot: Instant, mark: Mark, now: Now) {
        let trigger = self.triggers.at(place);
        let run = trigger.run_record(slot, mark.0, RunState::Waiting(mark.0));
        let Some(queue) = self.queue_with_room(&run, self.runs_before(&run), now) else {
            let skipped = trigger.skipped((slot, slot), 1, Reason::QueueFull, now);
            return self.skip(skipped, vec![self.passes(trigger, mark)], now.wall);
        };
        let mut changes = vec![self.passes(trigger, mark)];
        changes.extend(queue.made);
        let sequence = self.runs.next_sequence();
        let wanted = trigger.feeds().map_or(Pick::Any, |feed| feed.pick);
        let numbers = (sequence, sequence + 1);
        let choice = self.choose(numbers, queue.serial, wanted, Some(trigger), now);
        let state = self.state_after_launch(trigger, slot, now);
        changes.extend(match (state, choice.position) {
            (Some(Delta::State(serial, state)), position @ Some(_)) => {
                Some(Delta::State(serial, TriggerState { position, ..state }))
            }
            (None, Some(position)) => Some(trigger.at_position(position)),
            (state, _) => state,
        });
        let enqueued = self.queued_run_of(&run, queue.serial, sequence, now);
        let enqueued = enqueued.into_iter().chain(choice.changes);
        let by = Instant((mark.0.0 - LAUNCH_LEAD_MS).max(now.wall.0));
        self.enact_with(Unit::of(changes).by(by), enqueued, Mutant::EnqueuedLater);
    }

    /// Takes a run that may start from its record to its queue. If that is full, the run waits where it is.
    pub(super) fn enqueue_recorded(&mut self, sequence: u64, run: &RunRecord, now: Now) {
        // It has its place, as all have that wait outside.
        let Some(queue) = self.queue_with_room(run, RunsBefore::default(), now) else {
            return self.waiting.wait_for_room(sequence, run, now);
        };
        let mut changes: Vec<Delta> = queue.made.into_iter().collect();
        changes.extend(self.queued_run_of(run, queue.serial, sequence, now));
        let trigger = self.triggers.get(run.trigger);
        let wanted = run.target.feed().map_or(Pick::Any, |feed| feed.form.pick);
        let numbers = (sequence, self.runs.next_sequence());
        let choice = self.choose(numbers, queue.serial, wanted, trigger, now);
        changes.extend(choice.changes);
        let position = choice.position.zip(trigger);
        changes.extend(position.map(|(position, trigger)| trigger.at_position(position)));
        let gone = Delta::RunGone(sequence);
        self.enact_with(Unit::of(changes).by(now.wall), [gone], Mutant::RecordGoneLater);
    }

    /// Takes runs that waited for room from their records to their queues, as far as there is room now.
    pub(super) fn start_where_room_is(&mut self, now: Now) {
        for queue in self.waiting.full_queues(now) {
            while !self.outbox.is_full()
                && let Some(first) = self.waiting.first_for_room(&queue)
            {
                self.start(first, now);
                if self.waiting.first_for_room(&queue) == Some(first) {
                    break;
                }
            }
        }
    }

    /// The queue of a run, if one more may wait there beside those before it.
    fn queue_with_room(&self, run: &RunRecord, before: RunsBefore, now: Now) -> Option<FedQueue> {
        let feed = run.target.feed()?;
        let name = &feed.form.queue;
        if let Some(known) = self.queues.named(run.project, name) {
            let runs = self.parts_of(known.id.serial, feed.form.pick);
            let more = RunsBefore { runs, long: usize::from(feed.is_long()) };
            let has_room = self.queues.check_room(known, more, before).is_ok();
            return has_room.then(|| FedQueue { serial: known.id.serial, made: None });
        }
        let made = self.new_queue(run.project, name, ITSELF, now).ok()?;
        Some(FedQueue { serial: made.id.serial, made: Some(Delta::Queue(made)) })
    }

    /// A run as it waits in a queue.
    fn queued_run_of(
        &self,
        run: &RunRecord,
        queue: SerialId,
        sequence: u64,
        now: Now,
    ) -> Option<Delta> {
        let Feed { form, .. } = run.target.feed()?;
        let trigger = self.triggers.get(run.trigger);
        let labels = trigger.map(Trigger::labels).filter(|labels| !labels.is_empty());
        let late = run.policy.max_lateness_ms.map(Duration::from_millis);
        let record = QueuedRecord {
            born: run.slot,
            trigger: Some(TriggerSlot {
                serial: run.trigger,
                name: run.name.as_str().into(),
                generation: run.generation,
            }),
            expires: late.map(|late| run.leaves_at.after(late)),
            key: form.key.clone(),
            unique: None,
            labels: labels.map(Into::into),
            policy: GivenPolicy { delivery: run.policy.delivery, retry: run.policy.retry },
            timeout_ms: form.timeout_ms,
            action: run.target.feed().map(Feed::raw_action),
            redriven_from: run.redriven_from,
            pick: form.pick,
        };
        // While it called a webhook, something of its trigger may have left that is at work still.
        let kept_back = self.attempts.kept_back_until(run.trigger, now);
        let kept_back = kept_back.filter(|_| run.policy.overlap != Overlap::Allow);
        let due = kept_back.map_or(run.leaves_at, |until| until.max(run.leaves_at));
        let order = ClaimOrder { priority: form.priority, due, sequence };
        Some(queued(queue, order, record))
    }

    /// The change that makes the queue which a target leads to, if it leads to one that is not there.
    pub(super) fn missing_queue(
        &self,
        project: ProjectId,
        target: &Target,
        author: &str,
        now: Now,
    ) -> Result<Option<Arc<QueueRecord>>, Rejection> {
        match target.feed() {
            Some(feed) if self.queues.named(project, &feed.form.queue).is_none() => {
                self.new_queue(project, &feed.form.queue, author, now).map(Some)
            }
            Some(_) | None => Ok(None),
        }
    }

    /// Whether there may be so many more runs of a trigger that have a record first, and its queue, if it feeds one, takes
    /// them.
    pub(super) fn check_room(&self, trigger: &Trigger, runs: usize) -> Result<(), Rejection> {
        let (target, project) = (trigger.target(), trigger.project());
        let feed = target.feed();
        self.runs.check_room(project, feed.is_some(), runs)?;
        let queue = feed.and_then(|feed| self.queues.named(project, &feed.form.queue));
        let (Some(feed), Some(queue)) = (feed, queue) else { return Ok(()) };
        let more = RunsBefore { runs, long: if feed.is_long() { runs } else { 0 } };
        self.check_room_in(queue, more)
    }

    /// Whether so many more runs may come to a queue, beside those that wait in it and before it.
    pub(super) fn check_room_in(
        &self,
        queue: &QueueRecord,
        more: RunsBefore,
    ) -> Result<(), Rejection> {
        self.queues.check_room(queue, more, self.runs_before_queue(queue))
    }

    /// A trigger that feeds a queue.
    pub(super) fn feeder_of(&self, queue: &QueueRecord) -> Option<&Trigger> {
        self.triggers.iter().find(|trigger| {
            trigger.project() == queue.id.project
                && trigger.feeds().is_some_and(|feed| feed.queue == queue.name)
        })
    }
}

/// Runs of a trigger that queues have.
impl Shard {
    /// How many runs have a record and are to go to a queue.
    pub(super) fn runs_before_queue(&self, queue: &QueueRecord) -> RunsBefore {
        self.runs.before_queue(queue.id.project, &queue.name)
    }

    /// How many runs have a record and are to go to the queue of a run.
    fn runs_before(&self, run: &RunRecord) -> RunsBefore {
        let queue = run.target.feed().map(|feed| &feed.form.queue);
        queue.map_or_else(RunsBefore::default, |queue| self.runs.before_queue(run.project, queue))
    }

    /// Whether a queue has an unfinished run of a trigger.
    pub(super) fn has_queued_run(&self, trigger: SerialId) -> bool {
        pick(Mutant::QueuedNotActive, self.queues.of_trigger(trigger).next().is_some(), false)
    }

    /// Cancels the runs of a trigger that queues have: those that wait end at once, workers are told of the others.
    pub(super) fn cancel_queued_runs(&mut self, trigger: SerialId, now: Now) {
        let runs: Vec<u64> = self.queues.of_trigger(trigger).collect();
        for sequence in runs {
            let mut decided = Decided::with_room(usize::MAX);
            decided.cancel(&mut self.queues.runs, sequence);
            self.enact_decided(decided, now);
        }
    }

    /// Takes back the slots of a trigger that were enqueued ahead and are not due. Slots after `end` are no slots of its
    /// schedule any more.
    pub(super) fn take_back_enqueued(
        &mut self,
        trigger: SerialId,
        reason: Reason,
        end: Instant,
        now: Now,
    ) {
        let runs: Vec<u64> = self.queues.of_trigger(trigger).collect();
        for sequence in pick(Mutant::EnqueuedKept, runs, Vec::new()) {
            let Some((run, place)) =
                self.queues.runs.get(sequence).zip(self.queues.runs.place(sequence))
            else {
                continue;
            };
            let slot = run.details.as_ref().and_then(|details| details.trigger.as_ref());
            let Some(generation) = slot.and_then(|slot| slot.generation) else { continue };
            // What was given by a clock that was ahead, and came back unbegun, is not due either.
            let parts = self.queues.runs.parts(sequence);
            let given = self.queues.runs.given(sequence);
            // A part that was given has a record, which is not looked for here.
            let never_began = given.is_none_or(|given| given.attempt == 0)
                && parts.iter().all(|part| self.queues.runs.given(*part).is_none());
            if run.order.due > now.wall && never_began {
                self.queues.ended(&run);
                let gone = Delta::Queued(QueueDelta::Ended(place));
                self.take_back_slot((trigger, run.born, generation), gone, reason, end, now);
            }
        }
    }
}

impl RunRecord {
    /// What is told of the queue that it is for, and what its past says of that.
    pub fn past_of_queue(&self) -> Option<Box<PastOfQueue>> {
        let form = &self.target.feed()?.form;
        let (name, key, redriven_from) = (form.queue.clone(), form.key.clone(), self.redriven_from);
        Some(Box::new(PastOfQueue { name, key, redriven_from, ..PastOfQueue::default() }))
    }
}
