//! What is said when something is wrong.

use std::time::Duration;

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use client::problem::{FieldProblem, MEDIA_TYPE, Problem};
use client::store::StoreTrouble;
use engine::limits::{LIMIT_RETRY_AFTER, UNAVAILABLE_RETRY_AFTER};
use engine::record::RecordError;
use engine::shard::command::Rejection;
use engine::trigger::BadField;
use store::{CommitError, ScanError};

use super::forward::{Elsewhere, Misdirected};
use crate::access::book::BookError;
use crate::access::{ChangeError, Denial};
use crate::handle::{CallError, WriteTrouble};

/// What a handler answers, or why it does not.
pub(super) type ApiResult<T = Response> = Result<T, ApiError>;

/// An answer that says what is wrong.
#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    /// The last part of its type: `name-taken`.
    kind: &'static str,
    title: &'static str,
    detail: Box<str>,
    errors: Box<[FieldProblem]>,
    retry_after: Option<Duration>,
    /// The limit of the project that is reached.
    limit: Option<&'static str>,
    /// How the store was, if the request was for it.
    store: Option<Box<StoreTrouble>>,
    /// Where the shard is, if it is not here, and nothing was done.
    misdirected: Option<Box<Misdirected>>,
}

/// Nobody has the shard.
const NO_OWNER: &str = "no-owner";

/// Another server has the shard.
const ELSEWHERE: &str = "elsewhere";

/// The beginning of each problem's type.
const URN: &str = "urn:watchbell:problem:";

impl ApiError {
    pub(super) fn new(
        status: StatusCode,
        kind: &'static str,
        title: &'static str,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            status,
            kind,
            title,
            detail: detail.into().into_boxed_str(),
            errors: Box::default(),
            retry_after: None,
            limit: None,
            store: None,
            misdirected: None,
        }
    }

    /// Says how the store was.
    pub(super) fn with_store(mut self, store: StoreTrouble) -> Self {
        self.store = Some(Box::new(store));
        self
    }

    pub(super) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not-found", "Not found", detail)
    }

    pub(super) fn no_trigger(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "no-trigger", "No such trigger", detail)
    }

    /// A body that cannot be read at all.
    pub(super) fn malformed(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "malformed", "Malformed request", detail)
    }

    pub(super) fn precondition(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::PRECONDITION_FAILED, "revision-moved", "Changed meanwhile", detail)
    }

    /// A field of the body that is wrong.
    pub(super) fn field(pointer: impl Into<String>, why: impl Into<String>) -> Self {
        Self::fields([BadField { pointer: pointer.into(), why: why.into() }])
    }

    /// Fields of the body that are wrong.
    pub(super) fn fields(faults: impl IntoIterator<Item = BadField>) -> Self {
        let errors: Vec<FieldProblem> = faults
            .into_iter()
            .map(|fault| FieldProblem {
                pointer: Some(fault.pointer),
                parameter: None,
                detail: fault.why,
            })
            .collect();
        Self::invalid(errors)
    }

    /// A parameter of the query, or a header, that is wrong.
    pub(super) fn parameter(name: &str, why: impl Into<String>) -> Self {
        let detail = why.into();
        let parameter = Some(name.to_owned());
        Self::invalid(vec![FieldProblem { pointer: None, parameter, detail }])
    }

    fn invalid(errors: Vec<FieldProblem>) -> Self {
        let sentences: Vec<String> = errors
            .iter()
            .map(|error| {
                let place = error.pointer.as_ref().or(error.parameter.as_ref());
                let place = place.map_or("", String::as_str);
                format!("{}: {}", if place.is_empty() { "the body" } else { place }, error.detail)
            })
            .collect();
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        Self {
            errors: errors.into(),
            ..Self::new(status, "invalid", "Invalid request", sentences.join("; "))
        }
    }

    fn retry_after(mut self, pause: Duration) -> Self {
        self.retry_after = Some(pause);
        self
    }

    /// What the status says by itself, where whoever answered said no more.
    pub(super) fn of_status(status: StatusCode) -> Self {
        let title = status.canonical_reason().unwrap_or("Refused");
        let detail = format!("the request cannot be answered: {}", title.to_lowercase());
        Self::new(status, "refused", title, detail)
    }

    pub(super) fn unavailable(detail: impl Into<String>, pause: Duration) -> Self {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        Self::new(status, "unavailable", "Not available now", detail).retry_after(pause)
    }

    /// What another server says is wrong with a request, of which this one answers a part.
    pub(super) fn passed_on(status: StatusCode, body: &[u8]) -> Self {
        let known = ["old-incarnation", "void-claim", "too-many"];
        match serde_json::from_slice::<Problem>(body) {
            Ok(problem) => {
                let kind = problem.kind.strip_prefix(URN).unwrap_or_default();
                let kind = known.into_iter().find(|known| *known == kind).unwrap_or("refused");
                let errors = problem.errors.into();
                Self { errors, ..Self::new(status, kind, "Refused", problem.detail) }
            }
            Err(_) => Self::of_status(status),
        }
    }

    pub(in crate::api) fn internal(detail: String) -> Self {
        tracing::error!(why = %detail, "a request could not be answered");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "Fault of the server", detail)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let problem = Problem {
            kind: format!("{URN}{}", self.kind),
            title: self.title.to_owned(),
            status: self.status.as_u16(),
            detail: self.detail.into_string(),
            request_id: None,
            limit: self.limit.map(str::to_owned),
            store: self.store.map(|store| *store),
            errors: self.errors.into_vec(),
        };
        let mut response = self.status.into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        let is_limited = self.status == StatusCode::TOO_MANY_REQUESTS;
        if let Some(pause) = self.retry_after.or(is_limited.then_some(LIMIT_RETRY_AFTER)) {
            // Whole seconds, and never less than what is meant.
            let seconds = pause.as_millis().div_ceil(1_000).max(1);
            let seconds = HeaderValue::from_str(&seconds.to_string()).expect("digits");
            response.headers_mut().insert(RETRY_AFTER, seconds);
        }
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        if let Some(misdirected) = self.misdirected {
            response.extensions_mut().insert(*misdirected);
        }
        // The request's id is put in on the way out: see `middleware`.
        response.extensions_mut().insert(PendingProblem(problem));
        response
    }
}

