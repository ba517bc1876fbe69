//! What commands do.
//!
//! For a trigger, *now* is the latest of the wall clock, the mark and its cursor: what is decided stays
//! decided, whatever the clock says. A pause, a change of schedule, a cancellation and a deletion first
//! account for every slot up to that now, also those that jitter kept back, take back what was launched
//! ahead and has not left, and move the cursor there, all before the command is answered. Any other change
//! leaves schedule, generation and cursor alone. Since open runs take their definition from their trigger,
//! they get records of their own before it changes.
//!
//! What becomes of slots then is in [`super::account`].

use std::sync::Arc;

use serde_json::value::RawValue;

use crate::id::{Birth, ProjectId, RunId, SerialId, TriggerId};
use crate::instant::Instant;
use crate::mutant::{Mutant, pick};
use crate::notice::Occasion;
use crate::past::Reason;
use crate::trigger::Definition;

use super::account::cursor_at;
use super::command::{Command, Done, Rejection};
use super::dead::RedriveResult;
use super::memory::Delta;
use super::record::{Pause, ReservedName, RunRecord, RunState, TriggerRecord, TriggerState};
use super::triggers::{Trigger, Triggers};
use super::{CommandNote, Now, Shard, Ticket, Unit, submit};

/// Who does what nobody asked for.
pub(super) const ITSELF: &str = "watchbell";

impl Shard {
    /// Decides about a command. Whoever has the ticket is told when the command is written, and the note is
    /// written with the first unit of it.
    pub fn command(
        &mut self,
        command: Command,
        note: Option<CommandNote>,
        ticket: Ticket,
        now: Now,
    ) -> Result<(), Rejection> {
        let first = self.outbox.len();
        let done = self.carry_out(command, now)?;
        let note = note.filter(|_| done.is_change());
        let runs: Vec<RunId> = match &done {
            Done::Started(run) => vec![*run],
            Done::Submitted(taken) => taken.iter().map(|taken| taken.id).collect(),
            Done::Redriven(results) => results.iter().filter_map(RedriveResult::run).collect(),
            _ => Vec::new(),
        };
        self.enact(Unit { reply: Some((ticket, done)), ..Unit::default().by(now.wall) });
        if let Some(note) = note {
            self.outbox.write_with(first, note(&runs).into_iter().map(Delta::Raw));
        }
        Ok(())
    }

    fn carry_out(&mut self, command: Command, now: Now) -> Result<Done, Rejection> {
        Ok(match command {
            Command::Create { project, definition, draft, author, named_until } => {
                if named_until.is_some_and(|until| until <= now.steady) {
                    return Err(Rejection::ReservationIsOver);
                }
                self.check_settled(project)?;
                self.create(project, *definition, draft, author, now)?
            }
            Command::Replace { trigger, definition, draft, author, revision } => {
                self.known(trigger)?;
                self.replace(trigger, *definition, draft, author, revision, now)?
            }
            Command::Pause { trigger, author, note, until } => {
                self.check_fires(trigger)?;
                if self.known(trigger)?.is_paused() {
                    return Err(Rejection::AlreadyPaused);
                }
                self.pause(trigger, author, note, until, None, now);
                Done::Paused
            }
            Command::Resume { trigger, author: _ } => {
                self.check_fires(trigger)?;
                if !self.known(trigger)?.is_paused() {
                    return Err(Rejection::NotPaused);
                }
                self.resume(trigger, now);
                Done::Resumed
            }
            Command::Cancel { trigger, author: _ } => {
                self.check_fires(trigger)?;
                self.cancel(trigger, now);
                Done::Cancelled
            }
            Command::Delete { trigger, author: _ } => {
                self.known(trigger)?;
                self.delete(trigger, Vec::new(), now);
                Done::Deleted
            }
            Command::Run { trigger, author: _ } => {
                self.check_fires(trigger)?;
                self.run(trigger, now)?
            }
            Command::Backfill { trigger, author: _, request, from, to } => {
                self.check_fires(trigger)?;
                self.backfill(trigger, &request, (from, to), now)?
            }
            Command::ReserveName { project, name, shard } => {
                self.reserve_name(project, name, shard, now)?
            }
            Command::ReleaseName { project, name } => self.release_name(project, name, now),
            Command::Disable { project } => self.disable(project, now)?,
            Command::Enable { project } => self.enable(project, now),
            Command::Prune { ended_before, from } => self.prune(ended_before, from, now),
            Command::Submit { project, queue, runs, author } => {
                self.submit(project, &queue, runs, &author, now)?
            }
            Command::SetQueue { project, name, settings, author, revision } => {
                self.set_queue(project, &name, settings, author, revision, now)?
            }
            Command::PauseQueue { queue, author, note, until } => {
                let pause = submit::pause(author, note, until, now);
                self.pause_queue(queue, Some(pause), now)?
            }
            Command::ResumeQueue { queue } => self.pause_queue(queue, None, now)?,
            Command::DeleteQueue { queue } => self.delete_queue(queue, now)?,
            Command::CancelRun { project, run } => self.cancel_queued(project, run, now)?,
            Command::CancelRuns { queue, filter, span, most } => {
                self.cancel_by_filter(queue, &filter, span, most, now)?
            }
            Command::Redrive { queue, runs } => self.redrive(queue, runs, now)?,
        })
    }

