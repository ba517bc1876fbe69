//! What holds for every request, and what is said about bad ones.

use std::io::ErrorKind;
use std::time::Duration;

use client::problem::FieldProblem;
use engine::id::{RunId, ShardId};
use engine::limits::REQUEST_BYTES_MAX;
use serde_json::json;
use server::handle::{CallError, WriteTrouble};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{advance, pause, resume, timeout};

use super::bench::{Bench, NOW};

fn pointers(errors: &[FieldProblem]) -> Vec<&str> {
    errors.iter().filter_map(|error| error.pointer.as_deref()).collect()
}

#[tokio::test]
async fn every_bad_field_is_told_with_its_pointer_and_nothing_is_made() {
    let bench = Bench::new().await;
    let body = json!({
        "name": "a b",
        "schedule": {"cron": ["* * * * *", "61 * * * *"], "tz": "Mars/Olympus"},
        "webhook": {"url": "gopher://x", "timeout": "31s"},
        "retry": {"attempts": 11},
    });
    let problem = bench.json("POST", "/v1/triggers", &body.to_string()).await.problem(422);
    assert_eq!(
        pointers(&problem.errors),
        [
            "/name",
            "/schedule/tz",
            "/schedule/cron/1",
            "/webhook/timeout",
            "/webhook/url",
            "/retry/attempts"
        ]
    );
    assert!(problem.detail.contains("/name: a name is made of letters"), "{}", problem.detail);
    assert!(
        bench.client.triggers(&client::TriggerFilter::default()).await.unwrap().items.is_empty()
    );
}

