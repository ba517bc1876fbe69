//! A project's key sees nothing of other projects, and touches nothing that is not its own.

use client::ElectionFilter;
use client::election::CampaignRequest;
use client::key::Scope;
use engine::limits::GUEST_WATCHERS_OF_KEY_MAX;
use store::election::{Candidacy, Mode, claim_of};
use store::memory::MemoryStore;
use store::session::{SessionRecord, bury};
use store::{Commit, CommitError, Condition, Range, Refusal, ScanError, Store};
use tokio::task::JoinSet;

use super::stand::{Stand, keep, open};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_project_sees_and_touches_nothing() {
    let stand = Stand::on(Store::new(MemoryStore::new())).await;
    for project in ["shop", "bank"] {
        stand.project(project).await;
    }
    let (shop, bank) =
        (stand.key("shop", &[Scope::Node]).await, stand.key("bank", &[Scope::Node]).await);
    let (ours, theirs) = (stand.store(&shop).await, stand.store(&bank).await);
    let mut keepers = JoinSet::new();
    let (session, keeper) = open(&ours, "web-1").await;
    keep(&mut keepers, keeper);
    let claim = claim_of("shop", "nightly").unwrap();
    let mut election = Candidacy::new(&session, claim.clone(), Mode::Automatic);
    let holding = election.campaign().await.unwrap();

    // They see the server, but not where it is, and none of our sessions, though they come in pages.
    let (mut names, mut rest) = (Vec::new(), Some(Range::prefix("node/")));
    while let Some(range) = rest {
        let page = theirs.scan(range, 1).await.unwrap();
        assert!(!page.entries.is_empty() || page.next.is_none());
        for entry in &page.entries {
            names.push(entry.key.to_string());
            if let Ok(record) = SessionRecord::from_value(&entry.value) {
                assert_eq!((record.url, record.roles.len()), (None, 0));
            }
        }
        rest = page.next;
    }
    assert!(
        names.iter().all(|name| name.contains("server-1") || name == "node/~longest"),
        "{names:?}"
    );
    assert_eq!(theirs.get(session.key().key()).await.unwrap(), None);
    for range in [Range::only(claim.key()), Range::prefix("election/"), Range::prefix("access/")] {
        let why = theirs.scan(range, 10).await.unwrap_err();
        assert!(matches!(why, ScanError::Refused(Refusal::Denied { .. })), "{why}");
    }

    // And they touch none of it; nor does another key of our own project, nor do we bury others.
    let key = session.key().key().clone();
    let mate = stand.store(&stand.key("shop", &[Scope::Node]).await).await;
    let at = ours.get(&key).await.unwrap().unwrap().version;
    for store in [&theirs, &mate] {
        let close = Commit::new().when(Condition::Present(key.clone())).delete(key.clone());
        denied(&store.commit(close).await);
        denied(&bury(store, &[(session.key().clone(), at)]).await);
        let free = claim.releasing(&claim.look(&ours).await.unwrap(), engine::lease::Nonce(1));
        denied(&store.commit(free.unwrap()).await);
    }
    denied(&theirs.commit(claim.wishing(holding.right.token().0, None, "x")).await);
    assert!(holding.right.permit().is_some());
    stand.stop().await;
}

#[track_caller]
fn denied(outcome: &Result<store::Version, CommitError>) {
    let refused = matches!(outcome, Err(CommitError::Refused(Refusal::Denied { .. })));
    assert!(refused, "{outcome:?}");
}

#[tokio::test]
async fn the_elections_api_keeps_projects_apart() {
    let stand = Stand::on(Store::new(MemoryStore::new())).await;
    for project in ["shop", "bank"] {
        stand.project(project).await;
    }
    let all = [Scope::Node, Scope::Read, Scope::Write];
    let (shop, bank) = (stand.key("shop", &all).await, stand.key("bank", &all).await);
    let (ours, theirs) = (stand.client(&shop), stand.client(&bank));
    // It leads until the end of the test.
    let leads = CampaignRequest { ttl_ms: 30_000, ..CampaignRequest::new("web-1") };
    ours.campaign("nightly", &leads).await.unwrap();
    let list = theirs.elections(&ElectionFilter::default()).await.unwrap();
    assert_eq!(list.items, vec![]);
    for error in [
        theirs.election("nightly").await.unwrap_err(),
        theirs
            .resign_election("nightly", &client::election::ResignRequest::default())
            .await
            .unwrap_err(),
    ] {
        assert!(matches!(error, client::ClientError::NotFound(_)), "{error}");
    }
    assert_eq!(ours.election("nightly").await.unwrap().holder.unwrap().node, "web-1");
}

#[tokio::test]
async fn who_watches_takes_a_seat_and_there_are_so_many() {
    let stand = Stand::on(Store::new(MemoryStore::new())).await;
    let key = stand.key("default", &[Scope::Node]).await;
    let client = stand.client(&key);
    let mut seats = Vec::new();
    for _ in 0..GUEST_WATCHERS_OF_KEY_MAX {
        seats.push(client.store_hints().await.unwrap());
    }
    let why = client.store_hints().await.unwrap_err();
    assert!(matches!(why, client::ClientError::LimitReached { .. }), "{why}");
    seats.pop();
    rig::until("a seat is free", rig::PATIENCE, || async { client.store_hints().await.ok() }).await;
}
