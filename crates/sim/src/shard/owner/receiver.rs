//! What leaves, and what comes of it.

use std::time::Duration;

use engine::instant::Instant;
use engine::outcome::{Lost, NotSent, Outcome};
use engine::past::Attempt;
use engine::shard::{AttemptReport, Departure, Now};

use super::super::checker::{AttemptFate, LeavingAttempt};
use super::super::oracle::{Broken, ObservedRun};
use super::super::promise::ShardPromise;
use super::super::setting::Company;
use super::super::simulation::Simulation;
use super::Owner;

/// An attempt that is under way.
pub(super) struct UnderWay {
    pub(super) run: ObservedRun,
    attempt: u32,
    timeout: u64,
    phase: Phase,
}

/// How far an attempt is.
enum Phase {
    /// It waits in its node until then.
    Waits(u64),
    /// It is at its receiver.
    Begun(Begun),
}

/// An attempt at its receiver.
pub(super) struct Begun {
    pub(super) ends: u64,
    pub(super) outcome: Outcome,
    left: Instant,
    length: u64,
}

impl UnderWay {
    /// Whether it is at its receiver, or was.
    pub(super) fn has_begun(&self) -> bool {
        matches!(self.phase, Phase::Begun(_))
    }

    /// When something happens to it.
    pub(super) fn next(&self) -> u64 {
        match &self.phase {
            Phase::Waits(until) => *until,
            Phase::Begun(begun) => begun.ends,
        }
    }

    /// The attempt at its receiver, if it has begun.
    pub(super) fn begun(self) -> Option<Begun> {
        match self.phase {
            Phase::Waits(_) => None,
            Phase::Begun(begun) => Some(begun),
        }
    }
}

impl Begun {
    /// As it will stand in the past.
    pub(super) fn made(&self) -> Attempt {
        let ms = u32::try_from(self.length).expect("a short time");
        let (status, error, response) = (None, None, None);
        Attempt { at: self.left, ms, status, error, response, ..Attempt::default() }
    }
}

impl Owner {
    /// Lets go what may leave, unless too much is under way. Says whether the owner has survived it.
    pub(super) fn depart(&mut self, now: Now, sim: &mut Simulation) -> Result<bool, Broken> {
        if sim.now < self.busy_until {
            return Ok(true);
        }
        let mut out = Vec::new();
        self.shard.depart(now, &mut out);
        for departure in out {
            if Self::dies(sim) {
                return Ok(false);
            }
            self.let_go(&departure, now, sim)?;
        }
        Ok(true)
    }

    fn let_go(
        &mut self,
        departure: &Departure,
        now: Now,
        sim: &mut Simulation,
    ) -> Result<(), Broken> {
        let leaving =
            LeavingAttempt { node: self.node, cluster: &sim.cluster, wall: now.wall, at: sim.now };
        let run = sim.checker.left(departure, &sim.oracle, leaving)?;
        let (key, attempt) = (departure.key, departure.attempt);
        if self.trips.contains_key(&key) || sim.cluster.has_key(self.node, key) {
            return Err((
                ShardPromise::OneId,
                format!("{run} has the key {key} of another attempt"),
            ));
        }
        let node = &mut sim.cluster.nodes[self.node];
        node.next_key = node.next_key.max(key + 1);
        sim.note(|| format!("left {run} attempt {attempt}"));
        sim.checker.waits(run, attempt, self.node);
        let waits = match sim.setting.company {
            Company::Alone => 0,
            Company::Cluster | Company::Rolling => {
                if sim.dice.chance(70) {
                    0
                } else {
                    sim.dice.between(1, 1_500)
                }
            }
        };
        let phase = Phase::Waits(sim.now + waits);
        let timeout = u64::from(departure.webhook.form.timeout_ms);
        let mut trip = UnderWay { run, attempt, timeout, phase };
        if waits == 0 {
            self.begin(&mut trip, now, sim)?;
        }
        self.trips.insert(key, trip);
        Ok(())
    }

