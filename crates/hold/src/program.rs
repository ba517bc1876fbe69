//! The program that is held, and what it finds around it.
//!
//! It has the supervisor's own variables, but for those that let somebody into the store, and a few of its own: under which
//! token it runs, for which hold, on which node, and where it can read until when it may act. It needs none of them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use engine::lease::Token;
use engine::limits::HOLD_PROGRAM_CHARS_MAX;
use process::{Deadline, PROGRESS_VARIABLE, Program};

use crate::HoldPlan;

/// The variable with the fencing token, for whatever the program acts upon.
pub const TOKEN_VARIABLE: &str = "WATCHBELL_TOKEN";

/// The variable with the name of the hold.
pub const HOLD_VARIABLE: &str = "WATCHBELL_HOLD";

/// The variable with the name of the node that runs the program.
pub const NODE_VARIABLE: &str = "WATCHBELL_NODE";

/// The variable with the path of the file that says until when the program may act.
pub const DEADLINE_FILE_VARIABLE: &str = "WATCHBELL_DEADLINE_FILE";

/// Variables that begin so hold secrets, or say where some are: none of the program's business.
const SECRET: [&str; 3] = ["WATCHBELL_KEY", "WATCHBELL_STORE", "WATCHBELL_NOTIFY_URL"];

/// A program, as it is started each time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldProgram {
    path: PathBuf,
    name: OsString,
    arguments: Vec<OsString>,
    directory: PathBuf,
    variables: Vec<(OsString, OsString)>,
}

/// Why a program cannot be held.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadProgram {
    /// Nothing was named.
    #[error("the program is missing: watchbell hold NAME --store URL -- PROGRAM ARGUMENTS")]
    Missing,
    /// There is no such file.
    #[error("there is no program {}: name its file", .0.display())]
    NotThere(PathBuf),
    /// No directory of PATH has it.
    #[error("no directory of PATH has a program {}: name its file", .0.display())]
    NotFound(PathBuf),
    /// There is something that is no program.
    #[error("{} is no program that this user may run: look at its mode", .0.display())]
    NotExecutable(PathBuf),
}

impl HeldProgram {
    /// The program that a shell would start in this directory with these variables.
    pub fn find(
        command: &[OsString],
        directory: PathBuf,
        variables: impl Iterator<Item = (OsString, OsString)>,
    ) -> Result<Self, BadProgram> {
        let (name, arguments) = command.split_first().ok_or(BadProgram::Missing)?;
        let variables: Vec<_> = variables.filter(|(name, _)| is_passed_on(name)).collect();
        let path = variables.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path);
        let path = find(name, &directory, path.map(OsString::as_os_str))?;
        let (name, arguments) = (name.clone(), arguments.to_vec());
        Ok(Self { path, name, arguments, directory, variables })
    }

    /// The path of its file, as far as that is shown.
    pub fn shown(&self) -> String {
        let path: String =
            self.path.to_string_lossy().chars().take(HOLD_PROGRAM_CHARS_MAX).collect();
        path
    }

    /// The program alone, to find out what keeps it together.
    pub fn bare(&self) -> Program {
        Program::new(&self.path).directory(&self.directory)
    }

    /// The program as it is started with these variables, beside those of its supervisor.
    pub fn with<T: Into<OsString>>(
        &self,
        own: impl IntoIterator<Item = (&'static str, T)>,
    ) -> Program {
        let program = self.bare().name(&self.name).arguments(&self.arguments);
        let own = own.into_iter().map(|(name, value)| (name, value.into()));
        self.with_variables(program, own)
    }

    /// The program as it is started under a token.
    pub(crate) fn under(&self, plan: &HoldPlan, token: Token) -> Program {
        let program = self.bare().name(&self.name).arguments(&self.arguments);
        self.surrounded(program, plan, token)
    }

    /// What a shell does with a command line, in the same surroundings.
    pub(crate) fn shell(&self, line: &str, plan: &HoldPlan, token: Token) -> Program {
        let shell = Program::new("/bin/sh").directory(&self.directory);
        self.surrounded(shell.arguments(["-c", line]), plan, token)
    }

    fn surrounded(&self, program: Program, plan: &HoldPlan, token: Token) -> Program {
        let own = [
            (TOKEN_VARIABLE, OsString::from(token.0.to_string())),
            (HOLD_VARIABLE, OsString::from(&plan.name)),
            (NODE_VARIABLE, OsString::from(&plan.node)),
            (DEADLINE_FILE_VARIABLE, plan.deadline.path().into()),
        ];
        self.with_variables(program, own)
    }

    /// Its supervisor's variables, and then these.
    fn with_variables(
        &self,
        program: Program,
        own: impl IntoIterator<Item = (&'static str, OsString)>,
    ) -> Program {
        let add = |program: Program, (name, value): (&OsStr, &OsStr)| program.variable(name, value);
        let all = self.variables.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()));
        let program = all.fold(program, add);
        own.into_iter().fold(program, |program, (name, value)| program.variable(name, value))
    }
}

