//! The runs of a trigger: what is not finished, and then what is, newest slot first.
//!
//! A page of the list ends at a slot and an id, and the next one goes on below. Where a line is kept changes
//! while people read: segments are merged into pages, and pages into others. Its slot and its id do not. So no
//! line is told twice, and none is missed that was there from the beginning and is still kept. What is not
//! merged yet has any order, so all of it is read for each page of the list; of pages whole days are.

use std::collections::BTreeMap;

use axum::extract::Path;
use axum::http::Uri;
use axum::response::Json;
use client::ListPage;
use client::run::Run;
use engine::id::{ProjectId, TriggerId};
use engine::instant::Instant;
use engine::limits::{RUNS_READ_MAX, SEGMENTS_READ_MAX};
use engine::shard::{QueuedView, ShardAnswer};

use super::caller::Caller;
use super::convert;
use super::filter::RunSelection;
use super::forward::PeerClient;
use super::owner::Told;
use super::problem::ApiResult;
use super::query::Query;
use super::queued;
use super::read::{self, Silence, Stored};
use super::run;
use super::segment::{PastSpan, PastWalk, SegmentCursor};
use super::trigger::bad_cursor;
use crate::handle::NodeHandle;

/// Where a list of a trigger's runs goes on.
enum Cursor {
    /// After this unfinished run.
    Unfinished(u64),
    /// At this place of the past.
    Past(Spot),
}

/// A place in the past of a trigger.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Spot {
    /// After this segment: there are more than one request reads.
    after: Option<SegmentCursor>,
    /// Below this slot and this id.
    below: Option<(Instant, String)>,
}

impl Cursor {
    fn text(&self) -> String {
        match self {
            Self::Unfinished(sequence) => format!("u{sequence}"),
            Self::Past(Spot { after, below }) => {
                let after = after.as_ref().map_or("", SegmentCursor::text);
                match below {
                    Some((slot, id)) => format!("p{after}.{}.{id}", slot.0),
                    None => format!("p{after}"),
                }
            }
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let rest = match text.split_at_checked(1)? {
            ("u", sequence) => return sequence.parse().ok().map(Self::Unfinished),
            ("p", rest) => rest,
            _ => return None,
        };
        let (after, below) = match rest.split_once('.') {
            Some((after, below)) => {
                let (slot, id) = below.split_once('.')?;
                (after, Some((Instant(slot.parse().ok()?), id.to_owned())))
            }
            None => (rest, None),
        };
        let after = match after {
            "" => None,
            after => Some(SegmentCursor::parse(after)?),
        };
        Some(Self::Past(Spot { after, below }))
    }
}

/// Whose runs are listed.
struct HistorySubject {
    id: TriggerId,
    /// The trigger, unless it was deleted: what it has run stays.
    stored: Option<Stored>,
}

impl HistorySubject {
    /// The trigger with this name or id. A name goes with its trigger; an id finds also one that was deleted.
    async fn find(handle: &NodeHandle, project: ProjectId, name: &str) -> ApiResult<Self> {
        let id = read::id_of(handle.store(), project, name).await?;
        let id = id.ok_or_else(|| read::no_trigger(name))?;
        let stored = read::trigger_by_id(handle.store(), id).await?;
        if stored.is_none() && name.parse::<TriggerId>().is_err() {
            return Err(read::no_trigger(name));
        }
        Ok(Self { id, stored })
    }

    /// Nothing was recorded before this.
    fn born(&self) -> Instant {
        self.stored.as_ref().map_or(self.id.serial.birth(), |stored| stored.record.created)
    }

