//! Seats: one for each member of the URL, with a connection to it while it is good.
//!
//! All calls go to one favourite member for as long as it answers. When it does not, it is left, rests for a
//! while, and the next one is the favourite. A balancer would do neither: it sends every so-manieth call to
//! whoever is dead. Members take turns here only before something was sent; afterwards the caller decides.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::limits::{STORE_ANSWER_MAX, STORE_CONNECT_MAX};
use etcd_client::{Channel, Client, ConnectOptions};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tonic::transport::{ClientTlsConfig, Endpoint};

use super::failure::{Failure, deepest};
use crate::{Address, Host, Secret};

/// A member that failed rests for so long at first, and at most.
const REST_MIN: Duration = Duration::from_millis(50);
const REST_MAX: Duration = Duration::from_secs(1);

/// A connection on which something was asked and nothing at all was answered for so long is stalled. Callers
/// may be less patient and give up before; this notices all the same.
const SILENCE_MAX: Duration = Duration::from_millis(1_500);

const _: () = assert!(SILENCE_MAX.as_millis() < STORE_ANSWER_MAX.as_millis());

/// etcd breaks connections that ping more often than every 5 s.
const PING_EVERY: Duration = Duration::from_secs(6);
const PONG_MAX: Duration = Duration::from_secs(2);

/// So that a page of large values needs no more round trips than one.
const STREAM_WINDOW_BYTES: u32 = 4 * 1024 * 1024;

/// All members that the URL names.
pub(super) struct Seats {
    all: Vec<Seat>,
    favourite: watch::Sender<usize>,
    user: Option<(String, Secret)>,
}

/// One member.
pub(super) struct Seat {
    host: Host,
    endpoint: Endpoint,
    /// Held by whoever connects, so that only one does.
    connecting: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

struct State {
    /// The connection and its number.
    line: Option<(u64, Client)>,
    lines: u64,
    /// Since when nothing was answered on it though something was asked.
    silent_since: Option<Instant>,
    rests_until: Option<Instant>,
    rest: Duration,
}

/// A connection to use for one call.
#[derive(Clone)]
pub(super) struct Line {
    pub(super) client: Client,
    seat: usize,
    number: u64,
}

/// What becomes of the connection of a member that is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parting {
    /// It is good, its member is not.
    Keep,
    /// It may be what is wrong.
    Drop,
}

