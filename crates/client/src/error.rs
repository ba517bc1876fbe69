//! Why there is no answer, and what to do next.

use std::time::Duration;

use crate::problem::Problem;

/// Why a call gave no answer. Each variant is one thing that a caller can do about it.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Change the URL.
    #[error("{url:?} is no server URL: {why}; try http://127.0.0.1:7400")]
    Url {
        /// What was given.
        url: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Change what the client was made with.
    #[error("the {what} cannot be used: {why}")]
    Setting {
        /// What is wrong: `key`, `project`, `ca`, `idempotency key`.
        what: &'static str,
        /// Why, without the value, which may be secret.
        why: String,
    },
    /// Nobody answers there: start a server, or try again later.
    #[error("no server answers at {url}: {why}")]
    Unreachable {
        /// The server's URL.
        url: String,
        /// What happened instead.
        why: String,
        /// Whether what was asked for may have been done: the request left, and its answer was lost.
        may_be_done: bool,
    },
    /// The server does not prove that it is who it should be: trust its issuer, or correct the URL. Nothing was
    /// sent.
    #[error("{url} is not trusted: {why}")]
    Untrusted {
        /// The server's URL.
        url: String,
        /// What is wrong with its certificate.
        why: String,
    },
    /// 401: give a key, or another one.
    #[error("{}", .0.detail)]
    Unauthorized(Box<Problem>),
    /// 403: ask an admin for a key that may do this.
    #[error("{}", .0.detail)]
    Forbidden(Box<Problem>),
    /// 404: look which ones there are.
    #[error("{}", .0.detail)]
    NotFound(Box<Problem>),
    /// 409, 412: read again, and decide anew.
    #[error("{}", .0.detail)]
    Conflict(Box<Problem>),
    /// 400, 413, 415, 422: change what was asked for; `errors` names each field.
    #[error("{}", .0.detail)]
    Invalid(Box<Problem>),
    /// 429: delete something, have the limit raised, or wait for as long as is said.
    #[error("{}", problem.detail)]
    LimitReached {
        /// Which limit was reached.
        problem: Box<Problem>,
        /// Try again then, if it passes by itself.
        retry_after: Option<Duration>,
    },
    /// 502, 503, 504: try again later. What was asked for may have been done.
    #[error("{}", problem.detail)]
    Unavailable {
        /// What is wrong.
        problem: Box<Problem>,
        /// Not sooner than this.
        retry_after: Option<Duration>,
    },
    /// Any other status: the server says what is wrong.
    #[error("{}", .0.detail)]
    Refused(Box<Problem>),
    /// Something else answers there, or a server of another version.
    #[error("{url} gave an answer that is not understood ({why}): is it a Watchbell server?")]
    Answer {
        /// The URL that was asked.
        url: String,
        /// What was wrong with it.
        why: String,
    },
}

impl ClientError {
    /// What the server said, if it said something.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Unauthorized(problem)
            | Self::Forbidden(problem)
            | Self::NotFound(problem)
            | Self::Conflict(problem)
            | Self::Invalid(problem)
            | Self::LimitReached { problem, .. }
            | Self::Unavailable { problem, .. }
            | Self::Refused(problem) => Some(problem),
            Self::Url { .. }
            | Self::Setting { .. }
            | Self::Unreachable { .. }
            | Self::Untrusted { .. }
            | Self::Answer { .. } => None,
        }
    }

    /// Whether what was asked for may have been done all the same: look before asking again by other means. The
    /// same request under the same idempotency key is safe in any case.
    pub fn may_be_done(&self) -> bool {
        match self {
            Self::Unreachable { may_be_done, .. } => *may_be_done,
            Self::Unavailable { .. } | Self::Answer { .. } => true,
            Self::Refused(problem) => problem.status >= 500 || problem.status == 408,
            Self::Url { .. }
            | Self::Setting { .. }
            | Self::Untrusted { .. }
            | Self::Unauthorized(_)
            | Self::Forbidden(_)
            | Self::NotFound(_)
            | Self::Conflict(_)
            | Self::Invalid(_)
            | Self::LimitReached { .. } => false,
        }
    }

    /// What a problem of this status is.
    pub(crate) fn of_problem(problem: Problem, retry_after: Option<Duration>) -> Self {
        let problem = Box::new(problem);
        match problem.status {
            401 => Self::Unauthorized(problem),
            403 => Self::Forbidden(problem),
            404 => Self::NotFound(problem),
            409 | 412 => Self::Conflict(problem),
            400 | 413 | 415 | 422 => Self::Invalid(problem),
            429 => Self::LimitReached { problem, retry_after },
            502..=504 => Self::Unavailable { problem, retry_after },
            _ => Self::Refused(problem),
        }
    }

    /// The same, when an attempt before this one may have been carried out.
    pub(crate) fn in_doubt(self) -> Self {
        match self {
            Self::Unreachable { url, why, .. } => Self::Unreachable { url, why, may_be_done: true },
            other => other,
        }
    }
}
