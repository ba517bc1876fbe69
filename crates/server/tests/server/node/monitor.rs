//! Notifications about the cluster: nodes on one store, of which some are lost.

use std::time::Duration;

use client::event::{Event, EventKind};
use rig::{Heard, PATIENCE, Receiver, Reply, until};

use super::world::{Running, World};

/// Waits until all of these see so many servers.
async fn meet(nodes: &[&Running], count: usize) {
    until(&format!("all see {count} servers"), PATIENCE, || async {
        let sees = |node: &&Running| node.handle.peers().view().servers.len() == count;
        nodes.iter().all(sees).then_some(())
    })
    .await;
}

/// Waits until the listener was called so often.
async fn told(world: &World, calls: usize) -> Vec<Heard> {
    until(&format!("somebody is told {calls} times"), PATIENCE, || async {
        let heard = world.receiver.heard();
        (heard.len() >= calls).then_some(heard)
    })
    .await
}

fn lost(heard: &Heard) -> String {
    match serde_json::from_str::<Event>(&heard.body).unwrap().what {
        EventKind::ServerLost { node } => node,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_server_that_is_lost_is_notified_by_one_of_the_others_until_it_is_heard() {
    // What comes for the first time is not taken.
    let world = World::shared(Receiver::start(1, |heard| {
        let status = if heard.attempt == 1 { 503 } else { 200 };
        Reply::Status(status, Duration::ZERO)
    }));
    let url = world.receiver.url(0, "/hook");
    let a = world.start_one("a", &url).await;
    let b = world.start_one("b", &url).await;
    let c = world.start_one("c", &url).await;
    meet(&[&a, &b, &c], 3).await;
    a.kill();
    let first = told(&world, 2).await;
    assert_eq!((lost(&first[0]), lost(&first[1])), ("a".to_owned(), "a".to_owned()));
    assert_eq!((&first[0].run, first[0].attempt), (&first[1].run, 1));
    assert_eq!(first[1].attempt, 2);
    assert!(first[0].run.starts_with("evt_") && first[0].path == "/hook", "{first:?}");
    assert!(!first[0].headers.contains_key("webhook-signature"), "{first:?}");
    // Had the third one told of it as well, that would have come before this.
    meet(&[&b, &c], 2).await;
    b.kill();
    let second = told(&world, 4).await;
    assert_eq!((lost(&second[2]), lost(&second[3])), ("b".to_owned(), "b".to_owned()));
    assert_eq!(second[2].run, second[3].run);
    assert_ne!(second[2].run, first[0].run);
    c.stop().await;
}
