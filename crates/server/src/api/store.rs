//! `/v1/store`: this server's store, for candidates and members that are not to reach it themselves.
//!
//! A commit is read as a guest ([`store::guest`]) and refused if it is none, or not its sender's to do; a scan shows
//! sessions and the project's elections. An admin may also do as they like below `scratch/`, where
//! `watchbell store check` works. Whatever the store says is passed on as it is: a conflict with the condition that
//! failed, that nothing was done, that the outcome is unknown. Every answer tells the class and the epoch of the store.

mod act;
mod watch;
mod wire;

use axum::response::Json;
use client::store::{StoreCommit, StoreCommitted, StoreFacts, StoreMoment, StorePage, StoreScan};
use engine::limits::{
    GUEST_COMMIT_BYTES_MAX, GUEST_VALUE_BYTES_MAX, GUEST_WRITES_MAX, STORE_ANSWER_MAX,
};
use store::guest::{self, SCRATCH};
use store::{Limits, Page, Range, ScanError, Store};
use tokio::time::timeout;

pub(super) use self::act::{Failure, act, project_name};
pub(super) use self::watch::watch;
use super::body::JsonBody;
use super::caller::Caller;
use super::problem::ApiResult;
use crate::handle::NodeHandle;

/// Pages that are read for one answer, if all that is in them belongs to others.
const PAGES_READ_MAX: usize = 100;

pub(super) async fn facts(handle: NodeHandle, caller: Caller) -> ApiResult<Json<StoreFacts>> {
    let Limits { writes, commit_bytes, value_bytes } = limits(handle.store());
    let project = project_name(&handle, caller.project)?;
    Ok(Json(StoreFacts { moment: moment(&handle), project, writes, commit_bytes, value_bytes }))
}

/// What a commit that comes this way may have.
fn limits(store: &Store) -> Limits {
    let Limits { writes, commit_bytes, value_bytes } = store.limits();
    Limits {
        writes: writes.min(GUEST_WRITES_MAX),
        commit_bytes: commit_bytes.min(GUEST_COMMIT_BYTES_MAX),
        value_bytes: value_bytes.min(GUEST_VALUE_BYTES_MAX),
    }
}

/// How the store is: the same epoch in another cluster is another one.
pub(super) fn moment(handle: &NodeHandle) -> StoreMoment {
    let store = handle.store();
    let epoch = format!("{:016x}.{}", handle.cluster(), store.epoch().0);
    StoreMoment { class: store.class().to_string(), epoch }
}

pub(super) async fn scan(
    handle: NodeHandle,
    caller: Caller,
    JsonBody(asked): JsonBody<StoreScan>,
) -> ApiResult<Json<StorePage>> {
    let (range, limit) = wire::range(&asked)?;
    let project = project_name(&handle, caller.project)?;
    if !(caller.is_admin() && range.is_within(SCRATCH)) {
        guest::may_scan(&range, &project).map_err(|why| act::denied(&why))?;
    }
    let page = timeout(STORE_ANSWER_MAX, read(handle.store(), range, limit, &project)).await;
    let silence = |_| Err(ScanError::Unavailable("it did not answer in time".into()));
    let page = page.unwrap_or_else(silence).map_err(|why| act::unread(&handle, why))?;
    Ok(Json(wire::page(page, moment(&handle))))
}

/// A page of what is shown to this project. It is only empty at the end of the range.
async fn read(
    store: &Store,
    mut range: Range,
    limit: usize,
    project: &str,
) -> Result<Page, ScanError> {
    for _ in 0..PAGES_READ_MAX {
        let page = store.scan(range, limit).await?;
        let entries: Vec<_> =
            page.entries.into_iter().filter_map(|entry| guest::shown(entry, project)).collect();
        match page.next {
            Some(next) if entries.is_empty() => range = next,
            next => return Ok(Page { entries, next }),
        }
    }
    Err(ScanError::Unavailable("there are too many sessions of others".into()))
}

pub(super) async fn commit(
    handle: NodeHandle,
    caller: Caller,
    JsonBody(asked): JsonBody<StoreCommit>,
) -> ApiResult<Json<StoreCommitted>> {
    let commit = wire::commit(asked)?;
    commit.check(&limits(handle.store())).map_err(|why| act::unfit(&why))?;
    let project = project_name(&handle, caller.project)?;
    match act(&handle, &caller, &project, commit).await {
        Ok(version) => Ok(Json(StoreCommitted { version: version.0, moment: moment(&handle) })),
        Err(failure) => Err(failure.told(&handle)),
    }
}
