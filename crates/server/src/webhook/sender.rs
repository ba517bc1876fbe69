//! A sender: a thread with some of the hosts.
//!
//! One loop owns everything: it takes commands, starts attempts as tasks, and takes their ends. A host with a
//! call that may go stands in a line, and gets one attempt whenever it comes to the front; so hosts take turns,
//! and one with a hundred thousand waiting calls does not keep the next one waiting for more than its turn.
//!
//! There are two lines. Hosts that answered when they were last asked are in the first, and only the sender's
//! limit holds them back. The others, new and silent ones, are in the second, and may together have half of the
//! places. So dead hosts, however many, leave half of the places to those that work. What they can delay is each
//! other, and a host's very first call.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use engine::breaker::Gate;
use engine::instant::Instant;
use engine::outcome::{Lost, NotSent, Outcome};
use rustls::ClientConfig;
use store::machine::Machine;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};

use super::attempt::{Ended, Stage, attempt, wall};
use super::dial::Dialer;
use super::host::{Host, Standing};
use super::{Call, Config, Finished, Gauges};

/// Commands that are taken in one go.
const BATCH_LEN_MAX: usize = 128;

/// How often resting connections and hosts are looked after, while there are any.
const TIDY_EVERY: Duration = Duration::from_secs(1);

/// What a sender is told.
pub(super) enum Command {
    Send { origin: Arc<str>, call: Call },
    Cancel { key: u64 },
}

/// The state of a sender.
pub(super) struct Sender {
    dialer: Arc<Dialer>,
    results: mpsc::UnboundedSender<Finished>,
    gauges: Arc<Gauges>,
    per_host_max: usize,
    in_flight_max: usize,
    hosts: HashMap<Arc<str>, Host>,
    proven: VecDeque<Arc<str>>,
    unproven: VecDeque<Arc<str>>,
    unproven_in_flight: usize,
    flights: HashMap<Id, Flight>,
    tasks: JoinSet<Ended>,
}

/// An attempt under way.
struct Flight {
    key: u64,
    origin: Arc<str>,
    /// As it was when the attempt began.
    standing: Standing,
    wall: Instant,
    began: Duration,
    stage: Arc<Stage>,
    abort: AbortHandle,
}

impl Sender {
    pub(super) fn new(
        config: &Config,
        machine: &Arc<dyn Machine>,
        tls: &Arc<ClientConfig>,
        results: mpsc::UnboundedSender<Finished>,
        gauges: Arc<Gauges>,
    ) -> Self {
        Self {
            dialer: Arc::new(Dialer::new(config, machine, tls)),
            results,
            gauges,
            per_host_max: config.per_host_max.max(1),
            // Two at least, so that either half has a place.
            in_flight_max: config.in_flight_max.div_ceil(config.senders.max(1)).max(2),
            hosts: HashMap::new(),
            proven: VecDeque::new(),
            unproven: VecDeque::new(),
            unproven_in_flight: 0,
            flights: HashMap::new(),
            tasks: JoinSet::new(),
        }
    }

    /// Works until there is nobody left to give commands.
    pub(super) async fn run(mut self, mut commands: mpsc::UnboundedReceiver<Command>) {
        let mut batch = Vec::with_capacity(BATCH_LEN_MAX);
        let mut tidy = self.dialer.machine.sleep(TIDY_EVERY);
        loop {
            tokio::select! {
                biased;
                Some(joined) = self.tasks.join_next_with_id() => {
                    self.land(joined);
                    while let Some(joined) = self.tasks.try_join_next_with_id() {
                        self.land(joined);
                    }
                }
                taken = commands.recv_many(&mut batch, BATCH_LEN_MAX) => {
                    if taken == 0 {
                        break;
                    }
                    for command in batch.drain(..) {
                        self.obey(command);
                    }
                }
                () = &mut tidy, if !self.hosts.is_empty() => {
                    let now = self.now();
                    self.hosts.retain(|_, host| host.tidy(now));
                    tidy = self.dialer.machine.sleep(TIDY_EVERY);
                }
            }
            self.pump();
        }
        self.stop().await;
    }

