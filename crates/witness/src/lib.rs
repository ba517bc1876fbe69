//! The witness: who says from outside whether two programs acted at a time.
//!
//! A hold promises that its program runs on at most one machine. Whether that is so cannot be asked of whoever promises
//! it. So the program says itself when it acts: it sends ticks to a witness, which knows nothing of leases, sessions and
//! tokens but that a token should not go back, and shares no code with what it judges.
//!
//! - [`Tick`]: one act of a program; [`Signer`] makes them, for tests and demonstrations
//! - [`Judge`]: ticks go in, findings come out; no clock, no sockets
//! - [`Report`]: what was seen, for programs and for people
//! - [`Witness`]: a judge behind two sockets, who can be read while it listens
//! - [`limits`]: everything is bounded, and what does not fit is told
//!
//! A test starts one on any free port, lets programs tick, and looks at the report:
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use std::time::Duration;
//! use witness::{Witness, WitnessSettings};
//!
//! let listen = "127.0.0.1:0".parse().unwrap();
//! let gap = Duration::from_secs(1);
//! let witness = Witness::start(WitnessSettings { listen, udp: None, gap }).await.unwrap();
//! // … start programs that send their ticks to witness.address() …
//! let report = witness.report();
//! assert!(report.all_is_well, "{}", report.text(100));
//! # });
//! ```

mod clock;
mod datagram;
mod entropy;
mod judge;
pub mod limits;
mod page;
mod record;
pub mod report;
mod signer;
mod tick;
mod witness;

pub use judge::{Basis, Judge, JudgeSettings, Now};
pub use record::Event;
pub use report::{Happening, Report};
pub use signer::{Contact, Road, Signer, SignerSettings, sign};
pub use tick::{BadTick, Made, Tick};
pub use witness::{EventReader, Events, ListenError, Witness, WitnessSettings};
