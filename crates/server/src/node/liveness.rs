//! Liveness: the session is renewed only while the node works.
//!
//! A node works while the core has moved lately, and the committer does not sit on an order for longer than the
//! session lasts. A store that takes nothing lets the session lapse by itself, since renewals go the same way;
//! this is for orders that it refuses, or that hang, while it takes renewals.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use store::machine::Machine;
use store::session::SessionDriver;

use super::component::Component;
use super::now;

/// The committer has no order.
const IDLE: u64 = u64::MAX;

/// Whether the node has moved lately. Clones show the same node. Times are steady milliseconds.
#[derive(Clone)]
pub(super) struct Liveness {
    /// When the core last moved.
    core: Arc<AtomicU64>,
    /// Since when the committer has its order.
    order: Arc<AtomicU64>,
    ttl: Duration,
}

impl Liveness {
    pub(super) fn new(now: u64, ttl: Duration) -> Self {
        let order = Arc::new(AtomicU64::new(IDLE));
        Self { core: Arc::new(AtomicU64::new(now)), order, ttl }
    }

    pub(super) fn core_moved(&self, now: u64) {
        self.core.store(now, Ordering::Relaxed);
    }

    pub(super) fn begin_order(&self, now: u64) {
        self.order.store(now, Ordering::Relaxed);
    }

    pub(super) fn end_order(&self) {
        self.order.store(IDLE, Ordering::Relaxed);
    }

    fn is_alive(&self, now: u64) -> bool {
        let passed = |since: &AtomicU64| {
            Duration::from_millis(now.saturating_sub(since.load(Ordering::Relaxed)))
        };
        passed(&self.core) < self.ttl / 2 && passed(&self.order) < self.ttl
    }
}

/// Keeps the session of a node that lives.
pub(super) struct SessionKeeper {
    pub(super) keeper: SessionDriver,
    pub(super) liveness: Liveness,
    pub(super) machine: Arc<dyn Machine>,
}

impl Component for SessionKeeper {
    const NAME: &'static str = "the keeper of the session";

    async fn run(self) {
        let Self { mut keeper, liveness, machine } = self;
        let end = keeper.run(move || liveness.is_alive(now(&*machine).steady)).await;
        tracing::debug!(?end, "the session has ended");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Duration = Duration::from_secs(3);

    #[test]
    fn a_core_that_stands_still_for_half_of_t_is_not_alive() {
        let liveness = Liveness::new(0, T);
        assert!(liveness.is_alive(1_499));
        assert!(!liveness.is_alive(1_500));
        liveness.core_moved(1_500);
        assert!(liveness.is_alive(1_500));
    }

    #[test]
    fn a_committer_that_has_an_order_for_t_is_not_alive_until_it_is_done() {
        let liveness = Liveness::new(0, T);
        liveness.begin_order(10_000);
        for (now, is_alive) in [(12_999, true), (13_000, false), (60_000, false)] {
            liveness.core_moved(now);
            assert_eq!(liveness.is_alive(now), is_alive, "{now}");
        }
        liveness.end_order();
        assert!(liveness.is_alive(60_000));
    }
}