    fn now(&self) -> Duration {
        self.dialer.machine.reading().raw
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Send { origin, call } => {
                let now = self.now();
                let per_host_max = self.per_host_max;
                let host = self.hosts.entry(Arc::clone(&origin));
                let host = host.or_insert_with(|| Host::new(per_host_max, now));
                host.waiting.push_back(call);
                self.line_up(&origin);
            }
            Command::Cancel { key } => self.cancel(key),
        }
    }

    /// Puts a host into its line if there is something to do for it. If it is to be left alone, those who wait
    /// for it are told so.
    fn line_up(&mut self, origin: &Arc<str>) {
        let now = self.now();
        let Some(host) = self.hosts.get_mut(origin) else { return };
        match host.gate(now) {
            Gate::Shut { rest } => {
                let waiting = std::mem::take(&mut host.waiting);
                let why = NotSent::Resting { rest };
                let sentence = format!(
                    "{origin} did not answer lately and is left alone for another {:.1} s",
                    rest.as_secs_f64()
                );
                for call in waiting {
                    self.give_up(&call, why, &sentence);
                }
            }
            Gate::Wait => (),
            Gate::Open | Gate::Probe => {
                if host.has_work() && !host.in_line {
                    host.in_line = true;
                    let line = match host.standing() {
                        Standing::Proven => &mut self.proven,
                        Standing::Unproven => &mut self.unproven,
                    };
                    line.push_back(Arc::clone(origin));
                }
            }
        }
    }

    /// Starts whatever may be started.
    fn pump(&mut self) {
        while self.flights.len() < self.in_flight_max {
            let unproven_has_room = self.unproven_in_flight < self.in_flight_max / 2;
            // The unproven go first, up to their half, or a busy host that answers would keep them out for ever.
            let mut next = None;
            if unproven_has_room {
                next = self.unproven.pop_front();
            }
            let Some(origin) = next.or_else(|| self.proven.pop_front()) else { return };
            let Some(host) = self.hosts.get_mut(&origin) else { continue };
            host.in_line = false;
            // It may have fallen silent while it stood in the line of those that answer.
            if host.standing() == Standing::Proven || unproven_has_room {
                self.start(&origin);
            }
            self.line_up(&origin);
        }
    }

    /// Starts the next attempt to a host, if it may have one.
    fn start(&mut self, origin: &Arc<str>) {
        let now = self.now();
        let Some(host) = self.hosts.get_mut(origin) else { return };
        let may = match host.gate(now) {
            Gate::Open | Gate::Probe => host.has_work(),
            Gate::Wait | Gate::Shut { .. } => false,
        };
        if !may {
            return;
        }
        let standing = host.standing();
        let name = Arc::clone(&host.name);
        let Some((call, connection)) = host.begin(now) else { return };
        let (key, stage) = (call.key, Stage::new());
        let wall = wall(&*self.dialer.machine);
        let dialer = Arc::clone(&self.dialer);
        let attempt = attempt(call, connection, name, dialer, Arc::clone(&stage));
        let abort = self.tasks.spawn(attempt);
        let origin = Arc::clone(origin);
        let flight = Flight { key, origin, standing, wall, began: now, stage, abort };
        self.flights.insert(flight.abort.id(), flight);
        self.unproven_in_flight += usize::from(standing == Standing::Unproven);
        self.gauges.waiting.fetch_sub(1, Ordering::Relaxed);
        self.gauges.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes the end of an attempt.
    fn land(&mut self, joined: Result<(Id, Ended), JoinError>) {
        let id = joined.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        let flight = self.flights.remove(&id).expect("an attempt is under way until it has ended");
        let ended = joined.map_or_else(|why| broken_off(&flight, &why), |(_, ended)| ended);
        let now = self.now();
        self.unproven_in_flight -= usize::from(flight.standing == Standing::Unproven);
        self.gauges.in_flight.fetch_sub(1, Ordering::Relaxed);
        if let Some(host) = self.hosts.get_mut(&flight.origin) {
            host.end(ended.outcome.sign(), ended.connection, now);
        }
        self.line_up(&flight.origin);
        self.tell(Finished {
            key: flight.key,
            outcome: ended.outcome,
            started: flight.wall,
            latency: now.saturating_sub(flight.began),
            response: ended.response,
            error: ended.error,
        });
    }

    fn cancel(&mut self, key: u64) {
        if let Some(flight) = self.flights.values().find(|flight| flight.key == key) {
            flight.abort.abort();
            return;
        }
        for host in self.hosts.values_mut() {
            if let Some(place) = host.waiting.iter().position(|call| call.key == key) {
                let call = host.waiting.remove(place).expect("it was found there");
                return self.give_up(&call, NotSent::Cancelled, "it was cancelled before it left");
            }
        }
    }

    /// Ends a call that has not begun.
    fn give_up(&self, call: &Call, why: NotSent, sentence: &str) {
        self.gauges.waiting.fetch_sub(1, Ordering::Relaxed);
        self.tell(Finished {
            key: call.key,
            outcome: Outcome::NotSent { why },
            started: wall(&*self.dialer.machine),
            latency: Duration::ZERO,
            response: None,
            error: Some(sentence.to_owned()),
        });
    }

    fn tell(&self, finished: Finished) {
        // Whoever does not listen any more does not want to know.
        self.results.send(finished).ok();
    }

    async fn stop(mut self) {
        let hosts = std::mem::take(&mut self.hosts);
        for call in hosts.into_values().flat_map(|host| host.waiting) {
            self.give_up(&call, NotSent::Cancelled, "this node stopped before it left");
        }
        self.tasks.abort_all();
        while let Some(joined) = self.tasks.join_next_with_id().await {
            self.land(joined);
        }
        self.dialer.drivers.stop().await;
    }
}

/// What to say of an attempt that did not come to its own end.
fn broken_off(flight: &Flight, why: &JoinError) -> Ended {
    if why.is_cancelled() {
        return Ended::without_answer(flight.stage.cancelled(), "it was cancelled".to_owned());
    }
    tracing::error!(origin = %flight.origin, %why, "an attempt panicked");
    let outcome = Outcome::Lost { why: Lost::Broken };
    Ended::without_answer(outcome, "this node failed while it was sending".to_owned())
}
