//! Sessions, claims, chains and elections, one claim per test, on virtual time.
//!
//! Nothing here is left to chance: links are quick, and whatever goes wrong does so because the test
//! said when. The seeds look for what nobody thought of; these tests say what was thought of. The
//! checker watches here too, and a test in which it sees a promise broken fails.

#[path = "driver/bench.rs"]
mod bench;
#[path = "driver/burying.rs"]
mod burying;
#[path = "driver/calm.rs"]
mod calm;
#[path = "driver/chain.rs"]
mod chain;
#[path = "driver/claim.rs"]
mod claim;
#[path = "driver/dropping.rs"]
mod dropping;
#[path = "driver/election.rs"]
mod election;
#[path = "driver/foreign.rs"]
mod foreign;
#[path = "driver/handing.rs"]
mod handing;
#[path = "driver/keeping.rs"]
mod keeping;
#[path = "driver/leaving.rs"]
mod leaving;
#[path = "driver/merging.rs"]
mod merging;
#[path = "driver/mirroring.rs"]
mod mirroring;
#[path = "driver/opening.rs"]
mod opening;
#[path = "driver/quarantine.rs"]
mod quarantine;
#[path = "driver/tap.rs"]
mod tap;
#[path = "driver/trying.rs"]
mod trying;
