//! A run that was given to a worker: what is recorded of it, and what follows from each thing that can happen.
//!
//! ```text
//!                 give                       succeeded, failed for good, cancelled, …
//!   waiting ────────────────▶ running ─────────────────────────────────────────────────▶ the past
//!      ▲                      │  │  ▲
//!      │  failed, stopped,    │  │  │ the same incarnation names it again: taken back
//!      ├──────────────────────┘  │  │
//!      │  never began            ▼  │
//!      └───────────────────── in doubt: its worker was silent for the whole patience
//! ```
//!
//! A record holds who has the run, under which token, and how often it was tried. So a successor needs nothing but
//! these records: whatever a worker says is judged by them. Tokens only grow, and the last one stays while the run waits:
//! what an older one says changes nothing.
//!
//! An attempt is counted when it is given. It is given back, and its number used again, only if it is certain that it
//! never began. Failures, deaths of workers and attempts that were stopped are told apart: failures use up what the user
//! granted, three deaths make a run poison, a stop counts for neither.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::instant::Instant;
use crate::limits::{RUN_ATTEMPTS_KEPT_MAX, WORKER_DEATHS_MAX};
use crate::mutant::{Mutant, pick};
use crate::past::{Attempt, End};
use crate::policy::{Delivery, Retry};

/// A fencing token of a run: only grows.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct RunToken(pub u64);

/// Who has a run: one claim of one life of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claimant {
    /// The worker's name.
    pub worker: Arc<str>,
    /// Which life of the worker: greater than all before.
    pub incarnation: u64,
    /// Which log the worker keeps of what it begins: the life with which that log began, or 0. A record of a
    /// former server does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
    /// The number of the request that claimed it.
    pub claim: u64,
    /// So long may the worker be silent, by its own account.
    pub lease_ms: u32,
}

/// What is recorded of a run from the first time that it is given until its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenRecord {
    /// Where it is.
    pub state: GivenState,
    /// How many attempts were given and may have begun.
    pub attempt: u32,
    /// The last token under which it was given.
    pub token: RunToken,
    /// Attempts that failed: they count against those that the user granted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failures: u32,
    /// Workers that died under it, or were given up.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub deaths: u32,
    /// To whom it was given last.
    pub claimant: Claimant,
    /// Somebody wants it to end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cancel: bool,
    /// When it was given last.
    pub at: Instant,
    /// What came of the last attempts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<Attempt>,
    /// The first of the runs that share this record; none, if it is the record of one run.
    #[serde(skip)]
    pub shared: Option<u64>,
}

/// What is recorded of the runs that a claim was given for the first time. They share it, until something becomes of one:
/// a worker that claims a hundred runs and completes them costs two small writes for all of them, instead of two for each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimedRecord {
    /// The numbers of the runs: from the first to the last of each range.
    pub runs: Vec<(u64, u64)>,
    /// What is recorded of each of them that is unfinished and has no record of its own.
    pub given: Arc<GivenRecord>,
}

/// Where a run is that was given at least once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GivenState {
    /// Its worker has it.
    Running,
    /// It waits to be given again, from this instant on.
    Waiting(Instant),
    /// So it does, and the silent worker that had it may still report: until it is given again, that counts.
    InDoubt(Instant),
}

/// By which rules a run is given again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct GivenPolicy {
    /// What becomes of a run of which nobody knows whether it was carried out.
    pub delivery: Delivery,
    /// When a failed attempt is followed by another.
    pub retry: Retry,
}

impl GivenPolicy {
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// What a worker says came of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptResult {
    /// It was carried out.
    Succeeded,
    /// It failed. The worker may ask for a pause of its own.
    Failed {
        /// So long is it to wait at least.
        retry_after: Option<Duration>,
    },
    /// It failed, and would fail again.
    FailedForGood,
    /// It was ended because somebody had asked for that.
    Cancelled,
    /// It was begun and ended early, as by a worker that drains.
    Stopped,
    /// The worker died under it.
    Died,
}

/// What becomes of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// This is recorded of it from now on.
    Goes(GivenRecord),
    /// It is past.
    Ends(RunEnd),
}

/// How a run of a queue ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnd {
    /// As runs of triggers end.
    Plain(End),
    /// Too many workers died under it.
    Poison,
}

/// The claim of a worker is not, or no more, about what is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the token is stale: the run was given to somebody else, or has ended")]
pub struct Stale;

impl Claimant {
    /// The name that the worker gave itself: owners put its project before it.
    pub fn own_name(&self) -> &str {
        self.worker.rsplit('/').next().unwrap_or_default()
    }
}

impl RunToken {
    /// The next one: the wall clock in microseconds, so that tokens of different runs grow as well, unless that is behind.
    fn next(self, now: Instant) -> Self {
        Self((self.0 + 1).max(now.0.max(0).unsigned_abs() * 1_000))
    }
}

