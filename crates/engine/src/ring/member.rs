//! Members: who belongs to a ring, and who vouches for it.
//!
//! A member raises the number of its *visit* whenever it joins anew. Messages may come late and in any order, so a greater visit
//! wins and an older one is refused. Whoever is gone leaves a mark for a while, and nothing of its visit brings it back.

use serde::{Deserialize, Serialize};

/// The number of a visit: greater with each time that a member joins anew.
pub type Visit = u64;

/// What is stored of a member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberRecord {
    /// The session that vouches for it: that of a server, or its own. None once it is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The session is its own: it is gone when that is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub own: bool,
    /// Its visit.
    pub visit: Visit,
    /// When it was written, by the clock of whoever wrote it, in milliseconds since 1970: for people.
    #[serde(default)]
    pub since_ms: i64,
}

impl MemberRecord {
    /// Whether the record knows of a later visit than this one, or that this one is over.
    pub fn is_newer_than(&self, visit: Visit) -> bool {
        self.visit > visit || self.session.is_none() && self.visit == visit
    }

    /// The mark of a member that is gone.
    #[must_use]
    pub fn mark(visit: Visit, now_ms: i64) -> Self {
        Self { session: None, own: false, visit, since_ms: now_ms }
    }
}

/// The visit of a member that joins anew and knows of none: greater than the one that is known, and than all that were forgotten.
pub fn next_visit(known: Option<Visit>, wall_us: u64) -> Visit {
    wall_us.max(known.map_or(1, |known| known.saturating_add(1)))
}
