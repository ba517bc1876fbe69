//! Reading the past of a shard, newest first, a bounded number of batches at a time.

use engine::id::ShardId;
use engine::instant::Instant;
use engine::past::{Line, Segment};
use engine::shard::record::past;
use store::{Key, Range, Store};

use super::problem::Refusal;
use super::read::key;

/// Batches that are asked for at once.
const BATCH_LEN: usize = 100;

/// How much later than another a line may say that it was written although it was written before: wall
/// clocks are set back.
const SLACK_MS: i64 = 600_000;

/// A place in the past of a shard: in this batch, after so many lines of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// The last part of the batch's key.
    pub(super) batch: String,
    pub(super) lines: usize,
}

impl Place {
    /// As a part of a cursor.
    pub(super) fn text(&self) -> String {
        format!("{}.{}", self.batch, self.lines)
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let (batch, lines) = text.split_once('.')?;
        let fits = batch.len() == 16 && batch.bytes().all(|byte| byte.is_ascii_hexdigit());
        let lines = lines.parse().ok()?;
        fits.then(|| Self { batch: batch.to_ascii_lowercase(), lines })
    }
}

/// A walk through the past of a shard, newest first.
pub(super) struct Walk<'a> {
    store: &'a Store,
    rest: Option<Range>,
    /// Read and not given yet, the next one last.
    waiting: Vec<(Key, Segment)>,
    /// How many batches may still be read.
    left: usize,
    /// Lines of the first batch that were given before.
    skip: usize,
    /// When the oldest line that was given was written.
    oldest: Option<Instant>,
}

/// A batch of the walk.
pub(super) struct Batch {
    /// The last part of its key.
    pub(super) name: String,
    /// Its lines, newest first, each with how many of the batch are done after it.
    pub(super) lines: Vec<(usize, Line)>,
}

impl Batch {
    /// When its newest line was written.
    fn newest(&self) -> Option<Instant> {
        self.lines.iter().map(|(_, line)| written(line)).max()
    }

    /// Whether nothing in it, nor in those after it, can be about this moment or later ones.
    pub(super) fn is_before(&self, moment: Instant) -> bool {
        self.newest().is_some_and(|newest| newest.0 < moment.0.saturating_sub(SLACK_MS))
    }
}

/// When a line was written.
fn written(line: &Line) -> Instant {
    match line {
        Line::Run(run) => run.at,
        Line::Skip(skip) => skip.at,
    }
}

impl<'a> Walk<'a> {
    /// From the newest batch on, or from a place; at most so many batches.
    pub(super) fn new(store: &'a Store, shard: ShardId, from: Option<&Place>, most: usize) -> Self {
        let prefix = past(shard);
        let rest = match from {
            // '0' follows '/': the end of the prefix.
            Some(place) => Range::between(
                &key(format!("{prefix}{}", place.batch)),
                &key(format!("shard/{shard}/past0")),
            ),
            None => Range::prefix(&prefix),
        };
        let skip = from.map_or(0, |place| place.lines);
        Self { store, rest: Some(rest), waiting: Vec::new(), left: most, skip, oldest: None }
    }

    /// The next batch; none at the end of the past, or of what may be read: see [`Walk::is_cut`].
    pub(super) async fn next(&mut self) -> Result<Option<Batch>, Refusal> {
        if self.waiting.is_empty() {
            self.fill().await?;
        }
        let Some((key, segment)) = self.waiting.pop() else { return Ok(None) };
        self.left -= 1;
        let name = key.as_str().rsplit('/').next().unwrap_or_default().to_owned();
        let skip = std::mem::take(&mut self.skip);
        let lines = segment.lines.into_iter().rev().enumerate();
        let lines: Vec<_> = lines.map(|(index, line)| (index + 1, line)).skip(skip).collect();
        let batch = Batch { name, lines };
        let oldest = batch.lines.iter().map(|(_, line)| written(line)).min();
        self.oldest = [self.oldest, oldest].into_iter().flatten().min();
        Ok(Some(batch))
    }

    /// Whether the walk ended because it had read enough, and not because there is no more.
    pub(super) fn is_cut(&self) -> bool {
        self.left == 0 && (self.rest.is_some() || !self.waiting.is_empty())
    }

    /// Whatever is about a later moment than this was read.
    pub(super) fn reaches_back_to(&self) -> Instant {
        self.oldest.map_or(Instant::LAST, |oldest| Instant(oldest.0.saturating_add(SLACK_MS)))
    }

    async fn fill(&mut self) -> Result<(), Refusal> {
        while self.waiting.is_empty() && self.left > 0 {
            let Some(range) = self.rest.take() else { return Ok(()) };
            let page = self.store.scan(range, BATCH_LEN.min(self.left)).await?;
            self.rest = page.next;
            for entry in page.entries.into_iter().rev() {
                let segment = Segment::from_bytes(entry.value.as_bytes())
                    .map_err(|why| Refusal::of_record(entry.key.as_str(), &why))?;
                self.waiting.push((entry.key, segment));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_comes_back_as_it_was_and_rubbish_does_not() {
        let place = Place { batch: "fffffffffffffffe".to_owned(), lines: 12 };
        assert_eq!(Place::parse(&place.text()), Some(place));
        for bad in ["", ".", "fffffffffffffffe", "fffffffffffffffe.x", "../../head.1", "zz.1"] {
            assert_eq!(Place::parse(bad), None, "{bad}");
        }
    }
}
