//! Picks: how many of a queue's workers a run is for, and which.
//!
//! A run that any worker may have is for the first that has room (`any`). One that is for the next workers in turn (`next`), or
//! for all of them (`all`), has *parts*: each is for one worker, and is given, tried and ended like a run, under a number, an id
//! and tokens of its own. The run itself is given to nobody: it says how many parts there are, and sums them up.
//!
//! Parts are numbered, not named by their workers: a worker may have two parts of a run when there are fewer workers than parts.
//! The numbers of a run's parts follow each other, so one small record tells which parts there are and for whom they are:
//!
//! ```text
//! shard/<n>/chosen/<run>       [`ChosenRecord`]: the number of the first part, and for whom each of them is
//! shard/<n>/parts/<run>        [`PartEndsRecord`]: how those ended that have, once one has
//! shard/<n>/picks/<queue>      [`PicksRecord`]: the workers that may be chosen, and whose turn it was last
//! ```
//!
//! **Whose turn it is** is a matter of [`rotate`]: the position is a name. A trigger's position is part of its state, that of runs
//! that were submitted by hand part of the queue's [`PicksRecord`]; both move in the commit that chooses. Who may be chosen is
//! stored as well, so a successor chooses among the same workers before it has heard of any.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::{SerialId, ShardId};
use crate::limits::PICK_COUNT_MAX;
use crate::mutant::{self, Mutant};
use crate::past::{Attempt, End};
use crate::rotation::rotate;
use crate::trigger::build::Faults;
use crate::trigger::read;

use super::given::RunEnd;

/// For how many workers a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pick {
    /// For the first that has room.
    #[default]
    Any,
    /// For so many, whose turn it is.
    Next(u8),
    /// For all.
    All,
}

/// What a run of a queue is beside others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum RunRole {
    /// A run that any worker may have.
    #[default]
    Plain,
    /// A run that has parts, and that nobody is given.
    Whole(Pick),
    /// A part of one.
    Part,
}

/// For whom the parts of a run are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChosenRecord {
    /// The number of the first part. Those of the others follow it.
    pub first: u64,
    /// The worker of each part.
    pub workers: Vec<Arc<str>>,
}

/// How the parts of a run ended, those that have.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PartEndsRecord {
    /// A letter for each part, `-` for one that is unfinished: see [`letter`].
    pub ends: String,
    /// The workers that carried out parts that were another's, by the places of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by: Vec<(usize, Box<str>)>,
    /// What came last of the part that ended worst, if one did not succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst: Option<Attempt>,
}

/// Which workers of a queue may be chosen.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PicksRecord {
    /// Their names, and for how many milliseconds each may be silent by its own account.
    pub workers: BTreeMap<Arc<str>, u32>,
    /// Whose turn it was last, of runs that were submitted by hand.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub position: Box<str>,
}

impl Pick {
    /// Whether any worker may have it, as usual.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
    pub fn is_any(&self) -> bool {
        *self == Self::Any
    }

    /// What a run is that is for so many.
    pub fn role(self) -> RunRole {
        match self {
            Self::Any => RunRole::Plain,
            Self::Next(_) | Self::All => RunRole::Whole(self),
        }
    }

    /// How many parts a run has if there are so many workers: at least one, which waits until there is a worker.
    pub fn parts(self, workers: usize) -> usize {
        match self {
            Self::Any => 1,
            Self::Next(count) => count.into(),
            Self::All => workers.max(1),
        }
    }

    /// The workers whose turn it is after a position. They ascend, each once.
    pub fn choose(self, workers: &[Arc<str>], position: &str) -> Vec<Arc<str>> {
        match self {
            Self::Any => Vec::new(),
            Self::Next(count) => {
                let mut chosen: Vec<_> = rotate(workers, position, count.into()).cloned().collect();
                mutant::also(Mutant::PartsByName, || chosen.dedup());
                chosen
            }
            Self::All => workers.to_vec(),
        }
    }

    /// Whose turn it was last, once these were chosen. Nobody is passed over when it is everybody's.
    pub fn position_after(self, chosen: &[Arc<str>]) -> Option<&Arc<str>> {
        match self {
            Self::Any | Self::All => None,
            Self::Next(_) => chosen.last(),
        }
    }

    /// What a person wrote, in the fields `pick` and `count`. What is wrong is noted.
    pub(crate) fn build(pick: Option<&str>, count: Option<u64>, faults: &mut Faults) -> Self {
        let most = u64::from(PICK_COUNT_MAX);
        let number = faults.or_usual("/count", count, 1, |count| {
            read::number(count, 1, most).map(|count| u8::try_from(count).unwrap_or(PICK_COUNT_MAX))
        });
        let picks = [("any", Self::Any), ("next", Self::Next(number)), ("all", Self::All)];
        let pick = faults.word("/pick", pick, Self::Any, &picks);
        if count.is_some() && !matches!(pick, Self::Next(_)) {
            faults.add("/count", "it means something with \"pick\": \"next\" only");
        }
        pick
    }
}

