//! `POST /v1/triggers/{name}/backfill`: slots of the past, run again.
//!
//! The shard starts a handful of runs at a time and remembers how far the request has come, so whoever gets no
//! answer asks the same again, under the same name.

use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json};
use client::trigger::Backfilled;
use engine::instant::Instant;
use engine::limits::{BACKFILL_SLOTS_MAX, UNAVAILABLE_RETRY_AFTER};
use engine::schedule::Schedule;
use engine::shard::command::{BackfillProgress, Command};
use engine::trigger::check_name;

use super::body::JsonBody;
use super::caller::{Act, Caller};
use super::problem::{ApiError, ApiResult};
use super::read;
use crate::handle::{CallError, NodeHandle};
use crate::idempotency::RememberedOutcome;

/// A request as it is read.
#[derive(Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct BackfillDraft {
    request: Option<String>,
    from: Option<Instant>,
    to: Option<Instant>,
}

pub(super) async fn start(
    handle: NodeHandle,
    caller: Caller,
    Path(name): Path<String>,
    JsonBody(BackfillDraft { request, from, to }): JsonBody<BackfillDraft>,
) -> ApiResult {
    let request = request.unwrap_or_else(|| made_up_name(&caller, &handle));
    check_name(&request).map_err(|why| ApiError::field("/request", why))?;
    let (from, to) = window(from, to, handle.now())?;
    let stored = read::trigger(handle.store(), caller.project, &name).await?;
    let slots = count(stored.schedule(), from, to)?;
    let id = stored.id();
    // By its own name it is done once; that it was carried out is known only after the last run.
    let caller = Caller { idempotency: None, ..caller };
    let mut started = 0;
    // Each answer starts at least one run or is the last.
    for _ in 0..=BACKFILL_SLOTS_MAX {
        let (trigger, author) = (id.serial, caller.author.clone());
        let named = request.clone();
        let command = Command::Backfill { trigger, author, request: named, from, to };
        // The audit tells of it once, with its first runs.
        let progress: BackfillProgress = if started == 0 {
            let object = stored.name();
            let outcome = RememberedOutcome::Submitted;
            let act = Act { action: "trigger.backfill", object, outcome };
            caller.command(&handle, id.shard, command, act).await?
        } else {
            let progress = caller.go_on(&handle, id.shard, command).await;
            progress.map_err(|why| cut_short(why, &request))?
        };
        started += u64::from(progress.started);
        if !progress.has_more {
            break;
        }
    }
    let answer = Backfilled { request, slots, started };
    Ok((StatusCode::ACCEPTED, Json(answer)).into_response())
}

/// Some of it was done, so the request is not passed on to the shard's new owner: only this server may know its name.
fn cut_short(why: CallError, request: &str) -> ApiError {
    match why {
        CallError::Elsewhere { .. } | CallError::NoOwner { .. } => ApiError::unavailable(
            format!(
                "the shard changed hands when some runs were started: send it again with \"request\": {request:?}, and the rest is"
            ),
            UNAVAILABLE_RETRY_AFTER,
        ),
        other => other.into(),
    }
}

/// A name for a request that has none: the same one for the same idempotency key.
fn made_up_name(caller: &Caller, handle: &NodeHandle) -> String {
    match &caller.idempotency {
        Some(idempotency) => {
            let digits = idempotency.request.key().rsplit('/').next().unwrap_or_default();
            format!("key-{digits}")
        }
        None => format!("backfill-{:016x}", handle.random()),
    }
}

fn window(
    from: Option<Instant>,
    to: Option<Instant>,
    now: Instant,
) -> ApiResult<(Instant, Instant)> {
    let missing = "it must be there: an instant, like 2027-01-15T08:00:00Z";
    let from = from.ok_or_else(|| ApiError::field("/from", missing))?;
    let to = to.ok_or_else(|| ApiError::field("/to", missing))?;
    if to > now {
        let why = format!("it lies in the future: it is {now} now, and what comes is fired anyway");
        return Err(ApiError::field("/to", why));
    }
    if from >= to {
        return Err(ApiError::field("/from", "it must lie before \"to\""));
    }
    Ok((from, to))
}

/// How many slots there are in a window, if that is not too many.
fn count(schedule: &Schedule, from: Instant, to: Instant) -> ApiResult<u64> {
    if schedule.specs().is_empty() {
        return Err(ApiError::field(
            "/from",
            "the trigger has no schedule, and so no slots: run it instead",
        ));
    }
    let mut slots = 0;
    let mut next = schedule.next(Instant(from.0 - 1)).filter(|slot| *slot < to);
    while let Some(slot) = next {
        if slots == BACKFILL_SLOTS_MAX as u64 {
            let why = format!(
                "at most {BACKFILL_SLOTS_MAX} slots are run again at a time: ask up to {slot} first, then from there on under the same name"
            );
            return Err(ApiError::field("/to", why));
        }
        slots += 1;
        next = schedule.next(slot).filter(|slot| *slot < to);
    }
    Ok(slots)
}
