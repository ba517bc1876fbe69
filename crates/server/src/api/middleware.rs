//! What is done with every request: it is named, bounded in time, refused if it is meant for somebody else, and passed on
//! if another server has its shard.
//!
//! All of it is one layer before the router: each layer is copied for every request, with all that lie below it.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use engine::limits::{REQUEST_ID_BYTES_MAX, REQUEST_TIME_MAX, UNAVAILABLE_RETRY_AFTER};
use store::clock::Stopwatch;
use tracing::Instrument;

use super::Exposure;
use super::forward::{self, Carried, Forwarder, Hop};
use super::problem::{ApiError, ApiResult, PendingProblem};
use crate::handle::NodeHandle;
use crate::peers::API;

pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The name of a request.
#[derive(Debug, Clone)]
pub(super) struct RequestId(pub(super) String);

/// What receives requests.
#[derive(Clone)]
pub(super) struct Reception {
    pub(super) handle: NodeHandle,
    pub(super) exposure: Exposure,
    pub(super) forwarder: Arc<Forwarder>,
}

/// Names the request, writes its line into the log, and puts the name on the answer.
pub(super) async fn receive(
    State(reception): State<Reception>,
    mut request: Request,
    next: Next,
) -> Response {
    let random = || format!("req_{:016x}", reception.handle.random());
    let id = given_id(request.headers()).unwrap_or_else(random);
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    request.extensions_mut().insert(RequestId(id.clone()));
    let span = tracing::info_span!("request", id);
    let watch = Stopwatch::start();
    let response = reception.answer(request, next).instrument(span).await;
    let mut response = told(response, &id);
    let status = response.status();
    let took_ms = watch.elapsed().as_millis();
    if status.is_server_error() {
        tracing::warn!(request_id = id, %method, path, status = status.as_u16(), took_ms, "answered");
    } else {
        tracing::info!(request_id = id, %method, path, status = status.as_u16(), took_ms, "answered");
    }
    let id = HeaderValue::from_str(&id).expect("letters, digits and a few signs");
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

/// The id that the caller gave, if it is one that may stand in a log.
fn given_id(headers: &HeaderMap) -> Option<String> {
    let id = headers.get(REQUEST_ID)?.to_str().ok()?;
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let fits = (1..=REQUEST_ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(fits);
    fits.then(|| id.to_owned())
}

/// The answer with its problem written out, also where none of ours found it. One of another server has it.
fn told(mut response: Response, id: &str) -> Response {
    if response.extensions().get::<Carried>().is_some() {
        return response;
    }
    let told = response.extensions_mut().remove::<PendingProblem>();
    let is_error = response.status().is_client_error() || response.status().is_server_error();
    let problem = match told {
        Some(PendingProblem(problem)) => problem,
        None if is_error => {
            let mut plain = ApiError::of_status(response.status()).into_response();
            let told =
                plain.extensions_mut().remove::<PendingProblem>().expect("a refusal is told");
            let media_type = HeaderValue::from_static(client::problem::MEDIA_TYPE);
            response.headers_mut().insert(CONTENT_TYPE, media_type);
            told.0
        }
        None => return response,
    };
    let problem = client::problem::Problem { request_id: Some(id.to_owned()), ..problem };
    let text = serde_json::to_vec(&problem).expect("a problem always serializes");
    response.headers_mut().remove(CONTENT_LENGTH);
    *response.body_mut() = Body::from(text);
    response
}

impl Reception {
    /// Answers, unless it takes too long: a body may never come.
    async fn answer(&self, request: Request, next: Next) -> Response {
        let meant_for_us =
            check_host(self.exposure, &request).and_then(|()| check_role(&self.handle, &request));
        if let Err(refusal) = meant_for_us {
            return refusal.into_response();
        }
        let answer = forward::pass_on(&self.forwarder, request, next);
        let answer = tokio::time::timeout(REQUEST_TIME_MAX, answer).await;
        answer.unwrap_or_else(|_| {
            let detail = format!("the request took longer than {REQUEST_TIME_MAX:?}");
            let late = ApiError::new(StatusCode::REQUEST_TIMEOUT, "timeout", "Too slow", detail);
            late.into_response()
        })
    }
}

/// What anybody may ask: nothing of anybody's triggers is in the answers.
const PUBLIC_PATHS: [&str; 3] = ["/livez", "/readyz", "/metrics"];

/// Refuses what a web page could make a browser send: a request under a foreign name that leads here (DNS
/// rebinding), or one from a page of somebody else. A browser would not show that page the answer to a mere
/// question, but it need not come to that.
fn check_host(exposure: Exposure, request: &Request) -> ApiResult<()> {
    let headers = request.headers();
    let host = request.uri().authority().cloned().or_else(|| authority(headers.get(HOST)?));
    let Some(host) = host else {
        return Err(ApiError::malformed("a request names the host that it is for"));
    };
    if exposure == Exposure::Loopback && !is_loopback(host.host()) {
        return Err(forbidden(format!(
            "this server listens on this machine only, and the request is for {}: use 127.0.0.1 or localhost",
            host.host()
        )));
    }
    if let Some(origin) = headers.get(ORIGIN)
        && !is_of(origin, &host)
        && !is_public(request)
    {
        return Err(forbidden(
            "a page of another site may not ask or change anything here".to_owned(),
        ));
    }
    Ok(())
}

/// Refuses what is for a server of another role: one without `api` answers only what a machine asks about it, and what
/// other servers pass on.
fn check_role(handle: &NodeHandle, request: &Request) -> ApiResult<()> {
    let view = handle.peers().view();
    let has_role = view.mine().is_none_or(|server| server.has_role(API));
    if has_role || is_public(request) || Hop::of(request.headers()).is_some() {
        return Ok(());
    }
    let me = view.me.node();
    let mut others = view.servers.iter().filter(|server| server.has_role(API));
    let Some(other) = others.find_map(|server| Some((server.node(), server.url.as_ref()?))) else {
        let detail = format!(
            "the server {me} takes no requests (it has not the role {API}), and there is none at the moment that does"
        );
        return Err(ApiError::unavailable(detail, UNAVAILABLE_RETRY_AFTER));
    };
    let (name, url) = other;
    let detail = format!(
        "the server {me} takes no requests: it has not the role {API}; ask {name} at {url}"
    );
    let status = StatusCode::MISDIRECTED_REQUEST;
    Err(ApiError::new(status, "role", "Ask another server", detail))
}

fn is_public(request: &Request) -> bool {
    let asks = matches!(*request.method(), Method::GET | Method::HEAD);
    asks && PUBLIC_PATHS.contains(&request.uri().path())
}

fn forbidden(detail: String) -> ApiError {
    ApiError::new(StatusCode::FORBIDDEN, "foreign-host", "Not from there", detail)
}

fn authority(header: &HeaderValue) -> Option<Authority> {
    header.to_str().ok()?.parse().ok()
}

/// Whether an origin is the host that the request is for.
fn is_of(origin: &HeaderValue, host: &Authority) -> bool {
    let origin = origin.to_str().ok();
    let named = origin.and_then(|origin| origin.split_once("://")).map(|(_, named)| named);
    named.is_some_and(|named| named.eq_ignore_ascii_case(host.as_str()))
}

fn is_loopback(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let address: Option<std::net::IpAddr> = bare.parse().ok();
    address.is_some_and(|address| address.is_loopback()) || host.eq_ignore_ascii_case("localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_loopback() {
        for host in ["localhost", "LOCALHOST", "127.0.0.1", "127.9.9.9", "[::1]"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["example.com", "localhost.example.com", "10.0.0.1", "[::2]", "0.0.0.0", ""] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn an_id_that_could_spoil_a_log_is_replaced() {
        let given = |id: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(REQUEST_ID, HeaderValue::from_str(id).unwrap());
            given_id(&headers)
        };
        assert_eq!(given("abc-1.2_3"), Some("abc-1.2_3".to_owned()));
        assert_eq!(given(&"a".repeat(REQUEST_ID_BYTES_MAX)).map(|id| id.len()), Some(64));
        assert_eq!(given(&"a".repeat(REQUEST_ID_BYTES_MAX + 1)), None);
        assert_eq!(given("a b"), None);
        assert_eq!(given(""), None);
    }
}
