//! What runs of queues printed goes with the past, and sooner if there is too much of it.
//!
//! It is kept below one prefix of a shard, the oldest run first. What lies below the floor of the shard is deleted when the
//! floor is raised. The bytes of a shard are counted when it comes here, and again when this server has stored as much more
//! as a quarter of what the shard may have; what is too much goes from the oldest on.

use engine::id::ShardId;
use engine::instant::Instant;
use engine::queue::output::{output_born, outputs};
use engine::shard::Put;
use store::Range;

use super::{Historian, ShardNotes, Visited};

/// Outputs that are read, and deleted, at once.
const OUTPUTS_LEN: usize = 64;

/// How far the outputs of a shard were looked at.
#[derive(Default)]
pub(super) struct OutputSweep {
    /// Below this floor nothing is left.
    swept: Option<Instant>,
    /// So many bytes this server had stored when they were counted last.
    counted: Option<u64>,
}

impl Historian {
    pub(super) async fn sweep_outputs(&self, shard: ShardId, notes: &mut ShardNotes) -> Visited {
        let (floor, most) = (notes.retention.floor.before, self.output_bytes_max());
        let stored = self.metrics.output_stored();
        let mut excess = 0;
        if notes.outputs.counted.is_none_or(|counted| stored - counted >= most / 4) {
            excess = self.output_bytes(shard).await?.saturating_sub(most);
            notes.outputs.counted = Some(stored);
        }
        if excess > 0 || notes.outputs.swept != Some(floor) {
            self.delete_outputs(shard, floor, excess).await?;
            notes.outputs.swept = Some(floor);
        }
        Ok(())
    }

    /// So many bytes of output a shard may have: its part of those of the store.
    fn output_bytes_max(&self) -> u64 {
        let all = self.pace.retention.output_bytes_within(self.handle.store().room());
        all / u64::from(self.handle.shards())
    }

    async fn output_bytes(&self, shard: ShardId) -> Visited<u64> {
        let mut pages = self.handle.store().pages(Range::prefix(&outputs(shard)), OUTPUTS_LEN);
        let mut bytes = 0;
        while let Some(entries) = pages.next().await? {
            bytes += entries.iter().map(|entry| entry.value.as_bytes().len() as u64).sum::<u64>();
        }
        Ok(bytes)
    }

    /// Deletes what lies below a floor, and so many bytes of the oldest.
    async fn delete_outputs(&self, shard: ShardId, floor: Instant, excess: u64) -> Visited {
        let mut pages = self.handle.store().pages(Range::prefix(&outputs(shard)), OUTPUTS_LEN);
        let mut left = excess;
        while let Some(entries) = pages.next().await? {
            let mut gone = Vec::new();
            for entry in &entries {
                let key = entry.key.as_str();
                let is_old = output_born(shard, key).is_none_or(|born| born < floor);
                if !is_old && left == 0 {
                    break;
                }
                left = left.saturating_sub(entry.value.as_bytes().len() as u64);
                gone.push(Put::Gone(key.to_owned()));
            }
            let is_end = gone.len() < entries.len();
            if !gone.is_empty() {
                self.handle.rewrite(shard, gone).await?;
            }
            if is_end {
                return Ok(());
            }
        }
        Ok(())
    }
}
