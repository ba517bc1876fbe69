//! Elections for programs in any language: plain requests, one sign of life each.

use std::sync::Arc;
use std::time::Duration;

use client::election::{Campaign, CampaignRequest, ElectionState, ReleaseRequest, ResignRequest};
use client::key::Scope;
use client::{Client, ClientError, ElectionFilter};
use engine::lease::patience;
use rig::{PATIENCE, until};
use store::clock::Stopwatch;
use store::memory::MemoryStore;
use store::{Adapter, Class, Commit, Key, Store};
use tokio::task::JoinSet;

use super::stand::{Stand, TTL};

async fn stand() -> (Stand, Client) {
    stand_on(Store::new(MemoryStore::new())).await
}

async fn stand_on(store: Store) -> (Stand, Client) {
    let stand = Stand::on(store).await;
    stand.project("shop").await;
    let key = stand.key("shop", &[Scope::Node, Scope::Read, Scope::Write]).await;
    let client = stand.client(&key);
    (stand, client)
}

/// A candidate that does not lose what it has for being slow.
fn of(candidate: &str) -> CampaignRequest {
    CampaignRequest { ttl_ms: 30_000, ..CampaignRequest::new(candidate) }
}

/// A candidate whose end is waited for.
fn brief(candidate: &str) -> CampaignRequest {
    let ttl_ms = u64::try_from(TTL.as_millis()).unwrap();
    CampaignRequest { ttl_ms, ..CampaignRequest::new(candidate) }
}

