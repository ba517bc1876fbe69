//! Lists of runs: of a trigger, and of all.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use axum::extract::{Path, State};
use axum::http::Uri;
use axum::response::Json;
use client::Page;
use client::run::{Run, RunKind, RunState};
use engine::id::{ProjectId, RunId, ShardId, TriggerId};
use engine::instant::Instant;
use engine::limits::{RUNS_READ_MAX, SEGMENTS_READ_MAX};
use engine::past::Line;

use super::caller::Caller;
use super::problem::Refusal;
use super::query::Query;
use super::read::{self, Stored};
use super::run;
use super::segment::{Place, Span, Walk};
use super::trigger::bad_cursor;
use crate::desk::Desk;

/// Where a list of a trigger's runs goes on.
enum Cursor {
    /// After this unfinished run.
    Unfinished(u64),
    /// In the past.
    Past(Place),
}

impl Cursor {
    fn text(&self) -> String {
        match self {
            Self::Unfinished(sequence) => format!("u{sequence}"),
            Self::Past(place) => format!("p{}", place.text()),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        match text.split_at_checked(1)? {
            ("u", sequence) => sequence.parse().ok().map(Self::Unfinished),
            ("p", place) => Place::parse(place).map(Self::Past),
            _ => None,
        }
    }
}

/// Whose runs are listed.
struct Subject {
    id: TriggerId,
    /// The trigger, unless it was deleted: what it has run stays.
    stored: Option<Stored>,
}

impl Subject {
    /// The trigger with this name or id. A name goes with its trigger; an id finds also one that was deleted.
    async fn find(desk: &Desk, project: ProjectId, name: &str) -> Result<Self, Refusal> {
        let id = read::id_of(desk.store(), project, name).await?;
        let id = id.ok_or_else(|| read::no_trigger(name))?;
        let stored = read::trigger_by_id(desk.store(), id).await?;
        if stored.is_none() && name.parse::<TriggerId>().is_err() {
            return Err(read::no_trigger(name));
        }
        Ok(Self { id, stored })
    }

    /// Nothing was recorded before this.
    fn born(&self) -> Instant {
        self.stored.as_ref().map_or(self.id.unique.birth(), |stored| stored.record.created)
    }

    fn name(&self) -> Option<&str> {
        self.stored.as_ref().map(Stored::name)
    }
}

/// Runs of a trigger: what is not finished, and then what is, newest first.
pub(super) async fn list_of(
    State(desk): State<Desk>,
    caller: Caller,
    Path(name): Path<String>,
    uri: Uri,
) -> Result<Json<Page<Run>>, Refusal> {
    let query = Query::of(&uri, &["state", "kind", "limit", "cursor"])?;
    let rows = query.rows()?;
    let wanted = Wanted::of(&query)?;
    let cursor = query.text("cursor").map(|text| Cursor::parse(text).ok_or_else(bad_cursor));
    let cursor = cursor.transpose()?;
    let subject = Subject::find(&desk, caller.project, &name).await?;
    let mut list = List { rows, wanted, items: Vec::new() };
    let after = match cursor {
        Some(Cursor::Past(place)) => return list.past(&desk, &subject, Some(&place)).await,
        Some(Cursor::Unfinished(sequence)) => Some(sequence),
        None => None,
    };
    if let Some(next) = list.unfinished(&desk, &subject, after).await? {
        return Ok(Json(Page { items: list.items, next: Some(next.text()) }));
    }
    list.past(&desk, &subject, None).await
}

/// Which runs are wanted.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    state: Option<RunState>,
    kind: Option<RunKind>,
}

impl Wanted {
    fn of(query: &Query) -> Result<Self, Refusal> {
        let state = query.word("state", &RunState::ALL, RunState::as_str)?;
        let kind = query.word("kind", &RunKind::ALL, RunKind::as_str)?;
        Ok(Self { state, kind })
    }

    fn has(self, run: &Run) -> bool {
        self.state.is_none_or(|state| state == run.state)
            && self.kind.is_none_or(|kind| kind == run.kind)
    }
}

/// A list that is being filled.
struct List {
    rows: usize,
    wanted: Wanted,
    items: Vec<Run>,
}

impl List {
    fn push(&mut self, run: Run) {
        if self.wanted.has(&run) && self.items.iter().all(|item| item.id != run.id) {
            self.items.push(brief(run));
        }
    }

    fn is_full(&self) -> bool {
        self.items.len() >= self.rows
    }

    /// Adds what is not finished; where to go on, if there is more of it.
    async fn unfinished(
        &mut self,
        desk: &Desk,
        subject: &Subject,
        after: Option<u64>,
    ) -> Result<Option<Cursor>, Refusal> {
        let (id, source) = (subject.id, run::source(desk, subject.id.shard));
        let mut open = Vec::new();
        // Before a trigger is deleted, its open runs are given records of their own.
        if let (Some(stored), None) = (&subject.stored, after) {
            let mut runs = read::head(desk.store(), id.shard).await?.open;
            runs.retain(|run| run.trigger == id.unique);
            runs.sort_unstable_by(|one, other| other.cmp(one));
            open = runs.into_iter().map(|run| source.open(run, stored, desk.now())).collect();
        }
        // Open runs are few, and have no place to go on from: they take what room there is.
        let room = self.rows.saturating_sub(open.len()).max(1);
        let read =
            read::unfinished(desk.store(), id.shard, Some(id.unique), after, RUNS_READ_MAX).await?;
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
        desk: &Desk,
        subject: &Subject,
        from: Option<&Place>,
    ) -> Result<Json<Page<Run>>, Refusal> {
        let (id, source) = (subject.id, run::source(desk, subject.id.shard));
        let span = Span { trigger: id.unique, from: subject.born(), to: Instant::LAST };
        let mut walk = Walk::of(desk.store(), id.shard, span, from, SEGMENTS_READ_MAX);
        let mut place = from.cloned();
        while let Some(batch) = walk.next().await? {
            let mut full = self.is_full().then_some(0);
            for (lines, line) in &batch.lines {
                if self.is_full() {
                    full = full.or(Some(lines - 1));
                    break;
                }
                if let Line::Run(run) = line
                    && run.project == id.project
                {
                    self.push(source.finished(run, subject.name()));
                }
            }
            if let Some(lines) = full {
                let next = Some(Cursor::Past(batch.after(lines)).text());
                return Ok(Json(Page { items: self.items, next }));
            }
            place = Some(batch.end());
        }
        let cut = walk.is_cut().then_some(place).flatten();
        let next = cut.map(|place| Cursor::Past(place).text());
        Ok(Json(Page { items: self.items, next }))
    }
}

