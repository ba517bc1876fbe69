//! `/v1/queues`, and what is submitted to them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use axum::extract::Path;
use axum::http::header::{ETAG, LOCATION};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Json, Response};
use client::ListPage;
use client::queue::{LeaseKind, Queue, QueueSpec, QueueState, RateSpec, Submitted, SubmittedBatch};
use engine::id::{ProjectId, RunId, ShardId};
use engine::length;
use engine::limits::{NAMES_READ_MAX, SUBMIT_RUNS_MAX};
use engine::queue::backlog::Obstacle;
use engine::queue::draft::{QueueDraft, RunDraft};
use engine::queue::record::{
    self, QueueNameRecord, QueueRecord, QueueSettings, queue_key, queue_name_key,
};
use engine::queue::unfinished::WaitReason;
use engine::shard::command::Command;
use engine::shard::{QueueView, ShardAnswer, Submission, Taken};
use engine::trigger::{BadField, check_name};
use serde::Deserialize;
use store::Range;

use super::body::{JsonBody, NoBody, OptionalBody};
use super::caller::{Act, Caller};
use super::convert::{self, timestamp};
use super::forward::PeerClient;
use super::owner::{self, Told};
use super::problem::{ApiError, ApiResult};
use super::query::Query;
use super::read::{self, Silence, key};
use super::replace::Conditions;
use super::trigger::{PauseDraft, bad_cursor};
use crate::handle::{NodeHandle, ShardAsk};
use crate::idempotency::RememberedOutcome;

/// Writes of a commit that are not runs: the head, the queue and its name, the note of the request.
const BESIDE_RUNS: usize = 8;

pub(super) async fn submit(
    handle: NodeHandle,
    caller: Caller,
    JsonBody(draft): JsonBody<RunDraft>,
) -> ApiResult {
    let Some(queue) = draft.queue.clone() else {
        return Err(ApiError::field("/queue", "name the queue: {\"queue\": \"mail\", …}"));
    };
    let run = draft.build(handle.now()).map_err(ApiError::fields)?;
    let taken = submit_to(&handle, &caller, &queue, Runs::One(run)).await?;
    let Taken { id, is_new } = taken[0];
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(submitted(id, is_new, status))
}

/// The answer to a run that was submitted.
pub(super) fn submitted(id: RunId, created: bool, status: StatusCode) -> Response {
    let mut response = (status, Json(Submitted { id: id.to_string(), created })).into_response();
    let place = HeaderValue::from_str(&format!("/v1/runs/{id}")).expect("letters and digits");
    response.headers_mut().insert(LOCATION, place);
    response
}

/// Runs that one queue is to have.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BatchDraft {
    queue: String,
    runs: Vec<RunDraft>,
}

pub(super) async fn submit_batch(
    handle: NodeHandle,
    caller: Caller,
    JsonBody(batch): JsonBody<BatchDraft>,
) -> ApiResult {
    let len = batch.runs.len();
    if len == 0 || len > SUBMIT_RUNS_MAX {
        let why =
            format!("1 to {SUBMIT_RUNS_MAX} runs are submitted at a time, and these are {len}");
        return Err(ApiError::field("/runs", why));
    }
    let (mut runs, mut faults, now) = (Vec::with_capacity(len), Vec::new(), handle.now());
    for (index, draft) in batch.runs.iter().enumerate() {
        let at = |fault: BadField| BadField {
            pointer: format!("/runs/{index}{}", fault.pointer),
            ..fault
        };
        if draft.queue.is_some() {
            let why = "the batch names the queue of all its runs".to_owned();
            faults.push(at(BadField { pointer: "/queue".to_owned(), why }));
        }
        match draft.build(now) {
            Ok(run) => runs.push(run),
            Err(found) => faults.extend(found.into_iter().map(at)),
        }
    }
    if !faults.is_empty() {
        return Err(ApiError::fields(faults));
    }
    check_fits_commit(&handle, &runs)?;
    let taken = submit_to(&handle, &caller, &batch.queue, Runs::Batch(runs)).await?;
    let runs =
        taken.iter().map(|taken| Submitted { id: taken.id.to_string(), created: taken.is_new });
    Ok((StatusCode::CREATED, Json(SubmittedBatch { runs: runs.collect() })).into_response())
}