    pub(super) fn known(&self, serial: SerialId) -> Result<&Trigger, Rejection> {
        self.triggers.get(serial).ok_or(Rejection::NoSuchTrigger)
    }

    fn check_fires(&self, serial: SerialId) -> Result<(), Rejection> {
        let trigger = self.known(serial)?;
        self.check_settled(trigger.project())?;
        if trigger.is_cancelled() { Err(Rejection::AlreadyCancelled) } else { Ok(()) }
    }

    fn create(
        &mut self,
        project: ProjectId,
        definition: Definition,
        draft: Box<RawValue>,
        author: String,
        now: Now,
    ) -> Result<Done, Rejection> {
        if let Some(taken) = self.triggers.named(project, &definition.name) {
            return Err(Rejection::NameTaken(self.id_of(taken)));
        }
        if let Some(ReservedName { at, .. }) = self.triggers.reserved.get(project, &definition.name)
        {
            return Err(Rejection::NameReserved { at });
        }
        if self.triggers.is_full() {
            return Err(Rejection::TooManyTriggers);
        }
        let queue = self.missing_queue(project, &definition.target, &author, now)?;
        let youngest = queue.as_ref().map_or(self.triggers.youngest(), |queue| queue.id.serial);
        let serial = SerialId::born(now.wall, youngest, now.random);
        let id = TriggerId { shard: self.id, project, serial };
        let since = self.beginning(project, now.wall, now);
        let (created, written, revision, generation) = (now.wall, now.wall, 1, 1);
        let record =
            TriggerRecord { id, draft, created, written, author, revision, generation, since };
        let mut state = TriggerState::default();
        let made_up = self.start_passed_slots(id, &definition, 1, since, &mut state, now);
        let mut changes: Vec<Delta> = queue.map(Delta::Queue).into_iter().collect();
        changes.push(Delta::Trigger(Box::new((record, definition))));
        if !made_up.is_empty() {
            changes.push(Delta::State(serial, state));
            changes.extend(made_up);
        }
        self.enact(Unit::of(changes));
        self.arm(self.triggers.place(serial).expect("just made"));
        self.watch_over(serial);
        Ok(Done::Created(id))
    }

