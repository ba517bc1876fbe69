//! The unfinished runs of the queues of a shard: which wait, which are given, and how many may be.
//!
//! Like everything that a shard remembers it changes by [`QueueDelta`] alone, live and in recovery: a successor that
//! applies what the store has knows what its predecessor knew. Limits count what is recorded as given, whoever gave it.
//!
//! A million runs may wait, so little is known of each: its place in the order, when it came, and what it shares with
//! others. What few runs have, such as an end of their time or labels, is beside them; what a run is about is in the store.

mod part;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::Hash;
use std::ops::Bound;
use std::sync::Arc;

use crate::id::SerialId;
use crate::instant::Instant;
use crate::mutant::{Mutant, pick};

use super::backlog::{Backlog, ClaimOrder, ConcurrencyKey, Obstacle, WaitingRun};
use super::chunked::ChunkedMap;
use super::given::{ClaimedRecord, GivenPolicy, GivenRecord};
use super::line::{NOBODY, Passing};
use super::parts::Wholes;
use super::pick::{ChosenRecord, PartEndsRecord, Pick, RunRole};
use super::rate::{RateLimit, RateWindow};
use super::submitted::{GivenPlace, RunDetails, RunPlace, SubmittedRun};

/// How much of a queue may be given at a time. What is none is not limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueLimits {
    /// Nothing is given at all.
    pub is_paused: bool,
    /// So many runs at a time.
    pub concurrency: Option<u32>,
    /// So many runs with the same key at a time.
    pub per_key: Option<u32>,
    /// So many runs in a period.
    pub rate: Option<RateLimit>,
}

/// One step from one state of the queues to the next.
#[derive(Debug, Clone)]
pub enum QueueDelta {
    /// There is this queue, or it has other limits.
    Limits(SerialId, QueueLimits),
    /// There is no such queue any more. None of its runs is unfinished.
    NoQueue(SerialId),
    /// Runs were given within the last period.
    Rate(SerialId, RateWindow),
    /// A run waits that was never given.
    Submitted(SubmittedRun),
    /// A run was given, or something became of one that was.
    Given(u64, Arc<GivenRecord>),
    /// Runs were given for the first time, by one claim. Those that are past, or were given since, have nothing of it.
    Claimed(Arc<ClaimedRecord>),
    /// No run shares the record any more of which this one was the first.
    ClaimedGone(u64),
    /// The workers of a run's parts are chosen, or others are for some that are unfinished.
    Chosen(u64, Arc<ChosenRecord>),
    /// So parts of a run have ended.
    PartsEnded(u64, Arc<PartEndsRecord>),
    /// A run is past.
    Ended(RunPlace),
}

/// Why a run of a queue is not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitReason {
    /// The queue is paused.
    QueueIsPaused,
    /// It, or the key of which it is, has to wait.
    Obstacle(Obstacle),
    /// As many runs of the queue are given as may be.
    QueueIsFull,
    /// As many runs of the queue were given within the last period as may be.
    RateIsReached {
        /// There is room again.
        until: Instant,
    },
    /// It is given to the next worker that has room for it, after those before it.
    NoWorker,
    /// It is for one worker, which has not claimed it yet.
    ItsWorker,
    /// It is for workers in turn, and there is none to be chosen.
    NobodyToChoose,
}

/// How many runs of a queue are where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueCensus {
    /// Runs that wait, due or not.
    pub waiting: usize,
    /// Runs that workers have.
    pub running: u32,
    /// Since when the oldest of those is due that could be given.
    pub oldest: Option<Instant>,
}

/// All unfinished runs of the queues of a shard.
#[derive(Debug, Default)]
pub struct UnfinishedRuns {
    queues: BTreeMap<SerialId, QueueState>,
    /// Every run that waits or is given, by its number.
    runs: ChunkedMap<u64, KnownRun>,
    /// What runs share.
    classes: HashSet<Arc<RunClass>>,
    details: HashSet<Arc<RunDetails>>,
    /// Runs that have parts.
    wholes: Wholes,
    /// Runs that workers have, by the worker's name. Who has none is not among them.
    by_worker: BTreeMap<Arc<str>, BTreeSet<u64>>,
    /// How many runs share a record, by the first run of it.
    shared: BTreeMap<u64, usize>,
    /// Records that no run shares any more.
    spent: Vec<u64>,
}

#[derive(Debug)]
struct QueueState {
    limits: QueueLimits,
    window: RateWindow,
    backlog: Backlog,
    /// Runs that are given now.
    executing: u32,
    /// Runs whose body has a record of its own, waiting or given.
    long: usize,
}

