//! The ledger: what a worker has, says and is told, by the rules of the protocol (docs/queues.md, "The protocol").
//!
//! It sends nothing, waits for nothing and reads no clock: times are arguments, requests and answers are data. Times are
//! those of a clock that goes on while the machine sleeps, since a lease does too.
//!
//! A run is in one place at a time: *held* from when it was given until it has a result, among the *results* until that is
//! acknowledged, *released* if it never began and is given back. Every claim and beat names all three: what it does not
//! name, the worker does not have.

mod news;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use client::worker::{BeatRequest, ClaimAnswer, ClaimRequest, ClaimedRun, DoneRun, HeldRun};

pub(crate) use self::news::News;
use crate::limits::RUNS_MAX;

/// Runs that one request may name: what is given while it is on its way has room as well.
const NAMED_MAX: usize = 2 * RUNS_MAX;

/// A request has at most 256 KiB, of which names take up to 150 KB.
const DONE_BYTES_MAX: usize = 64 * 1024;

/// So many requests are remembered by when they were sent. More than a few are never on their way.
const SENT_MAX: usize = 1_024;

/// What its owner did not take is said again after a pause, which doubles.
const REPEAT_PAUSE: Duration = Duration::from_millis(100);
const REPEAT_PAUSE_MAX: Duration = Duration::from_secs(2);

/// Which life of which worker.
#[derive(Debug, Clone)]
pub(crate) struct Life {
    pub(crate) name: String,
    /// What beats name; claims name the same in the order of the moment.
    pub(crate) queues: Vec<String>,
    pub(crate) incarnation: u64,
    /// Lives before this one may have begun what nobody names.
    pub(crate) since: u64,
    pub(crate) lease: Duration,
    pub(crate) labels: BTreeMap<String, String>,
}

/// One life of a worker.
#[derive(Debug)]
pub(crate) struct Ledger {
    life: Life,
    /// Of the last request.
    number: u64,
    /// Of the claim whose answer is listened to.
    open: Option<u64>,
    cookie: Option<String>,
    sent: BTreeMap<u64, Duration>,
    held: BTreeMap<HeldRun, Held>,
    /// In the order in which they came, but for those that were sent and not taken: they stand last.
    results: Vec<Unreported>,
    results_repeat: Repeat,
    released: BTreeMap<HeldRun, Turn>,
    released_repeat: Repeat,
    is_draining: bool,
}

/// When something is said again whose owner could not be asked. All of a kind share one pause, so that what ended one after
/// the other does not come one after the other again.
#[derive(Debug)]
struct Repeat {
    from: Duration,
    pause: Duration,
}

/// When something is to be said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// At once, whoever else could not be asked: it has another owner, perhaps.
    Now,
    /// Its owner could not be asked: after the pause.
    AfterPause,
}

#[derive(Debug)]
struct Held {
    confirmed_until: Duration,
    is_begun: bool,
    is_strict: bool,
}

#[derive(Debug)]
struct Unreported {
    done: DoneRun,
    bytes: usize,
    /// In so many requests that a server may have heard.
    said: u32,
    turn: Turn,
}

/// What is to be sent.
#[derive(Debug, Clone)]
pub(crate) enum Request {
    Claim(ClaimRequest),
    Beat(BeatRequest),
}

/// What claims and beats say alike.
struct Body {
    number: u64,
    settled: u64,
    done: Vec<DoneRun>,
    running: Vec<HeldRun>,
    released: Vec<HeldRun>,
}

impl Ledger {
    /// A new life, with the results that former ones left.
    pub(crate) fn new(life: Life, results: Vec<DoneRun>) -> Self {
        assert!(life.since <= life.incarnation, "what this life begins, it names itself");
        let results = results.into_iter().map(Unreported::new).collect();
        Self {
            life,
            number: 0,
            open: None,
            cookie: None,
            sent: BTreeMap::new(),
            held: BTreeMap::new(),
            results,
            results_repeat: Repeat::at_once(),
            released: BTreeMap::new(),
            released_repeat: Repeat::at_once(),
            is_draining: false,
        }
    }

    // What it says.

