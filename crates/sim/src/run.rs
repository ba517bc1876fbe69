//! One run: a seed, a cluster, faults, and what the checker saw.

use engine::mutant::{self, Mutant};

use crate::checker::LeaseCounts;
use crate::clock::{MS, TrueTime};
use crate::cluster::{ClusterSetting, LeaseCluster};
use crate::fault;
use crate::promise::LeaseViolation;
use crate::world::Tracing;

/// How long a run lasts, in true time.
pub const LENGTH: TrueTime = 180_000 * MS;

/// What came of a run.
#[derive(Debug, Clone)]
pub struct LeaseReport {
    /// What was simulated.
    pub setting: ClusterSetting,
    /// The first promise that was broken, if any was.
    pub violation: Option<LeaseViolation>,
    /// How often which things happened.
    pub counts: LeaseCounts,
    /// Events and polls.
    pub steps: u64,
    /// How long it lasted, in true time.
    pub length: TrueTime,
    /// What happened, line by line, if that was asked for.
    pub trace: String,
}

/// Runs a seed, with this bug switched on, or none.
pub fn run(seed: u64, bug: Option<Mutant>, tracing: Tracing) -> LeaseReport {
    mutant::switch(bug);
    let cluster = LeaseCluster::start(seed, tracing);
    cluster.world.trace("seed", || format!("{seed}: {}", cluster.setting));
    fault::begin(&cluster);
    cluster.world.run(LENGTH, |world| {
        cluster.checker.ask_everybody(world);
        cluster.checker.violation().is_some()
    });
    let report = LeaseReport {
        setting: (*cluster.setting).clone(),
        violation: cluster.checker.violation(),
        counts: cluster.checker.counts(),
        steps: cluster.world.steps(),
        length: cluster.world.now(),
        trace: cluster.world.take_trace(),
    };
    cluster.world.end();
    cluster.checker.rests();
    mutant::switch(None);
    report
}
