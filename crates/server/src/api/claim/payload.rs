//! What runs are about, for those who claimed them.
//!
//! Most of it is in the memory of the shard. The rest is read from the store, whose keys are in the order of claims: what
//! was claimed together is read together.

use std::collections::HashMap;
use std::ops::Bound;

use client::Timestamp;
use client::worker::{Ack, HeldRun};
use engine::id::ShardId;
use engine::limits::CLAIM_ANSWER_BYTES_MAX;
use engine::queue::record::{BodyRecord, LeaseKind, QueuedRecord, body_key, queued_key};
use engine::queue::submitted::RunPlace;
use engine::shard::GivenRun;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use store::{Entry, Key, Range, ScanError};

use crate::api::convert::timestamp;
use crate::api::read::{self, key};
use crate::handle::NodeHandle;

/// Records that are read at once: between those that were claimed there may be others.
const READ_TOGETHER_MAX: usize = 256;

/// What a worker is answered: [`client::worker::ClaimAnswer`], with runs as they are written.
#[derive(Serialize)]
pub(in crate::api) struct ClaimedOut {
    pub(super) runs: Vec<Box<RawValue>>,
    pub(super) acks: Vec<Ack>,
    pub(super) lost: Vec<HeldRun>,
    pub(super) cancel: Vec<HeldRun>,
    pub(super) unheard: Vec<HeldRun>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) refused: Vec<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) drain: bool,
    pub(super) cookie: String,
    pub(super) as_of: u64,
    pub(super) beat_ms: u64,
    pub(super) lease_ms: u64,
}

/// The same, as another server tells it.
#[derive(Deserialize)]
pub(super) struct ClaimedIn {
    pub(super) runs: Vec<Box<RawValue>>,
    pub(super) acks: Vec<Ack>,
    pub(super) lost: Vec<HeldRun>,
    pub(super) cancel: Vec<HeldRun>,
    pub(super) unheard: Vec<HeldRun>,
    #[serde(default)]
    pub(super) refused: Vec<String>,
    #[serde(default)]
    pub(super) drain: bool,
    pub(super) cookie: String,
    pub(super) as_of: u64,
}

/// A run, as a worker is told of it, without what it is to do: [`client::worker::ClaimedRun`].
#[derive(Serialize)]
struct ClaimedRunOut<'a> {
    id: String,
    token: u64,
    attempt: u32,
    queue: &'a str,
    scheduled: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    trigger: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    strict: bool,
}

/// A run with what it is to do, which is kept as a JSON object of its own: their fields become one object's.
fn with_action(run: &ClaimedRunOut<'_>, action: &str) -> Option<Box<RawValue>> {
    let mut text = serde_json::to_string(run).ok()?;
    let fields = action.strip_prefix('{')?;
    text.pop();
    if fields != "}" {
        text.push(',');
    }
    text.push_str(fields);
    RawValue::from_string(text).ok()
}

/// Runs as their worker is told of them, and those that it is not told of and has to be rid of.
pub(super) struct ToldRuns {
    pub(super) told: Vec<Box<RawValue>>,
    pub(super) rest: Vec<GivenRun>,
    /// Runs of which the store has not, or not legibly, what they are about: whoever gave them back would be given them again,
    /// for ever, before all others.
    pub(super) broken: Vec<GivenRun>,
    /// Why some could not be read.
    pub(super) unread: Option<ScanError>,
}

/// Runs as their worker is told of them, as many as an answer takes and as can be read.
pub(super) async fn told(handle: &NodeHandle, mut runs: Vec<GivenRun>) -> ToldRuns {
    let (mut read, mut unread) = (HashMap::new(), None);
    let mut rest = Vec::new();
    match read_missing(handle, &runs).await {
        Ok(found) => read = found,
        Err(why) => {
            tracing::warn!(%why, "what runs are about cannot be read now: they wait again");
            rest.extend(runs.extract_if(.., |run| run.queued.is_none()));
            unread = Some(why);
        }
    }
    let (mut told, mut bytes) = (Vec::with_capacity(runs.len()), 0);
    let mut broken = Vec::new();
    for run in runs {
        if bytes >= CLAIM_ANSWER_BYTES_MAX {
            rest.push(run);
            continue;
        }
        let kept = run.queued.as_deref();
        let found = read.get(&(run.id.shard, run.place.order.sequence));
        if let Some(out) = kept.or(found).and_then(|record| told_as(&run, record)) {
            bytes += out.get().len();
            told.push(out);
        } else {
            tracing::error!(run = %run.id, "what a run is about cannot be read: it fails");
            broken.push(run);
        }
    }
    ToldRuns { told, rest, broken, unread }
}

