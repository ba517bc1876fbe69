//! What carries out a run gets: which run it is, whether it is to end, and where its output goes.

use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use client::output::{OutputChunk, OutputStream};
use client::worker::{ClaimedRun, HeldRun};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::printed::{Dirty, Printed};

/// A run, as its handler or its command sees it. Clones are the same run.
#[derive(Clone)]
pub struct Context(Arc<Inner>);

struct Inner {
    run: ClaimedRun,
    worker: Arc<str>,
    deadline: OnceLock<Instant>,
    ending: Ending,
    /// In microseconds since boot; 0 for a run that needs no confirmation to go on.
    confirmed_until_us: AtomicU64,
    confirmed: Notify,
    printed: OnceLock<Box<Printed>>,
    /// Who sends what is printed; nobody, without a worker.
    dirty: Option<Arc<Dirty>>,
}

/// Why a run is to end before it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum EndReason {
    /// Somebody cancelled it.
    Cancelled = 1,
    /// Its time is over.
    TimedOut = 2,
    /// The worker has lost it: another one has it, or it has ended. What comes of it here is forgotten.
    Lost = 3,
    /// Its queue is strict, and no server confirmed in time that it may go on. There is no time for a grace.
    Unconfirmed = 4,
    /// The worker stops, and does not wait any longer.
    Stopping = 5,
}

impl EndReason {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled",
            Self::TimedOut => "timed out",
            Self::Lost => "lost",
            Self::Unconfirmed => "unconfirmed",
            Self::Stopping => "stopping",
        }
    }

    fn of(number: u8) -> Option<Self> {
        [Self::Cancelled, Self::TimedOut, Self::Lost, Self::Unconfirmed, Self::Stopping]
            .into_iter()
            .find(|reason| *reason as u8 == number)
    }
}

/// Whether a run is to end, and whether whoever carries it out knows.
#[derive(Default)]
struct Ending {
    /// An [`EndReason`], or 0.
    reason: AtomicU8,
    /// What whoever carries it out has seen of that.
    seen: AtomicU8,
    told: Notify,
}

impl Context {
    /// A run without a worker, to test handlers with: what it prints stays in [`Context::printed`].
    pub fn detached(run: ClaimedRun) -> Self {
        Self::new(run, "detached".into(), None)
    }

    pub(crate) fn new(run: ClaimedRun, worker: Arc<str>, dirty: Option<Arc<Dirty>>) -> Self {
        Self(Arc::new(Inner {
            run,
            worker,
            deadline: OnceLock::new(),
            ending: Ending::default(),
            confirmed_until_us: AtomicU64::new(0),
            confirmed: Notify::new(),
            printed: OnceLock::new(),
            dirty,
        }))
    }

    /// The run, as it was given. Its id is the same in every attempt: a good idempotency key. Its token is greater than those of
    /// all attempts before: what is acted upon can refuse a smaller one.
    pub fn run(&self) -> &ClaimedRun {
        &self.0.run
    }

    /// The worker's name.
    pub fn worker(&self) -> &str {
        &self.0.worker
    }

    /// Why the run is to end, if it was told to. A handler that has seen it and then returns counts as having ended early.
    pub fn ending(&self) -> Option<EndReason> {
        let reason = self.0.ending.reason.load(Ordering::Acquire);
        self.0.ending.seen.store(reason, Ordering::Release);
        EndReason::of(reason)
    }

    /// Waits until the run is told to end. May be dropped and called again.
    pub async fn told_to_end(&self) -> EndReason {
        self.is_told().await;
        self.ending().expect("it is told only when there is a reason")
    }

    /// Waits until the run is told to end for another reason than before: only losing it takes the place of another one. May be
    /// dropped and called again.
    pub async fn told_otherwise(&self, before: EndReason) -> EndReason {
        loop {
            let told = self.0.ending.told.notified();
            let mut told = std::pin::pin!(told);
            // From here on nothing is missed.
            told.as_mut().enable();
            if let Some(reason) = self.ending().filter(|reason| *reason != before) {
                return reason;
            }
            told.await;
        }
    }

    /// When the attempt must have ended, if it has a time-out.
    pub fn deadline(&self) -> Option<Instant> {
        self.0.deadline.get().copied()
    }