/// Checks that runs fit into one commit of the store: they are taken together.
fn check_fits_commit(handle: &NodeHandle, runs: &[Submission]) -> ApiResult<()> {
    let most = handle.store().limits().writes.saturating_sub(BESIDE_RUNS);
    let records: usize = runs.iter().map(Submission::records).sum();
    if records <= most {
        return Ok(());
    }
    let why = format!(
        "these runs are {records} records, and this store takes {most} at a time (a run is one, one more if it is long, \
         one more with a unique key, and two more if it is for workers in turn or for all): submit fewer at a time"
    );
    Err(ApiError::field("/runs", why))
}

async fn submit_to(
    handle: &NodeHandle,
    caller: &Caller,
    queue: &str,
    runs: Runs,
) -> ApiResult<Arc<[Taken]>> {
    check_name(queue).map_err(|why| ApiError::field("/queue", why))?;
    let (runs, batch) = match runs {
        Runs::One(run) => (vec![run], false),
        Runs::Batch(runs) => (runs, true),
    };
    let shard = ShardId::of_queue(caller.project, queue, handle.shards());
    let (project, author) = (caller.project, caller.author.clone());
    let command = Command::Submit { project, queue: queue.into(), runs, author };
    Ok(caller.submit(handle, shard, command, batch).await?)
}

/// What one request submits.
enum Runs {
    One(Submission),
    Batch(Vec<Submission>),
}

pub(super) async fn list(
    handle: NodeHandle,
    caller: Caller,
    peers: PeerClient,
    query: Query,
) -> ApiResult<Json<ListPage<Queue>>> {
    let rows = query.rows()?.min(NAMES_READ_MAX);
    let prefix = query.text("prefix").unwrap_or_default();
    if !prefix.is_empty() {
        check_name(prefix).map_err(|why| ApiError::parameter("prefix", why))?;
    }
    let mut range = Range::prefix(&queue_name_key(caller.project, prefix));
    if let Some(cursor) = query.text("cursor") {
        check_name(cursor).map_err(|_| bad_cursor())?;
        range = range.after(&key(queue_name_key(caller.project, cursor)));
    }
    let page = handle.store().scan(range, rows).await?;
    let mut next = None;
    let mut queues = Vec::with_capacity(page.entries.len());
    for entry in &page.entries {
        let name: QueueNameRecord = read::record(entry)?;
        next = page.next.as_ref().and(entry.key.as_str().rsplit('/').next()).map(str::to_owned);
        let stored = handle.store().get(&key(queue_key(name.id.shard, name.id.serial))).await?;
        if let Some(stored) = stored {
            queues.push(read::record::<QueueRecord>(&stored)?);
        }
    }
    // Each server tells of the queues that it has.
    let mut path = format!("/v1/queues?limit={rows}");
    for name in ["prefix", "cursor"] {
        path.extend(query.text(name).map(|text| format!("&{name}={text}")));
    }
    let mut elsewhere: HashMap<String, QueueState> = HashMap::new();
    for (_, answer) in peers.ask_all(&Method::GET, &path).await {
        let page = answer.ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let items = page.map_or_else(Vec::new, |page: ListPage<Queue>| page.items);
        elsewhere.extend(items.into_iter().filter_map(|queue| Some((queue.name, queue.state?))));
    }
    let mut items = Vec::with_capacity(queues.len());
    for record in queues {
        let state = match elsewhere.remove(&*record.name) {
            Some(state) => Some(state),
            None => state_here(&handle, &record).await,
        };
        items.push(tell(&record, state));
    }
    Ok(Json(ListPage { items, next }))
}

/// How a queue stands, if this server has it.
async fn state_here(handle: &NodeHandle, record: &QueueRecord) -> Option<QueueState> {
    if !handle.peers().served().borrow().contains(&record.id.shard) {
        return None;
    }
    let guard = handle.ask_guard(record.id.shard);
    let ask = ShardAsk::Queue { project: record.id.project, name: record.name.clone() };
    match handle.ask_shard(&guard, ask).await {
        Ok(ShardAnswer::Queue(Some(view))) => Some(state(handle, &view)),
        _ => None,
    }
}

pub(super) async fn show(
    handle: NodeHandle,
    caller: Caller,
    peers: PeerClient,
    Path(name): Path<String>,
) -> ApiResult {
    let record = find(&handle, caller.project, &name).await?;
    let state = state_of(&handle, &peers, &record).await;
    Ok(respond(&record, state, StatusCode::OK))
}

