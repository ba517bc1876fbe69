//! What a witness has seen, as data.
//!
//! Moments count from the beginning of the witness, by its own clock. Lengths of overlaps, gaps and changes are by the
//! clock of the machine where both sides are on one. [`text`] shows it to people.

pub mod text;

use std::time::Duration;

use jiff::Timestamp;
use serde::{Serialize, Serializer};

pub use crate::judge::Basis;

/// All that a witness has seen.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// When it began, by the wall clock.
    pub since: Timestamp,
    /// How long it has watched.
    #[serde(rename = "watched_us", serialize_with = "micros")]
    pub watched: Duration,
    /// Whether it saw neither an overlap nor a token that went back.
    pub all_is_well: bool,
    /// What was heard.
    pub counts: Counts,
    /// By name.
    pub holds: Vec<HoldReport>,
    /// Pairs of instances that acted at a time, in the order in which they were seen.
    pub overlaps: Vec<Overlap>,
    /// Acts under a token that was over.
    pub tokens_back: Vec<TokenBack>,
    /// What did not fit.
    pub left_out: LeftOut,
}

/// How many ticks were heard.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Different ones.
    pub ticks: u64,
    /// Those that came again.
    pub repeated: u64,
    /// Those that came after younger ones of the same instance.
    pub late: u64,
    /// Those that were made between others and never came.
    pub lost: u64,
    /// What was sent here and is no tick.
    pub unreadable: u64,
}

/// What did not fit into the bounds of the witness, and is not in its report.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Ticks of holds beyond those that are judged: of these nothing is known.
    pub ticks: u64,
    /// Instances that were forgotten. Overlaps with them that were seen are told.
    pub instances: u64,
    /// Tokens of instances that had several, beyond the last ones: that somebody acted after them is not noticed.
    pub tokens: u64,
    /// Ticks that showed an overlap, or a token that went back, of a pair that is not listed.
    pub findings: u64,
}

/// An instance, and the token under which it acted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Who {
    /// The node that started it.
    pub node: String,
    /// Its name, drawn at its start.
    pub instance: String,
    /// The token that it had, the last one if there were several.
    pub token: u64,
}

/// What was seen of one hold.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HoldReport {
    /// Its name.
    pub hold: String,
    /// In the order in which they were first heard.
    pub instances: Vec<InstanceReport>,
    /// Instances that were forgotten.
    pub forgotten: u64,
    /// How it went from one instance to the next: the last ones.
    pub changes: Vec<Change>,
    /// How long changes from one node to another took.
    pub fail_overs: Option<Figures>,
    /// How long changes on the same node took.
    pub restarts: Option<Figures>,
    /// When nobody acted for too long: the last ones.
    pub gaps: Vec<Gap>,
    /// How many of these there were.
    pub gap_count: u64,
    /// What was heard of it.
    pub counts: Counts,
    /// For how long nobody has acted.
    #[serde(rename = "silent_for_us", serialize_with = "micros")]
    pub silent_for: Duration,
}

/// What was seen of one instance.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct InstanceReport {
    /// Which one.
    #[serde(flatten)]
    pub who: Who,
    /// When it acted first.
    #[serde(rename = "first_us", serialize_with = "micros")]
    pub first: Duration,
    /// When it acted last.
    #[serde(rename = "last_us", serialize_with = "micros")]
    pub last: Duration,
    /// When it did not act in between, for longer than a gap.
    pub pauses: Vec<Pause>,
    /// What was heard of it.
    pub counts: Counts,
    /// Ticks that it made before the first one that was heard.
    pub before_first: u64,
}

/// When an instance did not act.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Pause {
    /// Its last act before.
    #[serde(rename = "from_us", serialize_with = "micros")]
    pub from: Duration,
    /// Its first act after.
    #[serde(rename = "until_us", serialize_with = "micros")]
    pub until: Duration,
}

/// Two instances acted at a time: one, then the other, then the first again.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Overlap {
    /// Of which hold.
    pub hold: String,
    /// Who had begun.
    pub earlier: Who,
    /// Who came to it.
    pub later: Who,
    /// From the first act of the later one to the last of whichever ended first.
    #[serde(rename = "length_us", serialize_with = "micros")]
    pub length: Duration,
    /// By which clock.
    pub basis: Basis,
    /// When it was noticed, by the wall clock.
    pub noticed: Timestamp,
}

