//! Who may do what: projects, keys, limits, the audit, events, and requests that are remembered, against a real
//! node.

mod audit;
mod event;
pub(super) mod house;
mod idempotency;
mod key;
mod limit;
mod matrix;
mod openapi;
mod output;
mod paging;
mod project;
mod queue;
mod queue_shard;
mod queue_sight;
mod redrive;
mod rubbish;
mod tls;
mod worker;
