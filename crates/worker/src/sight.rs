//! What a worker did and how it stands, for whoever measures: read at any time, from any thread.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock;

/// Counters and gauges of one worker.
#[derive(Debug, Default)]
pub struct Sight {
    /// Runs that it was given.
    pub given: Counter,
    /// Runs that it has begun.
    pub begun: Counter,
    /// Attempts that were carried out.
    pub succeeded: Counter,
    /// Attempts that failed.
    pub failed: Counter,
    /// Attempts that were ended because somebody had cancelled them.
    pub cancelled: Counter,
    /// Attempts that were ended early, as by a worker that stops.
    pub stopped: Counter,
    /// Attempts of former lives that left no result.
    pub died: Counter,
    /// Runs that it was told are lost.
    pub lost: Counter,
    /// Results that did not count: their runs were given to others meanwhile, or had ended, as after an answer that was lost.
    pub uncounted: Counter,
    /// Requests to servers, and those of them that failed.
    pub requests: Counter,
    /// Requests that failed.
    pub requests_failed: Counter,
    /// Runs that execute now.
    pub executing: Gauge,
    /// Runs that it has now, begun or not.
    pub held: Gauge,
    /// Results that no server has taken yet.
    pub unreported: Gauge,
    /// How many runs it carries out at a time.
    pub capacity: Gauge,
    /// Bytes of the spool.
    pub spool_bytes: Gauge,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    heard: Option<Duration>,
    gone_since: Option<Duration>,
    spool_trouble: Option<String>,
    is_draining: bool,
}

impl Sight {
    /// A server has answered. Gives for how long none had, if that was so.
    pub(crate) fn heard(&self) -> Option<Duration> {
        let now = clock::since_boot();
        let mut state = self.state.lock();
        state.heard = Some(now);
        state.gone_since.take().map(|since| now.saturating_sub(since))
    }

    /// No server answers.
    pub(crate) fn gone(&self) {
        self.state.lock().gone_since.get_or_insert_with(clock::since_boot);
    }

    pub(crate) fn set_spool_trouble(&self, trouble: Option<String>) {
        self.state.lock().spool_trouble = trouble;
    }

    pub(crate) fn drains(&self) {
        self.state.lock().is_draining = true;
    }

    /// How long ago a server answered last; nothing, if none ever did.
    pub fn unheard_for(&self) -> Option<Duration> {
        let heard = self.state.lock().heard?;
        Some(clock::since_boot().saturating_sub(heard))
    }

    /// For how long no server has answered; nothing, if one does.
    pub fn servers_gone_for(&self) -> Option<Duration> {
        let since = self.state.lock().gone_since?;
        Some(clock::since_boot().saturating_sub(since))
    }

    /// What is wrong with the spool, so that the worker claims nothing more; nothing, if nothing is.
    pub fn spool_trouble(&self) -> Option<String> {
        self.state.lock().spool_trouble.clone()
    }

    /// Whether it takes no more runs, and ends.
    pub fn is_draining(&self) -> bool {
        self.state.lock().is_draining
    }
}

/// Something that is counted up.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// How many.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, more: usize) {
        self.0.fetch_add(more as u64, Ordering::Relaxed);
    }
}

/// Something of which there are more or fewer.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// How many.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, now: u64) {
        self.0.store(now, Ordering::Relaxed);
    }
}
