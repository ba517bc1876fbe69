//! Triggers: made, listed, changed, deleted.

use client::spec::TriggerSpec;
use client::trigger::{PauseRequest, Status, Trigger};
use client::{ClientError, TriggerFilter};
use engine::instant::Instant;
use engine::limits::{LABELS_MAX, NOTE_CHARS_MAX};
use engine::shard::record::{TriggerState, state_key};
use serde_json::json;

use super::bench::{Bench, NOW, minute, minutely, succeeded};

/// The status and the kind of the problem that a call came to.
fn problem<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> (u16, String) {
    let error = answer.unwrap_err();
    let problem = error.problem().expect("the server says what is wrong");
    (problem.status, problem.kind.rsplit(':').next().unwrap().to_owned())
}

#[tokio::test]
async fn a_trigger_is_made_and_found_by_its_name_and_by_its_id() {
    let bench = Bench::new().await;
    let made = bench.client.create_trigger(&minutely("hello")).await.unwrap();
    assert_eq!((made.name.as_str(), made.status, made.revision), ("hello", Status::Scheduled, 1));
    assert_eq!(made.spec, minutely("hello"));
    let next: Vec<String> = made.next.iter().map(ToString::to_string).collect();
    assert_eq!(next, (1..=5).map(|number| minute(number).to_string()).collect::<Vec<_>>());
    assert_eq!(bench.client.trigger("hello").await.unwrap(), made);
    assert_eq!(bench.client.trigger(&made.id).await.unwrap(), made);
    let answer = bench.json("GET", "/v1/triggers/hello", "").await;
    assert_eq!(answer.header("etag"), Some("\"1\""));
}

#[tokio::test]
async fn a_made_trigger_says_where_it_is_and_a_name_is_taken_once() {
    let bench = Bench::new().await;
    let body = serde_json::to_string(&minutely("hello")).unwrap();
    let answer = bench.json("POST", "/v1/triggers", &body).await;
    assert_eq!((answer.status(), answer.header("location")), (201, Some("/v1/triggers/hello")));
    let taken = bench.json("POST", "/v1/triggers", &body).await.problem(409);
    assert_eq!(taken.kind, "urn:watchbell:problem:name-taken");
    assert!(taken.detail.contains("choose another, or replace that one"), "{}", taken.detail);
}

#[tokio::test]
async fn a_trigger_without_a_name_is_given_one() {
    let bench = Bench::new().await;
    let spec = TriggerSpec { name: None, ..minutely("x") };
    let made = bench.client.create_trigger(&spec).await.unwrap();
    assert!(made.name.starts_with("trigger-"), "{}", made.name);
    assert_eq!(made.spec.name.as_deref(), Some(made.name.as_str()));
    assert_ne!(bench.client.create_trigger(&spec).await.unwrap().name, made.name);
}

