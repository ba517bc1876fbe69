//! What workers say, and what they are answered: the protocol of claims.
//!
//! A worker says in each request what came of runs (`done`), what it gives back unbegun (`released`) and everything else
//! that it has (`running`). So whatever is recorded as given to it and is not named, it does not have, and if the claim
//! that gave it is settled it never will: it is withdrawn, and waits again. A request may ask for more runs, and wait for
//! them. Requests and answers may be lost, repeated and late: numbers tell what is settled, tokens what is current.
//!
//! What is remembered of a worker is in memory only. A successor has the records of given runs, and gives everybody a fresh
//! period: being alive costs no write. It draws a new *cookie*, so that a claim that was meant for a former memory gets
//! nothing: whether its answer was lost, only that memory knew.
//!
//! Two things are left to whoever puts this into a shard: workers are never forgotten here, so their number needs a bound,
//! and a claim that waits and is made void by a newer one gets no answer, so its ticket has to be given up.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use crate::id::SerialId;
use crate::mutant::{self, Mutant, pick};
use crate::past::End;
use crate::shard::{Now, Ticket};

use super::decided::Decided;
use super::given::{AttemptResult, Claimant, GivenRecord, GivenState, RunEnd, RunToken};
use super::unfinished::{QueueDelta, UnfinishedRuns};

/// A run, and the token under which a worker has it.
pub type HeldRun = (u64, RunToken);

/// What a worker says.
#[derive(Debug, Clone)]
pub struct WorkerRequest {
    /// Its name.
    pub worker: Arc<str>,
    /// Which life of it: greater than all before.
    pub incarnation: u64,
    /// Which request of this life: greater than all before.
    pub number: u64,
    /// The highest number of a claim that is answered or void.
    pub settled: u64,
    /// So long may it be silent.
    pub lease_ms: u32,
    /// What earlier lives than this one had, and nobody names, may have begun.
    pub since: u64,
    /// What came of runs.
    pub done: Vec<(HeldRun, AttemptResult)>,
    /// Runs that it gives back, and has not begun.
    pub released: Vec<HeldRun>,
    /// What it wants besides.
    pub wants: Wants,
}

/// What a worker wants, and what it names for that.
#[derive(Debug, Clone)]
pub enum Wants {
    /// Nothing: it reports results, and does not say what else it has.
    Report,
    /// To be heard. It has these, beside what the request reports.
    Beat {
        /// Runs that it has.
        running: Vec<HeldRun>,
    },
    /// To be heard, and to get more.
    Claim {
        /// Runs that it has.
        running: Vec<HeldRun>,
        /// What the last answer said about the memory that it speaks to.
        cookie: u64,
        /// From which queues, the first before the second.
        queues: Vec<SerialId>,
        /// So many runs at most.
        free: usize,
        /// Until when (steady) it waits if there is none.
        until: u64,
    },
}

/// What a worker is answered, once everything behind it is written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorkerAnswer {
    /// The memory that it speaks to.
    pub cookie: u64,
    /// The highest number of its requests that was heard.
    pub as_of: u64,
    /// Results and releases that are dealt with: whether they counted. What is missing is to be sent again.
    pub acks: Vec<(HeldRun, bool)>,
    /// Runs that it has lost: it ends them, and forgets their results.
    pub lost: Vec<HeldRun>,
    /// Runs that somebody wants to end.
    pub cancel: Vec<HeldRun>,
    /// Runs that it is given.
    pub runs: Vec<(u64, Arc<GivenRecord>)>,
}

/// What follows from a request at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// This is answered.
    Answer(WorkerAnswer),
    /// The answer comes with a later [step](Workers::step).
    Waits,
    /// A later life of the worker was heard: this one has to stop.
    OldIncarnation,
}

/// The workers that were heard of, and those that wait for runs.
#[derive(Debug)]
pub struct Workers {
    cookie: u64,
    known: HashMap<Arc<str>, KnownWorker>,
    /// Since when (steady) this owner listens without a break: everybody is heard for a whole period from then on.
    listening_since: u64,
    last_step: u64,
    /// Claims that wait, in the order in which they came.
    waiting: BTreeMap<u64, WaitingClaim>,
    arrivals: u64,
    by_queue: BTreeSet<(SerialId, u64)>,
    by_end: BTreeSet<(u64, u64)>,
}

