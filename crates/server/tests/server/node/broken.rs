//! A part that panics, or a store that is another than before: the node ends, instead of living on without it.

use server::node::NodeEnd;

use super::world::{Running, World};

const NOON: &str = "2027-03-01T12:00:00Z";

/// It ends because this part broke, it can be stopped, and the next node goes on.
async fn check_ends(world: World, node: Running, part: &'static str) {
    assert_eq!(node.ended().await, NodeEnd::Broken(part));
    node.stop().await;
    let heard = world.slots("bell").len();
    let node = world.start("2027-03-01T12:10:00Z").await;
    world.heard("bell", heard + 1).await;
    node.kill();
}

/// A node with a trigger that has rung.
async fn ringing(world: &World) -> Running {
    let node = world.start(NOON).await;
    node.create(world.spec("bell").every("1s")).await;
    world.heard("bell", 1).await;
    node
}

#[tokio::test]
async fn a_core_that_panics_ends_the_node() {
    let world = World::new();
    let node = ringing(&world).await;
    node.clocks.break_threads("core");
    check_ends(world, node, "the core").await;
}

#[tokio::test]
async fn a_sender_that_panics_ends_the_node() {
    let world = World::new();
    let node = ringing(&world).await;
    node.clocks.break_threads("webhook-");
    check_ends(world, node, "a sender of webhooks").await;
}

#[tokio::test]
async fn a_committer_that_panics_ends_the_node() {
    let world = World::new();
    let node = ringing(&world).await;
    node.break_store();
    check_ends(world, node, "the committer").await;
}

#[tokio::test]
async fn a_store_that_failed_over_ends_the_node_and_the_next_one_goes_on() {
    let world = World::forgetful();
    let node = ringing(&world).await;
    world.fail_over();
    assert_eq!(node.ended().await, NodeEnd::Epoch);
    node.abandon().await;
    let heard = world.slots("bell").len();
    let node = world.start("2027-03-01T12:10:00Z").await;
    world.heard("bell", heard + 1).await;
    node.kill();
}
