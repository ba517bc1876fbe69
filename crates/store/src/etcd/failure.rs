//! What an error of etcd proves: that nothing was done, or nothing at all.
//!
//! A commit that was sent and not answered may be done. Only where etcd says in so many words that it refused,
//! or where no connection came about, is it certain that it is not. What is not known by name here is unknown.

use std::error::Error as _;

use etcd_client::Error;
use tonic::{Code, ConnectError, Status};

use crate::{CommitError, Refusal, ScanError};

/// Why a call has no answer, and what to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EtcdFailure {
    /// Nothing was done, and another member may do it.
    Elsewhere(String),
    /// Nothing was done, since our token is no longer good: get another one.
    Token(String),
    /// Nothing was done, and nobody else would do it.
    Refused(String),
    /// Nothing was done: the database has reached its quota.
    Full,
    /// The page is larger than a message may be: ask for less of it.
    Large,
    /// The request may have been carried out.
    Unknown(String),
    /// The members do not agree on what they hold.
    Corrupt(String),
}

impl EtcdFailure {
    pub(super) fn of(error: &Error) -> Self {
        match error {
            Error::GRpcStatus(status) => Self::of_status(status),
            Error::TransportError(why) => Self::Unknown(deepest(why)),
            other => Self::Unknown(other.to_string()),
        }
    }

    fn of_status(status: &Status) -> Self {
        if is_connect(status) {
            return Self::Elsewhere(deepest(status));
        }
        let said = status.message().to_owned();
        match (status.code(), said.strip_prefix("etcdserver: ").unwrap_or_default()) {
            (_, "no leader" | "rpc not supported for learner") => Self::Elsewhere(said),
            (Code::Unauthenticated, _)
            | (_, "invalid auth token" | "revision of auth store is old") => Self::Token(said),
            (_, "mvcc: database space exceeded") => Self::Full,
            (_, "corrupt cluster") => Self::Corrupt(said),
            (Code::OutOfRange, "") => Self::Large,
            (
                Code::PermissionDenied
                | Code::InvalidArgument
                | Code::FailedPrecondition
                | Code::OutOfRange,
                rule,
            ) if !rule.is_empty() => Self::Refused(said),
            (Code::ResourceExhausted, "too many requests") => Self::Refused(said),
            (Code::Unknown, "") if said == "raft proposal dropped" => Self::Elsewhere(said),
            _ if said.is_empty() => Self::Unknown(deepest(status)),
            _ => Self::Unknown(said),
        }
    }

    /// As the end of a commit; `full` says what to do when there is no room.
    pub(super) fn of_commit(self, full: impl FnOnce() -> String) -> CommitError {
        match self {
            Self::Elsewhere(why) | Self::Token(why) | Self::Refused(why) => {
                CommitError::Unavailable(why)
            }
            Self::Full => Refusal::Full { place: full() }.into(),
            Self::Large => CommitError::Unknown("its answer is too large".to_owned()),
            Self::Unknown(why) => CommitError::Unknown(why),
            Self::Corrupt(why) => CommitError::Corrupt(why),
        }
    }

    /// As the end of a scan.
    pub(super) fn of_scan(self) -> ScanError {
        match self {
            Self::Elsewhere(why) | Self::Token(why) | Self::Refused(why) | Self::Unknown(why) => {
                ScanError::Unavailable(why)
            }
            Self::Full => ScanError::Unavailable("etcd is full".to_owned()),
            Self::Large => ScanError::Unavailable("an entry is too large to be read".to_owned()),
            Self::Corrupt(why) => ScanError::Corrupt(why),
        }
    }
}

/// Whether no connection came about, so that nothing can have been sent.
fn is_connect(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        if error.is::<ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// The cause behind all causes: what lies before it says no more than that there is one.
pub(super) fn deepest(error: &(dyn std::error::Error + 'static)) -> String {
    let mut deepest = error;
    while let Some(cause) = deepest.source() {
        deepest = cause;
    }
    deepest.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(code: Code, said: &str, expected: fn(String) -> EtcdFailure) {
        let failure = EtcdFailure::of(&Error::GRpcStatus(Status::new(code, said)));
        assert_eq!(failure, expected(said.to_owned()));
    }

    #[test]
    fn what_etcd_refused_by_name_was_not_done() {
        check(Code::PermissionDenied, "etcdserver: permission denied", EtcdFailure::Refused);
        check(Code::InvalidArgument, "etcdserver: request is too large", EtcdFailure::Refused);
        check(Code::InvalidArgument, "etcdserver: user name is empty", EtcdFailure::Refused);
        check(Code::ResourceExhausted, "etcdserver: too many requests", EtcdFailure::Refused);
        check(Code::Unavailable, "etcdserver: no leader", EtcdFailure::Elsewhere);
        check(Code::Unauthenticated, "etcdserver: invalid auth token", EtcdFailure::Token);
        check(
            Code::InvalidArgument,
            "etcdserver: revision of auth store is old",
            EtcdFailure::Token,
        );
        check(Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", |_| {
            EtcdFailure::Full
        });
        check(Code::DataLoss, "etcdserver: corrupt cluster", EtcdFailure::Corrupt);
    }

    #[test]
    fn what_proves_nothing_is_unknown() {
        check(Code::Unavailable, "etcdserver: request timed out", EtcdFailure::Unknown);
        check(
            Code::Unavailable,
            "etcdserver: request timed out, possibly due to previous leader failure",
            EtcdFailure::Unknown,
        );
        check(Code::Unavailable, "etcdserver: leader changed", EtcdFailure::Unknown);
        check(Code::Unavailable, "etcdserver: server stopped", EtcdFailure::Unknown);
        check(Code::Unavailable, "error reading a body from connection", EtcdFailure::Unknown);
        check(Code::Cancelled, "operation was canceled", EtcdFailure::Unknown);
        check(Code::InvalidArgument, "somebody in between said so", EtcdFailure::Unknown);
        check(Code::ResourceExhausted, "h2 protocol error", EtcdFailure::Unknown);
    }

    #[test]
    fn a_connection_that_did_not_come_about_has_sent_nothing() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let status = Status::from_error(Box::new(ConnectError(Box::new(refused))));
        assert!(matches!(EtcdFailure::of(&Error::GRpcStatus(status)), EtcdFailure::Elsewhere(_)));
        let broken = std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        let status = Status::from_error(Box::new(broken));
        assert!(matches!(EtcdFailure::of(&Error::GRpcStatus(status)), EtcdFailure::Unknown(_)));
    }
}
