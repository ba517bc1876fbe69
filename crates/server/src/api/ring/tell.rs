//! Rings, as the API says them: the one place where the types of `store::ring` and those of the wire meet.

use axum::http::StatusCode;
use client::ring::{
    Member, Ring, RingEntry, RingEvent, RingPart, SkipReason, Subscription, SubscriptionSpec,
    SubscriptionState,
};
use engine::instant::Instant;
use engine::limits::UNAVAILABLE_RETRY_AFTER;
use engine::ring::{self, SubscriptionDraft};
use store::ring::view::{self, MemberView, RingView, SubscriptionView};
use store::ring::{Cursor, RingError, RingEvent as RingEventOf, RingEventKind, RingId};
use store::session::SessionKey;

use crate::api::convert::timestamp;
use crate::api::problem::{ApiError, ApiResult};
use crate::handle::NodeHandle;

/// Members of the next turn that are told.
const MEMBERS_TOLD_MAX: usize = 64;

pub(super) async fn ring(handle: &NodeHandle, seen: &RingView) -> ApiResult<Ring> {
    let mut subscriptions = Vec::with_capacity(seen.subscriptions.len());
    for view in &seen.subscriptions {
        subscriptions.push(subscription(handle, &seen.ring, view).await?);
    }
    let members = view::count_members(handle.store(), &seen.ring).await?;
    Ok(Ring { name: seen.ring.name.to_string(), members: members as u64, subscriptions })
}

pub(super) async fn subscription(
    handle: &NodeHandle,
    ring: &RingId,
    seen: &SubscriptionView,
) -> ApiResult<Subscription> {
    Ok(Subscription {
        ring: ring.name.to_string(),
        name: seen.name.to_string(),
        generation: seen.generation,
        revision: seen.revision,
        spec: spec(&seen.draft),
        state: match seen.next {
            Some(_) => SubscriptionState::Turning,
            None => SubscriptionState::Resting,
        },
        number: seen.number,
        position: Some(seen.position.to_string()).filter(|name| !name.is_empty()),
        decided: timestamp(seen.decided),
        next: seen.next.map(timestamp),
        next_members: next_members(handle, ring, seen).await?,
        waiting: seen.open.len() as u64,
        writer: Some(node_of(&seen.writer)).filter(|name| !name.is_empty()),
    })
}

/// Who will have the next turn, if nobody joins and nobody leaves.
async fn next_members(
    handle: &NodeHandle,
    ring: &RingId,
    seen: &SubscriptionView,
) -> ApiResult<Vec<String>> {
    let count = usize::try_from(seen.draft.count.unwrap_or(1)).unwrap_or(usize::MAX);
    let count = count.min(MEMBERS_TOLD_MAX);
    let names = async |after: Option<&str>| {
        let found = view::members(handle.store(), ring, "", after, count).await;
        found.map(|found| found.into_iter().map(|member| member.name.to_string()))
    };
    let after = Some(&*seen.position).filter(|name| !name.is_empty());
    let mut next: Vec<String> = names(after).await?.collect();
    if next.len() < count && after.is_some() {
        // Around the ring, up to the position itself.
        let rest: Vec<String> =
            names(None).await?.filter(|name| **name <= *seen.position).collect();
        next.extend(rest);
    }
    let around: Vec<String> = next.into_iter().cycle().take(count).collect();
    Ok(around)
}

/// What was written, as it was written.
fn spec(draft: &SubscriptionDraft) -> SubscriptionSpec {
    let text = serde_json::to_value(draft).expect("drafts always serialize");
    serde_json::from_value(text).expect("a test holds the draft and the spec together")
}

/// The name of the node whose session this is.
fn node_of(session: &str) -> String {
    let key = SessionKey::try_from(session.to_owned());
    key.map_or_else(|_| session.to_owned(), |key| key.node().to_string())
}

pub(super) fn member(seen: &MemberView) -> Member {
    Member {
        name: seen.name.to_string(),
        visit: seen.visit,
        by: node_of(&seen.session),
        own_session: seen.own,
        since: timestamp(Instant(seen.since_ms)),
    }
}

/// An entry, or a gap before the first that is kept.
pub(super) fn entry(event: &RingEventOf, next: Cursor) -> RingEntry {
    let number = match (event.cursor, &event.kind) {
        (Some(cursor), _) => cursor.number,
        (None, RingEventKind::Gap { to, .. }) => *to,
        (None, _) => next.number,
    };
    RingEntry { generation: next.generation, number, what: self::event(&event.kind) }
}

