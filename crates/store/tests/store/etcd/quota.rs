//! The quota: what a person is told when it is full, and that typing it helps; and compaction.

use std::process::Command;
use std::time::Duration;

use rig::etcd::{Etcd, Setup};
use store::{Commit, CommitError, EngineFault, OpenError, Refusal, Store, StoreUrl};
use tokio::time::{Instant, MissedTickBehavior};

use super::{key, open};

const QUOTA: u64 = 16 * 1024 * 1024;

/// Writes the same large value again and again until there is no room.
async fn fill(store: &Store) -> String {
    for _ in 0..200 {
        let commit = Commit::new().put(key("large"), vec![b'v'; 512 * 1024]);
        match store.commit(commit).await {
            Ok(_) => {}
            Err(CommitError::Refused(why @ Refusal::Full { .. })) => return why.to_string(),
            Err(why) => panic!("{why}"),
        }
    }
    panic!("the quota is never full");
}

/// What the sentence says to type.
fn typed(sentence: &str) -> &str {
    let begin = sentence.find("export").expect("a command");
    let end = sentence[begin..].find("alarm disarm").expect("its end") + "alarm disarm".len();
    &sentence[begin..begin + end]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_quota_is_told_and_what_it_says_to_type_makes_room() {
    let etcd = Etcd::start(1, &Setup { quota_bytes: Some(QUOTA), ..Setup::default() });
    let url = format!("etcd://{}?quota={QUOTA}", etcd.hosts());
    let store = open(&url).await;
    let sentence = fill(&store).await;
    assert!(sentence.contains("no room left"), "{sentence}");
    assert!(store.get(&key("large")).await.unwrap().is_some(), "it can still be read");
    let refused = store::open_or_create(&StoreUrl::parse(&url).unwrap()).await.unwrap_err();
    assert!(matches!(refused, OpenError::Engine { fault: EngineFault::ReadOnly, .. }), "{refused}");
    assert!(refused.to_string().contains("etcdctl compact"), "{refused}");

    let done = Command::new("sh").args(["-c", typed(&sentence)]).output().unwrap();
    assert!(done.status.success(), "{} gave {done:?}", typed(&sentence));
    store.commit(Commit::new().put(key("small"), "x")).await.unwrap();
    let again = open(&url).await;
    let facts = again.facts();
    assert!(
        facts.iter().any(|(name, value)| *name == "quota" && value.contains("16777216")),
        "{facts:?}"
    );
    assert!(!facts.iter().any(|(name, _)| *name == "alarm"), "{facts:?}");

    // What a newcomer is told helps as well.
    fill(&store).await;
    let refused =
        store::open_or_create(&StoreUrl::parse(&url).unwrap()).await.unwrap_err().to_string();
    let done = Command::new("sh").args(["-c", typed(&refused)]).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    store.commit(Commit::new().put(key("small"), "y")).await.unwrap();
}

/// Whether the first revision of ours can no longer be read.
fn is_compacted(etcd: &Etcd) -> bool {
    let read = etcd.try_ctl(&["get", "watchbell/k", "--rev", "2"]);
    read.is_err_and(|why| why.contains("has been compacted"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_is_compacted_when_it_is_old_enough_and_only_then() {
    let (etcd, left_alone) = (Etcd::one(), Etcd::one());
    let store = open(&format!("etcd://{}?compact=1s", etcd.hosts())).await;
    let other = open(&format!("etcd://{}?compact=1s", etcd.hosts())).await;
    let never = open(&format!("etcd://{}?compact=off", left_alone.hosts())).await;
    let begin = Instant::now();
    while !is_compacted(&etcd) {
        for store in [&store, &other, &never] {
            store.commit(Commit::new().put(key("k"), "x")).await.unwrap();
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "it is never compacted");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(!is_compacted(&left_alone));
    assert!(store.get(&key("k")).await.unwrap().is_some(), "the present is kept");
    other.commit(Commit::new().put(key("k"), "y")).await.unwrap();
    let facts = never.facts();
    assert!(facts.iter().any(|(name, value)| *name == "compaction" && value.starts_with("off")));
}

/// Twice the quota within less than an hour: history is cut short in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: make soak"]
async fn much_history_is_compacted_before_the_quota_is_full() {
    const ROOM: u64 = 128 * 1024 * 1024;
    const VALUE: u64 = 8 * 1024;
    let etcd = Etcd::start(1, &Setup { quota_bytes: Some(ROOM), ..Setup::default() });
    let store = open(&format!("etcd://{}?quota={ROOM}", etcd.hosts())).await;
    assert_eq!(store.room(), Some(ROOM));
    // Not a wait for anything: two mebibytes per second.
    let mut pace = tokio::time::interval(Duration::from_secs(1) / 256);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for _ in 0..2 * ROOM / VALUE {
        pace.tick().await;
        let value = vec![b'v'; usize::try_from(VALUE).unwrap()];
        store.commit(Commit::new().put(key("k"), value)).await.unwrap();
    }
    assert!(is_compacted(&etcd));
}
