//! The lease: how long a holder may act, and how long an observer must have waited.
//!
//! A node proves that it lives by changing one record. Whoever wants its work must have watched that
//! record stand still, on its own clock, for longer than the node may act on its own. Nothing here
//! compares clocks of two machines; each side measures stretches of its own time only.
//!
//! With clock rates within ±ρ of true time, a holder that last sent a renewal at `send` has stopped by
//! `send + T/(1-ρ)`. An observer whose first read of that renewal came at `arrival`, not before `send`,
//! acts after `arrival + 1.25·T/(1+ρ)`. So they never overlap while 1.25·(1-ρ) ≥ 1+ρ, that is ρ ≤ 1/9.
//! To keep ρ small each machine has two clocks; the holder believes the faster, the observer the slower.
//!
//! The two sides are [`Holder`] and [`Observer`].

mod holder;
mod observer;

use std::time::Duration;

pub use holder::{Author, Holder};
pub use observer::{Observer, SessionsLook, StoreMemory};

use crate::limits::{LEASE_TTL_MAX, LEASE_TTL_MIN};
use crate::mutant::{Mutant, pick};

/// One look at both clocks of a machine. Only differences of two looks on the same machine mean
/// anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reading {
    /// `CLOCK_BOOTTIME`: goes on while the machine sleeps, and is steered by time servers.
    pub boot: Duration,
    /// `CLOCK_MONOTONIC_RAW`: steered by nobody, and stands still while the machine sleeps.
    pub raw: Duration,
}

impl Reading {
    /// How much time has passed at the most, as far as our clocks can tell.
    pub fn most_since(self, earlier: Self) -> Duration {
        let (boot, raw) = self.both_since(earlier);
        boot.max(raw)
    }

    /// How much time has passed at the least.
    pub fn least_since(self, earlier: Self) -> Duration {
        let (boot, raw) = self.both_since(earlier);
        boot.min(raw)
    }

    /// Whether this look was taken after the other one.
    pub fn is_after(self, other: Self) -> bool {
        (self.boot, self.raw) > (other.boot, other.raw)
    }

    fn both_since(self, earlier: Self) -> (Duration, Duration) {
        (self.boot.saturating_sub(earlier.boot), self.raw.saturating_sub(earlier.raw))
    }
}

/// How long a holder may act after its last renewal. Fixed for an incarnation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ttl(Duration);

/// Why a lease cannot have this length.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a lease lasts {LEASE_TTL_MIN:?} to {LEASE_TTL_MAX:?}, and {0:?} was asked for")]
pub struct BadTtl(Duration);

impl Ttl {
    /// The longest there is.
    pub const LONGEST: Self = Self(LEASE_TTL_MAX);

    /// Checks the length.
    pub fn new(length: Duration) -> Result<Self, BadTtl> {
        if (LEASE_TTL_MIN..=LEASE_TTL_MAX).contains(&length) {
            Ok(Self(length))
        } else {
            Err(BadTtl(length))
        }
    }

    /// How long a renewal is good for.
    pub fn length(self) -> Duration {
        self.0
    }

    /// How long after one renewal the next one is sent: five in a lease, so that some may get lost.
    pub fn beat(self) -> Duration {
        self.0 / 5
    }

    /// How long an answer of the store is waited for. What comes later may still have happened.
    pub fn timeout(self) -> Duration {
        (self.0 / 4).min(Duration::from_secs(5))
    }

    /// How long between two looks at the sessions and claims of others, if no hint comes.
    pub fn poll(self) -> Duration {
        (self.0 / 10).min(Duration::from_secs(2))
    }

    /// The shortest time between two tries of the same thing.
    pub fn pause(self) -> Duration {
        (self.0 / 20).min(Duration::from_millis(100))
    }
}

/// How long to wait until something has certainly lasted for `length` on another machine.
pub fn patience(length: Duration) -> Duration {
    pick(Mutant::PatienceOfOneTtl, length * 5 / 4, length)
}

