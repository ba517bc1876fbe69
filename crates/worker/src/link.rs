//! A link to the servers: which of them is asked next, and when again after a failure.
//!
//! A worker has one for claims and one for beats. Both share a [`Contact`], which says once that no server answers, and once
//! that one does again.

use std::sync::Arc;
use std::time::Duration;

use client::ClientError;
use parking_lot::Mutex;

use crate::{Sight, WorkerEnd};

/// The pause after all servers have failed once; it doubles each time.
const PAUSE: Duration = Duration::from_millis(100);

/// Which server is asked next, and when.
#[derive(Debug)]
pub(crate) struct Link {
    servers: usize,
    pause_max: Duration,
    wish_max: Duration,
    place: usize,
    fails: usize,
    not_before: Duration,
}

impl Link {
    /// Its own pauses are at most `pause_max`. What a server wishes beside them is granted up to `wish_max`: a proxy's page that says
    /// to come again in an hour must not silence a worker.
    pub(crate) fn new(servers: usize, pause_max: Duration, wish_max: Duration) -> Self {
        Self { servers, pause_max, wish_max, place: 0, fails: 0, not_before: Duration::ZERO }
    }

    /// Who is asked next.
    pub(crate) fn place(&self) -> usize {
        self.place
    }

    /// Nothing is sent before this.
    pub(crate) fn not_before(&self) -> Duration {
        self.not_before
    }

    /// Lets nobody be asked before this.
    pub(crate) fn rest_until(&mut self, at: Duration) {
        self.not_before = self.not_before.max(at);
    }

    pub(crate) fn answered(&mut self) {
        (self.fails, self.not_before) = (0, Duration::ZERO);
    }

    /// The server that was asked gave no answer that is of use: the next one is asked, at once, or after a pause if all have
    /// failed. `dice` is from 0 to 1. Tells whether all have.
    pub(crate) fn failed(&mut self, why: &ClientError, now: Duration, dice: f64) -> bool {
        self.place = (self.place + 1) % self.servers;
        self.fails += 1;
        if !self.fails.is_multiple_of(self.servers) {
            return false;
        }
        let round = u32::try_from(self.fails / self.servers).unwrap_or(u32::MAX);
        let doubled = PAUSE.saturating_mul(1 << round.saturating_sub(1).min(16));
        let own = doubled.min(self.pause_max).mul_f64(0.5 + dice / 2.0);
        self.not_before = now + own + wish(why).min(self.wish_max);
        true
    }
}

/// How long a server wants not to be asked.
fn wish(why: &ClientError) -> Duration {
    match why {
        ClientError::LimitReached { retry_after, .. }
        | ClientError::Unavailable { retry_after, .. } => retry_after.unwrap_or_default(),
        _ => Duration::ZERO,
    }
}

/// Whether servers answer, and what is said about it.
#[derive(Debug)]
pub(crate) struct Contact {
    worker: Arc<str>,
    sight: Arc<Sight>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    was_heard: bool,
    is_gone: bool,
    /// What was refused last, so that it is said once.
    refused: String,
}

impl Contact {
    pub(crate) fn new(worker: Arc<str>, sight: Arc<Sight>) -> Self {
        Self { worker, sight, state: Mutex::default() }
    }

    pub(crate) fn answered(&self) {
        let gone_for = self.sight.heard();
        let mut state = self.state.lock();
        state.was_heard = true;
        state.refused.clear();
        if std::mem::take(&mut state.is_gone) {
            let gone_for = gone_for.unwrap_or_default();
            tracing::warn!(worker = %self.worker, ?gone_for, "a server answers again");
        }
    }

    /// All servers have failed, the last one so. Gives the end of the worker, if going on is of no use.
    pub(crate) fn failed(&self, why: ClientError) -> Option<WorkerEnd> {
        let mut state = self.state.lock();
        match judge(&why) {
            Verdict::Older => {
                let worker = &self.worker;
                return Some(WorkerEnd::Superseded(format!(
                    "worker {worker} stops: {why}. Has another process its name, or was the clock set back?"
                )));
            }
            Verdict::Gone => {
                self.sight.gone();
                if !std::mem::replace(&mut state.is_gone, true) {
                    tracing::warn!(worker = %self.worker, %why, "no server answers: the worker goes on, and keeps its results");
                }
            }
            Verdict::Refused if !state.was_heard => return Some(WorkerEnd::Refused(why)),
            Verdict::Busy | Verdict::Refused => {
                let kind = why.problem().map_or_else(|| why.to_string(), |it| it.kind.clone());
                if state.refused != kind {
                    state.refused = kind;
                    tracing::warn!(worker = %self.worker, %why, "a server refuses what the worker says, and is asked again");
                }
            }
        }
        None
    }
}

