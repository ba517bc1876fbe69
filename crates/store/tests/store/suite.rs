//! The conformance suite against every adapter of this crate.

use std::sync::Arc;

use store::conformance::{CLAUSES, ClauseOutcome, StoreUnderTest, sweep};
use store::file::{FileStore, Sizes};
use store::memory::MemoryStore;
use store::{Range, Store};

/// Small enough that the suite goes through many segments and tables.
pub(crate) const SMALL: Sizes = Sizes { segment_bytes: 256 * 1024, layer_bytes: 64 * 1024 };

pub(crate) async fn check(subject: StoreUnderTest, store: &Store) {
    let mut broken = Vec::new();
    for clause in CLAUSES {
        if let ClauseOutcome::Violated(why) = clause.check(&subject).await {
            broken.push(format!("{}: {why}", clause.name));
        }
    }
    assert_eq!(broken, Vec::<String>::new());
    sweep(store, "scratch/").await.unwrap();
    let left = store.scan(Range::all(), 10).await.unwrap();
    assert_eq!(left.entries, vec![], "the suite leaves nothing behind");
}

#[tokio::test]
async fn memory_keeps_the_contract() {
    let memory = Arc::new(MemoryStore::new());
    let store = Store::shared(memory.clone());
    let subject =
        StoreUnderTest::new(store.clone(), "scratch/").with_reconnect(move || memory.stale_hint());
    check(subject, &store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn file_keeps_the_contract() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::new(FileStore::open_or_create(dir.path(), Sizes::default()).unwrap());
    check(StoreUnderTest::new(store.clone(), "scratch/"), &store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn file_keeps_the_contract_with_segments_and_tables_going_by() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::new(FileStore::open_or_create(dir.path(), SMALL).unwrap());
    check(StoreUnderTest::new(store.clone(), "scratch/"), &store).await;
}
