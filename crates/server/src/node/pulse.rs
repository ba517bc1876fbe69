//! The pulse: whether the node works, for the session that is renewed only while it does.
//!
//! It works while the core has moved lately, and the committer does not sit on an order for longer than the
//! session lasts. A store that takes nothing lets the session lapse by itself, since renewals go the same way;
//! this is for orders that it refuses, or that hang, while it takes renewals.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use store::machine::Machine;

use super::now;

/// The committer has no order.
const IDLE: u64 = u64::MAX;

/// Whether the node has moved lately. Clones are the same pulse. Times are steady milliseconds.
#[derive(Clone)]
pub(super) struct Pulse {
    machine: Arc<dyn Machine>,
    /// When the core last moved.
    pub(super) core: Arc<AtomicU64>,
    /// Since when the committer has its order.
    order: Arc<AtomicU64>,
    ttl: Duration,
}

impl Pulse {
    pub(super) fn new(machine: &Arc<dyn Machine>, ttl: Duration) -> Self {
        let pulse = Self {
            machine: Arc::clone(machine),
            core: Arc::default(),
            order: Arc::new(AtomicU64::new(IDLE)),
            ttl,
        };
        pulse.beat();
        pulse
    }

    /// The core moves.
    pub(super) fn beat(&self) {
        self.core.store(now(&*self.machine).steady, Ordering::Relaxed);
    }

    /// The committer takes an order.
    pub(super) fn begin_order(&self) {
        self.order.store(now(&*self.machine).steady, Ordering::Relaxed);
    }

    /// The order is done with.
    pub(super) fn end_order(&self) {
        self.order.store(IDLE, Ordering::Relaxed);
    }

    pub(super) fn beats(&self) -> bool {
        let now = now(&*self.machine).steady;
        let passed = |since: &AtomicU64| {
            Duration::from_millis(now.saturating_sub(since.load(Ordering::Relaxed)))
        };
        passed(&self.core) < self.ttl / 2 && passed(&self.order) < self.ttl
    }
}

#[cfg(test)]
mod tests {
    use engine::lease::Reading;
    use store::Pending;

    use super::*;

    /// A machine whose clock is set.
    #[derive(Default)]
    struct Set {
        ms: AtomicU64,
    }

    impl Machine for Set {
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

    fn pulse() -> (Arc<Set>, Pulse) {
        let machine = Arc::new(Set::default());
        let on = Arc::clone(&machine) as Arc<dyn Machine>;
        (machine, Pulse::new(&on, Duration::from_secs(3)))
    }

    #[test]
    fn a_core_that_stands_still_for_half_of_t_does_not_beat() {
        let (machine, pulse) = pulse();
        machine.ms.store(1_499, Ordering::Relaxed);
        assert!(pulse.beats());
        machine.ms.store(1_500, Ordering::Relaxed);
        assert!(!pulse.beats());
        pulse.beat();
        assert!(pulse.beats());
    }

    #[test]
    fn a_committer_that_has_an_order_for_t_does_not_beat_until_it_is_done() {
        let (machine, pulse) = pulse();
        machine.ms.store(10_000, Ordering::Relaxed);
        pulse.begin_order();
        for (ms, beats) in [(12_999, true), (13_000, false), (60_000, false)] {
            machine.ms.store(ms, Ordering::Relaxed);
            pulse.beat();
            assert_eq!(pulse.beats(), beats, "{ms}");
        }
        pulse.end_order();
        assert!(pulse.beats());
    }
}
