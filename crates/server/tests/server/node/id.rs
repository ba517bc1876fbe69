//! Ids of things that are made at the same time.

use std::collections::BTreeSet;

use engine::id::TriggerId;
use tokio::task::JoinSet;

use super::world::World;

#[tokio::test]
async fn triggers_that_are_made_at_once_have_different_ids() {
    let world = World::new();
    let node = world.start("2027-03-01T12:00:00Z").await;
    let mut making = JoinSet::new();
    for number in 0..64 {
        let (client, spec) = (node.client.clone(), world.spec(&format!("t{number}")));
        making.spawn(async move { client.create_trigger(&spec).await.unwrap().id });
    }
    let ids = making.join_all().await;
    // Not even the part that the shard has no share in.
    let serial: BTreeSet<_> =
        ids.iter().map(|id| id.parse::<TriggerId>().unwrap().serial).collect();
    assert_eq!(serial.len(), 64);
    node.kill();
}
