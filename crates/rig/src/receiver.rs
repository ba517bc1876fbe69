//! A receiver of webhooks that remembers every call, and answers, or misbehaves, as it is told.
//!
//! It lives on a thread of its own, so that neither the test nor the node under test keeps it from noting
//! when something arrived.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// A call, as it arrived.
#[derive(Debug, Clone)]
pub struct Heard {
    /// The path that was called.
    pub path: String,
    /// The run's id.
    pub run: String,
    /// The slot as it is written: RFC 3339.
    pub slot: String,
    /// Attempt number, from 1.
    pub attempt: u32,
    /// By the wall clock of this machine, in microseconds.
    pub at_us: u64,
    /// When it was answered, if it was.
    pub answered_us: Option<u64>,
    /// The status with which it was answered; 0 if it was not.
    pub status: u16,
    /// Headers by their names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The body, which is text.
    pub body: String,
}

/// What a receiver does with a call.
#[derive(Debug, Clone, Copy)]
pub enum Reply {
    /// Answers with this status, after a while.
    Status(u16, Duration),
    /// Says nothing, for ever.
    Never,
    /// Cuts the connection.
    Reset,
    /// Sends for ever, as fast as it can.
    Flood,
}

impl Reply {
    /// Answers at once that all is well.
    pub const FINE: Self = Self::Status(200, Duration::ZERO);
}

/// What the wall clock of this machine shows.
#[expect(clippy::disallowed_methods, reason = "when something arrives is judged in real time")]
fn wall_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
    u64::try_from(since.as_micros()).expect("it is before the year 586524")
}

type Rule = Arc<dyn Fn(&Heard) -> Reply + Send + Sync>;

/// A receiver with some doors, each of which is another host to those who call.
pub struct Receiver {
    doors: Vec<SocketAddr>,
    heard: Arc<Mutex<Vec<Heard>>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Receiver {
    /// Opens so many doors; the rule says what to do with a call.
    pub fn start(doors: usize, rule: impl Fn(&Heard) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_at(Ipv4Addr::LOCALHOST, doors, rule)
    }

    /// Opens so many doors at this address.
    pub fn start_at(
        at: Ipv4Addr,
        doors: usize,
        rule: impl Fn(&Heard) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let (stop, stopped) = oneshot::channel();
        let (bound_in, bound) = std::sync::mpsc::channel();
        let (rule, book): (Rule, _) = (Arc::new(rule), Arc::clone(&heard));
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let mut tasks = JoinSet::new();
                for _ in 0..doors {
                    let listener = TcpListener::bind((at, 0)).await.unwrap();
                    bound_in.send(listener.local_addr().unwrap()).unwrap();
                    tasks.spawn(accept(listener, Arc::clone(&rule), Arc::clone(&book)));
                }
                let _ = stopped.await;
            });
        });
        let doors = (0..doors).map(|_| bound.recv().unwrap()).collect();
        Self { doors, heard, stop: Some(stop), thread: Some(thread) }
    }

    /// The URL of a path behind a door.
    pub fn url(&self, door: usize, path: &str) -> String {
        format!("http://{}{path}", self.doors[door])
    }

    /// All calls so far, in the order in which they arrived.
    pub fn heard(&self) -> Vec<Heard> {
        lock(&self.heard).clone()
    }

    /// The slots for which a path was called, in the order of arrival, each as often as it was.
    pub fn slots(&self, path: &str) -> Vec<String> {
        let heard = lock(&self.heard);
        heard.iter().filter(|call| call.path == path).map(|call| call.slot.clone()).collect()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock(heard: &Mutex<Vec<Heard>>) -> MutexGuard<'_, Vec<Heard>> {
    heard.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, rule: Rule, heard: Arc<Mutex<Vec<Heard>>>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    let _ = stream.set_nodelay(true);
                    connections.spawn(talk(stream, Arc::clone(&rule), Arc::clone(&heard)));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// One connection, until either side ends it.
async fn talk(mut stream: TcpStream, rule: Rule, heard: Arc<Mutex<Vec<Heard>>>) {
    let mut bytes = Vec::new();
    while let Some(call) = read(&mut stream, &mut bytes).await {
        let reply = rule(&call);
        let place = {
            let mut heard = lock(&heard);
            heard.push(call);
            heard.len() - 1
        };
        match reply {
            Reply::Status(status, delay) => {
                if !delay.is_zero() {
                    tokio::time::sleep(delay).await;
                }
                let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: 2\r\n\r\nok");
                {
                    let mut heard = lock(&heard);
                    heard[place].answered_us = Some(wall_us());
                    heard[place].status = status;
                }
                if stream.write_all(answer.as_bytes()).await.is_err() {
                    return;
                }
            }
            Reply::Never => {
                let mut rest = [0; 64];
                while stream.read(&mut rest).await.is_ok_and(|len| len > 0) {}
                return;
            }
            Reply::Reset => {
                let _ = stream.set_zero_linger();
                return;
            }
            Reply::Flood => {
                let begin = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
                let chunk = [b"2000\r\n".as_slice(), &[b'x'; 0x2000], b"\r\n"].concat();
                if stream.write_all(begin).await.is_ok() {
                    while stream.write_all(&chunk).await.is_ok() {}
                }
                return;
            }
        }
    }
}

/// The next request of a connection.
async fn read(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<Heard> {
    let head_len = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..head_len].to_vec()).ok()?;
    let mut lines = head.lines();
    let path = lines.next()?.split(' ').nth(1)?.to_owned();
    let mut call = Heard {
        path,
        run: String::new(),
        slot: String::new(),
        attempt: 0,
        at_us: 0,
        answered_us: None,
        status: 0,
        headers: BTreeMap::new(),
        body: String::new(),
    };
    let mut body_len = 0;
    for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
        match name.to_ascii_lowercase().as_str() {
            "content-length" => body_len = value.parse().ok()?,
            "webhook-id" => value.clone_into(&mut call.run),
            "watchbell-scheduled-time" => value.clone_into(&mut call.slot),
            "watchbell-attempt" => call.attempt = value.parse().ok()?,
            _ => {}
        }
        call.headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    while bytes.len() < head_len + body_len {
        if stream.read_buf(bytes).await.ok()? == 0 {
            return None;
        }
    }
    call.body = String::from_utf8(bytes[head_len..head_len + body_len].to_vec()).ok()?;
    bytes.drain(..head_len + body_len);
    call.at_us = wall_us();
    Some(call)
}
