//! The server: it moves bytes between people, the store and receivers, and decides nothing.
//!
//! - [`access`]: who may do what, for which project
//! - [`alarm`]: what rings when a part of the node breaks
//! - [`api`]: the HTTP API
//! - `backup`: all that the store holds, while the node runs
//! - [`handle`]: the door to the node
//! - [`event`]: what happened lately; [`follower`]: who is told what runs print
//! - [`notifier`]: tells somebody outside what goes wrong among the servers
//! - [`monitor`]: what changes among the servers
//! - [`metric`]: what there is to measure
//! - [`node`]: a session, the shards that it owns, and the threads that serve them
//! - [`peers`]: the other servers of the cluster
//! - `ring`: the node's part in rings
//! - `idempotency`: requests that are remembered, so that they are done once
//! - [`shard_usage`]: what projects have in shards of other servers
//! - [`webhook`]: the dispatcher, which calls receivers

pub mod access;
pub mod alarm;
pub mod api;
mod backup;
pub mod election;
pub mod event;
pub mod follower;
pub mod handle;
mod idempotency;
pub mod metric;
pub mod monitor;
pub mod node;
pub mod notifier;
pub mod peers;
mod ring;
pub mod shard_usage;
pub mod webhook;
