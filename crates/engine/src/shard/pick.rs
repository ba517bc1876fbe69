//! Which workers runs are for, and what comes of the parts of runs.
//!
//! Whoever is chosen is so in the unit that lets the run wait: that of its slot, or of its submission. Its position moves in the same
//! unit. A run that waits for its time, or for somebody to be there, is chosen for when it is due and somebody is: its line is that
//! of nobody.
//!
//! **Who may be chosen** is who claims from the queue, does not drain, and was heard within two beats. Such workers are recorded,
//! once a queue has had a run that is for workers in turn: one small write when a worker comes or goes, none for being alive, and
//! none at all for other queues. When a worker is not among them any more, what waits for it is for its successor.
//!
//! **Parts.** The end of a part is in the unit that says so to its run; the end of the last one is in the unit that ends the run.

use std::sync::Arc;

use crate::id::{RunId, SerialId};
use crate::limits::{PARTS_PASSED_AT_ONCE, PICK_WORKERS_MAX};
use crate::mutant::{Mutant, pick};
use crate::past::{Finished, Line, PastParts};
use crate::queue::decided::EndedRun;
use crate::queue::given::{GivenRecord, RunEnd};
use crate::queue::line::NOBODY;
use crate::queue::pick::{ChosenRecord, PartEndsRecord, Pick, PicksRecord};
use crate::queue::submitted::RunPlace;
use crate::queue::unfinished::QueueDelta;
use crate::rotation::rotate;

use super::memory::Delta;
use super::record::TriggerState;
use super::runs::RunsBefore;
use super::triggers::Trigger;
use super::{Now, Shard, Unit};

/// Who is chosen for a run.
#[derive(Default)]
pub(super) struct Choice {
    /// For whom its parts are, and who may be chosen from now on.
    pub(super) changes: Vec<Delta>,
    /// Whose turn it was last, if its trigger keeps that.
    pub(super) position: Option<Box<str>>,
}

/// A part of an unfinished run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartView {
    /// Its id.
    pub id: RunId,
    /// The worker that was chosen for it.
    pub chosen: Box<str>,
    /// How it ended, if it has.
    pub end: Option<RunEnd>,
    /// Who carried it out, if it has ended and that was another.
    pub by: Option<Box<str>>,
    /// What is recorded of it, if it was given and has not ended.
    pub given: Option<Arc<GivenRecord>>,
}

/// Choosing.
impl Shard {
    /// How many runs more wait in a queue once one more does that is for so many workers.
    pub(super) fn parts_of(&self, queue: SerialId, pick: Pick) -> usize {
        let workers = self.queues.picks.get(&queue).map_or(1, |picks| picks.workers.len());
        pick.parts(workers)
    }

    /// Chooses for a run that comes to a queue, or waits there for somebody to be chosen. Its parts have numbers from `first` on.
    pub(super) fn choose(
        &self,
        (whole, first): (u64, u64),
        queue: SerialId,
        wanted: Pick,
        trigger: Option<&Trigger>,
        now: Now,
    ) -> Choice {
        if wanted == Pick::Any {
            return Choice::default();
        }
        let known = self.queues.picks.get(&queue);
        let mut picks = known.map_or_else(|| self.first_picks(queue, now), |it| (**it).clone());
        let state = trigger.map(Trigger::state);
        let position = state.as_ref().map_or(&*picks.position, TriggerState::position);
        let workers: Vec<Arc<str>> = picks.workers.keys().cloned().collect();
        let chosen = wanted.choose(&workers, position);
        let after = wanted.position_after(&chosen).map(|name| Box::from(&**name));
        let mut choice = Choice::default();
        match after {
            Some(position) if trigger.is_some() => choice.position = Some(position),
            Some(position) => picks.position = position,
            None => {}
        }
        if known.is_none_or(|known| **known != picks) {
            choice.changes.push(Delta::Picks(queue, Arc::new(picks)));
        }
        if !chosen.is_empty() {
            let chosen = ChosenRecord { first, workers: chosen };
            choice.changes.push(Delta::Queued(QueueDelta::Chosen(whole, Arc::new(chosen))));
        }
        choice
    }

