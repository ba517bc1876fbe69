//! Parts that have to be accepted, at a node: who has accepted, and whose time is over.
//!
//! How long a part is offered is judged by each server's own clock, from when it saw the offer; the servers in line after the last
//! writer wait a little longer, so that one of them passes it on.

use std::sync::Arc;

use engine::limits::RING_GONE_PART_WAIT;
use engine::mutant::{Mutant, active};
use engine::ring::line::stand_in_delay;
use engine::ring::part::{Acceptance, accept, pass_on};
use engine::ring::{MemberName, PartId};

use super::RingError;
use super::call::{Answer, answer};
use super::driver::{is_too_long, waited_too_long};
use super::flow::{Agenda, Alarm, Purpose};
use super::node::RingNode;
use super::state::{AskedPart, Members, Mono, RingState, Subscription};
use crate::Condition;

impl RingState {
    /// A member accepts a part.
    pub(super) fn accept(
        &mut self,
        node: &mut RingNode,
        agenda: &mut Agenda,
        name: &str,
        (part, member): (PartId, MemberName),
        to: Answer<u64>,
    ) {
        let (asked, need) = (node.now(), self.next_look());
        let Some(subscription) = self.subscription(name) else { return };
        subscription.asked.push(AskedPart { part, member, answer: to, asked, need });
        self.accept_asked(node, agenda, name);
    }

    /// Writes what was accepted, if nothing is under way. Nobody is refused before a look that was begun after it asked.
    pub(super) fn accept_asked(&mut self, node: &mut RingNode, agenda: &mut Agenda, name: &str) {
        let (shown, ring_key) = (self.look.shown, self.id.ring_key());
        let Some(subscription) = self.subscription(name) else { return };
        if subscription.is_busy || subscription.asked.is_empty() {
            return;
        }
        let asked = std::mem::take(&mut subscription.asked);
        let wanted: Vec<_> = asked.iter().map(|asked| (asked.part, asked.member.clone())).collect();
        let (decision, answers) = accept(&subscription.record, &subscription.config, &wanted);
        let (mut accepted, mut must_look) = (Vec::new(), false);
        for (asked, became) in asked.into_iter().zip(answers) {
            match became {
                Acceptance::New { token } if active(Mutant::AcceptUnacknowledged) => {
                    answer(asked.answer, Ok(token));
                }
                Acceptance::New { token } => accepted.push((asked, token)),
                Acceptance::Again { token } => answer(asked.answer, Ok(token)),
                Acceptance::Refused(why) if asked.need <= shown => {
                    answer(asked.answer, Err(RingError::NotOffered(why)));
                }
                Acceptance::Refused(_) => {
                    must_look = true;
                    subscription.asked.push(asked);
                }
            }
        }
        if let Some(decision) = decision {
            let there = vec![Condition::Present(ring_key)];
            self.write(node, agenda, name, decision, there, Purpose::Accept(accepted));
        }
        if must_look {
            self.look(node, agenda, Members::IfMoved);
        }
    }

    /// Notes which parts are offered, and when the time of the first of them is over.
    pub(super) fn note_offers(&mut self, node: &RingNode, agenda: &mut Agenda, name: &str) {
        let names = Arc::clone(&self.names);
        let Some(subscription) = self.subscription(name) else { return };
        if subscription.record.open.is_empty() {
            subscription.offers.clear();
            return;
        }
        let now = node.now();
        let open = &subscription.record.open;
        subscription.offers.retain(|(part, offer), _| {
            open.iter().any(|open| open.id == *part && open.offer == *offer)
        });
        for open in open {
            subscription.offers.entry((open.id, open.offer)).or_insert(now);
        }
        if !node.advances() {
            return;
        }
        subscription.part_alarm += 1;
        let first = subscription.deadlines(node, &names).map(|(_, at)| at).min();
        if let Some(first) = first {
            let at = first.max(now + RING_GONE_PART_WAIT / 10);
            let id = subscription.id.clone();
            agenda.alarm(at, Alarm::Parts(id, subscription.part_alarm));
        }
    }

