//! What runs print: taken under the current token alone, kept to its end, and told to whoever follows.

use std::time::Duration;

use client::Timestamp;
use client::key::Scope;
use client::output::{
    OutputAnswer, OutputChunk, OutputEvent, OutputRequest, OutputStream, RunOutput,
};
use client::run::RunState;
use client::worker::ClaimedRun;
use engine::limits::{OUTPUT_CHUNKS_MAX, OUTPUT_KEPT_BYTES_MAX, OUTPUT_REQUEST_BYTES_MAX};
use rig::PATIENCE;
use serde_json::{Value, json};
use store::clock::Stopwatch;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::house::{Answer, Ask, House};
use super::queue::{Hand, show, submit};

async fn say(hand: &Hand<'_>, run: &ClaimedRun, more: Value) -> Answer {
    let mut body = json!({ "token": run.token });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let path = format!("/v1/runs/{}/output", run.id);
    hand.house.ask_as(&hand.key, "POST", &path).body(&body).await
}

fn out(offset: u64, text: &str) -> Value {
    json!({ "offset": offset, "stream": "stdout", "text": text })
}

/// Prints, and gives the offset that is expected next.
async fn print(hand: &Hand<'_>, run: &ClaimedRun, chunks: Value) -> u64 {
    let answer: OutputAnswer = say(hand, run, json!({ "chunks": chunks })).await.is(200).read();
    answer.next
}

async fn output(house: &House, run: &str) -> RunOutput {
    house.ask("GET", &format!("/v1/runs/{run}/output")).send().await.is(200).read()
}

fn text(output: &RunOutput) -> String {
    let bytes = output.chunks.iter().flat_map(|chunk| chunk.bytes().unwrap()).collect();
    String::from_utf8(bytes).unwrap()
}

/// Somebody who follows a run.
struct Following(tokio::io::Lines<BufReader<TcpStream>>);

impl Following {
    async fn begin(ask: Ask) -> Self {
        let mut stream = TcpStream::connect(ask.to()).await.unwrap();
        stream.write_all(ask.text().as_bytes()).await.unwrap();
        let mut following = Self(BufReader::new(stream).lines());
        assert!(following.line().await.unwrap().contains("200"));
        while following.line().await.unwrap() != ": following" {}
        following
    }

    async fn line(&mut self) -> Option<String> {
        tokio::time::timeout(PATIENCE, self.0.next_line()).await.expect("a line in time").unwrap()
    }

    /// The next event; nothing at the end.
    async fn next(&mut self) -> Option<OutputEvent> {
        loop {
            let line = self.line().await?;
            if let Some(text) = line.strip_prefix("data: ") {
                return Some(serde_json::from_str(text).unwrap());
            }
        }
    }
}

fn follow(house: &House, run: &str) -> Ask {
    house.ask("GET", &format!("/v1/runs/{run}/output?follow=true"))
}

fn printed(attempt: u32, offset: u64, text: &str) -> OutputEvent {
    let chunk = OutputChunk::new(offset, OutputStream::Stdout, text.as_bytes());
    OutputEvent::Printed { attempt, chunk }
}

#[tokio::test]
async fn times_of_output_are_told_while_it_is_printed_and_afterwards_and_to_who_follows() {
    let house = House::open().await;
    let mut hand = Hand::new(&house, "default", "w1").await;
    let made = submit(&house, json!({})).await;
    let run = hand.one().await;
    let mut following = Following::begin(follow(&house, &made.id)).await;
    let timed = |offset, at: &str, text| {
        let mut chunk = out(offset, text);
        chunk["at"] = json!(at);
        chunk
    };
    let (first, soon) = ("2026-11-18T19:41:55.120Z", "2026-11-18T19:41:56.119Z");
    let later = "2026-11-18T19:41:56.12+00:00";
    let chunks =
        json!([timed(0, first, "a"), timed(1, soon, "b"), timed(2, later, "c"), out(3, "d")]);
    assert_eq!(print(&hand, &run, chunks).await, 4);
    let at = |text: &str| Some(text.parse::<Timestamp>().unwrap());
    let expected = [(0, at(first), "ab"), (2, at(later), "c"), (3, None, "d")];
    let told = |output: &RunOutput| {
        let told = output.chunks.iter().map(|chunk| (chunk.offset, chunk.at, chunk.text.clone()));
        told.collect::<Vec<_>>()
    };
    let expected: Vec<_> =
        expected.map(|(offset, at, text)| (offset, at, Some(text.to_owned()))).into();
    assert_eq!(told(&output(&house, &made.id).await), expected);
    let Some(OutputEvent::Printed { chunk, .. }) = following.next().await else { panic!() };
    assert_eq!((chunk.at, chunk.text.as_deref()), (at(first), Some("a")));
    assert!(hand.done(&run, json!({ "result": "succeeded" })).await);
    assert_eq!(told(&output(&house, &made.id).await), expected);
    say(&hand, &run, json!({ "chunks": [timed(4, "noon", "e")] })).await.is(422);
}

