//! When a host that does not answer is left alone.
//!
//! A host that cannot be reached, or takes requests and never answers, costs its callers a timeout each. So
//! after a few silent attempts in a row it is left alone for a pause; calls in the pause are told so at once
//! instead of finding it out in fifteen seconds. When the pause is over one call goes through as a probe: if
//! it is answered everything goes on, if not the next pause is twice as long, up to half a minute.
//!
//! What does somebody want who is paged at night? That the scheduler hammers neither a host that struggles to
//! get up nor gives up on one that is merely slow, and that it is back the moment the host is. Hence:
//!
//! - **Any answer is life**, also a 500, and ends everything at once. A host that is slow on one path and
//!   answers on others is never left alone for long.
//! - **Only a probe lengthens the pause.** Sixty calls that time out in the same second are one silence, not
//!   sixty.
//! - **A call in the pause was not tried.** It takes none of the run's tries
//!   ([`Verdict::Untried`](crate::outcome::Verdict)); it comes back when the pause is over. So a pause delays
//!   runs, and cannot use up what their owner granted them.
//! - **Half a minute at most**: that is how late we notice that a host is back.

use std::time::Duration;

use crate::limits::{BREAKER_FAILURES_MAX, BREAKER_PAUSE_MAX, BREAKER_PAUSE_MIN};
use crate::outcome::HostSignal;

/// What is known about one host. Time is any clock that never goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Breaker {
    state: BreakerState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BreakerState {
    /// Calls go through; so many in a row were silent.
    Closed { failures: u32 },
    /// Left alone; when the pause is over, one call may try.
    Open { until: Duration, pause: Duration },
    /// One call is under way to see whether the host answers again.
    Probing { pause: Duration },
}

/// What may be done with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallPermission {
    /// Make the call.
    Allow,
    /// Make it, and no other until it has ended.
    Probe,
    /// Let it wait for the probe that is under way.
    Wait,
    /// Tell its owner to come back after this.
    Reject {
        /// What is left of the pause.
        rest: Duration,
    },
}

impl Default for Breaker {
    fn default() -> Self {
        Self { state: BreakerState::Closed { failures: 0 } }
    }
}

impl Breaker {
    /// What may be done with a call now. Whoever makes it says so with [`Breaker::begin`].
    pub fn gate(&self, now: Duration) -> CallPermission {
        match self.state {
            BreakerState::Closed { .. } => CallPermission::Allow,
            BreakerState::Probing { .. } => CallPermission::Wait,
            BreakerState::Open { until, .. } => match until.saturating_sub(now) {
                Duration::ZERO => CallPermission::Probe,
                rest => CallPermission::Reject { rest },
            },
        }
    }

    /// A call is made.
    pub fn begin(&mut self, now: Duration) {
        match self.state {
            BreakerState::Open { until, pause } if until <= now => {
                self.state = BreakerState::Probing { pause }
            }
            BreakerState::Closed { .. }
            | BreakerState::Open { .. }
            | BreakerState::Probing { .. } => (),
        }
    }

    /// A call has ended.
    pub fn end(&mut self, signal: HostSignal, now: Duration) {
        self.state = match (signal, self.state) {
            (HostSignal::Responsive, _) => BreakerState::Closed { failures: 0 },
            (HostSignal::Unresponsive, BreakerState::Closed { failures })
                if failures + 1 < BREAKER_FAILURES_MAX =>
            {
                BreakerState::Closed { failures: failures + 1 }
            }
            (HostSignal::Unresponsive, BreakerState::Closed { .. }) => open(BREAKER_PAUSE_MIN, now),
            (HostSignal::Unresponsive, BreakerState::Probing { pause }) => {
                open((pause * 2).min(BREAKER_PAUSE_MAX), now)
            }
            // A probe that came to nothing: the next call may try at once.
            (HostSignal::Unknown, BreakerState::Probing { pause }) => {
                BreakerState::Open { until: now, pause }
            }
            // One that had begun before the pause.
            (
                HostSignal::Unresponsive | HostSignal::Unknown,
                state @ (BreakerState::Open { .. } | BreakerState::Closed { .. }),
            ) => state,
        };
    }

    /// Whether it answered last, as far as anybody knows.
    pub fn is_calm(&self) -> bool {
        self.state == BreakerState::Closed { failures: 0 }
    }
}

fn open(pause: Duration, now: Duration) -> BreakerState {
    BreakerState::Open { until: now + pause, pause }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Silent for as often as it takes, at 0 s.
    fn broken() -> Breaker {
        let mut breaker = Breaker::default();
        for _ in 0..BREAKER_FAILURES_MAX {
            assert_eq!(breaker.gate(secs(0)), CallPermission::Allow);
            breaker.begin(secs(0));
            breaker.end(HostSignal::Unresponsive, secs(0));
        }
        breaker
    }

    #[test]
    fn a_host_is_left_alone_after_its_last_silence_and_not_before() {
        assert_eq!(broken().gate(secs(0)), CallPermission::Reject { rest: secs(1) });
        let mut breaker = Breaker::default();
        for _ in 0..100 {
            for _ in 1..BREAKER_FAILURES_MAX {
                breaker.end(HostSignal::Unresponsive, secs(0));
            }
            assert_eq!(breaker.gate(secs(0)), CallPermission::Allow);
            assert!(!breaker.is_calm());
            breaker.end(HostSignal::Responsive, secs(0));
            assert!(breaker.is_calm());
        }
    }

    #[test]
    fn the_pause_doubles_with_each_silent_probe_up_to_its_longest() {
        let mut breaker = broken();
        let mut now = secs(0);
        for pause in [1, 2, 4, 8, 16, 30, 30] {
            assert_eq!(breaker.gate(now), CallPermission::Reject { rest: secs(pause) });
            now += secs(pause);
            assert_eq!(breaker.gate(now), CallPermission::Probe);
            breaker.begin(now);
            assert_eq!(breaker.gate(now), CallPermission::Wait, "one probe at a time");
            breaker.end(HostSignal::Unresponsive, now);
        }
    }

    #[test]
    fn an_answer_ends_the_pause_at_once_whoever_got_it() {
        let mut breaker = broken();
        breaker.end(HostSignal::Responsive, secs(0));
        assert_eq!(breaker.gate(secs(0)), CallPermission::Allow);
        let mut breaker = broken();
        breaker.begin(secs(1));
        breaker.end(HostSignal::Responsive, secs(1));
        assert_eq!(breaker, Breaker::default(), "nothing is remembered against it");
    }

    #[test]
    fn many_that_fail_at_once_are_one_silence() {
        let mut breaker = broken();
        for _ in 0..60 {
            breaker.end(HostSignal::Unresponsive, secs(0));
        }
        assert_eq!(breaker.gate(secs(0)), CallPermission::Reject { rest: secs(1) });
    }

    #[test]
    fn a_probe_that_came_to_nothing_gives_way_to_another() {
        let mut breaker = broken();
        breaker.begin(secs(1));
        breaker.end(HostSignal::Unknown, secs(1));
        assert_eq!(breaker.gate(secs(1)), CallPermission::Probe);
        breaker.begin(secs(1));
        breaker.end(HostSignal::Unresponsive, secs(1));
        assert_eq!(breaker.gate(secs(1)), CallPermission::Reject { rest: secs(2) });
    }
}
