//! The HTTP API: `/v1`, and what a machine asks about a server.
//!
//! A handler reads the request strictly, hands a command to the [`Desk`] or reads the store, and answers
//! with the wire types of `client`. Every error, whoever finds it, is a problem (RFC 9457) that says what to
//! do; every answer carries the id under which the request stands in the log.
//!
//! - `serve`, `patient`: connections, and how they end
//! - `guard`: what holds for every request
//! - `trigger`, `replace`, `run`, `history`, `latest`, `explain`, `system`: what can be asked
//! - `body`, `query`, `filter`: reading requests
//! - `read`, `segment`, `odd`, `floor`: reading the store
//! - `account`: what became of each slot
//! - `convert`: from the engine's types to the wire
//! - `problem`: what is said when something is wrong

mod account;
mod body;
mod convert;
mod explain;
mod filter;
mod floor;
mod guard;
mod history;
mod latest;
mod odd;
mod patient;
mod problem;
mod query;
mod read;
mod replace;
mod run;
mod segment;
mod serve;
mod system;
mod trigger;

pub use serve::serve;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post};

use crate::desk::Desk;

/// From where requests may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// This machine only: a request that names another host is refused, so that no web page can talk to
    /// this server under a name of its own.
    Loopback,
    /// Anywhere.
    Network,
}

/// The whole API, in front of this desk.
pub fn router(desk: Desk, reach: Reach) -> Router {
    Router::new()
        .route("/v1/triggers", get(trigger::list).post(trigger::create))
        .route(
            "/v1/triggers/{name}",
            get(trigger::show).put(replace::replace).delete(trigger::delete),
        )
        .route("/v1/triggers/{name}/pause", post(trigger::pause))
        .route("/v1/triggers/{name}/resume", post(trigger::resume))
        .route("/v1/triggers/{name}/cancel", post(trigger::cancel))
        .route("/v1/triggers/{name}/run", post(run::start))
        .route("/v1/triggers/{name}/next", get(trigger::next))
        .route("/v1/triggers/{name}/runs", get(history::list_of))
        .route("/v1/triggers/{name}/explain", get(explain::explain))
        .route("/v1/runs", get(latest::list))
        .route("/v1/runs/{id}", get(run::show))
        .route("/v1/scheduler", get(system::scheduler))
        .route("/v1/scheduler/confirm-time", post(system::confirm_time))
        .route("/livez", get(system::livez))
        .route("/readyz", get(system::readyz))
        .route("/metrics", get(system::metrics))
        .route("/", get(system::welcome))
        .fallback(problem::no_such_path)
        .method_not_allowed_fallback(problem::no_such_method)
        .with_state(desk.clone())
        .layer(from_fn_with_state(reach, guard::check_host))
        .layer(from_fn(guard::limit_time))
        .layer(from_fn_with_state(desk, guard::name_request))
}
