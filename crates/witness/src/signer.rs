//! A signer: the program that must not run twice, for tests and demonstrations.
//!
//! It makes a tick every so often and sends it to a witness. A tick that cannot leave at once is dropped, and its number
//! is missing: what a signer did before it was stopped may not look as if it did it when it went on. So it keeps at most
//! one tick that is on its way, and makes none up for the time in which it was stopped.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use crate::limits::{ANSWER_TIME_MAX, BACK_AFTER};
use crate::tick::{BadTick, Made, Tick};
use crate::{clock, entropy};

/// What a signer is told at its start.
#[derive(Debug, Clone)]
pub struct SignerSettings {
    /// The witness: a name or an address, and a port.
    pub witness: String,
    /// How ticks travel.
    pub road: Road,
    /// Between two of them.
    pub every: Duration,
    /// Under which hold it runs.
    pub hold: String,
    /// On which node.
    pub node: String,
    /// Under which token.
    pub token: u64,
}

/// How ticks travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Road {
    /// As datagrams.
    Udp,
    /// As requests, one at a time.
    Http,
}

/// Whether the witness is there, when that changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Contact {
    /// It is away, for this reason. The signer goes on.
    Away(String),
    /// It is there again.
    Back,
}

/// Who makes ticks.
#[derive(Debug)]
pub struct Signer {
    tick: Tick,
    boot: Option<String>,
}

impl Signer {
    /// A new instance, if no witness would refuse its ticks.
    pub fn new(settings: &SignerSettings) -> Result<Self, BadTick> {
        let tick = Tick {
            hold: settings.hold.clone(),
            node: settings.node.clone(),
            instance: entropy::instance(),
            token: settings.token,
            sequence: 0,
            made: None,
            wall: None,
        };
        let mut signer = Self { tick, boot: clock::boot() };
        signer.act().check()?;
        signer.tick.sequence = 0;
        Ok(signer)
    }

    /// Which instance it is.
    pub fn instance(&self) -> &str {
        &self.tick.instance
    }

    /// Acts: makes a tick, of this moment.
    pub fn act(&mut self) -> Tick {
        self.tick.sequence += 1;
        self.tick.wall = Some(clock::wall());
        self.tick.made = self.boot.clone().map(|boot| {
            let micros = clock::since_boot().as_micros();
            Made { boot, since_boot_us: u64::try_from(micros).unwrap_or(u64::MAX) }
        });
        self.tick.clone()
    }
}

/// Signs for as long as it is not dropped, and says when the witness goes away and comes back.
pub async fn sign(mut signer: Signer, settings: &SignerSettings, mut say: impl FnMut(Contact)) {
    let mut every = interval(settings.every);
    // After a stop there is one tick at once, and no other for the time in between.
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut waiting = Some(Post::new(settings));
    let mut under_way: Option<UnderWay> = None;
    // When the witness last seemed to be away, for as long as it does.
    let mut away: Option<Instant> = None;
    loop {
        let sent = tokio::select! {
            biased;
            (post, sent) = arrived(&mut under_way) => {
                under_way = None;
                waiting = Some(post);
                sent
            }
            _ = every.tick() => {
                let tick = signer.act();
                // What is still on its way is not waited for.
                if let Some(post) = waiting.take() {
                    under_way = Some(Box::pin(post.send(tick)));
                }
                continue;
            }
        };
        match (sent, away) {
            (Ok(()), Some(since)) if since.elapsed() > back_after(settings.every) => {
                away = None;
                say(Contact::Back);
            }
            (Ok(()), _) => {}
            (Err(why), since) => {
                away = Some(Instant::now());
                if since.is_none() {
                    say(Contact::Away(why.to_string()));
                }
            }
        }
    }
}

/// For how long nothing goes wrong before the witness counts as there again: that a datagram reached nobody is told
/// with a later one, if at all.
fn back_after(every: Duration) -> Duration {
    BACK_AFTER.max(every * 3)
}

