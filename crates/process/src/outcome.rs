//! What became of a program.

use std::time::Duration;

use crate::Isolation;

/// What became of a program. That there is one proves that its tree is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// How the program's first process ended.
    pub end: End,
    /// Why the tree ended.
    pub cause: Cause,
    /// From the start of the program until its end.
    pub duration: Duration,
    /// What the tree used; none if the shim was killed, because the shim counts it.
    pub usage: Option<Usage>,
    /// What kept the tree together.
    pub isolation: Isolation,
    /// How long after the second instant of its deadline ([`Deadline::kill_at`](crate::Deadline)) the tree was empty, if it was
    /// not before; none for a program that was not begun. If the shim was killed, this is when the supervisor saw it, and the
    /// tree may have been empty sooner.
    pub kill_late: Option<Duration>,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It exited with this code.
    Exited(i32),
    /// It was ended by the signal of this number.
    Signaled(i32),
    /// Nobody saw it: the shim was killed, and the tree with it.
    Unseen,
}

/// Why a tree ended.
///
/// A tree also ends when its supervisor dies; nobody is left then to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The program ended by itself, or somebody else sent it a signal.
    Itself,
    /// It was told to stop, and did within its grace.
    Stopped,
    /// It was told to stop, did not within its grace, and was killed.
    KilledAfterGrace,
    /// It was killed on demand.
    Killed,
    /// Nobody confirmed in time that it may go on: it was told to end, if its deadline left time for that, and killed
    /// if it did not.
    Unconfirmed,
    /// The shim was killed by somebody else, or had to be because it did not answer; the tree went with it.
    ShimKilled,
}

/// What a tree used: all of its processes that ended before or with the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Processor time outside of the kernel.
    pub cpu_user: Duration,
    /// Processor time inside of the kernel.
    pub cpu_system: Duration,
    /// The most memory that a single process of the tree had in RAM. A process that uses less than the shim counts as much
    /// as the shim, which it was before it became the program: a few MiB.
    pub memory_peak_bytes: u64,
}
