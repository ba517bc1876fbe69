//! The rules of Watchbell, and nothing else.
//!
//! Every rule is a pure function of (state, input, now, randomness). Nothing in this crate reads a
//! clock, opens a file or a socket, or awaits: what happens at three in the morning can be replayed
//! at noon in a test. The store remembers, the server moves bytes; the engine decides.
//!
//! - [`breaker`]: when a host that does not answer is left alone
//! - [`hash`]: a hash that never changes
//! - [`instant`]: a moment
//! - [`lease`]: how long a holder may act, and how long an observer must have waited
//! - [`limits`]: every bound of the system, in one place
//! - [`mutant`]: bugs put in on purpose, in the simulator's build only
//! - [`outcome`]: what came of an attempt, and what it means
//! - [`record`]: what a stored value looks like: JSON with a format number
//! - [`schedule`]: when does it ring next?
//! - [`webhook`]: what is sent to whom, and what makes a bad one
//! - [`wheel`]: which of ten million alarms is next

pub mod breaker;
pub mod hash;
pub mod instant;
pub mod lease;
pub mod limits;
pub mod mutant;
pub mod outcome;
pub mod record;
pub mod schedule;
pub mod webhook;
pub mod wheel;
