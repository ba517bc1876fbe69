//! What was decided about runs of queues: known to memory at once, and to the store with the next commit.
//!
//! What time brings, such as the end of many runs at once, is decided in pieces: whoever decides asks for room first, and what
//! finds none is decided later. What a worker says is decided at once.

use std::sync::Arc;

use crate::id::SerialId;
use crate::instant::Instant;
use crate::mutant::{self, Mutant};
use crate::past::{Attempt, End};

use super::given::{ClaimedRecord, Fate, GivenRecord, RunEnd};
use super::submitted::SubmittedRun;
use super::unfinished::{QueueDelta, UnfinishedRuns};

/// A run that is past.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedRun {
    /// What it was.
    pub run: SubmittedRun,
    /// How it ended.
    pub end: RunEnd,
    /// What was recorded of it last; nothing, if it was never given.
    pub given: Option<Arc<GivenRecord>>,
    /// What came of the attempt that ended it.
    pub last: Option<Attempt>,
}

/// A run that was given to a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunGiven {
    /// Its number.
    pub sequence: u64,
    /// Its queue.
    pub queue: SerialId,
    /// Since when it was due.
    pub due: Instant,
}

/// What is decided, and already applied to memory.
#[derive(Debug, Default)]
pub struct Decided {
    /// What is to be written, in order.
    pub changes: Vec<QueueDelta>,
    /// The runs that ended, in the order of those changes.
    pub ended: Vec<EndedRun>,
    /// The runs that were given, in the order of those changes.
    pub given: Vec<RunGiven>,
    /// So many changes and gifts there may be.
    room: usize,
}

impl Decided {
    /// Nothing so far, and at most so many changes and gifts.
    pub fn with_room(room: usize) -> Self {
        Self { room, ..Self::default() }
    }

    /// Whether more may be decided. Runs that are given for the first time share a change, and each of them costs as much
    /// as one.
    pub fn has_room(&self) -> bool {
        self.changes.len() + self.given.len() < self.room
    }

    /// Makes a change that nobody has to decide: a run is submitted, a queue has other limits.
    pub fn change(&mut self, runs: &mut UnfinishedRuns, change: QueueDelta) {
        runs.apply(&change);
        self.changes.push(change);
        while let Some(first) = runs.take_spent() {
            self.changes.push(QueueDelta::ClaimedGone(first));
        }
    }

    /// Runs are given for the first time, which memory knows already: they share a record.
    pub(super) fn claimed(&mut self, claimed: Vec<u64>, given: Arc<GivenRecord>) {
        let claimed = Arc::new(ClaimedRecord::of(claimed, given));
        self.changes.push(QueueDelta::Claimed(claimed));
    }

    /// Somebody wants a run to end. One that waits does so at once; the worker that has it is told until it ends it. Says
    /// whether the run was unfinished.
    pub fn cancel(&mut self, runs: &mut UnfinishedRuns, sequence: u64) -> bool {
        if runs.place(sequence).is_none() {
            return false;
        }
        let parts = runs.parts(sequence);
        if !parts.is_empty() {
            parts.into_iter().for_each(|part| _ = self.cancel(runs, part));
            return true;
        }
        match runs.given(sequence).filter(|record| record.is_running()) {
            None => {
                let untold = runs.given(sequence).and_then(|record| record.untold());
                self.end(runs, sequence, RunEnd::Plain(End::Cancelled), untold);
            }
            Some(record) if record.cancel => {}
            Some(record) => {
                let record = GivenRecord { cancel: true, ..GivenRecord::clone(record) };
                self.goes(runs, sequence, record);
                mutant::also(Mutant::CancelUnrecorded, || {
                    self.changes.retain(|change| !matches!(change, QueueDelta::Given(..)));
                });
            }
        }
        true
    }

    pub(super) fn goes(
        &mut self,
        runs: &mut UnfinishedRuns,
        sequence: u64,
        record: GivenRecord,
    ) -> Arc<GivenRecord> {
        let record = Arc::new(GivenRecord { shared: None, ..record });
        self.change(runs, QueueDelta::Given(sequence, Arc::clone(&record)));
        record
    }

    /// The last attempt of a run never began: it waits again. If somebody wants it to end it does, since nobody has it.
    pub(super) fn withdraw(&mut self, runs: &mut UnfinishedRuns, sequence: u64) {
        let (Some(record), Some(place)) = (runs.given(sequence), runs.place(sequence)) else {
            return;
        };
        let record = record.withdrawn(place.order.due);
        if record.cancel {
            // In one step: a successor would give a run again that waits.
            self.end_of(
                runs,
                sequence,
                RunEnd::Plain(End::Cancelled),
                Some(Arc::new(record)),
                None,
            );
        } else {
            self.goes(runs, sequence, record);
        }
    }

    /// What becomes of a run, and what came of the attempt that led to it.
    pub(super) fn fate(
        &mut self,
        runs: &mut UnfinishedRuns,
        sequence: u64,
        fate: Fate,
        last: Option<Attempt>,
    ) {
        match fate {
            Fate::Goes(record) => {
                self.goes(runs, sequence, record.with_attempt(last));
            }
            Fate::Ends(end) => self.end(runs, sequence, end, last),
        }
    }

    pub(super) fn end(
        &mut self,
        runs: &mut UnfinishedRuns,
        sequence: u64,
        end: RunEnd,
        last: Option<Attempt>,
    ) {
        let given = runs.given(sequence).cloned();
        self.end_of(runs, sequence, end, given, last);
    }

    /// Ends a run of which this is to be told as what was recorded last.
    fn end_of(
        &mut self,
        runs: &mut UnfinishedRuns,
        sequence: u64,
        end: RunEnd,
        given: Option<Arc<GivenRecord>>,
        last: Option<Attempt>,
    ) {
        let (Some(run), Some(place)) = (runs.get(sequence), runs.place(sequence)) else { return };
        self.ended.push(EndedRun { run, end, given, last });
        self.change(runs, QueueDelta::Ended(place));
    }
}
