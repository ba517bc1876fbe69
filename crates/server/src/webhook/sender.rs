//! A sender: a thread with some of the hosts.
//!
//! One loop owns everything: it takes commands, gives attempts to tasks of its pool, and takes their ends. It does so
//! in rounds: whatever has ended or was asked for since the last round is seen to at one time, and what came of it
//! is told at the round's end, because to wake up whoever listens costs more than an attempt. A host with a
//! call that may go stands in a line, and gets one attempt whenever it comes to the front; so
//! one with a hundred thousand waiting calls does not keep the next one waiting for more than one attempt.
//!
//! There are two lines. Hosts that answered when they were last asked are in the first, and only the sender's
//! limit holds them back. The others, new and silent ones, are in the second, and may together have half of the
//! attempts under way. So dead hosts, however many, leave the other half to those that work. What they can delay is
//! each other, and a host's very first call.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use engine::breaker::CallPermission;
use engine::instant::Instant;
use engine::outcome::{Lost, NotSent, Outcome};
use rustls::ClientConfig;
use store::machine::Machine;
use tokio::sync::mpsc;

use super::attempt::{Ended, wall};
use super::dial::Dialer;
use super::host::{Host, HostHealth, HostId, Hosts};
use super::pool::{BrokenAttempt, Job, TaskPool};
use super::{Call, Config, FinishedCall, Gauges};

/// Commands that are taken in one go.
const BATCH_LEN_MAX: usize = 128;

/// How often resting connections and hosts are looked after, while there are any.
const TIDY_EVERY: Duration = Duration::from_secs(1);

/// What a sender is told.
pub enum SenderCommand {
    /// It makes this call.
    Send {
        /// The call to make.
        call: Call,
    },
    /// It gives this call up, unless it has ended.
    Cancel {
        /// The call's key.
        key: u64,
    },
    /// It gives up those of these calls that wait.
    Recall {
        /// The calls' keys.
        keys: RangeInclusive<u64>,
        /// Called once all that was given up is told.
        told: OnTold,
    },
}

/// Called once what came of calls is told.
pub(super) type OnTold = Box<dyn FnOnce() + Send>;

/// The state of a sender.
pub(super) struct Sender {
    dialer: Arc<Dialer>,
    results: mpsc::UnboundedSender<FinishedCall>,
    gauges: Arc<Gauges>,
    per_host_max: usize,
    in_flight_max: usize,
    /// When this round began.
    now: Duration,
    hosts: Hosts,
    proven: VecDeque<HostId>,
    unproven: VecDeque<HostId>,
    unproven_in_flight: usize,
    pool: TaskPool<Flight>,
    /// What came of calls in this round.
    finished: Vec<FinishedCall>,
    /// What to call when that is told.
    told: Vec<OnTold>,
}

/// An attempt under way.
struct Flight {
    key: u64,
    host: HostId,
    /// As it was when the attempt began.
    health: HostHealth,
    wall: Instant,
    began: Duration,
}

type Landed = (Flight, Result<Ended, BrokenAttempt>);

impl Sender {
    pub(super) fn new(
        config: &Config,
        machine: &Arc<dyn Machine>,
        tls: &Arc<ClientConfig>,
        results: mpsc::UnboundedSender<FinishedCall>,
        gauges: Arc<Gauges>,
    ) -> Self {
        let dialer = Arc::new(Dialer::new(config, machine, tls));
        Self {
            now: machine.reading().raw,
            pool: TaskPool::new(Arc::clone(&dialer)),
            dialer,
            results,
            gauges,
            per_host_max: config.per_host_max.max(1),
            // Two at least, so that either half has one.
            in_flight_max: config.in_flight_max.div_ceil(config.senders.max(1)).max(2),
            hosts: Hosts::default(),
            proven: VecDeque::new(),
            unproven: VecDeque::new(),
            unproven_in_flight: 0,
            finished: Vec::new(),
            told: Vec::new(),
        }
    }

