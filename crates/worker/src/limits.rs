//! Bounds of a worker. What servers bound is in docs/queues.md, "Limits".

use std::time::Duration;

/// Runs that a worker has at a time, results that no server has taken included.
pub const RUNS_MAX: usize = 1_000;

/// Queues that it claims from.
pub const QUEUES_MAX: usize = 32;

/// The weight of a queue.
pub const WEIGHT_MAX: u32 = 1_000;

/// How long it may be silent, at least and at most.
pub const LEASE_MIN: Duration = Duration::from_secs(1);
/// How long it may be silent, at most.
pub const LEASE_MAX: Duration = Duration::from_secs(24 * 3_600);

/// The longest that an attempt may take, of runs that do not say it.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(30 * 24 * 3_600);

/// The longest that a handler may take that was told to end.
pub const GRACE_MAX: Duration = Duration::from_secs(24 * 3_600);

/// The longest that a worker that drains waits for its runs.
pub const DRAIN_TIMEOUT_MAX: Duration = Duration::from_secs(7 * 24 * 3_600);

/// What is kept of a run's output, so that it can be sent again to another server.
pub const OUTPUT_KEPT_BYTES: usize = 64 * 1024;

/// Characters of the text of a progress, and of the error of a result.
pub const PROGRESS_CHARS_MAX: usize = 200;
/// Characters of the error of a result.
pub const ERROR_CHARS_MAX: usize = 1_000;

/// The longest pause that a failed attempt may ask for.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(3_600);
