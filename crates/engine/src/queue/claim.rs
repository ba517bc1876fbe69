//! Claims: how an owner hears workers, and gives them runs.
//!
//! The rules of the protocol are in the order in which a request is heard: results, runs that are given back, runs that
//! the worker has, what follows for those that it does not name, and the claim. What any list names is safe from
//! conclusions. A claim that finds nothing waits here, in memory: one who waits is woken for a run, in the order of arrival.
//!
//! - `hearing`: what follows from each part of a request

mod hearing;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use crate::id::SerialId;
use crate::limits::{WORKER_FORGOTTEN_MS, WORKERS_PER_PROJECT_MAX, WORKERS_PER_SHARD_MAX};
use crate::mutant::{self, Mutant, pick};
use crate::past::End;
use crate::shard::{Now, Ticket};

use self::hearing::{give, look_at_running, take_back_released, take_results, withdraw_unnamed};
use super::decided::Decided;
use super::given::{Claimant, Fate, GivenRecord, RunEnd};
use super::news::{WorkerNews, WorkerTurn};
use super::unfinished::UnfinishedRuns;
use super::worker::{
    Heard, HeldRun, Wants, WorkerActivity, WorkerAnswer, WorkerRequest, WorkerView,
};

/// The workers that were heard of, and those that wait for runs.
#[derive(Debug)]
pub struct Workers {
    cookie: u64,
    known: HashMap<Arc<str>, KnownWorker>,
    /// How many of these each project has, by what its workers' names begin with.
    of_project: HashMap<Box<str>, usize>,
    /// Since when (steady) this owner listens without a break: everybody is heard for a whole period from then on.
    listening_since: u64,
    last_step: u64,
    /// Claims that wait, in the order in which they came.
    waiting: BTreeMap<u64, WaitingClaim>,
    arrivals: u64,
    by_ticket: HashMap<Ticket, u64>,
    by_queue: BTreeSet<(SerialId, u64)>,
    by_end: BTreeSet<(u64, u64)>,
    /// Claims that nobody listens to any more.
    voided: Vec<Ticket>,
    /// What became of workers, for those who watch.
    news: Vec<WorkerNews>,
    /// When (steady) is looked again for workers that are silent, or gone for long.
    listen_again: u64,
    /// No worker is gone for long before this (steady). Later than [`Self::listen_again`], so that it is looked at then.
    forget_by: u64,
}

