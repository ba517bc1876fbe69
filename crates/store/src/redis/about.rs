//! What is known about the Redis that answers, learnt anew with every connection, every answer and now and then.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use super::epoch::Epochs;
use super::script::{Answer, Outcome};
use super::setting::Setting;
use crate::Class;

/// What is known about the server that answers.
pub(super) struct About {
    pub(super) epochs: Epochs,
    setting: RwLock<Setting>,
    replicas: AtomicU64,
    pub(super) may_listen: AtomicBool,
}

impl About {
    pub(super) fn new(setting: Setting) -> Self {
        Self {
            epochs: Epochs::new(setting.epoch.clone()),
            replicas: AtomicU64::new(setting.replicas),
            setting: RwLock::new(setting),
            may_listen: AtomicBool::new(true),
        }
    }

    /// Whether an answer counts. Learns what it says beside. A replica has no reign of its own, and says nothing about one.
    pub(super) fn admit(&self, answer: &Answer) -> bool {
        if answer.outcome == Outcome::Replica {
            return true;
        }
        let counts = self.epochs.admit(&answer.epoch);
        if counts && self.replicas.load(Ordering::Relaxed) != answer.replicas {
            self.replicas.store(answer.replicas, Ordering::Relaxed);
        }
        counts
    }

    /// Whether a server with this setting counts. Learns it.
    pub(super) fn found(&self, setting: &Setting) -> bool {
        if !self.epochs.admit(&setting.epoch) {
            return false;
        }
        self.replicas.store(setting.replicas, Ordering::Relaxed);
        *self.setting.write().unwrap_or_else(PoisonError::into_inner) = setting.clone();
        true
    }

    pub(super) fn class(&self) -> Class {
        if self.replicas.load(Ordering::Relaxed) > 0 {
            return Class::B;
        }
        self.setting.read().unwrap_or_else(PoisonError::into_inner).class_alone()
    }

    pub(super) fn room(&self) -> Option<u64> {
        self.setting.read().unwrap_or_else(PoisonError::into_inner).room
    }

    pub(super) fn facts(&self) -> Vec<(&'static str, String)> {
        let mut facts = self.setting.read().unwrap_or_else(PoisonError::into_inner).facts();
        facts.push(("replicas", self.replicas.load(Ordering::Relaxed).to_string()));
        if !self.may_listen.load(Ordering::Relaxed) {
            let text = "none: this user may not subscribe to the channel, so everybody looks once a second";
            facts.push(("hints", text.to_owned()));
        }
        facts
    }
}
