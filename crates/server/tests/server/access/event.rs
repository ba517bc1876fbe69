//! Events: told in order while they happen, to those whom they concern, and honestly lost.

use std::time::Duration;

use client::key::Scope;
use rig::PATIENCE;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::house::{Ask, House};

/// Somebody who watches.
pub(super) struct Watching {
    lines: tokio::io::Lines<BufReader<TcpStream>>,
}

/// An event as it came.
#[derive(Debug, Clone)]
pub(super) struct Event {
    pub(super) id: String,
    pub(super) kind: String,
    pub(super) data: Value,
}

impl Watching {
    pub(super) async fn begin(ask: Ask) -> Self {
        let mut stream = TcpStream::connect(ask.to()).await.unwrap();
        stream.write_all(ask.text().as_bytes()).await.unwrap();
        let mut watching = Self { lines: BufReader::new(stream).lines() };
        assert!(watching.line().await.unwrap().contains("200"));
        while watching.line().await.unwrap() != ": watching" {}
        watching
    }

    async fn line(&mut self) -> Option<String> {
        let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await;
        line.expect("a line in time").unwrap()
    }

    /// The next event; nothing at the end.
    pub(super) async fn next(&mut self) -> Option<Event> {
        let (mut id, mut kind) = (String::new(), String::new());
        loop {
            let line = self.line().await?;
            if let Some(text) = line.strip_prefix("id: ") {
                text.clone_into(&mut id);
            } else if let Some(text) = line.strip_prefix("event: ") {
                text.clone_into(&mut kind);
            } else if let Some(text) = line.strip_prefix("data: ") {
                return Some(Event { id, kind, data: serde_json::from_str(text).unwrap() });
            }
        }
    }
}

async fn make(house: &House, project: &str, name: &str) {
    let ask = house.ask("POST", "/v1/triggers").header("watchbell-project", project);
    ask.body(&house.on_demand(name)).await.is(201);
}

#[tokio::test]
async fn changes_and_runs_are_told_in_order_and_only_those_of_ones_project() {
    let house = House::open().await;
    house.project("team").await;
    let key = house.key("team", &[Scope::Read]).await;
    let mut watching = Watching::begin(house.ask_as(&key, "GET", "/v1/events")).await;
    make(&house, "default", "theirs").await;
    make(&house, "team", "bell").await;
    let run = house.ask("POST", "/v1/triggers/bell/run?wait=10s");
    run.header("watchbell-project", "team").send().await.is(200);
    let made = watching.next().await.unwrap();
    assert_eq!((made.kind.as_str(), &made.data["object"]), ("changed", &Value::from("bell")));
    let mut kinds = Vec::new();
    for _ in 0..2 {
        let event = watching.next().await.unwrap();
        kinds.push(event.kind.clone());
        if event.kind == "run_ended" {
            assert_eq!(event.data["state"], "succeeded", "{event:?}");
        }
    }
    kinds.sort_unstable();
    assert_eq!(kinds, ["changed", "run_ended"]);
}

#[tokio::test]
async fn who_comes_back_gets_what_it_missed_or_is_told_that_it_is_lost() {
    let house = House::open().await;
    let mut watching = Watching::begin(house.ask("GET", "/v1/events")).await;
    make(&house, "default", "one").await;
    let first = watching.next().await.unwrap();
    drop(watching);
    make(&house, "default", "two").await;
    let back = house.ask("GET", "/v1/events").header("last-event-id", &first.id);
    let mut watching = Watching::begin(back).await;
    assert_eq!(watching.next().await.unwrap().data["object"], "two");
    for id in ["rubbish", "00000000000000ff-1", "", &format!("{}9999", first.id)] {
        let ask = house.ask("GET", "/v1/events").header("last-event-id", id);
        let mut watching = Watching::begin(ask).await;
        let told = watching.next().await.unwrap();
        assert_eq!(told.kind, "reset", "{id}: {told:?}");
        // From there on it is told what happens.
        let back = house.ask("GET", "/v1/events").header("last-event-id", &told.id);
        let mut watching = Watching::begin(back).await;
        make(&house, "default", &format!("n{}", id.len())).await;
        assert_eq!(watching.next().await.unwrap().kind, "changed");
    }
}

#[tokio::test]
async fn watching_ends_with_the_key_that_it_began_with() {
    let house = House::open().await;
    let key = house.key("default", &[Scope::Read]).await;
    let own = house.ask_as(&key, "GET", "/v1/keys/self").send().await.is(200).json();
    let mut watching = Watching::begin(house.ask_as(&key, "GET", "/v1/events")).await;
    let path = format!("/v1/keys/{}", own["id"].as_str().unwrap());
    house.ask("DELETE", &path).send().await.is(204);
    assert!(watching.next().await.is_none());
}

#[tokio::test]
async fn those_who_watch_with_one_key_do_not_take_every_place() {
    let house = House::open().await;
    let key = house.key("default", &[Scope::Read]).await;
    let mut watching = Vec::new();
    for _ in 0..engine::limits::WATCHERS_OF_KEY_MAX {
        watching.push(Watching::begin(house.ask_as(&key, "GET", "/v1/events")).await);
    }
    let refused = house.ask_as(&key, "GET", "/v1/events").send().await.is(429);
    assert!(refused.header("retry-after").is_some());
    drop(watching);
    let other = house.key("default", &[Scope::Read]).await;
    Watching::begin(house.ask_as(&other, "GET", "/v1/events")).await;
}

#[tokio::test]
async fn watching_ends_when_the_server_stops_and_does_not_keep_it() {
    let mut took = Vec::new();
    // One that is kept waits as long as anybody may take, every time; another one only if the machine is busy.
    while took.len() < 3 && took.last().is_none_or(|last| *last >= Duration::from_secs(4)) {
        let house = House::open().await;
        let mut watching = Watching::begin(house.ask("GET", "/v1/events")).await;
        let begun = store::clock::Stopwatch::start();
        let House { running, .. } = house;
        running.stop().await;
        assert!(watching.next().await.is_none());
        took.push(begun.elapsed());
    }
    assert!(took.last().unwrap() < &Duration::from_secs(4), "{took:?}");
}
