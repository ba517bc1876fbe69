//! A whole node and its API, on clocks that the test sets and a store that outlives it.

mod backup;
mod broken;
mod clock;
mod downtime;
mod former;
mod id;
mod mirror;
mod monitor;
mod name;
mod notify;
mod secret;
mod signature;
mod verify;
pub(super) mod world;
