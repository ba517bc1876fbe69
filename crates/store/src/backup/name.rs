//! Names of triggers that live in another shard than that of their name.
//!
//! Shards of a backup are of different moments, and a name is kept by two of them: the one that the trigger lives in, and its
//! home, which reserves it. If the home was read before the name was reserved, the reservation is made anew at restore; if it
//! has a trigger of that name, two triggers would have it, and such a backup is refused.

use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, RandomState};

use engine::id::{ProjectId, ShardId};
use engine::shard::record::{ReservedName, TriggerRecord, reserved_at, reserved_key};

use super::BackupHeader;
use super::content::Flaw;
use crate::Key;

type TriggerName = (ProjectId, Box<str>);

/// The names that were read so far.
#[derive(Default)]
pub(super) struct NamesMoment {
    /// Those of triggers that live at home, as numbers that nobody can foresee: there may be millions.
    at_home: HashSet<u64>,
    numbers: RandomState,
    /// Those of other triggers, and where these live.
    away: BTreeMap<TriggerName, ShardId>,
    /// For which shard names are reserved.
    reserved: BTreeMap<TriggerName, ShardId>,
}

/// A name whose home does not know for which shard it is to be reserved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UnreservedName {
    /// Where the reservation belongs.
    pub(super) key: Key,
    /// The shard that the trigger lives in.
    pub(super) shard: ShardId,
}

impl NamesMoment {
    pub(super) fn trigger(
        &mut self,
        header: &BackupHeader,
        record: &TriggerRecord,
        name: &str,
    ) -> Result<(), Flaw> {
        let (project, shard) = (record.id.project, record.id.shard);
        if ShardId::of(project, name, header.shards) == shard {
            self.at_home.insert(self.number(project, name));
            return Ok(());
        }
        match self.away.insert((project, name.into()), shard) {
            None => Ok(()),
            Some(other) => Err(twice(name, other, shard)),
        }
    }

    pub(super) fn reserved(&mut self, home: ShardId, key: &Key, record: ReservedName) {
        if let Some((project, name)) = reserved_at(home, key.as_str()) {
            self.reserved.insert((project, name.into()), record.shard);
        }
    }

    fn number(&self, project: ProjectId, name: &str) -> u64 {
        self.numbers.hash_one((project.0, name))
    }

    /// All shards were read: the names that are to be reserved.
    pub(super) fn finish(&self, header: &BackupHeader) -> Result<Vec<UnreservedName>, Flaw> {
        let mut unreserved = Vec::new();
        for ((project, name), shard) in &self.away {
            let home = ShardId::of(*project, name, header.shards);
            if self.at_home.contains(&self.number(*project, name)) {
                return Err(twice(name, home, *shard));
            }
            if self.reserved.get(&(*project, name.clone())) != Some(shard) {
                let key = Key::new(reserved_key(home, *project, name));
                let key = key.map_err(|why| Flaw::Wrong(why.to_string()))?;
                unreserved.push(UnreservedName { key, shard: *shard });
            }
        }
        Ok(unreserved)
    }
}

fn twice(name: &str, one: ShardId, other: ShardId) -> Flaw {
    Flaw::Wrong(format!(
        "there is a trigger {name} in shard {one} and in shard {other}: it was made anew while the backup was taken"
    ))
}