    fn name(&self) -> Option<&str> {
        self.stored.as_ref().map(Stored::name)
    }
}

/// Runs of a trigger: what is not finished, and then what is, newest first.
pub(super) async fn list_of(
    handle: NodeHandle,
    caller: Caller,
    peers: PeerClient,
    Path(name): Path<String>,
    uri: Uri,
    query: Query,
) -> ApiResult<Json<ListPage<Run>>> {
    let rows = query.rows()?;
    let filter = RunSelection::of(&query, caller.project)?;
    let cursor = query.text("cursor").map(|text| Cursor::parse(text).ok_or_else(bad_cursor));
    let cursor = cursor.transpose()?;
    let subject = HistorySubject::find(&handle, caller.project, &name).await?;
    let mut list = List { rows, filter, items: Vec::new() };
    let after = match cursor {
        Some(Cursor::Past(spot)) => return list.past(&handle, &subject, spot).await,
        Some(Cursor::Unfinished(sequence)) => Some(sequence),
        None => None,
    };
    if list.filter.wants_unfinished()
        && after.is_none()
        && let Some(stored) = &subject.stored
    {
        let path = uri.path_and_query().map_or("", |path| path.as_str());
        match queued::of_trigger(&handle, &peers, stored, path).await {
            Told::Here(ShardAnswer::Runs(views)) => list.queued(&handle, &views),
            Told::There(bytes) => {
                if let Ok(page) = serde_json::from_slice(&bytes) {
                    return Ok(Json(page));
                }
            }
            Told::Here(_) | Told::Nobody => {}
        }
    }
    if list.filter.wants_unfinished()
        && let Some(next) = list.unfinished(&handle, &subject, after).await?
    {
        return Ok(list.page(Some(next)));
    }
    if !list.filter.wants_past() {
        return Ok(list.page(None));
    }
    list.past(&handle, &subject, Spot::default()).await
}

/// A list that is being filled.
struct List {
    rows: usize,
    filter: RunSelection,
    items: Vec<Run>,
}

/// What was found in the past and is not told yet, by slot and id.
type Pool = BTreeMap<(Instant, String), Run>;

/// Above which slot all that is wanted was found.
#[derive(Debug, Clone, Copy)]
enum Known {
    Above(Instant),
    All,
}

impl List {
    fn page(self, next: Option<Cursor>) -> Json<ListPage<Run>> {
        Json(ListPage { items: self.items, next: next.map(|next| next.text()) })
    }

    fn push(&mut self, run: Run) {
        let is_new = self.items.iter().all(|item| item.id != run.id);
        if is_new && self.filter.takes_run(&run) {
            self.items.push(brief(run));
        }
    }

    /// Adds what queues have of it: one page, of the latest slots. The queue itself lists all that it has.
    fn queued(&mut self, handle: &NodeHandle, views: &[QueuedView]) {
        let silence = views.first().and_then(|view| Silence::of(handle, view.queue.id.project));
        for view in views {
            if self.items.len() == self.rows {
                break;
            }
            self.push(convert::queued(view, silence.as_ref()));
        }
    }

    /// Adds what is not finished; where to go on, if there is more of it.
    async fn unfinished(
        &mut self,
        handle: &NodeHandle,
        subject: &HistorySubject,
        after: Option<u64>,
    ) -> ApiResult<Option<Cursor>> {
        let (id, source) = (subject.id, run::source(handle, subject.id.shard));
        let mut open = Vec::new();
        // Before a trigger is deleted, its open runs are given records of their own.
        if let (Some(stored), None) = (&subject.stored, after) {
            let mut runs = read::head(handle.store(), id.shard).await?.open;
            runs.retain(|run| run.trigger == id.serial);
            runs.sort_unstable_by(|one, other| other.cmp(one));
            open = runs.into_iter().map(|run| source.open(run, stored, handle.now())).collect();
        }
        // Open runs are few, and have no place to go on from: they take what room there is.
        let room = self.rows.saturating_sub(open.len() + self.items.len()).max(1);
        let read =
            read::unfinished(handle.store(), id.shard, Some(id), after, RUNS_READ_MAX).await?;
        let more = read.runs.len() > room;
        let last = read.runs.get(room - 1).map(|(sequence, _)| *sequence);
        for run in open {
            self.push(run);
        }
        let mut runs: Vec<Run> = read
            .runs
            .iter()
            .take(room)
            .map(|(sequence, run)| source.unfinished(*sequence, run))
            .collect();
        runs.sort_by_key(|run| std::cmp::Reverse(run.slot));
        for run in runs {
            self.push(run);
        }
        let next = if more { last } else { read.more_after };
        Ok(next.map(Cursor::Unfinished))
    }

