//! Authentication and authorisation: who is let in, to do what, and for which project.
//!
//! A key comes as `authorization: Bearer wbk_…`. Where none is needed, as in `watchbell dev`, a request without one
//! may do everything; one that has a key is held to it all the same. An admin says by the header
//! `watchbell-project` which project a request is about; everybody else has one. What belongs to another project
//! is not there, as far as the answer tells.

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, HeaderName, Method, StatusCode};
use axum::middleware::Next;
use client::key::Scope;
use engine::id::ProjectId;
use engine::limits::{IDEMPOTENCY_KEY_BYTES_MAX, REQUEST_BYTES_MAX};

use super::caller::{ANONYMOUS, Caller, IdempotentRequest};
use super::convert::scope;
use super::forward::Hop;
use super::middleware::RequestId;
use super::problem::{ApiError, ApiResult};
use super::query::Query;
use super::replay;
use crate::access::book::DEFAULT_PROJECT;
use crate::access::key::KeyText;
use crate::access::record::KeyRecord;
use crate::handle::NodeHandle;
use crate::idempotency::{Remembered, RequestFingerprint};

pub(super) const PROJECT: HeaderName = HeaderName::from_static("watchbell-project");
pub(super) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Whether a key is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authentication {
    /// None is: whoever can reach this server may do everything.
    Open,
    /// Every request that is not for everybody brings one.
    Required,
}

/// What a route asks of its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    Nothing,
    /// A key, whatever it may do.
    Key,
    /// A key that may do this.
    Scope(Scope),
    /// A key that may do one of these.
    OneOf(&'static [Scope]),
}

impl Need {
    /// Whether requests are done once under an idempotency key. What nodes, candidates and workers send is safe to send
    /// again, and means something new each time.
    pub(super) fn remembers(self) -> bool {
        !matches!(self, Self::Scope(Scope::Node | Scope::Worker) | Self::OneOf(_))
    }

    /// The scopes of which a key needs one; none, if it needs none.
    pub(super) fn scopes(&self) -> &[Scope] {
        match self {
            Self::Nothing | Self::Key => &[],
            Self::Scope(scope) => std::slice::from_ref(scope),
            Self::OneOf(scopes) => scopes,
        }
    }
}

/// From which address a request came.
#[derive(Debug, Clone, Copy)]
pub(super) struct PeerAddress(pub(super) IpAddr);

/// What decides about the requests of one route.
pub(super) struct Authenticator {
    pub(super) handle: NodeHandle,
    pub(super) authentication: Authentication,
    pub(super) need: Need,
    /// The parameters that the route has.
    pub(super) known: Box<[&'static str]>,
}

/// Lets the request in, or says why not.
pub(super) async fn authenticate(
    State(authenticator): State<Arc<Authenticator>>,
    mut request: Request,
    next: Next,
) -> ApiResult {
    if authenticator.need == Need::Nothing {
        // Probes and scrapers add parameters of their own.
        return Ok(next.run(request).await);
    }
    let key = authenticator.key(request.headers()).await?;
    let scopes_of = |key: &Arc<KeyRecord>| key.scopes.iter().copied().map(scope).collect();
    let scopes: Vec<Scope> = key.as_ref().map_or_else(|| vec![Scope::Admin], scopes_of);
    let wanted = authenticator.need.scopes();
    let is_covered = |wanted: &Scope| scopes.iter().any(|scope| scope.covers(*wanted));
    if !wanted.is_empty() && !wanted.iter().any(is_covered) {
        return Err(short_of(wanted, &scopes));
    }
    let project = authenticator.project(request.headers(), key.as_deref()).await?;
    let extensions = request.extensions();
    let mut caller = Caller {
        project,
        author: key.as_ref().map_or(ANONYMOUS, |key| &key.name).to_owned(),
        key: key.as_ref().map(|key| key.id),
        scopes,
        address: extensions.get().map(|PeerAddress(address)| *address),
        request_id: extensions.get().map(|RequestId(id)| id.clone()).unwrap_or_default(),
        via: extensions.get().map(|hop: &Hop| hop.from.to_string()),
        idempotency: None,
    };
    if request.method() == Method::POST
        && authenticator.need.remembers()
        && let Some(name) = idempotency_key(request.headers())?
    {
        let (asked, rest) = remember(request, project, &name).await?;
        request = rest;
        let key_lock = authenticator.handle.under_way().enter(&asked).await;
        let served = Arc::clone(&authenticator.handle.peers().served().borrow());
        match asked.find(authenticator.handle.store(), authenticator.handle.now()).await? {
            Remembered::New => {
                caller.idempotency = Some(IdempotentRequest { request: asked, key_lock, served });
            }
            Remembered::Done(outcome) => {
                return replay::replay(&authenticator.handle, &caller, outcome).await;
            }
            Remembered::Other => {
                return Err(ApiError::parameter(
                    IDEMPOTENCY_KEY.as_str(),
                    "another request was made under this key within a day: take a new key for a new request",
                ));
            }
        }
    }
    request.extensions_mut().insert(caller);
    let query = Query::of(request.uri(), &authenticator.known)?;
    request.extensions_mut().insert(query);
    Ok(next.run(request).await)
}

impl Authenticator {
    /// The key of the request; none, if none is needed.
    async fn key(&self, headers: &HeaderMap) -> ApiResult<Option<Arc<KeyRecord>>> {
        let Some(given) = headers.get(AUTHORIZATION) else {
            if self.authentication == Authentication::Open {
                return Ok(None);
            }
            return Err(unknown(
                "no-key",
                "this server wants a key: send it as authorization: Bearer wbk_…, or give it to the command line by --key-file or WATCHBELL_KEY, and to a library as its key",
            ));
        };
        let text = given.to_str().ok().and_then(|text| {
            let (scheme, key) = text.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| KeyText::parse(key.trim()))?
        });
        let access = self.handle.access();
        let found = match &text {
            Some(text) => access.check(text).await?,
            None => None,
        };
        let Some(found) = found else {
            return Err(unknown(
                "bad-key",
                "this key is not known here, or was taken back: ask an admin for another",
            ));
        };
        if let Some(end) = found.expires.filter(|end| *end <= access.now()) {
            let detail = format!("this key expired at {end}: ask an admin for another");
            return Err(unknown("expired-key", &detail));
        }
        // It is told to the hour: a request does not fail because that could not be written.
        if let Err(why) = access.used(found.id).await {
            tracing::debug!(%why, "the use of a key could not be written");
        }
        Ok(Some(found))
    }

