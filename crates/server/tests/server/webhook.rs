//! What is sent: every header, over connections that are kept and made anew.

use std::sync::atomic::Ordering;
use std::time::Duration;

use engine::instant::Instant;
use engine::limits::{CONNECTION_AGE_MAX, CONNECTION_IDLE_MAX, WEBHOOK_TIMEOUT_DEFAULT};
use engine::outcome::{Lost, NotSent, Outcome};
use engine::webhook::{Method, Webhook};
use tokio::sync::Semaphore;

use super::handle::{NodeHandle, WALL_SECOND, check_not_sent, get, status};
use super::receiver::{Manner, Receiver, answer};

fn post(url: &str, body: &str) -> Webhook {
    let headers = vec![("X-Api-Key".to_owned(), "s3cret".to_owned())];
    let body = Some(body.to_owned());
    Webhook::new(url, Method::Post, headers, None, body, WEBHOOK_TIMEOUT_DEFAULT).unwrap()
}

#[tokio::test]
async fn a_request_says_who_when_and_which() {
    let receiver = Receiver::start(answer(200, &[("content-type", "text/plain")], b"thanks")).await;
    let mut handle = NodeHandle::local();
    let finished = handle.call(post(&receiver.url("/hook?a=b"), "{\"x\":1}")).await;
    let request = receiver.next().await;
    assert_eq!((&*request.method, &*request.path), ("POST", "/hook?a=b"));
    assert_eq!(request.body, b"{\"x\":1}");
    for (name, value) in [
        ("host", receiver.address.to_string().as_str()),
        ("content-length", "7"),
        ("content-type", "application/json"),
        ("x-api-key", "s3cret"),
        ("webhook-id", "run_1"),
        ("idempotency-key", "run_1"),
        ("webhook-timestamp", &WALL_SECOND.to_string()),
        ("watchbell-scheduled-time", "2027-01-15T07:59:59Z"),
        ("watchbell-attempt", "3"),
        ("watchbell-token", "77"),
        ("user-agent", concat!("watchbell/", env!("CARGO_PKG_VERSION"))),
    ] {
        assert_eq!(request.header(name), value, "{name}");
    }
    for name in ["accept-encoding", "transfer-encoding", "expect", "connection"] {
        assert!(!request.has(name), "{name}");
    }
    assert_eq!(request.headers.len(), 12, "{request:?}");
    assert_eq!(status(&finished), 200);
    assert_eq!(finished.started.second().unsigned_abs(), WALL_SECOND);
    let response = finished.response.unwrap();
    assert_eq!((&*response.body, response.truncated), (&b"thanks"[..], false));
    assert_eq!(response.content_type.as_deref(), Some("text/plain"));
    assert_eq!(finished.error, None);
}

#[tokio::test]
async fn attempts_of_a_run_share_a_trace_and_each_has_a_span() {
    let receiver = Receiver::start(answer(200, &[], b"")).await;
    let handle = NodeHandle::local();
    let mut spans = Vec::new();
    for (run, attempt) in [("run_a", 1), ("run_a", 2), ("run_b", 1)] {
        let webhook = get(&receiver.url("/"));
        handle.dispatcher.send(server::webhook::Call {
            key: 0,
            project: engine::id::ProjectId::DEFAULT,
            run: run.into(),
            attempt,
            scheduled: engine::instant::Instant(0),
            leave_by: None,
            token: 1,
            form: webhook.form,
            path: webhook.path,
            body: None,
        });
        let request = receiver.next().await;
        let traceparent = request.header("traceparent").to_owned();
        let parts: Vec<String> = traceparent.split('-').map(str::to_owned).collect();
        let [version, trace, span, flags] = &*parts else { panic!("{traceparent}") };
        assert_eq!((&**version, trace.len(), span.len(), &**flags), ("00", 32, 16, "01"));
        spans.push((trace.clone(), span.clone()));
    }
    assert_eq!(spans[0].0, spans[1].0);
    assert_ne!(spans[0].1, spans[1].1);
    assert_ne!(spans[0].0, spans[2].0);
}

#[tokio::test]
async fn a_call_that_waited_until_it_is_too_late_does_not_leave() {
    let receiver = Receiver::start(answer(200, &[], b"")).await;
    let mut handle = NodeHandle::local();
    let now = Instant::from_second(WALL_SECOND.cast_signed());
    let late = handle.send_by(get(&receiver.url("/late")), Some(Instant(now.0 - 1)));
    let finished = handle.next().await;
    assert_eq!(finished.key, late);
    assert_eq!(finished.outcome, Outcome::NotSent { why: NotSent::Late });
    handle.send_by(get(&receiver.url("/in-time")), Some(Instant(now.0 + 60_000)));
    assert_eq!(status(&handle.next().await), 200);
    assert_eq!(receiver.next().await.path, "/in-time");
}

#[tokio::test]
async fn every_method_is_sent_as_it_is() {
    let receiver = Receiver::start(answer(200, &[], b"")).await;
    let mut handle = NodeHandle::local();
    for method in Method::ALL {
        let timeout = WEBHOOK_TIMEOUT_DEFAULT;
        let webhook = Webhook::new(&receiver.url("/"), method, vec![], None, None, timeout);
        assert_eq!(status(&handle.call(webhook.unwrap()).await), 200);
        let request = receiver.next().await;
        assert_eq!(request.method, method.to_string());
        let has_length = !matches!(method, Method::Get | Method::Head);
        assert_eq!(request.has("content-length"), has_length, "{method}");
    }
}