/// A run, as small as may be.
#[derive(Debug, Clone)]
struct KnownRun {
    class: Arc<RunClass>,
    due: Instant,
    born: Instant,
    details: Option<Arc<RunDetails>>,
    given: Option<Arc<GivenRecord>>,
}

/// What runs share.
#[derive(Debug, PartialEq, Eq, Hash)]
struct RunClass {
    queue: SerialId,
    policy: GivenPolicy,
    priority: u8,
    has_body: bool,
    role: RunRole,
}

impl UnfinishedRuns {
    /// Makes a change. The only mutator.
    pub fn apply(&mut self, change: &QueueDelta) {
        match change {
            QueueDelta::Limits(queue, limits) => self.set_limits(*queue, *limits),
            QueueDelta::NoQueue(queue) => drop(self.queues.remove(queue)),
            QueueDelta::Rate(queue, window) => self.queue(*queue).window = window.clone(),
            QueueDelta::Submitted(run) => self.submit(run),
            QueueDelta::Given(sequence, record) => self.give(*sequence, record),
            QueueDelta::Claimed(claimed) => self.claimed(claimed),
            QueueDelta::ClaimedGone(first) => drop(self.shared.remove(first)),
            QueueDelta::Chosen(whole, chosen) => self.choose(*whole, chosen),
            QueueDelta::PartsEnded(whole, ends) => self.end_parts(*whole, ends),
            QueueDelta::Ended(place) => self.end(place.order.sequence),
        }
    }

    /// How many runs of a queue are where.
    pub fn census(&self, queue: SerialId) -> QueueCensus {
        self.queues.get(&queue).map_or_else(QueueCensus::default, |queue| QueueCensus {
            waiting: queue.backlog.len(),
            running: queue.executing,
            oldest: queue.backlog.oldest(),
        })
    }

    /// How many unfinished runs of a queue are so long that what they are about has a record of its own.
    pub fn long(&self, queue: SerialId) -> usize {
        self.queues.get(&queue).map_or(0, |queue| queue.long)
    }

    /// How many runs there are.
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// What is recorded of a run that was given at least once.
    pub fn given(&self, sequence: u64) -> Option<&Arc<GivenRecord>> {
        self.runs.get(&sequence)?.given.as_ref()
    }

    /// A run that is not past.
    pub fn get(&self, sequence: u64) -> Option<SubmittedRun> {
        self.runs.get(&sequence).map(|run| SubmittedRun {
            queue: run.class.queue,
            order: run.order(sequence),
            born: run.born,
            has_body: run.class.has_body,
            policy: run.class.policy,
            role: run.class.role,
            details: run.details.clone(),
        })
    }

    /// By which rules a run that is not past is given again.
    pub fn policy(&self, sequence: u64) -> Option<GivenPolicy> {
        self.runs.get(&sequence).map(|run| run.class.policy)
    }

    /// From when on a run that is not past may be given, as it was submitted.
    pub fn due(&self, sequence: u64) -> Option<Instant> {
        self.runs.get(&sequence).map(|run| run.due)
    }

    /// The queue of a run that is not past.
    pub fn queue_of(&self, sequence: u64) -> Option<SerialId> {
        self.runs.get(&sequence).map(|run| run.class.queue)
    }

    /// Where the records of a run are that is not past.
    pub fn place(&self, sequence: u64) -> Option<RunPlace> {
        self.runs.get(&sequence).map(|run| RunPlace {
            queue: run.class.queue,
            order: run.order(sequence),
            has_body: run.class.has_body,
            given: run.given_place(),
            role: run.class.role,
        })
    }

    /// The runs that a worker has, as far as is recorded.
    pub fn of_worker(&self, worker: &Arc<str>) -> impl Iterator<Item = (u64, &Arc<GivenRecord>)> {
        let runs = self.by_worker.get(worker).into_iter().flatten();
        runs.filter_map(|sequence| Some((*sequence, self.given(*sequence)?)))
    }

    /// All runs that workers have, as far as is recorded, worker by worker.
    pub fn all_given(&self) -> impl Iterator<Item = (u64, &Arc<GivenRecord>)> {
        let runs = self.by_worker.values().flatten();
        runs.filter_map(|sequence| Some((*sequence, self.given(*sequence)?)))
    }

    /// One run of each worker that has any.
    pub fn one_of_each_worker(&self) -> impl Iterator<Item = (u64, &Arc<GivenRecord>)> {
        let firsts = self.by_worker.values().filter_map(BTreeSet::first);
        firsts.filter_map(|sequence| Some((*sequence, self.given(*sequence)?)))
    }

