//! `PUT /v1/triggers/{name}`: create or replace.
//!
//! What is written twice is written once: the same text again changes nothing. A revision in `if-match`
//! keeps one person from undoing what another has just written.

use std::time::Duration;

use axum::extract::Path;
use axum::http::header::{IF_MATCH, IF_NONE_MATCH};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use engine::id::{ShardId, TriggerId};
use engine::instant::Instant;
use engine::shard::command::{Command, Rejection};
use engine::target::Target;
use engine::trigger::{Definition, Draft};

use super::body::JsonBody;
use super::caller::{Act, Caller};
use super::forward::PeerClient;
use super::problem::{ApiError, ApiResult};
use super::read::{self, Stored};
use super::trigger::{CreateError, answer, create_from, raw, respond};
use crate::handle::{CallError, NodeHandle};
use crate::idempotency::RememberedOutcome;

/// How often it is decided anew when others make and delete the same name meanwhile.
const REPLACES_MAX: usize = 3;

pub(super) async fn replace(
    handle: NodeHandle,
    caller: Caller,
    peers: PeerClient,
    Path(name): Path<String>,
    headers: HeaderMap,
    JsonBody(draft): JsonBody<Draft>,
) -> ApiResult {
    let conditions = Conditions::of(&headers)?;
    for _ in 0..REPLACES_MAX {
        let found = match read::id_of(handle.store(), caller.project, &name).await? {
            Some(id) => read::trigger_by_id(handle.store(), id).await?,
            None => None,
        };
        let draft = draft.clone();
        let attempted = if let Some(stored) = found {
            replace_stored(&handle, &caller, &stored, draft, conditions).await
        } else {
            create_named(&handle, &caller, &peers, &name, draft, conditions).await
        };
        match attempted {
            Ok(response) => return Ok(response),
            Err(Attempted::Again) => {}
            Err(Attempted::Refused(refusal)) => return Err(refusal),
        }
    }
    let detail = format!("{name:?} is being made and deleted all the time: try again later");
    Err(ApiError::unavailable(detail, Duration::from_secs(1)))
}

/// Why a replace came to nothing.
enum Attempted {
    /// What was read has changed meanwhile: read it again.
    Again,
    Refused(ApiError),
}

impl<T: Into<ApiError>> From<T> for Attempted {
    fn from(refusal: T) -> Self {
        Self::Refused(refusal.into())
    }
}

async fn create_named(
    handle: &NodeHandle,
    caller: &Caller,
    peers: &PeerClient,
    name: &str,
    mut draft: Draft,
    conditions: Conditions,
) -> Result<Response, Attempted> {
    if name.parse::<TriggerId>().is_ok() {
        return Err(read::no_trigger(name).into());
    }
    if conditions.if_match.is_some() {
        return Err(
            ApiError::precondition("there is no such trigger: create it without if-match").into()
        );
    }
    check_same_name(&draft, name)?;
    draft.name = Some(name.to_owned());
    match create_from(handle, caller, peers, &draft).await {
        Ok(id) => Ok(answer(handle, id, StatusCode::CREATED).await?),
        Err(CreateError::Taken(_)) => Err(Attempted::Again),
        Err(CreateError::Refused(refusal)) => Err(refusal.into()),
    }
}