/// Leads, or panics: the request that goes on with it, and the token.
async fn lead(client: &Client, name: &str, request: CampaignRequest) -> (CampaignRequest, u64) {
    match client.campaign(name, &request).await.unwrap().0 {
        Campaign::Leading { session, token, valid_for_ms, .. } => {
            assert_eq!(valid_for_ms, request.ttl_ms);
            (CampaignRequest { session: Some(session), ..request }, token)
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_candidate_leads_goes_on_and_releases_and_the_next_has_a_greater_token() {
    let (stand, client) = stand().await;
    let (one, token) = lead(&client, "nightly", of("web-1")).await;
    let (one, same) = lead(&client, "nightly", one).await;
    assert_eq!(token, same, "to go on is not to begin anew");
    let other = client.campaign("nightly", &of("web-2")).await.unwrap().0;
    assert_eq!(other, Campaign::Following { holder: "web-1".into(), token, session: None });
    let shown = client.election("nightly").await.unwrap();
    assert_eq!((shown.state, shown.token), (ElectionState::Held, token));
    assert_eq!(shown.holder.unwrap().ttl_ms, Some(one.ttl_ms));

    let release =
        ReleaseRequest { candidate: "web-1".into(), session: one.session.clone().unwrap() };
    for _ in 0..2 {
        let free = client.release_election("nightly", &release).await.unwrap();
        assert_eq!((free.state, free.token), (ElectionState::Free, token), "again is as once");
    }
    let (_, next) = lead(&client, "nightly", of("web-2")).await;
    assert!(next > token);
    let former = client.campaign("nightly", &one).await.unwrap().0;
    assert!(matches!(former, Campaign::Following { .. }), "{former:?}");
    stand.stop().await;
}

#[tokio::test]
async fn who_stops_asking_loses_it_and_not_before_its_time() {
    let (stand, client) = stand().await;
    let watch = Stopwatch::start();
    let (gone, token) = lead(&client, "nightly", brief("web-1")).await;
    let wait = CampaignRequest { wait_ms: 30_000, ..of("web-2") };
    let told = client.campaign("nightly", &wait).await.unwrap().0;
    assert_eq!(told, Campaign::Open { retry_ms: 0 }, "it is told, and asks again");
    assert!(watch.elapsed() >= patience(TTL), "{:?}", watch.elapsed());
    let (_, next) = lead(&client, "nightly", of("web-2")).await;
    assert!(next > token);
    let late = client.campaign("nightly", &gone).await.unwrap().0;
    assert!(matches!(late, Campaign::Following { .. }), "{late:?}");
    stand.stop().await;
}

#[tokio::test]
async fn a_wait_ends_when_the_holder_leaves() {
    let (stand, client) = stand().await;
    let (one, _) = lead(&client, "nightly", of("web-1")).await;
    let wait = CampaignRequest { wait_ms: 30_000, ..of("web-2") };
    let release = ReleaseRequest { candidate: "web-1".into(), session: one.session.unwrap() };
    let (told, freed) = tokio::join!(
        client.campaign("nightly", &wait),
        client.release_election("nightly", &release)
    );
    freed.unwrap();
    let told = told.unwrap().0;
    // Whichever came first.
    assert!(matches!(told, Campaign::Open { .. } | Campaign::Leading { .. }), "{told:?}");
    let short = CampaignRequest { wait_ms: 50, ..of("web-3") };
    lead(&client, "other", of("web-1")).await;
    let told = client.campaign("other", &short).await.unwrap().0;
    assert!(matches!(told, Campaign::Following { .. }), "{told:?}");
    stand.stop().await;
}

/// A request of one that follows, with the session that it was told.
async fn follow(client: &Client, request: CampaignRequest) -> CampaignRequest {
    let told = client.campaign("nightly", &request).await.unwrap().0;
    let Campaign::Following { session, .. } = told else { panic!("{told:?}") };
    CampaignRequest { session, ..request }
}

#[tokio::test]
async fn one_that_is_listed_is_named_by_a_wish_and_is_the_next_to_lead() {
    let memory = Arc::new(MemoryStore::new());
    let (stand, client) = stand_on(Store::shared(memory.clone())).await;
    let (one, first) = lead(&client, "nightly", of("web-1")).await;
    let listed = |candidate| CampaignRequest { listed: true, ..of(candidate) };
    let others = [listed("web-2"), listed("web-3")];
    let [two, three] = others.map(|request| follow(&client, request));
    let (two, three) = (two.await, three.await);
    assert!(two.session.is_some() && two.session != three.session);
    // It has one session, however often it asks; who is not listed has none.
    assert_eq!(follow(&client, two.clone()).await, two);
    assert_eq!(follow(&client, of("web-4")).await.session, None);
    let shown = client.election("nightly").await.unwrap();
    assert_eq!(shown.candidates, ["web-2", "web-3"]);

    let to = |node: &str| ResignRequest { to: Some(node.to_owned()) };
    client.resign_election("nightly", &to("web-4")).await.unwrap_err();
    client.resign_election("nightly", &to("web-3")).await.unwrap();
    let (one, _) = lead(&client, "nightly", one).await;
    let release = ReleaseRequest { candidate: "web-1".into(), session: one.session.unwrap() };
    let freed = client.release_election("nightly", &release).await.unwrap();
    assert_eq!(freed.holder.map(|holder| holder.node).as_deref(), Some("web-3"));
    // Sent again it changes nothing.
    client.release_election("nightly", &release).await.unwrap();
    assert_eq!(follow(&client, two.clone()).await, two);
    let (three, token) = lead(&client, "nightly", three).await;
    assert!(token > first);

    // A wish for one that is gone meanwhile is a wish for anybody.
    client.resign_election("nightly", &to("web-2")).await.unwrap();
    let key = format!("node/web-2/shop.{}", two.session.unwrap());
    let gone = Commit::new().delete(Key::new(key).unwrap());
    Store::shared(memory as Arc<dyn Adapter>).commit(gone).await.unwrap();
    let release = ReleaseRequest { candidate: "web-3".into(), session: three.session.unwrap() };
    let freed = client.release_election("nightly", &release).await.unwrap();
    assert_eq!(freed.state, ElectionState::Free);
    stand.stop().await;
}

#[tokio::test]
async fn one_that_is_listed_and_waits_is_told_when_it_was_handed_over() {
    let (stand, client) = stand().await;
    let (one, _) = lead(&client, "nightly", of("web-1")).await;
    let two = CampaignRequest { listed: true, ttl_ms: 60_000, ..CampaignRequest::new("web-2") };
    let two = follow(&client, two).await;
    let wait = CampaignRequest { wait_ms: 30_000, ..two.clone() };
    client.resign_election("nightly", &ResignRequest { to: Some("web-2".into()) }).await.unwrap();
    let release = ReleaseRequest { candidate: "web-1".into(), session: one.session.unwrap() };
    let (told, freed) = tokio::join!(
        client.campaign("nightly", &wait),
        client.release_election("nightly", &release)
    );
    freed.unwrap();
    // Whichever came first.
    let told = told.unwrap().0;
    assert!(matches!(told, Campaign::Open { .. } | Campaign::Leading { .. }), "{told:?}");
    lead(&client, "nightly", two).await;
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_a_hundred_requests_at_once_one_leads() {
    let (stand, client) = stand().await;
    let mut tasks = JoinSet::new();
    for number in 0..100 {
        let client = client.clone();
        tasks.spawn(async move {
            client.campaign("nightly", &of(&format!("web-{number}"))).await.unwrap().0
        });
    }
    let answers = tasks.join_all().await;
    let leading = |answer: &&Campaign| matches!(answer, Campaign::Leading { .. });
    assert_eq!(answers.iter().filter(leading).count(), 1, "{answers:?}");
    // What the others opened for it they closed.
    let page =
        stand.store(&stand.admin).await.scan(store::Range::prefix("node/"), 1_000).await.unwrap();
    assert!(page.entries.len() <= 3, "{page:?}");
    stand.stop().await;
}

/// Asks for nobody in particular to follow.
fn leave() -> ResignRequest {
    ResignRequest::default()
}

#[tokio::test]
async fn whoever_leads_learns_that_it_should_leave() {
    let (stand, client) = stand().await;
    let (one, token) = lead(&client, "nightly", of("web-1")).await;
    let wished = client.resign_election("nightly", &leave()).await.unwrap();
    assert!(wished.resign_wished && wished.token == token);
    let told = client.campaign("nightly", &one).await.unwrap().0;
    assert!(matches!(told, Campaign::Leading { resign_wished: true, .. }), "{told:?}");
    let release = ReleaseRequest { candidate: "web-1".into(), session: one.session.unwrap() };
    let free = client.release_election("nightly", &release).await.unwrap();
    assert!(!free.resign_wished && free.holder.is_none());
    let nobody = client.resign_election("nightly", &leave()).await.unwrap_err();
    assert!(matches!(nobody, ClientError::Conflict(_)), "{nobody}");
    let audit = stand.admin().audit(&client::AuditFilter::default()).await.unwrap();
    assert!(audit.items.iter().any(|entry| entry.action == "election.resign"));
    stand.stop().await;
}

#[tokio::test]
async fn elections_are_listed_in_pages() {
    let (stand, client) = stand().await;
    // What lies beside a head is in between, in the order of keys.
    for name in ["a", "a-b", "a.c", "ab", "b"] {
        lead(&client, name, of("web-1")).await;
        client.resign_election(name, &leave()).await.unwrap();
    }
    let list =
        client.all_elections(ElectionFilter { limit: Some(2), ..Default::default() }, 500).await;
    let names: Vec<_> = list.unwrap().items.into_iter().map(|item| item.name).collect();
    assert_eq!(names, ["a", "a-b", "a.c", "ab", "b"]);
    let filter = ElectionFilter { limit: Some(2), ..Default::default() };
    let page = client.elections(&filter).await.unwrap();
    assert_eq!((page.items.len(), page.next.as_deref()), (2, Some("a-b")));
    assert!(page.items.iter().all(|item| item.resign_wished));
    let filter = ElectionFilter { prefix: Some("a-".into()), ..Default::default() };
    assert_eq!(client.elections(&filter).await.unwrap().items.len(), 1);
    stand.stop().await;
}

#[tokio::test]
async fn what_is_wrong_with_a_request_is_told_with_a_pointer() {
    let (stand, client) = stand().await;
    let good = of("web-1");
    for (request, pointer) in [
        (CampaignRequest { candidate: "a/b".into(), ..good.clone() }, "/candidate"),
        (CampaignRequest { session: Some("xyz".into()), ..good.clone() }, "/session"),
        (CampaignRequest { ttl_ms: 499, ..good.clone() }, "/ttl_ms"),
        (CampaignRequest { ttl_ms: 60_001, ..good.clone() }, "/ttl_ms"),
        (CampaignRequest { wait_ms: 30_001, ..good.clone() }, "/wait_ms"),
    ] {
        let why = client.campaign("nightly", &request).await.unwrap_err();
        let errors = &why.problem().unwrap().errors;
        assert_eq!(errors[0].pointer.as_deref(), Some(pointer), "{why}");
    }
    let why = client.campaign("a b", &good).await.unwrap_err();
    assert!(matches!(why, ClientError::Invalid(_)), "{why}");
    // Another key does not go on with somebody's session.
    let (one, _) = lead(&client, "nightly", good).await;
    let other = stand.client(&stand.key("shop", &[Scope::Node]).await);
    let why = other.campaign("nightly", &one).await.unwrap_err();
    assert!(matches!(why, ClientError::Forbidden(_)), "{why}");
    let longer = CampaignRequest { ttl_ms: one.ttl_ms + 1_000, ..one };
    let why = client.campaign("nightly", &longer).await.unwrap_err();
    assert!(why.to_string().contains("fixed"), "{why}");
    stand.stop().await;
}

#[tokio::test]
async fn nobody_leads_in_an_epoch_that_is_not_trusted_yet_and_then_under_a_new_token() {
    let memory = Arc::new(MemoryStore::of_class(Class::B));
    let stand = Stand::on(Store::shared(memory.clone() as Arc<dyn Adapter>)).await;
    let client = stand.client(&stand.key("default", &[Scope::Node]).await);
    let (mut one, token) = lead(&client, "nightly", brief("web-1")).await;
    let begun = Stopwatch::start();
    memory.fail_over(0);
    let told = client.campaign("nightly", &one).await.unwrap().0;
    assert!(matches!(told, Campaign::Open { .. }), "{told:?}");
    let next = until("it leads again", PATIENCE, || async {
        match client.campaign("nightly", &one).await.unwrap().0 {
            Campaign::Leading { token, session, .. } => Some((token, session)),
            _ => None,
        }
    })
    .await;
    assert!(begun.elapsed() > TTL, "others may have acted until then");
    one.session = Some(next.1);
    assert!(next.0 > token);
    let (_, same) = lead(&client, "nightly", one).await;
    assert_eq!(same, next.0);
    stand.stop().await;
}

#[tokio::test]
async fn a_program_measures_from_before_it_sent() {
    let (stand, client) = stand().await;
    let before = tokio::time::Instant::now();
    let (_, sent) = client.campaign("nightly", &of("web-1")).await.unwrap();
    assert!(sent >= before && sent.elapsed() < Duration::from_secs(30));
    stand.stop().await;
}
