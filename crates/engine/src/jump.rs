//! Jumps of the wall clock.
//!
//! A wall clock is compared with a clock that only runs. If the two drift apart from one look to the next, the
//! wall clock was set; a machine that slept has not moved one against the other. A short way is taken as it
//! comes. A long way forward may be a mistake that would fire a year of slots in one go, so firing is held
//! until a person says that the time is right, or the clock comes back.

use std::time::Duration;

use crate::instant::Instant;
use crate::limits::{JUMP_HELD_MS_MIN, JUMP_NOTICED_MS_MIN};

/// What a look at the clocks showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Jump {
    /// The wall clock was not set.
    None,
    /// It was set forward, by so many milliseconds.
    Forward(i64),
    /// It was set back, by so many milliseconds.
    Back(i64),
}

/// Watches the wall clock.
#[derive(Debug)]
pub struct WallWatch {
    /// The wall clock less the clock that runs, at the last look.
    offset: i64,
    /// The same, as it was before a jump that nobody has confirmed.
    trusted: Option<i64>,
}

impl WallWatch {
    /// Begins with what the clocks show.
    pub fn new(wall: Instant, steady: Duration) -> Self {
        Self { offset: offset(wall, steady), trusted: None }
    }

    /// Looks at the clocks.
    pub fn look(&mut self, wall: Instant, steady: Duration) -> Jump {
        let now = offset(wall, steady);
        let jump = now - self.offset;
        self.offset = now;
        if jump.abs() < JUMP_NOTICED_MS_MIN {
            return Jump::None;
        }
        let trusted = self.trusted.unwrap_or(now - jump);
        let is_far = now - trusted > JUMP_HELD_MS_MIN;
        self.trusted = is_far.then_some(trusted);
        if jump > 0 { Jump::Forward(jump) } else { Jump::Back(-jump) }
    }

    /// How far ahead the wall clock is of what it would be without a jump that nobody has confirmed.
    pub fn unconfirmed(&self) -> Option<i64> {
        self.trusted.map(|trusted| self.offset - trusted)
    }

    /// A person says that the time is right.
    pub fn confirm(&mut self) {
        self.trusted = None;
    }
}

fn offset(wall: Instant, steady: Duration) -> i64 {
    wall.0.saturating_sub(i64::try_from(steady.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    fn at(wall: i64, steady: u64) -> (Instant, Duration) {
        (Instant(1_800_000_000_000 + wall), Duration::from_millis(steady))
    }

    fn watch() -> WallWatch {
        let (wall, steady) = at(0, 5_000);
        WallWatch::new(wall, steady)
    }

    #[test]
    fn a_machine_that_slept_has_not_jumped() {
        let (wall, steady) = at(9 * HOUR, 5_000 + 9 * HOUR.unsigned_abs());
        let mut watch = watch();
        assert_eq!(watch.look(wall, steady), Jump::None);
        assert_eq!(watch.unconfirmed(), None);
    }

    #[test]
    fn a_long_way_forward_waits_for_a_person_and_a_short_one_does_not() {
        let mut watch = watch();
        let (wall, steady) = at(JUMP_HELD_MS_MIN, 5_000);
        assert_eq!(watch.look(wall, steady), Jump::Forward(JUMP_HELD_MS_MIN));
        assert_eq!(watch.unconfirmed(), None, "just short enough");
        let (wall, steady) = at(2 * JUMP_HELD_MS_MIN + 1, 5_000);
        assert_eq!(watch.look(wall, steady), Jump::Forward(JUMP_HELD_MS_MIN + 1));
        assert_eq!(watch.unconfirmed(), Some(JUMP_HELD_MS_MIN + 1));
        watch.confirm();
        assert_eq!(watch.unconfirmed(), None);
    }

    #[test]
    fn a_clock_that_comes_back_needs_nobody() {
        let mut watch = watch();
        let (wall, steady) = at(HOUR, 5_000);
        watch.look(wall, steady);
        assert_eq!(watch.unconfirmed(), Some(HOUR));
        let (wall, steady) = at(100, 5_100);
        assert_eq!(watch.look(wall, steady), Jump::Back(HOUR));
        assert_eq!(watch.unconfirmed(), None);
    }

    #[test]
    fn a_slow_drift_is_no_jump() {
        let mut watch = watch();
        for step in 1..10_000_i64 {
            let (wall, steady) = at(step * 1_010, 5_000 + step.unsigned_abs() * 1_000);
            assert_eq!(watch.look(wall, steady), Jump::None);
        }
    }
}
