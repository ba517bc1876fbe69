//! Rings, as the API says them: the one place where the types of `store::ring` and those of the wire meet.

use axum::http::StatusCode;
use client::ring::{
    Member, Ring, RingEntry, RingEvent, RingPart, SkipReason, Subscription, SubscriptionSpec,
    SubscriptionState,
};
use engine::instant::Instant;
use engine::limits::UNAVAILABLE_RETRY_AFTER;
use engine::ring::{self, SubscriptionDraft};
use store::ring::view::{MemberView, RingView, SubscriptionView};
use store::ring::{RingError, RingEventKind, SubscriptionId};
use store::session::SessionKey;

use crate::api::convert::timestamp;
use crate::api::problem::ApiError;

pub(super) fn ring(seen: &RingView, now: Instant) -> Ring {
    let subscription = |view: &SubscriptionView| subscription(&view.id, view, now);
    Ring {
        name: seen.id.name.to_string(),
        members: seen.members as u64,
        subscriptions: seen.subscriptions.iter().map(subscription).collect(),
    }
}

pub(super) fn subscription(
    id: &SubscriptionId,
    seen: &SubscriptionView,
    now: Instant,
) -> Subscription {
    let record = &seen.record;
    let next = seen.next(now);
    Subscription {
        ring: id.ring.name.to_string(),
        name: id.name.to_string(),
        generation: record.generation,
        revision: seen.revision,
        spec: spec(&record.draft),
        state: if record.idle { SubscriptionState::Resting } else { SubscriptionState::Turning },
        number: record.number,
        position: Some(record.position.to_string()).filter(|name| !name.is_empty()),
        decided: timestamp(record.decided),
        next: next.map(timestamp),
        next_members: seen.next_members.iter().map(ToString::to_string).collect(),
        waiting: record.open.len() as u64,
        writer: Some(node_of(&record.writer)).filter(|name| !name.is_empty()),
    }
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
        by: seen.session.as_deref().map(node_of).unwrap_or_default(),
        own_session: seen.own,
        since: timestamp(Instant(seen.since_ms)),
    }
}

pub(super) fn entry(event: &std::sync::Arc<store::ring::RingEvent>) -> RingEntry {
    let cursor = event.cursor.expect("entries have places");
    RingEntry {
        generation: cursor.generation,
        number: cursor.number,
        what: self::event(&event.kind),
    }
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
        let none =
            |kind, title| Self::new(StatusCode::NOT_FOUND, kind, title, sentence.clone());
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
