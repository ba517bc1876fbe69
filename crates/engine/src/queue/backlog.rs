//! The backlog of a queue: the runs that wait in it, and which of them is claimed next.
//!
//! Runs are claimed in strict order: by priority, of which 0 comes first, then by the instant from which they are due, then
//! by the order in which they came. Two things keep a run from being claimed: it is not due yet, or it has a
//! concurrency key of which as many runs execute as may.
//!
//! ```text
//!              due                     its key has room, and it is the first of its key
//!   delayed ─────────▶ keyed by key ──────────────────────────────────────────────────────▶ ready
//!           ──────────────────────────────────────────────────────────────────────────────▶
//!              due, and it has no key
//! ```
//!
//! Of all runs with one key at most one is ready, the first of them. So whether a key is full or has room, one entry
//! moves, however many wait. A million may: an entry knows a run's place in the order and a hash of its key. What the run is
//! about stays in the store until somebody claims it.

use std::collections::{BTreeSet, HashMap};
use std::num::NonZeroU64;
use std::ops::Bound;
use std::sync::Arc;

use crate::hash::hash;
use crate::instant::Instant;
use crate::mutant::{self, Mutant};

use super::chunked::ChunkedMap;
use super::line::{Lines, Passing};

/// The place of a run in the order of claims: the least is first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimOrder {
    /// From 0, which is claimed first, to 9.
    pub priority: u8,
    /// The run is not claimed before this.
    pub due: Instant,
    /// The number of the run in its shard.
    pub sequence: u64,
}

/// A concurrency key, as a hash of its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConcurrencyKey(pub NonZeroU64);

impl ConcurrencyKey {
    /// The key with this text.
    pub fn of(text: &str) -> Self {
        Self(NonZeroU64::new(hash(text, "key")).unwrap_or(NonZeroU64::MAX))
    }
}

/// A run that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitingRun {
    /// Its place in the order.
    pub order: ClaimOrder,
    /// Whose runs it may not exceed the limit with.
    pub key: Option<ConcurrencyKey>,
    /// If nobody has claimed it by then, nobody will. None once it was claimed: only what never began expires.
    pub expires: Option<Instant>,
}

/// Why a run waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    /// It is not due before this.
    NotDue(Instant),
    /// As many runs with its key execute as may.
    KeyIsFull,
    /// A run with its key is claimed before it.
    BehindItsKey,
}

/// The runs that wait in one queue.
#[derive(Debug)]
pub struct Backlog {
    /// At most so many runs with one key execute at a time.
    per_key_max: u32,
    len: usize,
    /// What is due up to here is not among the delayed.
    advanced_to: Instant,
    /// Runs that are not due, by the instant from which they are, and their numbers.
    delayed: ChunkedMap<(Instant, u64), (u8, Option<ConcurrencyKey>)>,
    /// Runs with a key that are due, ready or not.
    keyed: ChunkedMap<(ConcurrencyKey, ClaimOrder), ()>,
    /// Runs that anybody may claim.
    ready: ChunkedMap<ClaimOrder, ()>,
    /// Runs that are for one worker each.
    lines: Lines,
    expiring: BTreeSet<(Instant, u64)>,
    /// How many runs with a key execute, where any does.
    executing: HashMap<ConcurrencyKey, u32>,
}

impl Backlog {
    /// A queue in which nothing waits, with at most so many runs of one key executing at a time.
    pub fn new(per_key_max: u32) -> Self {
        Self {
            per_key_max,
            len: 0,
            advanced_to: Instant::FIRST,
            delayed: ChunkedMap::default(),
            keyed: ChunkedMap::default(),
            ready: ChunkedMap::default(),
            lines: Lines::default(),
            expiring: BTreeSet::new(),
            executing: HashMap::new(),
        }
    }

    /// How many runs wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no run waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A run waits from now on.
    pub fn insert(&mut self, run: &WaitingRun) {
        let WaitingRun { order, key, expires } = *run;
        self.len += 1;
        if let Some(expires) = expires {
            self.expiring.insert((expires, order.sequence));
        }
        if order.due <= self.advanced_to {
            self.due(order, key);
        } else {
            self.delayed.insert((order.due, order.sequence), (order.priority, key));
        }
    }

    /// A run that is for one worker waits from now on.
    pub fn insert_for(&mut self, run: &WaitingRun, worker: &Arc<str>, passing: Passing) {
        self.lines.address(run.order.sequence, worker, passing);
        self.insert(run);
    }

