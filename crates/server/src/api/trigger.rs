//! `/v1/triggers`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use axum::extract::Path;
use axum::http::header::{ETAG, LOCATION};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Json, Response};
use client::ListPage;
use client::run::RunSummary;
use client::trigger::{NextSlots, Status, Trigger};
use engine::id::{ProjectId, SerialId, ShardId, TriggerId};
use engine::instant::Instant;
use engine::limits::{NAMES_READ_MAX, NEXT_SLOTS_MAX, NOTE_CHARS_MAX};
use engine::past::Line;
use engine::shard::command::{Command, Rejection};
use engine::shard::record::{NameRecord, name_key};
use engine::target::Target;
use engine::trigger::{Definition, Draft, check_name};
use serde_json::value::{RawValue, to_raw_value};
use store::{Range, Store};
use tokio::task::JoinSet;

use super::body::{JsonBody, NoBody, OptionalBody};
use super::caller::{Act, Caller};
use super::convert::{self, Source};
use super::forward::PeerClient;
use super::name;
use super::problem::{ApiError, ApiResult};
use super::query::Query;
use super::read::{self, Silence, Stored, key};
use super::segment::{PastSpan, PastWalk};
use crate::handle::{CallError, NodeHandle};
use crate::idempotency::RememberedOutcome;

/// How many of the latest batches of the past are looked at for a trigger's last run,
const LAST_RUN_SEGMENTS_MAX: usize = 100;

/// and for those of a list, of each shard.
const LIST_SEGMENTS_MAX: usize = 20;

/// Triggers of a list, or shards of their past, that are read at the same time.
const READS_AT_ONCE: usize = 16;

pub(super) async fn create(
    handle: NodeHandle,
    caller: Caller,
    peers: PeerClient,
    JsonBody(mut draft): JsonBody<Draft>,
) -> ApiResult {
    if draft.name.is_some() {
        let made = create_from(&handle, &caller, &peers, &draft).await?;
        return answer(&handle, made, StatusCode::CREATED).await;
    }
    if let Some(idempotency) = &caller.idempotency {
        // The same request gets the same name, whichever server is asked, so that it is done once by the shard's owner.
        draft.name = Some(format!("trigger-{}", idempotency.request.short()));
        match create_from(&handle, &caller, &peers, &draft).await {
            Ok(made) => return answer(&handle, made, StatusCode::CREATED).await,
            // One of another day has it.
            Err(CreateError::Taken(_)) => {}
            Err(refused) => return Err(refused.into()),
        }
    }
    draft.name = Some(made_up_name(&handle, caller.project, &draft));
    let made = create_from(&handle, &caller, &peers, &draft).await?;
    answer(&handle, made, StatusCode::CREATED).await
}

/// Names that are drawn to find one that is at home where its trigger lives.
const NAMES_DRAWN_MAX: usize = 64;

/// A name for a trigger that has none: such a one that it lives in a shard of this server, if it has any, or where its
/// queue lives.
fn made_up_name(handle: &NodeHandle, project: ProjectId, draft: &Draft) -> String {
    let served = Arc::clone(&handle.peers().served().borrow());
    let queue = draft.queue.as_ref().and_then(|feed| feed.name.as_deref());
    let queue = queue.map(|name| ShardId::of_queue(project, name, handle.shards()));
    let draw = || format!("trigger-{:016x}", handle.random());
    let mut names = std::iter::repeat_with(draw).take(NAMES_DRAWN_MAX);
    let is_good = |name: &String| {
        let home = ShardId::of(project, name, handle.shards());
        queue.map_or_else(|| served.contains(&home), |queue| queue == home)
    };
    names.find(is_good).unwrap_or_else(draw)
}

/// Where a trigger with this name and target lives: with its queue, if it feeds one.
fn shard_of(handle: &NodeHandle, project: ProjectId, definition: &Definition) -> ShardId {
    match &definition.target {
        Target::Webhook(_) => ShardId::of(project, &definition.name, handle.shards()),
        Target::Queue(feed) => ShardId::of_queue(project, &feed.form.queue, handle.shards()),
    }
}

