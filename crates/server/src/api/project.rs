//! `/v1/projects`.

use std::time::Duration;

use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json};
use client::ListPage;
use client::project::{
    NewProject, NewProjectSpec, Project, ProjectSpec, RotateRequest, SecretInfo,
};
use engine::length;
use engine::limits::{GRACE_DEFAULT, GRACE_MAX, SETTLE_WAIT_MAX};
use engine::notice::webhook_to;
use engine::trigger::check_name;
use store::Version;

use super::body::{JsonBody, NoBody, OptionalBody};
use super::caller::Caller;
use super::convert::{limits, notify, stored_limits, stored_notify, timestamp};
use super::problem::{ApiError, ApiResult};
use super::query::Query;
use super::trigger::bad_cursor;
use crate::access::record::ProjectRecord;
use crate::access::secret::SigningSecret;
use crate::access::{Denial, agreed};
use crate::handle::NodeHandle;

pub(super) async fn create(
    handle: NodeHandle,
    caller: Caller,
    JsonBody(NewProjectSpec { name, limits, notify }): JsonBody<NewProjectSpec>,
) -> ApiResult {
    check_name(&name).map_err(|why| ApiError::field("/name", why))?;
    let spec = ProjectSpec { limits, notify };
    check(&spec)?;
    let trail = caller.trail_of_all(&handle, "project.create", &name);
    let made = handle.access().create_project(&name, |record| fill(record, &spec), &trail).await?;
    caller.tell(&handle, &trail.audit.action, &name);
    let told =
        NewProject { project: find(&handle, &name)?, secret: Some(made.reveal().to_owned()) };
    Ok((StatusCode::CREATED, Json(told)).into_response())
}

/// Limits are whole: what is not said is not limited.
pub(super) async fn replace(
    handle: NodeHandle,
    caller: Caller,
    Path(name): Path<String>,
    JsonBody(spec): JsonBody<ProjectSpec>,
) -> ApiResult<Json<Project>> {
    check(&spec)?;
    let trail = caller.trail_of_all(&handle, "project.replace", &name);
    let change = |record: &mut ProjectRecord, _| {
        fill(record, &spec);
        Ok(())
    };
    if handle.access().change_project(&name, &trail, change).await?.is_some() {
        caller.tell(&handle, &trail.audit.action, &name);
    }
    find(&handle, &name).map(Json)
}

fn fill(record: &mut ProjectRecord, spec: &ProjectSpec) {
    record.limits = stored_limits(spec.limits.unwrap_or_default());
    record.notify = spec.notify.as_ref().map(stored_notify);
}

/// What is wrong with what somebody wants of a project.
fn check(spec: &ProjectSpec) -> ApiResult<()> {
    let Some(notify) = &spec.notify else { return Ok(()) };
    webhook_to(&notify.url).map(drop).map_err(|why| ApiError::field("/notify/url", why.to_string()))
}

pub(super) async fn list(handle: NodeHandle, query: Query) -> ApiResult<Json<ListPage<Project>>> {
    let rows = query.rows()?;
    let prefix = query.text("prefix").unwrap_or_default();
    let after = query.text("cursor").unwrap_or_default();
    if !after.is_empty() {
        check_name(after).map_err(|_| bad_cursor())?;
    }
    handle.access().refresh().await?;
    let book = handle.access().book();
    let mut found =
        book.projects().filter(|(name, _)| name.starts_with(prefix) && *name > after).peekable();
    let items: Vec<Project> =
        found.by_ref().take(rows).map(|(name, record)| project(name, record)).collect();
    let next = found.peek().and(items.last()).map(|last| last.name.clone());
    Ok(Json(ListPage { items, next }))
}

pub(super) async fn show(handle: NodeHandle, Path(name): Path<String>) -> ApiResult<Json<Project>> {
    handle.access().refresh().await?;
    find(&handle, &name).map(Json)
}