#[tokio::test]
async fn every_character_of_a_path_arrives_as_it_was_written() {
    let receiver = Receiver::start(answer(200, &[], b"")).await;
    let mut handle = NodeHandle::local();
    let path = "/aZ0-._~!$&'()*+,;=:@/[]|%20%C3%BC?aZ0-._~!$&'()*+,;=:@/?[]|%00";
    assert_eq!(status(&handle.call(get(&receiver.url(path))).await), 200);
    assert_eq!(receiver.next().await.path, path);
}

#[tokio::test]
async fn proxies_of_the_environment_are_ignored() {
    let me = std::env::current_exe().unwrap();
    let test = "server::webhook::a_request_says_who_when_and_which";
    let mut child = std::process::Command::new(me);
    child.args(["--exact", test]);
    for name in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"] {
        child.env(name, "http://127.0.0.1:1");
    }
    let output = tokio::task::spawn_blocking(move || child.output().unwrap()).await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

#[tokio::test]
async fn a_connection_is_used_again_until_it_has_rested_for_too_long() {
    let receiver = Receiver::start(answer(200, &[], b"x")).await;
    let mut handle = NodeHandle::local();
    let mut connections = Vec::new();
    for rest in [Duration::ZERO, Duration::ZERO, CONNECTION_IDLE_MAX] {
        handle.machine.forward(rest);
        handle.call(get(&receiver.url("/"))).await;
        connections.push(receiver.next().await.connection);
    }
    assert_eq!(connections, [0, 0, 1]);
}

#[tokio::test]
async fn a_connection_is_given_up_at_its_greatest_age() {
    let receiver = Receiver::start(answer(200, &[], b"x")).await;
    let mut handle = NodeHandle::local();
    let step = Duration::from_secs(3);
    let calls = CONNECTION_AGE_MAX.as_secs().div_ceil(step.as_secs()) + 1;
    for _ in 0..calls {
        handle.call(get(&receiver.url("/"))).await;
        handle.machine.forward(step);
    }
    assert!(receiver.connections() >= 2, "in use all the time, and yet made anew");
}

#[tokio::test]
async fn a_connection_that_was_closed_while_it_rested_is_no_failure() {
    let receiver = Receiver::start(Manner::AnswersAndCloses).await;
    let mut handle = NodeHandle::local();
    for _ in 0..50 {
        let finished = handle.call(get(&receiver.url("/"))).await;
        // A request that crosses the close on its way is in doubt, and said to be.
        match finished.outcome {
            Outcome::Answered { status: 200, .. } | Outcome::Lost { why: Lost::Closed } => (),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn nothing_leaves_without_a_permit() {
    let receiver = Receiver::start(answer(200, &[], b"")).await;
    let mut handle = NodeHandle::local();
    handle.may_act.store(false, Ordering::Relaxed);
    let finished = handle.call(get(&receiver.url("/"))).await;
    check_not_sent(&finished, NotSent::Lapsed, "right to act had lapsed");
    handle.may_act.store(true, Ordering::Relaxed);
    assert_eq!(status(&handle.call(get(&receiver.url("/"))).await), 200);
    // Nor on a connection that is already there.
    handle.may_act.store(false, Ordering::Relaxed);
    let finished = handle.call(get(&receiver.url("/"))).await;
    check_not_sent(&finished, NotSent::Lapsed, "nothing was sent");
    handle.may_act.store(true, Ordering::Relaxed);
    assert_eq!(status(&handle.call(get(&receiver.url("/"))).await), 200);
    assert_eq!(receiver.requests(), 2);
}

#[tokio::test]
async fn a_cancelled_call_ends_as_far_as_it_came() {
    let permits = std::sync::Arc::new(Semaphore::new(0));
    let receiver = Receiver::start(Manner::Permitted(permits.clone())).await;
    let mut handle = NodeHandle::with(|config| {
        config.allow = vec!["127.0.0.1".parse().unwrap()];
        config.per_host_max = 1;
    });
    let under_way = handle.send(get(&receiver.url("/")));
    receiver.next().await;
    let waits = handle.send(get(&receiver.url("/")));
    handle.dispatcher.cancel(waits);
    let finished = handle.next().await;
    assert_eq!(finished.key, waits);
    check_not_sent(&finished, NotSent::Cancelled, "before it left");
    handle.dispatcher.cancel(under_way);
    let finished = handle.next().await;
    assert_eq!(finished.key, under_way);
    assert_eq!(finished.outcome, Outcome::Lost { why: Lost::Cancelled });
    // One that has ended, and one that never was, are nothing to it.
    handle.dispatcher.cancel(under_way);
    handle.dispatcher.cancel(9_999);
    // One for the request that nobody waits for any more.
    permits.add_permits(2);
    assert_eq!(status(&handle.call(get(&receiver.url("/"))).await), 200);
    assert_eq!((handle.dispatcher.in_flight(), handle.dispatcher.waiting()), (0, 0));
    assert!(handle.stop().is_empty(), "each call ends once");
}
