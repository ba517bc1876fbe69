//! The audit: a line for each change, in the same commit, and none for what was not done.

use client::key::Scope;
use serde_json::{Value, json};

use super::house::House;

async fn lines(house: &House, query: &str) -> Vec<Value> {
    let (mut lines, mut cursor) = (Vec::new(), String::new());
    loop {
        let path = format!("/v1/audit?limit=3{query}{cursor}");
        let page = house.ask("GET", &path).send().await.is(200).json();
        lines.extend(page["items"].as_array().unwrap().clone());
        let Some(next) = page["next"].as_str() else { return lines };
        cursor = format!("&cursor={next}");
    }
}

fn actions(lines: &[Value]) -> Vec<&str> {
    lines.iter().map(|line| line["action"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn each_change_has_one_line_newest_first_and_what_changes_nothing_has_none() {
    let house = House::open().await;
    let key = house.key("default", &[Scope::Write]).await;
    let ask = |method, path| house.ask_as(&key, method, path);
    ask("POST", "/v1/triggers").body(&house.on_demand("bell")).await.is(201);
    // Taken, wrong, unchanged, not paused: nothing is done.
    ask("POST", "/v1/triggers").body(&house.on_demand("bell")).await.is(409);
    ask("POST", "/v1/triggers").body(&json!({})).await.is(422);
    ask("PUT", "/v1/triggers/bell").body(&house.on_demand("bell")).await.is(200);
    ask("POST", "/v1/triggers/bell/resume").send().await.is(409);
    let mut other = house.on_demand("bell");
    other["overlap"] = json!("skip");
    ask("PUT", "/v1/triggers/bell").body(&other).await.is(200);
    ask("POST", "/v1/triggers/bell/pause").send().await.is(200);
    ask("POST", "/v1/triggers/bell/resume").send().await.is(200);
    ask("POST", "/v1/triggers/bell/run").send().await.is(202);
    ask("POST", "/v1/triggers/bell/cancel").send().await.is(200);
    ask("DELETE", "/v1/triggers/bell").header("x-request-id", "the-last").send().await.is(204);
    let all = lines(&house, "").await;
    assert_eq!(
        actions(&all),
        [
            "trigger.delete",
            "trigger.cancel",
            "trigger.run",
            "trigger.resume",
            "trigger.pause",
            "trigger.replace",
            "trigger.create",
            "key.create",
            "key.create",
        ]
    );
    let last = &all[0];
    assert_eq!(
        (&last["object"], &last["author"], &last["address"], &last["project"], &last["request_id"]),
        (
            &json!("bell"),
            &json!("test"),
            &json!("127.0.0.1"),
            &json!("default"),
            &json!("the-last")
        )
    );
    assert!(last["key"].as_str().unwrap().starts_with("key_"));
    assert_eq!(lines(&house, "&action=trigger.run").await.len(), 1);
    assert_eq!(lines(&house, "&author=nobody").await.len(), 0);
    assert_eq!(lines(&house, "&project=default").await.len(), 8);
    assert_eq!(lines(&house, "&to=2020-01-01T00:00:00Z").await.len(), 0);
    assert_eq!(lines(&house, "&from=2099-01-01T00:00:00Z").await.len(), 0);
    house.ask("GET", "/v1/audit?cursor=../secret").send().await.is(422);
    house.ask("GET", "/v1/audit?from=yesterday").send().await.is(422);
}
