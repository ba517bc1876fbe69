//! Projects that are disabled, and what happens when they are enabled again.
//!
//! A disabled project fires nothing: its triggers are disarmed, and its runs that wait go on waiting. Its slots are
//! not decided meanwhile, however far the mark goes: for its triggers the mark stands still where it was when the
//! project was disabled. So disabling writes one record, however many triggers there are.
//!
//! When it is enabled, each of its triggers is brought up to date by its catch-up policy, as after a time in which
//! nobody was there; some at a time, each in units of their own with a cursor that says how far it is. A trigger
//! whose cursor has reached the moment of enabling is up to date. The record goes when all are; so a successor goes
//! on where its predecessor was.

use std::sync::Arc;

use crate::id::{ProjectId, SerialId};
use crate::instant::Instant;
use crate::mutant::{Mutant, pick};
use crate::past::Reason;

use super::account::skips;
use super::command::{Done, Rejection};
use super::memory::Delta;
use super::record::{RunState, StoppedRecord};
use super::triggers::Triggers;
use super::{Now, Shard, Unit};

/// Triggers that are brought up to date before others have their turn.
const AT_ONCE_MAX: usize = 256;

impl Shard {
    /// Whether a project fires nothing.
    pub(super) fn is_disabled(&self, project: ProjectId) -> bool {
        self.triggers.stopped(project).is_some_and(|stopped| stopped.enabled.is_none())
    }

    pub(super) fn disable(&mut self, project: ProjectId, now: Now) -> Result<Done, Rejection> {
        match self.triggers.stopped(project) {
            Some(stopped) if stopped.enabled.is_none() => return Ok(Done::Unchanged),
            // Some of its triggers are not up to date, and only those are told apart by their cursors.
            Some(_) => return Err(Rejection::ProjectIsEnabling),
            None => {}
        }
        for place in pick(Mutant::LagThroughDisable, self.places_of(project), Vec::new()) {
            self.skip_in_lane(place, now);
        }
        let stopped = StoppedRecord { since: self.triggers.mark(), enabled: None };
        self.enact(Unit::of(vec![Delta::Stopped(project, Some(stopped))]).by(now.wall));
        for place in self.places_of(project) {
            self.agenda.disarm(place);
        }
        Ok(Done::Disabled)
    }

    /// Skips the slots of a trigger that wait for its host: for a project that is disabled the shard's mark counts.
    fn skip_in_lane(&mut self, place: u32, now: Now) {
        let trigger = self.triggers.at(place);
        if !self.agenda.is_in_lane(place) {
            return;
        }
        let first = self.triggers.undecided(trigger).map(|(slot, _)| slot);
        let Some(last) = Triggers::last_passed(trigger, self.triggers.mark()) else { return };
        let mut changes = skips(trigger, (first, last), Reason::Disabled, now);
        let mut state = trigger.state();
        state.cursor = Some(last);
        changes.push(Delta::State(trigger.serial, state));
        self.enact(Unit::of(changes).by(now.wall));
    }

    pub(super) fn enable(&mut self, project: ProjectId, now: Now) -> Done {
        let Some(stopped) = self.triggers.stopped(project) else {
            return Done::Unchanged;
        };
        if stopped.enabled.is_some() {
            return Done::Unchanged;
        }
        let enabled = Some(now.wall.max(self.triggers.mark().0));
        let stopped = Some(StoppedRecord { enabled, ..stopped });
        let stopped = pick(Mutant::EnabledAtOnce, stopped, None);
        self.enact(Unit::of(vec![Delta::Stopped(project, stopped)]).by(now.wall));
        self.bring_up_to_date(project);
        for sequence in self.waiting.take_stopped() {
            if let Some(run) = self.runs.get(sequence) {
                self.waiting.add(sequence, &Arc::clone(run));
            }
        }
        self.unblock_all(now);
        Done::Enabled
    }

    /// A project that is being enabled is left alone until its triggers are up to date.
    pub(super) fn check_settled(&self, project: ProjectId) -> Result<(), Rejection> {
        if self.is_enabling(project) { Err(Rejection::ProjectIsEnabling) } else { Ok(()) }
    }

    pub(super) fn is_enabling(&self, project: ProjectId) -> bool {
        self.triggers.stopped(project).is_some_and(|stopped| stopped.enabled.is_some())
    }

    fn places_of(&self, project: ProjectId) -> Vec<u32> {
        let is_of = |place: &u32| self.triggers.at(*place).project() == project;
        self.triggers.places().filter(is_of).collect()
    }