#[derive(Debug, Clone, Copy)]
struct KnownWorker {
    incarnation: u64,
    last_claim: u64,
    last_request: u64,
    /// When (steady) it was last heard; never by this owner, if it is only known from records.
    heard: Option<u64>,
    /// The number of its claim that waits.
    waits: Option<u64>,
}

#[derive(Debug)]
struct WaitingClaim {
    ticket: Ticket,
    claimant: Claimant,
    queues: Vec<SerialId>,
    free: usize,
    until: u64,
}

/// An owner that made no step for longer than this was away, and heard nobody.
const AWAY_MS: u64 = 1_000;

/// How often is looked for workers that are silent.
const LISTEN_AGAIN_MS: u64 = 250;

impl Workers {
    /// Nobody was heard of, but who has runs is known by their records.
    pub fn new(runs: &UnfinishedRuns, now: Now) -> Self {
        let mut known = HashMap::new();
        for (_, record) in runs.all_given() {
            let claimant = &record.claimant;
            let unheard = KnownWorker::new(claimant.incarnation);
            let worker = known.entry(Arc::clone(&claimant.worker)).or_insert(unheard);
            worker.incarnation = worker.incarnation.max(claimant.incarnation);
        }
        mutant::also(Mutant::IncarnationsUnread, || known.clear());
        Self {
            cookie: pick(Mutant::CookieOfBefore, now.random, 1),
            known,
            listening_since: pick(Mutant::NoFreshPeriod, now.steady, 0),
            last_step: now.steady,
            waiting: BTreeMap::new(),
            arrivals: 0,
            by_queue: BTreeSet::new(),
            by_end: BTreeSet::new(),
        }
    }

    /// A request has come. What it leads to is in `decided`; the answer may leave once that is written.
    pub fn hear(
        &mut self,
        request: &WorkerRequest,
        ticket: Ticket,
        runs: &mut UnfinishedRuns,
        decided: &mut Decided,
        now: Now,
    ) -> Heard {
        let unheard = KnownWorker::new(request.incarnation);
        let known = self.known.entry(Arc::clone(&request.worker)).or_insert(unheard);
        let is_old = request.incarnation < known.incarnation;
        if pick(Mutant::OldIncarnationHeard, is_old, false) {
            return Heard::OldIncarnation;
        }
        if request.incarnation > known.incarnation {
            let waits = known.waits;
            *known = KnownWorker { waits, ..unheard };
        }
        known.heard = Some(now.steady);
        known.last_request = known.last_request.max(request.number);
        let (last_claim, as_of) = (known.last_claim, known.last_request);
        let mut answer = WorkerAnswer { cookie: self.cookie, as_of, ..WorkerAnswer::default() };
        // In this order: what any list names is safe from conclusions.
        mutant::also(Mutant::ConclusionsFirst, || {
            if let Wants::Beat { running } | Wants::Claim { running, .. } = &request.wants {
                let named = running.iter().copied().collect();
                withdraw_unnamed(request, &named, runs, decided, now);
            }
        });
        take_results(request, runs, decided, &mut answer, now);
        take_back_released(request, runs, decided, &mut answer, now);
        let (running, claim) = match &request.wants {
            Wants::Report => {
                mutant::also(Mutant::ReportConcludes, || {
                    withdraw_unnamed(request, &HashSet::new(), runs, decided, now);
                });
                return Heard::Answer(answer);
            }
            Wants::Beat { running } => (running, None),
            Wants::Claim { running, cookie, queues, free, until } => {
                (running, Some((*cookie, queues, *free, *until)))
            }
        };
        look_at_running(running, request, runs, decided, &mut answer, now);
        let done = request.done.iter().map(|(held, _)| held);
        let named = running.iter().chain(done).chain(&request.released).copied().collect();
        withdraw_unnamed(request, &named, runs, decided, now);
        let Some((cookie, queues, free, until)) = claim else {
            return Heard::Answer(answer);
        };
        self.void_waiting(&request.worker);
        let claimant = Claimant {
            worker: Arc::clone(&request.worker),
            incarnation: request.incarnation,
            claim: request.number,
            lease_ms: request.lease_ms,
        };
        // A claim that is repeated gets the same again.
        let last_claim = pick(Mutant::ClaimGivenTwice, last_claim, last_claim.saturating_sub(1));
        if request.number == last_claim {
            let given = runs.of_worker(&request.worker);
            let again = given.filter(|(_, record)| record.claimant == claimant);
            answer.runs = again.map(|(sequence, record)| (sequence, Arc::clone(record))).collect();
        } else if request.number > last_claim && cookie == self.cookie {
            self.known.get_mut(&request.worker).expect("it was heard").last_claim = request.number;
            answer.runs = give(&claimant, queues, free, runs, decided, now);
            if answer.is_empty() {
                let claim = WaitingClaim { ticket, claimant, queues: queues.clone(), free, until };
                self.wait(claim);
                return Heard::Waits;
            }
        }
        Heard::Answer(answer)
    }

