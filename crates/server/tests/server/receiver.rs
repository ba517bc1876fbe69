//! A receiver of webhooks on a free port of this machine, which does as it is told.
//!
//! It records each request and says so, so that tests wait for arrivals and never for time. It speaks HTTP/1.1 by
//! hand, because good servers refuse to misbehave; HTTP/2 only to answer.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use store::clock::Stopwatch;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// How a receiver behaves.
#[derive(Clone)]
pub(crate) enum Manner {
    /// Answers with these bytes: see [`answer`].
    Answer(Vec<u8>),
    /// Answers 200 to each request for which there is a permit, and waits for one.
    Permitted(Arc<Semaphore>),
    /// Takes requests and never answers.
    Silent,
    /// Answers 200 and then sends a body for ever, quickly.
    Floods,
    /// Answers 200 and a few bytes, and never ends.
    Stalls,
    /// Sends headers for ever.
    EndlessHead,
    /// Closes the connection instead of answering.
    Closes,
    /// Answers 200 as if the connection were to be kept, and closes it.
    AnswersAndCloses,
}

/// A whole answer.
pub(crate) fn answer(status: u16, headers: &[(&str, &str)], body: &[u8]) -> Manner {
    let headers = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
    let (headers, len) = (headers.collect::<String>(), body.len());
    let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {len}\r\n{headers}\r\n");
    Manner::Answer([head.as_bytes(), body].concat())
}

/// A request, as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Names in lower case, in the order of arrival.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// The number of its connection.
    pub(crate) connection: usize,
    /// Since the receiver's start.
    #[expect(dead_code, reason = "for tests of lateness")]
    pub(crate) arrived: Duration,
}

impl Received {
    /// The value of a header that is there once.
    #[track_caller]
    pub(crate) fn header(&self, name: &str) -> &str {
        let mut found = self.headers.iter().filter(|(known, _)| known == name);
        let value = found.next().unwrap_or_else(|| panic!("no header {name}: {self:?}"));
        assert!(found.next().is_none(), "{name} is there twice");
        &value.1
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.headers.iter().any(|(known, _)| known == name)
    }
}

/// A running receiver; gone when dropped.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    arrivals: Mutex<mpsc::UnboundedReceiver<Received>>,
    counts: Arc<Counts>,
    _tasks: JoinSet<()>,
}

#[derive(Default)]
struct Counts {
    connections: AtomicUsize,
    requests: AtomicUsize,
    /// Requests that arrived and are not answered.
    open: AtomicUsize,
    open_max: AtomicUsize,
}

/// What each connection works with.
#[derive(Clone)]
struct Shared {
    manner: Manner,
    told: mpsc::UnboundedSender<Received>,
    counts: Arc<Counts>,
    started: Stopwatch,
}

impl Receiver {
    pub(crate) async fn start(manner: Manner) -> Self {
        Self::listen(manner, None).await
    }

    /// With TLS. Speaks HTTP/2 if the configuration offers it; then it answers 200 and that is all.
    pub(crate) async fn start_tls(manner: Manner, config: Arc<ServerConfig>) -> Self {
        Self::listen(manner, Some(TlsAcceptor::from(config))).await
    }

