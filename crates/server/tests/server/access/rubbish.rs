//! Rubbish of every kind, and real values that were spoiled: whoever sends it is told so, and nothing breaks.
//!
//! The dice are seeded: a failure tells the request, and falls the same way again.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use client::key::Scope;
use rig::{PATIENCE, Random};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::house::{Answer, House, first_admin};

const SEED: u64 = 0x0bad_cafe;

/// Requests, sent by so many at a time.
const REQUESTS: usize = 4_000;
const SENDERS: usize = 8;

/// Statuses of the server's own trouble that are an answer: come back later, and no room.
const TROUBLE: [u16; 2] = [503, 507];

/// What is told of a head that cannot be read at all, before it is a request.
const HEADLESS: [u16; 3] = [400, 414, 431];

/// What is true in this house, to be spoiled.
struct Truth {
    /// Names, ids, cursors, tags, keys.
    values: Vec<String>,
    /// What paths that end so take.
    bodies: Vec<(&'static str, Value)>,
    routes: Vec<(String, &'static str)>,
    keys: Vec<String>,
}

/// A request as it is sent.
struct Bytes {
    text: Vec<u8>,
    /// Whether its head is one at all: then there is an answer, with all that belongs to it.
    is_read: bool,
    /// Whether its body comes as it was announced: then there is an answer, whatever it is.
    is_whole: bool,
}

const METHODS: [&str; 9] =
    ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "BREW"];

const PARAMETERS: [&str; 14] = [
    "cursor",
    "limit",
    "state",
    "status",
    "prefix",
    "label",
    "from",
    "to",
    "count",
    "wait",
    "project",
    "author",
    "action",
    "nobody-knows",
];

const HEADERS: [&str; 9] = [
    "if-match",
    "if-none-match",
    "idempotency-key",
    "last-event-id",
    "watchbell-project",
    "x-request-id",
    "origin",
    "expect",
    "accept",
];

const ODD: [&str; 16] = [
    "",
    "0",
    "-1",
    "18446744073709551615",
    "18446744073709551616",
    "9999-12-31T23:59:59.999999999Z",
    "-009999-01-01T00:00:00Z",
    "2027-01-15T12:00:00+25:00",
    "%00",
    "%ff%fe",
    "%2e%2e%2f",
    "..",
    "*",
    "\"1\"",
    "W/\"1\"",
    "run_zzzzzzzzzzzzzzzzzzzzzzzzzzzzzz",
];

impl Truth {
    async fn of(house: &House) -> Self {
        house.project("team").await;
        let keys =
            vec![house.admin.clone(), house.key("default", &[Scope::Read, Scope::Write]).await];
        let mut values: Vec<String> = ["bell", "team", "default", "10s", "scheduled", "succeeded"]
            .map(str::to_owned)
            .to_vec();
        for name in ["bell", "other", "third"] {
            let made = house.ask("POST", "/v1/triggers").body(&house.on_demand(name)).await.is(201);
            values.push(made.json()["id"].as_str().unwrap().to_owned());
            values.push(made.json()["created"].as_str().unwrap().to_owned());
            for _ in 0..2 {
                let path = format!("/v1/triggers/{name}/run?wait=10s");
                let run = house.ask("POST", &path).send().await.is(200);
                values.push(run.json()["id"].as_str().unwrap().to_owned());
            }
        }
        for list in ["triggers", "runs", "triggers/bell/runs", "audit", "keys", "projects"] {
            let page = house.ask("GET", &format!("/v1/{list}?limit=1")).send().await.is(200);
            values.extend(page.json()["next"].as_str().map(str::to_owned));
            values.extend(page.json()["items"][0]["id"].as_str().map(str::to_owned));
        }
        values.extend(keys.iter().cloned());
        let routes = server::api::table().into_iter().map(|(method, path, _)| (method, path));
        let bodies = vec![
            ("/v1/triggers", house.on_demand("new")),
            ("/v1/triggers/{name}", house.secondly("bell")),
            (
                "/v1/keys",
                json!({ "name": "key", "scopes": ["read"], "expires": "2030-01-01T00:00:00Z" }),
            ),
            ("/v1/projects", json!({ "name": "crew", "limits": { "triggers": 3 } })),
            ("/v1/projects/{name}", json!({ "limits": { "triggers": 300 } })),
            ("/backfill", json!({ "from": "2027-01-15T00:00:00Z", "to": "2027-01-15T12:00:00Z" })),
            ("/pause", json!({ "note": "lunch", "until": "2027-01-15T14:00:00Z" })),
            ("/rotate", json!({ "grace": "1h" })),
            ("/campaign", json!({ "candidate": "web-1", "ttl_ms": 3000, "wait_ms": 5 })),
            ("/release", json!({ "candidate": "web-1", "session": "00000000000000ff" })),
            (
                "/store/scan",
                json!({ "from": { "included": "node/" }, "to": { "excluded": "node0" }, "limit": 5 }),
            ),
            (
                "/store/commit",
                json!({ "when": [{ "absent": "scratch/a" }, { "at": ["scratch/b", 3] }],
                        "then": [{ "put": ["scratch/a", { "hex": "00ff" }] }, { "delete": "scratch/b" }] }),
            ),
            ("", json!({})),
        ];
        Self { values, bodies, routes: routes.collect(), keys }
    }

