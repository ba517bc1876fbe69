//! What a shard promises, in words; the oracle and the checker say when a promise is broken.

use std::fmt;

/// A promise that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardViolation {
    /// Which promise was broken.
    pub promise: ShardPromise,
    /// When, in milliseconds of true time.
    pub at: u64,
    /// What was seen that breaks it.
    pub what: String,
}

impl fmt::Display for ShardViolation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (second, millis) = (self.at / 1_000, self.at % 1_000);
        write!(out, "{second}.{millis:03} s: {}: {}", self.promise.sentence(), self.what)
    }
}

/// What is checked. docs/guarantees.md has the same list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShardPromise {
    /// T1: a decided slot is in exactly one place.
    OnePlace,
    /// T2: no slot has a second state.
    OneState,
    /// T3: what is due is decided.
    NothingUndecided,
    /// T4: ranges of skipped slots are right.
    RangesCount,
    /// T5: at most once is at most once.
    AtMostOnce,
    /// T6: records say what happened.
    RecordsAreTrue,
    /// T7: a run has one id.
    OneId,
    /// T8: nothing leaves early.
    NotBeforeItsInstant,
    /// T9: nothing leaves before it is written.
    WrittenFirst,
    /// T10: numbers of attempts grow.
    NumbersGrow,
    /// T11: what was paused, cancelled or deleted does not leave.
    QuietIsQuiet,
    /// T12: runs that must not overlap do not.
    NoOverlap,
    /// T13: a limit is exact.
    LimitIsExact,
    /// T14: what was acknowledged holds after a crash.
    AcknowledgedHolds,
    /// T15: catch-up skips exactly the right slots.
    CatchUp,
    /// T16: every commit fits the store.
    FitsRoom,
    /// T17: every run ends.
    NothingIsStuck,
    /// T18: the engine never contradicts itself.
    NoPanic,
    /// T19: notices come once.
    ToldOnce,
    /// T20: what is under way elsewhere is not sent again.
    LeftAlone,
    /// T21: only the named owner sends.
    OneSends,
    /// T22: a report counts once.
    ReportsCount,
    /// T23: restarts double nothing.
    NothingDoubled,
    /// T24: every shard comes to the right server.
    ShardsAreServed,
    /// T25: nothing leaves after the session lapsed.
    NothingAfterLapse,
}

impl ShardPromise {
    /// The promise in words, with its number.
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
