//! What is told of a subscription.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use engine::instant::Instant;
use engine::ring::{
    MemberName, NumberedEntry, PartId, RingEntry, SkipReason, SubscriptionConfig,
    SubscriptionDraft, TurnRecord,
};

/// A place among the entries of a subscription, as text `<generation>.<number>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cursor {
    /// Which subscription of its name.
    pub generation: u64,
    /// The number of the last entry that was heard; 0 before the first.
    pub number: u64,
}

/// Why a text is no cursor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no cursor of a subscription: give the id of an event as it was told, like 1795000000000000.17"
)]
pub struct BadCursor(String);

impl fmt::Display for Cursor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}", self.generation, self.number)
    }
}

impl FromStr for Cursor {
    type Err = BadCursor;

    fn from_str(text: &str) -> Result<Self, BadCursor> {
        let read = |number: &str| number.parse().ok();
        let parts = text.split_once('.');
        let cursor = parts.and_then(|(generation, number)| {
            Some(Self { generation: read(generation)?, number: read(number)? })
        });
        cursor.ok_or_else(|| BadCursor(text.chars().take(64).collect()))
    }
}

/// Something that happened in a ring, for those who follow one of its subscriptions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RingEvent {
    /// Its place, if it is an entry of the record: every follower at every server is told the same under it.
    pub cursor: Option<Cursor>,
    /// What happened.
    pub kind: RingEventKind,
}

/// A member's part of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnPart {
    /// Whose it is.
    pub member: MemberName,
    /// Its number, from 0.
    pub part: u16,
    /// How much later than the slot it begins.
    pub delay: Duration,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields are those of `engine::ring::RingEntry`")]
pub enum RingEventKind {
    /// A member is in the ring.
    Add { member: MemberName },
    /// It is not any more.
    Remove { member: MemberName },
    /// A turn: the slot, who has it, and the token of all its parts.
    Turn { slot: Instant, parts: Vec<TurnPart>, token: u64 },
    /// Slots without a turn.
    Skip { from: Instant, to: Instant, slots: u64, reason: SkipReason },
    /// A part is another member's now, under another token.
    Pass { part: PartId, from: MemberName, to: MemberName, token: u64 },
    /// A member has accepted its part.
    Accepted { part: PartId, member: MemberName },
    /// Nobody accepted a part.
    Unaccepted { part: PartId },
    /// Somebody had the next member passed over.
    PassedOver { member: MemberName },
    /// The subscription is another one.
    Changed { draft: Arc<SubscriptionDraft>, since: Instant },
    /// Slots after this instant are decided once more.
    SetBack { to: Instant },
    /// Entries with these numbers are not kept any more.
    Gap { from: u64, to: u64 },
    /// The follower is told no more by this feed, because of what the text says: follow anew.
    Error { text: String },
    /// The feed ends: the subscription is deleted, or this server stops.
    Closing,
}

impl RingEvent {
    /// An event without a place.
    pub(super) fn of(kind: RingEventKind) -> Arc<Self> {
        Arc::new(Self { cursor: None, kind })
    }

    /// What an entry tells.
    pub(super) fn of_entry(
        record: &TurnRecord,
        config: &SubscriptionConfig,
        entry: &NumberedEntry,
    ) -> Arc<Self> {
        let (generation, number) = (record.generation, entry.number());
        let token = TurnRecord::token_of(generation, number);
        let kind = match entry.entry().clone() {
            RingEntry::Turn { slot, members } => {
                let len = members.len();
                let part = |(member, part): (MemberName, u16)| TurnPart {
                    member,
                    part,
                    delay: config.delay(slot, part.into(), len),
                };
                let parts = members.into_iter().zip(0..).map(part).collect();
                RingEventKind::Turn { slot, parts, token }
            }
            RingEntry::Skip { from, to, slots, reason } => {
                RingEventKind::Skip { from, to, slots, reason }
            }
            RingEntry::Pass { part, from, to } => RingEventKind::Pass { part, from, to, token },
            RingEntry::Accepted { part, member } => RingEventKind::Accepted { part, member },
            RingEntry::Unaccepted { part } => RingEventKind::Unaccepted { part },
            RingEntry::PassedOver { member } => RingEventKind::PassedOver { member },
            RingEntry::Changed { draft, since } => {
                RingEventKind::Changed { draft: Arc::new(*draft), since }
            }
            RingEntry::SetBack { to } => RingEventKind::SetBack { to },
        };
        Arc::new(Self { cursor: Some(Cursor { generation, number }), kind })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_text_that_reads_back() {
        let cursor = Cursor { generation: 1_795_000_000_000_000, number: 17 };
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        for bad in ["", "17", "1.", ".1", "a.b", "1.2.3", "-1.2"] {
            assert_eq!(bad.parse::<Cursor>(), Err(BadCursor(bad.to_owned())));
        }
    }
}
