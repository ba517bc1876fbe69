//! Which slots fire, and which are skipped.
//!
//! Slots are decided one by one, in the order in which they leave, so that the mark passes each exactly
//! when it is decided. A slot that was missed because nobody was there is a matter of catch-up; one that
//! is merely late is not.
//!
//! **Overlap.** A slot that is due while a run of its trigger is unfinished is decided by `decide_slot`. Runs that have a
//! record wait for each other in `start`, an attempt for another of its trigger in `leave`, runs of a predecessor in
//! `doubt`; `account` says what would have become of slots that a change passes.
//!
//! **Look-ahead.** A slot may be launched in the store before it is due, so that it leaves on time however
//! slow the store is. In the order of the mark, and only up to the first slot that may not be: one that is
//! delivered at most once (a crash would make it unknown although it never left), and one that depends on
//! whether another run ends before.

use std::sync::Arc;

use crate::id::{ProjectId, SerialId};
use crate::instant::Instant;
use crate::limits::LAUNCH_LEAD_MS;
use crate::mutant::{Mutant, also, pick};
use crate::past::{Line, Reason, Skipped};
use crate::policy::{CatchUp, Delivery, Overlap, Policy};
use crate::schedule::Count;
use crate::target::Target;

use super::attempts::{LiveAttempt, RunRef};
use super::lag::HostRoomOf;
use super::memory::Delta;
use super::record::{Mark, OpenRun, RunRecord, RunState};
use super::triggers::Trigger;
use super::{Now, Shard, Unit};

impl Shard {
    /// Decides every slot that is due, and launches those that soon will be.
    pub(super) fn due(&mut self, room: HostRoomOf<'_>, now: Now) {
        self.agenda.fill_front(&self.triggers, now);
        while !self.is_full()
            && let Some((leaves_at, place)) = self.next_slot(now)
        {
            self.decide(place, leaves_at, room, now);
        }
    }

    /// The first slot of the front, if it is due or may be launched ahead.
    fn next_slot(&self, now: Now) -> Option<(Instant, u32)> {
        let looked_at = pick(Mutant::AheadPassesAtMostOnce, 1, usize::MAX);
        let mut front = self.agenda.front().take(looked_at);
        front.find(|(leaves_at, place)| *leaves_at <= now.wall || self.may_go_ahead(*place))
    }

    /// Whether nothing more is decided until something has ended or is written: lateness, never loss.
    pub(super) fn is_full(&self) -> bool {
        self.runs.is_full() || self.outbox.is_full()
    }

    pub(super) fn may_go_ahead(&self, place: u32) -> bool {
        let trigger = self.triggers.at(place);
        let policy = trigger.policy();
        if trigger.feeds().is_some() {
            // No worker is given it before its instant, and nothing of it is in doubt before one is.
            return policy.overlap == Overlap::Allow || !self.is_active(trigger);
        }
        self.runs.has_room_ahead()
            && policy.delivery == Delivery::AtLeastOnce
            && (policy.overlap == Overlap::Allow || !self.is_active(trigger))
    }

    /// Whether a run of a trigger is not finished.
    pub(super) fn is_active(&self, trigger: &Trigger) -> bool {
        self.runs.open_of(trigger.serial).next().is_some()
            || self.runs.recorded_of(trigger.serial).next().is_some()
            || self.has_queued_run(trigger.serial)
    }

    /// Decides the next slot of a trigger, which is the first of all, unless it has to wait for its host.
    fn decide(&mut self, place: u32, leaves_at: Instant, room: HostRoomOf<'_>, now: Now) {
        let trigger = self.triggers.at(place);
        let (serial, host) = (trigger.serial, trigger.host());
        let lags = host.is_some_and(|host| self.triggers.lags(host));
        if lags || !self.decide_if_decidable(place, leaves_at, room, now) {
            let host = host.expect("what goes to no host can always be decided");
            self.fall_behind(place, host, Mark(leaves_at, serial), now);
        }
    }

