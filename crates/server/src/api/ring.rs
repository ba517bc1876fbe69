//! `/v1/rings`: whose turn it is, and how a program in any language takes part.
//!
//! What is shown comes from the store, which every server reads alike; what is changed goes through the node's own part in rings
//! ([`store::ring::Rings`]), which knows who is in them and when the next turn is due. A request that changes something lands in
//! the store together with its line in the audit.
//!
//! - `member`: joining, being there, leaving, and what a member is told
//! - `subscription`: a schedule and a position of its own; its entries as a list
//! - `follow`: its entries while they come
//! - `tell`: how all of that is said

mod follow;
mod member;
mod subscription;
mod tell;

use axum::extract::Path;
use axum::http::header::ETAG;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Json, Response};
use client::ListPage;
use client::ring::Ring;
use engine::limits::NAMES_READ_MAX;
use engine::ring::{MAIN, SubscriptionDraft};
use engine::trigger::check_name;
use serde::Serialize;
use store::ring::{Note, RingId, Rings, view};

pub(super) use self::member::{accept, attend, leave, members};
pub(super) use self::subscription::{
    again, delete as delete_subscription, entries, put as put_subscription,
    show as show_subscription, skip,
};
use super::body::JsonBody;
use super::caller::Caller;
use super::problem::{ApiError, ApiResult};
use super::query::Query;
use super::replace::Conditions;
use super::store::project_name;
use crate::event::{EventDetail, ServerEvent};
use crate::handle::NodeHandle;

pub(super) async fn list(
    handle: NodeHandle,
    caller: Caller,
    query: Query,
) -> ApiResult<Json<ListPage<Ring>>> {
    let rows = query.rows()?.min(NAMES_READ_MAX);
    let project = project_name(&handle, caller.project)?;
    let prefix = query.text("prefix").unwrap_or_default();
    if !prefix.is_empty() {
        check_name(prefix).map_err(|why| ApiError::parameter("prefix", why))?;
    }
    let after = query.text("cursor");
    if let Some(cursor) = after {
        check_name(cursor).map_err(|_| super::trigger::bad_cursor())?;
    }
    let mut found = view::list(handle.store(), &project, prefix, after, rows + 1).await?;
    let has_more = found.len() > rows;
    found.truncate(rows);
    let next = found.last().filter(|_| has_more).map(|last| last.ring.name.to_string());
    let mut items = Vec::with_capacity(found.len());
    for seen in &found {
        items.push(tell::ring(&handle, seen).await?);
    }
    Ok(Json(ListPage { items, next }))
}

pub(super) async fn show(
    handle: NodeHandle,
    caller: Caller,
    Path(name): Path<String>,
) -> ApiResult {
    let ring = ring_of(&handle, &caller, &name)?;
    respond_ring(&handle, &ring, StatusCode::OK).await
}

pub(super) async fn put(
    handle: NodeHandle,
    caller: Caller,
    Path(name): Path<String>,
    headers: HeaderMap,
    JsonBody(draft): JsonBody<SubscriptionDraft>,
) -> ApiResult {
    let ring = ring_of(&handle, &caller, &name)?;
    let conditions = Conditions::of(&headers)?;
    let status = subscription::set(&handle, &caller, (&ring, MAIN), &draft, conditions).await?;
    respond_ring(&handle, &ring, status).await
}

pub(super) async fn delete(
    handle: NodeHandle,
    caller: Caller,
    Path(name): Path<String>,
) -> ApiResult<StatusCode> {
    let ring = ring_of(&handle, &caller, &name)?;
    let note = note(&handle, &caller, "ring.delete", &name);
    rings(&handle)?.noting(note).delete(&ring).await?;
    told(&handle, &caller, "ring.delete", &name);
    Ok(StatusCode::NO_CONTENT)
}

/// A ring as it stands, under the revision of its subscription `main`.
async fn respond_ring(handle: &NodeHandle, ring: &RingId, status: StatusCode) -> ApiResult {
    let seen = view::ring(handle.store(), ring).await?;
    let told = tell::ring(handle, &seen).await?;
    let revision = told.subscriptions.iter().find(|one| one.name == MAIN).map(|one| one.revision);
    Ok(respond(&told, revision, status))
}

fn respond(told: &impl Serialize, revision: Option<u64>, status: StatusCode) -> Response {
    let mut response = (status, Json(told)).into_response();
    if let Some(revision) = revision {
        let tag = HeaderValue::from_str(&format!("\"{revision}\"")).expect("digits");
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

/// The node's part in rings.
fn rings(handle: &NodeHandle) -> ApiResult<&Rings> {
    let starting = || {
        let detail = "this server takes no part in rings: ask another one";
        ApiError::unavailable(detail, engine::limits::UNAVAILABLE_RETRY_AFTER)
    };
    handle.rings().ok_or_else(starting)
}

/// The ring that a path names, of the caller's project.
fn ring_of(handle: &NodeHandle, caller: &Caller, name: &str) -> ApiResult<RingId> {
    let project = project_name(handle, caller.project)?;
    Ok(RingId::new(&project, name)?)
}

/// What is written together with a change: who made it, and what a repeated request is told.
fn note(handle: &NodeHandle, caller: &Caller, action: &'static str, object: &str) -> Note {
    let trail = caller.trail(handle, action, object);
    let outcome = crate::idempotency::RememberedOutcome::Ring(object.to_owned());
    let entries = trail.entries(outcome, handle.machine()).into_iter();
    let key = |key| store::Key::new(key).expect("keys of ours are short and printable");
    entries.map(|(name, value)| (key(name), value)).collect()
}

/// Tells those who watch of a change.
fn told(handle: &NodeHandle, caller: &Caller, action: &'static str, object: &str) {
    let what = EventDetail::Changed {
        action: action.to_owned(),
        object: object.to_owned(),
        author: caller.author.clone(),
    };
    handle.events().push([ServerEvent { project: Some(caller.project), at: handle.now(), what }]);
}
