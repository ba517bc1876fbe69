//! What a cluster is: an id and a number of shards, both fixed when it first starts.

use engine::limits::{SHARDS_DEFAULT, SHARDS_MAX};
use engine::record::{Format, decode, encode};
use serde::{Deserialize, Serialize};
use store::machine::Machine;
use store::{Commit, CommitError, Condition, Key, Store};

use super::StartError;

const FORMAT: Format = Format(1);
const KEY: &str = "cluster/about";

/// What never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// Tells it from all others.
    pub id: u64,
    /// How many shards it has.
    pub shards: u16,
}

impl Cluster {
    /// The cluster that lives in this store; a new one, if there is none.
    pub(super) async fn found(store: &Store, machine: &dyn Machine) -> Result<Self, StartError> {
        let key = Key::new(KEY).expect("a short key");
        loop {
            if let Some(entry) = store.get(&key).await? {
                let bad = |why: String| StartError::Corrupt(format!("{KEY}: {why}"));
                let found: Self =
                    decode(entry.value.as_bytes(), FORMAT).map_err(|why| bad(why.to_string()))?;
                if !(1..=SHARDS_MAX).contains(&found.shards) {
                    return Err(bad(format!("{} shards are none", found.shards)));
                }
                return Ok(found);
            }
            let made = Self { id: machine.random(), shards: SHARDS_DEFAULT };
            let commit = Commit::new()
                .when(Condition::Absent(key.clone()))
                .put(key.clone(), encode(FORMAT, &made));
            match store.commit(commit).await {
                // Whoever made it, it is read again: that is the one that counts.
                Ok(_) | Err(CommitError::Conflict(_) | CommitError::Unknown(_)) => {}
                Err(why) => return Err(why.into()),
            }
        }
    }
}