    /// Decides the next slot of a trigger, the first of all that have the same mark, if there is room for it or it needs
    /// none. Says whether it did.
    pub(super) fn decide_if_decidable(
        &mut self,
        place: u32,
        leaves_at: Instant,
        room: HostRoomOf<'_>,
        now: Now,
    ) -> bool {
        let trigger = self.triggers.at(place);
        let mark = Mark(leaves_at, pick(Mutant::MarkWithoutId, trigger.serial, SerialId(u64::MAX)));
        let Some((slot, _)) = self.triggers.undecided(trigger) else {
            self.agenda.disarm(place);
            return true;
        };
        let missed_until = self.missed_until(trigger, mark, now);
        if leaves_at <= missed_until
            && let Some(skipped) = trigger.missed(slot, missed_until, now)
        {
            let (serial, to) = (trigger.serial, skipped.to);
            let mut state = trigger.state();
            state.cursor = Some(to);
            let mut changes = vec![self.passes(trigger, mark)];
            changes.extend(pick(Mutant::NoCursor, Some(Delta::State(serial, state)), None));
            self.skip(skipped, changes, now.wall);
            self.arm(place);
            return true;
        }
        if !self.is_decidable(trigger, leaves_at, room, now) {
            return false;
        }
        self.decide_slot(place, slot, mark, now);
        let trigger = self.triggers.at(place);
        let is_done = trigger.remaining() == Some(0);
        let from = pick(Mutant::NextSlotFromNow, slot, slot.max(now.wall));
        let next = if is_done { None } else { trigger.schedule().next(from) };
        let leaves_at = next.map(|next| trigger.leaves_at(next));
        self.arm_at(place, leaves_at);
        true
    }

    /// Decides a slot that was not missed, by the rule for overlaps.
    fn decide_slot(&mut self, place: u32, slot: Instant, mark: Mark, now: Now) {
        let trigger = self.triggers.at(place);
        let overlap = trigger.policy().overlap;
        if overlap == Overlap::Allow || !self.is_active(trigger) {
            return self.launch(place, slot, mark, now);
        }
        match overlap {
            Overlap::Allow => {}
            Overlap::Skip => self.skip_overlapping(place, slot, mark, now),
            Overlap::QueueOne => {
                let is_blocked = |sequence| self.runs[sequence].state == RunState::Blocked;
                if self.runs.recorded_of(trigger.serial).any(is_blocked) {
                    self.skip_overlapping(place, slot, mark, now);
                } else {
                    self.defer(place, slot, mark, RunState::Blocked, now);
                }
            }
            Overlap::Replace => {
                let serial = trigger.serial;
                for run in self.active(serial) {
                    if self.is_unfinished(run) {
                        self.cancel_run(run, now);
                    }
                }
                self.cancel_queued_runs(serial, now);
                if self.has_queued_run(serial) {
                    // A worker has it, and is told to end it.
                    return self.defer(place, slot, mark, RunState::Blocked, now);
                }
                self.launch(place, slot, mark, now);
            }
        }
    }

    /// The unfinished runs of a trigger.
    pub(super) fn active(&self, serial: SerialId) -> Vec<RunRef> {
        let open = self.runs.open_of(serial).map(RunRef::Open);
        open.chain(self.runs.recorded_of(serial).map(RunRef::Record)).collect()
    }

    fn skip_overlapping(&mut self, place: u32, slot: Instant, mark: Mark, now: Now) {
        let trigger = self.triggers.at(place);
        let skipped = trigger.skipped((slot, slot), 1, Reason::Overlap, now);
        let by = Instant(now.wall.0 + LAUNCH_LEAD_MS);
        self.skip(skipped, vec![self.passes(trigger, mark)], by);
    }

    /// Skips slots, in the same unit as what passes them.
    pub(super) fn skip(&mut self, skipped: Skipped, changes: Vec<Delta>, by: Instant) {
        let skip = Delta::Past(Line::Skip(skipped));
        self.enact_with(Unit::of(changes).by(by), [skip], Mutant::SkipsLater);
    }

    /// A trigger's state after a launch, if that changes: one run fewer is left, or nothing is busy elsewhere any more.
    pub(super) fn state_after_launch(
        &self,
        trigger: &Trigger,
        slot: Instant,
        now: Now,
    ) -> Option<Delta> {
        let mut state = trigger.state();
        let is_free =
            state.busy_elsewhere_ms.is_some() && !self.attempts.may_be_at_work(trigger.serial, now);
        if is_free {
            state.busy_elsewhere_ms = None;
        }
        let left = trigger.remaining().map(|left| left.saturating_sub(1));
        if left.is_some() {
            state.remaining = left;
        }
        // The last one ends the schedule: nothing after it is due.
        if left == Some(0) {
            state.cursor = Some(slot);
        }
        (is_free || left.is_some()).then_some(Delta::State(trigger.serial, state))
    }

