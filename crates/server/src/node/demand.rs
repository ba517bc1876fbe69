//! What projects want, and whether they may have it.
//!
//! A project's limits are about all that it has, in whichever shard. The shards of this node know what they hold; runs
//! that are asked for are counted here, minute by minute.

use std::collections::{BTreeMap, HashMap};

use engine::id::{ProjectId, ShardId};
use engine::shard::command::{Command, Rejection};
use engine::shard::{Now, Quota, Usage};

use super::core::Owned;

/// Runs that were asked for in this minute, by projects whose runs are limited.
#[derive(Default)]
pub(super) struct Demand(HashMap<ProjectId, (i64, u64)>);

impl Demand {
    /// Whether a project may have what a command to a shard gives it. If so, it has asked for it.
    pub(super) fn check(
        &mut self,
        shards: &BTreeMap<ShardId, Owned>,
        (shard, project): (ShardId, ProjectId),
        quota: Quota,
        command: &Command,
        now: Now,
    ) -> Result<(), Rejection> {
        let owned = shards.get(&shard);
        let Some((here, then)) = owned.and_then(|owned| owned.shard.usage_after(project, command))
        else {
            return Ok(());
        };
        let minute = now.wall.0.div_euclid(60_000);
        let asked = self.0.get(&project).filter(|asked| asked.0 == minute);
        let asked = asked.map_or(0, |asked| asked.1);
        let mut elsewhere = Usage { fires_per_minute: asked, ..Usage::default() };
        for (_, owned) in shards.iter().filter(|(id, _)| **id != shard) {
            elsewhere += owned.shard.usage(project);
        }
        quota.check(elsewhere + here, elsewhere + then)?;
        if matches!(command, Command::Run { .. } | Command::Backfill { .. }) {
            let more = then.fires_per_minute - here.fires_per_minute;
            self.0.retain(|_, asked| asked.0 == minute);
            self.0.insert(project, (minute, asked + more));
        }
        Ok(())
    }
}
