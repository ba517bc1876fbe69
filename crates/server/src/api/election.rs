//! `/v1/elections`: who leads, and how a program in any language takes part.
//!
//! What is shown comes from the store: the head of each election, and the session that it names. For how much longer a
//! holder may act is known to itself alone; others see its T and its last sign of life.

mod campaign;
mod release;

use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Json;
use client::ListPage;
use client::election::{Election, ElectionHolder, ElectionState};
use engine::instant::Instant;
use engine::limits::ELECTION_ENTRIES_READ_MAX;
use engine::trigger::check_name;
use store::claim::{Claim, ClaimState, ClaimView};
use store::election::claim_of;
use store::session::{Roster, SessionKey, SessionRecord};
use store::{CommitError, Key, Range};

pub(super) use self::campaign::campaign;
pub(super) use self::release::release;
use super::body::NoBody;
use super::caller::Caller;
use super::convert::timestamp;
use super::problem::{ApiError, ApiResult};
use super::query::Query;
use super::store::{Failure, project_name};
use crate::event::{EventDetail, ServerEvent};
use crate::handle::NodeHandle;
use crate::idempotency::RememberedOutcome;

pub(super) async fn list(
    handle: NodeHandle,
    caller: Caller,
    query: Query,
) -> ApiResult<Json<ListPage<Election>>> {
    let (rows, project) = (query.rows()?, project_name(&handle, caller.project)?);
    let prefix = query.text("prefix").unwrap_or_default();
    let mut range = Range::prefix(&format!("election/{project}/{prefix}"));
    if let Some(cursor) = query.text("cursor") {
        check_name(cursor).map_err(|_| super::trigger::bad_cursor())?;
        let last = Key::new(format!("election/{project}/{cursor}"));
        range = range.after(&last.map_err(|_| super::trigger::bad_cursor())?);
    }
    let (names, next) = names(&handle, &project, range, rows).await?;
    let roster = Roster::read(handle.store()).await?;
    let mut items = Vec::with_capacity(names.len());
    for name in names {
        let seen = claim(&project, &name)?.look(handle.store()).await?;
        let holder = seen.head.session.clone().filter(|holder| roster.contains(holder));
        let record = holder.as_ref().and_then(|holder| roster.record(holder)).cloned();
        items.push(tell(name, &seen, holder.map(|holder| (holder, record))));
    }
    Ok(Json(ListPage { items, next }))
}

/// Names of elections, and where there are more.
async fn names(
    handle: &NodeHandle,
    project: &str,
    range: Range,
    rows: usize,
) -> ApiResult<(Vec<String>, Option<String>)> {
    let (mut names, mut rest, mut read) = (Vec::new(), Some(range), 0);
    let (below, mut last) = (format!("election/{project}/"), None);
    while let Some(range) = rest {
        if read >= ELECTION_ENTRIES_READ_MAX {
            return Ok((names, last));
        }
        let page = handle.store().scan(range, 500).await?;
        read += page.entries.len();
        for entry in page.entries {
            let Some(name) = entry.key.as_str().strip_prefix(&below) else { continue };
            // What lies beside a head is no election.
            if name.contains('/') {
                continue;
            }
            if names.len() == rows {
                return Ok((names, last));
            }
            last = Some(name.to_owned());
            names.push(name.to_owned());
        }
        rest = page.next;
    }
    Ok((names, None))
}

pub(super) async fn show(
    handle: NodeHandle,
    caller: Caller,
    Path(name): Path<String>,
) -> ApiResult<Json<Election>> {
    Ok(Json(find(&handle, &caller, &name).await?))
}

/// The election with this name.
pub(super) async fn find(handle: &NodeHandle, caller: &Caller, name: &str) -> ApiResult<Election> {
    let project = project_name(handle, caller.project)?;
    check_name(name).map_err(|_| none(name))?;
    let seen = claim(&project, name)?.look(handle.store()).await?;
    if seen.version.is_none() {
        return Err(none(name));
    }
    view(handle, name, &seen).await
}

/// An election as it was seen.
async fn view(handle: &NodeHandle, name: &str, seen: &ClaimView) -> ApiResult<Election> {
    let holder = match &seen.head.session {
        Some(holder) => handle
            .store()
            .get(holder.key())
            .await?
            .map(|entry| (holder.clone(), SessionRecord::from_value(&entry.value).ok())),
        None => None,
    };
    Ok(tell(name.to_owned(), seen, holder))
}

fn none(name: &str) -> ApiError {
    let name: String = name.chars().take(100).collect();
    let detail = format!("there is no election {name:?}: list them at /v1/elections");
    ApiError::new(StatusCode::NOT_FOUND, "no-election", "No such election", detail)
}

fn claim(project: &str, name: &str) -> ApiResult<Claim> {
    claim_of(project, name).map_err(|_| none(name))
}

/// A name that somebody campaigns for.
fn check(name: &str) -> ApiResult<()> {
    check_name(name).map_err(|why| ApiError::parameter("name", why))
}

/// What is shown. A holder whose session is gone has it no more.
fn tell(
    name: String,
    seen: &ClaimView,
    holder: Option<(SessionKey, Option<SessionRecord>)>,
) -> Election {
    let state = match (&holder, seen.head.state) {
        (None, _) | (_, ClaimState::Free) => ElectionState::Free,
        (Some(_), ClaimState::Held) => ElectionState::Held,
        (Some(_), ClaimState::Waiting) => ElectionState::Waiting,
    };
    let holder = holder.map(|(key, record)| ElectionHolder {
        node: key.node().to_string(),
        ttl_ms: record.as_ref().map(|record| record.ttl_ms),
        renewed: record.map(|record| {
            timestamp(Instant(i64::try_from(record.wall_us / 1_000).unwrap_or(i64::MAX)))
        }),
    });
    let resign_wished = holder.is_some() && seen.wished().is_some();
    Election { name, state, token: seen.head.token, holder, resign_wished }
}

pub(super) async fn resign(
    handle: NodeHandle,
    caller: Caller,
    Path(name): Path<String>,
    _: NoBody,
) -> ApiResult<Json<Election>> {
    let there = find(&handle, &caller, &name).await?;
    if there.holder.is_none() {
        let detail = format!("nobody has {name} at the moment");
        return Err(ApiError::new(StatusCode::CONFLICT, "not-held", "Nobody has it", detail));
    }
    let project = project_name(&handle, caller.project)?;
    let trail = caller.trail(&handle, "election.resign", &name);
    let mut commit = claim(&project, &name)?.wishing(there.token, None, &caller.author);
    for (key, value) in trail.entries(RememberedOutcome::Resigned(name.clone()), handle.machine()) {
        let key = Key::new(key).expect("keys of ours are short and printable");
        commit = commit.put(key, value);
    }
    match handle.store().commit(commit).await {
        Ok(_) => {}
        Err(CommitError::Conflict(_)) => unreachable!("it has no conditions"),
        Err(why) => return Err(Failure::Store(why).told(&handle)),
    }
    let what = EventDetail::Changed {
        action: "election.resign".to_owned(),
        object: name.clone(),
        author: caller.author.clone(),
    };
    handle.events().push([ServerEvent { project: Some(caller.project), at: handle.now(), what }]);
    Ok(Json(find(&handle, &caller, &name).await?))
}