impl GivenRecord {
    /// A run is given to a worker for the first time.
    pub fn first(claimant: Claimant, now: Instant) -> Self {
        Self {
            state: GivenState::Running,
            attempt: 1,
            token: RunToken::default().next(now),
            failures: 0,
            deaths: 0,
            claimant,
            cancel: false,
            at: now,
            attempts: Vec::new(),
            shared: None,
        }
    }

    /// The run is given to a worker again.
    #[must_use]
    pub fn again(&self, claimant: Claimant, now: Instant) -> Self {
        Self {
            state: GivenState::Running,
            attempt: self.attempt + 1,
            token: self.token.next(now),
            claimant,
            at: now,
            ..self.clone().with_attempt(self.untold())
        }
    }

    /// Whether its worker has it, as far as is known.
    pub fn is_running(&self) -> bool {
        self.state == GivenState::Running
    }

    /// From when on it may be given, if it waits.
    pub fn due(&self) -> Option<Instant> {
        match self.state {
            GivenState::Running => None,
            GivenState::Waiting(due) | GivenState::InDoubt(due) => Some(due),
        }
    }

    /// Whether what is said under this token is about the last time that it was given, and may count.
    pub fn counts(&self, token: RunToken) -> bool {
        let is_current = pick(Mutant::StaleCounts, token == self.token, true);
        let is_open = !matches!(self.state, GivenState::Waiting(_));
        is_current && pick(Mutant::CountsTwice, is_open, true)
    }

    /// What came of the attempt under a token.
    pub fn reported(
        &self,
        token: RunToken,
        result: AttemptResult,
        policy: GivenPolicy,
        now: Instant,
        random: u64,
    ) -> Result<Fate, Stale> {
        if !self.counts(token) {
            return Err(Stale);
        }
        let may_repeat = policy.delivery == Delivery::AtLeastOnce;
        Ok(match result {
            AttemptResult::Succeeded => Fate::of(End::Succeeded),
            AttemptResult::Cancelled => Fate::of(End::Cancelled),
            _ if pick(Mutant::RetryBeforeCancel, self.cancel, false) => Fate::of(End::Cancelled),
            AttemptResult::FailedForGood => Fate::of(End::Failed),
            AttemptResult::Failed { .. } if !may_repeat => Fate::of(End::Failed),
            AttemptResult::Failed { retry_after } => {
                let failures = self.failures + 1;
                if failures >= policy.retry.attempts.into() {
                    return Ok(Fate::of(End::Dead));
                }
                let due = now.after(policy.retry.pause(failures, retry_after, random));
                Fate::Goes(Self { failures, ..self.waiting(due) })
            }
            AttemptResult::Stopped if !may_repeat => Fate::of(End::Unknown),
            AttemptResult::Stopped => Fate::Goes(self.waiting(now)),
            // The silence of its worker has counted this death already.
            AttemptResult::Died => match self.state {
                GivenState::InDoubt(due) => Fate::Goes(self.waiting(due)),
                GivenState::Running | GivenState::Waiting(_) => self.died(policy, now),
            },
        })
    }

    /// Its worker was not heard of for the whole patience: it may execute still.
    pub fn given_up(&self, policy: GivenPolicy, now: Instant) -> Fate {
        match self.died(policy, now) {
            Fate::Goes(record) => Fate::Goes(Self { state: GivenState::InDoubt(now), ..record }),
            ended @ Fate::Ends(_) => ended,
        }
    }

    /// Its worker died under it, or does not know whether it began.
    pub fn died(&self, policy: GivenPolicy, now: Instant) -> Fate {
        let deaths = pick(Mutant::DeathsUncounted, self.deaths + 1, 0);
        if self.cancel {
            Fate::of(End::Cancelled)
        } else if policy.delivery == Delivery::AtMostOnce {
            Fate::of(End::Unknown)
        } else if deaths >= WORKER_DEATHS_MAX {
            Fate::Ends(RunEnd::Poison)
        } else {
            let attempt = pick(Mutant::AttemptOfDeadAgain, self.attempt, self.attempt - 1);
            Fate::Goes(Self { attempt, deaths, ..self.waiting(now) })
        }
    }

    /// It is certain that the attempt never began, and never will: its number is used again, and it waits where it did,
    /// by the instant from which it was due.
    #[must_use]
    pub fn withdrawn(&self, due: Instant) -> Self {
        let attempt = pick(Mutant::NumberOfUnbegunKept, self.attempt - 1, self.attempt);
        Self { attempt, ..self.waiting(due) }
    }

    /// The worker that was given up still has it, and limits allow it to go on: the death was none.
    #[must_use]
    pub fn taken_back(&self) -> Self {
        Self { state: GivenState::Running, deaths: self.deaths.saturating_sub(1), ..self.clone() }
    }

