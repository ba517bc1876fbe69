//! What a shard promises, in words; the ledger and the witness say when a promise is broken.

use std::fmt;

/// A promise that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which one.
    pub promise: Promise,
    /// When, in milliseconds of true time.
    pub at: u64,
    /// How.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (second, millis) = (self.at / 1_000, self.at % 1_000);
        write!(out, "{second}.{millis:03} s: {}: {}", self.promise.sentence(), self.what)
    }
}

/// What is checked. docs/guarantees.md has the same list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Promise {
    /// T1
    OnePlace,
    /// T2
    OneState,
    /// T3
    NothingUndecided,
    /// T4
    RangesCount,
    /// T5
    AtMostOnce,
    /// T6
    RecordsAreTrue,
    /// T7
    OneId,
    /// T8
    NotBeforeItsInstant,
    /// T9
    WrittenFirst,
    /// T10
    NumbersGrow,
    /// T11
    QuietIsQuiet,
    /// T12
    NoOverlap,
    /// T13
    LimitIsExact,
    /// T14
    AcknowledgedHolds,
    /// T15
    CatchUp,
    /// T16
    FitsRoom,
    /// T17
    NothingIsStuck,
    /// T18
    NoPanic,
    /// T19
    ToldOnce,
    /// T20
    LeftAlone,
    /// T21
    OneSends,
    /// T22
    ReportsCount,
    /// T23
    NothingDoubled,
    /// T24
    ShardsAreServed,
    /// T25
    NothingAfterLapse,
}

impl Promise {
    /// In words.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::OnePlace => "T1, every slot that is decided is in exactly one place",
            Self::OneState => "T2, no slot ever has a second state",
            Self::NothingUndecided => "T3, nothing that is due stays undecided",
            Self::RangesCount => "T4, a range of skipped slots begins, ends and counts right",
            Self::AtMostOnce => "T5, what is delivered at most once reaches its receiver once",
            Self::RecordsAreTrue => {
                "T6, what succeeded was sent, what failed was tried, what is skipped or expired never left"
            }
            Self::OneId => "T7, a run has one id over all attempts and owners, and no other has it",
            Self::NotBeforeItsInstant => "T8, nothing leaves before its instant",
            Self::WrittenFirst => {
                "T9, nothing leaves before its launch and its attempt's number are in the store"
            }
            Self::NumbersGrow => "T10, no number of an attempt leaves twice",
            Self::QuietIsQuiet => {
                "T11, no later slot leaves after a pause, cancel, delete or change is acknowledged"
            }
            Self::NoOverlap => "T12, where runs must not overlap, none leaves beside another",
            Self::LimitIsExact => {
                "T13, what is left of a limit is the limit less what was launched"
            }
            Self::AcknowledgedHolds => "T14, what was acknowledged still holds after a crash",
            Self::CatchUp => {
                "T15, of the slots that were missed, exactly the right ones are skipped"
            }
            Self::FitsRoom => "T16, every commit fits its room, and the head its bounds",
            Self::NothingIsStuck => "T17, every run ends once nothing goes wrong any more",
            Self::NoPanic => "T18, the engine never contradicts itself",
            Self::ToldOnce => {
                "T19, a streak of failures, its end and being overdue are told once, with what they tell of"
            }
            Self::LeftAlone => {
                "T20, what is under way at somebody who is there is not sent again before its answer or its time"
            }
            Self::OneSends => "T21, nothing leaves an owner once another one is named",
            Self::ReportsCount => "T22, a report that somebody waits for goes with what came of it",
            Self::NothingDoubled => {
                "T23, where nodes are only restarted, nothing that succeeded is sent again, and nothing is unknown but what was lost"
            }
            Self::ShardsAreServed => {
                "T24, every shard comes to the server that should have it, once nothing goes wrong any more"
            }
            Self::NothingAfterLapse => "T25, nothing leaves a server whose session has lapsed",
        }
    }
}
