//! The only file of this crate that reads a clock.
//!
//! It is the one that counts on while the machine sleeps: whoever was to be ended by an instant is to be ended by it also
//! if the machine slept through it.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The time since the machine started, that in which it slept included: what a [`Deadline`](crate::Deadline) is counted in.
pub fn since_boot() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Boottime))
        .expect("the clock counts from the machine's start")
}
