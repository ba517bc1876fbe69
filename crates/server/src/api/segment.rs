//! Reading the past of a shard, newest first, a bounded number of batches at a time.
//!
//! What was written lately is in segments, with lines of all triggers; what is older is in pages, by bucket
//! and day: [`engine::past::page`]. The past of one trigger is read in that order, segments first. Meanwhile
//! segments may be merged into pages, and pages into others: what goes away ahead of the reader is written
//! behind what it has yet to read before that, so nothing is missed, and what is met twice is told once.

use std::collections::HashSet;

use engine::id::{SerialId, ShardId, TriggerId};
use engine::instant::Instant;
use engine::limits::PAGES_READ_MAX;
use engine::past::page::{BadPageName, Bucket, Identity, PageName, PastDay, pages_of};
use engine::past::{Line, Segment};
use engine::record::RecordError;
use engine::shard::record::past;
use store::{Entry, Key, Range, Store};

use super::problem::{ApiError, ApiResult};
use super::read::key;

/// Segments that are asked for at once: few at first, since those of a busy shard are long and the newest ones often tell
/// enough, then more.
const SEGMENTS_LEN_MIN: usize = 5;
const SEGMENTS_LEN_MAX: usize = 100;

/// Pages that are asked for at once.
const PAGES_LEN: usize = 10;

/// How much later than another a line may say that it was written although it was written before: wall
/// clocks are set back.
const SLACK_MS: i64 = 600_000;

/// Where a batch of the past is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum BatchName {
    /// In a segment: the last part of its key.
    Segment(String),
    /// In a page of a trigger's bucket.
    Page(PageName),
}

/// A place among the segments of a shard: after this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SegmentCursor(String);

impl SegmentCursor {
    /// As a part of a cursor.
    pub(super) fn text(&self) -> &str {
        &self.0
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let fits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        fits.then(|| Self(text.to_ascii_lowercase()))
    }
}

/// What of the past of a trigger is wanted: lines about slots from here to there.
#[derive(Debug, Clone, Copy)]
pub(super) struct PastSpan {
    pub(super) trigger: SerialId,
    pub(super) from: Instant,
    pub(super) to: Instant,
}

/// What is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Segments,
    Pages,
}

/// A walk through the past of a shard, newest first.
pub(super) struct PastWalk<'a> {
    store: &'a Store,
    /// Whose lines are given; everybody's, and from segments only, without one.
    span: Option<PastSpan>,
    stage: Stage,
    rest: Option<Range>,
    /// What is read when there is no segment left.
    pages: Option<Range>,
    /// Fetched and not given yet, the next one last. Their text is read when it is their turn, which most never have.
    waiting: Vec<(BatchName, Entry)>,
    /// How many segments are asked for next.
    segments_len: usize,
    /// How many segments may still be read, or pages, once these are.
    left: usize,
    /// The last one that was given.
    last: Option<BatchName>,
    /// When the oldest line that was read was written, until pages are; these are read to the end of a day.
    oldest: Option<Instant>,
    seen: HashSet<Identity>,
}

/// A batch of the walk.
pub(super) struct PastBatch {
    name: BatchName,
    /// Its lines, newest first.
    pub(super) lines: Vec<Line>,
}

impl PastBatch {
    /// Which day's slots it is about, if it is a page.
    pub(super) fn day(&self) -> Option<PastDay> {
        match &self.name {
            BatchName::Segment(_) => None,
            BatchName::Page(name) => Some(name.day),
        }
    }
}

impl<'a> PastWalk<'a> {
    /// Through the newest segments of a shard, at most so many.
    pub(super) fn recent(store: &'a Store, shard: ShardId, most: usize) -> Self {
        Self {
            store,
            span: None,
            stage: Stage::Segments,
            rest: Some(Range::prefix(&past(shard))),
            pages: None,
            waiting: Vec::new(),
            segments_len: SEGMENTS_LEN_MIN,
            left: most,
            last: None,
            oldest: None,
            seen: HashSet::new(),
        }
    }

    /// Through the past of a trigger, from the newest batch on or after a segment; at most so many
    /// segments, and then a bounded number of pages: the last day of these is read to its end.
    pub(super) fn of(
        store: &'a Store,
        shard: ShardId,
        span: PastSpan,
        after: Option<&SegmentCursor>,
        most: usize,
    ) -> Self {
        let prefix = pages_of(shard, Bucket::of(span.trigger));
        let first_day = PastDay::of(Instant(span.from.0.saturating_sub(SLACK_MS)));
        // '0' follows '/': the end of a day, and of the segments.
        let pages_end = key(format!("{prefix}{first_day}0"));
        let pages = Range::between(&key(format!("{prefix}{}/", PastDay::of(span.to))), &pages_end);
        let mut walk = Self::recent(store, shard, most);
        if let Some(SegmentCursor(name)) = after {
            let at = key(format!("{}{name}", past(shard)));
            walk.rest = Some(Range::prefix(&past(shard)).after(&at));
        }
        walk.span = Some(span);
        walk.pages = Some(pages);
        walk
    }

    /// The next batch; none at the end of the past, or of what may be read: see [`PastWalk::is_cut`].
    pub(super) async fn next(&mut self) -> ApiResult<Option<PastBatch>> {
        let of_span = self.span.map(|span| span.trigger);
        match self.take().await? {
            Some((name, entry)) => self.batch(name, &entry, of_span.as_slice()).map(Some),
            None => Ok(None),
        }
    }

