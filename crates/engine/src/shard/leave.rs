//! How attempts leave, and what their ends mean.

use std::sync::Arc;
use std::time::Duration;

use crate::id::{Birth, ProjectId, RunId, SerialId};
use crate::instant::Instant;
use crate::limits::{RESULT_WAIT_MS, UNTRIED_MAX};
use crate::mutant::{Mutant, pick};
use crate::outcome::{Arrival, Outcome, Verdict};
use crate::past::{Attempt, End, Finished, Line};
use crate::policy::{Delivery, Overlap, Policy};
use crate::target::Target;
use crate::webhook::Webhook;

use super::attempts::{LiveAttempt, RunRef};
use super::memory::Delta;
use super::record::{RunRecord, RunState};
use super::{Now, Shard, Unit};

/// An attempt that leaves now.
#[derive(Debug)]
pub struct Departure {
    /// The key by which its end is reported.
    pub key: u64,
    /// The project of its trigger.
    pub project: ProjectId,
    /// The run that it is an attempt of.
    pub run: RunId,
    /// Attempt number, from 1.
    pub attempt: u32,
    /// The slot of its run.
    pub slot: Instant,
    /// When it was to leave.
    pub leaves_at: Instant,
    /// After this it is too late, and it does not leave at all.
    pub leave_by: Option<Instant>,
    /// What is sent, and where to.
    pub webhook: Webhook,
}

/// What came of an attempt.
#[derive(Debug)]
pub struct AttemptReport {
    /// The key of its departure.
    pub key: u64,
    /// What came of it.
    pub outcome: Outcome,
    /// When it left, how long it took, what was said.
    pub attempt: Attempt,
}

impl Shard {
    /// Attempts that have left.
    pub fn in_flight(&self) -> usize {
        self.attempts.left_count()
    }

    /// Lets attempts leave whose instant has come.
    pub fn depart(&mut self, now: Now, out: &mut Vec<Departure>) {
        while let Some((key, attempt)) = self.attempts.next_leaving(now) {
            let LiveAttempt { run, trigger, number, is_doubtful, .. } = attempt;
            let policy = self.policy_of(run);
            if number == 1 && !is_doubtful && self.is_too_late(run, &policy, now) {
                self.attempts.remove(key);
                self.end(run, End::Expired, number, None, now);
            } else if policy.overlap != Overlap::Allow
                && let Some(until) = self.attempts.kept_back_until(trigger, now)
            {
                self.attempts.put_off(key, until);
            } else if policy.overlap != Overlap::Allow
                && pick(Mutant::BesideOthers, self.attempts.has_left(trigger), false)
            {
                self.attempts.block(key);
            } else {
                self.attempts.leave(key);
                let mut departure = self.departure(key, run, number, now);
                if number == 1 && !is_doubtful {
                    let late = policy.max_lateness_ms.map(Duration::from_millis);
                    departure.leave_by = late.map(|late| departure.leaves_at.after(late));
                }
                out.push(departure);
            }
        }
    }

    fn departure(&self, key: u64, run: RunRef, attempt: u32, now: Now) -> Departure {
        match run {
            RunRef::Open(open) => {
                let trigger = self.triggers.get(open.trigger).expect("an open run's trigger");
                let slot = pick(Mutant::RunIdFromFireTime, open.slot, now.wall);
                Departure {
                    key,
                    project: trigger.project(),
                    run: self.run_id(open.trigger, slot, Birth::Slot(trigger.generation)),
                    attempt,
                    slot: open.slot,
                    leaves_at: trigger.leaves_at(open.slot),
                    leave_by: None,
                    webhook: webhook(trigger.target()),
                }
            }
            RunRef::Record(sequence) => {
                let run = &self.runs[sequence];
                Departure {
                    key,
                    project: run.project,
                    run: self.run_id(run.trigger, run.slot, run.birth(sequence)),
                    attempt,
                    slot: run.slot,
                    leaves_at: run.leaves_at,
                    leave_by: None,
                    webhook: webhook((*run.target).clone()),
                }
            }
        }
    }

