//! Making a connection: look up, judge, connect, greet.
//!
//! The name is looked up here, every address judged, and the connection made to a judged address itself, so that
//! nothing can change in between. Where a name has several addresses they are tried side by side, each a moment
//! after the one before, and the first that answers is taken: a host with a broken IPv6 route costs a
//! quarter of a second, not the whole time.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use engine::limits::ADDRESSES_TRIED_MAX;
use engine::outcome::NotSent;
use engine::webhook::{Form, Scheme};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use store::machine::Machine;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use super::attempt::{AttemptStage, AttemptStep, Ended};
use super::connection::{Connection, Drivers, Protocol};
use super::guard::Guard;
use super::name::{Name, Resolver};
use super::pool::AttemptClock;
use super::signature::Signing;
use super::{Config, PermitCheck, tls};

/// How long an address may keep the next one waiting.
const HEAD_START: Duration = Duration::from_millis(250);

/// What the system says when it has no more sockets: too many open files, here or in all, no buffers, no memory.
const EXHAUSTED: [i32; 4] = [24, 23, 105, 12];

/// Why there is no connection: surely nothing was sent.
#[derive(Debug)]
pub(super) struct DialError {
    pub(super) why: NotSent,
    pub(super) sentence: String,
}

/// Makes connections to receivers.
pub(super) struct Dialer {
    guard: Guard,
    resolver: Arc<dyn Resolver>,
    tls: TlsConnector,
    permit: PermitCheck,
    pub(super) signing: Signing,
    connect_timeout: Duration,
    pub(super) machine: Arc<dyn Machine>,
    pub(super) drivers: Drivers,
}

impl Dialer {
    pub(super) fn new(
        config: &Config,
        machine: &Arc<dyn Machine>,
        tls: &Arc<ClientConfig>,
    ) -> Self {
        Self {
            guard: Guard::new(&config.allow),
            resolver: Arc::clone(&config.resolver),
            tls: TlsConnector::from(Arc::clone(tls)),
            permit: Arc::clone(&config.permit),
            signing: Arc::clone(&config.signing),
            connect_timeout: config.connect_timeout,
            machine: Arc::clone(machine),
            drivers: Drivers::default(),
        }
    }

    /// A new connection to the form's host. The stage tells how far it came.
    pub(super) async fn dial(
        &self,
        form: &Form,
        name: &Name,
        stage: &AttemptStage,
    ) -> Result<Connection, Ended> {
        let mut clock = AttemptClock::new(Arc::clone(&self.machine));
        clock.start(self.connect_timeout);
        tokio::select! {
            biased;
            made = self.make(form, name, stage) => made.map_err(Ended::from),
            over = clock.over() => Err(Ended::out_of_time(stage, over)),
        }
    }

    async fn make(
        &self,
        form: &Form,
        name: &Name,
        stage: &AttemptStage,
    ) -> Result<Connection, DialError> {
        stage.enter(AttemptStep::LookingUp);
        let addresses = self.judged(form, name).await?;
        stage.enter(AttemptStep::Connecting);
        let stream = connect(&addresses, form.port, &*self.machine).await.map_err(|why| {
            let exhausted = why.raw_os_error().is_some_and(|code| EXHAUSTED.contains(&code));
            let (why, sentence) = if exhausted {
                (
                    NotSent::Exhausted,
                    format!(
                        "this machine has no socket left: {why}; raise its limit of open files"
                    ),
                )
            } else {
                (NotSent::Connect, format!("cannot connect to {}: {why}", form.authority()))
            };
            DialError { why, sentence }
        })?;
        // Requests are written whole; waiting for more of them only makes them late.
        stream.set_nodelay(true).ok();
        stage.enter(AttemptStep::Greeting);
        let now = self.machine.reading().raw;
        let greeted = match form.scheme {
            Scheme::Http => {
                Connection::greet(stream, Protocol::One, &self.permit, &self.drivers, now).await
            }
            Scheme::Https => {
                let stream = self.encrypt(form, stream).await?;
                let spoken = stream.get_ref().1.alpn_protocol();
                let protocol =
                    if spoken == Some(tls::HTTP_2) { Protocol::Two } else { Protocol::One };
                Connection::greet(stream, protocol, &self.permit, &self.drivers, now).await
            }
        };
        greeted.map_err(|why| DialError {
            why: NotSent::Connect,
            sentence: format!("{} closed the connection at once: {why}", form.authority()),
        })
    }

