//! Pages: the past of a bucket of triggers, day by day.
//!
//! A commit writes a segment with lines of whoever was due. In the background many segments are merged
//! into pages, so that a question about one trigger need not read what became of all others:
//!
//! ```text
//! shard/<n>/page/<bucket>/<reverse day>/<reverse round>.<chain number>.<piece>
//! ```
//!
//! A trigger is in one of 1,024 buckets for ever, and a line is in the page of its slot's day; that of a run which was
//! submitted to a queue is in the page of the day of its end ([`Line::filed`]). The round is the number of the newest segment that was merged. Pages of a day that has too many small ones are merged
//! once more, under the round of the oldest of them and the number that the chain has then.
//!
//! **Nothing is missed.** What is merged is written before what it was merged from is deleted, and it comes
//! later in the order of reading: segments before pages, a page before the one that takes its lines. So
//! whoever reads in that order, at any pace, meets each line, perhaps twice: lines are a set.
//!
//! **Cut short, done again.** A merge that stopped half-way is done again from what is left, and doubles
//! vanish in the next one. The newest segment is deleted first, so a page is written again under its key
//! only as long as everything that it was merged from is still there.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::hash::mix;
use crate::id::{Birth, ProjectId, SerialId, ShardId};
use crate::instant::Instant;
use crate::limits::{HISTORY_BUCKETS, HISTORY_PAGE_BYTES_MAX, HISTORY_PIECE_WRITES_MAX};
use crate::mutant::{Mutant, pick};
use crate::shard::Put;
use crate::shard::record::past_key;

use super::exception::{exception_key_of, exception_pages, exception_pages_of};
use super::{Line, Segment};

const DAY_MS: i64 = 86_400_000;

/// Greater than every day that can be written.
const DAY_END: u32 = 9_999_999;

/// Which of a shard's triggers share pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bucket(u16);

impl Bucket {
    /// Where the past of a trigger is.
    pub fn of(trigger: SerialId) -> Self {
        let place = mix(trigger.0) % u64::from(HISTORY_BUCKETS);
        Self(u16::try_from(place).expect("less than the number of buckets"))
    }
}

impl fmt::Display for Bucket {
    /// The bucket as it is written in a key.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:04}", self.0)
    }
}

impl Bucket {
    /// The first of all.
    pub const FIRST: Self = Self(0);

    /// The one after it, if there is one.
    pub fn next(self) -> Option<Self> {
        (self.0 + 1 < HISTORY_BUCKETS).then_some(Self(self.0 + 1))
    }
}

/// Whose lines share pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Home {
    /// All lines of some triggers, by the day by which they are filed.
    Bucket(Bucket),
    /// The exceptions of a project, by the day on which they were written.
    Exceptions(ProjectId),
}

impl From<Bucket> for Home {
    fn from(bucket: Bucket) -> Self {
        Self::Bucket(bucket)
    }
}

impl Home {
    /// Where its pages are, newest first.
    pub fn pages(self, shard: ShardId) -> String {
        match self {
            Self::Bucket(bucket) => pages_of(shard, bucket),
            Self::Exceptions(project) => exception_pages_of(shard, project),
        }
    }

    /// By what its lines are in order.
    pub fn instant(self, line: &Line) -> Instant {
        match self {
            Self::Bucket(_) => line.filed(),
            Self::Exceptions(_) => line.written(),
        }
    }
}

/// A day of UTC, counted from 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PastDay(u32);

impl PastDay {
    /// The day of an instant; what was before 1970 counts as its first day.
    pub fn of(instant: Instant) -> Self {
        let days = instant.0.div_euclid(DAY_MS).clamp(0, i64::from(DAY_END));
        Self(u32::try_from(days).expect("between the bounds"))
    }

    /// The first instant of the day.
    pub fn start(self) -> Instant {
        Instant(i64::from(self.0) * DAY_MS)
    }

