//! One shard in virtual time: the engine that ships, and a world that is against it.
//!
//! The engine of a shard is a machine without arms, so nothing here is asynchronous: a loop tells it what
//! happened and what time it is, and carries what it says to a store and to receivers that exist only
//! here. Owners come and go with clocks of their own, die between any two things that they do, stop
//! cleanly, or hand the shard over to each other while attempts are under way, and report those later, or
//! never. Batches take time, land or not, and are answered late. People create, change, pause, resume,
//! cancel, delete and run triggers. Receivers answer, refuse, are slow, or say nothing.
//!
//! Two observers share no code with the engine's decisions. The [`ledger`] reads what is in the store
//! after each batch, and the [`witness`] sees what leaves and what people are told. What they hold the
//! engine to is in [`promise`]. Everything follows from a seed.

pub mod draft;
pub mod ledger;
pub mod node;
pub mod owner;
pub mod promise;
pub mod setting;
pub mod shelf;
pub mod stage;
pub mod witness;

use std::panic::{AssertUnwindSafe, catch_unwind};

use engine::mutant::{self, Mutant};

use crate::promise::words;
use crate::world::Tracing;
use promise::{Promise, Violation};
use setting::Setting;
use stage::{Counts, Stage};

/// What came of a run.
#[derive(Debug, Clone)]
pub struct Report {
    /// What was simulated.
    pub setting: Setting,
    /// The first promise that was broken, if any was.
    pub violation: Option<Violation>,
    /// What happened.
    pub counts: Counts,
    /// What happened, line by line, if that was asked for.
    pub trace: String,
}

/// Runs a seed, with this bug switched on, or none.
pub fn run(seed: u64, bug: Option<Mutant>, tracing: Tracing) -> Report {
    run_in(Setting::of(seed), bug, tracing)
}

/// The same, in a setting of one's own.
pub fn run_in(setting: Setting, bug: Option<Mutant>, tracing: Tracing) -> Report {
    mutant::switch(bug);
    let mut stage = Stage::new(setting.clone(), tracing);
    let played = catch_unwind(AssertUnwindSafe(|| stage.play()));
    mutant::switch(None);
    let at = stage.now;
    let broken = match played {
        Ok(played) => played.err(),
        Err(panic) => Some((Promise::NoPanic, words(&*panic))),
    };
    let violation = broken.map(|(promise, what)| Violation { promise, at, what });
    Report { setting, violation, counts: stage.counts(), trace: stage.take_trace() }
}
