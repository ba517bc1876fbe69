//! The published library: what Watchbell's API takes and gives, and a client that speaks it.
//!
//! - [`spec`]: a trigger as one writes it
//! - [`trigger`], [`run`], [`account`], [`scheduler`], [`project`], [`key`], [`audit`],
//!   [`cluster`], [`event`]: what the API tells
//! - [`problem`]: what it says when something is wrong
//! - [`Client`]: asks, and gives typed answers
//!
//! ```no_run
//! # async fn example() -> Result<(), client::ClientError> {
//! let client = client::Client::new("http://127.0.0.1:7400")?;
//! let spec = client::spec::TriggerSpec::webhook("hello", "http://127.0.0.1:8000/hook").cron("0 9 * * *");
//! let trigger = client.create_trigger(&spec).await?;
//! println!("{} rings next at {:?}", trigger.name, trigger.next.first());
//! # Ok(())
//! # }
//! ```

pub mod account;
pub mod audit;
mod call;
pub mod cluster;
mod error;
pub mod event;
pub mod key;
pub mod page;
pub mod problem;
pub mod project;
pub mod run;
pub mod scheduler;
pub mod spec;
pub mod trigger;

pub use call::{Client, Pieces, RunFilter, TriggerFilter};
pub use error::ClientError;
pub use jiff::Timestamp;
pub use page::Page;
