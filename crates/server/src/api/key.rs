//! `/v1/keys`.

use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Json, Response};
use client::ListPage;
use client::key::{ApiKey, NewKey, Scope};
use engine::instant::Instant;
use engine::limits::KEY_NAME_CHARS_MAX;
use engine::trigger::BadField;
use serde::Deserialize;

use super::body;
use super::caller::Caller;
use super::convert::{scope, stored_scope, timestamp};
use super::problem::ApiError;
use super::project::read_grace;
use super::query::Query;
use super::trigger::bad_cursor;
use crate::access::Denial;
use crate::access::key::{KeyId, KeyText};
use crate::access::record::KeyRecord;
use crate::handle::NodeHandle;

/// A key as one makes it, with an instant of the engine, which says what is right when it is none.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyDraft {
    name: String,
    scopes: Vec<Scope>,
    #[serde(default)]
    expires: Option<Instant>,
}

pub(super) async fn create(
    State(handle): State<NodeHandle>,
    caller: Caller,
    request: Request,
) -> Result<Response, ApiError> {
    Query::of(request.uri(), &[])?;
    let KeyDraft { name, mut scopes, expires } = body::read(request).await?;
    check_label(&name)?;
    check_end(&handle, expires)?;
    scopes.sort_unstable();
    scopes.dedup();
    if scopes.is_empty() {
        let why = "a key may do something: name at least one of admin, write, read, worker, node";
        return Err(field("/scopes", why.to_owned()));
    }
    let project = (!scopes.contains(&Scope::Admin)).then_some(caller.project);
    let author = caller.author.clone();
    let of = |id, tag, created| KeyRecord {
        id,
        name: name.clone(),
        project,
        scopes: scopes.iter().copied().map(stored_scope).collect(),
        tag,
        created,
        author: author.clone(),
        expires,
    };
    let trail = caller.trail(&handle, "key.create", "");
    let (record, text) = handle.access().create_key(&trail, of).await?;
    caller.tell(&handle, "key.create", &record.id.to_string());
    Ok(made(&handle, &record, &text))
}

fn made(handle: &NodeHandle, record: &KeyRecord, text: &KeyText) -> Response {
    let told = NewKey { key: key(handle, record, None), secret: Some(text.reveal().to_owned()) };
    (StatusCode::CREATED, Json(told)).into_response()
}

fn check_label(name: &str) -> Result<(), ApiError> {
    let fits = (1..=KEY_NAME_CHARS_MAX).contains(&name.chars().count());
    if fits && !name.chars().any(char::is_control) {
        return Ok(());
    }
    Err(field(
        "/name",
        format!("it has 1 to {KEY_NAME_CHARS_MAX} characters, and none that cannot be seen"),
    ))
}

fn check_end(handle: &NodeHandle, expires: Option<Instant>) -> Result<(), ApiError> {
    match expires {
        Some(end) if end <= handle.now() => {
            Err(field("/expires", format!("it lies in the past: it is {} now", handle.now())))
        }
        Some(_) | None => Ok(()),
    }
}

fn field(pointer: &str, why: String) -> ApiError {
    ApiError::fields([BadField { pointer: pointer.to_owned(), why }])
}

pub(super) async fn list(
    State(handle): State<NodeHandle>,
    uri: Uri,
) -> Result<Json<ListPage<ApiKey>>, ApiError> {
    let query = Query::of(&uri, &["project", "limit", "cursor"])?;
    let rows = query.rows()?;
    let after = query.text("cursor").map(|text| text.parse::<KeyId>().map_err(|_| bad_cursor()));
    let after = after.transpose()?;
    handle.access().refresh().await?;
    let book = handle.access().book();
    let project = match query.text("project") {
        Some(name) => {
            let found = book.project(name).map(|record| record.id);
            let unknown = || ApiError::parameter("project", "there is no such project");
            Some(found.ok_or_else(unknown)?)
        }
        None => None,
    };
    let is_wanted = |record: &KeyRecord| {
        after.is_none_or(|after| record.id > after)
            && (project.is_none() || record.project == project)
    };
    let found: Vec<_> =
        book.keys().filter(|record| is_wanted(record)).take(rows + 1).cloned().collect();
    let mut items = Vec::new();
    for record in found.iter().take(rows) {
        let used = handle.access().last_used(record.id).await?;
        items.push(key(&handle, record, used));
    }
    let next = items.last().filter(|_| found.len() > rows).map(|last: &ApiKey| last.id.clone());
    Ok(Json(ListPage { items, next }))
}

pub(super) async fn show(
    State(handle): State<NodeHandle>,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Json<ApiKey>, ApiError> {
    Query::of(&uri, &[])?;
    handle.access().refresh().await?;
    tell(&handle, read_id(&id)?).await.map(Json)
}

/// The key that this request was made with.
pub(super) async fn own(
    State(handle): State<NodeHandle>,
    caller: Caller,
    uri: Uri,
) -> Result<Json<ApiKey>, ApiError> {
    Query::of(&uri, &[])?;
    let none = || ApiError::not_found("this request was made without a key, and needs none here");
    tell(&handle, caller.key.ok_or_else(none)?).await.map(Json)
}

/// A key as it is now.
pub(super) async fn tell(handle: &NodeHandle, id: KeyId) -> Result<ApiKey, ApiError> {
    let book = handle.access().book();
    let record = book.key(id).ok_or(Denial::NoKey(id))?;
    let used = handle.access().last_used(id).await?;
    Ok(key(handle, record, used))
}

/// Makes a key of the same kind, and lets this one be good for a while longer.
pub(super) async fn rotate(
    State(handle): State<NodeHandle>,
    caller: Caller,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    #[derive(Default, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct RotateDraft {
        grace: Option<String>,
        expires: Option<Instant>,
    }
    Query::of(request.uri(), &[])?;
    let id = read_id(&id)?;
    let RotateDraft { grace, expires } = body::read_or_default(request).await?;
    let grace = read_grace(grace.as_deref())?;
    check_end(&handle, expires)?;
    let trail = caller.trail_of_all(&handle, "key.rotate", &id.to_string());
    let end = handle.now().after(grace);
    let (record, text) = handle.access().rotate_key(id, end, expires, &trail).await?;
    caller.tell(&handle, "key.rotate", &id.to_string());
    Ok(made(&handle, &record, &text))
}

pub(super) async fn delete(
    State(handle): State<NodeHandle>,
    caller: Caller,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<StatusCode, ApiError> {
    Query::of(&uri, &[])?;
    let id = read_id(&id)?;
    let trail = caller.trail_of_all(&handle, "key.delete", &id.to_string());
    handle.access().delete_key(id, &trail).await?;
    caller.tell(&handle, "key.delete", &id.to_string());
    Ok(StatusCode::NO_CONTENT)
}

fn read_id(text: &str) -> Result<KeyId, ApiError> {
    text.parse().map_err(ApiError::not_found)
}

fn key(handle: &NodeHandle, record: &KeyRecord, used: Option<Instant>) -> ApiKey {
    let book = handle.access().book();
    ApiKey {
        id: record.id.to_string(),
        name: record.name.clone(),
        scopes: record.scopes.iter().copied().map(scope).collect(),
        project: record.project.and_then(|id| book.name_of(id).map(str::to_owned)),
        created: timestamp(record.created),
        author: record.author.clone(),
        expires: record.expires.map(timestamp),
        last_used: used.map(timestamp),
    }
}
