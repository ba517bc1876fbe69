//! Holds through a server: what is shown of them, who lets them begin, and who follows. The holder is played here.

use std::time::Duration;

use client::election::{
    ApproveRequest, Election, ElectionState, HandOverCause, HoldState, ResignRequest, RiskReason,
};
use client::event::EventKind;
use client::key::Scope;
use client::{Client, ClientError};
use engine::hold::record::{self, HandOver, HoldBody, HoldRecord};
use rig::PATIENCE;
use serde_json::value::{RawValue, to_raw_value};
use store::claim::ClaimState;
use store::election::{Candidacy, Holding, Mode, RightEnd, claim_of};
use store::memory::MemoryStore;
use store::session::{NodeInfo, Session};
use store::{Key, Store};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::stand::{Stand, keep, machine, node};
use crate::server::receiver::{Receiver, answer};

/// A server, somebody who may write, and the store as candidates of the project see it.
async fn stand() -> (Stand, Client, Store) {
    people(Stand::on(Store::new(MemoryStore::new())).await).await
}

async fn people(stand: Stand) -> (Stand, Client, Store) {
    stand.project("shop").await;
    let key = stand.key("shop", &[Scope::Node]).await;
    let person = stand.key("shop", &[Scope::Read, Scope::Write]).await;
    let (client, store) = (stand.client(&person), stand.store(&key).await);
    (stand, client, store)
}

/// A candidate for the election, and its session.
async fn candidate(
    store: &Store,
    id: &str,
    mode: Mode,
    keepers: &mut JoinSet<()>,
) -> (Session, Candidacy) {
    let about = NodeInfo { candidacies: vec!["shop/nightly".to_owned()], ..node(id) };
    let (session, keeper) = Session::open(store, &machine(), &about).await.unwrap();
    keep(keepers, keeper);
    let candidacy = Candidacy::new(&session, claim_of("shop", "nightly").unwrap(), mode);
    (session, candidacy)
}

async fn campaign(candidacy: &mut Candidacy) -> Holding {
    timeout(PATIENCE, candidacy.campaign()).await.unwrap().unwrap()
}

fn running(holding: &Holding) -> HoldRecord {
    let mut record = HoldRecord {
        token: holding.right.token().0,
        node: "web-1".into(),
        state: record::HoldState::Running,
        since_ms: 1_800_000_000_000,
        leaving: None,
        program: "/usr/bin/nightly".into(),
        isolation: Some("namespace".into()),
        pid: Some(4_711),
        starts: 1,
        exits: Vec::new(),
        hand_overs: Vec::new(),
        at_risk: Vec::new(),
    };
    record.came(HandOver {
        at_ms: 1_800_000_000_000,
        from: None,
        to: "web-1".into(),
        token: record.token,
        cause: record::HandOverCause::First,
        took_ms: Some(40),
    });
    record
}

fn body(hold: &HoldRecord) -> Box<RawValue> {
    to_raw_value(&HoldBody { hold: hold.clone() }).unwrap()
}

async fn tell(holding: &mut Holding, hold: &HoldRecord) {
    holding.commit(Some(body(hold)), Vec::new()).await.unwrap();
}

