//! Somebody writes rubbish over what tells who has which shard.

use engine::assignment::ranking;
use engine::id::ShardId;
use rig::{PATIENCE, Receiver, Reply, until};
use store::ownership::{Ownership, owners};
use store::session::{NodeId, SessionKey};
use store::{Commit, Key, Store};

use super::world::World;

async fn commit(store: &Store, commit: Commit) {
    store.commit(commit).await.unwrap();
}

#[tokio::test]
async fn who_has_a_shard_is_said_again_when_somebody_has_removed_or_damaged_it() {
    let world = World::shared(Receiver::start(1, |_| Reply::FINE));
    let url = world.receiver.url(0, "/hook");
    let a = world.start_one("a", &url).await;
    let b = world.start_one("b", &url).await;
    let store = world.store();
    let shared = until("each has its shards", PATIENCE, || async {
        let owners = owners(&store).await.ok()?;
        let is_right = |(shard, owner): (&ShardId, &Ownership)| {
            let first = ranking(*shard, &["a", "b"])[0];
            owner.session.as_ref().is_some_and(|owner| owner.node().as_str() == first)
        };
        owners.iter().all(is_right).then_some(owners)
    })
    .await;
    let mirror = |shard: u16| Key::new(format!("owner/{shard}")).unwrap();
    // One that is gone, one that is rubbish, one of somebody who never was, and one of the other server.
    let stranger = SessionKey::new(&NodeId::new("nobody").unwrap(), 7);
    let stranger = Ownership { session: Some(stranger), ..shared[&ShardId(2)].clone() };
    let other = shared.values().find(|owner| owner.session != shared[&ShardId(3)].session);
    commit(&store, Commit::new().delete(mirror(0))).await;
    commit(&store, Commit::new().put(mirror(1), "rubbish")).await;
    commit(&store, Commit::new().put(mirror(2), stranger.to_value())).await;
    commit(&store, Commit::new().put(mirror(3), other.unwrap().to_value())).await;
    until("all is as it was", PATIENCE, || async {
        let said = owners(&store).await.ok()?;
        let is_right = |(shard, owner): (&ShardId, &Ownership)| {
            said.get(shard).is_some_and(|said| said.session == owner.session)
        };
        shared.iter().all(is_right).then_some(())
    })
    .await;
    a.stop().await;
    b.stop().await;
}
