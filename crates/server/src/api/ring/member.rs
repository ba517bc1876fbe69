//! `/v1/rings/{ring}/members`: joining, being there, and leaving.
//!
//! One request is all of it: it joins or says that the member is still there, and waits for its turns. While it waits the member
//! counts as being there, because its connection does: a program that dies takes its connection with it, and one whose machine is
//! gone is noticed when its wait is over. After that it has 5 s for the next request, at this server or another.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Json;
use client::ListPage;
use client::key::Scope;
use client::ring::{AcceptRequest, Accepted, Member, MemberAnswer, MemberRequest, MemberTurn};
use engine::instant::Instant;
use engine::limits::{
    RING_BEAT, RING_CURSORS_BYTES_MAX, RING_MEMBER_WAIT_MAX, RING_SUBSCRIPTIONS_MAX,
};
use engine::ring::PartId;
use engine::trigger::check_name;
use store::ring::{Cursor, Cursors, Heard, OwnPart, RingId, Rings, view};
use tokio::time::{Instant as Moment, interval_at};

use super::{note, ring_of, rings, tell, told};
use crate::api::body::JsonBody;
use crate::api::caller::Caller;
use crate::api::convert::timestamp;
use crate::api::crowding::Crowding;
use crate::api::problem::{ApiError, ApiResult};
use crate::api::query::Query;
use crate::handle::NodeHandle;

pub(in crate::api) async fn members(
    handle: NodeHandle,
    caller: Caller,
    Path(name): Path<String>,
    query: Query,
) -> ApiResult<Json<ListPage<Member>>> {
    let ring = ring_of(&handle, &caller, &name)?;
    let rows = query.rows()?;
    let after = query.text("cursor");
    if let Some(cursor) = after {
        check_name(cursor).map_err(|_| crate::api::trigger::bad_cursor())?;
    }
    let prefix = query.text("prefix").unwrap_or_default();
    let mut found = view::members(handle.store(), &ring, prefix, after, rows + 1).await?;
    let has_more = found.len() > rows;
    found.truncate(rows);
    let next = found.last().filter(|_| has_more).map(|last| last.name.to_string());
    Ok(Json(ListPage { items: found.iter().map(tell::member).collect(), next }))
}

/// Joins, or is heard, and waits for turns.
pub(in crate::api) async fn attend(
    handle: NodeHandle,
    caller: Caller,
    crowding: Crowding,
    Path((ring, member)): Path<(String, String)>,
    JsonBody(asked): JsonBody<MemberRequest>,
) -> ApiResult<Json<MemberAnswer>> {
    let ring = ring_of(&handle, &caller, &ring)?;
    check_name(&member).map_err(|why| ApiError::parameter("member", why))?;
    let after = asked.after.as_deref().map(read_after).transpose()?.unwrap_or_default();
    let wait = Duration::from_millis(asked.wait_ms);
    if wait > RING_MEMBER_WAIT_MAX {
        let most = RING_MEMBER_WAIT_MAX.as_millis();
        return Err(ApiError::field("/wait_ms", format!("it is a whole number from 0 to {most}")));
    }
    if asked.subscriptions.len() > RING_SUBSCRIPTIONS_MAX {
        let why = format!("a ring has at most {RING_SUBSCRIPTIONS_MAX}");
        return Err(ApiError::field("/subscriptions", why));
    }
    // Nobody keeps one of the last connections: whoever comes by one is told to come again.
    let wait = if crowding == Crowding::Crowded { Duration::ZERO } else { wait };
    let node = rings(&handle)?;
    let Heard { visit, beat } = node.hear(&ring, &member, asked.visit).await?;
    let attended = Attending {
        handle: &handle,
        rings: node,
        ring: &ring,
        member: &member,
        visit,
        subscriptions: &asked.subscriptions,
    };
    let (turns, after) = attended.turns(after, wait).await?;
    Ok(Json(MemberAnswer {
        visit,
        beat_ms: u64::try_from(beat.as_millis()).unwrap_or(u64::MAX),
        after: write_after(&after),
        turns: turns.iter().map(|part| turn(part, handle.now())).collect(),
    }))
}

/// A member that waits for its turns.
struct Attending<'a> {
    handle: &'a NodeHandle,
    rings: &'a Rings,
    ring: &'a RingId,
    member: &'a str,
    visit: u64,
    /// Only these, if there are any.
    subscriptions: &'a [String],
}

impl Attending<'_> {
    /// The turns that have come within this time, and how far the member has heard.
    async fn turns(
        &self,
        mut after: Cursors,
        wait: Duration,
    ) -> ApiResult<(Vec<OwnPart>, Cursors)> {
        let until = Moment::now() + wait;
        let mut beats = interval_at(Moment::now() + RING_BEAT, RING_BEAT);
        loop {
            let left = until.saturating_duration_since(Moment::now());
            let asked = self.rings.attend(self.ring, self.member, after.clone(), left);
            tokio::pin!(asked);
            let (mut parts, heard) = loop {
                tokio::select! {
                    biased;
                    () = self.handle.stopped() => return Ok((Vec::new(), after)),
                    told = &mut asked => break told?,
                    // It is there as long as it waits; who was taken out meanwhile is told so.
                    _ = beats.tick() => {
                        self.rings.hear(self.ring, self.member, Some(self.visit)).await?;
                    }
                }
            };
            after = heard;
            parts.retain(|part| {
                self.subscriptions.is_empty() || self.subscriptions.contains(&part.subscription)
            });
            if !parts.is_empty() || Moment::now() >= until {
                return Ok((parts, after));
            }
        }
    }
}

