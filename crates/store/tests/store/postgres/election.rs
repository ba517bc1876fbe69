//! Elections on Postgres, in real time.

use rig::postgres::Postgres;

use super::open;
use crate::store::election::{check_one_winner, check_random_kills};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_hundred_candidates_on_postgres_one_wins() {
    let postgres = Postgres::start(&[]);
    let stores = [open(&postgres.url()).await, open(&postgres.url()).await];
    check_one_winner(&stores).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_killed_on_postgres_is_followed_by_one_at_a_time() {
    let postgres = Postgres::start(&[]);
    let stores = [open(&postgres.url()).await, open(&postgres.url()).await];
    check_random_kills(&stores, 0x0009_05e5, 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: make soak"]
async fn however_many_are_killed_on_postgres_they_are_followed_by_one_at_a_time() {
    let postgres = Postgres::start(&[]);
    let stores = [open(&postgres.url()).await, open(&postgres.url()).await];
    check_random_kills(&stores, 0x0040_05e5, 40).await;
}
