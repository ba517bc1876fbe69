//! The dispatcher: calls receivers, and says what came of it.
//!
//! It is given [`Call`]s and gives back exactly one [`FinishedCall`] for each, whatever happens: answered, refused,
//! lost, cancelled, stopped. It decides nothing about runs; whether and when there is another attempt is the
//! caller's affair, and [`engine::outcome`] says what an outcome means.
//!
//! **Threads.** A few sender threads, one per core, each with a runtime of its own. A host (scheme, name, port)
//! always belongs to the same sender, so its connections, its limit and its breaker need no locks.
//!
//! **Order and bounds.** A call waits in line for its host until the host has room and the sender has. The caller
//! bounds how much waits; nothing is dropped. What bounds the rest, so that a host that does not answer never
//! delays others:
//!
//! - a host begins with a small window of attempts under way, which grows with each answer and shrinks with each
//!   silence (`host`): a dead host has a few attempts under way, not all of its limit;
//! - hosts that answer have half of a sender's attempts to themselves: however many dead hosts there are, they
//!   share the other half (`sender`);
//! - a host that stays silent is left alone for a while, and its calls come back at once
//!   ([`engine::breaker`]).
//!
//! **The right to act.** Between the commit that launched a run and the moment when its request leaves, the
//! session may have lapsed. So the permit is asked at the last moment, in the call that hands the first bytes to
//! the operating system (`wire`). If it says no, nothing leaves.
//!
//! **Whom we talk to** is judged for each connection by [`guard`]; `HTTP_PROXY` and its like are not read, because
//! a proxy would connect where nobody has judged. Redirects are not followed for the same reason.
//!
//! The life of a call: `sender` lets it wait and finds a task of its `pool` → `attempt` takes a rested connection or has
//! `dial` make one (`name`, [`guard`], `tls`) → `request` writes it down, with its [`signature`] → `wire` lets it out →
//! the answer is read up to its limit → the connection goes back to its `host`.

mod attempt;
mod connection;
mod dial;
pub mod guard;
mod host;
mod name;
mod pool;
mod request;
mod sender;
pub mod signature;
mod tls;
mod wire;

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use engine::id::ProjectId;
use engine::instant::Instant;
use engine::outcome::Outcome;
use engine::webhook::Form;
use store::machine::Machine;
use tokio::sync::mpsc;

pub use client::authority::CaError;
pub use guard::{BadCidr, Cidr, Forbidden, Guard};
pub use name::{Resolver, SystemResolver};
pub use tls::check_ca;

pub use sender::SenderCommand;

use sender::Sender;
use signature::Signing;

use crate::alarm::Alarm;

/// Whether this node may act at this moment.
pub type PermitCheck = Arc<dyn Fn() -> bool + Send + Sync>;

/// How the dispatcher works.
#[derive(Clone)]
pub struct Config {
    /// Threads that send.
    pub senders: usize,
    /// Attempts under way at once, over all hosts.
    pub in_flight_max: usize,
    /// Attempts under way at once to one host.
    pub per_host_max: usize,
    /// Ranges that may be called although they are not public.
    pub allow: Vec<Cidr>,
    /// A PEM file with further issuers to trust.
    pub extra_ca: Option<PathBuf>,
    /// How long looking up, connecting and greeting may take, of the whole time of an attempt.
    pub connect_timeout: Duration,
    /// Looks names up.
    pub resolver: Arc<dyn Resolver>,
    /// Whether this node may act at this moment.
    pub permit: PermitCheck,
    /// What webhooks are signed with.
    pub signing: Signing,
    /// Rings when a sender breaks.
    pub alarm: Alarm,
}

impl Config {
    /// What is right for a server, with one sender per core, and nothing to sign with.
    pub fn new(permit: PermitCheck) -> Self {
        Self {
            senders: thread::available_parallelism().map_or(1, usize::from),
            in_flight_max: 2_048,
            per_host_max: 64,
            allow: Vec::new(),
            extra_ca: None,
            connect_timeout: Duration::from_secs(3),
            resolver: Arc::new(SystemResolver),
            permit,
            signing: Arc::new(|_| None),
            alarm: Alarm::default(),
        }
    }
}

/// An attempt to be made.
pub struct Call {
    /// The caller's own number, which comes back with what came of it.
    pub key: u64,
    /// Whose it is: with what it is signed.
    pub project: ProjectId,
    /// The run's id.
    pub run: Box<str>,
    /// Which attempt of the run this is, from 1.
    pub attempt: u32,
    /// When the run was due.
    pub scheduled: Instant,
    /// After this it does not leave any more.
    pub leave_by: Option<Instant>,
    /// The fencing token under which it is sent.
    pub token: u64,
    /// Scheme, host, method and headers of the request.
    pub form: Arc<Form>,
    /// Path and query.
    pub path: Box<str>,
    /// What to send.
    pub body: Option<Bytes>,
}

impl fmt::Debug for Call {
    /// Without path and body: they may be secret.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} #{} {:?}", self.run, self.attempt, self.form)
    }
}

/// What came of a call.
#[derive(Debug)]
pub struct FinishedCall {
    /// The caller's own number.
    pub key: u64,
    /// What it means.
    pub outcome: Outcome,
    /// When the attempt began, by the wall clock; when it was given up, if it never began.
    pub started: Instant,
    /// How long it took; nothing if it never began.
    pub latency: Duration,
    /// What the receiver said, if it answered.
    pub response: Option<Response>,
    /// What went wrong, in one sentence without secrets, if there was no answer.
    pub error: Option<String>,
}

