//! At most so many runs are handed out in any period: a window that slides.
//!
//! The window remembers when runs were handed out. While there are few, each instant is kept, and the limit is exact in
//! both directions. When there are many, those of one 64th of a period share the instant of the last of them: never does a
//! period have more runs than the limit, and room comes back at most one 64th of a period late. So a window has a bound of
//! its own, whatever the limit is, and fits into one small record that a successor reads.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::instant::Instant;
use crate::mutant::{Mutant, pick};

/// Instants are kept one by one up to this number, and share places beyond it.
const APART_MAX: u16 = 64;

/// How many runs may be handed out in a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateLimit {
    /// So many runs at most.
    pub runs: u32,
    /// Within any stretch of so many milliseconds.
    pub period_ms: u32,
}

/// What was handed out during the last period.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RateWindow(VecDeque<HandedOut>);

/// Runs that were handed out from one instant to another, and count as handed out at the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct HandedOut {
    first: Instant,
    last: Instant,
    runs: u32,
}

impl RateWindow {
    /// How many runs may be handed out now.
    pub fn room(&self, limit: RateLimit, now: Instant) -> u32 {
        let within = self.0.iter().filter(|handed| limit.is_within(handed.last, now));
        let taken = within.fold(0_u32, |sum, handed| sum.saturating_add(handed.runs));
        limit.runs.saturating_sub(taken)
    }

    /// The instant at which there is room again, if there is none before.
    pub fn next_room(&self, limit: RateLimit, now: Instant) -> Option<Instant> {
        let mut room = self.room(limit, now);
        let mut within = self.0.iter().filter(|handed| limit.end_of(handed.last) > now);
        let mut next = None;
        while room == 0 {
            let handed = within.next()?;
            room += handed.runs;
            next = Some(limit.end_of(handed.last));
        }
        next
    }

    /// One more run is handed out now.
    pub fn take(&mut self, limit: RateLimit, now: Instant) {
        // A clock that was set back does not make room.
        let now = self.0.back().map_or(now, |handed| handed.last.max(now));
        while self.0.front().is_some_and(|handed| limit.end_of(handed.last) <= now) {
            self.0.pop_front();
        }
        let is_crowded = self.0.len() >= APART_MAX.into();
        match self.0.back_mut() {
            Some(handed)
                if handed.last == now || is_crowded && limit.is_close(handed.first, now) =>
            {
                handed.last = now;
                handed.runs += 1;
            }
            _ => self.0.push_back(HandedOut { first: now, last: now, runs: 1 }),
        }
    }

    /// The clock may have been set back: what was handed out later than now counts from now.
    pub fn rewind(&mut self, now: Instant) {
        for handed in &mut self.0 {
            (handed.first, handed.last) = (handed.first.min(now), handed.last.min(now));
        }
    }

    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl RateLimit {
    fn end_of(self, handed_out: Instant) -> Instant {
        Instant(handed_out.0.saturating_add(self.period_ms.into()))
    }

    /// Whether what was handed out then counts now.
    fn is_within(self, handed_out: Instant, now: Instant) -> bool {
        let of_clock = |at: Instant| at.0.div_euclid(self.period_ms.into());
        let is_within = self.end_of(handed_out) > now;
        pick(Mutant::RateByTheClock, is_within, of_clock(handed_out) == of_clock(now))
    }

    fn is_close(self, first: Instant, now: Instant) -> bool {
        now.0.saturating_sub(first.0) < i64::from(self.period_ms) / i64::from(APART_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const THREE_A_SECOND: RateLimit = RateLimit { runs: 3, period_ms: 1_000 };

    #[test]
    fn room_comes_back_when_the_oldest_is_a_period_ago() {
        let mut window = RateWindow::default();
        for at in [0, 400, 900] {
            window.take(THREE_A_SECOND, Instant(at));
        }
        assert_eq!(window.room(THREE_A_SECOND, Instant(999)), 0);
        assert_eq!(window.next_room(THREE_A_SECOND, Instant(999)), Some(Instant(1_000)));
        assert_eq!(window.room(THREE_A_SECOND, Instant(1_000)), 1);
        assert_eq!(window.next_room(THREE_A_SECOND, Instant(1_000)), None, "there is room now");
        assert_eq!(window.room(THREE_A_SECOND, Instant(1_400)), 2);
    }

    #[test]
    fn a_clock_that_is_set_back_makes_no_room() {
        let mut window = RateWindow::default();
        for at in [5_000, 4_000, 3_000] {
            window.take(THREE_A_SECOND, Instant(at));
        }
        assert_eq!(window.room(THREE_A_SECOND, Instant(5_999)), 0);
        assert_eq!(window.room(THREE_A_SECOND, Instant(6_000)), 3);
    }

    #[test]
    fn a_clock_that_is_set_back_far_stops_a_queue_for_one_period_at_most() {
        let mut window = RateWindow::default();
        for at in [3_600_000, 3_600_100, 3_600_200] {
            window.take(THREE_A_SECOND, Instant(at));
        }
        window.rewind(Instant(5_000));
        assert_eq!(window.next_room(THREE_A_SECOND, Instant(5_000)), Some(Instant(6_000)));
    }

    proptest! {
        #[test]
        fn no_period_has_more_than_the_limit_and_little_room_is_wasted(
            runs in 1_u32..300, period_ms in 64_u32..5_000, steps in prop::collection::vec(0_i64..40, 1..600)
        ) {
            let limit = RateLimit { runs, period_ms };
            let (mut window, mut now, mut handed_out) = (RateWindow::default(), 0, Vec::new());
            for step in steps {
                now += step;
                let exact = |back: i64| {
                    let within = handed_out.iter().filter(|at| **at > now - i64::from(period_ms) - back);
                    runs.saturating_sub(u32::try_from(within.count()).unwrap())
                };
                let room = window.room(limit, Instant(now));
                prop_assert!(room <= exact(0));
                prop_assert!(room >= exact(i64::from(period_ms) / 64));
                if runs <= 64 {
                    prop_assert_eq!(room, exact(0));
                }
                if room > 0 {
                    window.take(limit, Instant(now));
                    handed_out.push(now);
                }
                prop_assert!(window.0.len() <= 2 * usize::from(APART_MAX) + 2);
            }
        }
    }
}
