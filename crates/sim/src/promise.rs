//! What is promised, in words; the checker says when a promise is broken.

use std::any::Any;
use std::fmt;

use crate::clock::TrueTime;
use crate::world::seconds;

/// A promise that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseViolation {
    /// Which promise was broken.
    pub promise: LeasePromise,
    /// When, in true time.
    pub at: TrueTime,
    /// What was seen that breaks it.
    pub what: String,
}

impl fmt::Display for LeaseViolation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:.6} s: {}: {}", seconds(self.at), self.promise.sentence(), self.what)
    }
}

/// What is checked. docs/guarantees.md has the same list, and what other tests see to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeasePromise {
    /// L1: never two holders of a claim act at once.
    OneActs,
    /// L2: tokens only grow, and each has one owner.
    TokensGrow,
    /// L3: a stale token writes nothing.
    StaleWritesNothing,
    /// L4: no effect after the session lapsed.
    NothingAfterLapse,
    /// L5: commits land on the state that their author saw.
    SeenState,
    /// L6: what is called done is done, and not done is never done.
    NotDoneStaysUndone,
    /// L7: nobody buries a healthy node.
    HealthyLives,
    /// L8: a free claim is taken in time.
    FreeIsTaken,
    /// L9: a healthy holder may act.
    HolderActs,
    /// L10: in manual mode nobody acts unapproved.
    Approved,
    /// L11: a healthy holder hears a wish.
    WishHeard,
    /// L14: the new holder has a session.
    HeirIsThere,
    /// L15: nobody acts while handing over.
    LeavesAtOnce,
}

impl LeasePromise {
    /// The promise in words, with its number.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::OneActs => "L1, never two holders of a claim may act at once",
            Self::TokensGrow => "L2, tokens only grow, and each belongs to one incarnation",
            Self::StaleWritesNothing => "L3, a stale token writes nothing",
            Self::NothingAfterLapse => "L4, no effect leaves after its session lapsed",
            Self::SeenState => "L5, no commit lands on a state that its author had not seen",
            Self::NotDoneStaysUndone => {
                "L6, what is called done is done, and not done is never done"
            }
            Self::HealthyLives => "L7, nobody buries a node that is well",
            Self::FreeIsTaken => "L8, a free claim is taken in time when somebody healthy wants it",
            Self::HolderActs => "L9, whoever has a claim and is well may act",
            Self::Approved => "L10, in manual mode nobody acts without an approval of that token",
            Self::WishHeard => "L11, a holder that is well hears a wish",
            Self::HeirIsThere => "L14, a claim is handed over only to a session that is there",
            Self::LeavesAtOnce => {
                "L15, whoever has begun to hand a claim over may not act any more"
            }
        }
    }
}

/// What a panic said: a contradiction that the code itself has noticed.
pub fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| Some((*panic.downcast_ref::<&str>()?).to_owned())).unwrap_or_default()
}