    /// A run that was waiting waits no more.
    pub fn remove(&mut self, run: &WaitingRun) {
        let WaitingRun { order, key, expires } = *run;
        self.len -= 1;
        if let Some(expires) = expires {
            self.expiring.remove(&(expires, order.sequence));
        }
        if self.delayed.remove(&(order.due, order.sequence)).is_none() {
            self.unready(&order);
            if let Some(key) = key {
                self.keyed.remove(&(key, order));
                self.ready_first_of(key);
            }
        }
        self.lines.forget(&order);
    }

    /// A run with this key executes from now on.
    pub fn began(&mut self, key: ConcurrencyKey) {
        *self.executing.entry(key).or_default() += 1;
        self.ready_first_of(key);
    }

    /// A run with this key executes no more.
    pub fn ended(&mut self, key: ConcurrencyKey) {
        let executing = self.executing.get_mut(&key).expect("what ends has begun");
        *executing -= 1;
        if *executing == 0 {
            self.executing.remove(&key);
        }
        self.ready_first_of(key);
    }

    /// Another number of runs with one key may execute at a time.
    pub fn set_per_key_max(&mut self, per_key_max: u32) {
        if per_key_max == self.per_key_max {
            return;
        }
        self.per_key_max = per_key_max;
        let mut next = self.keyed.first().map(|((key, _), ())| key);
        while let Some(key) = next {
            self.ready_first_of(key);
            let after = Bound::Excluded((key, ClaimOrder::LAST));
            next = self.keyed.range_from(after).next().map(|((key, _), ())| key);
        }
    }

    /// The instant has come that this is.
    pub fn advance(&mut self, now: Instant) {
        self.advanced_to = self.advanced_to.max(now);
        while let Some((first @ (due, sequence), (priority, key))) = self
            .delayed
            .first()
            .map(|(first, waits)| (first, *waits))
            .filter(|(first, _)| first.0 <= now)
        {
            self.delayed.remove(&first);
            self.due(ClaimOrder { priority, due, sequence }, key);
        }
        while let Some(order) = self.lines.take_passed(now) {
            self.ready.insert(order, ());
        }
    }

    /// The clock may have been set back: what is due later than now is not due.
    pub fn rewind(&mut self, now: Instant) {
        if now >= self.advanced_to {
            return;
        }
        self.advanced_to = now;
        let later = |order: &ClaimOrder| order.due > now;
        let keyed = self.keyed.range_from(Bound::Unbounded).map(|(keyed, ())| keyed);
        let keyed: Vec<_> = keyed.filter(|(_, order)| later(order)).collect();
        for (key, order) in keyed {
            self.keyed.remove(&(key, order));
            self.unready(&order);
            self.ready_first_of(key);
            self.delayed.insert((order.due, order.sequence), (order.priority, Some(key)));
        }
        // Those with a key are gone from here.
        let plain = self.ready.range_from(Bound::Unbounded).map(|(order, ())| order);
        let plain: Vec<_> = plain.filter(later).chain(self.lines.later_than(now)).collect();
        for order in plain {
            self.unready(&order);
            self.delayed.insert((order.due, order.sequence), (order.priority, None));
        }
    }

    /// The run that is claimed next, of those that were due when the backlog was last [advanced](Self::advance).
    pub fn first(&self) -> Option<ClaimOrder> {
        self.ready.first().map(|(order, ())| order)
    }

    /// The same, of what a worker may claim: what anybody may, and what is for it.
    pub fn first_for(&self, worker: &Arc<str>) -> Option<ClaimOrder> {
        let own = (!self.lines.is_empty()).then(|| self.lines.first_of(worker)).flatten();
        self.first().into_iter().chain(own).min()
    }

    /// The runs that are for one worker each, and may be claimed by it.
    pub fn lines(&self) -> &Lines {
        &self.lines
    }

    /// Since when the oldest of the runs is due that may be claimed.
    pub fn oldest(&self) -> Option<Instant> {
        let mut next = self.first();
        let firsts = std::iter::from_fn(|| {
            let first = next?;
            let after = ClaimOrder { priority: first.priority, ..ClaimOrder::LAST };
            next = self.ready.range_from(Bound::Excluded(after)).next().map(|(order, ())| order);
            Some(first.due)
        });
        firsts.chain(self.lines.oldest()).min()
    }

    /// A run that has expired, if there is one.
    pub fn first_expired(&self, now: Instant) -> Option<u64> {
        self.expiring.first().filter(|(at, _)| *at <= now).map(|(_, sequence)| *sequence)
    }

