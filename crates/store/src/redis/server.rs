//! What is known about the Redis that answers: from every new connection, from every answer, and from a look now and then.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::RwLock;

use super::epoch::RedisEpochs;
use super::script::{ScriptAnswer, ScriptOutcome};
use super::setting::RedisSettings;
use crate::Class;

/// What is known about the server that answers.
pub(super) struct RedisServer {
    pub(super) epochs: RedisEpochs,
    setting: RwLock<RedisSettings>,
    replicas: AtomicU64,
    pub(super) may_listen: AtomicBool,
}

impl RedisServer {
    pub(super) fn new(setting: RedisSettings) -> Self {
        Self {
            epochs: RedisEpochs::new(setting.epoch.clone()),
            replicas: AtomicU64::new(setting.replicas),
            setting: RwLock::new(setting),
            may_listen: AtomicBool::new(true),
        }
    }

    /// Whether an answer counts, by its epoch. Takes note of the number of replicas that it names. A replica's answer names no
    /// epoch of its own.
    pub(super) fn admit(&self, answer: &ScriptAnswer) -> bool {
        if answer.outcome == ScriptOutcome::Replica {
            return true;
        }
        let counts = self.epochs.admit(&answer.epoch);
        if counts && self.replicas.load(Ordering::Relaxed) != answer.replicas {
            self.replicas.store(answer.replicas, Ordering::Relaxed);
        }
        counts
    }

    /// Whether a server with these settings counts, by its epoch. Takes note of them if so.
    pub(super) fn found(&self, setting: &RedisSettings) -> bool {
        if !self.epochs.admit(&setting.epoch) {
            return false;
        }
        self.replicas.store(setting.replicas, Ordering::Relaxed);
        *self.setting.write() = setting.clone();
        true
    }

    pub(super) fn class(&self) -> Class {
        if self.replicas.load(Ordering::Relaxed) > 0 {
            return Class::B;
        }
        self.setting.read().class_alone()
    }

    pub(super) fn room(&self) -> Option<u64> {
        self.setting.read().room
    }

    pub(super) fn facts(&self) -> Vec<(&'static str, String)> {
        let mut facts = self.setting.read().facts();
        facts.push(("replicas", self.replicas.load(Ordering::Relaxed).to_string()));
        if !self.may_listen.load(Ordering::Relaxed) {
            let text = "none: this user may not subscribe to the channel, so everybody looks once a second";
            facts.push(("hints", text.to_owned()));
        }
        facts
    }
}