/// Waits until the election is shown so.
async fn until(client: &Client, shows: impl Fn(&Election) -> bool) -> Election {
    let look = async {
        loop {
            match client.election("nightly").await {
                Ok(election) if shows(&election) => return election,
                Ok(_) | Err(ClientError::NotFound(_)) => tokio::task::yield_now().await,
                Err(why) => panic!("{why}"),
            }
        }
    };
    timeout(PATIENCE, look).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_waits_begins_when_a_person_has_approved_its_token() {
    let (stand, client, store) = stand().await;
    let mut keepers = JoinSet::new();
    let (_session, mut candidacy) = candidate(&store, "web-1", Mode::Manual, &mut keepers).await;
    let person = async {
        let waits = until(&client, |shown| shown.state == ElectionState::Waiting).await;
        assert_eq!(waits.holder.as_ref().map(|holder| holder.node.as_str()), Some("web-1"));
        let other = ApproveRequest { token: waits.token + 1 };
        let refused = client.approve_election("nightly", &other).await.unwrap_err();
        assert!(matches!(&refused, ClientError::Conflict(_)), "{refused}");
        assert!(refused.to_string().contains("web-1 waits under token"), "{refused}");
        let token = ApproveRequest { token: waits.token };
        client.approve_election("nightly", &token).await.unwrap();
        waits.token
    };
    let (holding, token) = tokio::join!(campaign(&mut candidacy), person);
    assert_eq!(holding.right.token().0, token);
    assert!(holding.right.permit().is_some());
    let late = client.approve_election("nightly", &ApproveRequest { token }).await.unwrap_err();
    assert!(late.to_string().contains("web-1 has begun already"), "{late}");
    let none = client.approve_election("weekly", &ApproveRequest { token }).await.unwrap_err();
    assert!(matches!(none, ClientError::NotFound(_)), "{none}");
    let audit = stand.admin().in_project("shop").unwrap();
    let audit = audit.audit(&client::AuditFilter::default()).await.unwrap();
    assert!(audit.items.iter().any(|entry| entry.action == "election.approve"));
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_is_asked_to_leave_for_a_candidate_and_for_nobody_else() {
    let (stand, client, store) = stand().await;
    let mut keepers = JoinSet::new();
    let (_one, mut first) = candidate(&store, "web-1", Mode::Automatic, &mut keepers).await;
    let mut holding = campaign(&mut first).await;
    let (_two, mut second) = candidate(&store, "web-2", Mode::Automatic, &mut keepers).await;
    until(&client, |shown| shown.candidates == ["web-2"]).await;
    let to = |node: &str| ResignRequest { to: Some(node.to_owned()) };
    for (node, why) in [
        ("web-9", "web-9 does not campaign for nightly; these do: web-2"),
        ("web-1", "web-1 has nightly already"),
        ("web 2", "a node id has"),
    ] {
        let refused = client.resign_election("nightly", &to(node)).await.unwrap_err();
        assert!(matches!(&refused, ClientError::Invalid(_)), "{refused:?}");
        assert!(refused.to_string().contains(why), "{refused}");
    }
    let asked = client.resign_election("nightly", &to("web-2")).await.unwrap();
    assert!(asked.resign_wished && asked.resign_to.as_deref() == Some("web-2"));

    assert_eq!(timeout(PATIENCE, holding.right.over()).await.unwrap(), RightEnd::Wished);
    let wished = holding.right.wished_to().unwrap().clone();
    assert_eq!(wished.as_str(), "web-2");
    let (told, former) = (running(&holding), holding.right.clone());
    tell(&mut holding, &told).await;
    // It has seen who campaigns.
    timeout(PATIENCE, async {
        while first.successor(&wished).is_none() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    first.step_down(holding).await.unwrap();
    let given = client.election("nightly").await.unwrap();
    assert_eq!(given.holder.map(|holder| holder.node).as_deref(), Some("web-2"));
    let next = campaign(&mut second).await;
    assert!(next.right.token() > former.token());
    let shown = client.election("nightly").await.unwrap();
    let hold = shown.hold.unwrap();
    assert_eq!((hold.state, hold.node.as_str()), (HoldState::Former, "web-1"));
    assert!(!shown.resign_wished && shown.candidates == ["web-1"]);
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_is_shown_with_all_that_it_told_and_its_events_are_told() {
    let (stand, client, store) = stand().await;
    let mut keepers = JoinSet::new();
    let mut events = client.events().await.unwrap();
    let (session, mut candidacy) = candidate(&store, "web-1", Mode::Automatic, &mut keepers).await;
    let mut holding = campaign(&mut candidacy).await;
    let mut told = running(&holding);
    told.risks(record::RiskReason::SlowKill, 1_800_000_000_000, "40 ms late");
    tell(&mut holding, &told).await;

    let shown = client.election("nightly").await.unwrap();
    let hold = shown.hold.unwrap();
    assert_eq!((hold.state, hold.pid, hold.starts), (HoldState::Running, Some(4_711), 1));
    assert_eq!(hold.since.to_string(), "2027-01-15T08:00:00Z");
    let came = &hold.hand_overs[0];
    assert_eq!((came.cause, came.took_ms), (HandOverCause::First, Some(40)));
    assert_eq!(hold.at_risk[0].reason, RiskReason::SlowKill);

    let (mut is_running, mut is_at_risk) = (false, false);
    while !(is_running && is_at_risk) {
        match timeout(PATIENCE, events.next()).await.unwrap().unwrap().what {
            EventKind::ElectionChanged { name, hold: Some(HoldState::Running), holder, .. } => {
                assert_eq!((name.as_str(), holder.as_deref()), ("nightly", Some("web-1")));
                is_running = true;
            }
            EventKind::HoldAtRisk { name, reason, node, what } => {
                assert_eq!((name.as_str(), reason), ("nightly", RiskReason::SlowKill));
                assert_eq!((node.as_str(), what.as_str()), ("web-1", "40 ms late"));
                is_at_risk = true;
            }
            _other => {}
        }
    }
    // It dies: its session is buried, and what it told is of somebody who is gone.
    keepers.shutdown().await;
    drop((holding, session));
    let lost = until(&client, |shown| shown.holder.is_none()).await;
    assert_eq!(lost.hold.map(|hold| hold.state), Some(HoldState::Lost));
    loop {
        let event = timeout(PATIENCE + Duration::from_secs(1), events.next()).await.unwrap();
        if let EventKind::ElectionChanged { hold: Some(HoldState::Lost), state, .. } =
            event.unwrap().what
        {
            assert_eq!(state, ElectionState::Free);
            break;
        }
    }
    stand.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn somebody_is_notified_of_a_holder_that_waits_with_what_to_type() {
    let receiver = Receiver::start(answer(200, &[], b"")).await;
    let stand = Stand::telling(Store::new(MemoryStore::new()), &receiver.url("/hook")).await;
    let (stand, client, store) = people(stand).await;
    let mut keepers = JoinSet::new();
    let (_session, mut candidacy) = candidate(&store, "web-1", Mode::Manual, &mut keepers).await;
    let told = async {
        let waits = until(&client, |shown| shown.state == ElectionState::Waiting).await;
        let body = receiver.next().await.body;
        (waits.token, serde_json::from_slice::<serde_json::Value>(&body).unwrap())
    };
    let (token, told) = tokio::select! {
        told = timeout(PATIENCE, told) => told.unwrap(),
        _begun = candidacy.campaign() => panic!("nobody has approved it"),
    };
    assert_eq!((&told["type"], &told["state"]), (&"election_changed".into(), &"waiting".into()));
    let text = told["text"].as_str().unwrap();
    let command = format!("watchbell election approve nightly --token {token} --yes");
    assert!(text.contains(&command) && text.contains("project shop"), "{text}");
    stand.stop().await;
}

/// A holder that waits on the store itself, and its session.
async fn waits(store: &Store, name: &str, keepers: &mut JoinSet<()>) -> Session {
    let about = NodeInfo { candidacies: vec![format!("shop/{name}")], ..node(name) };
    let (session, keeper) = Session::open(store, &machine(), &about).await.unwrap();
    keep(keepers, keeper);
    let claim = claim_of("shop", name).unwrap();
    let mut candidacy = Candidacy::new(&session, claim.clone(), Mode::Manual);
    let is_waiting = async {
        while claim.look(store).await.unwrap().head.state != ClaimState::Waiting {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = is_waiting => {}
        _begun = candidacy.campaign() => panic!("nobody has approved it"),
    }
    session
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waited_when_a_server_started_is_notified_of_once_however_often_servers_start() {
    let receiver = Receiver::start(answer(200, &[], b"")).await;
    let store = Store::new(MemoryStore::new());
    let mut keepers = JoinSet::new();
    let _nightly = waits(&store, "nightly", &mut keepers).await;
    let told = async || {
        let body = timeout(PATIENCE, receiver.next()).await.unwrap().body;
        serde_json::from_slice::<serde_json::Value>(&body).unwrap()
    };
    let stand = Stand::telling(store.clone(), &receiver.url("/hook")).await;
    let first = told().await;
    assert_eq!((&first["name"], &first["state"]), (&"nightly".into(), &"waiting".into()));
    let key = "election/shop/nightly/notified";
    let kept = async {
        while store.get(&Key::new(key).unwrap()).await.unwrap().is_none() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, kept).await.unwrap();
    stand.stop().await;
    let stand = Stand::telling(store.clone(), &receiver.url("/hook")).await;
    let _weekly = waits(&store, "weekly", &mut keepers).await;
    assert_eq!(told().await["name"], "weekly", "the first one was not told again");
    stand.stop().await;
}
