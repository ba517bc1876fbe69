//! Runs that wait: for an instant, for another run of their trigger, for a successor.

use std::sync::Arc;

use crate::id::Unique;
use crate::limits::OPEN_MS_MAX;
use crate::mutant::{Mutant, pick};
use crate::past::End;
use crate::policy::Overlap;

use super::attempts::RunRef;
use super::backpressure::Load;
use super::record::{OpenRun, RunRecord, RunState};
use super::{Now, Shard};

impl Shard {
    /// Something of this trigger has ended: what waited for that may go on.
    pub(super) fn unblock(&mut self, unique: Unique, now: Now) {
        let blocked: Vec<u64> = self
            .attempts
            .blocked
            .range((unique, 0)..=(unique, u64::MAX))
            .map(|(_, key)| *key)
            .collect();
        for key in blocked {
            self.attempts.blocked.remove(&(unique, key));
            let leaves = self.attempts.tries[&key].leaves;
            self.attempts.leaving.insert((leaves, key));
        }
        let blocked_runs: Vec<u64> = self
            .attempts
            .blocked_runs
            .range((unique, 0)..=(unique, u64::MAX))
            .map(|(_, sequence)| *sequence)
            .collect();
        for sequence in blocked_runs {
            // One that starts may end at once, and that may have started or ended this one.
            if self.attempts.blocked_runs.contains(&(unique, sequence)) {
                self.start(sequence, now);
            }
        }
    }

    /// Starts what waits for others of its trigger that ended before anybody noticed.
    pub(super) fn unblock_all(&mut self, now: Now) {
        let mut triggers: Vec<Unique> =
            self.attempts.blocked_runs.iter().map(|(unique, _)| *unique).collect();
        triggers.dedup();
        for unique in triggers {
            self.unblock(unique, now);
        }
    }

    /// Starts the runs whose time to wait is over, unless there is too much for their host: a record shows an
    /// attempt only when it can leave.
    pub(super) fn pump(&mut self, now: Now) {
        self.unpark(now);
        while let Some(&(at, sequence)) = self.attempts.waiting.first() {
            if at > now.wall {
                break;
            }
            self.attempts.waiting.remove(&(at, sequence));
            let origin = self.memory.runs[&sequence].webhook.form.origin();
            if self.backpressure.load(origin) == Load::Free && self.attempts.may_start(origin) {
                self.start(sequence, now);
            } else {
                self.attempts.park(origin, at, sequence);
            }
        }
    }

    /// Begins the next attempt of a run that waits, unless it has to wait for another one.
    fn start(&mut self, sequence: u64, now: Now) {
        let record = Arc::clone(&self.memory.runs[&sequence]);
        let (unique, policy) = (record.lane(), &record.policy);
        let run = RunRef::Record(sequence);
        self.attempts.unwait(sequence, &record);
        if self.is_disabled(record.project) {
            self.attempts.stopped.insert(sequence);
            return;
        }
        if record.attempt == 0 && self.is_too_late(run, policy, now) {
            return self.end(run, End::Expired, 0, None, now);
        }
        if self.is_stopping() {
            return;
        }
        let is_blocked = record.state == RunState::Blocked;
        if policy.overlap != Overlap::Allow && self.has_to_wait(run, unique, is_blocked) {
            self.attempts.blocked_runs.insert((unique, sequence));
            return;
        }
        let Some(record) = self.address(sequence, now) else { return };
        let number = record.attempt + 1;
        let leaves = match record.state {
            RunState::Waiting(at) | RunState::Backoff(at) => record.leaves.max(at),
            RunState::Blocked | RunState::Running => record.leaves,
        };
        let key = self.attempts.begin(run, unique, number, leaves);
        let record = RunRecord { state: RunState::Running, attempt: number, ..(*record).clone() };
        self.write_run(run, record, Some(key), now);
    }

    /// Whether another run of a trigger keeps this one from starting.
    fn has_to_wait(&self, run: RunRef, unique: Unique, is_blocked: bool) -> bool {
        self.active(unique).into_iter().any(|other| {
            let is_under_way = self.attempts.by_run.contains_key(&other)
                || self.attempts.doubts.contains_key(&other);
            other != run && (is_blocked || is_under_way)
        })
    }

    /// Gives open runs that take long a record of their own.
    pub(super) fn write_out(&mut self, now: Now) {
        while let Some(&(since, key)) = self.attempts.opened.front() {
            if now.steady.saturating_sub(since) <= OPEN_MS_MAX {
                break;
            }
            self.attempts.opened.pop_front();
            if let Some(attempt) = self.attempts.tries.get(&key)
                && let RunRef::Open(open) = attempt.run
            {
                self.write_out_run(open, now);
            }
        }
    }

    /// Gives an open run a record of its own, which says that its attempt may have left.
    pub(super) fn write_out_run(&mut self, open: OpenRun, now: Now) {
        let run = RunRef::Open(open);
        let mut record = self.record_of(run);
        record.state = RunState::Running;
        record.attempt = self.number_of(run);
        let sequence = self.write_run(run, record, None, now);
        let run_now = RunRef::Record(sequence);
        if let Some(key) = self.attempts.by_run.remove(&run) {
            self.attempts.by_run.insert(run_now, key);
            self.attempts.tries.get_mut(&key).expect("indexed").run = run_now;
        }
        if let Some(until) = self.attempts.doubts.remove(&run) {
            self.attempts.doubts.insert(run_now, until);
        }
    }

    /// Begins an attempt for a run in doubt.
    pub(super) fn begin_in_doubt(&mut self, run: RunRef, now: Now) {
        let mut record = self.record_of(run);
        record.state = RunState::Running;
        record.attempt = self.number_of(run) + pick(Mutant::AttemptNumberAfter, 1, 0);
        record.remote = None;
        let (number, unique) = (record.attempt, record.lane());
        let leaves = pick(Mutant::EarlyAtSuccessor, record.leaves, now.wall);
        let key = self.attempts.begin(run, unique, number, leaves);
        let sequence = self.write_run(run, record, Some(key), now);
        self.attempts.by_run.remove(&run);
        self.attempts.by_run.insert(RunRef::Record(sequence), key);
        let attempt = self.attempts.tries.get_mut(&key).expect("just begun");
        attempt.run = RunRef::Record(sequence);
        attempt.is_doubtful = true;
    }

    /// Takes an attempt back that has not left: its run waits again.
    pub(super) fn put_back(&mut self, run: RunRef, now: Now) {
        let Some(attempt) = self.attempts.key_of(run).and_then(|key| self.attempts.remove(key))
        else {
            return;
        };
        let mut record = self.record_of(run);
        record.attempt = attempt.number - 1;
        record.state = match (attempt.is_doubtful, record.attempt) {
            (true, _) => RunState::Running,
            (false, 0) => RunState::Waiting(attempt.leaves),
            (false, _) => RunState::Backoff(attempt.leaves),
        };
        let sequence = self.write_run(run, record, None, now);
        if attempt.is_doubtful {
            self.attempts.doubts.insert(RunRef::Record(sequence), u64::MAX);
        }
    }
}
