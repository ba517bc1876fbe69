//! What people ask of queues: to take runs, to end them, to pause, to have other limits.
//!
//! A queue comes to be when somebody first uses its name, and needs no other word. Runs that are submitted together are
//! one unit: all of them wait, or none.

use std::sync::Arc;

use serde_json::value::RawValue;

use crate::id::{Birth, ProjectId, QueueId, RunId, SerialId};
use crate::instant::Instant;
use crate::mutant::{Mutant, also, pick};
use crate::past::{End, Finished, Line, PastOfQueue};
use crate::queue::backlog::ClaimOrder;
use crate::queue::decided::{Decided, EndedRun};
use crate::queue::given::{GivenPolicy, RunEnd, keep_last};
use crate::queue::pick::{Pick, RunRole};
use crate::queue::record::{QueueRecord, QueueSettings, QueuedRecord, UniqueRecord, is_long};
use crate::queue::submitted::{GivenPlace, RunPlace, SubmittedRun, TriggerSlot, UniqueKey};
use crate::queue::unfinished::QueueDelta;

use super::attempts::RunRef;
use super::change::ITSELF;
use super::command::{Done, Rejection};
use super::dead::can_be_redriven;
use super::memory::Delta;
use super::queues::QueuedRun;
use super::record::Pause;
use super::runs::RunsBefore;
use super::{Now, Shard, Unit};

/// A run that somebody wants a queue to have.
#[derive(Clone)]
pub struct Submission {
    /// From 0, which is claimed first, to 9.
    pub priority: u8,
    /// No sooner than this; at once, if that is none.
    pub due: Option<Instant>,
    /// If nobody was given it by then, nobody will.
    pub expires: Option<Instant>,
    /// Its concurrency key.
    pub key: Option<Box<str>>,
    /// What keeps others like it from being taken.
    pub unique: Option<UniqueKey>,
    /// Its labels: `env=prod,team=billing`.
    pub labels: Option<Box<str>>,
    /// By which rules it is given again.
    pub policy: GivenPolicy,
    /// How long an attempt may take, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// For how many workers it is.
    pub pick: Pick,
    /// What a worker is to do.
    pub action: Box<RawValue>,
}

impl Submission {
    /// How many records of the store it takes.
    pub fn records(&self) -> usize {
        let of_parts = if self.pick == Pick::Any { 0 } else { 2 };
        1 + usize::from(is_long(&self.action)) + usize::from(self.unique.is_some()) + of_parts
    }
}

/// A run that a queue has taken, or has already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// The run's id.
    pub id: RunId,
    /// Whether it is new. If not, its unique key stands for an earlier one.
    pub is_new: bool,
}

impl Shard {
    /// The queue with this name, which comes to be if it was not there.
    pub(super) fn queue_named(
        &mut self,
        project: ProjectId,
        name: &str,
        author: &str,
        now: Now,
    ) -> Result<Arc<QueueRecord>, Rejection> {
        if let Some(known) = self.queues.named(project, name) {
            return Ok(Arc::clone(known));
        }
        let record = self.new_queue(project, name, author, now)?;
        self.enact(Unit::of(vec![Delta::Queue(Arc::clone(&record))]).by(now.wall));
        Ok(record)
    }

    pub(super) fn new_queue(
        &self,
        project: ProjectId,
        name: &str,
        author: &str,
        now: Now,
    ) -> Result<Arc<QueueRecord>, Rejection> {
        if self.queues.is_full_of(project) {
            return Err(Rejection::TooManyQueues);
        }
        let serial = SerialId::born(now.wall, self.triggers.youngest(), now.random);
        Ok(Arc::new(QueueRecord {
            id: QueueId { shard: self.id, project, serial },
            name: name.into(),
            settings: QueueSettings::default(),
            paused: None,
            overdue: None,
            failing: None,
            created: now.wall,
            written: now.wall,
            author: author.to_owned(),
            revision: 1,
        }))
    }