/// Makes a trigger from a draft that has a name.
pub(super) async fn create_from(
    handle: &NodeHandle,
    caller: &Caller,
    peers: &PeerClient,
    draft: &Draft,
) -> Result<TriggerId, CreateError> {
    draft.check_unmasked().map_err(ApiError::fields)?;
    let definition = draft.build(handle.now()).map_err(ApiError::fields)?;
    let name = definition.name.clone();
    let shard = shard_of(handle, caller.project, &definition);
    let named_until = name::reserve(handle, caller, peers, &name, shard).await?;
    let (definition, draft) = (Box::new(definition), raw(draft));
    let (project, author) = (caller.project, caller.author.clone());
    let command = Command::Create { project, definition, draft, author, named_until };
    let attempt = || {
        let outcome = RememberedOutcome::Created(name.to_string());
        let act = Act { action: "trigger.create", object: &name, outcome };
        caller.command(handle, shard, command.clone(), act)
    };
    let mut made = attempt().await;
    if let Err(CallError::Rejected(Rejection::NameReserved { .. })) = made
        && name::release_unused(handle, project, &name).await?
    {
        made = attempt().await;
    }
    match made {
        Ok(id) => Ok(id),
        Err(CallError::Rejected(
            why @ (Rejection::NameTaken(_) | Rejection::NameReserved { .. }),
        )) => Err(CreateError::Taken(why.into())),
        Err(other) => Err(CreateError::Refused(other.into())),
    }
}

/// Why a trigger was not made.
pub(super) enum CreateError {
    /// There is one with this name, or the name is kept for one.
    Taken(ApiError),
    Refused(ApiError),
}

impl From<ApiError> for CreateError {
    fn from(refusal: ApiError) -> Self {
        Self::Refused(refusal)
    }
}

impl From<CreateError> for ApiError {
    fn from(error: CreateError) -> Self {
        match error {
            CreateError::Taken(refusal) | CreateError::Refused(refusal) => refusal,
        }
    }
}

pub(super) async fn list(handle: NodeHandle, caller: Caller, query: Query) -> ApiResult {
    let rows = query.rows()?;
    let status = query.word("status", &Status::ALL, Status::as_str)?;
    let labels = query.labels()?;
    let carries_all = |stored: &Stored| {
        let carries = |(key, value): &(&str, &str)| {
            stored.draft.labels.get(*key).is_some_and(|found| found == value)
        };
        labels.iter().all(carries)
    };
    let prefix = query.text("prefix").unwrap_or_default();
    if !prefix.is_empty() {
        check_name(prefix).map_err(|why| ApiError::parameter("prefix", why))?;
    }
    let mut range = Range::prefix(&name_key(caller.project, prefix));
    if let Some(cursor) = query.text("cursor") {
        check_name(cursor).map_err(|_| bad_cursor())?;
        range = range.after(&key(name_key(caller.project, cursor)));
    }
    let now = handle.now();
    // Without a filter nearly every name is that of an item.
    let is_filtered = status.is_some() || !labels.is_empty();
    let names_max = if is_filtered { NAMES_READ_MAX } else { rows };
    let page = handle.store().scan(range, names_max).await?;
    let names = page.entries.len();
    let (mut found, mut next, mut number) = (Vec::new(), None, 0);
    'names: for entries in page.entries.chunks(READS_AT_ONCE) {
        let ids = entries.iter().map(|entry| read::record::<NameRecord>(entry).map(|name| name.id));
        let ids = ids.collect::<ApiResult<Vec<_>>>()?;
        let triggers = read::triggers_by_id(handle.store(), &ids).await?;
        for (entry, stored) in entries.iter().zip(triggers) {
            number += 1;
            // A name may be reserved for a trigger that was never made.
            if let Some(stored) = stored
                && carries_all(&stored)
                && status.is_none_or(|status| convert::status(&stored, now) == status)
            {
                found.push(stored);
            }
            if found.len() == rows || number == names {
                let name = entry.key.as_str().rsplit('/').next().unwrap_or_default();
                let more = number < names || page.next.is_some();
                next = more.then(|| name.to_owned());
                break 'names;
            }
        }
    }
    let suspended = Silence::of(&handle, caller.project).map(|silence| silence.why);
    let mut last = last_runs(&handle, &found).await?;
    let items: Vec<_> = found
        .iter()
        .map(|stored| Trigger {
            suspended: suspended.clone(),
            ..convert::trigger(stored, now, last.remove(&stored.id()))
        })
        .collect();
    Ok(Json(ListPage { items, next }).into_response())
}

