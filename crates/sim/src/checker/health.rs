//! How a process is, as only the checker knows.

use store::Key;

use crate::clock::TrueTime;

/// How a process is.
#[derive(Debug, Clone)]
pub(super) struct Health {
    /// How many things are wrong with it.
    pub(super) ills: u32,
    /// How many of them keep it from renewing at all.
    silences: u32,
    pub(super) well_since: TrueTime,
    pub(super) silent_since: Option<TrueTime>,
    /// Since when it is a candidate that could take a claim.
    pub(super) candidate_since: Option<TrueTime>,
    /// The session that it lives in; others that it made are nobody's.
    pub(super) session: Option<Key>,
    pub(super) killed: bool,
}

/// What is wrong with a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ailment {
    /// It may be slow or miss something.
    Weak,
    /// It cannot renew.
    Silent,
}

impl Health {
    /// It has just begun, and is well.
    pub(super) fn new(now: TrueTime) -> Self {
        Self {
            ills: 0,
            silences: 0,
            well_since: now,
            silent_since: None,
            candidate_since: None,
            session: None,
            killed: false,
        }
    }

    pub(super) fn dies(&mut self, now: TrueTime) {
        self.killed = true;
        self.candidate_since = None;
        self.silent_since.get_or_insert(now);
    }

    pub(super) fn ails(&mut self, ill: Ailment, now: TrueTime) {
        self.ills += 1;
        if ill == Ailment::Silent {
            self.silences += 1;
            self.silent_since.get_or_insert(now);
        }
    }

    pub(super) fn recovers(&mut self, ill: Ailment, now: TrueTime) {
        self.ills -= 1;
        self.well_since = now;
        if ill == Ailment::Silent {
            self.silences -= 1;
            if self.silences == 0 && !self.killed {
                self.silent_since = None;
            }
        }
    }
}