    /// An attempt has ended.
    pub fn finished(&mut self, report: AttemptReport, now: Now) {
        let Some(attempt) = self.attempts.remove(report.key) else { return };
        self.conclude(attempt.run, attempt.number, report.outcome, report.attempt, now);
    }

    /// Decides what follows from the outcome of an attempt, whoever made it.
    pub(super) fn conclude(
        &mut self,
        run: RunRef,
        number: u32,
        outcome: Outcome,
        made: Attempt,
        now: Now,
    ) {
        let (policy, lane) = (self.policy_of(run), self.lane_of(run));
        match outcome.verdict() {
            Verdict::Succeeded => self.end(run, End::Succeeded, number, Some(made), now),
            Verdict::Refused => self.end(run, End::Failed, number, Some(made), now),
            Verdict::Gone => {
                let note = "the receiver answered 410: it is gone for good";
                self.end(run, End::Failed, number, Some(made), now);
                self.pause_by_itself(lane, note, now);
            }
            Verdict::Late => self.end(run, End::Expired, number, None, now),
            Verdict::Untried { retry_after } if !self.is_untried_too_long(run, &policy, now) => {
                let until = now.wall.after(retry_after.max(Duration::from_millis(100)));
                self.try_again(run, number, until, None, now);
            }
            Verdict::Untried { .. } => {
                self.end(run, End::Dead, number, Some(made), now);
            }
            Verdict::Again { arrival, retry_after } => {
                let may_repeat =
                    policy.delivery == Delivery::AtLeastOnce || arrival == Arrival::Never;
                let tries = self.run_property(run, |_, _| 0, |record| record.tries) + 1;
                if may_repeat && tries < u32::from(policy.retry.attempts) {
                    let pause = policy.retry.pause(tries, retry_after, now.random);
                    let until = now.wall.after(pause);
                    self.try_again(run, number, until, Some(made), now);
                } else {
                    let end = match (may_repeat, arrival) {
                        (true, _) => End::Dead,
                        (false, Arrival::Surely) => End::Failed,
                        (false, Arrival::Perhaps | Arrival::Never) => End::Unknown,
                    };
                    self.end(run, end, number, Some(made), now);
                }
            }
        }
        self.unblock(lane, now);
    }

    /// Whether a run could not even be tried for so long that it is given up.
    pub(super) fn is_untried_too_long(&self, run: RunRef, policy: &Policy, now: Now) -> bool {
        let since = self.run_property(run, |_, _| None, |record| record.untried_since);
        since.is_some_and(|since| since.after(policy.retry.span() + UNTRIED_MAX) < now.wall)
    }

    /// A run waits for its next attempt. One that was made counts against those that the user granted.
    fn try_again(
        &mut self,
        run: RunRef,
        number: u32,
        until: Instant,
        made: Option<Attempt>,
        now: Now,
    ) {
        let mut record = self.record_of(run);
        record.state = RunState::Backoff(until);
        record.attempt = pick(Mutant::AttemptNumberAfter, number, 0);
        record.remote = None;
        if let Some(made) = made {
            record.tries += 1;
            record.attempts.push(made);
            record.untried_since = None;
        } else {
            record.untried_since.get_or_insert(now.wall);
        }
        self.write_run(run, record, None, now);
    }