    /// Lets runs wait in a queue, all or none.
    pub(super) fn submit(
        &mut self,
        project: ProjectId,
        queue: &str,
        runs: Vec<Submission>,
        author: &str,
        now: Now,
    ) -> Result<Done, Rejection> {
        let known = self.queues.named(project, queue).cloned();
        let is_new = known.is_none();
        let queue = match known {
            Some(known) => known,
            None => self.new_queue(project, queue, author, now)?,
        };
        let long = runs.iter().filter(|run| is_long(&run.action)).count();
        let parts = runs.iter().map(|run| self.parts_of(queue.id.serial, run.pick)).sum();
        self.check_room_in(&queue, RunsBefore { runs: parts, long })?;
        // One unit, and so one commit, with the note of the request: what it says is there, or none of it.
        let mut unit = Unit::default().by(now.wall);
        if is_new {
            self.decide_in(&mut unit, Delta::Queue(Arc::clone(&queue)));
        }
        let mut taken = Vec::with_capacity(runs.len());
        for run in runs {
            taken.push(self.submit_one(&queue, run, &mut unit, now));
        }
        let mut later = Unit::default().by(now.wall);
        also(Mutant::UniqueLater, || {
            let is_unique = |change: &mut Delta| matches!(change, Delta::Unique(..));
            later.changes = unit.changes.extract_if(.., is_unique).collect();
        });
        for unit in [unit, later].into_iter().filter(|unit| !unit.changes.is_empty()) {
            self.outbox.push(unit);
        }
        Ok(Done::Submitted(taken.into()))
    }

    /// Lets a run wait. Memory knows it at once, so that the next of the same unit does.
    fn submit_one(
        &mut self,
        queue: &QueueRecord,
        run: Submission,
        unit: &mut Unit,
        now: Now,
    ) -> Taken {
        let serial = queue.id.serial;
        let unique = run.unique.as_ref();
        if let Some(known) = unique.and_then(|unique| self.queues.unique(serial, &unique.key, now))
        {
            let id = RunId::submitted(self.id, known.sequence, known.born, self.cluster);
            return Taken { id, is_new: false };
        }
        let sequence = self.runs.next_sequence();
        let record = QueuedRecord {
            born: now.wall,
            trigger: None,
            expires: run.expires,
            key: run.key,
            unique: run.unique,
            labels: run.labels,
            policy: run.policy,
            timeout_ms: run.timeout_ms,
            redriven_from: None,
            pick: run.pick,
            action: Some(run.action),
        };
        if let Some(UniqueKey { key, .. }) = &record.unique {
            let key = key.clone();
            let unique = UniqueRecord { key, sequence, born: now.wall, until: None };
            self.decide_in(unit, Delta::Unique(serial, Arc::new(unique)));
        }
        let order =
            ClaimOrder { priority: run.priority, due: run.due.unwrap_or(now.wall), sequence };
        self.decide_in(unit, queued(serial, order, record));
        if run.due.is_none() {
            let numbers = (sequence, self.runs.next_sequence());
            for change in self.choose(numbers, serial, run.pick, None, now).changes {
                self.decide_in(unit, change);
            }
        }
        let id = RunId::submitted(self.id, sequence, now.wall, self.cluster);
        Taken { id, is_new: true }
    }

    /// A change that memory knows at once, and the store with this unit.
    pub(super) fn decide_in(&mut self, unit: &mut Unit, change: Delta) {
        self.apply(&change);
        unit.changes.push(change);
    }

    /// Gives a queue other settings, or makes it.
    pub(super) fn set_queue(
        &mut self,
        project: ProjectId,
        name: &str,
        settings: QueueSettings,
        author: String,
        expected: Option<u64>,
        now: Now,
    ) -> Result<Done, Rejection> {
        let (former, revision) = match self.queues.named(project, name) {
            Some(known) => (Arc::clone(known), known.revision + 1),
            None => (self.new_queue(project, name, &author, now)?, 1),
        };
        let found = revision - 1;
        if expected.is_some_and(|expected| expected != found) {
            return Err(Rejection::RevisionMoved { found });
        }
        if found > 0 && former.settings == settings {
            return Ok(Done::Unchanged);
        }
        let overdue = former.overdue.filter(|_| settings.alert_after_ms.is_some());
        let former = (*former).clone();
        let record =
            QueueRecord { settings, overdue, written: now.wall, author, revision, ..former };
        self.enact(Unit::of(vec![Delta::Queue(Arc::new(record))]).by(now.wall));
        Ok(Done::QueueSet { revision })
    }

