//! Errors that say what to do next: one enum per operation, one variant per next step.

use std::path::PathBuf;

use engine::limits::{KEY_BYTES_MAX, PAGE_ENTRIES_MAX};
use engine::record::RecordError;

use crate::{Condition, Key, Version};

/// Why a commit was not acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// A condition does not hold: read again and decide anew. Nothing was changed.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// The commit itself is at fault, or there is no room for it: change it, or make room. Nothing
    /// was changed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The request never left this process: nothing was changed; try again later.
    #[error("the store takes no commits now: {0}")]
    Unavailable(String),
    /// It may be done, and it may still land: send the same again, unchanged, until it is
    /// acknowledged or found done. Not finding it done proves nothing.
    #[error("the outcome is unknown: {0}")]
    Unknown(String),
    /// What the store holds is damaged: stop, and have a person look.
    #[error("the store is damaged: {0}")]
    Corrupt(String),
}

/// The condition that did not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("conflict: {condition:?} does not hold, found {found:?}")]
pub struct Conflict {
    /// The first one that failed, in the order of the commit.
    pub condition: Condition,
    /// The version that was found; `None` if the key is absent.
    pub found: Option<Version>,
}

/// Why a scan gave no page. Reading changes nothing, so it may always be tried again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScanError {
    /// The call is at fault: change it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// No answer this time: try again later.
    #[error("the store cannot be read now, try again: {0}")]
    Unavailable(String),
    /// What the store holds is damaged: stop, and have a person look.
    #[error("the store is damaged: {0}")]
    Corrupt(String),
}

/// A commit that could not be made because what it rests on could not be read.
pub(crate) fn unread(why: ScanError) -> CommitError {
    match why {
        ScanError::Refused(why) => CommitError::Refused(why),
        ScanError::Unavailable(why) => CommitError::Unavailable(why),
        ScanError::Corrupt(why) => CommitError::Corrupt(why),
    }
}

/// What is wrong with a request, found before anything was done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the sentences below are the documentation of each field")]
pub enum Refusal {
    #[error("a key has 1 to {KEY_BYTES_MAX} bytes, and this one has {len}")]
    KeyLength { len: usize },
    #[error(
        "a key is printable ASCII without spaces, and {key:?} has another character at byte {position}"
    )]
    KeyCharacter { key: String, position: usize },
    #[error("a value has at most {max} bytes in this store, and the one for {key} has {len}")]
    ValueBytes { key: Key, len: usize, max: usize },
    #[error("a commit has at most {max} writes in this store, and this one has {len}")]
    Writes { len: usize, max: usize },
    #[error("a commit has at most {max} conditions in this store, and this one has {len}")]
    Conditions { len: usize, max: usize },
    #[error("a commit has at most {max} bytes in this store, and this one has {len}")]
    CommitBytes { len: usize, max: usize },
    #[error("a commit writes a key once, and this one writes {key} twice")]
    WrittenTwice { key: Key },
    #[error("a commit writes something, and this one does not")]
    Empty,
    #[error("a page has 1 to {PAGE_ENTRIES_MAX} entries, and {limit} were asked for")]
    PageLimit { limit: usize },
    #[error(
        "there is no room left in {place}: free some space, nothing is lost and commits go on by themselves"
    )]
    Full { place: String },
    #[error("{why}")]
    Denied { why: String },
}

/// Why a store was not opened. Each sentence says what is wrong and what to do.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the sentences below are the documentation of each field")]
pub enum OpenError {
    #[error("{url:?} is not a store URL: {why}")]
    Url { url: String, why: String },
    #[error("there is no store in {dir}: check the path, or make one with watchbell store check", dir = dir.display())]
    Missing { dir: PathBuf },
    #[error("{dir} is in use by {holder}: stop that one first, or give this one a directory of its own", dir = dir.display())]
    InUse { dir: PathBuf, holder: String },
    #[error("no permission for {path}: {why}; run as its owner, or change its owner or mode", path = path.display())]
    Permission { path: PathBuf, why: String },
    #[error("{path} is on a file system that cannot be written: mount it for writing, or give another place", path = path.display())]
    ReadOnly { path: PathBuf },
    #[error("{dir} is on a network file system ({kind}), where neither locks nor syncs can be trusted: use a local disk, or a store made for the network (raft, etcd, redis, postgres)", dir = dir.display())]
    Network { dir: PathBuf, kind: &'static str },
    #[error("{path}: {why}", path = path.display())]
    Format { path: PathBuf, why: RecordError },
    #[error("{path} is not empty and holds no Watchbell store: give an empty or a new directory", path = path.display())]
    Foreign { path: PathBuf },
    #[error("the store is damaged: {0}")]
    Corrupt(String),
    #[error("there is no room left in {place}: free some space and start again, nothing is lost")]
    Full { place: PathBuf },
    #[error("{path} is not a directory: give a directory, or a path where one can be made", path = path.display())]
    NotADirectory { path: PathBuf },
    #[error("cannot open {path}: {why}; check the disk, then start again", path = path.display())]
    Io { path: PathBuf, why: std::io::Error },
    #[error("{store}: {fault}: {why}; {}", fault.remedy())]
    Engine { store: String, fault: EngineFault, why: String },
}

/// What is wrong with an engine on the network: one for each thing that a person does about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineFault {
    /// It does not answer, or its name is unknown.
    Unreachable,
    /// It knows neither this user nor this password, or lets this user do too little.
    Password,
    /// It is a Watchbell server that wants a key, or another one.
    Key,
    /// It has no such database.
    Database,
    /// One side speaks TLS and the other does not, or does not trust the other's certificate.
    Tls,
    /// It takes no writes: a replica, a hot standby, an engine that is out of room.
    ReadOnly,
    /// Its version lacks what a store needs.
    TooOld,
    /// It is set up so that what it acknowledged could be dropped.
    Unsafe,
}

impl EngineFault {
    /// What a person does about the fault.
    fn remedy(self) -> &'static str {
        match self {
            Self::Unreachable => "start it, or check host and port in the URL",
            Self::Password => {
                "check the user and the password in the URL, and what that user may do"
            }
            Self::Key => {
                "give a key of the scope node with --key-file FILE, WATCHBELL_KEY, or in the URL as https://:KEY@HOST"
            }
            Self::Database => "create it, or check the name in the URL",
            Self::Tls => {
                "check whether the URL should say TLS or not, and give the issuer's certificate with ?ca=FILE"
            }
            Self::ReadOnly => "name the primary in the URL, or let this one take writes again",
            Self::TooOld => "upgrade it",
            Self::Unsafe => "change that setting, then start again",
        }
    }
}

impl std::fmt::Display for EngineFault {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::Unreachable => "it cannot be reached",
            Self::Password => "it does not let us in",
            Self::Key => "it wants a key, or another one",
            Self::Database => "there is no such database",
            Self::Tls => "no encrypted connection comes about",
            Self::ReadOnly => "it takes no writes",
            Self::TooOld => "it is too old",
            Self::Unsafe => "it could drop what it acknowledged",
        })
    }
}