#[tokio::test]
async fn output_is_taken_once_and_kept_with_what_became_of_the_run() {
    let house = House::open().await;
    let mut hand = Hand::new(&house, "default", "w1").await;
    let made = submit(&house, json!({})).await;
    assert_eq!(output(&house, &made.id).await.chunks, []);
    let run = hand.one().await;
    let err = json!({ "offset": 3, "stream": "stderr", "base64": "//8=" });
    assert_eq!(print(&hand, &run, json!([out(0, "one"), err])).await, 5);
    assert_eq!(print(&hand, &run, json!([out(0, "one")])).await, 5, "twice is once");
    let refused = say(&hand, &run, json!({ "oldest": 4, "chunks": [out(9, "x")] })).await;
    assert_eq!(refused.read::<OutputAnswer>().next, 5, "it can send what is missing");
    assert_eq!(print(&hand, &run, json!([out(9, "two")])).await, 12, "it cannot");
    let live = output(&house, &made.id).await;
    let offsets: Vec<u64> = live.chunks.iter().map(|chunk| chunk.offset).collect();
    assert_eq!((offsets, live.bytes, live.attempt), (vec![0, 3, 9], 12, Some(1)));
    assert_eq!(live.chunks[1].bytes().unwrap(), [255, 255]);
    assert!(hand.done(&run, json!({ "result": "succeeded" })).await);
    assert_eq!(output(&house, &made.id).await, live, "it is kept with the result");
    let house = house.restart("2027-01-15T12:10:00Z").await;
    assert_eq!(output(&house, &made.id).await, live);
}

#[tokio::test]
async fn output_under_a_stale_token_is_refused_and_not_mixed_in() {
    let house = House::open().await;
    house.project("team").await;
    let mut first = Hand::new(&house, "default", "w1").await;
    let mut second = Hand::new(&house, "default", "w2").await;
    let made = submit(&house, json!({})).await;
    let old = first.one().await;
    print(&first, &old, json!([out(0, "first")])).await;
    first.done(&old, json!({ "result": "stopped" })).await;
    let new = second.one().await;
    let stale = say(&first, &old, json!({ "chunks": [out(5, " late")] })).await.is(409);
    assert_eq!(stale.problem().unwrap(), "stale-token");
    assert_eq!(text(&output(&house, &made.id).await), "first", "the last attempt that is over");
    assert_eq!(print(&second, &new, json!([out(0, "second")])).await, 6);
    let live = output(&house, &made.id).await;
    assert_eq!((text(&live).as_str(), live.attempt), ("second", Some(2)));
    let stranger = house.key("team", &[Scope::Worker, Scope::Read]).await;
    let path = format!("/v1/runs/{}/output", made.id);
    let body = json!({ "token": new.token, "chunks": [out(6, "x")] });
    house.ask_as(&stranger, "POST", &path).body(&body).await.is(409);
    house.ask_as(&stranger, "GET", &path).send().await.is(404);
    second.done(&new, json!({ "result": "succeeded" })).await;
    say(&second, &new, json!({ "chunks": [out(6, "x")] })).await.is(409);
    house.ask_as(&stranger, "GET", &path).send().await.is(404);
    assert_eq!(text(&output(&house, &made.id).await), "second");
}

#[tokio::test]
async fn endless_output_leaves_its_last_64_kib_and_its_count() {
    let house = House::open().await;
    let mut hand = Hand::new(&house, "default", "w1").await;
    let made = submit(&house, json!({})).await;
    let run = hand.one().await;
    let path = format!("/v1/runs/{}/output", run.id);
    let (mut next, whole) = (0_u64, 64 * 1024 * 1024);
    let full = "x".repeat(OUTPUT_REQUEST_BYTES_MAX);
    while next < whole {
        let body = json!({ "token": run.token, "chunks": [out(next, &full)] });
        let answer = house.ask_as(&hand.key, "POST", &path).body(&body).await.is(200);
        next = answer.read::<OutputAnswer>().next;
    }
    let more = format!("{full}x");
    say(&hand, &run, json!({ "chunks": [out(next, &more)] })).await.is(413);
    let many: Vec<Value> = (0..=OUTPUT_CHUNKS_MAX).map(|_| out(next, "")).collect();
    say(&hand, &run, json!({ "chunks": many })).await.is(422);
    for wrong in [
        json!({ "chunks": [{ "offset": 1, "stream": "stdout" }] }),
        json!({ "chunks": [{ "offset": 1, "stream": "stdout", "base64": "?" }] }),
        json!({ "chunks": [out(1 << 60, "x")] }),
        json!({ "progress": { "percent": 101 } }),
        json!({ "progress": { "text": "x".repeat(201) } }),
    ] {
        say(&hand, &run, wrong).await.is(422);
    }
    let live = output(&house, &made.id).await;
    assert_eq!((live.bytes, text(&live).len()), (whole, OUTPUT_KEPT_BYTES_MAX));
    assert_eq!(live.chunks[0].offset, whole - OUTPUT_KEPT_BYTES_MAX as u64);
}

