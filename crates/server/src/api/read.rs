//! Reading triggers from the store.
//!
//! Everything that is told about triggers and runs comes from here and not from the node's memory, so every
//! node answers alike, also while a shard has no owner.

use engine::id::{ProjectId, ShardId, TriggerId};
use engine::instant::Instant;
use engine::record::{RecordError, decode};
use engine::schedule::Schedule;
use engine::shard::TriggerView;
use engine::shard::record::{
    FORMAT, HeadRecord, LagRecord, Mark, NameRecord, RunRecord, StoppedRecord, TriggerRecord,
    TriggerState, head_key, lag_key, name_key, runs, state_key, stopped_key, trigger_key,
};
use engine::trigger::{Definition, Draft, check_name};
use serde::de::DeserializeOwned;
use store::claim::Head;
use store::{Entry, Key, Range, Store};
use tokio::task::JoinSet;

use super::problem::{ApiError, ApiResult};
use crate::handle::NodeHandle;

/// A trigger as it is stored.
pub(super) struct Stored {
    /// What the user wrote.
    pub(super) record: TriggerRecord,
    /// What has moved since.
    pub(super) state: TriggerState,
    /// What the user wrote, as fields.
    pub(super) draft: Draft,
    /// What it means.
    pub(super) definition: Definition,
}

impl Stored {
    pub(super) fn id(&self) -> TriggerId {
        self.record.id
    }

    pub(super) fn name(&self) -> &str {
        &self.definition.name
    }

    pub(super) fn schedule(&self) -> &Schedule {
        &self.definition.schedule
    }

    /// How it stands, by the same rules as in its shard.
    pub(super) fn view(&self) -> TriggerView<'_> {
        TriggerView::of(&self.record, &self.definition, &self.state)
    }
}

/// The trigger with this name or id.
pub(super) async fn trigger(store: &Store, project: ProjectId, name: &str) -> ApiResult<Stored> {
    let id = id_of(store, project, name).await?;
    let found = match id {
        Some(id) => trigger_by_id(store, id).await?,
        None => None,
    };
    found.ok_or_else(|| no_trigger(name))
}

pub(super) fn no_trigger(name: &str) -> ApiError {
    let name: String = name.chars().take(100).collect();
    ApiError::no_trigger(format!("there is no trigger {name:?}: list them at /v1/triggers"))
}

/// Where a name or an id leads, whether or not there is something.
pub(super) async fn id_of(
    store: &Store,
    project: ProjectId,
    name: &str,
) -> ApiResult<Option<TriggerId>> {
    if let Ok(id) = name.parse::<TriggerId>() {
        return Ok(Some(id).filter(|id| id.project == project));
    }
    if check_name(name).is_err() {
        return Ok(None);
    }
    let entry = store.get(&key(name_key(project, name))).await?;
    let record: Option<NameRecord> = entry.map(|entry| record(&entry)).transpose()?;
    Ok(record.map(|record| record.id))
}

/// The trigger with this id, if there is one.
pub(super) async fn trigger_by_id(store: &Store, id: TriggerId) -> ApiResult<Option<Stored>> {
    let (trigger, state) =
        (key(trigger_key(id.shard, id.serial)), key(state_key(id.shard, id.serial)));
    let (entry, state) = tokio::try_join!(store.get(&trigger), store.get(&state))?;
    let Some(entry) = entry else {
        return Ok(None);
    };
    let record: TriggerRecord = self::record(&entry)?;
    // Whoever writes an id by hand may lie about whose it is.
    if record.id != id {
        return Ok(None);
    }
    let state = state.map(|entry| self::record(&entry)).transpose()?.unwrap_or_default();
    let unreadable =
        |why: String| ApiError::of_record(entry.key.as_str(), &RecordError::Malformed(why));
    let draft: Draft =
        serde_json::from_str(record.draft.get()).map_err(|why| unreadable(why.to_string()))?;
    let definition = draft.build(Instant(0)).map_err(|faults| {
        let why = faults.iter().map(|fault| format!("{}: {}", fault.pointer, fault.why));
        unreadable(why.collect::<Vec<_>>().join("; "))
    })?;
    Ok(Some(Stored { record, state, draft, definition }))
}

/// The triggers with these ids, in their order. They are read at the same time: what is not in memory waits for a thread or
/// an engine, and one after the other they would wait as often as there are triggers. Callers bound how many they ask for.
pub(super) async fn triggers_by_id(
    store: &Store,
    ids: &[TriggerId],
) -> ApiResult<Vec<Option<Stored>>> {
    let mut reads = JoinSet::new();
    for (place, id) in ids.iter().copied().enumerate() {
        let store = store.clone();
        reads.spawn(async move { (place, trigger_by_id(&store, id).await) });
    }
    let mut found = reads.join_all().await;
    found.sort_by_key(|(place, _)| *place);
    found.into_iter().map(|(_, stored)| stored).collect()
}

