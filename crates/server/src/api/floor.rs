//! Reading from when on the past of a trigger is complete.

use engine::id::TriggerId;
use engine::instant::Instant;
use engine::past::floor::{BucketFloor, ShardFloor, floor_key, floor_key_of};
use engine::past::page::Bucket;
use store::Store;

use super::problem::{ApiError, ApiResult};
use super::read::key;

/// Every slot of a trigger at or after this has its line, or had none. It is read after the lines: what was
/// gone by then lies below.
pub(super) async fn of(store: &Store, id: TriggerId) -> ApiResult<Instant> {
    let mut floor = Instant::FIRST;
    if let Some(entry) = store.get(&key(floor_key(id.shard))).await? {
        let record = ShardFloor::from_bytes(entry.value.as_bytes());
        let record = record.map_err(|why| ApiError::of_record(entry.key.as_str(), &why))?;
        floor = record.before;
    }
    let of_bucket = key(floor_key_of(id.shard, Bucket::of(id.serial)));
    if let Some(entry) = store.get(&of_bucket).await? {
        let record = BucketFloor::from_bytes(entry.value.as_bytes());
        let record = record.map_err(|why| ApiError::of_record(entry.key.as_str(), &why))?;
        floor = floor.max(record.of(id.serial));
    }
    Ok(floor)
}
