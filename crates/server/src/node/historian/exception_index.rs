//! The index of exceptions, for a past that was written before there was one.
//!
//! Segments that are not merged get the record that a commit writes beside its segment nowadays; what is in
//! pages is indexed as the survey of a predecessor's pages passes them. Then the floor says that it is done. A
//! node that stops in between begins again: exceptions are a set.

use engine::id::ShardId;
use engine::limits::PAGE_ENTRIES_MAX;
use engine::past::exception::exception_key_of;
use engine::past::floor::{ShardFloor, floor_key};
use engine::past::page::{self, MergePlan};
use engine::past::{Line, Segment};
use engine::shard::Put;
use engine::shard::record::{past, past_number};
use store::{Entry, Range};

use super::{Historian, ShardNotes, Visited, decoded, number};

/// How far the indexing of exceptions has come in a shard.
pub(super) struct ExceptionIndexing {
    /// Segments that are not indexed yet.
    segments: Option<Range>,
}

impl ExceptionIndexing {
    pub(super) fn new(shard: ShardId) -> Self {
        Self { segments: Some(Range::prefix(&past(shard))) }
    }
}

impl Historian {
    /// Indexes some of what is not, or says that all is.
    pub(super) async fn index_exceptions(&self, shard: ShardId, notes: &mut ShardNotes) -> Visited {
        if notes.retention.floor.indexed {
            return Ok(());
        }
        if let Some(range) = notes.indexing.segments.clone() {
            let page = self.handle.store().scan(range, PAGE_ENTRIES_MAX).await?;
            let puts: Vec<Put> =
                page.entries.iter().filter_map(|entry| exceptions_of(shard, entry)).collect();
            for piece in puts.chunks(engine::limits::HISTORY_PIECE_WRITES_MAX) {
                self.handle.rewrite(shard, piece.to_vec()).await?;
            }
            notes.indexing.segments = page.next;
        } else if notes.survey.is_none() {
            let floor = ShardFloor { indexed: true, ..notes.retention.floor };
            let put = Put::Value(floor_key(shard), floor.to_bytes());
            self.handle.rewrite(shard, vec![put]).await?;
            notes.retention.floor = floor;
        }
        Ok(())
    }

    /// Indexes pages that were there before this node, if they are not.
    pub(super) async fn index_exceptions_of_pages(
        &self,
        shard: ShardId,
        notes: &mut ShardNotes,
        entries: &[Entry],
    ) -> Visited {
        if notes.retention.floor.indexed {
            return Ok(());
        }
        let pages =
            entries.iter().filter(|entry| page::read_key(shard, entry.key.as_str()).is_some());
        let lines: Vec<Line> = pages.filter_map(decoded).flat_map(|page| page.lines).collect();
        // Behind all that is merged, under a name that nobody has: the chain moves with each of them.
        let commits = number(self.handle.store(), shard).await?;
        let index = page::index(shard, &lines, 0, commits, self.page_bytes);
        if index.is_empty() {
            return Ok(());
        }
        self.carry_out(shard, notes, MergePlan { index, ..MergePlan::default() }, &[]).await
    }
}

/// What a commit writes beside this segment nowadays.
fn exceptions_of(shard: ShardId, entry: &Entry) -> Option<Put> {
    let number = past_number(shard, entry.key.as_str())?;
    let lines = decoded(entry)?.lines;
    let key = exception_key_of(shard, &lines, number)?;
    let lines = lines
        .iter()
        .filter(|line| line.is_exception())
        .map(|line| line.clone().without_responses())
        .collect();
    Some(Put::Value(key, Segment { lines }.to_bytes()))
}
