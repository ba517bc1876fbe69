//! Limits of a project: kept at the limit, and refused one past it by name.

use serde_json::{Value, json};

use super::house::{Answer, House};

async fn limited(limits: Value) -> House {
    let house = House::open().await;
    house.project("team").await;
    let body = json!({ "limits": limits });
    house.ask("PUT", "/v1/projects/team").body(&body).await.is(200);
    house
}

async fn create(house: &House, spec: &Value) -> Answer {
    let ask = house.ask("POST", "/v1/triggers").header("watchbell-project", "team");
    ask.body(spec).await
}

/// Refused, and it is said which limit it was and when to come again.
#[track_caller]
fn is_over(answer: Answer, limit: &str) {
    let answer = answer.is(429);
    assert_eq!(answer.json()["limit"], limit, "{answer:?}");
    assert!(answer.header("retry-after").is_some(), "{answer:?}");
}

#[tokio::test]
async fn triggers_are_limited_over_all_shards() {
    let house = limited(json!({ "triggers": 3 })).await;
    for number in 0..3 {
        create(&house, &house.on_demand(&format!("t{number}"))).await.is(201);
    }
    is_over(create(&house, &house.on_demand("t3")).await, "triggers");
    let ask = |method, path| house.ask(method, path).header("watchbell-project", "team");
    // What is there can still be changed, and what goes makes room.
    ask("PUT", "/v1/triggers/t0").body(&house.on_demand("t0")).await.is(200);
    ask("DELETE", "/v1/triggers/t0").send().await.is(204);
    create(&house, &house.on_demand("t3")).await.is(201);
    // Another project is not concerned.
    house.ask("POST", "/v1/triggers").body(&house.on_demand("t9")).await.is(201);
}

#[tokio::test]
async fn fires_are_limited_by_what_schedules_allow_and_by_what_is_asked_for() {
    let house = limited(json!({ "fires_per_minute": 62 })).await;
    let ask = |method, path| house.ask(method, path).header("watchbell-project", "team");
    create(&house, &house.secondly("bell")).await.is(201);
    is_over(create(&house, &house.secondly("other")).await, "fires_per_minute");
    create(&house, &house.on_demand("asked")).await.is(201);
    // The clock may pass a minute meanwhile, once.
    let mut answers = Vec::new();
    for _ in 0..6 {
        answers.push(ask("POST", "/v1/triggers/asked/run").send().await);
    }
    let fine = answers.iter().filter(|answer| answer.status == 202).count();
    assert!((2..=4).contains(&fine), "{answers:?}");
    is_over(answers.pop().unwrap(), "fires_per_minute");
}

#[tokio::test]
async fn bytes_are_limited_also_when_a_trigger_grows() {
    let house = limited(json!({ "bytes": 2_000 })).await;
    let ask = |method, path| house.ask(method, path).header("watchbell-project", "team");
    let with_body = |bytes: usize| {
        let mut spec = house.on_demand("bell");
        spec["webhook"]["body"] = json!("x".repeat(bytes));
        spec
    };
    // The name and the path count too: bell and /bell.
    create(&house, &with_body(2_000 - 9)).await.is(201);
    let grown = ask("PUT", "/v1/triggers/bell").body(&with_body(2_000 - 8)).await;
    is_over(grown, "bytes");
    ask("PUT", "/v1/triggers/bell").body(&with_body(1)).await.is(200);
    ask("PUT", "/v1/triggers/bell").body(&with_body(2_000 - 9)).await.is(200);
}

#[tokio::test]
async fn runs_that_wait_are_limited_over_all_queues_however_they_come() {
    let house = limited(json!({ "waiting_runs": 4 })).await;
    let ask = |method, path| house.ask(method, path).header("watchbell-project", "team");
    let run = |queue: &str| json!({ "queue": queue, "handler": "welcome" });
    let feeding = json!({ "name": "digest", "queue": { "name": "mail", "handler": "digest" } });
    create(&house, &feeding).await.is(201);
    // Queues of different names are in different shards.
    for queue in ["mail", "post", "news"] {
        ask("POST", "/v1/runs").body(&run(queue)).await.is(201);
    }
    let two = json!({ "queue": "bills", "runs": [{ "handler": "a" }, { "handler": "a" }] });
    is_over(ask("POST", "/v1/runs/batch").body(&two).await, "waiting_runs");
    ask("POST", "/v1/triggers/digest/run").send().await.is(202);
    let refused = ask("POST", "/v1/runs").body(&run("post")).await;
    let detail = refused.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("limit of 4 for waiting_runs: let workers claim some"), "{detail}");
    is_over(refused, "waiting_runs");
    let keyed = ask("POST", "/v1/runs").header("idempotency-key", "k");
    is_over(keyed.body(&run("post")).await, "waiting_runs");
    is_over(ask("POST", "/v1/triggers/digest/run").send().await, "waiting_runs");
    // What ends makes room, and another project is not concerned.
    ask("POST", "/v1/queues/news/cancel").body(&json!({})).await.is(200);
    ask("POST", "/v1/runs").body(&run("post")).await.is(201);
    house.ask("POST", "/v1/runs").body(&run("post")).await.is(201);
}
