//! The bare loop: the same bytes to the same receiver by the same HTTP client, with nothing behind it.
//!
//! No schedule, no store, no queue, no limits, no judgement of addresses: what is left is what sending costs on
//! this machine. One thread per core, each with some of the connections, and each connection sends the next
//! request when it has the answer to the last.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, USER_AGENT};
use hyper::{Method, Request, Uri};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use store::clock::Stopwatch;
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::args::BareArgs;
use super::child::Child;
use super::crowd;
use super::usage::Look;
use crate::triggers::Ending;

/// What the loop did.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Sent {
    pub(super) count: u64,
    pub(super) elapsed_us: u64,
    /// Time of the processor that it took.
    pub(super) cpu_us: u64,
}

/// When the loop stops.
pub(super) enum Until {
    Seconds(u64),
    Requests(u64),
}

/// Runs the loop in a process of its own.
pub(super) async fn measure(
    hosts: &[SocketAddr],
    action_bytes: u16,
    until: Until,
) -> Result<Sent, Ending> {
    let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
    let (flag, value) = match until {
        Until::Seconds(seconds) => ("--seconds", seconds),
        Until::Requests(requests) => ("--requests", requests),
    };
    let (to, bytes, value) = (hosts.join(","), action_bytes.to_string(), value.to_string());
    let args = ["triggers", "bare", "--to", &to, "--action-bytes", &bytes, flag, &value];
    let mut child = Child::of_ours("bare loop", &args.map(str::to_owned))?;
    let line = child.line().await?;
    child.stop().await?;
    serde_json::from_str(&line)
        .map_err(|why| Ending::failed(format!("the bare loop failed: {line} ({why})")))
}

/// Runs the loop, and prints what it did.
pub(super) fn run(typed: &BareArgs) -> Result<(), Ending> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let connections = typed.connections.max(threads);
    let run = Arc::new(Run {
        to: typed.to.clone(),
        action_bytes: typed.action_bytes,
        length: Duration::from_secs(typed.seconds),
        left: AtomicU64::new(typed.requests),
        count: AtomicU64::new(0),
        // All begin together, when the last is connected.
        begin: Barrier::new(connections),
        begun: OnceLock::new(),
    });
    let mut working = Vec::new();
    for number in 0..threads {
        let run = Arc::clone(&run);
        let share: Vec<usize> = (number..connections).step_by(threads).collect();
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        let thread = thread::Builder::new().name(format!("bare-{number}"));
        working.push(thread.spawn(move || runtime.block_on(run.all(share)))?);
    }
    for thread in working {
        let ended = thread.join().map_err(|_| Ending::failed("the bare loop failed"))?;
        ended.map_err(|why| Ending::failed(format!("the bare loop failed: {why}")))?;
    }
    let (watch, before) =
        run.begun.get().ok_or_else(|| Ending::failed("the bare loop never began"))?;
    let elapsed = watch.elapsed();
    let used = Look::at(&[std::process::id()]).since(before);
    let sent = Sent {
        count: run.count.load(Relaxed),
        elapsed_us: u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX),
        cpu_us: used.processes_us.iter().sum(),
    };
    let text = serde_json::to_string(&sent).expect("a plain struct always serializes");
    Ok(writeln!(io::stdout(), "{text}")?)
}

struct Run {
    to: Vec<SocketAddr>,
    action_bytes: u16,
    length: Duration,
    left: AtomicU64,
    count: AtomicU64,
    begin: Barrier,
    /// Since the first of them began.
    begun: OnceLock<(Stopwatch, Look)>,
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

impl Run {
    /// Some of the connections, on one thread.
    async fn all(self: Arc<Self>, share: Vec<usize>) -> Result<(), Failure> {
        let mut loops = JoinSet::new();
        for number in share {
            loops.spawn(Arc::clone(&self).one(number));
        }
        while let Some(ended) = loops.join_next().await {
            ended??;
        }
        Ok(())
    }

    /// One connection.
    async fn one(self: Arc<Self>, number: usize) -> Result<(), Failure> {
        let to = self.to[number % self.to.len()];
        let stream = TcpStream::connect(to).await?;
        stream.set_nodelay(true)?;
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
        let mut driver = JoinSet::new();
        driver.spawn(connection);
        let number = u32::try_from(number)?;
        let body = Bytes::from(crowd::body(number, self.action_bytes));
        let headers = headers(to, body.len())?;
        let uri: Uri = crowd::path(number).parse()?;
        self.begin.wait().await;
        let begin = || (Stopwatch::start(), Look::at(&[std::process::id()]));
        let (watch, _) = self.begun.get_or_init(begin);
        while watch.elapsed() < self.length && self.take() {
            let mut request = Request::new(Full::new(body.clone()));
            *request.method_mut() = Method::POST;
            *request.uri_mut() = uri.clone();
            *request.headers_mut() = headers.clone();
            exchange(&mut sender, request).await?;
            self.count.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    /// Whether there is another request to be sent.
    fn take(&self) -> bool {
        self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
    }
}

async fn exchange(
    sender: &mut SendRequest<Full<Bytes>>,
    request: Request<Full<Bytes>>,
) -> Result<(), Failure> {
    sender.ready().await?;
    let answer = sender.send_request(request).await?;
    if answer.status() != 200 {
        return Err(format!("the receiver said {}", answer.status()).into());
    }
    answer.into_body().collect().await?;
    Ok(())
}

/// The headers that a webhook has, with values as long as its own.
fn headers(to: SocketAddr, body_len: usize) -> Result<HeaderMap, Failure> {
    let mut headers = HeaderMap::new();
    headers.insert(HOST, HeaderValue::from_str(&to.to_string())?);
    for (name, value) in [
        ("webhook-id", "run_00f0d3k8w1v2m7qa1hq2k4w80ab3kx"),
        ("idempotency-key", "run_00f0d3k8w1v2m7qa1hq2k4w80ab3kx"),
        ("webhook-timestamp", "1806195600"),
        ("watchbell-scheduled-time", "2027-03-28T01:00:00Z"),
        ("watchbell-attempt", "1"),
        ("watchbell-token", "1806195600000000"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let ours = concat!("watchbell/", env!("CARGO_PKG_VERSION"));
    headers.insert(USER_AGENT, HeaderValue::from_static(ours));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CONTENT_LENGTH, body_len.into());
    Ok(headers)
}
