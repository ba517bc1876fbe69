//! Workers: whoever carries out the runs of queues.
//!
//! - [`Worker`], [`Control`], [`WorkerEnd`]: what one is made with, is told, and how it ends
//! - [`Context`], [`EndReason`]: what a handler or a command gets; [`HandlerError`], [`Outcome`]: what it gives
//! - [`Spool`]: what a worker must not forget when its process dies
//! - [`Sight`]: what it did and how it stands
//!
//! Inside, `ledger` has the rules of the protocol and no effects; `life` has the tasks around it; `link` says which server is asked
//! next, `printer` sends what runs print, `rotation` which queue stands first.
#![doc = include_str!("../README.md")]

mod clock;
pub mod command;
mod context;
mod entropy;
mod handler;
mod ledger;
mod life;
pub mod limits;
mod link;
mod outcome;
mod printed;
mod printer;
mod rotation;
mod sight;
mod spool;
mod worker;

pub use context::{Context, EndReason};
pub use handler::HandlerError;
pub use outcome::Outcome;
pub use sight::{Counter, Gauge, Sight};
pub use spool::{Spool, SpoolError};
pub use worker::{Control, SettingError, Worker, WorkerBuilder, WorkerEnd};
