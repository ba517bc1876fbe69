//! One run: starting it, waiting for it, finding it.

use std::time::Duration;

use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json};
use client::run::{Run, Started};
use engine::id::{ProjectId, RunId, ShardId, TriggerId};
use engine::length;
use engine::limits::{OWNER_RETRY_AFTER, RUN_WAIT_MAX, RUNS_READ_MAX, SEGMENTS_READ_MAX};
use engine::past::{Finished, Line};
use engine::queue::submitted::RunPlace;
use engine::shard::ShardAnswer;
use engine::shard::command::Command;
use engine::shard::record::past;
use serde::Deserialize;

use super::body::NoBody;
use super::caller::{Act, Caller};
use super::claim::payload;
use super::convert::{self, Source};
use super::forward::PeerClient;
use super::owner::{self, Told};
use super::problem::{ApiError, ApiResult};
use super::query::Query;
use super::read::{self, Silence, Stored};
use super::segment::{PastSpan, PastWalk};
use crate::handle::{NodeHandle, ShardAsk};
use crate::idempotency::RememberedOutcome;

/// Who waits for the end of a run looks by itself this often, should a hint be lost.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// How many of the latest batches are looked at for a run that is waited for.
const WAIT_SEGMENTS_MAX: usize = 50;

/// A run that was submitted is looked for among those that ended within so long first.
const SUBMITTED_ENDS_SOON: Duration = Duration::from_secs(86_400);

/// Pages of unfinished runs that are looked at for one run.
const RUN_PAGES_MAX: usize = 10;

