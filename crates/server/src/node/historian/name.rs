//! Names that are reserved for triggers which are not there.
//!
//! A trigger that feeds a queue away from its name's home has its name reserved there (`engine/src/shard/name.rs`). If nobody
//! releases the name with the trigger, because whoever did something died in between, or because the trigger ended long ago
//! and its shard deleted it by itself, it would be kept for ever. So the home looks at what it keeps, once an hour.

use std::time::Duration;

use engine::id::{ProjectId, ShardId};
use engine::limits::NAME_RESERVED_MIN;
use engine::record::decode;
use engine::shard::command::Command;
use engine::shard::record::{
    FORMAT, NameRecord, ReservedName, name_key, reserved, reserved_at, trigger_key,
};
use store::{Entry, Range, ScanError};

use super::{Historian, ShardNotes, Visited, key};
use crate::handle::CallError;

/// Reserved names that are looked at before others have their turn.
const NAMES_LEN: usize = 64;

/// How often names are looked at.
const NAMES_EVERY: Duration = Duration::from_secs(3_600);

/// How far the reserved names of a shard were looked at.
#[derive(Default)]
pub(super) struct NameSweep {
    /// When the last look began.
    begun: Option<Duration>,
    rest: Option<Range>,
}

impl Historian {
    /// Releases names that no trigger has, some at each look until all were looked at.
    pub(super) async fn release_names(&self, shard: ShardId, notes: &mut ShardNotes) -> Visited {
        let steady = self.machine.reading().boot;
        let sweep = &mut notes.names;
        let is_due = sweep.begun.is_none_or(|last| steady.saturating_sub(last) >= NAMES_EVERY);
        if sweep.rest.is_none() && is_due {
            (sweep.begun, sweep.rest) = (Some(steady), Some(Range::prefix(&reserved(shard))));
        }
        let Some(range) = sweep.rest.take() else { return Ok(()) };
        let page = self.handle.store().scan(range, NAMES_LEN).await?;
        for entry in &page.entries {
            let Some((project, name)) = self.old_reservation(shard, entry) else { continue };
            if self.is_name_in_use(project, name).await? {
                continue;
            }
            let command = Command::ReleaseName { project, name: name.into() };
            match self.handle.command::<()>(shard, command).await {
                Ok(()) => tracing::info!(%shard, name, "released a name that no trigger has"),
                // Another time: the store takes nothing at the moment.
                Err(CallError::Refused(_) | CallError::Unwritten(_)) => {}
                Err(why) => return Err(why.into()),
            }
        }
        notes.names.rest = page.next;
        Ok(())
    }

    /// The name that a record reserves, unless somebody may be about to make the trigger.
    fn old_reservation<'a>(
        &self,
        shard: ShardId,
        entry: &'a Entry,
    ) -> Option<(ProjectId, &'a str)> {
        let record: ReservedName = decode(entry.value.as_bytes(), FORMAT).ok()?;
        let is_old = record.at.after(NAME_RESERVED_MIN) <= self.handle.now();
        reserved_at(shard, entry.key.as_str()).filter(|_| is_old)
    }

    /// Whether there is a trigger of this name. What cannot be read is in use.
    async fn is_name_in_use(&self, project: ProjectId, name: &str) -> Result<bool, ScanError> {
        let store = self.handle.store();
        let Some(entry) = store.get(&key(name_key(project, name))).await? else {
            return Ok(false);
        };
        let Ok(NameRecord { id }) = decode(entry.value.as_bytes(), FORMAT) else {
            return Ok(true);
        };
        Ok(store.get(&key(trigger_key(id.shard, id.serial))).await?.is_some())
    }
}
