//! A witness behind its sockets: ticks, rubbish, readers, and how many of them.

use std::net::UdpSocket;
use std::time::Duration;

use rig::{Answer, Ask, PATIENCE, Random, until};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use witness::limits::{STREAMS_MAX, TICK_BYTES_MAX};
use witness::{Event, Events, Tick, Witness, WitnessSettings};

use super::plan::tick;

pub(super) async fn witness() -> Witness {
    let listen = "127.0.0.1:0".parse().unwrap();
    let settings = WitnessSettings { listen, udp: None, gap: Duration::from_secs(1) };
    Witness::start(settings).await.unwrap()
}

fn datagram(witness: &Witness, bytes: &[u8]) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(bytes, witness.udp_address()).unwrap();
}

async fn post(witness: &Witness, text: &str) -> (u16, String) {
    let mut socket = TcpStream::connect(witness.address()).await.unwrap();
    let length = text.len();
    let head =
        format!("POST /ticks HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}");
    socket.write_all(format!("{head}\r\n\r\n{text}").as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    let answer = Answer::parse(&answer);
    (answer.status, answer.text)
}

async fn get(witness: &Witness, path: &str) -> (u16, String) {
    let answer = Ask::new(witness.address(), "GET", path).send().await;
    (answer.status, answer.text)
}

/// Waits until so many ticks were heard, and so much that is none.
async fn heard(witness: &Witness, ticks: u64, unreadable: u64) {
    until("the witness hears all", PATIENCE, || async {
        let counts = witness.report().counts;
        ((counts.ticks, counts.unreadable) == (ticks, unreadable)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn datagrams_and_requests_are_judged_alike() {
    let witness = witness().await;
    assert_eq!(witness.address(), witness.udp_address(), "they share a number");
    datagram(&witness, tick("a", 1, 1, 0).json().as_bytes());
    heard(&witness, 1, 0).await;
    assert_eq!(post(&witness, &tick("b", 2, 1, 50).json()).await.0, 204);
    assert!(witness.report().all_is_well);
    datagram(&witness, tick("a", 1, 2, 100).json().as_bytes());
    heard(&witness, 3, 0).await;
    let report = witness.report();
    assert_eq!(report.overlaps.len(), 1, "{}", report.text(80));
    let (status, text) = get(&witness, "/report").await;
    let told: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((status, &told["all_is_well"]), (200, &Value::Bool(false)), "{told:#}");
    assert_eq!(told["overlaps"][0]["later"]["instance"], "b", "{told:#}");
    let (_, chart) = get(&witness, "/chart?columns=60").await;
    assert!(chart.contains("two acted") && chart.lines().all(|it| it.chars().count() <= 60));
    let (_, metrics) = get(&witness, "/metrics").await;
    assert!(metrics.contains("\nwatchbell_witness_overlaps 1\n"), "{metrics}");
    assert_eq!(get(&witness, "/livez").await, (200, "ok\n".to_owned()));
}

#[tokio::test]
async fn rubbish_is_counted_and_ends_nothing() {
    let witness = witness().await;
    let mut random = Random::new(7);
    let whole = tick("a", 1, 1, 0).json();
    for length in 0..200_u64 {
        let bytes: Vec<u8> = (0..length).map(|_| random.below(256).to_le_bytes()[0]).collect();
        datagram(&witness, &bytes);
        // The system drops what nobody has read when there is too much of it.
        heard(&witness, 0, length + 1).await;
    }
    datagram(&witness, &whole.as_bytes()[..whole.len() - 1]);
    let mut long = whole.clone();
    long.push_str(&" ".repeat(TICK_BYTES_MAX + 1 - whole.len()));
    datagram(&witness, long.as_bytes());
    datagram(&witness, &vec![b' '; 60_000]);
    heard(&witness, 0, 203).await;
    let (status, why) = post(&witness, "{\"hold\": 7}").await;
    assert!(status == 400 && why.contains("it cannot be read"), "{status} {why}");
    let (status, why) = post(&witness, &long).await;
    assert!(status == 413 && why.contains("at most 1024 bytes"), "{status} {why}");
    long.pop();
    assert_eq!(post(&witness, &long).await.0, 204, "as long as a tick may be");
    heard(&witness, 1, 205).await;
}

#[tokio::test]
async fn what_is_not_there_is_told_with_what_is() {
    let witness = witness().await;
    let (status, text) = get(&witness, "/").await;
    assert!(status == 404 && text.contains("/report"), "{status} {text}");
    assert_eq!(get(&witness, "/ticks").await.0, 405);
    assert_eq!(get(&witness, "/chart?rows=7").await.0, 400);
    assert_eq!(get(&witness, "/chart?columns=wide").await.0, 400);
}

/// Somebody who reads events, and all that was read so far.
struct Stream {
    socket: TcpStream,
    text: String,
}

impl Stream {
    async fn open(witness: &Witness, last: Option<u64>) -> Self {
        let mut socket = TcpStream::connect(witness.address()).await.unwrap();
        let last = last.map_or(String::new(), |id| format!("last-event-id: {id}\r\n"));
        let request = format!("GET /events HTTP/1.1\r\nhost: x\r\n{last}\r\n");
        socket.write_all(request.as_bytes()).await.unwrap();
        Self { socket, text: String::new() }
    }

    /// Reads until this was there.
    async fn reads(&mut self, words: &str) -> &str {
        let mut room = [0; 4_096];
        while !self.text.contains(words) {
            let reading = tokio::time::timeout(PATIENCE, self.socket.read(&mut room)).await;
            let length =
                reading.unwrap_or_else(|_| panic!("no {words:?} in {}", self.text)).unwrap();
            assert!(length > 0, "no {words:?} before the end of {}", self.text);
            self.text.push_str(&String::from_utf8_lossy(&room[..length]));
        }
        &self.text
    }
}

#[tokio::test]
async fn events_come_with_numbers_and_whoever_comes_back_misses_none() {
    let witness = witness().await;
    let mut stream = Stream::open(&witness, None).await;
    stream.reads(": watching").await;
    for (name, token, sequence, ms) in [("a", 1, 1, 0), ("b", 2, 1, 50), ("a", 1, 2, 100)] {
        post(&witness, &tick(name, token, sequence, ms).json()).await;
    }
    let text = stream.reads("event: token_back").await;
    for said in ["event: tick\nid: 1\n", "event: acting\nid: 2\n", "event: overlap\nid: 6\n"] {
        assert!(text.contains(said), "{said:?} in {text}");
    }
    drop(stream);
    let mut stream = Stream::open(&witness, Some(4)).await;
    let text = stream.reads("event: token_back\nid: 7\n").await;
    assert!(text.contains("event: tick\nid: 5\n") && !text.contains("\nid: 3\n"), "{text}");
    // That number is of another witness.
    Stream::open(&witness, Some(1_000)).await.reads("event: missed\nid: 7\n").await;
}

#[tokio::test]
async fn streams_are_served_up_to_the_limit_and_refused_one_past_it() {
    let witness = witness().await;
    let mut streams = Vec::new();
    for _ in 0..STREAMS_MAX {
        let mut stream = Stream::open(&witness, None).await;
        stream.reads(": watching").await;
        streams.push(stream);
    }
    let (status, why) = get(&witness, "/events").await;
    assert!(status == 503 && why.contains("32 at a time"), "{status} {why}");
    streams.pop();
    until("the place is free again", PATIENCE, || async {
        let mut stream = Stream::open(&witness, None).await;
        let mut room = [0; 64];
        let length = stream.socket.read(&mut room).await.unwrap();
        room[..length].starts_with(b"HTTP/1.1 200").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_test_may_read_events_without_a_socket() {
    let witness = witness().await;
    let mut reader = witness.reader();
    let sent = tick("a", 1, 1, 0);
    post(&witness, &sent.json()).await;
    let Events::Some(events) = reader.next().await else { panic!("nothing was missed") };
    let names: Vec<_> = events.iter().map(|(_, event)| event.name()).collect();
    assert_eq!(names, ["tick", "acting"]);
    assert_eq!(*events[0].1, Event::Tick(Tick { ..sent }));
    assert_eq!(reader.take(), None);
}

#[tokio::test]
async fn a_witness_that_is_dropped_is_gone() {
    let witness = witness().await;
    let at = witness.address();
    drop(witness);
    until("its port is free", PATIENCE, || async { tokio::net::TcpListener::bind(at).await.ok() })
        .await;
}

#[tokio::test]
async fn a_port_that_is_taken_is_told() {
    let first = witness().await;
    let settings =
        WitnessSettings { listen: first.address(), udp: None, gap: Duration::from_secs(1) };
    let why = Witness::start(settings).await.unwrap_err().to_string();
    assert!(why.contains(&format!("cannot listen on {}", first.address())), "{why}");
}