/// A problem on its way out.
#[derive(Debug, Clone)]
pub(super) struct PendingProblem(pub(super) Problem);

impl From<CallError> for ApiError {
    fn from(error: CallError) -> Self {
        let sentence = error.to_string();
        match error {
            CallError::Rejected(rejection) => rejection.into(),
            CallError::NoOwner { retry_after } => {
                let misdirected = Some(Box::new(Misdirected::NoOwner));
                Self { kind: NO_OWNER, misdirected, ..Self::unavailable(sentence, retry_after) }
            }
            CallError::Elsewhere { node, url } => Self {
                kind: ELSEWHERE,
                misdirected: Some(Box::new(Misdirected::OwnedBy(Elsewhere { node, url }))),
                ..Self::unavailable(sentence, UNAVAILABLE_RETRY_AFTER)
            },
            CallError::Refused(WriteTrouble::Full(_)) => {
                Self::new(StatusCode::INSUFFICIENT_STORAGE, "no-room", "No room", sentence)
            }
            CallError::Busy
            | CallError::Repeated
            | CallError::Refused(WriteTrouble::Closed(_))
            | CallError::Unwritten(_)
            | CallError::HandedOver
            | CallError::Stopping => Self::unavailable(sentence, UNAVAILABLE_RETRY_AFTER),
        }
    }
}

/// Whether nothing was done because the server that says this does not have the shard.
pub(super) fn says_nothing_done(problem: &Problem) -> bool {
    let kind = problem.kind.strip_prefix(URN);
    kind.is_some_and(|kind| [NO_OWNER, ELSEWHERE].contains(&kind))
}

impl From<Rejection> for ApiError {
    fn from(rejection: Rejection) -> Self {
        let sentence = rejection.to_string();
        let conflict = |kind, title| Self::new(StatusCode::CONFLICT, kind, title, sentence.clone());
        let too_many =
            |title| Self::new(StatusCode::TOO_MANY_REQUESTS, "too-many", title, sentence.clone());
        match rejection {
            Rejection::NoSuchTrigger => Self::no_trigger(sentence),
            Rejection::NameTaken(_) | Rejection::NameReserved { .. } => {
                conflict("name-taken", "The name is taken")
            }
            Rejection::RevisionMoved { .. } => Self::precondition(sentence),
            Rejection::AlreadyPaused => conflict("already-paused", "Paused already"),
            Rejection::NotPaused => conflict("not-paused", "Not paused"),
            Rejection::AlreadyCancelled => conflict("already-cancelled", "Cancelled already"),
            Rejection::BackfillElsewhere { .. } => {
                conflict("backfill-elsewhere", "The request is about another time")
            }
            Rejection::ProjectIsDisabled => conflict("project-disabled", "The project is disabled"),
            Rejection::ProjectIsEnabling | Rejection::ReservationIsOver => {
                Self::unavailable(sentence, UNAVAILABLE_RETRY_AFTER)
            }
            Rejection::OverLimit { limit, .. } => Self {
                limit: Some(limit.as_str()),
                ..Self::new(
                    StatusCode::TOO_MANY_REQUESTS,
                    "over-limit",
                    "The project's limit is reached",
                    sentence,
                )
            },
            Rejection::NoSuchQueue => {
                Self::new(StatusCode::NOT_FOUND, "no-queue", "No such queue", sentence)
            }
            Rejection::NoSuchRun => Self::not_found(sentence),
            Rejection::TooManyQueues => too_many("Too many queues"),
            Rejection::QueueIsFull { .. } | Rejection::TooManyLongRuns { .. } => {
                too_many("The queue is full").retry_after(UNAVAILABLE_RETRY_AFTER)
            }
            Rejection::QueueHasRuns { .. } => conflict("queue-has-runs", "The queue has runs"),
            Rejection::QueueIsFed(_) => conflict("queue-is-fed", "A trigger feeds the queue"),
            Rejection::TooManyTriggers => too_many("Too many triggers"),
            Rejection::TooManyNames => too_many("Too many names"),
            Rejection::TooManyRuns | Rejection::TooManyRunsBeforeQueues { .. } => {
                too_many("Too many runs").retry_after(UNAVAILABLE_RETRY_AFTER)
            }
        }
    }
}