    /// The next batch, with its lines about these triggers and no others.
    pub(super) async fn next_about(
        &mut self,
        triggers: &HashSet<TriggerId>,
    ) -> ApiResult<Option<PastBatch>> {
        let serials: Vec<SerialId> = triggers.iter().map(|id| id.serial).collect();
        match self.take().await? {
            Some((name, entry)) => self.batch(name, &entry, &serials).map(Some),
            None => Ok(None),
        }
    }

    async fn take(&mut self) -> ApiResult<Option<(BatchName, Entry)>> {
        if self.waiting.is_empty() {
            self.fill().await?;
        }
        if self.left == 0 && !self.is_within_day() {
            return Ok(None);
        }
        let Some((name, entry)) = self.waiting.pop() else { return Ok(None) };
        self.left = self.left.saturating_sub(1);
        self.last = Some(name.clone());
        Ok(Some((name, entry)))
    }

    /// A batch with its lines about these triggers; about all, if none is named.
    fn batch(
        &mut self,
        name: BatchName,
        entry: &Entry,
        triggers: &[SerialId],
    ) -> ApiResult<PastBatch> {
        let bytes = entry.value.as_bytes();
        let malformed = |why| ApiError::of_record(entry.key.as_str(), &why);
        let segment = match triggers {
            [] => Segment::from_bytes(bytes),
            _ => Segment::about(bytes, triggers),
        };
        let mut lines = segment.map_err(malformed)?.lines;
        match &name {
            BatchName::Segment(_) => {
                lines.reverse();
                self.look_at_time(Segment::ends(bytes).map_err(malformed)?);
            }
            BatchName::Page(name) => self.oldest = Some(name.day.end()),
        }
        lines.retain(|line| self.seen.insert(line.identity()));
        Ok(PastBatch { name, lines })
    }

    /// Whether the next page is of the same day as the last one.
    fn is_within_day(&self) -> bool {
        match (&self.last, self.waiting.last()) {
            (Some(BatchName::Page(last)), Some((BatchName::Page(next), _))) => last.day == next.day,
            _ => false,
        }
    }

    /// The oldest segment that was given, if that is where the walk was cut.
    pub(super) fn cut_after(&self) -> Option<SegmentCursor> {
        match (&self.last, self.stage) {
            (Some(BatchName::Segment(name)), Stage::Segments) if self.is_cut() => {
                Some(SegmentCursor(name.clone()))
            }
            _ => None,
        }
    }

    /// Leaves the segments when they are from before anything that is wanted. The lines of a segment are decided within
    /// moments: its first and its last one tell when.
    fn look_at_time(&mut self, ends: Option<(Line, Line)>) {
        let Some((first, last)) = ends.map(|(first, last)| (first.written(), last.written()))
        else {
            return;
        };
        self.oldest = self.oldest.into_iter().chain([first, last]).min();
        if let Some(span) = self.span
            && first.max(last).0 < span.from.0.saturating_sub(SLACK_MS)
        {
            self.waiting.clear();
            self.rest = None;
        }
    }

    /// Whether the walk ended because it had read enough, and not because there is no more.
    pub(super) fn is_cut(&self) -> bool {
        self.left == 0 && (self.rest.is_some() || !self.waiting.is_empty())
    }

    /// Up to which instant slots may have lines that were not read, if the walk was cut.
    pub(super) fn unread_to(&self) -> Option<Instant> {
        let slack = |oldest: Instant| Instant(oldest.0.saturating_add(SLACK_MS));
        self.is_cut().then(|| self.oldest.map_or(Instant::LAST, slack))
    }

    async fn fill(&mut self) -> ApiResult<()> {
        while self.waiting.is_empty() {
            if self.rest.is_none() {
                // Not before the last segment is read, so that what is merged meanwhile is found here.
                let Some(pages) = self.pages.take() else { return Ok(()) };
                (self.stage, self.rest, self.left) = (Stage::Pages, Some(pages), PAGES_READ_MAX);
            }
            if self.left == 0 && self.stage == Stage::Segments {
                return Ok(());
            }
            let Some(range) = self.rest.take() else { return Ok(()) };
            let most = match self.stage {
                Stage::Segments => self.segments_len,
                Stage::Pages => PAGES_LEN,
            };
            let page = self.store.scan(range, most.min(self.left.max(1))).await?;
            self.segments_len = SEGMENTS_LEN_MAX.min(self.segments_len * 4);
            self.rest = page.next;
            for entry in page.entries.into_iter().rev() {
                let name = self.name(&entry.key);
                let name = name.map_err(|why| ApiError::of_record(entry.key.as_str(), &why))?;
                self.waiting.push((name, entry));
            }
        }
        Ok(())
    }

    fn name(&self, key: &Key) -> Result<BatchName, RecordError> {
        let parts: Vec<&str> = key.as_str().split('/').collect();
        match (self.stage, &parts[..]) {
            (Stage::Segments, [.., name]) => Ok(BatchName::Segment((*name).to_owned())),
            (Stage::Pages, [.., day, name]) => {
                let name = format!("{day}/{name}").parse();
                name.map(BatchName::Page)
                    .map_err(|why: BadPageName| RecordError::Malformed(why.to_string()))
            }
            (Stage::Segments | Stage::Pages, _) => {
                Err(RecordError::Malformed("its key is too short".to_owned()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_comes_back_as_it_was_and_rubbish_does_not() {
        let place = SegmentCursor("fffffffffffffffe".to_owned());
        assert_eq!(SegmentCursor::parse(place.text()), Some(place));
        for bad in ["", ".", "fffffffffffffff", "fffffffffffffffe.1", "../../head......"] {
            assert_eq!(SegmentCursor::parse(bad), None, "{bad}");
        }
    }
}
