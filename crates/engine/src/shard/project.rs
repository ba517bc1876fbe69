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

use crate::id::{ProjectId, Unique};
use crate::instant::Instant;
use crate::limits::UNITS_WAITING_MAX;
use crate::mutant::{Mutant, pick};
use crate::past::Reason;
use crate::policy::CatchUp;

use super::account::skips;
use super::command::{Done, Rejection};
use super::memory::{Change, Trigger};
use super::record::{Mark, RunState, StoppedRecord};
use super::{Now, Shard, Unit};

/// Triggers that are brought up to date before others have their turn.
const AT_ONCE_MAX: usize = 256;

impl Shard {
    /// Whether a project fires nothing.
    pub(super) fn is_disabled(&self, project: ProjectId) -> bool {
        self.memory.stopped.get(&project).is_some_and(|stopped| stopped.enabled.is_none())
    }

    pub(super) fn disable(&mut self, project: ProjectId, now: Now) -> Result<Done, Rejection> {
        match self.memory.stopped.get(&project) {
            Some(stopped) if stopped.enabled.is_none() => return Ok(Done::Unchanged),
            // Some of its triggers are not up to date, and only those are told apart by their cursors.
            Some(_) => return Err(Rejection::ProjectIsEnabling),
            None => {}
        }
        let stopped = StoppedRecord { since: self.memory.fired, enabled: None };
        self.enact(Unit::of(vec![Change::Stopped(project, Some(stopped))]).by(now.wall));
        for place in self.places_of(project) {
            self.disarm(place);
        }
        Ok(Done::Disabled)
    }

