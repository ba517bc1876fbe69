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

use std::collections::VecDeque;
use std::time::Duration;

use crate::limits::{LEASE_TTL_MAX, LEASE_TTL_MIN, RENEWALS_PENDING_MAX};

/// One look at both clocks of a machine. Only differences of two looks on the same machine mean
/// anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

    fn both_since(self, earlier: Self) -> (Duration, Duration) {
        (self.boot.saturating_sub(earlier.boot), self.raw.saturating_sub(earlier.raw))
    }
}

/// How long a holder may act after its last renewal. Fixed for an incarnation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ttl(Duration);

/// Why a lease cannot have this length.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a lease lasts {LEASE_TTL_MIN:?} to {LEASE_TTL_MAX:?}, and {0:?} was asked for")]
pub struct BadTtl(Duration);

impl Ttl {
    /// Checks the length.
    pub fn new(length: Duration) -> Result<Self, BadTtl> {
        if (LEASE_TTL_MIN..=LEASE_TTL_MAX).contains(&length) {
            Ok(Self(length))
        } else {
            Err(BadTtl(length))
        }
    }

    /// Its length.
    pub fn length(self) -> Duration {
        self.0
    }

    /// How long an observer with a lease of its own must have watched a record with this one stand
    /// still: 1.25 times the longer of the two.
    pub fn patience(self, own: Self) -> Duration {
        self.0.max(own.0) * 5 / 4
    }
}

/// Names one attempt to renew, so that a read can tell which of them won.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nonce(pub u64);

/// The holder's side: until when may it act?
///
/// Its validity runs from the moment *before* the last renewal that is known to have won was *sent*.
/// Silence never extends anything.
#[derive(Debug, Clone)]
pub struct Holder {
    ttl: Ttl,
    renewed: Option<Reading>,
    /// Renewals without an answer, the oldest first. Any of them may have won.
    pending: VecDeque<(Nonce, Reading)>,
}

impl Holder {
    /// One that has never renewed, and may not act.
    pub fn new(ttl: Ttl) -> Self {
        Self { ttl, renewed: None, pending: VecDeque::new() }
    }

    /// A renewal is about to be sent.
    pub fn sending(&mut self, nonce: Nonce, now: Reading) {
        if self.pending.len() == RENEWALS_PENDING_MAX {
            // To forget one only means not to be credited for it.
            self.pending.pop_front();
        }
        self.pending.push_back((nonce, now));
    }

    /// The renewal with this nonce is known to have won: it was acknowledged, or its nonce was read
    /// back. It counts from its own send time, whatever was sent after it. An unknown nonce counts for
    /// nothing.
    pub fn won(&mut self, nonce: Nonce) {
        let Some(place) = self.pending.iter().position(|(pending, _)| *pending == nonce) else {
            return;
        };
        let (_, sent) = self.pending[place];
        // Those before it lost, since each is conditional on the one before; they are of no more use.
        self.pending.drain(..=place);
        self.renewed = Some(sent);
    }

    /// How much longer it may act, by the faster of its clocks; zero when it has lapsed.
    pub fn valid_for(&self, now: Reading) -> Duration {
        self.renewed
            .map_or(Duration::ZERO, |renewed| self.ttl.0.saturating_sub(now.most_since(renewed)))
    }

    /// Whether it may act now.
    pub fn is_valid(&self, now: Reading) -> bool {
        !self.valid_for(now).is_zero()
    }
}

/// An observer's contact with the store. Patience counts only while there is any: after an outage
/// everybody's record has stood still, and everybody would bury everybody.
#[derive(Debug, Clone, Copy)]
pub struct Contact {
    own: Ttl,
    /// When the present stretch of answers began, and its last answer.
    stretch: Option<(Reading, Reading)>,
}

impl Contact {
    /// None yet.
    pub fn new(own: Ttl) -> Self {
        Self { own, stretch: None }
    }

    /// The store has answered. After a gap of over T/4 a new stretch begins.
    pub fn answered(&mut self, now: Reading) {
        let begun = match self.stretch {
            Some((begun, last)) if now.most_since(last) <= self.own.0 / 4 => begun,
            Some(_) | None => now,
        };
        self.stretch = Some((begun, now));
    }