/// The program's deadline, as the shim keeps it.
pub(crate) fn deadline(of: engine::hold::timing::HoldDeadline) -> Deadline {
    Deadline { stop_at: of.stop_at, kill_at: of.kill_at }
}

fn is_passed_on(name: &OsStr) -> bool {
    let bytes = name.as_bytes();
    let is_name = !bytes.is_empty() && !bytes.contains(&b'=');
    let is_secret = SECRET.iter().any(|secret| bytes.starts_with(secret.as_bytes()));
    is_name && !is_secret && name != PROGRESS_VARIABLE
}

/// As a shell finds it.
fn find(name: &OsStr, directory: &Path, path: Option<&OsStr>) -> Result<PathBuf, BadProgram> {
    let is_program = |file: &Path| {
        file.metadata()
            .is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
    };
    if name.as_bytes().contains(&b'/') {
        let file = directory.join(name);
        return match file.symlink_metadata() {
            _ if is_program(&file) => Ok(file),
            Ok(_) => Err(BadProgram::NotExecutable(file)),
            Err(_) => Err(BadProgram::NotThere(file)),
        };
    }
    let usual = OsStr::new("/usr/local/bin:/usr/bin:/bin");
    let mut places = std::env::split_paths(path.unwrap_or(usual));
    places
        .find_map(|place| Some(directory.join(place).join(name)).filter(|file| is_program(file)))
        .ok_or_else(|| BadProgram::NotFound(name.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(command: &[&str], variables: &[(&str, &str)]) -> Result<HeldProgram, BadProgram> {
        let command: Vec<OsString> = command.iter().map(OsString::from).collect();
        let variables = variables.iter().map(|(name, value)| (name.into(), value.into()));
        HeldProgram::find(&command, "/tmp".into(), variables)
    }

    #[test]
    fn a_program_is_found_as_a_shell_finds_it() {
        let named = held(&["/bin/sh"], &[]).unwrap();
        assert_eq!(named.path, Path::new("/bin/sh"));
        let found = held(&["sh", "-c", "true"], &[("PATH", "/nowhere:/bin")]).unwrap();
        assert_eq!((found.path, found.name), ("/bin/sh".into(), "sh".into()));
        assert_eq!(held(&["sh"], &[]).unwrap().path.file_name(), Some(OsStr::new("sh")));
        assert_eq!(held(&[], &[]), Err(BadProgram::Missing));
        assert_eq!(held(&["./no"], &[]), Err(BadProgram::NotThere("/tmp/./no".into())));
        assert_eq!(
            held(&["/etc/passwd"], &[]),
            Err(BadProgram::NotExecutable("/etc/passwd".into()))
        );
        let nowhere = held(&["sh"], &[("PATH", "/nowhere")]);
        assert_eq!(nowhere, Err(BadProgram::NotFound("sh".into())));
    }

    #[test]
    fn what_lets_somebody_into_the_store_is_not_passed_on() {
        let variables = [
            ("WATCHBELL_KEY", "wbk_1"),
            ("WATCHBELL_KEY_FILE", "/key"),
            ("WATCHBELL_STORE", "redis://:secret@host"),
            ("WATCHBELL_NOTIFY_URL", "https://chat/secret"),
            ("WATCHBELL_PROGRESS_FD", "3"),
            ("A=B", ""),
            ("WATCHBELL_TTL", "5s"),
            ("HOME", "/root"),
        ];
        let passed = held(&["/bin/sh"], &variables).unwrap().variables;
        let names: Vec<_> = passed.iter().map(|(name, _)| name.to_str().unwrap()).collect();
        assert_eq!(names, ["WATCHBELL_TTL", "HOME"]);
    }
}