#[tokio::test]
async fn a_list_is_in_the_order_of_names_and_comes_in_pages() {
    let bench = Bench::new().await;
    for name in ["delta", "alpha", "charlie", "bravo", "alpine"] {
        bench.minutely(name).await;
    }
    let (mut names, mut cursor, mut pages) = (Vec::new(), None, 0);
    loop {
        let filter = TriggerFilter { limit: Some(2), cursor, ..TriggerFilter::default() };
        let page = bench.client.triggers(&filter).await.unwrap();
        names.extend(page.items.into_iter().map(|trigger: Trigger| trigger.name));
        (cursor, pages) = (page.next, pages + 1);
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(names, ["alpha", "alpine", "bravo", "charlie", "delta"]);
    assert_eq!(pages, 3);
    let filter = TriggerFilter { prefix: Some("alp".into()), ..TriggerFilter::default() };
    let page = bench.client.triggers(&filter).await.unwrap();
    assert_eq!((page.items.len(), page.next), (2, None));
}

#[tokio::test]
async fn a_list_shows_those_with_a_status() {
    let bench = Bench::new().await;
    bench.minutely("scheduled").await;
    bench.create(&TriggerSpec::webhook("on-demand", "http://example.com")).await;
    bench.minutely("paused").await;
    bench.client.pause("paused", &PauseRequest::default()).await.unwrap();
    bench.minutely("cancelled").await;
    bench.client.cancel("cancelled").await.unwrap();
    let once = json!({"name": "expired", "schedule": {"at": [minute(1).to_string()]},
        "webhook": {"url": "http://example.com"}});
    bench.create(&serde_json::from_value(once).unwrap()).await;
    let limited = json!({"name": "used-up", "schedule": {"cron": "* * * * *", "limit": 2},
        "webhook": {"url": "http://example.com"}});
    let id = bench.create(&serde_json::from_value(limited).unwrap()).await;
    assert_eq!(bench.client.trigger("used-up").await.unwrap().remaining, Some(2));
    assert_eq!(bench.client.trigger("used-up").await.unwrap().next.len(), 2);
    let state = TriggerState { remaining: Some(0), ..TriggerState::default() };
    bench.put(state_key(id.shard, id.serial), &state).await;
    bench.set_now(minute(2));
    for (status, names) in [
        (Status::Scheduled, vec!["scheduled"]),
        (Status::OnDemand, vec!["on-demand"]),
        (Status::Paused, vec!["paused"]),
        (Status::Expired, vec!["expired", "used-up"]),
        (Status::Cancelled, vec!["cancelled"]),
    ] {
        let filter = TriggerFilter { status: Some(status), ..TriggerFilter::default() };
        let page = bench.client.triggers(&filter).await.unwrap();
        assert!(page.items.iter().all(|trigger| trigger.status == status));
        let found: Vec<String> = page.items.into_iter().map(|trigger| trigger.name).collect();
        assert_eq!(found, names);
    }
}

#[tokio::test]
async fn a_list_shows_those_that_carry_all_labels() {
    let bench = Bench::new().await;
    for (name, labels) in [
        ("both", vec![("team", "billing"), ("env", "prod")]),
        ("one", vec![("team", "billing")]),
        ("none", vec![]),
    ] {
        let labels = labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
        let spec = TriggerSpec { labels: labels.collect(), ..minutely(name) };
        assert_eq!(bench.client.create_trigger(&spec).await.unwrap().spec, spec);
    }
    for (query, names) in [
        ("label=team=billing", vec!["both", "one"]),
        ("label=team%3Dbilling&label=env%3Dprod", vec!["both"]),
        ("label=team=billing,env=prod", vec!["both"]),
        ("label=team=other", vec![]),
        ("label=", vec!["both", "none", "one"]),
    ] {
        let page = bench.json("GET", &format!("/v1/triggers?{query}"), "").await;
        let page: client::ListPage<Trigger> = page.body();
        let found: Vec<String> = page.items.into_iter().map(|trigger| trigger.name).collect();
        assert_eq!(found, names, "{query}");
    }
    for query in ["label=team", "label=team=", "label=te%20am=x", "label=a=b,,c=d"] {
        let told = bench.json("GET", &format!("/v1/triggers?{query}"), "").await.problem(422);
        assert_eq!(told.errors[0].parameter.as_deref(), Some("label"), "{query}");
    }
}

#[tokio::test]
async fn at_most_so_many_labels_are_asked_for() {
    let bench = Bench::new().await;
    let query = |len: usize| {
        let labels: Vec<String> = (0..len).map(|number| format!("k{number}=v")).collect();
        format!("/v1/triggers?label={}", labels.join(","))
    };
    assert_eq!(bench.json("GET", &query(LABELS_MAX), "").await.status(), 200);
    bench.json("GET", &query(LABELS_MAX + 1), "").await.problem(422);
}

#[tokio::test]
async fn a_put_makes_changes_and_leaves_alone() {
    let bench = Bench::new().await;
    let put = |spec: &TriggerSpec, headers: &'static str| {
        let body = serde_json::to_string(spec).unwrap();
        let headers = format!("content-type: application/json\r\n{headers}");
        let bench = &bench;
        async move { bench.with_headers("PUT", "/v1/triggers/hello", &headers, &body).await }
    };
    let nameless = TriggerSpec { name: None, ..minutely("x") };
    let made = put(&nameless, "").await;
    assert_eq!((made.status(), made.header("etag")), (201, Some("\"1\"")));
    let same = put(&minutely("hello"), "if-match: \"1\"\r\n").await;
    assert_eq!((same.status(), same.header("etag")), (200, Some("\"1\"")));
    let faster = minutely("hello").every("30s");
    let changed = put(&faster, "if-match: \"1\"\r\n").await;
    assert_eq!((changed.status(), changed.header("etag")), (200, Some("\"2\"")));
    assert_eq!(changed.body::<Trigger>().spec, faster);
    let conflict = put(&nameless, "if-match: \"1\"\r\n").await.problem(412);
    assert!(conflict.detail.contains("at revision 2"), "{}", conflict.detail);
    put(&nameless, "if-none-match: *\r\n").await.problem(412);
    put(&nameless, "if-match: 1\r\n").await.problem(422);
    let renamed = put(&minutely("other"), "").await.problem(422);
    assert_eq!(renamed.errors[0].pointer.as_deref(), Some("/name"));
    let body = serde_json::to_string(&nameless).unwrap();
    let header = "content-type: application/json\r\nif-match: \"1\"\r\n";
    bench.with_headers("PUT", "/v1/triggers/none", header, &body).await.problem(412);
    bench.json("PUT", "/v1/triggers/trg_00z0000fzzzzzzzzzzzz", &body).await.problem(404);
}

