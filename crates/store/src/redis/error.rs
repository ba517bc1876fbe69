//! Why there is no connection to a Redis, in one phrase: for whoever opens a store, and for every call until there is one again.
//!
//! The phrases are ours. What a server says is repeated only where it cannot hold a secret: Redis quotes the arguments of a command that it does
//! not know, and one of them may be a password.

use redis::RedisError;

use crate::{Address, EngineFault, OpenError};

pub(super) const FORMER: &str = "it was left behind by a fail-over, and still takes itself for the master: restart it, or make it a replica";

/// What comes of setting a connection up.
pub(super) type ConnectResult<T = ()> = Result<T, ConnectError>;

/// Why there is no connection that can be relied on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ConnectError {
    pub(super) fault: EngineFault,
    pub(super) why: String,
}

impl ConnectError {
    pub(super) fn new(fault: EngineFault, why: impl Into<String>) -> Self {
        Self { fault, why: why.into() }
    }

    /// As the error of opening the store at this address.
    pub(super) fn opening(self, at: &Address) -> OpenError {
        OpenError::Engine { store: at.to_string(), fault: self.fault, why: self.why }
    }

    /// What a server's error means, as the answer to a command that sets up a connection.
    pub(super) fn told(error: &RedisError) -> Self {
        Self::of(
            error.code().unwrap_or_default(),
            error.detail().unwrap_or_default(),
            error.is_io_error(),
        )
    }

    /// What a script's answer means whose first write was refused.
    pub(super) fn refused(said: &str) -> Self {
        let said = said.trim_start_matches('-');
        Self::of(said.split(' ').next().unwrap_or_default(), said, false)
    }

    fn of(code: &str, said: &str, is_lost: bool) -> Self {
        let (fault, why) = match code {
            "NOAUTH" => (EngineFault::Password, "it asks for a password, and the URL has none"),
            "WRONGPASS" => (EngineFault::Password, "the user or the password is wrong"),
            "NOPERM" => (
                EngineFault::Password,
                "this user may not use all the commands, keys and channels that a store needs",
            ),
            "DENIED" => (
                EngineFault::Password,
                "it is in protected mode, and takes no strangers until it has a password",
            ),
            "LOADING" => (EngineFault::Unreachable, "it is still loading its data"),
            "BUSY" => (EngineFault::Unreachable, "it is busy with somebody's script"),
            "READONLY" => (EngineFault::ReadOnly, "it is a replica"),
            "MASTERDOWN" => (EngineFault::ReadOnly, "it is a replica that has lost its master"),
            "OOM" => (EngineFault::ReadOnly, "its memory is full (maxmemory)"),
            "MISCONF" => {
                (EngineFault::ReadOnly, "it cannot save to its disk (MISCONF, see its log)")
            }
            "NOREPLICAS" => {
                (EngineFault::ReadOnly, "it has too few replicas (min-replicas-to-write)")
            }
            // What a script is not permitted to do.
            _ if said.contains("executing the script can't") => (
                EngineFault::Password,
                "this user may not use all the commands and keys that a store needs",
            ),
            _ if said.contains("max number of clients") => {
                (EngineFault::Unreachable, "it has as many clients as it takes (maxclients)")
            }
            _ if is_lost => (EngineFault::Unreachable, "it closes the connection"),
            _ => (EngineFault::Unreachable, "it does not answer as a Redis does"),
        };
        Self::new(fault, why)
    }
}

impl std::fmt::Display for ConnectError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}: {}", self.fault, self.why)
    }
}
