//! What follows from each part of what a worker says.

use std::sync::Arc;

use crate::id::SerialId;
use crate::limits::WORKER_RUNS_MAX;
use crate::mutant::{self, Mutant, pick};
use crate::queue::decided::{Decided, RunGiven};
use crate::queue::given::{Claimant, GivenRecord, GivenState};
use crate::queue::unfinished::{QueueDelta, UnfinishedRuns};
use crate::queue::worker::{DoneRun, HeldRun, WorkerAnswer, WorkerRequest};
use crate::shard::Now;

pub(super) fn take_results(
    request: &WorkerRequest,
    runs: &mut UnfinishedRuns,
    decided: &mut Decided,
    answer: &mut WorkerAnswer,
    now: Now,
) {
    for DoneRun { held: (sequence, token), result, made } in &request.done {
        let fate = runs.policy(*sequence).and_then(|policy| {
            let record = runs.given(*sequence)?;
            let random = now.random ^ *sequence;
            let fate = record.reported(*token, *result, policy, now.wall, random).ok()?;
            Some((fate, made.clone().map(|made| record.attempt_made(made, now.wall))))
        });
        answer.acks.push(((*sequence, *token), fate.is_some()));
        if let Some((fate, made)) = fate {
            decided.fate(runs, *sequence, fate, made);
        }
    }
}

pub(super) fn take_back_released(
    request: &WorkerRequest,
    runs: &mut UnfinishedRuns,
    decided: &mut Decided,
    answer: &mut WorkerAnswer,
) {
    for &(sequence, token) in &request.released {
        let is_current = |record: &Arc<GivenRecord>| {
            record.is_running() && pick(Mutant::ReleasedByAnybody, record.token == token, true)
        };
        let counts = runs.given(sequence).is_some_and(is_current);
        answer.acks.push(((sequence, token), counts));
        if counts {
            decided.withdraw(runs, sequence);
        }
    }
}

/// What a worker says that it has is confirmed, taken back after doubt, to be cancelled, or lost.
pub(super) fn look_at_running(
    running: &[HeldRun],
    request: &WorkerRequest,
    runs: &mut UnfinishedRuns,
    decided: &mut Decided,
    answer: &mut WorkerAnswer,
) {
    for &(sequence, token) in running {
        let current = runs.given(sequence).filter(|record| record.token == token).cloned();
        let Some(mut record) = current else {
            answer.lost.push((sequence, token));
            continue;
        };
        let is_of_this_life = record.claimant.worker == request.worker
            && record.claimant.incarnation == request.incarnation;
        if matches!(record.state, GivenState::InDoubt(_)) && is_of_this_life {
            let fits = runs.fits(sequence);
            let next = if pick(Mutant::TakenBackBeyondLimits, fits, true) {
                record.taken_back()
            } else {
                pick(Mutant::LostUnrecorded, record.lost(), GivenRecord::clone(&record))
            };
            record = decided.goes(runs, sequence, next);
        }
        match record.state {
            // Its results, which come from a former life of the worker, still count.
            GivenState::InDoubt(_) if !is_of_this_life => {}
            GivenState::InDoubt(_) | GivenState::Waiting(_) => answer.lost.push((sequence, token)),
            GivenState::Running if record.cancel => answer.cancel.push((sequence, token)),
            GivenState::Running => {}
        }
    }
}

/// What is recorded as given to a worker and is not named by it never began, if its claim is settled. Those that are named
/// are in order.
pub(super) fn withdraw_unnamed(
    request: &WorkerRequest,
    named: &[HeldRun],
    runs: &mut UnfinishedRuns,
    decided: &mut Decided,
    now: Now,
) {
    let unnamed: Vec<(u64, Arc<GivenRecord>)> = runs
        .of_worker(&request.worker)
        .filter(|(sequence, record)| named.binary_search(&(*sequence, record.token)).is_err())
        .map(|(sequence, record)| (sequence, Arc::clone(record)))
        .collect();
    for (sequence, record) in unnamed {
        let Claimant { incarnation, since, claim, .. } = record.claimant;
        let is_of_former_life = incarnation != request.incarnation;
        let is_of_former_life = pick(Mutant::FormerLifeKept, is_of_former_life, false);
        // What is in another log than this one may have begun. Where nobody recorded which log it is in, its life tells.
        let is_other = since.map_or(incarnation < request.since, |since| since != request.since);
        let is_unknown = is_of_former_life && is_other;
        if pick(Mutant::SinceIgnored, is_unknown, false) {
            if let Some(policy) = runs.policy(sequence) {
                let forgotten = record.forgotten_attempt(now.wall);
                decided.fate(runs, sequence, record.died(policy, now.wall), Some(forgotten));
            }
        } else if is_of_former_life
            || pick(Mutant::WithdrawnUnsettled, claim <= request.settled, true)
        {
            decided.withdraw(runs, sequence);
        }
    }
}

/// Gives a worker what may be given now, from one queue after the other.
pub(super) fn give(
    claimant: &Claimant,
    queues: &[SerialId],
    free: usize,
    runs: &mut UnfinishedRuns,
    decided: &mut Decided,
    now: Now,
) -> Vec<(u64, Arc<GivenRecord>)> {
    let held = runs.of_worker(&claimant.worker).count();
    let free = free.min(WORKER_RUNS_MAX.saturating_sub(held));
    let mut given = Vec::new();
    for queue in queues {
        // Those that are given for the first time share a record.
        let (mut claimed, mut shared) = (Vec::new(), None);
        while given.len() < free
            && decided.has_room()
            && let Some(sequence) = runs.next_for(*queue, &claimant.worker, now.wall)
        {
            if let Some(window) = runs.rate_after(*queue, now.wall) {
                decided.change(runs, QueueDelta::Rate(*queue, window));
                mutant::also(Mutant::RateUnrecorded, || drop(decided.changes.pop()));
            }
            let former = runs.given(sequence);
            let due = former.map_or_else(|| runs.due(sequence), |former| former.due());
            let record = if let Some(former) = former {
                let again = former.again(claimant.clone(), now.wall);
                decided.goes(runs, sequence, again)
            } else {
                let record = shared.get_or_insert_with(|| {
                    let first = GivenRecord::first(claimant.clone(), now.wall);
                    Arc::new(GivenRecord { shared: Some(sequence), ..first })
                });
                runs.apply(&QueueDelta::Given(sequence, Arc::clone(record)));
                claimed.push(sequence);
                Arc::clone(record)
            };
            let due = due.unwrap_or(now.wall);
            decided.given.push(RunGiven { sequence, queue: *queue, due });
            given.push((sequence, record));
        }
        if let Some(shared) = shared {
            decided.claimed(claimed, shared);
        }
    }
    given
}
