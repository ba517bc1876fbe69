//! Secret headers: they reach the receiver, and nobody else.

use rig::{PATIENCE, until};
use serde_json::{Value, json};

use super::world::{Running, World};

const START: &str = "2027-01-15T08:00:00Z";

fn spec(world: &World, secret: &Value) -> Value {
    let url = world.receiver.url(0, "/kept");
    json!({"webhook": {"url": url, "headers": {"x-open": "all"}, "secret_headers": secret}})
}

/// Runs the trigger, and gives the header that its receiver got.
async fn header(world: &World, node: &Running, name: &str) -> Option<String> {
    let started = node.client.run("kept", None).await.unwrap();
    let heard = until("it is called", PATIENCE, || async {
        world.receiver.heard().into_iter().find(|heard| heard.run == started.id)
    });
    heard.await.headers.get(name).cloned()
}

#[tokio::test]
async fn a_secret_header_reaches_its_receiver_and_is_told_to_nobody_else() {
    let world = World::new();
    let node = world.start(START).await;
    let path = "/v1/triggers/kept";
    let made = node.ask("PUT", path, &spec(&world, &json!({"X-Key": "swordfish"}))).await;
    assert_eq!(made["spec"]["webhook"]["secret_headers"], json!({"X-Key": "***"}));
    assert_eq!(header(&world, &node, "x-key").await.as_deref(), Some("swordfish"));

    let mut told = made.to_string();
    for path in [path, "/v1/triggers", "/v1/runs", "/v1/triggers/kept/runs", "/v1/audit"] {
        told += &node.ask("GET", path, &json!(null)).await.to_string();
    }
    assert!(told.contains("***") && !told.contains("swordfish"), "{told}");
    node.stop().await;
}

#[tokio::test]
async fn a_mask_that_is_sent_back_keeps_the_value_and_what_is_left_out_is_gone() {
    let world = World::new();
    let node = world.start(START).await;
    let path = "/v1/triggers/kept";
    let secret = json!({"x-key": "swordfish", "x-other": "cod"});
    node.ask("PUT", path, &spec(&world, &secret)).await;

    let masked = json!({"x-key": "***", "x-other": "***"});
    let same = node.ask("PUT", path, &spec(&world, &masked)).await;
    assert_eq!(same["revision"], 1, "nothing has changed");
    let same = node.ask("PUT", path, &spec(&world, &secret)).await;
    assert_eq!(same["revision"], 1, "nothing has changed");

    let fewer = node.ask("PUT", path, &spec(&world, &json!({"x-key": "***"}))).await;
    assert_eq!(fewer["revision"], 2);
    assert_eq!(fewer["spec"]["webhook"]["secret_headers"], json!({"x-key": "***"}));
    assert_eq!(header(&world, &node, "x-key").await.as_deref(), Some("swordfish"));
    assert_eq!(header(&world, &node, "x-other").await, None);

    let changed = node.ask("PUT", path, &spec(&world, &json!({"x-key": "trout"}))).await;
    assert_eq!(changed["revision"], 3);
    assert_eq!(header(&world, &node, "x-key").await.as_deref(), Some("trout"));

    // Who may change a trigger does not learn the value by having it sent elsewhere.
    let mut elsewhere = spec(&world, &json!({"x-key": "***"}));
    elsewhere["webhook"]["url"] = json!("http://127.0.0.2:9/steal");
    let (status, refused) = node.answer("PUT", path, &elsewhere).await;
    assert_eq!(status, 422);
    assert_eq!(refused["errors"][0]["pointer"], "/webhook/secret_headers", "{refused}");
    node.stop().await;
}
