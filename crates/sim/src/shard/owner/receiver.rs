//! What leaves, and what comes of it.

use std::time::Duration;

use engine::instant::Instant;
use engine::outcome::{Lost, NotSent, Outcome};
use engine::past::Attempt;
use engine::shard::{Departure, Now, Report};

use super::super::ledger::{Broken, Run};
use super::super::stage::Stage;
use super::super::witness::Fate;
use super::Owner;

/// An attempt that is under way.
pub(super) struct UnderWay {
    pub(super) run: Run,
    pub(super) ends: u64,
    outcome: Outcome,
    left: Instant,
    length: u64,
}

impl Owner {
    /// Lets go what may leave, unless too much is under way. Says whether the owner has survived it.
    pub(super) fn depart(&mut self, now: Now, stage: &mut Stage) -> Result<bool, Broken> {
        if stage.now < self.busy_until {
            return Ok(true);
        }
        let mut out = Vec::new();
        self.shard.depart(now, &mut out);
        for departure in out {
            if Self::dies(stage) {
                return Ok(false);
            }
            self.let_go(&departure, now, stage)?;
        }
        Ok(true)
    }

    fn let_go(&mut self, departure: &Departure, now: Now, stage: &mut Stage) -> Result<(), Broken> {
        let run = stage.witness.left(departure, &stage.ledger, now.wall, stage.now)?;
        let (outcome, length) = answer(departure.form.timeout_ms.into(), stage);
        stage.note(|| format!("left {run} attempt {}: {outcome:?} {length} ms", departure.attempt));
        let ends = stage.now + length;
        let fate = Fate {
            ends,
            has_reached: !matches!(outcome, Outcome::NotSent { .. }),
            is_taken: matches!(outcome, Outcome::Answered { status: 200, .. }),
        };
        stage.witness.meets(run, departure.attempt, fate);
        let trip = UnderWay { run, ends, outcome, left: now.wall, length };
        self.trips.insert(departure.key, trip);
        Ok(())
    }

    /// Hears what came of attempts.
    pub(super) fn hear(&mut self, now: Now, stage: &mut Stage) {
        let over = self.trips.iter().filter(|(_, trip)| trip.ends <= stage.now);
        let over: Vec<u64> = over.map(|(key, _)| *key).collect();
        for key in over {
            let trip = self.trips.remove(&key).expect("listed above");
            stage.note(|| format!("heard {}: {:?}", trip.run, trip.outcome));
            let ms = u32::try_from(trip.length).expect("a short time");
            let (status, error, response) = (None, None, None);
            let attempt = Attempt { at: trip.left, ms, status, error, response };
            self.shard.finished(Report { key, outcome: trip.outcome, attempt }, now);
        }
    }
}

/// What a receiver makes of an attempt, and how long that takes.
fn answer(timeout: u64, stage: &mut Stage) -> (Outcome, u64) {
    let dice = &mut stage.dice;
    let status = |status| Outcome::Answered { status, retry_after: None };
    let quick = dice.between(1, 60);
    if stage.is_calm || !dice.chance(stage.setting.trouble) {
        return (status(200), quick);
    }
    let slow = dice.between(60, timeout);
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
