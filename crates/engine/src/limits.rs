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

/// Longest URL of a webhook, in bytes.
pub const WEBHOOK_URL_BYTES_MAX: usize = 2_048;

/// Most headers that a webhook has of its own, its content type among them.
pub const WEBHOOK_HEADERS_MAX: usize = 30;

/// Most bytes that these headers have together, names and values. Receivers commonly refuse heads above
/// 8 to 16 KiB.
pub const WEBHOOK_HEADER_BYTES_MAX: usize = 8 * 1024;

/// Longest body of a webhook, in bytes.
pub const WEBHOOK_BODY_BYTES_MAX: usize = 100 * 1024;

/// Shortest time that an attempt may take.
pub const WEBHOOK_TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// Longest time that an attempt may take: what is slower belongs into a queue.
pub const WEBHOOK_TIMEOUT_MAX: Duration = Duration::from_secs(30);

/// Time that an attempt may take if nobody says otherwise.
pub const WEBHOOK_TIMEOUT_DEFAULT: Duration = Duration::from_secs(15);

/// What is kept of an answer's body; the rest is not read.
pub const RESPONSE_BYTES_MAX: usize = 64 * 1024;

/// Most bytes of an answer's head. A receiver that sends headers for ever is cut off there.
pub const RESPONSE_HEAD_BYTES_MAX: usize = 64 * 1024;

/// Longest pause that a receiver may ask for with `Retry-After`; a longer one counts as this.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(86_400);

/// Attempts in a row that a host leaves unanswered before it is left alone for a while.
pub const BREAKER_FAILURES_MAX: u32 = 5;

/// The first pause of a host that does not answer.
pub const BREAKER_PAUSE_MIN: Duration = Duration::from_secs(1);

/// The longest pause of a host that does not answer: when it is back, this is how late we notice.
pub const BREAKER_PAUSE_MAX: Duration = Duration::from_secs(30);

/// Addresses of one name that are tried for one connection.
pub const ADDRESSES_TRIED_MAX: usize = 4;

/// How long a pooled connection may rest before it is closed. Common servers close theirs after 5 s, and a
/// request that crosses such a close on the way is lost in doubt.
pub const CONNECTION_IDLE_MAX: Duration = Duration::from_secs(4);

/// How long a connection is used at most: a name that has moved on is followed after this.
pub const CONNECTION_AGE_MAX: Duration = Duration::from_secs(60);

/// How long an answer of the resolver is used again.
pub const NAME_AGE_MAX: Duration = Duration::from_secs(5);

/// Attempts under way to a host that has yet to answer its first.
pub const HOST_WINDOW_MIN: usize = 8;

/// How long a host that nobody calls is remembered.
pub const HOST_IDLE_MAX: Duration = Duration::from_secs(60);
