//! A store that a former version has left: it was recorded, and is read as it is.
//!
//! `former/before-clusters.jsonl` is what `watchbell store dump --output json` told of a store whose server was killed: the
//! version before clusters, with triggers of several kinds, runs under way, a retry that waits and a pause.

use client::account::Account;
use client::run::RunState;
use client::trigger::Status;
use store::{Commit, Key};

use super::world::World;

const RECORDED: &str = include_str!("former/before-clusters.jsonl");

/// Where its webhooks went: a port of the machine.
const PORT: &str = ":7499";

/// A moment after it was recorded.
const NOW: &str = "2026-11-16T22:34:40Z";

/// From when on its triggers had slots.
const BEGIN: &str = "2026-11-16T22:34:11Z";

#[tokio::test]
async fn what_the_version_before_clusters_left_is_taken_over_whole() {
    let world = World::new();
    let (store, url) = (world.store(), world.receiver.url(0, ""));
    let port = &url[url.rfind(':').unwrap()..];
    for line in RECORDED.lines() {
        let entry: serde_json::Value = serde_json::from_str(line).unwrap();
        let key = Key::new(entry["key"].as_str().unwrap()).unwrap();
        let value = entry["value"].to_string().replace(PORT, port);
        store.commit(Commit::new().put(key, value)).await.unwrap();
    }
    let node = world.start(NOW).await;
    let asleep = node.client.trigger("asleep").await.unwrap();
    assert_eq!(asleep.status, Status::Paused, "{asleep:?}");
    let plain = node.settled("plain", BEGIN).await;
    assert_eq!(plain.totals.succeeded, plain.totals.slots, "all is caught up with: {plain:?}");
    // What was under way is in doubt: sent again, or not, as its trigger says.
    let once = node.settled("once", BEGIN).await;
    let states = |account: &Account| -> Vec<RunState> {
        account.rows.iter().filter_map(|row| Some(row.run.as_ref()?.state)).collect()
    };
    assert!(states(&once).contains(&RunState::Unknown), "{once:?}");
    let slow = node.settled("slow", BEGIN).await;
    assert!(slow.totals.succeeded > 0 && slow.totals.failed == 0, "{slow:?}");
    let fails = node.settled("fails", BEGIN).await;
    assert_eq!(fails.totals.missing, 0, "{fails:?}");
    node.stop().await;
}
