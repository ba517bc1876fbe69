//! How much there is for a host already.
//!
//! What is handed over for sending waits in memory, and what may have left is in doubt after a crash. So a host
//! that is slower than its triggers gets no more than it can chew: the rest waits in the store, where it can wait
//! for long, and no other host notices.

use std::sync::Arc;

use crate::instant::Instant;

use super::attempts::Attempts;
use super::{Now, Shard};

/// How much there is for a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Load {
    /// Whatever is due may be handed over.
    Free,
    /// What has a record, or must not be in doubt, waits in the store.
    Busy,
    /// Everything waits in the store.
    Full,
}

/// Whoever knows how much there is for each host.
pub trait Backpressure: Send + Sync {
    /// How much there is for the host with this [origin](crate::webhook::Form::origin).
    fn load(&self, origin: u64) -> Load;
}

/// Nobody is waited for.
pub(super) struct Nobody;

impl Backpressure for Nobody {
    fn load(&self, _: u64) -> Load {
        Load::Free
    }
}

/// How long to wait before a host is looked at again, and how many of its runs are then started at most: what is
/// started counts for its load only once it has left.
pub(super) const LOOK_AGAIN_MS: u64 = 100;
const AT_ONCE_MAX: usize = 64;

impl Shard {
    /// Tells who knows how much there is for each host.
    pub fn set_backpressure(&mut self, backpressure: Arc<dyn Backpressure>) {
        self.backpressure = backpressure;
    }

    /// Lets some of the runs wait for their instant again that wait for a host.
    pub(super) fn unpark(&mut self, now: Now) {
        if self.attempts.look_again > now.steady {
            return;
        }
        self.attempts.look_again = now.steady + LOOK_AGAIN_MS;
        self.attempts.started.clear();
        let backpressure = &self.backpressure;
        let free: Vec<u64> = self
            .attempts
            .parked
            .keys()
            .copied()
            .filter(|origin| backpressure.load(*origin) == Load::Free)
            .collect();
        for origin in free {
            let Some(parked) = self.attempts.parked.get_mut(&origin) else { continue };
            for _ in 0..AT_ONCE_MAX {
                let Some(first) = parked.pop_first() else { break };
                self.attempts.waiting.insert(first);
            }
            if parked.is_empty() {
                self.attempts.parked.remove(&origin);
            }
        }
    }
}

impl Attempts {
    /// Whether one more run for a host may be started before it is looked at again.
    pub(super) fn may_start(&mut self, origin: u64) -> bool {
        let started = self.started.entry(origin).or_default();
        *started += 1;
        *started <= AT_ONCE_MAX
    }

    /// A run whose instant has come waits for its host.
    pub(super) fn park(&mut self, origin: u64, at: Instant, sequence: u64) {
        self.parked.entry(origin).or_default().insert((at, sequence));
    }
}
