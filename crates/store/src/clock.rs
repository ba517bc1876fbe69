//! The only file that reads a clock.
//!
//! Everything else is given the time, measures with a [`Stopwatch`], or asks its
//! [`Machine`](crate::machine::Machine), so that tests and the simulator can put their own time in its
//! place.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use engine::lease::Reading;
use rustix::time::{ClockId, clock_gettime};

/// Both monotonic clocks of this machine.
pub(crate) fn reading() -> Reading {
    let read = |clock| {
        let time = clock_gettime(clock);
        Duration::try_from(time).expect("a monotonic clock counts from its machine's start")
    };
    Reading { boot: read(ClockId::Boottime), raw: read(ClockId::MonotonicRaw) }
}

/// The wall clock, in microseconds since 1970; 0 if it stands before that.
#[expect(clippy::disallowed_methods, reason = "this is the one file that may")]
pub(crate) fn wall_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Measures how long something took.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// A stopwatch that starts now.
    #[expect(clippy::disallowed_methods, reason = "this is the one file that may")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// The time since the start.
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}