    /// Those of the host's addresses that may be called.
    async fn judged(&self, form: &Form, name: &Name) -> Result<Vec<IpAddr>, DialError> {
        let found: Arc<[IpAddr]> = if let Some(address) = form.address() {
            [address].into()
        } else {
            let found = name.addresses(&form.host, &*self.resolver, &*self.machine).await;
            found.map_err(|sentence| DialError { why: NotSent::Name, sentence })?
        };
        let mut good = Vec::with_capacity(found.len());
        let mut forbidden = None;
        for address in found.iter() {
            match self.guard.judge(*address) {
                Ok(()) => good.push(*address),
                Err(why) => forbidden = Some(why),
            }
        }
        match forbidden {
            Some(why) if good.is_empty() => {
                let sentence = format!("{} may not be called: {why}", form.host);
                Err(DialError { why: NotSent::Forbidden, sentence })
            }
            _ => Ok(interleave(&good)),
        }
    }

    async fn encrypt(
        &self,
        form: &Form,
        stream: TcpStream,
    ) -> Result<tokio_rustls::client::TlsStream<TcpStream>, DialError> {
        let failed = |sentence| DialError { why: NotSent::Tls, sentence };
        let server = match form.address() {
            Some(address) => ServerName::from(address),
            None => ServerName::try_from(form.host.to_string())
                .map_err(|_| failed(format!("{} cannot stand in a certificate", form.host)))?,
        };
        let greeted = self.tls.connect(server, stream).await;
        greeted.map_err(|why| failed(format!("{}: {}", form.authority(), tls::explain(&why))))
    }
}

/// IPv6 and IPv4 in turn, each in the order of the resolver, beginning with its favourite; not too many.
fn interleave(addresses: &[IpAddr]) -> Vec<IpAddr> {
    let Some(first) = addresses.first() else { return Vec::new() };
    let (same, other): (Vec<IpAddr>, Vec<IpAddr>) =
        addresses.iter().partition(|address| address.is_ipv4() == first.is_ipv4());
    let (mut same, mut other) = (same.into_iter(), other.into_iter());
    let mut mixed = Vec::with_capacity(addresses.len());
    while mixed.len() < addresses.len() {
        mixed.extend(same.next());
        mixed.extend(other.next());
    }
    mixed.truncate(ADDRESSES_TRIED_MAX);
    mixed
}

/// The first of these that answers.
async fn connect(addresses: &[IpAddr], port: u16, machine: &dyn Machine) -> io::Result<TcpStream> {
    if let [address] = addresses {
        return TcpStream::connect(SocketAddr::new(*address, port)).await;
    }
    let mut left = addresses.iter();
    let mut trying = JoinSet::new();
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    loop {
        if let Some(address) = left.next() {
            let address = SocketAddr::new(*address, port);
            trying.spawn(TcpStream::connect(address));
        } else if trying.is_empty() {
            return Err(last);
        }
        let more = left.len() > 0;
        tokio::select! {
            biased;
            Some(tried) = trying.join_next() => match tried.map_err(io::Error::other).flatten() {
                Ok(stream) => return Ok(stream),
                Err(why) => last = why,
            },
            () = machine.sleep(HEAD_START), if more => (),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_address_are_tried() {
        let mixed = |addresses: &[&str]| {
            let addresses: Vec<IpAddr> =
                addresses.iter().map(|address| address.parse().unwrap()).collect();
            let mixed: Vec<String> =
                interleave(&addresses).iter().map(ToString::to_string).collect();
            mixed.join(" ")
        };
        assert_eq!(mixed(&["::1", "::2", "1.1.1.1"]), "::1 1.1.1.1 ::2");
        assert_eq!(mixed(&["1.1.1.1", "1.1.1.2", "::1"]), "1.1.1.1 ::1 1.1.1.2");
        assert_eq!(mixed(&["::1", "::2", "::3", "::4"]), "::1 ::2 ::3 ::4");
        assert_eq!(mixed(&["::1", "::2", "::3", "::4", "1.1.1.1"]), "::1 1.1.1.1 ::2 ::3");
        assert_eq!(mixed(&[]), "");
    }
}
