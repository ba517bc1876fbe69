//! Attempts, from launch to past.
//!
//! An attempt is begun when it is decided, may leave once that is written, leaves when its instant has
//! come, and ends with a report. Its number is written before it leaves. None of this is remembered by the
//! store beyond what the units say: after a crash there are no attempts, only runs that are in doubt.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::id::{Birth, RunId, Unique};
use crate::instant::Instant;
use crate::limits::{OPEN_MS_MAX, RESULT_WAIT_MS, UNTRIED_MAX};
use crate::mutant::{self, Mutant};
use crate::outcome::{Arrival, Outcome, Verdict};
use crate::past::{Attempt, End, Finished, Line};
use crate::policy::{Delivery, Overlap, Policy};
use crate::webhook::Form;

use super::memory::Change;
use super::record::{OpenRun, RunRecord, RunState};
use super::{Now, Shard, Unit};

/// An unfinished run: open in the head, or with a record of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum RunRef {
    Open(OpenRun),
    Record(u64),
}

/// An attempt that leaves now.
#[derive(Debug)]
pub struct Departure {
    /// By which its end is reported.
    pub key: u64,
    /// Its run.
    pub run: RunId,
    /// The so-manieth, from 1.
    pub attempt: u32,
    /// The slot.
    pub slot: Instant,
    /// When it was to leave.
    pub leaves: Instant,
    /// What is sent, apart from path and body.
    pub form: Arc<Form>,
    /// Path and query.
    pub path: Box<str>,
    /// What is sent.
    pub body: Option<Box<str>>,
}

/// What came of an attempt.
#[derive(Debug)]
pub struct Report {
    /// Which.
    pub key: u64,
    /// What came of it.
    pub outcome: Outcome,
    /// When it left, how long it took, what was said.
    pub attempt: Attempt,
}

/// An attempt.
struct Try {
    run: RunRef,
    trigger: Unique,
    number: u32,
    leaves: Instant,
    phase: Phase,
    /// The run may have left under a predecessor.
    is_doubtful: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Its unit is not written.
    Decided,
    /// It may leave.
    Ready,
    /// It has left.
    Left,
}

/// All attempts of a shard, and what waits for one.
#[derive(Default)]
pub(super) struct Flight {
    tries: BTreeMap<u64, Try>,
    by_run: BTreeMap<RunRef, u64>,
    /// Attempts that may leave, by when.
    leaving: BTreeSet<(Instant, u64)>,
    /// Attempts that wait for another one of their trigger to end.
    blocked: BTreeSet<(Unique, u64)>,
    /// Attempts that have left.
    left: BTreeSet<(Unique, u64)>,
    /// Attempts of open runs, by the steady time at which they could leave.
    opened: VecDeque<(u64, u64)>,
    /// Runs that wait for an instant.
    waiting: BTreeSet<(Instant, u64)>,
    /// Runs that wait for another one of their trigger to end.
    queued: BTreeSet<(Unique, u64)>,
    /// Runs that may have left under a predecessor, and until when (steady) they are left alone.
    pub(super) doubts: BTreeMap<RunRef, u64>,
    /// Triggers of which something may be under way that we do not see, and until when (steady).
    holds: HashMap<Unique, u64>,
    /// Attempts that are to be broken off once that is written, and whose they are.
    aborting: BTreeMap<u64, Unique>,
    last_key: u64,
    is_busy: bool,
}

impl Flight {
    pub(super) fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// Begins an attempt, which leaves when it is released, no sooner than this.
    pub(super) fn begin(
        &mut self,
        run: RunRef,
        trigger: Unique,
        number: u32,
        leaves: Instant,
    ) -> u64 {
        self.last_key += 1;
        let key = self.last_key;
        let phase = Phase::Decided;
        self.tries.insert(key, Try { run, trigger, number, leaves, phase, is_doubtful: false });
        self.by_run.insert(run, key);
        key
    }

    /// What an attempt rests on is written: it may leave.
    pub(super) fn release(&mut self, key: u64, now: Now) {
        let Some(attempt) = self.tries.get_mut(&key) else { return };
        if attempt.phase == Phase::Decided {
            attempt.phase = Phase::Ready;
            self.leaving.insert((attempt.leaves, key));
            if matches!(attempt.run, RunRef::Open(_)) {
                self.opened.push_back((now.steady, key));
            }
        }
    }

