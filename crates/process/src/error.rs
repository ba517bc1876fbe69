//! What can go wrong, and what to do then.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::Isolation;

/// Why a program was not started. Nothing of it is left.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// It asks for something that cannot be: mend it.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The operating system does not start it: mend the program, its files or its permissions.
    #[error("{fault} {}: {why}", path.display())]
    NotStartable {
        /// What is wrong.
        fault: Fault,
        /// The path of what is wrong.
        path: PathBuf,
        /// What the operating system says.
        why: io::Error,
    },
    /// No isolation that was asked for is permitted here: permit one, or ask for a weaker one.
    #[error("no isolation that was asked for is permitted here: {}", list(refusals))]
    Isolation {
        /// What was tried, and why it was refused.
        refusals: Vec<Refusal>,
    },
    /// A limit cannot be kept here: let the supervisor make cgroups with that controller, or ask for no limit.
    #[error("the limit of {what} cannot be kept here: {refusal}")]
    Limit {
        /// Of what: memory or processes.
        what: &'static str,
        /// What was refused.
        refusal: Refusal,
    },
    /// The machine has no room for more processes, descriptors or memory, or the program cannot be read at the moment: try
    /// again later.
    #[error("the machine has no room for it now, or cannot read it: {0}")]
    Busy(io::Error),
    /// Launch or shim ended early: somebody killed them, or memory is short. Try again later.
    #[error("what was to start it ended before it did: try again")]
    Interrupted,
    /// It took longer than any machine in order takes: try again later.
    #[error("starting it took too long, and was given up: try again")]
    TooSlow,
}

fn list(refusals: &[Refusal]) -> String {
    refusals.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// What is wrong with a program as it was asked for.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// Programs are not looked for: name the file.
    #[error("{} is no absolute path", .0.display())]
    Relative(PathBuf),
    /// The operating system takes no such text.
    #[error("{0:?} has a byte 0 in it")]
    Zero(OsString),
    /// A variable needs a name without `=`.
    #[error("{0:?} is no name of a variable")]
    Variable(OsString),
    /// This variable is set for every program: leave it out.
    #[error("the variable {0} is ours to set")]
    OwnVariable(&'static str),
    /// One text is too long: pass it on standard input.
    #[error(
        "an argument or variable has {bytes} bytes, and {max} are the most: use standard input"
    )]
    LongArgument {
        /// What it has.
        bytes: usize,
        /// What it may have.
        max: usize,
    },
    /// All texts together are too long: pass them on standard input.
    #[error(
        "arguments and variables have {bytes} bytes, and {max} are the most: use standard input"
    )]
    LongArguments {
        /// What they have.
        bytes: usize,
        /// What they may have.
        max: usize,
    },
    /// Too much for standard input: let the program fetch it.
    #[error("standard input has {bytes} bytes, and {max} are the most: let the program fetch them")]
    LongStdin {
        /// What it has.
        bytes: usize,
        /// What it may have.
        max: usize,
    },
    /// Only a supervisor that is root may start programs as somebody else.
    #[error("only root starts programs as another user: leave the user out, or supervise as root")]
    UserNeedsRoot,
    /// A limit of nothing lets nothing start.
    #[error("a limit of 0 lets no program start")]
    NoRoom,
}

/// What the operating system refused when a program was to be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The file of the program.
    Program,
    /// The program is there, and what it needs to be started is not: the interpreter that its first line names, or the
    /// loader of its libraries.
    Interpreter,
    /// Its working directory.
    Directory,
    /// Becoming its user.
    User,
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Program => "cannot start the program",
            Self::Interpreter => "cannot find the interpreter or loader of the program",
            Self::Directory => "cannot enter the working directory",
            Self::User => "cannot change to the user of the program",
        })
    }
}

/// That an isolation, or a limit in it, is not permitted here.
#[derive(Debug)]
pub struct Refusal {
    /// What was tried.
    pub isolation: Isolation,
    /// Which step of it was refused.
    pub step: Step,
    /// What the operating system says.
    pub why: io::Error,
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}: {}", self.isolation.word(), self.step, self.why)
    }
}

/// A step on the way to a tree that may be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Making the namespaces.
    Unshare,
    /// Giving the user a name in the user namespace.
    MapUser,
    /// Keeping the right to mount until the shim has mounted.
    Capability,
    /// Mounting `/proc` for the new namespace.
    MountProc,
    /// Reading `/proc`, which a weak kill needs.
    ReadProc,
    /// Making a cgroup.
    Cgroup,
    /// Setting the limit of memory.
    MemoryLimit,
    /// Setting the limit of processes.
    ProcessLimit,
    /// Starting the shim.
    Shim,
}

impl Step {
    pub(crate) const ALL: [Self; 9] = [
        Self::Unshare,
        Self::MapUser,
        Self::Capability,
        Self::MountProc,
        Self::ReadProc,
        Self::Cgroup,
        Self::MemoryLimit,
        Self::ProcessLimit,
        Self::Shim,
    ];
}

impl fmt::Display for Step {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Unshare => "making the namespaces",
            Self::MapUser => "mapping the user into its namespace",
            Self::Capability => "keeping the right to mount",
            Self::MountProc => "mounting /proc",
            Self::ReadProc => "reading /proc",
            Self::Cgroup => "making a cgroup",
            Self::MemoryLimit => "setting the limit of memory in a cgroup",
            Self::ProcessLimit => "setting the limit of processes in a cgroup",
            Self::Shim => "starting the shim",
        })
    }
}

/// Both guards of a tree without a namespace were killed from outside, so nobody knows what is left of it: look for
/// its processes by hand before the same work begins elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "shim and launch of a tree without a namespace were both killed: look for what is left of it"
)]
pub struct Lost;