pub(super) fn bad_cursor() -> ApiError {
    ApiError::parameter("cursor", "it is the \"next\" of the page before, unchanged")
}

pub(super) async fn show(
    handle: NodeHandle,
    caller: Caller,
    Path(name): Path<String>,
) -> ApiResult {
    let stored = read::trigger(handle.store(), caller.project, &name).await?;
    let last_run = last_run(&handle, &stored).await?;
    Ok(respond(&handle, &stored, last_run, StatusCode::OK))
}

/// The run that ended last.
async fn last_run(handle: &NodeHandle, stored: &Stored) -> ApiResult<Option<RunSummary>> {
    let id = stored.id();
    let source = Source { shard: id.shard, cluster: handle.cluster() };
    let (from, to) = (stored.record.created, Instant::LAST);
    let span = PastSpan { trigger: id.serial, from, to };
    let mut walk = PastWalk::of(handle.store(), id.shard, span, None, LAST_RUN_SEGMENTS_MAX);
    while let Some(batch) = walk.next().await? {
        for line in batch.lines {
            if let Line::Run(run) = line
                && run.trigger == id.serial
                && run.notice.is_none()
            {
                return Ok(Some(source.summary(&run)));
            }
        }
    }
    Ok(None)
}

/// The runs that ended last, of the triggers of a list, as far as they are among the latest of their shards.
async fn last_runs(
    handle: &NodeHandle,
    page: &[Stored],
) -> ApiResult<HashMap<TriggerId, RunSummary>> {
    let mut wanted: BTreeMap<ShardId, HashSet<TriggerId>> = BTreeMap::new();
    for stored in page {
        wanted.entry(stored.id().shard).or_default().insert(stored.id());
    }
    let (mut found, mut wanted) = (HashMap::new(), wanted.into_iter());
    loop {
        let mut reads = JoinSet::new();
        for (shard, triggers) in wanted.by_ref().take(READS_AT_ONCE) {
            let source = Source { shard, cluster: handle.cluster() };
            reads.spawn(last_runs_in(handle.store().clone(), source, triggers));
        }
        if reads.is_empty() {
            return Ok(found);
        }
        for read in reads.join_all().await {
            found.extend(read?);
        }
    }
}

/// The same for triggers of one shard.
async fn last_runs_in(
    store: Store,
    source: Source,
    mut wanted: HashSet<TriggerId>,
) -> ApiResult<Vec<(TriggerId, RunSummary)>> {
    let mut walk = PastWalk::recent(&store, source.shard, LIST_SEGMENTS_MAX);
    let mut found = Vec::new();
    while !wanted.is_empty()
        && let Some(batch) = walk.next_about(&wanted).await?
    {
        for line in batch.lines {
            let Line::Run(run) = line else { continue };
            let id = TriggerId { shard: source.shard, project: run.project, serial: run.trigger };
            if run.notice.is_none() && wanted.remove(&id) {
                found.push((id, source.summary(&run)));
            }
        }
    }
    Ok(found)
}

pub(super) async fn delete(
    handle: NodeHandle,
    caller: Caller,
    peers: PeerClient,
    Path(name): Path<String>,
) -> ApiResult<StatusCode> {
    let stored = read::trigger(handle.store(), caller.project, &name).await?;
    let id = stored.id();
    let command = Command::Delete { trigger: id.serial, author: caller.author.clone() };
    let act =
        Act { action: "trigger.delete", object: stored.name(), outcome: RememberedOutcome::Done };
    let () = caller.command(&handle, id.shard, command, act).await?;
    name::release(&handle, caller.project, &peers, stored.name(), id.shard).await;
    Ok(StatusCode::NO_CONTENT)
}

/// A pause as it is read, with an instant of the engine, which says what is right when it is none.
#[derive(Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct PauseDraft {
    note: String,
    until: Option<Instant>,
}

impl PauseDraft {
    /// The note and the end of a pause, if they can be.
    pub(super) fn checked(self, now: Instant) -> ApiResult<(String, Option<Instant>)> {
        let Self { note, until } = self;
        if note.chars().count() > NOTE_CHARS_MAX {
            let why = format!("a note has at most {NOTE_CHARS_MAX} characters");
            return Err(ApiError::field("/note", why));
        }
        if until.is_some_and(|until| until <= now) {
            return Err(ApiError::field("/until", format!("it lies in the past: it is {now} now")));
        }
        Ok((note, until))
    }
}

