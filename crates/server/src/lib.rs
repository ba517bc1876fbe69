//! The server: what moves bytes.
//!
//! The engine decides, the store remembers; what is left is to carry things in and out, on time and within
//! bounds, and to hold no rules while doing so. Each part of this crate is one such carrier.
//!
//! - [`webhook`]: the dispatcher: calls receivers and says what came of it

pub mod webhook;
