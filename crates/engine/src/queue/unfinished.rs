//! The unfinished runs of the queues of a shard: which wait, which are given, and how many may be.
//!
//! Like everything that a shard remembers it changes by [`QueueDelta`] alone, live and in recovery: a successor that
//! applies what the store has knows what its predecessor knew. Limits count what is recorded as given, whoever gave it.
//!
//! A million runs may wait, so little is known of each: its place in the order, when it came, and what it shares with
//! others. What few runs have, such as an end of their time or labels, is beside them; what a run is about is in the store.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use crate::id::{RunId, SerialId};
use crate::instant::Instant;
use crate::mutant::{Mutant, pick};

use super::backlog::{Backlog, ClaimOrder, ConcurrencyKey, Obstacle, WaitingRun};
use super::given::{ClaimedRecord, GivenPolicy, GivenRecord};
use super::rate::{RateLimit, RateWindow};

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

/// What a shard has to know of a run while it is unfinished. What it is about is in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubmittedRun {
    /// The queue that it is in.
    pub queue: SerialId,
    /// Its place among the runs of its queue, as it was submitted.
    pub order: ClaimOrder,
    /// Its concurrency key.
    pub key: Option<ConcurrencyKey>,
    /// When it was submitted, or the slot that it is a run of.
    pub born: Instant,
    /// Whether what it is about has a record of its own.
    pub has_body: bool,
    /// By which rules it is given again.
    pub policy: GivenPolicy,
    /// What few runs have.
    pub details: Option<Arc<RunDetails>>,
}

/// What few runs have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunDetails {
    /// When it expires, if nobody was given it by then.
    pub expires: Option<Instant>,
    /// The trigger that it is a run of.
    pub trigger: Option<TriggerSlot>,
    /// The text of its concurrency key.
    pub key: Option<Box<str>>,
    /// No other run with the same text is taken for a while.
    pub unique: Option<UniqueKey>,
    /// By what it is found: `env=prod,team=billing`.
    pub labels: Option<Box<str>>,
    /// The dead run that it is carried out again for.
    pub redriven_from: Option<RunId>,
}

/// Which slot of which trigger a run is of.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct TriggerSlot {
    /// The trigger.
    #[serde(with = "crate::id::text")]
    pub serial: SerialId,
    /// Its name, which may be gone.
    pub name: Box<str>,
    /// By which generation of its schedule; none for a run on demand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u32>,
}

/// What keeps other runs from being taken.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct UniqueKey {
    /// Its text.
    pub key: Box<str>,
    /// So long after the end of its run it still counts, in milliseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub window_ms: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Where the records of a run are: they stay there while it is unfinished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunPlace {
    /// The queue that it is in.
    pub queue: SerialId,
    /// Its place in the order, as it was submitted: a retry is due later, and stays where it is.
    pub order: ClaimOrder,
    /// Whether what it is about has a record of its own.
    pub has_body: bool,
    /// Where is recorded that it was given.
    pub given: GivenPlace,
}

/// Where is recorded that a run was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GivenPlace {
    /// It never was.
    Nowhere,
    /// In a record that it shares with others of the same claim.
    Shared,
    /// In a record of its own.
    Own,
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
    runs: BTreeMap<u64, KnownRun>,
    /// What runs share.
    classes: HashSet<Arc<RunClass>>,
    /// Runs that workers have, by the worker's name.
    by_worker: BTreeSet<(Arc<str>, u64)>,
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
    extra: Option<Box<RunExtra>>,
    given: Option<Arc<GivenRecord>>,
}

/// What runs share.
#[derive(Debug, PartialEq, Eq, Hash)]
struct RunClass {
    queue: SerialId,
    policy: GivenPolicy,
    priority: u8,
    has_body: bool,
}

