//! The members of the etcd cluster that the URL names, each with a connection to it while that is good.
//!
//! All calls go to one favourite member for as long as it answers. When it does not, it rests for a while, and the
//! next member is the favourite. A balancer would go on sending every third call to a dead member of three. Another
//! member is tried here only before something was sent; afterwards the caller decides.

use std::time::Duration;

use engine::limits::{STORE_ANSWER_MAX, STORE_CONNECT_MAX};
use etcd_client::{Channel, Client, ConnectOptions};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tonic::transport::{ClientTlsConfig, Endpoint};

use super::failure::{EtcdFailure, deepest};
use crate::{Address, StoreHost, StoreSecret};

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
pub(super) struct EtcdMembers {
    all: Vec<EtcdMember>,
    favourite: watch::Sender<usize>,
    user: Option<(String, StoreSecret)>,
}

/// One member, and the connection to it.
pub(super) struct EtcdMember {
    host: StoreHost,
    endpoint: Endpoint,
    /// Locked while somebody connects, so that nobody else does.
    connecting: tokio::sync::Mutex<()>,
    state: Mutex<MemberState>,
}

struct MemberState {
    /// The connection and its number.
    connection: Option<(u64, Client)>,
    connections: u64,
    /// Since when nothing was answered on it though something was asked.
    silent_since: Option<Instant>,
    rests_until: Option<Instant>,
    rest: Duration,
}

/// A connection to use for one call.
#[derive(Clone)]
pub(super) struct MemberConnection {
    pub(super) client: Client,
    member: usize,
    number: u64,
}

/// What becomes of the connection of a member that is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionFate {
    /// It is good, its member is not.
    Keep,
    /// It may be what is wrong.
    Drop,
}

