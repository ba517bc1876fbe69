//! A program, as a tree of processes that can be ended for certain.
//!
//! Whoever runs other people's programs must be able to end them: when they are cancelled, when their time is up, and
//! above all when nobody supervises them any more. A signal to one process is not enough. Programs start others, ignore
//! `SIGTERM`, fork twice, make sessions of their own. And whoever would send the signal may be dead.
//!
//! So between the supervisor and a program stand two small processes, both this very binary once more, started with a
//! hidden first argument, since the workspace has no `unsafe` and therefore no `fork`:
//!
//! ```text
//! supervisor ──▶ launch ──▶ shim ──▶ program ──▶ …
//!      │                     │ PID 1 of a new PID namespace, where that is permitted
//!      └── control socket ───┘
//! ```
//!
//! **launch** makes the namespace, starts the shim in it, and waits. The **shim** mounts `/proc`, starts the program, reaps
//! what nobody else reaps, and ends the whole tree in any of five cases: the program has ended, it is told to, a stop took
//! longer than its grace, its deadline has passed, or its socket closes. The last one is the point: the socket closes when the
//! supervisor dies, of whatever cause, and the kernel ends everything in a PID namespace whose first process has ended. The
//! shim allocates nothing once the program runs, so that it works also when memory is what is missing.
//!
//! A supervisor can also be alive and of no use: stopped, stuck, cut off from whoever gave it the right to run the program. For
//! that a tree has a [`Deadline`], two instants of a clock that counts on while the machine sleeps. Unless it is confirmed
//! before, the shim tells all of the tree to end at the first, and kills it at the second. So whoever knows the deadline
//! knows when the tree is gone, without asking. A shim that somebody stops is let go on by launch, and killed by
//! the supervisor if that does not help; nothing ends a tree in time whose supervisor, launch and shim are all stopped.
//!
//! The exit of the shim is the last event of a tree. [`Tree::ended`] waits for it, so an [`Outcome`] is also the proof
//! that **nothing of the program is left**. That includes what the program left behind on purpose: its own end is the end
//! of its tree.
//!
//! Where no namespace is permitted (containers without privileges, hardened units), the shim falls back to a cgroup that
//! can be killed, and where that is not permitted either to killing a process group and all that a walk of `/proc` finds.
//! The last is called a **weak kill**. It is the same code for the supervisor, [`Outcome::isolation`] and [`Launcher::counts`]
//! show it, and it differs in two points: a program that forks faster than it is found may keep it busy, and if shim and
//! launch are both killed from outside nobody knows what is left ([`Lost`]).
//!
//! What a program prints comes through pipes ([`Launcher::start`]), or does not come at all, because the program has
//! descriptors of the supervisor's own ([`Launcher::start_on`]).
//!
//! A supervisor that is followed by another one may have to wait until nothing of its predecessor's executes: trees can
//! hold a lock for that ([`Launcher::holding`]).
//!
//! A program that uses this crate calls [`run_role_if_asked`] first thing in `main`. As PID 1 of a container that call
//! also makes it an init that reaps and passes signals on.

mod cgroup;
mod clock;
mod deadline;
mod error;
mod file_limit;
mod guard;
mod isolation;
mod launcher;
pub mod limits;
mod message;
mod outcome;
mod output;
mod program;
mod role;
mod streams;
mod supervised;
mod tree;

pub use clock::since_boot;
pub use deadline::Deadline;
pub use error::{Fault, Lost, ProgramError, Refusal, StartError, Step};
pub use file_limit::raise_file_limit;
pub use isolation::{Isolation, Wanted};
pub use launcher::{Counts, Launcher, Started};
pub use outcome::{Cause, End, Outcome, Usage};
pub use output::Output;
pub use program::{Limits, PROGRESS_VARIABLE, Program, User};
pub use role::run_role_if_asked;
pub use rustix::process::Signal;
pub use streams::Streams;
pub use supervised::{Guards, Tree};