    /// The next claim, from these queues. Claims before it are settled: their answers have come, or are not listened to any
    /// more. It waits only if there is nothing to report.
    pub(crate) fn claim(
        &mut self,
        now: Duration,
        queues: Vec<String>,
        free: usize,
        wait: Duration,
    ) -> Request {
        let free = if self.is_draining { 0 } else { free.min(self.room()) };
        let waits = free > 0 && !self.has_news(now);
        let wait = if waits { wait } else { Duration::ZERO };
        self.open = None;
        let body = self.body(now);
        self.open = Some(body.number);
        Request::Claim(ClaimRequest {
            worker: self.life.name.clone(),
            incarnation: self.life.incarnation,
            number: body.number,
            settled: body.settled,
            cookie: self.cookie.clone(),
            queues,
            free: free as u64,
            wait_ms: millis(wait),
            lease_ms: Some(millis(self.life.lease)),
            done: body.done,
            running: body.running,
            released: body.released,
            since: self.life.since,
            draining: self.is_draining,
            labels: self.life.labels.clone(),
        })
    }

    /// The next beat.
    pub(crate) fn beat(&mut self, now: Duration) -> Request {
        let body = self.body(now);
        Request::Beat(BeatRequest {
            incarnation: self.life.incarnation,
            number: body.number,
            settled: body.settled,
            queues: self.life.queues.clone(),
            lease_ms: Some(millis(self.life.lease)),
            done: body.done,
            running: Some(body.running),
            released: body.released,
            since: self.life.since,
            draining: self.is_draining,
        })
    }

    fn body(&mut self, now: Duration) -> Body {
        self.number += 1;
        self.sent.insert(self.number, now);
        while self.sent.len() > SENT_MAX {
            self.sent.pop_first();
        }
        let mut running: Vec<HeldRun> = self.held.keys().cloned().collect();
        let mut done = Vec::new();
        let mut room = DONE_BYTES_MAX;
        for result in &mut self.results {
            let is_due = now >= self.results_repeat.due_at(result.turn);
            if is_due {
                room = room.saturating_sub(result.bytes);
            }
            // What finds no place now is named, and reported later.
            if is_due && room > 0 {
                result.said += 1;
                done.push(result.done.clone());
            } else {
                running.push(result.held());
            }
        }
        Body {
            number: self.number,
            settled: self.open.unwrap_or(self.number) - 1,
            done,
            running,
            released: self.released.keys().cloned().collect(),
        }
    }

    // What it is told.

    /// No answer comes, or nobody listens to it: everything is said again under the next number.
    pub(crate) fn failed(&mut self, request: &Request) {
        if self.open == Some(request.number()) {
            self.open = None;
        }
    }

    /// The same of a request that certainly reached nobody: what it said was not said.
    pub(crate) fn unheard(&mut self, request: &Request) {
        self.failed(request);
        let said: BTreeSet<HeldRun> = request.done().iter().map(held_of).collect();
        for result in self.results.iter_mut().filter(|result| said.contains(&result.held())) {
            result.said -= 1;
        }
    }

    /// What follows from the answer to a request.
    pub(crate) fn answered(
        &mut self,
        request: &Request,
        answer: ClaimAnswer,
        now: Duration,
    ) -> News {
        let is_claim = matches!(request, Request::Claim(_));
        let refused = is_claim.then(|| answer.refused.clone());
        let mut news = News { drain: answer.drain, refused, ..News::default() };
        self.cookie = Some(answer.cookie.clone());
        self.take_acks(request, &answer, now, &mut news);
        self.take_lost(&answer.lost, &mut news);
        let is_held = |run: &&HeldRun| self.held.contains_key(*run);
        news.cancel = answer.cancel.iter().filter(is_held).cloned().collect();
        // A number that is not remembered any more confirms nothing.
        let sent = self.sent.get(&answer.as_of);
        let until = sent.map_or(Duration::ZERO, |sent| *sent + self.life.lease);
        self.confirm(request.running(), &answer.unheard, until, &mut news);
        if let Request::Claim(claim) = request
            && self.open == Some(claim.number)
        {
            self.open = None;
            self.take_runs(answer.runs, until, &mut news);
        }
        news
    }

