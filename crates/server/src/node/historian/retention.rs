//! Retention: what is not kept any more goes.
//!
//! The rules are in [`engine::past::retain`]. Here is when they are applied, and how much of it at a time:
//!
//! - by age, once a day: the floor of a shard is raised to the first day that is kept, and then its buckets
//!   are swept, some at each look, if there are pages of earlier days;
//! - by count, when a bucket has grown by an eighth: its pages are read and counted, newest first;
//! - by bytes, when all pages together have too many: the floors of all shards are raised at once, to where
//!   a tenth of the budget becomes free, and the sweep does the rest;
//! - exceptions by age, and by count for each project, when some were added;
//! - triggers that ended long ago, once an hour, and names that are reserved for none (`name`).
//!
//! While nobody knows what time it is, nothing gets too old.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::id::{ProjectId, ShardId};
use engine::instant::Instant;
use engine::past::Line;
use engine::past::exception::exception_pages;
use engine::past::floor::{BucketFloor, ShardFloor, floor_key, floor_key_of};
use engine::past::page::{self, Bucket, Home, PageName, PastDay};
use engine::past::retain::{self, LineTally, RetentionCut};
use engine::shard::command::{Command, PruneProgress};
use store::{Entry, Range};

use super::{Historian, ShardNotes, VisitError, Visited, decoded, key};
use crate::handle::{CallError, FiringState};

/// Buckets that are swept at a look.
const BUCKETS_MAX: usize = 64;

/// Pages that a rule looks at before others have their turn.
const PAGES_MAX: usize = 256;

/// Pages that are read at once.
const PAGES_LEN: usize = 16;

/// Bytes of a line, about: what pages have that nobody has counted yet.
const LINE_BYTES: usize = 150;

/// How often triggers are looked for that ended long ago.
const PRUNE_EVERY: Duration = Duration::from_secs(3_600);

/// How far retention has come in a shard.
#[derive(Default)]
pub(super) struct RetentionProgress {
    /// The floor of the shard, as the store has it.
    pub(super) floor: ShardFloor,
    is_read: bool,
    /// Whether the survey of a predecessor's pages has come to the buckets.
    pub(super) is_survey_in_pages: bool,
    /// To this floor all buckets are swept.
    swept: Option<Instant>,
    /// A sweep that is under way: to which floor, and which bucket is next.
    sweep: Option<(Instant, Bucket)>,
    /// The bytes of all pages, by day.
    bytes: BTreeMap<PastDay, u64>,
    /// By how many lines buckets have grown since they were counted, and how many they had then.
    grown: BTreeMap<Bucket, (usize, usize)>,
    exceptions: ExceptionSweep,
    /// Up to which raised floor the store should come, because it has too many bytes.
    wanted: Option<Instant>,
    /// Which place is to be looked at next for a trigger that ended long ago, and when the last round began.
    prune_from: Option<u32>,
    pruned: Option<Duration>,
}

/// A sweep over exceptions.
#[derive(Default)]
struct ExceptionSweep {
    /// Exceptions were added, or the floor was raised.
    is_due: bool,
    rest: Option<Range>,
    project: Option<ProjectId>,
    lines: usize,
}

impl RetentionProgress {
    /// Lines are about to be merged.
    pub(super) fn added<'a>(&mut self, lines: impl Iterator<Item = &'a Line>) {
        for line in lines {
            self.grown.entry(Bucket::of(line.trigger())).or_default().0 += 1;
            self.exceptions.is_due |= line.is_exception();
        }
    }

    /// A page was there before this node.
    pub(super) fn found(&mut self, home: Home, name: PageName, bytes: usize) {
        *self.bytes.entry(name.day).or_default() += bytes as u64;
        match home {
            Home::Bucket(bucket) => {
                self.grown.entry(bucket).or_default().0 += bytes.div_ceil(LINE_BYTES);
            }
            Home::Exceptions(_) => self.exceptions.is_due = true,
        }
    }

    fn total(&self) -> u64 {
        self.bytes.values().sum()
    }

    fn is_swept(&self) -> bool {
        let ExceptionSweep { is_due, rest, .. } = &self.exceptions;
        self.wanted.is_none() && self.swept == Some(self.floor.before) && !is_due && rest.is_none()
    }
}

/// The last day that has anything below a floor.
fn last_cut(before: Instant) -> PastDay {
    let day = PastDay::of(before);
    // A day that begins with the floor is kept as a whole.
    if day.start() == before { day.before() } else { day }
}

