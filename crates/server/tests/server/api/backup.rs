//! A backup of a cluster, taken at one of its servers.

use engine::id::ShardId;
use engine::shard::record::HeadRecord;
use store::Commit;
use store::cluster::ClusterIdentity;

use super::bench::{CLUSTER, Quiesces, SHARDS};
use super::pair::{HALVES, Pair, Who, name_in};

async fn filled() -> Pair {
    let pair = Pair::new().await;
    let cluster = ClusterIdentity { id: CLUSTER, shards: SHARDS };
    let commit = Commit::new().put(ClusterIdentity::key(), cluster.to_value());
    pair.a.store.commit(commit).await.unwrap();
    for shard in 0..SHARDS {
        pair.a.head(ShardId(shard), &HeadRecord::default()).await;
        pair.a.minutely(&name_in(shard)).await;
    }
    pair
}

/// Whether a backup has the trigger of a shard.
fn has(text: &str, shard: u16) -> bool {
    let trigger = format!("\"draft\":{{\"name\":\"{}\"", name_in(shard));
    text.contains(&trigger)
}

#[tokio::test]
async fn shards_of_another_server_are_quiesced_there_while_they_are_read() {
    let pair = filled().await;
    let text = pair.a.json("GET", "/v1/backup", "").await.0;
    for shard in 0..SHARDS {
        assert!(has(&text, shard), "{shard}: {text}");
    }
    let mut quiesces = pair.b.quiesces.clone();
    quiesces.wait_for(|quiesces| *quiesces == Quiesces { begun: 2, ended: 2 }).await.unwrap();
    let mut quiesces = pair.a.quiesces.clone();
    quiesces.wait_for(|quiesces| *quiesces == Quiesces { begun: 2, ended: 2 }).await.unwrap();
    assert!(!text.contains("broken"), "{text}");
}

#[tokio::test]
async fn a_shard_that_nobody_has_is_in_the_backup_all_the_same() {
    let pair = filled().await;
    pair.deal([Who::A, Who::A, Who::Nobody, Who::B]);
    let text = pair.a.json("GET", "/v1/backup", "").await.0;
    assert!(has(&text, 2) && has(&text, 3), "{text}");
    assert_eq!(pair.b.quiesces.borrow().begun, 1);
}

#[tokio::test]
async fn a_backup_that_cannot_have_a_shard_quiesced_says_so_and_is_none() {
    let pair = filled().await;
    let gone = rig::free_port();
    pair.tell_of(Who::A, HALVES, &format!("http://127.0.0.1:{gone}"));
    let text = pair.a.json("GET", "/v1/backup", "").await.0;
    assert!(text.contains("shard 2 could not be quiesced by the server b"), "{text}");
    assert!(has(&text, 1) && !has(&text, 3), "{text}");
}
