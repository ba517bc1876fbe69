//! Questions about a run that is not finished, whether it is open in the head or has a record.

use std::sync::Arc;
use std::time::Duration;

use crate::id::Unique;
use crate::instant::Instant;
use crate::policy::Policy;

use super::attempts::{Phase, RunRef};
use super::memory::Change;
use super::record::{RunRecord, RunState};
use super::{Now, Shard};

impl Shard {
    /// Whether a run has not ended.
    pub(super) fn is_unfinished(&self, run: RunRef) -> bool {
        match run {
            RunRef::Open(open) => self.memory.open.contains(&open),
            RunRef::Record(sequence) => self.memory.runs.contains_key(&sequence),
        }
    }

    /// Whether no attempt of a run can have left, under this owner or another.
    pub(super) fn is_untouched(&self, run: RunRef) -> bool {
        if self.attempts.doubts.contains_key(&run) {
            return false;
        }
        match self.attempts.key_of(run).map(|key| &self.attempts.tries[&key]) {
            Some(attempt) => {
                attempt.number == 1 && !attempt.is_doubtful && attempt.phase != Phase::Left
            }
            None => self.number_of(run) == 0,
        }
    }

    /// Whether an attempt of a run may have left under a predecessor, and nobody knows what came of it.
    pub(super) fn is_doubtful(&self, run: RunRef) -> bool {
        let key = self.attempts.key_of(run);
        self.attempts.doubts.contains_key(&run)
            || key.is_some_and(|key| self.attempts.tries[&key].is_doubtful)
    }

    /// Whether an attempt of a run is made by a former owner that will report.
    pub(super) fn is_remote(&self, run: RunRef) -> bool {
        match run {
            RunRef::Open(_) => false,
            RunRef::Record(sequence) => {
                self.attempts.remote.contains(&(self.memory.runs[&sequence].lane(), sequence))
            }
        }
    }

    /// Runs of a lane may have to wait for each other.
    pub(super) fn lane_of(&self, run: RunRef) -> Unique {
        match run {
            RunRef::Open(open) => open.trigger,
            RunRef::Record(sequence) => self.memory.runs[&sequence].lane(),
        }
    }

    /// Takes a run out of head or records, and out of what waits.
    pub(super) fn forget(&mut self, run: RunRef) -> Change {
        self.attempts.doubts.remove(&run);
        match run {
            RunRef::Open(open) => Change::Shut(open),
            RunRef::Record(sequence) => {
                let record = Arc::clone(&self.memory.runs[&sequence]);
                self.attempts.remote.remove(&(record.lane(), sequence));
                self.attempts.unwait(sequence, &record);
                Change::RunGone(sequence)
            }
        }
    }

    /// The number of the attempt that is under way, or was last.
    pub(super) fn number_of(&self, run: RunRef) -> u32 {
        if let Some(key) = self.attempts.key_of(run) {
            return self.attempts.tries[&key].number;
        }
        match run {
            RunRef::Open(_) => 1,
            RunRef::Record(sequence) => self.memory.runs[&sequence].attempt,
        }
    }

    /// Whether an attempt of a run has left.
    pub(super) fn has_left(&self, run: RunRef) -> bool {
        let key = self.attempts.key_of(run);
        key.is_some_and(|key| self.attempts.tries[&key].phase == Phase::Left)
    }

    /// Whether an attempt of this trigger may leave or has left.
    pub(super) fn is_under_way(&self, unique: Unique) -> bool {
        let mut tries = self.attempts.tries.values();
        tries.any(|attempt| attempt.trigger == unique && attempt.phase != Phase::Decided)
            || self.attempts.has_others_left(unique)
    }

    /// Runs whose attempt has not left.
    pub(super) fn unsent(&self) -> Vec<RunRef> {
        let unsent = self.attempts.tries.values().filter(|attempt| attempt.phase != Phase::Left);
        unsent.map(|attempt| attempt.run).collect()
    }

    /// Drops the attempt of a run that has not left.
    pub(super) fn drop_attempt(&mut self, run: RunRef) {
        if let Some(key) = self.attempts.key_of(run) {
            self.attempts.remove(key);
        }
    }

    /// What a run is, whether or not it has a record.
    pub(super) fn record_of(&self, run: RunRef) -> RunRecord {
        match run {
            RunRef::Record(sequence) => (*self.memory.runs[&sequence]).clone(),
            RunRef::Open(open) => {
                let trigger = self.memory.trigger(open.trigger).expect("an open run's trigger");
                let leaves = trigger.leaves(open.slot);
                trigger.run_record(open.slot, leaves, RunState::Running)
            }
        }
    }

    pub(super) fn policy_of(&self, run: RunRef) -> Policy {
        match run {
            RunRef::Record(sequence) => self.memory.runs[&sequence].policy,
            RunRef::Open(open) => {
                *self.memory.trigger(open.trigger).expect("an open run's trigger").policy()
            }
        }
    }

    pub(super) fn leaves_of(&self, run: RunRef) -> Instant {
        match run {
            RunRef::Record(sequence) => self.memory.runs[&sequence].leaves,
            RunRef::Open(open) => {
                let trigger = self.memory.trigger(open.trigger).expect("an open run's trigger");
                trigger.leaves(open.slot)
            }
        }
    }

    pub(super) fn tries_of(&self, run: RunRef) -> u32 {
        match run {
            RunRef::Record(sequence) => self.memory.runs[&sequence].tries,
            RunRef::Open(_) => 0,
        }
    }

    pub(super) fn is_too_late(&self, run: RunRef, policy: &Policy, now: Now) -> bool {
        let Some(max) = policy.max_lateness_ms else { return false };
        self.leaves_of(run).after(Duration::from_millis(max)) < now.wall
    }
}
