//! How a trigger stands: the one reader of what is stored of it.
//!
//! A shard keeps its triggers in a compact form, and the API reads records from the store; both bring what they have
//! as a [`TriggerView`] and ask it. So what a person is told of a slot is what the shard makes of it.
//!
//! A slot is decided when it leaves at or before the mark, or is not after the trigger's cursor. The cursor is the one
//! that was written last, and the beginning of the schedule only until there is one: a change of schedule writes both
//! in one commit, so neither has to be compared with the other.

use std::num::NonZeroU64;

use crate::id::SerialId;
use crate::instant::Instant;
use crate::schedule::Schedule;
use crate::trigger::Definition;

use super::record::{LagRecord, Mark, Pause, StoppedRecord, TriggerRecord, TriggerState};

/// What there is to know of a trigger, wherever it is kept.
#[derive(Debug, Clone, Copy)]
pub struct TriggerView<'a> {
    pub(super) serial: SerialId,
    pub(super) name: &'a str,
    pub(super) schedule: &'a Schedule,
    /// From when on its schedule counts.
    pub(super) since: Instant,
    /// What has moved since it was written, if anything has.
    pub(super) state: Option<&'a TriggerState>,
}

/// Whether a trigger fires, and if not, why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TriggerStatus {
    /// It fires by its schedule.
    Scheduled,
    /// It has no schedule, and fires when somebody runs it.
    OnDemand,
    /// It fires again when it is resumed.
    Paused,
    /// Its schedule is over, or its limit reached.
    Expired,
    /// Somebody has cancelled it.
    Cancelled,
}