/// Somebody acted under a token after somebody had acted under a greater one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TokenBack {
    /// Of which hold.
    pub hold: String,
    /// Who acted under the lower token.
    pub lower: Who,
    /// Who had acted under the greater one.
    pub greater: Who,
    /// From the first act under the greater one to the last under the lower one.
    #[serde(rename = "late_by_us", serialize_with = "micros")]
    pub late_by: Duration,
    /// By which clock.
    pub basis: Basis,
    /// When it was noticed, by the wall clock.
    pub noticed: Timestamp,
}

/// One instance after another.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// Who acted last.
    pub from: Who,
    /// Who acted next.
    pub to: Who,
    /// From the last act of the former to the first of the latter; nothing if they overlap.
    #[serde(rename = "length_us", serialize_with = "maybe_micros")]
    pub length: Option<Duration>,
    /// Ticks of the latter that were made before its first one that was heard: it acted sooner than the length says.
    pub lost: u64,
    /// When it was.
    #[serde(rename = "at_us", serialize_with = "micros")]
    pub at: Duration,
}

impl Change {
    /// Whether it went to another node.
    pub fn is_fail_over(&self) -> bool {
        self.from.node != self.to.node
    }
}

/// Nobody acted for too long.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Gap {
    /// Who acted before.
    pub before: Who,
    /// Who acted after.
    pub after: Who,
    /// For how long nothing was heard.
    #[serde(rename = "length_us", serialize_with = "micros")]
    pub length: Duration,
    /// Ticks that were made meanwhile and lost: too few to have filled it.
    pub lost: u64,
    /// When it ended.
    #[serde(rename = "until_us", serialize_with = "micros")]
    pub until: Duration,
}

/// How long something took that happened several times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Figures {
    /// How often.
    pub count: usize,
    /// Half took no longer.
    #[serde(rename = "median_us", serialize_with = "micros")]
    pub median: Duration,
    /// 99 of 100 took no longer.
    #[serde(rename = "p99_us", serialize_with = "micros")]
    pub p99: Duration,
    /// None took longer.
    #[serde(rename = "longest_us", serialize_with = "micros")]
    pub longest: Duration,
}

impl Figures {
    /// Of these lengths, if there are any.
    pub fn of(mut lengths: Vec<Duration>) -> Option<Self> {
        lengths.sort_unstable();
        let count = lengths.len();
        let longest = *lengths.last()?;
        let quantile = |percent: usize| lengths[(count * percent).div_ceil(100).max(1) - 1];
        Some(Self { count, median: quantile(50), p99: quantile(99), longest })
    }
}

/// Something that was noticed, at the moment in which it was.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Happening {
    /// An instance was heard for the first time.
    Acting {
        /// Of which hold.
        hold: String,
        /// Who it is.
        who: Who,
        /// After whom, if after anybody.
        change: Option<Change>,
    },
    /// Two acted at a time.
    Overlap(Overlap),
    /// Somebody acted under a token that was over.
    TokenBack(TokenBack),
    /// Nobody acted for too long.
    Gap {
        /// Of which hold.
        hold: String,
        /// When, and between whom.
        gap: Gap,
    },
    /// A bound was reached for the first time: from now on something is left out.
    LeftOut {
        /// What does not fit.
        what: &'static str,
    },
}

impl Happening {
    /// The name of such an event.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Acting { .. } => "acting",
            Self::Overlap(_) => "overlap",
            Self::TokenBack(_) => "token_back",
            Self::Gap { .. } => "gap",
            Self::LeftOut { .. } => "left_out",
        }
    }
}

fn micros<S: Serializer>(length: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(u64::try_from(length.as_micros()).unwrap_or(u64::MAX))
}

#[expect(clippy::ref_option, reason = "serde asks for it")]
fn maybe_micros<S: Serializer>(length: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    match length {
        Some(length) => micros(length, to),
        None => to.serialize_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_lengths_that_occurred() {
        let figures = |most: u64| Figures::of((1..=most).map(Duration::from_millis).collect());
        let ms = |figures: Option<Figures>| {
            let figures = figures.unwrap();
            [figures.median, figures.p99, figures.longest].map(|length| length.as_millis())
        };
        assert_eq!(figures(0), None);
        assert_eq!(ms(figures(1)), [1, 1, 1]);
        assert_eq!(ms(figures(2)), [1, 2, 2]);
        assert_eq!(ms(figures(200)), [100, 198, 200]);
    }
}
