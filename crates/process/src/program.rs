//! What is to be started, as the supervisor says it and as the shim is told.
//!
//! Nothing is inherited: no variable, no descriptor, no working directory. What a program gets is what stands here, and
//! beside it its standard input, two pipes for what it prints, and one for its progress; or, instead of all these, the
//! [`Streams`](crate::Streams) that its supervisor hands it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::process::{getegid, geteuid};

use crate::deadline::Deadline;
use crate::error::ProgramError;
use crate::limits::{ARGUMENT_BYTES_MAX, ARGUMENTS_BYTES_MAX, STDIN_BYTES_MAX};

/// The variable in which a program finds the number of the descriptor that takes its progress.
pub const PROGRESS_VARIABLE: &str = "WATCHBELL_PROGRESS_FD";

/// A program that is to be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    pub(crate) path: PathBuf,
    pub(crate) name: Option<OsString>,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) variables: Vec<(OsString, OsString)>,
    pub(crate) directory: PathBuf,
    pub(crate) stdin: Option<Vec<u8>>,
    pub(crate) user: Option<User>,
    pub(crate) limits: Limits,
    pub(crate) deadline: Option<Deadline>,
}

/// Whom a program runs as. It has no supplementary groups then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct User {
    /// The id of the user.
    pub uid: u32,
    /// The id of the group.
    pub gid: u32,
}

/// What a tree may have at most. Needs a cgroup: where none is permitted, a program with limits is not started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Bytes of memory that all its processes have together.
    pub memory_bytes_max: Option<u64>,
    /// Processes and threads; one more for the moment in which the program starts.
    pub processes_max: Option<u64>,
}

impl Limits {
    pub(crate) fn are_none(self) -> bool {
        self == Self::default()
    }
}

impl Program {
    /// The program of this file, without arguments and variables, in the root directory, with nothing on standard input.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            name: None,
            arguments: Vec::new(),
            variables: Vec::new(),
            directory: PathBuf::from("/"),
            stdin: None,
            user: None,
            limits: Limits::default(),
            deadline: None,
        }
    }

    /// The same under this name, as its argument 0 instead of its path: some programs do by it what they do.
    #[must_use]
    pub fn name(mut self, name: impl Into<OsString>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The same with one more argument.
    #[must_use]
    pub fn argument(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// The same with more arguments.
    #[must_use]
    pub fn arguments<T: Into<OsString>>(mut self, more: impl IntoIterator<Item = T>) -> Self {
        self.arguments.extend(more.into_iter().map(Into::into));
        self
    }

    /// The same with one more variable; the last of a name counts.
    #[must_use]
    pub fn variable(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    /// The same in this working directory.
    #[must_use]
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = directory.into();
        self
    }

    /// The same with these bytes on standard input, instead of `/dev/null`.
    #[must_use]
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = Some(bytes.into());
        self
    }

    /// The same as somebody else.
    #[must_use]
    pub fn user(mut self, user: User) -> Self {
        self.user = Some(user);
        self
    }

    /// The same within these limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The same with an end: its tree is told to end at the first instant and killed at the second, unless
    /// [`Tree::confirm`](crate::Tree::confirm) gives it later ones before the first. The shim sees to it, also when the
    /// supervisor is stopped or stuck.
    #[must_use]
    pub fn deadline(mut self, deadline: Deadline) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Whether it can be started at all, before anything is tried.
    pub(crate) fn check(&self) -> Result<(), ProgramError> {
        for path in [&self.path, &self.directory] {
            if !path.is_absolute() {
                return Err(ProgramError::Relative(path.clone()));
            }
        }
        for (name, _) in &self.variables {
            if name.is_empty() || name.as_bytes().contains(&b'=') {
                return Err(ProgramError::Variable(name.clone()));
            }
            if name == PROGRESS_VARIABLE {
                return Err(ProgramError::OwnVariable(PROGRESS_VARIABLE));
            }
        }
        self.check_texts()?;
        let bytes = self.stdin.as_ref().map_or(0, Vec::len);
        if bytes > STDIN_BYTES_MAX {
            return Err(ProgramError::LongStdin { bytes, max: STDIN_BYTES_MAX });
        }
        if [self.limits.memory_bytes_max, self.limits.processes_max].contains(&Some(0)) {
            return Err(ProgramError::NoRoom);
        }
        if self.other_user().is_some() && !geteuid().is_root() {
            return Err(ProgramError::UserNeedsRoot);
        }
        Ok(())
    }

    fn check_texts(&self) -> Result<(), ProgramError> {
        let paths = [self.path.as_os_str(), self.directory.as_os_str()];
        let names = self.variables.iter().flat_map(|(name, value)| [name, value]);
        let mut all = 0;
        let texts = self.arguments.iter().chain(names).map(OsString::as_os_str);
        let name = self.name.as_deref();
        for text in paths.into_iter().chain(name).chain(texts) {
            if text.as_bytes().contains(&0) {
                return Err(ProgramError::Zero(text.to_owned()));
            }
            all += text.len() + size_of::<usize>();
        }
        let variables = self.variables.iter().map(|(name, value)| name.len() + 1 + value.len());
        let longest = self.arguments.iter().map(|argument| argument.len()).chain(variables).max();
        if let Some(bytes) = longest.filter(|bytes| *bytes > ARGUMENT_BYTES_MAX) {
            return Err(ProgramError::LongArgument { bytes, max: ARGUMENT_BYTES_MAX });
        }
        if all > ARGUMENTS_BYTES_MAX {
            return Err(ProgramError::LongArguments { bytes: all, max: ARGUMENTS_BYTES_MAX });
        }
        Ok(())
    }

    /// The user that it runs as, if that is not the supervisor's own.
    pub(crate) fn other_user(&self) -> Option<User> {
        let own = User { uid: geteuid().as_raw(), gid: getegid().as_raw() };
        self.user.filter(|user| *user != own || geteuid().is_root())
    }

    /// What the shim is told. Standard input comes as a descriptor, limits are launch's to set.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        put(&mut bytes, self.path.as_os_str());
        put(&mut bytes, self.directory.as_os_str());
        put(&mut bytes, self.name.as_deref().unwrap_or(self.path.as_os_str()));
        put_number(&mut bytes, self.arguments.len());
        for argument in &self.arguments {
            put(&mut bytes, argument);
        }
        put_number(&mut bytes, self.variables.len());
        for (name, value) in &self.variables {
            put(&mut bytes, name);
            put(&mut bytes, value);
        }
        let user = self.other_user().map_or(vec![], |user| vec![user.uid, user.gid]);
        put_number(&mut bytes, user.len());
        bytes.extend(user.iter().flat_map(|id| id.to_le_bytes()));
        bytes
    }

    /// What the supervisor said; none if it is not what [`encode`](Self::encode) writes.
    pub(crate) fn decode(mut bytes: &[u8]) -> Option<Self> {
        let rest = &mut bytes;
        let mut program = Self::new(Path::new(&take(rest)?));
        program.directory = take(rest)?.into();
        program.name = Some(take(rest)?);
        for _ in 0..take_number(rest)? {
            program.arguments.push(take(rest)?);
        }
        for _ in 0..take_number(rest)? {
            program.variables.push((take(rest)?, take(rest)?));
        }
        if take_number(rest)? == 2 {
            program.user = Some(User { uid: take_number(rest)?, gid: take_number(rest)? });
        }
        rest.is_empty().then_some(program)
    }
}