    /// The attempt that is in doubt, if one is: once its worker can tell nothing of it any more, this is told.
    pub fn untold(&self) -> Option<Attempt> {
        match self.state {
            GivenState::InDoubt(since) => Some(self.silent_attempt(since)),
            GivenState::Running | GivenState::Waiting(_) => None,
        }
    }

    /// An attempt that ended without a word of its worker.
    pub fn silent_attempt(&self, now: Instant) -> Attempt {
        let lease_ms = u64::from(self.claimant.lease_ms);
        Attempt {
            at: self.at,
            ms: u32::try_from(now.0.saturating_sub(self.at.0)).unwrap_or(0),
            error: Some(format!("its worker was not heard of for {} ms", lease_ms * 5 / 4)),
            worker: Some(self.claimant.own_name().into()),
            ..Attempt::default()
        }
    }

    /// An attempt that a later life of its worker knows nothing of.
    pub fn forgotten_attempt(&self, now: Instant) -> Attempt {
        let error = "its worker died, and does not know whether it began".to_owned();
        Attempt { error: Some(error), ..self.silent_attempt(now) }
    }

    /// An attempt of which its worker told something: by whom it was made, and when, if it did not say.
    pub fn attempt_made(&self, made: Attempt, now: Instant) -> Attempt {
        let worker = Some(self.claimant.own_name().into());
        if made.at > Instant(0) {
            return Attempt { worker, ..made };
        }
        let ms = u32::try_from(now.0.saturating_sub(self.at.0)).unwrap_or(0);
        Attempt { at: self.at, ms, worker, ..made }
    }

    /// The same after one more attempt, of which this came. The last ones are kept.
    #[must_use]
    pub fn with_attempt(mut self, attempt: Option<Attempt>) -> Self {
        keep_last(&mut self.attempts, attempt);
        self
    }

    /// The worker that was given up has to be told that it lost the run: from now on nothing that it says counts.
    #[must_use]
    pub fn lost(&self) -> Self {
        let due = self.due().expect("a run that is lost waits");
        self.waiting(due).with_attempt(self.untold())
    }

    fn waiting(&self, due: Instant) -> Self {
        let token = pick(Mutant::TokenForgotten, self.token, RunToken::default());
        Self { state: GivenState::Waiting(due), token, ..self.clone() }
    }
}

impl ClaimedRecord {
    /// What these runs, in any order, share from now on.
    pub fn of(mut runs: Vec<u64>, given: Arc<GivenRecord>) -> Self {
        runs.sort_unstable();
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for run in runs {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == run => *last = run,
                _ => ranges.push((run, run)),
            }
        }
        Self { runs: ranges, given }
    }

    /// The numbers of the runs.
    pub fn numbers(&self) -> impl Iterator<Item = u64> {
        self.runs.iter().flat_map(|(first, last)| *first..=*last)
    }
}

impl Fate {
    fn of(end: End) -> Self {
        Self::Ends(RunEnd::Plain(end))
    }
}

