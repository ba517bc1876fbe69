//! What an owner heard of workers, for the checker: to whom it may give runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::instant::Instant;
use engine::queue::worker::WorkerRequest;

use super::worker::BEAT;

/// When each life of a worker was heard, by the wall clock, and what it said of its claims.
#[derive(Debug, Default)]
pub(super) struct HeardWorkers(BTreeMap<Arc<str>, Vec<HeardOnce>>);

#[derive(Debug, Clone, Copy)]
struct HeardOnce {
    incarnation: u64,
    settled: u64,
    is_draining: bool,
    at: Instant,
}

impl HeardWorkers {
    pub(super) fn hear(&mut self, request: &WorkerRequest, at: Instant) {
        let WorkerRequest { incarnation, settled, is_draining, .. } = *request;
        let heard = HeardOnce { incarnation, settled, is_draining, at };
        self.0.entry(Arc::clone(&request.worker)).or_default().push(heard);
    }

    /// Whether the life of a worker that sent this was heard within two beats before it was given something.
    pub(super) fn was_heard_of_late(&self, claim: &WorkerRequest, given: Instant) -> bool {
        // What a former life says is not listened to, and a later one may be heard in the same moment.
        let own = claim.incarnation;
        let mut heard = self.of(claim).filter(|it| {
            it.incarnation == own && it.at <= given || it.incarnation > own && it.at < given
        });
        // A little more than two beats: rates of clocks differ, and a request is heard before it is told.
        heard.next_back().is_some_and(|it| {
            it.incarnation == own && given.0 - it.at.0 < 2 * BEAT.cast_signed() + 400
        })
    }

    /// Whether a claim was given something after its worker had said that it does not listen to the answer any more, or that
    /// it takes no more.
    pub(super) fn was_given_up(&self, claim: &WorkerRequest, given: Instant) -> bool {
        // What was heard in the same moment may have been heard after it was given.
        let mut before =
            self.of(claim).filter(|it| it.incarnation == claim.incarnation && it.at < given);
        let is_settled = before.clone().any(|it| it.settled >= claim.number);
        is_settled || before.next_back().is_some_and(|it| it.is_draining)
    }

    fn of(&self, claim: &WorkerRequest) -> impl DoubleEndedIterator<Item = HeardOnce> + Clone {
        self.0.get(&claim.worker).into_iter().flatten().copied()
    }
}
