//! What may stand between two servers: it counts requests, loses answers, or takes headers away.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What it does to requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Habit {
    /// It passes them on as they are.
    Pass,
    /// It passes them on, and says nothing of the answers.
    LoseAnswers,
    /// It takes away the headers by which servers know a request that was passed on, up to so many times.
    Strip(usize),
}

pub(super) struct Relay {
    pub(super) address: SocketAddr,
    seen: watch::Receiver<usize>,
    _tasks: JoinSet<()>,
}

impl Relay {
    /// One that leads to this server.
    pub(super) async fn to(target: SocketAddr, habit: Habit) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (count, seen) = watch::channel(0);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let left = Arc::new(AtomicUsize::new(match habit {
                Habit::Strip(times) => times,
                Habit::Pass | Habit::LoseAnswers => usize::MAX,
            }));
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (count, left) = (count.clone(), left.clone());
                connections.spawn(async move { pass(stream, target, habit, count, left).await });
            }
        });
        Self { address, seen, _tasks: tasks }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// How many requests came so far.
    pub(super) fn seen(&self) -> usize {
        *self.seen.borrow()
    }

    /// Waits until so many have come.
    pub(super) async fn saw(&self, requests: usize) {
        self.seen.clone().wait_for(|seen| *seen >= requests).await.unwrap();
    }
}

/// One request on one connection.
async fn pass(
    mut stream: TcpStream,
    target: SocketAddr,
    habit: Habit,
    count: watch::Sender<usize>,
    left: Arc<AtomicUsize>,
) {
    let Some((head, body)) = read(&mut stream).await else { return };
    count.send_modify(|count| *count += 1);
    // Whoever goes round and round comes to an end here.
    let goes_on = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
    if goes_on.is_err() {
        return;
    }
    let is_kept = |line: &&str| {
        let line = line.to_lowercase();
        let is_mark = line.starts_with("watchbell-forwarded");
        let is_stripped = is_mark && matches!(habit, Habit::Strip(_));
        !is_stripped && !line.starts_with("connection:")
    };
    let lines: Vec<&str> = head.split("\r\n").filter(is_kept).collect();
    let mut far = TcpStream::connect(target).await.unwrap();
    let head = format!("{}\r\nconnection: close\r\n\r\n", lines.join("\r\n"));
    far.write_all(&[head.as_bytes(), &body].concat()).await.unwrap();
    let mut answer = Vec::new();
    far.read_to_end(&mut answer).await.unwrap();
    if habit != Habit::LoseAnswers {
        let _ = stream.write_all(&answer).await;
    }
}

/// The head of a request without its end, and its body.
async fn read(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|end| end == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let mut body = bytes[end + 4..].to_vec();
    let len = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("content-length").then(|| value.parse().ok())?
    });
    while body.len() < len.unwrap_or(0) {
        stream.read_buf(&mut body).await.ok()?;
    }
    Some((head, body))
}
