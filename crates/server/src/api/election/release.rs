//! `POST /v1/elections/{name}/release`: whoever leads has stopped, and lets others: whom a wish names, if that one campaigns.

use axum::extract::Path;
use axum::response::Json;
use client::election::{Election, ReleaseRequest};
use engine::lease::Nonce;
use store::claim::{Claim, ClaimView, Wish};
use store::session::{Roster, SessionKey};

use super::campaign::session_of;
use super::{check, claim, view};
use crate::api::body::JsonBody;
use crate::api::caller::Caller;
use crate::api::problem::ApiResult;
use crate::api::store::{Failure, act, project_name};
use crate::handle::NodeHandle;

/// How often it is tried while the head moves.
const TRIES_MAX: usize = 5;

/// A candidate that does not lead changes nothing, so the request may be sent again.
pub(in crate::api) async fn release(
    handle: NodeHandle,
    caller: Caller,
    Path(name): Path<String>,
    JsonBody(asked): JsonBody<ReleaseRequest>,
) -> ApiResult<Json<Election>> {
    check(&name)?;
    let project = project_name(&handle, caller.project)?;
    let (_, session) = session_of(&project, &asked.candidate, Some(&asked.session))?;
    let claim = claim(&project, &name)?;
    if let Some(session) = &session {
        let freed = free(&handle, &caller, &project, (&claim, session)).await;
        freed.map_err(|failure| failure.told(&handle))?;
    }
    let seen = claim.look(handle.store()).await?;
    Ok(Json(view(&handle, &name, (&claim, &seen)).await?))
}

async fn free(
    handle: &NodeHandle,
    caller: &Caller,
    project: &str,
    (claim, session): (&Claim, &SessionKey),
) -> Result<(), Failure> {
    let mut tried = 0;
    loop {
        let seen = claim.look(handle.store()).await?;
        if seen.head.session.as_ref() != Some(session) {
            return Ok(());
        }
        let commit = if let Some(to) = successor(handle, claim, &seen).await? {
            claim.handing(&seen, &to, handle.machine())
        } else {
            let freed = claim.releasing(&seen, Nonce(handle.random()));
            let Some(commit) = freed else { return Ok(()) };
            commit
        };
        tried += 1;
        match act(handle, caller, project, commit).await {
            Ok(_) => return Ok(()),
            Err(Failure::Conflict { .. }) if tried < TRIES_MAX => {
                // Its session is gone: then so is its claim.
                if handle.store().get(session.key()).await?.is_none() {
                    return Ok(());
                }
            }
            Err(why) => return Err(why),
        }
    }
}

/// Whom somebody wishes to follow, if it campaigns.
async fn successor(
    handle: &NodeHandle,
    claim: &Claim,
    seen: &ClaimView,
) -> Result<Option<SessionKey>, Failure> {
    let Some(Wish { to: Some(to), .. }) = seen.wished() else { return Ok(None) };
    let roster = Roster::read(handle.store()).await?;
    let mut candidates = roster.candidates(claim.candidacy().unwrap_or_default());
    Ok(candidates.find(|key| key.node() == to && Some(*key) != seen.head.session.as_ref()).cloned())
}