#[tokio::test]
async fn a_trigger_whose_time_has_passed_can_still_be_changed() {
    let bench = Bench::new().await;
    let once = json!({"name": "once", "schedule": {"at": [minute(1).to_string()]},
        "webhook": {"url": "http://example.com/a"}});
    let mut spec: TriggerSpec = serde_json::from_value(once).unwrap();
    bench.create(&spec).await;
    bench.set_now(minute(2));
    assert_eq!(bench.client.put_trigger("once", &spec, None).await.unwrap().revision, 1);
    spec.webhook.get_or_insert_default().url = "http://example.com/b".into();
    assert_eq!(bench.client.put_trigger("once", &spec, None).await.unwrap().revision, 2);
    spec.schedule.as_mut().unwrap().at[0] =
        minute(1).to_string().parse::<client::Timestamp>().unwrap()
            - std::time::Duration::from_secs(1);
    assert_eq!(problem(bench.client.put_trigger("once", &spec, None).await).0, 422);
}

#[tokio::test]
async fn a_trigger_is_paused_resumed_and_cancelled() {
    let bench = Bench::new().await;
    bench.minutely("hello").await;
    let until = Some(minute(10).to_string().parse().unwrap());
    let request = PauseRequest { note: "the receiver moves".into(), until };
    let paused = bench.client.pause("hello", &request).await.unwrap();
    assert_eq!(paused.status, Status::Paused);
    let pause = paused.paused.unwrap();
    assert_eq!((pause.note.as_str(), pause.until), ("the receiver moves", until));
    assert_eq!(pause.since.to_string(), NOW.to_string());
    assert_eq!(paused.next[0].to_string(), minute(11).to_string(), "it goes on by itself");
    let again = problem(bench.client.pause("hello", &PauseRequest::default()).await);
    assert_eq!(again, (409, "already-paused".into()));
    assert_eq!(bench.client.resume("hello").await.unwrap().status, Status::Scheduled);
    assert_eq!(problem(bench.client.resume("hello").await), (409, "not-paused".into()));
    let cancelled = bench.client.cancel("hello").await.unwrap();
    assert_eq!((cancelled.status, cancelled.next.len()), (Status::Cancelled, 0));
    assert_eq!(problem(bench.client.cancel("hello").await), (409, "already-cancelled".into()));
}