    pub(super) fn parts_are_due(
        &mut self,
        node: &mut RingNode,
        agenda: &mut Agenda,
        name: &str,
        alarm: u64,
    ) {
        let (names, roll, roll_key) = (Arc::clone(&self.names), self.roll, self.id.roll_key());
        let Some(subscription) = self.subscription(name) else { return };
        if subscription.part_alarm != alarm {
            return;
        }
        let now = node.now();
        let due = subscription.deadlines(node, &names).filter(|(_, at)| *at <= now);
        let overdue: Vec<PartId> = due.map(|(part, _)| part).collect();
        let may = !subscription.is_busy && node.may_write();
        let decision = pass_on(&subscription.record, &names, &overdue);
        if let (Some(decision), Some(roll), true) = (decision, roll, may) {
            let unmoved = vec![Condition::At(roll_key, roll)];
            self.write(node, agenda, name, decision, unmoved, Purpose::Pass);
        }
        self.note_offers(node, agenda, name);
    }
}

impl Subscription {
    /// Until when each part is offered to whom it is offered now, as this server sees it.
    fn deadlines<'a>(
        &'a self,
        node: &RingNode,
        names: &'a [MemberName],
    ) -> impl Iterator<Item = (PartId, Mono)> + 'a {
        let later = stand_in_delay(self.place(node));
        let accept = self.config.accept.unwrap_or_default();
        self.record.open.iter().filter_map(move |open| {
            let since = self.offers.get(&(open.id, open.offer))?;
            let is_there = names.binary_search(&open.member).is_ok();
            let patience = if is_there { accept } else { RING_GONE_PART_WAIT.min(accept) };
            Some((open.id, *since + patience + later))
        })
    }

    /// Answers whoever has asked for too long.
    pub(super) fn give_up_late(&mut self, now: Mono) {
        let (late, rest) =
            std::mem::take(&mut self.asked).into_iter().partition(|a| is_too_long(a.asked, now));
        self.asked = rest;
        let late: Vec<AskedPart> = late;
        late.into_iter().for_each(|asked| answer(asked.answer, Err(waited_too_long())));
        let (late, rest): (Vec<_>, _) =
            std::mem::take(&mut self.changes).into_iter().partition(|c| is_too_long(c.asked, now));
        self.changes = rest;
        late.into_iter().for_each(|wanted| wanted.what.refuse(waited_too_long()));
    }
}

impl Purpose {
    /// Nobody will know what became of it.
    pub(super) fn is_lost(self) {
        match self {
            Self::Turns { .. } | Self::Pass => {}
            Self::Accept(asked) => {
                for (asked, _) in asked {
                    answer(asked.answer, Err(waited_too_long()));
                }
            }
            Self::Change(wanted, _) => wanted.what.refuse(waited_too_long()),
        }
    }
}

impl RingState {
    /// A commit did not succeed: what it was for is decided anew when a look has shown what is.
    pub(super) fn ask_again(&mut self, name: &str, purpose: Purpose, need: u64) {
        let Some(subscription) = self.subscription(name) else { return purpose.is_lost() };
        match purpose {
            Purpose::Turns { .. } | Purpose::Pass => {}
            Purpose::Accept(asked) => {
                let again = asked.into_iter().map(|(asked, _)| AskedPart { need, ..asked });
                subscription.asked.extend(again);
            }
            Purpose::Change(mut wanted, _) => {
                wanted.need = need;
                subscription.changes.insert(0, wanted);
            }
        }
    }

    /// A commit is done: whoever asked for it is told.
    pub(super) fn is_done(&mut self, purpose: Purpose) {
        match purpose {
            Purpose::Turns { .. } | Purpose::Pass => {}
            Purpose::Accept(asked) => {
                for (asked, token) in asked {
                    answer(asked.answer, Ok(token));
                }
            }
            Purpose::Change(wanted, passed_over) => wanted.what.is_done(passed_over),
        }
    }
}
