//! The historian: merges segments of the past into pages, and many small pages into few.
//!
//! It works in the background, on one shard at a time and in small pieces, each through the shard's owner
//! and each awaited before the next. What it writes and in which order is decided by
//! [`engine::past::page`]; here it is read, sent, and sent again another day if something went wrong. What
//! it remembers between two looks only saves reading: a node that starts anew finds it out again. It works on the
//! shards that are run here, whichever those are at the moment.
//!
//! The newest commits are left alone, so that what just happened is found where it was written.
//!
//! - `retention`: what is not kept any more goes
//! - `exception_index`: the index of exceptions, for a past that has none
//! - `output`: what runs printed goes with the past

mod exception_index;
mod name;
mod output;
mod retention;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use engine::id::ShardId;
use engine::instant::Instant;
use engine::limits::HISTORY_PAGE_BYTES_MAX;
use engine::past::exception::exception_pages;
use engine::past::page::{self, Home, MergePlan, PageName, PastDay};
use engine::past::retain::Retention;
use engine::past::{Line, Segment};
use engine::shard::record::{head_key, past_key, past_number};
use store::claim::Head;
use store::machine::Machine;
use store::{Entry, Key, Range, ScanError, Store};

use self::exception_index::ExceptionIndexing;
use self::name::NameSweep;
use self::output::OutputSweep;
use self::retention::RetentionProgress;
use super::component::Component;
use crate::handle::{CallError, NodeHandle};
use crate::metric::NodeMetrics;

/// When the past is merged, and how much of it at a time.
#[derive(Debug, Clone, Copy)]
pub struct HistoryPace {
    /// How long it rests between two looks at all shards.
    pub look: Duration,
    /// Segments of so many of the newest commits are left alone.
    pub keep: u64,
    /// The past is merged when so many commits wait,
    pub round_min: u64,
    /// or the oldest of them is this old; it looks for such ones as rarely.
    pub age_max: Duration,
    /// Commits that are merged at a time.
    pub round_max: u64,
    /// Bytes that are merged at a time, unless one segment has more.
    pub round_bytes_max: usize,
    /// Small pages that a bucket may have of a day that is not over.
    pub small_max: usize,
    /// How long after its end a day is over: what was due late in it has been had then.
    pub day_over: Duration,
    /// How much of the past is kept.
    pub retention: Retention,
}

impl Default for HistoryPace {
    fn default() -> Self {
        Self {
            look: Duration::from_secs(5),
            keep: 256,
            round_min: 256,
            age_max: Duration::from_secs(3_600),
            round_max: 1_000,
            round_bytes_max: 8 * 1024 * 1024,
            small_max: 16,
            day_over: Duration::from_secs(3_600),
            retention: Retention::default(),
        }
    }
}

/// Rounds of a shard in a row before others have their turn.
const ROUNDS_MAX: usize = 4;

/// Compactions of a shard in a row before others have their turn,
const COMPACTIONS_MAX: usize = 8;

/// and how long they may take together: there is one in each visit, and more if the store has nothing else to do.
const COMPACTING_MAX: Duration = Duration::from_millis(50);

/// Pages that are compacted at a time.
const SOURCES_MAX: usize = 64;

/// Bytes of pages that are compacted at a time.
const SOURCE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Pages of a predecessor that the survey reads at a time.
const SURVEY_LEN: usize = 64;

/// The rest between two shards.
const PAUSE: Duration = Duration::from_millis(20);

/// Why the historian left a shard.
enum VisitError {
    /// The shard is not this node's any more, or the node stops.
    Lost,
    /// A record could not be read; another time, perhaps.
    Unread(String),
}

/// What comes of a visit to a shard, or of a step of it.
type Visited<T = ()> = Result<T, VisitError>;

impl From<CallError> for VisitError {
    fn from(_: CallError) -> Self {
        Self::Lost
    }
}

impl From<ScanError> for VisitError {
    fn from(why: ScanError) -> Self {
        Self::Unread(why.to_string())
    }
}

/// Whose pages, and of which day.
type PageDay = (Home, PastDay);

