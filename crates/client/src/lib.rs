//! The published library: what Watchbell's API takes and gives, and a client that speaks it.
//!
//! - [`spec`]: a trigger as one writes it; [`queue`]: queues and their runs; [`worker`]: what workers say;
//!   [`output`]: what runs print; [`redrive`]: what is done to many runs at once
//! - [`trigger`], [`run`], [`account`], [`scheduler`], [`project`], [`key`], [`audit`],
//!   [`cluster`], [`event`]: what the API tells; [`election`]: who leads, and how to; [`ring`]: whose turn it is
//! - [`store`]: what Watchbell's own candidates ask a server
//! - [`problem`]: what it says when something is wrong
//! - [`Client`]: asks, tries again where nothing is done twice by it, and gives typed answers; [`Events`]: follows what
//!   happens
//! - [`Carrier`]: passes requests on, for servers
//! - [`ClientError`]: why there is no answer, and what to do next
//!
#![doc = include_str!("../README.md")]

pub mod account;
pub mod audit;
#[cfg(feature = "tls")]
#[doc(hidden)]
pub mod authority;
mod call;
pub mod cluster;
pub mod election;
mod error;
pub mod event;
pub mod key;
pub mod output;
pub mod page;
pub mod problem;
pub mod project;
pub mod queue;
pub mod redrive;
pub mod ring;
pub mod run;
pub mod scheduler;
pub mod spec;
pub mod store;
pub mod trigger;
pub mod worker;

pub use call::{
    AuditFilter, Carrier, Client, ClientBuilder, DeadRunFilter, ElectionFilter, Events, Followed,
    KeyFilter, OutputEvents, Pieces, ProjectFilter, QueueFilter, RingEvents, RingFilter,
    RingMember, RunFilter, SseBlock, StoreHints, TriggerFilter,
};
pub use error::ClientError;
pub use jiff::Timestamp;
pub use page::ListPage;