impl EtcdMembers {
    /// All hosts of the URL; nothing is connected yet.
    pub(super) fn new(at: &Address, tls: Option<&ClientTlsConfig>) -> Result<Self, String> {
        let user = at.user.clone().map(|user| (user, at.password.clone().unwrap_or_default()));
        let all = at.hosts.iter().map(|host| EtcdMember::new(host.clone(), tls));
        Ok(Self { all: all.collect::<Result<_, _>>()?, favourite: watch::Sender::new(0), user })
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn host(&self, member: usize) -> &StoreHost {
        &self.all[member].host
    }

    pub(super) fn endpoint(&self, member: usize) -> &Endpoint {
        &self.all[member].endpoint
    }

    /// Tells when another member is the favourite.
    pub(super) fn favourite(&self) -> watch::Receiver<usize> {
        self.favourite.subscribe()
    }

    /// Makes this member the favourite.
    pub(super) fn prefer(&self, member: usize, client: Client) {
        self.all[member].install(client);
        self.favourite.send_replace(member);
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
    pub(super) async fn take(&self, deadline: Instant) -> Result<MemberConnection, String> {
        let mut why = None;
        loop {
            let favourite = *self.favourite.borrow();
            for ahead in 0..self.all.len() {
                let number = (favourite + ahead) % self.all.len();
                match self.try_take(number, deadline).await {
                    Ok(Some(connection)) => {
                        if ahead > 0 {
                            self.favourite.send_replace(number);
                        }
                        return Ok(connection);
                    }
                    Ok(None) => {}
                    Err(error) => why = Some(format!("{}: {error}", self.all[number].host)),
                }
            }
            let wake = self.all.iter().filter_map(|member| member.state.lock().rests_until).min();
            let wake = wake.unwrap_or_else(|| Instant::now() + REST_MIN);
            if wake >= deadline || Instant::now() >= deadline {
                let why = why.unwrap_or_else(|| "every member has just failed".to_owned());
                return Err(why);
            }
            sleep_until(wake).await;
        }
    }

    /// A connection to this member; `None` while it rests.
    async fn try_take(
        &self,
        number: usize,
        deadline: Instant,
    ) -> Result<Option<MemberConnection>, String> {
        let member = &self.all[number];
        if let Some(connection) = member.ready(number) {
            return Ok(Some(connection));
        }
        if member.rests() {
            return Ok(None);
        }
        let Ok(_alone) = timeout_at(deadline, member.connecting.lock()).await else {
            return Err("it takes too long to connect".to_owned());
        };
        // Somebody else may have tried meanwhile.
        if let Some(connection) = member.ready(number) {
            return Ok(Some(connection));
        }
        if member.rests() {
            return Ok(None);
        }
        match self.connect(member, deadline).await {
            Ok(client) => {
                let connection_number = member.install(client.clone());
                Ok(Some(MemberConnection { client, member: number, number: connection_number }))
            }
            Err(why) => {
                member.state.lock().take_rest();
                Err(why)
            }
        }
    }

    async fn connect(&self, member: &EtcdMember, deadline: Instant) -> Result<Client, String> {
        let channel = match timeout(STORE_CONNECT_MAX, member.endpoint.connect()).await {
            Ok(Ok(channel)) => channel,
            Ok(Err(why)) => return Err(deepest(&why)),
            Err(_) => return Err("no connection came about in time".to_owned()),
        };
        match timeout_at(deadline, self.enter(channel)).await {
            Ok(Ok(client)) => Ok(client),
            Ok(Err(why)) => Err(match EtcdFailure::of(&why) {
                EtcdFailure::Elsewhere(why)
                | EtcdFailure::Refused(why)
                | EtcdFailure::Unknown(why) => why,
                _ => why.to_string(),
            }),
            Err(_) => Err("it did not check our password in time".to_owned()),
        }
    }

    /// Notes that something is about to be asked.
    pub(super) fn asks(&self, connection: &MemberConnection) {
        let mut state = self.all[connection.member].state.lock();
        if state.is_current(connection) {
            state.silent_since.get_or_insert_with(Instant::now);
        }
    }

    /// Notes that something was answered, be it an error.
    pub(super) fn answers(&self, connection: &MemberConnection) {
        let mut state = self.all[connection.member].state.lock();
        if state.is_current(connection) {
            state.silent_since = None;
        }
    }

    /// Notes that the member did what it was asked for: its failures are forgotten.
    pub(super) fn praise(&self, connection: &MemberConnection) {
        let mut state = self.all[connection.member].state.lock();
        if state.is_current(connection) {
            state.silent_since = None;
            state.rests_until = None;
            state.rest = REST_MIN;
        }
    }

    /// Lets a member rest that failed on this connection, unless it has another connection by now.
    pub(super) fn leave(&self, connection: &MemberConnection, fate: ConnectionFate) {
        let mut state = self.all[connection.member].state.lock();
        if !state.is_current(connection) {
            return;
        }
        if fate == ConnectionFate::Drop {
            state.connection = None;
        }
        state.silent_since = None;
        state.take_rest();
        drop(state);
        tracing::debug!(member = %self.all[connection.member].host, ?fate, "left a member of etcd");
        self.favourite.send_if_modified(|favourite| {
            let is_left = *favourite == connection.member && self.all.len() > 1;
            if is_left {
                *favourite = (connection.member + 1) % self.all.len();
            }
            is_left
        });
    }

    /// The member at the other end.
    pub(super) fn host_of(&self, connection: &MemberConnection) -> &StoreHost {
        &self.all[connection.member].host
    }
}

impl EtcdMember {
    fn new(host: StoreHost, tls: Option<&ClientTlsConfig>) -> Result<Self, String> {
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
        let state = MemberState {
            connection: None,
            connections: 0,
            silent_since: None,
            rests_until: None,
            rest: REST_MIN,
        };
        Ok(Self {
            host,
            endpoint,
            connecting: tokio::sync::Mutex::new(()),
            state: Mutex::new(state),
        })
    }

    fn install(&self, client: Client) -> u64 {
        let mut state = self.state.lock();
        state.connections += 1;
        let number = state.connections;
        state.connection = Some((number, client));
        state.silent_since = None;
        state.rests_until = None;
        number
    }

    /// Its connection, if it has one and may be asked.
    fn ready(&self, member: usize) -> Option<MemberConnection> {
        let mut state = self.state.lock();
        if state.silent_since.is_some_and(|since| since.elapsed() >= SILENCE_MAX) {
            state.connection = None;
            state.silent_since = None;
            state.take_rest();
        }
        if state.is_resting() {
            return None;
        }
        let (number, client) = state.connection.as_ref()?;
        Some(MemberConnection { client: client.clone(), member, number: *number })
    }

    fn rests(&self) -> bool {
        self.state.lock().is_resting()
    }
}

impl MemberState {
    fn is_current(&self, connection: &MemberConnection) -> bool {
        self.connection.as_ref().is_some_and(|(number, _)| *number == connection.number)
    }

    fn is_resting(&self) -> bool {
        self.rests_until.is_some_and(|until| Instant::now() < until)
    }

    fn take_rest(&mut self) {
        self.rests_until = Some(Instant::now() + self.rest);
        self.rest = (self.rest * 2).min(REST_MAX);
    }
}
