//! A server that hears workers, and answers what a test says.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use client::Client;
use serde_json::{Value, json};

/// What a worker said: the path, and the body.
pub(super) struct Said {
    pub(super) is_claim: bool,
    pub(super) body: Value,
}

/// What it is answered: a status, and a body.
pub(super) type Answer = (u16, Value);

/// A server for as long as the test lasts.
pub(super) struct Script {
    pub(super) client: Client,
}

impl Script {
    /// Answers each claim and each beat as `answer` says.
    pub(super) fn start(answer: impl FnMut(&Said) -> Answer + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answer = Arc::new(Mutex::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, answer) = (stream.unwrap(), Arc::clone(&answer));
                thread::spawn(move || {
                    while let Some(said) = hear(&stream) {
                        let (status, body) = answer.lock().unwrap()(&said);
                        say(&stream, status, &body);
                    }
                });
            }
        });
        Self { client: Client::builder(&url).retries(0).build().unwrap() }
    }
}

/// What every answer has, and this.
pub(super) fn fine(said: &Said, more: &Value) -> Answer {
    let lease_ms = said.body["lease_ms"].as_u64().unwrap();
    // Whatever is reported is dealt with.
    let acks = |list: &str| {
        let runs = said.body[list].as_array().cloned().unwrap_or_default();
        runs.into_iter().map(|run| json!({"id": run["id"], "token": run["token"], "counted": true}))
    };
    let acks: Vec<Value> = acks("done").chain(acks("released")).collect();
    let mut answer = json!({
        "runs": [], "acks": acks, "lost": [], "cancel": [], "unheard": [], "cookie": "1:a",
        "as_of": said.body["number"], "beat_ms": lease_ms / 5, "lease_ms": lease_ms,
    });
    for (name, value) in more.as_object().unwrap() {
        answer[name] = value.clone();
    }
    (200, answer)
}

/// A run of the handler `work`.
pub(super) fn run(id: &str, token: u64) -> Value {
    json!({
        "id": id, "token": token, "attempt": token, "queue": "q", "handler": "work",
        "scheduled": "2027-01-15T09:00:00Z", "payload": null,
    })
}

fn hear(stream: &TcpStream) -> Option<Said> {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first).ok().filter(|bytes| *bytes > 0)?;
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        if line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Said {
        is_claim: first.contains("/v1/claim"),
        body: serde_json::from_slice(&body).unwrap(),
    })
}

fn say(mut stream: &TcpStream, status: u16, body: &Value) {
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {status} Some\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let _gone = stream.write_all((head + &body).as_bytes());
}
