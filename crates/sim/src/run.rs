//! One run: a seed, a cluster, faults, and what the witness saw.

use engine::mutant::{self, Mutant};

use crate::clock::{Instant, MS};
use crate::cluster::{Cluster, Setting};
use crate::fault;
use crate::promise::Violation;
use crate::witness::Counts;
use crate::world::Tracing;

/// How long a run lasts, in true time.
pub const LENGTH: Instant = 180_000 * MS;

/// What came of a run.
#[derive(Debug, Clone)]
pub struct Report {
    /// What was simulated.
    pub setting: Setting,
    /// The first promise that was broken, if any was.
    pub violation: Option<Violation>,
    /// What happened.
    pub counts: Counts,
    /// Events and polls.
    pub steps: u64,
    /// How long it lasted, in true time.
    pub length: Instant,
    /// What happened, line by line, if that was asked for.
    pub trace: String,
}

/// Runs a seed, with this bug switched on, or none.
pub fn run(seed: u64, bug: Option<Mutant>, tracing: Tracing) -> Report {
    mutant::switch(bug);
    let cluster = Cluster::start(seed, tracing);
    cluster.world.trace("seed", || format!("{seed}: {}", cluster.setting));
    fault::begin(&cluster);
    cluster.world.run(LENGTH, |world| {
        cluster.witness.ask_everybody(world);
        cluster.witness.violation().is_some()
    });
    let report = Report {
        setting: (*cluster.setting).clone(),
        violation: cluster.witness.violation(),
        counts: cluster.witness.counts(),
        steps: cluster.world.steps(),
        length: cluster.world.now(),
        trace: cluster.world.take_trace(),
    };
    cluster.world.end();
    cluster.witness.rests();
    mutant::switch(None);
    report
}
