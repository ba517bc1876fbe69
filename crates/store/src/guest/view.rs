//! What of a store is shown to somebody who comes through a server.

use engine::lease::Nonce;

use super::{Denied, SCRATCH, denied};
use crate::session::{Longest, SESSIONS, SessionKey, SessionRecord};
use crate::{Entry, Range, Value};

/// Whether somebody of this project may ask for a range.
pub fn may_scan(range: &Range, project: &str) -> Result<(), Denied> {
    if range.is_within(SESSIONS) || range.is_within(&format!("election/{project}/")) {
        return Ok(());
    }
    if range.is_within(SCRATCH) {
        return denied(
            "below scratch/ only an admin's key reads and writes: give one to check a store through a server",
        );
    }
    denied(format!(
        "through a server one reads sessions (node/…) and the elections of one's own project (election/{project}/…)"
    ))
}

/// An entry as it is shown to somebody of this project; nothing, if it is not.
///
/// A guest sees the sessions of its project. Of sessions that use the store directly, those of servers among them, it
/// sees that they exist, since one of them may have an election, and for which of its own project they campaign; but not their
/// URLs, nor what they do.
pub fn shown(entry: Entry, project: &str) -> Option<Entry> {
    if !entry.key.as_str().starts_with(SESSIONS) || entry.key == Longest::key() {
        return Some(entry);
    }
    let session = SessionKey::try_from(&entry.key).ok()?;
    match session.guest() {
        Some(of) => (of == project).then_some(entry),
        None => Some(Entry { value: outline(&entry.value, project), ..entry }),
    }
}

/// What everybody of a project may know of a session.
fn outline(value: &Value, project: &str) -> Value {
    let Ok(record) = SessionRecord::from_value(value) else { return Value::default() };
    let SessionRecord { ttl_ms, reads, joining, mut candidacies, .. } = record;
    candidacies.retain(|one| one.split_once('/').is_some_and(|(of, _)| of == project));
    let bare = SessionRecord {
        url: None,
        roles: Vec::new(),
        ttl_ms,
        beat: 0,
        nonce: Nonce(0),
        wall_us: 0,
        reads,
        local: false,
        joining,
        key: None,
        draining: false,
        unable: Vec::new(),
        version: String::new(),
        candidacies,
    };
    bare.to_value()
}
