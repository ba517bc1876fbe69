//! What is asked about a server as a whole.

use axum::extract::{Request, State};
use axum::http::Uri;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Json, Response};
use client::cluster::{Cluster, Node};
use client::scheduler::{Firing as WireFiring, SchedulerStatus};
use engine::instant::Instant;
use engine::schedule::zone::Zone;
use store::session::Roster;

use super::body;
use super::caller::Caller;
use super::convert::timestamp;
use super::problem::Refusal;
use super::project;
use super::query::Query;
use crate::access::Switch;
use crate::desk::{Desk, Firing};

pub(super) async fn scheduler(
    State(desk): State<Desk>,
    uri: Uri,
) -> Result<Json<SchedulerStatus>, Refusal> {
    Query::of(&uri, &[])?;
    Ok(Json(status(&desk)))
}

pub(super) async fn confirm_time(
    State(desk): State<Desk>,
    caller: Caller,
    request: Request,
) -> Result<Json<SchedulerStatus>, Refusal> {
    Query::of(request.uri(), &[])?;
    body::read_nothing(request).await?;
    desk.confirm_time().await?;
    let trail = caller.trail_of_all(&desk, "scheduler.confirm-time", "scheduler");
    desk.access().note(&trail).await?;
    caller.tell(&desk, "scheduler.confirm-time", "scheduler");
    Ok(Json(status(&desk)))
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

pub(super) async fn cluster(State(desk): State<Desk>, uri: Uri) -> Result<Json<Cluster>, Refusal> {
    Query::of(&uri, &[])?;
    let roster = Roster::read(desk.store()).await?;
    let nodes = roster.live().map(|(key, record)| Node {
        name: key.node().to_string(),
        url: record.url.clone(),
        roles: record.roles.clone(),
        ttl_ms: record.ttl_ms,
        seen: timestamp(Instant(i64::try_from(record.wall_us / 1_000).unwrap_or(i64::MAX))),
    });
    let class = desk.store().class();
    Ok(Json(Cluster {
        id: format!("{:016x}", desk.cluster()),
        shards: desk.shards(),
        store_class: class.to_string(),
        store_means: class.meaning().to_owned(),
        nodes: nodes.collect(),
    }))
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
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], desk.metrics())
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
