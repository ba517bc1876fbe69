//! `/v1/triggers`.

use axum::extract::{Path, Request, State};
use axum::http::header::{ETAG, LOCATION};
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Json, Response};
use client::Page;
use client::run::RunSummary;
use client::trigger::{NextSlots, Status};
use engine::id::{ProjectId, ShardId, TriggerId};
use engine::instant::Instant;
use engine::limits::{NAMES_READ_MAX, NEXT_SLOTS_MAX, NOTE_CHARS_MAX};
use engine::past::Line;
use engine::shard::command::{Command, Done};
use engine::shard::record::{NameRecord, name_key};
use engine::trigger::{BadField, Draft, check_name};
use serde_json::value::{RawValue, to_raw_value};
use store::Range;

use super::body;
use super::convert::{self, Source};
use super::problem::Refusal;
use super::query::Query;
use super::read::{self, Stored, key};
use super::segment::Walk;
use crate::desk::Desk;

/// Who does what is done here. Keys, and with them people, come later.
pub(super) const AUTHOR: &str = "anonymous";

/// How many of the latest batches of the past are looked at for a trigger's last run.
const LAST_RUN_SEGMENTS_MAX: usize = 100;

pub(super) async fn create(
    State(desk): State<Desk>,
    request: Request,
) -> Result<Response, Refusal> {
    Query::of(request.uri(), &[])?;
    let mut draft: Draft = body::read(request).await?;
    if draft.name.is_none() {
        draft.name = Some(made_up_name(desk.random()));
    }
    let made = create_from(&desk, &draft).await?;
    answer(&desk, made, StatusCode::CREATED).await
}

/// A name for a trigger that has none.
fn made_up_name(random: u64) -> String {
    format!("trigger-{random:016x}")
}

async fn create_from(desk: &Desk, draft: &Draft) -> Result<TriggerId, Refusal> {
    let definition = draft.build(desk.now()).map_err(Refusal::fields)?;
    let shard = ShardId::of(ProjectId::DEFAULT, &definition.name, desk.shards());
    let (definition, draft) = (Box::new(definition), raw(draft));
    let (project, author) = (ProjectId::DEFAULT, AUTHOR.to_owned());
    let command = Command::Create { project, definition, draft, author };
    match desk.command(shard, command).await? {
        Done::Created(id) => Ok(id),
        other => Err(odd(other)),
    }
}

pub(super) async fn list(State(desk): State<Desk>, uri: Uri) -> Result<Response, Refusal> {
    let query = Query::of(&uri, &["status", "prefix", "limit", "cursor"])?;
    let rows = query.rows()?;
    let status = query.word("status", &Status::ALL, Status::as_str)?;
    let prefix = query.text("prefix").unwrap_or_default();
    if !prefix.is_empty() {
        check_name(prefix).map_err(|why| Refusal::parameter("prefix", why))?;
    }
    let mut range = Range::prefix(&name_key(ProjectId::DEFAULT, prefix));
    if let Some(cursor) = query.text("cursor") {
        check_name(cursor).map_err(|_| bad_cursor())?;
        range = range.after(&key(name_key(ProjectId::DEFAULT, cursor)));
    }
    let now = desk.now();
    let page = desk.store().scan(range, NAMES_READ_MAX).await?;
    let names = page.entries.len();
    let (mut items, mut next) = (Vec::new(), None);
    for (number, entry) in (1..).zip(page.entries) {
        let name = entry.key.as_str().rsplit('/').next().unwrap_or_default();
        let record: NameRecord = read::record(&entry)?;
        // A name may be reserved for a trigger that was never made.
        if let Some(stored) = read::trigger_by_id(desk.store(), record.id).await?
            && status.is_none_or(|status| convert::status(&stored, now) == status)
        {
            items.push(convert::trigger(&stored, now, None));
        }
        if items.len() == rows || number == names {
            let more = number < names || page.next.is_some();
            next = more.then(|| name.to_owned());
            break;
        }
    }
    Ok(Json(Page { items, next }).into_response())
}

pub(super) fn bad_cursor() -> Refusal {
    Refusal::parameter("cursor", "it is the \"next\" of the page before, unchanged")
}

pub(super) async fn show(
    State(desk): State<Desk>,
    Path(name): Path<String>,
    uri: Uri,
) -> Result<Response, Refusal> {
    Query::of(&uri, &[])?;
    let stored = read::trigger(desk.store(), &name).await?;
    let last_run = last_run(&desk, &stored).await?;
    Ok(tell(&desk, &stored, last_run, StatusCode::OK))
}

