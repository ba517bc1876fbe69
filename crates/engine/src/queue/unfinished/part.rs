//! Runs that have parts, among all unfinished runs of a shard.
//!
//! A part is known like any other run, once it is chosen for whom it is; its run waits until then, and is given to nobody.

use std::sync::Arc;

use crate::id::SerialId;
use crate::instant::Instant;
use crate::queue::line::NOBODY;
use crate::queue::parts::{PartPlace, Whole};
use crate::queue::pick::{ChosenRecord, PartEndsRecord, RunRole};
use crate::queue::submitted::RunDetails;

use super::{KnownRun, RunClass, UnfinishedRuns, share};

/// What there is of them.
impl UnfinishedRuns {
    /// The run of a queue that a worker is given next: of those that anybody may have, and those that are for it.
    pub fn next_for(&self, queue: SerialId, worker: &Arc<str>, now: Instant) -> Option<u64> {
        let queue = self.queues.get(&queue)?;
        match queue.closed(now) {
            Some(_) => None,
            None => queue.backlog.first_for(worker).map(|order| order.sequence),
        }
    }

    /// The queues and the workers for which something waits that is for one worker and may be given now. What is for nobody yet
    /// is not among it.
    pub fn addressed(&self, now: Instant) -> Vec<(SerialId, Arc<str>)> {
        if self.wholes.is_empty() {
            return Vec::new();
        }
        let lines = self
            .queues
            .iter()
            .filter(|(_, queue)| !queue.backlog.lines().is_empty() && queue.closed(now).is_none());
        let lines = lines.flat_map(|(serial, queue)| {
            queue.backlog.lines().workers().map(|worker| (*serial, Arc::clone(worker)))
        });
        lines.filter(|(_, worker)| &**worker != NOBODY).collect()
    }

    /// The queues in which something is due that is for nobody yet.
    pub fn unchosen(&self) -> Vec<SerialId> {
        if self.wholes.is_empty() {
            return Vec::new();
        }
        let is_first = |name: &Arc<str>| &**name == NOBODY;
        let queues = self.queues.iter();
        let queues = queues
            .filter(|(_, queue)| queue.backlog.lines().workers().next().is_some_and(is_first));
        queues.map(|(serial, _)| *serial).collect()
    }

    /// The same of one queue, whether or not any may be given now.
    pub fn addressees(&self, queue: SerialId) -> Vec<Arc<str>> {
        let queue = self.queues.get(&queue).filter(|_| !self.wholes.is_empty());
        let workers = queue.into_iter().flat_map(|queue| queue.backlog.lines().workers());
        workers.filter(|worker| &***worker != NOBODY).cloned().collect()
    }

    /// Runs of a queue that are due and for one worker, or for nobody yet, in order.
    pub fn line(&self, queue: SerialId, worker: &Arc<str>, most: usize) -> Vec<u64> {
        let queue = self.queues.get(&queue).filter(|_| !self.wholes.is_empty());
        let orders = queue.into_iter().flat_map(|queue| queue.backlog.lines().of(worker));
        orders.take(most).map(|order| order.sequence).collect()
    }

    /// A run that has parts.
    pub fn whole(&self, sequence: u64) -> Option<&Whole> {
        self.wholes.get(sequence)
    }

    /// Which part of which run has this number, if one has: also one that has ended, as long as its run has not.
    pub fn part(&self, sequence: u64) -> Option<PartPlace> {
        self.wholes.part(sequence)
    }

    /// The parts of a run that are unfinished.
    pub fn parts(&self, whole: u64) -> Vec<u64> {
        let chosen = self.wholes.get(whole).and_then(|whole| whole.chosen.as_ref());
        let numbers = chosen.into_iter().flat_map(|chosen| chosen.numbers());
        numbers.filter(|number| self.runs.contains_key(number)).collect()
    }

    /// Whether a run has parts whose workers are chosen.
    pub(super) fn is_chosen(&self, sequence: u64) -> bool {
        self.wholes.get(sequence).is_some_and(|whole| whole.chosen.is_some())
    }
}

/// What [`UnfinishedRuns::apply`] does.
impl UnfinishedRuns {
    /// The parts of a run are there from now on, but for those that have ended.
    pub(super) fn choose(&mut self, whole: u64, chosen: &Arc<ChosenRecord>) {
        let Some(run) = self.runs.get(&whole).cloned() else { return };
        let moved: Vec<u64> = chosen
            .numbers()
            .filter(|number| {
                self.wholes.worker(*number).map(|(_, name)| name) != chosen.worker(*number)
            })
            .collect();
        self.leave(whole);
        moved.iter().for_each(|number| self.leave(*number));
        self.wholes.choose(whole, chosen);
        let class = RunClass {
            queue: run.class.queue,
            policy: run.class.policy,
            priority: run.class.priority,
            has_body: false,
            role: RunRole::Part,
        };
        let class = share(&mut self.classes, Arc::new(class));
        // Its trigger and its unique key are the run's alone.
        let details = run.details.as_deref().map(|details| RunDetails {
            expires: details.expires,
            key: details.key.clone(),
            labels: details.labels.clone(),
            ..RunDetails::default()
        });
        let details = details.filter(|details| *details != RunDetails::default());
        let details = details.map(|details| share(&mut self.details, Arc::new(details)));
        for number in moved {
            let place = chosen.place(number).expect("it is one of them");
            let has_ended = self.wholes.get(whole).is_some_and(|it| it.end_of(place).is_some());
            if has_ended {
                continue;
            }
            if !self.runs.contains_key(&number) {
                let (class, details) = (Arc::clone(&class), details.clone());
                let part = KnownRun { class, due: run.due, born: run.born, details, given: None };
                self.runs.insert(number, part);
            }
            self.enter(number);
        }
    }

    pub(super) fn end_parts(&mut self, whole: u64, ends: &Arc<PartEndsRecord>) {
        self.wholes.end_parts(whole, ends);
        let chosen = self.wholes.get(whole).and_then(|whole| whole.chosen.clone());
        let first = chosen.map_or(0, |chosen| chosen.first);
        ends.ended().for_each(|place| self.end(first + place as u64));
    }
}
