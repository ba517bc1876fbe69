//! How it ends: one sentence for people, one number for programs.
//!
//! The numbers are part of the surface and documented in docs/exit-codes.md. Every error of the
//! store is given its number here and nowhere else.

use std::io::{self, Write};
use std::process::ExitCode;

use client::ClientError;
use client::problem::Problem;
use engine::record::RecordError;
use store::backup::{BackupReadError, RestoreError, TakeBackupError};
use store::conformance::ClauseViolation;
use store::{CommitError, EngineFault, OpenError, Refusal, ScanError};

use crate::refusal;
use crate::value::escape;

/// What the number says: what the caller can do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    Fine = 0,
    Failed = 1,
    WrongInput = 2,
    Unreachable = 3,
    Refused = 4,
    Damaged = 5,
    NotAllowed = 6,
    StorePassword = 7,
    StoreDatabase = 8,
    StoreTls = 9,
    StoreReadOnly = 10,
    StoreTooOld = 11,
    StoreUnsafe = 12,
    Overlap = 13,
}

impl Exit {
    pub(crate) const ALL: [Self; 14] = [
        Self::Fine,
        Self::Failed,
        Self::WrongInput,
        Self::Unreachable,
        Self::Refused,
        Self::Damaged,
        Self::NotAllowed,
        Self::StorePassword,
        Self::StoreDatabase,
        Self::StoreTls,
        Self::StoreReadOnly,
        Self::StoreTooOld,
        Self::StoreUnsafe,
        Self::Overlap,
    ];

    pub(crate) const fn code(self) -> u8 {
        self as u8
    }

    pub(crate) const fn meaning(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Failed => "a check found a violation, or an operation failed",
            Self::WrongInput => "the command line or a URL is wrong",
            Self::Unreachable => "the store is in use, or it or the server cannot be reached",
            Self::Refused => {
                "refused: no permission, a newer format, a network file system,\n     \
                 a foreign directory, a missing store, no room"
            }
            Self::Damaged => "the store, or a backup, is damaged",
            Self::NotAllowed => {
                "not allowed: the server wants a key, or another one, or is not trusted"
            }
            Self::StorePassword => "the store's engine knows neither this user nor this password",
            Self::StoreDatabase => "the store's engine has no such database",
            Self::StoreTls => "no TLS with the store's engine",
            Self::StoreReadOnly => {
                "the store's engine takes no writes: a replica, a standby, no room"
            }
            Self::StoreTooOld => "the store's engine is too old",
            Self::StoreUnsafe => "the store's engine is set up to drop what it acknowledged",
            Self::Overlap => "a witness saw two act at a time, or a token go back",
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

/// Why a verb ended before it was done, or what it has to say about what it found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    exit: Exit,
    /// What is wrong and what to do; nothing where there is nobody left to read it.
    sentence: Option<String>,
}

impl Ending {
    fn new(exit: Exit, sentence: impl Into<String>) -> Self {
        Self { exit, sentence: Some(sentence.into()) }
    }

    /// A check found something, or an operation did not succeed.
    pub(crate) fn failed(sentence: impl Into<String>) -> Self {
        Self::new(Exit::Failed, sentence)
    }

    /// What was typed is wrong.
    pub(crate) fn wrong_input(sentence: impl Into<String>) -> Self {
        Self::new(Exit::WrongInput, sentence)
    }

    /// A server says what is wrong, and this is how to say it here.
    pub(crate) fn wrong_or_failed(problem: &Problem, sentence: impl Into<String>) -> Self {
        Self::new(exit_of_status(problem.status), sentence)
    }

    /// Somebody else is in the way, or cannot be reached.
    pub(crate) fn unreachable(sentence: impl Into<String>) -> Self {
        Self::new(Exit::Unreachable, sentence)
    }

    /// Something outside has to be changed first.
    pub(crate) fn refused(sentence: impl Into<String>) -> Self {
        Self::new(Exit::Refused, sentence)
    }

    /// What the store holds is damaged.
    pub(crate) fn damaged(sentence: impl Into<String>) -> Self {
        Self::new(Exit::Damaged, sentence)
    }

    /// What must never run twice did.
    pub(crate) fn overlap(sentence: impl Into<String>) -> Self {
        Self::new(Exit::Overlap, sentence)
    }

    /// The damage or the lack of room behind a violation, if that is its cause.
    pub(crate) fn of_cause(violation: &ClauseViolation) -> Option<Self> {
        let ending = match violation {
            ClauseViolation::Broken(_) => return None,
            ClauseViolation::Commit(why) => Self::from(why.clone()),
            ClauseViolation::Scan(why) => Self::from(why.clone()),
        };
        matches!(ending.exit, Exit::Damaged | Exit::Refused).then_some(ending)
    }

