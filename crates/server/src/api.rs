//! The HTTP API: `/v1`, and what a machine asks about a server.
//!
//! A handler reads the request strictly, hands a command to the [`NodeHandle`] or reads the store, and answers
//! with the wire types of `client`. Every error, whoever finds it, is a problem (RFC 9457) that says what to
//! do; every answer carries the id under which the request stands in the log.
//!
//! - `serve`, `patient`, `tls`: connections, and how they end
//! - `guard`: what holds for every request; `door`, `caller`: who is let in, and for which project
//! - `forward`: what another server is to answer
//! - `route`: every path and method; `openapi`: the same as a document
//! - `trigger`, `replace`, `run`, `backfill`, `history`, `latest`, `explain`, `project`, `key`, `audit`, `event`,
//!   `election`, `backup`, `cluster`, `system`: what can be asked
//! - `store`: sessions and claims of candidates and members that come through this server
//! - `replay`: the answer to a request that was carried out before
//! - `body`, `query`, `filter`: reading requests; `stream`: answers that are made while they are sent
//! - `read`, `segment`, `exception`, `floor`: reading the store
//! - `account`: what became of each slot
//! - `convert`: from the engine's types to the wire
//! - `problem`: what is said when something is wrong

mod account;
mod audit;
mod backfill;
mod backup;
mod body;
mod caller;
mod cluster;
mod convert;
mod door;
mod election;
mod event;
mod exception;
mod explain;
mod filter;
mod floor;
pub(crate) mod forward;
mod guard;
mod history;
mod key;
mod latest;
mod openapi;
mod patient;
mod problem;
mod project;
mod query;
mod read;
mod replace;
mod replay;
mod route;
mod run;
mod segment;
mod serve;
mod store;
mod stream;
mod system;
mod tls;
mod trigger;

pub use door::Door;
pub use openapi::describe;
pub use serve::serve;
pub use tls::{Tls, TlsError};

pub(crate) use event::cluster_event;

use std::path::Path;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use client::{Carrier, ClientError};
use engine::limits::FORWARD_CONNECT_MAX;

use self::forward::Road;
use crate::handle::NodeHandle;

/// From where requests may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// This machine only: a request that names another host is refused, so that no web page can talk to
    /// this server under a name of its own.
    Loopback,
    /// Anywhere.
    Network,
}

/// How a server lets people in.
#[derive(Debug, Clone)]
pub struct Gate {
    /// Whether a key is needed.
    pub door: Door,
    /// What connections are encrypted with, if they are.
    pub tls: Option<Tls>,
    /// How other servers are reached.
    carrier: Carrier,
}

impl Gate {
    /// Without a key and without encryption: for one machine.
    pub fn open() -> Self {
        Self::new(Door::Open)
    }

    /// Only with a key.
    pub fn locked() -> Self {
        Self::new(Door::Locked)
    }

    fn new(door: Door) -> Self {
        let carrier = Carrier::new(FORWARD_CONNECT_MAX);
        Self { door, tls: None, carrier }
    }

    /// Encrypts connections.
    #[must_use]
    pub fn encrypted(self, tls: Tls) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// Trusts the issuers in this PEM file when other servers are asked.
    pub fn trusting_peers(self, ca: &Path) -> Result<Self, ClientError> {
        Ok(Self { carrier: Carrier::with_ca(ca, FORWARD_CONNECT_MAX)?, ..self })
    }
}

/// The whole API, in front of this handle.
pub fn router(handle: NodeHandle, reach: Reach, gate: &Gate) -> Router {
    let road = Road::new(gate.carrier.clone(), handle.clone());
    route::router(&handle, gate.door)
        .fallback(problem::no_such_path)
        .method_not_allowed_fallback(problem::no_such_method)
        .with_state(handle.clone())
        .layer(from_fn_with_state(road, forward::pass_on))
        .layer(from_fn_with_state(handle.clone(), guard::check_role))
        .layer(from_fn_with_state(reach, guard::check_host))
        .layer(from_fn(guard::limit_time))
        .layer(from_fn_with_state(handle, guard::name_request))
}

/// What there is to ask, and what each asks of its caller: the method, the path, and the scope that a key needs, if
/// one is needed at all.
pub fn table() -> Vec<(String, &'static str, Option<&'static str>)> {
    let need = |need| match need {
        door::Need::Nothing => None,
        door::Need::Key => Some("any"),
        door::Need::Scope(scope) => Some(scope.as_str()),
    };
    let routes = route::routes().into_iter();
    routes.map(|route| (route.method.to_string(), route.path, need(route.need))).collect()
}