    /// A true value, an odd one, or one that was spoiled.
    fn value(&self, dice: &mut Random) -> Vec<u8> {
        let mut value = self.values[dice.place(self.values.len())].clone().into_bytes();
        match dice.place(10) {
            0..3 => return value,
            3 => return ODD[dice.place(ODD.len())].into(),
            4 => return (0..dice.place(40)).map(|_| any(dice)).collect(),
            5 => return value.repeat(1 + dice.place(60)),
            _ => {}
        }
        for _ in 0..=dice.place(3) {
            let at = dice.place(value.len().max(1));
            match dice.place(4) {
                0 if !value.is_empty() => value[at] ^= 1 << dice.place(8),
                1 if !value.is_empty() => drop(value.remove(at)),
                2 => value.insert(at, any(dice)),
                _ => value.truncate(at),
            }
        }
        value
    }

    fn request(&self, dice: &mut Random, host: &str) -> Bytes {
        let (method, path) = &self.routes[dice.place(self.routes.len())];
        let mut method = method.clone();
        if dice.place(20) == 0 {
            METHODS[dice.place(METHODS.len())].clone_into(&mut method);
        }
        let mut is_read = true;
        let mut text = format!("{method} ").into_bytes();
        for part in path.split_inclusive('/') {
            if part.starts_with('{') {
                self.place(dice, &mut text, &mut is_read);
                text.extend(part.ends_with('/').then_some(b'/'));
            } else {
                text.extend(part.as_bytes());
            }
        }
        let parameters = if dice.place(2) == 0 { dice.place(4) } else { 0 };
        for number in 0..parameters {
            let name = PARAMETERS[dice.place(PARAMETERS.len())];
            text.extend(format!("{}{name}=", if number == 0 { '?' } else { '&' }).as_bytes());
            self.place(dice, &mut text, &mut is_read);
        }
        text.extend(format!(" HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n").as_bytes());
        for _ in 0..dice.place(3) {
            let name = HEADERS[dice.place(HEADERS.len())];
            self.header(dice, &mut text, name, &mut is_read);
        }
        if dice.place(200) == 0 {
            // Longer than any head may be.
            text.extend(b"x-long: ");
            text.extend(vec![b'a'; 600_000]);
            text.extend(b"\r\n");
            is_read = false;
        }
        match dice.place(12) {
            0 => self.header(dice, &mut text, "authorization", &mut is_read),
            1 => {}
            _ => {
                let key = &self.keys[dice.place(self.keys.len())];
                text.extend(format!("authorization: Bearer {key}\r\n").as_bytes());
            }
        }
        let is_whole = if method == "GET" && dice.place(20) > 0 {
            text.extend(b"\r\n");
            true
        } else {
            self.body(dice, path, &mut text, &mut is_read)
        };
        Bytes { text, is_read, is_whole }
    }

