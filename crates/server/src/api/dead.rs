//! Dead runs of queues: `/v1/queues/{name}/dead`, and having them carried out again.
//!
//! What is kept of them is read from the store, by any server. Redriving is a command of the shard that has them: it is told
//! what each of them was about, which never changes, and decides whether it is still there. One request is one commit, so a
//! request with an idempotency key is done once, whatever becomes of its answer.

use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json};
use client::ListPage;
use client::redrive::{DeadKind, RedriveRequest, Redriven};
use client::run::Run;
use engine::id::{RunId, SerialId, ShardId};
use engine::instant::Instant;
use engine::limits::{
    DEAD_LOOKED_AT_MAX, REDRIVE_BYTES_MAX, REDRIVE_RUNS_MAX, RUN_KEY_CHARS_MAX, RUNS_READ_MAX,
};
use engine::queue::dead::{DeadRecord, dead_at, dead_key, dead_of};
use engine::queue::filter::{DeadFilter, DeadState, RunFilter};
use engine::queue::record::{QueueRecord, QueuedRecord};
use engine::queue::submitted::RunPlace;
use engine::shard::command::{Command, Rejection};
use engine::shard::{DeadDefinition, NumberSpan, RedriveResult, ShardAnswer};
use engine::trigger::check_label;
use store::Range;

use super::body::{JsonBody, NoBody};
use super::caller::Caller;
use super::claim::payload;
use super::problem::{ApiError, ApiResult};
use super::query::Query;
use super::read::{self, key};
use super::run::{read_id, source};
use super::trigger::bad_cursor;
use super::{history, queue};
use crate::handle::{CallError, NodeHandle, ShardAsk};
use crate::idempotency::RememberedOutcome;

/// Writes of a run that is redriven: its three records, its unique key, and the two or three that go.
const WRITES_OF_REDRIVEN: usize = 6;

/// Writes of a commit beside these: the head, the past, the audit, the note of the request.
const BESIDE_RUNS: usize = 8;

/// Definitions that are read at once.
const READ_TOGETHER: usize = 16;

pub(super) async fn list(
    handle: NodeHandle,
    caller: Caller,
    Path(name): Path<String>,
    query: Query,
) -> ApiResult<Json<ListPage<Run>>> {
    let rows = query.rows()?;
    let states = query.words("state", &DeadKind::ALL, DeadKind::as_str)?;
    let labels = query.labels()?.into_iter().map(|(key, value)| label(key, value)).collect();
    let key = query.text("key").map(Into::into);
    let from = query.get("from")?.unwrap_or(Instant::FIRST);
    let to = query.get("to")?.unwrap_or(Instant::LAST);
    let run = RunFilter { key, labels, from, to };
    let filter = DeadFilter { states: states.into_iter().map(state).collect(), run };
    let cursor = query.text("cursor").map(|text| text.parse().map_err(|_| bad_cursor()));
    let span = NumberSpan { after: cursor.transpose()?.unwrap_or(0), upto: u64::MAX };
    let record = queue::find(&handle, caller.project, &name).await?;
    let found = look(&handle, &record, &filter, span, rows).await?;
    let source = source(&handle, record.id.shard);
    let runs = found.runs.iter().map(|(_, dead)| history::brief(source.finished(&dead.run, None)));
    Ok(Json(ListPage { items: runs.collect(), next: found.next.map(|next| next.to_string()) }))
}

/// Dead runs that a filter means, and where to go on.
struct Found {
    runs: Vec<(u64, DeadRecord)>,
    next: Option<u64>,
}

/// Looks at dead runs until so many are found.
async fn look(
    handle: &NodeHandle,
    queue: &QueueRecord,
    filter: &DeadFilter,
    NumberSpan { after, upto }: NumberSpan,
    most: usize,
) -> ApiResult<Found> {
    let (shard, serial) = (queue.id.shard, queue.id.serial);
    let range = Range::prefix(&dead_of(shard, serial)).after(&key(dead_key(shard, serial, after)));
    let mut rest = Some(range);
    let mut found = Found { runs: Vec::new(), next: None };
    let (mut looked_at, mut last) = (0, after);
    while let Some(range) = rest.take() {
        let page = handle.store().scan(range, RUNS_READ_MAX).await?;
        rest = page.next;
        for entry in &page.entries {
            if found.runs.len() == most || looked_at == DEAD_LOOKED_AT_MAX {
                found.next = Some(last);
                return Ok(found);
            }
            let Some((_, sequence)) = dead_at(shard, entry.key.as_str()) else { continue };
            if sequence > upto {
                return Ok(found);
            }
            let record: DeadRecord = read::record(entry)?;
            (looked_at, last) = (looked_at + 1, sequence);
            if filter.takes(&record) {
                found.runs.push((sequence, record));
            }
        }
    }
    Ok(found)
}