    /// Forgets an attempt.
    fn remove(&mut self, key: u64) -> Option<Try> {
        let attempt = self.tries.remove(&key)?;
        self.by_run.remove(&attempt.run);
        self.leaving.remove(&(attempt.leaves, key));
        self.blocked.remove(&(attempt.trigger, key));
        self.left.remove(&(attempt.trigger, key));
        Some(attempt)
    }

    /// A run waits, as its record says.
    pub(super) fn wait(&mut self, sequence: u64, run: &RunRecord) {
        match run.state {
            RunState::Waiting(at) | RunState::Backoff(at) => {
                self.waiting.insert((at, sequence));
            }
            RunState::Queued => {
                self.queued.insert((run.trigger, sequence));
            }
            RunState::Running => {}
        }
    }

    /// A run waits no more.
    fn unwait(&mut self, sequence: u64, run: &RunRecord) {
        self.queued.remove(&(run.trigger, sequence));
        if let RunState::Waiting(at) | RunState::Backoff(at) = run.state {
            self.waiting.remove(&(at, sequence));
        }
    }

    /// Nothing of this trigger leaves for so long.
    pub(super) fn hold(&mut self, trigger: Unique, until: u64) {
        let held = self.holds.entry(trigger).or_default();
        *held = until.max(*held);
    }

    /// An attempt is broken off.
    pub(super) fn abort(&mut self, key: u64) {
        self.aborting.remove(&key);
    }

    /// Whether something of this trigger may be at work at a receiver although it is ended.
    pub(super) fn may_be_at_work(&self, trigger: Unique, now: Now) -> bool {
        self.is_held(trigger, now) || self.aborting.values().any(|aborting| *aborting == trigger)
    }

    /// Whether nothing of this trigger leaves.
    fn is_held(&self, trigger: Unique, now: Now) -> bool {
        self.holds.get(&trigger).is_some_and(|until| *until > now.steady)
    }

    /// Until when nothing of this trigger leaves, by the wall clock.
    fn held_until(&self, trigger: Unique, now: Now) -> Instant {
        let until = self.holds.get(&trigger).copied().unwrap_or_default();
        now.wall.after(Duration::from_millis(until.saturating_sub(now.steady)))
    }

    /// An attempt leaves later.
    fn put_off(&mut self, key: u64, leaves: Instant) {
        if let Some(attempt) = self.tries.get_mut(&key) {
            attempt.leaves = leaves;
            self.leaving.insert((leaves, key));
        }
    }

    fn key_of(&self, run: RunRef) -> Option<u64> {
        self.by_run.get(&run).copied()
    }

    fn has_others_left(&self, trigger: Unique) -> bool {
        self.left.range((trigger, 0)..=(trigger, u64::MAX)).next().is_some()
    }

    pub(super) fn next_wake(&self, now: Now) -> Option<Instant> {
        let steady = |at: u64| now.wall.after(Duration::from_millis(at.saturating_sub(now.steady)));
        let leaving = self.leaving.first().map(|(at, _)| *at);
        let waiting = self.waiting.first().map(|(at, _)| *at).filter(|_| !self.is_busy);
        let opened = self.opened.front().map(|(since, _)| steady(since + OPEN_MS_MAX + 1));
        // One that was left alone for long enough waits for another one of its trigger to end.
        let doubts = self.doubts.values().filter(|until| **until > now.steady).min();
        let doubts = doubts.map(|until| steady(*until));
        [leaving, waiting, opened, doubts].into_iter().flatten().min()
    }
}

impl Shard {
    /// Tells whether more attempts are under way than this node takes.
    pub fn set_busy(&mut self, is_busy: bool) {
        self.flight.is_busy = is_busy;
    }

    /// Attempts that have left.
    pub fn in_flight(&self) -> usize {
        self.flight.left.len()
    }

