//! Queues: where runs wait for workers.
//!
//! - [`backlog`]: which run is claimed next: strict order, delays, and keys of which only so many run at a time
//! - [`decided`]: what was decided, on its way to the store
//! - [`given`]: what is recorded of a run that a worker has or had, and what follows from what happens to it
//! - [`rate`]: at most so many in any period
//! - [`unfinished`]: all unfinished runs of the queues of a shard, and how many may be given
//! - [`worker`]: what workers say, and what they are answered

pub mod backlog;
pub mod decided;
pub mod given;
pub mod rate;
pub mod unfinished;
pub mod worker;