/// How a queue stands, by whoever has it.
async fn state_of(
    handle: &NodeHandle,
    peers: &PeerClient,
    record: &QueueRecord,
) -> Option<QueueState> {
    let ask = ShardAsk::Queue { project: record.id.project, name: record.name.clone() };
    let path = format!("/v1/queues/{}", record.name);
    match owner::ask(handle, peers, record.id.shard, ask, &path).await {
        Told::Here(ShardAnswer::Queue(Some(view))) => Some(state(handle, &view)),
        Told::There(bytes) => serde_json::from_slice::<Queue>(&bytes).ok()?.state,
        Told::Here(_) | Told::Nobody => None,
    }
}

/// The queue with this name.
pub(super) async fn find(
    handle: &NodeHandle,
    project: ProjectId,
    name: &str,
) -> ApiResult<QueueRecord> {
    let no_queue = || {
        let name: String = name.chars().take(100).collect();
        let detail = format!("there is no queue {name:?}: list them at /v1/queues");
        ApiError::new(StatusCode::NOT_FOUND, "no-queue", "No such queue", detail)
    };
    check_name(name).map_err(|_| no_queue())?;
    let entry = handle.store().get(&key(queue_name_key(project, name))).await?;
    let Some(entry) = entry else { return Err(no_queue()) };
    let named: QueueNameRecord = read::record(&entry)?;
    let stored = handle.store().get(&key(queue_key(named.id.shard, named.id.serial))).await?;
    stored.map(|entry| read::record(&entry)).transpose()?.ok_or_else(no_queue)
}

pub(super) async fn set(
    handle: NodeHandle,
    caller: Caller,
    Path(name): Path<String>,
    headers: HeaderMap,
    JsonBody(draft): JsonBody<QueueDraft>,
) -> ApiResult {
    let Conditions { if_match, if_none_match } = Conditions::of(&headers)?;
    // A queue that is not there is at none.
    let revision = if if_none_match { Some(0) } else { if_match };
    check_name(&name).map_err(|why| ApiError::parameter("name", why))?;
    let settings = draft.build().map_err(ApiError::fields)?;
    let shard = ShardId::of_queue(caller.project, &name, handle.shards());
    let (project, author) = (caller.project, caller.author.clone());
    let command =
        Command::SetQueue { project, name: name.as_str().into(), settings, author, revision };
    change(&handle, &caller, &name, shard, "queue.set", command).await
}

pub(super) async fn pause(
    handle: NodeHandle,
    caller: Caller,
    Path(name): Path<String>,
    OptionalBody(draft): OptionalBody<PauseDraft>,
) -> ApiResult {
    let (note, until) = draft.checked(handle.now())?;
    let record = find(&handle, caller.project, &name).await?;
    let (queue, author) = (record.id.serial, caller.author.clone());
    let command = Command::PauseQueue { queue, author, note, until };
    change(&handle, &caller, &name, record.id.shard, "queue.pause", command).await
}

pub(super) async fn resume(
    handle: NodeHandle,
    caller: Caller,
    Path(name): Path<String>,
    _: NoBody,
) -> ApiResult {
    let record = find(&handle, caller.project, &name).await?;
    let command = Command::ResumeQueue { queue: record.id.serial };
    change(&handle, &caller, &name, record.id.shard, "queue.resume", command).await
}