pub(super) async fn redrive(
    handle: NodeHandle,
    caller: Caller,
    Path(name): Path<String>,
    JsonBody(request): JsonBody<RedriveRequest>,
) -> ApiResult {
    let filter = filter_of(&request)?;
    let record = queue::find(&handle, caller.project, &name).await?;
    let span = span_of(&handle, &record, request.cursor.as_deref()).await?;
    let NumberSpan { after, .. } = span;
    if request.dry_run {
        let found = look(&handle, &record, &filter, span, usize::MAX).await?;
        let matched = found.runs.len() as u64;
        let next = found.next.map(|next| cursor_text(next, span));
        return Ok(Json(Redriven { matched, next, ..Redriven::default() }).into_response());
    }
    let shard = record.id.shard;
    // Whoever has the shard reads what is to be redriven.
    handle.find(shard).await?;
    let most = request.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(0));
    if most == 0 {
        return Err(ApiError::field("/limit", "it is a whole number from 1 on"));
    }
    let found = look(&handle, &record, &filter, span, most.min(runs_at_once(&handle))).await?;
    let (runs, next) = definitions(&handle, shard, record.id.serial, found).await?;
    let places: Vec<u64> = runs.iter().map(|run| run.sequence).collect();
    let matched = places.len() as u64;
    let answer = move |redriven: usize, next: Option<u64>| Redriven {
        matched,
        redriven: redriven as u64,
        skipped: matched - redriven as u64,
        next: next.map(|next| cursor_text(next, span)),
    };
    let command = Command::Redrive { queue: record.id.serial, runs };
    // Where it goes on if not all of them were: those that were are gone.
    let remembered = move |runs: &[RunId]| {
        let is_all = runs.len() as u64 == matched;
        RememberedOutcome::Redriven(answer(runs.len(), if is_all { next } else { Some(after) }))
    };
    let act = ("queue.redrive", name.as_str());
    let results: std::sync::Arc<[RedriveResult]> =
        caller.command_remembering(&handle, shard, command, act, remembered).await?;
    let redriven = results.iter().filter(|result| result.run().is_some()).count();
    let full = results.iter().position(|result| *result == RedriveResult::NoRoom);
    let answer = match full {
        // The first that found no room is where to go on.
        Some(index) => {
            let before = if index == 0 { after } else { places[index - 1] };
            let done = index as u64;
            let skipped = done - redriven as u64;
            Redriven { matched: done, skipped, ..answer(redriven, Some(before)) }
        }
        None => answer(redriven, next),
    };
    Ok(Json(answer).into_response())
}

/// How many runs one commit of the store redrives, whatever they are.
fn runs_at_once(handle: &NodeHandle) -> usize {
    let writes = handle.store().limits().writes.saturating_sub(BESIDE_RUNS);
    (writes / WRITES_OF_REDRIVEN).clamp(1, REDRIVE_RUNS_MAX)
}

/// What dead runs were about, as much as one commit of the store takes, and where to go on.
async fn definitions(
    handle: &NodeHandle,
    shard: ShardId,
    queue: SerialId,
    found: Found,
) -> ApiResult<(Vec<DeadDefinition>, Option<u64>)> {
    let room = REDRIVE_BYTES_MAX.min(handle.store().limits().commit_bytes / 2);
    let (mut runs, mut bytes) = (Vec::new(), 0);
    for some in found.runs.chunks(READ_TOGETHER) {
        let places: Vec<RunPlace> =
            some.iter().map(|(sequence, dead)| dead.place(queue, *sequence)).collect();
        let mut read = payload::read_places(handle, shard, &places).await?;
        for (sequence, _) in some {
            // It was redriven meanwhile, or is not kept any longer.
            let Some(record) = read.remove(sequence).filter(|it| it.action.is_some()) else {
                continue;
            };
            bytes += record_bytes(&record);
            if bytes > room && !runs.is_empty() {
                let last = runs.last().map(|run: &DeadDefinition| run.sequence);
                return Ok((runs, last));
            }
            runs.push(DeadDefinition { sequence: *sequence, record: Box::new(record) });
        }
    }
    Ok((runs, found.next))
}

/// Bytes that what a run is about may take in the store. That of a trigger's run may be written as a text within a record.
fn record_bytes(record: &QueuedRecord) -> usize {
    let bytes = record.action.as_ref().map_or(0, |action| action.get().len());
    if record.trigger.is_some() { 2 * bytes } else { bytes }
}

