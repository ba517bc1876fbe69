//! Elections on Redis, in real time.

use rig::redis::Setup;

use super::open;
use crate::store::election::{check_one_winner, check_random_kills};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_hundred_candidates_on_redis_one_wins() {
    let redis = Setup::durable().start();
    let stores = [open(&redis.url()).await, open(&redis.url()).await];
    check_one_winner(&stores).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_killed_on_redis_is_followed_by_one_at_a_time() {
    let redis = Setup::durable().start();
    let stores = [open(&redis.url()).await, open(&redis.url()).await];
    check_random_kills(&stores, 0x5ed15, 4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: make soak"]
async fn however_many_are_killed_on_redis_they_are_followed_by_one_at_a_time() {
    let redis = Setup::durable().start();
    let stores = [open(&redis.url()).await, open(&redis.url()).await];
    check_random_kills(&stores, 0x0040_5ed1, 40).await;
}
