//! A shard: a slice of all work, owned by one node at a time.
//!
//! - [`command`]: what it can be told, and what it answers
//! - [`record`]: what it keeps in the store

pub mod command;
pub mod record;
