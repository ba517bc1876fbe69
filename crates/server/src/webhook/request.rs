//! A call, written down as a request.
//!
//! Every attempt of a run carries the same `webhook-id` (and `idempotency-key`), by which a receiver can tell a
//! repeated delivery, and the same trace id. What differs: the number of the attempt, its time, its signature, its
//! token and its span id. A receiver that guards a resource refuses a `watchbell-token` lower than one it has seen.

use std::fmt::Write as _;
use std::str::FromStr;

use bytes::Bytes;
use engine::hash::{hash, mix};
use engine::instant::Instant;
use hyper::header::{CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use hyper::http::uri::{Authority, Parts, PathAndQuery, Scheme as UriScheme, Uri};
use hyper::{Method as HttpMethod, Request};

use engine::webhook::{Method, Scheme};

use super::Call;
use super::connection::{Protocol, RequestBody};
use super::signature::Signer;

const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
const WATCHBELL_SCHEDULED_TIME: HeaderName = HeaderName::from_static("watchbell-scheduled-time");
const WATCHBELL_ATTEMPT: HeaderName = HeaderName::from_static("watchbell-attempt");
const WATCHBELL_TOKEN: HeaderName = HeaderName::from_static("watchbell-token");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Headers that Watchbell answers for.
const OURS_MAX: usize = 11;

const OUR_NAME: &str = concat!("watchbell/", env!("CARGO_PKG_VERSION"));

/// A part of the call that cannot be written down. Its parts were judged when the webhook was made, so this is
/// for callers that did not.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the {0} of the webhook cannot be written down: make it anew")]
pub(super) struct Malformed(&'static str);

/// The request for a call, in the form that the protocol has, at this time by the wall clock, signed if there is
/// something to sign it with. Its headers stand in the table that is given, which is empty.
pub(super) fn request(
    call: &Call,
    protocol: Protocol,
    now: Instant,
    signer: Option<&Signer>,
    mut headers: HeaderMap,
) -> Result<Request<RequestBody>, Malformed> {
    let form = &call.form;
    let path = PathAndQuery::from_str(&call.path).map_err(|_| Malformed("path"))?;
    let authority = form.authority();
    let mut request = Request::new(RequestBody::new(call.body.clone().unwrap_or_default()));
    *request.method_mut() = method(form.method);
    headers.reserve(OURS_MAX + form.headers.len() + form.secret_headers.len());
    *request.headers_mut() = headers;
    match protocol {
        Protocol::One => {
            request.headers_mut().insert(HOST, value("host", &authority)?);
            *request.uri_mut() = Uri::from(path);
        }
        Protocol::Two => {
            let mut parts = Parts::default();
            parts.scheme = Some(scheme(form.scheme));
            parts.authority = Some(Authority::from_str(&authority).map_err(|_| Malformed("host"))?);
            parts.path_and_query = Some(path);
            *request.uri_mut() = Uri::from_parts(parts).map_err(|_| Malformed("URL"))?;
        }
    }
    let headers = request.headers_mut();
    ours(call, now, headers)?;
    let body = call.body.as_deref().unwrap_or_default();
    if let Some(signatures) = signer.and_then(|signer| signer.sign(&call.run, now, body)) {
        headers.insert(WEBHOOK_SIGNATURE, value("signature", &signatures)?);
    }
    for (name, text) in &form.headers {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| Malformed("headers"))?;
        headers.insert(name, value("headers", text)?);
    }
    for (name, text) in &form.secret_headers {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| Malformed("headers"))?;
        let mut secret = value("headers", text)?;
        // Not to be printed, nor remembered by HTTP/2 for the next request.
        secret.set_sensitive(true);
        headers.insert(name, secret);
    }
    Ok(request)
}

/// The headers that Watchbell answers for.
fn ours(call: &Call, now: Instant, headers: &mut HeaderMap) -> Result<(), Malformed> {
    let run = value("run id", &call.run)?;
    headers.insert(WEBHOOK_ID, run.clone());
    headers.insert(IDEMPOTENCY_KEY, run);
    headers.insert(WEBHOOK_TIMESTAMP, now.second().into());
    headers.insert(WATCHBELL_SCHEDULED_TIME, value("time", &call.scheduled.to_string())?);
    headers.insert(WATCHBELL_ATTEMPT, call.attempt.into());
    headers.insert(WATCHBELL_TOKEN, call.token.into());
    headers.insert(TRACEPARENT, value("run id", &traceparent(call))?);
    headers.insert(USER_AGENT, HeaderValue::from_static(OUR_NAME));
    let body_len = call.body.as_ref().map_or(0, Bytes::len);
    match call.form.method {
        Method::Get | Method::Head => (),
        // Also of an empty body: some receivers insist on a length.
        Method::Post | Method::Put | Method::Patch | Method::Delete => {
            headers.insert(CONTENT_LENGTH, body_len.into());
        }
    }
    Ok(())
}

/// W3C's: the trace is the run's, the span is the attempt's.
fn traceparent(call: &Call) -> String {
    let (high, low) = (hash(&call.run, "trace high"), hash(&call.run, "trace low"));
    let span =
        hash(&call.run, "span") ^ mix(u64::from(call.attempt)) ^ mix(call.token.rotate_left(32));
    let mut text = String::with_capacity(55);
    // All zeros would be invalid.
    write!(text, "00-{high:016x}{:016x}-{:016x}-01", low.max(1), span.max(1))
        .expect("a string takes whatever is written");
    text
}

fn value(part: &'static str, text: &str) -> Result<HeaderValue, Malformed> {
    HeaderValue::from_str(text).map_err(|_| Malformed(part))
}

fn method(method: Method) -> HttpMethod {
    match method {
        Method::Get => HttpMethod::GET,
        Method::Head => HttpMethod::HEAD,
        Method::Post => HttpMethod::POST,
        Method::Put => HttpMethod::PUT,
        Method::Patch => HttpMethod::PATCH,
        Method::Delete => HttpMethod::DELETE,
    }
}

fn scheme(scheme: Scheme) -> UriScheme {
    match scheme {
        Scheme::Http => UriScheme::HTTP,
        Scheme::Https => UriScheme::HTTPS,
    }
}
