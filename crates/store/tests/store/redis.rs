//! A store on a real Redis: the contract, what is refused at open, and what becomes of it when the server is treated badly.

use store::conformance::Subject;
use store::{Store, StoreUrl, open_existing};

use super::suite::check;

pub(super) async fn open(url: &str) -> Store {
    open_existing(&StoreUrl::parse(url).unwrap()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn redis_keeps_the_contract() {
    let redis = rig::redis::Setup::new().start();
    let (store, other) = (open(&redis.url()).await, open(&redis.url()).await);
    let subject =
        Subject::new(store.clone(), "scratch/").with_other(other).with_reconnect(move || {
            redis.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        });
    check(subject, &store).await;
}
