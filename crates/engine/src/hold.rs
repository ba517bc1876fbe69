//! Holds: a program that runs on at most one machine.
//!
//! Whoever has the claim of an election may run the program, for as long as its session was renewed lately enough.
//! - [`timing`]: by when the program must be gone if nothing is renewed, and whether that can be kept
//! - [`life`]: what a supervisor does about its program, as a state machine
//! - [`restart`]: when a program that has ended is started again, and when another node shall try
//! - [`record`]: what is shown of a hold, kept in the head of its election

pub mod life;
pub mod record;
pub mod restart;
pub mod timing;
