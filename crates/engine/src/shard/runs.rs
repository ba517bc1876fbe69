//! Unfinished runs of triggers: the part of a shard that knows them, and how many there may be.
//!
//! A run is open in the head from its launch on, and has a record of its own if it waits, is tried again or takes long.
//! Notices are among those with a record.
//!
//! Runs that are for a queue and wait outside it, for others of their trigger or for room, are among those with a record as
//! well. They end when workers please, so they are counted apart: they stop nothing that goes to a host, and have a
//! bound for each project.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::ops::Index;
use std::sync::Arc;

use crate::id::{ProjectId, SerialId};
use crate::instant::Instant;
use crate::limits::{
    NOTICES_PER_SHARD_MAX, OPEN_RUNS_AHEAD_MAX, OPEN_RUNS_MAX, RUNS_BEFORE_QUEUES_MAX,
    RUNS_PER_SHARD_MAX,
};

use super::command::Rejection;
use super::record::{HeadRecord, OpenRun, RunRecord};

/// Runs that wait outside a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct RunsBefore {
    /// How many there are.
    pub(super) runs: usize,
    /// How many of them are so long that what they are about will have a record of its own.
    pub(super) long: usize,
}

/// The unfinished runs of a shard.
#[derive(Default)]
pub(super) struct Runs {
    open: BTreeSet<OpenRun>,
    records: BTreeMap<u64, Arc<RunRecord>>,
    by_lane: BTreeSet<(SerialId, u64)>,
    /// How many of the records are notices.
    notices: usize,
    /// How many of the records are for a queue: all of them, by project, and by queue.
    before_queues: usize,
    before_queues_of: BTreeMap<ProjectId, usize>,
    before_queue: BTreeMap<(ProjectId, Box<str>), RunsBefore>,
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
        self.count_before_queue(&run);
        if let Some(former) = self.records.insert(sequence, run) {
            self.notices -= usize::from(former.notice.is_some());
            self.discount_before_queue(&former);
        }
    }

    pub(super) fn forget(&mut self, sequence: u64) {
        if let Some(run) = self.records.remove(&sequence) {
            self.by_lane.remove(&(run.lane(), sequence));
            self.notices -= usize::from(run.notice.is_some());
            self.discount_before_queue(&run);
        }
    }

    fn count_before_queue(&mut self, run: &RunRecord) {
        let Some(feed) = run.target.feed() else { return };
        self.before_queues += 1;
        *self.before_queues_of.entry(run.project).or_default() += 1;
        let before = self.before_queue.entry((run.project, feed.form.queue.clone())).or_default();
        before.runs += 1;
        before.long += usize::from(feed.is_long());
    }

    fn discount_before_queue(&mut self, run: &RunRecord) {
        let Some(feed) = run.target.feed() else { return };
        self.before_queues -= 1;
        if let Entry::Occupied(mut of_project) = self.before_queues_of.entry(run.project) {
            *of_project.get_mut() -= 1;
            if *of_project.get() == 0 {
                of_project.remove();
            }
        }
        let queue = (run.project, feed.form.queue.clone());
        if let Entry::Occupied(mut before) = self.before_queue.entry(queue) {
            before.get_mut().runs -= 1;
            before.get_mut().long -= usize::from(feed.is_long());
            if before.get().runs == 0 {
                before.remove();
            }
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

    /// Whether there may be so many more records of runs that go to no queue.
    fn has_room_for(&self, more: usize) -> bool {
        self.records.len() - self.before_queues + more <= RUNS_PER_SHARD_MAX
    }

    /// Whether a project may have so many more runs with a record: if they are for a queue, as many as may wait outside its
    /// queues, else as many as there is room for in the shard.
    pub(super) fn check_room(
        &self,
        project: ProjectId,
        is_for_queue: bool,
        more: usize,
    ) -> Result<(), Rejection> {
        if !is_for_queue {
            return if self.has_room_for(more) { Ok(()) } else { Err(Rejection::TooManyRuns) };
        }
        let (waiting, max) = (self.before_queues_of(project), RUNS_BEFORE_QUEUES_MAX);
        if waiting + more > max {
            return Err(Rejection::TooManyRunsBeforeQueues { waiting, max });
        }
        Ok(())
    }

    /// How many runs with a record are for queues of a project.
    pub(super) fn before_queues_of(&self, project: ProjectId) -> usize {
        self.before_queues_of.get(&project).copied().unwrap_or(0)
    }

    /// How many runs with a record are for a queue.
    pub(super) fn before_queue(&self, project: ProjectId, queue: &str) -> RunsBefore {
        if self.before_queues == 0 {
            return RunsBefore::default();
        }
        self.before_queue.get(&(project, queue.into())).copied().unwrap_or_default()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::feed::{Feed, FeedForm};
    use crate::queue::pick::Pick;
    use crate::shard::due::blank_run;
    use crate::target::Target;

    fn run(project: ProjectId, action: &str) -> Arc<RunRecord> {
        let (queue, pick) = ("mail".into(), Pick::Any);
        let form = FeedForm { queue, priority: 5, key: None, timeout_ms: None, pick };
        let target = Target::Queue(Feed { form: Arc::new(form), action: action.into() });
        let policy = crate::policy::Policy::default();
        Arc::new(blank_run(project, SerialId(1), "t", Arc::new(target), policy))
    }

    #[test]
    fn runs_that_wait_outside_queues_take_no_room_from_those_that_go_to_hosts() {
        let mut runs = Runs::new(&HeadRecord::default());
        let (short, project) = (run(ProjectId(1), "{}"), ProjectId(1));
        for sequence in 1..=RUNS_PER_SHARD_MAX as u64 {
            runs.write(sequence, &short);
        }
        assert!(!runs.is_full());
        assert_eq!(runs.check_room(project, false, 1), Ok(()));
        assert!(runs.check_room(project, true, 1).is_err());
        assert_eq!(runs.check_room(ProjectId(2), true, RUNS_BEFORE_QUEUES_MAX), Ok(()));
        assert!(runs.check_room(ProjectId(2), true, RUNS_BEFORE_QUEUES_MAX + 1).is_err());
    }

    #[test]
    fn what_waits_outside_a_queue_is_counted_through_changes_until_it_is_gone() {
        let mut runs = Runs::new(&HeadRecord::default());
        let project = ProjectId(1);
        let long = run(project, &"x".repeat(crate::limits::ACTION_INLINE_BYTES_MAX + 1));
        runs.write(1, &run(project, "{}"));
        runs.write(2, &long);
        runs.write(2, &long);
        assert_eq!(runs.before_queue(project, "mail"), RunsBefore { runs: 2, long: 1 });
        assert_eq!(runs.before_queue(project, "post"), RunsBefore::default());
        assert_eq!(runs.before_queue(ProjectId(2), "mail"), RunsBefore::default());
        runs.forget(2);
        runs.forget(2);
        assert_eq!(runs.before_queue(project, "mail"), RunsBefore { runs: 1, long: 0 });
        runs.forget(1);
        assert_eq!(runs.before_queue(project, "mail"), RunsBefore::default());
        assert!(runs.before_queue.is_empty() && runs.before_queues_of.is_empty());
    }
}
