//! A process that acted on the store before it was emptied and restored stops, and can write nothing.

use std::io::Cursor;
use std::sync::Arc;
use std::time::Duration;

use engine::lease::Ttl;
use store::backup::restore;
use store::chain::ChainError;
use store::claim::Claim;
use store::cluster::ClusterIdentity;
use store::election::{Candidacy, Holding, Mode};
use store::machine::{Machine, System};
use store::memory::MemoryStore;
use store::session::{NodeId, NodeInfo, Session, SessionEnd};
use store::{Commit, Store, Write};
use tokio::task::JoinSet;

use super::backup;
use super::sample::{contents, key};
use crate::store::patience;

const GUARD: Duration = Duration::from_secs(30);

async fn guarded<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(GUARD, future).await.expect("it hangs")
}

async fn join(store: &Store, id: &str, keepers: &mut JoinSet<SessionEnd>) -> Session {
    let ttl = Ttl::new(Duration::from_secs(2)).unwrap();
    let (id, roles, candidacies) = (NodeId::new(id).unwrap(), Vec::new(), Vec::new());
    let node = NodeInfo { id, ttl, url: None, roles, candidacies };
    let (session, mut keeper) = guarded(patience::session(store, &node)).await;
    keepers.spawn(async move { keeper.run(|| true).await });
    session
}

async fn win(session: &Session) -> Holding {
    let claim = Claim::new("election/default/watch").unwrap();
    guarded(Candidacy::new(session, claim, Mode::Automatic).campaign()).await.unwrap()
}

/// Waits until it may act: a session that nobody renewed in time is renewed again.
async fn permitted(holding: &Holding) {
    guarded(async {
        while holding.right.permit().is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_had_the_store_before_cannot_act_on_the_restored_one() {
    let (store, mut keepers) = (Store::new(MemoryStore::new()), JoinSet::new());
    let about = ClusterIdentity { id: 7, shards: 1 }.to_value();
    store.commit(Commit::new().put(ClusterIdentity::key(), about)).await.unwrap();
    let anna = join(&store, "anna", &mut keepers).await;
    let mut former = win(&anna).await;
    let bytes = backup(&store).await;
    permitted(&former).await;

    let keys = contents(&store).await.into_keys();
    let empty = keys.fold(Commit::new(), |commit, name| commit.delete(key(name)));
    store.commit(empty).await.unwrap();
    let machine: Arc<dyn Machine> = Arc::new(System);
    guarded(restore(&store, &machine, Cursor::new(bytes), |_, _| {})).await.unwrap();

    // The restore has outlasted it: there is no moment at which both could act.
    assert!(former.right.permit().is_none());
    assert_eq!(guarded(anna.ended()).await, SessionEnd::Lost);
    let late = guarded(former.commit(None, vec![Write::Put(key("late"), "x".into())])).await;
    assert_eq!(late, Err(ChainError::Moved));
    assert!(store.get(&key("late")).await.unwrap().is_none());

    let bert = join(&store, "bert", &mut keepers).await;
    let next = win(&bert).await;
    assert!(next.right.token() > former.right.token());
    permitted(&next).await;
    guarded(bert.close()).await;
    while guarded(keepers.join_next()).await.is_some() {}
}
