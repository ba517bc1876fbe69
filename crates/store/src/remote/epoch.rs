//! Which answers count: those of the present epoch, and those that begin the next one.
//!
//! A server says with every answer in which epoch its store is. Epochs have no order, and of several servers one may
//! know of a fail-over before another does. So each change that is seen begins an epoch of our own, whatever it is
//! called, and none ever comes back: if servers disagree, everybody waits until they no longer do. An answer to
//! something that was asked before the change, and says otherwise, is from a former epoch, and is none.

use std::sync::{Mutex, MutexGuard, PoisonError};

use client::ClientError;
use client::store::StoreMoment;

use crate::{Class, Epoch};

/// The epoch that we are in.
pub(super) struct Gate(Mutex<Present>);

struct Present {
    moment: StoreMoment,
    /// How many changes were seen.
    number: u64,
}

/// When something was asked.
pub(super) struct Ticket(u64);

impl Gate {
    pub(super) fn new(moment: &StoreMoment) -> Self {
        Self(Mutex::new(Present { moment: moment.clone(), number: 0 }))
    }

    /// Something is asked now.
    pub(super) fn ticket(&self) -> Ticket {
        Ticket(self.lock().number)
    }

    /// Whether an answer counts.
    pub(super) fn admits(&self, ticket: &Ticket, moment: &StoreMoment) -> bool {
        let mut present = self.lock();
        if present.moment.epoch == moment.epoch {
            present.moment.class.clone_from(&moment.class);
            return true;
        }
        if ticket.0 != present.number {
            return false;
        }
        present.moment = moment.clone();
        present.number += 1;
        true
    }

    /// Whether an error counts: one that says nothing of the store always does.
    pub(super) fn heed(&self, ticket: &Ticket, why: &ClientError) -> bool {
        let said = why.problem().and_then(|problem| problem.store.as_ref());
        said.is_none_or(|said| self.admits(ticket, &said.moment))
    }

    pub(super) fn epoch(&self) -> Epoch {
        let present = self.lock();
        Epoch(format!("{}#{}", present.moment.epoch, present.number))
    }

    pub(super) fn class(&self) -> Class {
        match self.lock().moment.class.as_str() {
            "A" => Class::A,
            "S" => Class::S,
            // Of one that is not known nothing is promised.
            _ => Class::B,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Present> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(epoch: &str) -> StoreMoment {
        StoreMoment { class: "S".into(), epoch: epoch.into() }
    }

    #[test]
    fn an_answer_of_a_former_epoch_is_none() {
        let gate = Gate::new(&moment("a"));
        let (early, other) = (gate.ticket(), gate.ticket());
        assert!(gate.admits(&early, &moment("a")));
        assert!(gate.admits(&early, &moment("b")));
        assert!(!gate.admits(&other, &moment("a")), "it was asked before the change");
        assert!(gate.admits(&other, &moment("b")));
    }

    #[test]
    fn an_epoch_that_is_left_never_comes_back_whatever_servers_call_theirs() {
        let gate = Gate::new(&moment("a"));
        let first = gate.epoch();
        let mut known = vec![first];
        for name in ["b", "a", "b", "a"] {
            assert!(gate.admits(&gate.ticket(), &moment(name)), "nobody is stuck");
            assert!(!known.contains(&gate.epoch()));
            known.push(gate.epoch());
        }
    }

    #[test]
    fn a_class_that_is_not_known_promises_nothing() {
        let gate = Gate::new(&moment("a"));
        assert_eq!(gate.class(), Class::S);
        gate.admits(&gate.ticket(), &StoreMoment { class: "Z".into(), epoch: "a".into() });
        assert_eq!(gate.class(), Class::B);
    }
}