/// Names one attempt to renew, so that a read can tell which of them won.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Nonce(pub u64);

/// A fencing token: only grows for one thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token(pub u64);

impl Token {
    /// The one after `previous`: at least the wall clock, so that a store that lost its tail does not
    /// give a token twice, and always greater, whatever the wall clock says.
    pub fn after(previous: Self, wall_clock_us: u64) -> Self {
        Self(wall_clock_us.max(previous.0.saturating_add(1)))
    }
}

#[cfg(test)]
mod test {
    use super::*;

    pub(super) fn secs(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    /// Both clocks agree.
    pub(super) fn at(seconds: f64) -> Reading {
        Reading { boot: secs(seconds), raw: secs(seconds) }
    }

    pub(super) fn ttl(seconds: f64) -> Ttl {
        Ttl::new(secs(seconds)).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::test::{at, secs, ttl};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_ttl_is_taken_at_its_limits_and_refused_past_them() {
        assert!(Ttl::new(LEASE_TTL_MIN).is_ok() && Ttl::new(LEASE_TTL_MAX).is_ok());
        let step = Duration::from_nanos(1);
        for bad in [LEASE_TTL_MIN.saturating_sub(step), LEASE_TTL_MAX + step] {
            assert_eq!(Ttl::new(bad), Err(BadTtl(bad)));
        }
    }

    #[test]
    fn the_holder_believes_the_faster_clock() {
        let mut holder = Holder::new(ttl(4.0));
        holder.sending(Nonce(1), at(0.0));
        holder.won(Nonce(1), at(0.0));
        let slept = Reading { boot: secs(6.0), raw: secs(1.0) };
        assert!(!holder.is_valid(slept), "it slept, and boot time knows");
    }

    #[test]
    fn tokens_only_grow_whatever_the_wall_clock_does() {
        assert_eq!(Token::after(Token(5), 100), Token(100));
        assert_eq!(Token::after(Token(100), 7), Token(101));
        assert_eq!(Token::after(Token(100), 100), Token(101));
    }

    /// A machine's clocks: true seconds as it reads them.
    #[derive(Debug, Clone, Copy)]
    struct Rates {
        boot: f64,
        raw: f64,
    }

    impl Rates {
        fn read(self, true_seconds: f64) -> Reading {
            Reading { boot: secs(true_seconds * self.boot), raw: secs(true_seconds * self.raw) }
        }
    }

    fn rates() -> impl Strategy<Value = Rates> {
        let rate = 8.0 / 9.0..10.0 / 9.0_f64;
        (rate.clone(), rate).prop_map(|(boot, raw)| Rates { boot, raw })
    }

    proptest! {
        /// The inequality of the header, by trial: at no true moment may the holder still act and the
        /// observer already bury, for any clock rates within ±1/9 and any delays.
        #[test]
        fn no_holder_may_act_when_an_observer_may_bury(
            theirs in rates(), mine in rates(), length in 1.0..10.0_f64, own in 1.0..10.0_f64,
            delay in 0.0..5.0_f64, moment in 0.0..30.0_f64,
        ) {
            let (send, now) = (100.0, 100.0 + moment);
            let mut holder = Holder::new(ttl(length));
            holder.sending(Nonce(1), theirs.read(send));
            holder.won(Nonce(1), theirs.read(send));
            let arrived = mine.read(send + delay);
            let mut observer = Observer::new(ttl(own));
            observer.see(SessionsLook {
                asked: arrived, arrived, epoch: "e".into(), memory: StoreMemory::Keeps,
                sessions: vec![("other", 1, Some(ttl(length)))], longest: None,
            });
            let acts = holder.is_valid(theirs.read(now));
            let buries = observer.patience_left(&"other", mine.read(now)) == Some(Duration::ZERO);
            prop_assert!(!(acts && buries));
        }
    }
}
