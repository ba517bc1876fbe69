//! Why there is no answer, and what to do next.

use crate::problem::Problem;

/// Why a call gave no answer.
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
    /// Nobody answers there: start a server, or try again later. What was asked for may have been done.
    #[error("no server answers at {url}: {why}")]
    Unreachable {
        /// Where.
        url: String,
        /// What happened instead.
        why: String,
    },
    /// The server says what is wrong: do as its detail says.
    #[error("{}", .0.detail)]
    Problem(Box<Problem>),
    /// Something else answers there, or a server of another version.
    #[error("{url} gave an answer that is not understood ({why}): is it a Watchbell server?")]
    Answer {
        /// Where.
        url: String,
        /// What was wrong with it.
        why: String,
    },
}
