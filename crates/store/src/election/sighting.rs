//! What a candidate saw and did, for those who show it to people.

use std::sync::Arc;

use tokio::sync::watch;

use super::Standing;
use crate::claim::{Head, TakeError};
use crate::session::SessionKey;

/// The looks and tries of one candidacy so far, those of its holder included.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sighting {
    /// How often the claim was read.
    pub looks: u64,
    /// How often it was tried to take it, also without success.
    pub takes: u64,
    /// How often the store took no such try, or said nothing to it, and why the last time.
    pub failures: u64,
    /// What the last failure was.
    pub trouble: Option<String>,
    /// Who had it at the last look.
    pub standing: Option<Standing>,
}

/// The writing end. Clones write in the same one.
#[derive(Clone)]
pub(super) struct Log(Arc<watch::Sender<Sighting>>);

impl Default for Log {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(Sighting::default())))
    }
}

impl Log {
    pub(super) fn follow(&self) -> watch::Receiver<Sighting> {
        self.0.subscribe()
    }

    pub(super) fn sees(&self, head: &Head) {
        self.0.send_modify(|log| {
            log.looks += 1;
            log.standing = Some(head.into());
        });
    }

    /// Who had it at the last look.
    pub(super) fn holder(&self) -> Option<SessionKey> {
        self.0.borrow().standing.as_ref()?.holder.clone()
    }

    pub(super) fn takes(&self) {
        self.0.send_modify(|log| log.takes += 1);
    }

    pub(super) fn fails(&self, why: &TakeError) {
        self.0.send_modify(|log| {
            log.failures += 1;
            log.trouble = Some(why.to_string());
        });
    }
}