/// What the historian remembers of a shard.
struct ShardNotes {
    /// Up to this commit everything is merged.
    floor: Option<u64>,
    /// When it was last looked for segments that are old, by the steady clock.
    aged: Duration,
    /// Pages that are less than half full.
    small: BTreeMap<PageDay, BTreeSet<PageName>>,
    /// What the survey of a predecessor's pages has not seen yet, and where it is.
    survey: Option<Range>,
    survey_at: Option<PageDay>,
    /// The last page that the survey has passed: those up to it are counted.
    survey_key: Option<String>,
    /// How far retention has come.
    retention: RetentionProgress,
    /// How far indexing of exceptions has come.
    indexing: ExceptionIndexing,
    /// How far the outputs of runs were looked at.
    outputs: OutputSweep,
    /// How far reserved names were looked at.
    names: NameSweep,
}

impl ShardNotes {
    /// Whether some have waited for so long that they have to be compacted also when the store has much else to do.
    fn has_too_many_small(&self) -> bool {
        self.small.values().any(|names| names.len() >= SOURCES_MAX)
    }
}

pub(super) struct Historian {
    handle: NodeHandle,
    machine: Arc<dyn Machine>,
    pace: HistoryPace,
    page_bytes: usize,
    metrics: Arc<NodeMetrics>,
    shards: BTreeMap<ShardId, ShardNotes>,
}

impl Component for Historian {
    const NAME: &'static str = "the historian";

    async fn run(mut self) {
        let mut is_told = false;
        loop {
            self.machine.sleep(self.pace.look).await;
            self.follow();
            let ids: Vec<ShardId> = self.shards.keys().copied().collect();
            for shard in ids {
                self.machine.sleep(PAUSE.min(self.pace.look)).await;
                let Some(mut notes) = self.shards.remove(&shard) else { continue };
                match self.visit(shard, &mut notes).await {
                    Ok(()) => {
                        is_told = false;
                        self.shards.insert(shard, notes);
                    }
                    Err(VisitError::Lost) => tracing::debug!(%shard, "the past is left to others"),
                    Err(VisitError::Unread(why)) => {
                        if !is_told {
                            tracing::warn!(%shard, %why, "the past is not merged now: trying again");
                        }
                        is_told = true;
                        self.shards.insert(shard, notes);
                    }
                }
            }
            self.look_at_bytes();
        }
    }
}

impl Historian {
    pub(super) fn new(
        handle: NodeHandle,
        machine: &Arc<dyn Machine>,
        pace: HistoryPace,
        metrics: Arc<NodeMetrics>,
    ) -> Self {
        let page_bytes = HISTORY_PAGE_BYTES_MAX.min(handle.store().limits().value_bytes);
        let (machine, shards) = (Arc::clone(machine), BTreeMap::new());
        Self { handle, machine, pace, page_bytes, metrics, shards }
    }

    /// Begins with the shards that are run here now, and leaves those that are not any more.
    fn follow(&mut self) {
        let served = Arc::clone(&self.handle.peers().served().borrow());
        self.shards.retain(|shard, _| served.contains(shard));
        let aged = self.machine.reading().boot;
        for shard in served.iter() {
            self.shards.entry(*shard).or_insert_with(|| ShardNotes {
                floor: None,
                aged,
                small: BTreeMap::new(),
                survey: Some(Range::prefix(&exception_pages(*shard))),
                survey_at: None,
                survey_key: None,
                retention: RetentionProgress::default(),
                indexing: ExceptionIndexing::new(*shard),
                outputs: OutputSweep::default(),
                names: NameSweep::default(),
            });
        }
    }

    async fn visit(&self, shard: ShardId, notes: &mut ShardNotes) -> Visited {
        self.read_floor(shard, notes).await?;
        self.index_exceptions(shard, notes).await?;
        for _ in 0..ROUNDS_MAX {
            if !self.merge(shard, notes).await? {
                break;
            }
        }
        self.survey(shard, notes).await?;
        let begun = self.machine.reading().boot;
        for _ in 0..COMPACTIONS_MAX {
            let is_done = !self.compact(shard, notes).await?;
            let took = self.machine.reading().boot.saturating_sub(begun);
            if is_done || took > COMPACTING_MAX && !notes.has_too_many_small() {
                break;
            }
        }
        let now = self.handle.now();
        let survey_at = notes.survey_at;
        notes.small.retain(|place, names| {
            names.len() > 1 || !self.is_over(place.1, now) || Some(*place) == survey_at
        });
        self.keep(shard, notes).await?;
        self.sweep_outputs(shard, notes).await
    }

