//! What commands do.
//!
//! For a trigger, *now* is the latest of the wall clock, the mark and its cursor: what is decided stays
//! decided, whatever the clock says. A pause, a change of schedule, a cancellation and a deletion first
//! account for every slot up to that now, also those that jitter holds back, take back what was launched
//! ahead and has not left, and move the cursor there, all before the command is answered. Any other change
//! leaves schedule, generation and cursor alone. Since open runs take their definition from their trigger,
//! they get records of their own before it changes.
//!
//! The mark may be ahead of the clock by the look-ahead. A schedule that begins to count, because it is new
//! or its trigger is resumed, begins at the clock all the same: its slots that the mark has passed get records
//! of their own, in the same unit.

use std::num::NonZeroU64;
use std::sync::Arc;

use serde_json::value::RawValue;

use crate::id::{Birth, ProjectId, TriggerId, Unique};
use crate::instant::Instant;
use crate::limits::{
    LOOK_AHEAD_MS, RUNS_PER_SHARD_MAX, TRIGGERS_PER_SHARD_MAX, WEBHOOK_HEADER_BYTES_MAX,
};
use crate::mutant::{self, Mutant};
use crate::notice::Occasion;
use crate::past::{End, Line, Reason, Skipped};
use crate::policy::Overlap;
use crate::schedule::Count;
use crate::trigger::Definition;
use crate::webhook::Webhook;

use super::command::{Command, Done, Rejection};
use super::flight::RunRef;
use super::memory::{Change, Trigger};
use super::record::{Mark, MovedRecord, Pause, RunRecord, RunState, TriggerRecord};
use super::{Note, Now, Shard, Ticket, Unit};

/// Slots that the mark has passed and that get runs at once, and bytes that these may have together.
const MADE_UP_MAX: usize = 16;
pub(super) const MADE_UP_BYTES: usize = 256 * 1024;

/// Who does what nobody asked for.
const ITSELF: &str = "watchbell";

impl Shard {
    /// Decides about a command. Whoever has the ticket is told when it is written, and the note is written
    /// together with the first of what it changes.
    pub fn command(
        &mut self,
        command: Command,
        note: Option<Note>,
        ticket: Ticket,
        now: Now,
    ) -> Result<(), Rejection> {
        self.note = note;
        let done = self.carry_out(command, now);
        if !matches!(done, Ok(done) if done != Done::Unchanged) {
            self.note = None;
        }
        let mut unit = Unit::default().by(now.wall);
        unit.reply = Some((ticket, done?));
        self.enact(unit);
        Ok(())
    }

