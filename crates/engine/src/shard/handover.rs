//! Attempts that a former owner makes, and how a shard is handed over while they are under way.
//!
//! A shard may go from one node to another while both are there. The old owner decides nothing more and takes back
//! what has not left ([`Shard::begin_handover`]), and its node recalls what it has not begun to send. Then all that has left
//! gets a record, which says who makes the attempt and how much longer that may take ([`Shard::hand_over_attempts`]). Once
//! that is written, one more commit names the new owner, and the old one's memory is dropped. Attempts and answers
//! belong to the node: it goes on listening, and writes what comes of each as a report below the shard.
//!
//! The new owner counts such a run as running and leaves it alone, until the report is there, until its time is over
//! by the new owner's own steady clock, or until its sender is gone. After the last two it is in doubt, like whatever
//! else a predecessor left. A report is taken only for the sender and the attempt that the record names, and goes in
//! the unit that says what came of it: so it is taken once, whoever crashes when.
//!
//! If the new owner is gone before it is named, its predecessor writes all the same what it has decided, drops its
//! memory, and reads the shard anew. Then it is a former owner itself, and its own reports come by the store.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::instant::Instant;
use crate::limits::RESULT_WAIT_MS;
use crate::mutant::{Mutant, also, pick};

use super::attempts::{LiveAttempt, RunRef};
use super::memory::Delta;
use super::record::{self, RemoteAttempt, ReportRecord, RunRecord, RunState};
use super::{Course, Now, Put, Shard, Unit};

/// What the report of an attempt is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HandedOverAttempt {
    /// The number of its run's record.
    pub sequence: u64,
    /// Attempt number, from 1.
    pub attempt: u32,
}

/// How long a report may be on its way.
const REPORT_MS: u64 = 1_000;

/// How long (steady) to wait for an attempt that may take so much longer by the clock of its sender, which may run
/// slower than ours.
fn patience_ms(left_ms: u32, now: Now) -> u64 {
    let until_deadline = left_ms.wrapping_sub(low_half(now.wall)).cast_signed().max(0);
    let left_ms = u64::from(left_ms);
    let patience_ms = pick(Mutant::PatienceOfTimeLeft, (left_ms * 5).div_ceil(4), left_ms);
    let patience_ms = pick(Mutant::PatienceForEver, patience_ms, 86_400_000);
    pick(Mutant::RemoteDeadline, patience_ms, until_deadline.unsigned_abs().into()) + REPORT_MS
}

/// The time left that gives at least this patience.
fn time_left(patience_ms: u64) -> u32 {
    let left_ms = patience_ms.saturating_sub(REPORT_MS).saturating_mul(4).div_ceil(5);
    u32::try_from(left_ms).unwrap_or(u32::MAX)
}

/// What a mutant takes for an instant.
fn low_half(at: Instant) -> u32 {
    u32::try_from(at.0.rem_euclid(1 << 32)).expect("a half")
}

/// What the old owner does.
impl Shard {
    /// A hand-over begins: nothing new is decided any more, and what has not left is taken back.
    pub fn begin_handover(&mut self, now: Now) {
        let unsent = pick(Mutant::RemoteNeverLeft, self.unsent(), Vec::new());
        self.stop_taking_back(pick(Mutant::LeavesAfterHandoverBegins, unsent, Vec::new()), now);
    }

    /// Gives all that has left a record which says that this session makes its attempt, and tells by the key of each
    /// where its report goes. What is in doubt gets a record that says so. Nothing is decided any more, and nobody may
    /// ask for anything: it remains to write this, in batches until [`Shard::is_settled`], and then to name the new
    /// owner with [`Shard::head`].
    ///
    /// No report may be written before all of this is, and none at all if it never is: then the number of a run may be
    /// given to another one.
    pub fn hand_over_attempts(&mut self, sender: &str, now: Now) -> Vec<(u64, HandedOverAttempt)> {
        let is_sent =
            |attempt: &LiveAttempt| pick(Mutant::RemoteNeverLeft, attempt.has_left(), true);
        let sent = self.attempts.iter().filter(|(_, attempt)| is_sent(attempt));
        let keys: Vec<u64> = sent.map(|(key, _)| key).collect();
        let handed_over =
            keys.into_iter().map(|key| (key, self.send_one(key, sender, now))).collect();
        self.write_doubts(now);
        self.course = Course::HandedOver;
        assert!(
            self.runs.all_open().is_empty(),
            "what is open has left, was taken back, or is in doubt"
        );
        handed_over
    }

    fn send_one(&mut self, key: u64, sender: &str, now: Now) -> HandedOverAttempt {
        let attempt = self.attempts.remove(key).expect("listed by the caller");
        let record = self.record_of(attempt.run);
        // It may have waited in the node before it began, so nothing of its timeout is surely over.
        let left_ms = record.target.timeout_ms();
        let deadline = left_ms.wrapping_add(low_half(now.wall));
        let left_ms = pick(Mutant::RemoteDeadline, left_ms, deadline);
        let remote = Some(RemoteAttempt { sender: sender.into(), left_ms });
        let (state, number) = (RunState::Running, attempt.number);
        let record = RunRecord { state, attempt: number, remote, ..record };
        let sequence = self.write_run(attempt.run, record, None, now);
        HandedOverAttempt { sequence, attempt: number }
    }

