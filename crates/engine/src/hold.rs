//! Holds: a program that runs on at most one machine.
//!
//! Whoever has the claim of an election may run the program, for as long as its session was renewed lately enough.
//! - [`record`]: what is shown of a hold, kept in the head of its election

pub mod record;
