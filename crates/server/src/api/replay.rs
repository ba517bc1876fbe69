//! The answer to a request that was carried out before, under the same idempotency key.
//!
//! It tells what came of the request then, as it is now: what was made is shown as it stands, and what was told
//! once, such as a secret, is not told again.

use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Json, Response};
use client::key::NewKey;
use client::project::NewProject;
use client::queue::{Submitted, SubmittedBatch};
use client::run::Started;
use engine::id::RunId;

use super::caller::Caller;
use super::problem::{ApiError, ApiResult};
use super::read::{self};
use super::{cluster, election, key, project, queue, ring, run, system, trigger, workers};
use crate::handle::NodeHandle;
use crate::idempotency::RememberedOutcome;

/// Says that nothing was done this time.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

pub(super) async fn replay(
    handle: &NodeHandle,
    caller: &Caller,
    outcome: RememberedOutcome,
) -> ApiResult {
    let mut response = match outcome {
        RememberedOutcome::Created(name) => {
            told(handle, caller, &name, StatusCode::CREATED).await?
        }
        RememberedOutcome::Changed(name) => told(handle, caller, &name, StatusCode::OK).await?,
        RememberedOutcome::Started(id) => started(handle, caller, id).await?,
        RememberedOutcome::Submitted => StatusCode::ACCEPTED.into_response(),
        RememberedOutcome::Queued { batch, runs } => queued(batch, runs),
        RememberedOutcome::Queue(name) => {
            let record = queue::find(handle, caller.project, &name).await?;
            queue::respond(&record, None, StatusCode::OK)
        }
        RememberedOutcome::Redriven(told) => Json(told).into_response(),
        RememberedOutcome::Project(name) => {
            let project = project::find(handle, &name)?;
            (StatusCode::CREATED, Json(NewProject { project, secret: None })).into_response()
        }
        RememberedOutcome::ProjectChanged(name) => {
            let project = project::find(handle, &name)?;
            Json(project).into_response()
        }
        RememberedOutcome::Rotated(name) => {
            let project = project::find(handle, &name)?;
            Json(NewProject { project, secret: None }).into_response()
        }
        RememberedOutcome::Key(id) => {
            let gone = |_| ApiError::not_found("it was made, and its id cannot be read any more");
            let key = key::tell(handle, id.parse().map_err(gone)?).await?;
            (StatusCode::CREATED, Json(NewKey { key, secret: None })).into_response()
        }
        RememberedOutcome::Resigned(name) | RememberedOutcome::Approved(name) => {
            Json(election::find(handle, caller, &name).await?).into_response()
        }
        RememberedOutcome::Done => Json(system::status(handle)).into_response(),
        RememberedOutcome::Drained(name) => cluster::drained(handle, &name)?,
        RememberedOutcome::Worker(name) => {
            Json(workers::here(handle, caller.project, &name).await?).into_response()
        }
        RememberedOutcome::Ring(name) => ring::again(handle, caller, &name).await?,
    };
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    Ok(response)
}

/// Whether each run was new is told by the first answer. Whoever asks again learns that it is there.
fn queued(batch: bool, runs: Vec<String>) -> Response {
    if let Some(id) = runs.first().filter(|_| !batch).and_then(|id| id.parse().ok()) {
        return queue::submitted(id, true, StatusCode::CREATED);
    }
    let runs = runs.into_iter().map(|id| Submitted { id, created: true }).collect();
    (StatusCode::CREATED, Json(SubmittedBatch { runs })).into_response()
}

async fn told(handle: &NodeHandle, caller: &Caller, name: &str, status: StatusCode) -> ApiResult {
    let stored = read::trigger(handle.store(), caller.project, name).await?;
    Ok(trigger::respond(handle, &stored, None, status))
}

async fn started(handle: &NodeHandle, caller: &Caller, id: String) -> ApiResult {
    let found = match id.parse::<RunId>() {
        Ok(id) => run::find(handle, caller.project, id).await?,
        Err(_) => None,
    };
    let is_over = found.as_ref().is_some_and(|run| run.state.is_end());
    let status = if is_over { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok((status, Json(Started { id, run: found })).into_response())
}
