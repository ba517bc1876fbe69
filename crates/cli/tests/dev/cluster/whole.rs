//! What is asked of one server, and is about all of them.

use client::cluster::{Cluster, NodeState};
use client::event::EventKind;
use client::project::{NewProjectSpec, ProjectLimits};
use client::spec::TriggerSpec;
use client::{Client, TriggerFilter};
use engine::id::{ProjectId, ShardId};
use engine::limits::SHARDS_DEFAULT;
use rig::{PATIENCE, machine, redis, until};
use rustix::process::Signal;
use store::{Range, Store};

use super::fleet::Fleet;
use super::opened;

/// A trigger that is run on demand, in a shard of this server.
async fn trigger_of(client: &Client, node: &str) -> TriggerSpec {
    let cluster = client.cluster().await.unwrap();
    let shards = shards_of(&cluster, node);
    let mut names = (0..).map(|number| format!("bell-{number}"));
    let lives =
        |name: &String| shards.contains(&ShardId::of(ProjectId::DEFAULT, name, SHARDS_DEFAULT).0);
    TriggerSpec::webhook(names.find(lives).unwrap(), "http://127.0.0.1:9/nobody")
}

fn shards_of(cluster: &Cluster, node: &str) -> Vec<u16> {
    let mut nodes = cluster.nodes.iter();
    let server = nodes.find(|there| there.name == node).and_then(|node| node.server.clone());
    server.map(|server| server.shards).unwrap_or_default()
}

/// How many shards have it in writing that a project fires nothing.
async fn silent(store: &Store) -> usize {
    let (mut count, mut rest) = (0, Some(Range::prefix("shard/")));
    while let Some(range) = rest {
        let page = store.scan(range, 1_000).await.unwrap();
        let is_silent = |entry: &&store::Entry| entry.key.as_str().contains("/stopped/");
        count += page.entries.iter().filter(is_silent).count();
        rest = page.next;
    }
    count
}

/// A project that has as much as it may is given no more by any of them, wherever that would be.
async fn limit(a: &Client, b: &Client) {
    let limits = ProjectLimits { triggers: Some(6), ..ProjectLimits::default() };
    let spec = NewProjectSpec { name: "few".to_owned(), limits: Some(limits), notify: None };
    a.create_project(&spec).await.unwrap();
    let (a, b) = (a.in_project("few").unwrap(), b.in_project("few").unwrap());
    let spec = |name: &str| TriggerSpec::webhook(name, "http://127.0.0.1:9/nobody");
    for number in 0..6 {
        a.create_trigger(&spec(&format!("first-{number}"))).await.unwrap();
    }
    // Each server knows within a few seconds what the other has.
    for (number, client) in [&a, &b, &a, &b, &a, &b, &a, &b].into_iter().enumerate() {
        let name = format!("more-{number}");
        let refused = until("no more is given", PATIENCE, || async {
            match client.create_trigger(&spec(&name)).await {
                Ok(_) => {
                    client.delete_trigger(&name).await.unwrap();
                    None
                }
                Err(why) => Some(why.to_string()),
            }
        });
        let why = refused.await;
        assert!(why.contains("triggers"), "{why}");
    }
    let has = b.all_triggers(TriggerFilter::default(), 100).await.unwrap();
    assert_eq!(has.items.len(), 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_answer_as_one_and_one_that_is_drained_hands_over_all_it_has() {
    let _machine = machine::waits().await;
    let redis = tokio::task::block_in_place(|| redis::Setup::durable().start());
    let store = opened(&redis.url()).await;
    let fleet = Fleet::on(&["a", "b"], &redis.url(), &store).await;
    fleet.settled().await;
    let (a, b) = (fleet.patient_client("a"), fleet.patient_client("b"));

    let seen = until("both see the same", PATIENCE, || async {
        let cluster = a.cluster().await.unwrap();
        let all = shards_of(&cluster, "a").len() + shards_of(&cluster, "b").len();
        (all == usize::from(SHARDS_DEFAULT)).then_some(cluster)
    });
    let cluster = seen.await;
    assert!(cluster.orphans.is_empty(), "{cluster:?}");
    for node in &cluster.nodes {
        let server = node.server.as_ref().unwrap();
        assert_eq!(server.state, NodeState::Ready, "{cluster:?}");
        assert!(server.clock_ahead_ms.abs() < 1_000, "{cluster:?}");
    }
    let status = a.scheduler().await.unwrap();
    let nodes: Vec<_> = status.servers.iter().map(|server| server.node.as_str()).collect();
    assert_eq!(nodes, ["a", "b"]);
    assert!(
        a.confirm_time().await.unwrap().servers.iter().all(|server| server.unreached.is_none())
    );

    // What one does is told at the other.
    let (here, there) = (trigger_of(&a, "a").await, trigger_of(&a, "b").await);
    let mut events = a.events().await.unwrap();
    for spec in [&here, &there] {
        b.create_trigger(spec).await.unwrap();
        let name = spec.name.clone().unwrap();
        loop {
            match events.next().await.unwrap().what {
                EventKind::Changed { object, .. } if object == name => break,
                EventKind::Reset => panic!("nothing was lost"),
                _ => {}
            }
        }
    }

    // A switch is done when the shards of both know of it.
    let spec = NewProjectSpec { name: "team".to_owned(), limits: None, notify: None };
    a.create_project(&spec).await.unwrap();
    a.disable_project("team").await.unwrap();
    assert_eq!(silent(&store).await, usize::from(SHARDS_DEFAULT));
    b.enable_project("team").await.unwrap();

    limit(&a, &b).await;

    // A backup has the shards of both.
    let mut backup = Vec::new();
    let mut pieces = a.backup().await.unwrap();
    while let Some(piece) = pieces.next().await.unwrap() {
        backup.extend_from_slice(&piece);
    }
    let backup = String::from_utf8(backup).unwrap();
    for spec in [&here, &there] {
        let name = format!("\"draft\":{{\"name\":\"{}\"", spec.name.as_deref().unwrap());
        assert!(backup.contains(&name), "{name}");
    }
    assert!(!backup.contains("\"broken\""));

    // One that is drained, through the other, has nothing left, and is asked all the same.
    a.drain("b").await.unwrap();
    until("b has no shard", PATIENCE, || async {
        let cluster = b.cluster().await.unwrap();
        let is_done = shards_of(&cluster, "b").is_empty()
            && shards_of(&cluster, "a").len() == usize::from(SHARDS_DEFAULT);
        is_done.then_some(())
    })
    .await;
    // Also after it was away for so long that it had to begin anew.
    fleet.signal("b", Signal::STOP);
    let state = async || {
        let cluster = a.cluster().await.unwrap();
        let mut nodes = cluster.nodes.into_iter();
        nodes.find(|node| node.name == "b").and_then(|node| node.server).map(|b| b.state)
    };
    until("b is gone", PATIENCE, || async { state().await.is_none().then_some(()) }).await;
    fleet.signal("b", Signal::CONT);
    until("b is back", PATIENCE, || async {
        (state().await == Some(NodeState::Draining)).then_some(())
    })
    .await;
    assert!(shards_of(&b.cluster().await.unwrap(), "b").is_empty());
    b.delete_trigger(here.name.as_deref().unwrap()).await.unwrap();
    b.delete_trigger(there.name.as_deref().unwrap()).await.unwrap();
    assert!(!a.undrain("b").await.unwrap().draining);
    fleet.settled().await;
    b.create_trigger(&there).await.unwrap();
}