/// What a failure means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// Nobody is there.
    Gone,
    /// Somebody is there, and it passes.
    Busy,
    /// It does not pass by itself. One that was heard before goes on: somebody may mend it, and programs execute.
    Refused,
    /// A later life of this worker was heard.
    Older,
}

/// Whether a later life of the worker was heard.
pub(crate) fn is_older(why: &ClientError) -> bool {
    judge(why) == Verdict::Older
}

fn judge(why: &ClientError) -> Verdict {
    match why {
        ClientError::Unreachable { .. } => Verdict::Gone,
        ClientError::Conflict(problem) if problem.kind.ends_with(":old-incarnation") => {
            Verdict::Older
        }
        ClientError::Refused(problem) if problem.status == 421 || problem.status >= 500 => {
            Verdict::Busy
        }
        ClientError::Unavailable { .. }
        | ClientError::LimitReached { .. }
        | ClientError::Conflict(_) => Verdict::Busy,
        ClientError::Url { .. }
        | ClientError::Setting { .. }
        | ClientError::Untrusted { .. }
        | ClientError::Unauthorized(_)
        | ClientError::Forbidden(_)
        | ClientError::NotFound(_)
        | ClientError::Invalid(_)
        | ClientError::Refused(_)
        | ClientError::Answer { .. } => Verdict::Refused,
    }
}

#[cfg(test)]
mod tests {
    use client::problem::Problem;

    use super::*;

    fn gone() -> ClientError {
        ClientError::Unreachable { url: String::new(), why: String::new(), may_be_done: true }
    }

    fn problem(status: u16, kind: &str) -> Box<Problem> {
        let problem =
            serde_json::json!({"type": kind, "title": "", "status": status, "detail": "no"});
        Box::new(serde_json::from_value(problem).unwrap())
    }

    #[test]
    fn all_servers_are_tried_at_once_and_then_again_after_pauses_that_grow() {
        let mut link = Link::new(3, Duration::from_secs(5), Duration::ZERO);
        let now = Duration::from_secs(100);
        let mut asked = Vec::new();
        for round in 0..10 {
            for server in 0..3 {
                asked.push(link.place());
                assert_eq!(link.failed(&gone(), now, 1.0), server == 2);
                if round == 0 && server < 2 {
                    assert_eq!(link.not_before(), Duration::ZERO);
                }
            }
            let pause = link.not_before().saturating_sub(now);
            assert_eq!(pause, Duration::from_millis(100 << round).min(Duration::from_secs(5)));
        }
        assert_eq!(asked[..6], [0, 1, 2, 0, 1, 2]);
        link.answered();
        assert_eq!(link.not_before(), Duration::ZERO);
        link.failed(&gone(), now, 0.0);
        assert_eq!(link.place(), 1, "whoever answered is asked first");
    }

    #[test]
    fn a_server_that_says_when_is_not_asked_sooner_but_within_reason() {
        for (says, rests) in [(7, 7), (8, 8), (9, 8), (u64::MAX, 8)] {
            let mut link = Link::new(1, Duration::from_secs(5), Duration::from_secs(8));
            let retry_after = Some(Duration::from_secs(says));
            let busy = ClientError::Unavailable { problem: problem(503, "x"), retry_after };
            link.failed(&busy, Duration::from_secs(100), 0.0);
            assert_eq!(link.not_before(), Duration::from_millis(100_050 + rests * 1_000));
        }
    }

    #[test]
    fn a_first_refusal_ends_the_worker_a_later_one_does_not_and_an_older_life_always_ends() {
        let contact = Contact::new("w".into(), Arc::default());
        let refused = || ClientError::Unauthorized(problem(401, "x"));
        assert!(contact.failed(gone()).is_none());
        assert!(matches!(contact.failed(refused()), Some(WorkerEnd::Refused(_))));
        contact.answered();
        assert!(contact.failed(refused()).is_none());
        let older = ClientError::Conflict(problem(409, "urn:watchbell:problem:old-incarnation"));
        assert!(matches!(contact.failed(older), Some(WorkerEnd::Superseded(_))));
    }

    #[test]
    fn sight_tells_since_when_no_server_answers() {
        let sight = Arc::new(Sight::default());
        let contact = Contact::new("w".into(), Arc::clone(&sight));
        assert!(sight.unheard_for().is_none() && sight.servers_gone_for().is_none());
        contact.failed(gone());
        assert!(sight.unheard_for().is_none() && sight.servers_gone_for().is_some());
        contact.answered();
        assert!(sight.unheard_for().is_some() && sight.servers_gone_for().is_none());
    }
}
