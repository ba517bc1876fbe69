//! Rings at a node: what it says about itself to [`store::ring`], the component that runs them, and what is measured.

use std::sync::Arc;

use store::ring::{RingDriver, RingPart, RingSettings, RingStats, Rings};
use store::session::{Session, SessionRecord};
use tokio::sync::watch;

use crate::metric::NodeMetrics;
use crate::node::Component;
use crate::peers::{Peers, SCHEDULE};

/// The part of this node in the rings of its store.
pub(crate) fn rings(session: &Session, peers: &Arc<Peers>) -> (Rings, RingKeeper) {
    let view = peers.follow();
    let settings = RingSettings {
        is_server,
        clock_is_good: Arc::new(move || view.borrow().mine().is_some_and(|me| !me.is_apart)),
        part: RingPart::Advances,
    };
    let (rings, driver) = Rings::new(session, settings);
    (rings, RingKeeper(driver))
}

/// Which sessions are of nodes that advance rings.
fn is_server(record: &SessionRecord) -> bool {
    record.roles.iter().any(|role| role == SCHEDULE)
}

/// Keeps the rings going.
pub(crate) struct RingKeeper(RingDriver);

impl Component for RingKeeper {
    const NAME: &'static str = "the keeper of rings";

    async fn run(self) {
        self.0.run().await;
    }
}

/// Measures what is done about rings.
pub(crate) struct RingMeter {
    stats: watch::Receiver<RingStats>,
    metrics: Arc<NodeMetrics>,
}

impl RingMeter {
    pub(crate) fn new(rings: &Rings, metrics: Arc<NodeMetrics>) -> Self {
        Self { stats: rings.stats(), metrics }
    }
}

impl Component for RingMeter {
    const NAME: &'static str = "the meter of rings";

    async fn run(mut self) {
        loop {
            self.metrics.rings(&self.stats.borrow_and_update());
            if self.stats.changed().await.is_err() {
                return;
            }
        }
    }
}
