//! Whether catch-up skipped exactly what it should.
//!
//! Slots that left before a moment known to the owner were missed: nobody was there. Of those, a policy
//! keeps the last few; all before them are skipped as misfires, and nothing else is. Slots that wait for a host that lags
//! are missed when they have waited for too long.

use engine::instant::Instant;
use engine::limits::UNTRIED_MAX;
use engine::past::{Line, Reason, Skipped};
use engine::policy::CatchUp;

use super::super::promise::ShardPromise;
use super::{Broken, Moves, ObservedRun, SeenTrigger, Slot, SlotOracle};

/// What an owner knows of having been away.
#[derive(Debug, Clone, Default)]
pub struct Missed {
    /// From which moment of its wall clock on it knew what it had missed.
    pub known: Vec<(Instant, Instant)>,
    /// What it knew, at least, when it decided anything that is in the batch.
    pub low: Option<Instant>,
}

impl Missed {
    fn at(&self, wall: Instant) -> Option<Instant> {
        self.known.iter().rev().find(|(from, _)| *from <= wall).map(|(_, until)| *until)
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
        let Some(until) = missed.at(skip.at).filter(|_| !moves.changed.contains(&skip.trigger))
        else {
            continue;
        };
        let slot = Slot { trigger: skip.trigger, generation: skip.generation, at: skip.to };
        let wrong = |what: &str| Err((ShardPromise::CatchUp, format!("{what}: {skip:?}, {until}")));
        let waited_until = oracle.waited_until(skip, moves);
        if waited_until.is_some_and(|until| {
            matches!(oracle.kept_after(slot, until), Some((after, true, keep)) if after == keep)
        }) {
            continue;
        }
        match skip.reason {
            Reason::Misfire | Reason::Cap => match oracle.kept_after(slot, until) {
                Some((_, false, _)) => return wrong("it was not missed"),
                Some((after, true, keep)) if after != keep => {
                    return wrong(&format!("{after} are kept instead of {keep}"));
                }
                Some(_) | None => {}
            },
            Reason::Overlap => {
                if waited_until.is_none() && oracle.is_to_be_skipped(slot, until) {
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
    let Some(until) = missed.low else { return Ok(()) };
    for run in moves.fresh.iter().filter(|run| !oracle.places.contains_key(run)) {
        let ObservedRun::Slot(slot) = *run else { continue };
        let host = oracle.triggers.get(&slot.trigger).map(SeenTrigger::host);
        if host.is_some_and(|host| moves.lagging.contains(&host)) {
            continue;
        }
        if !moves.changed.contains(&slot.trigger) && oracle.is_to_be_skipped(slot, until) {
            return Err((ShardPromise::CatchUp, format!("{slot:?} runs although it was missed")));
        }
    }
    Ok(())
}

impl SlotOracle {
    /// Slots that left up to here had waited for their host for too long, if it lags.
    fn waited_until(&self, skip: &Skipped, moves: &Moves) -> Option<Instant> {
        let seen = self.triggers.get(&skip.trigger)?;
        let too_long = seen.definition.policy.retry.span() + UNTRIED_MAX;
        moves.lagging.contains(&seen.host()).then(|| skip.at.before(too_long))
    }

    fn is_to_be_skipped(&self, slot: Slot, until: Instant) -> bool {
        let kept = self.kept_after(slot, until);
        kept.is_some_and(|(after, is_missed, keep)| is_missed && after >= keep)
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
