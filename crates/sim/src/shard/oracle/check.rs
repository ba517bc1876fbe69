//! What the oracle asks after each batch: is all there that must be, and no more?

use engine::id::{Birth, RunId, SerialId};
use engine::instant::Instant;
use engine::shard::record::{Mark, StoppedRecord};

use super::super::checker::ShardChecker;
use super::super::promise::ShardPromise;
use super::super::shard_store::CLUSTER;
use super::{Broken, Moves, ObservedRun, RunPlace, Slot, SlotOracle};

impl SlotOracle {
    /// Moves every run to where it is now: from one place to one other.
    pub(super) fn move_all(&mut self, moves: Moves, checker: &ShardChecker) -> Result<(), Broken> {
        for run in &moves.from {
            self.places.remove(run);
            self.count_launch(*run, false);
        }
        for (run, place) in moves.to {
            if let Some(former) = self.places.insert(run, place) {
                let is_past = matches!(former, RunPlace::Ended(_) | RunPlace::Skipped(_));
                let promise = if is_past { ShardPromise::OneState } else { ShardPromise::OnePlace };
                return Err((promise, format!("{run:?} is {former:?}, and {place:?}")));
            }
            self.count_launch(run, !matches!(place, RunPlace::Skipped(_)));
            checker.check_record(run, place)?;
        }
        for (run, attempt) in moves.remote {
            checker.check_remote(run, attempt)?;
        }
        if let Some(lost) = moves.from.iter().find(|run| !self.places.contains_key(run)) {
            return Err((ShardPromise::OnePlace, format!("{lost:?} is nowhere any more")));
        }
        for run in moves.alone.iter().filter(|run| !moves.changed.contains(&run.trigger())) {
            // Of two that were enqueued together, the first may have been followed by one that may be beside others.
            let counts = |other: &&ObservedRun| {
                *other != run && (!moves.enqueued.contains(other) || moves.alone.contains(other))
            };
            let mut others = self.queued.values().filter(counts);
            if let Some(other) = others.find(|other| other.trigger() == run.trigger()) {
                let what = format!("{run:?} is enqueued beside {other:?}");
                return Err((ShardPromise::NoOverlap, what));
            }
        }
        for (trigger, generation, until, cancelled) in moves.over {
            self.close(trigger, generation, cancelled.unwrap_or(until))?;
        }
        Ok(())
    }

    fn count_launch(&mut self, run: ObservedRun, is_launched: bool) {
        let ObservedRun::Slot(slot) = run else { return };
        let Some(generation) = self.generations.get_mut(&(slot.trigger, slot.generation)) else {
            return;
        };
        if !is_launched {
            generation.launched.remove(&slot.at);
        } else if generation.limit.is_some() {
            generation.launched.insert(slot.at);
        }
    }

    /// Every slot up to `until` of a schedule that no longer counts was decided.
    pub(super) fn close(
        &mut self,
        trigger: SerialId,
        number: u32,
        until: Instant,
    ) -> Result<(), Broken> {
        while let Some(generation) = self.generations.get_mut(&(trigger, number)) {
            let Some((at, _)) = generation.next.filter(|(at, _)| *at <= until) else { break };
            if generation.is_used_up(at) {
                break;
            }
            let run = ObservedRun::Slot(Slot { trigger, generation: number, at });
            if !self.places.contains_key(&run) {
                return Err((ShardPromise::OnePlace, format!("{run:?} was left out of a change")));
            }
            generation.step(at);
        }
        if let Some(generation) = self.generations.get_mut(&(trigger, number)) {
            generation.is_over = true;
        }
        Ok(())
    }

