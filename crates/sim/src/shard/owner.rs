//! An owner: whoever runs the shard, from its claim to its death, its clean stop, or its hand-over.
//!
//! A round is everything that an owner does, in an order that the dice choose, with a chance to die
//! before each of it. Between two rounds time leaps to whatever comes next, and sometimes further.

mod handover;
mod mail;
mod people;
mod receiver;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use engine::instant::Instant;
use engine::limits::MISSED_AFTER_MS;
use engine::mutant::{self, Mutant};
use engine::shard::{Load, Now, Put, Shard, ShardBatch};

use super::ledger::catch::Missed;
use super::ledger::{Broken, Run};
use super::node::{Clock, Task};
use super::promise::Promise;
use super::setting::Company;
use super::stage::{BEGIN, Stage};
use handover::HandingOver;
use mail::Mail;
use people::Asked;
use receiver::UnderWay;

/// How an owner ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It died.
    Crash,
    /// It stopped cleanly.
    Stop,
    /// It named another one.
    HandedOver,
    /// It could not name another one, and reads the shard anew.
    CalledOff,
}

/// Whoever runs the shard.
pub struct Owner {
    /// Which node it is.
    pub node: usize,
    shard: Shard,
    clock: Clock,
    /// When it stops, if it lives.
    stops: u64,
    leaving: Option<Leaving>,
    sent: Option<Sent>,
    trips: BTreeMap<u64, UnderWay>,
    /// What it will report once all is written.
    tasks: Vec<Task>,
    mail: Mail,
    asked: BTreeMap<u64, Asked>,
    next_command: u64,
    missed: Missed,
    low: Option<Instant>,
    busy_until: u64,
    /// How much there is for every host.
    load: Load,
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
enum Deed {
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
    pub fn load(node: usize, stage: &mut Stage) -> Result<Self, Broken> {
        let mut clock = stage.cluster.clocks[stage.cluster.nodes[node].machine];
        if stage.is_calm {
            clock.wall_offset = 0;
        }
        let mut senders = stage.cluster.sessions(stage.now);
        let (reports, letters) = (stage.shelf.reports(), stage.cluster.letters.len());
        if stage.setting.company != Company::Alone {
            stage.now += stage.dice.between(0, READING_MS);
            stage.pass();
        }
        if mutant::active(Mutant::SendersAfterReports) {
            senders = stage.cluster.sessions(stage.now);
        }
        let now = stage.time(&clock);
        let shard = stage.shelf.load(&reports, senders, now);
        let mut shard = shard.map_err(|why| (Promise::NoPanic, why.to_string()))?;
        shard.number_from(stage.cluster.nodes[node].next_key);
        stage.note(|| {
            let (unfinished, senders) = (shard.unfinished(), shard.senders());
            format!("node {node}, {clock:?}, {unfinished} unfinished, waits for {senders:?}")
        });
        if shard.is_ahead_of_clock(now) {
            stage.note(|| "set back".to_owned());
            shard.set_back(now);
        }
        let missed = Instant(now.wall.0 - MISSED_AFTER_MS);
        let reign_ms = stage.setting.reign_ms;
        Ok(Self {
            node,
            shard,
            clock,
            stops: stage.now + stage.dice.between(reign_ms / 4, 2 * reign_ms),
            leaving: None,
            sent: None,
            trips: BTreeMap::new(),
            tasks: Vec::new(),
            mail: Mail::since(letters),
            asked: BTreeMap::new(),
            next_command: stage.now,
            missed: Missed { known: vec![(Instant::FIRST, missed)], low: None },
            low: Some(missed),
            busy_until: 0,
            load: Load::Free,
            idle_rounds: 0,
        })
    }

    /// What time it is for this owner.
    pub fn now(&self, stage: &mut Stage) -> Now {
        stage.time(&self.clock)
    }

    /// Runs the shard until it dies, has stopped, or has handed it over.
    pub fn reign(&mut self, stage: &mut Stage) -> Result<End, Broken> {
        loop {
            if !self.round(stage)? {
                return Ok(End::Crash);
            }
            let is_time = stage.now >= self.stops || stage.now >= stage.setting.length;
            let end = match self.leaving {
                Some(Leaving::Stopping(stopping)) => self.go_on_stopping(stopping, stage),
                Some(Leaving::HandingOver(handing_over)) => {
                    self.continue_handover(handing_over, stage)?
                }
                None if is_time => {
                    self.go(stage);
                    None
                }
                None => None,
            };
            if let Some(end) = end {
                stage.note(|| format!("{end:?}"));
                return Ok(end);
            }
            self.leap(stage)?;
        }
    }

    /// It is time to go.
    fn go(&mut self, stage: &mut Stage) {
        let parts = match stage.setting.company {
            Company::Alone => false,
            Company::Cluster => stage.dice.chance(85),
            Company::Rolling => true,
        };
        if parts {
            return self.begin_handover(stage);
        }
        stage.note(|| "stopping".to_owned());
        let now = self.now(stage);
        self.shard.stop(now);
        self.recall(stage);
        let patience_ends = stage.now + stage.dice.between(0, 12_000);
        self.leaving = Some(Leaving::Stopping(Stopping { patience_ends, has_abandoned: false }));
    }

