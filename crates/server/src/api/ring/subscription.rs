//! `/v1/rings/{ring}/subscriptions/{subscription}`.

use axum::extract::{Path, Request};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Json};
use client::ListPage;
use client::ring::RingEntry;
use engine::ring::{MAIN, SubscriptionDraft};
use store::ring::{Cursor, Expected, Put, RingError, RingId, SubscriptionId, view};

use super::{follow, note, respond, ring_of, rings, tell, told};
use crate::api::body::{JsonBody, NoBody};
use crate::api::caller::Caller;
use crate::api::problem::{ApiError, ApiResult};
use crate::api::query::Query;
use crate::api::replace::Conditions;
use crate::handle::NodeHandle;

/// How often it is decided anew when others change it meanwhile.
const TRIES_MAX: usize = 3;

pub(in crate::api) async fn show(
    handle: NodeHandle,
    caller: Caller,
    Path((ring, name)): Path<(String, String)>,
) -> ApiResult {
    let subscription = subscription_of(&handle, &caller, &ring, &name)?;
    answer(&handle, &subscription, StatusCode::OK).await
}

pub(in crate::api) async fn put(
    handle: NodeHandle,
    caller: Caller,
    Path((ring, name)): Path<(String, String)>,
    headers: HeaderMap,
    JsonBody(draft): JsonBody<SubscriptionDraft>,
) -> ApiResult {
    let of = ring_of(&handle, &caller, &ring)?;
    let conditions = Conditions::of(&headers)?;
    let status = set(&handle, &caller, (&of, &name), &draft, conditions).await?;
    answer(&handle, &of.subscription(&name)?, status).await
}

/// Makes a subscription, and its ring if it is `main`, or changes it.
pub(super) async fn set(
    handle: &NodeHandle,
    caller: &Caller,
    (ring, name): (&RingId, &str),
    draft: &SubscriptionDraft,
    Conditions { if_match, if_none_match }: Conditions,
) -> ApiResult<StatusCode> {
    let subscription = ring.subscription(name)?;
    let object = object(ring, name);
    // One that is not there is at no revision.
    let is_to_be_new = if_none_match || if_match == Some(0);
    let mut tried = 0;
    loop {
        let found = match view::subscription(handle.store(), &subscription).await {
            Ok(found) => Some(found),
            Err(RingError::NoRing(_) | RingError::NoSubscription(_)) => None,
            Err(why) => return Err(why.into()),
        };
        let expected = match (&found, if_match) {
            (Some(_), _) if is_to_be_new => {
                let detail =
                    format!("there is {object} already: read it, and change it by its revision");
                return Err(ApiError::precondition(detail));
            }
            (None, Some(revision)) if revision > 0 => {
                return Err(ApiError::precondition(format!("there is no {object} any more")));
            }
            (Some(found), Some(revision)) if found.revision != revision => {
                let detail = format!("{object} is at revision {} by now", found.revision);
                return Err(ApiError::precondition(detail));
            }
            (None, _) => Expected::Nothing,
            (Some(found), _) => {
                Expected::Revision { generation: found.generation, revision: found.revision }
            }
        };
        let action = if found.is_some() { "ring.change" } else { "ring.create" };
        let note = note(handle, caller, action, &object);
        tried += 1;
        let rings = rings(handle)?.noting(note);
        let done = match rings.put(&subscription, draft, expected).await {
            // The first subscription comes with its ring.
            Err(RingError::NoRing(_)) if name == MAIN => {
                rings.create(ring, draft).await.map(|()| Put::Created)
            }
            done => done,
        };
        return match done {
            Ok(Put::Same) => Ok(StatusCode::OK),
            Ok(put) => {
                told(handle, caller, action, &object);
                let is_new = put == Put::Created;
                Ok(if is_new { StatusCode::CREATED } else { StatusCode::OK })
            }
            Err(RingError::Changed | RingError::RingExists(_)) if tried < TRIES_MAX => continue,
            Err(why) => Err(why.into()),
        };
    }
}

pub(in crate::api) async fn delete(
    handle: NodeHandle,
    caller: Caller,
    Path((ring, name)): Path<(String, String)>,
) -> ApiResult<StatusCode> {
    let subscription = subscription_of(&handle, &caller, &ring, &name)?;
    let object = object(&subscription.ring, &name);
    let note = note(&handle, &caller, "ring.delete", &object);
    let rings = rings(&handle)?.noting(note);
    rings.delete_subscription(&subscription, Expected::Anything).await?;
    told(&handle, &caller, "ring.delete", &object);
    Ok(StatusCode::NO_CONTENT)
}

pub(in crate::api) async fn skip(
    handle: NodeHandle,
    caller: Caller,
    Path((ring, name)): Path<(String, String)>,
    _: NoBody,
) -> ApiResult {
    let subscription = subscription_of(&handle, &caller, &ring, &name)?;
    let object = object(&subscription.ring, &name);
    let note = note(&handle, &caller, "ring.skip", &object);
    rings(&handle)?.noting(note).pass_over(&subscription).await?;
    told(&handle, &caller, "ring.skip", &object);
    answer(&handle, &subscription, StatusCode::OK).await
}

/// What was decided after a place, or lately; or while it is decided.
pub(in crate::api) async fn entries(
    handle: NodeHandle,
    caller: Caller,
    Path((ring, name)): Path<(String, String)>,
    query: Query,
    request: Request,
) -> ApiResult {
    let subscription = subscription_of(&handle, &caller, &ring, &name)?;
    if query.word("follow", &["true", "false"], |word| word)? == Some("true") {
        return follow::follow(handle, caller, subscription, request.headers()).await;
    }
    let rows = query.rows()?;
    let after: Option<Cursor> = query.get("cursor")?;
    let page = view::entries(handle.store(), &subscription, after, rows).await?;
    let items = page.events.iter().map(|event| tell::entry(event, page.next)).collect();
    let next = page.has_more.then(|| page.next.to_string());
    Ok(Json(ListPage::<RingEntry> { items, next }).into_response())
}

/// What a repeated request is told: the subscription as it is now.
pub(in crate::api) async fn again(handle: &NodeHandle, caller: &Caller, object: &str) -> ApiResult {
    let (ring, name) = object.split_once('/').unwrap_or((object, MAIN));
    answer(handle, &subscription_of(handle, caller, ring, name)?, StatusCode::OK).await
}

async fn answer(handle: &NodeHandle, id: &SubscriptionId, status: StatusCode) -> ApiResult {
    let seen = view::subscription(handle.store(), id).await?;
    let told = tell::subscription(handle, &id.ring, &seen).await?;
    Ok(respond(&told, Some(told.revision), status))
}

fn subscription_of(
    handle: &NodeHandle,
    caller: &Caller,
    ring: &str,
    name: &str,
) -> ApiResult<SubscriptionId> {
    Ok(ring_of(handle, caller, ring)?.subscription(name)?)
}

/// What audit and events call it.
fn object(ring: &RingId, name: &str) -> String {
    if name == MAIN { ring.name.to_string() } else { format!("{}/{name}", ring.name) }
}
