//! Standbys: refused as long as they are some, used when they are promoted.

use rig::postgres::{PASSWORD, Postgres};
use store::{Class, Commit, EngineFault, OpenError, StoreUrl, open_or_create};

use super::load::Load;
use super::{key, open, until};

fn url_of(servers: &[&Postgres]) -> String {
    let hosts: Vec<_> = servers.iter().map(|server| server.address().to_string()).collect();
    format!("postgres://postgres:{PASSWORD}@{}/postgres", hosts.join(","))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promoted_standby_has_all_that_was_acknowledged_and_begins_an_epoch() {
    let mut primary = Postgres::start(&[]);
    drop(open(&primary.url()).await);
    let standby = primary.standby(&[]);

    let why = open_or_create(&StoreUrl::parse(&standby.url()).unwrap()).await.unwrap_err();
    assert!(matches!(why, OpenError::Engine { fault: EngineFault::ReadOnly, .. }), "{why}");

    // Replicated and not waited for: a fail-over may lose something.
    until("the standby follows", async || {
        primary.sql("SELECT count(*) FROM pg_stat_replication") == "1"
    })
    .await;
    assert_eq!(open(&primary.url()).await.class(), Class::B);

    primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'");
    primary.sql("SELECT pg_reload_conf()");
    until("it is waited for", async || {
        primary.sql("SELECT sync_state FROM pg_stat_replication") == "sync"
    })
    .await;
    // The standby stands first in the list, and is passed over.
    let store = open(&url_of(&[&standby, &primary])).await;
    assert_eq!(store.class(), Class::A);
    let epoch = store.epoch();
    let load = Load::start(&store, 8);
    load.go_on(200).await;
    primary.kill();
    standby.promote();
    load.go_on(200).await;
    load.check().await;
    assert_ne!(store.epoch(), epoch);
    assert_eq!(store.class(), Class::B, "two hosts, and nobody is waited for any more");
}

/// Behind a name or a pooler that leads elsewhere a connection may find a standby where the primary was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_takes_no_writes_any_more_is_left_for_one_that_does() {
    let mut one = Postgres::start(&[]);
    let store = open(&one.url()).await;
    store.commit(Commit::new().put(key("k"), "v")).await.unwrap();
    drop(store);
    let two = one.standby(&[]);
    until("it has all", async || {
        one.sql("SELECT count(*) FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_lsn()")
            == "1"
    })
    .await;
    let store = open(&url_of(&[&one, &two])).await;
    two.promote();
    // The former primary comes back as a standby of the new one would: it takes no writes.
    one.sql("ALTER SYSTEM SET default_transaction_read_only = on");
    one.stop();
    one.bring_up();
    until("the other one is used", async || {
        store.commit(Commit::new().put(key("k"), "w")).await.is_ok()
    })
    .await;
    assert_eq!(two.sql("SELECT convert_from(value, 'UTF8') FROM watchbell.entry"), "w");
    assert_eq!(one.sql("SELECT convert_from(value, 'UTF8') FROM watchbell.entry"), "v");
}
