//! What a sender knows about one host: who waits for it, how much of it we dare to ask at once, and which
//! connections to it rest.
//!
//! **The window** is how many attempts may be under way. It begins small, grows by one with each answer (so it
//! doubles in the time of an answer) up to the limit, and is halved by each silence. A host that works has
//! its whole limit within a few answers; one that is dead has a few attempts under way until they time out.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::ops::{Index, IndexMut};
use std::sync::Arc;
use std::time::Duration;

use engine::breaker::{Breaker, CallPermission};
use engine::limits::{HOST_IDLE_MAX, HOST_WINDOW_MIN};
use engine::outcome::HostSignal;
use engine::webhook::Form;

use super::Call;
use super::connection::{Connection, Protocol};
use super::name::Name;

/// The hosts of a sender. A host has a number while it is known, so that its name is hashed once per call.
#[derive(Default)]
pub(super) struct Hosts {
    numbers: HashMap<Box<str>, HostId>,
    known: Vec<Option<Host>>,
    free: Vec<HostId>,
    /// Where a name is written to look it up.
    origin: String,
}

/// The number of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HostId(usize);

impl Hosts {
    /// The host of a form; `new` makes it if it is not known.
    pub(super) fn find(&mut self, form: &Form, new: impl FnOnce(&str) -> Host) -> HostId {
        let Form { scheme, host, port, .. } = form;
        self.origin.clear();
        write!(self.origin, "{scheme}://{host}:{port}").expect("a string takes what is written");
        if let Some(number) = self.numbers.get(&*self.origin) {
            return *number;
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.known.push(None);
            HostId(self.known.len() - 1)
        });
        self.known[number.0] = Some(new(&self.origin));
        self.numbers.insert(self.origin.as_str().into(), number);
        number
    }

    pub(super) fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Forgets those that nobody calls.
    pub(super) fn tidy(&mut self, now: Duration) {
        self.numbers.retain(|_, number| {
            let host = self.known[number.0].as_mut().expect("a host with a number is known");
            let is_kept = host.tidy(now);
            if !is_kept {
                self.known[number.0] = None;
                self.free.push(*number);
            }
            is_kept
        });
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Host> {
        self.known.iter_mut().flatten()
    }
}

impl Index<HostId> for Hosts {
    type Output = Host;

    fn index(&self, number: HostId) -> &Host {
        self.known[number.0].as_ref().expect("a host is known while anybody has its number")
    }
}

impl IndexMut<HostId> for Hosts {
    fn index_mut(&mut self, number: HostId) -> &mut Host {
        self.known[number.0].as_mut().expect("a host is known while anybody has its number")
    }
}

/// Whether a host answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HostHealth {
    /// It answered when it was last asked.
    Proven,
    /// It has yet to answer, for the first time or again.
    Unproven,
}

/// A receiver by scheme, name and port, as a sender knows it.
pub(super) struct Host {
    /// Scheme, name and port.
    pub(super) origin: Box<str>,
    /// Calls that wait, oldest first.
    pub(super) waiting: VecDeque<Call>,
    /// Whether it stands in one of the sender's lines.
    pub(super) in_line: bool,
    pub(super) name: Arc<Name>,
    in_flight: usize,
    window: usize,
    window_max: usize,
    breaker: Breaker,
    has_answered: bool,
    /// Connections for one attempt each; the one used last is taken first.
    rested: Vec<Connection>,
    /// A connection for all.
    shared: Option<Connection>,
    used: Duration,
}

impl Host {
    pub(super) fn new(origin: &str, window_max: usize, now: Duration) -> Self {
        Self {
            origin: origin.into(),
            waiting: VecDeque::new(),
            in_line: false,
            name: Arc::default(),
            in_flight: 0,
            window: HOST_WINDOW_MIN.min(window_max),
            window_max,
            breaker: Breaker::default(),
            has_answered: false,
            rested: Vec::new(),
            shared: None,
            used: now,
        }
    }

    pub(super) fn gate(&self, now: Duration) -> CallPermission {
        self.breaker.gate(now)
    }

    pub(super) fn health(&self) -> HostHealth {
        if self.has_answered && self.breaker.is_calm() {
            HostHealth::Proven
        } else {
            HostHealth::Unproven
        }
    }

    /// Whether a call waits that the window has room for.
    pub(super) fn has_work(&self) -> bool {
        !self.waiting.is_empty() && self.in_flight < self.window
    }