    /// Lets go what may leave now.
    pub fn depart(&mut self, now: Now, out: &mut Vec<Departure>) {
        while let Some(&(leaves, key)) = self.flight.leaving.first() {
            if leaves > now.wall {
                break;
            }
            self.flight.leaving.remove(&(leaves, key));
            let attempt = &self.flight.tries[&key];
            let (run, trigger, number) = (attempt.run, attempt.trigger, attempt.number);
            let (is_doubtful, policy) = (attempt.is_doubtful, self.policy_of(run));
            if number == 1 && !is_doubtful && self.is_too_late(run, &policy, now) {
                self.flight.remove(key);
                self.end(run, End::Expired, number, None, now);
            } else if policy.overlap != Overlap::Allow && self.flight.is_held(trigger, now) {
                self.flight.put_off(key, self.flight.held_until(trigger, now));
            } else if policy.overlap != Overlap::Allow
                && self.flight.has_others_left(trigger)
                && !mutant::active(Mutant::BesideOthers)
            {
                self.flight.blocked.insert((trigger, key));
            } else {
                let attempt = self.flight.tries.get_mut(&key).expect("looked at above");
                attempt.phase = Phase::Left;
                self.flight.left.insert((trigger, key));
                out.push(self.departure(key, run, number, now));
            }
        }
    }

    fn departure(&self, key: u64, run: RunRef, attempt: u32, now: Now) -> Departure {
        match run {
            RunRef::Open(open) => {
                let trigger = self.memory.trigger(open.trigger).expect("an open run's trigger");
                let mut slot = open.slot;
                if mutant::active(Mutant::RunIdFromFireTime) {
                    slot = now.wall;
                }
                Departure {
                    key,
                    run: self.memory.run_id(open.trigger, slot, Birth::Slot(trigger.generation)),
                    attempt,
                    slot: open.slot,
                    leaves: self.memory.leaves(trigger, open.slot),
                    form: Arc::clone(&trigger.kind.form),
                    path: trigger.path().into(),
                    body: trigger.body().map(Into::into),
                }
            }
            RunRef::Record(sequence) => {
                let run = &self.memory.runs[&sequence];
                Departure {
                    key,
                    run: self.memory.run_id(run.trigger, run.slot, run.birth(sequence)),
                    attempt,
                    slot: run.slot,
                    leaves: run.leaves,
                    form: Arc::new(run.webhook.form.clone()),
                    path: run.webhook.path.clone(),
                    body: run.webhook.body.clone(),
                }
            }
        }
    }

    /// An attempt has ended.
    pub fn finished(&mut self, report: Report, now: Now) {
        let Some(attempt) = self.flight.remove(report.key) else { return };
        let (run, number) = (attempt.run, attempt.number);
        let policy = self.policy_of(run);
        match report.outcome.verdict() {
            Verdict::Succeeded => self.end(run, End::Succeeded, number, Some(report.attempt), now),
            Verdict::Refused => self.end(run, End::Failed, number, Some(report.attempt), now),
            Verdict::Gone => {
                let note = "the receiver answered 410: it is gone for good";
                self.end(run, End::Failed, number, Some(report.attempt), now);
                self.pause_by_itself(attempt.trigger, note, now);
            }
            Verdict::Untried { retry_after } if !self.is_tired(run, &policy, now) => {
                let until = now.wall.after(retry_after.max(Duration::from_millis(100)));
                self.try_again(run, number, Tries::Same, until, report.attempt, now);
            }
            Verdict::Untried { .. } => {
                self.end(run, End::Dead, number, Some(report.attempt), now);
            }
            Verdict::Again { arrival, retry_after } => {
                let may_repeat =
                    policy.delivery == Delivery::AtLeastOnce || arrival == Arrival::Never;
                if may_repeat && self.tries_of(run) + 1 < u32::from(policy.retry.attempts) {
                    let pause = policy.retry.pause(number, retry_after, now.random);
                    let until = now.wall.after(pause);
                    self.try_again(run, number, Tries::OneMore, until, report.attempt, now);
                } else {
                    let end = match (may_repeat, arrival) {
                        (true, _) => End::Dead,
                        (false, Arrival::Surely) => End::Failed,
                        (false, Arrival::Perhaps | Arrival::Never) => End::Unknown,
                    };
                    self.end(run, end, number, Some(report.attempt), now);
                }
            }
        }
        self.unblock(attempt.trigger, now);
    }

    /// Whether a run that could not be tried has waited for long enough.
    fn is_tired(&self, run: RunRef, policy: &Policy, now: Now) -> bool {
        let leaves = self.leaves_of(run);
        leaves.after(policy.retry.span() + UNTRIED_MAX) < now.wall
    }

