//! What a supervisor is to do. It carries orders out in the order in which they were given.

use std::time::Duration;

use crate::hold::record::{HandOverCause, RiskReason};
use crate::hold::timing::HoldDeadline;

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LifeOrder {
    /// Get the lock of this hold on this machine, however long that takes.
    TakeLock,
    /// Start the program, which must be gone by then. The lock goes over to its tree, and ends with it.
    Start(HoldDeadline),
    /// Tell the shim that the program may go on until then.
    Confirm(HoldDeadline),
    /// Tell the program to end, and kill its tree after the grace.
    Stop {
        /// How long it may take.
        grace: Duration,
    },
    /// Kill the tree.
    Kill,
    /// Run the health command.
    Check {
        /// How long it may take.
        limit: Duration,
    },
    /// Give the claim up for this reason, and the lock before, if it was had: nothing of the program is left. Unless this
    /// supervisor ends, others go first.
    GiveUp(HandOverCause),
    /// The claim is gone: let the lock go, and campaign again.
    Campaign,
    /// An assumption was seen broken: say so.
    Raise(RiskReason, String),
    /// Close the session: this supervisor has nothing any more.
    Quit,
    /// End without giving anything up: something of the program may be left.
    Abandon,
}