impl RunRole {
    /// Whether it is a run that has parts.
    pub fn is_whole(self) -> bool {
        matches!(self, Self::Whole(_))
    }
}

impl ChosenRecord {
    /// The number of the last part.
    pub fn last(&self) -> u64 {
        self.first + (self.workers.len() as u64).saturating_sub(1)
    }

    /// The numbers of the parts.
    pub fn numbers(&self) -> impl Iterator<Item = u64> + use<> {
        self.first..self.first + self.workers.len() as u64
    }

    /// Which part has this number, from 0, if one has.
    pub fn place(&self, number: u64) -> Option<usize> {
        let place = usize::try_from(number.checked_sub(self.first)?).ok()?;
        (place < self.workers.len()).then_some(place)
    }

    /// For whom the part with this number is.
    pub fn worker(&self, number: u64) -> Option<&Arc<str>> {
        self.workers.get(self.place(number)?)
    }
}

/// Ends of parts, the worst first: of several parts the first of these that any has is that of their run.
const ENDS: [(char, RunEnd); 7] = [
    ('f', RunEnd::Plain(End::Failed)),
    ('p', RunEnd::Poison),
    ('d', RunEnd::Plain(End::Dead)),
    ('u', RunEnd::Plain(End::Unknown)),
    ('e', RunEnd::Plain(End::Expired)),
    ('c', RunEnd::Plain(End::Cancelled)),
    ('s', RunEnd::Plain(End::Succeeded)),
];

/// The letter of a part that is unfinished.
const OPEN: char = '-';

/// How bad an end is: the least is the worst.
fn rank(letter: char) -> usize {
    ENDS.iter().position(|(known, _)| *known == letter).unwrap_or(ENDS.len())
}

/// The letter of an end: `f`ailed, `p`oison, `d`ead, `u`nknown, `e`xpired, `c`ancelled, `s`ucceeded.
pub fn letter(end: RunEnd) -> char {
    ENDS.iter().find(|(_, known)| *known == end).map_or(OPEN, |(letter, _)| *letter)
}

/// The end that a letter stands for; none, if it is that of a part that is unfinished.
pub fn end_of(letter: char) -> Option<RunEnd> {
    ENDS.iter().find(|(known, _)| *known == letter).map(|(_, end)| *end)
}

impl PartEndsRecord {
    /// So many parts are unfinished.
    pub fn open(parts: usize) -> Self {
        Self { ends: OPEN.to_string().repeat(parts), ..Self::default() }
    }

    /// How a part ended, if it has.
    pub fn of(&self, place: usize) -> Option<RunEnd> {
        end_of(self.ends.chars().nth(place)?)
    }

    /// Who carried out a part, if that was not the worker that had been chosen.
    pub fn by(&self, place: usize) -> Option<&str> {
        self.by.iter().find(|(of, _)| *of == place).map(|(_, worker)| &**worker)
    }

    /// The same once a part has ended, by this worker if it was not its own, and this came of it last.
    #[must_use]
    pub fn with(
        &self,
        place: usize,
        end: RunEnd,
        by: Option<Box<str>>,
        last: Option<Attempt>,
    ) -> Self {
        let before = self.ends.chars().map(rank).filter(|rank| *rank < ENDS.len()).min();
        let is_worst = rank(letter(end)) < before.unwrap_or(ENDS.len());
        let ends = self.ends.chars().enumerate();
        let ends = ends.map(|(of, known)| if of == place { letter(end) } else { known });
        let is_success = end == RunEnd::Plain(End::Succeeded);
        Self {
            ends: ends.collect(),
            by: self.by.iter().cloned().chain(by.map(|by| (place, by))).collect(),
            worst: if is_worst && !is_success { last } else { self.worst.clone() },
        }
    }

    /// How the run ended, if all of its parts have: as all of them did, or as the worst.
    pub fn sum(&self) -> Option<RunEnd> {
        let is_open = self.ends.contains(OPEN);
        let worst = self.ends.chars().map(rank).min().filter(|_| !is_open)?;
        ENDS.get(worst).map(|(_, end)| *end)
    }

    /// The places of the parts that have ended.
    pub fn ended(&self) -> impl Iterator<Item = usize> {
        self.ends.chars().enumerate().filter(|(_, letter)| *letter != OPEN).map(|(place, _)| place)
    }
}

/// Where is kept for whom the parts of runs of a shard are.
pub fn chosen(shard: ShardId) -> String {
    format!("shard/{shard}/chosen/")
}

