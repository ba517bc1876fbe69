//! Parts of turns that have to be accepted: who may, and what becomes of those that nobody accepts.
//!
//! A part is offered to one member at a time. Its acceptance is an entry as well, in a commit on the record, so two never act on
//! one part: whoever was offered it and is late finds that it is another one's.

use super::{Decision, MemberName, PartId, RingEntry, SubscriptionConfig, TurnRecord};
use crate::limits::RING_TRIES_MAX;
use crate::rotation::rotate;

/// What came of accepting a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acceptance {
    /// It is the member's from now on, under this token, once the decision is written.
    New {
        /// The token of its offer.
        token: u64,
    },
    /// The member has accepted it before.
    Again {
        /// The token of its offer.
        token: u64,
    },
    /// It is not offered to this member.
    Refused(NotOffered),
}

/// Why a part cannot be accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotOffered {
    /// Do not act: another member has it.
    #[error("this part has passed on to {to}: do not act on it")]
    PassedOn {
        /// Who is offered it now.
        to: MemberName,
    },
    /// Do not act: it was accepted by somebody, ended unaccepted, or was never there.
    #[error("this part is not open: it was accepted by another, has ended, or never was")]
    NotOpen,
    /// Nothing has to be accepted in this subscription.
    #[error("turns of this subscription need not be accepted")]
    NotNeeded,
}

/// Accepts parts for members: the change, if there is one, and what came of each in the same order.
pub fn accept(
    record: &TurnRecord,
    config: &SubscriptionConfig,
    asked: &[(PartId, MemberName)],
) -> (Option<Decision>, Vec<Acceptance>) {
    let (mut new, mut entries) = (record.clone(), Vec::new());
    let mut accept_one = |(id, member): &(PartId, MemberName)| {
        if let Some(offer) = new.accepted_offer(*id, member) {
            return Acceptance::Again { token: TurnRecord::token_of(new.generation, offer) };
        }
        let Some(place) = new.open.iter().position(|open| open.id == *id) else {
            let is_needed = config.accept.is_some();
            let why = if is_needed { NotOffered::NotOpen } else { NotOffered::NotNeeded };
            return Acceptance::Refused(why);
        };
        if new.open[place].member != *member {
            let to = new.open[place].member.clone();
            return Acceptance::Refused(NotOffered::PassedOn { to });
        }
        let open = new.open.remove(place);
        let token = TurnRecord::token_of(new.generation, open.offer);
        entries.push(RingEntry::Accepted { part: *id, member: member.clone() });
        new.accept(open);
        Acceptance::New { token }
    };
    let answers = asked.iter().map(&mut accept_one).collect();
    let decision = (!entries.is_empty()).then_some(Decision { record: new, entries });
    (decision, answers)
}

/// Passes parts on whose time is over: each to the next name that it was not offered to, or to nobody.
pub fn pass_on(record: &TurnRecord, names: &[MemberName], overdue: &[PartId]) -> Option<Decision> {
    let (mut new, mut entries) = (record.clone(), Vec::new());
    new.open.retain_mut(|open| {
        if !overdue.contains(&open.id) {
            return true;
        }
        open.tried.push(open.member.clone());
        let untried: Vec<&MemberName> =
            names.iter().filter(|name| !open.tried.contains(name)).collect();
        let next = rotate(&untried, &new.position, 1).next();
        let Some(to) = next.filter(|_| open.tried.len() < RING_TRIES_MAX) else {
            entries.push(RingEntry::Unaccepted { part: open.id });
            return false;
        };
        let from = std::mem::replace(&mut open.member, (*to).clone());
        new.position = open.member.clone();
        entries.push(RingEntry::Pass { part: open.id, from, to: open.member.clone() });
        open.offer = record.number + entries.len() as u64;
        true
    });
    (!entries.is_empty()).then_some(Decision { record: new, entries })
}