#[tokio::test]
async fn a_follower_sees_what_was_kept_and_all_that_comes_until_the_run_ends() {
    let house = House::open().await;
    let mut hand = Hand::new(&house, "default", "w1").await;
    let made = submit(&house, json!({ "retry": { "delay": "1s", "attempts": 2 } })).await;
    let run = hand.one().await;
    print(&hand, &run, json!([out(2, "kept")])).await;
    let mut following = Following::begin(follow(&house, &made.id)).await;
    assert_eq!(following.next().await, Some(OutputEvent::Cut { attempt: 1, from: 0, to: 2 }));
    assert_eq!(following.next().await, Some(printed(1, 2, "kept")));
    print(&hand, &run, json!([out(6, "more")])).await;
    assert_eq!(following.next().await, Some(printed(1, 6, "more")));
    hand.done(&run, json!({ "result": "stopped" })).await;
    let run = hand.one().await;
    print(&hand, &run, json!([out(0, "again")])).await;
    assert_eq!(following.next().await, Some(printed(2, 0, "again")));
    hand.done(&run, json!({ "result": "succeeded" })).await;
    let ended = Some(OutputEvent::Ended { state: Some(RunState::Succeeded) });
    assert_eq!(following.next().await, ended);
    assert_eq!(following.next().await, None);
    // One who comes back after the end goes on from its place.
    let back = follow(&house, &made.id).header("last-event-id", &format!("{}-2", run.token));
    let mut following = Following::begin(back).await;
    assert_eq!(following.next().await, Some(printed(2, 2, "ain")));
    assert_eq!(following.next().await, ended);
    follow(&house, "run_00y00000000000011m7psmd6tv0jek").send().await.is(404);
}

#[tokio::test]
async fn a_slow_follower_is_cut_and_told_and_holds_nobody_up() {
    let house = House::open().await;
    let mut hand = Hand::new(&house, "default", "w1").await;
    let made = submit(&house, json!({})).await;
    let run = hand.one().await;
    let mut slow = Following::begin(follow(&house, &made.id)).await;
    // More than sockets, the follower's room and its reader have room for together.
    let full = "x".repeat(OUTPUT_REQUEST_BYTES_MAX);
    let (mut next, begun) = (0, Stopwatch::start());
    while next < 24 * 1024 * 1024 {
        next = print(&hand, &run, json!([out(next, &full)])).await;
    }
    assert!(begun.elapsed() < Duration::from_secs(60), "nobody waits for it");
    hand.done(&run, json!({ "result": "succeeded" })).await;
    let (mut place, mut cut) = (0, 0);
    loop {
        match slow.next().await {
            Some(OutputEvent::Printed { chunk, .. }) => {
                assert_eq!(chunk.offset, place);
                place += chunk.bytes().unwrap().len() as u64;
            }
            Some(OutputEvent::Cut { from, to, .. }) => {
                assert_eq!(from, place);
                (place, cut) = (to, cut + to - from);
            }
            Some(OutputEvent::Ended { .. }) => break,
            None => panic!("it ends with a word"),
        }
    }
    assert!(cut > 0 && place == next, "{cut} of {next} are missing, told up to {place}");
}

#[tokio::test]
async fn progress_is_shown_with_the_run_and_kept_with_its_result() {
    let house = House::open().await;
    let mut hand = Hand::new(&house, "default", "w1").await;
    let made = submit(&house, json!({})).await;
    let run = hand.one().await;
    let request = OutputRequest {
        token: run.token,
        progress: Some(client::output::ProgressSpec {
            percent: Some(40),
            text: Some("halfway".to_owned()),
        }),
        ..OutputRequest::default()
    };
    say(&hand, &run, serde_json::to_value(request).unwrap()).await.is(200);
    let shown = show(&house, &made.id).await.queued.unwrap().progress.unwrap();
    assert_eq!((shown.percent, shown.text.as_deref()), (Some(40), Some("halfway")));
    let listed = house.ask("GET", "/v1/queues/mail/runs").send().await.is(200).json();
    assert_eq!(listed["items"][0]["queued"]["progress"]["percent"], 40);
    hand.done(&run, json!({ "result": "succeeded" })).await;
    assert_eq!(output(&house, &made.id).await.progress, Some(shown));
}
