//! What is asked about a server as a whole.

use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Json};
use bytes::Bytes;
use client::scheduler::{Firing as WireFiring, SchedulerStatus, ServerStatus};
use engine::schedule::zone::Zone;
use store::session::NodeId;

use super::body::NoBody;
use super::caller::Caller;
use super::convert::timestamp;
use super::forward::{PeerClient, Unreached};
use super::problem::{ApiError, ApiResult};
use super::project;
use crate::access::Switch;
use crate::handle::{FiringState, NodeHandle};
use crate::metric;
use crate::peers::Server;
use crate::ring;

pub(super) async fn scheduler(
    handle: NodeHandle,
    peers: PeerClient,
) -> ApiResult<Json<SchedulerStatus>> {
    let answers = peers.ask_all(&Method::GET, "/v1/scheduler").await;
    Ok(Json(status_of_all(&handle, answers)))
}

/// Each server has a clock of its own, so each is told: 202, if one could not be.
pub(super) async fn confirm_time(
    handle: NodeHandle,
    caller: Caller,
    peers: PeerClient,
    _: NoBody,
) -> ApiResult {
    handle.confirm_time().await?;
    // What is remembered of this request is for whoever sent it: the others are told before that.
    let answers = peers.ask_all(&Method::POST, "/v1/scheduler/confirm-time").await;
    let trail = caller.trail_of_all(&handle, "scheduler.confirm-time", "scheduler");
    handle.access().note(&trail).await?;
    caller.tell(&handle, "scheduler.confirm-time", "scheduler");
    let status = status_of_all(&handle, answers);
    let is_unreached = status.servers.iter().any(|server| server.unreached.is_some());
    let code = if is_unreached { StatusCode::ACCEPTED } else { StatusCode::OK };
    Ok((code, Json(status)).into_response())
}

pub(super) async fn start(handle: NodeHandle, caller: Caller, _: NoBody) -> ApiResult {
    switch(&handle, &caller, ("scheduler.start", Switch::On)).await
}

pub(super) async fn stop(handle: NodeHandle, caller: Caller, _: NoBody) -> ApiResult {
    switch(&handle, &caller, ("scheduler.stop", Switch::Off)).await
}

async fn switch(handle: &NodeHandle, caller: &Caller, (action, to): (&str, Switch)) -> ApiResult {
    let trail = caller.trail_of_all(handle, action, "scheduler");
    let version = handle.access().switch_scheduler(to, &trail).await?;
    let settled = project::settle(handle, version).await;
    caller.tell(handle, action, "scheduler");
    Ok((settled, Json(status(handle))).into_response())
}

/// How this server is, and what the others answered.
fn status_of_all(
    handle: &NodeHandle,
    answers: Vec<(Server, Result<Bytes, Unreached>)>,
) -> SchedulerStatus {
    let mut own = status(handle);
    let told = |node: &NodeId, status: SchedulerStatus| ServerStatus {
        node: node.to_string(),
        unreached: None,
        firing: Some(status.firing),
        since: status.since,
        why: status.why,
        now: Some(status.now),
        version: Some(status.version),
    };
    let view = handle.peers().view();
    own.servers = vec![told(view.me.node(), own.clone())];
    for (server, answer) in answers {
        let read = answer.and_then(|bytes| {
            serde_json::from_slice(&bytes)
                .map_err(|why| format!("its answer is not understood: {why}"))
        });
        own.servers.push(match read {
            Ok(status) => told(server.node(), status),
            Err(why) => ServerStatus {
                node: server.node().to_string(),
                unreached: Some(why),
                firing: None,
                since: None,
                why: None,
                now: None,
                version: None,
            },
        });
    }
    own.servers.sort_by(|one, other| one.node.cmp(&other.node));
    own
}

pub(super) fn status(handle: &NodeHandle) -> SchedulerStatus {
    let stopped = handle.access().book().stopped();
    let (firing, since, why) = match (handle.firing(), stopped) {
        (FiringState::Suspended { since, why }, _) => {
            (WireFiring::Suspended, Some(timestamp(since)), Some(why))
        }
        (FiringState::Going, None) => (WireFiring::Going, None, None),
        (FiringState::Going, Some(since)) => {
            let why = "somebody stopped the scheduler: watchbell scheduler start lets it go on";
            (WireFiring::Stopped, Some(timestamp(since)), Some(why.to_owned()))
        }
    };
    SchedulerStatus {
        firing,
        since,
        why,
        ready: handle.is_ready(),
        now: timestamp(handle.now()),
        cluster: format!("{:016x}", handle.cluster()),
        shards: handle.shards(),
        tzdata: Zone::version().to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        servers: Vec::new(),
    }
}

/// The process is there, and its tasks get to run.
pub(super) async fn livez() -> &'static str {
    "ok\n"
}

/// It takes requests.
pub(super) async fn readyz(handle: NodeHandle) -> ApiResult<&'static str> {
    if handle.is_ready() {
        return Ok("ok\n");
    }
    let pause = std::time::Duration::from_secs(1);
    Err(ApiError::unavailable(
        "this server is starting or stopping, or its store does not answer",
        pause,
    ))
}

pub(super) async fn metrics(handle: NodeHandle) -> impl IntoResponse {
    let rings = handle.rings().map(|rings| ring::metrics(&rings.stats().borrow()));
    let text = metric::of_cluster(&handle.peers().view())
        + &rings.unwrap_or_default()
        + &handle.counted_metrics().await;
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text)
}

pub(super) async fn welcome() -> impl IntoResponse {
    let text = concat!(
        "Watchbell ",
        env!("CARGO_PKG_VERSION"),
        ": rings on time, takes turns, and lets exactly one hold the watch.\n\n\
         This is a Watchbell server. A dashboard will be here; it is not built yet. Meanwhile:\n\n  \
         the API         /v1/triggers  /v1/runs  /v1/events  /openapi.json\n  \
         for machines    /livez  /readyz  /metrics\n  \
         for people      watchbell trigger --help\n"
    );
    ([(CONTENT_TYPE, "text/plain; charset=utf-8")], text)
}
