//! Reads a shard from the store, once it is ours.
//!
//! Whoever has the claim is the only one who writes, and what others had on its way can no longer land. So
//! what is read after the claim is current, however many pages it takes.

use engine::id::ShardId;
use engine::shard::record::{self, HeadRecord};
use engine::shard::{Kinds, LoadError, Loading};
use serde_json::value::RawValue;
use store::{Range, ScanError, Store};

/// Why a shard was not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Try again.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// Have a person look, or upgrade.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Have a person look.
    #[error("the head of shard {shard} cannot be read: {why}")]
    Head {
        /// Which.
        shard: ShardId,
        /// Why.
        why: String,
    },
}

/// Reads all that a shard is made of.
pub(super) async fn load(
    store: &Store,
    shard: ShardId,
    cluster: u64,
    kinds: &Kinds,
    body: Option<&RawValue>,
) -> Result<Loading, ReadError> {
    let head: HeadRecord = match body {
        Some(body) => serde_json::from_str(body.get())
            .map_err(|why| ReadError::Head { shard, why: why.to_string() })?,
        None => HeadRecord::default(),
    };
    let mut loading = Loading::sharing(shard, cluster, &head, kinds.clone());
    each(store, &record::triggers(shard), |key, value| loading.trigger(key, value)).await?;
    each(store, &record::moved(shard), |key, value| loading.moved(key, value)).await?;
    each(store, &record::runs(shard), |key, value| loading.run(key, value)).await?;
    each(store, &record::stopped(shard), |key, value| loading.stopped(key, value)).await?;
    Ok(loading)
}

async fn each(
    store: &Store,
    prefix: &str,
    mut take: impl FnMut(&str, &[u8]) -> Result<(), LoadError>,
) -> Result<(), ReadError> {
    let mut range = Some(Range::prefix(prefix));
    while let Some(rest) = range {
        let page = store.scan(rest, engine::limits::PAGE_ENTRIES_MAX).await?;
        for entry in &page.entries {
            take(entry.key.as_str(), entry.value.as_bytes())?;
        }
        range = page.next;
    }
    Ok(())
}
