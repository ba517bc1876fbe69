//! Names of triggers that feed queues of another server than that of their name.

use client::problem::Problem;
use engine::id::{ProjectId, ShardId};
use engine::limits::SHARDS_DEFAULT;
use engine::record::decode;
use engine::shard::record::{FORMAT, ReservedName, reserved_key};
use rig::{PATIENCE, Receiver, Reply, until};
use serde_json::{Value, json};
use store::Key;

use super::world::{Running, World};

/// A name of this kind whose shard a server has.
fn name_at(
    node: &Running,
    kind: &str,
    shard_of: impl Fn(ProjectId, &str, u16) -> ShardId,
) -> String {
    let served = node.handle.peers().served().borrow().clone();
    let mut names = (0..).map(|number| format!("{kind}-{number}"));
    let is_there =
        |name: &String| served.contains(&shard_of(ProjectId::DEFAULT, name, SHARDS_DEFAULT));
    names.find(is_there).unwrap()
}

fn feeding(name: &str, queue: &str) -> Value {
    json!({"name": name, "queue": {"name": queue, "handler": "send"}})
}

/// Asks a server, and again while it says that it cannot just now.
async fn post(node: &Running, body: &Value) -> (u16, String) {
    until("it is answered", PATIENCE, || async {
        let (status, answer) = node.answer("POST", "/v1/triggers", body).await;
        let problem = serde_json::from_value::<Problem>(answer);
        let detail = problem.map_or_else(|_| String::new(), |problem| problem.detail);
        (status != 503).then_some((status, detail))
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_is_reserved_at_another_server_and_is_free_again_after_its_trigger() {
    let world = World::shared(Receiver::start(1, |_| Reply::FINE));
    let notify = world.receiver.url(0, "");
    let (a, b) = (world.start_one("a", &notify).await, world.start_one("b", &notify).await);
    until("each has its half", PATIENCE, || async {
        let half = |node: &Running| node.handle.peers().served().borrow().len();
        let (of_a, of_b) = (half(&a), half(&b));
        (of_a > 0 && of_b > 0 && of_a + of_b == usize::from(SHARDS_DEFAULT)).then_some(())
    })
    .await;
    let name = name_at(&a, "bell", ShardId::of);
    let queue = name_at(&b, "mail", ShardId::of_queue);
    let home = ShardId::of(ProjectId::DEFAULT, &name, SHARDS_DEFAULT);
    let lives = ShardId::of_queue(ProjectId::DEFAULT, &queue, SHARDS_DEFAULT);
    // Asked of either, it is made by b, which has the name reserved by a.
    assert_eq!(post(&a, &feeding(&name, &queue)).await, (201, String::new()));
    let key = Key::new(reserved_key(home, ProjectId::DEFAULT, &name)).unwrap();
    let reserved = world.store().get(&key).await.unwrap().expect("its home keeps the name");
    let reserved: ReservedName = decode(reserved.value.as_bytes(), FORMAT).unwrap();
    assert_eq!(reserved.shard, lives);

    // Nobody else gets the name, of whatever kind and through whomever.
    let other = name_at(&a, "post", ShardId::of_queue);
    let plain = json!({"name": name, "webhook": {"url": world.receiver.url(0, "/x")}});
    for node in [&a, &b] {
        for body in [&feeding(&name, &other), &plain, &feeding(&name, &queue)] {
            let (status, why) = post(node, body).await;
            assert_eq!(status, 409, "{why}");
        }
    }
    // When it is gone, its name is kept for a minute, as somebody may be about to make it anew.
    b.client.delete_trigger(&name).await.unwrap();
    assert_eq!(post(&b, &plain).await.0, 409);
    for node in [&a, &b] {
        node.clocks.set_wall_by(61_000);
    }
    until("the name is free", PATIENCE, || async {
        (post(&b, &plain).await.0 == 201).then_some(())
    })
    .await;
    assert!(world.store().get(&key).await.unwrap().is_none());
    a.stop().await;
    b.stop().await;
}
