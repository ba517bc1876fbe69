//! The difference between two texts of a trigger, in slots: which appear, and which vanish.
//!
//! Both texts are asked by the engine's own code, from the same now on. What a text is worth depends on the
//! trigger as well: a pause, a limit, and slots that are decided already. What is told here is what
//! `watchbell trigger next` tells after the change.

use client::Timestamp;
use client::trigger::Trigger;
use engine::instant::Instant;
use engine::schedule::{Count, Schedule};

use super::plan::{ApplyChange, ApplyStep};

/// Slots that are looked at one by one, of both texts together.
const SLOTS_MAX: usize = 20;

/// Slots that are counted one by one where they cannot be computed.
const COUNTED_MAX: usize = 1_000;

/// Which slots appear and vanish.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fires {
    pub(super) appear: Vec<Instant>,
    pub(super) vanish: Vec<Instant>,
    /// Up to here every slot was looked at.
    pub(super) until: Instant,
    /// From there to the end of the horizon, slots are only counted: before the change, and after it.
    pub(super) beyond: Option<(Count, Count)>,
    pub(super) timing: Timing,
}

/// What a change does to when a trigger fires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Timing {
    /// The schedule stays as it is, and so does every slot.
    Same,
    /// There is another schedule, or none before or after.
    Other,
}

/// What a step changes from `now` on and up to the horizon.
pub(super) fn difference(step: &ApplyStep, now: Instant, horizon: Instant) -> Fires {
    let found = step.found.as_ref();
    let old = found.map_or(Slots::NONE, |found| {
        Slots::of_found(&found.trigger, &found.definition.schedule, now, horizon)
    });
    let wanted = step.wanted.as_ref().map(|wanted| &wanted.definition.schedule);
    let stays = match (&step.change, found, wanted) {
        (ApplyChange::Unchanged | ApplyChange::Refused(_), ..) => true,
        (_, Some(found), Some(wanted)) => found.definition.schedule == *wanted,
        (ApplyChange::Create | ApplyChange::Update(_) | ApplyChange::Delete, ..) => false,
    };
    if stays {
        let (appear, vanish) = (Vec::new(), Vec::new());
        return Fires { appear, vanish, until: horizon, beyond: None, timing: Timing::Same };
    }
    let new = wanted.map_or(Slots::NONE, |schedule| {
        Slots::of_wanted(found.map(|found| &found.trigger), schedule, now, horizon)
    });
    compare(old, new, horizon)
}

/// Goes through both in the order of time.
fn compare(mut old: Slots<'_>, mut new: Slots<'_>, horizon: Instant) -> Fires {
    let (mut appear, mut vanish) = (Vec::new(), Vec::new());
    let mut until = horizon;
    for number in 0.. {
        let Some(slot) = [old.next, new.next].into_iter().flatten().min() else { break };
        if number == SLOTS_MAX {
            break;
        }
        match (old.next == Some(slot), new.next == Some(slot)) {
            (true, false) => vanish.push(slot),
            (false, true) => appear.push(slot),
            (true, true) | (false, false) => {}
        }
        old.pass(slot);
        new.pass(slot);
        until = slot;
    }
    let is_all = old.next.is_none() && new.next.is_none();
    let beyond = (!is_all).then(|| (old.count(), new.count()));
    let until = if is_all { horizon } else { until };
    Fires { appear, vanish, until, beyond, timing: Timing::Other }
}

/// Coming slots of a text, up to the horizon.
#[derive(Clone, Copy)]
struct Slots<'a> {
    schedule: Option<&'a Schedule>,
    next: Option<Instant>,
    /// How many runs are left, if there is a limit.
    left: Option<u64>,
    horizon: Instant,
}

impl<'a> Slots<'a> {
    const NONE: Slots<'static> =
        Slots { schedule: None, next: None, left: None, horizon: Instant(0) };

    fn after(schedule: &'a Schedule, after: Instant, left: Option<u64>, horizon: Instant) -> Self {
        let mut slots = Self { schedule: Some(schedule), next: None, left, horizon };
        slots.next = slots.first_after(after);
        slots
    }

    /// Those that a trigger has as it is. The server says which is the next: what is decided may lie ahead of
    /// the clock, and what is paused or over has none.
    fn of_found(trigger: &Trigger, schedule: &'a Schedule, now: Instant, horizon: Instant) -> Self {
        let Some(first) = trigger.next.first() else { return Slots::NONE };
        let after = Instant(first.as_millisecond() - 1).max(now);
        Self::after(schedule, after, trigger.remaining, horizon)
    }

    /// Those that it has after it was given another schedule: its limit counts anew, its pause lasts.
    fn of_wanted(
        found: Option<&Trigger>,
        schedule: &'a Schedule,
        now: Instant,
        horizon: Instant,
    ) -> Self {
        let after = match found.and_then(|trigger| trigger.paused.as_ref()) {
            None => now,
            Some(pause) => match pause.until {
                None => return Slots::NONE,
                Some(until) => now.max(instant(until)),
            },
        };
        Self::after(schedule, after, schedule.limit().map(std::num::NonZeroU64::get), horizon)
    }

    fn first_after(&self, after: Instant) -> Option<Instant> {
        if self.left == Some(0) {
            return None;
        }
        self.schedule?.next(after).filter(|slot| *slot <= self.horizon)
    }

    /// Goes on if this is the next one.
    fn pass(&mut self, slot: Instant) {
        if self.next == Some(slot) {
            self.left = self.left.map(|left| left.saturating_sub(1));
            self.next = self.first_after(slot);
        }
    }

    /// How many there are from the next one on.
    fn count(&self) -> Count {
        let (Some(schedule), Some(next)) = (self.schedule, self.next) else {
            return Count::Exactly(0);
        };
        let counted = if schedule.specs().len() == 1 {
            schedule.count(Instant(next.0 - 1), self.horizon)
        } else {
            walk(schedule, next, self.horizon)
        };
        match (counted, self.left) {
            (Count::Exactly(count) | Count::MoreThan(count), Some(left)) if left <= count => {
                Count::Exactly(left)
            }
            (counted, _) => counted,
        }
    }
}

fn walk(schedule: &Schedule, first: Instant, horizon: Instant) -> Count {
    let slots = std::iter::successors(Some(first), |slot| schedule.next(*slot));
    let count = slots.take_while(|slot| *slot <= horizon).take(COUNTED_MAX + 1).count();
    match count {
        0..=COUNTED_MAX => Count::Exactly(count as u64),
        _ => Count::MoreThan(COUNTED_MAX as u64),
    }
}

fn instant(timestamp: Timestamp) -> Instant {
    Instant(timestamp.as_millisecond())
}
