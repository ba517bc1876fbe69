//! The dispatcher beside a bare loop over hyper that sends the same bytes, in turns, in one run.
//!
//! The receiver is a process of its own, so that the processor time is that of the sending side alone: for the
//! dispatcher that of its sender thread and of the thread that gives it calls and takes their ends, for the bare
//! loop that of its one thread. Both have one host and as many connections as a host may have. On a busy machine
//! the rate says little, and the processor time per call says what there is to say.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use engine::webhook::{Method, Webhook};
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::client::conn::http1;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper_util::rt::TokioIo;
use rustix::time::{ClockId, clock_gettime};
use server::webhook::{Call, Config, Dispatcher, FinishedCall};
use store::machine::{Machine, System};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;

const CONNECTIONS: usize = 64;
/// Calls that the dispatcher has at once, waiting ones included.
const WAITING: usize = 1_024;
const CALLS: usize = 150_000;
const ROUNDS: usize = 3;
const PATH: &str = "/hooks/orders/refresh?source=watchbell";
const BODY: &str = r#"{"order":"refresh","since":"yesterday","limit":500}"#;
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\nok";

/// What it took to make the calls.
struct Took {
    elapsed: Duration,
    processor: Duration,
}

/// All of it.
pub fn webhooks() {
    println!("{CALLS} webhooks of {} bytes over {CONNECTIONS} connections", sample().len());
    let mut receiver = Receiver::start();
    let ours = Ours::start();
    // Connections are made and windows opened before anything is measured.
    bare(receiver.address, CALLS / 10);
    ours.call(receiver.address, CALLS / 10);
    for _ in 0..ROUNDS {
        let bare = bare(receiver.address, CALLS);
        print("bare hyper loop", &bare);
        let ours = ours.call(receiver.address, CALLS);
        print("dispatcher", &ours);
        println!(
            "  {:<22} {:>9.2} of its rate, {:.2} of its processor time",
            "the dispatcher has",
            bare.elapsed.as_secs_f64() / ours.elapsed.as_secs_f64(),
            ours.processor.as_secs_f64() / bare.processor.as_secs_f64()
        );
    }
    receiver.stop();
}

fn print(name: &str, took: &Took) {
    println!(
        "  {name:<22} {:>9.0}/s   {:>6.1} µs of processor time per call",
        CALLS as f64 / took.elapsed.as_secs_f64(),
        took.processor.as_secs_f64() * 1e6 / CALLS as f64
    );
}

fn measure(work: impl FnOnce()) -> Took {
    let processor =
        || Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).expect("it counts up");
    let (clock, before) = (Instant::now(), processor());
    work();
    Took { elapsed: clock.elapsed(), processor: processor() - before }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// A loop per connection, all of them on this thread.
fn bare(address: SocketAddr, calls: usize) -> Took {
    let headers = headers(&sample());
    measure(|| {
        runtime().block_on(async {
            let mut loops = tokio::task::JoinSet::new();
            for _ in 0..CONNECTIONS {
                loops.spawn(bare_loop(address, headers.clone(), calls / CONNECTIONS));
            }
            loops.join_all().await;
        });
    })
}

async fn bare_loop(address: SocketAddr, headers: HeaderMap, calls: usize) {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (mut sender, driver) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    let mut drivers = tokio::task::JoinSet::new();
    drivers.spawn(driver);
    for _ in 0..calls {
        let mut request = Request::new(Full::new(Bytes::from_static(BODY.as_bytes())));
        *request.method_mut() = hyper::Method::POST;
        *request.uri_mut() = PATH.parse().unwrap();
        *request.headers_mut() = headers.clone();
        sender.ready().await.unwrap();
        let answer = sender.send_request(request).await.unwrap();
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "ok");
    }
}

/// The dispatcher, and the thread that gives it calls.
struct Ours {
    dispatcher: Dispatcher,
    results: std::cell::RefCell<mpsc::UnboundedReceiver<FinishedCall>>,
}