    /// Lets what has become due be due.
    pub fn advance(&mut self, now: Instant) {
        self.queues.values_mut().for_each(|queue| queue.backlog.advance(now));
    }

    /// The clock may have been set back: what is due later than now is not due, and what was given counts from now.
    pub fn rewind(&mut self, now: Instant) {
        for queue in self.queues.values_mut() {
            queue.backlog.rewind(now);
            queue.window.rewind(now);
        }
    }

    /// The run of a queue that is given next, if one may be given now.
    pub fn next(&self, queue: SerialId, now: Instant) -> Option<u64> {
        let queue = self.queues.get(&queue)?;
        match queue.closed(now) {
            Some(_) => None,
            None => queue.backlog.first().map(|order| order.sequence),
        }
    }

    /// Whether one more run like this may be given next to those that are: one that was taken for lost comes back only
    /// if it fits. It counted for the rate when it was given.
    pub fn fits(&self, sequence: u64) -> bool {
        self.runs.get(&sequence).is_some_and(|run| {
            self.queues.get(&run.class.queue).is_some_and(|queue| {
                !queue.is_full() && !run.key().is_some_and(|key| queue.backlog.is_full(key))
            })
        })
    }

    /// The window of a queue once one more run of it is given now, if it has a rate to keep.
    pub fn rate_after(&self, queue: SerialId, now: Instant) -> Option<RateWindow> {
        let queue = self.queues.get(&queue)?;
        let mut window = queue.window.clone();
        window.take(queue.limits.rate?, now);
        Some(window)
    }

    /// A run of any queue that has expired.
    pub fn next_expired(&self, now: Instant) -> Option<u64> {
        self.queues.values().find_map(|queue| queue.backlog.first_expired(now))
    }

    /// A record that runs shared, and none does any more, by the first of them.
    pub fn take_spent(&mut self) -> Option<u64> {
        self.spent.pop()
    }

    /// When to look again.
    pub fn next_wake(&self, now: Instant) -> Option<Instant> {
        let queues = self.queues.values();
        queues.filter_map(|queue| queue.next_wake(now)).min()
    }

    /// Why a run waits; nothing, if it does not.
    pub fn why(&self, sequence: u64, now: Instant) -> Option<WaitReason> {
        let run = self.runs.get(&sequence)?;
        let queue = self.queues.get(&run.class.queue)?;
        if self.is_chosen(sequence) {
            return None;
        }
        let obstacle = queue.backlog.obstacle(&run.waiting(sequence)?).map(WaitReason::Obstacle);
        let for_whom = match run.class.role {
            RunRole::Plain => WaitReason::NoWorker,
            RunRole::Whole(_) => WaitReason::NobodyToChoose,
            RunRole::Part => WaitReason::ItsWorker,
        };
        Some(queue.closed(now).or(obstacle).unwrap_or(for_whom))
    }

    /// Why nothing of a queue is given, whatever waits in it.
    pub fn closed(&self, queue: SerialId, now: Instant) -> Option<WaitReason> {
        self.queues.get(&queue)?.closed(now)
    }

    /// The first run of a queue that could be given.
    pub fn first(&self, queue: SerialId) -> Option<u64> {
        let backlog = &self.queues.get(&queue)?.backlog;
        let addressed =
            || backlog.lines().workers().next().and_then(|it| backlog.lines().first_of(it));
        backlog.first().or_else(addressed).map(|order| order.sequence)
    }

    /// Runs after this number, in the order of their numbers.
    pub fn after(&self, sequence: u64) -> impl Iterator<Item = u64> {
        self.runs.range_from(Bound::Excluded(sequence)).map(|(number, _)| number)
    }
}

impl KnownRun {
    /// Its place in the order, as it was submitted.
    fn order(&self, sequence: u64) -> ClaimOrder {
        ClaimOrder { priority: self.class.priority, due: self.due, sequence }
    }

    fn key(&self) -> Option<ConcurrencyKey> {
        self.details.as_ref()?.key.as_ref().map(|named| named.key)
    }

    fn given_place(&self) -> GivenPlace {
        match self.given.as_ref().map(|given| given.shared) {
            None => GivenPlace::Nowhere,
            Some(Some(_)) => GivenPlace::Shared,
            Some(None) => GivenPlace::Own,
        }
    }