impl ShardNotes {
    /// A page has so many bytes now, and had so many before.
    pub(super) fn resized(&mut self, shard: ShardId, key: &str, from: usize, to: usize) {
        let is_counted =
            self.survey.is_none() || self.survey_key.as_deref().is_some_and(|at| key <= at);
        if let (true, Some((_, name))) = (is_counted, page::read_any_key(shard, key)) {
            let bytes = self.retention.bytes.entry(name.day).or_default();
            *bytes = (*bytes + to as u64).saturating_sub(from as u64);
            if *bytes == 0 {
                self.retention.bytes.remove(&name.day);
            }
        }
    }
}

impl Historian {
    pub(super) async fn read_floor(&self, shard: ShardId, notes: &mut ShardNotes) -> Visited {
        if notes.retention.is_read {
            return Ok(());
        }
        if let Some(entry) = self.handle.store().get(&key(floor_key(shard))).await? {
            let floor = ShardFloor::from_bytes(entry.value.as_bytes());
            notes.retention.floor =
                floor.map_err(|why| VisitError::Unread(format!("{}: {why}", entry.key)))?;
        }
        notes.retention.is_read = true;
        Ok(())
    }

    /// Applies every rule to a shard, each to a bounded part of it.
    pub(super) async fn keep(&self, shard: ShardId, notes: &mut ShardNotes) -> Visited {
        let is_sure = self.handle.firing() == FiringState::Going;
        let too_old = is_sure.then(|| {
            let oldest = self.handle.now().before(self.pace.retention.age);
            PastDay::of(oldest).start()
        });
        let wanted = [too_old, notes.retention.wanted.take()].into_iter().flatten().max();
        if let Some(before) = wanted.filter(|before| *before > notes.retention.floor.before) {
            self.raise(shard, notes, before).await?;
        }
        self.sweep(shard, notes).await?;
        self.count(shard, notes).await?;
        self.sweep_exceptions(shard, notes).await?;
        if is_sure {
            self.prune(shard, notes).await?;
            self.release_names(shard, notes).await?;
        }
        Ok(())
    }

    async fn raise(&self, shard: ShardId, notes: &mut ShardNotes, before: Instant) -> Visited {
        let floor = ShardFloor { before, ..notes.retention.floor };
        self.cut(shard, notes, RetentionCut::of_shard(shard, floor), &[]).await?;
        notes.retention.floor = floor;
        notes.retention.exceptions.is_due = true;
        Ok(())
    }

    /// Deletes what lies below the floor of a shard, some buckets at a time.
    async fn sweep(&self, shard: ShardId, notes: &mut ShardNotes) -> Visited {
        let before = notes.retention.floor.before;
        if notes.retention.swept == Some(before) || notes.survey.is_some() {
            return Ok(());
        }
        // All pages are known by now.
        if notes.retention.bytes.keys().next().is_none_or(|oldest| *oldest > last_cut(before)) {
            notes.retention.swept = Some(before);
            return Ok(());
        }
        let begun = notes.retention.sweep.filter(|(to, _)| *to == before);
        let mut next = Some(begun.map_or(Bucket::FIRST, |(_, bucket)| bucket));
        let mut left = PAGES_MAX;
        for _ in 0..BUCKETS_MAX {
            let Some(bucket) = next else { break };
            if !self.sweep_bucket(shard, notes, bucket, before, &mut left).await? {
                break;
            }
            next = bucket.next();
        }
        notes.retention.sweep = next.map(|bucket| (before, bucket));
        if next.is_none() {
            notes.retention.swept = Some(before);
        }
        Ok(())
    }

    /// Deletes what a bucket has below the floor. Tells whether it came to the end.
    async fn sweep_bucket(
        &self,
        shard: ShardId,
        notes: &mut ShardNotes,
        bucket: Bucket,
        before: Instant,
        left: &mut usize,
    ) -> Visited<bool> {
        let (last, first) = (PastDay::of(before), last_cut(before));
        if before <= PastDay::of(Instant(0)).start() {
            return Ok(true);
        }
        let prefix = page::pages_of(shard, bucket);
        // '0' follows '/': the end of the bucket.
        let end = key(format!("{}0", prefix.trim_end_matches('/')));
        let mut rest = Some(Range::between(&key(format!("{prefix}{first}/")), &end));
        while let Some(range) = rest {
            if *left == 0 {
                return Ok(false);
            }
            let page = self.handle.store().scan(range, PAGES_LEN.min(*left)).await?;
            *left -= page.entries.len();
            rest = page.next;
            let mut cut = RetentionCut::default();
            for entry in &page.entries {
                let text = entry.key.as_str();
                let Some((_, name)) = page::read_key(shard, text) else { continue };
                if name.day < last {
                    cut.gone(text.to_owned());
                } else if let Some(lines) = decoded(entry).map(|page| page.lines)
                    && let Some(kept) = retain::from(bucket.into(), &lines, before)
                {
                    cut.page(text.to_owned(), kept);
                }
            }
            self.cut(shard, notes, cut, &page.entries).await?;
        }
        Ok(true)
    }

