//! The server: it moves bytes between people, the store and receivers, and decides nothing.
//!
//! - [`alarm`]: what rings when a part of the node breaks
//! - [`api`]: the HTTP API
//! - `backup`: all that the store holds, while the node runs
//! - [`desk`]: the door to the node
//! - [`metric`]: what there is to measure
//! - [`node`]: a session, the shards that it owns, and the threads that serve them
//! - [`webhook`]: the dispatcher, which calls receivers

pub mod alarm;
pub mod api;
mod backup;
pub mod desk;
pub mod metric;
pub mod node;
pub mod webhook;
