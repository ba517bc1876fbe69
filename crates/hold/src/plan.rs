//! What is held, and how.

use std::sync::Arc;

use engine::hold::life::LifeRules;
use process::{Isolation, Launcher, Streams, Wanted};
use store::claim::Claim;
use store::election::Mode;

use crate::lock::HadLock;
use crate::{DeadlineFile, HeldProgram, HoldLock};

/// What a supervisor is made of. Whatever can be wrong about it was told before.
pub struct HoldPlan {
    /// What is campaigned for.
    pub claim: Claim,
    /// Its name, for people and for the program.
    pub name: String,
    /// Its project, as `election approve` is told it; none for the usual one.
    pub project: Option<String>,
    /// The node that this is.
    pub node: String,
    /// How a candidate becomes a holder.
    pub mode: Mode,
    /// When the program starts and ends.
    pub rules: LifeRules,
    /// The program.
    pub program: HeldProgram,
    /// What it reads and prints.
    pub streams: Arc<Streams>,
    /// What a shell runs to know whether the program is well.
    pub health: Option<String>,
    /// What keeps the program's processes together here.
    pub isolation: Isolation,
    /// The lock of this hold on this machine.
    pub lock: HoldLock,
    /// Where the program finds until when it may act.
    pub deadline: DeadlineFile,
}

impl HoldPlan {
    /// What starts the program once: its tree has the lock, and nobody else when this is dropped.
    pub(crate) fn launcher(&self, lock: HadLock) -> Launcher {
        Launcher::new(Wanted::Exactly(self.isolation)).holding(lock)
    }
}