    /// A value as a part of a path or a query, mostly in the way that such values are written.
    fn place(&self, dice: &mut Random, text: &mut Vec<u8>, is_read: &mut bool) {
        let value = self.value(dice);
        let is_raw = dice.place(20) == 0;
        *is_read &= !is_raw;
        for byte in value {
            if is_raw || byte.is_ascii_alphanumeric() || b"-_.~:".contains(&byte) {
                text.push(byte);
            } else {
                text.extend(format!("%{byte:02x}").as_bytes());
            }
        }
    }

    fn header(&self, dice: &mut Random, text: &mut Vec<u8>, name: &str, is_read: &mut bool) {
        let value = self.value(dice);
        *is_read &= value.iter().all(|byte| matches!(byte, b' '..=b'~' | 0x80..=0xff));
        text.extend(name.as_bytes());
        text.extend(b": ");
        if name == "authorization" && dice.place(2) == 0 {
            text.extend(b"Bearer ");
        }
        text.extend(value);
        text.extend(b"\r\n");
    }

    /// Adds a body, and gives whether it is as it was announced.
    fn body(&self, dice: &mut Random, path: &str, text: &mut Vec<u8>, is_read: &mut bool) -> bool {
        let fitting = self.bodies.iter().find(|(end, _)| path.ends_with(end));
        let fitting = fitting.filter(|_| dice.place(6) > 0);
        let (_, body) = fitting.unwrap_or_else(|| &self.bodies[dice.place(self.bodies.len())]);
        let mut body = body.to_string().into_bytes();
        if dice.place(3) == 0 {
            for _ in 0..=dice.place(4) {
                let at = dice.place(body.len());
                body[at] = any(dice);
            }
        }
        match dice.place(10) {
            0 => self.header(dice, text, "content-type", is_read),
            1 => {}
            _ => text.extend(b"content-type: application/json\r\n"),
        }
        let len = body.len();
        let (announced, is_whole) = match dice.place(12) {
            0 => (format!("content-length: {}", len + 1 + dice.place(50)), false),
            1 => (format!("content-length: {}", dice.place(len)), false),
            2 => ("transfer-encoding: chunked".to_owned(), false),
            3 => (format!("content-length: {len}\r\ncontent-length: {}", len + 1), false),
            4 => {
                *is_read = false;
                let rubbish = String::from_utf8_lossy(&self.value(dice)).into_owned();
                (format!("content-length: {rubbish}"), false)
            }
            _ => (format!("content-length: {len}"), true),
        };
        // What cannot be told apart from another request is refused with the head.
        *is_read &= !announced.contains("\r\n");
        text.extend(announced.as_bytes());
        text.extend(b"\r\n\r\n");
        text.extend(body);
        is_whole
    }
}

fn any(dice: &mut Random) -> u8 {
    dice.number().to_le_bytes()[0]
}

/// What came back; nothing, if the connection just ended.
async fn send(to: SocketAddr, request: &Bytes) -> io::Result<Option<Answer>> {
    let mut stream = TcpStream::connect(to).await?;
    // A server that has seen enough need not take the rest.
    let sent = stream.write_all(&request.text).await;
    if sent.is_ok() && !request.is_whole {
        stream.shutdown().await?;
    }
    let mut answer = Vec::new();
    loop {
        let mut part = [0; 4_096];
        match stream.read(&mut part).await {
            Ok(0) | Err(_) => break,
            Ok(len) => answer.extend_from_slice(&part[..len]),
        }
        // Events come for ever.
        if answer.windows(10).any(|text| text == b": watching") {
            break;
        }
    }
    let text = String::from_utf8_lossy(&answer);
    Ok(text.contains("\r\n\r\n").then(|| Answer::parse(&text)))
}

/// What is wrong with an answer.
fn fault(request: &Bytes, answer: Option<&Answer>) -> Option<&'static str> {
    let Some(answer) = answer else {
        return (request.is_read && request.is_whole).then_some("there is no answer");
    };
    let status = answer.status;
    if status >= 500 && !TROUBLE.contains(&status) {
        return Some("the server is in trouble");
    }
    let is_headless = HEADLESS.contains(&status) && answer.text.is_empty();
    if !request.is_read && is_headless {
        return None;
    }
    if answer.header("x-request-id").is_none_or(str::is_empty) {
        return Some("the answer has no id");
    }
    let is_problem = answer.header("content-type") == Some("application/problem+json");
    let has_body = !request.text.starts_with(b"HEAD ");
    if status >= 400 && !(is_problem && (!has_body || answer.problem().is_some())) {
        return Some("the problem is not told");
    }
    None
}

