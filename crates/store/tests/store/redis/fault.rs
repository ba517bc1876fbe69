//! A Redis that stalls, dies, or is cut off: in time, nothing acknowledged is lost, and it comes back by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rig::redis::Setup;
use rig::{Road, Way};
use store::clock::Stopwatch;
use store::{Class, CommitError, ScanError, Store};
use tokio::task::JoinSet;

use super::{IN_TIME, LONG, insist, key, open, put};

/// Commits and scans find no answer, and say so in time.
async fn check_silent(store: &Store) {
    let watch = Stopwatch::start();
    let (here, k) = (store.clone(), key("k"));
    let (commit, scan) = tokio::join!(here.commit(put("k", "silent")), store.get(&k));
    assert!(watch.elapsed() < IN_TIME, "it took {:?}", watch.elapsed());
    assert!(
        matches!(commit, Err(CommitError::Unknown(_) | CommitError::Unavailable(_))),
        "{commit:?}"
    );
    assert!(matches!(scan, Err(ScanError::Unavailable(_))), "{scan:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_is_stopped_for_longer_than_the_deadline_is_left_and_found_again() {
    let redis = Setup::durable().start();
    let store = open(&redis.url()).await;
    let before = insist(&store, put("k", "before")).await;
    let epoch = store.epoch();
    redis.pause();
    let sent = store.commit(put("k", "sent")).await;
    assert!(matches!(sent, Err(CommitError::Unknown(_))), "it was sent: {sent:?}");
    check_silent(&store).await;
    redis.wake();
    let after = insist(&store, put("k", "after")).await;
    assert!(after > before);
    assert_eq!(store.epoch(), epoch, "the same process goes on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_in_one_direction_is_left_in_time_and_mended() {
    let redis = Setup::new().start();
    for is_there in [true, false] {
        let road = Road::to(redis.address()).await;
        let store = open(&redis.url_at(road.address())).await;
        insist(&store, put("k", "before")).await;
        let way = |way| if is_there { road.there(way) } else { road.back(way) };
        way(Way::Closed);
        check_silent(&store).await;
        way(Way::Open);
        insist(&store, put("k", "after")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_nobody_waits_for_any_longer_wedge_nothing() {
    let redis = Setup::new().start();
    let road = Road::to(redis.address()).await;
    let store = open(&redis.url_at(road.address())).await;
    insist(&store, put("k", "before")).await;
    let patience = Duration::from_millis(20);
    road.back(Way::Closed);
    for number in 0..50 {
        let late = store.commit(put("k", &number.to_string()));
        assert!(tokio::time::timeout(patience, late).await.is_err());
    }
    road.back(Way::Open);
    insist(&store, put("k", "after")).await;
    assert_eq!(store.get(&key("k")).await.unwrap().unwrap().value.as_bytes(), b"after");
}

/// Sixteen committers that each count up a key of their own, and what of it was acknowledged.
struct Load {
    acknowledged: Arc<[AtomicU64; 16]>,
    is_over: Arc<AtomicBool>,
    tasks: JoinSet<()>,
}

impl Load {
    fn start(store: &Store) -> Self {
        let acknowledged: Arc<[AtomicU64; 16]> = Arc::default();
        let is_over = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for place in 0..16 {
            let (store, is_over) = (store.clone(), Arc::clone(&is_over));
            let acknowledged = Arc::clone(&acknowledged);
            tasks.spawn(async move {
                for number in 1.. {
                    if is_over.load(Ordering::SeqCst) {
                        return;
                    }
                    insist(&store, put(&format!("count/{place:02}"), &number.to_string())).await;
                    acknowledged[place].store(number, Ordering::SeqCst);
                }
            });
        }
        Self { acknowledged, is_over, tasks }
    }

    fn done(&self) -> u64 {
        self.acknowledged.iter().map(|count| count.load(Ordering::SeqCst)).sum()
    }

    /// Waits until so many more were acknowledged.
    async fn go_on(&self, more: u64) {
        let enough = self.done() + more;
        let wait = async {
            while self.done() < enough {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(LONG, wait).await.expect("the committers go on");
    }

    /// Ends it, and compares with what the store holds.
    async fn check(mut self, store: &Store) {
        self.is_over.store(true, Ordering::SeqCst);
        while let Some(done) = self.tasks.join_next().await {
            done.unwrap();
        }
        for (place, count) in self.acknowledged.iter().enumerate() {
            let entry = store.get(&key(&format!("count/{place:02}"))).await.unwrap().unwrap();
            let found: u64 = std::str::from_utf8(entry.value.as_bytes()).unwrap().parse().unwrap();
            assert_eq!(found, count.load(Ordering::SeqCst), "of committer {place}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_under_load_a_redis_that_syncs_loses_nothing_that_it_acknowledged() {
    let mut redis = Setup::durable().start();
    let store = open(&redis.url()).await;
    assert_eq!(store.class(), Class::S);
    let load = Load::start(&store);
    for _ in 0..3 {
        load.go_on(500).await;
        let (epoch, before) = (store.epoch(), load.done());
        redis.kill();
        let lost = load.done();
        redis.restart();
        load.go_on(100).await;
        assert_ne!(store.epoch(), epoch);
        assert!(lost >= before);
    }
    assert_eq!(store.class(), Class::S);
    load.check(&store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_dropped_under_load_lose_nothing() {
    let redis = Setup::new().start();
    let road = Road::to(redis.address()).await;
    let store = open(&redis.url_at(road.address())).await;
    let load = Load::start(&store);
    for _ in 0..20 {
        load.go_on(50).await;
        road.cut();
    }
    load.go_on(50).await;
    load.check(&store).await;
}
