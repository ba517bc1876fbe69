//! What people ask of a subscription: another schedule, or that the next member is passed over.

use std::sync::Arc;

use super::{Decision, MemberName, RingEntry, SkipReason, SubscriptionConfig, SubscriptionDraft};
use super::{TurnRecord, turn};
use crate::instant::Instant;
use crate::rotation::rotate;
use crate::schedule::Count;

/// Makes a subscription another one. What is due by the old schedule is decided first, in the same commit; `None` if more is due
/// than one commit decides: decide that, and come again.
pub fn change(
    record: &TurnRecord,
    (old, new): (&SubscriptionConfig, &SubscriptionConfig),
    draft: &SubscriptionDraft,
    names: &[MemberName],
    now: Instant,
) -> Option<Decision> {
    let decided = turn::decide(record, old, names, now);
    let mut decision =
        decided.unwrap_or_else(|| Decision { record: record.clone(), entries: Vec::new() });
    let Decision { record, entries } = &mut decision;
    if let Some(from) = old.schedule.next(record.decided).filter(|slot| *slot <= now) {
        if !record.idle {
            return None;
        }
        let to = old.schedule.last(record.decided, now).unwrap_or(from);
        let slots = match old.schedule.count(record.decided, to) {
            Count::Exactly(slots) | Count::MoreThan(slots) => slots,
        };
        entries.push(RingEntry::Skip { from, to, slots, reason: SkipReason::Empty });
    }
    record.decided = record.decided.max(now);
    record.draft = Arc::new(draft.clone());
    record.revision += 1;
    if new.accept.is_none() {
        let ended = record.open.drain(..);
        entries.extend(ended.map(|part| RingEntry::Unaccepted { part: part.id }));
    }
    entries.push(RingEntry::Changed { draft: Box::new(draft.clone()), since: record.decided });
    Some(decision)
}

/// Passes over the next member; nothing, if there is none.
pub fn pass_over(record: &TurnRecord, names: &[MemberName]) -> Option<Decision> {
    let member = rotate(names, &record.position, 1).next()?.clone();
    let record = TurnRecord { position: member.clone(), ..record.clone() };
    Some(Decision { record, entries: vec![RingEntry::PassedOver { member }] })
}
