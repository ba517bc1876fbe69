//! Rings on Redis, in real time.

use rig::redis::Setup;

use super::open;
use crate::store::ring::check_one_story;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_servers_on_redis_tell_one_story() {
    let redis = Setup::durable().start();
    check_one_story(&[open(&redis.url()).await, open(&redis.url()).await]).await;
}
