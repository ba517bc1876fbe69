//! Projects: disabled at once, enabled where their policies say, and the scheduler as a whole.

use std::time::Duration;

use client::spec::CatchUp;
use engine::instant::Instant;
use rig::{PATIENCE, until};
use serde_json::{Value, json};

use super::house::{House, NOON};

/// Waits until a trigger was called so often since a moment.
async fn heard(house: &House, name: &str, calls: usize) -> usize {
    house.world.heard(name, calls).await.len()
}

async fn create(house: &House, project: &str, spec: &Value) {
    let ask = house.ask("POST", "/v1/triggers").header("watchbell-project", project);
    ask.body(spec).await.is(201);
}

fn secondly(house: &House, name: &str, catch_up: CatchUp) -> Value {
    let mut spec = house.secondly(name);
    spec["catch_up"] = serde_json::to_value(catch_up).unwrap();
    spec
}

#[tokio::test]
async fn a_disabled_project_is_silent_within_a_second_and_goes_on_where_its_policies_say() {
    let house = House::open().await;
    house.project("team").await;
    for (name, catch_up) in
        [("skips", CatchUp::Skip), ("latest", CatchUp::Latest), ("all", CatchUp::All)]
    {
        create(&house, "team", &secondly(&house, name, catch_up)).await;
    }
    create(&house, "default", &secondly(&house, "other", CatchUp::Skip)).await;
    for name in ["skips", "latest", "all", "other"] {
        heard(&house, name, 2).await;
    }
    let answer = house.ask("POST", "/v1/projects/team/disable").send().await.is(200);
    assert_eq!(answer.json()["enabled"], false);
    let answered = house.running.handle.now();
    // What was decided before, also ahead of its time, arrives; from then on there is silence, while others go on.
    let others = house.world.slots("other").len();
    heard(&house, "other", others + 3).await;
    for name in ["skips", "latest", "all"] {
        check_silent_after(&house, name, answered.after(Duration::from_secs(1)));
    }
    let silent = ["skips", "latest", "all"].map(|name| house.world.slots(name).len());
    heard(&house, "other", others + 6).await;
    assert_eq!(["skips", "latest", "all"].map(|name| house.world.slots(name).len()), silent);
    let again = house.ask("POST", "/v1/projects/team/disable").send().await.is(409);
    assert_eq!(again.problem().as_deref(), Some("already-disabled"));
    let path = "/v1/triggers/all/explain";
    let account = house.ask("GET", path).header("watchbell-project", "team").send().await.is(200);
    let account = account.json();
    assert_eq!(account["totals"]["missing"], 0, "{account}");
    assert!(account["suspended"].as_str().unwrap().contains("disabled since"), "{account}");
    let run = house.ask("POST", "/v1/triggers/all/run").header("watchbell-project", "team");
    assert_eq!(run.send().await.is(409).problem().as_deref(), Some("project-disabled"));

    // It stays so over the loss of the node.
    let at = Instant(house.running.handle.now().0 + 10_000).to_string();
    let house = house.restart(&at).await;
    let calls = house.world.slots("other").len();
    heard(&house, "other", calls + 2).await;
    assert_eq!(["skips", "latest", "all"].map(|name| house.world.slots(name).len()), silent);

    house.ask("POST", "/v1/projects/team/enable").send().await.is(200);
    house.ask("POST", "/v1/projects/team/enable").send().await.is(409);
    for (place, name) in ["skips", "latest", "all"].into_iter().enumerate() {
        heard(&house, name, silent[place] + 3).await;
        let totals = rested(&house, name).await;
        assert_eq!(totals["missing"], 0, "{name}: {totals}");
        let skipped = totals["skipped"].as_u64().unwrap();
        match name {
            "all" => assert_eq!(skipped, 0, "{totals}"),
            _ => assert!(skipped >= 10, "{name}: {totals}"),
        }
    }
    // Each slot once, also of those that were made up for.
    let mut slots = house.world.slots("all");
    let count = slots.len();
    slots.sort_unstable();
    slots.dedup();
    assert_eq!(slots.len(), count);
}

/// Nothing was sent for a slot later than this.
#[track_caller]
fn check_silent_after(house: &House, name: &str, last: Instant) {
    let slots = house.world.slots(name);
    let is_early = |slot: &String| slot.parse::<Instant>().unwrap() <= last;
    assert!(slots.iter().all(is_early), "{name} until {last}: {slots:?}");
}