pub(super) async fn pause(
    handle: NodeHandle,
    caller: Caller,
    Path(name): Path<String>,
    OptionalBody(draft): OptionalBody<PauseDraft>,
) -> ApiResult {
    let (note, until) = draft.checked(handle.now())?;
    let command = |trigger| Command::Pause { trigger, author: caller.author.clone(), note, until };
    change(&handle, &caller, &name, ("trigger.pause", command)).await
}

pub(super) async fn resume(
    handle: NodeHandle,
    caller: Caller,
    Path(name): Path<String>,
    _: NoBody,
) -> ApiResult {
    let command = |trigger| Command::Resume { trigger, author: caller.author.clone() };
    change(&handle, &caller, &name, ("trigger.resume", command)).await
}

pub(super) async fn cancel(
    handle: NodeHandle,
    caller: Caller,
    Path(name): Path<String>,
    _: NoBody,
) -> ApiResult {
    let command = |trigger| Command::Cancel { trigger, author: caller.author.clone() };
    change(&handle, &caller, &name, ("trigger.cancel", command)).await
}

async fn change(
    handle: &NodeHandle,
    caller: &Caller,
    name: &str,
    (action, command): (&'static str, impl FnOnce(SerialId) -> Command),
) -> ApiResult {
    let stored = read::trigger(handle.store(), caller.project, name).await?;
    let (id, name) = (stored.id(), stored.name());
    let act = Act { action, object: name, outcome: RememberedOutcome::Changed(name.to_owned()) };
    let () = caller.command(handle, id.shard, command(id.serial), act).await?;
    answer(handle, id, StatusCode::OK).await
}

pub(super) async fn next(
    handle: NodeHandle,
    caller: Caller,
    Path(name): Path<String>,
    query: Query,
) -> ApiResult<Json<NextSlots>> {
    let count = query.number("count", 10, NEXT_SLOTS_MAX)?;
    let stored = read::trigger(handle.store(), caller.project, &name).await?;
    let items = convert::next(&stored, handle.now(), count);
    let silence = Silence::of(&handle, caller.project);
    let note = match convert::status(&stored, handle.now()) {
        Status::Scheduled if silence.is_some() => {
            silence.map(|silence| format!("{}: until that ends, none of them fires", silence.why))
        }
        _ if items.len() == count => None,
        Status::Scheduled => Some("its schedule, or its limit of runs, ends there".to_owned()),
        Status::OnDemand => Some("it has no schedule: it is run on demand".to_owned()),
        Status::Paused => Some("it is paused".to_owned()),
        Status::Expired => Some("its schedule, or its limit of runs, is over".to_owned()),
        Status::Cancelled => Some("it is cancelled".to_owned()),
    };
    Ok(Json(NextSlots { items, note }))
}

/// The trigger as it is now, after a change. Its last run is left out: to find it takes reading its past.
pub(super) async fn answer(handle: &NodeHandle, id: TriggerId, status: StatusCode) -> ApiResult {
    let stored = read::trigger_by_id(handle.store(), id).await?;
    let stored = stored.ok_or_else(|| {
        ApiError::not_found("it was done, and somebody has deleted the trigger since")
    })?;
    Ok(respond(handle, &stored, None, status))
}

pub(super) fn respond(
    handle: &NodeHandle,
    stored: &Stored,
    last_run: Option<RunSummary>,
    status: StatusCode,
) -> Response {
    let suspended = Silence::of(handle, stored.id().project).map(|silence| silence.why);
    let trigger = Trigger { suspended, ..convert::trigger(stored, handle.now(), last_run) };
    let header = |text: String| HeaderValue::from_str(&text).expect("digits, and a checked name");
    let mut response = (status, Json(&trigger)).into_response();
    let headers = response.headers_mut();
    headers.insert(ETAG, header(format!("\"{}\"", trigger.revision)));
    if status == StatusCode::CREATED {
        headers.insert(LOCATION, header(format!("/v1/triggers/{}", trigger.name)));
    }
    response
}

pub(super) fn raw(draft: &Draft) -> Box<RawValue> {
    to_raw_value(draft).expect("a draft always serializes")
}
