//! Postgres, a real one: the contract, the schema, what it is worth, and what happens when it is treated badly.

mod crash;
mod diagnosis;
mod election;
mod failover;
mod load;
mod ring;
mod schema;

use std::time::Duration;

use rig::postgres::{PgBouncer, Postgres};
use store::conformance::{CLAUSES, ClauseOutcome, StoreUnderTest};
use store::{Class, Commit, Key, Store, StoreUrl, open_or_create};

use super::patience::opened;
use super::suite;

/// Nothing that is waited for takes nearly as long.
pub(super) const LONG: Duration = Duration::from_secs(60);

pub(super) async fn open(url: &str) -> Store {
    let url = StoreUrl::parse(url).unwrap();
    opened(|| open_or_create(&url)).await
}

pub(super) fn key(text: impl Into<String>) -> Key {
    Key::new(text).unwrap()
}

/// Waits for a condition that nothing tells of.
pub(super) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(LONG, wait).await.is_ok(), "it never came to be: {what}");
}

/// Ends every connection of Watchbell's, and waits until somebody is back: by then everybody has noticed.
fn end_connections(server: &Postgres) {
    const OURS: &str = "FROM pg_stat_activity WHERE application_name = 'watchbell'";
    let former = server.sql(&format!("SELECT count(pg_terminate_backend(pid, 10000)) {OURS}"));
    assert_ne!(former, "0");
    while server.sql(&format!("SELECT count(*) {OURS}")) == "0" {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn postgres_keeps_the_contract() {
    let server = std::sync::Arc::new(Postgres::start(&[]));
    let (store, other) = (open(&server.url()).await, open(&server.url()).await);
    assert_eq!(store.class(), Class::S);
    let broken = std::sync::Arc::clone(&server);
    let subject = StoreUnderTest::new(store.clone(), "scratch/")
        .with_other(other)
        .with_reconnect(move || end_connections(&broken));
    suite::check(subject, &store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn postgres_keeps_the_contract_behind_pgbouncer() {
    let server = Postgres::start(&[]);
    let pooler = PgBouncer::before(&server);
    let (store, other) = (open(&pooler.url()).await, open(&pooler.url()).await);
    let subject = StoreUnderTest::new(store.clone(), "scratch/").with_other(other);
    // The others are about the server behind it; hints and races are what a pooler could spoil. Each hint waits for
    // the next look, and there are fifty of them in the longest clause.
    for name in [
        "all_or_nothing",
        "conflict_names_condition",
        "pages",
        "guard",
        "skew",
        "counters",
        "slow_watcher",
    ] {
        let clause = CLAUSES.iter().find(|clause| clause.name == name).unwrap();
        assert_eq!(clause.check(&subject).await, ClauseOutcome::Held, "{name}");
    }
    let mut hints = store.watch("far/");
    let far = open(&pooler.url()).await;
    far.commit(Commit::new().put(key("far/x"), "")).await.unwrap();
    tokio::time::timeout(LONG, hints.changed()).await.unwrap();
}