/// The totals of a trigger's account up to now, once nothing in it is open.
async fn rested(house: &House, name: &str) -> Value {
    let now = house.running.handle.now();
    until(&format!("{name} rests"), PATIENCE, || async {
        let path = format!("/v1/triggers/{name}/explain?from={NOON}&to={now}");
        let ask = house.ask("GET", &path).header("watchbell-project", "team");
        let totals = ask.send().await.is(200).json()["totals"].clone();
        (totals["pending"] == 0 && totals["under_way"] == 0).then_some(totals)
    })
    .await
}

#[tokio::test]
async fn whoever_switches_last_wins_however_fast_they_switch() {
    let house = House::open().await;
    house.project("team").await;
    create(&house, "team", &secondly(&house, "bell", CatchUp::Skip)).await;
    for _ in 0..5 {
        for verb in ["disable", "enable"] {
            let answer = house.ask("POST", &format!("/v1/projects/team/{verb}")).send().await;
            assert!(matches!(answer.status, 200 | 202), "{answer:?}");
        }
    }
    let calls = house.world.slots("bell").len();
    heard(&house, "bell", calls + 2).await;
}

#[tokio::test]
async fn the_scheduler_is_stopped_and_started_once() {
    let house = House::open().await;
    create(&house, "default", &secondly(&house, "bell", CatchUp::Skip)).await;
    heard(&house, "bell", 1).await;
    let stopped = house.ask("POST", "/v1/scheduler/stop").send().await.is(200).json();
    assert_eq!(stopped["firing"], "stopped");
    let again = house.ask("POST", "/v1/scheduler/stop").send().await.is(409);
    assert_eq!(again.problem().as_deref(), Some("already-stopped"));
    let at = Instant(house.running.handle.now().0 + 5_000).to_string();
    let house = house.restart(&at).await;
    let status = house.ask("GET", "/v1/scheduler").send().await.is(200).json();
    assert_eq!(status["firing"], "stopped");
    let calls = house.world.slots("bell").len();
    house.ask("POST", "/v1/scheduler/start").send().await.is(200);
    house.ask("POST", "/v1/scheduler/start").send().await.is(409);
    heard(&house, "bell", calls + 2).await;
}

#[tokio::test]
async fn a_projects_secret_is_told_once_and_two_are_good_at_a_time() {
    let house = House::open().await;
    let made = house.project("team").await;
    let first = made.secret.unwrap();
    assert!(first.starts_with("whsec_"));
    let rotate = || house.ask("POST", "/v1/projects/team/rotate");
    let second = rotate().body(&json!({ "grace": "1h" })).await.is(200).json();
    assert_ne!(second["secret"].as_str(), Some(first.as_str()));
    assert_eq!(second["project"]["secrets"].as_array().unwrap().len(), 2);
    let third = rotate().send().await.is(200).json();
    assert_eq!(third["project"]["secrets"].as_array().unwrap().len(), 2, "never more than two");
    let shown = house.ask("GET", "/v1/projects/team").send().await.is(200);
    assert!(!shown.text.contains("whsec_"), "{shown:?}");
    rotate().body(&json!({ "grace": "31d" })).await.is(422);
    rotate().body(&json!({ "grace": "soon" })).await.is(422);
}

#[tokio::test]
async fn a_project_that_makes_no_sense_is_not_made() {
    let house = House::open().await;
    for (body, pointer) in [
        (json!({ "name": "" }), "/name"),
        (json!({ "name": "a/b" }), "/name"),
        (json!({ "name": "x", "limits": { "triggers": -1 } }), "/limits/triggers"),
        (json!({ "name": "x", "limits": { "stars": 1 } }), "/limits/stars"),
        (json!({ "name": "x", "notify": { "url": "ftp://example.com" } }), "/notify/url"),
    ] {
        let answer = house.ask("POST", "/v1/projects").body(&body).await.is(422);
        assert_eq!(answer.json()["errors"][0]["pointer"], pointer, "{answer:?}");
    }
    let taken = house.ask("POST", "/v1/projects").body(&json!({ "name": "default" })).await;
    assert_eq!(taken.is(409).problem().as_deref(), Some("name-taken"));
    house.ask("GET", "/v1/projects/nothing").send().await.is(404);
    house.ask("POST", "/v1/projects/nothing/disable").send().await.is(404);
}
