//! Floors: from when on the past is complete.
//!
//! The past is kept for a while only. Before a line goes, a floor is raised above its slot, and that is
//! durable first: every slot at or after the floor has its line, and of what lies below nobody can tell
//! whether it was ever there. So an account is never surprised by what is missing, wherever a process died.
//!
//! ```text
//! shard/<n>/floor/all        [`ShardFloor`]: what is too old, or was too much for the store
//! shard/<n>/floor/<bucket>   [`BucketFloor`]: triggers that have more lines than are kept of one
//! ```
//!
//! A floor only rises. Whoever reads lines reads the floors after them: what was gone by then lies below.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::id::{SerialId, ShardId};
use crate::instant::Instant;
use crate::limits::HISTORY_FLOORS_MAX;
use crate::record::{Format, RecordError, decode, encode};

use super::page::Bucket;

const FORMAT: Format = Format(1);

/// What holds for all triggers of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardFloor {
    /// Lines about slots before this may be gone.
    pub before: Instant,
    /// The index of exceptions has all that is in pages: those of older versions were looked through.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub indexed: bool,
}

impl Default for ShardFloor {
    fn default() -> Self {
        Self { before: Instant::FIRST, indexed: false }
    }
}

/// What holds for the triggers of a bucket besides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketFloor {
    /// Lines of any of them about slots before this may be gone.
    pub before: Instant,
    /// Lines of these about slots before that may be gone.
    #[serde(with = "by_trigger", default, skip_serializing_if = "BTreeMap::is_empty")]
    pub triggers: BTreeMap<SerialId, Instant>,
}

impl Default for BucketFloor {
    fn default() -> Self {
        Self { before: Instant::FIRST, triggers: BTreeMap::new() }
    }
}

/// Where the floors of a shard are.
pub fn floors(shard: ShardId) -> String {
    format!("shard/{shard}/floor/")
}

/// Where the floor of a whole shard is.
pub fn floor_key(shard: ShardId) -> String {
    format!("shard/{shard}/floor/all")
}

/// Where the floors of a bucket are.
pub fn floor_key_of(shard: ShardId, bucket: Bucket) -> String {
    format!("{}{bucket}", floors(shard))
}

impl ShardFloor {
    /// The floor as it is stored.
    pub fn to_bytes(&self) -> Vec<u8> {
        encode(FORMAT, self)
    }

    /// Reads a floor as it was stored.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RecordError> {
        decode(bytes, FORMAT)
    }
}

impl BucketFloor {
    /// The floor as it is stored.
    pub fn to_bytes(&self) -> Vec<u8> {
        encode(FORMAT, self)
    }

    /// Reads a floor as it was stored.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RecordError> {
        decode(bytes, FORMAT)
    }

    /// The floor of a trigger, that of the shard not counted.
    pub fn of(&self, trigger: SerialId) -> Instant {
        self.triggers.get(&trigger).copied().unwrap_or(self.before).max(self.before)
    }

    /// Lines of a trigger about slots before this are to go.
    pub fn raise(&mut self, trigger: SerialId, floor: Instant) {
        if floor > self.of(trigger) {
            self.triggers.insert(trigger, floor);
        }
    }

    /// Leaves out what says nothing, since the shard's floor is higher; and if there are still too many, the
    /// lowest ones stand for all.
    pub fn tidy(&mut self, shard: ShardFloor) {
        self.triggers.retain(|_, floor| *floor > shard.before && *floor > self.before);
        while self.triggers.len() > HISTORY_FLOORS_MAX {
            let lowest = self.triggers.values().copied().min().unwrap_or(self.before);
            self.before = self.before.max(lowest);
            self.triggers.retain(|_, floor| *floor > lowest);
        }
    }
}

/// A map of triggers, by their serial as text.
mod by_trigger {
    use super::{BTreeMap, Deserialize, Instant, SerialId, Serialize};

    pub(super) fn serialize<S: serde::Serializer>(
        map: &BTreeMap<SerialId, Instant>,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        let map: BTreeMap<String, Instant> =
            map.iter().map(|(trigger, floor)| (trigger.to_string(), *floor)).collect();
        map.serialize(out)
    }

    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(
        from: D,
    ) -> Result<BTreeMap<SerialId, Instant>, D::Error> {
        let map = BTreeMap::<String, Instant>::deserialize(from)?;
        let read = |(trigger, floor): (String, Instant)| Ok((trigger.parse()?, floor));
        map.into_iter()
            .map(read)
            .collect::<Result<_, crate::id::BadId>>()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_floor_only_rises_and_comes_back_as_it_was() {
        let mut floor = BucketFloor::default();
        floor.raise(SerialId(1), Instant(10));
        floor.raise(SerialId(1), Instant(3));
        floor.raise(SerialId(2), Instant(4));
        assert_eq!((floor.of(SerialId(1)), floor.of(SerialId(3))), (Instant(10), Instant::FIRST));
        assert_eq!(BucketFloor::from_bytes(&floor.to_bytes()), Ok(floor.clone()));
        floor.tidy(ShardFloor { before: Instant(5), indexed: true });
        assert_eq!(floor.triggers.len(), 1, "the shard's says as much about the second");
        let shard = ShardFloor { before: Instant(7), indexed: true };
        assert_eq!(ShardFloor::from_bytes(&shard.to_bytes()), Ok(shard));
    }

    #[test]
    fn floors_fit_at_the_limit_and_stand_for_all_one_past_it() {
        let mut floor = BucketFloor::default();
        let most = u64::try_from(HISTORY_FLOORS_MAX).unwrap();
        for number in 1..=most {
            floor.raise(SerialId(number), Instant(i64::try_from(number).unwrap()));
        }
        let whole = floor.clone();
        floor.tidy(ShardFloor::default());
        assert_eq!(floor, whole, "at the limit");
        floor.raise(SerialId(most + 1), Instant(1_000_000));
        floor.tidy(ShardFloor::default());
        assert_eq!((floor.triggers.len(), floor.before), (HISTORY_FLOORS_MAX, Instant(1)));
        assert!(whole.triggers.keys().all(|trigger| floor.of(*trigger) >= whole.of(*trigger)));
    }
}
