//! Whether catch-up skipped exactly what it should.
//!
//! Slots that left before a moment known to the owner were missed: nobody was there. Of those, a policy
//! keeps the last few; all before them are skipped as misfires, and nothing else is.
//!
//! A slot whose host lags was seen when it was due, and waits: it is missed only when it has waited for too long, and then
//! those of its trigger are that have waited for half of that. But slots
//! beyond the mark that an owner found when it came were seen by nobody, whether or not their host lags: those are missed by
//! either bound, so the later one counts. A slot was decided while its host lagged if its mark lies beyond the one
//! at which the lag began; and before the lag ended if it was seen, since a lag ends at the shard's mark, which never lies
//! before what was seen. Only where a lag ends in the batch, or begins and ends in it, and the slot was seen by nobody,
//! the store does not tell whether it was decided before that end: then both bounds are right.

use engine::instant::Instant;
use engine::limits::UNTRIED_MAX;
use engine::past::{Line, Reason};
use engine::policy::CatchUp;
use engine::shard::record::Mark;

use super::super::promise::ShardPromise;
use super::{Broken, Generation, Moves, ObservedRun, Slot, SlotOracle};

/// What an owner knows of having been away.
#[derive(Debug, Clone, Default)]
pub struct Missed {
    /// What it knew, from one moment of its wall clock on after the other.
    pub known: Vec<Absence>,
    /// From when on, by its wall clock, it decided everything that is in the batch; none, if its clock was set since.
    pub since: Option<Instant>,
}

/// An owner came, or noticed that it had been away.
#[derive(Debug, Clone, Copy)]
pub struct Absence {
    /// When it did, by its wall clock.
    pub noticed: Instant,
    /// Slots that left up to here were missed.
    pub missed_until: Instant,
    /// Up to here somebody had seen slots when they were due.
    pub seen_until: Mark,
}

/// Slots that left up to here were missed: one bound, or one of two of which nobody knows which counted.
type Bounds = (Instant, Option<Instant>);

impl Missed {
    fn at(&self, wall: Instant) -> Option<Absence> {
        self.known.iter().rev().find(|absence| absence.noticed <= wall).copied()
    }

    /// What counted, at least, for all that is in the batch: the more was seen, the less was missed.
    fn least(&self) -> Option<(Absence, Instant)> {
        let (first, last) = (self.known.first()?, self.known.last()?);
        Some((Absence { seen_until: last.seen_until, ..*first }, self.since?))
    }
}

pub(super) fn check(
    oracle: &SlotOracle,
    missed: &Missed,
    moves: &Moves,
    lines: &[Line],
) -> Result<(), Broken> {
    for line in lines {
        let Line::Skip(skip) = line else { continue };
        let Some(absence) = missed.at(skip.at).filter(|_| !moves.changed.contains(&skip.trigger))
        else {
            continue;
        };
        let slot = |at| Slot { trigger: skip.trigger, generation: skip.generation, at };
        let Some(bounds) = oracle.bounds(slot(skip.from), absence, skip.at, moves) else {
            continue;
        };
        let last = slot(skip.to);
        let wrong =
            |what: &str| Err((ShardPromise::CatchUp, format!("{what}: {skip:?}, {bounds:?}")));
        match skip.reason {
            Reason::Misfire | Reason::Cap => {
                let is_right = |until: Instant| {
                    oracle
                        .kept_after(last, until)
                        .is_none_or(|(after, is_missed, keep)| is_missed && after == keep)
                };
                if !is_right(bounds.0) && !bounds.1.is_some_and(is_right) {
                    return wrong("it was not missed, or others are kept than should be");
                }
            }
            Reason::Overlap => {
                if oracle.is_to_be_skipped(last, bounds) {
                    return wrong("too many are kept");
                }
            }
            Reason::Paused
            | Reason::Limit
            | Reason::Superseded
            | Reason::Disabled
            | Reason::Pruned
            | Reason::QueueFull => {}
        }
    }
    let Some((absence, since)) = missed.least() else { return Ok(()) };
    for run in moves.fresh.iter().filter(|run| !oracle.places.contains_key(run)) {
        let ObservedRun::Slot(slot) = *run else { continue };
        let bounds = oracle.bounds(slot, absence, since, moves);
        let is_missed = bounds.is_some_and(|bounds| oracle.is_to_be_skipped(slot, bounds));
        if !moves.changed.contains(&slot.trigger) && is_missed {
            return Err((ShardPromise::CatchUp, format!("{slot:?} runs although it was missed")));
        }
    }
    Ok(())
}

impl SlotOracle {
    /// Up to where slots of a trigger were missed that were decided then, this one first.
    fn bounds(&self, slot: Slot, absence: Absence, at: Instant, moves: &Moves) -> Option<Bounds> {
        let seen = self.triggers.get(&slot.trigger)?;
        let leaves_at = |generation: &Generation| generation.leaves_at(slot.at);
        let mark =
            Mark(self.generation(slot.trigger, slot.generation).map(leaves_at)?, slot.trigger);
        let too_long = seen.definition.policy.retry.span() + UNTRIED_MAX;
        let (missed, too_late) = (absence.missed_until, at.before(too_long));
        let too_late = if mark.0 <= too_late { at.before(too_long / 2) } else { too_late };
        let is_seen = mark <= absence.seen_until;
        let lagging = if is_seen { too_late } else { too_late.max(missed) };
        let host = seen.host();
        Some(match (moves.lagged.get(&host), self.lags.get(&host)) {
            (None, None) if !moves.lagging.contains(&host) => (missed, None),
            (Some(former), Some(lag)) if former.since == lag.since => (lagging, None),
            (None, Some(lag)) if mark <= lag.from => (missed, None),
            (None, Some(_)) => (lagging, None),
            (Some(_), _) if is_seen => (lagging, None),
            (Some(_) | None, Some(_) | None) => (missed, Some(lagging)),
        })
    }

    fn is_to_be_skipped(&self, slot: Slot, bounds: Bounds) -> bool {
        let is_out = |until: Instant| {
            let kept = self.kept_after(slot, until);
            kept.is_some_and(|(after, is_missed, keep)| is_missed && after >= keep)
        };
        is_out(bounds.0) && bounds.1.is_none_or(is_out)
    }

    /// How many slots after this one were missed, whether it was missed itself, and how many should be kept.
    fn kept_after(&self, slot: Slot, until: Instant) -> Option<(u64, bool, u64)> {
        let policy = &self.triggers.get(&slot.trigger)?.definition.policy;
        let keep = match policy.catch_up {
            CatchUp::Skip => 0,
            CatchUp::Latest => 1,
            CatchUp::All(cap) => u64::from(cap),
        };
        let generation = self.generation(slot.trigger, slot.generation)?;
        let is_missed = |at: &Instant| generation.leaves_at(*at) <= until;
        let after = std::iter::successors(generation.schedule.next(slot.at), |at| {
            generation.schedule.next(*at)
        });
        let limit = usize::try_from(keep + 1).expect("a small number");
        let after = after.take_while(is_missed).take(limit).count() as u64;
        Some((after, is_missed(&slot.at), keep))
    }
}
