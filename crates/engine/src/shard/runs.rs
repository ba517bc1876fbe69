//! Unfinished runs of triggers: the part of a shard that knows them, and how many there may be.
//!
//! A run is open in the head from its launch on, and has a record of its own if it waits, is tried again or takes long.
//! Notices are among those with a record.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Index;
use std::sync::Arc;

use crate::id::SerialId;
use crate::instant::Instant;
use crate::limits::{
    NOTICES_PER_SHARD_MAX, OPEN_RUNS_AHEAD_MAX, OPEN_RUNS_MAX, RUNS_PER_SHARD_MAX,
};

use super::record::{HeadRecord, OpenRun, RunRecord};

/// The unfinished runs of a shard.
#[derive(Default)]
pub(super) struct Runs {
    open: BTreeSet<OpenRun>,
    records: BTreeMap<u64, Arc<RunRecord>>,
    by_lane: BTreeSet<(SerialId, u64)>,
    /// How many of the records are notices.
    notices: usize,
    /// The last number given to a record.
    sequence: u64,
}

/// What [`super::memory::apply`] does.
impl Runs {
    pub(super) fn new(head: &HeadRecord) -> Self {
        Self { sequence: head.sequence, ..Self::default() }
    }

    pub(super) fn open(&mut self, run: OpenRun) {
        self.open.insert(run);
    }

    pub(super) fn shut(&mut self, run: OpenRun) {
        self.open.remove(&run);
    }

    /// No number up to this one is given again.
    pub(super) fn numbered(&mut self, sequence: u64) {
        self.sequence = self.sequence.max(sequence);
    }

    pub(super) fn write(&mut self, sequence: u64, run: &Arc<RunRecord>) {
        self.numbered(sequence);
        let run = self.sharing(run);
        self.by_lane.insert((run.lane(), sequence));
        self.notices += usize::from(run.notice.is_some());
        let former = self.records.insert(sequence, run);
        self.notices -= usize::from(former.is_some_and(|former| former.notice.is_some()));
    }

    pub(super) fn forget(&mut self, sequence: u64) {
        if let Some(run) = self.records.remove(&sequence) {
            self.by_lane.remove(&(run.lane(), sequence));
            self.notices -= usize::from(run.notice.is_some());
        }
    }

    /// A run that shares its target with another one of its trigger: a hundred thousand may wait.
    fn sharing(&self, run: &Arc<RunRecord>) -> Arc<RunRecord> {
        let other =
            self.recorded_of(run.lane()).next().map(|sequence| &self.records[&sequence].target);
        match other {
            Some(target) if !Arc::ptr_eq(target, &run.target) && *target == run.target => {
                Arc::new(RunRecord { target: Arc::clone(target), ..(**run).clone() })
            }
            Some(_) | None => Arc::clone(run),
        }
    }
}

impl Runs {
    pub(super) fn len(&self) -> usize {
        self.open.len() + self.records.len()
    }

    /// Whether no slot is decided until a run has ended: lateness, never loss.
    pub(super) fn is_full(&self) -> bool {
        self.open.len() >= OPEN_RUNS_MAX || !self.has_room_for(1)
    }

    /// Whether there may be so many more records.
    pub(super) fn has_room_for(&self, more: usize) -> bool {
        self.records.len() + more <= RUNS_PER_SHARD_MAX
    }

    pub(super) fn has_room_ahead(&self) -> bool {
        self.open.len() < OPEN_RUNS_AHEAD_MAX
    }

    pub(super) fn has_room_for_notice(&self) -> bool {
        self.notices < NOTICES_PER_SHARD_MAX
    }

    pub(super) fn get(&self, sequence: u64) -> Option<&Arc<RunRecord>> {
        self.records.get(&sequence)
    }

    /// All that have a record.
    pub(super) fn recorded(&self) -> impl Iterator<Item = &Arc<RunRecord>> {
        self.records.values()
    }

    pub(super) fn next_sequence(&self) -> u64 {
        self.sequence + 1
    }

    pub(super) fn is_open(&self, run: OpenRun) -> bool {
        self.open.contains(&run)
    }

    pub(super) fn all_open(&self) -> Vec<OpenRun> {
        self.open.iter().copied().collect()
    }

    pub(super) fn sequences(&self) -> Vec<u64> {
        self.records.keys().copied().collect()
    }

    pub(super) fn open_of(&self, serial: SerialId) -> impl Iterator<Item = OpenRun> {
        let from = OpenRun { trigger: serial, slot: Instant(i64::MIN) };
        let to = OpenRun { trigger: serial, slot: Instant(i64::MAX) };
        self.open.range(from..=to).copied()
    }

    /// The unfinished runs of a trigger that have a record, but for notices.
    pub(super) fn recorded_of(&self, serial: SerialId) -> impl Iterator<Item = u64> {
        self.by_lane.range((serial, 0)..=(serial, u64::MAX)).map(|(_, sequence)| *sequence)
    }
}

impl Index<u64> for Runs {
    type Output = Arc<RunRecord>;

    /// The record of this number, which is there.
    fn index(&self, sequence: u64) -> &Self::Output {
        &self.records[&sequence]
    }
}