    /// Gives what may be given to those who wait, in order; gives up who is silent; lets expire what has to.
    pub fn step(
        &mut self,
        runs: &mut UnfinishedRuns,
        decided: &mut Decided,
        now: Now,
    ) -> Vec<(Ticket, WorkerAnswer)> {
        if now.steady.saturating_sub(self.last_step) > AWAY_MS {
            self.was_away(now);
        }
        self.last_step = now.steady;
        runs.advance(now.wall);
        self.give_up_silent(runs, decided, now);
        while decided.has_room()
            && let Some(sequence) = runs.next_expired(now.wall)
        {
            decided.end(runs, sequence, RunEnd::Plain(End::Expired), now);
        }
        self.wake(runs, decided, now)
    }

    /// This owner had no right to act: it may have missed signs of life.
    pub fn was_away(&mut self, now: Now) {
        self.listening_since = pick(Mutant::AwayUnnoticed, now.steady, self.listening_since);
    }

    /// When (steady) to step again for those who wait, or may be silent.
    pub fn next_wake(&self, runs: &UnfinishedRuns) -> Option<u64> {
        let waits = self.by_end.first().map(|(until, _)| *until);
        let silent = runs.all_given().next().map(|_| self.last_step + LISTEN_AGAIN_MS);
        waits.into_iter().chain(silent).min()
    }

    fn silent_at(&self, claimant: &Claimant) -> u64 {
        let heard = self.known.get(&claimant.worker).and_then(|worker| worker.heard);
        let from = heard.map_or(self.listening_since, |heard| heard.max(self.listening_since));
        from + u64::from(claimant.lease_ms) * pick(Mutant::PatienceOfOneLease, 5, 4) / 4
    }

    fn give_up_silent(&self, runs: &mut UnfinishedRuns, decided: &mut Decided, now: Now) {
        let is_silent = |record: &GivenRecord| self.silent_at(&record.claimant) < now.steady;
        // One run of each worker tells whether to look at all of them.
        let silent: Vec<u64> = runs
            .one_of_each_worker()
            .filter(|(_, record)| is_silent(record))
            .flat_map(|(_, record)| runs.of_worker(&record.claimant.worker))
            .filter(|(_, record)| is_silent(record))
            .map(|(sequence, _)| sequence)
            .collect();
        for sequence in silent {
            if !decided.has_room() {
                return;
            }
            if let (Some(run), Some(record)) = (runs.get(sequence), runs.given(sequence)) {
                let fate = record.given_up(*run.policy, now.wall);
                decided.fate(runs, sequence, fate, now);
            }
        }
    }

    fn wait(&mut self, claim: WaitingClaim) {
        self.arrivals += 1;
        let arrival = self.arrivals;
        self.by_queue.extend(claim.queues.iter().map(|queue| (*queue, arrival)));
        self.by_end.insert((claim.until, arrival));
        self.known.get_mut(&claim.claimant.worker).expect("it was heard").waits = Some(arrival);
        self.waiting.insert(arrival, claim);
    }

