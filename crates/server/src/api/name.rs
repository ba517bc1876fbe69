//! Names of triggers that live elsewhere than their names say: `/v1/triggers/{name}/reservation`.
//!
//! A trigger that feeds a queue lives in the queue's shard. Its name is reserved before it is made, by the shard that the
//! name hashes to (`engine/src/shard/name.rs`), and released when it is deleted. If another server owns that shard, it is
//! asked in the caller's name. Whoever dies in between leaves a reservation without a trigger, which is released when
//! somebody else wants the name.

use axum::extract::Path;
use axum::http::{Method, StatusCode};
use client::problem::Problem;
use engine::id::{ProjectId, ShardId};
use engine::limits::{FORWARD_ROUND_MAX, NAME_RESERVED_USABLE, UNAVAILABLE_RETRY_AFTER};
use engine::shard::command::{Command, Rejection};
use engine::trigger::check_name;
use serde::{Deserialize, Serialize};

use super::body::JsonBody;
use super::caller::Caller;
use super::forward::PeerClient;
use super::problem::{ApiError, ApiResult};
use super::read;
use super::trigger::CreateError;
use crate::handle::{CallError, NodeHandle};

/// For which shard a name is reserved.
#[derive(Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Reservation {
    shard: u16,
}

/// `PUT`: another server is about to make a trigger of this name.
pub(super) async fn put(
    handle: NodeHandle,
    caller: Caller,
    Path(name): Path<String>,
    JsonBody(Reservation { shard }): JsonBody<Reservation>,
) -> ApiResult<StatusCode> {
    check_name(&name).map_err(|why| ApiError::parameter("name", why))?;
    if shard >= handle.shards() {
        return Err(ApiError::field("/shard", "there is no such shard"));
    }
    reserve_here(&handle, caller.project, &name, ShardId(shard)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `DELETE`: whoever had this name has not any more.
pub(super) async fn delete(
    handle: NodeHandle,
    caller: Caller,
    Path(name): Path<String>,
) -> ApiResult<StatusCode> {
    check_name(&name).map_err(|why| ApiError::parameter("name", why))?;
    if !release_unused(&handle, caller.project, &name).await? {
        return Err(taken("there is a trigger of this name: delete that"));
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Where a name is at home.
fn home(handle: &NodeHandle, project: ProjectId, name: &str) -> ShardId {
    ShardId::of(project, name, handle.shards())
}

/// Reserves a name for a trigger of a shard that this server owns, wherever the name is at home. Says until when, by this
/// server's steady clock, the trigger may be made; none, if the shard is the name's home.
pub(super) async fn reserve(
    handle: &NodeHandle,
    caller: &Caller,
    peers: &PeerClient,
    name: &str,
    shard: ShardId,
) -> Result<Option<u64>, CreateError> {
    if home(handle, caller.project, name) == shard {
        return Ok(None);
    }
    // If the trigger is to live at another server, that one reserves its name.
    handle.find(shard).await.map_err(ApiError::from)?;
    let until = handle.machine().reading().boot + NAME_RESERVED_USABLE;
    let reserved = tokio::select! {
        biased;
        () = handle.machine().sleep(NAME_RESERVED_USABLE) => {
            Err(unreserved("it took too long").into())
        }
        reserved = reserve_anywhere(handle, caller, peers, name, shard) => reserved,
    };
    reserved.map(|()| Some(u64::try_from(until.as_millis()).unwrap_or(u64::MAX)))
}

async fn reserve_anywhere(
    handle: &NodeHandle,
    caller: &Caller,
    peers: &PeerClient,
    name: &str,
    shard: ShardId,
) -> Result<(), CreateError> {
    match reserve_here(handle, caller.project, name, shard).await {
        Err(Reserving::Call(CallError::Elsewhere { node, url })) => {
            let body = serde_json::to_string(&Reservation { shard: shard.0 });
            let body = body.expect("a number always serializes");
            let (path, to) = (path(name), (&node, url.as_deref()));
            let answer = peers.ask_for(to, Method::PUT, &path, Some(body), FORWARD_ROUND_MAX);
            match answer.await {
                Ok((status, _)) if status.is_success() => Ok(()),
                Ok((StatusCode::CONFLICT, body)) => Err(CreateError::Taken(taken(&told(&body)))),
                Ok((_, body)) => Err(unreserved(&told(&body)).into()),
                Err(why) => Err(unreserved(&why).into()),
            }
        }
        Err(Reserving::Taken(why)) => Err(CreateError::Taken(why.into())),
        Err(other) => Err(ApiError::from(other).into()),
        Ok(()) => Ok(()),
    }
}

/// Lets a name go whose trigger is gone, or was not made. If that fails, whoever wants the name does it.
pub(super) async fn release(
    handle: &NodeHandle,
    project: ProjectId,
    peers: &PeerClient,
    name: &str,
    shard: ShardId,
) {
    if home(handle, project, name) == shard {
        return;
    }
    let released = match release_here(handle, project, name).await {
        Err(CallError::Elsewhere { node, url }) => {
            let to = (&node, url.as_deref());
            peers.ask(to, Method::DELETE, &path(name), None).await.map(drop)
        }
        other => other.map_err(|why| why.to_string()),
    };
    if let Err(why) = released {
        tracing::info!(name, %why, "the name of a trigger that is gone stays reserved");
    }
}

/// Has a reservation released if there is no trigger of the name. Says whether that is so.
pub(super) async fn release_unused(
    handle: &NodeHandle,
    project: ProjectId,
    name: &str,
) -> ApiResult<bool> {
    if let Some(id) = read::id_of(handle.store(), project, name).await?
        && read::trigger_by_id(handle.store(), id).await?.is_some()
    {
        return Ok(false);
    }
    release_here(handle, project, name).await?;
    Ok(true)
}

/// Why a name was not reserved.
enum Reserving {
    Taken(Rejection),
    Call(CallError),
    Read(ApiError),
}

impl From<Reserving> for ApiError {
    fn from(why: Reserving) -> Self {
        match why {
            Reserving::Taken(rejection) => rejection.into(),
            Reserving::Call(error) => error.into(),
            Reserving::Read(error) => error,
        }
    }
}

async fn reserve_here(
    handle: &NodeHandle,
    project: ProjectId,
    name: &str,
    shard: ShardId,
) -> Result<(), Reserving> {
    let home = home(handle, project, name);
    let mut is_second = false;
    loop {
        let command = Command::ReserveName { project, name: name.into(), shard };
        match handle.command::<()>(home, command).await {
            Ok(()) => return Ok(()),
            Err(CallError::Rejected(why @ Rejection::NameReserved { .. })) => {
                let released = release_unused(handle, project, name).await;
                if is_second || !released.map_err(Reserving::Read)? {
                    return Err(Reserving::Taken(why));
                }
                is_second = true;
            }
            Err(CallError::Rejected(why @ Rejection::NameTaken(_))) => {
                return Err(Reserving::Taken(why));
            }
            Err(other) => return Err(Reserving::Call(other)),
        }
    }
}

/// Releases a name that no trigger has.
async fn release_here(
    handle: &NodeHandle,
    project: ProjectId,
    name: &str,
) -> Result<(), CallError> {
    let home = home(handle, project, name);
    handle.command(home, Command::ReleaseName { project, name: name.into() }).await
}

fn path(name: &str) -> String {
    format!("/v1/triggers/{name}/reservation")
}

fn told(body: &[u8]) -> String {
    let problem = serde_json::from_slice::<Problem>(body);
    problem.map_or_else(|_| "it gave no reason".to_owned(), |problem| problem.detail)
}

fn taken(detail: &str) -> ApiError {
    ApiError::new(StatusCode::CONFLICT, "name-taken", "The name is taken", detail.to_owned())
}

fn unreserved(why: &str) -> ApiError {
    let detail =
        format!("nothing was done: the server that keeps this name could not reserve it: {why}");
    ApiError::unavailable(detail, UNAVAILABLE_RETRY_AFTER)
}