    /// Who may be chosen for runs of a queue for which nobody was.
    fn first_picks(&self, queue: SerialId, now: Now) -> PicksRecord {
        let workers = self.queues.workers.live(queue, now).take(PICK_WORKERS_MAX);
        PicksRecord { workers: workers.collect(), position: Box::default() }
    }

    /// Chooses for runs that are due and for nobody yet.
    pub(super) fn choose_waiting(&mut self, now: Now) {
        let nobody = Arc::from(NOBODY);
        for queue in self.queues.runs.unchosen() {
            // So far nobody had to be chosen here.
            if !self.queues.picks.contains_key(&queue) {
                self.write_picks(queue, self.first_picks(queue, now), now);
            }
            if self.queues.picks.get(&queue).is_none_or(|picks| picks.workers.is_empty()) {
                continue;
            }
            for whole in self.queues.runs.line(queue, &nobody, PARTS_PASSED_AT_ONCE) {
                let Some(wanted) = self.queues.runs.whole(whole).map(|whole| whole.pick) else {
                    continue;
                };
                let parts = self.parts_of(queue, wanted) - 1;
                let more = RunsBefore { runs: parts, long: 0 };
                let record = self.queues.get(queue);
                let has_room =
                    record.is_some_and(|record| self.check_room_in(record, more).is_ok());
                if !has_room || self.outbox.is_half_full() {
                    break;
                }
                let trigger = self.trigger_of_queued(whole);
                let numbers = (whole, self.runs.next_sequence());
                let Choice { mut changes, position } =
                    self.choose(numbers, queue, wanted, trigger, now);
                changes.extend(position.zip(trigger).map(|(it, trigger)| trigger.at_position(it)));
                self.enact(Unit::of(changes).by(now.wall));
            }
        }
    }

    /// The trigger of an unfinished run of a queue, if it is one of a trigger that is there.
    fn trigger_of_queued(&self, sequence: u64) -> Option<&Trigger> {
        let run = self.queues.runs.get(sequence)?;
        self.triggers.get(run.details.as_ref()?.trigger.as_ref()?.serial)
    }
}

/// Who may be chosen.
impl Shard {
    /// A worker claimed from these queues: from now on it may be chosen for their runs.
    pub(super) fn join_picks(&mut self, worker: &Arc<str>, queues: &[SerialId], now: Now) {
        for queue in queues {
            let Some(picks) = self.queues.picks.get(queue) else { continue };
            let is_known = picks.workers.contains_key(worker);
            let is_full = picks.workers.len() >= PICK_WORKERS_MAX;
            let Some(lease_ms) = self.queues.workers.lease_of_live(worker, *queue, now) else {
                continue;
            };
            if is_known || is_full {
                continue;
            }
            let mut picks = (**picks).clone();
            picks.workers.insert(Arc::clone(worker), lease_ms);
            self.write_picks(*queue, picks, now);
        }
    }

    /// Who is gone may be chosen no more, and what waits for it is for its successor.
    pub(super) fn keep_picks(&mut self, now: Now) {
        if self.queues.picks.is_empty() || now.steady < self.queues.look_at_picks {
            return;
        }
        self.queues.look_at_picks = now.steady + LOOK_AGAIN_MS;
        let workers = &self.queues.workers;
        let mut changed = Vec::new();
        for (queue, picks) in &self.queues.picks {
            let stays = |worker: &Arc<str>, lease_ms: u32| {
                workers.may_be_live(worker, lease_ms, *queue, now)
            };
            if !picks.workers.iter().all(|(worker, lease_ms)| stays(worker, *lease_ms)) {
                let mut picks = (**picks).clone();
                picks.workers.retain(|worker, lease_ms| stays(worker, *lease_ms));
                changed.push((*queue, picks));
            }
        }
        for (queue, picks) in changed {
            self.write_picks(queue, picks, now);
        }
        self.pass_parts_on(now);
    }