pub(super) async fn enable(
    handle: NodeHandle,
    caller: Caller,
    Path(name): Path<String>,
    _: NoBody,
) -> ApiResult {
    let trail = caller.trail_of_all(&handle, "project.enable", &name);
    let change = |record: &mut ProjectRecord, _| {
        record.disabled.take().map(|_| ()).ok_or_else(|| Denial::AlreadyEnabled(name.clone()))
    };
    let version = handle.access().change_project(&name, &trail, change).await?;
    caller.tell(&handle, &trail.audit.action, &name);
    switched(&handle, &name, version).await
}

pub(super) async fn disable(
    handle: NodeHandle,
    caller: Caller,
    Path(name): Path<String>,
    _: NoBody,
) -> ApiResult {
    let trail = caller.trail_of_all(&handle, "project.disable", &name);
    let change = |record: &mut ProjectRecord, now| match record.disabled.replace(now) {
        None => Ok(()),
        Some(_) => Err(Denial::AlreadyDisabled(name.clone())),
    };
    let version = handle.access().change_project(&name, &trail, change).await?;
    caller.tell(&handle, &trail.audit.action, &name);
    switched(&handle, &name, version).await
}

/// The project, once its shards do as the book says.
async fn switched(handle: &NodeHandle, name: &str, version: Option<Version>) -> ApiResult {
    let status = settle(handle, version).await;
    Ok((status, Json(find(handle, name)?)).into_response())
}

/// Waits until the shards do as the book says: whether they do, as a status.
pub(super) async fn settle(handle: &NodeHandle, version: Option<Version>) -> StatusCode {
    let Some(version) = version else { return StatusCode::OK };
    let settled = async {
        handle.access().settled(version).await;
        agreed(handle).await;
    };
    match tokio::time::timeout(SETTLE_WAIT_MAX, settled).await {
        Ok(()) => StatusCode::OK,
        Err(_) => StatusCode::ACCEPTED,
    }
}

pub(super) async fn rotate(
    handle: NodeHandle,
    caller: Caller,
    Path(name): Path<String>,
    OptionalBody(RotateRequest { grace }): OptionalBody<RotateRequest>,
) -> ApiResult<Json<NewProject>> {
    let grace = read_grace(grace.as_deref())?;
    let trail = caller.trail_of_all(&handle, "project.rotate", &name);
    let secret: SigningSecret = handle.access().rotate_secret(&name, grace, &trail).await?;
    caller.tell(&handle, &trail.audit.action, &name);
    let secret = Some(secret.reveal().to_owned());
    Ok(Json(NewProject { project: find(&handle, &name)?, secret }))
}

/// How long what is replaced goes on being good.
pub(super) fn read_grace(text: Option<&str>) -> ApiResult<Duration> {
    let Some(text) = text else { return Ok(GRACE_DEFAULT) };
    // Nothing is longer than no time at all.
    let grace = if text == "0s" { Ok(Duration::ZERO) } else { length::read(text) };
    let grace = grace.map_err(|why| ApiError::field("/grace", why.to_string()))?;
    if grace > GRACE_MAX {
        return Err(ApiError::field(
            "/grace",
            format!("it is at most {}", length::text(GRACE_MAX)),
        ));
    }
    Ok(grace)
}

pub(super) fn find(handle: &NodeHandle, name: &str) -> ApiResult<Project> {
    let book = handle.access().book();
    let record = book.project(name).map(|record| project(name, record));
    record.ok_or_else(|| Denial::NoProject(name.chars().take(100).collect()).into())
}

fn project(name: &str, record: &ProjectRecord) -> Project {
    let info = |secret: &crate::access::record::SecretRecord| SecretInfo {
        created: timestamp(secret.created),
        until: secret.until.map(timestamp),
    };
    Project {
        id: record.id.to_string(),
        name: name.to_owned(),
        enabled: record.disabled.is_none(),
        disabled: record.disabled.map(timestamp),
        limits: limits(record.limits),
        secrets: record.secrets.iter().map(info).collect(),
        notify: record.notify.as_ref().map(notify),
        created: record.created.map(timestamp),
        author: record.author.clone(),
    }
}