pub(super) async fn delete(
    handle: NodeHandle,
    caller: Caller,
    Path(name): Path<String>,
) -> ApiResult<StatusCode> {
    let record = find(&handle, caller.project, &name).await?;
    let command = Command::DeleteQueue { queue: record.id.serial };
    let act = Act { action: "queue.delete", object: &name, outcome: RememberedOutcome::Done };
    let () = caller.command(&handle, record.id.shard, command, act).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn change(
    handle: &NodeHandle,
    caller: &Caller,
    name: &str,
    shard: ShardId,
    action: &'static str,
    command: Command,
) -> ApiResult {
    let outcome = RememberedOutcome::Queue(name.to_owned());
    let () = caller.command(handle, shard, command, Act { action, object: name, outcome }).await?;
    let record = find(handle, caller.project, name).await?;
    let state = state_here(handle, &record).await;
    Ok(respond(&record, state, StatusCode::OK))
}

pub(super) fn respond(
    record: &QueueRecord,
    state: Option<QueueState>,
    status: StatusCode,
) -> Response {
    let mut response = (status, Json(tell(record, state))).into_response();
    let tag = HeaderValue::from_str(&format!("\"{}\"", record.revision)).expect("digits");
    response.headers_mut().insert(ETAG, tag);
    response
}

fn tell(record: &QueueRecord, state: Option<QueueState>) -> Queue {
    Queue {
        id: record.id.to_string(),
        name: record.name.to_string(),
        spec: spec(&record.settings),
        paused: record.paused.as_ref().map(convert::pause),
        overdue: record.overdue.map(timestamp),
        failing: record.failing.map(timestamp),
        state,
        revision: record.revision,
        created: timestamp(record.created),
        written: timestamp(record.written),
        author: record.author.clone(),
    }
}

fn spec(settings: &QueueSettings) -> QueueSpec {
    let text = |millis: u64| length::text(std::time::Duration::from_millis(millis));
    QueueSpec {
        concurrency: settings.concurrency.map(u64::from),
        per_key: settings.per_key.map(u64::from),
        rate: settings
            .rate
            .map(|rate| RateSpec { runs: rate.runs.into(), per: text(rate.period_ms.into()) }),
        waiting_max: settings.waiting_max.map(u64::from),
        alert_after: settings.alert_after_ms.map(text),
        lease: match settings.lease {
            record::LeaseKind::Loose => None,
            record::LeaseKind::Strict => Some(LeaseKind::Strict),
        },
    }
}

fn state(handle: &NodeHandle, view: &QueueView) -> QueueState {
    let silence = Silence::of(handle, view.record.id.project);
    let has_runs = view.census.waiting > 0;
    let why = view.why.map(|why| reason(why, &view.record, silence.as_ref()));
    let first_later = "none of its runs is due yet, or all that are due wait for their keys";
    QueueState {
        waiting: view.census.waiting as u64,
        running: view.census.running.into(),
        waiting_max: view.waiting_max as u64,
        oldest: view.census.oldest.map(timestamp),
        claims_waiting: view.waiters as u64,
        given_last_minute: view.last_minute.given.into(),
        ended_last_minute: view.last_minute.ended.into(),
        dead: view.dead as u64,
        why: has_runs.then(|| why.unwrap_or_else(|| first_later.to_owned())),
    }
}

/// Why a run waits, as a sentence.
pub(super) fn reason(why: WaitReason, queue: &QueueRecord, silence: Option<&Silence>) -> String {
    match why {
        WaitReason::QueueIsPaused => match (&queue.paused, silence) {
            (Some(pause), _) => {
                let note =
                    if pause.note.is_empty() { String::new() } else { format!(": {}", pause.note) };
                let until = pause.until.map_or_else(String::new, |until| format!(" until {until}"));
                format!(
                    "the queue is paused by {} since {}{until}{note}",
                    pause.author, pause.since
                )
            }
            (None, Some(silence)) => format!("{}: {}", silence.why, silence.cure),
            (None, None) => "its project is being enabled".to_owned(),
        },
        WaitReason::QueueIsFull => {
            let max = queue.settings.concurrency.unwrap_or_default();
            format!("the queue lets at most {max} execute at a time, and as many do")
        }
        WaitReason::RateIsReached { until } => {
            let rate = queue
                .settings
                .rate
                .unwrap_or(engine::queue::rate::RateLimit { runs: 0, period_ms: 0 });
            let per = length::text(std::time::Duration::from_millis(rate.period_ms.into()));
            format!(
                "the queue's rate of {} in {per} is reached; there is room again at {until}",
                rate.runs
            )
        }
        WaitReason::Obstacle(Obstacle::NotDue(at)) => format!("it is not due before {at}"),
        WaitReason::Obstacle(Obstacle::KeyIsFull) => {
            let max = queue.settings.per_key.unwrap_or(1);
            format!("the queue lets at most {max} with its key execute at a time, and as many do")
        }
        WaitReason::Obstacle(Obstacle::BehindItsKey) => {
            "another run with its key comes before it".to_owned()
        }
        WaitReason::ItsWorker => {
            "the worker that was chosen for it has not claimed it yet".to_owned()
        }
        WaitReason::NobodyToChoose => {
            "no worker of the queue is there to be chosen for it".to_owned()
        }
        WaitReason::NoWorker => "no worker that serves the queue has room for it".to_owned(),
    }
}

/// Labels as they are told.
pub(super) fn labels(text: Option<&str>) -> BTreeMap<String, String> {
    let pairs = text.into_iter().flat_map(|text| text.split(','));
    let pairs = pairs.filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}
