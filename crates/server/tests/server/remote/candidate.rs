//! Sessions and elections of Watchbell's own candidates, through a server.

use std::sync::Arc;
use std::time::Duration;

use client::key::Scope;
use engine::lease::Ttl;
use rig::{PATIENCE, until};
use store::claim::Claim;
use store::clock::Stopwatch;
use store::election::{Candidacy, Mode, RightEnd, claim_of};
use store::file::{FileStore, Sizes};
use store::memory::MemoryStore;
use store::session::{self, NodeId, Roster, Session, SessionError};
use store::{Adapter, Store};
use tokio::task::JoinSet;

use super::stand::{Stand, TTL, keep, machine, node, open};

fn nightly() -> Claim {
    claim_of("shop", "nightly").unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_leads_and_its_successor_follows_when_it_leaves_or_dies() {
    let memory = Arc::new(MemoryStore::new());
    let stand = Stand::on(Store::shared(memory.clone())).await;
    stand.project("shop").await;
    let key = stand.key("shop", &[Scope::Node]).await;
    let (one, two) = (stand.store(&key).await, stand.store(&key).await);
    let mut keepers = JoinSet::new();
    let (first, keeper) = open(&one, "web-1").await;
    keep(&mut keepers, keeper);
    assert_eq!(first.key().guest(), Some("shop"), "its key says where it belongs");
    let mut election = Candidacy::new(&first, nightly(), Mode::Automatic);
    let mut holding = election.campaign().await.unwrap();
    assert!(holding.right.permit().is_some_and(|permit| permit.valid_for <= TTL));
    holding.commit(None, Vec::new()).await.unwrap();

    let (second, second_keeper) = open(&two, "web-2").await;
    let mut seconds = JoinSet::new();
    keep(&mut seconds, second_keeper);
    let mut waiting = Candidacy::new(&second, nightly(), Mode::Automatic);
    let (released, won) = tokio::join!(holding.release(), waiting.campaign());
    released.unwrap();
    let won = won.unwrap();
    assert!(won.right.token() > holding.right.token());

    // It dies: nobody keeps its session any more. The server buries it, and not before its time.
    seconds.shutdown().await;
    let watch = Stopwatch::start();
    // Its last renewal may have been a while before it died.
    let left = won.right.permit().map_or(Duration::ZERO, |permit| permit.valid_for);
    let again = tokio::time::timeout(PATIENCE, election.campaign()).await.unwrap().unwrap();
    assert!(again.right.token() > won.right.token());
    assert!(watch.elapsed() >= left, "{:?} of {left:?}", watch.elapsed());
    assert!(won.right.permit().is_none());
    first.close().await;
    assert_eq!(again.right.over().await, RightEnd::Lost);
    let left = Roster::read(&Store::shared(memory as Arc<dyn Adapter>)).await.unwrap();
    assert_eq!(left.keys().filter(|key| key.guest().is_some()).count(), 0);
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_a_hundred_candidates_at_once_one_wins() {
    let stand = Stand::on(Store::new(MemoryStore::new())).await;
    stand.project("shop").await;
    let key = stand.key("shop", &[Scope::Node]).await;
    let store = stand.store(&key).await;
    let mut tasks = JoinSet::new();
    for number in 0..100 {
        let store = store.clone();
        tasks.spawn(async move {
            // Long enough that nobody needs a renewal.
            let ttl = Ttl::new(engine::limits::GUEST_TTL_MAX).unwrap();
            let about = session::NodeInfo { ttl, ..node(&format!("web-{number}")) };
            let (session, _keeper) = Session::open(&store, &machine(), &about).await.unwrap();
            session
        });
    }
    let sessions = tasks.join_all().await;
    let mut tasks = JoinSet::new();
    for session in sessions {
        tasks.spawn(async move {
            let mut election = Candidacy::new(&session, nightly(), Mode::Automatic);
            election.campaign().await.unwrap().right.permit().unwrap().token
        });
    }
    let first = tokio::time::timeout(PATIENCE, tasks.join_next()).await.expect("one wins");
    let token = first.unwrap().unwrap();
    // The others go on trying, for longer than they need to look a few times.
    let second = tokio::time::timeout(Duration::from_secs(4), tasks.join_next()).await;
    assert!(second.is_err(), "two have won: {second:?}");
    let seen = nightly().look(&store).await.unwrap();
    assert_eq!((seen.head.token(), seen.head.number), (token, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_node_of_the_same_name_is_refused_in_one_project_and_not_in_two() {
    let stand = Stand::on(Store::new(MemoryStore::new())).await;
    for project in ["shop", "bank"] {
        stand.project(project).await;
    }
    let (shop, bank) =
        (stand.key("shop", &[Scope::Node]).await, stand.key("bank", &[Scope::Node]).await);
    let mut keepers = JoinSet::new();
    // Nor does it matter what servers are called.
    for key in [&shop, &bank] {
        let (_, keeper) = open(&stand.store(key).await, "server-1").await;
        keep(&mut keepers, keeper);
    }
    let second = Session::open(&stand.store(&shop).await, &machine(), &node("server-1")).await;
    assert!(matches!(second, Err(SessionError::AlreadyLive { .. })));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_goes_on_leading_through_a_restart_of_its_server() {
    let dir = tempfile::tempdir().unwrap();
    // A server that stopped lets go of its store with its last connection, a moment later.
    let file = || {
        until("the store is free", PATIENCE, || async {
            FileStore::open_or_create(dir.path(), Sizes::default()).map(Store::new).ok()
        })
    };
    let stand = Stand::on(file().await).await;
    stand.project("shop").await;
    let key = stand.key("shop", &[Scope::Node]).await;
    let store = stand.store(&key).await;
    let mut keepers = JoinSet::new();
    // Long enough for a server to come back.
    let ttl = Ttl::new(Duration::from_secs(20)).unwrap();
    let about = session::NodeInfo { ttl, ..node("web-1") };
    let (session, keeper) = Session::open(&store, &machine(), &about).await.unwrap();
    keep(&mut keepers, keeper);
    let mut election = Candidacy::new(&session, nightly(), Mode::Automatic);
    let holding = election.campaign().await.unwrap();
    let token = holding.right.token();
    let before = store.get(session.key().key()).await.unwrap().unwrap().version;
    let address = stand.stop().await;
    let stand = Stand::again(address, file().await).await;
    until("it is renewed", PATIENCE, || async {
        let entry = store.get(session.key().key()).await.ok()??;
        (entry.version > before).then_some(())
    })
    .await;
    assert_eq!(holding.right.permit().map(|permit| permit.token), Some(token));
    // And a newcomer sees it lead.
    let seen = nightly().look(&stand.store(&key).await).await.unwrap();
    assert_eq!(seen.head.session.as_ref(), Some(session.key()));
    drop(keepers);
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_server_of_a_list_will_do() {
    let memory = Arc::new(MemoryStore::new());
    let stand = Stand::on(Store::shared(memory)).await;
    stand.project("shop").await;
    let key = stand.key("shop", &[Scope::Node]).await;
    let nobody = rig::free_port();
    let url = format!("http://:{key}@127.0.0.1:{nobody},{}", stand.address);
    let store = store::open_existing(&store::StoreUrl::parse(&url).unwrap()).await.unwrap();
    let (session, _keeper) = open(&store, "web-1").await;
    assert!(session.is_valid());
    assert_eq!(session.key().node(), &NodeId::new("web-1").unwrap());
    session.close().await;
}
