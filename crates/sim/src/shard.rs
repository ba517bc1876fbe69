//! One shard in virtual time: the engine that ships, and a world that is against it.
//!
//! The engine of a shard is a machine without arms, so nothing here is asynchronous: a loop tells it what
//! happened and what time it is, and carries what it says to a store and to receivers that exist only
//! here. Owners come and go with clocks of their own, die between any two things that they do, stop
//! cleanly, or hand the shard over to each other while attempts are under way, and report those later, or
//! never. Batches take time, land or not, and are answered late. Clients create, change, pause, resume,
//! cancel, delete and run triggers. Receivers answer, refuse, are slow, or say nothing.
//!
//! Two observers share no code with the engine's decisions. The [`oracle`] reads what is in the store
//! after each batch, and the [`checker`] sees what leaves and what clients are told. What they hold the
//! engine to is in [`promise`]. Everything follows from a seed.

pub mod checker;
pub mod draft;
pub mod node;
pub mod oracle;
pub mod owner;
pub mod pick;
pub mod promise;
pub mod setting;
pub mod shard_store;
pub mod simulation;

use std::panic::{AssertUnwindSafe, catch_unwind};

use engine::mutant::{self, Mutant};

use crate::promise::words;
use crate::world::Tracing;
use promise::{ShardPromise, ShardViolation};
use setting::ShardSetting;
use simulation::{ShardCounts, Simulation};

/// What came of a run.
#[derive(Debug, Clone)]
pub struct ShardReport {
    /// What was simulated.
    pub setting: ShardSetting,
    /// The first promise that was broken, if any was.
    pub violation: Option<ShardViolation>,
    /// How often which things happened.
    pub counts: ShardCounts,
    /// What happened, line by line, if that was asked for.
    pub trace: String,
}

/// Runs a seed, with this bug switched on, or none.
pub fn run(seed: u64, bug: Option<Mutant>, tracing: Tracing) -> ShardReport {
    run_in(ShardSetting::of(seed), bug, tracing)
}

/// Runs one shard in a given setting, with this bug switched on, or none.
pub fn run_in(setting: ShardSetting, bug: Option<Mutant>, tracing: Tracing) -> ShardReport {
    mutant::switch(bug);
    let mut sim = Simulation::new(setting.clone(), tracing);
    let played = catch_unwind(AssertUnwindSafe(|| sim.play()));
    mutant::switch(None);
    let at = sim.now;
    let broken = match played {
        Ok(played) => played.err(),
        Err(panic) => Some((ShardPromise::NoPanic, words(&*panic))),
    };
    let violation = broken.map(|(promise, what)| ShardViolation { promise, at, what });
    ShardReport { setting, violation, counts: sim.counts(), trace: sim.take_trace() }
}
