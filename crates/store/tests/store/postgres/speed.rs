//! How fast commits are beside a bare loop of upserts by the same client over as many connections.

use std::time::{Duration, Instant};

use rig::postgres::{PASSWORD, Postgres};
use store::Commit;
use tokio::task::JoinSet;
use tokio_postgres::types::Type;
use tokio_postgres::{Config, NoTls};

use super::{key, open};

const WRITERS: usize = 64;
const UPSERT: &str =
    "INSERT INTO bare VALUES ($1, 1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value";
const TIME: Duration = Duration::from_secs(4);

/// Calls per second of 64 writers that each call one after the other.
#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
async fn rate<F: Future<Output = ()> + Send + 'static>(
    one: impl Fn(usize) -> F + Send + Sync + Clone + 'static,
) -> f64 {
    let begin = Instant::now();
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let one = one.clone();
        writers.spawn(async move {
            let mut count = 0;
            while begin.elapsed() < TIME {
                one(writer).await;
                count += 1;
            }
            count
        });
    }
    let count: u32 = writers.join_all().await.into_iter().sum();
    f64::from(count) / begin.elapsed().as_secs_f64()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn commits_are_nearly_as_fast_as_bare_upserts() {
    let server = Postgres::start(&[]);
    let store = open(&server.url()).await;
    server
        .sql("CREATE TABLE bare (key text COLLATE \"C\" PRIMARY KEY, version bigint, value bytea)");
    let mut config = Config::new();
    config.host("127.0.0.1").port(server.address().port()).user("postgres").password(PASSWORD);
    let pool = deadpool_postgres::Pool::builder(deadpool_postgres::Manager::new(config, NoTls))
        .max_size(16)
        .build()
        .unwrap();
    let value = vec![b'v'; 200];
    for _ in 0..2 {
        let (loop_pool, loop_value) = (pool.clone(), value.clone());
        let prepared = rate(move |writer| {
            let (pool, value) = (loop_pool.clone(), loop_value.clone());
            async move {
                let client = pool.get().await.unwrap();
                let statement = client.prepare_cached(UPSERT).await.unwrap();
                client.execute(&statement, &[&format!("k{writer}"), &value]).await.unwrap();
            }
        })
        .await;
        let (loop_pool, loop_value) = (pool.clone(), value.clone());
        let unnamed = rate(move |writer| {
            let (pool, value) = (loop_pool.clone(), loop_value.clone());
            async move {
                let client = pool.get().await.unwrap();
                let key = format!("k{writer}");
                client
                    .execute_typed(UPSERT, &[(&key, Type::TEXT), (&value, Type::BYTEA)])
                    .await
                    .unwrap();
            }
        })
        .await;
        let (loop_store, loop_value) = (store.clone(), value.clone());
        let commits = rate(move |writer| {
            let (store, value) = (loop_store.clone(), loop_value.clone());
            async move {
                store.commit(Commit::new().put(key(format!("k{writer}")), value)).await.unwrap();
            }
        })
        .await;
        println!(
            "bare prepared {prepared:.0}/s, bare unnamed {unnamed:.0}/s, commits {commits:.0}/s: {:.2} and {:.2}",
            commits / prepared,
            commits / unnamed,
        );
    }
}