    fn replace(
        &mut self,
        serial: SerialId,
        definition: Definition,
        draft: Box<RawValue>,
        author: String,
        expected: Option<u64>,
        now: Now,
    ) -> Result<Done, Rejection> {
        let trigger = self.known(serial)?;
        self.check_settled(trigger.project())?;
        let found = u64::from(trigger.revision);
        if expected.is_some_and(|expected| expected != found) {
            return Err(Rejection::RevisionMoved { found });
        }
        if trigger.is_cancelled() {
            return Err(Rejection::AlreadyCancelled);
        }
        if trigger.is(&definition) {
            return Ok(Done::Unchanged);
        }
        let queue = self.missing_queue(trigger.project(), &definition.target, &author, now)?;
        let is_same_schedule = *trigger.schedule() == definition.schedule;
        let begins = if trigger.is_paused() {
            self.now_of(trigger, now)
        } else {
            self.beginning(trigger.project(), trigger.cursor(), now)
        };
        if !is_same_schedule {
            self.revoke(serial, Reason::Superseded, begins, now);
        }
        self.write_out_all(serial, now);
        let trigger = self.known(serial)?;
        let id = self.id_of(trigger);
        let mut state = trigger.state();
        state.cursor = Some(trigger.cursor());
        let (mut changes, mut made_up) = (Vec::new(), Vec::new());
        let (mut generation, mut since) = (trigger.generation, trigger.since);
        if is_same_schedule && trigger.host() != definition.target.host() {
            made_up = self.change_host(trigger, &definition, &mut state, now);
        }
        if !is_same_schedule {
            changes = self.account(trigger, begins, Reason::Superseded, now);
            generation += 1;
            since = begins;
            let paused = state.paused.take().map(|pause| Pause { since, ..pause });
            state = TriggerState {
                cursor: Some(since),
                remaining: None,
                failures: 0,
                paused,
                cancelled: None,
                ..state
            };
            if state.paused.is_none() {
                made_up =
                    self.start_passed_slots(id, &definition, generation, since, &mut state, now);
            }
        }
        let alert_after_ms = definition.policy.alert_after_ms;
        if trigger.policy().alert_after_ms != alert_after_ms {
            // Before it was watched, nobody knows when it last succeeded.
            state.well = alert_after_ms.map(|_| state.well.unwrap_or(now.wall));
        }
        let revision = found + 1;
        let written = now.wall;
        let created = trigger.serial.birth();
        let record =
            TriggerRecord { id, draft, created, written, author, revision, generation, since };
        changes.extend(queue.map(Delta::Queue));
        changes.push(Delta::Trigger(Box::new((record, definition))));
        changes.push(Delta::State(serial, state));
        changes.extend(made_up);
        self.agenda.disarm(self.triggers.place(serial).expect("it is known"));
        self.enact(Unit::of(changes));
        self.arm(self.triggers.place(serial).expect("it is known"));
        self.watch_over(serial);
        Ok(Done::Replaced { revision })
    }

    /// What becomes of slots when a trigger goes to another host: what is decided by the mark of its former host is so by
    /// its cursor, and what the mark of the other host has passed gets runs of its own.
    fn change_host(
        &self,
        trigger: &Trigger,
        definition: &Definition,
        state: &mut TriggerState,
        now: Now,
    ) -> Vec<Delta> {
        let (former, other) =
            (self.triggers.mark_of(trigger), self.triggers.mark_for(definition.target.host()));
        if former == other || !trigger.fires() || self.triggers.is_behind(trigger) {
            return Vec::new();
        }
        let decided = Triggers::last_passed(trigger, former).unwrap_or(trigger.cursor());
        state.cursor = Some(decided);
        let (id, generation) = (self.id_of(trigger), trigger.generation);
        let made_up = self.start_passed_slots(id, definition, generation, decided, state, now);
        pick(Mutant::LagLeftBehind, made_up, Vec::new())
    }

    fn pause(
        &mut self,
        serial: SerialId,
        author: String,
        note: String,
        until: Option<Instant>,
        occasion: Option<Occasion>,
        now: Now,
    ) {
        self.revoke(serial, Reason::Paused, Instant::LAST, now);
        let Some(place) = self.triggers.place(serial) else { return };
        let trigger = self.triggers.at(place);
        let since = self.now_of(trigger, now);
        let mut changes = self.account(trigger, since, Reason::Paused, now);
        let mut state = trigger.state();
        let notice = occasion.map(|_| self.notice_of_pause(trigger, &note, now));
        state.paused = Some(Pause { since, until, author, note });
        state.cursor = Some(cursor_at(trigger, since));
        changes.push(Delta::State(serial, state));
        self.enact_with(
            Unit::of(changes).by(now.wall),
            notice.unwrap_or_default(),
            Mutant::NoticeLater,
        );
        self.arm(place);
        if let Some(until) = until {
            self.agenda.resume_at(until, serial);
        }
    }

    /// Pauses a trigger that nobody asked to be paused.
    pub(super) fn pause_by_itself(&mut self, serial: SerialId, note: &str, now: Now) {
        let is_pausable = |trigger: &Trigger| !trigger.is_paused() && !trigger.is_cancelled();
        if self.triggers.get(serial).is_some_and(is_pausable) {
            let occasion = Some(Occasion::Paused);
            self.pause(serial, ITSELF.to_owned(), note.to_owned(), None, occasion, now);
        }
    }