    /// Lets nothing of a queue be given, or lets it go on.
    pub(super) fn pause_queue(
        &mut self,
        queue: SerialId,
        pause: Option<Pause>,
        now: Now,
    ) -> Result<Done, Rejection> {
        let record = self.queues.get(queue).ok_or(Rejection::NoSuchQueue)?;
        let done = match (&record.paused, &pause) {
            (Some(_), Some(_)) => return Err(Rejection::AlreadyPaused),
            (None, None) => return Err(Rejection::NotPaused),
            (None, Some(_)) => Done::Paused,
            (Some(_), None) => Done::Resumed,
        };
        let record = QueueRecord { paused: pause, ..(**record).clone() };
        self.enact(Unit::of(vec![Delta::Queue(Arc::new(record))]).by(now.wall));
        Ok(done)
    }

    /// Lets the queues go on whose pause is over.
    pub(super) fn end_queue_pauses(&mut self, now: Now) {
        while let Some(queue) = self.queues.next_resume(now) {
            if self.pause_queue(queue, None, now).is_err() {
                break;
            }
        }
    }

    pub(super) fn delete_queue(&mut self, queue: SerialId, now: Now) -> Result<Done, Rejection> {
        let record = self.queues.get(queue).ok_or(Rejection::NoSuchQueue)?;
        let census = self.queues.runs.census(queue);
        let runs = census.waiting + census.running as usize + self.runs_before_queue(record).runs;
        if runs > 0 {
            return Err(Rejection::QueueHasRuns { runs });
        }
        if let Some(feeder) = self.feeder_of(record) {
            return Err(Rejection::QueueIsFed(self.id_of(feeder)));
        }
        let gone = Delta::QueueGone(record.id, record.name.clone());
        self.enact(Unit::of(vec![gone]).by(now.wall));
        let answers = self.queues.workers.stop_waiting_for(queue);
        self.answer_all_waiting(answers);
        Ok(Done::Deleted)
    }

    /// Ends a run of a queue, or tells its worker to.
    pub(super) fn cancel_queued(
        &mut self,
        project: ProjectId,
        id: RunId,
        now: Now,
    ) -> Result<Done, Rejection> {
        let Some(sequence) = self.queued_run(project, id) else {
            let run = self.run_before_queue(project, id).ok_or(Rejection::NoSuchRun)?;
            self.cancel_run(run, now);
            return Ok(Done::Cancelled);
        };
        let is_asked = |shard: &Self| shard.queues.runs.given(sequence).is_some_and(|it| it.cancel);
        let was_asked = is_asked(self);
        let mut decided = Decided::with_room(usize::MAX);
        decided.cancel(&mut self.queues.runs, sequence);
        self.enact_decided(decided, now);
        Ok(if is_asked(self) && was_asked { Done::Unchanged } else { Done::Cancelled })
    }
}

/// What becomes of runs.
impl Shard {
    /// The number of an unfinished run of a queue of this project.
    pub(super) fn queued_run(&self, project: ProjectId, id: RunId) -> Option<u64> {
        let is_it = |sequence: &u64| {
            let run = self.queues.runs.get(*sequence);
            run.is_some_and(|run| self.queued_id(&run) == id && self.project_of(&run) == project)
        };
        let own = Some(id.trigger.0).filter(is_it);
        own.or_else(|| self.queues.of_slot(id.trigger, id.slot).find(is_it))
    }