    /// Merges the oldest segments, if it is worth while. Tells whether there may be more.
    async fn merge(&self, shard: ShardId, notes: &mut ShardNotes) -> Visited<bool> {
        let store = self.handle.store();
        let top = number(store, shard).await?.saturating_sub(self.pace.keep);
        let floor = match notes.floor {
            Some(floor) => floor.min(top),
            None => floor(store, shard, top).await?,
        };
        notes.floor = Some(floor);
        let steady = self.machine.reading().boot;
        let is_many = top - floor >= self.pace.round_min;
        if top == floor || !is_many && steady.saturating_sub(notes.aged) < self.pace.age_max {
            return Ok(false);
        }
        let (segments, end) = self.segments(shard, floor, top).await?;
        if !is_many {
            notes.aged = steady;
            let old = self.handle.now().before(self.pace.age_max);
            let oldest = segments.iter().flat_map(|(_, segment)| &segment.lines);
            if oldest.map(Line::written).min().is_none_or(|oldest| oldest > old) {
                return Ok(false);
            }
        }
        notes.retention.added(segments.iter().flat_map(|(_, segment)| &segment.lines));
        let before = notes.retention.floor.before;
        let plan = page::merge_from(shard, segments, before, self.page_bytes);
        let (pages, spent) = (plan.pages.len(), plan.spent.len());
        self.carry_out(shard, notes, plan, &[]).await?;
        if spent > 0 {
            tracing::debug!(%shard, segments = spent, pages, "merged segments of the past");
        }
        notes.floor = Some(end);
        Ok(end < top)
    }

    /// The oldest segments of the commits after one and up to another, as many as are merged at a time, and
    /// up to which commit these are all.
    async fn segments(
        &self,
        shard: ShardId,
        floor: u64,
        top: u64,
    ) -> Visited<(Vec<(u64, Segment)>, u64)> {
        let mut end = top.min(floor + self.pace.round_max);
        loop {
            let read = self.read(shard, floor, end).await?;
            if let Some(segments) = read {
                return Ok((segments, end));
            }
            end = floor + (end - floor).div_ceil(2);
        }
    }

    /// The segments of the commits after one and up to another; nothing, if they are too many bytes.
    async fn read(
        &self,
        shard: ShardId,
        floor: u64,
        end: u64,
    ) -> Visited<Option<Vec<(u64, Segment)>>> {
        let (newest, behind) = (key(past_key(shard, end)), key(past_key(shard, floor)));
        let range = Range::between(&newest, &behind);
        let mut pages = self.handle.store().pages(range, engine::limits::PAGE_ENTRIES_MAX);
        let (mut segments, mut bytes) = (Vec::new(), 0);
        while let Some(entries) = pages.next().await? {
            for entry in entries {
                bytes += entry.value.len();
                if bytes > self.pace.round_bytes_max && end - floor > 1 {
                    return Ok(None);
                }
                let number = past_number(shard, entry.key.as_str());
                if let (Some(number), Some(segment)) = (number, decoded(&entry)) {
                    segments.push((number, segment));
                }
            }
        }
        Ok(Some(segments))
    }

    /// Surveys some of the pages that were there before this node.
    async fn survey(&self, shard: ShardId, notes: &mut ShardNotes) -> Visited {
        let Some(range) = notes.survey.clone() else { return Ok(()) };
        let page = self.handle.store().scan(range, SURVEY_LEN).await?;
        for entry in &page.entries {
            if let Some((home, name)) = page::read_any_key(shard, entry.key.as_str()) {
                notes.survey_at = Some((home, name.day));
                notes.retention.found(home, name, entry.value.len());
                self.remember(notes, home, name, entry.value.len());
            }
            notes.survey_key = Some(entry.key.as_str().to_owned());
        }
        self.index_exceptions_of_pages(shard, notes, &page.entries).await?;
        notes.survey = match page.next {
            None if !notes.retention.is_survey_in_pages => {
                notes.retention.is_survey_in_pages = true;
                Some(Range::prefix(&page::pages(shard)))
            }
            next => next,
        };
        if notes.survey.is_none() {
            notes.survey_at = None;
        }
        Ok(())
    }

