//! What was decided about runs of queues: known to memory at once, and to the store with the next commit.
//!
//! A commit takes so many changes and no more. Whoever decides asks for room first; what finds none is decided later.

use std::sync::Arc;

use crate::mutant::{self, Mutant};
use crate::past::End;
use crate::shard::Now;

use super::given::{Fate, GivenRecord, RunEnd};
use super::unfinished::{QueueDelta, UnfinishedRuns};

/// A run that is past.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedRun {
    /// The number of the run.
    pub sequence: u64,
    /// How it ended.
    pub end: RunEnd,
    /// What was recorded of it last; nothing, if it was never given.
    pub given: Option<Arc<GivenRecord>>,
}

/// What is decided, and already applied to memory.
#[derive(Debug, Default)]
pub struct Decided {
    /// What is to be written, in order.
    pub changes: Vec<QueueDelta>,
    /// Runs that ended.
    pub ended: Vec<EndedRun>,
    /// Changes that may still be added.
    room: usize,
}

impl Decided {
    /// Nothing so far, and at most so many changes.
    pub fn with_room(room: usize) -> Self {
        Self { room, ..Self::default() }
    }

    /// Whether more may be decided.
    pub fn has_room(&self) -> bool {
        self.changes.len() < self.room
    }

    /// Makes a change that nobody has to decide: a run is submitted, a queue has other limits.
    pub fn change(&mut self, runs: &mut UnfinishedRuns, change: QueueDelta, now: Now) {
        runs.apply(&change, now.wall);
        self.changes.push(change);
    }

    /// Somebody wants a run to end. One that waits does so at once; the worker that has it is told until it ends it. Says
    /// whether the run was unfinished.
    pub fn cancel(&mut self, runs: &mut UnfinishedRuns, sequence: u64, now: Now) -> bool {
        if runs.get(sequence).is_none() {
            return false;
        }
        match runs.given(sequence).filter(|record| record.is_running()) {
            None => self.end(runs, sequence, RunEnd::Plain(End::Cancelled), now),
            Some(record) if record.cancel => {}
            Some(record) => {
                let record = GivenRecord { cancel: true, ..GivenRecord::clone(record) };
                self.goes(runs, sequence, record, now);
                mutant::also(Mutant::CancelUnrecorded, || drop(self.changes.pop()));
            }
        }
        true
    }

    pub(super) fn goes(
        &mut self,
        runs: &mut UnfinishedRuns,
        sequence: u64,
        record: GivenRecord,
        now: Now,
    ) -> Arc<GivenRecord> {
        let record = Arc::new(record);
        self.change(runs, QueueDelta::Given(sequence, Arc::clone(&record)), now);
        record
    }

    pub(super) fn fate(&mut self, runs: &mut UnfinishedRuns, sequence: u64, fate: Fate, now: Now) {
        match fate {
            Fate::Goes(record) => {
                self.goes(runs, sequence, record, now);
            }
            Fate::Ends(end) => self.end(runs, sequence, end, now),
        }
    }

    pub(super) fn end(&mut self, runs: &mut UnfinishedRuns, sequence: u64, end: RunEnd, now: Now) {
        let given = runs.given(sequence).cloned();
        self.ended.push(EndedRun { sequence, end, given });
        self.change(runs, QueueDelta::Ended(sequence), now);
    }
}