    /// Works until there is nobody left to give commands.
    pub(super) async fn run(mut self, mut commands: mpsc::UnboundedReceiver<SenderCommand>) {
        let mut batch = Vec::with_capacity(BATCH_LEN_MAX);
        let mut landed = Vec::new();
        let mut tidy = self.dialer.machine.sleep(TIDY_EVERY);
        loop {
            let mut is_time_to_tidy = false;
            tokio::select! {
                biased;
                () = self.pool.wait() => {}
                _ = commands.recv_many(&mut batch, BATCH_LEN_MAX) => {}
                () = &mut tidy, if !self.hosts.is_empty() => is_time_to_tidy = true,
            }
            self.begin_round();
            if is_time_to_tidy {
                self.hosts.tidy(self.now);
                tidy = self.dialer.machine.sleep(TIDY_EVERY);
            }
            // Whatever it woke up for: attempts that end all the time keep neither calls to others waiting nor
            // the end.
            while batch.len() < BATCH_LEN_MAX
                && let Ok(command) = commands.try_recv()
            {
                batch.push(command);
            }
            // Before commands, so that a cancelled call has surely not ended.
            self.land(&mut landed);
            if commands.is_closed() {
                break;
            }
            for command in batch.drain(..) {
                self.obey(command);
            }
            self.pump();
            self.tell();
        }
        while let Ok(command) = commands.try_recv() {
            batch.push(command);
        }
        for command in batch {
            self.obey(command);
        }
        self.stop(landed).await;
    }

    fn begin_round(&mut self) {
        self.now = self.dialer.machine.reading().raw;
    }

    fn obey(&mut self, command: SenderCommand) {
        match command {
            SenderCommand::Send { call } => {
                let (per_host_max, now) = (self.per_host_max, self.now);
                let new = |origin: &str| Host::new(origin, per_host_max, now);
                let number = self.hosts.find(&call.form, new);
                self.hosts[number].waiting.push_back(call);
                self.line_up(number);
            }
            SenderCommand::Cancel { key } => self.cancel(key),
            SenderCommand::Recall { keys, told } => {
                self.recall(&keys);
                self.told.push(told);
            }
        }
    }

    /// Puts a host into its line if there is something to do for it. If it is to be left alone, those who wait
    /// for it are told so.
    fn line_up(&mut self, number: HostId) {
        let host = &mut self.hosts[number];
        match host.gate(self.now) {
            CallPermission::Reject { rest } => {
                let waiting = std::mem::take(&mut host.waiting);
                let why = NotSent::Resting { rest };
                let sentence = format!(
                    "{} did not answer lately and is left alone for another {:.1} s",
                    host.origin,
                    rest.as_secs_f64()
                );
                for call in waiting {
                    self.give_up(&call, why, &sentence);
                }
            }
            CallPermission::Wait => (),
            CallPermission::Allow | CallPermission::Probe => {
                if host.has_work() && !host.in_line {
                    host.in_line = true;
                    let line = match host.health() {
                        HostHealth::Proven => &mut self.proven,
                        HostHealth::Unproven => &mut self.unproven,
                    };
                    line.push_back(number);
                }
            }
        }
    }

    /// Starts whatever may be started.
    fn pump(&mut self) {
        while self.pool.in_flight() < self.in_flight_max {
            let unproven_has_room = self.unproven_in_flight < self.in_flight_max / 2;
            // The unproven go first, up to their half, or a busy host that answers would keep them out for ever.
            let mut next = None;
            if unproven_has_room {
                next = self.unproven.pop_front();
            }
            let Some(number) = next.or_else(|| self.proven.pop_front()) else { return };
            let host = &mut self.hosts[number];
            host.in_line = false;
            // It may have fallen silent while it stood in the line of those that answer.
            if host.health() == HostHealth::Proven || unproven_has_room {
                self.start(number);
            }
            self.line_up(number);
        }
    }

