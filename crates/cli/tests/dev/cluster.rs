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
pub(super) mod fleet;
pub(super) mod island;
mod page;
mod storm;
mod whole;

use rig::{PATIENCE, until};
use store::{EngineFault, OpenError, Store, StoreUrl, open_or_create};

/// The store of a cluster, for a test that looks into it. On a busy machine an engine may not answer in time at first.
pub(super) async fn opened(url: &str) -> Store {
    let url = StoreUrl::parse(url).unwrap();
    until("the engine answers", PATIENCE, || async {
        match open_or_create(&url).await {
            Err(OpenError::Engine { fault: EngineFault::Unreachable, .. }) => None,
            opened => Some(opened.unwrap()),
        }
    })
    .await
}