#[derive(Debug, Clone)]
struct KnownWorker {
    incarnation: u64,
    last_claim: u64,
    /// The highest claim to whose answer it does not listen any more.
    settled: u64,
    last_request: u64,
    /// When (steady) it was last heard; never by this owner, if it is only known from records.
    heard: Option<u64>,
    /// When (steady) a claim of it was answered that waited in vain: it had nothing to say before.
    answered: Option<u64>,
    /// Which arrival its claim is that waits.
    waits: Option<u64>,
    is_draining: bool,
    queues: Vec<SerialId>,
    lease_ms: u32,
    labels: Arc<str>,
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
        let mut of_project = HashMap::new();
        for worker in known.keys() {
            *of_project.entry(project_of(worker).into()).or_default() += 1;
        }
        Self {
            cookie: pick(Mutant::CookieOfBefore, now.random, 1),
            known,
            of_project,
            listening_since: pick(Mutant::NoFreshPeriod, now.steady, 0),
            last_step: now.steady,
            waiting: BTreeMap::new(),
            arrivals: 0,
            by_ticket: HashMap::new(),
            by_queue: BTreeSet::new(),
            by_end: BTreeSet::new(),
            voided: Vec::new(),
            news: Vec::new(),
            listen_again: 0,
            forget_by: u64::MAX,
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
        if !self.known.contains_key(&request.worker) {
            if !self.has_room_for(&request.worker) {
                return Heard::TooManyWorkers;
            }
            *self.of_project.entry(project_of(&request.worker).into()).or_default() += 1;
        }
        let unheard = KnownWorker::new(request.incarnation);
        let former = self.known.get(&request.worker);
        if former.is_none_or(|former| former.incarnation < request.incarnation) {
            self.news.push((Arc::clone(&request.worker), WorkerTurn::Came));
        }
        let known = self.known.entry(Arc::clone(&request.worker)).or_insert(unheard);
        let is_old = request.incarnation < known.incarnation;
        if pick(Mutant::OldIncarnationHeard, is_old, false) {
            return Heard::OldIncarnation;
        }
        if request.incarnation > known.incarnation {
            let waits = known.waits;
            *known = KnownWorker { waits, ..KnownWorker::new(request.incarnation) };
        }
        known.heard = Some(now.steady);
        self.forget_by = self.forget_by.min(now.steady + WORKER_FORGOTTEN_MS);
        // What comes late says nothing of now.
        if request.number >= known.last_request {
            known.is_draining = request.is_draining;
        }
        known.lease_ms = request.lease_ms;
        known.last_request = known.last_request.max(request.number);
        known.settled = known.settled.max(request.settled);
        let is_settled = request.number <= known.settled;
        let (last_claim, as_of, takes_more) =
            (known.last_claim, known.last_request, !known.is_draining);
        self.void_given_up(&request.worker);
        let mut answer = WorkerAnswer { cookie: self.cookie, as_of, ..WorkerAnswer::default() };
        // In this order: what any list names is safe from conclusions.
        mutant::also(Mutant::ConclusionsFirst, || {
            if let Wants::Beat { running } | Wants::Claim { running, .. } = &request.wants {
                withdraw_unnamed(request, &sorted(running.iter()), runs, decided, now);
            }
        });
        runs.advance(now.wall);
        take_results(request, runs, decided, &mut answer, now);
        take_back_released(request, runs, decided, &mut answer);
        let (running, claim) = match &request.wants {
            Wants::Report => {
                mutant::also(Mutant::ReportConcludes, || {
                    withdraw_unnamed(request, &[], runs, decided, now);
                });
                return Heard::Answer(answer);
            }
            Wants::Beat { running } => (running, None),
            Wants::Claim { running, cookie, queues, free, until, labels } => {
                let known = self.known.get_mut(&request.worker).expect("it was heard");
                known.labels = Arc::clone(labels);
                (running, Some((*cookie, queues, *free, *until)))
            }
        };
        look_at_running(running, request, runs, decided, &mut answer);
        let done = request.done.iter().map(|done| &done.held);
        let named = sorted(running.iter().chain(done).chain(&request.released));
        withdraw_unnamed(request, &named, runs, decided, now);
        let Some((cookie, queues, free, until)) = claim else {
            return Heard::Answer(answer);
        };
        // One that comes late makes no newer one void.
        if request.number >= last_claim {
            self.void_waiting(&request.worker);
        }
        let claimant = Claimant {
            worker: Arc::clone(&request.worker),
            incarnation: request.incarnation,
            since: Some(request.since),
            claim: request.number,
            lease_ms: request.lease_ms,
        };
        // A claim that is repeated gets the same again.
        let last_claim = pick(Mutant::ClaimGivenTwice, last_claim, last_claim.saturating_sub(1));
        if request.number == last_claim {
            let given = runs.of_worker(&request.worker);
            let again = given.filter(|(_, record)| record.claimant == claimant);
            answer.runs = again.map(|(sequence, record)| (sequence, Arc::clone(record))).collect();
        } else if request.number > last_claim && !is_settled && cookie == self.cookie {
            if takes_more {
                answer.runs = give(&claimant, queues, free, runs, decided, now);
            }
            let waits = answer.is_empty() && until > now.steady;
            let known = self.known.get_mut(&request.worker).expect("it was heard");
            known.queues.clone_from(queues);
            // Whoever asks for what is there, and gets nothing, may ask again under the same number, and wait.
            if waits || !answer.runs.is_empty() {
                known.last_claim = request.number;
            }
            if waits {
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
        if self.listen_again <= now.steady {
            self.listen_again = now.steady + LISTEN_AGAIN_MS;
            self.give_up_silent(runs, decided, now);
            self.forget_gone(runs, now);
        }
        while decided.has_room()
            && let Some(sequence) = runs.next_expired(now.wall)
        {
            decided.end(runs, sequence, RunEnd::Plain(End::Expired), None);
        }
        self.wake(runs, decided, now)
    }

    /// Claims that were made void by newer ones, or that their workers gave up: nobody listens to their answers.
    pub fn take_voided(&mut self) -> Vec<Ticket> {
        std::mem::take(&mut self.voided)
    }

    /// What became of workers.
    pub fn take_news(&mut self) -> Vec<WorkerNews> {
        std::mem::take(&mut self.news)
    }

    /// Answers a claim that waits, without runs: whoever sent it has enough, or listens no more.
    pub fn stop_waiting(&mut self, ticket: Ticket) -> Option<WorkerAnswer> {
        let arrival = *self.by_ticket.get(&ticket)?;
        self.answer_waiting(arrival, Vec::new()).map(|(_, answer)| answer)
    }

    /// The same for all that wait.
    pub fn stop_all_waiting(&mut self) -> Vec<(Ticket, WorkerAnswer)> {
        self.answer_without_runs(self.waiting.keys().copied().collect())
    }

    /// The same for all that wait for a queue: it is gone, and another one of its name is not it.
    pub fn stop_waiting_for(&mut self, queue: SerialId) -> Vec<(Ticket, WorkerAnswer)> {
        let line = self.by_queue.range((queue, 0)..=(queue, u64::MAX));
        self.answer_without_runs(line.map(|(_, arrival)| *arrival).collect())
    }

    fn answer_without_runs(&mut self, arrivals: Vec<u64>) -> Vec<(Ticket, WorkerAnswer)> {
        let arrivals = arrivals.into_iter();
        arrivals.filter_map(|arrival| self.answer_waiting(arrival, Vec::new())).collect()
    }

    /// The workers that were heard of, by name.
    pub fn list(&self, runs: &UnfinishedRuns, now: Now) -> Vec<WorkerView> {
        let mut views: Vec<WorkerView> = self
            .known
            .iter()
            .map(|(name, known)| WorkerView {
                queues: known.queues.clone(),
                ..known.view(name, runs.of_worker(name).count(), now)
            })
            .collect();
        views.sort_by(|one, other| one.name.cmp(&other.name));
        views
    }

    /// What each worker does that was heard of.
    pub fn activities(
        &self,
        runs: &UnfinishedRuns,
        now: Now,
    ) -> impl Iterator<Item = (&Arc<str>, WorkerActivity)> {
        self.known.iter().map(move |(name, known)| {
            // Whether it has any is enough.
            let running = runs.of_worker(name).take(1).count();
            (name, known.view(name, running, now).activity())
        })
    }

    /// How many claims wait for runs of a queue.
    pub fn waiting_for(&self, queue: SerialId) -> usize {
        self.by_queue.range((queue, 0)..=(queue, u64::MAX)).count()
    }

    /// The workers that may be chosen for runs of a queue, and for how long each may be silent: those who claim from it and are there.
    pub fn live(&self, queue: SerialId, now: Now) -> impl Iterator<Item = (Arc<str>, u32)> {
        let known = self.known.iter();
        let live = known.filter(move |(_, known)| self.claims_from(known, queue, now));
        live.map(|(name, known)| (Arc::clone(name), known.lease_ms))
    }

    /// For how long a worker may be silent that may be chosen for runs of a queue.
    pub fn lease_of_live(&self, worker: &str, queue: SerialId, now: Now) -> Option<u32> {
        let known = self.known.get(worker).filter(|known| self.claims_from(known, queue, now));
        known.map(|known| known.lease_ms)
    }

    /// Whether a worker that could be chosen for runs of a queue still can: it was not heard to claim from others, to drain or to be
    /// silent. One that this owner has never heard has as long as one that it has.
    pub fn may_be_live(&self, worker: &str, lease_ms: u32, queue: SerialId, now: Now) -> bool {
        match self.known.get(worker).filter(|known| known.heard.is_some()) {
            Some(known) => {
                let claims = known.queues.is_empty() || known.queues.contains(&queue);
                claims && !known.is_draining && self.is_heard(known, now)
            }
            None => now.steady.saturating_sub(self.listening_since) <= two_beats(lease_ms),
        }
    }

    fn claims_from(&self, known: &KnownWorker, queue: SerialId, now: Now) -> bool {
        known.queues.contains(&queue)
            && known.heard.is_some()
            && !known.is_draining
            && self.is_heard(known, now)
    }

    /// Whether a worker was heard, or waited in vain, within two beats.
    fn is_heard(&self, known: &KnownWorker, now: Now) -> bool {
        let last = known.heard.max(known.answered).unwrap_or(0).max(self.listening_since);
        known.waits.is_some() || now.steady.saturating_sub(last) <= two_beats(known.lease_ms)
    }

    /// Whether one more worker may be known, who has this name.
    fn has_room_for(&self, worker: &str) -> bool {
        let of_project = self.of_project.get(project_of(worker)).copied().unwrap_or(0);
        of_project < WORKERS_PER_PROJECT_MAX && self.known.len() < WORKERS_PER_SHARD_MAX
    }

    /// Forgets workers that have no runs and were not heard of for long.
    fn forget_gone(&mut self, runs: &UnfinishedRuns, now: Now) {
        let since = self.listening_since;
        let (news, of_project) = (&mut self.news, &mut self.of_project);
        let mut forget_by = u64::MAX;
        self.known.retain(|name, known| {
            let gone_at = known.heard.unwrap_or(since) + WORKER_FORGOTTEN_MS;
            let is_kept = now.steady < gone_at
                || known.waits.is_some()
                || runs.of_worker(name).next().is_some();
            if is_kept {
                forget_by = forget_by.min(gone_at.max(now.steady + LISTEN_AGAIN_MS));
            } else {
                news.push((Arc::clone(name), WorkerTurn::Gone));
                if let Entry::Occupied(mut count) = of_project.entry(project_of(name).into()) {
                    *count.get_mut() -= 1;
                    if *count.get() == 0 {
                        count.remove();
                    }
                }
            }
            is_kept
        });
        self.forget_by = forget_by;
    }

    /// This owner had no right to act: it may have missed signs of life.
    pub fn was_away(&mut self, now: Now) {
        self.listening_since = pick(Mutant::AwayUnnoticed, now.steady, self.listening_since);
    }

    /// When (steady) to step again for those who wait, or may be silent.
    pub fn next_wake(&self, runs: &UnfinishedRuns) -> Option<u64> {
        let waits = self.by_end.first().map(|(until, _)| *until);
        let silent = runs.all_given().next().map(|_| self.last_step + LISTEN_AGAIN_MS);
        let gone = (self.forget_by < u64::MAX).then_some(self.forget_by);
        waits.into_iter().chain(silent).chain(gone).min()
    }

    fn silent_at(&self, claimant: &Claimant) -> u64 {
        let heard = self.known.get(&claimant.worker).and_then(|worker| worker.heard);
        let from = heard.map_or(self.listening_since, |heard| heard.max(self.listening_since));
        from + u64::from(claimant.lease_ms) * pick(Mutant::PatienceOfOneLease, 5, 4) / 4
    }

    fn give_up_silent(&mut self, runs: &mut UnfinishedRuns, decided: &mut Decided, now: Now) {
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
            if let (Some(policy), Some(record)) = (runs.policy(sequence), runs.given(sequence)) {
                let worker = &record.claimant.worker;
                match self.news.last_mut() {
                    Some((last, WorkerTurn::Silent { runs })) if last == worker => *runs += 1,
                    Some(_) | None => {
                        self.news.push((Arc::clone(worker), WorkerTurn::Silent { runs: 1 }));
                    }
                }
                let fate = record.given_up(policy, now.wall);
                // One that goes on may still be reported: that it was not is known when it is given again.
                let silent = matches!(fate, Fate::Ends(_)).then(|| record.silent_attempt(now.wall));
                decided.fate(runs, sequence, fate, silent);
            }
        }
    }

    fn wait(&mut self, claim: WaitingClaim) {
        self.arrivals += 1;
        let arrival = pick(Mutant::LastWaiterFirst, self.arrivals, u64::MAX - self.arrivals);
        self.by_queue.extend(claim.queues.iter().map(|queue| (*queue, arrival)));
        self.by_end.insert((claim.until, arrival));
        self.by_ticket.insert(claim.ticket, arrival);
        self.known.get_mut(&claim.claimant.worker).expect("it was heard").waits = Some(arrival);
        self.waiting.insert(arrival, claim);
    }

    /// The claim of a worker that waits is void: nobody listens to its answer.
    fn void_waiting(&mut self, worker: &Arc<str>) {
        let waits = self.known.get_mut(worker).and_then(|known| known.waits.take());
        if let Some(claim) = waits.and_then(|arrival| self.unwait(arrival)) {
            self.voided.push(claim.ticket);
        }
    }

    /// A claim that waits is void once its worker listens to its answer no more, or has another life.
    fn void_given_up(&mut self, worker: &Arc<str>) {
        let Some(known) = self.known.get(worker) else { return };
        let Some(claim) = known.waits.and_then(|arrival| self.waiting.get(&arrival)) else {
            return;
        };
        let Claimant { incarnation, claim, .. } = claim.claimant;
        let is_given_up = incarnation < known.incarnation || claim <= known.settled;
        if pick(Mutant::GivenUpWaits, is_given_up, false) {
            self.void_waiting(worker);
        }
    }

    fn unwait(&mut self, arrival: u64) -> Option<WaitingClaim> {
        let claim = self.waiting.remove(&arrival)?;
        self.by_end.remove(&(claim.until, arrival));
        self.by_ticket.remove(&claim.ticket);
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
            let claim = self.waiting.get(&arrival);
            if let Some(known) = claim.and_then(|claim| self.known.get_mut(&claim.claimant.worker))
            {
                known.answered = Some(now.steady);
            }
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
        // What is for one worker wakes that one alone.
        for (queue, worker) in runs.addressed(now.wall) {
            let arrival = self.known.get(&worker).and_then(|known| known.waits);
            let claim = arrival.and_then(|arrival| self.waiting.get(&arrival));
            if let (Some(arrival), Some(claim)) = (arrival, claim)
                && claim.queues.contains(&queue)
                && self.is_there(&claim.claimant, now)
                && decided.has_room()
            {
                let given = give(&claim.claimant, &claim.queues, claim.free, runs, decided, now);
                if !given.is_empty() {
                    answers.extend(self.answer_waiting(arrival, given));
                }
            }
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

    /// Whether a worker was heard within two beats, and takes more. A claim that waits is no sign of life.
    fn is_there(&self, claimant: &Claimant, now: Now) -> bool {
        let known = self.known.get(&claimant.worker);
        if known.is_some_and(|known| known.is_draining) {
            return false;
        }
        let is_same = known.is_some_and(|known| known.incarnation == claimant.incarnation);
        let heard = known.and_then(|known| known.heard);
        let is_heard = heard
            .is_some_and(|heard| now.steady.saturating_sub(heard) < two_beats(claimant.lease_ms));
        pick(Mutant::WaitingIsAlive, is_same && is_heard, true)
    }
}

/// A worker that has no claim open is heard so often during a lease.
pub const BEATS_PER_LEASE: u64 = 5;

/// So long a worker that has this lease may be silent before it is given nothing more, in milliseconds.
pub fn two_beats(lease_ms: u32) -> u64 {
    u64::from(lease_ms) * 2 / BEATS_PER_LEASE
}

/// What the names of all workers of a project begin with: see [`crate::shard`].
fn project_of(worker: &str) -> &str {
    worker.split_once('/').map_or("", |(project, _)| project)
}

fn sorted<'a>(runs: impl Iterator<Item = &'a HeldRun>) -> Vec<HeldRun> {
    let mut runs: Vec<HeldRun> = runs.copied().collect();
    runs.sort_unstable();
    runs
}

impl KnownWorker {
    fn new(incarnation: u64) -> Self {
        Self {
            incarnation,
            last_claim: 0,
            settled: 0,
            last_request: 0,
            heard: None,
            answered: None,
            waits: None,
            is_draining: false,
            queues: Vec::new(),
            lease_ms: 0,
            labels: Arc::default(),
        }
    }

    /// For people, without its queues.
    fn view(&self, name: &Arc<str>, running: usize, now: Now) -> WorkerView {
        let ago = |at: u64| now.steady.saturating_sub(at);
        let heard_ms_ago = self.heard.map(ago);
        let quiet_ms = self.heard.max(self.answered).map(ago);
        WorkerView {
            name: Arc::clone(name),
            incarnation: self.incarnation,
            heard_ms_ago,
            is_silent: quiet_ms.is_none_or(|quiet| quiet > two_beats(self.lease_ms)),
            is_waiting: self.waits.is_some(),
            is_draining: self.is_draining,
            queues: Vec::new(),
            running,
            lease_ms: Some(self.lease_ms).filter(|_| self.heard.is_some()),
            labels: Arc::clone(&self.labels),
        }
    }
}

impl WorkerAnswer {
    /// Whether it says nothing: then it may wait for something to say.
    fn is_empty(&self) -> bool {
        self.acks.is_empty()
            && self.lost.is_empty()
            && self.cancel.is_empty()
            && self.runs.is_empty()
    }
}

#[cfg(test)]
mod tests;
