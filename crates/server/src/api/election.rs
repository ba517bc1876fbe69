//! `/v1/elections`: who leads, and how a program in any language takes part.
//!
//! What is shown comes from the store: the head of each election, and the session that it names. For how much longer a
//! holder may act is known to itself alone; others see its T and its last sign of life.

mod campaign;
mod hold;
mod note;
mod release;

use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Json;
use client::ListPage;
use client::election::{Election, ElectionHolder};
use engine::instant::Instant;
use engine::limits::{ELECTION_CANDIDATES_SHOWN_MAX, ELECTION_ENTRIES_READ_MAX};
use engine::trigger::check_name;
use store::claim::{Claim, ClaimView, Wish};
use store::election::claim_of;
use store::session::Roster;
use store::{Key, Range};

pub(super) use self::campaign::campaign;
pub(super) use self::note::{approve, resign};
pub(super) use self::release::release;
use super::caller::Caller;
use super::convert::timestamp;
use super::problem::{ApiError, ApiResult};
use super::query::Query;
use super::store::project_name;
use crate::election::{HolderPresence, state};
use crate::handle::NodeHandle;

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
        let claim = claim(&project, &name)?;
        let seen = claim.look(handle.store()).await?;
        items.push(tell(name, (&claim, &seen), &roster));
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
    let claim = claim(&project, name)?;
    let seen = claim.look(handle.store()).await?;
    if seen.version.is_none() {
        return Err(none(name));
    }
    view(handle, name, (&claim, &seen)).await
}

/// An election as it was seen.
async fn view(
    handle: &NodeHandle,
    name: &str,
    election: (&Claim, &ClaimView),
) -> ApiResult<Election> {
    let roster = Roster::read(handle.store()).await?;
    Ok(tell(name.to_owned(), election, &roster))
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
fn tell(name: String, (claim, seen): (&Claim, &ClaimView), roster: &Roster) -> Election {
    let head = &seen.head;
    let holder = head.session.as_ref().filter(|holder| roster.contains(holder));
    let presence = holder.map_or(HolderPresence::Gone, |_| HolderPresence::There);
    let others = roster.candidates(claim.candidacy().unwrap_or_default());
    let mut candidates: Vec<String> = others
        .filter(|key| Some(*key) != holder)
        .map(|key| key.node().to_string())
        .take(ELECTION_CANDIDATES_SHOWN_MAX)
        .collect();
    candidates.dedup();
    let wish = holder.and(seen.wished());
    Election {
        name,
        state: state(head, presence),
        token: head.token,
        holder: holder.map(|key| {
            let record = roster.record(key);
            let renewed_ms = |wall_us: u64| i64::try_from(wall_us / 1_000).unwrap_or(i64::MAX);
            ElectionHolder {
                node: key.node().to_string(),
                ttl_ms: record.map(|record| record.ttl_ms),
                renewed: record.map(|record| timestamp(Instant(renewed_ms(record.wall_us)))),
            }
        }),
        resign_wished: wish.is_some(),
        resign_to: wish.and_then(|Wish { to, .. }| to.as_ref().map(ToString::to_string)),
        candidates,
        hold: hold::hold(head, presence),
    }
}