    /// The next call that waits, with a connection for it if one rests. It is under way from now on.
    pub(super) fn begin(&mut self, now: Duration) -> Option<(Call, Option<Connection>)> {
        let call = self.waiting.pop_front()?;
        self.breaker.begin(now);
        self.in_flight += 1;
        self.used = now;
        Some((call, self.connection(now)))
    }

    /// A call is no longer under way.
    pub(super) fn end(
        &mut self,
        signal: HostSignal,
        connection: Option<Connection>,
        now: Duration,
    ) {
        self.in_flight -= 1;
        self.used = now;
        self.breaker.end(signal, now);
        match signal {
            HostSignal::Responsive => {
                self.has_answered = true;
                self.window = (self.window + 1).min(self.window_max);
            }
            HostSignal::Unresponsive => {
                self.window = (self.window / 2).max(HOST_WINDOW_MIN.min(self.window_max));
                // If it is the connection that is dead, the next attempt shall not hang on it too.
                self.shared = None;
            }
            HostSignal::Unknown => (),
        }
        if let Some(connection) = connection {
            self.keep(connection, now);
        }
    }

    fn connection(&mut self, now: Duration) -> Option<Connection> {
        if let Some(shared) = self.shared.as_mut().filter(|shared| shared.is_fresh(now)) {
            shared.rest(now);
            return shared.share();
        }
        self.shared = None;
        while let Some(connection) = self.rested.pop() {
            if connection.is_fresh(now) {
                return Some(connection);
            }
        }
        None
    }

    fn keep(&mut self, mut connection: Connection, now: Duration) {
        connection.rest(now);
        match connection.protocol() {
            Protocol::One => self.rested.push(connection),
            Protocol::Two => match &mut self.shared {
                Some(shared) => shared.rest(now),
                None => self.shared = Some(connection),
            },
        }
    }

    /// Closes what has rested for too long. Whether the host is still worth remembering.
    pub(super) fn tidy(&mut self, now: Duration) -> bool {
        self.rested.retain(|connection| connection.is_fresh(now));
        if self.in_flight == 0 && self.shared.as_ref().is_some_and(|shared| !shared.is_fresh(now)) {
            self.shared = None;
        }
        let idle = self.in_flight == 0 && self.waiting.is_empty() && !self.in_line;
        !idle || now.saturating_sub(self.used) < HOST_IDLE_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many attempts the host has room for.
    fn window(host: &Host) -> usize {
        host.window - host.in_flight
    }

    fn ended(host: &mut Host, signal: HostSignal) {
        host.in_flight += 1;
        host.end(signal, None, Duration::ZERO);
    }

    #[test]
    fn a_window_grows_with_answers_up_to_the_limit_and_shrinks_with_silence() {
        let mut host = Host::new("http://a.test:80", 64, Duration::ZERO);
        assert_eq!((window(&host), host.health()), (HOST_WINDOW_MIN, HostHealth::Unproven));
        for _ in 0..100 {
            ended(&mut host, HostSignal::Responsive);
        }
        assert_eq!((window(&host), host.health()), (64, HostHealth::Proven));
        let mut shrunk = Vec::new();
        for _ in 0..4 {
            ended(&mut host, HostSignal::Unresponsive);
            shrunk.push(window(&host));
        }
        assert_eq!(shrunk, [32, 16, 8, 8]);
        assert_eq!(host.health(), HostHealth::Unproven);
        ended(&mut host, HostSignal::Unknown);
        assert_eq!(window(&host), 8);
        ended(&mut host, HostSignal::Responsive);
        assert_eq!((window(&host), host.health()), (9, HostHealth::Proven));
    }

    #[test]
    fn a_window_never_passes_a_small_limit() {
        let mut host = Host::new("http://a.test:80", 2, Duration::ZERO);
        for signal in [
            HostSignal::Unknown,
            HostSignal::Responsive,
            HostSignal::Unresponsive,
            HostSignal::Unresponsive,
            HostSignal::Responsive,
        ] {
            ended(&mut host, signal);
            assert_eq!(window(&host), 2);
        }
    }

    #[test]
    fn a_host_that_nobody_calls_is_forgotten() {
        let mut host = Host::new("http://a.test:80", 64, Duration::ZERO);
        assert!(host.tidy(HOST_IDLE_MAX.saturating_sub(Duration::from_millis(1))));
        assert!(!host.tidy(HOST_IDLE_MAX));
    }
}