#[tokio::test]
async fn a_note_is_taken_up_to_the_limit_and_a_pause_ends_later_than_now() {
    let bench = Bench::new().await;
    bench.minutely("hello").await;
    let pause = |note: usize, until: &str| json!({"note": "ä".repeat(note), "until": until});
    let path = "/v1/triggers/hello/pause";
    let later = minute(1).to_string();
    let long = pause(NOTE_CHARS_MAX + 1, &later).to_string();
    let refused = bench.json("POST", path, &long).await.problem(422);
    assert_eq!(refused.errors[0].pointer.as_deref(), Some("/note"));
    let past = pause(1, &NOW.to_string()).to_string();
    let refused = bench.json("POST", path, &past).await.problem(422);
    assert_eq!(refused.errors[0].pointer.as_deref(), Some("/until"));
    let fine = pause(NOTE_CHARS_MAX, &later).to_string();
    assert_eq!(bench.json("POST", path, &fine).await.status(), 200);
    bench.json("POST", "/v1/triggers/hello/resume", r#"{"note": "x"}"#).await.problem(422);
    assert_eq!(bench.json("POST", "/v1/triggers/hello/resume", "{}").await.status(), 200);
}

#[tokio::test]
async fn a_deleted_trigger_is_gone() {
    let bench = Bench::new().await;
    bench.minutely("hello").await;
    bench.client.delete_trigger("hello").await.unwrap();
    assert_eq!(problem(bench.client.trigger("hello").await), (404, "no-trigger".into()));
    assert_eq!(problem(bench.client.delete_trigger("hello").await).0, 404);
    bench.minutely("hello").await;
}

#[tokio::test]
async fn the_next_slots_are_told_and_why_there_are_none() {
    let bench = Bench::new().await;
    bench.minutely("hello").await;
    let next = bench.client.next("hello", 1_000).await.unwrap();
    assert_eq!((next.items.len(), next.note), (1_000, None));
    assert_eq!(problem(bench.client.next("hello", 1_001).await).0, 422);
    bench.client.pause("hello", &PauseRequest::default()).await.unwrap();
    let next = bench.client.next("hello", 3).await.unwrap();
    assert_eq!((next.items.len(), next.note.as_deref()), (0, Some("it is paused")));
    bench.create(&TriggerSpec::webhook("manual", "http://example.com")).await;
    let next = bench.client.next("manual", 3).await.unwrap();
    assert!(next.note.unwrap().contains("on demand"));
}

#[tokio::test]
async fn a_slot_that_is_decided_is_not_told_as_the_next_one() {
    let bench = Bench::new().await;
    let id = bench.minutely("hello").await;
    // It was skipped ahead of the clock, because the trigger was paused then.
    let state = TriggerState { cursor: Some(minute(1)), ..TriggerState::default() };
    bench.put(state_key(id.shard, id.serial), &state).await;
    bench.client.pause("hello", &PauseRequest::default()).await.unwrap();
    let resumed = bench.client.resume("hello").await.unwrap();
    assert_eq!(resumed.next[0].to_string(), minute(2).to_string());
    let next = bench.client.next("hello", 1).await.unwrap();
    assert_eq!(next.items[0].to_string(), minute(2).to_string());
    let until = Some(Instant(NOW.0 + 1).to_string().parse().unwrap());
    let request = PauseRequest { until, ..PauseRequest::default() };
    let paused = bench.client.pause("hello", &request).await.unwrap();
    assert_eq!(paused.next[0].to_string(), minute(2).to_string());
}

#[tokio::test]
async fn the_last_run_is_told() {
    let bench = Bench::new().await;
    let id = bench.minutely("hello").await;
    bench.past(id.shard, vec![succeeded(id, minute(1))]).await;
    bench.past(id.shard, vec![succeeded(id, minute(2))]).await;
    let last = bench.client.trigger("hello").await.unwrap().last_run.unwrap();
    assert_eq!(last.slot.to_string(), minute(2).to_string());
    let paused = bench.client.pause("hello", &PauseRequest::default()).await.unwrap();
    assert!(paused.last_run.is_none(), "who changes it is not told");
    assert!(bench.client.resume("hello").await.unwrap().last_run.is_none());
    assert!(bench.client.cancel("hello").await.unwrap().last_run.is_none());
}
