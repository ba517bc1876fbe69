//! What a page shows while layers and tables go by under it: never half a commit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use store::file::{FileStore, Sizes};
use store::{Commit, Key, Range, Store};
use tokio::task::JoinSet;

const SCANNERS: usize = 32;

/// Every commit fills a layer, so that layers and tables change as often as they can.
const SIZES: Sizes = Sizes { segment_bytes: 64 * 1024, layer_bytes: 1 };

fn key(name: &str) -> Key {
    Key::new(format!("p/{name}")).unwrap()
}

/// `m` is only ever written together with `k`, so no page may show an `m` that is newer than its `k`.
/// That the two do not always go together matters: then they lie in different layers.
async fn scan_until(stop: Arc<AtomicBool>, store: Store) -> usize {
    let mut scans = 0;
    while !stop.load(Ordering::SeqCst) {
        let page = store.scan(Range::prefix("p/"), 10).await.unwrap();
        if let [k, m] = page.entries.as_slice() {
            assert!(k.version >= m.version, "half a commit: k {:?}, m {:?}", k.version, m.version);
        }
        scans += 1;
    }
    scans
}

async fn check(commits: u32) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::new(FileStore::open_or_create(dir.path(), SIZES).unwrap());
    let stop = Arc::new(AtomicBool::new(false));
    let mut scanners = JoinSet::new();
    for _ in 0..SCANNERS {
        scanners.spawn(scan_until(Arc::clone(&stop), store.clone()));
    }
    for number in 0..commits {
        let mut commit = Commit::new().put(key("k"), number.to_string());
        if number % 3 == 0 {
            commit = commit.put(key("m"), number.to_string());
        }
        store.commit(commit).await.unwrap();
    }
    stop.store(true, Ordering::SeqCst);
    let scans: usize = scanners.join_all().await.into_iter().sum();
    assert!(scans > 1_000, "only {scans} scans");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_page_shows_half_a_commit_while_layers_become_tables() {
    check(300).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: make soak"]
async fn soak_no_page_shows_half_a_commit_while_layers_become_tables() {
    check(20_000).await;
}
