//! How runs that wait are started, and how runs that cannot leave yet go back to waiting.

use std::sync::Arc;

use crate::id::SerialId;
use crate::mutant::{Mutant, pick};
use crate::past::End;
use crate::policy::Overlap;

use super::attempts::{LiveAttempt, RunRef};
use super::lag::HostRoomOf;
use super::record::{OpenRun, RunRecord, RunState};
use super::{Now, Shard};

impl Shard {
    /// Something of this trigger has ended: what waited for that may go on.
    pub(super) fn unblock(&mut self, serial: SerialId, now: Now) {
        self.attempts.unblock(serial);
        for sequence in self.waiting.blocked_of(serial) {
            // One that starts may end at once, and that may have started or ended this one.
            if self.waiting.is_blocked(serial, sequence) {
                self.start(sequence, now);
            }
        }
    }

    /// Starts what waits for others of its trigger that ended before anybody noticed.
    pub(super) fn unblock_all(&mut self, now: Now) {
        for serial in self.waiting.blocked_triggers() {
            self.unblock(serial, now);
        }
    }

    /// Starts the runs whose time to wait is over, unless their host has no room or others wait for it: a record shows
    /// an attempt only when it can leave.
    pub(super) fn start_due_runs(&mut self, room: HostRoomOf<'_>, now: Now) {
        while let Some((at, sequence)) = self.waiting.next_due(now) {
            let record = &self.runs[sequence];
            if record.target.feed().is_some() {
                self.start(sequence, now);
                continue;
            }
            let (host, delivery) = (record.target.origin(), record.policy.delivery);
            if !self.waiting.waits_for(host) && self.has_room(host, delivery, room) {
                self.start(sequence, now);
            } else {
                self.waiting.park(host, (at, sequence));
                self.attempts.touch(host);
            }
        }
    }

    /// Begins the next attempt of a run that waits, unless it has to wait for another one.
    pub(super) fn start(&mut self, sequence: u64, now: Now) {
        let record = Arc::clone(&self.runs[sequence]);
        let (serial, policy) = (record.lane(), &record.policy);
        let run = RunRef::Record(sequence);
        self.waiting.remove(sequence, &record);
        if self.is_disabled(record.project) {
            self.waiting.stop(sequence);
            return;
        }
        if record.attempt == 0 && self.is_too_late(run, policy, now) {
            return self.end(run, End::Expired, 0, None, now);
        }
        if self.is_stopping() {
            return;
        }
        let is_blocked = record.state == RunState::Blocked;
        if policy.overlap != Overlap::Allow && self.has_to_wait(run, serial, is_blocked) {
            self.waiting.block(serial, sequence);
            return;
        }
        if record.target.feed().is_some() {
            return self.enqueue_recorded(sequence, &record, now);
        }
        let Some(record) = self.address(sequence, now) else { return };
        let number = record.attempt + 1;
        let leaves_at = match record.state {
            RunState::Waiting(at) | RunState::Backoff(at) => record.leaves_at.max(at),
            RunState::Blocked | RunState::Running => record.leaves_at,
        };
        let host = Some(record.target.origin());
        let key = self.attempts.begin(LiveAttempt::new(run, serial, number, leaves_at, host));
        let record = RunRecord { state: RunState::Running, attempt: number, ..(*record).clone() };
        self.write_run(run, record, Some(key), now);
    }

    /// Whether another run of a trigger keeps this one from starting.
    fn has_to_wait(&self, run: RunRef, serial: SerialId, is_blocked: bool) -> bool {
        self.has_queued_run(serial) || self.is_beside_another(run, serial, is_blocked)
    }

    fn is_beside_another(&self, run: RunRef, serial: SerialId, is_blocked: bool) -> bool {
        self.active(serial).into_iter().any(|other| {
            let is_under_way =
                self.attempts.of(other).is_some() || self.attempts.in_doubt_until(other).is_some();
            other != run && (is_blocked || is_under_way)
        })
    }

    /// Gives open runs that take long a record of their own.
    pub(super) fn write_out(&mut self, now: Now) {
        while let Some(open) = self.attempts.next_long_open(now) {
            self.write_out_run(open, now);
        }
    }

    /// Gives an open run a record of its own, which says that its attempt may have left.
    pub(super) fn write_out_run(&mut self, open: OpenRun, now: Now) {
        let run = RunRef::Open(open);
        let mut record = self.record_of(run);
        record.state = RunState::Running;
        record.attempt = self.number_of(run);
        let sequence = self.write_run(run, record, None, now);
        self.attempts.rename(run, RunRef::Record(sequence));
    }

    /// Begins an attempt for a run in doubt.
    pub(super) fn begin_in_doubt(&mut self, run: RunRef, now: Now) {
        let mut record = self.record_of(run);
        record.state = RunState::Running;
        record.attempt = self.number_of(run) + pick(Mutant::AttemptNumberAfter, 1, 0);
        record.remote = None;
        let (number, serial) = (record.attempt, record.lane());
        let leaves_at = pick(Mutant::EarlyAtSuccessor, record.leaves_at, now.wall);
        let host = Some(record.target.origin());
        let mut attempt = LiveAttempt::new(run, serial, number, leaves_at, host);
        attempt.is_doubtful = true;
        let key = self.attempts.begin(attempt);
        let sequence = self.write_run(run, record, Some(key), now);
        self.attempts.rename(run, RunRef::Record(sequence));
    }

    /// Takes an attempt back that has not left: its run waits for a successor.
    pub(super) fn put_back(&mut self, run: RunRef, now: Now) {
        let Some(attempt) = self.attempts.remove_of(run) else { return };
        let mut record = self.record_of(run);
        record.attempt = attempt.number - 1;
        record.state = match (attempt.is_doubtful, record.attempt) {
            (true, _) => RunState::Running,
            (false, 0) => RunState::Waiting(attempt.leaves_at),
            (false, _) => RunState::Backoff(attempt.leaves_at),
        };
        let sequence = self.write_run(run, record, None, now);
        self.waiting.remove(sequence, &self.runs[sequence]);
        if attempt.is_doubtful {
            self.attempts.doubt(RunRef::Record(sequence), u64::MAX);
        }
    }
}
