//! What a supervisor is about, for people: in logs, metrics, and the record of its hold.

use crate::hold::record::HoldState;

/// What a supervisor is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LifeState {
    /// Somebody else has the claim, or nobody.
    Candidate,
    /// It has the claim, and a person must approve.
    WaitingForApproval,
    /// It has the claim, and may not start yet.
    WaitingToStart,
    /// The program runs.
    Running,
    /// The program was told to end, or the claim is being given up.
    Stopping,
    /// There is no right, or none that can be proved, and something of the program may be left.
    Lost,
}

impl LifeState {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Candidate,
        Self::WaitingForApproval,
        Self::WaitingToStart,
        Self::Running,
        Self::Stopping,
        Self::Lost,
    ];

    /// As it is written: in logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Candidate => "candidate",
            Self::WaitingForApproval => "waiting_for_approval",
            Self::WaitingToStart => "waiting_to_start",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Lost => "lost",
        }
    }

    /// What the record of a holder says of it; nothing, if it is none.
    pub const fn recorded(self) -> Option<HoldState> {
        match self {
            Self::Candidate | Self::WaitingForApproval => None,
            Self::WaitingToStart => Some(HoldState::WaitingToStart),
            Self::Running => Some(HoldState::Running),
            Self::Stopping | Self::Lost => Some(HoldState::Stopping),
        }
    }
}