    /// The day before it.
    #[must_use]
    pub fn before(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    /// The last instant of the day.
    pub fn end(self) -> Instant {
        Instant((i64::from(self.0) + 1) * DAY_MS - 1)
    }
}

impl fmt::Display for PastDay {
    /// Reversed, as in a key.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:07}", DAY_END - self.0)
    }
}

/// What a page is called in its bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageName {
    /// Which day its slots are of.
    pub day: PastDay,
    /// The newest segment of the merge, or the oldest round that was compacted.
    pub round: u64,
    /// 0 after a merge; after a compaction, the number that the chain had then.
    pub chain_number: u64,
    /// Number of the page among those that were made together, from 0.
    pub piece: u16,
}

impl PageName {
    /// The key of the page.
    pub fn key(&self, shard: ShardId, home: impl Into<Home>) -> String {
        format!("{}{self}", home.into().pages(shard))
    }
}

impl fmt::Display for PageName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { day, round, chain_number, piece } = self;
        write!(out, "{day}/{:016x}.{chain_number:016x}.{piece:05}", u64::MAX - round)
    }
}

/// Why a text is no name of a page.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} names no page of the past")]
pub struct BadPageName(String);

impl FromStr for PageName {
    type Err = BadPageName;

    fn from_str(text: &str) -> Result<Self, BadPageName> {
        let read = || {
            let (day, rest) = text.split_once('/')?;
            let mut rest = rest.split('.');
            let mut hex = || u64::from_str_radix(rest.next()?, 16).ok();
            let (round, chain_number) = (u64::MAX - hex()?, hex()?);
            let piece = rest.next()?.parse().ok()?;
            let day = PastDay(DAY_END.checked_sub(day.parse().ok()?)?);
            Some(Self { day, round, chain_number, piece })
        };
        // Written back, so that each page has one name only.
        let name = read().filter(|name| name.to_string() == text);
        name.ok_or_else(|| BadPageName(text.chars().take(64).collect()))
    }
}

/// Where the pages of a shard are.
pub fn pages(shard: ShardId) -> String {
    format!("shard/{shard}/page/")
}

/// Where the pages of a bucket are, newest first.
pub fn pages_of(shard: ShardId, bucket: Bucket) -> String {
    format!("shard/{shard}/page/{bucket}/")
}

/// Which bucket and which page a key of a shard is about.
pub fn read_key(shard: ShardId, key: &str) -> Option<(Bucket, PageName)> {
    let (bucket, name) = key.strip_prefix(&pages(shard))?.split_once('/')?;
    let bucket = Bucket(bucket.parse().ok().filter(|bucket| *bucket < HISTORY_BUCKETS)?);
    let name: PageName = name.parse().ok()?;
    (name.key(shard, bucket) == key).then_some((bucket, name))
}

/// Whose page a key of a shard is about, and which.
pub fn read_any_key(shard: ShardId, key: &str) -> Option<(Home, PageName)> {
    let Some(rest) = key.strip_prefix(&exception_pages(shard)) else {
        return read_key(shard, key).map(|(bucket, name)| (Home::Bucket(bucket), name));
    };
    let (project, name) = rest.split_once('/')?;
    let (home, name) =
        (Home::Exceptions(ProjectId(project.parse().ok()?)), name.parse::<PageName>().ok()?);
    (name.key(shard, home) == key).then_some((home, name))
}

/// What makes a line the same as another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the fields are those of the lines")]
pub enum Identity {
    Run { trigger: SerialId, slot: Instant, birth: Birth },
    Skip { trigger: SerialId, generation: u32, from: Instant, to: Instant },
}

impl Line {
    /// What it is about. A slot ends in one recorded state, so two lines that are about the same are the
    /// same.
    pub fn identity(&self) -> Identity {
        match self {
            Self::Run(run) => {
                let demand = Birth::Demand(run.sequence.unwrap_or(0));
                let birth = run.generation.map_or(demand, Birth::Slot);
                Identity::Run { trigger: run.trigger, slot: run.slot, birth }
            }
            Self::Skip(skip) => Identity::Skip {
                trigger: skip.trigger,
                generation: skip.generation,
                from: skip.from,
                to: skip.to,
            },
        }
    }
}