    async fn listen(manner: Manner, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a free port");
        let address = listener.local_addr().expect("it is bound");
        let (told, arrivals) = mpsc::unbounded_channel();
        let counts = Arc::new(Counts::default());
        let shared =
            Shared { manner, told, counts: Arc::clone(&counts), started: Stopwatch::start() };
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let number = shared.counts.connections.fetch_add(1, Ordering::Relaxed);
                connections.spawn(connection(stream, number, tls.clone(), shared.clone()));
                while connections.try_join_next().is_some() {}
            }
        });
        Self { address, arrivals: Mutex::new(arrivals), counts, _tasks: tasks }
    }

    /// A URL of this receiver.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The next request that arrives.
    pub(crate) async fn next(&self) -> Received {
        let mut arrivals = self.arrivals.lock().await;
        let next = tokio::time::timeout(Duration::from_secs(30), arrivals.recv()).await;
        next.expect("a request arrives within 30 s").expect("the receiver runs")
    }

    /// Requests that have arrived so far.
    pub(crate) fn requests(&self) -> usize {
        self.counts.requests.load(Ordering::Relaxed)
    }

    /// Connections that were made so far.
    pub(crate) fn connections(&self) -> usize {
        self.counts.connections.load(Ordering::Relaxed)
    }

    /// The most requests that were there at once.
    pub(crate) fn open_max(&self) -> usize {
        self.counts.open_max.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn tell(&self, received: Received) {
        self.counts.requests.fetch_add(1, Ordering::Relaxed);
        let open = self.counts.open.fetch_add(1, Ordering::Relaxed) + 1;
        self.counts.open_max.fetch_max(open, Ordering::Relaxed);
        self.told.send(received).ok();
    }

    fn close(&self) {
        self.counts.open.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn connection(stream: TcpStream, number: usize, tls: Option<TlsAcceptor>, shared: Shared) {
    let Some(tls) = tls else {
        serve(stream, number, shared).await.ok();
        return;
    };
    let Ok(stream) = tls.accept(stream).await else { return };
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        serve_two(TokioIo::new(stream), number, shared).await;
    } else {
        serve(stream, number, shared).await.ok();
    }
}

/// HTTP/1.1, by hand.
async fn serve<S>(mut stream: S, number: usize, shared: Shared) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        let Some(received) = read(&mut stream, number, &shared).await? else { return Ok(()) };
        shared.tell(received);
        match &shared.manner {
            Manner::Answer(bytes) => {
                shared.close();
                stream.write_all(bytes).await?;
            }
            Manner::Permitted(permits) => {
                permits.acquire().await.expect("it is never closed").forget();
                shared.close();
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await?;
            }
            Manner::Silent => {
                // Until the caller hangs up.
                let mut rest = [0; 64];
                while stream.read(&mut rest).await? > 0 {}
                return Ok(());
            }
            Manner::Floods => {
                stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
                loop {
                    stream.write_all(&[b'x'; 4096]).await?;
                }
            }
            Manner::Stalls => {
                stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nbegin").await?;
                std::future::pending::<()>().await;
            }
            Manner::EndlessHead => {
                stream.write_all(b"HTTP/1.1 200 OK\r\n").await?;
                loop {
                    stream.write_all(b"x: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n").await?;
                }
            }
            Manner::Closes => return Ok(()),
            Manner::AnswersAndCloses => {
                shared.close();
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await?;
                return Ok(());
            }
        }
    }
}

/// A request, or nothing if the caller hung up before one.
async fn read<S>(stream: &mut S, number: usize, shared: &Shared) -> io::Result<Option<Received>>
where
    S: AsyncRead + Unpin,
{
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read(&mut byte).await? == 0 {
            return Ok(None);
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).expect("heads are ASCII");
    let mut lines = head.trim_end().split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ').map(str::to_owned);
    let (method, path) = (words.next().expect("a method"), words.next().expect("a path"));
    let headers: Vec<(String, String)> = lines
        .map(|line| line.split_once(": ").expect("a header has a colon"))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let len = headers.iter().find(|(name, _)| name == "content-length");
    let len = len.map_or(0, |(_, len)| len.parse().expect("a length is a number"));
    let mut body = vec![0; len];
    stream.read_exact(&mut body).await?;
    let arrived = shared.started.elapsed();
    Ok(Some(Received { method, path, headers, body, connection: number, arrived }))
}

/// HTTP/2, which answers 200.
async fn serve_two<S>(stream: TokioIo<S>, number: usize, shared: Shared)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let shared = shared.clone();
        async move {
            let (head, body) = request.into_parts();
            let text = |value: &hyper::header::HeaderValue| {
                value.to_str().expect("values are ASCII").to_owned()
            };
            let headers = head.headers.iter();
            shared.tell(Received {
                method: head.method.to_string(),
                path: head.uri.to_string(),
                headers: headers.map(|(name, value)| (name.to_string(), text(value))).collect(),
                body: body.collect().await?.to_bytes().to_vec(),
                connection: number,
                arrived: shared.started.elapsed(),
            });
            shared.close();
            hyper::Result::Ok(hyper::Response::new(Full::new(bytes::Bytes::from_static(b"two"))))
        }
    });
    let builder = hyper::server::conn::http2::Builder::new(InPlace::default());
    builder.serve_connection(stream, service).await.ok();
}

/// Runs the tasks of an HTTP/2 connection until it is dropped.
#[derive(Clone, Default)]
struct InPlace {
    tasks: Arc<std::sync::Mutex<JoinSet<()>>>,
}

impl<F: Future + Send + 'static> hyper::rt::Executor<F> for InPlace {
    fn execute(&self, task: F) {
        self.tasks.lock().expect("nothing panics here").spawn(async move {
            task.await;
        });
    }
}
