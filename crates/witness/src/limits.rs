//! Bounds of what a witness reads, keeps and serves.

use std::time::Duration;

/// Bytes of a tick, as a datagram or as the body of a request.
pub const TICK_BYTES_MAX: usize = 1_024;

/// Characters of the name of a hold, a node, an instance or a machine's start in a tick.
pub const NAME_CHARS_MAX: usize = 100;

/// Holds that are judged; ticks of others are counted and left out.
pub const HOLDS_MAX: usize = 256;

/// Instances of all holds that are remembered. With one more, the one that has been silent for longest is forgotten.
pub const INSTANCES_MAX: usize = 4_096;

/// Tokens under which an instance is remembered to have acted; a program has one.
pub const STINTS_MAX: usize = 8;

/// Stretches of an instance in which ticks are missing or nobody acted. Older ones are only counted.
pub const STRETCHES_MAX: usize = 64;

/// Pairs of instances whose overlap is told; and as many pairs of which one acted under a token that was over.
pub const FINDINGS_MAX: usize = 1_000;

/// Changes and gaps of a hold that a report lists: the last ones. All are in its figures.
pub const CHANGES_LISTED_MAX: usize = 1_000;

/// Events that are kept for those who come back to a stream.
pub const EVENTS_KEPT_MAX: usize = 8_192;

/// Events that are sent in one piece.
pub const EVENTS_AT_ONCE: usize = 256;

/// Those who read events at a time.
pub const STREAMS_MAX: usize = 32;

/// How often a stream says something when nothing happens.
pub const HEARTBEAT: Duration = Duration::from_secs(15);

/// Connections at a time. Further ones wait.
pub const CONNECTIONS_MAX: usize = 1_024;

/// How long the head of a request may take to come, and how long a connection may rest between two requests.
pub const REQUEST_HEAD_TIME_MAX: Duration = Duration::from_secs(10);

/// How long the body of a request may take to come.
pub const REQUEST_BODY_TIME_MAX: Duration = Duration::from_secs(5);

/// How wide a chart is at least, and at most.
pub const CHART_COLUMNS_MIN: usize = 40;
/// The widest chart: see [`CHART_COLUMNS_MIN`].
pub const CHART_COLUMNS_MAX: usize = 500;

/// Instances of a hold that a chart shows: the last ones.
pub const CHART_ROWS_MAX: usize = 24;

/// Changes and gaps of a hold that a report shows to people: the last ones.
pub const CHANGES_SHOWN_MAX: usize = 10;

/// How long a signer waits for an answer to a tick that it sent as a request.
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(1);

/// How long nothing may go wrong before a signer says that its witness is there again, at least.
pub const BACK_AFTER: Duration = Duration::from_secs(1);

/// The shortest silence that may be called a gap.
pub const GAP_MIN: Duration = Duration::from_millis(10);
/// The longest silence that is none: see [`GAP_MIN`].
pub const GAP_MAX: Duration = Duration::from_secs(3_600);

/// The shortest time for which a witness watches.
pub const WATCH_MIN: Duration = Duration::from_millis(100);
/// The longest time after which a witness ends by itself.
pub const WATCH_MAX: Duration = Duration::from_secs(30 * 86_400);

/// The shortest time between two ticks of a signer.
pub const EVERY_MIN: Duration = Duration::from_millis(1);
/// The longest time between two ticks of a signer.
pub const EVERY_MAX: Duration = Duration::from_secs(3_600);