impl Seats {
    /// Seats for all hosts; nothing is connected yet.
    pub(super) fn new(at: &Address, tls: Option<&ClientTlsConfig>) -> Result<Self, String> {
        let user = at.user.clone().map(|user| (user, at.password.clone().unwrap_or_default()));
        let all = at.hosts.iter().map(|host| Seat::new(host.clone(), tls));
        Ok(Self { all: all.collect::<Result<_, _>>()?, favourite: watch::Sender::new(0), user })
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn host(&self, seat: usize) -> &Host {
        &self.all[seat].host
    }

    pub(super) fn endpoint(&self, seat: usize) -> &Endpoint {
        &self.all[seat].endpoint
    }

    /// Tells when another member is the favourite.
    pub(super) fn favourite(&self) -> watch::Receiver<usize> {
        self.favourite.subscribe()
    }

    /// Begins with this one.
    pub(super) fn prefer(&self, seat: usize, client: Client) {
        self.all[seat].install(client);
        self.favourite.send_replace(seat);
    }

    /// A client on a connection that has come about, with a token if it needs one.
    pub(super) async fn enter(
        &self,
        channel: tonic::transport::Channel,
    ) -> Result<Client, etcd_client::Error> {
        let mut options = ConnectOptions::new().with_require_leader(true);
        if let Some((user, password)) = &self.user {
            options = options.with_user(user.clone(), password.reveal());
        }
        Client::from_channel(Channel::Tonic(channel), Some(options)).await
    }

    /// A connection to the favourite, or to the next one that can be had before `deadline`.
    pub(super) async fn take(&self, deadline: Instant) -> Result<Line, String> {
        let mut why = None;
        loop {
            let favourite = *self.favourite.borrow();
            for turn in 0..self.all.len() {
                let number = (favourite + turn) % self.all.len();
                match self.try_take(number, deadline).await {
                    Ok(Some(line)) => {
                        if turn > 0 {
                            self.favourite.send_replace(number);
                        }
                        return Ok(line);
                    }
                    Ok(None) => {}
                    Err(error) => why = Some(format!("{}: {error}", self.all[number].host)),
                }
            }
            let wake = self.all.iter().filter_map(|seat| seat.lock().rests_until).min();
            let wake = wake.unwrap_or_else(|| Instant::now() + REST_MIN);
            if wake >= deadline || Instant::now() >= deadline {
                let why = why.unwrap_or_else(|| "every member has just failed".to_owned());
                return Err(why);
            }
            sleep_until(wake).await;
        }
    }

    /// None if this one rests.
    async fn try_take(&self, number: usize, deadline: Instant) -> Result<Option<Line>, String> {
        let seat = &self.all[number];
        if let Some(line) = seat.ready(number) {
            return Ok(Some(line));
        }
        if seat.rests() {
            return Ok(None);
        }
        let Ok(_alone) = timeout_at(deadline, seat.connecting.lock()).await else {
            return Err("it takes too long to connect".to_owned());
        };
        // Somebody else may have tried meanwhile.
        if let Some(line) = seat.ready(number) {
            return Ok(Some(line));
        }
        if seat.rests() {
            return Ok(None);
        }
        match self.connect(seat, deadline).await {
            Ok(client) => {
                let number_of_line = seat.install(client.clone());
                Ok(Some(Line { client, seat: number, number: number_of_line }))
            }
            Err(why) => {
                seat.lock().take_rest();
                Err(why)
            }
        }
    }

    async fn connect(&self, seat: &Seat, deadline: Instant) -> Result<Client, String> {
        let channel = match timeout(STORE_CONNECT_MAX, seat.endpoint.connect()).await {
            Ok(Ok(channel)) => channel,
            Ok(Err(why)) => return Err(deepest(&why)),
            Err(_) => return Err("no connection came about in time".to_owned()),
        };
        match timeout_at(deadline, self.enter(channel)).await {
            Ok(Ok(client)) => Ok(client),
            Ok(Err(why)) => Err(match Failure::of(&why) {
                Failure::Elsewhere(why) | Failure::Refused(why) | Failure::Unknown(why) => why,
                _ => why.to_string(),
            }),
            Err(_) => Err("it did not check our password in time".to_owned()),
        }
    }

    /// Something is about to be asked.
    pub(super) fn asks(&self, line: &Line) {
        let mut state = self.all[line.seat].lock();
        if state.is_line(line) {
            state.silent_since.get_or_insert_with(Instant::now);
        }
    }

    /// Something was answered, if only that it could not be done.
    pub(super) fn answers(&self, line: &Line) {
        let mut state = self.all[line.seat].lock();
        if state.is_line(line) {
            state.silent_since = None;
        }
    }

    /// It did what it was asked for: whatever was wrong with it is forgotten.
    pub(super) fn praise(&self, line: &Line) {
        let mut state = self.all[line.seat].lock();
        if state.is_line(line) {
            state.silent_since = None;
            state.rests_until = None;
            state.rest = REST_MIN;
        }
    }

    /// Leaves a member that failed on this connection. Nothing happens if that was left already.
    pub(super) fn leave(&self, line: &Line, parting: Parting) {
        let mut state = self.all[line.seat].lock();
        if !state.is_line(line) {
            return;
        }
        if parting == Parting::Drop {
            state.line = None;
        }
        state.silent_since = None;
        state.take_rest();
        drop(state);
        tracing::debug!(member = %self.all[line.seat].host, ?parting, "left a member of etcd");
        self.favourite.send_if_modified(|favourite| {
            let is_left = *favourite == line.seat && self.all.len() > 1;
            if is_left {
                *favourite = (line.seat + 1) % self.all.len();
            }
            is_left
        });
    }

    /// The member at the other end.
    pub(super) fn host_of(&self, line: &Line) -> &Host {
        &self.all[line.seat].host
    }
}

impl Seat {
    fn new(host: Host, tls: Option<&ClientTlsConfig>) -> Result<Self, String> {
        let scheme = if tls.is_some() { "https" } else { "http" };
        let mut endpoint = Endpoint::from_shared(format!("{scheme}://{host}"))
            .map_err(|_| format!("{host} is no host"))?
            .connect_timeout(STORE_CONNECT_MAX)
            .http2_keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PONG_MAX)
            .keep_alive_while_idle(false)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(2 * STREAM_WINDOW_BYTES);
        if let Some(tls) = tls {
            // Without the brackets of an address.
            let tls = tls.clone().domain_name(host.name.clone());
            endpoint = endpoint.tls_config(tls).map_err(|why| deepest(&why))?;
        }
        let state =
            State { line: None, lines: 0, silent_since: None, rests_until: None, rest: REST_MIN };
        Ok(Self {
            host,
            endpoint,
            connecting: tokio::sync::Mutex::new(()),
            state: Mutex::new(state),
        })
    }

    fn install(&self, client: Client) -> u64 {
        let mut state = self.lock();
        state.lines += 1;
        let number = state.lines;
        state.line = Some((number, client));
        state.silent_since = None;
        state.rests_until = None;
        number
    }

    /// Its connection, if it has one and may be asked.
    fn ready(&self, seat: usize) -> Option<Line> {
        let mut state = self.lock();
        if state.silent_since.is_some_and(|since| since.elapsed() >= SILENCE_MAX) {
            state.line = None;
            state.silent_since = None;
            state.take_rest();
        }
        if state.is_resting() {
            return None;
        }
        let (number, client) = state.line.as_ref()?;
        Some(Line { client: client.clone(), seat, number: *number })
    }

    fn rests(&self) -> bool {
        self.lock().is_resting()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_line(&self, line: &Line) -> bool {
        self.line.as_ref().is_some_and(|(number, _)| *number == line.number)
    }

    fn is_resting(&self) -> bool {
        self.rests_until.is_some_and(|until| Instant::now() < until)
    }

    fn take_rest(&mut self) {
        self.rests_until = Some(Instant::now() + self.rest);
        self.rest = (self.rest * 2).min(REST_MAX);
    }
}
