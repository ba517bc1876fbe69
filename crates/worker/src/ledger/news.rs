//! What follows from an answer.

use std::time::Duration;

use client::worker::{ClaimedRun, HeldRun};

/// What a worker has to do about an answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct News {
    /// Runs that it was given.
    pub(crate) runs: Vec<ClaimedRun>,
    /// They are to end, and what comes of them is forgotten.
    pub(crate) lost: Vec<HeldRun>,
    /// Somebody wants these to end.
    pub(crate) cancel: Vec<HeldRun>,
    /// Their results did not count. Not those that may have counted when they were said before, and no answer came.
    pub(crate) uncounted: Vec<HeldRun>,
    /// Nothing more is to be said about these: what is on disk about them is of no use any more.
    pub(crate) closed: Vec<HeldRun>,
    /// Runs of strict queues may go on until then.
    pub(crate) confirmed: Vec<(HeldRun, Duration)>,
    /// Queues that cannot be made, if it is the answer to a claim.
    pub(crate) refused: Option<Vec<String>>,
    /// Somebody wants the worker to drain.
    pub(crate) drain: bool,
}
