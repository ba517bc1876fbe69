//! Runs that wait: for an instant, for another run of their trigger, for a successor.

use std::sync::Arc;

use crate::id::Unique;
use crate::limits::OPEN_MS_MAX;
use crate::mutant::{self, Mutant};
use crate::past::End;
use crate::policy::Overlap;

use super::backpressure::Load;
use super::flight::RunRef;
use super::record::{OpenRun, RunRecord, RunState};
use super::{Now, Shard};

impl Shard {
    /// Something of this trigger has ended: what waited for that may go on.
    pub(super) fn unblock(&mut self, unique: Unique, now: Now) {
        let blocked: Vec<u64> = self
            .flight
            .blocked
            .range((unique, 0)..=(unique, u64::MAX))
            .map(|(_, key)| *key)
            .collect();
        for key in blocked {
            self.flight.blocked.remove(&(unique, key));
            let leaves = self.flight.tries[&key].leaves;
            self.flight.leaving.insert((leaves, key));
        }
        let blocked_runs: Vec<u64> = self
            .flight
            .blocked_runs
            .range((unique, 0)..=(unique, u64::MAX))
            .map(|(_, sequence)| *sequence)
            .collect();
        for sequence in blocked_runs {
            // One that starts may end at once, and that may have started or ended this one.
            if self.flight.blocked_runs.contains(&(unique, sequence)) {
                self.start(sequence, now);
            }
        }
    }

    /// Starts what waits for others of its trigger that ended before anybody noticed.
    pub(super) fn unblock_all(&mut self, now: Now) {
        let mut triggers: Vec<Unique> =
            self.flight.blocked_runs.iter().map(|(unique, _)| *unique).collect();
        triggers.dedup();
        for unique in triggers {
            self.unblock(unique, now);
        }
    }

    /// Starts the runs whose time to wait is over, unless there is too much for their host: a record shows an
    /// attempt only when it can leave.
    pub(super) fn pump(&mut self, now: Now) {
        self.unpark(now);
        while let Some(&(at, sequence)) = self.flight.waiting.first() {
            if at > now.wall {
                break;
            }
            self.flight.waiting.remove(&(at, sequence));
            let origin = self.memory.runs[&sequence].webhook.form.origin();
            if self.backpressure.load(origin) == Load::Free && self.flight.may_start(origin) {
                self.start(sequence, now);
            } else {
                self.flight.park(origin, at, sequence);
            }
        }
    }

    /// Begins the next attempt of a run that waits, unless it has to wait for another one.
    fn start(&mut self, sequence: u64, now: Now) {
        let record = Arc::clone(&self.memory.runs[&sequence]);
        let (unique, policy) = (record.lane(), &record.policy);
        let run = RunRef::Record(sequence);
        self.flight.unwait(sequence, &record);
        if self.is_disabled(record.project) {
            self.flight.stopped.insert(sequence);
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
            self.flight.blocked_runs.insert((unique, sequence));
            return;
        }
        let Some(record) = self.address(sequence, now) else { return };
        let number = record.attempt + 1;
        let leaves = match record.state {
            RunState::Waiting(at) | RunState::Backoff(at) => record.leaves.max(at),
            RunState::Blocked | RunState::Running => record.leaves,
        };
        let key = self.flight.begin(run, unique, number, leaves);
        let record = RunRecord { state: RunState::Running, attempt: number, ..(*record).clone() };
        self.write_run(run, record, Some(key), now);
    }

    /// Whether another run of a trigger keeps this one from starting.
    fn has_to_wait(&self, run: RunRef, unique: Unique, is_blocked: bool) -> bool {
        self.active(unique).into_iter().any(|other| {
            let is_under_way =
                self.flight.by_run.contains_key(&other) || self.flight.doubts.contains_key(&other);
            other != run && (is_blocked || is_under_way)
        })
    }

    /// Gives open runs that take long a record of their own.
    pub(super) fn write_out(&mut self, now: Now) {
        while let Some(&(since, key)) = self.flight.opened.front() {
            if now.steady.saturating_sub(since) <= OPEN_MS_MAX {
                break;
            }
            self.flight.opened.pop_front();
            if let Some(attempt) = self.flight.tries.get(&key)
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
        if let Some(key) = self.flight.by_run.remove(&run) {
            self.flight.by_run.insert(run_now, key);
            self.flight.tries.get_mut(&key).expect("indexed").run = run_now;
        }
        if let Some(until) = self.flight.doubts.remove(&run) {
            self.flight.doubts.insert(run_now, until);
        }
    }

    /// Begins an attempt for a run in doubt.
    pub(super) fn begin_in_doubt(&mut self, run: RunRef, now: Now) {
        let mut record = self.record_of(run);
        record.state = RunState::Running;
        record.attempt = self.number_of(run) + 1;
        record.remote = None;
        if mutant::active(Mutant::AttemptNumberAfter) {
            record.attempt -= 1;
        }
        let (number, unique) = (record.attempt, record.lane());
        let early = mutant::active(Mutant::EarlyAtSuccessor);
        let leaves = if early { now.wall } else { record.leaves };
        let key = self.flight.begin(run, unique, number, leaves);
        let sequence = self.write_run(run, record, Some(key), now);
        self.flight.by_run.remove(&run);
        self.flight.by_run.insert(RunRef::Record(sequence), key);
        let attempt = self.flight.tries.get_mut(&key).expect("just begun");
        attempt.run = RunRef::Record(sequence);
        attempt.is_doubtful = true;
    }

    /// Takes an attempt back that has not left: its run waits again.
    pub(super) fn put_back(&mut self, run: RunRef, now: Now) {
        let Some(attempt) = self.flight.key_of(run).and_then(|key| self.flight.remove(key)) else {
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
            self.flight.doubts.insert(RunRef::Record(sequence), u64::MAX);
        }
    }
}
