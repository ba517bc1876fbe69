//! What of the past is kept, and how the rest goes.
//!
//! Lines go when their slot (or, of a run that was submitted, its end) is too old, when their trigger has enough newer ones, or when the store has more
//! than it may have. Whole pages are deleted where all of their lines go; where a rule cuts through, a page
//! is written again with what stays, under its own key: whoever reads sees the one or the other. In each
//! case the floor is raised first ([`super::floor`]).
//!
//! **Enough newer ones** are those about newer slots. All pages of a bucket are read for it once, and what is
//! remembered of them is bounded by what is kept; then those are read again that something goes from.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::BuildHasher;
use std::time::Duration;

use crate::id::{SerialId, ShardId};
use crate::instant::Instant;
use crate::limits::{
    HISTORY_AGE, HISTORY_BYTES, HISTORY_EXCEPTION_LINES, HISTORY_LINES, HISTORY_PART, OUTPUT_BYTES,
    OUTPUT_PART, TRIGGER_ENDED_AGE,
};
use crate::mutant::{Mutant, pick};
use crate::shard::Put;

use super::floor::{BucketFloor, ShardFloor, floor_key, floor_key_of};
use super::page::{Bucket, Home, pieces};
use super::{Line, Segment};

/// How much of the past is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Lines about slots of the last so many days, to the day.
    pub age: Duration,
    /// The newest lines of a trigger, and some more until they are counted again.
    pub lines: usize,
    /// The newest exceptions of a project in a shard, to the page.
    pub exception_lines: usize,
    /// Bytes of pages in the whole store. The oldest go first.
    pub bytes: u64,
    /// Bytes of what runs of queues printed, in the whole store: each shard has an equal part. The oldest go first.
    pub output_bytes: u64,
    /// How long a trigger that has expired or was cancelled is kept.
    pub ended: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            age: HISTORY_AGE,
            lines: HISTORY_LINES,
            exception_lines: HISTORY_EXCEPTION_LINES,
            bytes: HISTORY_BYTES,
            output_bytes: OUTPUT_BYTES,
            ended: TRIGGER_ENDED_AGE,
        }
    }
}

impl Retention {
    /// The bytes that pages may have in a store that has room for so many in all, if that is known.
    pub fn bytes_within(&self, room: Option<u64>) -> u64 {
        room.map_or(self.bytes, |room| self.bytes.min(room / HISTORY_PART))
    }

    /// The same of what runs of queues printed.
    pub fn output_bytes_within(&self, room: Option<u64>) -> u64 {
        room.map_or(self.output_bytes, |room| self.output_bytes.min(room / OUTPUT_PART))
    }
}

/// What a rule makes of pages: a floor, and what then goes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RetentionCut {
    floor: Option<Put>,
    pages: Vec<Put>,
}

impl RetentionCut {
    /// Nothing yet, but the floor of a shard is raised.
    pub fn of_shard(shard: ShardId, floor: ShardFloor) -> Self {
        let floor = Put::Value(floor_key(shard), floor.to_bytes());
        Self { floor: Some(floor), pages: Vec::new() }
    }

    /// Nothing yet, but the floor of a bucket is raised.
    pub fn of_bucket(shard: ShardId, bucket: Bucket, floor: &BucketFloor) -> Self {
        let floor = Put::Value(floor_key_of(shard, bucket), floor.to_bytes());
        Self { floor: Some(floor), pages: Vec::new() }
    }

    /// A page goes.
    pub fn gone(&mut self, key: String) {
        self.pages.push(Put::Gone(key));
    }

    /// A page has only these lines from now on.
    pub fn page(&mut self, key: String, kept: Vec<Line>) {
        if kept.is_empty() {
            return self.gone(key);
        }
        self.pages.push(Put::Value(key, Segment { lines: kept }.to_bytes()));
    }

    /// Whether nothing goes.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// What is to be written, piece by piece, each when the one before is durable. Any beginning of it leaves
    /// everything as it should be.
    pub fn pieces(self) -> Vec<Vec<Put>> {
        pieces(self.puts().into_iter())
    }

    fn puts(self) -> Vec<Put> {
        let mut ordered = [self.floor.into_iter().collect(), self.pages];
        ordered.rotate_left(pick(Mutant::PagesBeforeFloor, 0, 1));
        ordered.into_iter().flatten().collect()
    }
}

/// Which lines of a page are of an instant or later; nothing, if all are.
pub fn from(home: Home, lines: &[Line], before: Instant) -> Option<Vec<Line>> {
    let is_kept = |line: &&Line| home.instant(line) >= before;
    let kept: Vec<Line> = lines.iter().filter(is_kept).cloned().collect();
    (kept.len() < lines.len()).then_some(kept)
}

/// The newest lines of a bucket's triggers, as far as its pages were read.
#[derive(Debug)]
pub struct LineTally {
    most: usize,
    /// Slots, and hashes of what is about them: should two be the same, one line more is kept.
    newest: HashMap<SerialId, BTreeSet<(Instant, u64)>>,
    /// Triggers that have more lines than are kept.
    full: HashSet<SerialId>,
    hasher: RandomState,
    lines: usize,
}

impl LineTally {
    /// Of each trigger so many lines are kept.
    pub fn new(most: usize) -> Self {
        let (newest, full, hasher) = (HashMap::new(), HashSet::new(), RandomState::new());
        Self { most, newest, full, hasher, lines: 0 }
    }

    /// Takes a page into account. A line that is met twice counts once.
    pub fn add(&mut self, lines: &[Line]) {
        self.lines += lines.len();
        for line in lines {
            let newest = self.newest.entry(line.trigger()).or_default();
            newest.insert((line.slot(), self.hasher.hash_one(line.identity())));
            if newest.len() > self.most {
                newest.pop_first();
                self.full.insert(line.trigger());
            }
        }
    }

    /// How many lines the pages have that were added.
    pub fn lines(&self) -> usize {
        self.lines
    }

    /// From which slots on the lines of triggers are kept that have too many.
    pub fn bounds(&self) -> LineBounds {
        let oldest = |trigger: &SerialId| {
            let (slot, _) = self.newest.get(trigger)?.first()?;
            Some((*trigger, *slot))
        };
        LineBounds(self.full.iter().filter_map(oldest).collect())
    }
}

/// From which slots on lines are kept, for triggers that have too many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineBounds(BTreeMap<SerialId, Instant>);

impl LineBounds {
    /// The highest of them: no line goes that is about a slot at or after it.
    pub fn highest(&self) -> Option<Instant> {
        self.0.values().copied().max()
    }

    /// Raises the floors of these triggers.
    pub fn raise(&self, floor: &mut BucketFloor) {
        for (trigger, bound) in &self.0 {
            floor.raise(*trigger, *bound);
        }
    }

    /// What of a page is kept; nothing, if it is all of it.
    pub fn page(&self, lines: &[Line]) -> Option<Vec<Line>> {
        let is_kept =
            |line: &&Line| self.0.get(&line.trigger()).is_none_or(|bound| line.slot() >= *bound);
        let kept: Vec<Line> = lines.iter().filter(is_kept).cloned().collect();
        (kept.len() < lines.len()).then_some(kept)
    }
}
