//! When a program that has ended is started again, and when another node shall try.
//!
//! Each pause is twice the one before, until the program has run for a while. A program that ends too often on this node may
//! run on another, which has the file, the memory or the road that is missing here: so after five ends within a minute the
//! node makes room. The pauses go on where they were if nobody else takes over, so a program that ends everywhere wanders
//! slowly.

use std::collections::VecDeque;
use std::time::Duration;

use crate::limits::{HOLD_EXITS_MAX, HOLD_EXITS_TIME, HOLD_PAUSE_MAX, HOLD_PAUSE_MIN, HOLD_STEADY};

/// The ends of a program on one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exits {
    /// When it ended, the earliest first: those since the node took over.
    at: VecDeque<Duration>,
    /// The next pause.
    pause: Duration,
}

/// What follows from an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterExit {
    /// It is started again, at this instant.
    Restart {
        /// Of the clock since boot.
        at: Duration,
    },
    /// It ended too often here: another node shall try.
    MakeRoom,
}

impl Default for Exits {
    fn default() -> Self {
        Self { at: VecDeque::new(), pause: HOLD_PAUSE_MIN }
    }
}

impl Exits {
    /// It has ended now, after it ran for so long.
    pub fn ended(&mut self, now: Duration, ran: Duration) -> AfterExit {
        if ran >= HOLD_STEADY {
            self.pause = HOLD_PAUSE_MIN;
        }
        let pause = self.pause;
        self.pause = (self.pause * 2).min(HOLD_PAUSE_MAX);
        self.at.push_back(now);
        if self.at.len() > HOLD_EXITS_MAX {
            self.at.pop_front();
        }
        let first = *self.at.front().expect("one was just added");
        if self.at.len() == HOLD_EXITS_MAX && now.saturating_sub(first) <= HOLD_EXITS_TIME {
            // Whoever has it next counts from the beginning, also if that is this node again.
            self.at.clear();
            return AfterExit::MakeRoom;
        }
        AfterExit::Restart { at: now + pause }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    /// The pauses after ends at these instants, each after so long a run.
    fn pauses(ran: f64, ends: &[f64]) -> Vec<Option<Duration>> {
        let mut exits = Exits::default();
        let after = ends.iter().map(|at| match exits.ended(secs(*at), secs(ran)) {
            AfterExit::Restart { at: again } => Some(again.saturating_sub(secs(*at))),
            AfterExit::MakeRoom => None,
        });
        after.collect()
    }

    #[test]
    fn each_pause_is_twice_the_one_before_up_to_ten_seconds() {
        let ends: Vec<f64> = (0..9).map(|end| f64::from(end) * 30.0).collect();
        let expected = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0, 10.0];
        assert_eq!(pauses(5.0, &ends), expected.map(|pause| Some(secs(pause))));
    }

    #[test]
    fn after_a_minute_of_running_the_pauses_begin_anew() {
        let mut exits = Exits::default();
        for end in 0..4 {
            exits.ended(secs(f64::from(end) * 30.0), secs(1.0));
        }
        let long = exits.clone().ended(secs(300.0), secs(59.9));
        assert_eq!(long, AfterExit::Restart { at: secs(304.0) });
        let longer = exits.ended(secs(300.0), secs(60.0));
        assert_eq!(longer, AfterExit::Restart { at: secs(300.25) });
    }

    #[test]
    fn five_ends_within_a_minute_make_room_and_four_do_not() {
        let five = pauses(1.0, &[0.0, 15.0, 30.0, 45.0, 60.0]);
        assert_eq!(five.iter().filter(|pause| pause.is_none()).count(), 1);
        assert_eq!(five[4], None);
        let slower = pauses(1.0, &[0.0, 15.0, 30.0, 45.0, 60.1]);
        assert!(slower.iter().all(Option::is_some), "{slower:?}");
        let old_ones_count_no_more = pauses(1.0, &[0.0, 59.0, 60.0, 61.0, 62.0, 119.1]);
        assert_eq!(old_ones_count_no_more[4], Some(secs(4.0)));
    }

    #[test]
    fn whoever_made_room_counts_anew_and_pauses_as_long_as_before() {
        let again = pauses(0.0, &[0.0, 1.0, 2.0, 3.0, 4.0, 10.0, 11.0, 12.0, 13.0, 14.0]);
        let rooms = again.iter().map(Option::is_none);
        assert!(rooms.eq([false, false, false, false, true, false, false, false, false, true]));
        assert_eq!(again[5], Some(secs(8.0)));
    }
}
