//! Who is told what.
//!
//! Each rule looks at what it decides about, changes what the trigger remembers (that its runs are failing, that
//! somebody was told that it is overdue), and adds a notice to the same unit. So ten failures give one notice,
//! whatever crashes in between: either the store has the failure, the memory of it and the notice, or none of them.
//!
//! A notice is an unfinished run with a record. It is no run of its trigger's schedule: it waits for nobody, nobody
//! waits for it, it goes on when its trigger is changed or gone, and what becomes of it is told to nobody.

use std::sync::Arc;
use std::time::Duration;

use crate::id::{Birth, ProjectId, SerialId};
use crate::instant::Instant;
use crate::mutant::{Mutant, pick};
use crate::notice::{self, Audience, Listener, NoticeNews, NoticeSubject, Occasion, Occasions};
use crate::past::{End, Finished, Line};
use crate::target::Target;

use super::attempts::RunRef;
use super::due::blank_run;
use super::memory::Delta;
use super::record::{RunRecord, RunState, TriggerState};
use super::triggers::Trigger;
use super::{Now, Shard, Unit};

impl Shard {
    /// Whoever runs this shard knows who listens.
    pub fn set_audience(&mut self, audience: Audience) {
        self.audience = audience;
    }

    /// Who listens to a trigger, and to what.
    fn hears(&self, trigger: &Trigger) -> (Option<Arc<Listener>>, Occasions) {
        let chosen = trigger.policy().notify;
        if chosen == Some(Occasions::NONE) {
            return (None, Occasions::NONE);
        }
        let listener = (self.audience)(trigger.project());
        let on = listener.as_ref().map_or(Occasions::NONE, |known| chosen.unwrap_or(known.on));
        (listener, on)
    }

    /// What of a trigger changes with the end of a run of it. Says how many runs failed in a row, if that is enough
    /// to pause, and gives the notice to whoever is told.
    pub(super) fn reckon(
        &self,
        finished: &Finished,
        now: Now,
        unit: &mut Unit,
    ) -> (Option<u32>, Vec<Delta>) {
        let trigger = self.triggers.get(finished.trigger);
        let Some(trigger) = trigger.filter(|_| finished.notice.is_none()) else {
            return (None, Vec::new());
        };
        let (listener, on) = self.hears(trigger);
        let before = trigger.state();
        let mut state = before.clone();
        let enough = count_failure(trigger, finished.end, &mut state);
        let occasion = occasion(trigger, finished.end, on, &mut state, now);
        if state != before {
            unit.changes.push(Delta::State(trigger.serial, state));
        }
        let mut notice = Vec::new();
        if let (Some(occasion), Some(listener)) = (occasion, listener) {
            let demand = Birth::Demand(finished.sequence.unwrap_or_default());
            let birth = finished.generation.map_or(demand, Birth::Slot);
            let run = self.run_id(finished.trigger, finished.slot, birth);
            let news = NoticeNews::Ended(run, finished);
            notice = self.notice(trigger, &listener, occasion, &news, now);
        }
        (enough, notice)
    }

    /// Somebody is told that a trigger was paused, if anybody wants to know.
    pub(super) fn notice_of_pause(&self, trigger: &Trigger, why: &str, now: Now) -> Vec<Delta> {
        match self.hears(trigger) {
            (Some(listener), on) if on.has(Occasion::Paused) => {
                self.notice(trigger, &listener, Occasion::Paused, &NoticeNews::Paused(why), now)
            }
            _ => Vec::new(),
        }
    }

    /// A notice, which waits to be sent. If too many do, it is given up at once, and its past says so.
    fn notice(
        &self,
        trigger: &Trigger,
        listener: &Listener,
        occasion: Occasion,
        news: &NoticeNews<'_>,
        now: Now,
    ) -> Vec<Delta> {
        let subject = NoticeSubject::Trigger(self.id_of(trigger), trigger.name());
        let body = notice::body(listener, &subject, occasion, news, now.wall);
        let about = (trigger.project(), trigger.serial, trigger.name());
        self.waiting_notice(about, listener, occasion, body, now)
    }

    /// A notice about what has this id and this name, with this body.
    pub(super) fn waiting_notice(
        &self,
        (project, serial, name): (ProjectId, SerialId, &str),
        listener: &Listener,
        occasion: Occasion,
        body: String,
        now: Now,
    ) -> Vec<Delta> {
        let sequence = self.runs.next_sequence();
        let target = Arc::new(Target::Webhook(listener.webhook(Some(body.into()))));
        let record = RunRecord {
            slot: now.wall,
            leaves_at: now.wall,
            state: RunState::Waiting(now.wall),
            notice: Some(occasion),
            ..blank_run(project, serial, name, target, notice::POLICY)
        };
        let mut changes = vec![Delta::Run(sequence, Arc::new(record))];
        if !self.runs.has_room_for_notice() {
            let given_up = Finished {
                project,
                trigger: serial,
                slot: now.wall,
                generation: None,
                sequence: Some(sequence),
                notice: Some(occasion),
                queue: self.past_of_queue(serial),
                end: End::Expired,
                at: now.wall,
                attempt: 0,
                attempts: Vec::new(),
            };
            changes.push(Delta::RunGone(sequence));
            changes.push(Delta::Past(Line::Run(given_up)));
        }
        changes
    }

