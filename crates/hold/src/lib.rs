//! Holds: an unmodified program that runs on at most one machine.
//!
//! What a supervisor does is decided by `engine::hold::life`; here it is done, with a session, a candidacy and a tree of
//! processes:
//!
//! ```text
//!  store ◀── session, candidacy ──▶ supervisor ◀── life: what to do
//!                                    │      │
//!                     lock, deadline file   launch ── shim ── program
//! ```
//!
//! - `supervisor`: sessions and campaigns, one after the other
//! - `tenure`: from having the claim to having nothing any more
//! - `plan`, `program`: what is held, and what the program finds around it
//! - `lock`: nothing of a former start is left on this machine
//! - `deadline`: until when the program may act, for programs that look
//! - `health`, `output`, `signals`: what is asked of it, what it prints, what it is told
//! - `story`: what is shown of all that: states, the record in the head of the election, transitions, figures
//!
//! Nobody here waits for a disk, for whoever reads what is printed, or for the store: each has a task of its own, so that
//! renewals and confirmations go on.

mod deadline;
mod health;
mod lock;
mod output;
mod plan;
mod program;
mod signals;
mod story;
mod supervisor;
mod tenure;

pub use deadline::DeadlineFile;
pub use lock::{HoldLock, LockError};
pub use output::{OutputFiles, OutputPlan};
pub use plan::HoldPlan;
pub use program::{
    BadProgram, DEADLINE_FILE_VARIABLE, HOLD_VARIABLE, HeldProgram, NODE_VARIABLE, TOKEN_VARIABLE,
};
pub use signals::Signals;
pub use story::{HoldFigures, HoldSight, Tell};
pub use supervisor::{HoldEnd, supervise};
