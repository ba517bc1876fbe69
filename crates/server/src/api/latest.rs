//! The latest runs of all triggers of a project.
//!
//! Rows are in the order in which something last became of them, and then of their ids. A page of the list
//! ends at such a place, and the next one goes on below it, so nothing is told twice, and nothing is missed
//! that was there. If only exceptions are wanted, they come from the index, as far back as they are kept;
//! otherwise a bounded number of the latest commits is read, and what is older is found by its trigger.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use axum::response::Json;
use client::ListPage;
use client::run::Run;
use engine::id::{ShardId, TriggerId};
use engine::instant::Instant;
use engine::limits::{PAGES_READ_MAX, RUNS_READ_MAX, SEGMENTS_READ_MAX};
use engine::past::page::PastDay;

use super::caller::Caller;
use super::exception::{ExceptionBatch, ExceptionWalk};
use super::filter::RunSelection;
use super::history::brief;
use super::problem::ApiResult;
use super::query::Query;
use super::read;
use super::run;
use super::segment::PastWalk;
use super::trigger::bad_cursor;
use crate::handle::NodeHandle;

/// Greater than every id.
const AFTER_IDS: &str = "~";

/// Exceptions of commits that a shard reads at least before it says where to go on.
const EXCEPTIONS_READ_MIN: usize = 64;

/// How much later a slot may be than what became of it: it is launched ahead, and clocks are set back.
const SLACK_MS: i64 = 600_000;

/// Where a list goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Cursor {
    /// Below this instant and this id.
    at: Instant,
    id: String,
    /// Commits that have something newer than this have nothing more to tell.
    seek: Instant,
}

impl Cursor {
    fn text(&self) -> String {
        format!("{}.{}.{}", self.at.0, self.seek.0, self.id)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '.');
        let at = Instant(parts.next()?.parse().ok()?);
        let seek = Instant(parts.next()?.parse().ok()?);
        let id = parts.next().filter(|id| id.len() <= 64)?.to_owned();
        Some(Self { at, id, seek })
    }
}

pub(super) async fn list(
    handle: NodeHandle,
    caller: Caller,
    query: Query,
) -> ApiResult<Json<ListPage<Run>>> {
    let rows = query.rows()?;
    let filter = RunSelection::of(&query, caller.project)?;
    let cursor = query.text("cursor").map(|text| Cursor::parse(text).ok_or_else(bad_cursor));
    // A queue is in one shard.
    let of_queue = |name: &str| vec![ShardId::of_queue(caller.project, name, handle.shards())];
    let shards = filter.queue().map(of_queue);
    let shards = shards.unwrap_or_else(|| (0..handle.shards()).map(ShardId).collect());
    let mut top = Top::new(rows, filter, cursor.transpose()?);
    for shard in &shards {
        latest_of(&handle, *shard, shards.len(), &mut top).await?;
    }
    let (found, next) = top.finish();
    let items = name(&handle, found).await?;
    Ok(Json(ListPage { items, next: next.map(|next| next.text()) }))
}

/// A run, and when something last became of it.
struct LatestRun {
    at: Instant,
    run: Run,
    trigger: TriggerId,
    /// When the newest line was written of the record that it comes from, if it is to be read again for it.
    newest: Instant,
}

/// The newest rows of those that are wanted, and one more: it tells whether there is a next page.
struct Top {
    rows: usize,
    filter: RunSelection,
    below: Option<Cursor>,
    found: Vec<LatestRun>,
    /// What was left out is in records whose newest line is at most this old.
    seek: Instant,
    /// What happened up to this was perhaps not read.
    unread: Option<Instant>,
}

impl Top {
    fn new(rows: usize, filter: RunSelection, below: Option<Cursor>) -> Self {
        Self { rows, filter, below, found: Vec::new(), seek: Instant::FIRST, unread: None }
    }

    /// Takes more rows into account. Of two that tell of the same run the one that came first stays.
    fn add(&mut self, rows: impl Iterator<Item = LatestRun>) {
        let below = self.below.as_ref();
        self.found.extend(rows.filter(|row| {
            below.is_none_or(|Cursor { at, id, .. }| (row.at, &row.run.id) < (*at, id))
        }));
        let mut seen = HashSet::new();
        self.found.retain(|row| seen.insert(row.run.id.clone()));
        self.found.sort_by(|one, other| (other.at, &other.run.id).cmp(&(one.at, &one.run.id)));
        self.leave_out(self.rows + 1);
    }

    /// Leaves out all but so many.
    fn leave_out(&mut self, most: usize) {
        let out = self.found.drain(most.min(self.found.len())..);
        self.seek = out.map(|row| row.newest).max().unwrap_or(self.seek).max(self.seek);
    }

    /// Whether nothing that happened by then can be among the rows any more.
    fn is_settled(&self, by: Instant) -> bool {
        self.found.get(self.rows).is_some_and(|row| row.at > by)
    }

    /// What happened up to this may not have been read.
    fn cut(&mut self, by: Instant) {
        self.unread = self.unread.max(Some(by));
    }

    /// The rows, and where to go on.
    fn finish(mut self) -> (Vec<LatestRun>, Option<Cursor>) {
        let sure = self.unread.map_or(self.found.len(), |unread| {
            self.found.iter().take_while(|row| row.at > unread).count()
        });
        if sure > self.rows || self.unread.is_none() {
            let has_more = self.found.len() > self.rows;
            self.leave_out(self.rows);
            let last = self.found.last().filter(|_| has_more);
            let next =
                last.map(|row| Cursor { at: row.at, id: row.run.id.clone(), seek: self.seek });
            return (self.found, next);
        }
        self.leave_out(sure);
        let id = AFTER_IDS.to_owned();
        let next = self.unread.map(|at| Cursor { at, id, seek: self.seek });
        (self.found, next)
    }
}

