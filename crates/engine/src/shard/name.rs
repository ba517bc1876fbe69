//! Names of triggers that live in another shard than that of their name.
//!
//! A name's home is the shard that it hashes to, and most triggers live there: that shard alone sees to it that a name is
//! there once. A trigger that feeds a queue lives where the queue does. So before it is made, its name is reserved: the home
//! remembers for which shard, and makes no trigger of that name itself nor lets another shard make one. The shard for which
//! it is reserved sees to the rest.
//!
//! Reserving and making are two commits, and so are deleting and releasing. What dies in between leaves a reservation
//! without a trigger. That hurts nobody who makes the same trigger again. Whoever else wants the name looks whether there is
//! a trigger, and has the reservation released. A young one is not: somebody may be about to make the trigger, which is
//! refused long before the reservation is old. Once an hour the home releases what nobody wants either.

use std::collections::BTreeMap;

use crate::id::{ProjectId, ShardId};
use crate::limits::{NAME_RESERVED_MIN, NAMES_RESERVED_PER_PROJECT_MAX, TRIGGERS_PER_SHARD_MAX};

use super::command::{Done, Rejection};
use super::memory::Delta;
use super::record::ReservedName;
use super::{Now, Shard, Unit};

/// Names that are reserved for triggers of other shards.
#[derive(Default)]
pub(super) struct ReservedNames {
    by_name: BTreeMap<(ProjectId, Box<str>), ReservedName>,
    /// How many each project has.
    counts: BTreeMap<ProjectId, usize>,
}

impl ReservedNames {
    pub(super) fn get(&self, project: ProjectId, name: &str) -> Option<ReservedName> {
        self.by_name.get(&(project, name.into())).copied()
    }

    /// What [`super::memory::apply`] does.
    pub(super) fn set(&mut self, project: ProjectId, name: &str, reserved: Option<ReservedName>) {
        let key = (project, name.into());
        let count = self.counts.entry(project).or_default();
        match reserved {
            Some(reserved) => {
                *count += usize::from(self.by_name.insert(key, reserved).is_none());
            }
            None => *count -= usize::from(self.by_name.remove(&key).is_some()),
        }
        if *count == 0 {
            self.counts.remove(&project);
        }
    }

    /// Whether a project may have one more.
    fn check_room(&self, project: ProjectId) -> Result<(), Rejection> {
        if self.counts.get(&project).is_some_and(|count| *count >= NAMES_RESERVED_PER_PROJECT_MAX) {
            return Err(Rejection::TooManyNames);
        }
        if self.by_name.len() >= TRIGGERS_PER_SHARD_MAX {
            return Err(Rejection::TooManyTriggers);
        }
        Ok(())
    }
}

impl Shard {
    /// Reserves a name, whose home this shard is, for a trigger of another shard.
    pub(super) fn reserve_name(
        &mut self,
        project: ProjectId,
        name: Box<str>,
        shard: ShardId,
        now: Now,
    ) -> Result<Done, Rejection> {
        if let Some(taken) = self.triggers.named(project, &name) {
            return Err(Rejection::NameTaken(self.id_of(taken)));
        }
        match self.triggers.reserved.get(project, &name) {
            Some(ReservedName { shard: other, at }) if other != shard => {
                return Err(Rejection::NameReserved { at });
            }
            // Whoever reserves it again has its own time to make the trigger.
            Some(_) => {}
            None => self.triggers.reserved.check_room(project)?,
        }
        let reserved = ReservedName { shard, at: now.wall };
        self.enact(Unit::of(vec![Delta::Reserved(project, name, Some(reserved))]).by(now.wall));
        Ok(Done::NameReserved)
    }

    /// Releases a name that no trigger has, unless it was reserved just now.
    pub(super) fn release_name(&mut self, project: ProjectId, name: Box<str>, now: Now) -> Done {
        let reserved = self.triggers.reserved.get(project, &name);
        if reserved.is_none_or(|reserved| now.wall < reserved.at.after(NAME_RESERVED_MIN)) {
            return Done::Unchanged;
        }
        self.enact(Unit::of(vec![Delta::Reserved(project, name, None)]).by(now.wall));
        Done::NameReleased
    }
}