async fn replace_stored(
    handle: &NodeHandle,
    caller: &Caller,
    stored: &Stored,
    mut draft: Draft,
    conditions: Conditions,
) -> Result<Response, Attempted> {
    if conditions.if_none_match {
        return Err(ApiError::precondition("there is such a trigger already").into());
    }
    let mut revision = conditions.if_match;
    if let Some(revision) = revision
        && revision != stored.record.revision
    {
        return Err(Rejection::RevisionMoved { found: stored.record.revision }.into());
    }
    check_same_name(&draft, stored.name())?;
    draft.name = Some(stored.name().to_owned());
    if let (Some(webhook), Some(stored_webhook)) = (&mut draft.webhook, &stored.draft.webhook)
        && webhook.unmask(stored_webhook)
    {
        // Values that are kept are those of this text and of no later one, and are told to nobody else.
        revision = Some(stored.record.revision);
        check_same_host(&draft, stored)?;
    }
    draft.check_unmasked().map_err(ApiError::fields)?;
    if draft == stored.draft {
        return Ok(respond(handle, stored, None, StatusCode::OK));
    }
    // A schedule that was good stays good, also when it is over.
    let same = draft.schedule == stored.draft.schedule;
    let now = if same { Instant(0) } else { handle.now() };
    let definition = draft.build(now).map_err(ApiError::fields)?;
    let id = stored.id();
    check_same_shard(handle, id, &definition)?;
    let command = Command::Replace {
        trigger: id.serial,
        definition: Box::new(definition),
        draft: raw(&draft),
        author: caller.author.clone(),
        revision,
    };
    let name = stored.name();
    let act = Act {
        action: "trigger.replace",
        object: name,
        outcome: RememberedOutcome::Changed(name.to_owned()),
    };
    match caller.command(handle, id.shard, command, act).await {
        Ok(()) => Ok(answer(handle, id, StatusCode::OK).await?),
        Err(CallError::Rejected(Rejection::NoSuchTrigger)) => Err(Attempted::Again),
        Err(CallError::Rejected(Rejection::RevisionMoved { .. }))
            if conditions.if_match.is_none() =>
        {
            Err(Attempted::Again)
        }
        Err(other) => Err(other.into()),
    }
}

/// A secret header that is kept goes where it went before: whoever may change a trigger may not learn it by having it
/// sent elsewhere.
fn check_same_host(draft: &Draft, stored: &Stored) -> ApiResult<()> {
    let new = draft.build(Instant(0)).map_err(ApiError::fields)?.target;
    let (Target::Webhook(former), Target::Webhook(new)) = (&stored.definition.target, &new) else {
        return Ok(());
    };
    let (former, new) = (&former.form, &new.form);
    if (new.scheme, &new.host, new.port) == (former.scheme, &former.host, former.port) {
        return Ok(());
    }
    Err(ApiError::field(
        "/webhook/secret_headers",
        "the webhook goes to another host now: write the values anew, *** keeps them only where they went before",
    ))
}

/// A trigger stays where it is, so it can feed only queues that live there too. What calls a webhook lives anywhere.
fn check_same_shard(handle: &NodeHandle, id: TriggerId, definition: &Definition) -> ApiResult<()> {
    let Some(feed) = definition.target.feed() else { return Ok(()) };
    let queue = &feed.form.queue;
    if ShardId::of_queue(id.project, queue, handle.shards()) == id.shard {
        return Ok(());
    }
    Err(ApiError::field(
        "/queue/name",
        format!(
            "the queue {queue:?} lives in another shard than this trigger, which cannot move: make one of another name that feeds it, then delete this one"
        ),
    ))
}

/// A name is for good: where a trigger lives comes from it, or from its queue.
fn check_same_name(draft: &Draft, name: &str) -> ApiResult<()> {
    match &draft.name {
        Some(given) if given != name => Err(ApiError::field(
            "/name",
            format!("a trigger keeps its name, and this one is {name:?}: make a new one"),
        )),
        Some(_) | None => Ok(()),
    }
}

/// What the caller wants to be true.
#[derive(Debug, Clone, Copy)]
pub(super) struct Conditions {
    pub(super) if_match: Option<u64>,
    pub(super) if_none_match: bool,
}

impl Conditions {
    pub(super) fn of(headers: &HeaderMap) -> ApiResult<Self> {
        let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default().trim());
        let revision = |tag: &str| tag.strip_prefix('"')?.strip_suffix('"')?.parse().ok();
        let if_match = match text(IF_MATCH) {
            None | Some("*") => None,
            Some(tag) => Some(revision(tag).ok_or_else(|| {
                ApiError::parameter("if-match", "it is one entity tag, like \"3\", with its quotes")
            })?),
        };
        let if_none_match = match text(IF_NONE_MATCH) {
            None => false,
            Some("*") => true,
            Some(_) => return Err(ApiError::parameter("if-none-match", "it is * or nothing")),
        };
        Ok(Self { if_match, if_none_match })
    }
}