type UnderWay = Pin<Box<dyn Future<Output = (Post, io::Result<()>)> + Send>>;

async fn arrived(under_way: &mut Option<UnderWay>) -> (Post, io::Result<()>) {
    match under_way {
        Some(sending) => sending.await,
        None => std::future::pending().await,
    }
}

/// What carries ticks.
struct Post {
    witness: String,
    road: Road,
    link: Option<Link>,
}

/// A way to the witness that has worked.
enum Link {
    Datagrams(UdpSocket),
    Requests { sender: SendRequest<Full<Bytes>>, _connection: JoinSet<()> },
}

impl Post {
    fn new(settings: &SignerSettings) -> Self {
        Self { witness: settings.witness.clone(), road: settings.road, link: None }
    }

    /// Sends a tick. What does not leave in time is dropped, with the way that it should have gone.
    async fn send(mut self, tick: Tick) -> (Self, io::Result<()>) {
        let sent = timeout(ANSWER_TIME_MAX, self.try_send(&tick)).await;
        let sent = sent.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let is_of_no_use = match (&sent, &self.link) {
            (Ok(()), _) => false,
            // Nobody listens there now; whoever does later is reached by the same socket.
            (Err(why), Some(Link::Datagrams(_))) => why.kind() != io::ErrorKind::ConnectionRefused,
            (Err(_), Some(Link::Requests { .. }) | None) => true,
        };
        if is_of_no_use {
            self.link = None;
        }
        (self, sent)
    }

    async fn try_send(&mut self, tick: &Tick) -> io::Result<()> {
        let link = match self.link.take() {
            Some(link) => link,
            None => self.connect().await?,
        };
        let link = self.link.insert(link);
        match link {
            Link::Datagrams(socket) => match socket.send(tick.json().as_bytes()) {
                Ok(_) => Ok(()),
                // There is no room for it: it is one of those that are lost.
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => Ok(()),
                // That is about a tick before, and takes the place of this one unless it is sent once more.
                Err(why) if why.kind() == io::ErrorKind::ConnectionRefused => {
                    let _ = socket.send(tick.json().as_bytes());
                    Err(why)
                }
                Err(why) => Err(why),
            },
            Link::Requests { sender, .. } => post(sender, &self.witness, tick).await,
        }
    }

    async fn connect(&self) -> io::Result<Link> {
        let mut wrong = io::Error::from(io::ErrorKind::NotFound);
        for at in tokio::net::lookup_host(&self.witness).await? {
            let link = match self.road {
                Road::Udp => datagrams(at),
                Road::Http => requests(at).await,
            };
            match link {
                Ok(link) => return Ok(link),
                Err(why) => wrong = why,
            }
        }
        Err(wrong)
    }
}

fn datagrams(at: SocketAddr) -> io::Result<Link> {
    let any = if at.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any)?;
    socket.set_nonblocking(true)?;
    // So that the system tells when nobody listens there.
    socket.connect(at)?;
    Ok(Link::Datagrams(socket))
}

async fn requests(at: SocketAddr) -> io::Result<Link> {
    let stream = TcpStream::connect(at).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let mut driving = JoinSet::new();
    driving.spawn(async move {
        // Whoever sends by it is told what is wrong with it.
        let _ = connection.await;
    });
    Ok(Link::Requests { sender, _connection: driving })
}

async fn post(sender: &mut SendRequest<Full<Bytes>>, witness: &str, tick: &Tick) -> io::Result<()> {
    let request = Request::builder()
        .method(Method::POST)
        .uri("/ticks")
        .header(HOST, witness)
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(tick.json())))
        .map_err(io::Error::other)?;
    sender.ready().await.map_err(io::Error::other)?;
    let answer = sender.send_request(request).await.map_err(io::Error::other)?;
    let status = answer.status();
    // The connection is used again once its answer has been read.
    answer.into_body().collect().await.map_err(io::Error::other)?;
    if status.is_success() {
        return Ok(());
    }
    Err(io::Error::other(format!("it answers {status}")))
}