    /// As it waits, if it does. Only what never began expires.
    fn waiting(&self, sequence: u64) -> Option<WaitingRun> {
        let (order, key) = (self.order(sequence), self.key());
        let expires = self.details.as_ref().and_then(|details| details.expires);
        match &self.given {
            None => Some(WaitingRun { order, key, expires }),
            Some(given) => {
                // A clock that was ahead may have begun it early: nobody does so again.
                let due = given.due()?.max(order.due);
                let due = pick(Mutant::RetryWhereItWas, due, order.due);
                let unbegun = expires.filter(|_| given.attempt == 0);
                let expires = pick(Mutant::ExpiresThoughBegun, unbegun, expires);
                Some(WaitingRun { order: ClaimOrder { due, ..order }, key, expires })
            }
        }
    }
}

/// What [`UnfinishedRuns::apply`] does.
impl UnfinishedRuns {
    fn queue(&mut self, queue: SerialId) -> &mut QueueState {
        self.queues.entry(queue).or_default()
    }

    fn set_limits(&mut self, queue: SerialId, limits: QueueLimits) {
        let queue = self.queue(queue);
        queue.limits = limits;
        queue.backlog.set_per_key_max(limits.per_key.unwrap_or(u32::MAX));
    }

    /// Limits are so much higher as runs are given, which is what [`Mutant::FormerUncounted`] does.
    pub(crate) fn make_room_for_given(&mut self) {
        for queue in self.queues.values_mut() {
            let given = queue.executing;
            let raised = |max: Option<u32>| max.map(|max| max + given);
            queue.limits.concurrency = raised(queue.limits.concurrency);
            let per_key = raised(queue.limits.per_key).unwrap_or(u32::MAX);
            queue.backlog.set_per_key_max(per_key);
        }
    }

    fn submit(&mut self, run: &SubmittedRun) {
        let ClaimOrder { priority, due, sequence } = run.order;
        self.end(sequence);
        let SubmittedRun { queue, policy, has_body, born, role, .. } = *run;
        let class = RunClass { queue, policy, priority, has_body, role };
        let class = share(&mut self.classes, Arc::new(class));
        if let RunRole::Whole(pick) = role {
            self.wholes.insert(sequence, pick);
        }
        let details = run.details.as_ref().map(|details| {
            // Nobody else has the same.
            let is_own = details.unique.is_some() || details.redriven_from.is_some();
            let details = Arc::clone(details);
            if is_own { details } else { share(&mut self.details, details) }
        });
        let known = KnownRun { class, due, born, details, given: None };
        self.queue(queue).long += usize::from(has_body);
        self.runs.insert(sequence, known);
        self.enter(sequence);
    }

    fn give(&mut self, sequence: u64, record: &Arc<GivenRecord>) {
        self.leave(sequence);
        if let Some(run) = self.runs.get_mut(&sequence) {
            let former = run.given.replace(Arc::clone(record));
            if let Some(first) = record.shared {
                *self.shared.entry(first).or_default() += 1;
            }
            self.unshare(former);
        }
        self.enter(sequence);
    }

    fn claimed(&mut self, claimed: &ClaimedRecord) {
        let Some(first) = claimed.given.shared else { return };
        for sequence in claimed.numbers() {
            if self.runs.get(&sequence).is_some_and(|run| run.given.is_none()) {
                self.give(sequence, &claimed.given);
            }
        }
        if !self.shared.contains_key(&first) {
            self.spent.push(first);
        }
    }

    /// A run shares this record no more, if it did.
    fn unshare(&mut self, former: Option<Arc<GivenRecord>>) {
        let Some(first) = former.and_then(|former| former.shared) else { return };
        let Some(left) = self.shared.get_mut(&first) else { return };
        *left -= 1;
        if pick(Mutant::ClaimedGoneEarly, *left == 0, true) {
            self.shared.remove(&first);
            self.spent.push(first);
        }
    }

    fn end(&mut self, sequence: u64) {
        for part in self.parts(sequence) {
            self.end(part);
        }
        self.leave(sequence);
        self.wholes.remove(sequence);
        if let Some(run) = self.runs.remove(&sequence) {
            self.queue(run.class.queue).long -= usize::from(run.class.has_body);
            self.unshare(run.given);
            drop((run.class, run.details));
            let left = self.runs.len();
            sweep_if_most_are_gone(&mut self.classes, left);
            sweep_if_most_are_gone(&mut self.details, left);
        }
    }

