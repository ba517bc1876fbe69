//! What an error of Postgres means: for whoever opens the store, and for a commit that was sent.

use std::error::Error as _;
use std::io;

use tokio_postgres::Error;
use tokio_postgres::error::{DbError, Severity, SqlState};

use crate::{EngineFault, StoreHost};

/// An error as one phrase. Of a server's error only the main message: its details may repeat what was sent.
pub(super) fn sentence(why: &Error) -> String {
    if let Some(said) = why.as_db_error() {
        return said.message().to_owned();
    }
    let mut text = why.to_string();
    let mut cause = why.source();
    while let Some(deeper) = cause {
        text = format!("{text}: {deeper}");
        cause = deeper.source();
    }
    text
}

/// What to tell whoever opens the store about all hosts that were tried: the fault of a host that answers says more than
/// silence.
pub(super) fn of_hosts(faults: &[(StoreHost, Error)]) -> (EngineFault, String) {
    let told: Vec<_> = faults.iter().map(|(host, why)| (host, of(why))).collect();
    let worst = told.iter().map(|(_, fault)| *fault).max_by_key(|fault| weight(*fault));
    let several = faults.len() > 1;
    let phrases = faults.iter().map(|(host, why)| {
        if several { format!("{host}: {}", sentence(why)) } else { sentence(why) }
    });
    (worst.unwrap_or(EngineFault::Unreachable), phrases.collect::<Vec<_>>().join("; "))
}

fn weight(fault: EngineFault) -> u8 {
    match fault {
        EngineFault::Unreachable => 0,
        EngineFault::ReadOnly => 1,
        EngineFault::TooOld | EngineFault::Unsafe => 2,
        EngineFault::Tls => 3,
        EngineFault::Database => 4,
        EngineFault::Password | EngineFault::Key => 5,
    }
}

/// What is wrong, if it is wrong when a store is opened.
pub(super) fn of(why: &Error) -> EngineFault {
    let Some(said) = why.as_db_error() else { return without_answer(why) };
    let code = said.code();
    match *code {
        SqlState::INVALID_CATALOG_NAME => EngineFault::Database,
        SqlState::READ_ONLY_SQL_TRANSACTION | SqlState::DISK_FULL => EngineFault::ReadOnly,
        SqlState::FEATURE_NOT_SUPPORTED => EngineFault::Unsafe,
        SqlState::INSUFFICIENT_PRIVILEGE => EngineFault::Password,
        // pg_hba.conf without a line for unencrypted (or encrypted) connections: the user may be fine.
        SqlState::INVALID_AUTHORIZATION_SPECIFICATION if is_about_encryption(said) => {
            EngineFault::Tls
        }
        _ if code.code().starts_with("28") => EngineFault::Password,
        // PgBouncer's own words have one code for everything.
        SqlState::PROTOCOL_VIOLATION if said.message().contains("no such database") => {
            EngineFault::Database
        }
        SqlState::PROTOCOL_VIOLATION if said.message().contains("SSL required") => EngineFault::Tls,
        SqlState::PROTOCOL_VIOLATION if said.message().contains("no such user") => {
            EngineFault::Password
        }
        SqlState::PROTOCOL_VIOLATION if said.message().contains("authentication failed") => {
            EngineFault::Password
        }
        _ => EngineFault::Unreachable,
    }
}

/// Postgres says what it has no line for: `no pg_hba.conf entry for host …, no encryption`. The words are not always
/// English; those are then taken for a refused user.
fn is_about_encryption(said: &DbError) -> bool {
    let message = said.message();
    message.contains("no pg_hba.conf entry")
        && (message.contains("no encryption") || message.contains("SSL off"))
}

fn without_answer(why: &Error) -> EngineFault {
    let text = why.to_string();
    if text.contains("TLS") {
        return EngineFault::Tls;
    }
    // No password was given and one is wanted, or a mechanism is wanted that nobody has.
    if text.contains("authentication") || text.contains("configuration") {
        return EngineFault::Password;
    }
    match why.source().and_then(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind) {
        // How the client says that a server takes only reads.
        Some(io::ErrorKind::PermissionDenied) => EngineFault::ReadOnly,
        _ => EngineFault::Unreachable,
    }
}

/// What became of a commit whose answer is an error.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CommitFate {
    /// It was undone for being in somebody's way: sent again at once, it may succeed.
    Again,
    /// Nothing was done.
    Undone,
    /// Nothing was done, there is no room.
    Full,
    /// Nothing was done: this server takes no writes, or not in this way. Another connection may lead to another.
    Elsewhere,
    /// The commit may have been done.
    Unknown,
}

/// Only an error that ends the statement, and not the session, proves that nothing was done: a session may be ended
/// between the commit and the answer. What a pooler says of a server that it lost (class 08) proves nothing either.
pub(super) fn fate(why: &Error) -> CommitFate {
    let Some(said) = why.as_db_error() else { return CommitFate::Unknown };
    let is_error = match said.parsed_severity() {
        Some(severity) => severity == Severity::Error,
        None => said.severity() == "ERROR",
    };
    let code = said.code();
    if !is_error || code.code().starts_with("08") || code.code().starts_with("57P") {
        return CommitFate::Unknown;
    }
    match *code {
        SqlState::T_R_SERIALIZATION_FAILURE | SqlState::T_R_DEADLOCK_DETECTED => CommitFate::Again,
        SqlState::DISK_FULL => CommitFate::Full,
        SqlState::READ_ONLY_SQL_TRANSACTION | SqlState::FEATURE_NOT_SUPPORTED => {
            CommitFate::Elsewhere
        }
        _ => CommitFate::Undone,
    }
}
