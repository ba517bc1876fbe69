//! What a candidate saw and did: for people to see. Nothing is decided by it.

use std::sync::Arc;

use tokio::sync::watch;

use super::ClaimStanding;
use crate::claim::{ClaimError, Head};
use crate::session::SessionKey;

/// The looks and tries of one candidacy so far, also while it has the claim.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CandidateActivity {
    /// How often the claim was read.
    pub looks: u64,
    /// How often it tried to take the claim, also without success.
    pub takes: u64,
    /// How often such a try was refused by the store or not answered.
    pub failures: u64,
    /// What the last failure was.
    pub trouble: Option<String>,
    /// Who had the claim at the last look.
    pub standing: Option<ClaimStanding>,
}

/// The writing end of a candidacy's activity. Clones share it.
#[derive(Clone, Default)]
pub(super) struct ActivityLog(Arc<watch::Sender<CandidateActivity>>);

impl ActivityLog {
    pub(super) fn follow(&self) -> watch::Receiver<CandidateActivity> {
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

    pub(super) fn fails(&self, why: &ClaimError) {
        self.0.send_modify(|log| {
            log.failures += 1;
            log.trouble = Some(why.to_string());
        });
    }
}
