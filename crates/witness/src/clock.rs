//! The only file of this crate that reads a clock.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};

/// The time since the machine started, also while it slept: one clock for all processes of a machine.
pub(crate) fn since_boot() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Boottime))
        .expect("the clock counts from the machine's start")
}

/// The start of the machine from which that clock counts. Without `/proc` nobody can say.
pub(crate) fn boot() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned()).filter(|id| !id.is_empty())
}

/// The wall clock, for people.
#[expect(clippy::disallowed_methods, reason = "this is the one file that may")]
pub(crate) fn wall() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let micros = i64::try_from(since.as_micros()).unwrap_or_default();
    Timestamp::from_microsecond(micros).unwrap_or(Timestamp::UNIX_EPOCH)
}