/// One run, by its id.
pub(super) async fn retry(
    handle: NodeHandle,
    caller: Caller,
    Path(text): Path<String>,
    _: NoBody,
) -> ApiResult {
    let id = read_id(&text)?;
    let gone = || {
        ApiError::not_found(format!(
            "{id} is not among the dead runs that are kept: it has not ended, did not fail, was redriven, or it is too long ago"
        ))
    };
    if id.shard.0 >= handle.shards() {
        return Err(gone());
    }
    let guard = handle.ask_guard(id.shard);
    let ask = ShardAsk::Dead { project: caller.project, run: id };
    let ShardAnswer::Dead(Some(dead)) = handle.ask_shard(&guard, ask).await? else {
        return Err(gone());
    };
    let (queue, sequence) = (dead.place.queue, dead.place.order.sequence);
    let mut read = payload::read_places(&handle, id.shard, &[dead.place]).await?;
    let record = read.remove(&sequence).filter(|it| it.action.is_some()).ok_or_else(gone)?;
    let runs = vec![DeadDefinition { sequence, record: Box::new(record) }];
    let command = Command::Redrive { queue, runs };
    let remembered = |runs: &[RunId]| RememberedOutcome::Queued {
        batch: false,
        runs: runs.iter().map(ToString::to_string).collect(),
    };
    let act = ("run.retry", text.as_str());
    let results: Result<std::sync::Arc<[RedriveResult]>, CallError> =
        caller.command_remembering(&handle, id.shard, command, act, remembered).await;
    match results.map(|results| results.first().copied()) {
        Ok(Some(RedriveResult::Waits(id))) => Ok(queue::submitted(id, true, StatusCode::CREATED)),
        Ok(Some(RedriveResult::KeyTaken(other))) => Err(ApiError::new(
            StatusCode::CONFLICT,
            "unique-key-taken",
            "Another run has its unique key",
            format!("its unique key stands for {other}: let that end first, or leave it at that"),
        )),
        Ok(Some(RedriveResult::Gone | RedriveResult::NoRoom) | None)
        | Err(CallError::Rejected(Rejection::NoSuchQueue)) => Err(gone()),
        Err(why) => Err(why.into()),
    }
}

/// Which dead runs a request means.
fn filter_of(request: &RedriveRequest) -> ApiResult<DeadFilter> {
    let RedriveRequest { state: states, key, labels, since, until, .. } = request;
    let run = run_filter(key.as_deref(), labels, *since, *until)?;
    Ok(DeadFilter { states: states.iter().copied().map(state).collect(), run })
}

/// Which runs a request means, whatever their state.
pub(super) fn run_filter(
    key: Option<&str>,
    labels: &std::collections::BTreeMap<String, String>,
    since: Option<client::Timestamp>,
    until: Option<client::Timestamp>,
) -> ApiResult<RunFilter> {
    if key.is_some_and(|key| key.is_empty() || key.chars().count() > RUN_KEY_CHARS_MAX) {
        return Err(ApiError::field("/key", format!("it has 1 to {RUN_KEY_CHARS_MAX} characters")));
    }
    for (name, value) in labels {
        check_label(name, value).map_err(|why| ApiError::field(format!("/labels/{name}"), why))?;
    }
    let instant = |at: client::Timestamp| Instant(at.as_millisecond());
    let (from, to) = (since.map_or(Instant::FIRST, instant), until.map_or(Instant::LAST, instant));
    if from >= to {
        return Err(ApiError::field("/since", "it must lie before \"until\""));
    }
    let labels = labels.iter().map(|(key, value)| label(key, value)).collect();
    Ok(RunFilter { key: key.map(Into::into), labels, from, to })
}

fn label(key: &str, value: &str) -> Box<str> {
    format!("{key}={value}").into()
}

fn state(kind: DeadKind) -> DeadState {
    match kind {
        DeadKind::Dead => DeadState::Dead,
        DeadKind::Poison => DeadState::Poison,
        DeadKind::Failed => DeadState::Failed,
    }
}

/// The runs that a request is about: those that there were when the first request of several was made, after those that
/// the last one did. What dies again meanwhile is not among them.
pub(super) async fn span_of(
    handle: &NodeHandle,
    queue: &QueueRecord,
    cursor: Option<&str>,
) -> ApiResult<NumberSpan> {
    let Some(cursor) = cursor else {
        let upto = read::head(handle.store(), queue.id.shard).await?.sequence;
        return Ok(NumberSpan { after: 0, upto });
    };
    let numbers = cursor.split_once('-');
    let numbers = numbers.and_then(|(after, upto)| Some((after.parse().ok()?, upto.parse().ok()?)));
    numbers.map(|(after, upto)| NumberSpan { after, upto }).ok_or_else(|| {
        ApiError::field("/cursor", "it is the \"next\" of the answer before, unchanged")
    })
}

/// Where to go on after a run.
pub(super) fn cursor_text(next: u64, span: NumberSpan) -> String {
    format!("{next}-{}", span.upto)
}
