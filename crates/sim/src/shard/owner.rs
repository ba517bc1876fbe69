//! An owner: whoever runs the shard, from its claim to its death, its clean stop, or its hand-over.
//!
//! A round is everything that an owner does, in an order that the dice choose, with a chance to die
//! before each of it. Between two rounds time leaps to whatever comes next, and sometimes further.

mod clients;
mod handover;
mod receiver;
mod reports;
pub mod worker;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use engine::instant::Instant;
use engine::limits::MISSED_AFTER_MS;
use engine::mutant::{self, Mutant};
use engine::shard::{HostRoom, Now, Put, Shard, ShardBatch};

use super::draft;
use super::node::{MachineClock, PendingReport};
use super::oracle::catch_up::{Absence, Missed};
use super::oracle::{Broken, ObservedRun};
use super::promise::ShardPromise;
use super::setting::Company;
use super::simulation::{BEGIN, Simulation};
use clients::ClientRequest;
use handover::HandingOver;
use receiver::UnderWay;
use reports::ReportInbox;

/// How an owner ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReignEnd {
    /// Its process died.
    Crash,
    /// It stopped cleanly.
    Stop,
    /// It named another node as the owner.
    HandedOver,
    /// It could not name another node, and reads the shard anew.
    CalledOff,
}

/// Whoever runs the shard.
pub struct Owner {
    /// Which node it is.
    pub node: usize,
    shard: Shard,
    clock: MachineClock,
    /// When it stops, if it lives.
    stops: u64,
    leaving: Option<Leaving>,
    sent: Option<Sent>,
    trips: BTreeMap<u64, UnderWay>,
    /// What it will report once all is written.
    tasks: Vec<PendingReport>,
    inbox: ReportInbox,
    requests: BTreeMap<u64, ClientRequest>,
    /// The worker waits for an answer.
    is_asked_by_worker: bool,
    next_command: u64,
    missed: Missed,
    busy_until: u64,
    /// How much room is left meanwhile, and for which host if it is not for all.
    room: HostRoom,
    busy_host: Option<u64>,
    /// Rounds in a row for which the shard asked, and in which there was nothing to do.
    idle_rounds: u64,
}

/// How an owner goes.
#[derive(Clone, Copy)]
enum Leaving {
    Stopping(Stopping),
    HandingOver(HandingOver),
}

/// A clean stop.
#[derive(Clone, Copy)]
struct Stopping {
    /// What is under way by then is abandoned.
    patience_ends: u64,
    has_abandoned: bool,
}

/// A batch that is on its way.
struct Sent {
    batch: ShardBatch,
    lands: u64,
    answered: u64,
    has_landed: bool,
    missed: Missed,
}

/// What an owner does in a round.
#[derive(Clone, Copy)]
enum RoundAction {
    Step,
    Depart,
    Hear,
    Listen,
    Commit,
    Ask,
}

/// Rounds in a row that may be for nothing.
const IDLE_ROUNDS_MAX: u64 = 300;

/// A shard that has nothing to do has ended everything by then.
const DRAIN_MS: u64 = 1_200_000;

/// How long it may take to read a shard.
const READING_MS: u64 = 500;

