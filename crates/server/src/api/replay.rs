//! The answer to a request that was carried out before, under the same idempotency key.
//!
//! It tells what came of the request then, as it is now: what was made is shown as it stands, and what was told
//! once, such as a secret, is not told again.

use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Json, Response};
use client::key::NewKey;
use client::project::NewProject;
use client::run::Started;
use engine::id::RunId;

use super::caller::Caller;
use super::problem::Refusal;
use super::read::{self};
use super::{cluster, election, key, project, run, system, trigger};
use crate::desk::Desk;
use crate::recall::Outcome;

/// Says that nothing was done this time.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

pub(super) async fn replay(
    desk: &Desk,
    caller: &Caller,
    outcome: Outcome,
) -> Result<Response, Refusal> {
    let mut response = match outcome {
        Outcome::Created(name) => told(desk, caller, &name, StatusCode::CREATED).await?,
        Outcome::Changed(name) => told(desk, caller, &name, StatusCode::OK).await?,
        Outcome::Started(id) => started(desk, caller, id).await?,
        Outcome::Submitted => StatusCode::ACCEPTED.into_response(),
        Outcome::Project(name) => {
            let project = project::find(desk, &name)?;
            (StatusCode::CREATED, Json(NewProject { project, secret: None })).into_response()
        }
        Outcome::ProjectChanged(name) => {
            let project = project::find(desk, &name)?;
            Json(project).into_response()
        }
        Outcome::Rotated(name) => {
            let project = project::find(desk, &name)?;
            Json(NewProject { project, secret: None }).into_response()
        }
        Outcome::Key(id) => {
            let gone = |_| Refusal::not_found("it was made, and its id cannot be read any more");
            let key = key::tell(desk, id.parse().map_err(gone)?).await?;
            (StatusCode::CREATED, Json(NewKey { key, secret: None })).into_response()
        }
        Outcome::Resigned(name) => Json(election::find(desk, caller, &name).await?).into_response(),
        Outcome::Done => Json(system::status(desk)).into_response(),
        Outcome::Drained(name) => cluster::drained(desk, &name)?,
    };
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    Ok(response)
}

async fn told(
    desk: &Desk,
    caller: &Caller,
    name: &str,
    status: StatusCode,
) -> Result<Response, Refusal> {
    let stored = read::trigger(desk.store(), caller.project, name).await?;
    trigger::tell(desk, &stored, status).await
}

async fn started(desk: &Desk, caller: &Caller, id: String) -> Result<Response, Refusal> {
    let found = match id.parse::<RunId>() {
        Ok(id) => run::find(desk, caller.project, id).await?,
        Err(_) => None,
    };
    let is_over = found.as_ref().is_some_and(|run| run.state.is_end());
    let status = if is_over { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok((status, Json(Started { id, run: found })).into_response())
}