    /// Starts the next attempt to a host, if it may have one.
    fn start(&mut self, number: HostId) {
        let host = &mut self.hosts[number];
        let may = match host.gate(self.now) {
            CallPermission::Allow | CallPermission::Probe => host.has_work(),
            CallPermission::Wait | CallPermission::Reject { .. } => false,
        };
        if !may {
            return;
        }
        let wall = wall(&*self.dialer.machine);
        if host.waiting.front().is_some_and(|call| call.leave_by.is_some_and(|by| by < wall)) {
            let call = host.waiting.pop_front().expect("looked at above");
            return self.give_up(
                &call,
                NotSent::Late,
                "it waited for its turn until it was too late",
            );
        }
        let health = host.health();
        let name = Arc::clone(&host.name);
        let Some((call, rested)) = host.begin(self.now) else { return };
        let flight = Flight { key: call.key, host: number, health, wall, began: self.now };
        self.pool.start(Job { call, rested, name }, flight);
        self.unproven_in_flight += usize::from(health == HostHealth::Unproven);
        self.gauges.waiting.fetch_sub(1, Ordering::Relaxed);
        self.gauges.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes the ends of attempts.
    fn land(&mut self, landed: &mut Vec<Landed>) {
        self.pool.take(landed);
        for (flight, ended) in landed.drain(..) {
            let host = &mut self.hosts[flight.host];
            let ended = ended.unwrap_or_else(|broken| broken_off(host, &broken));
            host.end(ended.signal, ended.connection, self.now);
            self.unproven_in_flight -= usize::from(flight.health == HostHealth::Unproven);
            self.gauges.in_flight.fetch_sub(1, Ordering::Relaxed);
            self.line_up(flight.host);
            self.finished.push(FinishedCall {
                key: flight.key,
                outcome: ended.outcome,
                started: flight.wall,
                latency: self.now.saturating_sub(flight.began),
                response: ended.response,
                error: ended.error,
            });
        }
    }

    fn cancel(&mut self, key: u64) {
        if self.pool.abort(|flight| flight.key == key) {
            return;
        }
        let mut found = None;
        for host in self.hosts.iter_mut() {
            if let Some(place) = host.waiting.iter().position(|call| call.key == key) {
                found = host.waiting.remove(place);
                break;
            }
        }
        if let Some(call) = found {
            self.give_up(&call, NotSent::Cancelled, "it was cancelled before it left");
        }
    }

    /// Ends a call that has not begun.
    fn give_up(&mut self, call: &Call, why: NotSent, sentence: &str) {
        self.gauges.waiting.fetch_sub(1, Ordering::Relaxed);
        self.finished.push(FinishedCall {
            key: call.key,
            outcome: Outcome::NotSent { why },
            started: wall(&*self.dialer.machine),
            latency: Duration::ZERO,
            response: None,
            error: Some(sentence.to_owned()),
        });
    }

    /// Tells what came of calls in this round.
    fn tell(&mut self) {
        for finished in self.finished.drain(..) {
            // Whoever does not listen any more does not want to know.
            self.results.send(finished).ok();
        }
        for told in self.told.drain(..) {
            told();
        }
    }

    /// Gives up what has not begun.
    fn recall(&mut self, keys: &RangeInclusive<u64>) {
        let mut recalled = Vec::new();
        for host in self.hosts.iter_mut() {
            let (theirs, others): (VecDeque<Call>, VecDeque<Call>) =
                std::mem::take(&mut host.waiting)
                    .into_iter()
                    .partition(|call| keys.contains(&call.key));
            host.waiting = others;
            recalled.extend(theirs);
        }
        for call in recalled {
            self.give_up(&call, NotSent::Cancelled, "this node stopped before it left");
        }
    }

    async fn stop(mut self, mut landed: Vec<Landed>) {
        self.begin_round();
        self.recall(&(0..=u64::MAX));
        self.land(&mut landed);
        let pool = std::mem::replace(&mut self.pool, TaskPool::new(Arc::clone(&self.dialer)));
        pool.stop(&mut landed).await;
        self.begin_round();
        self.land(&mut landed);
        self.tell();
        self.dialer.drivers.stop().await;
    }
}

/// What to say of an attempt that did not come to its own end.
fn broken_off(host: &Host, broken: &BrokenAttempt) -> Ended {
    if broken.why.is_cancelled() {
        return Ended::without_answer(broken.stage().cancelled(), "it was cancelled".to_owned());
    }
    tracing::error!(origin = %host.origin, why = %broken.why, "an attempt panicked");
    let outcome = Outcome::Lost { why: Lost::Broken };
    Ended::without_answer(outcome, "this node failed while it was sending".to_owned())
}
