//! Liveness: the session is renewed only while the node works.
//!
//! A node works while the core has moved lately, and the committer does not sit on an order for longer than the
//! session lasts. A store that takes nothing lets the session lapse by itself, since renewals go the same way;
//! this is for orders that it refuses, or that hang, while it takes renewals.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use store::machine::Machine;
use store::session::Keeper;

use super::component::Component;
use super::now;

/// The committer has no order.
const IDLE: u64 = u64::MAX;

/// Whether the node has moved lately. Clones show the same node. Times are steady milliseconds.
#[derive(Clone)]
pub(super) struct Liveness {
    machine: Arc<dyn Machine>,
    /// When the core last moved.
    core: Arc<AtomicU64>,
    /// Since when the committer has its order.
    order: Arc<AtomicU64>,
    ttl: Duration,
}

impl Liveness {
    pub(super) fn new(machine: &Arc<dyn Machine>, ttl: Duration) -> Self {
        let core = Arc::new(AtomicU64::new(now(&**machine).steady));
        let order = Arc::new(AtomicU64::new(IDLE));
        Self { machine: Arc::clone(machine), core, order, ttl }
    }

    /// The core moves now.
    pub(super) fn core_moved(&self, now: u64) {
        self.core.store(now, Ordering::Relaxed);
    }

    /// The committer takes an order.
    pub(super) fn begin_order(&self) {
        self.order.store(now(&*self.machine).steady, Ordering::Relaxed);
    }

    /// The order is done with.
    pub(super) fn end_order(&self) {
        self.order.store(IDLE, Ordering::Relaxed);
    }

    pub(super) fn is_alive(&self) -> bool {
        let now = now(&*self.machine).steady;
        let passed = |since: &AtomicU64| {
            Duration::from_millis(now.saturating_sub(since.load(Ordering::Relaxed)))
        };
        passed(&self.core) < self.ttl / 2 && passed(&self.order) < self.ttl
    }
}

/// Keeps the session of a node that lives.
pub(super) struct SessionKeeper {
    pub(super) keeper: Keeper,
    pub(super) liveness: Liveness,
}

impl Component for SessionKeeper {
    const NAME: &'static str = "the keeper of the session";

    async fn run(mut self) {
        let end = self.keeper.run(move || self.liveness.is_alive()).await;
        tracing::debug!(?end, "the session has ended");
    }
}

#[cfg(test)]
mod tests {
    use engine::lease::Reading;
    use store::Pending;

    use super::*;

    /// A machine whose clock is set.
    #[derive(Default)]
    struct SetClock {
        ms: AtomicU64,
    }

    impl Machine for SetClock {
        fn reading(&self) -> Reading {
            let now = Duration::from_millis(self.ms.load(Ordering::Relaxed));
            Reading { boot: now, raw: now }
        }

        fn wall_us(&self) -> u64 {
            0
        }

        fn random(&self) -> u64 {
            0
        }

        fn sleep(&self, _: Duration) -> Pending<'static, ()> {
            Box::pin(std::future::pending())
        }
    }

    fn liveness() -> (Arc<SetClock>, Liveness) {
        let machine = Arc::new(SetClock::default());
        let on = Arc::clone(&machine) as Arc<dyn Machine>;
        (machine, Liveness::new(&on, Duration::from_secs(3)))
    }

    #[test]
    fn a_core_that_stands_still_for_half_of_t_is_not_alive() {
        let (machine, liveness) = liveness();
        machine.ms.store(1_499, Ordering::Relaxed);
        assert!(liveness.is_alive());
        machine.ms.store(1_500, Ordering::Relaxed);
        assert!(!liveness.is_alive());
        liveness.core_moved(1_500);
        assert!(liveness.is_alive());
    }

    #[test]
    fn a_committer_that_has_an_order_for_t_is_not_alive_until_it_is_done() {
        let (machine, liveness) = liveness();
        machine.ms.store(10_000, Ordering::Relaxed);
        liveness.begin_order();
        for (ms, is_alive) in [(12_999, true), (13_000, false), (60_000, false)] {
            machine.ms.store(ms, Ordering::Relaxed);
            liveness.core_moved(ms);
            assert_eq!(liveness.is_alive(), is_alive, "{ms}");
        }
        liveness.end_order();
        assert!(liveness.is_alive());
    }
}