    fn write_picks(&mut self, queue: SerialId, picks: PicksRecord, now: Now) {
        self.enact(Unit::of(vec![Delta::Picks(queue, Arc::new(picks))]).by(now.wall));
    }

    /// What waits for workers that may not be chosen any more is for others, one part after the other.
    fn pass_parts_on(&mut self, now: Now) {
        let queues: Vec<_> =
            self.queues.picks.iter().map(|(it, picks)| (*it, picks.clone())).collect();
        for (queue, picks) in queues {
            let addressees = self.queues.runs.addressees(queue).into_iter();
            let gone = addressees.filter(|worker| !picks.workers.contains_key(worker));
            let gone: Vec<Arc<str>> = pick(Mutant::NotPassedOn, gone.collect(), Vec::new());
            if picks.workers.is_empty() {
                continue;
            }
            let mut left = PARTS_PASSED_AT_ONCE;
            for worker in gone {
                let parts = self.queues.runs.line(queue, &worker, left);
                left -= parts.len();
                for part in parts {
                    self.pass_part(queue, &worker, part, now);
                }
            }
        }
    }

    /// A part is for the successor of the worker for which it was: for the one whose turn it is, or if it is everybody's, for the
    /// one that follows in the order of names.
    fn pass_part(&mut self, queue: SerialId, gone: &Arc<str>, part: u64, now: Now) {
        let Some(place) = self.queues.runs.part(part) else { return };
        let Some(whole) = self.queues.runs.whole(place.whole) else { return };
        let (Some(chosen), Some(picks)) = (&whole.chosen, self.queues.picks.get(&queue)) else {
            return;
        };
        let trigger = self.trigger_of_queued(place.whole);
        let state = trigger.map(Trigger::state);
        let position = state.as_ref().map_or(&*picks.position, TriggerState::position);
        let from = if whole.pick == Pick::All { &**gone } else { position };
        let workers: Vec<Arc<str>> = picks.workers.keys().cloned().collect();
        let Some(next) = rotate(&workers, from, 1).next() else { return };
        let mut chosen = (**chosen).clone();
        chosen.workers[place.place] = Arc::clone(next);
        let mut changes = vec![Delta::Queued(QueueDelta::Chosen(place.whole, Arc::new(chosen)))];
        if whole.pick.position_after(std::slice::from_ref(next)).is_some() {
            let position = Box::from(&**next);
            changes.push(match trigger {
                Some(trigger) => trigger.at_position(position),
                None => {
                    Delta::Picks(queue, Arc::new(PicksRecord { position, ..(**picks).clone() }))
                }
            });
        }
        self.enact(Unit::of(changes).by(now.wall));
    }
}

/// How often is looked whether those who may be chosen are there.
const LOOK_AGAIN_MS: u64 = 250;