/// What a merge writes, and what can go once that is durable.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MergePlan {
    /// The new pages, by their keys.
    pub pages: Vec<(String, Vec<u8>)>,
    /// New pages of exceptions.
    pub index: Vec<(String, Vec<u8>)>,
    /// What they were made from, in the order in which it goes.
    pub spent: Vec<String>,
}

impl MergePlan {
    /// What is to be written, piece by piece: each one when the one before is durable. They are small, so
    /// that nothing that is due waits long behind one.
    pub fn pieces(self) -> Vec<Vec<Put>> {
        let index = pick(Mutant::NotIndexed, self.index, Vec::new());
        let pages = self.pages.into_iter().chain(index);
        let pages = pages.map(|(key, bytes)| Put::Value(key, bytes));
        let (pages, spent) = (pieces(pages), pieces(self.spent.into_iter().map(Put::Gone)));
        let mut ordered = [pages, spent];
        ordered.rotate_left(pick(Mutant::SegmentsBeforePages, 0, 1));
        ordered.into_iter().flatten().collect()
    }
}

/// Cuts writes of background work into pieces.
pub(super) fn pieces(puts: impl Iterator<Item = Put>) -> Vec<Vec<Put>> {
    split(puts, HISTORY_PIECE_WRITES_MAX, HISTORY_PAGE_BYTES_MAX)
}

/// Cuts writes into as many as may go together: so many, with so many bytes, and at least one.
pub(crate) fn split(
    puts: impl IntoIterator<Item = Put>,
    writes_max: usize,
    bytes_max: usize,
) -> Vec<Vec<Put>> {
    let mut all: Vec<Vec<Put>> = Vec::new();
    let mut bytes = 0;
    for put in puts {
        let more = match &put {
            Put::Value(key, value) => key.len() + value.len(),
            Put::Gone(key) => key.len(),
        };
        match all.last_mut() {
            Some(last) if last.len() < writes_max && bytes + more <= bytes_max => {
                bytes += more;
                last.push(put);
            }
            Some(_) | None => {
                bytes = more;
                all.push(vec![put]);
            }
        }
    }
    all
}

/// Merges segments, each with the number of its commit, into pages of at most so many bytes. A line that
/// is longer than that has a page to itself.
pub fn merge(shard: ShardId, segments: Vec<(u64, Segment)>, page_bytes: usize) -> MergePlan {
    merge_from(shard, segments, Instant::FIRST, page_bytes)
}

/// Merges segments, but leaves out lines about slots before an instant, which are not kept any more.
pub fn merge_from(
    shard: ShardId,
    segments: Vec<(u64, Segment)>,
    before: Instant,
    page_bytes: usize,
) -> MergePlan {
    let mut numbers: Vec<u64> = segments.iter().map(|(number, _)| *number).collect();
    numbers.sort_unstable_by(|one, other| other.cmp(one));
    let Some(&round) = numbers.first() else { return MergePlan::default() };
    let mut plan = MergePlan::default();
    // The exceptions of a commit go first: while its segment is there, they are known to be.
    let exceptions = |number, lines: &[Line]| exception_key_of(shard, lines, number);
    let exceptions: BTreeMap<u64, Option<String>> = segments
        .iter()
        .map(|(number, segment)| (*number, exceptions(*number, &segment.lines)))
        .collect();
    for number in numbers {
        plan.spent.extend(exceptions.get(&number).cloned().flatten());
        plan.spent.push(past_key(shard, number));
    }
    let lines: Vec<Line> = segments.into_iter().flat_map(|(_, segment)| segment.lines).collect();
    plan.index = index(shard, &lines, round, 0, page_bytes);
    let mut sorted: BTreeMap<(Bucket, PastDay), Vec<Line>> = BTreeMap::new();
    for line in lines.into_iter().filter(|line| line.filed() >= before) {
        let place = (Bucket::of(line.trigger()), PastDay::of(line.filed()));
        sorted.entry(place).or_default().push(line);
    }
    for ((bucket, day), lines) in sorted {
        for (piece, bytes) in cut(bucket.into(), lines, page_bytes) {
            let name = PageName { day, round, chain_number: 0, piece };
            plan.pages.push((name.key(shard, bucket), bytes));
        }
    }
    plan
}

