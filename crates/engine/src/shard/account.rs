//! What becomes of slots when a command comes between them.
//!
//! Those before it are accounted for: what nobody has decided is recorded as skipped, and what was launched ahead and
//! has not left is taken back. A schedule that begins to count, because it is new or its trigger is resumed, begins at
//! the clock although the mark may be ahead of it by the look-ahead: its slots that the mark has passed get records of
//! their own.

use std::num::NonZeroU64;
use std::sync::Arc;

use crate::id::{ProjectId, SerialId, TriggerId};
use crate::instant::Instant;
use crate::limits::{LOOK_AHEAD_MS, WEBHOOK_HEADER_BYTES_MAX};
use crate::mutant::{Mutant, pick};
use crate::past::{End, Line, Reason, Skipped};
use crate::policy::Overlap;
use crate::schedule::Count;
use crate::target::Target;
use crate::trigger::Definition;

use super::attempts::RunRef;
use super::due::blank_run;
use super::memory::Delta;
use super::record::{Mark, RunRecord, RunState, TriggerState};
use super::triggers::Trigger;
use super::{Now, Shard, Unit};

/// How many slots that the mark has passed get runs at once, and how many bytes these may have together.
const MADE_UP_MAX: usize = 16;
/// What a change of a trigger writes besides: the head, the trigger, its name and its state, its queue, and what is
/// skipped, twice.
const BESIDE_MADE_UP: usize = 7;
pub(super) const MADE_UP_BYTES: usize = 256 * 1024;

impl Shard {
    /// The latest of clock, mark and cursor.
    pub(super) fn now_of(&self, trigger: &Trigger, now: Now) -> Instant {
        let mark = pick(Mutant::NowWithoutMark, self.triggers.mark().0, now.wall);
        let cursor = pick(Mutant::NowWithoutCursor, trigger.cursor(), now.wall);
        now.wall.max(mark).max(cursor)
    }

    /// From when on a schedule that begins now counts: not from the mark, if that is ahead by no more than the
    /// look-ahead.
    pub(super) fn beginning(&self, project: ProjectId, cursor: Instant, now: Now) -> Instant {
        if let Some(stopped) = self.triggers.stopped(project) {
            return now.wall.max(cursor).max(stopped.since.0);
        }
        let (here, mark) = (now.wall.max(cursor), self.triggers.mark().0);
        if mark.0 - here.0 > LOOK_AHEAD_MS { mark } else { here }
    }

    /// What becomes of the slots after `from` that the mark has passed already: nobody else decides them. The first ones
    /// get runs, as many as fit a commit; where runs must not overlap it is one. The others are skipped.
    pub(super) fn start_passed_slots(
        &self,
        id: TriggerId,
        definition: &Definition,
        generation: u32,
        from: Instant,
        state: &mut TriggerState,
        now: Now,
    ) -> Vec<Delta> {
        if self.triggers.stopped(id.project).is_some() {
            return Vec::new();
        }
        let Definition { name, labels: _, schedule, target, policy } = definition;
        let mark = self.triggers.mark_for(target.host());
        let bytes = bytes_of_run(target);
        let (most, reason) = match policy.overlap {
            Overlap::Allow => (MADE_UP_BYTES / bytes, Reason::Cap),
            Overlap::Skip | Overlap::QueueOne | Overlap::Replace => (1, Reason::Overlap),
        };
        let room = self.outbox.writes_max().saturating_sub(BESIDE_MADE_UP);
        let most = most.min(room).clamp(1, MADE_UP_MAX);
        let mut left = state.remaining.or(schedule.limit().map(NonZeroU64::get));
        let (mut changes, mut skipped) = (Vec::new(), None::<Skipped>);
        let blank = blank_run(id.project, id.serial, name, Arc::new(target.clone()), *policy);
        let mut next = schedule.next(from);
        while let Some(slot) = next
            && left != Some(0)
        {
            let leaves_at = schedule.leaves_at(slot, name);
            if Mark(leaves_at, id.serial) > mark {
                break;
            }
            next = schedule.next(slot);
            if changes.len() >= most {
                let (project, trigger, at) = (id.project, id.serial, now.wall);
                let (from, to, count) = (slot, slot, 0);
                let blank = Skipped { project, trigger, generation, from, to, count, reason, at };
                let skipped = skipped.get_or_insert(blank);
                (skipped.to, skipped.count) = (slot, skipped.count + 1);
                continue;
            }
            let sequence = self.runs.next_sequence() + changes.len() as u64;
            let (waiting, generation) = (RunState::Waiting(leaves_at), Some(generation));
            let run = RunRecord { slot, leaves_at, state: waiting, generation, ..blank.clone() };
            changes.push(Delta::Run(sequence, Arc::new(run)));
            left = left.map(|left| left.saturating_sub(1));
            state.remaining = left;
            if left == Some(0) {
                state.cursor = Some(slot);
            }
        }
        changes.extend(skipped.map(|skipped| Delta::Past(Line::Skip(skipped))));
        changes
    }