    /// Gives runs in doubt records that say so; and those for which somebody is waited, how much is left of that.
    fn write_doubts(&mut self, now: Now) {
        self.abandon(now);
        for (run, until) in self.attempts.doubts().collect::<Vec<_>>() {
            let record = self.record_of(run);
            let is_remote = pick(Mutant::HandedOnForgotten, self.is_remote(run), false);
            let remote = record.remote.as_ref().filter(|_| is_remote).map(|remote| {
                let left_ms = time_left(until.saturating_sub(now.steady));
                let left_ms = pick(Mutant::RemoteDeadline, left_ms, remote.left_ms);
                RemoteAttempt { sender: remote.sender.clone(), left_ms }
            });
            if remote != record.remote {
                self.write_run(run, RunRecord { remote, ..record }, None, now);
            }
        }
    }
}

/// What the new owner does.
impl Shard {
    /// Attempts get keys from this one on. To be called before anything is written: a node to which a shard comes back
    /// may still hear of attempts from its earlier stay.
    pub fn number_from(&mut self, first: u64) {
        let ahead = pick(Mutant::KeysFromOne, first.saturating_sub(1), 0);
        self.attempts.renumber(ahead);
        self.outbox.renumber(ahead);
    }

    /// The sessions, by their keys, whose reports are waited for. Nobody's, once the shard is handed over itself.
    pub fn senders(&self) -> BTreeSet<Box<str>> {
        if self.course == Course::HandedOver {
            return BTreeSet::new();
        }
        let records = self.attempts.remote().map(|sequence| &self.runs[sequence]);
        records.filter_map(|record| Some(record.remote.as_ref()?.sender.clone())).collect()
    }

    /// A former owner is there, and will report of this run.
    pub(super) fn await_remote(&mut self, sequence: u64, now: Now) {
        let record = &self.runs[sequence];
        let Some(remote) = &record.remote else { return };
        let until = now.steady + patience_ms(remote.left_ms, now);
        self.attempts.await_remote(record.lane(), sequence, until);
    }

    /// A session is gone, and every report of it that there is was taken before: nobody knows what came of the rest.
    pub fn sender_gone(&mut self, sender: &str, now: Now) {
        if pick(Mutant::SenderGoneIgnored, self.course == Course::HandedOver, true) {
            return;
        }
        let is_of_it = |sequence: u64| {
            let remote = self.runs[sequence].remote.as_ref();
            remote.is_some_and(|remote| *remote.sender == *sender)
        };
        let remote = self.attempts.remote().filter(|sequence| is_of_it(*sequence));
        for sequence in remote.collect::<Vec<_>>() {
            self.wait_no_more(sequence, now);
        }
        if !self.is_suspended {
            self.settle(now);
        }
    }

    /// Waits no more for those whose time is over.
    pub(super) fn give_up_waiting(&mut self, now: Now) {
        let is_over = |sequence: &u64| {
            let until = self.attempts.in_doubt_until(RunRef::Record(*sequence));
            until.is_none_or(|until| until <= now.steady)
        };
        for sequence in self.attempts.remote().filter(is_over).collect::<Vec<_>>() {
            self.wait_no_more(sequence, now);
        }
    }

    /// A run of which a former owner was to report is in doubt.
    fn wait_no_more(&mut self, sequence: u64, now: Now) {
        let run = RunRef::Record(sequence);
        let lane = self.lane_of(run);
        self.attempts.clear_doubt(lane, run);
        self.doubt(run, now);
        self.unblock(lane, now);
    }

    /// A former owner tells what came of an attempt, by a record below [`record::reports`]. If nobody waits for it any
    /// more, the record is only deleted.
    pub fn reported(&mut self, key: &str, report: ReportRecord, now: Now) {
        assert!(key.starts_with(&record::reports(self.id())), "{key} is no report of this shard");
        if self.course == Course::HandedOver {
            return;
        }
        let gone = Put::Gone(key.to_owned());
        let Some(sequence) = self.awaited(key, &report) else {
            return self.drop_report(gone, now);
        };
        let run = RunRef::Record(sequence);
        self.attempts.clear_doubt(self.lane_of(run), run);
        let first = self.outbox.len();
        also(Mutant::ReportGoneFirst, || self.drop_report(gone.clone(), now));
        self.conclude(run, report.attempt, report.outcome, report.made, now);
        // The report is deleted with the first unit that follows from it, which says what came of the attempt.
        self.outbox.write_with(first, [Delta::Raw(gone)]);
    }

    fn drop_report(&mut self, gone: Put, now: Now) {
        let by = Instant(now.wall.0 + RESULT_WAIT_MS);
        self.enact(Unit::of(vec![Delta::Raw(gone)]).by(by));
    }

    /// The run that a report is about, if its record names this sender and this attempt.
    fn awaited(&self, key: &str, report: &ReportRecord) -> Option<u64> {
        let (sequence, attempt) = record::report_of(self.id(), key)?;
        let run = Arc::clone(self.runs.get(sequence)?);
        let is_named = run.attempt == attempt
            && report.attempt == attempt
            && run.remote.as_ref().is_some_and(|remote| remote.sender == report.sender);
        let is_awaited = run.state == RunState::Running;
        (is_awaited && pick(Mutant::ReportOfAnother, is_named, true)).then_some(sequence)
    }
}