/// The latest runs of a shard. What is not finished is read first and told last: what has ended meanwhile is
/// told as ended.
async fn latest_of(
    handle: &NodeHandle,
    shard: ShardId,
    shards: usize,
    top: &mut Top,
) -> ApiResult<()> {
    let fraction = |most: usize| (most / shards).max(1);
    let source = run::source(handle, shard);
    let mut unfinished = Vec::new();
    if top.filter.wants_unfinished() {
        let most = fraction(RUNS_READ_MAX);
        unfinished = read::unfinished(handle.store(), shard, None, None, most).await?.runs;
    }
    if top.filter.wants_past() {
        if top.filter.wants_exceptions_only() {
            latest_exceptions(handle, shard, shards, top).await?;
        } else {
            latest_past(handle, shard, shards, top).await?;
        }
    }
    let unfinished = unfinished.iter().filter(|(_, run)| run.project == top.filter.project);
    let unfinished = unfinished.map(|(sequence, run)| LatestRun {
        at: run.leaves_at,
        run: brief(source.unfinished(*sequence, run)),
        trigger: TriggerId { shard, project: run.project, serial: run.trigger },
        newest: Instant::FIRST,
    });
    let unfinished: Vec<LatestRun> =
        unfinished.filter(|row| top.filter.takes_run(&row.run)).collect();
    top.add(unfinished.into_iter());
    Ok(())
}

/// What is past, from the latest commits.
async fn latest_past(
    handle: &NodeHandle,
    shard: ShardId,
    shards: usize,
    top: &mut Top,
) -> ApiResult<()> {
    let most = (SEGMENTS_READ_MAX / shards).max(1);
    let mut walk = PastWalk::recent(handle.store(), shard, most);
    while let Some(batch) = walk.next().await? {
        add_lines(handle, shard, top, &batch.lines, Instant::FIRST);
    }
    Ok(())
}

/// Exceptions, from the index.
async fn latest_exceptions(
    handle: &NodeHandle,
    shard: ShardId,
    shards: usize,
    top: &mut Top,
) -> ApiResult<()> {
    let mut commits = (SEGMENTS_READ_MAX / shards).max(EXCEPTIONS_READ_MIN);
    let mut pages = (PAGES_READ_MAX / shards).max(1);
    let (at, seek) = match &top.below {
        Some(Cursor { at, seek, .. }) => (*at, *seek),
        None => (Instant::LAST, Instant::LAST),
    };
    let oldest = Instant(top.filter.from.0.saturating_sub(SLACK_MS));
    let mut walk = ExceptionWalk::new(handle.store(), shard, top.filter.project, seek, at);
    let mut day: Option<PastDay> = None;
    while let Some(batch) = walk.next().await? {
        let ExceptionBatch { newest, is_commit, lines } = batch;
        if newest < oldest {
            break;
        }
        if is_commit {
            if top.is_settled(newest) {
                top.seek = top.seek.max(newest);
                break;
            }
            if commits == 0 {
                top.seek = top.seek.max(newest);
                top.cut(newest);
                break;
            }
            commits -= 1;
            add_lines(handle, shard, top, &lines, newest);
            continue;
        }
        // Pages of a day are in any order: a day is read to its end.
        if day.replace(PastDay::of(newest)) != Some(PastDay::of(newest)) {
            if top.is_settled(newest) {
                break;
            }
            if pages == 0 {
                top.cut(newest);
                break;
            }
        }
        pages = pages.saturating_sub(1);
        add_lines(handle, shard, top, &lines, Instant::FIRST);
    }
    Ok(())
}

fn add_lines(
    handle: &NodeHandle,
    shard: ShardId,
    top: &mut Top,
    lines: &[engine::past::Line],
    newest: Instant,
) {
    let source = run::source(handle, shard);
    let wanted: Vec<_> = lines.iter().filter(|line| top.filter.takes(line)).collect();
    top.add(wanted.into_iter().map(|line| LatestRun {
        at: line.written(),
        run: brief(source.line(line, None)),
        trigger: TriggerId { shard, project: line.project(), serial: line.trigger() },
        newest,
    }));
}

/// Puts the names of their triggers on runs.
async fn name(handle: &NodeHandle, rows: Vec<LatestRun>) -> ApiResult<Vec<Run>> {
    let mut names: HashMap<TriggerId, Option<String>> = HashMap::new();
    let mut runs = Vec::with_capacity(rows.len());
    for LatestRun { mut run, trigger, .. } in rows {
        if run.name.is_none() && run.trigger.is_some() {
            run.name = match names.entry(trigger) {
                Entry::Occupied(known) => known.get().clone(),
                Entry::Vacant(place) => {
                    let stored = read::trigger_by_id(handle.store(), trigger).await?;
                    place.insert(stored.map(|stored| stored.name().to_owned())).clone()
                }
            };
        }
        runs.push(run);
    }
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_as_it_was_and_rubbish_does_not() {
        for text in ["5.7.run_x", "-5.7.~"] {
            assert_eq!(Cursor::parse(text).unwrap().text(), text);
        }
        for bad in ["", "x", "5", "5.7", "5.x.run", "x.5.run"] {
            assert!(Cursor::parse(bad).is_none(), "{bad}");
        }
    }
}
