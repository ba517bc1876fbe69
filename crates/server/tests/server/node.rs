//! A whole node and its API, on clocks that the test sets and a store that outlives it.

mod broken;
mod clock;
mod downtime;
mod id;
mod notify;
#[expect(dead_code, reason = "the tests of `watchbell dev` use more of it")]
mod receiver;
mod secret;
mod signature;
mod verify;
mod wait;
mod world;