    /// What waited in the node is sent.
    fn begin(&self, trip: &mut UnderWay, now: Now, sim: &mut Simulation) -> Result<(), Broken> {
        let (outcome, length) = answer(trip.timeout, sim);
        sim.note(|| format!("sent {} attempt {}: {outcome:?} {length} ms", trip.run, trip.attempt));
        let ends = sim.now + self.clock.true_ms(length);
        let fate = AttemptFate {
            ends,
            ends_by: sim.now + self.clock.true_ms(trip.timeout),
            has_reached: !matches!(outcome, Outcome::NotSent { .. }),
            is_taken: matches!(outcome, Outcome::Answered { status: 200, .. }),
            is_lost: matches!(outcome, Outcome::Lost { .. }),
        };
        trip.phase = Phase::Begun(Begun { ends, outcome, left: now.wall, length });
        sim.checker.begins(trip.run, fate, &sim.cluster)
    }

    /// Hears what came of attempts, and begins those that waited.
    pub(super) fn hear(&mut self, now: Now, sim: &mut Simulation) -> Result<(), Broken> {
        let due = self.trips.iter().filter(|(_, trip)| trip.next() <= sim.now);
        let due: Vec<u64> = due.map(|(key, _)| *key).collect();
        for key in due {
            let mut trip = self.trips.remove(&key).expect("listed above");
            let run = trip.run;
            if !trip.has_begun() {
                self.begin(&mut trip, now, sim)?;
                self.trips.insert(key, trip);
            } else if let Some(begun) = trip.begun() {
                let (outcome, attempt) = (begun.outcome, begun.made());
                sim.note(|| format!("heard {run}: {outcome:?}"));
                self.shard.finished(AttemptReport { key, outcome, attempt }, now);
            }
        }
        Ok(())
    }

    /// What waits in the node is not sent any more.
    pub(super) fn recall(&mut self, sim: &mut Simulation) {
        let now = self.now(sim);
        let waiting = self.trips.iter().filter(|(_, trip)| !trip.has_begun());
        for key in waiting.map(|(key, _)| *key).collect::<Vec<u64>>() {
            let trip = self.trips.remove(&key).expect("listed above");
            sim.note(|| format!("recalled {}", trip.run));
            sim.checker.recalled(trip.run);
            let outcome = Outcome::NotSent { why: NotSent::Cancelled };
            let (ms, status, error, response) = (0, None, None, None);
            let attempt =
                Attempt { at: now.wall, ms, status, error, response, ..Attempt::default() };
            self.shard.finished(AttemptReport { key, outcome, attempt }, now);
        }
    }
}

/// What a receiver makes of an attempt, and how long that takes.
fn answer(timeout: u64, sim: &mut Simulation) -> (Outcome, u64) {
    let dice = &mut sim.dice;
    let status = |status| Outcome::Answered { status, retry_after: None };
    let quick = dice.between(1, 60);
    let slow = dice.between(60, timeout);
    if sim.is_calm || !dice.chance(sim.setting.trouble) {
        // What is quick is seldom under way when a shard is handed over.
        let is_slow = !sim.is_calm && sim.setting.company != Company::Alone && dice.chance(40);
        return (status(200), if is_slow { slow } else { quick });
    }
    match dice.between(0, 99) {
        0..=24 => (status(200), slow),
        25..=44 => (status(dice.pick(&[500, 503])), quick),
        45..=49 => {
            let retry_after = Some(Duration::from_secs(dice.between(1, 9)));
            (Outcome::Answered { status: 429, retry_after }, slow)
        }
        50..=64 => (Outcome::NotSent { why: NotSent::Connect }, quick),
        65..=69 => (Outcome::NotSent { why: NotSent::Exhausted }, 1),
        70..=74 => {
            let rest = Duration::from_millis(dice.between(100, 4_000));
            (Outcome::NotSent { why: NotSent::Resting { rest } }, 1)
        }
        75..=86 => (Outcome::Lost { why: Lost::TimedOut }, timeout),
        87..=91 => (Outcome::Lost { why: Lost::Closed }, slow),
        92..=96 => (status(404), quick),
        _ => (status(410), quick),
    }
}
