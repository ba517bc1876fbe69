//! Changes of a subscription that people want, at a node: one after the other, between its turns.

use std::sync::Arc;

use engine::ring::MemberName;
use engine::ring::change::{change, pass_over};

use super::call::answer;
use super::flow::{Agenda, Purpose};
use super::node::RingNode;
use super::setup::check_expected;
use super::state::{AskedChange, Members, RingState, WantedChange};
use super::{Expected, Note, Put, RingError};
use crate::Condition;

impl RingState {
    /// Somebody wants a change.
    pub(super) fn want(
        &mut self,
        node: &mut RingNode,
        agenda: &mut Agenda,
        name: &str,
        what: WantedChange,
    ) {
        let (asked, need) = (node.now(), self.next_look());
        let Some(subscription) = self.subscription(name) else { return };
        subscription.changes.push(AskedChange { what, asked, need });
        // Decided on what is there now: others may have changed it a moment ago.
        self.look(node, agenda, Members::IfMoved);
    }

    /// Makes the first change that waits, if nothing is under way and a look has shown what it is about.
    pub(super) fn change_wanted(&mut self, node: &mut RingNode, agenda: &mut Agenda, name: &str) {
        let (names, shown) = (Arc::clone(&self.names), self.look.shown);
        let (roll, roll_key, ring) = (self.roll, self.id.roll_key(), self.id.clone());
        let Some(subscription) = self.subscription(name) else { return };
        let is_ready = subscription.changes.first().is_some_and(|first| first.need <= shown);
        let Some(roll) = roll.filter(|_| is_ready && !subscription.is_busy) else { return };
        let wanted = subscription.changes.remove(0);
        let record = &subscription.record;
        let (decision, passed_over) = match &wanted.what {
            WantedChange::PassOver(..) => match pass_over(record, &names) {
                Some(decision) => {
                    let member = decision.record.position.clone();
                    (Some(decision), Some(member))
                }
                None => {
                    let member = "anybody".to_owned();
                    return wanted.what.refuse(RingError::NoMember { ring, member });
                }
            },
            WantedChange::Change(to, _) => {
                if let Err(why) = check_expected(record, to.expected) {
                    return wanted.what.refuse(why);
                }
                if *record.draft == to.draft {
                    return wanted.what.is_same();
                }
                let configs = (&*subscription.config, &to.config);
                (change(record, configs, &to.draft, &names, node.wall()), None)
            }
        };
        let Some(decision) = decision else {
            // More is due than one commit decides: turns come first.
            subscription.changes.insert(0, wanted);
            return;
        };
        let unmoved = vec![Condition::At(roll_key, roll)];
        self.write(node, agenda, name, decision, unmoved, Purpose::Change(wanted, passed_over));
    }
}

impl WantedChange {
    /// What is written with it.
    pub(super) fn note(&self) -> &Note {
        match self {
            Self::PassOver(note, _) => note,
            Self::Change(change, _) => &change.note,
        }
    }

    pub(super) fn refuse(self, why: RingError) {
        match self {
            Self::PassOver(_, to) => answer(to, Err(why)),
            Self::Change(_, to) => answer(to, Err(why)),
        }
    }

    fn is_same(self) {
        match self {
            Self::PassOver(_, to) => answer(to, Err(RingError::Changed)),
            Self::Change(change, to) if change.expected == Expected::Nothing => {
                answer(to, Err(RingError::Changed));
            }
            Self::Change(_, to) => answer(to, Ok(Put::Same)),
        }
    }

    pub(super) fn is_done(self, passed_over: Option<MemberName>) {
        match self {
            Self::PassOver(_, to) => {
                let member = passed_over.expect("it is known whom it passes over");
                answer(to, Ok(member.to_string()));
            }
            Self::Change(_, to) => answer(to, Ok(Put::Changed)),
        }
    }
}
