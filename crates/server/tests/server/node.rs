//! A whole node and its API, on clocks that the test sets and a store that outlives it.

mod backup;
mod broken;
mod clock;
mod downtime;
mod former;
mod id;
mod mirror;
mod monitor;
mod notify;
#[expect(dead_code, reason = "the tests of `watchbell dev` use more of it")]
pub(super) mod receiver;
mod secret;
mod signature;
mod verify;
pub(super) mod wait;
pub(super) mod world;
