//! The audit: who changed what, when, from where.
//!
//! A line of it is written in the same commit as the change that it tells of; so there is no change without a line
//! and no line without a change. Lines are never changed, and go when they are too old.
//!
//! ```text
//! audit/<reverse time>.<random>     [`AuditRecord`], newest first
//! ```

use std::net::IpAddr;

use engine::id::ProjectId;
use engine::instant::Instant;
use serde::{Deserialize, Serialize};
use store::machine::Machine;
use store::{Key, Range, Store};

use super::book::{BookError, record, value};
use super::key::KeyId;

/// Below this are all lines.
pub(crate) const AUDIT: &str = "audit/";

/// One change that somebody made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRecord {
    /// When the change was made.
    pub at: Instant,
    /// What was done.
    pub action: String,
    /// What was changed.
    pub object: String,
    /// In which project; none, for what concerns all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<ProjectId>,
    /// The name of the key by which it was changed.
    pub author: String,
    /// By which key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyId>,
    /// From which address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// The server that passed the request on, by its own word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<String>,
    /// In which request.
    pub request_id: String,
}

impl AuditRecord {
    /// Its key in the store, and its value.
    pub fn entry(&self, machine: &dyn Machine) -> (String, Vec<u8>) {
        (format!("{}.{:016x}", place(machine.wall_us()), machine.random()), value(self))
    }
}

/// Where lines of this microsecond begin.
fn place(at_us: u64) -> String {
    format!("{AUDIT}{:016x}", u64::MAX - at_us)
}

/// When the last line was written.
pub(crate) async fn newest(store: &Store) -> Result<Option<Instant>, BookError> {
    let page = store.scan(Range::prefix(AUDIT), 1).await?;
    let line: Option<AuditRecord> = page.entries.first().map(record).transpose()?;
    Ok(line.map(|line| line.at))
}

/// Lines of this instant, and older ones.
pub(crate) fn until(at: Instant) -> Range {
    let last_us = at.0.max(0).unsigned_abs().saturating_mul(1_000).saturating_add(999);
    let first = Key::new(place(last_us)).expect("digits");
    let end = Key::new(format!("{AUDIT}~")).expect("short");
    Range::between(&first, &end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_lines_come_first() {
        assert!(place(2) < place(1));
        assert!(place(1).as_str() < "audit/~");
    }
}