    /// Whether the store has answered without a gap for the last T/2 at least.
    pub fn is_steady(&self, now: Reading) -> bool {
        self.stretch.is_some_and(|(begun, last)| {
            now.most_since(last) <= self.own.0 / 4 && now.least_since(begun) >= self.own.0 / 2
        })
    }
}

/// An observer's side: what it has seen of one session. `V` is the version of its record.
#[derive(Debug, Clone, Copy)]
pub struct Watched<V> {
    version: V,
    ttl: Ttl,
    first_seen: Reading,
}

/// What an observer may conclude.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict<V> {
    /// It moved, or was not watched for long enough: look again no sooner than after this.
    Wait {
        /// At the least; more if the clocks of this machine disagree.
        left: Duration,
    },
    /// It stood still for the whole patience: bury it, at this version and no other.
    Bury {
        /// What it stood still at.
        at: V,
    },
}

impl<V: Copy + Eq> Watched<V> {
    /// A read that showed the session for the first time has arrived.
    pub fn new(version: V, ttl: Ttl, arrival: Reading) -> Self {
        Self { version, ttl, first_seen: arrival }
    }

    /// A later read has arrived. If the session moved, it is watched anew from this arrival.
    pub fn see(&mut self, version: V, ttl: Ttl, arrival: Reading) {
        if version != self.version {
            *self = Self::new(version, ttl, arrival);
        }
    }

