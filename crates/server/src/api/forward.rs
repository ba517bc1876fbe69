//! Passing on: a request for a shard that another server has goes there, once.
//!
//! A handler that finds a shard elsewhere has done nothing, and says where. Then the request goes there as it came, with
//! the caller's own key, and the answer comes back as it is. It goes no further than that: a request that was passed on
//! is answered where it arrives, if need be with the word that the shard is not there either, so that servers that
//! each take the other for the owner do not send it round and round.
//!
//! - nothing was done (no connection, or the other one does not have the shard): look again who has it, for a moment
//! - the answer was lost after the request left: it may have been done, and whoever asked is told so
//!
//! Whoever claims to pass a request on gains nothing by it: its key is looked at as always, and the address in the audit is
//! where the connection came from.
//!
//! - `buffered`: a request that can be sent again; `forwarder`: sends it to another server; `peer`: asks others something

mod buffered;
mod forwarder;
mod peer;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use client::ClientError;
use client::problem::Problem;
use engine::limits::{
    FORWARD_ANSWER_BYTES_MAX, FORWARD_ANSWER_MAX, FORWARD_TRIES_MAX, UNAVAILABLE_RETRY_AFTER,
};
use store::session::NodeId;

use self::buffered::BufferedRequest;
pub(super) use self::forwarder::{Forwarder, Hop};
pub(crate) use self::peer::{PeerClient, Unreached};
use super::problem::{self, ApiError};

/// Which server has answered, if it was not the one that was asked.
const SERVED_BY: HeaderName = HeaderName::from_static("watchbell-served-by");

/// The pause before the next look at who owns a shard.
const PAUSE: Duration = Duration::from_millis(50);

/// Why a handler did nothing: the shard is not here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Misdirected {
    /// Another server owns it.
    OwnedBy(Elsewhere),
    /// Nobody owns it, or it changes hands.
    NoOwner,
}

/// The server that owns a shard, and where it is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Elsewhere {
    pub(super) node: NodeId,
    pub(super) url: Option<String>,
}

/// An answer of another server, to be left as it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Carried;

/// Passes the request on if its shard is elsewhere.
pub(super) async fn pass_on(
    forwarder: &Arc<Forwarder>,
    mut request: Request,
    next: Next,
) -> Response {
    let hop = Hop::of(request.headers());
    request.extensions_mut().insert(Arc::clone(forwarder));
    if let Some(hop) = hop {
        request.extensions_mut().insert(hop.clone());
        let response = next.run(request).await;
        if let Some(Misdirected::OwnedBy(there)) = response.extensions().get() {
            forwarder.log_misdirected(&hop, there);
        }
        return response;
    }
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        return next.run(request).await;
    }
    let (original, mut request) = BufferedRequest::of(request);
    let tries = tokio::time::sleep(FORWARD_TRIES_MAX);
    let mut tries = std::pin::pin!(tries);
    let mut is_told = false;
    loop {
        let mut response = next.clone().run(request).await;
        let nothing_done = match response.extensions_mut().remove::<Misdirected>() {
            None => return response,
            Some(Misdirected::NoOwner) => response,
            Some(Misdirected::OwnedBy(there)) => {
                match carry(forwarder, &original, &there, &mut is_told).await {
                    Ok(response) => return response,
                    Err(NotCarried::InDoubt(refusal)) => return refusal.into_response(),
                    Err(NotCarried::NothingDone(refusal)) => refusal.into_response(),
                }
            }
        };
        tokio::select! {
            biased;
            () = &mut tries => return nothing_done,
            () = tokio::time::sleep(PAUSE) => {}
        }
        request = original.request();
    }
}

/// Why a request was not answered by the server that it went to.
enum NotCarried {
    /// It was not carried out: look for the shard again.
    NothingDone(ApiError),
    /// It may have been: whoever asked decides what to do.
    InDoubt(ApiError),
}

async fn carry(
    forwarder: &Forwarder,
    original: &BufferedRequest,
    there: &Elsewhere,
    is_told: &mut bool,
) -> Result<Response, NotCarried> {
    let Some(request) = forwarder.request(original, there) else {
        let detail = format!(
            "the server {} has this shard, and does not say where others reach it: start it with --url",
            there.node
        );
        return Err(NotCarried::NothingDone(ApiError::unavailable(
            detail,
            UNAVAILABLE_RETRY_AFTER,
        )));
    };
    tracing::debug!(node = %there.node, "passed on");
    let answer =
        forwarder.carrier().carry(request, FORWARD_ANSWER_MAX, FORWARD_ANSWER_BYTES_MAX).await;
    let answer = answer.map_err(|why| {
        // Once for each request, however often it is tried.
        if !std::mem::replace(is_told, true) {
            tracing::warn!(node = %there.node, %why, "a request could not be passed on");
        }
        not_carried(&there.node, &why)
    })?;
    let (mut head, body) = answer.into_parts();
    if head.status == StatusCode::SERVICE_UNAVAILABLE
        && let Ok(problem) = serde_json::from_slice::<Problem>(&body)
        && problem::says_nothing_done(&problem)
    {
        let refusal = ApiError::unavailable(problem.detail, UNAVAILABLE_RETRY_AFTER);
        return Err(NotCarried::NothingDone(refusal));
    }
    head.headers = forwarder::end_to_end(&head.headers);
    let node = HeaderValue::from_str(there.node.as_str()).expect("letters, digits and a few signs");
    head.headers.insert(SERVED_BY, node);
    head.extensions.clear();
    head.extensions.insert(Carried);
    Ok(Response::from_parts(head, body.into()))
}

fn not_carried(node: &NodeId, why: &ClientError) -> NotCarried {
    if why.may_be_done() {
        let detail = format!(
            "the request went on to the server {node}, and the answer was lost ({why}): it may have been done: look first, or send it again under the same idempotency key"
        );
        let status = StatusCode::BAD_GATEWAY;
        return NotCarried::InDoubt(ApiError::new(
            status,
            "in-doubt",
            "It may have been done",
            detail,
        ));
    }
    let advice = match why {
        ClientError::Untrusted { .. } => "; --peer-ca says which issuers servers trust",
        _ => "",
    };
    let detail =
        format!("nothing was done: the server {node} has this shard, and {why}{advice}; try again");
    NotCarried::NothingDone(ApiError::unavailable(detail, UNAVAILABLE_RETRY_AFTER))
}