impl Owner {
    /// Takes the shard over, as this node: learns who is there, then what they have reported, and reads all else.
    pub fn load(node: usize, sim: &mut Simulation) -> Result<Self, Broken> {
        let mut clock = sim.cluster.clocks[sim.cluster.nodes[node].machine];
        if sim.is_calm {
            clock.wall_offset = 0;
        }
        let mut senders = sim.cluster.sessions(sim.now);
        let (reports, seen) = (sim.store.reports(), sim.cluster.report_keys.len());
        if sim.setting.company != Company::Alone {
            sim.now += sim.dice.between(0, READING_MS);
            sim.pass();
        }
        if mutant::active(Mutant::SendersAfterReports) {
            senders = sim.cluster.sessions(sim.now);
        }
        let now = sim.time(&clock);
        let shard = sim.store.load(&reports, senders, now);
        let mut shard = shard.map_err(|why| (ShardPromise::NoPanic, why.to_string()))?;
        let seen_until = sim.store.head.decided_through;
        shard.number_from(sim.cluster.nodes[node].next_key);
        sim.note(|| {
            let (unfinished, senders) = (shard.unfinished(), shard.senders());
            format!("node {node}, {clock:?}, {unfinished} unfinished, waits for {senders:?}")
        });
        if shard.is_ahead_of_clock(now) {
            sim.note(|| "set back".to_owned());
            shard.set_back(now);
        }
        let absence = Absence {
            noticed: Instant::FIRST,
            missed_until: Instant(now.wall.0 - MISSED_AFTER_MS),
            seen_until,
        };
        let reign_ms = sim.setting.reign_ms;
        Ok(Self {
            node,
            shard,
            clock,
            stops: sim.now + sim.dice.between(reign_ms / 4, 2 * reign_ms),
            leaving: None,
            sent: None,
            trips: BTreeMap::new(),
            tasks: Vec::new(),
            inbox: ReportInbox::since(seen),
            requests: BTreeMap::new(),
            is_asked_by_worker: false,
            next_command: sim.now,
            missed: Missed { known: vec![absence], since: Some(now.wall) },
            busy_until: 0,
            room: HostRoom::ALL,
            busy_host: None,
            idle_rounds: 0,
        })
    }

    /// What time it is for this owner.
    pub fn now(&self, sim: &mut Simulation) -> Now {
        sim.time(&self.clock)
    }

    /// Runs the shard until it dies, has stopped, or has handed it over.
    pub fn reign(&mut self, sim: &mut Simulation) -> Result<ReignEnd, Broken> {
        loop {
            if !self.round(sim)? {
                return Ok(ReignEnd::Crash);
            }
            let is_time = sim.now >= self.stops || sim.now >= sim.setting.length;
            let end = match self.leaving {
                Some(Leaving::Stopping(stopping)) => self.go_on_stopping(stopping, sim),
                Some(Leaving::HandingOver(handing_over)) => {
                    self.continue_handover(handing_over, sim)?
                }
                None if is_time => {
                    self.go(sim);
                    None
                }
                None => None,
            };
            if let Some(end) = end {
                sim.note(|| format!("{end:?}"));
                return Ok(end);
            }
            self.leap(sim)?;
        }
    }

    /// Begins to hand the shard over, or to stop.
    fn go(&mut self, sim: &mut Simulation) {
        let hands_over = match sim.setting.company {
            Company::Alone => false,
            Company::Cluster => sim.dice.chance(85),
            Company::Rolling => true,
        };
        if hands_over {
            return self.begin_handover(sim);
        }
        sim.note(|| "stopping".to_owned());
        let now = self.now(sim);
        self.shard.stop(now);
        self.recall(sim);
        let patience_ends = sim.now + sim.dice.between(0, 12_000);
        self.leaving = Some(Leaving::Stopping(Stopping { patience_ends, has_abandoned: false }));
    }

    /// Runs the shard for so long, and nothing goes wrong.
    pub fn run_on(&mut self, sim: &mut Simulation, length: u64) -> Result<(), Broken> {
        let until = sim.now + length;
        while sim.now < until {
            self.round(sim)?;
            self.leap(sim)?;
        }
        Ok(())
    }

    /// Runs the shard until nothing is unfinished.
    pub fn run_out(&mut self, sim: &mut Simulation) -> Result<(), Broken> {
        let until = sim.now + DRAIN_MS;
        while self.unfinished() > 0 || !self.shard.is_settled() {
            if sim.now > until {
                let what = format!("{} runs are unfinished", self.unfinished());
                return Err((ShardPromise::NothingIsStuck, what));
            }
            self.round(sim)?;
            self.leap(sim)?;
        }
        Ok(())
    }

