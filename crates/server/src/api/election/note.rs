//! `POST /v1/elections/{name}/resign` and `…/approve`: what people say to whoever has an election.
//!
//! Both are notes beside its head that name the token that they are about, so neither can ever meet a later holder. They are
//! written together with the audit and the answer that a repeated request is given.

use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Json;
use client::election::{ApproveRequest, Election, ElectionState, ResignRequest};
use store::session::NodeId;
use store::{Commit, CommitError, Key};

use super::{claim, find};
use crate::api::body::{JsonBody, OptionalBody};
use crate::api::caller::Caller;
use crate::api::problem::{ApiError, ApiResult};
use crate::api::store::{Failure, project_name};
use crate::event::{EventDetail, ServerEvent};
use crate::handle::NodeHandle;
use crate::idempotency::RememberedOutcome;

/// How often an approval is tried while the head moves.
const TRIES_MAX: usize = 5;

pub(in crate::api) async fn resign(
    handle: NodeHandle,
    caller: Caller,
    Path(name): Path<String>,
    OptionalBody(asked): OptionalBody<ResignRequest>,
) -> ApiResult<Json<Election>> {
    let there = find(&handle, &caller, &name).await?;
    if there.holder.is_none() {
        let detail = format!("nobody has {name} at the moment");
        return Err(ApiError::new(StatusCode::CONFLICT, "not-held", "Nobody has it", detail));
    }
    let to = asked.to.as_deref().map(|to| successor(&there, to)).transpose()?;
    let project = project_name(&handle, caller.project)?;
    let wish = claim(&project, &name)?.wishing(there.token, to.as_ref(), &caller.author);
    let outcome = RememberedOutcome::Resigned(name.clone());
    match write(&handle, &caller, wish, ("election.resign", &name), outcome).await {
        Ok(()) => {}
        Err(CommitError::Conflict(_)) => unreachable!("it has no conditions"),
        Err(why) => return Err(Failure::Store(why).told(&handle)),
    }
    Ok(Json(find(&handle, &caller, &name).await?))
}

/// The candidate that is to follow.
fn successor(there: &Election, to: &str) -> ApiResult<NodeId> {
    let node = NodeId::new(to).map_err(|why| ApiError::field("/to", why.to_string()))?;
    if there.candidates.iter().any(|candidate| candidate == to) {
        return Ok(node);
    }
    let others = match there.candidates.as_slice() {
        [] => "nobody else does".to_owned(),
        some => format!("these do: {}", some.join(", ")),
    };
    let name = &there.name;
    let why = if there.holder.as_ref().is_some_and(|holder| holder.node == to) {
        format!("{to} has {name} already, and is asked to leave; of others {others}")
    } else {
        format!("{to} does not campaign for {name}; {others}")
    };
    Err(ApiError::field("/to", why))
}

pub(in crate::api) async fn approve(
    handle: NodeHandle,
    caller: Caller,
    Path(name): Path<String>,
    JsonBody(asked): JsonBody<ApproveRequest>,
) -> ApiResult<Json<Election>> {
    let project = project_name(&handle, caller.project)?;
    let mut tried = 0;
    loop {
        let there = find(&handle, &caller, &name).await?;
        let claim = claim(&project, &name)?;
        let seen = claim.look(handle.store()).await?;
        if there.state != ElectionState::Waiting
            || (there.token, seen.head.token) != (asked.token, asked.token)
        {
            return Err(not_waiting(&there, asked.token));
        }
        tried += 1;
        let approval = claim.approving(&seen, &caller.author);
        let outcome = RememberedOutcome::Approved(name.clone());
        match write(&handle, &caller, approval, ("election.approve", &name), outcome).await {
            Ok(()) => return Ok(Json(find(&handle, &caller, &name).await?)),
            // The holder has written, or left: look again.
            Err(CommitError::Conflict(_)) if tried < TRIES_MAX => {}
            Err(why) => return Err(Failure::Store(why).told(&handle)),
        }
    }
}

fn not_waiting(there: &Election, token: u64) -> ApiError {
    let Election { name, holder, .. } = there;
    let holder = holder.as_ref().map_or("nobody", |holder| &holder.node);
    let now = match there.state {
        ElectionState::Waiting => format!("{holder} waits under token {}", there.token),
        ElectionState::Held if there.token == token => format!("{holder} has begun already"),
        ElectionState::Held => format!("{holder} has it, and has begun"),
        ElectionState::Free => "nobody has it".to_owned(),
    };
    let detail = format!("nobody waits for {name} under token {token}: {now}");
    ApiError::new(StatusCode::CONFLICT, "not-waiting", "Nobody waits under it", detail)
}

/// Writes a note, who did it, and what a repeated request is told; then tells of it.
async fn write(
    handle: &NodeHandle,
    caller: &Caller,
    mut commit: Commit,
    (action, name): (&str, &str),
    outcome: RememberedOutcome,
) -> Result<(), CommitError> {
    let trail = caller.trail(handle, action, name);
    for (key, value) in trail.entries(outcome, handle.machine()) {
        let key = Key::new(key).expect("keys of ours are short and printable");
        commit = commit.put(key, value);
    }
    handle.store().commit(commit).await?;
    let what = EventDetail::Changed {
        action: action.to_owned(),
        object: name.to_owned(),
        author: caller.author.clone(),
    };
    handle.events().push([ServerEvent { project: Some(caller.project), at: handle.now(), what }]);
    Ok(())
}
