//! How much of a bare client's speed is left with 64 writers.

use redis::aio::MultiplexedConnection;
use rig::redis::Setup;
use store::clock::Stopwatch;
use tokio::task::JoinSet;

use super::{open, put};

const WRITERS: usize = 64;
const COMMITS: usize = 400;

/// The same work by hand: look at a key, write it at a version that grows, and give a hint.
const BARE: &str = "local found = redis.call('HGET', KEYS[1], ARGV[1])
    local time = redis.call('TIME')
    local last = redis.call('GET', KEYS[2]) or 0
    local version = string.format('%.0f', math.max(last + 1, time[1] * 1000000 + time[2]))
    redis.call('SET', KEYS[2], version)
    redis.call('HSET', KEYS[1], ARGV[1], version .. ' ' .. ARGV[2])
    redis.call('PUBLISH', 'hints', ARGV[1])
    return version";

async fn bare(connection: MultiplexedConnection, value: String) -> f64 {
    let script = redis::Script::new(BARE);
    let watch = Stopwatch::start();
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let (mut connection, script, value) = (connection.clone(), script.clone(), value.clone());
        writers.spawn(async move {
            for _ in 0..COMMITS {
                let mut call = script.key("bare:entries");
                call.key("bare:last").arg(format!("key/{writer}")).arg(&value);
                let _: u64 = call.invoke_async(&mut connection).await.unwrap();
            }
        });
    }
    while writers.join_next().await.is_some() {}
    rate(&watch)
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn rate(watch: &Stopwatch) -> f64 {
    (WRITERS * COMMITS) as f64 / watch.elapsed().as_secs_f64()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: run it alone, with --nocapture"]
async fn with_64_writers_most_of_a_bare_clients_speed_is_left() {
    for appendfsync in ["everysec", "always"] {
        let server = Setup::durable().set("appendfsync", appendfsync).start();
        let store = open(&server.url()).await;
        let client = redis::Client::open(server.url()).unwrap();
        let connection = client.get_multiplexed_async_connection().await.unwrap();
        let value = "v".repeat(200);
        let mut ratios = Vec::new();
        for _ in 0..5 {
            let bare = bare(connection.clone(), value.clone()).await;
            let watch = Stopwatch::start();
            let mut writers = JoinSet::new();
            for writer in 0..WRITERS {
                let (store, value) = (store.clone(), value.clone());
                writers.spawn(async move {
                    for _ in 0..COMMITS {
                        store.commit(put(&format!("key/{writer}"), &value)).await.unwrap();
                    }
                });
            }
            while writers.join_next().await.is_some() {}
            let ours = rate(&watch);
            println!(
                "appendfsync {appendfsync}: bare {bare:.0}/s, store {ours:.0}/s, {:.2}",
                ours / bare
            );
            ratios.push(ours / bare);
        }
        ratios.sort_by(f64::total_cmp);
        assert!(ratios[2] >= 0.7, "{ratios:?}");
    }
}
