//! Rings on Postgres, in real time.

use rig::postgres::Postgres;

use super::open;
use crate::store::ring::check_one_story;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_servers_on_postgres_tell_one_story() {
    let postgres = Postgres::start(&[]);
    check_one_story(&[open(&postgres.url()).await, open(&postgres.url()).await]).await;
}