    /// Counts the lines of the triggers of buckets that have grown.
    async fn count(&self, shard: ShardId, notes: &mut ShardNotes) -> Visited {
        let most = self.pace.retention.lines;
        let mut left = PAGES_MAX;
        while left > 0 {
            let due = notes.retention.grown.iter().find(|(_, (grown, kept))| {
                kept + grown > most && *grown > (most / 8).max(kept / 8)
            });
            let Some((&bucket, _)) = due else { return Ok(()) };
            let pages = self.count_bucket(shard, notes, bucket, most).await?;
            left = left.saturating_sub(pages.max(1));
        }
        Ok(())
    }

    /// Reads a whole bucket, and cuts off what is too much of each trigger. Tells how many pages it read.
    async fn count_bucket(
        &self,
        shard: ShardId,
        notes: &mut ShardNotes,
        bucket: Bucket,
        most: usize,
    ) -> Visited<usize> {
        let store = self.handle.store();
        let mut floor = match store.get(&key(floor_key_of(shard, bucket))).await? {
            Some(entry) => BucketFloor::from_bytes(entry.value.as_bytes())
                .map_err(|why| VisitError::Unread(format!("{}: {why}", entry.key)))?,
            None => BucketFloor::default(),
        };
        let (mut tally, mut pages) = (LineTally::new(most), 0);
        let prefix = page::pages_of(shard, bucket);
        let mut scan = store.pages(Range::prefix(&prefix), PAGES_LEN);
        while let Some(entries) = scan.next().await? {
            pages += entries.len();
            entries.iter().filter_map(decoded).for_each(|page| tally.add(&page.lines));
        }
        let bounds = tally.bounds();
        let Some(highest) = bounds.highest() else {
            notes.retention.grown.insert(bucket, (0, tally.lines()));
            return Ok(pages);
        };
        bounds.raise(&mut floor);
        floor.tidy(notes.retention.floor);
        self.cut(shard, notes, RetentionCut::of_bucket(shard, bucket, &floor), &[]).await?;
        let mut kept = tally.lines();
        // Days come newest first. '0' follows '/': the end of the bucket.
        let first = key(format!("{prefix}{}/", PastDay::of(highest)));
        let end = key(format!("{}0", prefix.trim_end_matches('/')));
        let mut scan = store.pages(Range::between(&first, &end), PAGES_LEN);
        while let Some(entries) = scan.next().await? {
            pages += entries.len();
            let mut cut = RetentionCut::default();
            for entry in &entries {
                let Some(lines) = decoded(entry).map(|page| page.lines) else { continue };
                if let Some(left) = bounds.page(&lines) {
                    kept -= lines.len() - left.len();
                    cut.page(entry.key.as_str().to_owned(), left);
                }
            }
            self.cut(shard, notes, cut, &entries).await?;
        }
        notes.retention.grown.insert(bucket, (0, kept));
        Ok(pages)
    }

