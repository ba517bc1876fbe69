//! The server: it moves bytes between people, the store and receivers, and decides nothing.
//!
//! - [`alarm`]: what rings when a part of the node breaks
//! - [`api`]: the HTTP API
//! - [`desk`]: the door to the node
//! - [`metric`]: what there is to measure
//! - [`node`]: a session, the shards that it owns, and the threads that serve them
//! - [`webhook`]: the dispatcher, which calls receivers

pub mod alarm;
pub mod api;
pub mod desk;
pub mod metric;
pub mod node;
pub mod webhook;
