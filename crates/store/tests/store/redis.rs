//! A store on a real Redis: the contract, what is refused at open, and what becomes of it when the server is treated badly.

mod batch;
mod election;
mod fault;
mod mirror;
mod open;
mod ring;
mod room;
mod tail;

use std::time::Duration;

use engine::limits::STORE_ANSWER_MAX;
use rig::redis::Setup;
use store::conformance::StoreUnderTest;
use store::{Commit, CommitError, Key, Store, StoreUrl, Version, open_existing};

use super::patience::opened;
use super::suite::check;

/// No test waits for anything nearly as long.
const LONG: Duration = Duration::from_secs(30);

/// A deadline, and what a machine with two cores may add.
const IN_TIME: Duration = Duration::from_secs(2 * STORE_ANSWER_MAX.as_secs());

pub(super) async fn open(url: &str) -> Store {
    let url = StoreUrl::parse(url).unwrap();
    opened(|| open_existing(&url)).await
}

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

fn put(name: &str, value: &str) -> Commit {
    Commit::new().put(key(name), value.to_owned())
}

/// Commits again and again until it is done: what a caller does whose store comes back.
async fn insist(store: &Store, commit: Commit) -> Version {
    let tries = async {
        loop {
            match store.commit(commit.clone()).await {
                Ok(version) => return version,
                Err(CommitError::Unavailable(_) | CommitError::Unknown(_)) => {
                    tokio::task::yield_now().await;
                }
                Err(why) => panic!("{why}"),
            }
        }
    };
    tokio::time::timeout(LONG, tries).await.expect("the store comes back by itself")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn redis_keeps_the_contract() {
    let redis = Setup::new().start();
    let (store, other) = (open(&redis.url()).await, open(&redis.url()).await);
    let reconnect = move || {
        redis.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    };
    let subject =
        StoreUnderTest::new(store.clone(), "scratch/").with_other(other).with_reconnect(reconnect);
    check(subject, &store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn redis_keeps_the_contract_by_tls_with_a_password_and_a_synced_file() {
    let redis = Setup::durable().password("hunter2").tls().start();
    let url = format!("{}?ca={}&prefix=other", redis.tls_url(), redis.ca().display());
    let (store, other) = (open(&url).await, open(&url).await);
    check(StoreUnderTest::new(store.clone(), "scratch/").with_other(other), &store).await;
    assert_eq!(redis.ask(&["KEYS", "*"]), "{other}:entries", "one slot, and nothing left behind");
}
