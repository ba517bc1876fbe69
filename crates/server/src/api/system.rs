//! What is asked about a server as a whole.

use axum::extract::{Request, State};
use axum::http::Uri;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Json};
use client::scheduler::{Firing as WireFiring, SchedulerStatus};
use engine::schedule::zone::Zone;

use super::body;
use super::convert::timestamp;
use super::problem::Refusal;
use super::query::Query;
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
    request: Request,
) -> Result<Json<SchedulerStatus>, Refusal> {
    Query::of(request.uri(), &[])?;
    body::read_nothing(request).await?;
    desk.confirm_time().await?;
    Ok(Json(status(&desk)))
}

fn status(desk: &Desk) -> SchedulerStatus {
    let (firing, since, why) = match desk.firing() {
        Firing::Going => (WireFiring::Going, None, None),
        Firing::Held { since, why } => (WireFiring::Held, Some(timestamp(since)), Some(why)),
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
    Err(Refusal::unavailable("this server is starting or stopping", pause))
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
         the API         /v1/triggers  /v1/runs  /v1/scheduler\n  \
         for machines    /livez  /readyz  /metrics\n  \
         for people      watchbell trigger --help\n"
    );
    ([(CONTENT_TYPE, "text/plain; charset=utf-8")], text)
}
