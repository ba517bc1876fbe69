//! The conformance suite through a server, below `scratch/`, where an admin may do anything.

use client::key::Scope;
use rig::Road;
use store::conformance::{CLAUSES, ClauseOutcome, StoreUnderTest, sweep};
use store::file::{FileStore, Sizes};
use store::memory::MemoryStore;
use store::{Commit, CommitError, Key, Range, Refusal, ScanError, Store, StoreUrl};

use super::stand::Stand;

async fn check(inner: Store) {
    let stand = Stand::on(inner).await;
    let road = Road::to(stand.address).await;
    let url = StoreUrl::parse(&format!("http://:{}@{}", stand.admin, road.address())).unwrap();
    let other = store::open_existing(&url).await.unwrap();
    let store = stand.store(&stand.admin).await;
    let subject = StoreUnderTest::new(store.clone(), "scratch/x/")
        .with_other(other)
        .with_reconnect(move || road.cut());
    let mut broken = Vec::new();
    for clause in CLAUSES {
        match clause.check(&subject).await {
            ClauseOutcome::Violated(why) => broken.push(format!("{}: {why}", clause.name)),
            ClauseOutcome::NotApplicable(why) => {
                broken.push(format!("{} is not tried: {why}", clause.name));
            }
            ClauseOutcome::Held => {}
        }
    }
    assert_eq!(broken, Vec::<String>::new());
    sweep(&store, "scratch/").await.unwrap();
    drop((subject, store));
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_server_on_memory_keeps_the_contract() {
    check(Store::new(MemoryStore::new())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_server_on_a_file_keeps_the_contract() {
    // In memory, if there is such a place: what a server passes on does not depend on how slow its disk is.
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    check(Store::new(FileStore::open_or_create(dir.path(), Sizes::default()).unwrap())).await;
}

#[tokio::test]
async fn who_is_no_admin_is_told_what_a_check_needs() {
    let stand = Stand::on(Store::new(MemoryStore::new())).await;
    let key = stand.key("default", &[Scope::Node]).await;
    let store = stand.store(&key).await;
    let why = store.scan(Range::prefix("scratch/"), 10).await.unwrap_err();
    assert!(
        matches!(&why, ScanError::Refused(Refusal::Denied { why }) if why.contains("admin's key")),
        "{why}"
    );
    let why = store.scan(Range::all(), 10).await.unwrap_err();
    assert!(matches!(&why, ScanError::Refused(Refusal::Denied { .. })), "{why}");
    let commit = Commit::new().put(Key::new("scratch/a").unwrap(), "");
    let why = store.commit(commit).await.unwrap_err();
    assert!(matches!(&why, CommitError::Refused(Refusal::Denied { .. })), "{why}");
    // And an admin is not let out of that corner.
    let store = stand.store(&stand.admin).await;
    for key in ["shard/0/head", "access/version", "scratchy", "cluster/about"] {
        let commit = Commit::new().put(Key::new(key).unwrap(), "");
        let why = store.commit(commit).await.unwrap_err();
        assert!(matches!(&why, CommitError::Refused(Refusal::Denied { .. })), "{key}: {why}");
    }
}
