//! What is asked about a server as a whole.

use client::scheduler::Firing as WireFiring;
use client::spec::TriggerSpec;
use engine::trigger::Draft;
use serde_json::json;
use server::handle::{FiringState, NodeStatus};

use super::bench::{Bench, NOW};

#[tokio::test]
async fn a_machine_can_ask_whether_it_lives_is_ready_and_what_it_measures() {
    let bench = Bench::new().await;
    assert_eq!(bench.json("GET", "/livez", "").await.status(), 200);
    assert_eq!(bench.json("GET", "/readyz", "").await.status(), 200);
    let metrics = bench.json("GET", "/metrics", "").await;
    assert!(metrics.0.ends_with("watchbell_up 1\n"));
    assert!(metrics.header("content-type").unwrap().starts_with("text/plain; version=0.0.4"));
    bench.status.send_replace(NodeStatus { firing: FiringState::Going, is_ready: false });
    let answer = bench.json("GET", "/readyz", "").await;
    assert_eq!(answer.header("retry-after"), Some("1"));
    answer.problem(503);
    assert_eq!(bench.json("GET", "/livez", "").await.status(), 200);
}

#[tokio::test]
async fn the_first_page_says_what_this_is() {
    let bench = Bench::new().await;
    let page = bench.json("GET", "/", "").await;
    assert!(page.0.contains("This is a Watchbell server") && page.0.contains("not built yet"));
}

#[tokio::test]
async fn firing_that_is_suspended_is_told_and_goes_on_when_a_person_confirms_the_time() {
    let bench = Bench::new().await;
    let status = bench.client.scheduler().await.unwrap();
    assert_eq!((status.firing, status.why, status.ready), (WireFiring::Going, None, true));
    assert_eq!((status.shards, status.cluster.as_str()), (4, "0000000000000007"));
    let why = "the clock went 10 minutes forward".to_owned();
    bench.status.send_modify(|status| {
        status.firing = FiringState::Suspended { since: NOW, why: why.clone() }
    });
    let status = bench.client.scheduler().await.unwrap();
    assert_eq!((status.firing, status.why), (WireFiring::Suspended, Some(why)));
    assert_eq!(status.since.unwrap().to_string(), NOW.to_string());
    let status = bench.client.confirm_time().await.unwrap();
    assert_eq!(status.firing, WireFiring::Going);
}

#[test]
fn what_the_client_writes_and_what_the_engine_reads_are_the_same_json() {
    let full = json!({
        "name": "backup",
        "labels": {"env": "prod", "team": "billing"},
        "schedule": {
            "cron": ["0 3 * * *", "0 15 * * *"], "every": "90s", "phase": "5s",
            "at": ["2027-03-28T01:00:00Z"], "tz": "Europe/Berlin", "dialect": "open",
            "gap": "fire", "fold": "both", "start": "2027-01-01T00:00:00Z",
            "end": "2028-01-01T00:00:00Z", "limit": 7, "jitter": "30s", "exclude": ["2027-12-24"],
            "quiet": [{"days": ["mon"], "from": "22:00", "to": "06:00"}],
        },
        "webhook": {
            "url": "https://example.com/hook", "method": "PUT", "headers": {"x-bell": "noon"},
            "content_type": "text/plain", "body": "ring", "timeout": "20s",
        },
        "catch_up": "all", "catch_up_cap": 5, "overlap": "queue_one", "delivery": "at_most_once",
        "retry": {"attempts": 5, "delay": "2s", "backoff": "constant", "max_delay": "1m"},
        "max_lateness": "1h30m", "pause_after": 3,
    });
    let spec: TriggerSpec = serde_json::from_value(full.clone()).unwrap();
    let draft: Draft = serde_json::from_value(full.clone()).unwrap();
    assert_eq!(serde_json::to_value(&spec).unwrap(), full);
    assert_eq!(serde_json::to_string(&spec).unwrap(), serde_json::to_string(&draft).unwrap());
    let words = [
        ("catch_up", vec!["skip", "latest", "all"]),
        ("overlap", vec!["allow", "skip", "queue_one", "replace"]),
        ("delivery", vec!["at_least_once", "at_most_once"]),
    ];
    for (field, words) in words {
        for word in words {
            let one = json!({"name": "x", "webhook": {"url": "http://x.example"}, field: word});
            let draft: Draft = serde_json::from_value(one.clone()).unwrap();
            assert!(draft.build(NOW).is_ok(), "{word}");
            assert_eq!(
                serde_json::to_value(serde_json::from_value::<TriggerSpec>(one.clone()).unwrap())
                    .unwrap(),
                one
            );
        }
    }
    for (field, words) in [
        ("dialect", vec!["open", "quartz"]),
        ("gap", vec!["fire", "skip"]),
        ("fold", vec!["first", "second", "both"]),
    ] {
        for word in words {
            let one = json!({"webhook": {"url": "x"}, "schedule": {field: word}});
            assert_eq!(
                serde_json::to_value(serde_json::from_value::<TriggerSpec>(one.clone()).unwrap())
                    .unwrap(),
                one
            );
        }
    }
}