    fn try_again(
        &mut self,
        run: RunRef,
        number: u32,
        tries: Tries,
        until: Instant,
        attempt: Attempt,
        now: Now,
    ) {
        let mut record = self.record_of(run);
        record.state = RunState::Backoff(until);
        record.attempt = number;
        if tries == Tries::OneMore {
            record.tries += 1;
            record.attempts.push(attempt);
        }
        if mutant::active(Mutant::AttemptNumberAfter) {
            record.attempt = 0;
        }
        let sequence = self.write_run(run, record, None, now);
        let record = Arc::clone(&self.memory.runs[&sequence]);
        self.flight.wait(sequence, &record);
    }

    /// Gives a run this record. An open one is open no more.
    fn write_run(&mut self, run: RunRef, record: RunRecord, launch: Option<u64>, now: Now) -> u64 {
        let mut changes = Vec::with_capacity(2);
        let sequence = match run {
            RunRef::Open(open) => {
                changes.push(Change::Shut(open));
                self.memory.sequence + 1
            }
            RunRef::Record(sequence) => sequence,
        };
        changes.push(Change::Run(sequence, Arc::new(record)));
        let by = if launch.is_some() { now.wall.0 } else { now.wall.0 + RESULT_WAIT_MS };
        let mut unit = Unit::of(changes).by(Instant(by));
        unit.launches.extend(launch);
        self.enact(unit);
        sequence
    }

    /// Records how a run ended, and lets those go that waited for it.
    pub(super) fn end(
        &mut self,
        run: RunRef,
        end: End,
        number: u32,
        attempt: Option<Attempt>,
        now: Now,
    ) {
        let mut unit = Unit::of(Vec::with_capacity(3)).by(Instant(now.wall.0 + RESULT_WAIT_MS));
        let (unique, finished) = self.close(run, end, number, attempt, now, &mut unit);
        if !mutant::active(Mutant::OpenWithoutRecord) || matches!(run, RunRef::Record(_)) {
            unit.changes.push(Change::Past(Line::Run(finished)));
        }
        let failures = self.count_failure(unique, end, &mut unit);
        self.enact(unit);
        if let Some(failures) = failures {
            let note = format!("{failures} runs failed in a row");
            self.pause_by_itself(unique, &note, now);
        }
        self.unblock(unique, now);
    }

    /// Takes an unfinished run out of head or records.
    fn close(
        &mut self,
        run: RunRef,
        end: End,
        number: u32,
        attempt: Option<Attempt>,
        now: Now,
        unit: &mut Unit,
    ) -> (Unique, Finished) {
        unit.changes.push(self.forget(run));
        let (unique, slot, generation, mut attempts, sequence) = match run {
            RunRef::Open(open) => {
                let generation =
                    self.memory.trigger(open.trigger).map(|trigger| trigger.generation);
                (open.trigger, open.slot, generation, Vec::new(), None)
            }
            RunRef::Record(sequence) => {
                let record = &self.memory.runs[&sequence];
                let demanded = record.generation.is_none().then_some(sequence);
                let attempts = record.attempts.clone();
                (record.trigger, record.slot, record.generation, attempts, demanded)
            }
        };
        attempts.extend(attempt);
        let at = now.wall;
        let attempt = number;
        let trigger = unique;
        (unique, Finished { trigger, slot, generation, sequence, end, at, attempt, attempts })
    }

    /// Counts failures in a row; says how many if that is enough to pause.
    fn count_failure(&self, unique: Unique, end: End, unit: &mut Unit) -> Option<u32> {
        let trigger = self.memory.trigger(unique)?;
        let failures = match end {
            End::Succeeded => 0,
            End::Failed | End::Dead => trigger.failures() + 1,
            End::Cancelled | End::Expired | End::Unknown => return None,
        };
        if failures == trigger.failures() {
            return None;
        }
        let enough = trigger.policy().pause_after?;
        let mut moved = trigger.moved();
        moved.failures = failures;
        unit.changes.push(Change::Moved(unique, moved));
        (failures >= enough && !trigger.is_paused()).then_some(failures)
    }

