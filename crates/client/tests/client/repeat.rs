//! What is sent again, what is not, and that nothing is done twice by it.

use std::time::Duration;

use client::ClientError;
use client::key::{KeySpec, Scope};
use client::spec::TriggerSpec;

use super::script::{Act, Script, problem, trigger};

const URL: &str = "http://127.0.0.1:1/x";

fn spec() -> TriggerSpec {
    TriggerSpec::webhook("hello", URL)
}

fn unavailable(headers: &'static str) -> Act {
    Act::Refuse(503, headers, problem(503, "starting"))
}

#[tokio::test]
async fn a_post_is_carried_out_once_however_its_answers_are_lost() {
    for lost in [Act::Before, Act::After, Act::Silent, unavailable("")] {
        let script = Script::play([lost, Act::After, Act::Answer(201, trigger(1, URL))]);
        let made = script.impatient().create_trigger(&spec()).await.unwrap();
        let asked = script.asked();
        let keys: Vec<_> = asked.iter().map(|asked| &asked.headers["idempotency-key"]).collect();
        assert_eq!((made.revision, asked.len(), script.done()), (1, 3, 1));
        assert!(keys.iter().all(|key| *key == keys[0] && key.len() == 32), "{keys:?}");
    }
}

#[tokio::test]
async fn two_posts_are_two() {
    let answers = || Act::Answer(201, trigger(1, URL));
    let script = Script::play([answers(), answers()]);
    let client = script.client();
    client.create_trigger(&spec()).await.unwrap();
    client.create_trigger(&spec()).await.unwrap();
    assert_eq!(script.done(), 2);
}

#[tokio::test]
async fn a_caller_that_names_its_request_can_die_and_ask_again() {
    let answers = || Act::Answer(201, trigger(1, URL));
    let script = Script::play([Act::After, answers()]);
    let lost = script.builder().retries(0).build().unwrap().once("order-17").unwrap();
    let error = lost.create_trigger(&spec()).await.unwrap_err();
    assert!(error.may_be_done(), "{error:?}");
    script.client().once("order-17").unwrap().create_trigger(&spec()).await.unwrap();
    assert_eq!((script.asked().len(), script.done()), (2, 1));
    assert_eq!(script.asked()[1].headers["idempotency-key"], "order-17");
    assert!(script.client().once("").is_err());
}

#[tokio::test]
async fn what_is_refused_is_asked_once() {
    for status in [400, 401, 403, 404, 409, 412, 422, 429, 500, 507] {
        let script = Script::play([Act::Refuse(status, "", problem(status, "no"))]);
        let error = script.client().create_trigger(&spec()).await.unwrap_err();
        assert_eq!(error.problem().map(|problem| problem.status), Some(status));
        assert_eq!(script.asked().len(), 1, "{status}");
    }
}

#[tokio::test]
async fn a_server_is_not_asked_before_the_time_that_it_says() {
    for status in [429, 503] {
        let wait = Act::Refuse(status, "retry-after: 1\r\n", problem(status, "later"));
        let script = Script::play([wait, Act::Answer(201, trigger(1, URL))]);
        let begun = tokio::time::Instant::now();
        script.client().create_trigger(&spec()).await.unwrap();
        assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
        let late = Act::Refuse(status, "retry-after: 60\r\n", problem(status, "much later"));
        let script = Script::play([late]);
        let error = script.client().create_trigger(&spec()).await.unwrap_err();
        assert!(error.to_string().contains("much later"), "{error}");
    }
}

#[tokio::test]
async fn retries_are_bounded_and_can_be_turned_off() {
    for (retries, expected) in [(0, 1), (2, 3)] {
        let script = Script::play([Act::Before, Act::Before, Act::Before, Act::Before]);
        let client = script.builder().retries(retries).build().unwrap();
        let error = client.scheduler().await.unwrap_err();
        assert!(matches!(error, ClientError::Unreachable { .. }), "{error:?}");
        assert_eq!(script.asked().len(), expected);
    }
    let script = Script::play([Act::Before]);
    let client = script.builder().retries(9).retry_time(Duration::ZERO).build().unwrap();
    client.scheduler().await.unwrap_err();
    assert_eq!(script.asked().len(), 1);
}

#[tokio::test]
async fn nobody_there_means_that_nothing_was_done() {
    let builder = client::Client::builder("http://127.0.0.1:1");
    let client = builder.retry_pause(Duration::from_millis(1)).build().unwrap();
    let error = client.delete_trigger("hello").await.unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { may_be_done: false, .. }), "{error:?}");
}