    /// When to look again: a run becomes due, or expires.
    pub fn next_wake(&self) -> Option<Instant> {
        let due = self.delayed.first().map(|((at, _), _)| at);
        let expires = self.expiring.first().map(|(at, _)| *at);
        due.into_iter().chain(expires).chain(self.lines.next_wake()).min()
    }

    /// Why a run is not among those that may be claimed.
    pub fn obstacle(&self, run: &WaitingRun) -> Option<Obstacle> {
        if self.ready.contains_key(&run.order) || self.lines.contains(&run.order) {
            return None;
        }
        match run.key {
            Some(key) if self.keyed.contains_key(&(key, run.order)) => {
                Some(if self.is_full(key) { Obstacle::KeyIsFull } else { Obstacle::BehindItsKey })
            }
            _ => Some(Obstacle::NotDue(run.order.due)),
        }
    }

    /// Whether as many runs with this key execute as may.
    pub fn is_full(&self, key: ConcurrencyKey) -> bool {
        self.executing.get(&key).is_some_and(|executing| *executing >= self.per_key_max)
    }

    fn due(&mut self, order: ClaimOrder, key: Option<ConcurrencyKey>) {
        if let Some(key) = key {
            self.keyed.insert((key, order), ());
            self.ready_first_of(key);
            mutant::also(Mutant::DueBeyondItsKey, || {
                self.ready.insert(order, ());
            });
        } else {
            self.make_ready(order);
        }
    }

    /// A run may be claimed: by the worker that it is for, or by anybody.
    fn make_ready(&mut self, order: ClaimOrder) {
        let is_addressed = !self.lines.is_empty()
            && (self.ready.contains_key(&order) || self.lines.insert(order, self.advanced_to));
        if !is_addressed {
            self.ready.insert(order, ());
        }
    }

    fn unready(&mut self, order: &ClaimOrder) {
        self.ready.remove(order);
        self.lines.remove(order);
    }

    /// Of the runs with this key, exactly the first that is due is ready, if the key has room.
    fn ready_first_of(&mut self, key: ConcurrencyKey) {
        let of_key = self.keyed.range_from(Bound::Included((key, ClaimOrder::FIRST)));
        let mut of_key = of_key.map(|(keyed, ())| keyed).take_while(|(other, _)| *other == key);
        let (first, second) = (of_key.next(), of_key.next());
        drop(of_key);
        let (Some((_, first)), second) = (first, second.map(|(_, second)| second)) else {
            return;
        };
        if let Some(second) = second {
            self.unready(&second);
        }
        if self.is_full(key) {
            self.unready(&first);
        } else {
            self.make_ready(first);
        }
    }
}

impl ClaimOrder {
    pub(super) const FIRST: Self = Self { priority: 0, due: Instant(i64::MIN), sequence: 0 };
    pub(super) const LAST: Self =
        Self { priority: u8::MAX, due: Instant(i64::MAX), sequence: u64::MAX };
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(priority: u8, due: i64, sequence: u64, key: Option<u64>) -> WaitingRun {
        let order = ClaimOrder { priority, due: Instant(due), sequence };
        WaitingRun { order, key: key.map(self::key), expires: None }
    }

    fn key(number: u64) -> ConcurrencyKey {
        ConcurrencyKey(NonZeroU64::new(number + 1).unwrap())
    }

    fn first(backlog: &Backlog) -> Option<u64> {
        backlog.first().map(|order| order.sequence)
    }

    #[test]
    fn runs_are_claimed_by_priority_then_due_then_in_the_order_in_which_they_came() {
        let runs =
            [run(5, 10, 1, None), run(5, 10, 2, None), run(5, 9, 3, None), run(4, 11, 4, None)];
        let mut backlog = Backlog::new(1);
        backlog.advance(Instant(10));
        for run in &runs {
            backlog.insert(run);
        }
        assert_eq!(first(&backlog), Some(3));
        backlog.advance(Instant(11));
        let mut claimed = Vec::new();
        while let Some(sequence) = first(&backlog) {
            claimed.push(sequence);
            backlog.remove(runs.iter().find(|run| run.order.sequence == sequence).unwrap());
        }
        assert_eq!(claimed, [4, 3, 1, 2]);
        for run in &runs {
            backlog.insert(run);
        }
        assert_eq!((first(&backlog), backlog.oldest()), (Some(4), Some(Instant(9))));
    }

