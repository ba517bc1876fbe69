//! What a cluster is: an id and a number of shards, both fixed when it first starts.

use engine::limits::SHARDS_MAX;
use engine::record::{Format, decode, encode};
use serde::{Deserialize, Serialize};

use crate::{Key, ScanError, Store, Value};

const FORMAT: Format = Format(1);
const KEY: &str = "cluster/about";

/// What never changes. A backup carries it over, so that runs keep their ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterIdentity {
    /// Tells it from all others.
    pub id: u64,
    /// How many shards it has.
    pub shards: u16,
}

impl ClusterIdentity {
    /// The key of this record.
    pub fn key() -> Key {
        Key::new(KEY).expect("a short key")
    }

    /// The cluster that lives in this store, if one does.
    pub async fn read(store: &Store) -> Result<Option<Self>, ScanError> {
        let Some(entry) = store.get(&Self::key()).await? else { return Ok(None) };
        Self::from_value(&entry.value).map(Some).map_err(ScanError::Corrupt)
    }

    /// The record as it is stored.
    pub fn to_value(self) -> Value {
        encode(FORMAT, &self).into()
    }

    /// As it was stored; or why it cannot be that.
    pub fn from_value(value: &Value) -> Result<Self, String> {
        let found: Self =
            decode(value.as_bytes(), FORMAT).map_err(|why| format!("{KEY}: {why}"))?;
        if (1..=SHARDS_MAX).contains(&found.shards) {
            Ok(found)
        } else {
            Err(format!("{KEY}: {} shards are none", found.shards))
        }
    }
}
