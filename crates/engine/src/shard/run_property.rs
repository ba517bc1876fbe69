//! Properties of a run that is not finished, whether it is open in the head or has a record.

use crate::id::SerialId;
use crate::instant::Instant;
use crate::policy::Policy;

use super::attempts::{LiveAttempt, RunRef};
use super::memory::Delta;
use super::record::{OpenRun, RunRecord, RunState};
use super::triggers::Trigger;
use super::{Now, Shard};

impl Shard {
    /// Reads a property of a run from its trigger, while it is open, or from its record.
    pub(super) fn run_property<T>(
        &self,
        run: RunRef,
        open: impl FnOnce(&Trigger, OpenRun) -> T,
        record: impl FnOnce(&RunRecord) -> T,
    ) -> T {
        match run {
            RunRef::Open(run) => {
                open(self.triggers.get(run.trigger).expect("an open run's trigger"), run)
            }
            RunRef::Record(sequence) => record(&self.runs[sequence]),
        }
    }

    /// What a run is, whether or not it has a record.
    pub(super) fn record_of(&self, run: RunRef) -> RunRecord {
        let open = |trigger: &Trigger, run: OpenRun| {
            trigger.run_record(run.slot, trigger.leaves_at(run.slot), RunState::Running)
        };
        self.run_property(run, open, Clone::clone)
    }

    pub(super) fn policy_of(&self, run: RunRef) -> Policy {
        self.run_property(run, |trigger, _| *trigger.policy(), |record| record.policy)
    }

    pub(super) fn run_leaves_at(&self, run: RunRef) -> Instant {
        self.run_property(
            run,
            |trigger, run| trigger.leaves_at(run.slot),
            |record| record.leaves_at,
        )
    }

    /// Runs of a lane may have to wait for each other.
    pub(super) fn lane_of(&self, run: RunRef) -> SerialId {
        self.run_property(run, |trigger, _| trigger.serial, RunRecord::lane)
    }

    /// The number of the attempt that is under way, or was last.
    pub(super) fn number_of(&self, run: RunRef) -> u32 {
        match self.attempts.of(run) {
            Some(attempt) => attempt.number,
            None => self.run_property(run, |_, _| 1, |record| record.attempt),
        }
    }

    pub(super) fn is_too_late(&self, run: RunRef, policy: &Policy, now: Now) -> bool {
        policy.is_too_late(self.run_leaves_at(run), now.wall)
    }

    /// Whether a run has not ended.
    pub(super) fn is_unfinished(&self, run: RunRef) -> bool {
        match run {
            RunRef::Open(open) => self.runs.is_open(open),
            RunRef::Record(sequence) => self.runs.get(sequence).is_some(),
        }
    }

    /// Whether no attempt of a run can have left, under this owner or another.
    pub(super) fn is_untouched(&self, run: RunRef) -> bool {
        !self.is_doubtful(run)
            && match self.attempts.of(run) {
                Some(attempt) => attempt.number == 1 && !attempt.has_left(),
                None => self.number_of(run) == 0,
            }
    }

    /// Whether an attempt of a run may have left under a predecessor, and nobody knows what came of it.
    pub(super) fn is_doubtful(&self, run: RunRef) -> bool {
        self.attempts.in_doubt_until(run).is_some()
            || self.attempts.of(run).is_some_and(|attempt| attempt.is_doubtful)
    }

    /// Whether an attempt of a run is made by a former owner that will report.
    pub(super) fn is_remote(&self, run: RunRef) -> bool {
        self.attempts.is_remote(self.lane_of(run), run)
    }

    /// Whether an attempt of a run has left.
    pub(super) fn has_left(&self, run: RunRef) -> bool {
        self.attempts.of(run).is_some_and(LiveAttempt::has_left)
    }

    /// Runs whose attempt has not left.
    pub(super) fn unsent(&self) -> Vec<RunRef> {
        let unsent = self.attempts.iter().filter(|(_, attempt)| !attempt.has_left());
        unsent.map(|(_, attempt)| attempt.run).collect()
    }

    /// Takes a run out of head or records, and out of what waits.
    pub(super) fn forget(&mut self, run: RunRef) -> Delta {
        self.attempts.clear_doubt(self.lane_of(run), run);
        match run {
            RunRef::Open(open) => Delta::Shut(open),
            RunRef::Record(sequence) => {
                self.waiting.remove(sequence, &self.runs[sequence]);
                Delta::RunGone(sequence)
            }
        }
    }
}