#[tokio::test]
async fn what_no_trigger_can_be_is_refused_with_its_pointer() {
    let bench = Bench::new().await;
    for (body, pointer, said) in [
        (r#"{"nmae": "x"}"#, "/nmae", "unknown field"),
        (r#"{"webhook": {"uri": "x"}}"#, "/webhook/uri", "unknown field"),
        (r#"{"schedule": {"limit": -1}}"#, "/schedule/limit", "invalid value"),
        (
            r#"{"schedule": {"quiet": [{"from": 1, "to": "x"}]}}"#,
            "/schedule/quiet/0/from",
            "string",
        ),
        (r#"{"schedule": {"cron": 5}}"#, "/schedule/cron", "a text or a list of texts"),
        (r#"{"webhook": {"headers": {"a/b~c": 1}}}"#, "/webhook/headers/a~1b~0c", "a text"),
        (
            r#"{"webhook": {"headers": {"a": "1", "a": "2"}}}"#,
            "/webhook/headers/a",
            "is there twice",
        ),
        (
            r#"{"webhook": {"headers": {"a": "1", "A": "2"}}}"#,
            "/webhook/headers/A",
            "is there twice",
        ),
        (r#"{"webhook": {"headers": [["a", "1"]]}}"#, "/webhook/headers", "an object"),
        ("[]", "", "a JSON object"),
        ("\"x\"", "", "a JSON object"),
        (r#"{"schedule": ["* * * * *"]}"#, "/schedule", "an object"),
        (
            r#"{"schedule": {"quiet": [[["mon"], "22:00", "06:00"]]}}"#,
            "/schedule/quiet/0",
            "an object",
        ),
    ] {
        let problem = bench.json("POST", "/v1/triggers", body).await.problem(422);
        assert_eq!(pointers(&problem.errors), [pointer], "{}", problem.detail);
        assert!(problem.errors[0].detail.contains(said), "{}", problem.detail);
    }
}

#[tokio::test]
async fn what_is_no_json_is_refused_as_such() {
    let bench = Bench::new().await;
    for body in ["{", "", "{} {}", "nonsense", "{\"name\": \"x\",}"] {
        let problem = bench.json("POST", "/v1/triggers", body).await.problem(400);
        assert!(problem.detail.starts_with("the body is not JSON"), "{}", problem.detail);
    }
    let plain = "content-type: text/plain\r\n";
    for headers in ["", plain, "content-type: application/x-www-form-urlencoded\r\n"] {
        let problem = bench.with_headers("POST", "/v1/triggers", headers, "{}").await.problem(415);
        assert!(problem.detail.contains("application/json"), "{}", problem.detail);
    }
    let utf8 = "content-type: Application/JSON; charset=utf-8\r\n";
    assert_eq!(bench.with_headers("POST", "/v1/triggers", utf8, "{}").await.status(), 422);
}

#[tokio::test]
async fn a_body_is_taken_up_to_the_limit_and_refused_one_past_it() {
    let bench = Bench::new().await;
    let most = " ".repeat(REQUEST_BYTES_MAX - 2) + "{}";
    bench.json("POST", "/v1/triggers", &most).await.problem(422);
    let problem = bench.json("POST", "/v1/triggers", &format!("{most} ")).await.problem(413);
    assert!(problem.detail.contains("262144 bytes"), "{}", problem.detail);
}

#[tokio::test]
async fn paths_methods_and_parameters_that_are_not_there_are_problems_too() {
    let bench = Bench::new().await;
    bench.json("GET", "/v2/triggers", "").await.problem(404);
    bench.json("GET", "/v1/triggers/none", "").await.problem(404);
    bench.json("GET", "/v1/triggers/a%2Fb", "").await.problem(404);
    bench.json("GET", "/v1/triggers/%ff", "").await.problem(400);
    bench.json("GET", "/v1/runs/run_x", "").await.problem(404);
    let answer = bench.json("DELETE", "/v1/triggers", "").await;
    answer.problem(405);
    assert_eq!(answer.header("allow"), Some("GET,HEAD,POST"));
    for (path, parameter) in [
        ("/v1/triggers?stauts=paused", "stauts"),
        ("/v1/triggers?status=asleep", "status"),
        ("/v1/triggers?limit=501", "limit"),
        ("/v1/triggers?cursor=%20", "cursor"),
        ("/v1/triggers?prefix=%20", "prefix"),
        ("/v1/runs?cursor=x", "cursor"),
        ("/v1/scheduler?x", "x"),
    ] {
        let problem = bench.json("GET", path, "").await.problem(422);
        assert_eq!(problem.errors[0].parameter.as_deref(), Some(parameter), "{path}");
    }
}

#[tokio::test]
async fn every_answer_has_an_id_which_may_come_from_the_caller() {
    let bench = Bench::new().await;
    let fine = bench.json("GET", "/livez", "").await;
    assert!(fine.header("x-request-id").unwrap().starts_with("req_"));
    let named = bench.with_headers("GET", "/livez", "x-request-id: my-1\r\n", "").await;
    assert_eq!(named.header("x-request-id"), Some("my-1"));
    let exceptions = bench.with_headers("GET", "/livez", "x-request-id: a b\r\n", "").await;
    assert!(exceptions.header("x-request-id").unwrap().starts_with("req_"));
}

#[tokio::test]
async fn a_name_of_somebody_else_that_leads_here_is_refused() {
    let bench = Bench::new().await;
    for host in ["evil.example", "evil.example:7400", "10.0.0.1", "localhost.evil.example"] {
        let request =
            format!("GET /v1/triggers HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        let problem = bench.raw(&request).await.problem(403);
        assert!(problem.detail.contains("use 127.0.0.1 or localhost"), "{}", problem.detail);
    }
    for host in ["localhost", "127.0.0.1:1", "[::1]:7400"] {
        let request =
            format!("GET /v1/triggers HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        assert_eq!(bench.raw(&request).await.status(), 200, "{host}");
    }
}

#[tokio::test]
async fn a_page_of_another_site_can_ask_and_change_nothing() {
    let bench = Bench::new().await;
    bench.minutely("hello").await;
    let run = "/v1/triggers/hello/run";
    for origin in ["https://evil.example", "null", "http://localhost:1"] {
        let origin = format!("origin: {origin}\r\n");
        for (method, path) in [("POST", run), ("GET", "/v1/triggers"), ("OPTIONS", "/v1/triggers")]
        {
            bench.with_headers(method, path, &origin, "").await.problem(403);
        }
        for path in ["/livez", "/readyz", "/metrics"] {
            assert_eq!(bench.with_headers("GET", path, &origin, "").await.status(), 200, "{path}");
        }
    }
    let own = format!("origin: http://{}\r\n", bench.address);
    assert_eq!(bench.with_headers("POST", run, &own, "").await.status(), 202);
    assert_eq!(bench.with_headers("GET", "/v1/triggers", &own, "").await.status(), 200);
}

#[tokio::test]
async fn a_parameter_without_a_value_is_as_if_it_were_not_there() {
    let bench = Bench::new().await;
    bench.minutely("hello").await;
    for path in [
        "/v1/triggers?status=&prefix=&limit=&cursor=",
        "/v1/runs?state=&limit=&cursor=",
        "/v1/triggers/hello/runs?state=&limit=&cursor=",
        "/v1/triggers/hello/explain?from=&to=",
        "/v1/triggers/hello/next?count=",
    ] {
        assert_eq!(bench.json("GET", path, "").await.status(), 200, "{path}");
    }
}

#[tokio::test]
async fn while_nobody_owns_a_shard_the_answer_says_when_to_come_back() {
    let bench = Bench::new().await;
    bench.minutely("hello").await;
    let refuse = |error| *bench.refuse.lock().unwrap() = Some(error);
    refuse(CallError::NoOwner { retry_after: Duration::from_millis(2_100) });
    // Another server, which looks for the owner itself, is told at once.
    let passed_on = "watchbell-forwarded: b\r\n";
    let answer = bench.with_headers("POST", "/v1/triggers/hello/pause", passed_on, "").await;
    assert_eq!(answer.header("retry-after"), Some("3"));
    answer.problem(503);
    // Anybody else is when the owner was looked for in vain.
    refuse(CallError::NoOwner { retry_after: Duration::from_millis(2_100) });
    assert_eq!(bench.json("POST", "/v1/triggers/hello/pause", "").await.status(), 200);
    refuse(CallError::HandedOver);
    let answer = bench.json("POST", "/v1/triggers/hello/resume", "").await;
    assert!(answer.problem(503).detail.contains("look first whether it was done"));
    refuse(CallError::Stopping);
    let answer = bench.json("POST", "/v1/triggers/hello/pause", "").await;
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert!(answer.problem(503).detail.contains("is stopping"));
    assert!(bench.client.trigger("hello").await.is_ok(), "reads go on from the store");
}

#[tokio::test]
async fn a_run_is_not_said_to_be_missing_while_nobody_knows_which_ones_wait() {
    let bench = Bench::new().await;
    let run = format!("/v1/runs/{}", RunId::submitted(ShardId(0), 7, NOW, 1));
    assert_eq!(bench.json("GET", &run, "").await.status(), 404);
    let retry_after = Duration::from_secs(1);
    *bench.refuse.lock().unwrap() = Some(CallError::NoOwner { retry_after });
    let answer = bench.json("GET", &run, "").await;
    assert!(answer.header("retry-after").is_some());
    answer.problem(503);
    assert_eq!(bench.json("GET", &run, "").await.status(), 404);
}

#[tokio::test]
async fn while_the_store_takes_nothing_the_answer_says_so_and_whether_anything_was_done() {
    let bench = Bench::new().await;
    bench.minutely("hello").await;
    let pause = "/v1/triggers/hello/pause";
    bench.trouble.send_replace(Some(WriteTrouble::Full("there is no room left".to_owned())));
    let problem = bench.json("POST", pause, "").await.problem(507);
    assert!(problem.detail.contains("nothing was done"), "{}", problem.detail);
    assert!(problem.detail.contains("there is no room left"), "{}", problem.detail);
    bench.trouble.send_replace(Some(WriteTrouble::Closed("it is away".to_owned())));
    let problem = bench.json("POST", pause, "").await.problem(503);
    assert!(problem.detail.contains("nothing was done"), "{}", problem.detail);
    assert!(bench.client.trigger("hello").await.is_ok(), "reads go on from the store");

    bench.trouble.send_replace(None);
    *bench.refuse.lock().unwrap() =
        Some(CallError::Unwritten(WriteTrouble::Full("there is no room left".to_owned())));
    let answer = bench.json("POST", pause, "").await;
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert!(answer.problem(503).detail.contains("look later whether it is"));
    assert_eq!(bench.json("POST", pause, "").await.status(), 200);
}

#[tokio::test]
async fn a_server_that_stops_lets_go_of_idle_connections() {
    let bench = Bench::new().await;
    bench.client.scheduler().await.unwrap();
    bench.stop().await;
}

#[tokio::test]
async fn an_instant_that_is_none_is_told_with_its_field_and_what_is_right() {
    let bench = Bench::new().await;
    bench.minutely("hello").await;
    for until in ["10000-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "+12000-01-01T00:00:00Z", "soon"]
    {
        let body = json!({ "until": until }).to_string();
        let problem = bench.json("POST", "/v1/triggers/hello/pause", &body).await.problem(422);
        assert_eq!(pointers(&problem.errors), ["/until"], "{}", problem.detail);
        let said = format!("{until:?} is no instant: write it like 2027-");
        assert!(problem.errors[0].detail.starts_with(&said), "{}", problem.detail);
    }
    let last = r#"{"until": "9999-12-30T22:00:00Z"}"#;
    assert_eq!(bench.json("POST", "/v1/triggers/hello/pause", last).await.status(), 200);
}

/// Lets so much time pass, and expects that the server has let go of this connection by then.
async fn check_let_go(mut stream: TcpStream, after: Duration) {
    pause();
    advance(after).await;
    resume();
    let mut rest = Vec::new();
    let end = timeout(Duration::from_secs(8), stream.read_to_end(&mut rest)).await;
    match end.expect("it is closed soon") {
        Ok(_) => {}
        Err(why) => assert_eq!(why.kind(), ErrorKind::ConnectionReset),
    }
}

#[tokio::test]
async fn half_a_head_does_not_keep_a_place() {
    let bench = Bench::new().await;
    let mut stream = TcpStream::connect(bench.address).await.unwrap();
    stream.write_all(b"GET /livez HTTP/1.1\r\nhost: local").await.unwrap();
    // Connections are served in order, so this one is.
    bench.client.scheduler().await.unwrap();
    check_let_go(stream, Duration::from_secs(11)).await;
}

#[tokio::test]
async fn a_connection_that_rests_does_not_keep_a_place() {
    let bench = Bench::new().await;
    let mut stream = TcpStream::connect(bench.address).await.unwrap();
    stream.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    stream.read_exact(&mut [0; 12]).await.unwrap();
    check_let_go(stream, Duration::from_secs(11)).await;
}

#[tokio::test]
async fn whoever_asks_on_and_on_and_reads_nothing_does_not_keep_a_place() {
    let bench = Bench::new().await;
    let mut stream = TcpStream::connect(bench.address).await.unwrap();
    let asked = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(1_000);
    // Nothing is read here, so the server comes to wait, sooner or later, and then not for ever.
    let mut stalls = 0;
    while stalls < 60 {
        match timeout(Duration::from_millis(500), stream.write_all(&asked)).await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => {
                let kinds = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
                assert!(kinds.contains(&why.kind()), "{why}");
                return;
            }
            Err(_) => {
                stalls += 1;
                pause();
                advance(Duration::from_secs(31)).await;
                resume();
            }
        }
    }
    panic!("it is never closed");
}