    /// Judges the session by the slower of this machine's clocks.
    pub fn judge(&self, own: Ttl, now: Reading) -> Verdict<V> {
        let patience = self.ttl.patience(own);
        let left = patience.saturating_sub(now.least_since(self.first_seen));
        if left.is_zero() { Verdict::Bury { at: self.version } } else { Verdict::Wait { left } }
    }
}

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
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn secs(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    /// Both clocks agree.
    fn at(seconds: f64) -> Reading {
        Reading { boot: secs(seconds), raw: secs(seconds) }
    }

    fn ttl(seconds: f64) -> Ttl {
        Ttl::new(secs(seconds)).unwrap()
    }

    #[test]
    fn a_ttl_is_taken_at_its_limits_and_refused_past_them() {
        assert!(Ttl::new(LEASE_TTL_MIN).is_ok() && Ttl::new(LEASE_TTL_MAX).is_ok());
        let step = Duration::from_nanos(1);
        for bad in [LEASE_TTL_MIN.saturating_sub(step), LEASE_TTL_MAX + step] {
            assert_eq!(Ttl::new(bad), Err(BadTtl(bad)));
        }
    }

    #[test]
    fn validity_runs_from_the_send_time_of_the_renewal_that_won() {
        let mut holder = Holder::new(ttl(4.0));
        assert!(!holder.is_valid(at(0.0)));
        holder.sending(Nonce(1), at(1.0));
        assert!(!holder.is_valid(at(1.0)), "nothing is known of it yet");
        holder.won(Nonce(1));
        assert_eq!(holder.valid_for(at(3.0)), secs(2.0));
        assert!(!holder.is_valid(at(5.0)));
    }

    #[test]
    fn an_ambiguous_renewal_is_credited_to_the_attempt_that_won() {
        let mut holder = Holder::new(ttl(4.0));
        for (nonce, sent) in [(1, 1.0), (2, 2.0), (3, 3.0)] {
            holder.sending(Nonce(nonce), at(sent));
        }
        holder.won(Nonce(2));
        assert_eq!(holder.valid_for(at(3.0)), secs(3.0), "from 2.0, not from 3.0");
        holder.won(Nonce(1));
        assert_eq!(holder.valid_for(at(3.0)), secs(3.0), "an older one cannot have won later");
        holder.won(Nonce(9));
        assert_eq!(holder.valid_for(at(3.0)), secs(3.0), "a foreign nonce counts for nothing");
        holder.won(Nonce(3));
        assert_eq!(holder.valid_for(at(3.0)), secs(4.0));
    }

    #[test]
    fn pending_renewals_are_bounded_and_the_oldest_is_forgotten() {
        let mut holder = Holder::new(ttl(4.0));
        for nonce in 0..=RENEWALS_PENDING_MAX as u64 {
            holder.sending(Nonce(nonce), at(1.0));
        }
        holder.won(Nonce(0));
        assert!(!holder.is_valid(at(1.0)));
        holder.won(Nonce(1));
        assert!(holder.is_valid(at(1.0)));
    }

    #[test]
    fn the_holder_believes_the_faster_clock_and_the_observer_the_slower() {
        let mut holder = Holder::new(ttl(4.0));
        holder.sending(Nonce(1), at(0.0));
        holder.won(Nonce(1));
        let suspended = Reading { boot: secs(6.0), raw: secs(1.0) };
        assert!(!holder.is_valid(suspended), "it slept, and boot time knows");
        let watched = Watched::new(7, ttl(4.0), at(0.0));
        assert_eq!(watched.judge(ttl(4.0), suspended), Verdict::Wait { left: secs(4.0) });
    }

    #[test]
    fn patience_is_a_quarter_more_than_the_longer_lease() {
        let watched = Watched::new(7, ttl(4.0), at(10.0));
        assert_eq!(watched.judge(ttl(1.0), at(14.9)), Verdict::Wait { left: secs(0.1) });
        assert_eq!(watched.judge(ttl(1.0), at(15.0)), Verdict::Bury { at: 7 });
        assert_eq!(watched.judge(ttl(8.0), at(15.0)), Verdict::Wait { left: secs(5.0) });
    }

    #[test]
    fn a_session_that_moved_is_watched_anew() {
        let mut watched = Watched::new(7, ttl(4.0), at(0.0));
        watched.see(7, ttl(4.0), at(2.0));
        watched.see(8, ttl(4.0), at(3.0));
        assert_eq!(watched.judge(ttl(4.0), at(5.0)), Verdict::Wait { left: secs(3.0) });
        assert_eq!(watched.judge(ttl(4.0), at(8.0)), Verdict::Bury { at: 8 });
    }

    #[test]
    fn contact_is_steady_after_half_a_lease_without_a_gap() {
        let mut contact = Contact::new(ttl(4.0));
        assert!(!contact.is_steady(at(0.0)));
        for second in 0..=2 {
            contact.answered(at(f64::from(second)));
        }
        assert!(contact.is_steady(at(2.0)));
        assert!(!contact.is_steady(at(3.5)), "the last answer is too long ago");
        contact.answered(at(3.5));
        assert!(!contact.is_steady(at(3.5)), "a gap begins a new stretch");
    }

    #[test]
    fn tokens_only_grow_whatever_the_wall_clock_does() {
        assert_eq!(Token::after(Token(5), 100), Token(100));
        assert_eq!(Token::after(Token(100), 7), Token(101));
        assert_eq!(Token::after(Token(100), 100), Token(101));
    }

    /// A true stretch of time, as a machine with these rates reads it.
    fn read(true_seconds: f64, boot_rate: f64, raw_rate: f64) -> Reading {
        Reading { boot: secs(true_seconds * boot_rate), raw: secs(true_seconds * raw_rate) }
    }

    proptest! {
        /// The inequality of the header, by trial: at no true moment may the holder still act and the
        /// observer already bury, for any clock rates within ±1/9 and any delays.
        #[test]
        fn no_holder_may_act_when_an_observer_may_bury(
            holder_boot in 8.0 / 9.0..10.0 / 9.0, holder_raw in 8.0 / 9.0..10.0 / 9.0,
            observer_boot in 8.0 / 9.0..10.0 / 9.0, observer_raw in 8.0 / 9.0..10.0 / 9.0,
            length in 1.0..10.0_f64, own in 1.0..10.0_f64, delay in 0.0..5.0_f64, moment in 0.0..30.0_f64,
        ) {
            let (send, now) = (100.0, 100.0 + moment);
            let mut holder = Holder::new(ttl(length));
            holder.sending(Nonce(1), read(send, holder_boot, holder_raw));
            holder.won(Nonce(1));
            let arrival = read(send + delay, observer_boot, observer_raw);
            let watched = Watched::new(1, ttl(length), arrival);
            let acts = holder.is_valid(read(now, holder_boot, holder_raw));
            let verdict = watched.judge(ttl(own), read(now, observer_boot, observer_raw));
            let buries = verdict == Verdict::Bury { at: 1 };
            prop_assert!(!(acts && buries));
        }
    }
}
