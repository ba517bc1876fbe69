//! Bounds of what may be asked.

use std::time::Duration;

/// Bytes of the path, the directory, all arguments and all variables of a program, each with eight bytes for what points
/// to it. Linux takes a quarter of the stack, which is 2 MiB by default.
pub const ARGUMENTS_BYTES_MAX: usize = 1024 * 1024;

/// Bytes of one argument or variable: what Linux takes, without the end of the string.
pub const ARGUMENT_BYTES_MAX: usize = 128 * 1024 - 1;

/// Bytes that a program finds on its standard input. They are kept in memory until the program has ended.
pub const STDIN_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The longest grace of a stop; a longer one is cut to this.
pub const GRACE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The longest that a start may take: nothing but a machine in trouble takes nearly as long.
pub(crate) const START_MAX: Duration = Duration::from_secs(30);

/// How long a shim may take to end its tree after its time before the supervisor tells it to go on: it may have been
/// stopped.
pub(crate) const SHIM_OVERDUE: Duration = Duration::from_secs(1);

/// How long it may take after that before it is killed.
pub(crate) const SHIM_OVERDUE_AGAIN: Duration = Duration::from_secs(4);

/// How long a tree with a deadline may be there after it before the supervisor tells the shim to go on, and as long again
/// before the shim is killed.
pub(crate) const SHIM_LATE: Duration = Duration::from_millis(50);

/// How long a launch may take to leave after its shim: it has nothing to do any more, but may have been stopped.
pub(crate) const LAUNCH_OVERDUE: Duration = Duration::from_secs(1);

/// Rounds in which a weak kill stops what still runs before it kills all of it anyway.
pub(crate) const STOP_ROUNDS_MAX: u32 = 32;

/// How long a weak kill waits for a death before it looks for descendants again.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Parents that are followed to find whether a process is of a tree.
pub(crate) const ANCESTORS_MAX: u32 = 4096;