#[tokio::test]
async fn a_delete_that_finds_nothing_is_done_if_it_may_have_been_ours() {
    let gone = || Act::Refuse(404, "", problem(404, "there is no such trigger"));
    for lost in [Act::After, Act::Silent, unavailable("")] {
        let script = Script::play([lost, gone()]);
        script.impatient().delete_trigger("hello").await.unwrap();
    }
    let limit = Act::Refuse(429, "retry-after: 0\r\n", problem(429, "slowly"));
    for (acts, expected) in [(vec![gone()], 1), (vec![limit, gone()], 2)] {
        let script = Script::play(acts);
        let error = script.client().delete_trigger("hello").await.unwrap_err();
        assert!(matches!(error, ClientError::NotFound(_)), "{error:?}");
        assert_eq!(script.asked().len(), expected);
    }
}

#[tokio::test]
async fn a_put_that_finds_its_own_revision_is_done_and_any_other_is_a_conflict() {
    let moved = || Act::Refuse(412, "", problem(412, "it is at another revision"));
    let other = "http://127.0.0.1:1/other";
    for (found, is_ours) in
        [(trigger(8, URL), true), (trigger(8, other), false), (trigger(9, URL), false)]
    {
        let script = Script::play([Act::After, moved(), Act::Answer(200, found)]);
        let put = script.client().put_trigger("hello", &spec(), Some(7)).await;
        assert_eq!(put.is_ok(), is_ours, "{put:?}");
        assert!(is_ours || matches!(put, Err(ClientError::Conflict(_))));
        let asked = script.asked();
        assert_eq!(asked[1].headers["if-match"], "\"7\"");
        assert!(asked[2].line.starts_with("GET /v1/triggers/hello "), "{asked:?}");
    }
    let script = Script::play([moved()]);
    let put = script.client().put_trigger("hello", &spec(), Some(7)).await;
    assert!(matches!(put, Err(ClientError::Conflict(_))) && script.asked().len() == 1, "{put:?}");
}

#[tokio::test]
async fn a_run_that_was_started_before_its_answer_was_lost_is_waited_for_all_the_same() {
    let run = |state: &str| {
        serde_json::json!({
            "id": "run_1", "trigger": "trg_1", "slot": "2027-01-15T00:00:00Z", "on_demand": true,
            "state": state, "attempt": 1, "attempts": [],
        })
    };
    let started = serde_json::json!({ "id": "run_1", "run": run("running") });
    let acts = || {
        let found = ["running", "succeeded"].map(|state| Act::Answer(200, run(state).to_string()));
        [Act::After, Act::Answer(202, started.to_string())].into_iter().chain(found)
    };
    for (wait, asked) in [(Some(Duration::from_secs(20)), 4), (None, 2)] {
        let script = Script::play(acts());
        let told = script.client().run("hello", wait).await.unwrap();
        let is_over = told.run.is_some_and(|run| run.state.is_end());
        assert_eq!((script.asked().len(), is_over), (asked, wait.is_some()));
        assert_eq!(script.done(), 1);
    }
}

#[tokio::test]
async fn a_run_is_waited_for_while_the_server_is_started_again() {
    let run = serde_json::json!({
        "id": "run_1", "slot": "2027-01-15T00:00:00Z", "on_demand": true, "state": "succeeded", "attempt": 1,
        "attempts": [],
    });
    let away = || [Act::Before, unavailable("")];
    let acts = [Act::After, Act::Answer(202, r#"{"id": "run_1"}"#.to_owned())];
    let acts =
        acts.into_iter().chain(away()).chain(away()).chain([Act::Answer(200, run.to_string())]);
    let script = Script::play(acts);
    let client = script.builder().retries(1).build().unwrap();
    let told = client.run("hello", Some(Duration::from_secs(20))).await.unwrap();
    assert!(told.run.is_some_and(|run| run.state.is_end()));
    assert_eq!(script.asked().len(), 7);
}

#[tokio::test]
async fn a_secret_that_was_lost_with_its_answer_is_not_made_up() {
    let made = serde_json::json!({ "key": {
        "id": "key_1", "name": "ci", "scopes": ["read"], "created": "2027-01-15T00:00:00Z", "author": "a",
    }});
    let script = Script::play([Act::After, Act::Answer(201, made.to_string())]);
    let spec = KeySpec { name: "ci".to_owned(), scopes: vec![Scope::Read], expires: None };
    let made = script.client().create_key(&spec).await.unwrap();
    assert_eq!((made.key.id.as_str(), made.secret), ("key_1", None));
}