    /// A run with this id that has a record, and is to go to a queue of this project.
    fn run_before_queue(&self, project: ProjectId, id: RunId) -> Option<RunRef> {
        let mut of_trigger = self.runs.recorded_of(id.trigger);
        let sequence = of_trigger.find(|sequence| {
            let run = &self.runs[*sequence];
            run.target.feed().is_some()
                && run.project == project
                && run.id(self.id, *sequence, self.cluster) == id
        });
        sequence.map(RunRef::Record)
    }

    /// The id of a run of a queue.
    pub(super) fn queued_id(&self, run: &SubmittedRun) -> RunId {
        let (sequence, born) = (run.order.sequence, run.born);
        match run.details.as_ref().and_then(|details| details.trigger.as_ref()) {
            Some(TriggerSlot { serial, generation, .. }) => {
                let birth = generation.map_or(Birth::Demand(sequence), Birth::Slot);
                self.run_id(*serial, born, birth)
            }
            None => RunId::submitted(self.id, sequence, born, self.cluster),
        }
    }

    fn project_of(&self, run: &SubmittedRun) -> ProjectId {
        self.queues.get(run.queue).map_or(ProjectId::DEFAULT, |queue| queue.id.project)
    }

    /// What was decided about runs of queues is written, each change in a unit of its own. A run that ended is past in the
    /// unit that takes it out of its queue, and what an attempt printed is stored in the unit of its result.
    pub(super) fn enact_decided(&mut self, decided: Decided, now: Now) {
        let mut ended = decided.ended.into_iter();
        let mut rate = None;
        let mut last = None;
        for change in decided.changes {
            // It goes with what became of the last run that shared the record.
            if let (QueueDelta::ClaimedGone(_), Some(unit)) = (&change, last) {
                self.outbox.write_with(unit, [Delta::Decided(change)]);
                continue;
            }
            let output = self.queues.outputs.stored_with(&change);
            let unit = self.outbox.len();
            match change {
                // It goes with the run that it counts.
                QueueDelta::Rate(..) => rate = Some(Delta::Decided(change)),
                QueueDelta::Ended(place) => {
                    let run = ended.next().expect("each end says what ended");
                    self.enact_end(place, &run, now);
                }
                QueueDelta::Given(..)
                | QueueDelta::Claimed(_)
                | QueueDelta::ClaimedGone(_)
                | QueueDelta::Chosen(..)
                | QueueDelta::PartsEnded(..)
                | QueueDelta::Limits(..)
                | QueueDelta::NoQueue(_)
                | QueueDelta::Submitted(_) => {
                    let changes = rate.take().into_iter().chain([Delta::Decided(change)]);
                    self.outbox.push(Unit::of(changes.collect()).by(now.wall));
                }
            }
            if let Some(output) = output {
                self.outbox.write_with(unit, [output]);
            }
            last = (unit < self.outbox.len()).then_some(unit).or(last);
        }
        if let Some(rate) = rate {
            self.outbox.push(Unit::of(vec![rate]).by(now.wall));
        }
        self.see_given(&decided.given, now);
    }

    fn enact_end(&mut self, place: RunPlace, ended: &EndedRun, now: Now) {
        self.queues.ended(&ended.run);
        self.queues.sight.ended(ended.run.queue, now);
        match place.role {
            RunRole::Part => self.enact_part_end(place, ended, now),
            RunRole::Plain | RunRole::Whole(_) => {
                // Most have nothing but their end and their past.
                let finished = self.finished_of(ended, now);
                self.enact_past(Vec::with_capacity(2), place, ended, finished, now);
            }
        }
    }