/// Adds what came of one more attempt to that of others, of which the last ones are kept.
pub fn keep_last(attempts: &mut Vec<Attempt>, attempt: Option<Attempt>) {
    attempts.extend(attempt);
    let surplus = attempts.len().saturating_sub(RUN_ATTEMPTS_KEPT_MAX);
    attempts.drain(..surplus);
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant(1_000_000);
    const OFTEN: GivenPolicy = GivenPolicy {
        delivery: Delivery::AtLeastOnce,
        retry: Retry {
            attempts: 3,
            delay_ms: 1_000,
            backoff: crate::policy::Backoff::Constant,
            max_delay_ms: 1_000,
        },
    };
    const ONCE: GivenPolicy = GivenPolicy { delivery: Delivery::AtMostOnce, ..OFTEN };
    const FAILED: AttemptResult = AttemptResult::Failed { retry_after: None };

    fn claimant(worker: &str) -> Claimant {
        Claimant {
            worker: worker.into(),
            incarnation: 1,
            since: Some(0),
            claim: 1,
            lease_ms: 4_000,
        }
    }

    fn given() -> GivenRecord {
        GivenRecord::first(claimant("a"), NOW)
    }

    fn report(record: &GivenRecord, result: AttemptResult, policy: GivenPolicy) -> Fate {
        record.reported(record.token, result, policy, NOW, 0).unwrap()
    }

    #[track_caller]
    fn goes(fate: Fate) -> GivenRecord {
        match fate {
            Fate::Goes(record) => record,
            Fate::Ends(end) => panic!("it ended: {end:?}"),
        }
    }

    #[test]
    fn each_result_ends_a_run_or_lets_it_wait() {
        let plain = |end| Some(RunEnd::Plain(end));
        let cancelled = GivenRecord { cancel: true, ..given() };
        for (result, often, once) in [
            (AttemptResult::Succeeded, plain(End::Succeeded), plain(End::Succeeded)),
            (AttemptResult::Cancelled, plain(End::Cancelled), plain(End::Cancelled)),
            (AttemptResult::FailedForGood, plain(End::Failed), plain(End::Failed)),
            (FAILED, None, plain(End::Failed)),
            (AttemptResult::Stopped, None, plain(End::Unknown)),
            (AttemptResult::Died, None, plain(End::Unknown)),
        ] {
            for (policy, expected) in [(OFTEN, often), (ONCE, once)] {
                let end = match report(&given(), result, policy) {
                    Fate::Ends(end) => Some(end),
                    Fate::Goes(_) => None,
                };
                assert_eq!(end, expected, "{result:?}, {:?}", policy.delivery);
            }
            let end = match result {
                AttemptResult::Succeeded => End::Succeeded,
                _ => End::Cancelled,
            };
            assert_eq!(report(&cancelled, result, OFTEN), Fate::of(end), "{result:?}, cancelled");
        }
    }

    #[test]
    fn failures_use_up_what_was_granted_and_stops_do_not() {
        let mut record = given();
        for _ in 0..5 {
            record = goes(report(&record, AttemptResult::Stopped, OFTEN)).again(claimant("b"), NOW);
        }
        let once = goes(report(&record, FAILED, OFTEN));
        assert_eq!((once.failures, once.attempt, once.deaths), (1, 6, 0));
        let pause = once.due().unwrap().0 - NOW.0;
        assert!((900..=1_100).contains(&pause), "the first pause, with a tenth of chance: {pause}");
        let twice = goes(report(&once.again(claimant("c"), NOW), FAILED, OFTEN));
        let thrice = report(&twice.again(claimant("d"), NOW), FAILED, OFTEN);
        assert_eq!(thrice, Fate::of(End::Dead));
    }

    #[test]
    fn a_worker_may_ask_for_a_longer_pause() {
        let asked = AttemptResult::Failed { retry_after: Some(Duration::from_secs(60)) };
        let waits = goes(report(&given(), asked, OFTEN));
        assert_eq!(waits.due(), Some(NOW.after(Duration::from_secs(60))));
    }

    #[test]
    fn a_run_under_which_three_workers_died_is_poison() {
        let once = goes(given().given_up(OFTEN, NOW));
        let twice = goes(once.again(claimant("b"), NOW).died(OFTEN, NOW));
        let thrice = twice.again(claimant("c"), NOW).given_up(OFTEN, NOW);
        assert_eq!(thrice, Fate::Ends(RunEnd::Poison));
    }

    #[test]
    fn a_late_result_counts_until_the_run_is_given_again_and_once() {
        let doubt = goes(given().given_up(OFTEN, NOW));
        assert_eq!(doubt.state, GivenState::InDoubt(NOW));
        assert_eq!(report(&doubt, AttemptResult::Succeeded, OFTEN), Fate::of(End::Succeeded));
        let failed = goes(report(&doubt, FAILED, OFTEN));
        let late = |record: &GivenRecord| {
            record.reported(given().token, AttemptResult::Succeeded, OFTEN, NOW, 0)
        };
        assert_eq!(late(&failed), Err(Stale), "its failure was reported before");
        assert_eq!(late(&doubt.again(claimant("b"), NOW)), Err(Stale), "another has it");
        assert_eq!(late(&doubt.lost()), Err(Stale), "it was told that it lost the run");
    }

    #[test]
    fn a_death_is_counted_once_and_undone_by_who_lives() {
        let doubt = goes(given().given_up(OFTEN, NOW));
        assert_eq!(doubt.deaths, 1);
        assert_eq!(goes(report(&doubt, AttemptResult::Died, OFTEN)).deaths, 1);
        let back = doubt.taken_back();
        assert_eq!((back.deaths, back.is_running(), back.token), (0, true, given().token));
    }

    #[test]
    fn what_never_began_has_its_number_again_under_a_new_token() {
        let again = given().withdrawn(NOW).again(claimant("b"), NOW);
        assert_eq!(again.attempt, 1);
        assert!(again.token > given().token);
    }

    #[test]
    fn an_attempt_in_doubt_is_told_once_its_worker_can_tell_nothing_of_it_any_more() {
        let doubt = goes(given().given_up(OFTEN, NOW));
        assert_eq!(doubt.attempts, [], "it may still tell");
        assert_eq!(doubt.taken_back().attempts, []);
        let told = [given().silent_attempt(NOW)];
        assert_eq!(doubt.again(claimant("b"), NOW).attempts, told);
        let lost = doubt.lost();
        assert_eq!(lost.attempts, told);
        assert_eq!(lost.again(claimant("b"), NOW).attempts, told, "and once");
    }
}
