//! Reads a shard from the store, once it is ours.
//!
//! Whoever has the claim is the only one who writes, and what others had on its way can no longer land. So
//! what is read after the claim is current, however many pages it takes.

use engine::id::ShardId;
use engine::queue::pick;
use engine::queue::record as queue;
use engine::shard::record::{self, HeadRecord};
use engine::shard::{LoadError, Loading, TriggerKinds};
use serde_json::value::RawValue;
use store::{Entry, Range, ScanError, Store};

/// Why a shard was not read.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the sentences are the documentation of each field")]
pub enum ShardReadError {
    /// The store could not be read: try again.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// Have a person look, or upgrade.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Have a person look.
    #[error("the head of shard {shard} cannot be read: {why}")]
    Head { shard: ShardId, why: String },
}

/// Reads all that a shard is made of.
pub(super) async fn read(
    store: &Store,
    shard: ShardId,
    cluster: u64,
    kinds: &TriggerKinds,
    body: Option<&RawValue>,
) -> Result<Loading, ShardReadError> {
    let head: HeadRecord = match body {
        Some(body) => serde_json::from_str(body.get())
            .map_err(|why| ShardReadError::Head { shard, why: why.to_string() })?,
        None => HeadRecord::default(),
    };
    let mut loading = Loading::sharing(shard, cluster, &head, kinds.clone());
    // All at once: a shard that changes hands is waited for. What is not a trigger is little, and comes after it.
    let triggers = record::triggers(shard);
    let (
        triggers,
        states,
        runs,
        stopped,
        lags,
        reserved,
        reports,
        queues,
        rates,
        picks,
        chosen,
        part_ends,
        claimed,
        given,
        unique,
    ) = tokio::join!(
        each(store, &triggers, |key, value| loading.trigger(key, value)),
        all(store, record::states(shard)),
        all(store, record::runs(shard)),
        all(store, record::stopped(shard)),
        all(store, record::lags(shard)),
        all(store, record::reserved(shard)),
        all(store, record::reports(shard)),
        all(store, queue::queues(shard)),
        all(store, queue::rates(shard)),
        all(store, pick::picks(shard)),
        all(store, pick::chosen(shard)),
        all(store, pick::part_ends(shard)),
        all(store, queue::claimed(shard)),
        all(store, queue::given(shard)),
        all(store, queue::uniques(shard)),
    );
    triggers?;
    for entry in states? {
        loading.state(entry.key.as_str(), entry.value.as_bytes())?;
    }
    for entry in runs? {
        loading.run(entry.key.as_str(), entry.value.as_bytes())?;
    }
    for entry in stopped? {
        loading.stopped(entry.key.as_str(), entry.value.as_bytes())?;
    }
    for entry in lags? {
        loading.lag(entry.key.as_str(), entry.value.as_bytes())?;
    }
    for entry in reserved? {
        loading.reserved(entry.key.as_str(), entry.value.as_bytes())?;
    }
    for entry in queues? {
        loading.queue(entry.key.as_str(), entry.value.as_bytes())?;
    }
    for entry in rates? {
        loading.rate(entry.key.as_str(), entry.value.as_bytes())?;
    }
    // Among what waits lies what dead runs were about.
    let dead = engine::queue::dead::dead(shard);
    each(store, &dead, |key, value| loading.dead(key, value)).await?;
    let waiting = queue::queued(shard);
    each(store, &waiting, |key, value| loading.queued(key, value)).await?;
    for entry in picks? {
        loading.picks(entry.key.as_str(), entry.value.as_bytes())?;
    }
    for entry in chosen? {
        loading.chosen(entry.key.as_str(), entry.value.as_bytes())?;
    }
    for entry in part_ends? {
        loading.part_ends(entry.key.as_str(), entry.value.as_bytes())?;
    }
    for entry in claimed? {
        loading.claimed(entry.key.as_str(), entry.value.as_bytes())?;
    }
    for entry in given? {
        loading.given(entry.key.as_str(), entry.value.as_bytes())?;
    }
    for entry in unique? {
        loading.unique(entry.key.as_str(), entry.value.as_bytes())?;
    }
    for entry in reports? {
        // Without it the run is in doubt, which is better than no shard.
        if let Err(why) = loading.report(entry.key.as_str(), entry.value.as_bytes()) {
            tracing::error!(key = %entry.key, %why, "a report cannot be read");
        }
    }
    Ok(loading)
}

/// Everything below a prefix.
pub(super) async fn all(store: &Store, prefix: String) -> Result<Vec<Entry>, ScanError> {
    store.scan_all(Range::prefix(&prefix)).await
}

async fn each(
    store: &Store,
    prefix: &str,
    mut take: impl FnMut(&str, &[u8]) -> Result<(), LoadError>,
) -> Result<(), ShardReadError> {
    let mut pages = store.pages(Range::prefix(prefix), engine::limits::PAGE_ENTRIES_MAX);
    let mut page = pages.next().await?;
    while let Some(entries) = page {
        let mut entries = entries.iter();
        let taking = async {
            entries.try_for_each(|entry| take(entry.key.as_str(), entry.value.as_bytes()))
        };
        // The next page comes while this one is taken in.
        let (next, taken) = tokio::join!(pages.next(), taking);
        taken?;
        page = next?;
    }
    Ok(())
}
