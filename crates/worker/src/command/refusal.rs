//! Why a command is not run: sentences that become the error of its run.
//!
//! Whoever reads one sees a run that failed for good, and wants to know what to change: in the run, or on the worker. It
//! would be refused again, so it is not tried again. What merely cannot be read at the moment is, after a pause.

use std::fmt;
use std::io;

use rustix::io::Errno;

/// Why a command is not run. Nothing of it was started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandRefusal {
    /// The run has no command.
    #[error("this worker runs commands, and the run has none: submit it with a program")]
    NoCommand,
    /// Programs are not looked for.
    #[error("{0} is no absolute path: programs are not looked for, so name the file")]
    Relative(Shown),
    /// A path that goes up is refused without a look at where it leads.
    #[error("{0} has `..` in it: name the program by its plain path")]
    Upward(Shown),
    /// Nobody may run it here.
    #[error(
        "{0} is not allowed on this worker: start the worker with --allow {0}, or submit to another queue"
    )]
    NotAllowed(Shown),
    /// A link that would lead past the list.
    #[error(
        "{path} leads to {target}, outside of the directory that is allowed: start the worker with --allow {path}"
    )]
    LeadsOut {
        /// What the run says.
        path: Shown,
        /// Where that is.
        target: Shown,
    },
    /// It is allowed, and not there.
    #[error("{path} cannot be found on this worker: {why}")]
    Missing {
        /// What the run says.
        path: Shown,
        /// What the operating system says.
        why: String,
    },
    /// Its file system does not answer as it should, so nobody knows whether it may be run.
    #[error("{path} cannot be looked at on this worker at the moment: {why}")]
    Unreadable {
        /// What the run says.
        path: Shown,
        /// What the operating system says.
        why: String,
    },
    /// So many others wait for their file systems that nobody may look at its own.
    #[error(
        "{path} was not looked at on this worker: {unanswered} others wait for file systems that do not answer; see what is \
         mounted there"
    )]
    NoLooks {
        /// What the run says.
        path: Shown,
        /// How many wait.
        unanswered: usize,
    },
    /// Directories, devices and sockets are no programs.
    #[error("{0} is not a regular file, so it cannot be run")]
    NoFile(Shown),
    /// Its mode says so.
    #[error("{0} is not executable: chmod +x {0} on the worker")]
    NotExecutable(Shown),
    /// A variable that would make an allowed program do something else.
    #[error(
        "the variable {0} decides what code an allowed program loads or starts: leave it out, and set it in a program on the worker"
    )]
    Loader(Shown),
    /// A variable of ours.
    #[error(
        "the variable {0} begins with WATCHBELL_, and those are set by the worker: give it another name"
    )]
    Own(Shown),
    /// The working directory.
    #[error("the working directory {path} cannot be used on this worker: {why}")]
    Directory {
        /// What the run says.
        path: Shown,
        /// What is wrong with it.
        why: String,
    },
    /// What no system takes.
    #[error("the command cannot be started: {0}")]
    Impossible(String),
}

impl CommandRefusal {
    /// Whether another attempt may not be refused, although neither the run nor the worker is changed.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Unreadable { .. } | Self::NoLooks { .. })
    }
}

/// Whether the file system says nothing about the file, and may do so later: a network that is away, a disk that fails.
pub(super) fn is_passing(why: &io::Error) -> bool {
    let lasting = [
        Errno::NOENT,
        Errno::NOTDIR,
        Errno::ISDIR,
        Errno::ACCESS,
        Errno::PERM,
        Errno::LOOP,
        Errno::NAMETOOLONG,
        Errno::INVAL,
    ];
    let is = |errno: &Errno| why.raw_os_error() == Some(errno.raw_os_error());
    why.raw_os_error().is_some() && !lasting.iter().any(is)
}

/// A text of a run, as it may be shown: without control characters, and not for ever.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown(String);

/// Characters of a text that are shown.
const SHOWN_CHARS_MAX: usize = 200;

impl Shown {
    pub(super) fn new(text: &str) -> Self {
        let mut shown: String = text.chars().take(SHOWN_CHARS_MAX).flat_map(visible).collect();
        if text.chars().nth(SHOWN_CHARS_MAX).is_some() {
            shown.push('…');
        }
        Self(shown)
    }

    pub(super) fn of_path(path: &std::path::Path) -> Self {
        Self::new(&path.to_string_lossy())
    }
}

/// Control characters as escapes, everything else as it is.
fn visible(char: char) -> impl Iterator<Item = char> {
    let escaped = char.is_control().then(|| char.escape_default());
    let plain = escaped.is_none().then_some(char);
    escaped.into_iter().flatten().chain(plain)
}

impl fmt::Display for Shown {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_run_says_is_shown_without_control_characters_and_cut() {
        assert_eq!(Shown::new("/bin/\u{1b}[2J\n").to_string(), "/bin/\\u{1b}[2J\\n");
        let long = "ü".repeat(SHOWN_CHARS_MAX);
        assert_eq!(Shown::new(&long).to_string(), long);
        assert_eq!(Shown::new(&(long.clone() + "x")).to_string(), long + "…");
    }

    #[test]
    fn a_file_system_that_fails_says_nothing_about_a_file_and_one_that_works_does() {
        for errno in [Errno::STALE, Errno::IO, Errno::TIMEDOUT, Errno::NOMEM, Errno::NOTCONN] {
            assert!(is_passing(&errno.into()), "{errno}");
        }
        for errno in [Errno::NOENT, Errno::NOTDIR, Errno::ACCESS, Errno::LOOP, Errno::NAMETOOLONG] {
            assert!(!is_passing(&errno.into()), "{errno}");
        }
        // A path with a NUL in it reaches no system.
        assert!(!is_passing(&io::ErrorKind::InvalidInput.into()));
    }
}