    /// Adds what is finished, and ends the page.
    async fn past(
        mut self,
        handle: &NodeHandle,
        subject: &HistorySubject,
        spot: Spot,
    ) -> ApiResult<Json<ListPage<Run>>> {
        let room = self.rows.saturating_sub(self.items.len());
        if room == 0 {
            return Ok(self.page(Some(Cursor::Past(spot))));
        }
        let span = PastSpan {
            trigger: subject.id.serial,
            from: subject.born().max(self.filter.from),
            to: spot.below.as_ref().map_or(Instant::LAST, |(slot, _)| *slot),
        };
        let (store, shard) = (handle.store(), subject.id.shard);
        let mut walk = PastWalk::of(store, shard, span, spot.after.as_ref(), SEGMENTS_READ_MAX);
        let (pool, known) = self.gather(handle, subject, &mut walk, &spot, room).await?;
        let (told, next) = tell(pool, known, room, &spot, walk.cut_after());
        // What has ended while we read is told as it was read first.
        let told = told.into_iter().filter(|run| self.items.iter().all(|item| item.id != run.id));
        let told: Vec<Run> = told.collect();
        self.items.extend(told);
        Ok(self.page(next.map(Cursor::Past)))
    }

    /// Reads until there is enough: all segments, and then whole days of pages.
    async fn gather(
        &self,
        handle: &NodeHandle,
        subject: &HistorySubject,
        walk: &mut PastWalk<'_>,
        spot: &Spot,
        room: usize,
    ) -> ApiResult<(Pool, Known)> {
        let source = run::source(handle, subject.id.shard);
        let mut pool = Pool::new();
        let mut day = None;
        while let Some(batch) = walk.next().await? {
            // Days come newest first, so those before this one are complete.
            let above = batch.day().map(engine::past::page::PastDay::end);
            if let Some(above) = above
                && pool
                    .range((above, String::new())..)
                    .filter(|((slot, _), _)| *slot > above)
                    .count()
                    > room
            {
                return Ok((pool, Known::Above(above)));
            }
            day = batch.day().or(day);
            for line in batch.lines.iter().filter(|line| self.filter.takes(line)) {
                let run = brief(source.line(line, subject.name()));
                let place = (line.slot(), run.id.clone());
                if spot.below.as_ref().is_none_or(|below| place < *below) {
                    pool.insert(place, run);
                }
            }
        }
        let known = match day {
            Some(day) if walk.is_cut() => Known::Above(Instant(day.start().0 - 1)),
            Some(_) | None => Known::All,
        };
        Ok((pool, known))
    }
}

/// What of the pool is told now, newest first, and where to go on.
fn tell(
    mut pool: Pool,
    known: Known,
    room: usize,
    spot: &Spot,
    cut_after: Option<SegmentCursor>,
) -> (Vec<Run>, Option<Spot>) {
    let mut below = spot.below.clone();
    let mut told = Vec::new();
    while told.len() < room {
        let is_known = |slot: Instant| match known {
            Known::Above(above) => slot > above,
            Known::All => true,
        };
        let Some(last) = pool.last_entry().filter(|last| is_known(last.key().0)) else { break };
        let (place, run) = last.remove_entry();
        below = Some(place);
        told.push(run);
    }
    let after = spot.after.clone();
    if told.len() == room {
        let has_more = !pool.is_empty() || matches!(known, Known::Above(_)) || cut_after.is_some();
        return (told, has_more.then_some(Spot { after, below }));
    }
    let next = match (known, cut_after) {
        // All of these segments are told: the next ones follow.
        (_, Some(after)) => Some(Spot { after: Some(after), below: None }),
        (Known::Above(above), None) => {
            let below = Some((Instant(above.0 + 1), String::new()));
            Some(Spot { after, below })
        }
        (Known::All, None) => None,
    };
    (told, next)
}

/// A run as a list tells it: what receivers said would fill pages, and is told with the run itself.
pub(super) fn brief(mut run: Run) -> Run {
    for attempt in &mut run.attempts {
        attempt.response = None;
    }
    if let Some(queued) = &mut run.queued {
        queued.parts.clear();
    }
    run
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_as_it_was_and_rubbish_does_not() {
        for text in ["u7", "p", "pfffffffffffffffe", "p.5.run_x", "pfffffffffffffffe.-5.run_x"] {
            assert_eq!(Cursor::parse(text).unwrap().text(), text);
        }
        for bad in ["", "x", "u", "ux", "px", "p.", "p.x.y", "p.5", "p../../head.5.x"] {
            assert!(Cursor::parse(bad).is_none(), "{bad}");
        }
    }
}