fn put(bytes: &mut Vec<u8>, text: &OsStr) {
    put_number(bytes, text.len());
    bytes.extend(text.as_bytes());
}

fn put_number(bytes: &mut Vec<u8>, number: usize) {
    let number = u32::try_from(number).expect("what was checked is far smaller");
    bytes.extend(number.to_le_bytes());
}

fn take(rest: &mut &[u8]) -> Option<OsString> {
    let len = take_number(rest)?;
    let text = rest.split_off(..usize::try_from(len).ok()?)?;
    Some(OsString::from_vec(text.to_vec()))
}

fn take_number(rest: &mut &[u8]) -> Option<u32> {
    let number = rest.split_off(..size_of::<u32>())?;
    Some(u32::from_le_bytes(number.try_into().expect("four bytes were taken")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program() -> Program {
        Program::new("/bin/true")
    }

    #[test]
    fn the_shim_is_told_what_the_supervisor_said() {
        let told = program()
            .name("-true")
            .arguments(["-a", "", "ü b"])
            .variable("A", "1=2")
            .variable("EMPTY", "")
            .directory("/tmp");
        assert_eq!(Program::decode(&told.encode()), Some(told.clone()));
        for len in 0..told.encode().len() {
            assert_eq!(Program::decode(&told.encode()[..len]), None, "cut to {len} bytes");
        }
    }

    #[test]
    fn what_no_system_takes_is_refused_before_it_is_tried() {
        let relative = ProgramError::Relative("true".into());
        assert_eq!(Program::new("true").check(), Err(relative));
        assert_eq!(program().directory("x").check(), Err(ProgramError::Relative("x".into())));
        assert_eq!(program().argument("a\0b").check(), Err(ProgramError::Zero("a\0b".into())));
        assert_eq!(program().variable("A", "\0").check(), Err(ProgramError::Zero("\0".into())));
        for name in ["", "A=B"] {
            let refused = program().variable(name, "").check();
            assert_eq!(refused, Err(ProgramError::Variable(name.into())));
        }
        let own = program().variable(PROGRESS_VARIABLE, "1").check();
        assert_eq!(own, Err(ProgramError::OwnVariable(PROGRESS_VARIABLE)));
        let nothing = Limits { processes_max: Some(0), ..Limits::default() };
        assert_eq!(program().limits(nothing).check(), Err(ProgramError::NoRoom));
    }

    #[test]
    fn an_argument_has_at_most_what_linux_takes() {
        let of = |bytes| program().argument("x".repeat(bytes)).check();
        assert_eq!(of(ARGUMENT_BYTES_MAX), Ok(()));
        let (bytes, max) = (ARGUMENT_BYTES_MAX + 1, ARGUMENT_BYTES_MAX);
        assert_eq!(of(bytes), Err(ProgramError::LongArgument { bytes, max }));
    }

    #[test]
    fn all_arguments_together_are_bounded() {
        let full = |last| {
            let own = program().path.as_os_str().len() + 1 + 2 * size_of::<usize>();
            let piece = 100_000 - size_of::<usize>();
            let rest = ARGUMENTS_BYTES_MAX - own - 10 * 100_000 - size_of::<usize>();
            program().arguments(vec!["x".repeat(piece); 10]).argument("x".repeat(rest + last))
        };
        assert_eq!(full(0).check(), Ok(()));
        let (bytes, max) = (ARGUMENTS_BYTES_MAX + 1, ARGUMENTS_BYTES_MAX);
        assert_eq!(full(1).check(), Err(ProgramError::LongArguments { bytes, max }));
    }

    #[test]
    fn standard_input_is_bounded() {
        assert_eq!(program().stdin(vec![0; STDIN_BYTES_MAX]).check(), Ok(()));
        let (bytes, max) = (STDIN_BYTES_MAX + 1, STDIN_BYTES_MAX);
        let refused = program().stdin(vec![0; bytes]).check();
        assert_eq!(refused, Err(ProgramError::LongStdin { bytes, max }));
    }
}
