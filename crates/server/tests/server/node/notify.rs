//! Notifications: runs like any other, to where the project says.

use client::RunFilter;
use client::run::{RunKind, RunState};
use rig::{Heard, PATIENCE, Receiver, Reply, until};
use serde_json::{Value, json};

use super::world::{HOUR_MS, Running, World};

const START: &str = "2027-01-15T08:00:00Z";
const NO_DELAY: std::time::Duration = std::time::Duration::ZERO;

/// A world in which calls of `/bad…` fail, those of `/chat` are answered like this, and others are fine.
fn world(chat: impl Fn(&Heard) -> Reply + Send + Sync + 'static) -> World {
    World::with(Receiver::start(1, move |heard| match heard.path.as_str() {
        "/chat" => chat(heard),
        path if path.starts_with("/bad") => Reply::Status(404, NO_DELAY),
        _ => Reply::FINE,
    }))
}

async fn listen(world: &World, node: &Running, on: &Value) {
    let notify = json!({"url": world.receiver.url(0, "/chat"), "on": on});
    node.ask("PUT", "/v1/projects/default", &json!({ "notify": notify })).await;
}

/// Waits until the listener was called so often.
async fn told(world: &World, calls: usize) -> Vec<Heard> {
    until(&format!("somebody is told {calls} times"), PATIENCE, || async {
        let heard = world.receiver.heard();
        let told: Vec<Heard> = heard.into_iter().filter(|heard| heard.path == "/chat").collect();
        (told.len() >= calls).then_some(told)
    })
    .await
}

fn event(heard: &Heard) -> String {
    let body: Value = serde_json::from_str(&heard.body).unwrap();
    assert!(body["text"].as_str().is_some_and(|text| !text.is_empty()), "{body}");
    body["event"].as_str().unwrap().to_owned()
}

/// Runs a trigger to its end.
async fn run(node: &Running, name: &str) {
    node.client.run(name, Some(PATIENCE)).await.unwrap();
}

async fn notifications(node: &Running, state: RunState) -> Vec<client::run::Run> {
    let (states, kind) = (vec![state], Some(RunKind::Notification));
    let filter = RunFilter { states, kind, ..RunFilter::default() };
    node.client.runs(&filter).await.unwrap().items
}

#[tokio::test]
async fn ten_failures_give_one_notification_that_is_signed_and_listed() {
    let world = world(|_| Reply::FINE);
    let node = world.start(START).await;
    listen(&world, &node, &json!([])).await;
    node.ask("POST", "/v1/projects/default/rotate", &json!({})).await;
    node.create(world.spec("bad")).await;
    for _ in 0..10 {
        run(&node, "bad").await;
    }
    // One that comes after all that could have come before it.
    node.create(world.spec("bad-too")).await;
    run(&node, "bad-too").await;
    let told = told(&world, 2).await;
    assert_eq!(told.len(), 2, "{told:?}");
    let body: Value = serde_json::from_str(&told[0].body).unwrap();
    assert_eq!((&body["event"], &body["trigger"]), (&json!("failure"), &json!("bad")));
    assert_eq!((&body["state"], &body["project"]), (&json!("failed"), &json!("default")));
    assert_eq!(body["text"], "bad (default) failed: the receiver answered 404");
    assert!(told[0].headers["webhook-signature"].starts_with("v1,"), "{told:?}");

    let listed = until("both have ended", PATIENCE, || async {
        let listed = notifications(&node, RunState::Succeeded).await;
        (listed.len() == 2).then_some(listed)
    });
    let listed = listed.await;
    assert!(listed.iter().any(|run| run.id == told[0].run), "{listed:?}");
    let trigger = node.client.trigger("bad").await.unwrap();
    let last = trigger.last_run.unwrap();
    assert_eq!(last.state, RunState::Failed, "a notification is no run of its trigger's");
    let account = node.client.account("bad", None, None).await.unwrap();
    assert_eq!(account.totals.missing, 0, "{account:?}");
    node.stop().await;
}

#[tokio::test]
async fn a_notification_survives_a_loss_of_power_and_comes_under_the_same_id() {
    // The first call is not answered before the power is lost.
    let world = world(|heard| if heard.attempt == 1 { Reply::Never } else { Reply::FINE });
    let node = world.start(START).await;
    listen(&world, &node, &json!([])).await;
    node.create(world.spec("bad")).await;
    run(&node, "bad").await;
    let first = told(&world, 1).await.remove(0);
    node.kill();

    let node = world.start("2027-01-15T08:01:00Z").await;
    let told = told(&world, 2).await;
    assert_eq!(told[1].run, first.run);
    assert_eq!((told[1].attempt, event(&told[1])), (2, "failure".to_owned()));
    run(&node, "bad").await;
    until("it is on record", PATIENCE, || async {
        let ended = notifications(&node, RunState::Succeeded).await;
        (ended.len() == 1 && ended[0].id == first.run).then_some(())
    })
    .await;
    node.stop().await;
}

#[tokio::test]
async fn a_notification_is_tried_again() {
    let world = world(|heard| {
        let status = if heard.attempt == 1 { 503 } else { 200 };
        Reply::Status(status, NO_DELAY)
    });
    let node = world.start(START).await;
    listen(&world, &node, &json!(["failure"])).await;
    node.create(world.spec("bad")).await;
    run(&node, "bad").await;
    let told = told(&world, 2).await;
    assert_eq!((&told[0].run, told[1].attempt), (&told[1].run, 2));
    node.stop().await;
}

#[tokio::test]
async fn whoever_asks_for_them_is_told_of_successes_pauses_and_what_is_overdue() {
    let world = world(|_| Reply::FINE);
    let node = world.start(START).await;
    listen(&world, &node, &json!(["success", "paused", "overdue"])).await;
    node.create(world.spec("good")).await;
    run(&node, "good").await;
    assert_eq!(event(&told(&world, 1).await[0]), "success");

    let mut spec = world.spec("bad");
    spec.pause_after = Some(1);
    node.create(spec).await;
    run(&node, "bad").await;
    let paused = told(&world, 2).await.remove(1);
    assert_eq!(event(&paused), "paused");
    assert!(paused.body.contains("was paused: 1 runs failed in a row"), "{}", paused.body);

    let mut spec = world.spec("watched");
    spec.alert_after = Some("1h".to_owned());
    node.create(spec).await;
    let mut quiet = world.spec("quiet");
    (quiet.alert_after, quiet.notify) = (Some("1h".to_owned()), vec!["none".to_owned()]);
    node.create(quiet).await;
    node.clocks.sleep_for(HOUR_MS);
    let overdue = told(&world, 3).await.remove(2);
    assert_eq!(event(&overdue), "overdue");
    assert!(
        overdue.body.contains("watched (default) has not succeeded for 1h"),
        "{}",
        overdue.body
    );
    node.stop().await;
}