/// Where is kept for whom the parts of a run are.
pub fn chosen_key(shard: ShardId, run: u64) -> String {
    format!("shard/{shard}/chosen/{run:016}")
}

/// Where is kept how parts of runs of a shard ended.
pub fn part_ends(shard: ShardId) -> String {
    format!("shard/{shard}/parts/")
}

/// Where is kept how the parts of a run ended.
pub fn part_ends_key(shard: ShardId, run: u64) -> String {
    format!("shard/{shard}/parts/{run:016}")
}

/// Where is kept who may be chosen, for the queues of a shard.
pub fn picks(shard: ShardId) -> String {
    format!("shard/{shard}/picks/")
}

/// Where is kept who may be chosen for runs of a queue.
pub fn picks_key(shard: ShardId, queue: SerialId) -> String {
    format!("shard/{shard}/picks/{queue}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<Arc<str>> {
        names.iter().map(|name| Arc::from(*name)).collect()
    }

    #[test]
    fn next_goes_around_and_all_is_everybody() {
        let workers = names(&["a", "b", "c"]);
        let next = Pick::Next(2);
        let chosen = next.choose(&workers, "b");
        assert_eq!(chosen, names(&["c", "a"]));
        assert_eq!(next.position_after(&chosen).map(|name| &**name), Some("a"));
        assert_eq!(Pick::Next(4).choose(&workers, ""), names(&["a", "b", "c", "a"]));
        assert_eq!(Pick::All.choose(&workers, "b"), workers);
        assert_eq!(Pick::All.position_after(&workers), None);
        assert_eq!(next.choose(&[], "b"), names(&[]));
    }

    #[test]
    fn a_run_ends_as_all_of_its_parts_did_or_as_the_worst() {
        use End::{Cancelled, Dead, Expired, Failed, Succeeded, Unknown};
        let sum = |ends: &[RunEnd]| {
            let mut record = PartEndsRecord::open(ends.len());
            for (place, end) in ends.iter().enumerate() {
                assert_eq!(record.sum(), None, "one is unfinished");
                record = record.with(place, *end, None, None);
            }
            record.sum()
        };
        let plain = RunEnd::Plain;
        assert_eq!(sum(&[plain(Succeeded), plain(Succeeded)]), Some(plain(Succeeded)));
        let worst = [Failed, Dead, Unknown, Expired, Cancelled, Succeeded];
        for pair in worst.windows(2) {
            for ends in [[pair[0], pair[1]], [pair[1], pair[0]]] {
                assert_eq!(sum(&ends.map(plain)), Some(plain(pair[0])), "{ends:?}");
            }
        }
        assert_eq!(sum(&[plain(Dead), RunEnd::Poison]), Some(RunEnd::Poison));
    }

    #[test]
    fn the_attempt_of_the_worst_part_is_told() {
        let attempt =
            |why: &str| Some(Attempt { error: Some(why.to_owned()), ..Attempt::default() });
        let plain = RunEnd::Plain;
        let record = PartEndsRecord::open(4)
            .with(2, plain(End::Cancelled), None, attempt("cancelled"))
            .with(0, plain(End::Dead), Some("b".into()), attempt("dead"))
            .with(1, plain(End::Succeeded), None, attempt("fine"))
            .with(3, plain(End::Dead), None, attempt("dead too"));
        assert_eq!(record.ends, "dscd");
        assert_eq!((record.by(0), record.by(1)), (Some("b"), None));
        assert_eq!(record.worst, attempt("dead"));
        assert_eq!((record.of(2), record.of(4)), (Some(plain(End::Cancelled)), None));
    }

    #[test]
    fn a_count_is_taken_at_its_limit_and_refused_one_past_it() {
        let build = |pick, count| {
            let mut faults = Faults::default();
            let pick = Pick::build(pick, count, &mut faults);
            if faults.0.is_empty() { Ok(pick) } else { Err(faults.0.remove(0).pointer) }
        };
        assert_eq!(build(None, None), Ok(Pick::Any));
        assert_eq!(build(Some("next"), None), Ok(Pick::Next(1)));
        assert_eq!(build(Some("next"), Some(64)), Ok(Pick::Next(64)));
        assert_eq!(build(Some("all"), None), Ok(Pick::All));
        for (pick, count, pointer) in [
            (Some("next"), Some(65), "/count"),
            (Some("next"), Some(0), "/count"),
            (Some("all"), Some(2), "/count"),
            (None, Some(2), "/count"),
            (Some("some"), None, "/pick"),
        ] {
            assert_eq!(build(pick, count), Err(pointer.to_owned()), "{pick:?} {count:?}");
        }
    }
}