    /// Breaks a run off.
    pub(super) fn cancel_run(&mut self, run: RunRef, now: Now) {
        let mut unit = Unit::default().by(now.wall);
        let mut number = self.number_of(run);
        let doubt = self.flight.doubts.get(&run).copied();
        let mut may_be_at_work = doubt.is_some();
        if let Some(key) = self.flight.key_of(run)
            && let Some(attempt) = self.flight.remove(key)
        {
            number = attempt.number;
            if attempt.phase == Phase::Left {
                unit.aborts.push(key);
                self.flight.aborting.insert(key, attempt.trigger);
                may_be_at_work = true;
            }
        }
        if may_be_at_work {
            unit.changes.extend(self.held(run));
        }
        let (unique, finished) = self.close(run, End::Cancelled, number, None, now, &mut unit);
        if let Some(until) = doubt {
            self.flight.hold(unique, until);
        }
        unit.changes.push(Change::Past(Line::Run(finished)));
        self.enact(unit);
        self.unblock(unique, now);
    }

    /// A run is ended that may still be at work at its receiver: a successor has to know that.
    pub(super) fn held(&self, run: RunRef) -> Option<Change> {
        let record = self.record_of(run);
        let mut moved = self.memory.trigger(record.trigger)?.moved();
        moved.held_ms = Some(record.webhook.form.timeout_ms.max(moved.held_ms.unwrap_or(0)));
        Some(Change::Moved(record.trigger, moved))
    }

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
        let queued: Vec<u64> = self
            .flight
            .queued
            .range((unique, 0)..=(unique, u64::MAX))
            .map(|(_, sequence)| *sequence)
            .collect();
        for sequence in queued {
            // One that starts may end at once, and that may have started or ended this one.
            if self.flight.queued.contains(&(unique, sequence)) {
                self.start(sequence, now);
            }
        }
    }

    /// Starts what waits for others of its trigger that ended before anybody noticed.
    pub(super) fn unblock_all(&mut self, now: Now) {
        let mut triggers: Vec<Unique> =
            self.flight.queued.iter().map(|(unique, _)| *unique).collect();
        triggers.dedup();
        for unique in triggers {
            self.unblock(unique, now);
        }
    }

    /// Starts the runs whose time to wait is over, unless too much is under way: a record shows an attempt only
    /// when it can leave.
    pub(super) fn pump(&mut self, now: Now) {
        while !self.flight.is_busy
            && let Some(&(at, sequence)) = self.flight.waiting.first()
        {
            if at > now.wall {
                break;
            }
            self.flight.waiting.remove(&(at, sequence));
            self.start(sequence, now);
        }
    }

    /// Begins the next attempt of a run that waits, unless it has to wait for another one.
    fn start(&mut self, sequence: u64, now: Now) {
        let record = Arc::clone(&self.memory.runs[&sequence]);
        let (unique, policy) = (record.trigger, &record.policy);
        let run = RunRef::Record(sequence);
        self.flight.unwait(sequence, &record);
        if record.attempt == 0 && self.is_too_late(run, policy, now) {
            return self.end(run, End::Expired, 0, None, now);
        }
        if self.is_stopping {
            return;
        }
        let is_queued = record.state == RunState::Queued;
        if policy.overlap != Overlap::Allow && self.has_to_wait(run, unique, is_queued) {
            self.flight.queued.insert((unique, sequence));
            return;
        }
        let number = record.attempt + 1;
        let leaves = match record.state {
            RunState::Waiting(at) | RunState::Backoff(at) => record.leaves.max(at),
            RunState::Queued | RunState::Running => record.leaves,
        };
        let key = self.flight.begin(run, unique, number, leaves);
        let record = RunRecord { state: RunState::Running, attempt: number, ..(*record).clone() };
        self.write_run(run, record, Some(key), now);
    }

    /// Whether another run of a trigger keeps this one from starting.
    fn has_to_wait(&self, run: RunRef, unique: Unique, is_queued: bool) -> bool {
        self.active(unique).into_iter().any(|other| {
            let is_under_way =
                self.flight.by_run.contains_key(&other) || self.flight.doubts.contains_key(&other);
            other != run && (is_queued || is_under_way)
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

    /// Whether a run has not ended.
    pub(super) fn is_unfinished(&self, run: RunRef) -> bool {
        match run {
            RunRef::Open(open) => self.memory.open.contains(&open),
            RunRef::Record(sequence) => self.memory.runs.contains_key(&sequence),
        }
    }

    /// Whether no attempt of a run can have left, under this owner or another.
    pub(super) fn is_untouched(&self, run: RunRef) -> bool {
        if self.flight.doubts.contains_key(&run) {
            return false;
        }
        match self.flight.key_of(run).map(|key| &self.flight.tries[&key]) {
            Some(attempt) => {
                attempt.number == 1 && !attempt.is_doubtful && attempt.phase != Phase::Left
            }
            None => self.number_of(run) == 0,
        }
    }

    /// Whether an attempt of a run may have left under a predecessor, and nobody knows what came of it.
    pub(super) fn is_doubtful(&self, run: RunRef) -> bool {
        let key = self.flight.key_of(run);
        self.flight.doubts.contains_key(&run)
            || key.is_some_and(|key| self.flight.tries[&key].is_doubtful)
    }

    /// Takes a run out of head or records, and out of what waits.
    pub(super) fn forget(&mut self, run: RunRef) -> Change {
        self.flight.doubts.remove(&run);
        match run {
            RunRef::Open(open) => Change::Shut(open),
            RunRef::Record(sequence) => {
                let record = Arc::clone(&self.memory.runs[&sequence]);
                self.flight.unwait(sequence, &record);
                Change::RunGone(sequence)
            }
        }
    }

    /// The number of the attempt that is under way, or was last.
    pub(super) fn number_of(&self, run: RunRef) -> u32 {
        if let Some(key) = self.flight.key_of(run) {
            return self.flight.tries[&key].number;
        }
        match run {
            RunRef::Open(_) => 1,
            RunRef::Record(sequence) => self.memory.runs[&sequence].attempt,
        }
    }

    /// Whether an attempt of a run has left.
    pub(super) fn has_left(&self, run: RunRef) -> bool {
        let key = self.flight.key_of(run);
        key.is_some_and(|key| self.flight.tries[&key].phase == Phase::Left)
    }

    /// Begins an attempt for a run in doubt.
    pub(super) fn begin_in_doubt(&mut self, run: RunRef, now: Now) {
        let mut record = self.record_of(run);
        record.state = RunState::Running;
        record.attempt = self.number_of(run) + 1;
        if mutant::active(Mutant::AttemptNumberAfter) {
            record.attempt -= 1;
        }
        let (number, unique) = (record.attempt, record.trigger);
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

    /// Whether an attempt of this trigger may leave or has left.
    pub(super) fn is_under_way(&self, unique: Unique) -> bool {
        self.flight
            .tries
            .values()
            .any(|attempt| attempt.trigger == unique && attempt.phase != Phase::Decided)
    }

    /// Runs whose attempt has not left.
    pub(super) fn unsent(&self) -> Vec<RunRef> {
        let unsent = self.flight.tries.values().filter(|attempt| attempt.phase != Phase::Left);
        unsent.map(|attempt| attempt.run).collect()
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

    /// Drops the attempt of a run that has not left.
    pub(super) fn drop_attempt(&mut self, run: RunRef) {
        if let Some(key) = self.flight.key_of(run) {
            self.flight.remove(key);
        }
    }

    /// What a run is, whether or not it has a record.
    pub(super) fn record_of(&self, run: RunRef) -> RunRecord {
        match run {
            RunRef::Record(sequence) => (*self.memory.runs[&sequence]).clone(),
            RunRef::Open(open) => {
                let trigger = self.memory.trigger(open.trigger).expect("an open run's trigger");
                let leaves = self.memory.leaves(trigger, open.slot);
                Self::run_record(trigger, open.slot, leaves, RunState::Running)
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
                self.memory.leaves(trigger, open.slot)
            }
        }
    }

    fn tries_of(&self, run: RunRef) -> u32 {
        match run {
            RunRef::Record(sequence) => self.memory.runs[&sequence].tries,
            RunRef::Open(_) => 0,
        }
    }

    fn is_too_late(&self, run: RunRef, policy: &Policy, now: Now) -> bool {
        let Some(max) = policy.max_lateness_ms else { return false };
        self.leaves_of(run).after(Duration::from_millis(max)) < now.wall
    }
}

/// Whether an attempt takes something from the tries that the user granted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tries {
    OneMore,
    Same,
}