    /// Launches a slot: it is open, and leaves when this is written and its instant has come.
    fn launch(&mut self, place: u32, slot: Instant, mark: Mark, now: Now) {
        let trigger = self.triggers.at(place);
        if trigger.feeds().is_some() {
            return self.enqueue_slot(place, slot, mark, now);
        }
        let (serial, host) = (trigger.serial, trigger.host());
        let run = OpenRun { trigger: serial, slot };
        let fewer = self.state_after_launch(trigger, slot, now);
        let passes = self.passes(trigger, mark);
        let attempt = LiveAttempt::new(RunRef::Open(run), serial, 1, mark.0, host);
        let key = self.attempts.begin(attempt);
        let by = Instant((mark.0.0 - LAUNCH_LEAD_MS).max(now.wall.0));
        let mut unit = Unit::of(vec![Delta::Open(run), passes]).by(by);
        unit.launches.push(key);
        also(Mutant::EffectsBeforeCommit, || self.attempts.release(key, now));
        self.enact_with(unit, fewer, Mutant::RemainingLater);
    }

    /// Makes a run with a record of its own instead of launching it.
    fn defer(&mut self, place: u32, slot: Instant, mark: Mark, state: RunState, now: Now) {
        let trigger = self.triggers.at(place);
        let run = trigger.run_record(slot, mark.0, state);
        let fewer = self.state_after_launch(trigger, slot, now);
        let sequence = self.runs.next_sequence();
        let mut changes = vec![Delta::Run(sequence, Arc::new(run)), self.passes(trigger, mark)];
        changes.extend(fewer);
        self.enact(Unit::of(changes).by(now.wall));
    }
}

impl Trigger {
    /// The slots, from this one on, that catch-up leaves out of those that left up to `missed_until`, if it does.
    fn missed(&self, slot: Instant, missed_until: Instant, now: Now) -> Option<Skipped> {
        let schedule = self.schedule();
        let before = Instant(slot.0 - 1);
        let is_missed = |slot: &Instant| self.leaves_at(*slot) <= missed_until;
        let last = schedule.last(before, missed_until).filter(is_missed).or_else(|| {
            let held_back = schedule.last(before, missed_until)?;
            schedule.last(before, Instant(held_back.0 - 1))
        })?;
        let catch_up = self.policy().catch_up;
        let mut to = catch_up.leaves_out(schedule, before, last)?;
        let reason = match catch_up {
            CatchUp::Skip | CatchUp::Latest => Reason::Misfire,
            CatchUp::All(_) => Reason::Cap,
        };
        let count = match schedule.count(before, to) {
            Count::Exactly(count) => count,
            Count::MoreThan(bound) => {
                to = schedule.nth(before, to, bound - 1)?;
                bound
            }
        };
        Some(self.skipped((slot, to), count, reason, now))
    }

    /// A line of the past for slots of this trigger that are skipped.
    pub(super) fn skipped(
        &self,
        (from, to): (Instant, Instant),
        count: u64,
        reason: Reason,
        now: Now,
    ) -> Skipped {
        let (project, trigger, generation) = (self.project(), self.serial, self.generation);
        Skipped { project, trigger, generation, from, to, count, reason, at: now.wall }
    }

    /// A run of a slot of this trigger, as it is now.
    pub(super) fn run_record(
        &self,
        slot: Instant,
        leaves_at: Instant,
        state: RunState,
    ) -> RunRecord {
        let (target, policy) = (Arc::new(self.target()), *self.policy());
        let blank = blank_run(self.project(), self.serial, self.name(), target, policy);
        RunRecord { slot, leaves_at, generation: Some(self.generation), state, ..blank }
    }
}

/// A run of a trigger of which nothing has happened yet.
pub(super) fn blank_run(
    project: ProjectId,
    trigger: SerialId,
    name: &str,
    target: Arc<Target>,
    policy: Policy,
) -> RunRecord {
    RunRecord {
        project,
        trigger,
        name: name.to_owned(),
        slot: Instant(0),
        leaves_at: Instant(0),
        generation: None,
        state: RunState::Running,
        attempt: 0,
        tries: 0,
        untried_since: None,
        notice: None,
        target,
        policy,
        attempts: Vec::new(),
        remote: None,
        redriven_from: None,
    }
}