/// The run that ended last, if it is among the latest of its shard.
async fn last_run(desk: &Desk, stored: &Stored) -> Result<Option<RunSummary>, Refusal> {
    let id = stored.id();
    let source = Source { shard: id.shard, cluster: desk.cluster() };
    let mut walk = Walk::recent(desk.store(), id.shard, LAST_RUN_SEGMENTS_MAX);
    while let Some(batch) = walk.next().await? {
        for line in batch.lines {
            if let Line::Run(run) = line
                && run.trigger == id.unique
            {
                return Ok(Some(source.summary(&run)));
            }
        }
    }
    Ok(None)
}

pub(super) async fn delete(
    State(desk): State<Desk>,
    Path(name): Path<String>,
    uri: Uri,
) -> Result<StatusCode, Refusal> {
    Query::of(&uri, &[])?;
    let id = read::trigger(desk.store(), &name).await?.id();
    let command = Command::Delete { trigger: id.unique, author: AUTHOR.to_owned() };
    match desk.command(id.shard, command).await? {
        Done::Deleted => Ok(StatusCode::NO_CONTENT),
        other => Err(odd(other)),
    }
}

/// A pause as it is read, with an instant of the engine, which says what is right when it is none.
#[derive(Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
struct PauseDraft {
    note: String,
    until: Option<Instant>,
}

pub(super) async fn pause(
    State(desk): State<Desk>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Refusal> {
    Query::of(request.uri(), &[])?;
    let PauseDraft { note, until } = body::read_or_default(request).await?;
    if note.chars().count() > NOTE_CHARS_MAX {
        let why = format!("a note has at most {NOTE_CHARS_MAX} characters");
        return Err(Refusal::fields([BadField { pointer: "/note".to_owned(), why }]));
    }
    if until.is_some_and(|until| until <= desk.now()) {
        let why = format!("it lies in the past: it is {} now", desk.now());
        return Err(Refusal::fields([BadField { pointer: "/until".to_owned(), why }]));
    }
    let command = |trigger| Command::Pause { trigger, author: AUTHOR.to_owned(), note, until };
    change(&desk, &name, command, Done::Paused).await
}

pub(super) async fn resume(
    State(desk): State<Desk>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Refusal> {
    Query::of(request.uri(), &[])?;
    body::read_nothing(request).await?;
    let command = |trigger| Command::Resume { trigger, author: AUTHOR.to_owned() };
    change(&desk, &name, command, Done::Resumed).await
}

pub(super) async fn cancel(
    State(desk): State<Desk>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Refusal> {
    Query::of(request.uri(), &[])?;
    body::read_nothing(request).await?;
    let command = |trigger| Command::Cancel { trigger, author: AUTHOR.to_owned() };
    change(&desk, &name, command, Done::Cancelled).await
}

async fn change(
    desk: &Desk,
    name: &str,
    command: impl FnOnce(engine::id::Unique) -> Command,
    expected: Done,
) -> Result<Response, Refusal> {
    let id = read::trigger(desk.store(), name).await?.id();
    let done = desk.command(id.shard, command(id.unique)).await?;
    if done != expected {
        return Err(odd(done));
    }
    answer(desk, id, StatusCode::OK).await
}

pub(super) async fn next(
    State(desk): State<Desk>,
    Path(name): Path<String>,
    uri: Uri,
) -> Result<Json<NextSlots>, Refusal> {
    let query = Query::of(&uri, &["count"])?;
    let count = query.number("count", 10, NEXT_SLOTS_MAX)?;
    let stored = read::trigger(desk.store(), &name).await?;
    let items = convert::next(&stored, desk.now(), count);
    let note = match convert::status(&stored, desk.now()) {
        _ if items.len() == count => None,
        Status::Scheduled => Some("its schedule, or its limit of runs, ends there".to_owned()),
        Status::OnDemand => Some("it has no schedule: it is run on demand".to_owned()),
        Status::Paused => Some("it is paused".to_owned()),
        Status::Expired => Some("its schedule, or its limit of runs, is over".to_owned()),
        Status::Cancelled => Some("it is cancelled".to_owned()),
    };
    Ok(Json(NextSlots { items, note }))
}

/// The trigger as it is now.
pub(super) async fn answer(
    desk: &Desk,
    id: TriggerId,
    status: StatusCode,
) -> Result<Response, Refusal> {
    let stored = read::trigger_by_id(desk.store(), id).await?;
    let stored = stored.ok_or_else(|| {
        Refusal::not_found("it was done, and somebody has deleted the trigger since")
    })?;
    Ok(tell(desk, &stored, None, status))
}

pub(super) fn tell(
    desk: &Desk,
    stored: &Stored,
    last_run: Option<RunSummary>,
    status: StatusCode,
) -> Response {
    let trigger = convert::trigger(stored, desk.now(), last_run);
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

/// The node did something else than it was told. That cannot be.
pub(super) fn odd(done: Done) -> Refusal {
    tracing::error!(?done, "a command was answered with what another one does");
    Refusal::of_status(StatusCode::INTERNAL_SERVER_ERROR)
}