    /// A run is past, in the unit of these changes.
    pub(super) fn enact_past(
        &mut self,
        changes: Vec<Delta>,
        place: RunPlace,
        ended: &EndedRun,
        finished: Finished,
        now: Now,
    ) {
        let mut unit = Unit::of(changes).by(now.wall);
        unit.changes.push(self.leaves_queue(place, &finished));
        unit.changes.extend(unique_after(&ended.run, now));
        let (failures, notice) = if finished.is_submitted() {
            (None, self.reckon_submitted(ended.run.queue, &finished, now, &mut unit))
        } else {
            self.reckon(&finished, now, &mut unit)
        };
        let (serial, end) = (finished.trigger, finished.end);
        unit.changes.push(Delta::Past(Line::Run(finished)));
        unit.changes.extend(notice);
        self.enact(unit);
        if can_be_redriven(end) {
            self.make_room_for_dead(now);
        }
        if end == End::Succeeded {
            self.watch_over(serial);
        }
        if let Some(failures) = failures {
            let note = format!("{failures} runs failed in a row");
            self.pause_by_itself(serial, &note, now);
        }
        self.unblock(serial, now);
    }

    pub(super) fn finished_of(&self, ended: &EndedRun, now: Now) -> Finished {
        let EndedRun { run, end, given, last } = ended;
        let details = run.details.as_deref().cloned().unwrap_or_default();
        let name = self.queues.get(run.queue).map_or_else(Box::default, |it| it.name.clone());
        let sequence = run.order.sequence;
        let generation = details.trigger.as_ref().and_then(|trigger| trigger.generation);
        let mut attempts = given.as_ref().map_or_else(Vec::new, |given| given.attempts.clone());
        keep_last(&mut attempts, last.clone());
        let poison = *end == RunEnd::Poison;
        Finished {
            project: self.project_of(run),
            trigger: details.trigger.map_or(SerialId(sequence), |trigger| trigger.serial),
            slot: run.born,
            generation,
            sequence: generation.is_none().then_some(sequence),
            notice: None,
            queue: Some(Box::new(PastOfQueue {
                name,
                key: details.key.map(|key| key.text),
                labels: details.labels,
                poison,
                redriven_from: details.redriven_from,
                part_of: self.whole_id(sequence),
                parts: None,
            })),
            end: match end {
                RunEnd::Plain(end) => *end,
                RunEnd::Poison => End::Dead,
            },
            at: now.wall,
            attempt: given.as_ref().map_or(0, |given| given.attempt),
            attempts,
        }
    }

    /// Forgets unique keys whose time is over.
    pub(super) fn forget_spent_keys(&mut self, now: Now) {
        for _ in 0..SPENT_KEYS_AT_ONCE {
            let Some((queue, key)) = self.queues.next_spent_key(now) else { return };
            self.enact(Unit::of(vec![Delta::UniqueGone(queue, key)]).by(now.wall));
        }
    }
}

/// Unique keys that are forgotten before others have their turn.
const SPENT_KEYS_AT_ONCE: usize = 64;

/// A run that waits in a queue.
pub(super) fn queued(queue: SerialId, order: ClaimOrder, record: QueuedRecord) -> Delta {
    let place = RunPlace {
        queue,
        order,
        has_body: record.has_body(),
        given: GivenPlace::Nowhere,
        role: record.pick.role(),
    };
    Delta::Submitted(Box::new(QueuedRun { place, record: Arc::new(record) }))
}

/// A pause of a queue that somebody asked for.
pub(super) fn pause(author: String, note: String, until: Option<Instant>, now: Now) -> Pause {
    let author = if author.is_empty() { ITSELF.to_owned() } else { author };
    Pause { since: now.wall, until, author, note }
}

/// What becomes of the unique key of a run that is past: it counts for its window.
fn unique_after(run: &SubmittedRun, now: Now) -> Option<Delta> {
    let UniqueKey { key, window_ms } = run.details.as_ref()?.unique.as_ref()?;
    if pick(Mutant::UniqueGoneWithRun, *window_ms, 0) == 0 {
        return Some(Delta::UniqueGone(run.queue, key.clone()));
    }
    let until = Some(now.wall.after(std::time::Duration::from_millis(*window_ms)));
    let (sequence, born) = (run.order.sequence, run.born);
    let unique = UniqueRecord { key: key.clone(), sequence, born, until };
    Some(Delta::Unique(run.queue, Arc::new(unique)))
}
