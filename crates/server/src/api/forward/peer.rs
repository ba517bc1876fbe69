//! A client of the other servers, in the name of whoever asked this one.
//!
//! What is asked carries the caller's own key, so each server decides by itself what it lets them do; and it says that it
//! was passed on, so that nobody who is asked asks others in turn.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Method, Request, StatusCode};
use bytes::Bytes;
use client::Followed;
use client::problem::Problem;
use engine::limits::{FORWARD_ANSWER_BYTES_MAX, FORWARD_ROUND_MAX};
use store::session::NodeId;
use tokio::task::JoinSet;

use super::super::authentication::PROJECT;
use super::super::middleware::{REQUEST_ID, RequestId};
use super::{Forwarder, Hop};
use crate::peers::Server;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Asks other servers for whoever asked this one.
#[derive(Clone)]
pub(crate) struct PeerClient {
    forwarder: Arc<Forwarder>,
    /// Who asks, and about what.
    headers: HeaderMap,
    /// Whether this server was asked by another one.
    is_asked_by_peer: bool,
}

/// Why another server gave no answer that is of use, as a sentence.
pub(crate) type Unreached = String;

impl PeerClient {
    /// The other servers of the cluster; none, if it is one of them who asks.
    pub(crate) fn others(&self) -> Vec<Server> {
        if self.is_asked_by_peer {
            return Vec::new();
        }
        let view = self.forwarder.handle().peers().view();
        view.servers.iter().filter(|server| server.session != view.me).cloned().collect()
    }

    /// Whether this server was asked by another one.
    pub(crate) fn is_asked_by_peer(&self) -> bool {
        self.is_asked_by_peer
    }

    /// Asks one server, for a short time.
    pub(crate) async fn ask(
        &self,
        to: (&NodeId, Option<&str>),
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> Result<Bytes, Unreached> {
        let (status, body) = self.ask_for(to, method, path, body, FORWARD_ROUND_MAX).await?;
        if status.is_success() {
            return Ok(body);
        }
        Err(serde_json::from_slice(&body)
            .map_or_else(|_| format!("it answered {status}"), |problem: Problem| problem.detail))
    }

    /// Asks one server, for so long. Whatever it answers is told.
    pub(crate) async fn ask_for(
        &self,
        to: (&NodeId, Option<&str>),
        method: Method,
        path: &str,
        body: Option<String>,
        within: Duration,
    ) -> Result<(StatusCode, Bytes), Unreached> {
        let mut request = self.request(to, path)?;
        *request.method_mut() = method;
        if let Some(body) = body {
            request
                .headers_mut()
                .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            *request.body_mut() = body.into();
        }
        let carrier = self.forwarder.carrier();
        let answer = carrier.carry(request, within, FORWARD_ANSWER_BYTES_MAX).await;
        let (head, body) = answer.map_err(|why| why.to_string())?.into_parts();
        Ok((head.status, body))
    }

    /// Asks all other servers the same at once, and gives their answers in the order of their names.
    pub(crate) async fn ask_all(
        &self,
        method: &Method,
        path: &str,
    ) -> Vec<(Server, Result<Bytes, Unreached>)> {
        let mut asked = JoinSet::new();
        for server in self.others() {
            let (peers, method, path) = (self.clone(), method.clone(), path.to_owned());
            asked.spawn(async move {
                let to = (server.node(), server.url.as_deref());
                let answer = peers.ask(to, method, &path, None).await;
                (server, answer)
            });
        }
        let mut answers = asked.join_all().await;
        answers.sort_by(|(one, _), (other, _)| one.session.cmp(&other.session));
        answers
    }

    /// Follows what a server tells at a path, after this place if one is given.
    pub(crate) async fn follow(
        &self,
        server: &Server,
        path: &str,
        last: Option<&str>,
    ) -> Result<Followed, Unreached> {
        let mut request = self.request((server.node(), server.url.as_deref()), path)?;
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(last) = last.and_then(|last| HeaderValue::from_str(last).ok()) {
            request.headers_mut().insert(LAST_EVENT_ID, last);
        }
        let followed =
            tokio::time::timeout(FORWARD_ROUND_MAX, self.forwarder.carrier().follow(request));
        let late = |_| "it does not answer".to_owned();
        followed.await.map_err(late)?.map_err(|why| why.to_string())
    }

    /// How long a round of questions takes at most.
    pub(crate) fn patience() -> Duration {
        FORWARD_ROUND_MAX
    }

    fn request(
        &self,
        (node, url): (&NodeId, Option<&str>),
        path: &str,
    ) -> Result<Request<Bytes>, Unreached> {
        let url = url.ok_or_else(|| "it does not say where others reach it".to_owned())?;
        let uri = super::forwarder::uri(url, path).ok_or_else(|| format!("{url:?} is no URL"))?;
        let mut request = Request::new(Bytes::new());
        *request.uri_mut() = uri;
        *request.headers_mut() = self.headers.clone();
        self.forwarder.sign(request.headers_mut(), node);
        Ok(request)
    }
}

impl<S: Sync> FromRequestParts<S> for PeerClient {
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, StatusCode> {
        let forwarder = parts.extensions.get::<Arc<Forwarder>>().cloned();
        let forwarder = forwarder.ok_or(StatusCode::INTERNAL_SERVER_ERROR)?;
        let mut headers = HeaderMap::new();
        for name in [AUTHORIZATION, PROJECT] {
            headers.extend(parts.headers.get(&name).cloned().map(|value| (name, value)));
        }
        let id = parts.extensions.get().and_then(|RequestId(id)| HeaderValue::from_str(id).ok());
        headers.extend(id.map(|id| (REQUEST_ID, id)));
        let is_asked_by_peer = parts.extensions.get::<Hop>().is_some();
        Ok(Self { forwarder, headers, is_asked_by_peer })
    }
}