/// A run as its worker is told of it, if what it is about is there.
fn told_as(run: &GivenRun, record: &QueuedRecord) -> Option<Box<RawValue>> {
    let action = record.action.as_ref()?;
    let out = ClaimedRunOut {
        id: run.id.to_string(),
        token: run.given.token.0,
        attempt: run.given.attempt,
        queue: &run.queue.name,
        scheduled: timestamp(record.born),
        trigger: record.trigger.as_ref().map(|trigger| &*trigger.name),
        key: record.key.as_deref(),
        timeout_ms: record.timeout_ms,
        strict: run.queue.settings.lease == LeaseKind::Strict,
    };
    with_action(&out, action.get())
}

/// A run by its number, which it has in its shard only.
type ReadKey = (ShardId, u64);

/// Reads from the store what is not in memory.
async fn read_missing(
    handle: &NodeHandle,
    runs: &[GivenRun],
) -> Result<HashMap<ReadKey, QueuedRecord>, ScanError> {
    let missing = runs.iter().filter(|run| run.queued.is_none());
    read_records(handle, missing.map(|run| (run.id.shard, run.place)).collect()).await
}

/// Reads runs of a shard as they were submitted, with what they are about, by their numbers. Those that are missing are gone.
pub(in crate::api) async fn read_places(
    handle: &NodeHandle,
    shard: ShardId,
    places: &[RunPlace],
) -> Result<HashMap<u64, QueuedRecord>, ScanError> {
    let read = read_records(handle, places.iter().map(|place| (shard, *place)).collect()).await?;
    Ok(read.into_iter().map(|((_, sequence), record)| (sequence, record)).collect())
}

async fn read_records(
    handle: &NodeHandle,
    wanted: Vec<(ShardId, RunPlace)>,
) -> Result<HashMap<ReadKey, QueuedRecord>, ScanError> {
    let read_key = |shard: ShardId, place: &RunPlace| (shard, place.order.sequence);
    let records = wanted.iter();
    let records =
        records.map(|(shard, place)| (read_key(*shard, place), key(queued_key(*shard, place))));
    let mut found: HashMap<_, QueuedRecord> = read_all(handle, records.collect()).await?;
    let bodies = wanted.iter().filter(|(_, place)| place.has_body);
    let bodies =
        bodies.map(|(shard, place)| (read_key(*shard, place), key(body_key(*shard, place))));
    let bodies: HashMap<_, BodyRecord> = read_all(handle, bodies.collect()).await?;
    for (run, body) in bodies {
        if let Some(record) = found.get_mut(&run) {
            record.action = Some(body.action);
        }
    }
    Ok(found)
}

/// Reads records by their keys: those that lie together at once.
async fn read_all<T: serde::de::DeserializeOwned>(
    handle: &NodeHandle,
    mut wanted: Vec<(ReadKey, Key)>,
) -> Result<HashMap<ReadKey, T>, ScanError> {
    wanted.sort_by(|(_, one), (_, other)| one.cmp(other));
    let mut found = HashMap::with_capacity(wanted.len());
    let mut left = &wanted[..];
    while let [(_, first), ..] = left
        && let [.., (_, last)] = left
    {
        let bound = |key: &Key| Bound::Included(key.as_str().to_owned());
        let range = Range::of(bound(first), bound(last));
        let page = handle.store().scan(range, left.len().min(READ_TOGETHER_MAX)).await?;
        let is_whole = page.next.is_none();
        let reached = page.entries.last().map(|entry| entry.key.clone());
        let is_read = |key: &Key| is_whole || reached.as_ref().is_some_and(|last| key <= last);
        let (read, rest) = left.split_at(left.partition_point(|(_, key)| is_read(key)).max(1));
        let entries: HashMap<&Key, &Entry> =
            page.entries.iter().map(|entry| (&entry.key, entry)).collect();
        for (run, key) in read {
            match entries.get(key).map(|entry| read::record(entry)) {
                Some(Ok(record)) => found.extend([(*run, record)]),
                Some(Err(_)) => tracing::warn!(%key, "the record of a run is of no use"),
                None => {}
            }
        }
        left = rest;
    }
    Ok(found)
}
