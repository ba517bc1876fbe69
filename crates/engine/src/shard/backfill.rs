//! Backfills: slots of the past that are run again because somebody asks for it.
//!
//! A run of a backfill is a run on demand whose instant is a slot's. It says nothing about what became of that
//! slot: neither ledger, cursor nor limit know of it. Which slots there are says the present schedule, also for
//! a time before it began to count.
//!
//! An answer may be lost, and the question asked again. So a trigger remembers of its last requests, by the
//! names that their askers gave them, how far each has come, in the same unit as the runs: what a request has
//! covered it does not cover twice. A request goes forward without a gap, which is what makes two instants
//! enough to remember.

use std::sync::Arc;

use crate::id::SerialId;
use crate::instant::Instant;
use crate::limits::{BACKFILLS_REMEMBERED_MAX, COMMIT_WRITES_MIN};

use super::account::{MADE_UP_BYTES, bytes_of_run};
use super::command::{BackfillProgress, Done, Rejection};
use super::memory::Delta;
use super::record::{BackfillMemo, RunRecord, RunState};
use super::triggers::Trigger;
use super::{Now, Shard, Unit};

/// Runs that begin in one unit: with the head, the state, and who asked for it they fit every store.
pub(super) const RUNS_MAX: usize = COMMIT_WRITES_MIN - 3;

impl Shard {
    /// Starts the next few runs of a request: of the slots from `from` on and before `to` that it has not
    /// covered. The caller asks again as long as there are more.
    pub(super) fn backfill(
        &mut self,
        serial: SerialId,
        request: &str,
        (from, to): (Instant, Instant),
        now: Now,
    ) -> Result<Done, Rejection> {
        let trigger = self.known(serial)?;
        if self.is_disabled(trigger.project()) {
            return Err(Rejection::ProjectIsDisabled);
        }
        let mut state = trigger.state();
        let known = state.backfills.iter().position(|known| known.request == request);
        let blank = BackfillMemo { request: request.to_owned(), from, until: from };
        let mut progress = known.map_or(blank, |place| state.backfills.remove(place));
        if from < progress.from || progress.until < from {
            let BackfillMemo { from, until, .. } = progress;
            return Err(Rejection::BackfillElsewhere { from, until });
        }
        // What comes yet is fired when it comes.
        let to = to.min(now.wall);
        if to <= progress.until {
            return Ok(Done::Backfilled(BackfillProgress { started: 0, has_more: false }));
        }
        let runs = due(trigger, progress.until, to, now);
        self.check_room(trigger, runs.len())?;
        let last = runs.last().map(|run| run.slot);
        let next = last.and_then(|last| trigger.schedule().next(last)).filter(|next| *next < to);
        progress.until = next.unwrap_or(to);
        state.backfills.push(progress);
        let too_many = state.backfills.len().saturating_sub(BACKFILLS_REMEMBERED_MAX);
        state.backfills.drain(..too_many);
        let first = self.runs.next_sequence();
        let mut changes = vec![Delta::State(serial, state)];
        let started = u32::try_from(runs.len()).expect("a handful");
        let numbered = (first..).zip(runs);
        changes.extend(numbered.map(|(sequence, run)| Delta::Run(sequence, Arc::new(run))));
        self.enact(Unit::of(changes));
        Ok(Done::Backfilled(BackfillProgress { started, has_more: next.is_some() }))
    }
}

/// The runs of the first slots of a window, as many as fit a unit.
fn due(trigger: &Trigger, from: Instant, to: Instant, now: Now) -> Vec<RunRecord> {
    let most = (MADE_UP_BYTES / bytes_of_run(&trigger.target())).clamp(1, RUNS_MAX);
    let schedule = trigger.schedule();
    let slots =
        std::iter::successors(schedule.next(Instant(from.0 - 1)), |slot| schedule.next(*slot));
    let slots = slots.take_while(|slot| *slot < to).take(most);
    let run = |slot| {
        let record = trigger.run_record(slot, now.wall, RunState::Waiting(now.wall));
        RunRecord { generation: None, ..record }
    };
    slots.map(run).collect()
}