    /// Runs the shard for so long, and nothing goes wrong.
    pub fn run_on(&mut self, stage: &mut Stage, length: u64) -> Result<(), Broken> {
        let until = stage.now + length;
        while stage.now < until {
            self.round(stage)?;
            self.leap(stage)?;
        }
        Ok(())
    }

    /// Runs the shard until nothing is unfinished.
    pub fn run_out(&mut self, stage: &mut Stage) -> Result<(), Broken> {
        let until = stage.now + DRAIN_MS;
        while self.shard.unfinished() > 0 || !self.shard.is_settled() {
            if stage.now > until {
                let what = format!("{} runs are unfinished", self.shard.unfinished());
                return Err((Promise::NothingIsStuck, what));
            }
            self.round(stage)?;
            self.leap(stage)?;
        }
        Ok(())
    }

    /// Dies. What is on its way lands, or not.
    pub fn die(&mut self, stage: &mut Stage) -> Result<(), Broken> {
        stage.note(|| "crashed".to_owned());
        for trip in self.trips.values().filter(|trip| !trip.has_begun()) {
            stage.witness.recalled(trip.run);
        }
        match self.sent.take() {
            Some(sent) if !sent.has_landed && stage.dice.chance(50) => land(&sent, stage)?,
            Some(_) | None => {}
        }
        match self.leaving {
            Some(Leaving::HandingOver(handing_over)) if stage.dice.chance(50) => {
                self.name(handing_over, stage)
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Whether it has stopped.
    fn go_on_stopping(&mut self, stopping: Stopping, stage: &mut Stage) -> Option<End> {
        let is_over = self.shard.in_flight() == 0 || stage.now >= stopping.patience_ends;
        if is_over && !stopping.has_abandoned {
            let now = self.now(stage);
            self.shard.abandon(now);
            self.leaving = Some(Leaving::Stopping(Stopping { has_abandoned: true, ..stopping }));
        }
        (stopping.has_abandoned && self.shard.is_settled()).then_some(End::Stop)
    }

    /// Does everything once. Says whether the owner has survived it.
    fn round(&mut self, stage: &mut Stage) -> Result<bool, Broken> {
        let mut deeds = [
            Deed::Step,
            Deed::Depart,
            Deed::Hear,
            Deed::Listen,
            Deed::Commit,
            Deed::Ask,
            Deed::Commit,
        ];
        for place in (1..deeds.len()).rev() {
            let other = usize::try_from(stage.dice.between(0, place as u64)).expect("an index");
            deeds.swap(place, other);
        }
        for deed in deeds {
            if Self::dies(stage) {
                return Ok(false);
            }
            let now = self.now(stage);
            match deed {
                Deed::Step => self.shard.step(now, &|_| self.load),
                Deed::Depart => {
                    if !self.depart(now, stage)? {
                        return Ok(false);
                    }
                }
                Deed::Hear => self.hear(now, stage)?,
                Deed::Listen => self.listen(now, stage)?,
                Deed::Commit => self.commit(now, stage)?,
                Deed::Ask => self.ask(now, stage),
            }
        }
        Ok(true)
    }

    fn dies(stage: &mut Stage) -> bool {
        let is_ready = stage.ledger.triggers.len() >= stage.setting.backpressure;
        !stage.is_calm && is_ready && stage.dice.between(0, 9_999) < stage.setting.crashes
    }

    fn commit(&mut self, now: Now, stage: &mut Stage) -> Result<(), Broken> {
        match &mut self.sent {
            Some(sent) if !sent.has_landed => {
                if stage.now >= sent.lands {
                    sent.has_landed = true;
                    land(sent, stage)?;
                }
            }
            Some(sent) => {
                if stage.now >= sent.answered {
                    self.sent = None;
                    self.answered(now, stage)?;
                }
            }
            None => self.send(now, stage)?,
        }
        Ok(())
    }

    fn send(&mut self, now: Now, stage: &mut Stage) -> Result<(), Broken> {
        let is_due = self.shard.commit_by().is_some_and(|by| by <= now.wall);
        if !is_due && !stage.dice.chance(3) {
            return Ok(());
        }
        let Some(batch) = self.shard.take_batch(stage.shelf.number + 1, stage.setting.room) else {
            return Ok(());
        };
        check_room(&batch, stage)?;
        let commit_ms = stage.setting.commit_ms;
        let lands = stage.now + stage.dice.between(0, commit_ms);
        let answered = lands + stage.dice.between(0, commit_ms / 2);
        let missed = Missed { low: self.low, ..self.missed.clone() };
        self.sent = Some(Sent { batch, lands, answered, has_landed: false, missed });
        Ok(())
    }

    fn answered(&mut self, now: Now, stage: &mut Stage) -> Result<(), Broken> {
        let committed = self.shard.committed(now);
        for key in committed.aborts {
            if let Some(trip) = self.trips.remove(&key) {
                stage.note(|| format!("aborted {:?}", trip.run));
                if trip.has_begun() {
                    stage.witness.aborted(trip.run, stage.now);
                } else {
                    stage.witness.recalled(trip.run);
                }
            }
        }
        for (ticket, done) in committed.replies {
            self.told(ticket.0, done, stage)?;
        }
        stage.witness.check_words(&stage.ledger)
    }

    /// Leaps to what comes next, and sometimes further.
    fn leap(&mut self, stage: &mut Stage) -> Result<(), Broken> {
        let now = self.now(stage);
        let by_wall = |wall: Instant| {
            u64::try_from(wall.0 - BEGIN - self.clock.wall_offset).unwrap_or(0).max(stage.now)
        };
        let is_busy = stage.now < self.busy_until;
        let wake = self.shard.next_wake(now).map(by_wall);
        let sent =
            self.sent.as_ref().map(|sent| if sent.has_landed { sent.answered } else { sent.lands });
        let others = [
            self.shard.commit_by().map(by_wall),
            sent,
            self.trips.values().map(UnderWay::next).min(),
            (!stage.is_calm && self.leaving.is_none()).then_some(self.next_command),
            (!stage.is_calm && self.leaving.is_none()).then_some(self.stops),
            is_busy.then_some(self.busy_until),
            self.leaving.and_then(Leaving::next).filter(|next| *next > stage.now),
            self.mail.next(),
            stage.cluster.next(stage.now),
        ];
        let other = others.into_iter().flatten().min();
        let is_idle = wake == Some(stage.now) && !is_busy;
        self.idle_rounds = if is_idle { self.idle_rounds + 1 } else { 0 };
        if self.idle_rounds > IDLE_ROUNDS_MAX {
            let what = format!("it asks to be woken at once, for ever, at {}", now.wall);
            return Err((Promise::NothingIsStuck, what));
        }
        let wake = wake.filter(|at| *at > stage.now || !is_busy);
        let next = [wake, other].into_iter().flatten().min().unwrap_or(stage.now + 1_000);
        stage.now = next.max(stage.now + 1);
        if !stage.is_calm {
            self.suffer(stage);
        }
        stage.pass();
        Ok(())
    }

    /// What can happen to an owner while it waits.
    fn suffer(&mut self, stage: &mut Stage) {
        if stage.dice.chance(20) {
            stage.now += stage.dice.between(0, 40);
        }
        if stage.dice.between(0, 999) < stage.setting.busy {
            self.busy_until = stage.now + stage.dice.between(100, 6_000);
            stage.note(|| "busy".to_owned());
        }
        self.load = match stage.now < self.busy_until {
            false => Load::Free,
            true if self.busy_until.is_multiple_of(2) => Load::Busy,
            true => Load::Full,
        };
        if stage.dice.between(0, 99_999) < stage.setting.clock_steps {
            let step = stage.dice.between(0, 8_000).cast_signed() - 4_000;
            stage.note(|| format!("the clock is set by {step} ms"));
            self.clock.wall_offset += step;
            let machine = stage.cluster.nodes[self.node].machine;
            stage.cluster.clocks[machine].wall_offset = self.clock.wall_offset;
            // Instants of its wall clock no longer tell what was decided when.
            (self.missed, self.low) = (Missed::default(), None);
        }
        if stage.dice.between(0, 999) < stage.setting.stalls {
            let stall = stage.dice.between(200, 20_000);
            stage.note(|| format!("stalls for {stall} ms"));
            stage.now += stall;
            if stall > 1_000 {
                let now = self.now(stage);
                self.shard.awake(now);
                if let Some((_, known)) = self.missed.known.last().copied() {
                    let until = known.max(Instant(now.wall.0 - MISSED_AFTER_MS));
                    self.missed.known.push((now.wall, until));
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

fn land(sent: &Sent, stage: &mut Stage) -> Result<(), Broken> {
    stage.note(|| tell(&sent.batch));
    stage.shelf.land(&sent.batch);
    stage.ledger.landed(&sent.batch, &sent.missed, &stage.witness)
}

fn tell(batch: &ShardBatch) -> String {
    let mut text = format!("landed: fired {:?}, {} open", batch.head.fired, batch.head.open.len());
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

fn check_room(batch: &ShardBatch, stage: &Stage) -> Result<(), Broken> {
    let room = stage.setting.room;
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
    Err((Promise::FitsRoom, format!("{} writes, {bytes} bytes, {longest}", sizes.len() + 1)))
}

/// A run that is under way, to be named in a trace.
impl std::fmt::Display for Run {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Slot(slot) => write!(out, "{}/{}@{}", slot.trigger, slot.generation, slot.at),
            Self::Demand(trigger, sequence) => write!(out, "{trigger} on demand, {sequence}"),
            Self::Notice(trigger, sequence) => write!(out, "{trigger} notice, {sequence}"),
        }
    }
}