/// Counts the panics on this thread, on which the server runs too.
fn count_panics() -> Arc<AtomicUsize> {
    let count = Arc::new(AtomicUsize::new(0));
    let (counter, here, before) =
        (Arc::clone(&count), std::thread::current().id(), panic::take_hook());
    panic::set_hook(Box::new(move |panic| {
        if std::thread::current().id() == here {
            counter.fetch_add(1, Ordering::SeqCst);
        }
        before(panic);
    }));
    count
}

/// How often each status was answered; 0 is for none.
type Statuses = BTreeMap<u16, usize>;

/// Sends a share of the requests, and looks at every answer.
async fn try_share(share: usize, truth: Arc<Truth>, to: SocketAddr) -> Statuses {
    let mut statuses = Statuses::new();
    for round in 0..REQUESTS / SENDERS {
        let seed = SEED + u64::try_from(share * REQUESTS + round).unwrap();
        let request = truth.request(&mut Random::new(seed), &to.to_string());
        let told = || String::from_utf8_lossy(&request.text[..request.text.len().min(3_000)]);
        let sent = tokio::time::timeout(PATIENCE, send(to, &request)).await;
        let Ok(sent) = sent else { panic!("seed {seed}: no end: {}", told()) };
        let answer = sent.unwrap();
        if let Some(fault) = fault(&request, answer.as_ref()) {
            panic!("seed {seed}: {fault}: {answer:?} to {}", told());
        }
        *statuses.entry(answer.map_or(0, |answer| answer.status)).or_default() += 1;
    }
    statuses
}

#[tokio::test]
async fn rubbish_is_told_so_and_breaks_nothing() {
    let panics = count_panics();
    let house = House::open().await;
    let truth = Arc::new(Truth::of(&house).await);
    let mut senders = JoinSet::new();
    for share in 0..SENDERS {
        senders.spawn(try_share(share, Arc::clone(&truth), house.running.address));
    }
    let mut statuses = Statuses::new();
    for (status, count) in senders.join_all().await.into_iter().flatten() {
        *statuses.entry(status).or_default() += count;
    }
    assert_eq!(panics.load(Ordering::SeqCst), 0);
    println!("statuses, 0 for none: {statuses:?}");
    // It went through all doors: much was done, and much was refused at each of them.
    for status in [200, 201, 400, 401, 403, 404, 405, 409, 415, 422] {
        assert!(statuses.contains_key(&status), "{status} is not among {statuses:?}");
    }

    // Whatever was done to its keys and its projects, the house is one in which people can work.
    let admin = first_admin(&house.running.handle).await;
    let ask = |method, path| house.ask_as(&admin, method, path);
    ask("POST", "/v1/scheduler/start").send().await;
    ask("POST", "/v1/projects").body(&json!({ "name": "afterwards" })).await.is(201);
    let ask = |method, path| ask(method, path).header("watchbell-project", "afterwards");
    ask("POST", "/v1/triggers").body(&house.on_demand("afterwards")).await.is(201);
    let run = ask("POST", "/v1/triggers/afterwards/run?wait=20s").send().await.is(200);
    assert_eq!(run.json()["run"]["state"], "succeeded", "{run:?}");
}