    /// Gives a run this record, and says its number. The run is open no more.
    pub(super) fn write_run(
        &mut self,
        run: RunRef,
        record: RunRecord,
        launch: Option<u64>,
        now: Now,
    ) -> u64 {
        let mut changes = Vec::with_capacity(2);
        let sequence = match run {
            RunRef::Open(open) => {
                changes.push(Delta::Shut(open));
                self.runs.next_sequence()
            }
            RunRef::Record(sequence) => sequence,
        };
        changes.push(Delta::Run(sequence, Arc::new(record)));
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
        let (serial, finished) = self.close(run, end, number, attempt, now, &mut unit);
        let is_notice = finished.notice.is_some();
        let (failures, notice) = self.reckon(&finished, now, &mut unit);
        let is_recorded = pick(Mutant::OpenWithoutRecord, true, matches!(run, RunRef::Record(_)));
        unit.changes.extend(is_recorded.then_some(Delta::Past(Line::Run(finished))));
        self.enact_with(unit, notice, Mutant::NoticeLater);
        if is_notice {
            return;
        }
        if end == End::Succeeded {
            self.watch_over(serial);
        }
        if let Some(failures) = failures {
            let note = format!("{failures} runs failed in a row");
            self.pause_by_itself(serial, &note, now);
        }
        self.unblock(serial, now);
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
    ) -> (SerialId, Finished) {
        unit.changes.push(self.forget(run));
        let mut queue = None;
        let (project, serial, slot, generation, mut attempts, sequence, notice) = match run {
            RunRef::Open(open) => {
                let trigger = self.triggers.get(open.trigger).expect("an open run's trigger");
                let generation = Some(trigger.generation);
                (trigger.project(), open.trigger, open.slot, generation, Vec::new(), None, None)
            }
            RunRef::Record(sequence) => {
                let record = &self.runs[sequence];
                let demanded = record.generation.is_none().then_some(sequence);
                let attempts = record.attempts.clone();
                queue = record.past_of_queue();
                let RunRecord { project, trigger, slot, generation, notice, .. } = **record;
                (project, trigger, slot, generation, attempts, demanded, notice)
            }
        };
        attempts.extend(attempt);
        let finished = Finished {
            project,
            trigger: serial,
            slot,
            generation,
            sequence,
            notice,
            queue: queue.or_else(|| notice.and_then(|_| self.past_of_queue(serial))),
            end,
            at: now.wall,
            attempt: number,
            attempts,
        };
        (serial, finished)
    }

    /// Cancels a run, and breaks its attempt off if that has left.
    pub(super) fn cancel_run(&mut self, run: RunRef, now: Now) {
        let mut unit = Unit::default().by(now.wall);
        let (number, doubt) = (self.number_of(run), self.attempts.in_doubt_until(run));
        unit.aborts.extend(self.attempts.abort_of(run));
        if doubt.is_some() || !unit.aborts.is_empty() {
            unit.changes.extend(self.kept_back(run, now));
        }
        let (serial, finished) = self.close(run, End::Cancelled, number, None, now, &mut unit);
        if let Some(until) = doubt {
            self.attempts.keep_back(serial, until);
        }
        unit.changes.push(Delta::Past(Line::Run(finished)));
        self.enact(unit);
        self.unblock(serial, now);
    }

    /// The state that tells a successor that a run which ended may still be at work at its receiver.
    pub(super) fn kept_back(&self, run: RunRef, now: Now) -> Option<Delta> {
        let serial = self.lane_of(run);
        let mut state = self.triggers.get(serial)?.state();
        state.busy_elsewhere_ms =
            Some(self.at_work_ms(run, now).max(state.busy_elsewhere_ms.unwrap_or(0)));
        Some(Delta::State(serial, state))
    }

    /// How long an attempt of a run may be at work, at most: for its timeout, or for as long as its former owner is
    /// waited for.
    pub(super) fn at_work_ms(&self, run: RunRef, now: Now) -> u32 {
        let timeout_ms = self.record_of(run).target.timeout_ms();
        let until = self.attempts.in_doubt_until(run).filter(|_| self.is_remote(run));
        let left_ms = until.map_or(0, |until| until.saturating_sub(now.steady));
        timeout_ms.max(u32::try_from(left_ms).unwrap_or(u32::MAX))
    }
}

/// What leaves: a run for a queue is claimed there instead.
fn webhook(target: Target) -> Webhook {
    match target {
        Target::Webhook(webhook) => webhook,
        Target::Queue(_) => unreachable!("a run for a queue has no attempts here"),
    }
}