    pub(super) fn enable(&mut self, project: ProjectId, now: Now) -> Done {
        let Some(stopped) = self.memory.stopped.get(&project).copied() else {
            return Done::Unchanged;
        };
        if stopped.enabled.is_some() {
            return Done::Unchanged;
        }
        let enabled = Some(now.wall.max(self.memory.fired.0));
        let stopped = Some(StoppedRecord { enabled, ..stopped });
        let stopped = pick(Mutant::EnabledAtOnce, stopped, None);
        self.enact(Unit::of(vec![Change::Stopped(project, stopped)]).by(now.wall));
        self.bring_up_to_date(project);
        for sequence in std::mem::take(&mut self.attempts.stopped) {
            if let Some(run) = self.memory.runs.get(&sequence) {
                self.attempts.wait(sequence, &Arc::clone(run));
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
        self.memory.stopped.get(&project).is_some_and(|stopped| stopped.enabled.is_some())
    }

    fn places_of(&self, project: ProjectId) -> Vec<u32> {
        let is_of = |place: &u32| self.memory.at(*place).project() == project;
        self.memory.places().filter(is_of).collect()
    }

    /// Lines up the triggers of a project that are behind.
    fn bring_up_to_date(&mut self, project: ProjectId) {
        for place in self.places_of(project) {
            let trigger = self.memory.at(place);
            if self.memory.is_behind(trigger) {
                self.behind.push_back(trigger.unique);
            } else {
                self.arm(place);
            }
        }
    }

    /// Projects that were enabled and are not up to date.
    fn enabling(&self) -> Vec<ProjectId> {
        let stopped = self.memory.stopped.iter();
        stopped.filter(|(_, stopped)| stopped.enabled.is_some()).map(|(id, _)| *id).collect()
    }

    /// Lines up whatever a predecessor has not brought up to date.
    pub(super) fn go_on_enabling(&mut self) {
        for project in self.enabling() {
            self.bring_up_to_date(project);
        }
    }

    /// When to go on with that.
    pub(super) fn next_catch_up(&self, now: Now) -> Option<Instant> {
        (!self.behind.is_empty()).then_some(Instant(now.wall.0 + 1))
    }

    /// Brings some of the triggers up to date that are behind.
    pub(super) fn catch_up(&mut self, now: Now) {
        for _ in 0..AT_ONCE_MAX {
            if self.units.len() >= UNITS_WAITING_MAX {
                return;
            }
            let Some(unique) = self.behind.pop_front() else { break };
            if let Some(place) = self.memory.place(unique)
                && self.memory.is_behind(self.memory.at(place))
            {
                self.catch_up_one(place, now);
                self.arm(place);
            }
        }
        if self.behind.is_empty() {
            for project in self.enabling() {
                self.enact(Unit::of(vec![Change::Stopped(project, None)]).by(now.wall));
                for place in self.places_of(project) {
                    self.arm(place);
                }
            }
        }
    }

    /// Decides every slot of a trigger that is behind, by its catch-up policy, and says so with its cursor.
    fn catch_up_one(&mut self, place: u32, now: Now) {
        let unique = self.memory.at(place).unique;
        let here = now.wall.max(self.memory.fired.0).max(self.memory.at(place).cursor());
        let trigger = self.memory.at(place);
        let is_due =
            !trigger.is_paused() && !trigger.is_cancelled() && trigger.remaining() != Some(0);
        if is_due {
            let keep = match trigger.policy().catch_up {
                CatchUp::Skip => 0,
                CatchUp::Latest => 1,
                CatchUp::All(cap) => cap,
            };
            self.skip_all_but(unique, here, keep, now);
            self.make_up_rest(unique, here, now);
        }
        let Some(trigger) = self.memory.trigger(unique) else { return };
        // What is paused is accounted for from its cursor when it is resumed; and after the last run of a limit nothing
        // is due, unless that run is taken back.
        if trigger.is_paused() || trigger.remaining() == Some(0) {
            return;
        }
        let mut state = trigger.state();
        state.cursor = Some(here.max(trigger.cursor()));
        state.well = trigger.policy().alert_after_ms.map(|_| now.wall);
        self.enact(Unit::of(vec![Change::State(unique, state)]).by(now.wall));
        self.watch_over(unique);
    }

    /// Skips the slots up to here, but for the last few.
    fn skip_all_but(&mut self, unique: Unique, here: Instant, keep: u16, now: Now) {
        let Some(trigger) = self.memory.trigger(unique) else { return };
        let Some((first, _)) = self.memory.undecided(trigger).filter(|(slot, _)| *slot <= here)
        else {
            return;
        };
        let schedule = trigger.schedule();
        let before = Instant(first.0 - 1);
        let mut last = schedule.last(before, here);
        for _ in 0..keep {
            last = last.and_then(|slot| schedule.last(before, Instant(slot.0 - 1)));
        }
        let Some(last) = last else { return };
        let lines = skips(trigger, (Some(first), last), Reason::Disabled, now);
        let mut state = trigger.state();
        state.cursor = Some(last);
        let mut changes = lines;
        changes.push(Change::State(unique, state));
        self.enact(Unit::of(changes).by(now.wall));
    }

    /// Gives every slot up to here that is left a run.
    fn make_up_rest(&mut self, unique: Unique, here: Instant, now: Now) {
        while let Some(trigger) = self.memory.trigger(unique)
            && trigger.remaining() != Some(0)
            && let Some((slot, leaves)) = self.memory.undecided(trigger)
            && slot <= here
        {
            let run = trigger.run_record(slot, leaves, RunState::Waiting(leaves));
            let mut state = trigger.state();
            state.cursor = Some(slot);
            state.remaining = trigger.remaining().map(|left| left.saturating_sub(1));
            let sequence = self.memory.sequence + 1;
            let run = Arc::new(run);
            let changes =
                vec![Change::Run(sequence, Arc::clone(&run)), Change::State(unique, state)];
            self.enact(Unit::of(changes).by(now.wall));
            self.attempts.wait(sequence, &run);
        }
    }
}

impl super::memory::Memory {
    /// The mark, as far as it counts for a trigger.
    pub(super) fn mark_of(&self, trigger: &Trigger) -> Mark {
        match self.stopped.get(&trigger.project()) {
            Some(stopped) if self.is_behind(trigger) => stopped.since.min(self.fired),
            _ => self.fired,
        }
    }

    /// Whether a trigger's project is disabled, or was and the trigger is not up to date since.
    pub(super) fn is_behind(&self, trigger: &Trigger) -> bool {
        let stopped = self.stopped.get(&trigger.project());
        stopped
            .is_some_and(|stopped| stopped.enabled.is_none_or(|enabled| trigger.cursor() < enabled))
    }
}
