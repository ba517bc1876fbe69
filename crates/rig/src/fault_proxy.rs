//! A proxy of HTTP that loses, repeats and delays: what a bad network does to requests, and to answers.
//!
//! It takes one request after the other from a client, and decides by a seed what becomes of each. A request may never
//! arrive, or arrive when its client listens no more; it may arrive twice; its answer may be lost, or be late. Unlike a
//! [`Road`](super::Road), which knows bytes, it knows where a request ends, so it can repeat one.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::Random;

/// No request or answer of a test is larger.
const MESSAGE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// What is late comes within this time.
const LATE_MS_MAX: u64 = 1_000;

/// What a proxy does with requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// Requests and answers arrive, once.
    Faithful,
    /// Each request has a fate of its own.
    Faulty,
    /// Requests arrive, and no answer does.
    LosesAnswers,
}

/// What becomes of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Plain,
    NeverArrives,
    /// It arrives once its client has been told that the connection is broken.
    ArrivesLate,
    /// It arrives, and the connection breaks before there is an answer.
    Cut,
    AnswerLost,
    AnswerLate,
    /// It arrives once more, at the same time or later.
    Twice,
}

/// What became of requests so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProxyCounts {
    /// Requests that came.
    pub requests: u64,
    /// Requests that never arrived, or when nobody listened.
    pub lost: u64,
    /// Requests that arrived twice.
    pub repeated: u64,
    /// Answers that were read from the server, and not given to the client.
    pub answers_lost: u64,
    /// Answers that were late.
    pub answers_late: u64,
}

/// A proxy to one server at a time. Torn down when dropped.
pub struct FaultProxy {
    at: SocketAddr,
    shared: Arc<Shared>,
    /// Dropped with the proxy, and with it every connection.
    _task: JoinSet<()>,
}

struct Shared {
    state: Mutex<State>,
    counts: watch::Sender<ProxyCounts>,
}

struct State {
    server: SocketAddr,
    manner: Manner,
    random: Random,
}

impl FaultProxy {
    /// A faithful proxy to this server, with the seed of its faults. Needs a runtime.
    pub async fn to(server: SocketAddr, seed: u64) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let at = listener.local_addr().expect("it is bound");
        let state = State { server, manner: Manner::Faithful, random: Random::new(seed) };
        let counts = watch::Sender::new(ProxyCounts::default());
        let shared = Arc::new(Shared { state: Mutex::new(state), counts });
        let mut task = JoinSet::new();
        task.spawn(accept(listener, Arc::clone(&shared)));
        Self { at, shared, _task: task }
    }

    /// Where clients go.
    pub fn address(&self) -> SocketAddr {
        self.at
    }

    /// What clients call it.
    pub fn url(&self) -> String {
        format!("http://{}", self.at)
    }

    /// Lets it lead to another server from the next request on.
    pub fn lead_to(&self, server: SocketAddr) {
        self.shared.lock().server = server;
    }

    /// How the next requests fare.
    pub fn set(&self, manner: Manner) {
        self.shared.lock().manner = manner;
    }

    /// What became of requests so far.
    pub fn counts(&self) -> ProxyCounts {
        *self.shared.counts.borrow()
    }

    /// Waits until so many answers are lost: the server has given them, and nobody heard them.
    pub async fn answers_lost(&self, count: u64) {
        let mut counts = self.shared.counts.subscribe();
        let is_reached = counts.wait_for(|counts| counts.answers_lost >= count).await;
        is_reached.expect("the proxy counts as long as it is there");
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, change: impl FnOnce(&mut ProxyCounts)) {
        self.counts.send_modify(change);
    }

    /// What becomes of the next request, and how late is what is late.
    fn draw(&self) -> (SocketAddr, Fate, Duration) {
        let mut state = self.lock();
        let late = Duration::from_millis(state.random.below(LATE_MS_MAX));
        let fate = match state.manner {
            Manner::Faithful => Fate::Plain,
            Manner::LosesAnswers => Fate::AnswerLost,
            Manner::Faulty => match state.random.below(100) {
                0..5 => Fate::NeverArrives,
                5..10 => Fate::ArrivesLate,
                10..15 => Fate::Cut,
                15..25 => Fate::AnswerLost,
                25..33 => Fate::AnswerLate,
                33..45 => Fate::Twice,
                _ => Fate::Plain,
            },
        };
        (state.server, fate, late)
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((client, _)) = listener.accept().await else { continue };
        connections.spawn(serve(client, Arc::clone(&shared)));
        while connections.try_join_next().is_some() {}
    }
}

/// One request on each connection: the answer says that it is the last.
async fn serve(mut client: TcpStream, shared: Arc<Shared>) {
    let Some(request) = read_request(&mut client).await else { return };
    let (server, fate, late) = shared.draw();
    shared.count(|counts| counts.requests += 1);
    match fate {
        Fate::Plain => {
            let Some(answer) = ask(server, &request).await else { return };
            let _gone = client.write_all(&answer).await;
        }
        Fate::NeverArrives => shared.count(|counts| counts.lost += 1),
        Fate::ArrivesLate => {
            shared.count(|counts| counts.lost += 1);
            drop(client);
            tokio::time::sleep(late).await;
            let _unheard = ask(server, &request).await;
        }
        Fate::Cut => {
            shared.count(|counts| counts.lost += 1);
            if let Ok(mut stream) = TcpStream::connect(server).await {
                let _gone = stream.write_all(&request).await;
            }
        }
        Fate::AnswerLost => {
            if ask(server, &request).await.is_some() {
                shared.count(|counts| counts.answers_lost += 1);
            }
        }
        Fate::AnswerLate => {
            let Some(answer) = ask(server, &request).await else { return };
            shared.count(|counts| counts.answers_late += 1);
            tokio::time::sleep(late).await;
            let _gone = client.write_all(&answer).await;
        }
        Fate::Twice => {
            shared.count(|counts| counts.repeated += 1);
            let again = async {
                tokio::time::sleep(late / 4).await;
                ask(server, &request).await
            };
            let first = async {
                let Some(answer) = ask(server, &request).await else { return };
                let _gone = client.write_all(&answer).await;
                drop(client);
            };
            tokio::join!(first, again);
        }
    }
}

/// A whole request, which asks for an end of the connection after its answer.
async fn read_request(client: &mut TcpStream) -> Option<Vec<u8>> {
    const END: &[u8] = b"\r\n\r\n";
    let mut bytes = Vec::new();
    let head = loop {
        if client.read_buf(&mut bytes).await.ok()? == 0 || bytes.len() > MESSAGE_BYTES_MAX {
            return None;
        }
        if let Some(at) = bytes.windows(END.len()).position(|window| window == END) {
            break at;
        }
    };
    let text = std::str::from_utf8(&bytes[..head]).ok()?;
    let line = text.find("\r\n").unwrap_or(head);
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    let length = fields.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length = length.and_then(|(_, value)| value.trim().parse().ok()).unwrap_or(0);
    let whole = (head + END.len()).checked_add(length).filter(|len| *len <= MESSAGE_BYTES_MAX)?;
    while bytes.len() < whole {
        if client.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    bytes.splice(line..line, b"\r\nconnection: close".iter().copied());
    Some(bytes)
}

/// What a server answers; nothing, if it does not.
async fn ask(server: SocketAddr, request: &[u8]) -> Option<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await.ok()?;
    stream.write_all(request).await.ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.ok()?;
    (!answer.is_empty()).then_some(answer)
}
