//! How the renewals of a session go: for people to see. Nothing is decided by it.

/// The renewals of a session so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RenewalStats {
    /// How many were acknowledged since the session was opened.
    pub renewed: u64,
    /// Why the last one was not, if it was not.
    pub trouble: Option<String>,
}

impl RenewalStats {
    pub(super) fn beats(&mut self) {
        self.renewed += 1;
        self.trouble = None;
    }

    pub(super) fn fails(&mut self, why: impl Into<String>) {
        self.trouble = Some(why.into());
    }
}
