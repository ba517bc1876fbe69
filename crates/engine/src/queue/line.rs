//! Lines: of the runs that wait in a queue, those that are for one worker each.
//!
//! A part of a run is for the worker that was chosen for it, so it stands in that worker's line instead of among what anybody may
//! claim. If it is no matter of that worker alone, and the worker has not taken it for
//! [`PART_PASSES_AFTER_MS`], it leaves the line and is anybody's. A run whose workers are not chosen yet stands in a line of its own,
//! [`NOBODY`]'s. A queue without such runs has no lines, and they cost it nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use crate::instant::Instant;
use crate::limits::PART_PASSES_AFTER_MS;

use super::backlog::ClaimOrder;

/// The line of what is for nobody yet. No worker has this name.
pub const NOBODY: &str = "";

/// Whether what waits in a line is anybody's after a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passing {
    /// Only its worker may have it.
    Never,
    /// If its worker has not taken it in time, anybody may.
    InTime,
}

/// The lines of a queue.
#[derive(Debug, Default)]
pub struct Lines {
    /// For whom runs are that wait, whether or not they may be claimed, by their numbers.
    addressed: HashMap<u64, (Arc<str>, Passing)>,
    /// Those that may be claimed, and from when on each is anybody's.
    ready: BTreeMap<(Arc<str>, ClaimOrder), Option<Instant>>,
    passing: BTreeSet<(Instant, ClaimOrder)>,
    by_due: BTreeSet<(Instant, u64)>,
}

impl Lines {
    /// Whether nothing that waits is for one worker.
    pub fn is_empty(&self) -> bool {
        self.addressed.is_empty()
    }

    /// A run that waits is for this worker.
    pub fn address(&mut self, sequence: u64, worker: &Arc<str>, passing: Passing) {
        self.addressed.insert(sequence, (Arc::clone(worker), passing));
    }

    /// A run waits no more.
    pub fn forget(&mut self, order: &ClaimOrder) {
        self.remove(order);
        self.addressed.remove(&order.sequence);
    }

    /// A run may be claimed. Says whether it is for one worker, and stands in its line now.
    pub fn insert(&mut self, order: ClaimOrder, now: Instant) -> bool {
        let Some((worker, passing)) = self.addressed.get(&order.sequence) else { return false };
        let place = (Arc::clone(worker), order);
        if !self.ready.contains_key(&place) {
            let passes = match passing {
                Passing::Never => None,
                Passing::InTime => Some(Instant(order.due.max(now).0 + PART_PASSES_AFTER_MS)),
            };
            self.passing.extend(passes.map(|at| (at, order)));
            self.by_due.insert((order.due, order.sequence));
            self.ready.insert(place, passes);
        }
        true
    }

    /// A run may not be claimed, or is anybody's.
    pub fn remove(&mut self, order: &ClaimOrder) {
        let Some((worker, _)) = self.addressed.get(&order.sequence) else { return };
        if let Some(passes) = self.ready.remove(&(Arc::clone(worker), *order)) {
            self.by_due.remove(&(order.due, order.sequence));
            passes.into_iter().for_each(|at| _ = self.passing.remove(&(at, *order)));
        }
    }

    /// A run that its worker has not taken in time: it stands in no line any more.
    pub fn take_passed(&mut self, now: Instant) -> Option<ClaimOrder> {
        let (_, order) = self.passing.first().copied().filter(|(at, _)| *at <= now)?;
        self.remove(&order);
        Some(order)
    }

    /// Whether a run stands in a line.
    pub fn contains(&self, order: &ClaimOrder) -> bool {
        self.by_due.contains(&(order.due, order.sequence))
    }

    /// The first run that is for a worker.
    pub fn first_of(&self, worker: &Arc<str>) -> Option<ClaimOrder> {
        self.of(worker).next()
    }

    /// The runs that are for a worker, in order.
    pub fn of(&self, worker: &Arc<str>) -> impl Iterator<Item = ClaimOrder> {
        let bound = |order| (Arc::clone(worker), order);
        let line = self.ready.range(bound(ClaimOrder::FIRST)..=bound(ClaimOrder::LAST));
        line.map(|((_, order), _)| *order)
    }

    /// The workers for whom there is something, in the order of their names.
    pub fn workers(&self) -> impl Iterator<Item = &Arc<str>> {
        let mut last: Option<&Arc<str>> = None;
        std::iter::from_fn(move || {
            let after = last.map_or(Bound::Unbounded, |worker| {
                Bound::Excluded((Arc::clone(worker), ClaimOrder::LAST))
            });
            last =
                self.ready.range((after, Bound::Unbounded)).next().map(|((worker, _), _)| worker);
            last
        })
    }

    /// Runs that are due later than this, and stand in lines all the same.
    pub fn later_than(&self, now: Instant) -> Vec<ClaimOrder> {
        self.ready.keys().map(|(_, order)| *order).filter(|order| order.due > now).collect()
    }

    /// Since when the oldest of the runs is due.
    pub fn oldest(&self) -> Option<Instant> {
        self.by_due.first().map(|(due, _)| *due)
    }

    /// When to look again: a run is anybody's.
    pub fn next_wake(&self) -> Option<Instant> {
        self.passing.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(sequence: u64, due: i64) -> ClaimOrder {
        ClaimOrder { priority: 5, due: Instant(due), sequence }
    }

    #[test]
    fn what_is_for_a_worker_is_its_own_until_it_passes() {
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let mut lines = Lines::default();
        assert!(!lines.insert(order(1, 5), Instant(5)), "it is for nobody in particular");
        lines.address(2, &a, Passing::InTime);
        lines.address(3, &b, Passing::Never);
        assert!(lines.insert(order(2, 5), Instant(7)) && lines.insert(order(3, 4), Instant(7)));
        assert_eq!(
            (lines.first_of(&a), lines.first_of(&b)),
            (Some(order(2, 5)), Some(order(3, 4)))
        );
        assert_eq!(lines.workers().collect::<Vec<_>>(), [&a, &b]);
        assert_eq!(lines.oldest(), Some(Instant(4)));
        let passes = Instant(7 + PART_PASSES_AFTER_MS);
        assert_eq!(lines.next_wake(), Some(passes));
        assert_eq!(lines.take_passed(Instant(passes.0 - 1)), None);
        assert_eq!(lines.take_passed(passes), Some(order(2, 5)));
        assert_eq!((lines.first_of(&a), lines.next_wake()), (None, None));
        lines.forget(&order(2, 5));
        lines.forget(&order(3, 4));
        assert!(lines.is_empty() && lines.ready.is_empty() && lines.by_due.is_empty());
    }
}
