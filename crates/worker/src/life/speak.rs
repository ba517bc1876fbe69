//! What a worker says: claims, one after the other, and beats beside them.

use std::sync::Arc;
use std::time::Duration;

use client::ClientError;
use client::worker::ClaimAnswer;

use super::{Ending, Life, OpenClaim, Phase, State};
use crate::ledger::{News, Request};
use crate::limits::RUNS_MAX;
use crate::link::is_older;
use crate::{EndReason, clock, entropy};

/// The longest that a claim may wait.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// A server that answers claims at once which were to wait is asked with pauses after so many of them. One is usual: it brings a
/// cookie.
const QUICK_ANSWERS_MAX: u32 = 2;
const QUICK_PAUSE: Duration = Duration::from_millis(50);
const QUICK_PAUSE_MAX: Duration = Duration::from_secs(1);

impl Life {
    pub(super) async fn claim_again_and_again(self: Arc<Self>) {
        let mut phase = self.phase.subscribe();
        loop {
            let request = self.next_claim().await;
            let sent = clock::since_boot();
            let is_goodbye = matches!(&request, Request::Claim(claim) if claim.draining);
            let drains = async {
                let drains = phase.wait_for(|phase| *phase >= Phase::Drains).await;
                drop(drains.expect("the life has the sender"));
            };
            let news = tokio::select! {
                news = self.say(&request) => news,
                // It is given nothing more: what it would be given is not named, and so never began.
                () = drains, if !is_goodbye => {
                    self.state().ledger.failed(&request);
                    None
                }
            };
            let mut state = self.state();
            state.open = None;
            if let Some(news) = &news {
                state.said_goodbye |= is_goodbye;
                state.pace(&request, news, sent);
            }
            drop(state);
            if let Some(news) = news {
                self.hear(news);
            }
            self.looks.notify_one();
        }
    }

    /// Waits until there is something to claim or to report.
    async fn next_claim(&self) -> Request {
        loop {
            let woken = self.claims.notified();
            let pause = {
                let mut state = self.state();
                let now = clock::since_boot();
                let free = self.free(&mut state);
                if state.has_to_claim(now, free) {
                    return self.open_claim(&mut state, now, free);
                }
                state.claim_pause(now)
            };
            match pause {
                Some(pause) => {
                    let _woken = tokio::time::timeout(pause, woken).await;
                }
                None => woken.await,
            }
        }
    }

    fn open_claim(&self, state: &mut State, now: Duration, free: usize) -> Request {
        let wait = (self.plan.lease * 2 / 5).min(WAIT_MAX);
        let queues = state.rotation.next();
        let request = state.ledger.claim(now, queues, free, wait);
        let waits = !request.wait().is_zero();
        state.open = Some(if waits { OpenClaim::Waits } else { OpenClaim::ComesAtOnce });
        if waits {
            // From now on a beat reports what there is.
            self.beats.notify_one();
        }
        state.last_sent = now;
        request
    }

    /// How many more runs have a place. None while what is begun cannot be written down, nor while a request could not name them,
    /// nor while commands cannot be begun.
    fn free(&self, state: &mut State) -> usize {
        let room = state.ledger.room();
        if room > 0 {
            state.is_full_told = false;
        } else if state.ledger.unreported().len() >= RUNS_MAX && !state.is_full_told {
            state.is_full_told = true;
            tracing::error!(
                worker = %self.plan.name,
                "the worker has {RUNS_MAX} results that no server has taken: it claims nothing more until one does"
            );
        }
        if self.journal.is_in_trouble() || !self.plan.handlers.are_ready() {
            return 0;
        }
        let places = state.live.len() + state.after.len();
        self.plan.capacity.saturating_sub(places).min(room)
    }

    pub(super) async fn beat_again_and_again(self: Arc<Self>) {
        loop {
            let request = self.next_beat().await;
            if let Some(news) = self.say(&request).await {
                self.hear(news);
            }
            self.looks.notify_one();
        }
    }

    /// Waits until the worker has to be heard, or has something to report that no claim takes along.
    async fn next_beat(&self) -> Request {
        let every = self.plan.lease / 5;
        loop {
            let woken = self.beats.notified();
            let pause = {
                let mut state = self.state();
                let now = clock::since_boot();
                if state.has_to_beat(now, every) {
                    state.last_sent = now;
                    return state.ledger.beat(now);
                }
                state.beat_pause(now, every)
            };
            match pause {
                Some(pause) => {
                    let _woken = tokio::time::timeout(pause, woken).await;
                }
                None => woken.await,
            }
        }
    }

    /// Ends runs of strict queues that nobody confirms in time, also while a server lets the worker wait for its answer.
    pub(super) async fn end_unconfirmed_in_time(self: Arc<Self>) {
        // A timer that slept with the machine is late by as much.
        let pause_max = self.plan.lease / 5;
        loop {
            let woken = self.strict.notified();
            let pause = {
                let state = self.state();
                let now = clock::since_boot();
                state.end_unconfirmed(now);
                state.ledger.unconfirmed_at(now).map(|at| at.saturating_sub(now).min(pause_max))
            };
            match pause {
                Some(pause) => {
                    let _woken = tokio::time::timeout(pause, woken).await;
                }
                None => woken.await,
            }
        }
    }

    /// Sends a request once. Nothing, if it failed: everything is said again, under the next number.
    async fn say(&self, request: &Request) -> Option<News> {
        let is_claim = matches!(request, Request::Claim(_));
        self.sight.requests.add(1);
        let place = self.state().link(is_claim).place();
        let answered = match request {
            Request::Claim(claim) => self.claim_servers[place].claim(claim).await,
            Request::Beat(beat) => self.beat_servers[place].beat(&self.plan.name, beat).await,
        };
        match answered {
            Ok(answer) => Some(self.answered(request, answer)),
            Err(why) => {
                self.failed(request, why);
                None
            }
        }
    }