    fn take_acks(
        &mut self,
        request: &Request,
        answer: &ClaimAnswer,
        now: Duration,
        news: &mut News,
    ) {
        let mut acked = BTreeMap::new();
        for ack in &answer.acks {
            let held = HeldRun { id: ack.id.clone(), token: ack.token };
            if self.released.remove(&held).is_none() {
                acked.insert(held, ack.counted);
            }
        }
        self.results.retain(|result| {
            let held = result.held();
            let Some(counted) = acked.get(&held) else { return true };
            // Of one that was said before, another request may have been the one that counted.
            if !counted && result.said <= 1 {
                news.uncounted.push(held.clone());
            }
            news.closed.push(held);
            false
        });
        let sent = self.sent.get(&request.number()).copied().unwrap_or(now);
        let said: BTreeSet<HeldRun> = request.done().iter().map(held_of).collect();
        let left = self.results.iter_mut().filter(|result| said.contains(&result.held()));
        if left.map(|result| result.turn = Turn::AfterPause).count() > 0 {
            // Their owner could not be asked: those of others go first now.
            self.results.sort_by_key(|result| said.contains(&result.held()));
            self.results_repeat.not_taken(sent, now);
        } else if self.results.iter().all(|result| result.turn == Turn::Now) {
            self.results_repeat = Repeat::at_once();
        }
        let released: BTreeSet<&HeldRun> = request.released().iter().collect();
        let left = self.released.iter_mut().filter(|(run, _)| released.contains(run));
        if left.map(|(_, turn)| *turn = Turn::AfterPause).count() > 0 {
            self.released_repeat.not_taken(sent, now);
        } else if self.released.values().all(|turn| *turn == Turn::Now) {
            self.released_repeat = Repeat::at_once();
        }
    }

    fn take_lost(&mut self, lost: &[HeldRun], news: &mut News) {
        for held in lost {
            if self.held.remove(held).is_some() {
                news.lost.push(held.clone());
                news.closed.push(held.clone());
            }
        }
        if !lost.is_empty() {
            let lost: BTreeSet<&HeldRun> = lost.iter().collect();
            self.results.retain(|result| {
                let held = result.held();
                let is_lost = lost.contains(&held);
                if is_lost {
                    // One that was said before may have counted then.
                    if result.said == 0 {
                        news.uncounted.push(held.clone());
                    }
                    news.closed.push(held);
                }
                !is_lost
            });
        }
    }

    fn confirm(
        &mut self,
        running: &[HeldRun],
        unheard: &[HeldRun],
        until: Duration,
        news: &mut News,
    ) {
        let unheard: BTreeSet<&HeldRun> = unheard.iter().collect();
        for run in running.iter().filter(|run| !unheard.contains(run)) {
            let Some(held) = self.held.get_mut(run) else { continue };
            if held.confirmed_until < until {
                held.confirmed_until = until;
                if held.is_strict {
                    news.confirmed.push((run.clone(), until));
                }
            }
        }
    }

    fn take_runs(&mut self, runs: Vec<ClaimedRun>, until: Duration, news: &mut News) {
        for run in runs {
            let held = HeldRun { id: run.id.clone(), token: run.token };
            let oldest = HeldRun { id: run.id.clone(), token: 0 };
            let known = self.held.range(&oldest..).next().map(|(known, _)| known.clone());
            if let Some(known) = known.filter(|known| known.id == held.id) {
                if known.token >= held.token {
                    continue;
                }
                // Tokens only grow: the one before is never current again.
                self.held.remove(&known);
                news.lost.push(known.clone());
                news.closed.push(known);
            }
            let is_strict = run.strict;
            if is_strict {
                news.confirmed.push((held.clone(), until));
            }
            self.held.insert(held, Held { confirmed_until: until, is_begun: false, is_strict });
            news.runs.push(run);
        }
    }

    // What becomes of runs.

    /// Whether a run may begin. One that is not confirmed within its lease is given back, and so is one of a worker that drains.
    pub(crate) fn begin(&mut self, run: &HeldRun, now: Duration) -> bool {
        let Some(held) = self.held.get_mut(run) else { return false };
        if self.is_draining || now >= held.confirmed_until {
            self.release(run);
            return false;
        }
        held.is_begun = true;
        true
    }

    /// Gives back a run that has not begun.
    pub(crate) fn release(&mut self, run: &HeldRun) {
        if self.held.remove(run).is_some() {
            self.released.insert(run.clone(), Turn::Now);
        }
    }

    /// A run has this result; `false` if it was lost meanwhile.
    pub(crate) fn finish(&mut self, done: DoneRun) -> bool {
        let is_held = self.held.remove(&held_of(&done)).is_some();
        if is_held {
            self.results.push(Unreported::new(done));
        }
        is_held
    }

    /// Takes no more, and gives back what has not begun: these.
    pub(crate) fn drain(&mut self) -> Vec<HeldRun> {
        self.is_draining = true;
        let unbegun = self.held.iter().filter(|(_, held)| !held.is_begun);
        let unbegun: Vec<HeldRun> = unbegun.map(|(run, _)| run.clone()).collect();
        for run in &unbegun {
            self.release(run);
        }
        unbegun
    }

