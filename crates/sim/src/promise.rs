//! What is promised, in words; the witness says when a promise is broken.

use std::any::Any;
use std::fmt;

use crate::clock::Instant;
use crate::world::seconds;

/// A promise that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which one.
    pub promise: Promise,
    /// When, in true time.
    pub at: Instant,
    /// How.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:.6} s: {}: {}", seconds(self.at), self.promise.sentence(), self.what)
    }
}

/// What is checked. docs/guarantees.md has the same list, and what other tests see to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Promise {
    /// L1
    OneActs,
    /// L2
    TokensGrow,
    /// L3
    StaleWritesNothing,
    /// L4
    NothingAfterLapse,
    /// L5
    SeenState,
    /// L6
    NotDoneStaysUndone,
    /// L7
    HealthyLives,
    /// L8
    FreeIsTaken,
    /// L9
    HolderActs,
    /// L10
    Approved,
    /// L11
    WishHeard,
    /// L14
    HeirIsThere,
    /// L15
    LeavesAtOnce,
}

impl Promise {
    /// In words.
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
