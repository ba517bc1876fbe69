//! How much happens in a queue: what was given and what ended lately, and how long runs had to wait.
//!
//! Counting costs the same for each run, however many there are. What is counted is known to one owner alone, since it has
//! the queue: it is for people and graphs, and nothing is decided by it.

/// How many of its steps a meter adds up.
const STEPS: usize = 6;

/// The length of a step, in milliseconds.
const STEP_MS: u64 = 10_000;

/// What was given and what ended within the last minute, in steps of ten seconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct QueueMeter {
    /// The number of the newest step, by a clock that never steps back.
    newest: u64,
    steps: [Flow; STEPS],
}

/// How many runs were given, and how many ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flow {
    /// Runs that were given to workers, attempt by attempt.
    pub given: u32,
    /// Runs that ended, however they did.
    pub ended: u32,
}

/// What was counted since the last look, of all queues of a shard.
#[derive(Debug, Default)]
pub struct QueueTally {
    /// How long runs that were given had been due, in milliseconds.
    pub start_delays_ms: Vec<u32>,
}

impl QueueMeter {
    /// A run was given.
    pub fn given(&mut self, steady: u64) {
        let step = self.step(steady);
        step.given = step.given.saturating_add(1);
    }

    /// A run ended.
    pub fn ended(&mut self, steady: u64) {
        let step = self.step(steady);
        step.ended = step.ended.saturating_add(1);
    }

    /// What happened within the last minute, up to ten seconds less.
    pub fn last_minute(&self, steady: u64) -> Flow {
        let mut recent = *self;
        recent.advance(steady);
        recent.steps.iter().fold(Flow::default(), |sum, step| Flow {
            given: sum.given.saturating_add(step.given),
            ended: sum.ended.saturating_add(step.ended),
        })
    }

    fn step(&mut self, steady: u64) -> &mut Flow {
        self.advance(steady);
        let place = place(self.newest);
        &mut self.steps[place]
    }

    /// Forgets the steps that are over for a minute.
    fn advance(&mut self, steady: u64) {
        let now = steady / STEP_MS;
        let passed = usize::try_from(now.saturating_sub(self.newest)).unwrap_or(STEPS);
        for _ in 0..passed.min(STEPS) {
            self.newest += 1;
            let place = place(self.newest);
            self.steps[place] = Flow::default();
        }
        self.newest = self.newest.max(now);
    }
}

fn place(step: u64) -> usize {
    usize::try_from(step % STEPS as u64).expect("a small number")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meter_forgets_what_was_a_minute_ago() {
        let mut meter = QueueMeter::default();
        let steady = 1_000_000;
        for second in 0..120 {
            meter.given(steady + second * 1_000);
            if second % 2 == 0 {
                meter.ended(steady + second * 1_000);
            }
        }
        let Flow { given, ended } = meter.last_minute(steady + 119_000);
        assert!((50..=60).contains(&given), "{given}");
        assert_eq!(ended, given / 2);
        assert_eq!(meter.last_minute(steady + 149_999).given, given - 30);
        assert_eq!(meter.last_minute(steady + 180_000), Flow::default());
        assert_eq!(meter.last_minute(u64::MAX), Flow::default());
    }
}
