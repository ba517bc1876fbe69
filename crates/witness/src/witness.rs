//! A witness at work: a judge behind two sockets.
//!
//! It does not matter how a tick comes. Each is judged at the moment in which it is read, under one lock, and whoever
//! waits for news is woken.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::judge::{Judge, JudgeSettings, Now};
use crate::limits::{EVENTS_AT_ONCE, STREAMS_MAX};
use crate::record::{Event, News, Record};
use crate::report::Report;
use crate::tick::{BadTick, Tick};
use crate::{clock, datagram, page};

/// How often two sockets with one number are looked for, where any number will do.
const NUMBERS_TRIED_MAX: u32 = 16;

/// What a witness is told at its start.
#[derive(Debug, Clone)]
pub struct WitnessSettings {
    /// Where to listen for requests. Port 0 takes any that is free.
    pub listen: SocketAddr,
    /// Where to listen for datagrams; at the same address and number, if it is not said.
    pub udp: Option<SocketAddr>,
    /// Nobody acts for longer than this: that is a gap.
    pub gap: Duration,
}

/// Why there is no witness.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {at}: {why}")]
pub struct ListenError {
    /// Where.
    pub at: SocketAddr,
    /// What the system says.
    #[source]
    pub why: io::Error,
}

/// A witness that listens, for as long as it is there.
#[derive(Debug)]
pub struct Witness {
    court: Arc<Court>,
    at: SocketAddr,
    udp_at: SocketAddr,
    /// Ends with it.
    _tasks: JoinSet<()>,
}

/// What all parts of a witness share.
#[derive(Debug)]
pub(crate) struct Court {
    bench: Mutex<Bench>,
    /// The number of the last event.
    news: watch::Sender<u64>,
    /// Places for those who read events.
    pub(crate) streams: Arc<Semaphore>,
}

#[derive(Debug)]
struct Bench {
    judge: Judge,
    record: Record,
}

impl Witness {
    /// Begins to listen.
    pub async fn start(settings: WitnessSettings) -> Result<Self, ListenError> {
        let (listener, socket) = listen(&settings).await?;
        let local =
            |at: io::Result<SocketAddr>| at.map_err(|why| ListenError { at: settings.listen, why });
        let (at, udp_at) = (local(listener.local_addr())?, local(socket.local_addr())?);
        let judge = JudgeSettings { gap: settings.gap, boot: clock::boot() };
        let court = Arc::new(Court::new(Judge::new(judge, now())));
        let mut tasks = JoinSet::new();
        tasks.spawn(datagram::receive(socket, Arc::clone(&court)));
        tasks.spawn(page::serve(listener, Arc::clone(&court)));
        Ok(Self { court, at, udp_at, _tasks: tasks })
    }

    /// Where it listens for requests.
    pub fn address(&self) -> SocketAddr {
        self.at
    }

    /// Where it listens for datagrams.
    pub fn udp_address(&self) -> SocketAddr {
        self.udp_at
    }

    /// All that it has seen until now.
    pub fn report(&self) -> Report {
        self.court.report()
    }

    /// A reader of all events from now on.
    pub fn reader(&self) -> EventReader {
        EventReader::new(Arc::clone(&self.court), None)
    }
}

/// Both sockets.
async fn listen(settings: &WitnessSettings) -> Result<(TcpListener, UdpSocket), ListenError> {
    let mut tries = 1;
    loop {
        let at = settings.listen;
        let listener = TcpListener::bind(at).await.map_err(|why| ListenError { at, why })?;
        let here = listener.local_addr().map_err(|why| ListenError { at, why })?;
        let at = settings.udp.unwrap_or(here);
        match UdpSocket::bind(at).await {
            Ok(socket) => return Ok((listener, socket)),
            // Another program has the number that we were given for the other kind of socket.
            Err(_)
                if at.port() != 0 && settings.listen.port() == 0 && tries < NUMBERS_TRIED_MAX =>
            {
                tries += 1;
            }
            Err(why) => return Err(ListenError { at, why }),
        }
    }
}

fn now() -> Now {
    Now { since_boot: clock::since_boot(), wall: clock::wall() }
}

impl Court {
    fn new(judge: Judge) -> Self {
        Self {
            bench: Mutex::new(Bench { judge, record: Record::default() }),
            news: watch::Sender::new(0),
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
        }
    }

    /// Takes what may be a tick.
    pub(crate) fn hear(&self, bytes: &[u8]) -> Result<(), BadTick> {
        let read = Tick::read(bytes);
        let mut bench = self.bench.lock();
        let tick = match read {
            Ok(tick) => tick,
            Err(why) => {
                bench.judge.refuse();
                return Err(why);
            }
        };
        let happenings = bench.judge.hear(&tick, now());
        bench.record.push(Event::Tick(tick));
        for happening in happenings {
            bench.record.push(Event::Happening(happening));
        }
        self.news.send_replace(bench.record.last());
        Ok(())
    }

    /// Something came that is too long to be looked at.
    pub(crate) fn refuse(&self) {
        self.bench.lock().judge.refuse();
    }

    pub(crate) fn report(&self) -> Report {
        self.bench.lock().judge.report(now())
    }
}

/// Some events in a row.
#[derive(Debug, Clone, PartialEq)]
pub enum Events {
    /// Some were missed that are not kept any more.
    Missed,
    /// These, with their numbers.
    Some(Vec<(u64, Arc<Event>)>),
}

/// Somebody who reads events.
#[derive(Debug)]
pub struct EventReader {
    court: Arc<Court>,
    place: u64,
    news: watch::Receiver<u64>,
}

impl EventReader {
    /// One who has read all up to this number; else all that there is.
    pub(crate) fn new(court: Arc<Court>, place: Option<u64>) -> Self {
        let news = court.news.subscribe();
        let place = place.unwrap_or_else(|| *news.borrow());
        Self { court, place, news }
    }

    /// The number of the last event that was read.
    pub fn place(&self) -> u64 {
        self.place
    }

    /// Waits for the next events. Nothing is lost if it is dropped while it waits.
    pub async fn next(&mut self) -> Events {
        loop {
            self.news.borrow_and_update();
            if let Some(events) = self.take() {
                return events;
            }
            // The other end is in the court, which this reader keeps.
            let _ = self.news.changed().await;
        }
    }

    /// The next events that are there already.
    pub fn take(&mut self) -> Option<Events> {
        match self.court.bench.lock().record.after(self.place, EVENTS_AT_ONCE) {
            News::Lost(place) => {
                self.place = place;
                Some(Events::Missed)
            }
            News::Events(events) => {
                self.place = events.last()?.0;
                Some(Events::Some(events))
            }
        }
    }
}