    /// Counts a run where it is: in the backlog, or with its worker.
    fn enter(&mut self, sequence: u64) {
        let is_chosen = self.is_chosen(sequence);
        let Some(run) = self.runs.get(&sequence) else {
            return;
        };
        let queue = self.queues.entry(run.class.queue).or_default();
        match (run.waiting(sequence), &run.given) {
            (Some(waiting), _) => match run.class.role {
                RunRole::Plain => queue.backlog.insert(&waiting),
                // Nobody is given a run that has parts: it waits for nobody once they are chosen.
                RunRole::Whole(_) if is_chosen => {}
                RunRole::Whole(_) => {
                    queue.backlog.insert_for(&waiting, &NOBODY.into(), Passing::Never);
                }
                RunRole::Part => match self.wholes.worker(sequence) {
                    Some((Pick::Any | Pick::Next(_), worker)) => {
                        queue.backlog.insert_for(&waiting, worker, Passing::InTime);
                    }
                    Some((Pick::All, worker)) => {
                        queue.backlog.insert_for(&waiting, worker, Passing::Never);
                    }
                    None => unreachable!("a part has a run, and a worker"),
                },
            },
            (None, Some(given)) => {
                queue.executing += 1;
                run.key().into_iter().for_each(|key| queue.backlog.began(key));
                let worker = &given.claimant.worker;
                if let Some(runs) = self.by_worker.get_mut(worker) {
                    runs.insert(sequence);
                } else {
                    self.by_worker.insert(Arc::clone(worker), BTreeSet::from([sequence]));
                }
            }
            (None, None) => unreachable!("a run that was never given waits"),
        }
    }

    /// Counts a run no more where it was.
    fn leave(&mut self, sequence: u64) {
        let is_chosen = self.is_chosen(sequence);
        let Some(run) = self.runs.get(&sequence) else {
            return;
        };
        let queue = self.queues.entry(run.class.queue).or_default();
        match (run.waiting(sequence), &run.given) {
            (Some(_), _) if is_chosen => {}
            (Some(waiting), _) => queue.backlog.remove(&waiting),
            (None, Some(given)) => {
                queue.executing -= 1;
                run.key().into_iter().for_each(|key| queue.backlog.ended(key));
                let worker = &given.claimant.worker;
                let runs = self.by_worker.get_mut(worker).expect("whoever has a run is known");
                runs.remove(&sequence);
                if runs.is_empty() {
                    self.by_worker.remove(worker);
                }
            }
            (None, None) => unreachable!("a run that was never given waits"),
        }
    }
}

/// What a run shares with others.
fn share<T: Hash + Eq>(known: &mut HashSet<Arc<T>>, of_run: Arc<T>) -> Arc<T> {
    if let Some(known) = known.get(&of_run) {
        return Arc::clone(known);
    }
    if known.len() == known.capacity() {
        sweep(known);
        known.reserve(known.len());
    }
    known.insert(Arc::clone(&of_run));
    of_run
}

/// What no run has any more goes. There is room for as many as are left then: this is done seldom.
fn sweep<T: Hash + Eq>(known: &mut HashSet<Arc<T>>) {
    known.retain(|shared| Arc::strong_count(shared) > 1);
    known.shrink_to(known.len() * 2);
}

/// Sweeps if there is much more than so many runs can share.
fn sweep_if_most_are_gone<T: Hash + Eq>(known: &mut HashSet<Arc<T>>, runs: usize) {
    if known.len() > 2 * runs + UNSHARED_MAX {
        sweep(known);
    }
}

/// What runs shared is not looked for before there is so much more of it than they can share.
const UNSHARED_MAX: usize = 1_024;

impl Default for QueueState {
    fn default() -> Self {
        Self {
            limits: QueueLimits::default(),
            window: RateWindow::default(),
            backlog: Backlog::new(u32::MAX),
            executing: 0,
            long: 0,
        }
    }
}

impl QueueState {
    fn is_full(&self) -> bool {
        self.limits.concurrency.is_some_and(|max| self.executing >= max)
    }

    /// Why nothing of the queue is given, whatever waits.
    fn closed(&self, now: Instant) -> Option<WaitReason> {
        if self.limits.is_paused {
            return Some(WaitReason::QueueIsPaused);
        }
        if self.is_full() {
            return Some(WaitReason::QueueIsFull);
        }
        let until = self.limits.rate.and_then(|rate| self.window.next_room(rate, now))?;
        Some(WaitReason::RateIsReached { until })
    }

    fn next_wake(&self, now: Instant) -> Option<Instant> {
        let rate = match self.closed(now) {
            Some(WaitReason::RateIsReached { until }) => Some(until),
            _ => None,
        };
        self.backlog.next_wake().into_iter().chain(rate).min()
    }
}

#[cfg(test)]
mod tests;