impl From<ScanError> for ApiError {
    fn from(error: ScanError) -> Self {
        let sentence = error.to_string();
        match error {
            ScanError::Unavailable(_) => Self::unavailable(sentence, UNAVAILABLE_RETRY_AFTER),
            ScanError::Corrupt(_) | ScanError::Refused(_) => Self::internal(sentence),
        }
    }
}

impl From<BookError> for ApiError {
    fn from(error: BookError) -> Self {
        match error {
            BookError::Scan(why) => why.into(),
            BookError::Record { .. } => Self::internal(error.to_string()),
        }
    }
}

impl From<Denial> for ApiError {
    fn from(denial: Denial) -> Self {
        let sentence = denial.to_string();
        let conflict = |kind, title| Self::new(StatusCode::CONFLICT, kind, title, sentence.clone());
        let too_many =
            |title| Self::new(StatusCode::TOO_MANY_REQUESTS, "too-many", title, sentence.clone());
        match denial {
            Denial::ProjectExists(_) => conflict("name-taken", "The name is taken"),
            Denial::NoProject(_) => {
                Self::new(StatusCode::NOT_FOUND, "no-project", "No such project", sentence)
            }
            Denial::NoKey(_) => Self::new(StatusCode::NOT_FOUND, "no-key", "No such key", sentence),
            Denial::TooManyProjects => too_many("Too many projects"),
            Denial::TooManyKeys => too_many("Too many keys"),
            Denial::AlreadyEnabled(_) => conflict("already-enabled", "Enabled already"),
            Denial::AlreadyDisabled(_) => conflict("already-disabled", "Disabled already"),
            Denial::AlreadyStarted => conflict("already-started", "Running already"),
            Denial::AlreadyDraining(_) => conflict("already-draining", "Draining already"),
            Denial::NotDraining(_) => conflict("not-draining", "Not asked to drain"),
            Denial::TooManyDrains | Denial::TooManyDrainsOfAll => {
                too_many("Too many are asked to drain")
            }
            Denial::AlreadyStopped => conflict("already-stopped", "Stopped already"),
            Denial::LastAdmin => conflict("last-admin", "The last way in"),
        }
    }
}

impl From<ChangeError> for ApiError {
    fn from(error: ChangeError) -> Self {
        let sentence = error.to_string();
        if error.is_full() {
            return Self::new(StatusCode::INSUFFICIENT_STORAGE, "no-room", "No room", sentence);
        }
        match error {
            ChangeError::Denied(denial) => denial.into(),
            ChangeError::Read(why) => why.into(),
            ChangeError::Commit(CommitError::Corrupt(_)) => Self::internal(sentence),
            ChangeError::Busy
            | ChangeError::Repeated
            | ChangeError::Unknown
            | ChangeError::Commit(_) => Self::unavailable(sentence, UNAVAILABLE_RETRY_AFTER),
        }
    }
}

impl ApiError {
    /// A record that cannot be read.
    pub(super) fn of_record(key: &str, why: &RecordError) -> Self {
        Self::internal(format!("{key}: {why}"))
    }
}

pub(super) async fn no_such_path(uri: Uri) -> ApiError {
    let path: String = uri.path().chars().take(100).collect();
    ApiError::not_found(format!("there is nothing at {path}: the API begins at /v1/triggers"))
}

pub(super) async fn no_such_method(method: Method, uri: Uri) -> ApiError {
    let path: String = uri.path().chars().take(100).collect();
    let detail = format!("{path} does not take {method}: see the header allow");
    let status = StatusCode::METHOD_NOT_ALLOWED;
    ApiError::new(status, "method-not-allowed", "Method not allowed", detail)
}