    /// Runs of strict queues that have begun and are not confirmed at `now`: they are to end at once.
    pub(crate) fn unconfirmed(&self, now: Duration) -> Vec<HeldRun> {
        let late = self.strict().filter(|(_, held)| held.confirmed_until <= now);
        late.map(|(run, _)| run.clone()).collect()
    }

    /// When the next run of a strict queue is to end, if it is not confirmed again.
    pub(crate) fn unconfirmed_at(&self, now: Duration) -> Option<Duration> {
        self.strict().map(|(_, held)| held.confirmed_until).filter(|until| *until > now).min()
    }

    fn strict(&self) -> impl Iterator<Item = (&HeldRun, &Held)> {
        self.held.iter().filter(|(_, held)| held.is_strict && held.is_begun)
    }

    // How it stands.

    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining
    }

    /// How many runs a request names.
    pub(crate) fn named(&self) -> usize {
        self.held.len() + self.results.len() + self.released.len()
    }

    /// How many more it may be given.
    pub(crate) fn room(&self) -> usize {
        (NAMED_MAX / 2).saturating_sub(self.named())
    }

    /// How many runs it has that have no result.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    /// The ids of runs whose results are not acknowledged.
    pub(crate) fn unreported(&self) -> impl ExactSizeIterator<Item = &str> {
        self.results.iter().map(|result| result.done.id.as_str())
    }

    /// The ids of all runs that are not dealt with.
    pub(crate) fn unfinished(&self) -> Vec<String> {
        let held = self.held.keys().map(|held| held.id.clone());
        held.chain(self.unreported().map(str::to_owned)).collect()
    }

    /// Whether there is something to report now.
    pub(crate) fn has_news(&self, now: Duration) -> bool {
        self.report_at().is_some_and(|at| now >= at)
    }

    /// When there is something to report; what its owner did not take is reported again later.
    pub(crate) fn report_at(&self) -> Option<Duration> {
        let results = self.results.iter().map(|result| self.results_repeat.due_at(result.turn));
        let released = self.released.values().map(|turn| self.released_repeat.due_at(*turn));
        results.chain(released).min()
    }
}

impl Repeat {
    fn at_once() -> Self {
        Self { from: Duration::ZERO, pause: REPEAT_PAUSE }
    }

    /// From when on something may be said.
    fn due_at(&self, turn: Turn) -> Duration {
        match turn {
            Turn::Now => Duration::ZERO,
            Turn::AfterPause => self.from,
        }
    }

    /// Something that a request said, which was sent then, was not taken. One that came during the pause was about other
    /// things: it does not put it off.
    fn not_taken(&mut self, sent: Duration, now: Duration) {
        if sent >= self.from {
            self.from = now + self.pause;
            self.pause = (self.pause * 2).min(REPEAT_PAUSE_MAX);
        }
    }
}

impl Request {
    pub(crate) fn number(&self) -> u64 {
        match self {
            Self::Claim(claim) => claim.number,
            Self::Beat(beat) => beat.number,
        }
    }

    /// How long its answer may wait for a run.
    pub(crate) fn wait(&self) -> Duration {
        match self {
            Self::Claim(claim) => Duration::from_millis(claim.wait_ms),
            Self::Beat(_) => Duration::ZERO,
        }
    }

    fn running(&self) -> &[HeldRun] {
        match self {
            Self::Claim(claim) => &claim.running,
            Self::Beat(beat) => beat.running.as_deref().unwrap_or_default(),
        }
    }

    fn released(&self) -> &[HeldRun] {
        match self {
            Self::Claim(claim) => &claim.released,
            Self::Beat(beat) => &beat.released,
        }
    }

    fn done(&self) -> &[DoneRun] {
        match self {
            Self::Claim(claim) => &claim.done,
            Self::Beat(beat) => &beat.done,
        }
    }
}

impl Unreported {
    fn new(done: DoneRun) -> Self {
        let bytes = serde_json::to_vec(&done).expect("our types always serialize").len();
        Self { done, bytes, said: 0, turn: Turn::Now }
    }

    fn held(&self) -> HeldRun {
        held_of(&self.done)
    }
}

/// Whose result it is.
pub(crate) fn held_of(done: &DoneRun) -> HeldRun {
    HeldRun { id: done.id.clone(), token: done.token }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