    /// A newer claim of a worker makes the one that waits void: nobody listens to its answer.
    fn void_waiting(&mut self, worker: &Arc<str>) {
        let waits = self.known.get_mut(worker).and_then(|known| known.waits.take());
        if let Some(arrival) = waits {
            self.unwait(arrival);
        }
    }

    fn unwait(&mut self, arrival: u64) -> Option<WaitingClaim> {
        let claim = self.waiting.remove(&arrival)?;
        self.by_end.remove(&(claim.until, arrival));
        for queue in &claim.queues {
            self.by_queue.remove(&(*queue, arrival));
        }
        if let Some(known) = self.known.get_mut(&claim.claimant.worker)
            && known.waits == Some(arrival)
        {
            known.waits = None;
        }
        Some(claim)
    }

    fn wake(
        &mut self,
        runs: &mut UnfinishedRuns,
        decided: &mut Decided,
        now: Now,
    ) -> Vec<(Ticket, WorkerAnswer)> {
        let mut answers = Vec::new();
        while let Some(&(_, arrival)) =
            self.by_end.first().filter(|(until, _)| *until <= now.steady)
        {
            answers.extend(self.answer_waiting(arrival, Vec::new()));
        }
        let mut next = self.by_queue.first().copied();
        while let Some((queue, arrival)) = next {
            let can_give = decided.has_room() && runs.next(queue, now.wall).is_some();
            if can_give
                && let Some(claim) = self.waiting.get(&arrival)
                && self.is_there(&claim.claimant, now)
            {
                let given = give(&claim.claimant, &claim.queues, claim.free, runs, decided, now);
                answers.extend(self.answer_waiting(arrival, given));
            }
            // The next one in line if there is more of this queue, else the first in line for the next queue.
            let after = if can_give { arrival } else { u64::MAX };
            let range = (Bound::Excluded((queue, after)), Bound::Unbounded);
            next = self.by_queue.range(range).next().copied();
        }
        answers
    }

    fn answer_waiting(
        &mut self,
        arrival: u64,
        runs: Vec<(u64, Arc<GivenRecord>)>,
    ) -> Option<(Ticket, WorkerAnswer)> {
        let claim = self.unwait(arrival)?;
        let as_of = self.known.get(&claim.claimant.worker)?.last_request;
        let answer = WorkerAnswer { cookie: self.cookie, as_of, runs, ..WorkerAnswer::default() };
        Some((claim.ticket, answer))
    }

    /// Whether a worker was heard within two beats. A claim that waits is no sign of life.
    fn is_there(&self, claimant: &Claimant, now: Now) -> bool {
        let known = self.known.get(&claimant.worker);
        let is_same = known.is_some_and(|known| known.incarnation == claimant.incarnation);
        let heard = known.and_then(|known| known.heard);
        let two_beats = u64::from(claimant.lease_ms) * 2 / BEATS_PER_LEASE;
        let is_heard = heard.is_some_and(|heard| now.steady.saturating_sub(heard) < two_beats);
        pick(Mutant::WaitingIsAlive, is_same && is_heard, true)
    }
}

/// A worker that has no claim open is heard so often during a lease.
pub const BEATS_PER_LEASE: u64 = 5;

impl KnownWorker {
    fn new(incarnation: u64) -> Self {
        Self { incarnation, last_claim: 0, last_request: 0, heard: None, waits: None }
    }
}

impl WorkerAnswer {
    fn is_empty(&self) -> bool {
        self.acks.is_empty()
            && self.lost.is_empty()
            && self.cancel.is_empty()
            && self.runs.is_empty()
    }
}

fn take_results(
    request: &WorkerRequest,
    runs: &mut UnfinishedRuns,
    decided: &mut Decided,
    answer: &mut WorkerAnswer,
    now: Now,
) {
    for ((sequence, token), result) in &request.done {
        if !decided.has_room() {
            return;
        }
        let fate = runs.get(*sequence).and_then(|run| {
            let record = runs.given(*sequence)?;
            record.reported(*token, *result, *run.policy, now.wall, now.random).ok()
        });
        answer.acks.push(((*sequence, *token), fate.is_some()));
        if let Some(fate) = fate {
            decided.fate(runs, *sequence, fate, now);
        }
    }
}