    #[test]
    fn a_full_key_lets_others_pass_and_says_so() {
        let mut backlog = Backlog::new(1);
        backlog.advance(Instant(0));
        for waits in [
            run(0, 0, 1, Some(7)),
            run(0, 0, 2, Some(7)),
            run(1, 0, 3, Some(8)),
            run(1, 9, 4, None),
        ] {
            backlog.insert(&waits);
        }
        assert_eq!(backlog.obstacle(&run(0, 0, 2, Some(7))), Some(Obstacle::BehindItsKey));
        backlog.remove(&run(0, 0, 1, Some(7)));
        backlog.began(key(7));
        assert_eq!(first(&backlog), Some(3));
        assert_eq!(backlog.obstacle(&run(0, 0, 2, Some(7))), Some(Obstacle::KeyIsFull));
        assert_eq!(backlog.obstacle(&run(1, 9, 4, None)), Some(Obstacle::NotDue(Instant(9))));
        backlog.set_per_key_max(2);
        assert_eq!(first(&backlog), Some(2));
        backlog.set_per_key_max(1);
        assert_eq!(first(&backlog), Some(3));
        backlog.ended(key(7));
        assert_eq!(first(&backlog), Some(2));
    }

    #[test]
    fn what_expires_is_told_in_time() {
        let mut backlog = Backlog::new(1);
        let expires = WaitingRun { expires: Some(Instant(50)), ..run(0, 20, 1, None) };
        backlog.insert(&expires);
        assert_eq!(backlog.next_wake(), Some(Instant(20)));
        backlog.advance(Instant(20));
        assert_eq!(
            (backlog.next_wake(), backlog.first_expired(Instant(49))),
            (Some(Instant(50)), None)
        );
        assert_eq!(backlog.first_expired(Instant(50)), Some(1));
        backlog.remove(&expires);
        assert_eq!((backlog.next_wake(), backlog.len()), (None, 0));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Insert(WaitingRun),
        Remove(u64),
        Claim,
        End(usize),
        Limit(u32),
        Pass(i64),
        SetBack(i64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let waits = (0_u8..3, 0_i64..60, 0_u64..40, prop::option::of(0_u64..4)).prop_map(
            |(priority, due, sequence, key)| Step::Insert(run(priority, due, sequence, key)),
        );
        let step = prop_oneof![
            6 => waits,
            1 => (0_u64..40).prop_map(Step::Remove),
            4 => Just(Step::Claim),
            2 => (0_usize..8).prop_map(Step::End),
            1 => (1_u32..4).prop_map(Step::Limit),
            2 => (1_i64..9).prop_map(Step::Pass),
            1 => (1_i64..20).prop_map(Step::SetBack),
        ];
        prop::collection::vec(step, 1..120)
    }

    proptest! {
        #[test]
        fn it_claims_what_a_search_through_all_would_claim(steps in steps()) {
            let (mut now, mut per_key_max) = (0, 1);
            let mut backlog = Backlog::new(per_key_max);
            backlog.advance(Instant(now));
            let mut waiting: Vec<WaitingRun> = Vec::new();
            let mut executing: Vec<WaitingRun> = Vec::new();
            for step in steps {
                match step {
                    Step::Insert(run) => {
                        if !waiting.iter().any(|other| other.order.sequence == run.order.sequence) {
                            backlog.insert(&run);
                            waiting.push(run);
                        }
                    }
                    Step::Remove(sequence) => {
                        waiting.extract_if(.., |run| run.order.sequence == sequence).for_each(|run| backlog.remove(&run));
                    }
                    Step::Claim => if let Some(order) = backlog.first() {
                        let at = waiting.iter().position(|run| run.order == order).unwrap();
                        let run = waiting.swap_remove(at);
                        backlog.remove(&run);
                        run.key.into_iter().for_each(|key| backlog.began(key));
                        executing.push(run);
                    }
                    Step::End(which) => if which < executing.len() {
                        let run = executing.swap_remove(which);
                        run.key.into_iter().for_each(|key| backlog.ended(key));
                    }
                    Step::Limit(limit) => {
                        per_key_max = limit;
                        backlog.set_per_key_max(limit);
                    }
                    Step::SetBack(ms) => {
                        now -= ms;
                        backlog.rewind(Instant(now));
                    }
                    Step::Pass(ms) => {
                        now += ms;
                        backlog.advance(Instant(now));
                    }
                }
                let has_room = |run: &WaitingRun| run.key.is_none_or(|key| {
                    let busy = executing.iter().filter(|other| other.key == Some(key));
                    busy.count() < per_key_max as usize
                });
                let may = waiting.iter().filter(|run| run.order.due.0 <= now && has_room(run));
                prop_assert_eq!(backlog.first(), may.map(|run| run.order).min());
                prop_assert_eq!(backlog.len(), waiting.len());
            }
        }
    }
}
