//! A server that does as it is told: it takes one request per connection, remembers it, and plays the next act.
//!
//! Like a real one it carries a POST out once for each idempotency key, and counts that.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use client::{Client, ClientBuilder};

/// What becomes of one request.
pub(super) enum Act {
    /// The connection ends before anything was done.
    Before,
    /// It is carried out, and the connection ends before the answer.
    After,
    /// It is carried out, and nothing is ever said.
    Silent,
    /// It is not carried out, and this is the answer: status, more header lines, body.
    Refuse(u16, &'static str, String),
    /// It is carried out, and this is the answer.
    Answer(u16, String),
    /// These pieces are sent, and then the connection ends.
    Stream(Vec<&'static str>),
}

/// A request that came.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) line: String,
    pub(super) headers: BTreeMap<String, String>,
}

#[derive(Default)]
struct Seen {
    asked: Vec<Asked>,
    /// Under which idempotency keys something was done.
    done: BTreeSet<String>,
}

pub(super) struct Script {
    address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
    is_over: Arc<AtomicBool>,
    player: Option<JoinHandle<()>>,
}

impl Script {
    pub(super) fn play(acts: impl IntoIterator<Item = Act>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, is_over) = (Arc::new(Mutex::new(Seen::default())), Arc::default());
        let mut acts: Vec<Act> = acts.into_iter().collect();
        acts.reverse();
        let player = std::thread::spawn({
            let (seen, is_over) = (Arc::clone(&seen), Arc::clone(&is_over));
            move || {
                let mut silent = Vec::new();
                for stream in listener.incoming() {
                    if AtomicBool::load(&is_over, Ordering::SeqCst) {
                        return;
                    }
                    silent.extend(serve(stream.unwrap(), acts.pop(), &seen));
                }
            }
        });
        Self { address, seen, is_over, player: Some(player) }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A client that asks again at once.
    pub(super) fn builder(&self) -> ClientBuilder {
        Client::builder(&self.url()).retry_pause(Duration::from_millis(1))
    }

    pub(super) fn client(&self) -> Client {
        self.builder().build().unwrap()
    }

    /// A client that does not wait long for an answer, where there may be none.
    pub(super) fn impatient(&self) -> Client {
        self.builder().timeout(Duration::from_secs(3)).build().unwrap()
    }

    pub(super) fn asked(&self) -> Vec<Asked> {
        self.seen.lock().unwrap().asked.clone()
    }

    /// How many POSTs were carried out.
    pub(super) fn done(&self) -> usize {
        self.seen.lock().unwrap().done.len()
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        if let Some(player) = self.player.take() {
            let ended = player.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the script broke off");
        }
    }
}

/// Plays one act; a connection that shall stay open without a word is given back.
fn serve(mut stream: TcpStream, act: Option<Act>, seen: &Mutex<Seen>) -> Option<TcpStream> {
    let asked = read(&mut stream)?;
    let key = asked.headers.get("idempotency-key").cloned();
    let mut seen = seen.lock().unwrap();
    seen.asked.push(asked);
    let mut carry_out = || seen.done.extend(key.clone());
    let mut send = |text: String| {
        // A client that has gone away is a part of the play.
        let _ = stream.write_all(text.as_bytes());
    };
    match act {
        None => send(answer(500, "", "the script is over")),
        Some(Act::Before) => {}
        Some(Act::After) => carry_out(),
        Some(Act::Silent) => {
            carry_out();
            return Some(stream);
        }
        Some(Act::Refuse(status, headers, body)) => send(answer(status, headers, &body)),
        Some(Act::Answer(status, body)) => {
            carry_out();
            send(answer(status, "", &body));
        }
        Some(Act::Stream(pieces)) => {
            let head =
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
            send(head.to_owned() + &pieces.concat());
        }
    }
    None
}

fn answer(status: u16, headers: &str, body: &str) -> String {
    let len = body.len();
    format!(
        "HTTP/1.1 {status} X\r\n{headers}connection: close\r\ncontent-length: {len}\r\n\r\n{body}"
    )
}

/// Reads a request; nothing, if whoever connected says nothing.
pub(super) fn read(stream: &mut impl Read) -> Option<Asked> {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break String::from_utf8(bytes.drain(..end + 4).collect()).unwrap();
        }
        let mut piece = [0; 4096];
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => return None,
            Ok(len) => bytes.extend_from_slice(&piece[..len]),
        }
    };
    let mut lines = head.lines();
    let line = lines.next()?.to_owned();
    let headers: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()))
        .collect();
    let len: usize = headers.get("content-length").map_or(0, |len| len.parse().unwrap());
    let mut rest = vec![0; len.saturating_sub(bytes.len())];
    stream.read_exact(&mut rest).ok()?;
    Some(Asked { line, headers })
}

/// A problem, as the API tells it.
pub(super) fn problem(status: u16, detail: &str) -> String {
    serde_json::json!({ "type": "urn:watchbell:problem:x", "title": "X", "status": status, "detail": detail })
        .to_string()
}

/// A trigger at this revision, with this text.
pub(super) fn trigger(revision: u64, url: &str) -> String {
    serde_json::json!({
        "id": "trg_1", "name": "hello", "status": "on_demand", "revision": revision, "author": "a",
        "spec": { "name": "hello", "webhook": { "url": url } },
        "created": "2027-01-15T00:00:00Z", "written": "2027-01-15T00:00:00Z", "next": [],
    })
    .to_string()
}
