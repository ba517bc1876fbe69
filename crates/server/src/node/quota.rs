//! Quotas: whether a project may have what a command gives it.
//!
//! A project's limits are about all that it has, in whichever shard. The shards of this node know what they hold; runs
//! that are asked for are counted here, minute by minute; what it has in shards of other servers, those write down:
//! [`crate::shard_usage`].

use std::collections::{BTreeMap, BTreeSet, HashMap};

use engine::id::{ProjectId, ShardId};
use engine::shard::command::{Command, Rejection};
use engine::shard::{Now, Quota, Usage};

use super::core::Owned;
use crate::shard_usage::{ProjectUsage, ShardUsage, UsageByShard};

#[derive(Default)]
pub(super) struct QuotaLedger {
    /// Runs that were asked for in a minute, by projects whose runs are limited.
    asked: HashMap<(ProjectId, ShardId), (u64, u64)>,
    /// What projects have in shards that are not run here.
    elsewhere: HashMap<ProjectId, Vec<ProjectUsage>>,
}

impl QuotaLedger {
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
        let minute = minute(now);
        let mut elsewhere = Usage::default();
        for share in self.elsewhere.get(&project).into_iter().flatten() {
            elsewhere += share.usage(minute);
        }
        for (id, owned) in shards {
            let asked = self.asked_of(project, *id, minute);
            elsewhere += Usage { fires_per_minute: asked, ..Usage::default() };
            if *id != shard {
                elsewhere += owned.shard.usage(project);
            }
        }
        quota.check(elsewhere + here, elsewhere + then)?;
        if matches!(command, Command::Run { .. } | Command::Backfill { .. }) {
            let more = then.fires_per_minute - here.fires_per_minute;
            let asked = self.asked_of(project, shard, minute).saturating_add(more);
            self.asked.retain(|_, asked| asked.0 == minute);
            self.asked.insert((project, shard), (minute, asked));
        }
        Ok(())
    }

    fn asked_of(&self, project: ProjectId, shard: ShardId, minute: u64) -> u64 {
        self.asked
            .get(&(project, shard))
            .filter(|asked| asked.0 == minute)
            .map_or(0, |asked| asked.1)
    }

    /// Learns what was written of all shards, and returns the right records of shards run here whose record is wrong.
    pub(super) fn compare_usage(
        &mut self,
        shards: &BTreeMap<ShardId, Owned>,
        found: &UsageByShard,
        limited: &BTreeSet<ProjectId>,
        now: Now,
    ) -> Vec<(ShardId, ShardUsage)> {
        self.elsewhere.clear();
        for (_, usage) in found.iter().filter(|(shard, _)| !shards.contains_key(shard)) {
            for (project, share) in &usage.projects {
                self.elsewhere.entry(ProjectId(*project)).or_default().push(*share);
            }
        }
        let minute = minute(now);
        for (shard, usage) in found.iter().filter(|(shard, _)| shards.contains_key(shard)) {
            // Runs that were asked of the shard's former owner count as well.
            for (project, share) in
                usage.projects.iter().filter(|(_, share)| share.minute == minute)
            {
                let asked = self.asked.entry((ProjectId(*project), *shard)).or_default();
                let known = if asked.0 == minute { asked.1 } else { 0 };
                *asked = (minute, known.max(share.asked));
            }
        }
        let usages = shards.iter().map(|(id, owned)| {
            let has = limited.iter().map(|project| {
                let asked = self.asked_of(*project, *id, minute);
                (project.0, ProjectUsage::new(owned.shard.usage(*project), minute, asked))
            });
            let projects = has.filter(|(_, share)| *share != ProjectUsage::default()).collect();
            (*id, ShardUsage { projects })
        });
        usages.filter(|(id, usage)| *usage != found.get(id).cloned().unwrap_or_default()).collect()
    }
}

fn minute(now: Now) -> u64 {
    now.wall.0.max(0).unsigned_abs() / 60_000
}