/// The exceptions among lines, as pages of their projects.
pub fn index(
    shard: ShardId,
    lines: &[Line],
    round: u64,
    chain_number: u64,
    page_bytes: usize,
) -> Vec<(String, Vec<u8>)> {
    let mut sorted: BTreeMap<(ProjectId, PastDay), Vec<Line>> = BTreeMap::new();
    for line in lines.iter().filter(|line| line.is_exception()) {
        let place = (line.project(), PastDay::of(line.written()));
        sorted.entry(place).or_default().push(line.clone().without_responses());
    }
    let mut pages = Vec::new();
    for ((project, day), lines) in sorted {
        let home = Home::Exceptions(project);
        for (piece, bytes) in cut(home, lines, page_bytes) {
            pages.push((PageName { day, round, chain_number, piece }.key(shard, home), bytes));
        }
    }
    pages
}

/// Turns pages of one home and day into fewer; nothing, if that cannot be. `chain_number` is that of
/// the chain now: nothing was written under it, and it is greater than all before.
pub fn compact(
    shard: ShardId,
    home: impl Into<Home>,
    chain_number: u64,
    sources: Vec<(PageName, Segment)>,
    page_bytes: usize,
) -> Option<MergePlan> {
    let home = home.into();
    let (first, _) = sources.first()?;
    let day = first.day;
    assert!(sources.iter().all(|(name, _)| name.day == day), "pages of one day");
    assert!(
        sources.iter().all(|(name, _)| name.chain_number < chain_number),
        "numbers grow with the chain"
    );
    let round = sources.iter().map(|(name, _)| name.round).min()?;
    let spent: Vec<String> = sources.iter().map(|(name, _)| name.key(shard, home)).collect();
    let lines = sources.into_iter().flat_map(|(_, page)| page.lines).collect();
    let pages: Vec<_> = cut(home, lines, page_bytes)
        .into_iter()
        .map(|(piece, bytes)| {
            (PageName { day, round, chain_number, piece }.key(shard, home), bytes)
        })
        .collect();
    (pages.len() < spent.len()).then_some(MergePlan { pages, index: Vec::new(), spent })
}

/// Lines as a set, newest first, cut into pages.
fn cut(home: Home, mut lines: Vec<Line>, page_bytes: usize) -> Vec<(u16, Vec<u8>)> {
    // The same lines have the same instants, so they stand together.
    lines.sort_by_cached_key(|line| std::cmp::Reverse((home.instant(line), line.identity())));
    lines.dedup_by_key(|line| line.identity());
    let around = Segment::enclose(&[]).len();
    let mut pages: Vec<Vec<u8>> = Vec::new();
    let mut open: Vec<u8> = Vec::new();
    for line in &lines {
        let full = open.len();
        Segment::append(&mut open, line);
        if open.len() + around > page_bytes && full > 0 {
            pages.push(Segment::enclose(&open[..full]));
            open.clear();
            Segment::append(&mut open, line);
        }
    }
    if !open.is_empty() {
        pages.push(Segment::enclose(&open));
    }
    let piece = |index: usize| u16::try_from(index).expect("a merge is bounded to a few megabytes");
    pages.into_iter().enumerate().map(|(index, bytes)| (piece(index), bytes)).collect()
}

#[cfg(test)]
mod tests;