pub(super) async fn start(
    handle: NodeHandle,
    caller: Caller,
    Path(name): Path<String>,
    query: Query,
    _: NoBody,
) -> ApiResult {
    let wait = query.text("wait").map(read_wait).transpose()?;
    let stored = read::trigger(handle.store(), caller.project, &name).await?;
    let id = stored.id();
    // Watching begins before the run does, so that its end cannot be missed.
    let mut hints = handle.store().watch(&past(id.shard));
    let command = Command::Run { trigger: id.serial, author: caller.author.clone() };
    let outcome = RememberedOutcome::Changed(stored.name().to_owned());
    let act = Act { action: "trigger.run", object: stored.name(), outcome };
    let run_id: RunId = caller.command(&handle, id.shard, command, act).await?;
    let started = |run| Json(Started { id: run_id.to_string(), run });
    let Some(wait) = wait else {
        return Ok((StatusCode::ACCEPTED, started(None)).into_response());
    };
    let ended = async {
        loop {
            if let Some(run) = recently_ended(&handle, run_id, stored.name()).await? {
                return Ok::<_, ApiError>(run);
            }
            // A hint, or a look at the clock, whichever comes first.
            let _ = tokio::time::timeout(LOOK_AGAIN, hints.changed()).await;
        }
    };
    if let Ok(run) = tokio::time::timeout(wait, ended).await {
        return Ok((StatusCode::OK, started(Some(run?))).into_response());
    }
    let run = find(&handle, caller.project, run_id).await?;
    let is_over = run.as_ref().is_some_and(|run| run.state.is_end());
    let status = if is_over { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok((status, started(run)).into_response())
}

fn read_wait(text: &str) -> ApiResult<Duration> {
    let bad = |why: String| ApiError::parameter("wait", why);
    let wait = length::read(text).map_err(|why| bad(why.to_string()))?;
    if wait > RUN_WAIT_MAX {
        let most = length::text(RUN_WAIT_MAX);
        return Err(bad(format!("it is at most {most}: ask for the run again later")));
    }
    Ok(wait)
}

async fn recently_ended(handle: &NodeHandle, id: RunId, name: &str) -> ApiResult<Option<Run>> {
    // The newest commits are never merged before they are this old.
    let walk = PastWalk::recent(handle.store(), id.shard, WAIT_SEGMENTS_MAX);
    let found = find_ended(handle, id, walk).await?;
    Ok(found.map(|run| source(handle, id.shard).finished(&run, Some(name))))
}

/// The run, if the walk comes to it.
async fn find_ended(
    handle: &NodeHandle,
    id: RunId,
    mut walk: PastWalk<'_>,
) -> ApiResult<Option<Finished>> {
    let source = source(handle, id.shard);
    while let Some(batch) = walk.next().await? {
        for line in batch.lines {
            if let Line::Run(run) = line
                && source.finished_id(&run) == id
            {
                return Ok(Some(run));
            }
        }
    }
    Ok(None)
}

pub(super) fn source(handle: &NodeHandle, shard: ShardId) -> Source {
    Source { shard, cluster: handle.cluster() }
}

pub(super) async fn show(
    handle: NodeHandle,
    caller: Caller,
    peers: PeerClient,
    Path(text): Path<String>,
) -> ApiResult<Json<Run>> {
    let id = read_id(&text)?;
    let run = find_anywhere(&handle, &peers, caller.project, id).await?;
    run.map(Json).ok_or_else(|| {
        ApiError::not_found(format!("there is no run {id}, or it is too long ago to be found by its id alone: list its trigger's runs"))
    })
}

/// A run of a queue or of a trigger, unfinished or past.
pub(super) async fn find_anywhere(
    handle: &NodeHandle,
    peers: &PeerClient,
    project: ProjectId,
    id: RunId,
) -> ApiResult<Option<Run>> {
    let unfinished = find_queued(handle, peers, project, id).await;
    if let Ok(Some(run)) = unfinished {
        return Ok(Some(run));
    }
    if let Some(run) = find(handle, project, id).await? {
        return Ok(Some(run));
    }
    match unfinished {
        // It may have gone from its record to its queue while we looked.
        Ok(_) => find_queued(handle, peers, project, id).await,
        // If nobody could say that it is not among those that wait, it is not said to be missing.
        Err(why) => Err(why),
    }
}

pub(super) fn read_id(text: &str) -> ApiResult<RunId> {
    text.parse().map_err(|why: engine::id::BadId| ApiError::not_found(why.to_string()))
}

/// An unfinished run of a queue, by whoever owns its shard.
async fn find_queued(
    handle: &NodeHandle,
    peers: &PeerClient,
    project: ProjectId,
    run: RunId,
) -> ApiResult<Option<Run>> {
    if run.shard.0 >= handle.shards() {
        return Ok(None);
    }
    let ask = ShardAsk::Run { project, run };
    Ok(match owner::ask(handle, peers, run.shard, ask, &format!("/v1/runs/{run}")).await {
        Told::Here(ShardAnswer::Runs(views)) => {
            let silence = Silence::of(handle, project);
            let Some(view) = views.first() else { return Ok(None) };
            let mut found = convert::queued(view, silence.as_ref());
            let subject = read_subject(handle, run.shard, view.place).await;
            if let (Some(part), Some(subject)) = (&mut found.queued, subject) {
                part.handler = subject.handler;
                part.argv = subject.command.map_or_else(Vec::new, |command| command.argv);
            }
            Some(found)
        }
        Told::There(bytes) => serde_json::from_slice(&bytes).ok(),
        Told::Here(_) => None,
        Told::Nobody => {
            let detail = "nobody owns the shard of this run at the moment: try again";
            return Err(ApiError::unavailable(detail, OWNER_RETRY_AFTER));
        }
    })
}

/// What an unfinished run is about, as far as everybody is told who may look: neither its payload nor its environment.
#[derive(Deserialize)]
struct RunSubject {
    handler: Option<String>,
    command: Option<SubjectCommand>,
}

#[derive(Deserialize)]
struct SubjectCommand {
    argv: Vec<String>,
}

/// If it cannot be read now, the rest is told all the same.
async fn read_subject(handle: &NodeHandle, shard: ShardId, place: RunPlace) -> Option<RunSubject> {
    let read = payload::read_places(handle, shard, &[place]).await.ok()?;
    let action = read.get(&place.order.sequence)?.action.as_ref()?;
    serde_json::from_str(action.get()).ok()
}

pub(super) async fn cancel(
    handle: NodeHandle,
    caller: Caller,
    Path(text): Path<String>,
    _: NoBody,
) -> ApiResult<StatusCode> {
    let run = read_id(&text)?;
    if run.shard.0 >= handle.shards() {
        return Err(ApiError::not_found(format!("there is no run {run}")));
    }
    let command = Command::CancelRun { project: caller.project, run };
    let act = Act { action: "run.cancel", object: &text, outcome: RememberedOutcome::Submitted };
    let () = caller.command(&handle, run.shard, command, act).await?;
    Ok(StatusCode::ACCEPTED)
}

/// A run, wherever it is. It moves from the head to a record to the past, so that is the order of looking.
pub(super) async fn find(
    handle: &NodeHandle,
    project: ProjectId,
    id: RunId,
) -> ApiResult<Option<Run>> {
    let (store, source) = (handle.store(), source(handle, id.shard));
    let trigger = TriggerId { shard: id.shard, project, serial: id.trigger };
    let stored = read::trigger_by_id(store, trigger).await?;
    if let Some(stored) = &stored {
        let head = read::head(store, id.shard).await?;
        let mut open = head.open.iter().filter(|open| open.trigger == id.trigger);
        let open = open.find(|open| source.open_id(**open, stored.record.generation) == id);
        if let Some(open) = open {
            return Ok(Some(source.open(*open, stored, handle.now())));
        }
    }
    let mut after = None;
    for _ in 0..RUN_PAGES_MAX {
        let page = read::unfinished(store, id.shard, Some(trigger), after, RUNS_READ_MAX).await?;
        let mut runs = page.runs.iter();
        let run = runs.find(|(sequence, run)| run.id(id.shard, *sequence, handle.cluster()) == id);
        if let Some((sequence, run)) = run.filter(|(_, run)| run.project == project) {
            return Ok(Some(source.unfinished(*sequence, run)));
        }
        after = page.more_after;
        if after.is_none() {
            break;
        }
    }
    // What was submitted is filed by its end, which most have soon.
    let soon = id.slot.after(SUBMITTED_ENDS_SOON);
    let spans = match &stored {
        Some(_) => vec![(id.slot, id.slot)],
        None => vec![(id.slot, soon), (soon, handle.now())],
    };
    let mut run = None;
    for (from, to) in spans.into_iter().filter(|(from, to)| from <= to) {
        let span = PastSpan { trigger: id.trigger, from, to };
        let walk = PastWalk::of(store, id.shard, span, None, SEGMENTS_READ_MAX);
        run = find_ended(handle, id, walk).await?;
        if run.is_some() {
            break;
        }
    }
    let run = run.filter(|run| run.project == project);
    Ok(run.map(|run| source.finished(&run, stored.as_ref().map(Stored::name))))
}
