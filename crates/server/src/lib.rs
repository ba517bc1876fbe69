//! The server: it moves bytes between people, the store and receivers, and decides nothing.
//!
//! - [`api`]: the HTTP API
//! - [`desk`]: the door to the node

pub mod api;
pub mod desk;
