//! Several servers on one store: they share the shards, lose each other, and lose nothing.
//!
//! - `fleet`: the servers, and what is asked of them
//! - `balance`: what the store says of every slot, held against what was heard
//! - `island`: a network of its own for a server, in which packets are lost one way
//! - `storm`: everything goes wrong at once
//! - `cut`: packets between a server and its store are lost, one way and both
//! - `calm`: restarts in order, and people who write meanwhile
//! - `page`: docs/clusters.md, typed
//! - `whole`: what is asked of one of them, and is about all

mod balance;
mod calm;
mod cut;
mod fleet;
mod island;
mod page;
mod storm;
mod whole;
