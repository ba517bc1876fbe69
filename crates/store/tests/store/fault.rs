//! The faults that other tests stand on must be what they say.

use std::sync::Arc;
use std::time::Duration;

use store::fault::{Faulty, InjectedFault};
use store::memory::MemoryStore;
use store::{Class, Commit, CommitError, Condition, Key, ScanError, Store};

fn key() -> Key {
    Key::new("k").unwrap()
}

fn put() -> Commit {
    Commit::new().when(Condition::Absent(key())).put(key(), "value")
}

/// What one fault makes of a commit: its answer, and whether it was done.
async fn meet(fault: InjectedFault) -> (Result<(), CommitError>, bool) {
    let behind = Store::new(MemoryStore::new());
    let road = Faulty::new(&behind);
    road.on_commits([fault]);
    let answer = road.store().commit(put()).await.map(drop);
    (answer, behind.get(&key()).await.unwrap().is_some())
}

#[tokio::test(start_paused = true)]
async fn each_fault_does_what_it_says() {
    let hour = Duration::from_secs(3_600);
    assert!(matches!(meet(InjectedFault::Pass).await, (Ok(()), true)));
    assert!(matches!(meet(InjectedFault::SlowRequest(hour)).await, (Ok(()), true)));
    assert!(matches!(meet(InjectedFault::SlowAnswer(hour)).await, (Ok(()), true)));
    assert!(matches!(meet(InjectedFault::Refuse).await, (Err(CommitError::Unavailable(_)), false)));
    assert!(matches!(
        meet(InjectedFault::LoseRequest).await,
        (Err(CommitError::Unknown(_)), false)
    ));
    assert!(matches!(meet(InjectedFault::LoseAnswer).await, (Err(CommitError::Unknown(_)), true)));
    assert!(matches!(meet(InjectedFault::LandLater).await, (Err(CommitError::Unknown(_)), false)));
}

#[tokio::test(start_paused = true)]
async fn a_slow_request_is_judged_when_it_arrives() {
    let behind = Store::new(MemoryStore::new());
    let road = Faulty::new(&behind);
    road.on_commits([InjectedFault::SlowRequest(Duration::from_secs(10))]);
    let far = road.store();
    let (slow, quick) = tokio::join!(far.commit(put()), behind.commit(put()));
    assert!(quick.is_ok());
    assert!(matches!(slow, Err(CommitError::Conflict(_))), "{slow:?}");
}

#[tokio::test]
async fn a_fault_is_met_once_and_by_its_own_verb() {
    let road = Faulty::new(&Store::new(MemoryStore::new()));
    road.on_scans([InjectedFault::Refuse]);
    let store = road.store();
    store.commit(put()).await.unwrap();
    assert!(matches!(store.get(&key()).await, Err(ScanError::Unavailable(_))));
    assert!(store.get(&key()).await.unwrap().is_some());
}

#[tokio::test]
async fn a_fail_over_loses_the_tail_and_gives_no_version_twice() {
    let memory = Arc::new(MemoryStore::of_class(Class::B));
    let store = Store::shared(memory.clone());
    let epoch = store.epoch();
    let kept = store.commit(Commit::new().put(key(), "kept")).await.unwrap();
    store.commit(Commit::new().put(key(), "lost")).await.unwrap();
    let lost = store.commit(Commit::new().delete(key())).await.unwrap();

    assert_eq!(memory.fail_over(2), 2);
    assert_ne!(store.epoch(), epoch);
    let found = store.get(&key()).await.unwrap().unwrap();
    assert_eq!((found.value.as_bytes(), found.version), (b"kept".as_slice(), kept));
    assert!(store.commit(Commit::new().put(key(), "new")).await.unwrap() > lost);
    assert_eq!(memory.fail_over(100), 2, "it can lose no more than there is");
    assert!(store.get(&key()).await.unwrap().is_none());
}

#[tokio::test]
async fn hints_can_be_lost_and_stale() {
    let memory = Arc::new(MemoryStore::new());
    let store = Store::shared(memory.clone());
    let mut hints = store.watch("k");
    memory.lose_hints(true);
    store.commit(put()).await.unwrap();
    let waited = tokio::time::timeout(Duration::ZERO, hints.changed()).await;
    assert!(waited.is_err(), "the hint was lost");
    memory.stale_hint();
    hints.changed().await;
}
