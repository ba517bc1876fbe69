//! Until when a tree may go on: its deadline, and what is left of it at a given moment.
//!
//! Whoever supervises a tree may have the right to do so for a while only, and lose it without being told: cut off, stopped, or
//! asleep with its machine. So a deadline is two instants of the clock since boot, of which the shim thinks, and nobody else has to:
//! at the first it tells the tree to end, at the second it ends it. A confirmation moves both, later and never earlier.
//!
//! What was told to end ends: a confirmation that comes after the first instant takes nothing back.

use std::time::Duration;

/// Until when a tree may go on unless it is confirmed, in instants of the clock since boot ([`since_boot`](crate::since_boot)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline {
    /// When all of the tree is sent SIGTERM. An instant that comes no sooner than the kill is none.
    pub stop_at: Duration,
    /// When all of the tree is killed.
    pub kill_at: Duration,
}

impl Deadline {
    /// A tree that is killed at this instant without having been told to end.
    pub fn sudden(at: Duration) -> Self {
        Self { stop_at: at, kill_at: at }
    }

    /// The later of both, each instant for itself.
    pub(crate) fn max(self, other: Self) -> Self {
        let stop_at = self.stop_at.max(other.stop_at);
        Self { stop_at, kill_at: self.kill_at.max(other.kill_at) }
    }
}

/// The right of a tree to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Term {
    /// It has no end.
    Endless,
    /// Until its deadline.
    Until(Deadline),
    /// The tree was told to end.
    Over { kill_at: Duration },
}

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    Nothing,
    /// To tell the tree to end. Due once.
    Stop,
    /// To kill it.
    Kill,
}

impl Term {
    pub(crate) fn of(deadline: Option<Deadline>) -> Self {
        deadline.map_or(Self::Endless, Self::Until)
    }

    /// Makes the deadline later, if there is one that still counts.
    pub(crate) fn confirm(&mut self, deadline: Deadline) {
        if let Self::Until(earlier) = self {
            *earlier = earlier.max(deadline);
        }
    }

    /// What is due now; a stop is noted as told.
    pub(crate) fn fall_due(&mut self, now: Duration) -> Due {
        if self.kill_at().is_some_and(|at| at <= now) {
            return Due::Kill;
        }
        match *self {
            Self::Until(Deadline { stop_at, kill_at }) if stop_at <= now => {
                *self = Self::Over { kill_at };
                Due::Stop
            }
            Self::Until(_) | Self::Over { .. } | Self::Endless => Due::Nothing,
        }
    }

    /// When something is due next.
    pub(crate) fn next_at(self) -> Option<Duration> {
        match self {
            Self::Endless => None,
            Self::Until(Deadline { stop_at, kill_at }) => Some(stop_at.min(kill_at)),
            Self::Over { kill_at } => Some(kill_at),
        }
    }

    pub(crate) fn kill_at(self) -> Option<Duration> {
        match self {
            Self::Endless => None,
            Self::Until(Deadline { kill_at, .. }) | Self::Over { kill_at } => Some(kill_at),
        }
    }
}

/// How long after the instant at which it was to be killed, if there is one, a tree is empty now; none if it is in time.
pub(crate) fn lateness(kill_at: Option<Duration>, now: Duration) -> Option<Duration> {
    kill_at.and_then(|at| now.checked_sub(at)).filter(|late| !late.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn deadline(stop_at: u64, kill_at: u64) -> Deadline {
        Deadline { stop_at: at(stop_at), kill_at: at(kill_at) }
    }

    #[test]
    fn a_tree_is_told_once_and_then_killed() {
        let mut term = Term::Until(deadline(6, 9));
        assert_eq!((term.fall_due(at(5)), term.next_at()), (Due::Nothing, Some(at(6))));
        assert_eq!((term.fall_due(at(6)), term.next_at()), (Due::Stop, Some(at(9))));
        assert_eq!((term.fall_due(at(8)), term.next_at()), (Due::Nothing, Some(at(9))));
        assert_eq!(term.fall_due(at(9)), Due::Kill);
    }

    #[test]
    fn a_confirmation_moves_both_instants_and_only_later() {
        let mut term = Term::Until(deadline(6, 9));
        term.confirm(deadline(16, 19));
        term.confirm(deadline(7, 8));
        assert_eq!(term, Term::Until(deadline(16, 19)));
    }

    #[test]
    fn what_was_told_to_end_ends_whatever_is_confirmed_then() {
        let mut term = Term::Until(deadline(6, 9));
        assert_eq!(term.fall_due(at(7)), Due::Stop);
        term.confirm(deadline(16, 19));
        assert_eq!(term.fall_due(at(9)), Due::Kill);
    }

    #[test]
    fn whoever_looks_too_late_kills_without_a_word() {
        assert_eq!(Term::Until(deadline(6, 9)).fall_due(at(9)), Due::Kill);
        assert_eq!(Term::Until(Deadline::sudden(at(9))).fall_due(at(9)), Due::Kill);
        // A stop after the kill is none.
        assert_eq!(Term::Until(deadline(9, 6)).next_at(), Some(at(6)));
        assert_eq!(Term::Until(deadline(9, 6)).fall_due(at(6)), Due::Kill);
    }

    #[test]
    fn a_tree_without_a_deadline_is_given_none() {
        let mut term = Term::Endless;
        term.confirm(deadline(6, 9));
        assert_eq!((term.fall_due(at(100)), term.next_at()), (Due::Nothing, None));
    }
}
