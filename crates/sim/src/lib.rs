//! The adversary: whole nodes in one thread, virtual time, seeded faults, and a witness.
//!
//! The nodes run the code that ships. What is simulated is what they stand on: machines with clocks that
//! run fast or slow and step ([`clock`]), roads on which messages are late or lost ([`road`]), a store
//! that goes away or forgets ([`vault`]), and time itself ([`world`]). A seed decides everything, so a
//! run that went wrong can be had again, line by line. Three things are tried on this: the lease, by many small
//! nodes ([`run`]); one shard, by many owners ([`shard`]); and whole servers, which are both and all the rest ([`fleet`]).
//!
//! Never ships.

pub mod clock;
pub mod cluster;
pub mod dice;
pub mod fault;
pub mod fleet;
pub mod ledger;
pub mod model;
pub mod node;
pub mod promise;
pub mod road;
pub mod run;
pub mod shard;
pub mod vault;
pub mod witness;
pub mod world;