    /// The project that the request is about.
    async fn project(&self, headers: &HeaderMap, key: Option<&KeyRecord>) -> ApiResult<ProjectId> {
        let own = key.and_then(|key| key.project);
        let named = headers.get(PROJECT).map(|name| name.to_str().unwrap_or_default());
        let Some(name) = named else { return Ok(own.unwrap_or(ProjectId::DEFAULT)) };
        let found = self.handle.access().project(name).await?;
        let found = found.map(|project| project.id);
        let found = found.filter(|id| own.is_none_or(|own| own == *id));
        found.ok_or_else(|| {
            let name: String = name.chars().take(100).collect();
            let detail = format!(
                "there is no project {name:?}, which the header {PROJECT} names; the one that is always there is {DEFAULT_PROJECT:?}"
            );
            ApiError::new(StatusCode::NOT_FOUND, "no-project", "No such project", detail)
        })
    }
}

fn unknown(kind: &'static str, detail: &str) -> ApiError {
    ApiError::new(StatusCode::UNAUTHORIZED, kind, "Who are you?", detail)
}

fn short_of(wanted: &[Scope], scopes: &[Scope]) -> ApiError {
    let words = |scopes: &[Scope]| scopes.iter().map(|scope| scope.as_str()).collect::<Vec<_>>();
    let detail = format!(
        "this takes a key with the scope {}, and this one has {}",
        words(wanted).join(" or "),
        words(scopes).join(", ")
    );
    ApiError::new(StatusCode::FORBIDDEN, "scope", "Not with this key", detail)
}

fn idempotency_key(headers: &HeaderMap) -> ApiResult<Option<String>> {
    let Some(given) = headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let text = given.to_str().unwrap_or_default();
    if (1..=IDEMPOTENCY_KEY_BYTES_MAX).contains(&text.len()) {
        return Ok(Some(text.to_owned()));
    }
    let why = format!("it has 1 to {IDEMPOTENCY_KEY_BYTES_MAX} letters, digits and signs");
    Err(ApiError::parameter(IDEMPOTENCY_KEY.as_str(), why))
}

/// What the request asks, and the request again.
async fn remember(
    request: Request,
    project: ProjectId,
    key: &str,
) -> ApiResult<(RequestFingerprint, Request)> {
    let (head, body) = request.into_parts();
    let bytes = to_bytes(body, REQUEST_BYTES_MAX).await.map_err(|why| super::body::cut(&why))?;
    let path = head.uri.path_and_query().map_or("", |path| path.as_str());
    let parts = [head.method.as_str().as_bytes(), path.as_bytes(), &bytes];
    let asked = RequestFingerprint::new(project, key, &parts);
    Ok((asked, Request::from_parts(head, Body::from(bytes))))
}