    /// Deletes exceptions that are too old, and those of projects that have too many.
    async fn sweep_exceptions(&self, shard: ShardId, notes: &mut ShardNotes) -> Visited {
        if notes.retention.exceptions.rest.is_none() {
            if !notes.retention.exceptions.is_due {
                return Ok(());
            }
            let rest = Some(Range::prefix(&exception_pages(shard)));
            notes.retention.exceptions = ExceptionSweep { rest, ..ExceptionSweep::default() };
        }
        let before = notes.retention.floor.before;
        let oldest = PastDay::of(before);
        let mut left = PAGES_MAX;
        while let Some(range) = notes.retention.exceptions.rest.take() {
            let page = self.handle.store().scan(range, PAGES_LEN.min(left)).await?;
            left -= page.entries.len();
            let mut cut = RetentionCut::default();
            for entry in &page.entries {
                let text = entry.key.as_str();
                let Some((Home::Exceptions(project), name)) = page::read_any_key(shard, text)
                else {
                    continue;
                };
                let exceptions = &mut notes.retention.exceptions;
                if exceptions.project.replace(project) != Some(project) {
                    exceptions.lines = 0;
                }
                if name.day < oldest || exceptions.lines >= self.pace.retention.exception_lines {
                    cut.gone(text.to_owned());
                    continue;
                }
                let Some(lines) = decoded(entry).map(|page| page.lines) else { continue };
                exceptions.lines += lines.len();
                if name.day == oldest
                    && let Some(kept) = retain::from(Home::Exceptions(project), &lines, before)
                {
                    cut.page(text.to_owned(), kept);
                }
            }
            self.cut(shard, notes, cut, &page.entries).await?;
            notes.retention.exceptions.rest = page.next;
            if left == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Deletes triggers that ended long ago, some at each look until all were looked at.
    async fn prune(&self, shard: ShardId, notes: &mut ShardNotes) -> Visited {
        let steady = self.machine.reading().boot;
        let is_due =
            notes.retention.pruned.is_none_or(|last| steady.saturating_sub(last) >= PRUNE_EVERY);
        if notes.retention.prune_from.is_none() && is_due {
            notes.retention.pruned = Some(steady);
            notes.retention.prune_from = Some(0);
        }
        let Some(from) = notes.retention.prune_from else { return Ok(()) };
        let ended_before = self.handle.now().before(self.pace.retention.ended);
        let command = Command::Prune { ended_before, from };
        match self.handle.command(shard, command).await {
            Ok(PruneProgress { deleted, next }) => {
                notes.retention.prune_from = next;
                if deleted > 0 {
                    tracing::info!(%shard, deleted, "deleted triggers that ended long ago");
                }
                Ok(())
            }
            // Another time: the store takes nothing at the moment.
            Err(CallError::Refused(_) | CallError::Unwritten(_)) => Ok(()),
            Err(why) => Err(why.into()),
        }
    }

    /// Has the oldest go, if there is more than there may be.
    pub(super) fn look_at_bytes(&mut self) {
        let total: u64 = self.shards.values().map(|notes| notes.retention.total()).sum();
        self.metrics.history(total);
        // Of the budget of the whole store, as much as this server has of the shards.
        let (here, all) = (self.shards.len() as u128, u128::from(self.handle.shards()));
        let budget = self.pace.retention.bytes_within(self.handle.store().room());
        let most = u128::from(budget) * here / all;
        let most = u64::try_from(most).expect("it is a part of the budget");
        let is_settled = self.shards.values().all(|notes| notes.retention.is_swept());
        if total <= most || !is_settled {
            return;
        }
        let before = self.enough(total - (most - most / 10));
        tracing::warn!(
            bytes = total, budget = most, %before,
            "the past has more bytes than its budget: what became of slots before this is forgotten"
        );
        self.metrics.over_budget();
        for notes in self.shards.values_mut() {
            notes.retention.wanted = Some(before);
        }
    }

    /// Below which instant there are so many bytes, about.
    fn enough(&self, mut bytes: u64) -> Instant {
        let mut days: BTreeMap<PastDay, u64> = BTreeMap::new();
        for (day, bytes) in self.shards.values().flat_map(|notes| &notes.retention.bytes) {
            *days.entry(*day).or_default() += bytes;
        }
        for (day, there) in days {
            if there <= bytes {
                bytes -= there;
                if bytes == 0 {
                    return Instant(day.end().0 + 1);
                }
                continue;
            }
            // A part of this day: as much of its time as of its bytes, and a little.
            let end = day.end().min(self.handle.now());
            let length = u64::try_from(end.0 - day.start().0).unwrap_or(0);
            let part = u128::from(length) * u128::from(bytes) / u128::from(there);
            let part = i64::try_from(part).unwrap_or(0).saturating_add(1);
            let floors = self.shards.values().map(|notes| notes.retention.floor.before);
            let risen = floors.max().unwrap_or(Instant::FIRST).max(day.start());
            return Instant(risen.0.saturating_add(part));
        }
        self.handle.now()
    }

    /// Writes a cut of pages that were read, and notes what it freed.
    async fn cut(
        &self,
        shard: ShardId,
        notes: &mut ShardNotes,
        cut: RetentionCut,
        entries: &[Entry],
    ) -> Visited {
        let sizes: BTreeMap<&str, usize> =
            entries.iter().map(|entry| (entry.key.as_str(), entry.value.len())).collect();
        for piece in cut.pieces() {
            let resized: Vec<(String, usize)> = piece.iter().map(size).collect();
            self.handle.rewrite(shard, piece).await?;
            for (key, to) in resized {
                if let Some(from) = sizes.get(key.as_str()) {
                    notes.resized(shard, &key, *from, to);
                }
            }
        }
        Ok(())
    }
}

fn size(put: &engine::shard::Put) -> (String, usize) {
    match put {
        engine::shard::Put::Value(key, value) => (key.clone(), value.len()),
        engine::shard::Put::Gone(key) => (key.clone(), 0),
    }
}