    /// Records every slot up to `until` that is not decided as skipped. A trigger that is paused is so since
    /// its cursor, and all slots after it were skipped for that. After its last run nothing is due.
    pub(super) fn account(
        &self,
        trigger: &Trigger,
        until: Instant,
        reason: Reason,
        now: Now,
    ) -> Vec<Delta> {
        let is_over = trigger.is_cancelled() || trigger.remaining() == Some(0);
        if pick(Mutant::ChangeWithoutAccount, is_over, true) {
            return Vec::new();
        }
        if trigger.is_paused() {
            let first = trigger.schedule().next(trigger.cursor());
            return skips(trigger, (first, until), Reason::Paused, now);
        }
        let first = self.triggers.undecided(trigger).map(|(slot, _)| slot);
        skips(trigger, (first, until), reason, now)
    }

    /// Takes back what was launched ahead and has not left. Slots after `end` are no slots of its schedule any more.
    pub(super) fn revoke(&mut self, serial: SerialId, reason: Reason, end: Instant, now: Now) {
        for run in pick(Mutant::NotTakenBack, self.active(serial), Vec::new()) {
            if !self.is_unfinished(run)
                || self.run_leaves_at(run) <= now.wall
                || self.has_left(run)
                || self.is_remote(run)
            {
                continue;
            }
            let is_slot = self.run_property(run, |_, _| true, |record| record.generation.is_some());
            if self.is_untouched(run) {
                if is_slot {
                    self.unlaunch(run, reason, end, now);
                }
            } else if self.is_doubtful(run) {
                // It may have left under a predecessor whose clock was ahead of ours.
                self.leave_unknown(run, now);
            }
        }
        self.take_back_enqueued(serial, reason, end, now);
    }

    /// Ends a run in doubt, which may still be at work at its receiver.
    pub(super) fn leave_unknown(&mut self, run: RunRef, now: Now) {
        let number = self.number_of(run);
        self.attempts.remove_of(run);
        self.attempts
            .keep_back(self.lane_of(run), now.steady + u64::from(self.at_work_ms(run, now)));
        let kept_back = self.kept_back(run, now).into_iter().collect();
        self.enact(Unit::of(kept_back).by(now.wall));
        self.end(run, End::Unknown, number, None, now);
    }

    /// Skips a slot that was launched and surely has not left.
    fn unlaunch(&mut self, run: RunRef, reason: Reason, end: Instant, now: Now) {
        let record = self.record_of(run);
        self.attempts.remove_of(run);
        let gone = self.forget(run);
        let generation = self.triggers.get(record.trigger).map_or(0, |known| known.generation);
        let slot = (record.trigger, record.slot, record.generation.unwrap_or(generation));
        self.take_back_slot(slot, gone, reason, end, now);
    }

    /// Skips a slot whose run is gone by this change.
    pub(super) fn take_back_slot(
        &mut self,
        (serial, slot, generation): (SerialId, Instant, u32),
        gone: Delta,
        reason: Reason,
        end: Instant,
        now: Now,
    ) {
        let mut changes = vec![gone];
        let Some(trigger) = self.triggers.get(serial) else { return };
        let skipped = trigger.skipped((slot, slot), 1, reason, now);
        let line = Delta::Past(Line::Skip(Skipped { generation, ..skipped }));
        changes.extend(pick(Mutant::TakenBackWithoutRecord, Some(line), None));
        if generation == trigger.generation
            && let Some(left) = pick(Mutant::RemainingKept, trigger.remaining(), None)
        {
            let mut state = trigger.state();
            state.remaining = Some(left + 1);
            if left == 0 {
                // It was to be the last one: nothing after it was looked at when the mark passed.
                let now_here = self.now_of(trigger, now).min(end);
                let first = trigger.schedule().next(trigger.cursor());
                changes.extend(skips(trigger, (first, now_here), reason, now));
                state.cursor = Some(now_here);
            }
            changes.push(Delta::State(serial, state));
        }
        self.enact(Unit::of(changes).by(now.wall));
        self.unblock(serial, now);
    }
}

/// Skips all slots from the first one on, up to `until`.
pub(super) fn skips(
    trigger: &Trigger,
    (first, until): (Option<Instant>, Instant),
    reason: Reason,
    now: Now,
) -> Vec<Delta> {
    let schedule = trigger.schedule();
    let mut lines = Vec::new();
    let mut next = first.filter(|slot| *slot <= until);
    while let Some(from) = next {
        let before = Instant(from.0 - 1);
        let Some(mut to) = schedule.last(before, until) else { break };
        let count = match schedule.count(before, to) {
            Count::Exactly(count) => count,
            Count::MoreThan(bound) => {
                to = schedule.nth(before, to, bound - 1).unwrap_or(to);
                bound
            }
        };
        let skipped = trigger.skipped((from, to), count, reason, now);
        lines.push(Delta::Past(Line::Skip(skipped)));
        next = schedule.next(to).filter(|slot| *slot <= until);
    }
    lines
}

/// About how many bytes the record of a run takes that sends this.
pub(super) fn bytes_of_run(target: &Target) -> usize {
    let (path, body) = target.own_texts();
    path.len() + 2 * body.map_or(0, str::len) + WEBHOOK_HEADER_BYTES_MAX
}

/// A trigger's cursor once everything up to a moment is accounted for. After the last run nothing is, and
/// its cursor stays there: the run may be taken back yet.
pub(super) fn cursor_at(trigger: &Trigger, moment: Instant) -> Instant {
    let is_used_up = trigger.remaining() == Some(0);
    if is_used_up { trigger.cursor() } else { moment }
}
