//! The only file of this crate that reads a clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};

/// The time since the machine started, also while it slept: by this clock a worker knows how long ago it was heard.
pub(crate) fn since_boot() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Boottime))
        .expect("the clock counts from the machine's start")
}

/// The wall clock, for people.
pub(crate) fn wall() -> Timestamp {
    let micros = i64::try_from(wall_us()).unwrap_or_default();
    Timestamp::from_millisecond(micros / 1_000).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// The wall clock, in microseconds since 1970; 0 if it stands before that.
#[expect(clippy::disallowed_methods, reason = "this is the one file that may")]
pub(crate) fn wall_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