    /// For a run of a strict queue: when it must have ended unless it is confirmed again, on the clock that counts from the
    /// machine's start, sleep included. It moves with each answer of a server.
    pub fn confirmed_until(&self) -> Option<Duration> {
        let until = self.0.confirmed_until_us.load(Ordering::Acquire);
        (until > 0).then(|| Duration::from_micros(until))
    }

    /// Waits until [`Context::confirmed_until`] has moved. May be dropped and called again.
    pub async fn confirmed_again(&self) {
        self.0.confirmed.notified().await;
    }

    /// Prints bytes. Never waits: they are sent later, the last 64 KiB are kept, and what is older and was not sent in time is
    /// shown as cut.
    pub fn print(&self, stream: OutputStream, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.output().print(stream, bytes);
            self.changed();
        }
    }

    /// Says how far the run has come. Of several within half a second the last one is sent.
    pub fn progress(&self, percent: Option<u8>, text: Option<&str>) {
        self.output().progress(percent, text);
        self.changed();
    }

    /// What is kept of the output.
    pub fn printed(&self) -> Vec<OutputChunk> {
        self.0.printed.get().map(|printed| printed.kept()).unwrap_or_default()
    }

    /// Tells the run to end. The first reason stays, but for a run that is lost.
    pub fn tell_to_end(&self, reason: EndReason) {
        let ending = &self.0.ending;
        let changed = ending.reason.fetch_update(Ordering::AcqRel, Ordering::Acquire, |now| {
            (now == 0 || reason == EndReason::Lost).then_some(reason as u8)
        });
        if changed.is_ok() {
            ending.told.notify_waiters();
        }
    }

    /// Waits until it is told to end, without being seen to know it.
    pub(crate) async fn is_told(&self) {
        loop {
            let told = self.0.ending.told.notified();
            let mut told = std::pin::pin!(told);
            // From here on nothing is missed.
            told.as_mut().enable();
            if self.peek_ending().is_some() {
                return;
            }
            told.await;
        }
    }

    /// Why it is to end, without being seen to know it.
    pub(crate) fn peek_ending(&self) -> Option<EndReason> {
        EndReason::of(self.0.ending.reason.load(Ordering::Acquire))
    }

    /// Whether whoever carries it out knows that it is to end.
    pub(crate) fn has_seen_ending(&self) -> bool {
        self.0.ending.seen.load(Ordering::Acquire) != 0
    }

    pub(crate) fn begin(&self, deadline: Option<Instant>) {
        if let Some(deadline) = deadline {
            let _ = self.0.deadline.set(deadline);
        }
    }

    pub(crate) fn confirm(&self, until: Duration) {
        let until = u64::try_from(until.as_micros()).unwrap_or(u64::MAX);
        self.0.confirmed_until_us.store(until, Ordering::Release);
        self.0.confirmed.notify_one();
    }

    pub(crate) fn held(&self) -> HeldRun {
        HeldRun { id: self.0.run.id.clone(), token: self.0.run.token }
    }

    pub(crate) fn output_if_any(&self) -> Option<&Printed> {
        self.0.printed.get().map(|printed| &**printed)
    }

    fn output(&self) -> &Printed {
        self.0.printed.get_or_init(Box::default)
    }

    fn changed(&self) {
        if let Some(dirty) = &self.0.dirty {
            dirty.add(self);
        }
    }
}

impl fmt::Debug for Context {
    /// Without the payload, which may be secret.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Context({}, {})", self.0.run.id, self.0.run.token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context() -> Context {
        let run = serde_json::json!({
            "id": "run_1", "token": 1, "attempt": 1, "queue": "q", "scheduled": "2027-01-15T09:00:00Z",
        });
        Context::detached(serde_json::from_value(run).unwrap())
    }

    #[tokio::test]
    async fn whoever_waits_is_told_and_the_first_reason_stays_unless_the_run_is_lost() {
        let context = context();
        assert_eq!((context.ending(), context.has_seen_ending()), (None, false));
        let waits = context.told_to_end();
        context.tell_to_end(EndReason::Cancelled);
        context.tell_to_end(EndReason::Stopping);
        assert!(!context.has_seen_ending());
        assert_eq!(waits.await, EndReason::Cancelled);
        assert!(context.has_seen_ending());
        context.tell_to_end(EndReason::Lost);
        assert_eq!(context.ending(), Some(EndReason::Lost));
    }

    #[test]
    fn a_context_shows_no_payload() {
        assert_eq!(format!("{:?}", context()), "Context(run_1, 1)");
    }
}
