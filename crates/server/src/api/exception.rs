//! Reading the exceptions of a project, newest first: [`engine::past::exception`].
//!
//! What commits wrote comes first, newest commit first, and then pages, newest day first. A commit's key says
//! when its newest exception was written, so whoever has enough that is newer is done.

use std::collections::VecDeque;

use engine::id::{ProjectId, ShardId};
use engine::instant::Instant;
use engine::past::exception::{exception_pages_of, exceptions, exceptions_from, newest_exception};
use engine::past::page::{PageName, PastDay};
use engine::past::{Line, Segment};
use engine::record::RecordError;
use store::{Entry, Range, Store};

use super::problem::{ApiError, ApiResult};
use super::read::key;

/// Records that are asked for at once.
const ENTRIES_LEN: usize = 16;

/// Some exceptions. None of those that follow was written after `newest`.
pub(super) struct ExceptionBatch {
    pub(super) newest: Instant,
    /// Whether it is of a commit, and not a page.
    pub(super) is_commit: bool,
    pub(super) lines: Vec<Line>,
}

/// A walk through the exceptions of a project in one shard.
pub(super) struct ExceptionWalk<'a> {
    store: &'a Store,
    shard: ShardId,
    commits: Option<Range>,
    pages: Option<Range>,
    waiting: VecDeque<ExceptionBatch>,
}

impl<'a> ExceptionWalk<'a> {
    /// From commits on that have nothing newer than `seek`, and pages of the day of `before`.
    pub(super) fn new(
        store: &'a Store,
        shard: ShardId,
        project: ProjectId,
        seek: Instant,
        before: Instant,
    ) -> Self {
        // '0' follows '/': the ends of these prefixes.
        let commits = key(format!("shard/{shard}/odd0"));
        let commits = Range::between(&key(exceptions_from(shard, seek)), &commits);
        let prefix = exception_pages_of(shard, project);
        let end = key(format!("{}0", prefix.trim_end_matches('/')));
        let pages = Range::between(&key(format!("{prefix}{}/", PastDay::of(before))), &end);
        let (commits, pages) = (Some(commits), Some(pages));
        Self { store, shard, commits, pages, waiting: VecDeque::new() }
    }

    /// Reads the next batch of exceptions.
    pub(super) async fn next(&mut self) -> ApiResult<Option<ExceptionBatch>> {
        while self.waiting.is_empty() {
            // Not before the last commit is read, so that what is merged meanwhile is found in pages.
            let stage = if self.commits.is_some() { &mut self.commits } else { &mut self.pages };
            let Some(range) = stage.take() else { return Ok(None) };
            let page = self.store.scan(range, ENTRIES_LEN).await?;
            *stage = page.next;
            for entry in &page.entries {
                self.waiting.push_back(self.batch(entry)?);
            }
        }
        Ok(self.waiting.pop_front())
    }

    fn batch(&self, entry: &Entry) -> ApiResult<ExceptionBatch> {
        let text = entry.key.as_str();
        let bad = |why: &RecordError| ApiError::of_record(text, why);
        let lines = Segment::from_bytes(entry.value.as_bytes()).map_err(|why| bad(&why))?.lines;
        let no_name = || bad(&RecordError::Malformed("its key names no exceptions".to_owned()));
        if text.starts_with(&exceptions(self.shard)) {
            let newest = newest_exception(self.shard, text).ok_or_else(no_name)?;
            return Ok(ExceptionBatch { newest, is_commit: true, lines });
        }
        let name = text.splitn(5, '/').nth(4).and_then(|name| name.parse::<PageName>().ok());
        let newest = name.ok_or_else(no_name)?.day.end();
        Ok(ExceptionBatch { newest, is_commit: false, lines })
    }
}
