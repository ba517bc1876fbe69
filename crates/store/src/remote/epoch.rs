//! Which answers count: those of the present epoch, and those that begin the next one.
//!
//! A server says with every answer in which epoch its store is. Epochs have no order, and of several servers one may
//! know of a fail-over before another does. So each change that is seen begins an epoch of our own, whatever its
//! name, and none ever comes back: if servers disagree, nothing is claimed until they agree. An answer to a request
//! that was sent before the change, and that names another epoch, does not count.

use client::ClientError;
use client::store::StoreMoment;
use parking_lot::Mutex;

use crate::{Class, Epoch};

/// The present epoch, as the servers' answers say.
pub(super) struct RemoteEpochs(Mutex<Present>);

struct Present {
    moment: StoreMoment,
    /// How many changes were seen.
    number: u64,
}

/// The epoch in which a request was sent.
pub(super) struct EpochTicket(u64);

impl RemoteEpochs {
    pub(super) fn new(moment: &StoreMoment) -> Self {
        Self(Mutex::new(Present { moment: moment.clone(), number: 0 }))
    }

    /// The ticket of a request that is sent now.
    pub(super) fn ticket(&self) -> EpochTicket {
        EpochTicket(self.0.lock().number)
    }

    /// Whether an answer counts.
    pub(super) fn admits(&self, ticket: &EpochTicket, moment: &StoreMoment) -> bool {
        let mut present = self.0.lock();
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
    pub(super) fn heed(&self, ticket: &EpochTicket, why: &ClientError) -> bool {
        let said = why.problem().and_then(|problem| problem.store.as_ref());
        said.is_none_or(|said| self.admits(ticket, &said.moment))
    }

    pub(super) fn epoch(&self) -> Epoch {
        let present = self.0.lock();
        Epoch(format!("{}#{}", present.moment.epoch, present.number))
    }

    pub(super) fn class(&self) -> Class {
        match self.0.lock().moment.class.as_str() {
            "A" => Class::A,
            "S" => Class::S,
            // Of one that is not known nothing is promised.
            _ => Class::B,
        }
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
        let epochs = RemoteEpochs::new(&moment("a"));
        let (early, other) = (epochs.ticket(), epochs.ticket());
        assert!(epochs.admits(&early, &moment("a")));
        assert!(epochs.admits(&early, &moment("b")));
        assert!(!epochs.admits(&other, &moment("a")), "it was asked before the change");
        assert!(epochs.admits(&other, &moment("b")));
    }

    #[test]
    fn an_epoch_that_is_left_never_comes_back_whatever_servers_call_theirs() {
        let epochs = RemoteEpochs::new(&moment("a"));
        let first = epochs.epoch();
        let mut known = vec![first];
        for name in ["b", "a", "b", "a"] {
            assert!(epochs.admits(&epochs.ticket(), &moment(name)), "nobody is stuck");
            assert!(!known.contains(&epochs.epoch()));
            known.push(epochs.epoch());
        }
    }

    #[test]
    fn a_class_that_is_not_known_promises_nothing() {
        let epochs = RemoteEpochs::new(&moment("a"));
        assert_eq!(epochs.class(), Class::S);
        epochs.admits(&epochs.ticket(), &StoreMoment { class: "Z".into(), epoch: "a".into() });
        assert_eq!(epochs.class(), Class::B);
    }
}
