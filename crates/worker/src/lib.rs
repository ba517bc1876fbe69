//! Workers: whoever carries out the runs of queues.

mod clock;
mod context;
mod handler;
pub mod limits;
mod outcome;
mod printed;
mod sight;
mod spool;
mod worker;

pub use context::{Context, EndReason};
pub use handler::HandlerError;
pub use outcome::Outcome;
pub use sight::{Counter, Gauge, Sight};
pub use spool::{Spool, SpoolError};
pub use worker::{Control, SettingError, Worker, WorkerBuilder, WorkerEnd};
