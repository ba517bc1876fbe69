//! Killed, stopped and cut off: nothing acknowledged is lost, and nobody has to lend a hand.

use std::process::Command;
use std::time::Duration;

use rig::postgres::Postgres;
use rig::{Road, Way};
use store::{Class, Commit, CommitError, Store};
use tokio::time::timeout;

use super::load::Load;
use super::{key, open, until};

/// A call may take 3 seconds; this is when it is called late.
const LATE: Duration = Duration::from_secs(10);

fn put() -> Commit {
    Commit::new().put(key("k"), "v")
}

/// Sends a commit that cannot be acknowledged, and makes sure that it is given up in time.
async fn check_given_up(store: &Store) {
    let answer = timeout(LATE, store.commit(put())).await.expect("it is given up in time");
    let is_right = matches!(answer, Err(CommitError::Unknown(_) | CommitError::Unavailable(_)));
    assert!(is_right, "{answer:?}");
    let page = timeout(LATE, store.get(&key("k"))).await.expect("it is given up in time");
    assert!(page.is_err(), "{page:?}");
}

async fn check_back(store: &Store) {
    until("it commits again", async || store.commit(put()).await.is_ok()).await;
    until("it reads again", async || matches!(store.get(&key("k")).await, Ok(Some(_)))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_of_the_whole_server_loses_nothing_that_was_acknowledged() {
    let mut server = Postgres::start(&[]);
    let store = open(&server.url()).await;
    let epoch = store.epoch();
    let load = Load::start(&store, 16);
    for _ in 0..2 {
        load.go_on(300).await;
        server.kill();
        server.bring_up();
    }
    load.go_on(300).await;
    load.check().await;
    assert_eq!(store.epoch(), epoch, "where nothing is lost, a restart is no new epoch");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_ended_under_load_lose_nothing() {
    let server = Postgres::start(&[]);
    let store = open(&server.url()).await;
    let load = Load::start(&store, 16);
    for _ in 0..5 {
        load.go_on(100).await;
        server.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'watchbell'",
        );
    }
    load.go_on(100).await;
    load.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stands_still_is_left_in_time_and_used_again() {
    let server = Postgres::start(&[]);
    let store = open(&server.url()).await;
    store.commit(put()).await.unwrap();
    server.pause();
    check_given_up(&store).await;
    check_given_up(&store).await;
    server.wake();
    check_back(&store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_road_that_is_cut_in_one_direction_is_given_up_in_time() {
    let server = Postgres::start(&[]);
    let road = Road::to(server.address()).await;
    let store = open(&server.url_at(road.address())).await;
    for cut in [Road::there, Road::back] {
        store.commit(put()).await.unwrap();
        cut(&road, Way::Closed);
        check_given_up(&store).await;
        road.both(Way::Open);
        check_back(&store).await;
    }
}

/// Callers give up when they like: no connection and no place in the pool is lost by it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_are_given_up_leave_nothing_behind() {
    let server = Postgres::start(&[]);
    let store = open(&format!("{}?connections=2", server.url())).await;
    for round in 0..50_u64 {
        let _ = timeout(Duration::from_micros(round * 40), store.commit(put())).await;
        let _ = timeout(Duration::from_micros(round * 20), store.get(&key("k"))).await;
    }
    until("it commits", async || store.commit(put()).await.is_ok()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_a_crash_may_lose_something_it_begins_an_epoch_and_gives_no_version_twice() {
    let mut server = Postgres::start(&["fsync = off"]);
    let store = open(&server.url()).await;
    assert_eq!(store.class(), Class::B);
    let (epoch, version) = (store.epoch(), store.commit(put()).await.unwrap());
    server.kill();
    server.bring_up();
    check_back(&store).await;
    assert_ne!(store.epoch(), epoch);
    let late = store.get(&key("k")).await.unwrap().unwrap().version;
    assert!(late.0 > version.0 + 1_000, "versions follow the clock: {late:?} after {version:?}");
}

/// Whoever kills one process of a server makes it forget what waits for the disk, and it goes on under the same start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_that_the_server_survives_begins_an_epoch_where_commits_do_not_wait() {
    let server = Postgres::start(&["synchronous_commit = off"]);
    let store = open(&server.url()).await;
    assert_eq!(store.class(), Class::B);
    store.commit(put()).await.unwrap();
    let epoch = store.epoch();
    // One that is always there, unlike connections.
    let victim = server.sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'");
    assert!(Command::new("kill").args(["-9", &victim]).status().unwrap().success(), "{victim:?}");
    until("it commits in a new epoch", async || {
        store.commit(put()).await.is_ok() && store.epoch() != epoch
    })
    .await;
}
