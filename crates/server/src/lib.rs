//! The server: it moves bytes between people, the store and receivers, and decides nothing.
//!
//! - [`access`]: who may do what, for which project
//! - [`alarm`]: what rings when a part of the node breaks
//! - [`api`]: the HTTP API
//! - `backup`: all that the store holds, while the node runs
//! - [`desk`]: the door to the node
//! - [`event`]: what happened lately
//! - [`herald`]: tells somebody outside what goes wrong among the servers
//! - [`lookout`]: what changes among the servers
//! - [`metric`]: what there is to measure
//! - [`node`]: a session, the shards that it owns, and the threads that serve them
//! - [`peers`]: the other servers of the cluster
//! - `recall`: requests that are remembered, so that they are done once
//! - [`tally`]: what projects have in shards of other servers
//! - [`webhook`]: the dispatcher, which calls receivers

pub mod access;
pub mod alarm;
pub mod api;
mod backup;
pub mod desk;
pub mod event;
pub mod herald;
pub mod lookout;
pub mod metric;
pub mod node;
pub mod peers;
mod recall;
pub mod tally;
pub mod webhook;