fn turn(part: &OwnPart, now: Instant) -> MemberTurn {
    // Of one that was passed on long after its turn, only the part is known.
    let slot = part.slot.unwrap_or(now);
    let millis = |length: Duration| i64::try_from(length.as_millis()).unwrap_or(i64::MAX);
    MemberTurn {
        subscription: part.subscription.clone(),
        generation: part.cursor.generation,
        number: part.part.turn,
        slot: timestamp(slot),
        at: timestamp(Instant(slot.0.saturating_add(millis(part.delay)))),
        part: part.part.part.into(),
        token: part.token,
        accept: part.accept.is_some(),
        accept_ms: part.accept.map(|within| u64::try_from(within.as_millis()).unwrap_or(u64::MAX)),
    }
}

/// Leaves; an operator removes whoever it is.
pub(in crate::api) async fn leave(
    handle: NodeHandle,
    caller: Caller,
    Path((ring, member)): Path<(String, String)>,
    query: Query,
) -> ApiResult<StatusCode> {
    let of = ring_of(&handle, &caller, &ring)?;
    let visit: Option<u64> = query.get("visit")?;
    let object = format!("{ring}/{member}");
    let is_operator = visit.is_none();
    if is_operator && !caller.scopes.iter().any(|scope| scope.covers(Scope::Write)) {
        let why = "a member leaves with the visit that it was told; only a key with the scope write takes out others";
        return Err(ApiError::parameter("visit", why));
    }
    let mut rings = rings(&handle)?.clone();
    if is_operator {
        rings = rings.noting(note(&handle, &caller, "ring.remove", &object));
    }
    rings.leave(&of, &member, visit).await?;
    if is_operator {
        told(&handle, &caller, "ring.remove", &object);
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Accepts a part of a turn.
pub(in crate::api) async fn accept(
    handle: NodeHandle,
    caller: Caller,
    Path((ring, name, number)): Path<(String, String, String)>,
    JsonBody(asked): JsonBody<AcceptRequest>,
) -> ApiResult<Json<Accepted>> {
    let subscription = ring_of(&handle, &caller, &ring)?.subscription(&name)?;
    let turn: u64 = number
        .parse()
        .map_err(|_| ApiError::parameter("number", "it is the number of a turn, as it was told"))?;
    let part = u16::try_from(asked.part)
        .map_err(|_| ApiError::field("/part", "it is a place of the turn, from 0"))?;
    let id = PartId { turn, part };
    let token = rings(&handle)?.accept(&subscription, id, &asked.member).await?;
    Ok(Json(Accepted { number: turn, part: asked.part, member: asked.member, token }))
}

/// `main=1.17,slow=3.2`: how far a member has heard of each subscription.
fn write_after(after: &Cursors) -> String {
    let mut text = String::new();
    for (name, cursor) in after {
        let comma = if text.is_empty() { "" } else { "," };
        write!(text, "{comma}{name}={cursor}").expect("a String takes everything");
    }
    text
}

fn read_after(text: &str) -> ApiResult<Cursors> {
    let bad = || ApiError::field("/after", "it is what the last answer told, as it was");
    if text.len() > RING_CURSORS_BYTES_MAX {
        return Err(bad());
    }
    let mut after = BTreeMap::new();
    for place in text.split(',').filter(|place| !place.is_empty()) {
        let (name, cursor) = place.split_once('=').ok_or_else(bad)?;
        let cursor: Cursor = cursor.parse().map_err(|_| bad())?;
        check_name(name).map_err(|_| bad())?;
        after.insert(name.to_owned(), cursor);
    }
    if after.len() > RING_SUBSCRIPTIONS_MAX {
        return Err(bad());
    }
    Ok(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_far_a_member_has_heard_comes_back_as_it_was_told() {
        let cursor = |generation, number| Cursor { generation, number };
        let after: Cursors =
            [("main".to_owned(), cursor(7, 17)), ("slow".to_owned(), cursor(9, 0))].into();
        let text = write_after(&after);
        assert_eq!(text, "main=7.17,slow=9.0");
        assert_eq!(read_after(&text).unwrap(), after);
        assert_eq!(read_after("").unwrap(), Cursors::new());
        for bad in ["main", "main=", "main=7", "=7.1", "a b=7.1"] {
            assert!(read_after(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn as_many_places_are_read_as_a_ring_has_subscriptions_and_no_more() {
        let text = |count: usize| {
            let places: Vec<_> = (0..count).map(|number| format!("s{number}=1.1")).collect();
            places.join(",")
        };
        assert!(read_after(&text(RING_SUBSCRIPTIONS_MAX)).is_ok());
        assert!(read_after(&text(RING_SUBSCRIPTIONS_MAX + 1)).is_err());
        assert!(read_after(&"x".repeat(RING_CURSORS_BYTES_MAX + 1)).is_err());
    }
}
