//! Dead runs: what is kept of runs that failed for good, so that somebody can have them carried out again.
//!
//! A run that ends `dead` or `failed` leaves its [`QueuedRecord`](super::record::QueuedRecord), and what it was about, where
//! they lay while it waited. Beside them a [`DeadRecord`] tells how it ended. Whoever redrives it reads all three; the shard
//! takes a new run and deletes them in one unit, so nothing is redriven twice.
//!
//! ```text
//! shard/<n>/dead/<queue>/<sequence>       [`DeadRecord`]
//! ```
//!
//! A shard remembers where dead runs are and how old they are, and nothing else of them. Of each queue the latest are kept,
//! and none for longer than [`DEAD_RUNS_KEPT`].

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::id::{Birth, RunId, SerialId, ShardId};
use crate::instant::Instant;
use crate::limits::{DEAD_BODIES_PER_QUEUE_MAX, DEAD_RUNS_KEPT, DEAD_RUNS_PER_QUEUE_MAX};
use crate::past::Finished;

use super::backlog::ClaimOrder;
use super::unfinished::RunPlace;

/// How a run ended that can be redriven.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadRecord {
    /// As it is past, with the last of its attempts.
    pub run: Finished,
    /// The priority that it had.
    pub priority: u8,
    /// When it was first due: with the priority, this is where its other records are.
    pub due: Instant,
    /// Whether what it was about has a record of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_body: bool,
}

impl DeadRecord {
    /// Where its other records are.
    pub fn place(&self, queue: SerialId, sequence: u64) -> RunPlace {
        let order = ClaimOrder { priority: self.priority, due: self.due, sequence };
        RunPlace { queue, order, has_body: self.has_body, was_given: false }
    }
}

/// Where the dead runs of a shard are.
pub fn dead(shard: ShardId) -> String {
    format!("shard/{shard}/dead/")
}

/// Where the dead runs of a queue are, in the order in which they were submitted.
pub fn dead_of(shard: ShardId, queue: SerialId) -> String {
    format!("shard/{shard}/dead/{queue}/")
}

/// Where a dead run is.
pub fn dead_key(shard: ShardId, queue: SerialId, sequence: u64) -> String {
    format!("shard/{shard}/dead/{queue}/{sequence:016}")
}

/// Which run of which queue the record under this key is.
pub fn dead_at(shard: ShardId, key: &str) -> Option<(SerialId, u64)> {
    let (queue, sequence) = key.strip_prefix(&dead(shard))?.split_once('/')?;
    Some((queue.parse().ok()?, sequence.parse().ok()?))
}

/// What a shard remembers of a dead run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadRun {
    /// Its id.
    pub id: RunId,
    /// Where its records are.
    pub place: RunPlace,
    /// When it ended.
    pub at: Instant,
}

impl DeadRun {
    /// What is remembered of a run that lay there and ended so.
    pub fn of(shard: ShardId, cluster: u64, place: RunPlace, run: &Finished) -> Self {
        let birth = run.generation.map_or(Birth::Demand(place.order.sequence), Birth::Slot);
        let letters = birth.letters(cluster);
        let id = RunId { shard, trigger: run.trigger, slot: run.slot, letters };
        Self { id, place, at: run.at }
    }
}

/// The dead runs of a shard.
#[derive(Debug, Default)]
pub struct DeadRuns {
    by_number: BTreeMap<u64, DeadRun>,
    by_queue: BTreeMap<SerialId, DeadOfQueue>,
    by_age: BTreeSet<(Instant, u64)>,
    /// Queues that have more than may be kept, or are gone.
    surplus: BTreeSet<SerialId>,
}

#[derive(Debug, Default)]
struct DeadOfQueue {
    by_age: BTreeSet<(Instant, u64)>,
    bodies: usize,
    is_gone: bool,
}

impl DeadOfQueue {
    fn is_surplus(&self) -> bool {
        let len = self.by_age.len();
        len > 0
            && (self.is_gone
                || len > DEAD_RUNS_PER_QUEUE_MAX
                || self.bodies > DEAD_BODIES_PER_QUEUE_MAX)
    }
}

impl DeadRuns {
    /// A run is dead.
    pub fn insert(&mut self, run: DeadRun) {
        let (queue, sequence) = (run.place.queue, run.place.order.sequence);
        self.remove(sequence);
        self.by_number.insert(sequence, run);
        self.by_age.insert((run.at, sequence));
        let of_queue = self.by_queue.entry(queue).or_default();
        of_queue.by_age.insert((run.at, sequence));
        of_queue.bodies += usize::from(run.place.has_body);
        self.weigh(queue);
    }

    /// Nothing is kept of a dead run any more.
    pub fn remove(&mut self, sequence: u64) {
        let Some(run) = self.by_number.remove(&sequence) else { return };
        let queue = run.place.queue;
        self.by_age.remove(&(run.at, sequence));
        if let Some(of_queue) = self.by_queue.get_mut(&queue) {
            of_queue.by_age.remove(&(run.at, sequence));
            of_queue.bodies -= usize::from(run.place.has_body);
        }
        self.weigh(queue);
    }

    /// There is no such queue any more: its dead runs go.
    pub fn forget_queue(&mut self, queue: SerialId) {
        if let Some(of_queue) = self.by_queue.get_mut(&queue) {
            of_queue.is_gone = true;
            self.weigh(queue);
        }
    }