impl Ours {
    fn start() -> Self {
        let mut config = Config::new(Arc::new(|| true));
        config.senders = 1;
        config.per_host_max = CONNECTIONS;
        config.allow = vec!["127.0.0.1".parse().unwrap()];
        let machine: Arc<dyn Machine> = Arc::new(System);
        let (told, results) = mpsc::unbounded_channel();
        let dispatcher = Dispatcher::start(&config, &machine, &told).unwrap();
        Self { dispatcher, results: results.into() }
    }

    fn call(&self, address: SocketAddr, calls: usize) -> Took {
        let form = webhook(address).form;
        let mut results = self.results.borrow_mut();
        measure(|| {
            let mut sent = 0;
            let mut send = || {
                sent += 1;
                self.dispatcher.send(call(sent, &form));
                sent
            };
            for _ in 0..WAITING.min(calls) {
                send();
            }
            let mut batch = Vec::with_capacity(WAITING);
            let mut ended = 0;
            while ended < calls {
                results.blocking_recv_many(&mut batch, WAITING);
                for finished in batch.drain(..) {
                    let response = finished.response.expect("an answer");
                    assert_eq!((response.status, &*response.body), (200, &b"ok"[..]));
                    ended += 1;
                    if ended + WAITING <= calls {
                        send();
                    }
                }
            }
        })
    }
}

fn webhook(address: SocketAddr) -> Webhook {
    let key = ("x-api-key".to_owned(), "0123456789abcdef0123456789abcdef".to_owned());
    let url = format!("http://{address}{PATH}");
    let timeout = Duration::from_secs(15);
    Webhook::new(&url, Method::Post, vec![key], None, Some(BODY.to_owned()), timeout).unwrap()
}

fn call(number: usize, form: &Arc<engine::webhook::Form>) -> Call {
    Call {
        key: number as u64,
        project: engine::id::ProjectId::DEFAULT,
        run: format!("run_0007_1hz8k2m4q6_{number:012}_abcde").into(),
        attempt: 1,
        scheduled: engine::instant::Instant(1_800_000_000_000 + number as i64),
        leave_by: None,
        token: 1_800_000_000_000_000,
        form: Arc::clone(form),
        path: PATH.into(),
        body: Some(Bytes::from_static(BODY.as_bytes())),
    }
}

/// The head of a request as the dispatcher writes it, with the empty line that ends it.
fn sample() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = Ours::start();
    ours.dispatcher.send(call(0, &webhook(listener.local_addr().unwrap()).form));
    let mut stream = BufReader::new(listener.accept().unwrap().0);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        stream.read_line(&mut head).unwrap();
    }
    head
}

fn headers(head: &str) -> HeaderMap {
    let lines = head.lines().skip(1).filter_map(|line| line.split_once(": "));
    lines
        .map(|(name, value)| {
            (HeaderName::try_from(name).unwrap(), HeaderValue::try_from(value).unwrap())
        })
        .collect()
}

/// A process that answers.
struct Receiver {
    child: Child,
    address: SocketAddr,
}

impl Receiver {
    fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg("receive")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, address: line.trim().parse().unwrap() }
    }

    fn stop(&mut self) {
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
    }
}

/// Answers whatever comes in one piece and has the body of ours, until its standard input ends.
pub fn receive() {
    std::thread::spawn(|| {
        runtime().block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            println!("{}", listener.local_addr().unwrap());
            std::io::stdout().flush().unwrap();
            let mut tasks = tokio::task::JoinSet::new();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                tasks.spawn(async move {
                    let mut held = Vec::with_capacity(8_192);
                    while stream.read_buf(&mut held).await.is_ok_and(|read| read > 0) {
                        if held.ends_with(BODY.as_bytes()) {
                            held.clear();
                            if stream.write_all(ANSWER).await.is_err() {
                                return;
                            }
                        }
                    }
                });
            }
        });
    });
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}
