//! What a supervisor is told: what happened, and how things stood then.

use std::time::Duration;

use crate::lease::Reading;

/// How things stand at the moment of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LifeSight {
    /// The clocks.
    pub now: Reading,
    /// For how long the claim may be acted upon, if it may.
    pub permit: Option<Duration>,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LifeInput {
    /// The claim is this node's, and waits for a person.
    Awaits,
    /// It does not wait any more, and this node has nothing.
    AwaitsNoMore,
    /// The claim is this node's, and may be acted upon.
    Claimed,
    /// A renewal that was sent then was acknowledged.
    Renewed {
        /// The clocks before it was sent.
        sent: Reading,
    },
    /// The lock of this hold on this machine is this supervisor's.
    Locked,
    /// It cannot be had, whoever has it: its directory is gone, perhaps.
    NotLocked,
    /// The program was started.
    Started,
    /// It was not, and nothing of it is left.
    NotStarted,
    /// The tree of the program is empty.
    Ended(TreeEnd),
    /// Nobody knows what is left of the tree: both guards were killed.
    LostSight,
    /// A health command is done.
    Checked(Health),
    /// Somebody wants this supervisor to end.
    StopAsked,
    /// Somebody wants it to end at once.
    KillAsked,
    /// Somebody wishes that another node has the claim.
    Wished,
    /// The claim, or the session, is not this node's any more, or the store may have forgotten about it.
    RightLost,
    /// The claim was given up, as it was ordered.
    GivenUp,
    /// Time has passed.
    Tick,
}

/// How a tree ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeEnd {
    /// How long the program ran.
    pub ran: Duration,
    /// Whether it was ended because nothing was confirmed in time.
    pub is_unconfirmed: bool,
    /// How long after its last deadline the tree was empty, if it was not before.
    pub kill_late: Option<Duration>,
}

/// What a health command said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// The program is well.
    Good,
    /// It is not, or the command could not tell.
    Bad,
}