    /// Makes few pages of many small ones, if there is a day that needs it. Tells whether there was.
    async fn compact(&self, shard: ShardId, notes: &mut ShardNotes) -> Visited<bool> {
        let now = self.handle.now();
        let due = notes.small.iter().filter(|((_, day), names)| {
            names.len() > self.pace.small_max || names.len() > 1 && self.is_over(*day, now)
        });
        let Some((&place, names)) = due.max_by_key(|(_, names)| names.len()) else {
            return Ok(false);
        };
        let home = place.0;
        let names: Vec<PageName> = names.iter().copied().take(SOURCES_MAX).collect();
        let (mut sources, mut bytes) = (Vec::new(), 0);
        let (mut looked_at, mut sizes) = (Vec::new(), Vec::new());
        for name in names {
            if bytes >= SOURCE_BYTES_MAX {
                break;
            }
            looked_at.push(name);
            let entry = self.handle.store().get(&key(name.key(shard, home))).await?;
            let Some(entry) = entry else { continue };
            bytes += entry.value.len();
            sizes.push((name.key(shard, home), entry.value.len()));
            sources.extend(decoded(&entry).map(|page| (name, page)));
        }
        // Read after the last compaction was written, so it has moved since.
        let commits = number(self.handle.store(), shard).await?;
        let plan = page::compact(shard, home, commits, sources, self.page_bytes);
        if let Some(names) = notes.small.get_mut(&place) {
            // Pages that cannot become fewer are left as they are.
            names.retain(|name| !looked_at.contains(name));
        }
        if let Some(plan) = plan {
            let (pages, spent) = (plan.pages.len(), plan.spent.len());
            self.carry_out(shard, notes, plan, &sizes).await?;
            tracing::debug!(%shard, from = spent, to = pages, "compacted pages of the past");
        }
        Ok(true)
    }

    /// Writes a plan, piece by piece, each when the one before is durable. Of pages that go by it, these are
    /// the sizes.
    async fn carry_out(
        &self,
        shard: ShardId,
        notes: &mut ShardNotes,
        plan: MergePlan,
        spent: &[(String, usize)],
    ) -> Visited {
        let made = plan.pages.iter().chain(&plan.index);
        let made: Vec<_> = made.map(|(key, bytes)| (key.clone(), bytes.len())).collect();
        for piece in plan.pieces() {
            self.handle.rewrite(shard, piece).await?;
        }
        for (key, bytes) in spent {
            notes.resized(shard, key, *bytes, 0);
        }
        for (key, bytes) in made {
            notes.resized(shard, &key, 0, bytes);
            if let Some((home, name)) = page::read_any_key(shard, &key) {
                self.remember(notes, home, name, bytes);
            }
        }
        Ok(())
    }

    /// Remembers a page, if it is a small one.
    fn remember(&self, notes: &mut ShardNotes, home: Home, name: PageName, bytes: usize) {
        if bytes < self.page_bytes / 2 {
            notes.small.entry((home, name.day)).or_default().insert(name);
        }
    }

    fn is_over(&self, day: PastDay, now: Instant) -> bool {
        day.end().after(self.pace.day_over) < now
    }
}

/// How many commits the chain of a shard has.
async fn number(store: &Store, shard: ShardId) -> Visited<u64> {
    let Some(entry) = store.get(&key(head_key(shard))).await? else { return Ok(0) };
    let head = Head::from_value(&entry.value);
    head.map(|head| head.number).map_err(|why| VisitError::Unread(format!("its head: {why}")))
}

/// The last commit up to which there is no segment, looked for by halves.
async fn floor(store: &Store, shard: ShardId, top: u64) -> Visited<u64> {
    // '0' follows '/': the end of the prefix.
    let end = key(format!("shard/{shard}/past0"));
    let (mut none, mut some) = (0, top);
    let mut at = top;
    loop {
        let range = Range::between(&key(past_key(shard, at)), &end);
        if !store.scan(range, 1).await?.entries.is_empty() {
            some = at;
        } else if at == top {
            return Ok(top);
        } else {
            none = at;
        }
        if some - none <= 1 {
            return Ok(none);
        }
        at = none + (some - none) / 2;
    }
}

/// What an entry says. One that cannot be read stays where it is, for a person to look at.
fn decoded(entry: &Entry) -> Option<Segment> {
    Segment::from_bytes(entry.value.as_bytes())
        .inspect_err(|why| tracing::warn!(key = %entry.key, %why, "it is left as it is"))
        .ok()
}

fn key(text: String) -> Key {
    Key::new(text).expect("our keys are short and printable")
}
