//! A backup of a node that runs: what is quiesced meanwhile, for how long, and what comes of it.

use std::io::Cursor;
use std::sync::Arc;
use std::time::Duration;

use client::spec::CatchUp;
use client::trigger::PauseRequest;
use client::{Client, ClientError};
use engine::id::{ProjectId, ShardId, TriggerId};
use engine::limits::BACKUP_QUIESCE_MAX;
use engine::shard::record::head_key;
use rig::{PATIENCE, until};
use server::node::NodeStartError;
use store::backup::{restore, verify};
use store::clock::Stopwatch;
use store::machine::Machine;
use store::{Commit, Key};

use super::world::{Clocks, Running, World, catching_up};

const WALL: &str = "2027-03-01T12:00:00.500Z";

async fn backup(client: &Client) -> Result<Vec<u8>, ClientError> {
    let (mut pieces, mut bytes) = (client.backup().await?, Vec::new());
    while let Some(piece) = pieces.next().await? {
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

/// Two triggers of different shards.
async fn two(node: &Running, world: &World) -> [(String, ShardId); 2] {
    let mut found: Vec<(String, ShardId)> = Vec::new();
    for number in 0.. {
        let name = format!("bell-{number}");
        let shard = ShardId::of(ProjectId::DEFAULT, &name, node.handle.shards());
        if found.iter().all(|(_, other)| *other != shard) {
            let spec = catching_up(world.spec(&name).every("1s"), CatchUp::All);
            node.create(spec).await;
            found.push((name, shard));
        }
        if let Ok(two) = <[_; 2]>::try_from(found.clone()) {
            return two;
        }
    }
    unreachable!("there are many shards")
}

async fn version(world: &World, shard: ShardId) -> store::Version {
    let key = Key::new(head_key(shard)).unwrap();
    world.store().get(&key).await.unwrap().unwrap().version
}

/// Whether a quiesce that began no earlier than this may have ended by itself.
fn is_over(begun: Stopwatch) -> bool {
    begun.elapsed() >= BACKUP_QUIESCE_MAX
}

#[tokio::test]
async fn a_shard_that_is_quiesced_writes_nothing_and_the_others_go_on() {
    let world = World::new();
    let node = world.start(WALL).await;
    let [(quiet, shard), (free, _)] = two(&node, &world).await;
    let begun = Stopwatch::start();
    let quiesced = node.handle.quiesce(shard).await.unwrap();
    let before = (version(&world, shard).await, world.slots(&quiet).len());
    let asked = PauseRequest::default();
    let pausing = node.client.pause(&quiet, &asked);
    let others = async {
        node.client.pause(&free, &PauseRequest::default()).await.unwrap();
        version(&world, shard).await
    };
    tokio::select! {
        biased;
        paused = pausing => {
            assert!(is_over(begun), "nothing of a quiesced shard is durable: {paused:?}");
        }
        after = others => assert!(after == before.0 || is_over(begun)),
    }
    drop(quiesced);
    // It is written, in its order: the pause was decided first.
    until("the pause is durable", PATIENCE, || async {
        node.client.trigger(&quiet).await.unwrap().paused.map(drop)
    })
    .await;
    node.client.resume(&quiet).await.unwrap();
    world.heard(&quiet, before.1 + 1).await;
    node.kill();
}

#[tokio::test]
async fn what_is_due_while_a_shard_is_quiesced_leaves_afterwards_and_is_not_lost() {
    let world = World::new();
    let node = world.start(WALL).await;
    let [(quiet, shard), (free, _)] = two(&node, &world).await;
    world.heard(&quiet, 1).await;
    let begun = Stopwatch::start();
    let quiesced = node.handle.quiesce(shard).await.unwrap();
    let (before, others) = (version(&world, shard).await, world.slots(&free).len());
    world.heard(&free, others + 1).await;
    let after = version(&world, shard).await;
    assert!(after == before || is_over(begun), "{before:?} {after:?}");
    drop(quiesced);
    let slots = world.heard(&quiet, others + 1).await;
    let account = node.settled(&quiet, "2027-03-01T12:00:00Z").await;
    assert_eq!(account.totals.succeeded, account.totals.slots, "{account:?} {slots:?}");
    node.kill();
}

#[tokio::test]
async fn a_quiesce_that_nobody_ends_is_over_by_itself() {
    let world = World::new();
    let node = world.start(WALL).await;
    let [(quiet, shard), _] = two(&node, &world).await;
    let begun = Stopwatch::start();
    // As if whoever asked for it were gone without a word.
    std::mem::forget(node.handle.quiesce(shard).await.unwrap());
    node.client.pause(&quiet, &PauseRequest::default()).await.unwrap();
    let took = begun.elapsed();
    assert!(took > BACKUP_QUIESCE_MAX / 2, "{took:?}: it was quiesced");
    assert!(took < BACKUP_QUIESCE_MAX + Duration::from_secs(10), "{took:?}");
    node.kill();
}

#[tokio::test]
async fn a_server_that_has_been_up_for_a_while_is_backed_up() {
    let world = World::new();
    let node = world.start(WALL).await;
    let [(name, _), _] = two(&node, &world).await;
    // What is kept of the past is written down after a while, in every shard.
    until("every shard says what is kept", PATIENCE, || async {
        let entries = world.entries().await;
        let floors = entries.iter().filter(|entry| entry.key.as_str().contains("/floor/"));
        (floors.count() >= usize::from(node.handle.shards())).then_some(())
    })
    .await;
    world.heard(&name, 1).await;
    let bytes = backup(&node.client).await.unwrap();
    assert_eq!(verify(&bytes[..]).unwrap().census.triggers, 2);
    node.kill();
}

#[tokio::test]
async fn one_backup_is_taken_at_a_time_and_whoever_goes_away_keeps_nothing() {
    let world = World::new();
    let node = world.start(WALL).await;
    let [(name, _), _] = two(&node, &world).await;
    let permit = node.handle.backup_permit().unwrap();
    let refused = backup(&node.client).await;
    let Err(ClientError::Unavailable { problem, .. }) = refused else { panic!() };
    assert!(problem.detail.contains("another backup is being taken"), "{problem:?}");
    drop(permit);
    // Half of one, and then the connection is cut.
    let mut pieces = node.client.backup().await.unwrap();
    pieces.next().await.unwrap();
    drop(pieces);
    node.client.pause(&name, &PauseRequest::default()).await.unwrap();
    let bytes = until("the permit is free", PATIENCE, || async { backup(&node.client).await.ok() });
    let summary = verify(&bytes.await[..]).unwrap();
    assert_eq!((summary.census.triggers, summary.census.sessions), (2, 1));
    node.kill();
}

#[tokio::test]
async fn a_node_goes_on_from_a_backup_with_the_same_triggers_and_runs() {
    let world = World::new();
    let node = world.start(WALL).await;
    let [(name, _), (deleted, _)] = two(&node, &world).await;
    world.heard(&name, 2).await;
    node.client.delete_trigger(&deleted).await.unwrap();
    let bytes = backup(&node.client).await.unwrap();
    let before = node.client.trigger(&name).await.unwrap();
    let runs = node.client.runs_of(&name, &client::RunFilter::default()).await.unwrap();
    node.kill();

    let second = World::with(world.receiver);
    let clocks: Arc<dyn Machine> = Clocks::at("2027-03-01T12:00:20.500Z");
    restore(&second.store(), &clocks, Cursor::new(&bytes), |_, _| {}).await.unwrap();
    let node = second.start("2027-03-01T12:00:30.500Z").await;
    let after = node.client.trigger(&name).await.unwrap();
    assert_eq!(
        (&after.id, &after.spec, after.revision),
        (&before.id, &before.spec, before.revision)
    );
    assert_eq!(before.id.parse::<TriggerId>().map(|id| id.project), Ok(ProjectId::DEFAULT));
    assert!(node.client.trigger(&deleted).await.is_err());
    let account = node.settled(&name, "2027-03-01T12:00:00Z").await;
    assert!(account.totals.slots >= 30, "no slot is missing: {account:?}");
    assert_eq!(account.totals.succeeded, account.totals.slots, "all are caught up: {account:?}");
    for run in runs.items.iter().filter(|run| run.state.is_end()) {
        assert_eq!(node.client.run_by_id(&run.id).await.unwrap().id, run.id);
    }
    node.kill();
}

/// One page is one moment's view, so a shard that fits in one is whole by itself. Here none does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_that_takes_many_pages_is_of_one_moment_though_it_fires_all_the_time() {
    const BELLS: usize = 64;
    let world = World::slow();
    let node = world.start(WALL).await;
    for number in 0..BELLS {
        let mut spec = catching_up(world.spec(&format!("bell-{number}")).every("1s"), CatchUp::All);
        spec.schedule.as_mut().unwrap().jitter = Some("1s".to_owned());
        node.create(spec).await;
    }
    let stir = async {
        for number in 0.. {
            let name = format!("brief-{number}");
            node.create(world.spec(&name).every("1s")).await;
            node.client.delete_trigger(&name).await.unwrap();
        }
    };
    let backups = async {
        let mut bytes = Vec::new();
        for _ in 0..4 {
            bytes = backup(&node.client).await.unwrap();
            let summary = verify(&bytes[..]).unwrap_or_else(|why| panic!("{why}"));
            assert!(summary.census.triggers >= BELLS as u64, "{summary:?}");
        }
        bytes
    };
    let bytes = tokio::select! {
        () = stir => unreachable!("it goes on"),
        bytes = backups => bytes,
    };
    node.kill();

    let second = World::with(world.receiver);
    let clocks: Arc<dyn Machine> = Clocks::at(WALL);
    restore(&second.store(), &clocks, Cursor::new(&bytes), |_, _| {}).await.unwrap();
    let node = second.start("2027-03-01T12:00:25.500Z").await;
    for number in 0..BELLS {
        let account = node.settled(&format!("bell-{number}"), WALL).await;
        assert_eq!(account.totals.succeeded, account.totals.slots, "{account:?}");
    }
    node.kill();
}

#[tokio::test]
async fn no_node_starts_where_a_restore_was_not_finished() {
    let world = World::new();
    let mark = r#"{"format":1,"checksum":"0","taken_ms":1800000000000,"nonce":"0"}"#;
    let commit = Commit::new().put(Key::new("cluster/restoring").unwrap(), mark);
    world.store().commit(commit).await.unwrap();
    match world.try_start(WALL, server::api::ApiSecurity::open()).await.map(drop) {
        Err(NodeStartError::Unfinished(why)) => {
            assert!(why.to_string().contains("2027-01-15T08:00:00Z"), "{why}");
        }
        other => panic!("{other:?}"),
    }
    let left = world.store().scan(store::Range::all(), 10).await.unwrap();
    assert_eq!(left.entries.len(), 1, "it has not touched anything");
}