    /// The same with one more thing to say.
    pub(crate) fn and(mut self, more: Option<String>) -> Self {
        let sentences: Vec<_> = self.sentence.into_iter().chain(more).collect();
        self.sentence = (!sentences.is_empty()).then(|| sentences.join("; "));
        self
    }

    /// What is wrong and what to do.
    pub(crate) fn sentence(&self) -> Option<&str> {
        self.sentence.as_deref()
    }

    /// Says it on stderr, and returns the number to exit with.
    pub(crate) fn tell(self) -> Exit {
        if let Some(sentence) = self.sentence {
            say(&sentence);
        }
        self.exit
    }
}

/// Says a sentence on stderr. Without a stderr there is nobody to be told about that.
pub(crate) fn say(sentence: &str) {
    let _ = writeln!(io::stderr(), "watchbell: {sentence}");
}

impl From<OpenError> for Ending {
    fn from(error: OpenError) -> Self {
        let exit = match &error {
            OpenError::Url { .. } => Exit::WrongInput,
            OpenError::InUse { .. } | OpenError::Io { .. } => Exit::Unreachable,
            OpenError::Format { why: RecordError::Newer { .. }, .. }
            | OpenError::Missing { .. }
            | OpenError::Permission { .. }
            | OpenError::Network { .. }
            | OpenError::Foreign { .. }
            | OpenError::NotADirectory { .. }
            | OpenError::ReadOnly { .. }
            | OpenError::Full { .. } => Exit::Refused,
            OpenError::Engine { fault, .. } => exit_of_fault(*fault),
            OpenError::Format { why: RecordError::Malformed(_), .. } | OpenError::Corrupt(_) => {
                Exit::Damaged
            }
        };
        Self::new(exit, error.to_string())
    }
}

impl From<ScanError> for Ending {
    fn from(error: ScanError) -> Self {
        let exit = match &error {
            ScanError::Refused(refusal) => exit_of_refusal(refusal),
            ScanError::Unavailable(_) => Exit::Unreachable,
            ScanError::Corrupt(_) => Exit::Damaged,
        };
        Self::new(exit, error.to_string())
    }
}

impl From<CommitError> for Ending {
    fn from(error: CommitError) -> Self {
        let exit = match &error {
            CommitError::Conflict(_) => Exit::Failed,
            CommitError::Refused(refusal) => exit_of_refusal(refusal),
            CommitError::Unavailable(_) | CommitError::Unknown(_) => Exit::Unreachable,
            CommitError::Corrupt(_) => Exit::Damaged,
        };
        Self::new(exit, error.to_string())
    }
}

impl From<BackupReadError> for Ending {
    fn from(error: BackupReadError) -> Self {
        let exit = match &error {
            BackupReadError::Io(_) => Exit::Unreachable,
            BackupReadError::Foreign(_) | BackupReadError::Newer(_) => Exit::Refused,
            BackupReadError::Broken(_) => Exit::Failed,
            BackupReadError::Damaged { .. } => Exit::Damaged,
        };
        // It may repeat what a file says that anybody may have written.
        Self::new(exit, escape(&error.to_string()))
    }
}

impl From<TakeBackupError> for Ending {
    fn from(error: TakeBackupError) -> Self {
        let sentence = error.to_string();
        let exit = match error {
            TakeBackupError::Scan(why) => return why.into(),
            TakeBackupError::Unfinished(_)
            | TakeBackupError::Empty
            | TakeBackupError::TooSlow(_)
            | TakeBackupError::TooLarge(_) => Exit::Refused,
            TakeBackupError::Io(why) if why.kind() == io::ErrorKind::StorageFull => Exit::Refused,
            TakeBackupError::Moved(_) => Exit::Unreachable,
            TakeBackupError::TooLong(_) | TakeBackupError::Io(_) => Exit::Failed,
        };
        Self::new(exit, sentence)
    }
}

impl From<RestoreError> for Ending {
    fn from(error: RestoreError) -> Self {
        let sentence = error.to_string();
        let exit = match error {
            RestoreError::Read(why) => return why.into(),
            RestoreError::Scan(why) => return why.into(),
            RestoreError::Commit(why) => Self::from(why).exit,
            RestoreError::NotEmpty { .. }
            | RestoreError::Other(_)
            | RestoreError::TooLarge { .. } => Exit::Refused,
            RestoreError::InUse { .. } | RestoreError::Overtaken => Exit::Unreachable,
        };
        Self::new(exit, sentence)
    }
}

fn exit_of_fault(fault: EngineFault) -> Exit {
    match fault {
        EngineFault::Unreachable => Exit::Unreachable,
        EngineFault::Password => Exit::StorePassword,
        EngineFault::Key => Exit::NotAllowed,
        EngineFault::Database => Exit::StoreDatabase,
        EngineFault::Tls => Exit::StoreTls,
        EngineFault::ReadOnly => Exit::StoreReadOnly,
        EngineFault::TooOld => Exit::StoreTooOld,
        EngineFault::Unsafe => Exit::StoreUnsafe,
    }
}

fn exit_of_refusal(refusal: &Refusal) -> Exit {
    match refusal {
        Refusal::Full { .. } | Refusal::Denied { .. } => Exit::Refused,
        Refusal::KeyLength { .. } | Refusal::KeyCharacter { .. } => Exit::WrongInput,
        Refusal::ValueBytes { .. }
        | Refusal::Writes { .. }
        | Refusal::Conditions { .. }
        | Refusal::CommitBytes { .. }
        | Refusal::WrittenTwice { .. }
        | Refusal::Empty
        | Refusal::PageLimit { .. } => Exit::Failed,
    }
}

impl From<ClientError> for Ending {
    fn from(error: ClientError) -> Self {
        let sentence = error.to_string();
        match &error {
            ClientError::Url { .. } => Self::new(Exit::WrongInput, sentence),
            ClientError::Setting { what, why } => {
                let flag = what.replace(' ', "-");
                Self::new(Exit::WrongInput, format!("--{flag} cannot be used: {why}"))
            }
            ClientError::Unreachable { .. } => Self::new(
                Exit::Unreachable,
                format!(
                    "{sentence}; start one (watchbell dev, watchbell server), or name another with --server URL"
                ),
            ),
            ClientError::Untrusted { .. } => {
                Self::new(Exit::NotAllowed, sentence.replace("as a CA", "with --ca FILE"))
            }
            ClientError::Answer { .. } => Self::failed(sentence),
            ClientError::Unauthorized(problem)
            | ClientError::Forbidden(problem)
            | ClientError::NotFound(problem)
            | ClientError::Conflict(problem)
            | ClientError::Invalid(problem)
            | ClientError::LimitReached { problem, .. }
            | ClientError::Unavailable { problem, .. }
            | ClientError::Refused(problem) => {
                Self::wrong_or_failed(problem, refusal::of_flags(problem))
            }
        }
    }
}

fn exit_of_status(status: u16) -> Exit {
    match status {
        400 | 422 => Exit::WrongInput,
        401 | 403 => Exit::NotAllowed,
        507 => Exit::Refused,
        502..=504 => Exit::Unreachable,
        _ => Exit::Failed,
    }
}

/// Our own output could not be written: no other `io::Error` comes this far.
impl From<io::Error> for Ending {
    fn from(why: io::Error) -> Self {
        if why.kind() == io::ErrorKind::BrokenPipe {
            // Whoever reads (`| head`) has had enough, and that is fine.
            return Self { exit: Exit::Fine, sentence: None };
        }
        Self::failed(format!("cannot write the output: {why}; check where stdout leads"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exit_code_is_documented_with_its_meaning() {
        let document = include_str!("../../../docs/exit-codes.md");
        for exit in Exit::ALL {
            let meaning: Vec<_> = exit.meaning().split_whitespace().collect();
            let row = format!("| {} | {} |", exit.code(), meaning.join(" "));
            assert!(document.contains(&row), "{row}");
        }
    }

    #[test]
    fn a_reader_that_has_had_enough_is_no_failure() {
        let ending = Ending::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(ending, Ending { exit: Exit::Fine, sentence: None });
        assert_eq!(Ending::from(io::Error::from(io::ErrorKind::StorageFull)).exit, Exit::Failed);
    }

    #[test]
    fn damage_behind_a_violation_is_told_as_damage() {
        let damage = ClauseViolation::Scan(ScanError::Corrupt("x".into()));
        assert_eq!(Ending::of_cause(&damage).map(|ending| ending.exit), Some(Exit::Damaged));
        assert_eq!(Ending::of_cause(&ClauseViolation::Broken("x".into())), None);
    }

    #[test]
    fn damage_and_absence_are_told_apart_while_reading() {
        assert_eq!(Ending::from(ScanError::Corrupt("x".into())).exit, Exit::Damaged);
        assert_eq!(Ending::from(ScanError::Unavailable("x".into())).exit, Exit::Unreachable);
    }
}