/// What a receiver said.
#[derive(Clone, PartialEq, Eq)]
pub struct Response {
    /// The status of the answer.
    pub status: u16,
    /// What the body is, as the receiver says.
    pub content_type: Option<Box<str>>,
    /// The body, as far as it was read.
    pub body: Bytes,
    /// Whether there was more of it, or it broke off.
    pub truncated: bool,
}

impl fmt::Debug for Response {
    /// Without the body: it may be secret.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cut = if self.truncated { ", truncated" } else { "" };
        write!(out, "{} {:?} {} B{cut}", self.status, self.content_type, self.body.len())
    }
}

/// Why the dispatcher does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The file of further issuers is of no use: give another.
    #[error(transparent)]
    Ca(#[from] CaError),
    /// The system gives no thread: free some, or allow this process more.
    #[error("cannot start a thread for webhooks: {0}; raise this process's limit of threads")]
    Thread(#[from] io::Error),
}

/// Calls receivers. Dropping it stops it: see [`Dispatcher::stop`].
pub struct Dispatcher {
    /// With their threads, if they have some of their own.
    senders: Vec<(mpsc::UnboundedSender<SenderCommand>, Option<JoinHandle<()>>)>,
    /// Which sender a host belongs to; nobody outside can aim at one.
    hasher: RandomState,
    gauges: Arc<Gauges>,
}

/// How much there is of what.
#[derive(Debug, Default)]
struct Gauges {
    in_flight: AtomicUsize,
    waiting: AtomicUsize,
}

impl Dispatcher {
    /// Starts the sender threads. What comes of calls is told to `results`.
    pub fn start(
        config: &Config,
        machine: &Arc<dyn Machine>,
        results: &mpsc::UnboundedSender<FinishedCall>,
    ) -> Result<Self, StartError> {
        let tls = tls::config(config.extra_ca.as_deref())?;
        let gauges = Arc::new(Gauges::default());
        let mut started =
            Self { senders: Vec::new(), hasher: RandomState::new(), gauges: Arc::clone(&gauges) };
        for number in 0..config.senders.max(1) {
            let (commands, taken) = mpsc::unbounded_channel();
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_io()
                .enable_time()
                .max_blocking_threads(name::THREADS_MAX)
                .thread_name("webhook-name")
                .build()?;
            let sender = Sender::new(config, machine, &tls, results.clone(), Arc::clone(&gauges));
            let thread = thread::Builder::new().name(format!("webhook-{number}"));
            let guard = config.alarm.guard("a sender of webhooks");
            let thread = thread.spawn(move || {
                let _guard = guard;
                runtime.block_on(sender.run(taken));
                // Not waiting for look-ups that hang.
                runtime.shutdown_background();
            })?;
            started.senders.push((commands, Some(thread)));
        }
        Ok(started)
    }

    /// One whose calls are made by somebody else, who keeps the dispatcher's promises: whoever has the other end of these
    /// commands.
    pub(crate) fn by(courier: mpsc::UnboundedSender<SenderCommand>) -> Self {
        let senders = vec![(courier, None)];
        Self { senders, hasher: RandomState::new(), gauges: Arc::default() }
    }

    /// Takes a call. It waits until its host has room for it.
    pub fn send(&self, call: Call) {
        let Form { scheme, host, port, .. } = &*call.form;
        let spread = self.hasher.hash_one((scheme, host, port)) % self.senders.len() as u64;
        let sender = usize::try_from(spread).expect("less than the number of senders");
        self.gauges.waiting.fetch_add(1, Ordering::Relaxed);
        let taken = self.senders[sender].0.send(SenderCommand::Send { call });
        taken.expect("a sender lives as long as the dispatcher");
    }

    /// Gives a call up, if it has not ended yet. What came of it is told all the same.
    pub fn cancel(&self, key: u64) {
        for (sender, _) in &self.senders {
            sender
                .send(SenderCommand::Cancel { key })
                .expect("a sender lives as long as the dispatcher");
        }
    }

    /// Gives up every call of these keys that has not begun. What came of them is told: nothing of them was sent.
    /// Then `told` is called, by each sender; tells how many there are.
    pub fn recall(
        &self,
        keys: RangeInclusive<u64>,
        told: impl Fn() + Clone + Send + 'static,
    ) -> usize {
        for (sender, _) in &self.senders {
            let (keys, told) = (keys.clone(), Box::new(told.clone()));
            let recall = SenderCommand::Recall { keys, told };
            sender.send(recall).expect("a sender lives as long as the dispatcher");
        }
        self.senders.len()
    }

    /// Attempts under way.
    pub fn in_flight(&self) -> usize {
        self.gauges.in_flight.load(Ordering::Relaxed)
    }

    /// Calls that wait for their host and their sender.
    pub fn waiting(&self) -> usize {
        self.gauges.waiting.load(Ordering::Relaxed)
    }

    /// Stops: gives up what waits and what is under way, tells what came of it, and waits until nothing can
    /// leave any more. Whoever wants attempts to end by themselves stops sending, and waits for them first.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Dispatcher {
    fn drop(&mut self) {
        let (commands, threads): (Vec<_>, Vec<_>) = self.senders.drain(..).unzip();
        drop(commands);
        for thread in threads.into_iter().flatten() {
            if thread.join().is_err() {
                tracing::error!("a webhook sender had panicked");
            }
        }
    }
}
