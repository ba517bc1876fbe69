//! What the store says is passed on as it is, and what is not known stays so.

use std::sync::Arc;

use client::key::Scope;
use rig::{PATIENCE, Road, Way, until};
use store::fault::{Faulty, InjectedFault};
use store::memory::MemoryStore;
use store::{Class, Commit, CommitError, Condition, Key, Store, StoreUrl};

use super::stand::Stand;

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

/// A commit that nobody has done before.
fn fresh(name: &str) -> Commit {
    let key = key(&format!("scratch/{name}"));
    Commit::new().when(Condition::Absent(key.clone())).put(key, "")
}

/// A store whose faults are met by what is written below `scratch/` alone.
struct Marked {
    road: Arc<Faulty>,
    inner: Store,
}

impl store::Adapter for Marked {
    fn scan(
        &self,
        range: store::Range,
        limit: usize,
    ) -> store::Pending<'_, Result<store::Page, store::ScanError>> {
        Box::pin(self.inner.scan(range, limit))
    }

    fn commit(&self, commit: Commit) -> store::Pending<'_, Result<store::Version, CommitError>> {
        if commit.then[0].key().as_str().starts_with("scratch/") {
            let road = self.road.store();
            return Box::pin(async move { road.commit(commit).await });
        }
        Box::pin(self.inner.commit(commit))
    }

    fn watch(&self, prefix: &str) -> store::Hints {
        self.inner.watch(prefix)
    }

    fn limits(&self) -> store::Limits {
        self.inner.limits()
    }

    fn class(&self) -> Class {
        self.inner.class()
    }

    fn epoch(&self) -> store::Epoch {
        self.inner.epoch()
    }
}

#[tokio::test]
async fn an_outcome_that_the_server_does_not_know_is_unknown_here_too() {
    let inner = Store::new(MemoryStore::new());
    let road = Faulty::new(&inner);
    let stand = Stand::on(Store::new(Marked { road: road.clone(), inner: inner.clone() })).await;
    let store = stand.store(&stand.admin).await;

    road.on_commits([InjectedFault::LoseAnswer, InjectedFault::LandLater, InjectedFault::Refuse]);
    let done = store.commit(fresh("done")).await;
    assert!(matches!(done, Err(CommitError::Unknown(_))), "{done:?}");
    assert!(inner.get(&key("scratch/done")).await.unwrap().is_some());

    let late = store.commit(fresh("late")).await;
    assert!(matches!(late, Err(CommitError::Unknown(_))), "{late:?}");
    let version = store.commit(fresh("never")).await;
    assert!(matches!(version, Err(CommitError::Unavailable(_))), "nothing was done: {version:?}");
    assert!(inner.get(&key("scratch/never")).await.unwrap().is_none());
    road.land().await.unwrap().unwrap();
    assert!(store.get(&key("scratch/late")).await.unwrap().is_some());

    // Sent again it is found done.
    let again = store.commit(fresh("done")).await;
    let Err(CommitError::Conflict(why)) = again else { panic!("{again:?}") };
    assert_eq!(why.condition, Condition::Absent(key("scratch/done")));
    assert!(why.found.is_some());
}

#[tokio::test]
async fn a_connection_that_breaks_after_sending_leaves_it_unknown_and_before_it_unavailable() {
    let stand = Stand::on(Store::new(MemoryStore::new())).await;
    let road = Road::to(stand.address).await;
    let url = StoreUrl::parse(&format!("http://:{}@{}", stand.admin, road.address())).unwrap();
    let store = store::open_existing(&url).await.unwrap();
    road.back(Way::Closed);
    let (asked, ()) = tokio::join!(store.commit(fresh("cut")), async {
        // When it has arrived, the way back is lost with it.
        let near = stand.store(&stand.admin).await;
        until("it arrives", PATIENCE, || async { near.get(&key("scratch/cut")).await.unwrap() })
            .await;
        road.cut();
    });
    assert!(matches!(asked, Err(CommitError::Unknown(_))), "{asked:?}");
    road.back(Way::Open);
    store.commit(fresh("after")).await.unwrap();
    drop(road);
    until("nobody listens", PATIENCE, || async {
        matches!(store.commit(fresh("closed")).await, Err(CommitError::Unavailable(_)))
            .then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_class_and_the_epoch_of_the_store_come_through() {
    let memory = Arc::new(MemoryStore::of_class(Class::B));
    let stand = Stand::on(Store::shared(memory.clone())).await;
    let key = stand.key("default", &[Scope::Node]).await;
    let store = stand.store(&key).await;
    let (class, first) = (store.class(), store.epoch());
    assert_eq!(class, Class::B);
    memory.fail_over(0);
    store.get(&Key::new("node/~longest").unwrap()).await.unwrap();
    let second = store.epoch();
    assert_ne!(first, second);
    // Another cluster at the same address is another epoch, though its store counts alike.
    let address = stand.stop().await;
    let copy = Arc::new(MemoryStore::of_class(Class::B));
    copy.fail_over(0);
    let stand = Stand::again(address, Store::shared(copy)).await;
    let why = store.get(&Key::new("node/~longest").unwrap()).await.unwrap_err();
    assert!(why.to_string().contains("not known here"), "keys are another cluster's too: {why}");
    stand.stop().await;
}