/// The mark and the open runs of a shard.
pub(super) async fn head(store: &Store, shard: ShardId) -> ApiResult<HeadRecord> {
    let Some(entry) = store.get(&key(head_key(shard))).await? else {
        return Ok(HeadRecord::default());
    };
    let bad = |why: &RecordError| ApiError::of_record(entry.key.as_str(), why);
    let head = Head::from_value(&entry.value).map_err(|why| bad(&why))?;
    let Some(body) = head.body else { return Ok(HeadRecord::default()) };
    serde_json::from_str(body.get()).map_err(|why| bad(&RecordError::Malformed(why.to_string())))
}

/// The mark that counts for a trigger, if its shard's is this one and its host lagged like this before that was read.
pub(super) async fn mark(
    store: &Store,
    stored: &Stored,
    decided_through: Mark,
    lag: Option<LagRecord>,
) -> ApiResult<Mark> {
    let id = stored.id();
    let entry = store.get(&key(stopped_key(id.shard, id.project))).await?;
    let stopped: Option<StoppedRecord> = entry.map(|entry| record(&entry)).transpose()?;
    // One that began since was, when it did, where the shard's mark had been.
    let lag = match lag {
        Some(lag) => Some(lag),
        None => self::lag(store, stored).await?.map(|lag| LagRecord { mark: lag.from, ..lag }),
    };
    Ok(stored.view().mark(decided_through, stopped.as_ref(), lag.as_ref()))
}

/// How the host of a trigger lags, if it cannot keep up.
pub(super) async fn lag(store: &Store, stored: &Stored) -> ApiResult<Option<LagRecord>> {
    let Some(host) = stored.definition.target.host() else { return Ok(None) };
    let entry = store.get(&key(lag_key(stored.id().shard, host))).await?;
    entry.map(|entry| record(&entry)).transpose()
}

/// Why nothing of a project fires.
pub(super) struct Silence {
    pub(super) why: String,
    /// What to type to let it go on.
    pub(super) cure: String,
}

impl Silence {
    /// Why nothing of a project fires, if nothing does.
    pub(super) fn of(handle: &NodeHandle, project: ProjectId) -> Option<Self> {
        let book = handle.access().book();
        if let Some(since) = book.stopped() {
            let why = format!("the scheduler is stopped since {since}");
            return Some(Self { why, cure: "watchbell scheduler start".to_owned() });
        }
        let since = book.project_by_id(project)?.disabled?;
        let name = book.name_of(project)?;
        let why = format!("its project {name} is disabled since {since}");
        Some(Self { why, cure: format!("watchbell project enable {name}") })
    }
}

/// A page of runs of a shard that are not finished, with their sequence numbers.
pub(super) struct UnfinishedPage {
    pub(super) runs: Vec<(u64, RunRecord)>,
    /// The last sequence number that was looked at, if there are more.
    pub(super) more_after: Option<u64>,
}

/// Unfinished runs of a shard, those of one trigger if it is named, after a sequence number.
pub(super) async fn unfinished(
    store: &Store,
    shard: ShardId,
    of: Option<TriggerId>,
    after: Option<u64>,
    limit: usize,
) -> ApiResult<UnfinishedPage> {
    let range = Range::prefix(&runs(shard));
    let range = match after {
        Some(sequence) => range.after(&key(engine::shard::record::run_key(shard, sequence))),
        None => range,
    };
    let page = store.scan(range, limit).await?;
    let mut found = Vec::new();
    let mut last = None;
    for entry in &page.entries {
        let digits = entry.key.as_str().rsplit('/').next().unwrap_or_default();
        let sequence = digits.parse().map_err(|_| {
            let why = RecordError::Malformed("its key ends in no number".to_owned());
            ApiError::of_record(entry.key.as_str(), &why)
        })?;
        last = Some(sequence);
        let run: RunRecord = record(entry)?;
        // Whoever writes an id by hand may lie about whose it is.
        if of.is_none_or(|id| id.serial == run.trigger && id.project == run.project) {
            found.push((sequence, run));
        }
    }
    Ok(UnfinishedPage { runs: found, more_after: page.next.and(last) })
}

/// The record in an entry of the store.
pub(super) fn record<T: DeserializeOwned>(entry: &Entry) -> ApiResult<T> {
    decode(entry.value.as_bytes(), FORMAT)
        .map_err(|why| ApiError::of_record(entry.key.as_str(), &why))
}

/// A key that this server makes up, which is always valid.
pub(super) fn key(text: String) -> Key {
    Key::new(text).expect("numbers, and names that were checked")
}