/// What few runs have.
#[derive(Debug, Clone)]
struct RunExtra {
    key: Option<ConcurrencyKey>,
    details: Option<Arc<RunDetails>>,
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
            key: run.key(),
            born: run.born,
            has_body: run.class.has_body,
            policy: run.class.policy,
            details: run.details().cloned(),
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
        })
    }

    /// The runs that a worker has, as far as is recorded.
    pub fn of_worker(&self, worker: &Arc<str>) -> impl Iterator<Item = (u64, &Arc<GivenRecord>)> {
        let from = (Arc::clone(worker), 0);
        let to = (Arc::clone(worker), u64::MAX);
        self.by_worker
            .range(from..=to)
            .filter_map(|(_, sequence)| Some((*sequence, self.given(*sequence)?)))
    }

    /// All runs that workers have, as far as is recorded, worker by worker.
    pub fn all_given(&self) -> impl Iterator<Item = (u64, &Arc<GivenRecord>)> {
        self.by_worker.iter().filter_map(|(_, sequence)| Some((*sequence, self.given(*sequence)?)))
    }

    /// One run of each worker that has any.
    pub fn one_of_each_worker(&self) -> impl Iterator<Item = (u64, &Arc<GivenRecord>)> {
        let mut next = self.by_worker.first();
        std::iter::from_fn(move || {
            let (worker, sequence) = next?;
            let after = (Bound::Excluded((Arc::clone(worker), u64::MAX)), Bound::Unbounded);
            next = self.by_worker.range(after).next();
            Some((*sequence, self.given(*sequence)?))
        })
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
        let obstacle = queue.backlog.obstacle(&run.waiting(sequence)?).map(WaitReason::Obstacle);
        Some(queue.closed(now).or(obstacle).unwrap_or(WaitReason::NoWorker))
    }

    /// Why nothing of a queue is given, whatever waits in it.
    pub fn closed(&self, queue: SerialId, now: Instant) -> Option<WaitReason> {
        self.queues.get(&queue)?.closed(now)
    }

    /// The first run of a queue that could be given.
    pub fn first(&self, queue: SerialId) -> Option<u64> {
        self.queues.get(&queue)?.backlog.first().map(|order| order.sequence)
    }

    /// Runs after this number, in the order of their numbers.
    pub fn after(&self, sequence: u64) -> impl Iterator<Item = u64> {
        self.runs.range((Bound::Excluded(sequence), Bound::Unbounded)).map(|(number, _)| *number)
    }
}

impl KnownRun {
    /// Its place in the order, as it was submitted.
    fn order(&self, sequence: u64) -> ClaimOrder {
        ClaimOrder { priority: self.class.priority, due: self.due, sequence }
    }

    fn key(&self) -> Option<ConcurrencyKey> {
        self.extra.as_ref()?.key
    }

    fn given_place(&self) -> GivenPlace {
        match self.given.as_ref().map(|given| given.shared) {
            None => GivenPlace::Nowhere,
            Some(Some(_)) => GivenPlace::Shared,
            Some(None) => GivenPlace::Own,
        }
    }

    fn details(&self) -> Option<&Arc<RunDetails>> {
        self.extra.as_ref()?.details.as_ref()
    }

    /// As it waits, if it does. Only what never began expires.
    fn waiting(&self, sequence: u64) -> Option<WaitingRun> {
        let (order, key) = (self.order(sequence), self.key());
        let expires = self.details().and_then(|details| details.expires);
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

    fn submit(&mut self, run: &SubmittedRun) {
        let ClaimOrder { priority, due, sequence } = run.order;
        self.end(sequence);
        let SubmittedRun { queue, policy, has_body, key, born, .. } = *run;
        let class = self.class(RunClass { queue, policy, priority, has_body });
        let details = run.details.clone();
        let is_plain = key.is_none() && details.is_none();
        let extra = (!is_plain).then(|| Box::new(RunExtra { key, details }));
        let known = KnownRun { class, due, born, extra, given: None };
        self.queue(queue).long += usize::from(has_body);
        self.runs.insert(sequence, known);
        self.enter(sequence);
    }

    /// What a run shares with others.
    fn class(&mut self, class: RunClass) -> Arc<RunClass> {
        if let Some(known) = self.classes.get(&class) {
            return Arc::clone(known);
        }
        if self.classes.len() == self.classes.capacity() {
            // Those that no run has any more.
            self.classes.retain(|class| Arc::strong_count(class) > 1);
        }
        let class = Arc::new(class);
        self.classes.insert(Arc::clone(&class));
        class
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
        self.leave(sequence);
        if let Some(run) = self.runs.remove(&sequence) {
            self.queue(run.class.queue).long -= usize::from(run.class.has_body);
            self.unshare(run.given);
        }
    }

    /// Counts a run where it is: in the backlog, or with its worker.
    fn enter(&mut self, sequence: u64) {
        let Some(run) = self.runs.get(&sequence) else {
            return;
        };
        let queue = self.queues.entry(run.class.queue).or_default();
        match (run.waiting(sequence), &run.given) {
            (Some(waiting), _) => queue.backlog.insert(&waiting),
            (None, Some(given)) => {
                queue.executing += 1;
                run.key().into_iter().for_each(|key| queue.backlog.began(key));
                self.by_worker.insert((Arc::clone(&given.claimant.worker), sequence));
            }
            (None, None) => unreachable!("a run that was never given waits"),
        }
    }

    /// Counts a run no more where it was.
    fn leave(&mut self, sequence: u64) {
        let Some(run) = self.runs.get(&sequence) else {
            return;
        };
        let queue = self.queues.entry(run.class.queue).or_default();
        match (run.waiting(sequence), &run.given) {
            (Some(waiting), _) => queue.backlog.remove(&waiting),
            (None, Some(given)) => {
                queue.executing -= 1;
                run.key().into_iter().for_each(|key| queue.backlog.ended(key));
                self.by_worker.remove(&(Arc::clone(&given.claimant.worker), sequence));
            }
            (None, None) => unreachable!("a run that was never given waits"),
        }
    }
}

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