    fn answered(&self, request: &Request, answer: ClaimAnswer) -> News {
        self.contact.answered();
        let mut state = self.state();
        state.link(matches!(request, Request::Claim(_))).answered();
        let news = state.ledger.answered(request, answer, clock::since_boot());
        self.show(&state);
        news
    }

    fn failed(&self, request: &Request, why: ClientError) {
        self.sight.requests_failed.add(1);
        let mut state = self.state();
        if why.may_be_done() {
            state.ledger.failed(request);
        } else {
            state.ledger.unheard(request);
        }
        // Nobody has heard it: a beat need not wait.
        state.last_sent = Duration::ZERO;
        let link = state.link(matches!(request, Request::Claim(_)));
        let have_all = link.failed(&why, clock::since_boot(), entropy::dice());
        drop(state);
        self.beats.notify_one();
        if (have_all || is_older(&why))
            && let Some(end) = self.contact.failed(why)
        {
            let _told = self.ends.send(Ending::Dead(end));
        }
    }
}

impl State {
    fn link(&mut self, is_claim: bool) -> &mut crate::link::Link {
        if is_claim { &mut self.claim_link } else { &mut self.beat_link }
    }

    fn has_to_claim(&self, now: Duration, free: usize) -> bool {
        if now < self.claim_link.not_before() {
            return false;
        }
        let has_news = self.ledger.has_news(now);
        if self.ledger.is_draining() {
            has_news || !self.said_goodbye
        } else {
            has_news || free > 0
        }
    }

    fn claim_pause(&self, now: Duration) -> Option<Duration> {
        let at = self.claim_link.not_before();
        let at = if at > now { at } else { self.ledger.report_at()? };
        Some(at.saturating_sub(now).max(Duration::from_millis(1)))
    }

    fn has_to_beat(&self, now: Duration, every: Duration) -> bool {
        if now < self.beat_link.not_before() || self.ledger.named() == 0 {
            return false;
        }
        now >= self.last_sent + every || self.claim_waits() && self.ledger.has_news(now)
    }

    /// Results do not wait for a claim that waits: a beat reports them. Any other claim comes back soon, and the next one does.
    fn claim_waits(&self) -> bool {
        self.open == Some(OpenClaim::Waits)
    }

    fn beat_pause(&self, now: Duration, every: Duration) -> Option<Duration> {
        if self.ledger.named() == 0 {
            return None;
        }
        let not_before = self.beat_link.not_before();
        let mut at = (self.last_sent + every).max(not_before);
        if let Some(report_at) = self.ledger.report_at().filter(|_| self.claim_waits()) {
            at = at.min(report_at).max(not_before);
        }
        Some(at.saturating_sub(now).max(Duration::from_millis(1)))
    }

    fn end_unconfirmed(&self, now: Duration) {
        for held in self.ledger.unconfirmed(now) {
            if let Some(live) = self.live.get(&held.id).filter(|live| live.context.held() == held) {
                live.context.tell_to_end(EndReason::Unconfirmed);
            }
        }
    }

    /// A server that answers at once what was to wait is not asked without a pause.
    fn pace(&mut self, request: &Request, news: &News, sent: Duration) {
        let now = clock::since_boot();
        let brought = !(news.runs.is_empty() && news.lost.is_empty() && news.cancel.is_empty());
        let is_quick =
            !request.wait().is_zero() && now.saturating_sub(sent) < request.wait() / 2 && !brought;
        self.quick_answers = if is_quick { self.quick_answers + 1 } else { 0 };
        if self.quick_answers > QUICK_ANSWERS_MAX {
            let doublings = (self.quick_answers - QUICK_ANSWERS_MAX - 1).min(8);
            let pause = (QUICK_PAUSE * (1 << doublings)).min(QUICK_PAUSE_MAX);
            self.claim_link.rest_until(now + pause.mul_f64(0.5 + entropy::dice() / 2.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use client::worker::{DoneRun, RunResult};

    use super::*;
    use crate::ledger::{self, Ledger};
    use crate::link::Link;
    use crate::rotation::Rotation;

    const EVERY: Duration = Duration::from_secs(3);

    /// Of a worker with one result that no server has taken, which was heard at `now`.
    fn state(open: Option<OpenClaim>, now: Duration) -> State {
        let done = serde_json::json!({"id": "run_1", "token": 1, "result": RunResult::Succeeded});
        let done: DoneRun = serde_json::from_value(done).unwrap();
        let life = ledger::Life {
            name: "w".to_owned(),
            queues: vec!["q".to_owned()],
            incarnation: 1,
            since: 1,
            lease: EVERY * 5,
            labels: BTreeMap::new(),
        };
        State {
            ledger: Ledger::new(life, vec![done]),
            rotation: Rotation::new(&[("q".to_owned(), 0)]),
            live: HashMap::new(),
            after: HashMap::new(),
            claim_link: Link::new(1, EVERY, EVERY),
            beat_link: Link::new(1, EVERY, EVERY),
            open,
            last_sent: now,
            quick_answers: 0,
            said_goodbye: false,
            refused: Vec::new(),
            is_full_told: false,
        }
    }

    #[test]
    fn a_beat_reports_beside_a_claim_that_waits_and_rests_beside_one_that_reports() {
        let now = Duration::from_secs(1_000);
        let waits = state(Some(OpenClaim::Waits), now);
        assert!(waits.has_to_beat(now, EVERY));
        for open in [Some(OpenClaim::ComesAtOnce), None] {
            let state = state(open, now);
            assert!(!state.has_to_beat(now, EVERY));
            assert_eq!(state.beat_pause(now, EVERY), Some(EVERY));
        }
    }
}
