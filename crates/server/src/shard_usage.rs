//! What projects that are limited have in each shard, for the servers that do not have it.
//!
//! A limit is about all that a project has, and every server knows the shards that it runs. So each of them writes down
//! what limited projects have in these, reads what the others have written, and counts both. It does so every second, and
//! only while there are other servers and limits: a project may have more than it should by what others let it have in
//! the meantime. A record that is wrong, because a shard changed hands while it was written, is mended by the next look
//! of whoever runs the shard.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use engine::id::{ProjectId, ShardId};
use engine::record::{decode, encode};
use engine::shard::Usage;
use engine::shard::record::FORMAT;
use serde::{Deserialize, Serialize};
use store::{Commit, CommitError, Key, Range, ScanError};

use crate::access::record::QuotaRecord;
use crate::handle::{CallError, NodeHandle};
use crate::node::Component;

/// Below this stands what each shard has.
const USAGES: &str = "usage/";

/// How often servers look at what others have.
const LOOK: Duration = Duration::from_secs(1);

/// What limited projects have in a shard.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardUsage {
    /// By the numbers of the projects; those that have nothing are left out.
    pub projects: BTreeMap<u32, ProjectUsage>,
}

/// What a project has in one shard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectUsage {
    /// How many triggers.
    pub triggers: u64,
    /// How many bytes of their names, paths and bodies.
    pub bytes: u64,
    /// How many runs in the busiest minute, by schedule.
    pub fires_per_minute: u64,
    /// How many runs that wait for workers.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub waiting_runs: u64,
    /// Runs that were asked for...
    #[serde(default, skip_serializing_if = "is_zero")]
    pub asked: u64,
    /// ...in this minute since 1970.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub minute: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl ProjectUsage {
    /// What a project has, and has asked for in a minute.
    pub fn new(usage: Usage, minute: u64, asked: u64) -> Self {
        let Usage { triggers, bytes, fires_per_minute, waiting_runs } = usage;
        let minute = if asked == 0 { 0 } else { minute };
        Self { triggers, bytes, fires_per_minute, waiting_runs, asked, minute }
    }

    /// What counts in this minute.
    pub fn usage(self, minute: u64) -> Usage {
        let asked = if self.minute == minute { self.asked } else { 0 };
        let fires_per_minute = self.fires_per_minute.saturating_add(asked);
        let Self { triggers, bytes, waiting_runs, .. } = self;
        Usage { triggers, bytes, fires_per_minute, waiting_runs }
    }
}

/// What was found written of every shard.
pub type UsageByShard = BTreeMap<ShardId, ShardUsage>;

/// Why a look gave nothing.
#[derive(Debug, thiserror::Error)]
enum LookError {
    #[error(transparent)]
    Scan(#[from] ScanError),
    #[error(transparent)]
    Commit(#[from] CommitError),
    #[error(transparent)]
    Call(#[from] CallError),
}

/// Exchanges what limited projects have with other servers, until it is dropped.
pub(crate) struct UsageCounter(pub(crate) NodeHandle);

impl Component for UsageCounter {
    const NAME: &'static str = "the counter of usage";

    async fn run(self) {
        let Self(handle) = self;
        let mut has_counted = false;
        loop {
            handle.machine().sleep(LOOK).await;
            let limited = limited(&handle);
            let is_alone = handle.peers().view().servers.len() < 2;
            let looked = if is_alone || limited.is_empty() {
                // Nobody else has anything that counts, from now on.
                let forgotten =
                    async { Ok(handle.compare_usage(UsageByShard::new(), BTreeSet::new()).await?) };
                let looked = if has_counted { forgotten.await.map(drop) } else { Ok(()) };
                has_counted &= looked.is_err();
                looked
            } else {
                has_counted = true;
                look(&handle, limited).await
            };
            if let Err(why) = looked {
                tracing::debug!(%why, "what projects have elsewhere is not known");
            }
        }
    }
}

fn limited(handle: &NodeHandle) -> BTreeSet<ProjectId> {
    let book = handle.access().book();
    let projects = book.projects().map(|(_, project)| project);
    let limited = projects.filter(|project| project.limits != QuotaRecord::default());
    limited.map(|project| project.id).collect()
}

async fn look(handle: &NodeHandle, limited: BTreeSet<ProjectId>) -> Result<(), LookError> {
    let found = read(handle).await?;
    let wrong = handle.compare_usage(found, limited).await?;
    // A store may take less at a time than there is.
    for some in wrong.chunks(handle.store().limits().writes.min(32)) {
        let commit = some.iter().fold(Commit::new(), |commit, (shard, usage)| {
            commit.put(key(*shard), encode(FORMAT, usage))
        });
        handle.store().commit(commit).await?;
    }
    Ok(())
}

async fn read(handle: &NodeHandle) -> Result<UsageByShard, ScanError> {
    let mut found = UsageByShard::new();
    for entry in handle.store().scan_all(Range::prefix(USAGES)).await? {
        let shard = entry.key.as_str().strip_prefix(USAGES).and_then(|text| text.parse().ok());
        // One that cannot be read counts for nothing, until whoever runs the shard has something to write.
        if let (Some(shard), Ok(usage)) = (shard, decode(entry.value.as_bytes(), FORMAT))
            && shard < handle.shards()
        {
            found.insert(ShardId(shard), usage);
        }
    }
    Ok(found)
}

fn key(shard: ShardId) -> Key {
    Key::new(format!("{USAGES}{shard}")).expect("a short key")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_counts_in_its_minute_only() {
        let usage = Usage { triggers: 2, bytes: 30, fires_per_minute: 4, waiting_runs: 5 };
        let share = ProjectUsage::new(usage, 9, 5);
        assert_eq!(share.usage(9).fires_per_minute, 9);
        assert_eq!(share.usage(10), usage);
        let rubbish = ProjectUsage { fires_per_minute: u64::MAX, ..share };
        assert_eq!((rubbish.usage(9) + rubbish.usage(9)).fires_per_minute, u64::MAX);
        assert_eq!(
            ProjectUsage::new(usage, 9, 0),
            ProjectUsage::new(usage, 10, 0),
            "nothing is of no minute"
        );
    }

    #[test]
    fn a_share_reads_as_it_was_written() {
        let usage = Usage { triggers: 1, bytes: 2, fires_per_minute: 3, waiting_runs: 6 };
        let share = ProjectUsage::new(usage, 5, 4);
        let usage =
            ShardUsage { projects: BTreeMap::from([(7, share), (8, ProjectUsage::default())]) };
        let found: ShardUsage = decode(&encode(FORMAT, &usage), FORMAT).unwrap();
        assert_eq!(found, usage);
    }
}