    fn resume(&mut self, serial: SerialId, now: Now) {
        let Some(place) = self.triggers.place(serial) else { return };
        let trigger = self.triggers.at(place);
        let begins = self.beginning(trigger.project(), trigger.cursor(), now);
        let mut changes = self.account(trigger, begins, Reason::Paused, now);
        let mut state = trigger.state();
        let until = state.paused.take().and_then(|pause| pause.until);
        state.cursor = Some(cursor_at(trigger, begins));
        state.failures = 0;
        state.well = trigger.policy().alert_after_ms.map(|_| now.wall);
        let (definition, generation) = (trigger.definition(), trigger.generation);
        let id = self.id_of(trigger);
        let made_up = self.start_passed_slots(id, &definition, generation, begins, &mut state, now);
        changes.push(Delta::State(serial, state));
        changes.extend(made_up);
        self.enact(Unit::of(changes).by(now.wall));
        if let Some(until) = until {
            self.agenda.resumed(until, serial);
        }
        self.arm(place);
        self.watch_over(serial);
    }

    /// Resumes the triggers whose pause is over.
    pub(super) fn end_pauses(&mut self, now: Now) {
        while let Some((until, serial)) = self.agenda.next_resume() {
            let enabling = |trigger: &Trigger| self.is_enabling(trigger.project());
            if until > now.wall || self.triggers.get(serial).is_some_and(enabling) {
                break;
            }
            self.agenda.resumed(until, serial);
            if self.triggers.get(serial).is_some_and(Trigger::is_paused) {
                self.resume(serial, now);
            }
        }
    }

    fn cancel(&mut self, serial: SerialId, now: Now) {
        self.finish_up(serial, now);
        let Some(place) = self.triggers.place(serial) else { return };
        let trigger = self.triggers.at(place);
        let now_here = self.now_of(trigger, now);
        let mut changes = self.account(trigger, now_here, Reason::Superseded, now);
        let mut state = trigger.state();
        state.paused = None;
        state.cancelled = Some(now_here);
        state.cursor = Some(now_here);
        changes.push(Delta::State(serial, state));
        self.enact(Unit::of(changes));
        self.arm(place);
    }

    /// Deletes a trigger, and writes something else in the same unit.
    pub(super) fn delete(&mut self, serial: SerialId, beside: Vec<Delta>, now: Now) {
        self.finish_up(serial, now);
        self.write_out_all(serial, now);
        let Some(place) = self.triggers.place(serial) else { return };
        let trigger = self.triggers.at(place);
        let now_here = self.now_of(trigger, now);
        let mut changes = self.account(trigger, now_here, Reason::Superseded, now);
        changes.extend(beside);
        changes.push(Delta::Gone(self.id_of(trigger), trigger.name().into()));
        self.agenda.disarm(place);
        self.enact(Unit::of(changes));
    }

    /// Ends what has not left, and what would be tried again: a cancelled trigger has no slot that could be taken back
    /// later, and a deleted trigger cannot carry `busy_elsewhere_ms`.
    fn finish_up(&mut self, serial: SerialId, now: Now) {
        self.revoke(serial, Reason::Superseded, Instant::LAST, now);
        for run in self.active(serial) {
            if !self.is_unfinished(run) || self.has_left(run) {
                continue;
            }
            if self.is_doubtful(run) {
                self.leave_unknown(run, now);
            } else {
                self.cancel_run(run, now);
            }
        }
    }

    fn run(&mut self, serial: SerialId, now: Now) -> Result<Done, Rejection> {
        let trigger = self.known(serial)?;
        if self.is_disabled(trigger.project()) {
            return Err(Rejection::ProjectIsDisabled);
        }
        self.check_room(trigger, 1)?;
        let record = trigger.run_record(now.wall, now.wall, RunState::Waiting(now.wall));
        let record = RunRecord { generation: None, ..record };
        let sequence = self.runs.next_sequence();
        let id = self.run_id(serial, now.wall, Birth::Demand(sequence));
        self.enact(Unit::of(vec![Delta::Run(sequence, Arc::new(record))]));
        Ok(Done::Started(id))
    }

    /// Gives every open run of a trigger a record of its own.
    fn write_out_all(&mut self, serial: SerialId, now: Now) {
        let open = self.runs.open_of(serial).collect();
        for run in pick(Mutant::OpenNotWrittenOut, open, Vec::new()) {
            self.write_out_run(run, now);
        }
    }
}
