//! What is asked about a server as a whole.

use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Json, Response};
use bytes::Bytes;
use client::scheduler::{Firing as WireFiring, SchedulerStatus, ServerStatus};
use engine::schedule::zone::Zone;
use store::session::NodeId;

use super::body;
use super::caller::Caller;
use super::convert::timestamp;
use super::forward::{Envoy, Unreached};
use super::problem::Refusal;
use super::project;
use super::query::Query;
use crate::access::Switch;
use crate::desk::{Desk, Firing};
use crate::metric;
use crate::peers::Server;

pub(super) async fn scheduler(
    State(desk): State<Desk>,
    envoy: Envoy,
    uri: Uri,
) -> Result<Json<SchedulerStatus>, Refusal> {
    Query::of(&uri, &[])?;
    let answers = envoy.ask_all(&Method::GET, "/v1/scheduler").await;
    Ok(Json(status_of_all(&desk, answers)))
}

/// Each server has a clock of its own, so each is told: 202, if one could not be.
pub(super) async fn confirm_time(
    State(desk): State<Desk>,
    caller: Caller,
    envoy: Envoy,
    request: Request,
) -> Result<Response, Refusal> {
    Query::of(request.uri(), &[])?;
    body::read_nothing(request).await?;
    desk.confirm_time().await?;
    // What is remembered of this request is for whoever sent it: the others are told before that.
    let answers = envoy.ask_all(&Method::POST, "/v1/scheduler/confirm-time").await;
    let trail = caller.trail_of_all(&desk, "scheduler.confirm-time", "scheduler");
    desk.access().note(&trail).await?;
    caller.tell(&desk, "scheduler.confirm-time", "scheduler");
    let status = status_of_all(&desk, answers);
    let is_unreached = status.servers.iter().any(|server| server.unreached.is_some());
    let code = if is_unreached { StatusCode::ACCEPTED } else { StatusCode::OK };
    Ok((code, Json(status)).into_response())
}

pub(super) async fn start(
    State(desk): State<Desk>,
    caller: Caller,
    request: Request,
) -> Result<Response, Refusal> {
    switch(&desk, &caller, request, ("scheduler.start", Switch::On)).await
}

pub(super) async fn stop(
    State(desk): State<Desk>,
    caller: Caller,
    request: Request,
) -> Result<Response, Refusal> {
    switch(&desk, &caller, request, ("scheduler.stop", Switch::Off)).await
}

async fn switch(
    desk: &Desk,
    caller: &Caller,
    request: Request,
    (action, to): (&str, Switch),
) -> Result<Response, Refusal> {
    Query::of(request.uri(), &[])?;
    body::read_nothing(request).await?;
    let trail = caller.trail_of_all(desk, action, "scheduler");
    let version = desk.access().switch_scheduler(to, &trail).await?;
    let settled = project::settle(desk, version).await;
    caller.tell(desk, action, "scheduler");
    Ok((settled, Json(status(desk))).into_response())
}

/// How this server is, and what the others answered.
fn status_of_all(desk: &Desk, answers: Vec<(Server, Result<Bytes, Unreached>)>) -> SchedulerStatus {
    let mut own = status(desk);
    let told = |node: &NodeId, status: SchedulerStatus| ServerStatus {
        node: node.to_string(),
        unreached: None,
        firing: Some(status.firing),
        since: status.since,
        why: status.why,
        now: Some(status.now),
        version: Some(status.version),
    };
    let view = desk.peers().view();
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

pub(super) fn status(desk: &Desk) -> SchedulerStatus {
    let stopped = desk.access().book().stopped();
    let (firing, since, why) = match (desk.firing(), stopped) {
        (Firing::Held { since, why }, _) => (WireFiring::Held, Some(timestamp(since)), Some(why)),
        (Firing::Going, None) => (WireFiring::Going, None, None),
        (Firing::Going, Some(since)) => {
            let why = "somebody stopped the scheduler: watchbell scheduler start lets it go on";
            (WireFiring::Stopped, Some(timestamp(since)), Some(why.to_owned()))
        }
    };
    SchedulerStatus {
        firing,
        since,
        why,
        ready: desk.is_ready(),
        now: timestamp(desk.now()),
        cluster: format!("{:016x}", desk.cluster()),
        shards: desk.shards(),
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
pub(super) async fn readyz(State(desk): State<Desk>) -> Result<&'static str, Refusal> {
    if desk.is_ready() {
        return Ok("ok\n");
    }
    let pause = std::time::Duration::from_secs(1);
    Err(Refusal::unavailable(
        "this server is starting or stopping, or its store does not answer",
        pause,
    ))
}

pub(super) async fn metrics(State(desk): State<Desk>) -> impl IntoResponse {
    let text = metric::of_cluster(&desk.peers().view()) + &desk.metrics();
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
