//! The clocks of a simulated machine: they run fast or slow, stand still in sleep, and step.

use std::time::Duration;

use engine::lease::Reading;

/// True time since the beginning of a run, in nanoseconds.
pub type TrueTime = u64;

/// A millisecond of true time.
pub const MS: TrueTime = 1_000_000;

const PPM: u64 = 1_000_000;

/// One clock that counts at a rate of its own.
#[derive(Debug, Clone)]
struct Counter {
    since: TrueTime,
    count: u64,
    ppm: u64,
}

impl Counter {
    fn at(&self, now: TrueTime) -> u64 {
        let passed = u128::from(now - self.since) * u128::from(self.ppm) / u128::from(PPM);
        self.count + u64::try_from(passed).expect("a run lasts minutes")
    }

    fn run_at(&mut self, now: TrueTime, ppm: u64) {
        *self = Self { since: now, count: self.at(now), ppm };
    }
}

/// The three clocks of a machine.
#[derive(Debug, Clone)]
pub struct Clocks {
    boot: Counter,
    raw: Counter,
    /// What the raw clock runs at when the machine is awake.
    raw_ppm: u64,
    /// What the wall clock said at the beginning, in microseconds since 1970. It is steered, so it runs
    /// well; but it may be far off, and may be set.
    wall_us: u64,
}

impl Clocks {
    /// Clocks with these rates, in parts per million of true time.
    pub fn new(boot_ppm: u64, raw_ppm: u64, wall_us: u64) -> Self {
        // Machines have been up for different times, which must not matter.
        let counter = |ppm| Counter { since: 0, count: ppm * 1_000_000, ppm };
        Self { boot: counter(boot_ppm), raw: counter(raw_ppm), raw_ppm, wall_us }
    }

    /// Both monotonic clocks.
    pub fn reading(&self, now: TrueTime) -> Reading {
        let read = |counter: &Counter| Duration::from_nanos(counter.at(now));
        Reading { boot: read(&self.boot), raw: read(&self.raw) }
    }

    /// The wall clock.
    pub fn wall_us(&self, now: TrueTime) -> u64 {
        self.wall_us + now / 1_000
    }

    /// True time until the raw clock has counted `length`, if it is awake; `None` if that is nothing.
    pub fn until(&self, length: Duration) -> Option<TrueTime> {
        let length = length.as_nanos() * u128::from(PPM) / u128::from(self.raw_ppm);
        let length = u64::try_from(length).unwrap_or(u64::MAX / 4);
        (length > 0).then_some(length.saturating_add(1))
    }

    /// Both monotonic clocks go on at other rates.
    pub fn run_at(&mut self, now: TrueTime, boot_ppm: u64, raw_ppm: u64) {
        self.boot.run_at(now, boot_ppm);
        self.raw_ppm = raw_ppm;
        if self.raw.ppm != 0 {
            self.raw.run_at(now, raw_ppm);
        }
    }

    /// The machine falls asleep: the raw clock stands still.
    pub fn sleep(&mut self, now: TrueTime) {
        self.raw.run_at(now, 0);
    }

    /// The machine wakes up.
    pub fn wake(&mut self, now: TrueTime) {
        self.raw.run_at(now, self.raw_ppm);
    }

    /// The wall clock is set.
    pub fn step(&mut self, wall_us: u64) {
        self.wall_us = wall_us;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fast_clock_counts_more_and_waits_less() {
        let clocks = Clocks::new(1_100_000, 900_000, 0);
        let (before, after) = (clocks.reading(0), clocks.reading(1_000 * MS));
        assert_eq!(after.most_since(before), Duration::from_millis(1_100));
        assert_eq!(after.least_since(before), Duration::from_millis(900));
        let wait = clocks.until(Duration::from_millis(900));
        assert_eq!(wait, Some(1_000 * MS + 1));
        assert_eq!(clocks.until(Duration::ZERO), None);
    }

    #[test]
    fn the_raw_clock_stands_still_while_the_machine_sleeps() {
        let mut clocks = Clocks::new(1_000_000, 1_000_000, 0);
        let before = clocks.reading(0);
        clocks.sleep(1_000 * MS);
        clocks.wake(5_000 * MS);
        let after = clocks.reading(6_000 * MS);
        assert_eq!(after.most_since(before), Duration::from_secs(6));
        assert_eq!(after.least_since(before), Duration::from_secs(2));
    }
}