/// The latest runs of all triggers. It goes back over a bounded number of segments of each shard; what is
/// older, or is in pages already, is found by its trigger.
pub(super) async fn list(
    State(desk): State<Desk>,
    caller: Caller,
    uri: Uri,
) -> Result<Json<Page<Run>>, Refusal> {
    let query = Query::of(&uri, &["state", "kind", "limit", "cursor"])?;
    let rows = query.rows()?;
    let wanted = Wanted::of(&query)?;
    let before = query.text("cursor").map(|text| parse_before(text).ok_or_else(bad_cursor));
    let before = before.transpose()?;
    let mut top = Top { project: caller.project, rows, wanted, before, found: Vec::new() };
    for shard in (0..desk.shards()).map(ShardId) {
        latest_of(&desk, shard, &mut top).await?;
    }
    let mut found = top.found;
    let more = found.len() > rows;
    found.truncate(rows);
    let last = found.last().filter(|_| more);
    let next = last.map(|row| format!("{}.{}", row.at.0, row.run.id));
    let items = name(&desk, found).await?;
    Ok(Json(Page { items, next }))
}

fn parse_before(text: &str) -> Option<(Instant, String)> {
    let (at, id) = text.split_once('.')?;
    let id: RunId = id.parse().ok()?;
    Some((Instant(at.parse().ok()?), id.to_string()))
}

/// A run, and when something last became of it.
struct Row {
    at: Instant,
    run: Run,
    trigger: TriggerId,
}

/// The newest rows of those that are wanted, and one more: it tells whether there is a next page.
struct Top {
    project: ProjectId,
    rows: usize,
    wanted: Wanted,
    before: Option<(Instant, String)>,
    found: Vec<Row>,
}

impl Top {
    /// Takes more rows into account. Of two that tell of the same run the one that came first stays.
    fn add(&mut self, rows: impl Iterator<Item = Row>) {
        self.found.extend(rows.filter(|row| {
            let older =
                self.before.as_ref().is_none_or(|(at, id)| (row.at, &row.run.id) < (*at, id));
            let is_ours = row.trigger.project == self.project;
            is_ours && older && self.wanted.has(&row.run)
        }));
        let mut seen = HashSet::new();
        self.found.retain(|row| seen.insert(row.run.id.clone()));
        self.found.sort_by(|one, other| (other.at, &other.run.id).cmp(&(one.at, &one.run.id)));
        self.found.truncate(self.rows + 1);
    }
}

/// The latest runs of a shard. What is not finished is read first and told last: what has ended meanwhile is
/// told as ended.
async fn latest_of(desk: &Desk, shard: ShardId, top: &mut Top) -> Result<(), Refusal> {
    let part = |most: usize| (most / usize::from(desk.shards())).max(1);
    let source = run::source(desk, shard);
    let unfinished = read::unfinished(desk.store(), shard, None, None, part(RUNS_READ_MAX)).await?;
    let mut walk = Walk::recent(desk.store(), shard, part(SEGMENTS_READ_MAX));
    while let Some(batch) = walk.next().await? {
        top.add(batch.lines.into_iter().filter_map(|(_, line)| {
            let Line::Run(run) = line else { return None };
            let trigger = TriggerId { shard, project: run.project, unique: run.trigger };
            Some(Row { at: run.at, run: brief(source.finished(&run, None)), trigger })
        }));
    }
    top.add(unfinished.runs.iter().map(|(sequence, run)| {
        let trigger = TriggerId { shard, project: run.project, unique: run.trigger };
        Row { at: run.leaves, run: brief(source.unfinished(*sequence, run)), trigger }
    }));
    Ok(())
}

/// A run as a list tells it: what receivers said would fill pages, and is told with the run itself.
fn brief(mut run: Run) -> Run {
    for attempt in &mut run.attempts {
        attempt.response = None;
    }
    run
}

/// Puts the names of their triggers on runs.
async fn name(desk: &Desk, rows: Vec<Row>) -> Result<Vec<Run>, Refusal> {
    let mut names: HashMap<TriggerId, Option<String>> = HashMap::new();
    let mut runs = Vec::with_capacity(rows.len());
    for Row { mut run, trigger, .. } in rows {
        if run.name.is_none() {
            run.name = match names.entry(trigger) {
                Entry::Occupied(known) => known.get().clone(),
                Entry::Vacant(place) => {
                    let stored = read::trigger_by_id(desk.store(), trigger).await?;
                    place.insert(stored.map(|stored| stored.name().to_owned())).clone()
                }
            };
        }
        runs.push(run);
    }
    Ok(runs)
}
