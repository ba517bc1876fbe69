//! What receivers answer, and how they misbehave: each has its outcome, within its time.

use std::time::Duration;

use engine::limits::RESPONSE_BYTES_MAX;
use engine::outcome::{Arrival, Lost, NotSent, Outcome, Verdict};
use server::webhook::FinishedCall;

use super::handle::{NodeHandle, check_not_sent, get, hasty, status};
use super::receiver::{Manner, Receiver, answer};

async fn call(manner: Manner, timeout_ms: u32) -> FinishedCall {
    let receiver = Receiver::start(manner).await;
    let mut handle = NodeHandle::local();
    handle.call(hasty(&receiver.url("/"), timeout_ms)).await
}

#[track_caller]
fn check_lost(finished: &FinishedCall, expected: Lost, said: &str) {
    assert_eq!(finished.outcome, Outcome::Lost { why: expected }, "{finished:?}");
    let sentence = finished.error.as_deref().expect("there is a sentence");
    assert!(sentence.contains(said), "{sentence}");
}

#[tokio::test]
async fn a_status_is_told_as_it_came_and_redirects_are_not_followed() {
    let elsewhere = Receiver::start(answer(200, &[], b"")).await;
    for code in [200, 204, 302, 307, 400, 404, 410, 429, 500, 503] {
        let location = elsewhere.url("/");
        let manner = match code {
            // Neither has a body.
            204 => Manner::Answer(b"HTTP/1.1 204 X\r\n\r\n".to_vec()),
            302 | 307 => answer(code, &[("location", &location)], b""),
            _ => answer(code, &[], b"x"),
        };
        assert_eq!(status(&call(manner, 30_000).await), code);
    }
    assert_eq!(elsewhere.requests(), 0);
}

#[tokio::test]
async fn a_pause_is_read_in_seconds_and_as_a_date() {
    let minute = Some(Duration::from_secs(60));
    for (text, expected) in [
        ("60", minute),
        // The wall clock stands at 2027-01-15T08:00:00Z.
        ("Fri, 15 Jan 2027 08:01:00 GMT", minute),
        ("Fri, 15 Jan 2027 07:00:00 GMT", Some(Duration::ZERO)),
        ("later", None),
    ] {
        let finished = call(answer(429, &[("retry-after", text)], b""), 30_000).await;
        let verdict = Verdict::Again { arrival: Arrival::Surely, retry_after: expected };
        assert_eq!(finished.outcome.verdict(), verdict, "{text}");
    }
}

#[tokio::test]
async fn a_body_is_kept_up_to_its_limit() {
    for (len, kept, truncated) in [
        (0, 0, false),
        (RESPONSE_BYTES_MAX, RESPONSE_BYTES_MAX, false),
        (RESPONSE_BYTES_MAX + 1, RESPONSE_BYTES_MAX, true),
    ] {
        let finished = call(answer(200, &[], &vec![b'x'; len]), 30_000).await;
        assert_eq!(finished.outcome.verdict(), Verdict::Succeeded);
        let response = finished.response.unwrap();
        assert_eq!((response.body.len(), response.truncated), (kept, truncated));
    }
}

#[tokio::test]
async fn a_receiver_that_sends_for_ever_has_answered_and_is_cut_off() {
    let finished = call(Manner::Floods, 30_000).await;
    assert_eq!(finished.outcome.verdict(), Verdict::Succeeded);
    let response = finished.response.unwrap();
    assert_eq!((response.body.len(), response.truncated), (RESPONSE_BYTES_MAX, true));
}

#[tokio::test]
async fn a_body_that_stalls_is_cut_when_the_time_is_up() {
    let finished = call(Manner::Stalls, 2_000).await;
    assert_eq!(finished.outcome.verdict(), Verdict::Succeeded);
    let response = finished.response.unwrap();
    assert_eq!((&*response.body, response.truncated), (&b"begin"[..], true));
    assert!(finished.latency >= Duration::from_secs(2));
}

#[tokio::test]
async fn a_connection_with_the_rest_of_a_body_is_not_used_again() {
    let long = vec![b'x'; RESPONSE_BYTES_MAX + 1];
    let receiver = Receiver::start(answer(200, &[], &long)).await;
    let mut handle = NodeHandle::local();
    for number in 0..3 {
        assert_eq!(status(&handle.call(get(&receiver.url("/"))).await), 200);
        assert_eq!(receiver.next().await.connection, number);
    }
}

#[tokio::test]
async fn a_receiver_that_never_answers_costs_its_time_and_no_more() {
    let finished = call(Manner::Silent, 2_000).await;
    check_lost(&finished, Lost::TimedOut, "did not answer in time");
    assert!(finished.latency >= Duration::from_secs(2));
    assert!(finished.latency < Duration::from_secs(10));
}

#[tokio::test]
async fn a_head_without_an_end_is_cut_off() {
    check_lost(&call(Manner::EndlessHead, 30_000).await, Lost::Broken, "no answer");
}

#[tokio::test]
async fn what_is_not_http_is_no_answer() {
    for nonsense in ["SSH-2.0-OpenSSH_9.9\r\n\r\n", "HTTP/1.1 twohundred OK\r\n\r\n", "\0\0\0\0"] {
        let manner = Manner::Answer(nonsense.into());
        check_lost(&call(manner, 30_000).await, Lost::Broken, "no answer");
    }
}

#[tokio::test]
async fn a_connection_that_ends_without_an_answer_leaves_it_in_doubt() {
    check_lost(&call(Manner::Closes, 30_000).await, Lost::Closed, "before an answer");
    let half = Manner::Answer(b"HTTP/1.1 200 OK\r\ncontent-".to_vec());
    check_lost(&call(half, 2_000).await, Lost::TimedOut, "in time");
}

#[tokio::test]
async fn a_port_where_nobody_listens_is_surely_not_reached() {
    // An address where no other test listens, and a port that was free a moment ago.
    let address = std::net::TcpListener::bind("127.0.0.77:0").unwrap().local_addr().unwrap();
    let finished = NodeHandle::local().call(get(&format!("http://{address}/"))).await;
    check_not_sent(&finished, NotSent::Connect, "cannot connect to 127.0.0.77:");
}

#[tokio::test]
async fn a_connection_that_does_not_come_about_costs_its_own_time() {
    // A listener whose backlog is full takes no further connection and refuses none.
    let full = tokio::net::TcpSocket::new_v4().unwrap();
    full.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = full.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut taken = Vec::new();
    while let Ok(Ok(stream)) =
        tokio::time::timeout(Duration::from_millis(200), tokio::net::TcpStream::connect(address))
            .await
    {
        taken.push(stream);
    }
    let mut handle = NodeHandle::with(|config| {
        config.allow = vec!["127.0.0.1".parse().unwrap()];
        config.connect_timeout = Duration::from_millis(200);
    });
    let finished = handle.call(get(&format!("http://{address}/"))).await;
    check_not_sent(&finished, NotSent::Connect, "connecting to the receiver took too long");
}
