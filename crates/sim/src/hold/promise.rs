//! What is promised of programs that are held, in words; the checker says when a promise is broken.

use std::fmt;

use crate::clock::TrueTime;
use crate::world::seconds;

/// A promise that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldViolation {
    /// Which promise was broken.
    pub promise: HoldPromise,
    /// When, in true time.
    pub at: TrueTime,
    /// What was seen that breaks it.
    pub what: String,
}

impl fmt::Display for HoldViolation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:.6} s: {}: {}", seconds(self.at), self.promise.sentence(), self.what)
    }
}

/// What is checked. docs/guarantees.md has the same list, and what other tests see to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HoldPromise {
    /// H1: never two programs of a hold execute at once.
    OneExecutes,
    /// H2: a program executes under the token of the head.
    TokenOfHead,
    /// H3: a claim is given up when nothing is left.
    EmptyWhenGivenUp,
    /// H4: tokens that programs see only grow.
    TokensGrow,
    /// H5: no program executes after the lease.
    NothingAfterLease,
    /// H6: a start has half of T before it.
    StartsInTime,
    /// H7: nothing of a former start is left on the machine.
    NoLeftovers,
    /// H8: in manual mode nothing starts unapproved.
    Approved,
    /// H9: a hold whose holder died runs again in time.
    RunsAgain,
    /// H10: a program whose supervisor is well goes on.
    GoesOn,
}

impl HoldPromise {
    /// The promise in words, with its number.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::OneExecutes => "H1, never two programs of a hold execute at once",
            Self::TokenOfHead => "H2, a program executes under the token of the head only",
            Self::EmptyWhenGivenUp => {
                "H3, a claim is given up only when nothing of the program is left"
            }
            Self::TokensGrow => "H4, tokens that programs see only grow, each in one session",
            Self::NothingAfterLease => {
                "H5, no program executes when T is over since the sending of the last renewal"
            }
            Self::StartsInTime => {
                "H6, a program is started with half of T left of a renewal sent since the claim"
            }
            Self::NoLeftovers => "H7, a program is started where nothing of a former start is left",
            Self::Approved => "H8, in manual mode no program starts without an approval",
            Self::RunsAgain => "H9, a program whose holder is gone runs again in time",
            Self::GoesOn => "H10, a program whose supervisor is well goes on",
        }
    }
}
