//! What somebody was notified of in an election, kept beside its head.
//!
//! So a server that starts while a holder waits, or that comes after one which died before it told, notifies of what is still
//! so and nobody was notified of; and one that comes after a server that did tell says nothing.

use std::collections::BTreeMap;

use engine::hold::record::RiskReason;
use engine::record::{Format, decode, encode};
use serde::{Deserialize, Serialize};
use store::{Key, Value};

const FORMAT: Format = Format(1);

/// Behind the key of a head.
const BESIDE: &str = "notified";

/// What somebody was notified of.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Notified {
    /// The token under which a holder waited for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) waiting: Option<u64>,
    /// How often each assumption of the hold had been seen broken.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) risks: BTreeMap<RiskReason, u64>,
}

impl Notified {
    /// The election, `project/name`, that lies beside this, if it is such a key; without what all elections lie below.
    pub(super) fn beside(key: &str) -> Option<&str> {
        let (election, beside) = key.rsplit_once('/')?;
        (beside == BESIDE && election.split('/').count() == 2).then_some(election)
    }

    /// Where it is kept for this election below this prefix; nowhere, if somebody has given it too long a name.
    pub(super) fn key(elections: &str, election: &str) -> Option<Key> {
        Key::new(format!("{elections}{election}/{BESIDE}")).ok()
    }

    pub(super) fn to_value(&self) -> Value {
        encode(FORMAT, self).into()
    }

    /// What was kept; nothing, if that cannot be read: then somebody is notified once more.
    pub(super) fn from_value(value: &Value) -> Self {
        decode(value.as_bytes(), FORMAT).unwrap_or_default()
    }

    /// Adds what was kept: by another server, perhaps.
    pub(super) fn join(&mut self, kept: &Self) {
        // Tokens grow, and so do counts.
        self.waiting = self.waiting.max(kept.waiting);
        for (reason, count) in &kept.risks {
            let known = self.risks.entry(*reason).or_default();
            *known = (*known).max(*count);
        }
    }

    /// How often this assumption had been seen broken when somebody was notified last.
    pub(super) fn count(&self, reason: RiskReason) -> u64 {
        self.risks.get(&reason).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use engine::limits::KEY_BYTES_MAX;

    use super::*;

    #[test]
    fn it_is_read_as_it_was_written_and_rubbish_is_nothing() {
        let told = Notified { waiting: Some(7), risks: [(RiskReason::SlowKill, 2)].into() };
        assert_eq!(
            String::from_utf8_lossy(told.to_value().as_bytes()),
            r#"{"format":1,"waiting":7,"risks":{"slow_kill":2}}"#
        );
        assert_eq!(Notified::from_value(&told.to_value()), told);
        assert_eq!(Notified::from_value(&"rubbish".into()), Notified::default());
    }

    #[test]
    fn its_key_lies_beside_a_head_and_no_other_key_is_one() {
        let key = Notified::key("election/", "shop/nightly").unwrap();
        assert_eq!(key.as_str(), "election/shop/nightly/notified");
        assert_eq!(Notified::key("election/", &"n".repeat(KEY_BYTES_MAX)), None);
        let beside = |key| Notified::beside(key);
        assert_eq!(beside("shop/nightly/notified"), Some("shop/nightly"));
        for other in ["shop/notified", "shop/nightly/wish", "a/b/c/notified", "notified"] {
            assert_eq!(beside(other), None, "{other}");
        }
    }
}
