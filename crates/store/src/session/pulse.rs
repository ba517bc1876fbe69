//! How the renewals of a session go, for those who show it to people. Nothing is decided by it.

/// The renewals so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pulse {
    /// How many were acknowledged since the session was opened.
    pub renewed: u64,
    /// Why the last one was not, if it was not.
    pub trouble: Option<String>,
}

impl Pulse {
    pub(super) fn beats(&mut self) {
        self.renewed += 1;
        self.trouble = None;
    }

    pub(super) fn fails(&mut self, why: impl Into<String>) {
        self.trouble = Some(why.into());
    }
}
