//! Every bound of the system, in one place.
//!
//! A limit is part of the surface: it is checked before anything happens, the refusal names it, and
//! a test stands at it and one past it. Limits that depend on the engine behind a store are facts
//! that the adapter tells (`store::Limits`); these are the ones that hold everywhere.

use std::time::Duration;

/// Shortest lease. Below this a healthy store's answers take too much of it.
pub const LEASE_TTL_MIN: Duration = Duration::from_millis(500);

/// Longest lease: what it holds is stuck for 1.25 times as long after a crash.
pub const LEASE_TTL_MAX: Duration = Duration::from_secs(3_600);

/// Renewals that a holder remembers; it sends five in a lease, and a few more when answers are late.
pub const RENEWALS_REMEMBERED_MAX: usize = 64;

/// What a store of class B may forget: acknowledged writes of up to this long before it failed over,
/// and what a former primary still acknowledges for this long afterwards.
pub const FAILOVER_LAG: Duration = Duration::from_secs(2);

/// Longest id of a node: as long as a label of a host name.
pub const NODE_ID_BYTES_MAX: usize = 63;

/// Incarnations that a node draws in a row when the store does not say whether its session was made.
pub const INCARNATIONS_MAX: usize = 5;

/// Longest key of a store, in bytes. Postgres indexes keys of up to about 2,700 bytes and etcd is
/// happiest well below a kilobyte.
pub const KEY_BYTES_MAX: usize = 512;

/// Most entries in one page of a scan.
pub const PAGE_ENTRIES_MAX: usize = 1_000;

/// A page ends early once its keys and values pass this many bytes, so that a page of large values
/// fits in memory and in one message.
pub const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The least number of writes that every store takes in one commit. What must be atomic, and the
/// pieces into which longer work is cut, are planned for this number.
pub const COMMIT_WRITES_MIN: usize = 8;

/// Longest cron expression, in bytes.
pub const CRON_BYTES_MAX: usize = 1_024;

/// Shortest interval.
pub const EVERY_MIN: Duration = Duration::from_secs(1);

/// Longest interval: a leap year.
pub const EVERY_MAX: Duration = Duration::from_secs(366 * 86_400);

/// Most instants in an `at` schedule.
pub const AT_MAX: usize = 5_000;

/// Most specs in one schedule.
pub const SPECS_MAX: usize = 16;

/// Most dates that a calendar excludes.
pub const EXCLUDED_DATES_MAX: usize = 1_000;

/// Most quiet windows of a calendar.
pub const QUIET_WINDOWS_MAX: usize = 32;

/// Longest jitter.
pub const JITTER_MAX: Duration = Duration::from_secs(86_400);

/// Slots that are walked one by one where they cannot be computed: several specs at once, or a calendar.
pub const SLOTS_WALKED_MAX: u64 = 100_000;
