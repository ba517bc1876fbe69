//! The adversary: whole nodes in one thread, virtual time, seeded faults, and a checker.
//!
//! The nodes run the code that ships. What is simulated is what they stand on: machines with clocks that
//! run fast or slow and step ([`clock`]), a network in which messages are late or lost ([`network`]), a store
//! that goes away or forgets ([`sim_store`]), and time itself ([`world`]). A seed decides everything, so a
//! run that went wrong can be had again, line by line. Five things are tried on this: the lease, by many small
//! nodes ([`run`]); one shard, by many owners ([`shard`]); whole servers, which are both and all the rest ([`fleet`]);
//! programs that are held on one machine at a time ([`hold`]); and rings, which several servers advance ([`ring`]).
//!
//! Never ships.

pub mod checker;
pub mod clock;
pub mod cluster;
pub mod dice;
pub mod fault;
pub mod fleet;
pub mod hold;
pub mod model;
pub mod network;
pub mod node;
pub mod promise;
pub mod ring;
pub mod run;
pub mod shard;
pub mod sim_store;
pub mod slot_records;
pub mod world;
