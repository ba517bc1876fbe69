//! The only file that reads a clock.
//!
//! Everything else is given the time, or measures with a [`Stopwatch`], so that tests and the
//! simulator can put their own time in its place.

use std::time::{Duration, Instant};

/// Measures how long something took.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts now.
    #[expect(clippy::disallowed_methods, reason = "this is the one file that may")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// The time since the start.
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}
