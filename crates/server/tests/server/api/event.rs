//! Events of all servers, at whichever somebody watches.

use std::time::Duration;

use rig::PATIENCE;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::bench::Bench;
use super::pair::{HALVES, Pair, Who, name_in};

/// Somebody who watches.
struct Watching {
    lines: tokio::io::Lines<BufReader<TcpStream>>,
    /// The last id that came.
    id: String,
}

impl Watching {
    async fn begin(bench: &Bench, last: Option<&str>) -> Self {
        let mut stream = TcpStream::connect(bench.address).await.unwrap();
        let last = last.map_or_else(String::new, |id| format!("last-event-id: {id}\r\n"));
        let head = format!("GET /v1/events HTTP/1.1\r\nhost: {}\r\n{last}\r\n", bench.address);
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut watching = Self { lines: BufReader::new(stream).lines(), id: String::new() };
        while watching.line().await.unwrap() != ": watching" {}
        watching.line().await.unwrap();
        watching
    }

    async fn line(&mut self) -> Option<String> {
        let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await;
        let line = line.expect("a line in time").unwrap()?;
        if let Some(id) = line.strip_prefix("id: ") {
            id.clone_into(&mut self.id);
        }
        Some(line)
    }

    /// The next event: its kind, and what it is about.
    async fn next(&mut self) -> (String, String) {
        let mut kind = String::new();
        loop {
            let line = self.line().await.expect("an event");
            if let Some(text) = line.strip_prefix("event: ") {
                text.clone_into(&mut kind);
            } else if let Some(text) = line.strip_prefix("data: ") {
                let data: Value = serde_json::from_str(text).unwrap();
                let about = data["object"].as_str().or(data["node"].as_str());
                return (kind, about.unwrap_or_default().to_owned());
            }
        }
    }
}

fn changed(name: &str) -> (String, String) {
    ("changed".to_owned(), name.to_owned())
}

fn reset() -> (String, String) {
    ("reset".to_owned(), String::new())
}

#[tokio::test]
async fn what_happens_at_any_server_is_told_at_each_of_them_once() {
    let Pair { a, b } = Pair::new().await;
    let (here, there) = (name_in(0), name_in(2));
    let mut at_a = Watching::begin(&a, None).await;
    let mut at_b = Watching::begin(&b, None).await;
    for name in [&here, &there] {
        a.minutely(name).await;
        assert_eq!(at_a.next().await, changed(name));
        assert_eq!(at_b.next().await, changed(name));
    }
    a.client.pause(&there, &client::trigger::PauseRequest::default()).await.unwrap();
    assert_eq!(at_a.next().await, changed(&there));
    assert_eq!(at_b.next().await, changed(&there));
}

#[tokio::test]
async fn who_comes_back_at_either_server_gets_what_it_missed_of_both() {
    let Pair { a, b } = Pair::new().await;
    let mut watching = Watching::begin(&a, None).await;
    a.minutely(&name_in(0)).await;
    a.minutely(&name_in(2)).await;
    let mut seen = [watching.next().await.1, watching.next().await.1];
    seen.sort_unstable();
    let last = watching.id.clone();
    drop(watching);
    a.minutely(&name_in(1)).await;
    a.minutely(&name_in(3)).await;
    for bench in [&a, &b] {
        let mut watching = Watching::begin(bench, Some(&last)).await;
        let mut missed = [watching.next().await.1, watching.next().await.1];
        missed.sort_unstable();
        let mut expected = [name_in(1), name_in(3)];
        expected.sort_unstable();
        assert_eq!(missed, expected);
    }
    // A server that is not there any more may have told of something.
    let with_gone = format!("{last},00000000deadbeef-7");
    let mut watching = Watching::begin(&a, Some(&with_gone)).await;
    assert_eq!(watching.next().await, reset());
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_is_told_once_as_a_gap() {
    let pair = Pair::new().await;
    let gone = rig::free_port();
    pair.tell_of(Who::A, HALVES, &format!("http://127.0.0.1:{gone}"));
    let mut watching = Watching::begin(&pair.a, None).await;
    assert_eq!(watching.next().await, reset());
    pair.a.minutely(&name_in(0)).await;
    assert_eq!(watching.next().await, changed(&name_in(0)));
    // One that goes while somebody watches is a gap as well.
    let Pair { a, b } = Pair::new().await;
    let mut watching = Watching::begin(&a, None).await;
    b.stop().await;
    assert_eq!(watching.next().await, reset());
    a.minutely(&name_in(1)).await;
    assert_eq!(watching.next().await, changed(&name_in(1)));
}

#[tokio::test]
async fn a_server_that_joins_is_followed_from_its_first_event_on() {
    let pair = Pair::new().await;
    let mut view = (*pair.a.peers.view()).clone();
    let both = view.clone();
    view.servers.truncate(1);
    pair.a.peers.show(view);
    let mut watching = Watching::begin(&pair.a, None).await;
    // It has told of something before `a` heard of it.
    pair.b.minutely(&name_in(2)).await;
    pair.a.peers.show(both);
    assert_eq!(watching.next().await, changed(&name_in(2)));
}

#[tokio::test]
async fn a_server_that_is_lost_is_told_to_those_who_look_after_the_cluster() {
    let pair = Pair::new().await;
    let both = (*pair.a.peers.view()).clone();
    let mut alone = both.clone();
    alone.servers.truncate(1);
    let mut watching = Watching::begin(&pair.a, None).await;
    // A server takes a moment to look around before it tells anything.
    let told = tokio::time::timeout(PATIENCE, async {
        loop {
            pair.a.peers.show(alone.clone());
            let next = tokio::time::timeout(Duration::from_millis(100), async {
                loop {
                    let (kind, node) = watching.next().await;
                    if kind != "reset" {
                        return (kind, node);
                    }
                }
            });
            if let Ok(told) = next.await {
                return told;
            }
            pair.a.peers.show(both.clone());
            tokio::task::yield_now().await;
        }
    });
    let (kind, node) = told.await.expect("it is told");
    assert!(["server_lost", "server_joined"].contains(&kind.as_str()), "{kind}");
    assert_eq!(node, "b");
}