    /// A notice goes to whoever listens when it leaves. If nobody does any more, it is given up.
    pub(super) fn address(&mut self, sequence: u64, now: Now) -> Option<Arc<RunRecord>> {
        let record = Arc::clone(&self.runs[sequence]);
        if record.notice.is_none() {
            return Some(record);
        }
        let Some(listener) = (self.audience)(record.project) else {
            self.end(RunRef::Record(sequence), End::Cancelled, record.attempt, None, now);
            return None;
        };
        let (_, body) = record.target.own_texts();
        let target = Arc::new(Target::Webhook(listener.webhook(body.map(Into::into))));
        Some(Arc::new(RunRecord { target, ..(*record).clone() }))
    }
}

/// Triggers that somebody is to be told of if they do not succeed in time.
impl Shard {
    /// Looks again when a trigger is overdue.
    pub(super) fn watch_over(&mut self, serial: SerialId) {
        let due = self.triggers.get(serial).and_then(|trigger| self.overdue_at(trigger));
        self.agenda.alert_at(serial, due);
    }

    /// When a trigger is overdue, if it does not succeed before.
    fn overdue_at(&self, trigger: &Trigger) -> Option<Instant> {
        let after = Duration::from_millis(trigger.policy().alert_after_ms?);
        let state = trigger.state();
        let is_quiet = state.overdue
            || trigger.is_paused()
            || trigger.is_cancelled()
            || self.triggers.is_behind(trigger);
        (!is_quiet).then(|| state.well.unwrap_or(trigger.serial.birth()).after(after))
    }

    /// Tells of the triggers that are overdue.
    pub(super) fn alert(&mut self, now: Now) {
        while let Some(serial) = self.agenda.next_alert(now) {
            if let Some(trigger) = self.triggers.get(serial)
                && self.overdue_at(trigger).is_some()
            {
                self.alert_one(serial, now);
            }
        }
    }

    fn alert_one(&mut self, serial: SerialId, now: Now) {
        let Some(trigger) = self.triggers.get(serial) else { return };
        let after = Duration::from_millis(trigger.policy().alert_after_ms.unwrap_or_default());
        let schedule = trigger.schedule();
        let is_over = trigger.remaining() == Some(0)
            || (!schedule.specs().is_empty() && schedule.next(now.wall).is_none());
        if is_over {
            return;
        }
        let (listener, on) = self.hears(trigger);
        let Some(listener) = listener.filter(|_| on.has(Occasion::Overdue)) else {
            // Somebody may listen later.
            return self.agenda.alert_at(serial, Some(now.wall.after(after)));
        };
        let mut state = trigger.state();
        state.overdue = true;
        let news = NoticeNews::Overdue(after);
        let notice = self.notice(trigger, &listener, Occasion::Overdue, &news, now);
        let unit = Unit::of(vec![Delta::State(serial, state)]).by(now.wall);
        self.enact_with(unit, notice, Mutant::NoticeLater);
    }
}

/// Counts failures in a row; says how many if that is enough to pause.
fn count_failure(trigger: &Trigger, end: End, state: &mut TriggerState) -> Option<u32> {
    let failures = match end {
        End::Succeeded => 0,
        End::Failed | End::Dead => state.failures + 1,
        End::Cancelled | End::Expired | End::Unknown => return None,
    };
    if failures == state.failures {
        return None;
    }
    let enough = trigger.policy().pause_after?;
    state.failures = failures;
    (failures >= enough && !trigger.is_paused()).then_some(failures)
}

/// What the end of a run is an occasion for, and what is remembered of it.
fn occasion(
    trigger: &Trigger,
    end: End,
    on: Occasions,
    state: &mut TriggerState,
    now: Now,
) -> Option<Occasion> {
    match end {
        End::Succeeded => {
            let was_told = state.failing || state.overdue;
            (state.failing, state.overdue) = (false, false);
            if trigger.policy().alert_after_ms.is_some() {
                state.well = Some(now.wall);
            }
            let recovery = Some(Occasion::Recovery).filter(|_| was_told);
            recovery.into_iter().chain([Occasion::Success]).find(|occasion| on.has(*occasion))
        }
        End::Failed | End::Dead | End::Expired | End::Unknown => {
            let is_news =
                !state.failing && (on.has(Occasion::Failure) || on.has(Occasion::Recovery));
            state.failing |= pick(Mutant::StreakForgotten, is_news, false);
            (is_news && on.has(Occasion::Failure)).then_some(Occasion::Failure)
        }
        End::Cancelled => None,
    }
}
