//! Sessions on the real machine: real clocks, a real disk, and a runtime with threads.
//!
//! What they do when, and what goes wrong, is tried on virtual time elsewhere. Here nothing is timed
//! that another process on this machine could make late; every wait is for a signal.

use std::path::Path;
use std::time::Duration;

use engine::lease::{Reading, Ttl};
use store::claim::{Claim, ClaimState};
use store::clock::Stopwatch;
use store::election::{Candidacy, Holding, Mode, RightEnd};
use store::file::{FileStore, Sizes};
use store::machine::{Machine, System};
use store::session::{NodeId, NodeInfo, Session, SessionEnd, bury_local};
use store::{Key, Range, Store, Write};
use tokio::task::JoinSet;

use super::patience;

/// Whatever takes longer has hung.
const GUARD: Duration = Duration::from_secs(30);

/// A successor hears of a closed session at once, and has the claim within this; on a machine that does
/// nothing else.
const HAND_OVER: Duration = Duration::from_millis(200);

/// What other work on this machine may add.
const MARGIN: Duration = Duration::from_secs(5);

async fn guarded<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(GUARD, future).await.expect("it hangs")
}

fn file(dir: &Path) -> Store {
    Store::new(FileStore::open_or_create(dir, Sizes::default()).unwrap())
}

fn claim() -> Claim {
    Claim::new("election/default/watch").unwrap()
}

/// Opens a session, and keeps it on `keepers`.
async fn join(store: &Store, id: &str, ttl_ms: u64, keepers: &mut JoinSet<SessionEnd>) -> Session {
    let node = NodeInfo {
        id: NodeId::new(id).unwrap(),
        ttl: Ttl::new(Duration::from_millis(ttl_ms)).unwrap(),
        url: None,
        roles: Vec::new(),
        candidacies: Vec::new(),
    };
    let (session, mut keeper) = guarded(patience::session(store, &node)).await;
    keepers.spawn(async move { keeper.run(|| true).await });
    session
}

async fn win(session: &Session) -> Holding {
    let mut election = Candidacy::new(session, claim(), Mode::Automatic);
    guarded(election.campaign()).await.expect("the session lives")
}

async fn sessions(store: &Store) -> Vec<Key> {
    let page = store.scan(Range::prefix("node/"), 100).await.unwrap();
    page.entries
        .into_iter()
        .map(|entry| entry.key)
        // What lies beside them is none.
        .filter(|key| !key.as_str().starts_with("node/~"))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_opened_holds_a_claim_writes_and_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let (store, mut keepers) = (file(dir.path()), JoinSet::new());
    let session = join(&store, "anna", 3_000, &mut keepers).await;
    assert_eq!(sessions(&store).await, [session.key().key().clone()]);

    let mut holding = win(&session).await;
    let datum = Key::new("data/1").unwrap();
    guarded(holding.commit(None, vec![Write::Put(datum.clone(), "value".into())])).await.unwrap();
    assert!(store.get(&datum).await.unwrap().is_some());

    let right = holding.right.clone();
    guarded(session.close()).await;
    assert!(right.permit().is_none() && !session.is_valid());
    assert_eq!(guarded(right.over()).await, RightEnd::Lost);
    assert_eq!(guarded(keepers.join_next()).await.unwrap().unwrap(), SessionEnd::Closed);
    assert_eq!(sessions(&store).await, []);
    let seen = claim().look(&store).await.unwrap();
    assert_eq!((seen.head.token(), seen.head.state), (right.token(), ClaimState::Held));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_renewed_for_as_long_as_its_keeper_runs() {
    let dir = tempfile::tempdir().unwrap();
    let (store, mut keepers) = (file(dir.path()), JoinSet::new());
    let mut hints = store.watch("node/");
    let session = join(&store, "anna", 2_000, &mut keepers).await;
    let first = store.get(session.key().key()).await.unwrap().unwrap().version;
    let moved = async {
        // Ten moves are two leases, if nothing is late.
        let mut versions = std::collections::BTreeSet::from([first]);
        while versions.len() <= 10 {
            hints.changed().await;
            let entry = store.get(session.key().key()).await.unwrap().expect("it is kept");
            versions.insert(entry.version);
        }
    };
    guarded(moved).await;
    assert_eq!(session.end(), None);
    guarded(session.close()).await;
    guarded(keepers.join_next()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_claim_of_a_session_that_is_closed_is_taken_at_once_by_another() {
    let dir = tempfile::tempdir().unwrap();
    let (store, mut keepers) = (file(dir.path()), JoinSet::new());
    // The successor opens first: where memory is no disk there is a quarantine, and it ends first.
    // T is such that nobody who has to be patient is there in time.
    let bert = join(&store, "bert", 10_000, &mut keepers).await;
    let anna = join(&store, "anna", 10_000, &mut keepers).await;
    let holding = win(&anna).await;
    let mut campaigns = JoinSet::new();
    let mut roster = bert.roster();
    guarded(roster.wait_for(|roster| roster.contains(anna.key()))).await.unwrap();
    campaigns.spawn({
        let bert = bert.clone();
        async move { win(&bert).await }
    });
    let since = Stopwatch::start();
    guarded(anna.close()).await;
    let followed = guarded(campaigns.join_next()).await.unwrap().unwrap();
    let took = since.elapsed();
    assert!(took < HAND_OVER + MARGIN, "{took:?}");
    assert!(followed.right.token() > holding.right.token());
    assert!(holding.right.permit().is_none());
    guarded(bert.close()).await;
    while guarded(keepers.join_next()).await.is_some() {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_opens_the_directory_again_buries_those_who_had_it() {
    let dir = tempfile::tempdir().unwrap();
    let (store, mut keepers) = (file(dir.path()), JoinSet::new());
    let anna = join(&store, "anna", 3_000, &mut keepers).await;
    let bert = join(&store, "bert", 3_000, &mut keepers).await;
    let former = win(&anna).await.right.token();
    // As a crash would leave it.
    keepers.shutdown().await;
    drop((anna, bert, store));

    let store = file(dir.path());
    assert_eq!(sessions(&store).await.len(), 2);
    assert_eq!(bury_local(&store).await, Ok(2));
    assert_eq!(sessions(&store).await, []);
    assert_eq!(bury_local(&store).await, Ok(0));
    let anna = join(&store, "anna", 3_000, &mut keepers).await;
    assert!(win(&anna).await.right.token() > former, "it waits for nobody's patience");
    guarded(anna.close()).await;
    guarded(keepers.join_next()).await;
}

#[test]
fn the_monotonic_clocks_never_go_back() {
    let mut last = System.reading();
    for _ in 0..10_000 {
        let now = System.reading();
        assert!(now.boot >= last.boot && now.raw >= last.raw, "{now:?} after {last:?}");
        last = now;
    }
}

#[tokio::test]
async fn both_monotonic_clocks_go_on_while_the_machine_waits() {
    let length = Duration::from_millis(20);
    let before: Reading = System.reading();
    System.sleep(length).await;
    // Time servers may steer the clock that the runtime waits by, a little.
    assert!(System.reading().least_since(before) >= length / 2);
}