/// What comes of parts.
impl Shard {
    /// A part has ended, which memory knows; and with the last one its run has.
    pub(super) fn enact_part_end(&mut self, place: RunPlace, ended: &EndedRun, now: Now) {
        let runs = &self.queues.runs;
        let number = place.order.sequence;
        let part = runs.part(number).expect("a part has a run as long as that is unfinished");
        let whole = runs.whole(part.whole).expect("so it was found").clone();
        let chosen = whole.chosen.as_deref().expect("what has parts has chosen workers");
        let ran = ended.given.as_deref().filter(|given| given.attempt > 0);
        let by = ran.map(|given| &given.claimant);
        let by = by.filter(|by| chosen.worker(number) != Some(&by.worker));
        let last = ended.last.clone();
        let last = last.or_else(|| ran.and_then(|given| given.attempts.last().cloned()));
        let ends =
            whole.ends().with(part.place, ended.end, by.map(|by| by.own_name().into()), last);
        let past = Delta::Past(Line::Run(self.finished_of(ended, now)));
        let gone = Delta::Decided(QueueDelta::Ended(place));
        let Some(end) = ends.sum() else {
            let ends = Delta::Queued(QueueDelta::PartsEnded(part.whole, Arc::new(ends)));
            let unit = Unit::of(vec![gone, past]).by(now.wall);
            return self.enact_with(unit, [ends], Mutant::PartEndsApart);
        };
        let run = runs.get(part.whole).expect("it is unfinished");
        let place = runs.place(part.whole).expect("it is unfinished");
        let of_whole = EndedRun { run, end, given: None, last: ends.worst.clone() };
        let parts = past_parts(chosen, &ends);
        self.queues.runs.apply(&QueueDelta::Ended(place));
        self.queues.ended(&of_whole.run);
        let mut finished = self.finished_of(&of_whole, now);
        if let Some(queue) = &mut finished.queue {
            queue.parts = Some(Box::new(parts));
        }
        self.enact_past(vec![gone, past], place, &of_whole, finished, now);
    }

    /// The worker that was chosen for a part.
    pub(super) fn chosen_for(&self, part: u64) -> Option<Box<str>> {
        let place = self.queues.runs.part(part)?;
        let chosen = self.queues.runs.whole(place.whole)?.chosen.as_ref()?;
        chosen.worker(part).map(own_name)
    }

    /// The parts of an unfinished run.
    pub(super) fn part_views(&self, whole: u64) -> Vec<PartView> {
        let runs = &self.queues.runs;
        let (Some(known), Some(run)) = (runs.whole(whole), runs.get(whole)) else {
            return Vec::new();
        };
        let Some(chosen) = &known.chosen else { return Vec::new() };
        let ends = known.ends();
        let view = |(place, number): (usize, u64)| PartView {
            id: RunId::submitted(self.id, number, run.born, self.cluster),
            chosen: own_name(&chosen.workers[place]),
            end: ends.of(place),
            by: ends.by(place).map(Into::into),
            given: runs.given(number).cloned(),
        };
        chosen.numbers().enumerate().map(view).collect()
    }

    /// The run of a part: its id.
    pub(super) fn whole_id(&self, part: u64) -> Option<RunId> {
        let whole = self.queues.runs.part(part)?.whole;
        self.queues.runs.get(whole).map(|run| self.queued_id(&run))
    }

    /// What is recorded of a run; of one that has parts, of the one of them that tells most: that a worker has, or had.
    pub(super) fn told_of(&self, sequence: u64) -> Option<&Arc<GivenRecord>> {
        let runs = &self.queues.runs;
        if runs.whole(sequence).is_none() {
            return runs.given(sequence);
        }
        let parts = runs.parts(sequence).into_iter().filter_map(|part| runs.given(part));
        parts.max_by_key(|given| (given.is_running(), given.attempt))
    }
}

/// What is kept of parts when all have ended.
fn past_parts(chosen: &ChosenRecord, ends: &PartEndsRecord) -> PastParts {
    PastParts {
        first: chosen.first,
        workers: chosen.workers.iter().map(own_name).collect(),
        ends: ends.ends.clone(),
        by: ends.by.clone(),
    }
}

/// The name that a worker gave itself.
fn own_name(worker: &Arc<str>) -> Box<str> {
    worker.rsplit('/').next().unwrap_or_default().into()
}

impl Trigger {
    /// Its state, once it was this worker's turn.
    pub(super) fn at_position(&self, position: Box<str>) -> Delta {
        Delta::State(self.serial, TriggerState { position: Some(position), ..self.state() })
    }
}

impl Finished {
    /// Whether it was a part of a run, which tells of it.
    pub fn is_part(&self) -> bool {
        self.queue.as_ref().is_some_and(|queue| queue.part_of.is_some())
    }
}
