//! By when the program of a hold must be gone if its supervisor hears nothing of the store.
//!
//! ```text
//! sent ── beat ── answer lost ──▶ stop_at ─────────▶ kill_at ── the tree is empty ──▶ T        1.25 T
//! 0       0.2 T   0.45 T          0.60 T: SIGTERM    0.85 T: SIGKILL                  lapsed   others may begin
//! ```
//!
//! All instants are counted from the *sending* of the last renewal that was acknowledged, by the clock since boot. They are
//! handed to the shim, which keeps them whatever becomes of the supervisor. Three inequalities make that safe and useful; one
//! that fails is told with its numbers when a hold is started, and the hold is not:
//!
//! 1. `beat + time for an answer < stop_at`: one lost answer stops no program,
//! 2. `stop_at < kill_at`: a program that is told to end has some time for it,
//! 3. `kill_at + the longest kill <= T`: nothing of the program is left when the lease is over, a quarter of T before
//!    anybody else begins.

use std::fmt;
use std::time::Duration;

use crate::lease::{Reading, Ttl};
use crate::limits::{HOLD_KILL_TIME_MAX, HOLD_TTL_MIN, HOLD_WEAK_KILL_TIME_MAX};
use crate::mutant::{Mutant, pick};

/// Who ends the tree of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TreeKill {
    /// The kernel, in one step: a namespace, or a cgroup.
    Kernel,
    /// Somebody who looks for its processes: the weak kill.
    Search,
}

impl TreeKill {
    /// How long it may take until the tree is empty.
    pub const fn time_max(self) -> Duration {
        match self {
            Self::Kernel => HOLD_KILL_TIME_MAX,
            Self::Search => HOLD_WEAK_KILL_TIME_MAX,
        }
    }
}

/// When the program of a hold is ended, counted from the sending of the last renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HoldTiming {
    /// How long a renewal is good for.
    pub ttl: Ttl,
    /// When the program is told to end.
    pub stop_at: Duration,
    /// When its tree is killed.
    pub kill_at: Duration,
    /// Who kills it.
    pub kill: TreeKill,
}

/// The same as instants of the clock since boot of one machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HoldDeadline {
    /// When the program is told to end.
    pub stop_at: Duration,
    /// When its tree is killed.
    pub kill_at: Duration,
}

/// Why two could run at a time, or a hold would be of no use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadTiming {
    /// The lease is too short for anything.
    Short(Ttl),
    /// One lost answer would stop the program.
    Answers(HoldTiming),
    /// There is no time to end in.
    NoGrace(HoldTiming),
    /// The tree may not be empty when the lease is over.
    Overlap(HoldTiming),
}

impl HoldTiming {
    /// The deadlines of a hold with this lease, if they can be kept.
    pub fn check(ttl: Ttl, kill: TreeKill) -> Result<Self, BadTiming> {
        let part = |percent: u32| ttl.length() * percent / 100;
        let right = Self { ttl, stop_at: part(60), kill_at: part(85), kill };
        right.keepable()?;
        Ok(Self { kill_at: pick(Mutant::KillAt115Percent, part(85), part(115)), ..right })
    }

    fn keepable(self) -> Result<(), BadTiming> {
        if self.ttl.length() < HOLD_TTL_MIN {
            return Err(BadTiming::Short(self.ttl));
        }
        if self.ttl.beat() + self.ttl.timeout() >= self.stop_at {
            return Err(BadTiming::Answers(self));
        }
        if self.stop_at >= self.kill_at {
            return Err(BadTiming::NoGrace(self));
        }
        if self.kill_at + self.kill.time_max() > self.ttl.length() {
            return Err(BadTiming::Overlap(self));
        }
        Ok(())
    }

    /// The deadlines after a renewal that was sent then, and acknowledged.
    pub fn deadline(&self, sent: Reading) -> HoldDeadline {
        HoldDeadline { stop_at: sent.boot + self.stop_at, kill_at: sent.boot + self.kill_at }
    }

    /// How much validity must be left when the program is started: less would be hardly worth it.
    pub fn margin(&self) -> Duration {
        self.ttl.length() / 2
    }
}

impl fmt::Display for BadTiming {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short(ttl) => write!(
                out,
                "the lease of a hold lasts {HOLD_TTL_MIN:?} at least, and --ttl is {:?}: give --ttl {HOLD_TTL_MIN:?} or more",
                ttl.length()
            ),
            Self::Answers(HoldTiming { ttl, stop_at, .. }) => write!(
                out,
                "one lost answer of the store would stop the program: a renewal after {:?} and {:?} for its answer are not less \
                 than {stop_at:?}, when the program is told to end: give a longer --ttl",
                ttl.beat(),
                ttl.timeout()
            ),
            Self::NoGrace(HoldTiming { stop_at, kill_at, .. }) => write!(
                out,
                "the program would be told to end after {stop_at:?} and killed after {kill_at:?}: give a longer --ttl"
            ),
            Self::Overlap(timing) => {
                let HoldTiming { ttl, kill_at, kill, .. } = timing;
                let (kind, remedy) = match kill {
                    TreeKill::Kernel => ("kill", ""),
                    TreeKill::Search => ("weak kill", ", or permit --isolate namespace or cgroup"),
                };
                write!(
                    out,
                    "two could run at a time: without a renewal the program is killed after {kill_at:?}, and {:?} for a {kind} \
                     make {:?}, which is not within --ttl {:?}: give --ttl {:?} or more{remedy}",
                    kill.time_max(),
                    *kill_at + kill.time_max(),
                    ttl.length(),
                    ttl_min(*kill),
                )
            }
        }
    }
}