fn take_back_released(
    request: &WorkerRequest,
    runs: &mut UnfinishedRuns,
    decided: &mut Decided,
    answer: &mut WorkerAnswer,
    now: Now,
) {
    for &(sequence, token) in &request.released {
        if !decided.has_room() {
            return;
        }
        let is_current = |record: &&Arc<GivenRecord>| {
            record.is_running() && pick(Mutant::ReleasedByAnybody, record.token == token, true)
        };
        let fate = runs.given(sequence).filter(is_current).map(|record| record.withdrawn(now.wall));
        answer.acks.push(((sequence, token), fate.is_some()));
        if let Some(fate) = fate {
            decided.fate(runs, sequence, fate, now);
        }
    }
}

/// What a worker says that it has is confirmed, taken back after doubt, to be cancelled, or lost.
fn look_at_running(
    running: &[HeldRun],
    request: &WorkerRequest,
    runs: &mut UnfinishedRuns,
    decided: &mut Decided,
    answer: &mut WorkerAnswer,
    now: Now,
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
            // Also if there is no room: what is named and not lost is confirmed, and so it may not stay in doubt.
            if pick(Mutant::DoubtInFullCommit, false, !decided.has_room()) {
                continue;
            }
            let fits = runs.get(sequence).is_some_and(|run| runs.fits(run));
            let next = if pick(Mutant::TakenBackBeyondLimits, fits, true) {
                record.taken_back()
            } else {
                pick(Mutant::LostUnrecorded, record.lost(), GivenRecord::clone(&record))
            };
            record = decided.goes(runs, sequence, next, now);
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

/// What is recorded as given to a worker and is not named by it never began, if its claim is settled.
fn withdraw_unnamed(
    request: &WorkerRequest,
    named: &HashSet<HeldRun>,
    runs: &mut UnfinishedRuns,
    decided: &mut Decided,
    now: Now,
) {
    let unnamed: Vec<(u64, Arc<GivenRecord>)> = runs
        .of_worker(&request.worker)
        .filter(|(sequence, record)| !named.contains(&(*sequence, record.token)))
        .map(|(sequence, record)| (sequence, Arc::clone(record)))
        .collect();
    for (sequence, record) in unnamed {
        if !decided.has_room() {
            return;
        }
        let Claimant { incarnation, claim, .. } = record.claimant;
        let is_of_former_life = incarnation != request.incarnation;
        let fate = if pick(Mutant::SinceIgnored, incarnation < request.since, false) {
            // Nobody knows whether it began.
            runs.get(sequence).map(|run| record.died(*run.policy, now.wall))
        } else if is_of_former_life
            || pick(Mutant::WithdrawnUnsettled, claim <= request.settled, true)
        {
            Some(record.withdrawn(now.wall))
        } else {
            None
        };
        if let Some(fate) = fate {
            decided.fate(runs, sequence, fate, now);
        }
    }
}

/// Gives a worker what may be given now, from one queue after the other.
fn give(
    claimant: &Claimant,
    queues: &[SerialId],
    free: usize,
    runs: &mut UnfinishedRuns,
    decided: &mut Decided,
    now: Now,
) -> Vec<(u64, Arc<GivenRecord>)> {
    let mut given = Vec::new();
    for queue in queues {
        while given.len() < free
            && decided.has_room()
            && let Some(sequence) = runs.next(*queue, now.wall)
        {
            let record = match runs.given(sequence) {
                Some(record) => record.again(claimant.clone(), now.wall),
                None => GivenRecord::first(claimant.clone(), now.wall),
            };
            if let Some(window) = runs.rate_after(*queue, now.wall) {
                decided.change(runs, QueueDelta::Rate(*queue, window), now);
                mutant::also(Mutant::RateUnrecorded, || drop(decided.changes.pop()));
            }
            given.push((sequence, decided.goes(runs, sequence, record, now)));
        }
    }
    given
}