    /// Lines up the triggers of a project that are behind.
    fn bring_up_to_date(&mut self, project: ProjectId) {
        for place in self.places_of(project) {
            let trigger = self.triggers.at(place);
            if self.triggers.is_behind(trigger) {
                self.agenda.fall_behind(trigger.serial);
            } else {
                self.arm(place);
            }
        }
    }

    /// Projects that were enabled and are not up to date.
    fn enabling(&self) -> Vec<ProjectId> {
        let stopped = self.triggers.all_stopped();
        stopped.filter(|(_, stopped)| stopped.enabled.is_some()).map(|(id, _)| id).collect()
    }

    /// Lines up whatever a predecessor has not brought up to date.
    pub(super) fn go_on_enabling(&mut self) {
        for project in self.enabling() {
            self.bring_up_to_date(project);
        }
    }

    /// Brings some of the triggers up to date that are behind.
    pub(super) fn catch_up_enabled_projects(&mut self, now: Now) {
        for _ in 0..AT_ONCE_MAX {
            if self.outbox.is_full() {
                return;
            }
            let Some(serial) = self.agenda.next_behind() else { break };
            if let Some(place) = self.triggers.place(serial)
                && self.triggers.is_behind(self.triggers.at(place))
            {
                self.catch_up_enabled_trigger(place, now);
                self.arm(place);
            }
        }
        if self.agenda.is_up_to_date() {
            for project in self.enabling() {
                self.enact(Unit::of(vec![Delta::Stopped(project, None)]).by(now.wall));
                for place in self.places_of(project) {
                    self.arm(place);
                }
            }
        }
    }

    /// Decides every slot of a trigger that is behind, by its catch-up policy, and says so with its cursor.
    fn catch_up_enabled_trigger(&mut self, place: u32, now: Now) {
        let serial = self.triggers.at(place).serial;
        let here = now.wall.max(self.triggers.mark().0).max(self.triggers.at(place).cursor());
        let trigger = self.triggers.at(place);
        if trigger.fires() {
            self.skip_while_disabled(serial, here, now);
            self.make_up_rest(serial, here, now);
        }
        let Some(trigger) = self.triggers.get(serial) else { return };
        // What is paused is accounted for from its cursor when it is resumed; and after the last run of a limit nothing
        // is due, unless that run is taken back.
        if trigger.is_paused() || trigger.remaining() == Some(0) {
            return;
        }
        let mut state = trigger.state();
        state.cursor = Some(here.max(trigger.cursor()));
        state.well = trigger.policy().alert_after_ms.map(|_| now.wall);
        self.enact(Unit::of(vec![Delta::State(serial, state)]).by(now.wall));
        self.watch_over(serial);
    }

    /// Skips the slots up to here that catch-up leaves out, also those that jitter keeps back: nobody else decides them.
    fn skip_while_disabled(&mut self, serial: SerialId, here: Instant, now: Now) {
        let Some(trigger) = self.triggers.get(serial) else { return };
        let Some((first, _)) = self.triggers.undecided(trigger).filter(|(slot, _)| *slot <= here)
        else {
            return;
        };
        let schedule = trigger.schedule();
        let before = Instant(first.0 - 1);
        let catch_up = trigger.policy().catch_up;
        let last = schedule.last(before, here);
        let Some(last) = last.and_then(|last| catch_up.leaves_out(schedule, before, last)) else {
            return;
        };
        let lines = skips(trigger, (Some(first), last), Reason::Disabled, now);
        let mut state = trigger.state();
        state.cursor = Some(last);
        let mut changes = lines;
        changes.push(Delta::State(serial, state));
        self.enact(Unit::of(changes).by(now.wall));
    }

    /// Gives every slot up to here that is left a run.
    fn make_up_rest(&mut self, serial: SerialId, here: Instant, now: Now) {
        while let Some(trigger) = self.triggers.get(serial)
            && trigger.remaining() != Some(0)
            && let Some((slot, leaves_at)) = self.triggers.undecided(trigger)
            && slot <= here
        {
            let run = trigger.run_record(slot, leaves_at, RunState::Waiting(leaves_at));
            let mut state = trigger.state();
            state.cursor = Some(slot);
            state.remaining = trigger.remaining().map(|left| left.saturating_sub(1));
            let sequence = self.runs.next_sequence();
            let changes = vec![Delta::Run(sequence, Arc::new(run)), Delta::State(serial, state)];
            self.enact(Unit::of(changes).by(now.wall));
        }
    }
}