    fn unfinished(&self) -> usize {
        let queue = self.shard.queue_census();
        self.shard.unfinished() + queue.waiting + queue.running as usize
    }

    /// Dies. What is on its way lands, or not.
    pub fn die(&mut self, sim: &mut Simulation) -> Result<(), Broken> {
        sim.note(|| "crashed".to_owned());
        for trip in self.trips.values().filter(|trip| !trip.has_begun()) {
            sim.checker.recalled(trip.run);
        }
        match self.sent.take() {
            Some(sent) if !sent.has_landed && sim.dice.chance(50) => land(&sent, sim)?,
            Some(_) | None => {}
        }
        match self.leaving {
            Some(Leaving::HandingOver(handing_over)) if sim.dice.chance(50) => {
                self.name(handing_over, sim)
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Whether it has stopped.
    fn go_on_stopping(&mut self, stopping: Stopping, sim: &mut Simulation) -> Option<ReignEnd> {
        let is_over = self.shard.in_flight() == 0 || sim.now >= stopping.patience_ends;
        if is_over && !stopping.has_abandoned {
            let now = self.now(sim);
            self.shard.abandon(now);
            self.leaving = Some(Leaving::Stopping(Stopping { has_abandoned: true, ..stopping }));
        }
        (stopping.has_abandoned && self.shard.is_settled()).then_some(ReignEnd::Stop)
    }

    /// Does everything once. Says whether the owner has survived it.
    fn round(&mut self, sim: &mut Simulation) -> Result<bool, Broken> {
        let mut deeds = [
            RoundAction::Step,
            RoundAction::Depart,
            RoundAction::Hear,
            RoundAction::Listen,
            RoundAction::Commit,
            RoundAction::Ask,
            RoundAction::Commit,
        ];
        for place in (1..deeds.len()).rev() {
            let other = usize::try_from(sim.dice.between(0, place as u64)).expect("an index");
            deeds.swap(place, other);
        }
        for deed in deeds {
            if Self::dies(sim) {
                return Ok(false);
            }
            let now = self.now(sim);
            if self.shard.is_settled() {
                self.missed.since = self.missed.since.map(|_| now.wall);
            }
            self.hear_worker(now, sim)?;
            match deed {
                RoundAction::Step => {
                    let is_busy = sim.now < self.busy_until;
                    let is_it = |origin| self.busy_host.is_none_or(|host| host == origin);
                    let room = |origin| {
                        if is_busy && is_it(origin) { self.room } else { HostRoom::ALL }
                    };
                    self.shard.step(now, &room);
                }
                RoundAction::Depart => {
                    if !self.depart(now, sim)? {
                        return Ok(false);
                    }
                }
                RoundAction::Hear => self.hear(now, sim)?,
                RoundAction::Listen => self.listen(now, sim)?,
                RoundAction::Commit => self.commit(now, sim)?,
                RoundAction::Ask => self.ask(now, sim),
            }
        }
        Ok(true)
    }

    fn dies(sim: &mut Simulation) -> bool {
        let is_ready = sim.oracle.triggers.len() >= sim.setting.due_at_once;
        !sim.is_calm && is_ready && sim.dice.between(0, 9_999) < sim.setting.crashes
    }

    fn commit(&mut self, now: Now, sim: &mut Simulation) -> Result<(), Broken> {
        match &mut self.sent {
            Some(sent) if !sent.has_landed => {
                if sim.now >= sent.lands {
                    sent.has_landed = true;
                    land(sent, sim)?;
                }
            }
            Some(sent) => {
                if sim.now >= sent.answered {
                    self.sent = None;
                    self.answered(now, sim)?;
                }
            }
            None => self.send(now, sim)?,
        }
        Ok(())
    }

    fn send(&mut self, now: Now, sim: &mut Simulation) -> Result<(), Broken> {
        let is_due = self.shard.commit_by().is_some_and(|by| by <= now.wall);
        if !is_due && !sim.dice.chance(3) {
            return Ok(());
        }
        let Some(batch) = self.shard.take_batch(sim.store.number + 1, sim.setting.room) else {
            return Ok(());
        };
        check_room(&batch, sim)?;
        let commit_ms = sim.setting.commit_ms;
        let lands = sim.now + sim.dice.between(0, commit_ms);
        let answered = lands + sim.dice.between(0, commit_ms / 2);
        let missed = self.missed.clone();
        self.sent = Some(Sent { batch, lands, answered, has_landed: false, missed });
        Ok(())
    }

    fn answered(&mut self, now: Now, sim: &mut Simulation) -> Result<(), Broken> {
        let committed = self.shard.committed(now);
        for key in committed.aborts {
            if let Some(trip) = self.trips.remove(&key) {
                sim.note(|| format!("aborted {:?}", trip.run));
                if trip.has_begun() {
                    sim.checker.aborted(trip.run, sim.now);
                } else {
                    sim.checker.recalled(trip.run);
                }
            }
        }
        for (ticket, done) in committed.replies {
            self.told(ticket.0, done, sim)?;
        }
        self.answer_worker(committed.answers, sim)?;
        sim.checker.check_words(&sim.oracle)
    }

    /// Leaps to what comes next, and sometimes further.
    fn leap(&mut self, sim: &mut Simulation) -> Result<(), Broken> {
        let now = self.now(sim);
        let by_wall = |wall: Instant| {
            u64::try_from(wall.0 - BEGIN - self.clock.wall_offset).unwrap_or(0).max(sim.now)
        };
        let is_busy = sim.now < self.busy_until;
        let wake = self.shard.next_wake(now).map(by_wall);
        let sent =
            self.sent.as_ref().map(|sent| if sent.has_landed { sent.answered } else { sent.lands });
        let others = [
            self.shard.commit_by().map(by_wall),
            sent,
            self.trips.values().map(UnderWay::next).min(),
            self.next_of_worker(sim),
            (!sim.is_calm && self.leaving.is_none()).then_some(self.next_command),
            (!sim.is_calm && self.leaving.is_none()).then_some(self.stops),
            is_busy.then_some(self.busy_until),
            self.leaving.and_then(Leaving::next).filter(|next| *next > sim.now),
            self.inbox.next(),
            sim.cluster.next(sim.now),
        ];
        let other = others.into_iter().flatten().min();
        let is_idle = wake == Some(sim.now) && !is_busy;
        self.idle_rounds = if is_idle { self.idle_rounds + 1 } else { 0 };
        if self.idle_rounds > IDLE_ROUNDS_MAX {
            let what = format!("it asks to be woken at once, for ever, at {}", now.wall);
            return Err((ShardPromise::NothingIsStuck, what));
        }
        let wake = wake.filter(|at| *at > sim.now || !is_busy);
        let next = [wake, other].into_iter().flatten().min().unwrap_or(sim.now + 1_000);
        sim.now = next.max(sim.now + 1);
        if !sim.is_calm {
            self.suffer(sim);
        }
        sim.pass();
        Ok(())
    }

    /// What can happen to an owner while it waits.
    fn suffer(&mut self, sim: &mut Simulation) {
        if sim.dice.chance(20) {
            sim.now += sim.dice.between(0, 40);
        }
        if sim.dice.between(0, 999) < sim.setting.busy {
            let longest = sim.dice.pick(&[6_000, 6_000, 6_000, 150_000]);
            self.busy_until = sim.now + sim.dice.between(100, longest);
            self.room = sim.dice.pick(&[
                HostRoom::NONE,
                HostRoom { at_least_once: usize::MAX, at_most_once: 0 },
                HostRoom { at_least_once: 2, at_most_once: 1 },
            ]);
            let host = sim.dice.pick(&[None, Some(draft::HOSTS[0]), Some(draft::HOSTS[1])]);
            self.busy_host = host.map(draft::origin);
            sim.note(|| format!("{} has {:?}", host.unwrap_or("every host"), self.room));
        }
        if sim.dice.between(0, 99_999) < sim.setting.clock_steps {
            let step = sim.dice.between(0, 8_000).cast_signed() - 4_000;
            sim.note(|| format!("the clock is set by {step} ms"));
            self.clock.wall_offset += step;
            let machine = sim.cluster.nodes[self.node].machine;
            sim.cluster.clocks[machine].wall_offset = self.clock.wall_offset;
            // Instants of its wall clock no longer tell what was decided when.
            self.missed = Missed::default();
        }
        if sim.dice.between(0, 999) < sim.setting.stalls {
            let stall = sim.dice.between(200, 20_000);
            sim.note(|| format!("stalls for {stall} ms"));
            sim.now += stall;
            if stall > 1_000 {
                let now = self.now(sim);
                let seen_until = self.shard.decided_through();
                self.shard.awake(now);
                if let Some(known) = self.missed.known.last() {
                    let until = Instant(now.wall.0 - MISSED_AFTER_MS);
                    let missed_until = known.missed_until.max(until);
                    let noticed = now.wall;
                    self.missed.known.push(Absence { noticed, missed_until, seen_until });
                }
            }
        }
    }
}

impl Leaving {
    /// When it goes on, if that is known.
    fn next(self) -> Option<u64> {
        match self {
            Self::Stopping(stopping) => Some(stopping.patience_ends),
            Self::HandingOver(handing_over) => handing_over.next(),
        }
    }
}

fn land(sent: &Sent, sim: &mut Simulation) -> Result<(), Broken> {
    sim.note(|| tell(&sent.batch));
    sim.store.land(&sent.batch);
    sim.oracle.landed(&sent.batch, &sent.missed, &sim.checker)
}

fn tell(batch: &ShardBatch) -> String {
    let mut text = format!(
        "landed: decided through {:?}, {} open",
        batch.head.decided_through,
        batch.head.open.len()
    );
    for put in &batch.puts {
        let (key, value) = match put {
            Put::Value(key, value) => (key, String::from_utf8_lossy(value)),
            Put::Gone(key) => (key, "gone".into()),
        };
        let short: String = value.chars().take(300).collect();
        write!(text, "\n            {key} {short}").expect("a text grows");
    }
    text
}

fn check_room(batch: &ShardBatch, sim: &Simulation) -> Result<(), Broken> {
    let room = sim.setting.room;
    let sizes = batch.puts.iter().map(|put| match put {
        Put::Value(key, value) => (key.len(), value.len()),
        Put::Gone(key) => (key.len(), 0),
    });
    let sizes: Vec<(usize, usize)> = sizes.collect();
    let head = serde_json::to_vec(&batch.head).expect("a head is plain").len();
    let bytes = head + sizes.iter().map(|(key, value)| key + value).sum::<usize>();
    let longest = sizes.iter().map(|(_, value)| *value).max().unwrap_or(0).max(head);
    let fits =
        sizes.len() < room.writes && bytes <= room.bytes && longest <= room.value_bytes.max(head);
    if fits {
        return Ok(());
    }
    Err((ShardPromise::FitsRoom, format!("{} writes, {bytes} bytes, {longest}", sizes.len() + 1)))
}

/// A run that is under way, to be named in a trace.
impl std::fmt::Display for ObservedRun {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Slot(slot) => write!(out, "{}/{}@{}", slot.trigger, slot.generation, slot.at),
            Self::Demand(trigger, sequence) => write!(out, "{trigger} on demand, {sequence}"),
            Self::Notice(trigger, sequence) => write!(out, "{trigger} notice, {sequence}"),
        }
    }
}