/// What happened.
pub(super) fn event(kind: &RingEventKind) -> RingEvent {
    match kind {
        RingEventKind::Add { member } => RingEvent::Add { member: member.to_string() },
        RingEventKind::Remove { member } => RingEvent::Remove { member: member.to_string() },
        RingEventKind::Turn { slot, parts, token } => RingEvent::Turn {
            slot: timestamp(*slot),
            parts: parts
                .iter()
                .map(|part| {
                    let late = i64::try_from(part.delay.as_millis()).unwrap_or(i64::MAX);
                    let at = (late > 0).then(|| timestamp(Instant(slot.0.saturating_add(late))));
                    RingPart { member: part.member.to_string(), token: *token, at }
                })
                .collect(),
        },
        RingEventKind::Skip { from, to, slots, reason } => RingEvent::Skip {
            from: timestamp(*from),
            to: timestamp(*to),
            slots: *slots,
            reason: match reason {
                ring::SkipReason::Missed => SkipReason::Missed,
                ring::SkipReason::Empty => SkipReason::Empty,
            },
        },
        RingEventKind::Pass { part, from, to, token } => RingEvent::Pass {
            turn: part.turn,
            part: part.part.into(),
            from: from.to_string(),
            to: to.to_string(),
            token: *token,
        },
        RingEventKind::Accepted { part, member } => RingEvent::Accepted {
            turn: part.turn,
            part: part.part.into(),
            member: member.to_string(),
        },
        RingEventKind::Unaccepted { part } => {
            RingEvent::Unaccepted { turn: part.turn, part: part.part.into() }
        }
        RingEventKind::PassedOver { member } => {
            RingEvent::PassedOver { member: member.to_string() }
        }
        RingEventKind::Changed { draft, since } => {
            RingEvent::Schedule { spec: Box::new(spec(draft)), since: timestamp(*since) }
        }
        RingEventKind::SetBack { to } => RingEvent::SetBack { to: timestamp(*to) },
        RingEventKind::Gap { from, to } => RingEvent::Gap { from: *from, to: *to },
        RingEventKind::Error { text } => RingEvent::Error { why: text.clone() },
        RingEventKind::Closing => {
            let why = "the subscription is deleted, or this server stops";
            RingEvent::Closing { why: why.to_owned() }
        }
    }
}

impl From<RingError> for ApiError {
    fn from(error: RingError) -> Self {
        let sentence = error.to_string();
        let conflict = |kind, title| Self::new(StatusCode::CONFLICT, kind, title, sentence.clone());
        let none = |kind, title| Self::new(StatusCode::NOT_FOUND, kind, title, sentence.clone());
        match error {
            RingError::NoRing(_) => none("no-ring", "No such ring"),
            RingError::NoSubscription(_) => none("no-subscription", "No such subscription"),
            RingError::NoMember { .. } => none("no-member", "No such member"),
            RingError::RingExists(_) => conflict("name-taken", "The name is taken"),
            RingError::BadName { what, why } => Self::parameter(what, why),
            RingError::Bad(faults) => Self::fields(faults),
            RingError::Limit(_) => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "too-many", "Too many", sentence)
            }
            RingError::Superseded { .. } => conflict("member-taken", "Somebody else has the name"),
            RingError::VisitOver { .. } => conflict("member-gone", "The visit is over"),
            RingError::NotOffered(_) => conflict("not-offered", "Not its part"),
            RingError::Changed => conflict("changed", "Changed meanwhile"),
            RingError::BeingDeleted(_) | RingError::Unavailable(_) | RingError::Unknown(_) => {
                Self::unavailable(sentence, UNAVAILABLE_RETRY_AFTER)
            }
            RingError::Refused(store::Refusal::Full { .. }) => {
                Self::new(StatusCode::INSUFFICIENT_STORAGE, "no-room", "No room", sentence)
            }
            RingError::Refused(_) | RingError::Corrupt(_) => Self::internal(sentence),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The server reads drafts, and clients write specs: what one says the other understands.
    #[test]
    fn a_draft_and_a_spec_are_the_same_json() {
        let all = json!({
            "schedule": {
                "every": ["1s", "500ms"], "cron": "0 9 * * *", "phase": "20ms", "tz": "Europe/Berlin",
                "dialect": "open", "gap": "skip", "fold": "both", "exclude": ["2027-12-24"],
                "quiet": [{"days": ["sat"], "from": "22:00", "to": "06:00"}],
            },
            "count": 3, "splay_percent": 50, "catch_up": "all", "catch_up_cap": 7, "accept": "30s",
        });
        let draft: SubscriptionDraft = serde_json::from_value(all.clone()).unwrap();
        let said = spec(&draft);
        assert_eq!(serde_json::to_value(&said).unwrap(), all);
        let back: SubscriptionDraft =
            serde_json::from_value(serde_json::to_value(&said).unwrap()).unwrap();
        assert_eq!(back, draft);
    }
}
