//! Intervals that never drift: every so long, counted from 1970.

use std::time::Duration;

use crate::hash::hash;
use crate::instant::Instant;
use crate::length::text;
use crate::limits::{EVERY_MAX, EVERY_MIN, RING_EVERY_MIN};

/// Slots at a fixed distance. Where they lie does not depend on when anybody began to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Every {
    interval_ms: i64,
    /// Where the first slot after the beginning of 1970 lies; less than the interval.
    phase_ms: i64,
}

/// Why an interval cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an interval lasts {} to {}, and {} was asked for", text(EVERY_MIN), text(EVERY_MAX), text(*.0))]
pub struct BadInterval(Duration);

impl Every {
    /// Every so long, at a phase of its own: the same for a name each time, and spread over names.
    pub fn of_name(interval: Duration, name: &str) -> Result<Self, BadInterval> {
        let whole = Self::at_phase(interval, Duration::ZERO)?;
        let seconds = u64::try_from(whole.interval_ms / 1_000).expect("an interval is positive");
        // Whole seconds, which people can read.
        Self::at_phase(interval, Duration::from_secs(hash(name, "every") % seconds))
    }

    /// Every so long, so much after the beginning of 1970.
    pub fn at_phase(interval: Duration, phase: Duration) -> Result<Self, BadInterval> {
        if !(EVERY_MIN..=EVERY_MAX).contains(&interval) {
            return Err(BadInterval(interval));
        }
        Ok(Self::of_checked(interval, phase))
    }

    /// Every so long for a ring, whose interval may be shorter: at a phase that comes from a name to the millisecond, or at
    /// this one. The caller has checked its limits.
    pub(crate) fn of_ring(interval: Duration, phase: Option<Duration>, name: &str) -> Self {
        debug_assert!((RING_EVERY_MIN..=EVERY_MAX).contains(&interval), "it was checked");
        let interval_ms = u64::try_from(interval.as_millis()).expect("within its limits");
        let of_name = || Duration::from_millis(hash(name, "every") % interval_ms);
        Self::of_checked(interval, phase.unwrap_or_else(of_name))
    }

    fn of_checked(interval: Duration, phase: Duration) -> Self {
        let interval_ms = i64::try_from(interval.as_millis()).expect("within its limits");
        let phase_ms = phase.as_millis() % interval.as_millis();
        Self { interval_ms, phase_ms: i64::try_from(phase_ms).expect("less than the interval") }
    }

    /// The distance between two slots.
    pub fn interval(&self) -> Duration {
        Duration::from_millis(self.interval_ms.unsigned_abs())
    }

    /// How far into each interval it comes, as counted from 1970.
    pub fn phase(&self) -> Duration {
        Duration::from_millis(self.phase_ms.unsigned_abs())
    }

    /// How many slots there are in a minute at most.
    pub(super) fn per_minute_max(&self) -> u64 {
        60_000_u64.div_ceil(self.interval_ms.unsigned_abs())
    }

    /// The first slot after this moment.
    pub fn next(&self, after: Instant) -> Option<Instant> {
        let steps = (after.0 - self.phase_ms).div_euclid(self.interval_ms) + 1;
        let next = Instant(self.phase_ms + steps * self.interval_ms);
        (next <= Instant::LAST).then_some(next)
    }

    /// How many slots there are after `after`, up to and including `until`.
    pub fn count(&self, after: Instant, until: Instant) -> u64 {
        let steps = |moment: Instant| (moment.0 - self.phase_ms).div_euclid(self.interval_ms);
        u64::try_from(steps(until) - steps(after)).unwrap_or(0)
    }

    /// The slot after `after` that has `skip` others before it, if it comes up to and including `until`.
    pub fn nth(&self, after: Instant, until: Instant, skip: u64) -> Option<Instant> {
        let next = self.next(after)?;
        let later = i64::try_from(skip).ok()?.checked_mul(self.interval_ms)?;
        next.0.checked_add(later).map(Instant).filter(|found| *found <= until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn slots_lie_where_they_lie_whoever_asks_when() {
        let every = Every::at_phase(secs(90), secs(10)).unwrap();
        let next = |after| every.next(Instant(after)).unwrap().0;
        assert_eq!(
            [next(0), next(9_999), next(10_000), next(10_001)],
            [10_000, 10_000, 100_000, 100_000]
        );
        assert_eq!(next(-1), 10_000);
        assert_eq!(next(-80_001), -80_000, "also before 1970");
    }

    #[test]
    fn a_name_keeps_its_phase_and_names_are_spread() {
        let phase = |name: &str| Every::of_name(secs(3_600), name).unwrap();
        assert_eq!(phase("backup"), phase("backup"));
        let phases: std::collections::BTreeSet<i64> =
            (0..1_000).map(|number| phase(&format!("trigger-{number}")).phase_ms / 1_000).collect();
        assert!(phases.len() > 800, "{}", phases.len());
    }

    #[test]
    fn missed_slots_are_computed() {
        let every = Every::at_phase(secs(1), secs(0)).unwrap();
        let ten_years = 315_360_000;
        let (now, then) = (Instant(ten_years * 1_000), Instant(0));
        assert_eq!(every.count(then, now), ten_years.unsigned_abs());
        assert_eq!(every.nth(then, now, ten_years.unsigned_abs() - 1), Some(now));
        assert_eq!(every.nth(then, now, ten_years.unsigned_abs()), None);
    }

    #[test]
    fn an_interval_is_taken_at_its_limits_and_refused_past_them() {
        for good in [EVERY_MIN, EVERY_MAX] {
            assert!(Every::at_phase(good, Duration::ZERO).is_ok());
        }
        let step = Duration::from_millis(1);
        for bad in [EVERY_MIN.saturating_sub(step), EVERY_MAX + step] {
            assert_eq!(Every::at_phase(bad, Duration::ZERO), Err(BadInterval(bad)));
        }
    }
}