    fn carry_out(&mut self, command: Command, now: Now) -> Result<Done, Rejection> {
        Ok(match command {
            Command::Create { project, definition, draft, author } => {
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
            Command::Disable { project } => self.disable(project, now)?,
            Command::Enable { project } => self.enable(project, now),
            Command::Prune { ended_before, from } => self.prune(ended_before, from, now),
        })
    }

    pub(super) fn known(&self, unique: Unique) -> Result<&Trigger, Rejection> {
        self.memory.trigger(unique).ok_or(Rejection::NoSuchTrigger)
    }

    fn check_fires(&self, unique: Unique) -> Result<(), Rejection> {
        let trigger = self.known(unique)?;
        self.check_settled(trigger.project())?;
        if trigger.is_cancelled() { Err(Rejection::AlreadyCancelled) } else { Ok(()) }
    }

    /// Now, for a trigger.
    fn now_of(&self, trigger: &Trigger, now: Now) -> Instant {
        let cursor = trigger.cursor();
        if mutant::active(Mutant::NowWithoutMark) {
            return now.wall.max(cursor);
        }
        if mutant::active(Mutant::NowWithoutCursor) {
            return now.wall.max(self.memory.fired.0);
        }
        now.wall.max(self.memory.fired.0).max(cursor)
    }

    /// From when on a schedule that begins now counts: not from the mark, if that is ahead by no more than the
    /// look-ahead.
    fn beginning(&self, project: ProjectId, cursor: Instant, now: Now) -> Instant {
        if let Some(stopped) = self.memory.stopped.get(&project) {
            return now.wall.max(cursor).max(stopped.since.0);
        }
        let (here, mark) = (now.wall.max(cursor), self.memory.fired.0);
        if mark.0 - here.0 > LOOK_AHEAD_MS { mark } else { here }
    }

    /// What becomes of the slots after `from` that the mark has passed already: nobody else decides them. The first ones
    /// get runs, as many as fit a commit; where runs must not overlap it is one. The others are skipped.
    fn make_up(
        &self,
        id: TriggerId,
        definition: &Definition,
        generation: u32,
        from: Instant,
        moved: &mut MovedRecord,
        now: Now,
    ) -> Vec<Change> {
        if self.memory.stopped.contains_key(&id.project) {
            return Vec::new();
        }
        let Definition { name, labels: _, schedule, webhook, policy } = definition;
        let bytes = bytes_of_run(webhook);
        let (most, reason) = match policy.overlap {
            Overlap::Allow => (MADE_UP_BYTES / bytes, Reason::Cap),
            Overlap::Skip | Overlap::QueueOne | Overlap::Replace => (1, Reason::Overlap),
        };
        let most = most.clamp(1, MADE_UP_MAX);
        let mut left = moved.remaining.or(schedule.limit().map(NonZeroU64::get));
        let (mut changes, mut skipped) = (Vec::new(), None::<Skipped>);
        let webhook = Arc::new(webhook.clone());
        let mut next = schedule.next(from);
        while let Some(slot) = next
            && left != Some(0)
        {
            let leaves = schedule.leaves_at(slot, name);
            if Mark(leaves, id.unique) > self.memory.fired {
                break;
            }
            next = schedule.next(slot);
            if changes.len() >= most {
                let blank = Skipped {
                    project: id.project,
                    trigger: id.unique,
                    generation,
                    from: slot,
                    to: slot,
                    count: 0,
                    reason,
                    at: now.wall,
                };
                let skipped = skipped.get_or_insert(blank);
                (skipped.to, skipped.count) = (slot, skipped.count + 1);
                continue;
            }
            let sequence = self.memory.sequence + 1 + changes.len() as u64;
            let run = RunRecord {
                project: id.project,
                trigger: id.unique,
                name: name.to_string(),
                slot,
                leaves,
                generation: Some(generation),
                state: RunState::Waiting(leaves),
                attempt: 0,
                tries: 0,
                untried_since: None,
                notice: None,
                webhook: Arc::clone(&webhook),
                policy: *policy,
                attempts: Vec::new(),
            };
            changes.push(Change::Run(sequence, Arc::new(run)));
            left = left.map(|left| left.saturating_sub(1));
            moved.remaining = left;
            if left == Some(0) {
                moved.cursor = Some(slot);
            }
        }
        changes.extend(skipped.map(|skipped| Change::Past(Line::Skip(skipped))));
        changes
    }

    /// The runs of these changes wait.
    pub(super) fn wait_all(&mut self, made_up: &[Change]) {
        for change in made_up {
            // A notice may have been given up in the same unit.
            if let Change::Run(sequence, run) = change
                && self.memory.runs.contains_key(sequence)
            {
                self.flight.wait(*sequence, run);
            }
        }
    }

    fn create(
        &mut self,
        project: ProjectId,
        definition: Definition,
        draft: Box<RawValue>,
        author: String,
        now: Now,
    ) -> Result<Done, Rejection> {
        if let Some(taken) = self.memory.named(project, &definition.name) {
            return Err(Rejection::NameTaken(self.memory.id_of(taken)));
        }
        if self.memory.len() >= TRIGGERS_PER_SHARD_MAX {
            return Err(Rejection::TooManyTriggers);
        }
        let unique = Unique::born(now.wall, self.memory.youngest, now.random);
        let id = TriggerId { shard: self.memory.shard, project, unique };
        let record = TriggerRecord {
            id,
            draft,
            created: now.wall,
            written: now.wall,
            author,
            revision: 1,
            generation: 1,
            since: self.beginning(project, now.wall, now),
        };
        let mut moved = MovedRecord::default();
        let made_up = self.make_up(id, &definition, 1, record.since, &mut moved, now);
        let mut changes = vec![Change::Trigger(Box::new((record, definition)))];
        if !made_up.is_empty() {
            changes.push(Change::Moved(unique, moved));
            changes.extend(made_up.iter().cloned());
        }
        self.enact(Unit::of(changes));
        self.wait_all(&made_up);
        self.arm(self.memory.place(unique).expect("just made"));
        self.watch_over(unique);
        Ok(Done::Created(id))
    }

    fn replace(
        &mut self,
        unique: Unique,
        definition: Definition,
        draft: Box<RawValue>,
        author: String,
        expected: Option<u64>,
        now: Now,
    ) -> Result<Done, Rejection> {
        let trigger = self.known(unique)?;
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
        let is_same_schedule = *trigger.schedule() == definition.schedule;
        let begins = if trigger.is_paused() {
            self.now_of(trigger, now)
        } else {
            self.beginning(trigger.project(), trigger.cursor(), now)
        };
        if !is_same_schedule {
            self.take_back(unique, Reason::Superseded, begins, now);
        }
        self.write_out_all(unique, now);
        let trigger = self.known(unique)?;
        let id = self.memory.id_of(trigger);
        let mut moved = trigger.moved();
        moved.cursor = Some(trigger.cursor());
        let (mut changes, mut made_up) = (Vec::new(), Vec::new());
        let (mut generation, mut since) = (trigger.generation, trigger.since);
        if !is_same_schedule {
            changes = self.account(trigger, begins, Reason::Superseded, now);
            generation += 1;
            since = begins;
            let paused = moved.paused.take().map(|pause| Pause { since, ..pause });
            moved = MovedRecord {
                cursor: Some(since),
                remaining: None,
                failures: 0,
                paused,
                cancelled: None,
                ..moved
            };
            if moved.paused.is_none() {
                made_up = self.make_up(id, &definition, generation, since, &mut moved, now);
            }
        }
        let alert_after_ms = definition.policy.alert_after_ms;
        if trigger.policy().alert_after_ms != alert_after_ms {
            // Before it was watched, nobody knows when it last succeeded.
            moved.well = alert_after_ms.map(|_| moved.well.unwrap_or(now.wall));
        }
        let revision = found + 1;
        let written = now.wall;
        let created = trigger.created();
        let record =
            TriggerRecord { id, draft, created, written, author, revision, generation, since };
        changes.push(Change::Trigger(Box::new((record, definition))));
        changes.push(Change::Moved(unique, moved));
        changes.extend(made_up.iter().cloned());
        self.disarm(self.memory.place(unique).expect("it is known"));
        self.enact(Unit::of(changes));
        self.wait_all(&made_up);
        self.arm(self.memory.place(unique).expect("it is known"));
        self.watch_over(unique);
        Ok(Done::Replaced { revision })
    }

    fn pause(
        &mut self,
        unique: Unique,
        author: String,
        note: String,
        until: Option<Instant>,
        occasion: Option<Occasion>,
        now: Now,
    ) {
        self.take_back(unique, Reason::Paused, Instant::LAST, now);
        let Some(place) = self.memory.place(unique) else { return };
        let trigger = self.memory.at(place);
        let since = self.now_of(trigger, now);
        let mut changes = self.account(trigger, since, Reason::Paused, now);
        let mut moved = trigger.moved();
        if occasion.is_some() {
            changes.extend(self.notice_of_pause(trigger, &note, now));
        }
        moved.paused = Some(Pause { since, until, author, note });
        moved.cursor = Some(cursor_at(trigger, since));
        changes.push(Change::Moved(unique, moved));
        self.enact_telling(Unit::of(changes).by(now.wall));
        self.arm(place);
        if let Some(until) = until {
            self.resumes.insert((until, unique));
        }
    }

    /// Pauses a trigger that nobody asked to be paused.
    pub(super) fn pause_by_itself(&mut self, unique: Unique, note: &str, now: Now) {
        let is_pausable = |trigger: &Trigger| !trigger.is_paused() && !trigger.is_cancelled();
        if self.memory.trigger(unique).is_some_and(is_pausable) {
            let occasion = Some(Occasion::Paused);
            self.pause(unique, ITSELF.to_owned(), note.to_owned(), None, occasion, now);
        }
    }

    fn resume(&mut self, unique: Unique, now: Now) {
        let Some(place) = self.memory.place(unique) else { return };
        let trigger = self.memory.at(place);
        let begins = self.beginning(trigger.project(), trigger.cursor(), now);
        let mut changes = self.account(trigger, begins, Reason::Paused, now);
        let mut moved = trigger.moved();
        let until = moved.paused.take().and_then(|pause| pause.until);
        moved.cursor = Some(cursor_at(trigger, begins));
        moved.failures = 0;
        moved.well = trigger.policy().alert_after_ms.map(|_| now.wall);
        let (definition, generation) = (trigger.definition(), trigger.generation);
        let id = self.memory.id_of(trigger);
        let made_up = self.make_up(id, &definition, generation, begins, &mut moved, now);
        changes.push(Change::Moved(unique, moved));
        changes.extend(made_up.iter().cloned());
        self.enact(Unit::of(changes).by(now.wall));
        self.wait_all(&made_up);
        if let Some(until) = until {
            self.resumes.remove(&(until, unique));
        }
        self.arm(place);
        self.watch_over(unique);
    }

    /// Resumes those whose pause is over.
    pub(super) fn end_pauses(&mut self, now: Now) {
        while let Some(&(until, unique)) = self.resumes.first() {
            let enabling = |trigger: &Trigger| self.is_enabling(trigger.project());
            if until > now.wall || self.memory.trigger(unique).is_some_and(enabling) {
                break;
            }
            self.resumes.remove(&(until, unique));
            if self.memory.trigger(unique).is_some_and(Trigger::is_paused) {
                self.resume(unique, now);
            }
        }
    }

    fn cancel(&mut self, unique: Unique, now: Now) {
        self.finish_up(unique, now);
        let Some(place) = self.memory.place(unique) else { return };
        let trigger = self.memory.at(place);
        let now_here = self.now_of(trigger, now);
        let mut changes = self.account(trigger, now_here, Reason::Superseded, now);
        let mut moved = trigger.moved();
        moved.paused = None;
        moved.cancelled = Some(now_here);
        moved.cursor = Some(now_here);
        changes.push(Change::Moved(unique, moved));
        self.enact(Unit::of(changes));
        self.arm(place);
    }

    /// Deletes a trigger, and writes something else in the same unit.
    pub(super) fn delete(&mut self, unique: Unique, beside: Vec<Change>, now: Now) {
        self.finish_up(unique, now);
        self.write_out_all(unique, now);
        let Some(place) = self.memory.place(unique) else { return };
        let trigger = self.memory.at(place);
        let now_here = self.now_of(trigger, now);
        let mut changes = self.account(trigger, now_here, Reason::Superseded, now);
        changes.extend(beside);
        changes.push(Change::Gone(self.memory.id_of(trigger), trigger.name().into()));
        self.disarm(place);
        self.enact(Unit::of(changes));
    }

    /// Ends what has not left, and what would be tried again: a cancelled trigger has no slot that could be taken
    /// back later, and one that is gone cannot say any more for how long its runs are held back.
    fn finish_up(&mut self, unique: Unique, now: Now) {
        self.take_back(unique, Reason::Superseded, Instant::LAST, now);
        for run in self.active(unique) {
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

    fn run(&mut self, unique: Unique, now: Now) -> Result<Done, Rejection> {
        if self.memory.runs.len() >= RUNS_PER_SHARD_MAX {
            return Err(Rejection::TooManyRuns);
        }
        let trigger = self.known(unique)?;
        if self.is_disabled(trigger.project()) {
            return Err(Rejection::ProjectIsDisabled);
        }
        let record = trigger.run_record(now.wall, now.wall, RunState::Waiting(now.wall));
        let record = RunRecord { generation: None, ..record };
        let sequence = self.memory.sequence + 1;
        let id = self.memory.run_id(unique, now.wall, Birth::Demand(sequence));
        let mut unit = Unit::of(vec![Change::Run(sequence, Arc::new(record))]);
        unit.started = Some(id);
        self.enact(unit);
        self.flight.wait(sequence, &self.memory.runs[&sequence]);
        Ok(Done::Started(id))
    }

    /// Records every slot up to `until` that is not decided as skipped. A trigger that is paused is so since
    /// its cursor, and all slots after it were skipped for that. After its last run nothing is due.
    fn account(&self, trigger: &Trigger, until: Instant, reason: Reason, now: Now) -> Vec<Change> {
        if mutant::active(Mutant::ChangeWithoutAccount)
            || trigger.is_cancelled()
            || trigger.remaining() == Some(0)
        {
            return Vec::new();
        }
        if trigger.is_paused() {
            let first = trigger.schedule().next(trigger.cursor());
            return skips(trigger, (first, until), Reason::Paused, now);
        }
        let first = self.memory.undecided(trigger).map(|(slot, _)| slot);
        skips(trigger, (first, until), reason, now)
    }

    /// Takes back what was launched ahead and has not left. Slots after `end` are no slots of its schedule any more.
    fn take_back(&mut self, unique: Unique, reason: Reason, end: Instant, now: Now) {
        if mutant::active(Mutant::NotTakenBack) {
            return;
        }
        for run in self.active(unique) {
            if !self.is_unfinished(run) || self.leaves_of(run) <= now.wall || self.has_left(run) {
                continue;
            }
            let is_slot = match run {
                RunRef::Open(_) => true,
                RunRef::Record(sequence) => self.memory.runs[&sequence].generation.is_some(),
            };
            if self.is_untouched(run) {
                if is_slot {
                    self.unlaunch(run, reason, end, now);
                }
            } else if self.is_doubtful(run) {
                // It may have left under a predecessor whose clock was ahead of ours.
                self.leave_unknown(run, now);
            }
        }
    }

    /// Ends a run in doubt, which may still be at work at its receiver.
    fn leave_unknown(&mut self, run: RunRef, now: Now) {
        let number = self.number_of(run);
        let record = self.record_of(run);
        self.drop_attempt(run);
        self.flight.hold(record.trigger, now.steady + u64::from(record.webhook.form.timeout_ms));
        let held = self.held(run).into_iter().collect();
        self.enact(Unit::of(held).by(now.wall));
        self.end(run, End::Unknown, number, None, now);
    }

    /// Skips a slot that was launched and surely has not left.
    fn unlaunch(&mut self, run: RunRef, reason: Reason, end: Instant, now: Now) {
        let record = self.record_of(run);
        self.drop_attempt(run);
        let mut changes = vec![self.forget(run)];
        let Some(trigger) = self.memory.trigger(record.trigger) else { return };
        let generation = record.generation.unwrap_or(trigger.generation);
        let skipped = trigger.skipped((record.slot, record.slot), 1, reason, now);
        if !mutant::active(Mutant::TakenBackWithoutRecord) {
            changes.push(Change::Past(Line::Skip(Skipped { generation, ..skipped })));
        }
        if generation == trigger.generation
            && let Some(left) = trigger.remaining()
            && !mutant::active(Mutant::RemainingKept)
        {
            let mut moved = trigger.moved();
            moved.remaining = Some(left + 1);
            if left == 0 {
                // It was to be the last one: nothing after it was looked at when the mark passed.
                let now_here = self.now_of(trigger, now).min(end);
                let first = trigger.schedule().next(trigger.cursor());
                changes.extend(skips(trigger, (first, now_here), reason, now));
                moved.cursor = Some(now_here);
            }
            changes.push(Change::Moved(record.trigger, moved));
        }
        self.enact(Unit::of(changes).by(now.wall));
        self.unblock(record.trigger, now);
    }

    /// Gives every open run of a trigger a record of its own.
    fn write_out_all(&mut self, unique: Unique, now: Now) {
        if mutant::active(Mutant::OpenNotWrittenOut) {
            return;
        }
        let open: Vec<_> = self.memory.open_of(unique).collect();
        for run in open {
            self.write_out_run(run, now);
        }
    }
}

/// Skips all slots from the first one on, up to `until`.
pub(super) fn skips(
    trigger: &Trigger,
    (first, until): (Option<Instant>, Instant),
    reason: Reason,
    now: Now,
) -> Vec<Change> {
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
        lines.push(Change::Past(Line::Skip(skipped)));
        next = schedule.next(to).filter(|slot| *slot <= until);
    }
    lines
}

/// About how many bytes the record of a run takes that sends this.
pub(super) fn bytes_of_run(webhook: &Webhook) -> usize {
    let body = webhook.body.as_ref().map_or(0, |body| body.len());
    webhook.path.len() + 2 * body + WEBHOOK_HEADER_BYTES_MAX
}

/// A trigger's cursor once everything up to a moment is accounted for. After the last run nothing is, and
/// its cursor stays there: the run may be taken back yet.
fn cursor_at(trigger: &Trigger, moment: Instant) -> Instant {
    let is_used_up = trigger.remaining() == Some(0);
    if is_used_up { trigger.cursor() } else { moment }
}
