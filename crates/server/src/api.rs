//! The HTTP API: `/v1`, and what a machine asks about a server.
//!
//! A handler reads the request strictly, hands a command to the [`NodeHandle`] or reads the store, and answers
//! with the wire types of `client`. Every error, whoever finds it, is a problem (RFC 9457) that says what to
//! do; every answer carries the id under which the request stands in the log.
//!
//! - `serve`, `write_timeout`, `tls`: connections, and how they end
//! - `middleware`: what is done with every request; `authentication`, `caller`: who is let in, and for which project
//! - `forward`: what another server is to answer
//! - `route`: every path and method; `openapi`: the same as a document
//! - `trigger`, `replace`, `run`, `backfill`, `history`, `latest`, `explain`, `project`, `key`, `audit`, `event`,
//!   `election`, `backup`, `cluster`, `system`, `output`: what can be asked
//! - `store`: sessions and claims of candidates and members that come through this server
//! - `replay`: the answer to a request that was carried out before
//! - `body`, `query`, `filter`: reading requests; `stream`: answers that are made while they are sent
//! - `read`, `segment`, `exception`, `floor`: reading the store
//! - `account`: what became of each slot
//! - `convert`: from the engine's types to the wire
//! - `problem`: what is said when something is wrong

mod account;
mod audit;
mod authentication;
mod backfill;
mod backup;
mod body;
mod caller;
mod cancel;
mod claim;
mod cluster;
pub(crate) mod convert;
mod crowding;
mod dead;
mod election;
mod event;
mod exception;
mod explain;
mod filter;
mod floor;
pub(crate) mod forward;
mod history;
mod key;
mod latest;
mod middleware;
mod name;
mod openapi;
mod output;
mod owner;
mod problem;
mod project;
mod query;
mod queue;
mod queued;
mod read;
mod replace;
mod replay;
mod ring;
mod route;
mod run;
mod segment;
mod serve;
mod store;
mod stream;
mod system;
mod tls;
mod trigger;
mod workers;
mod write_timeout;

pub use authentication::Authentication;
pub use body::{pointer, push_key};
pub(crate) use claim::WaitingClaims;
pub use openapi::describe;
pub use serve::serve;
pub use tls::{ServerTls, TlsError};

pub(crate) use event::{cluster_event, election_event};

use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use client::{Carrier, ClientError};
use engine::limits::FORWARD_CONNECT_MAX;

use self::forward::Forwarder;
use self::middleware::Reception;
use crate::handle::NodeHandle;

/// From where requests may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exposure {
    /// This machine only: a request that names another host is refused, so that no web page can talk to
    /// this server under a name of its own.
    Loopback,
    /// Any machine: requests are taken under whatever host name they give.
    Network,
}

/// Who may use the API, and how connections to it and to other servers are secured.
#[derive(Debug, Clone)]
pub struct ApiSecurity {
    /// Whether a key is needed.
    pub authentication: Authentication,
    /// What connections are encrypted with, if they are.
    pub tls: Option<ServerTls>,
    /// How other servers are reached.
    carrier: Carrier,
}

impl ApiSecurity {
    /// Without a key and without encryption: for one machine.
    pub fn open() -> Self {
        Self::new(Authentication::Open)
    }

    /// Only with a key.
    pub fn locked() -> Self {
        Self::new(Authentication::Required)
    }

    fn new(authentication: Authentication) -> Self {
        let carrier = Carrier::new(FORWARD_CONNECT_MAX);
        Self { authentication, tls: None, carrier }
    }

    /// The same with encrypted connections.
    #[must_use]
    pub fn encrypted(self, tls: ServerTls) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// Trusts the issuers in this PEM file when other servers are asked.
    pub fn trusting_peers(self, ca: &Path) -> Result<Self, ClientError> {
        Ok(Self { carrier: Carrier::with_ca(ca, FORWARD_CONNECT_MAX)?, ..self })
    }
}

/// The whole API, in front of this handle.
pub fn router(handle: NodeHandle, exposure: Exposure, security: &ApiSecurity) -> Router {
    let forwarder = Arc::new(Forwarder::new(security.carrier.clone(), handle.clone()));
    route::router(&handle, security.authentication)
        .fallback(problem::no_such_path)
        .method_not_allowed_fallback(problem::no_such_method)
        .with_state(handle.clone())
        .layer(from_fn_with_state(Reception { handle, exposure, forwarder }, middleware::receive))
}

/// What there is to ask, and what each asks of its caller: the method, the path, and the scope that a key needs, if
/// one is needed at all.
pub fn table() -> Vec<(String, &'static str, Option<&'static str>)> {
    let need = |need| match need {
        authentication::Need::Nothing => None,
        authentication::Need::Key => Some("any"),
        authentication::Need::Scope(scope) => Some(scope.as_str()),
        // The first of them is as good as the others.
        authentication::Need::OneOf(scopes) => scopes.first().map(|scope| scope.as_str()),
    };
    let routes = route::routes().into_iter();
    routes.map(|route| (route.method.to_string(), route.path, need(route.need))).collect()
}