    /// Every slot up to the mark, and up to its trigger's cursor, is somewhere; and what is left of each limit is what
    /// was not launched.
    pub(super) fn check_triggers(&mut self) -> Result<(), Broken> {
        for (serial, seen) in &self.triggers {
            let number = seen.record.generation;
            // For a project that is disabled the mark stands still, and for a trigger that is not up to date since.
            let stopped = self.stopped.get(&seen.record.id.project);
            let is_behind = |stopped: &&StoppedRecord| {
                stopped.enabled.is_none_or(|enabled| seen.cursor() < enabled)
            };
            // So does that of a host that lags, at its own.
            let behind = stopped.filter(is_behind).map(|stopped| stopped.since);
            let own = behind.or_else(|| Some(self.lags.get(&seen.host())?.mark));
            let decided_through =
                own.map_or(self.decided_through, |own| own.min(self.decided_through));
            let generation = self.generations.get_mut(&(*serial, number)).expect("seen");
            while let Some((at, leaves_at)) = generation.next {
                let is_decided = at <= seen.cursor() || Mark(leaves_at, *serial) <= decided_through;
                let is_paused = seen.state.paused.as_ref().is_some_and(|pause| at > pause.since);
                let is_cancelled = seen.state.cancelled.is_some_and(|since| at > since);
                if !is_decided || is_paused || is_cancelled || generation.is_used_up(at) {
                    break;
                }
                let run = ObservedRun::Slot(Slot { trigger: *serial, generation: number, at });
                if !self.places.contains_key(&run) {
                    let what = format!("{run:?} is decided and nowhere; mark {decided_through:?}");
                    return Err((ShardPromise::OnePlace, what));
                }
                generation.step(at);
            }
            let (launched, left) = (generation.launched.len() as u64, seen.state.remaining);
            if let Some(limit) = generation.limit
                && launched + left.unwrap_or(limit) != limit
            {
                let what = format!("{serial}: {launched} launched, {left:?} left of {limit}");
                return Err((ShardPromise::LimitIsExact, what));
            }
        }
        Ok(())
    }

    /// Nothing that left long ago by this clock is undecided.
    pub fn check_up_to(&self, wall: Instant) -> Result<(), Broken> {
        for (serial, seen) in &self.triggers {
            let generation = &self.generations[&(*serial, seen.record.generation)];
            let is_quiet = seen.state.paused.is_some()
                || seen.state.cancelled.is_some()
                || self.stopped.contains_key(&seen.record.id.project);
            if let Some((at, leaves_at)) = generation.next
                && leaves_at <= wall
                && !is_quiet
                && !generation.is_used_up(at)
            {
                return Err((
                    ShardPromise::NothingUndecided,
                    format!("{serial} at {at}, at {wall}"),
                ));
            }
        }
        Ok(())
    }

    /// Everything has ended, and every schedule that is over was accounted for.
    pub fn check_end(&self) -> Result<(), Broken> {
        let unfinished = self
            .places
            .iter()
            .find(|(_, place)| !matches!(place, RunPlace::Ended(_) | RunPlace::Skipped(_)));
        if let Some((run, place)) = unfinished {
            return Err((ShardPromise::NothingIsStuck, format!("{run:?} is {place:?} in the end")));
        }
        let lost = self.generations.iter().find(|((trigger, number), generation)| {
            let is_current =
                self.triggers.get(trigger).is_some_and(|seen| seen.record.generation == *number);
            !is_current && !generation.is_over
        });
        match lost {
            Some((which, _)) => Err((ShardPromise::OnePlace, format!("{which:?} was lost"))),
            None => Ok(()),
        }
    }

    /// The run with this id that a queue has.
    pub fn queued_run(&self, id: RunId) -> Option<ObservedRun> {
        let found = self.queued.iter().find(|(sequence, run)| {
            let birth = match run {
                ObservedRun::Slot(slot) if slot.at == id.slot => Birth::Slot(slot.generation),
                ObservedRun::Slot(_) => return false,
                ObservedRun::Demand(..) | ObservedRun::Notice(..) => Birth::Demand(**sequence),
            };
            run.trigger() == id.trigger && birth.letters(CLUSTER) == id.letters
        });
        found.map(|(_, run)| *run)
    }

    /// Whether there is a run on demand with this id.
    pub fn has_demanded(&self, id: RunId) -> bool {
        let trigger = id.trigger;
        let mut runs = self
            .places
            .range(ObservedRun::Demand(trigger, 0)..=ObservedRun::Demand(trigger, u64::MAX));
        runs.any(|(run, _)| {
            let ObservedRun::Demand(_, sequence) = *run else { return false };
            Birth::Demand(sequence).letters(CLUSTER) == id.letters
        })
    }
}
