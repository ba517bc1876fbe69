//! `/v1/keys`.

use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use client::ListPage;
use client::key::{ApiKey, NewKey, Scope};
use engine::instant::Instant;
use engine::limits::KEY_NAME_CHARS_MAX;
use serde::Deserialize;

use super::body::{JsonBody, OptionalBody};
use super::caller::Caller;
use super::convert::{scope, stored_scope, timestamp};
use super::problem::{ApiError, ApiResult};
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
pub(super) struct KeyDraft {
    name: String,
    scopes: Vec<Scope>,
    #[serde(default)]
    expires: Option<Instant>,
}

pub(super) async fn create(
    handle: NodeHandle,
    caller: Caller,
    JsonBody(KeyDraft { name, mut scopes, expires }): JsonBody<KeyDraft>,
) -> ApiResult {
    check_label(&name)?;
    check_end(&handle, expires)?;
    scopes.sort_unstable();
    scopes.dedup();
    if scopes.is_empty() {
        let why = "a key may do something: name at least one of admin, write, read, worker, node";
        return Err(ApiError::field("/scopes", why.to_owned()));
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

fn check_label(name: &str) -> ApiResult<()> {
    let fits = (1..=KEY_NAME_CHARS_MAX).contains(&name.chars().count());
    if fits && !name.chars().any(char::is_control) {
        return Ok(());
    }
    Err(ApiError::field(
        "/name",
        format!("it has 1 to {KEY_NAME_CHARS_MAX} characters, and none that cannot be seen"),
    ))
}

fn check_end(handle: &NodeHandle, expires: Option<Instant>) -> ApiResult<()> {
    match expires {
        Some(end) if end <= handle.now() => Err(ApiError::field(
            "/expires",
            format!("it lies in the past: it is {} now", handle.now()),
        )),
        Some(_) | None => Ok(()),
    }
}

pub(super) async fn list(handle: NodeHandle, query: Query) -> ApiResult<Json<ListPage<ApiKey>>> {
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

pub(super) async fn show(handle: NodeHandle, Path(id): Path<String>) -> ApiResult<Json<ApiKey>> {
    handle.access().refresh().await?;
    tell(&handle, read_id(&id)?).await.map(Json)
}

/// The key that this request was made with.
pub(super) async fn own(handle: NodeHandle, caller: Caller) -> ApiResult<Json<ApiKey>> {
    let none = || ApiError::not_found("this request was made without a key, and needs none here");
    tell(&handle, caller.key.ok_or_else(none)?).await.map(Json)
}

/// A key as it is now.
pub(super) async fn tell(handle: &NodeHandle, id: KeyId) -> ApiResult<ApiKey> {
    let book = handle.access().book();
    let record = book.key(id).ok_or(Denial::NoKey(id))?;
    let used = handle.access().last_used(id).await?;
    Ok(key(handle, record, used))
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RotateDraft {
    grace: Option<String>,
    expires: Option<Instant>,
}

/// Makes a key of the same kind, and lets this one be good for a while longer.
pub(super) async fn rotate(
    handle: NodeHandle,
    caller: Caller,
    Path(id): Path<String>,
    OptionalBody(RotateDraft { grace, expires }): OptionalBody<RotateDraft>,
) -> ApiResult {
    let id = read_id(&id)?;
    let grace = read_grace(grace.as_deref())?;
    check_end(&handle, expires)?;
    let trail = caller.trail_of_all(&handle, "key.rotate", &id.to_string());
    let end = handle.now().after(grace);
    let (record, text) = handle.access().rotate_key(id, end, expires, &trail).await?;
    caller.tell(&handle, "key.rotate", &id.to_string());
    Ok(made(&handle, &record, &text))
}

pub(super) async fn delete(
    handle: NodeHandle,
    caller: Caller,
    Path(id): Path<String>,
) -> ApiResult<StatusCode> {
    let id = read_id(&id)?;
    let trail = caller.trail_of_all(&handle, "key.delete", &id.to_string());
    handle.access().delete_key(id, &trail).await?;
    caller.tell(&handle, "key.delete", &id.to_string());
    Ok(StatusCode::NO_CONTENT)
}

fn read_id(text: &str) -> ApiResult<KeyId> {
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