    /// Dead runs of queues that are not among these go. A predecessor may have begun with that.
    pub fn keep_queues(&mut self, is_known: impl Fn(SerialId) -> bool) {
        let gone: Vec<_> =
            self.by_queue.keys().copied().filter(|queue| !is_known(*queue)).collect();
        for queue in gone {
            self.forget_queue(queue);
        }
    }

    fn weigh(&mut self, queue: SerialId) {
        let Some(of_queue) = self.by_queue.get(&queue) else { return };
        if of_queue.is_surplus() {
            self.surplus.insert(queue);
        } else {
            self.surplus.remove(&queue);
        }
        if of_queue.by_age.is_empty() {
            self.by_queue.remove(&queue);
        }
    }

    /// A dead run.
    pub fn get(&self, sequence: u64) -> Option<&DeadRun> {
        self.by_number.get(&sequence)
    }

    /// The dead run with this id.
    pub fn find(&self, id: RunId) -> Option<&DeadRun> {
        let is_it = |run: &&DeadRun| run.id == id;
        // Runs that were submitted have their number in their id; those of triggers are looked for.
        let own = self.by_number.get(&id.trigger.0).filter(is_it);
        own.or_else(|| self.by_number.values().find(is_it))
    }

    /// How many dead runs of a queue are kept.
    pub fn count(&self, queue: SerialId) -> usize {
        self.by_queue.get(&queue).map_or(0, |of_queue| of_queue.by_age.len())
    }

    /// A dead run that is not kept any longer: the oldest of a queue that has too many, or one that is too old.
    pub fn next_to_go(&self, now: Instant) -> Option<DeadRun> {
        let surplus = self.surplus.first().and_then(|queue| self.by_queue.get(queue));
        let surplus = surplus.and_then(|of_queue| of_queue.by_age.first());
        let old = self.by_age.first().filter(|(at, _)| at.after(DEAD_RUNS_KEPT) <= now);
        let (_, sequence) = surplus.or(old)?;
        self.by_number.get(sequence).copied()
    }

    /// When to look again.
    pub fn next_wake(&self, now: Instant) -> Option<Instant> {
        if !self.surplus.is_empty() {
            return Some(Instant(now.0 + 1));
        }
        self.by_age.first().map(|(at, _)| at.after(DEAD_RUNS_KEPT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE: SerialId = SerialId(7);

    fn dead_run(queue: SerialId, sequence: u64, at: i64) -> DeadRun {
        let order = ClaimOrder { priority: 5, due: Instant(1), sequence };
        let place = RunPlace { queue, order, has_body: false, was_given: false };
        let id = RunId::submitted(ShardId(3), sequence, Instant(1), 9);
        DeadRun { id, place, at: Instant(at) }
    }

    fn goes(dead: &DeadRuns, now: i64) -> Option<u64> {
        dead.next_to_go(Instant(now)).map(|run| run.place.order.sequence)
    }

    #[test]
    fn a_key_says_whose_record_it_is() {
        let key = dead_key(ShardId(3), QUEUE, 12);
        assert!(key.starts_with(&dead_of(ShardId(3), QUEUE)), "{key}");
        assert_eq!(dead_at(ShardId(3), &key), Some((QUEUE, 12)));
        assert_eq!(dead_at(ShardId(4), &key), None);
    }

    #[test]
    fn the_oldest_go_first_when_there_are_too_many_and_all_go_in_time() {
        let mut dead = DeadRuns::default();
        let max = DEAD_RUNS_PER_QUEUE_MAX as u64;
        for sequence in 1..=max {
            // The one that came last ended first.
            dead.insert(dead_run(QUEUE, sequence, (max - sequence).cast_signed()));
        }
        assert_eq!((goes(&dead, 0), dead.count(QUEUE)), (None, DEAD_RUNS_PER_QUEUE_MAX));
        dead.insert(dead_run(QUEUE, max + 1, 99));
        assert_eq!(goes(&dead, 0), Some(max));
        dead.remove(max);
        assert_eq!(goes(&dead, 0), None);
        let kept = i64::try_from(DEAD_RUNS_KEPT.as_millis()).unwrap();
        assert_eq!(dead.next_wake(Instant(0)), Some(Instant(1 + kept)));
        assert_eq!((goes(&dead, kept), goes(&dead, kept + 1)), (None, Some(max - 1)));
    }

    #[test]
    fn long_ones_are_fewer() {
        let mut dead = DeadRuns::default();
        for sequence in 0..=DEAD_BODIES_PER_QUEUE_MAX as u64 {
            assert_eq!(goes(&dead, 0), None, "{sequence}");
            let mut run = dead_run(QUEUE, sequence + 1, 5);
            run.place.has_body = true;
            dead.insert(run);
        }
        assert_eq!(goes(&dead, 0), Some(1));
    }

    #[test]
    fn those_of_a_queue_that_is_gone_go_and_others_stay() {
        let mut dead = DeadRuns::default();
        dead.insert(dead_run(QUEUE, 1, 5));
        dead.insert(dead_run(SerialId(8), 2, 5));
        dead.keep_queues(|queue| queue == QUEUE);
        assert_eq!(goes(&dead, 0), Some(2));
        dead.remove(2);
        assert_eq!((goes(&dead, 0), dead.count(QUEUE)), (None, 1));
        assert_eq!(dead.find(dead_run(QUEUE, 1, 5).id).map(|run| run.at), Some(Instant(5)));
    }
}