impl std::error::Error for BadTiming {}

/// The shortest lease of which 15 % are enough for such a kill, in full tenths of a second.
fn ttl_min(kill: TreeKill) -> Duration {
    let needed = kill.time_max() * 100 / 15;
    let tenths = u64::try_from(needed.as_millis().div_ceil(100)).expect("some seconds");
    Duration::from_millis(tenths * 100).max(HOLD_TTL_MIN)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::lease::patience;
    use crate::limits::LEASE_TTL_MAX;

    fn ttl(millis: u64) -> Ttl {
        Ttl::new(Duration::from_millis(millis)).unwrap()
    }

    fn millis(timing: HoldTiming) -> [u128; 2] {
        [timing.stop_at.as_millis(), timing.kill_at.as_millis()]
    }

    #[test]
    fn a_program_is_told_to_end_after_60_percent_and_killed_after_85() {
        let timing = HoldTiming::check(ttl(5_000), TreeKill::Kernel).unwrap();
        assert_eq!(millis(timing), [3_000, 4_250]);
        assert_eq!(timing.margin(), Duration::from_millis(2_500));
        let sent = Reading { boot: Duration::from_secs(100), raw: Duration::from_secs(7) };
        let HoldDeadline { stop_at, kill_at } = timing.deadline(sent);
        assert_eq!([stop_at.as_millis(), kill_at.as_millis()], [103_000, 104_250]);
    }

    #[test]
    fn a_second_is_the_shortest_lease_of_a_hold() {
        assert!(HoldTiming::check(ttl(1_000), TreeKill::Kernel).is_ok());
        let refused = HoldTiming::check(ttl(999), TreeKill::Kernel).unwrap_err();
        assert_eq!(refused, BadTiming::Short(ttl(999)));
        let sentence =
            "the lease of a hold lasts 1s at least, and --ttl is 999ms: give --ttl 1s or more";
        assert_eq!(refused.to_string(), sentence);
    }

    #[test]
    fn a_weak_kill_needs_a_longer_lease_and_the_refusal_says_which() {
        let refused = HoldTiming::check(ttl(2_666), TreeKill::Search).unwrap_err();
        assert!(matches!(refused, BadTiming::Overlap(_)));
        assert_eq!(
            HoldTiming::check(ttl(2_000), TreeKill::Search).unwrap_err().to_string(),
            "two could run at a time: without a renewal the program is killed after 1.7s, and 400ms for a weak kill make 2.1s, \
             which is not within --ttl 2s: give --ttl 2.7s or more, or permit --isolate namespace or cgroup"
        );
        assert!(HoldTiming::check(ttl(2_667), TreeKill::Search).is_ok());
        assert!(HoldTiming::check(ttl(2_700), TreeKill::Search).is_ok());
    }

    #[test]
    fn each_inequality_that_fails_is_told() {
        let right = HoldTiming::check(ttl(1_000), TreeKill::Kernel).unwrap();
        let ms = Duration::from_millis;
        let stops_early = HoldTiming { stop_at: ms(450), ..right };
        assert_eq!(stops_early.keepable(), Err(BadTiming::Answers(stops_early)));
        assert_eq!(HoldTiming { stop_at: ms(451), ..right }.keepable(), Ok(()));
        let no_grace = HoldTiming { stop_at: ms(850), ..right };
        assert_eq!(no_grace.keepable(), Err(BadTiming::NoGrace(no_grace)));
        let late = HoldTiming { kill_at: ms(901), ..right };
        assert_eq!(late.keepable(), Err(BadTiming::Overlap(late)));
        assert_eq!(HoldTiming { kill_at: ms(900), ..right }.keepable(), Ok(()));
        for (bad, words) in [
            (BadTiming::Answers(stops_early), "a renewal after 200ms and 250ms for its answer"),
            (BadTiming::NoGrace(no_grace), "told to end after 850ms and killed after 850ms"),
            (BadTiming::Overlap(late), "901ms, and 100ms for a kill make 1.001s"),
        ] {
            assert!(bad.to_string().contains(words), "{bad}");
        }
    }

    proptest! {
        /// Whatever the lease, a tree that is killed in its time is empty before anybody else may begin.
        #[test]
        fn nothing_is_left_when_others_begin(
            length in 1_000..=u64::try_from(LEASE_TTL_MAX.as_millis()).unwrap(),
            is_weak in any::<bool>(),
        ) {
            let kill = if is_weak { TreeKill::Search } else { TreeKill::Kernel };
            match HoldTiming::check(ttl(length), kill) {
                Ok(timing) => {
                    let empty = timing.kill_at + kill.time_max();
                    prop_assert!(empty <= timing.ttl.length() && empty < patience(timing.ttl.length()));
                }
                Err(why) => {
                    prop_assert!(is_weak && length < 2_667, "{why}");
                    prop_assert!(HoldTiming::check(ttl(2_700), kill).is_ok());
                }
            }
        }
    }
}