impl<'a> TriggerView<'a> {
    /// A trigger as its records have it.
    pub fn of(
        record: &TriggerRecord,
        definition: &'a Definition,
        state: &'a TriggerState,
    ) -> TriggerView<'a> {
        let Definition { name, schedule, .. } = definition;
        let (serial, since) = (record.id.serial, record.since);
        TriggerView { serial, name, schedule, since, state: Some(state) }
    }

    /// Every slot at or before this is decided.
    pub fn cursor(&self) -> Instant {
        self.state.and_then(|state| state.cursor).unwrap_or(self.since)
    }

    /// How many runs are left, if there is a limit.
    pub fn remaining(&self) -> Option<u64> {
        let limit = self.schedule.limit().map(NonZeroU64::get)?;
        Some(self.state.and_then(|state| state.remaining).unwrap_or(limit))
    }

    /// Whether its slots fire: it is neither paused nor cancelled, and has runs left.
    pub(super) fn fires(&self) -> bool {
        let stops = |state: &TriggerState| state.paused.is_some() || state.cancelled.is_some();
        !self.state.is_some_and(stops) && self.remaining() != Some(0)
    }

    /// Whether its project, which is stopped like this, is disabled, or was and the trigger is not up to date since.
    pub(super) fn is_behind(&self, stopped: Option<&StoppedRecord>) -> bool {
        let is_reached = |enabled| self.cursor() >= enabled;
        stopped.is_some_and(|stopped| !stopped.enabled.is_some_and(is_reached))
    }

    /// The mark of its shard, as far as it counts for this trigger: while it is behind, its project's stands still; and
    /// a host that lags has one of its own.
    pub fn mark(
        &self,
        decided_through: Mark,
        stopped: Option<&StoppedRecord>,
        lag: Option<&LagRecord>,
    ) -> Mark {
        let own = match stopped {
            Some(stopped) if self.is_behind(Some(stopped)) => Some(stopped.since),
            Some(_) | None => lag.map(|lag| lag.mark),
        };
        own.map_or(decided_through, |own| own.min(decided_through))
    }

    /// When a slot leaves.
    pub fn leaves_at(&self, slot: Instant) -> Instant {
        self.schedule.leaves_at(slot, self.name)
    }

    /// Whether a slot is decided, by the [mark](Self::mark) that counts for this trigger.
    pub fn is_decided(&self, slot: Instant, mark: Mark) -> bool {
        slot <= self.cursor() || Mark(self.leaves_at(slot), self.serial) <= mark
    }

    /// The first slot that is not decided, and when it leaves.
    pub(super) fn undecided(&self, mark: Mark) -> Option<(Instant, Instant)> {
        let with_departure = |slot| (slot, self.leaves_at(slot));
        let mut from = self.cursor();
        if mark.0 > from && self.schedule.is_jittered() {
            // Jitter never reaches the next slot, so at most the last one is kept back beyond the mark.
            match self.schedule.last(from, mark.0) {
                Some(slot) if !self.is_decided(slot, mark) => return Some(with_departure(slot)),
                Some(_) | None => from = mark.0,
            }
        } else {
            from = from.max(Instant(mark.0.0 - 1));
        }
        let slot = self.schedule.next(from)?;
        if self.is_decided(slot, mark) {
            return self.schedule.next(slot).map(with_departure);
        }
        Some(with_departure(slot))
    }

    /// Whether it fires. A schedule is over when no slot follows `now`; its shard goes on until the last one is decided.
    pub fn status(&self, now: Instant) -> TriggerStatus {
        let is = |field: fn(&TriggerState) -> bool| self.state.is_some_and(field);
        let is_paused = is(|state| state.paused.is_some());
        if is(|state| state.cancelled.is_some()) {
            TriggerStatus::Cancelled
        } else if self.schedule.specs().is_empty() {
            if is_paused { TriggerStatus::Paused } else { TriggerStatus::OnDemand }
        } else if self.remaining() == Some(0) || self.schedule.next(now).is_none() {
            TriggerStatus::Expired
        } else if is_paused {
            TriggerStatus::Paused
        } else {
            TriggerStatus::Scheduled
        }
    }

    /// The slots after `now` that will fire, as things stand. Unlike what is undecided, this has
    /// also those that are launched ahead and have not left: for a person they are to come.
    pub fn next(&self, now: Instant) -> impl Iterator<Item = Instant> + use<'a> {
        let (schedule, left) = (self.schedule, self.remaining().unwrap_or(u64::MAX));
        let after = match self.state {
            Some(
                TriggerState { cancelled: Some(_), .. }
                | TriggerState { paused: Some(Pause { until: None, .. }), .. },
            ) => None,
            Some(TriggerState { paused: Some(Pause { until: Some(until), .. }), .. }) => {
                Some(now.max(*until))
            }
            Some(TriggerState { paused: None, .. }) | None => Some(now),
        };
        // What is decided may lie ahead of the clock.
        let first = after.and_then(|after| schedule.next(after.max(self.cursor())));
        std::iter::successors(first, |slot| schedule.next(*slot))
            .take(usize::try_from(left).unwrap_or(usize::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trigger::Draft;

    const HOUR: i64 = 3_600_000;

    fn definition(schedule: &str) -> Definition {
        let text = format!(
            r#"{{"name":"n","schedule":{schedule},"webhook":{{"url":"http://a.example/"}}}}"#
        );
        serde_json::from_str::<Draft>(&text).unwrap().build(Instant(0)).unwrap()
    }

    fn view<'a>(definition: &'a Definition, state: &'a TriggerState) -> TriggerView<'a> {
        let Definition { name, schedule, .. } = definition;
        let since = Instant(10 * HOUR);
        TriggerView { serial: SerialId(7), name, schedule, since, state: Some(state) }
    }

    const HOURLY: &str = r#"{"cron": "0 * * * *", "limit": 3}"#;

    #[test]
    fn the_cursor_is_the_one_that_was_written_and_the_beginning_until_then() {
        let definition = definition(HOURLY);
        for (cursor, expected) in [(None, 10), (Some(12), 12), (Some(8), 8)] {
            let cursor = cursor.map(|hour| Instant(hour * HOUR));
            let state = TriggerState { cursor, ..TriggerState::default() };
            assert_eq!(view(&definition, &state).cursor(), Instant(expected * HOUR));
        }
    }

    #[test]
    fn what_is_left_of_a_limit_is_told_only_while_there_is_one() {
        let (limited, free) = (definition(HOURLY), definition(r#"{"cron": "0 * * * *"}"#));
        let fresh = TriggerState::default();
        let used = TriggerState { remaining: Some(1), ..TriggerState::default() };
        assert_eq!(view(&limited, &fresh).remaining(), Some(3));
        assert_eq!(view(&limited, &used).remaining(), Some(1));
        assert_eq!(view(&free, &used).remaining(), None);
        assert_eq!(
            view(&limited, &used).next(Instant(0)).collect::<Vec<_>>(),
            [Instant(11 * HOUR)]
        );
    }

    #[test]
    fn a_slot_is_decided_by_the_mark_or_by_the_cursor() {
        let (definition, state) = (definition(HOURLY), TriggerState::default());
        let view = view(&definition, &state);
        let mark = Mark(Instant(12 * HOUR), SerialId(7));
        for (hour, decided) in [(9, true), (10, true), (11, true), (12, true), (13, false)] {
            assert_eq!(view.is_decided(Instant(hour * HOUR), mark), decided, "{hour}");
        }
        let before = Mark(Instant(12 * HOUR), SerialId(6));
        assert!(
            !view.is_decided(Instant(12 * HOUR), before),
            "another trigger's slot at that time"
        );
        assert_eq!(view.undecided(before).unwrap().0, Instant(12 * HOUR));
        assert_eq!(view.undecided(mark).unwrap().0, Instant(13 * HOUR));
    }

    #[test]
    fn the_mark_of_a_stopped_project_stands_still_until_a_trigger_is_up_to_date() {
        let (definition, fresh) = (definition(HOURLY), TriggerState::default());
        let cursor = Some(Instant(15 * HOUR));
        let caught_up = TriggerState { cursor, ..TriggerState::default() };
        let [since, decided_through] = [11, 16].map(|hour| Mark(Instant(hour * HOUR), SerialId(7)));
        let disabled = StoppedRecord { since, enabled: None };
        let enabled = StoppedRecord { since, enabled: Some(Instant(15 * HOUR)) };
        for (state, stopped, expected) in [
            (&fresh, None, decided_through),
            (&fresh, Some(&disabled), since),
            (&fresh, Some(&enabled), since),
            (&caught_up, Some(&disabled), since),
            (&caught_up, Some(&enabled), decided_through),
        ] {
            assert_eq!(
                view(&definition, state).mark(decided_through, stopped, None),
                expected,
                "{stopped:?}"
            );
        }
    }
}
