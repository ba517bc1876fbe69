//! What there is to measure of a candidate, as Prometheus reads it.
//!
//! Whether it leads is asked of the right itself at the moment of the scrape, by its own clocks, and never remembered:
//! so it reads right whatever happened to the process or the store in between. It says 0 some time before the right
//! ends, since what was read takes a while to arrive.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use engine::lease::Ttl;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use store::election::{Permit, Right};

use super::voice::LogDialect;
use crate::pages::{Pages, text};

/// All metrics of a candidate.
pub(super) struct Board {
    registry: Registry,
    /// How often this candidate took the claim.
    pub(super) claimed: Counter,
    /// How often it was renewed while it led.
    pub(super) refreshed: Counter,
    /// How often it looked who leads.
    pub(super) read: Counter,
    current: Gauge,
    token: Gauge,
    valid_for: Gauge<f64, AtomicU64>,
    margin: Duration,
    /// What it has, if it leads. Locked while it is shown, so that two who ask do not mix what they see.
    right: Mutex<Option<Right>>,
}

/// How long before its end a right counts as over: a fifth of T, so that whoever must stop has begun to.
pub(super) fn margin(ttl: Ttl) -> Duration {
    ttl.length() / 5
}

impl Board {
    pub(super) fn new(ttl: Ttl, dialect: &LogDialect) -> Self {
        let mut board = Self {
            registry: Registry::default(),
            claimed: Counter::default(),
            refreshed: Counter::default(),
            read: Counter::default(),
            current: Gauge::default(),
            token: Gauge::default(),
            valid_for: Gauge::default(),
            margin: margin(ttl),
            right: Mutex::default(),
        };
        let mut registry = Registry::default();
        board.register(registry.sub_registry_with_prefix("watchbell_leader"));
        if let LogDialect::Ancestor(_) = dialect {
            board.register(registry.sub_registry_with_prefix("scheduler_leader"));
        }
        board.registry = registry;
        board
    }

    fn register(&self, registry: &mut Registry) {
        registry.register(
            "claimed",
            "Total number of times this candidate has claimed leadership",
            self.claimed.clone(),
        );
        registry.register(
            "refreshed",
            "Total number of times this leader has refreshed leadership",
            self.refreshed.clone(),
        );
        registry.register(
            "read",
            "Total number of times this candidate or leader has checked leadership",
            self.read.clone(),
        );
        registry.register(
            "current_leader",
            "1 if this is the leader; 0 if not",
            self.current.clone(),
        );
        registry.register(
            "token",
            "The fencing token under which this one leads; 0 if it does not",
            self.token.clone(),
        );
        registry.register(
            "valid_for_seconds",
            "For how long this leader may act if nothing is renewed; 0 if it does not lead",
            self.valid_for.clone(),
        );
    }

    /// From now on it leads, for as long as this is good.
    pub(super) fn leads(&self, right: &Right) {
        *self.right.lock() = Some(right.clone());
    }

    /// It leads no more; what it had.
    pub(super) fn leads_no_more(&self) -> Option<Right> {
        self.right.lock().take()
    }

    /// Under what it leads at this moment.
    pub(super) fn permit(&self) -> Option<Permit> {
        self.of(self.right.lock().as_ref())
    }

    fn of(&self, right: Option<&Right>) -> Option<Permit> {
        right?.permit().filter(|permit| permit.valid_for > self.margin)
    }
}

impl Pages for Board {
    fn metrics(&self) -> String {
        let right = self.right.lock();
        let permit = self.of(right.as_ref());
        let (token, valid_for) = permit
            .as_ref()
            .map_or_else(Default::default, |permit| (permit.token.0, permit.valid_for));
        self.current.set(i64::from(permit.is_some()));
        self.token.set(i64::try_from(token).unwrap_or(i64::MAX));
        self.valid_for.set(valid_for.as_secs_f64());
        text(&self.registry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_ours_and_in_its_place_also_those_of_the_redis_scheduler() {
        let ttl = Ttl::new(Duration::from_secs(1)).unwrap();
        let names = ["claimed_total", "refreshed_total", "read_total", "current_leader", "token"];
        let ours = Board::new(ttl, &LogDialect::Ours).metrics();
        let both = Board::new(ttl, &LogDialect::Ancestor("leader:uuid".into())).metrics();
        for name in names {
            let line = format!("watchbell_leader_{name} 0\n");
            assert!(ours.contains(&line) && both.contains(&line), "{line}\n{both}");
            assert!(both.contains(&format!("scheduler_leader_{name} 0\n")), "{both}");
        }
        assert!(ours.contains("watchbell_leader_valid_for_seconds 0.0\n"), "{ours}");
        assert!(!ours.contains("scheduler_"), "{ours}");
    }
}
