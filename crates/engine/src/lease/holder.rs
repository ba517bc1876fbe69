//! The holder's side: until when may it act?

use std::collections::VecDeque;
use std::time::Duration;

use super::{Nonce, Reading, Ttl};
use crate::limits::RENEWALS_REMEMBERED_MAX;
use crate::mutant::{Mutant, pick};

/// A holder's validity.
///
/// It runs from the moment *before* the last renewal that is known to have won was *sent*. Silence
/// never extends anything.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Holder {
    ttl: Ttl,
    renewed: Option<Reading>,
    /// The last renewals, the oldest first, with or without an answer: any of them may be what a
    /// read shows, since a store of class B may go back to an older one.
    sent: VecDeque<(Nonce, Reading)>,
}

/// Who wrote the record that a read showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Author {
    /// One of this holder's own renewals: it counts from its own sending.
    Me,
    /// Somebody else's, or one of long ago: it counts for nothing.
    Unknown,
}

impl Holder {
    /// One that has never renewed, and may not act.
    pub fn new(ttl: Ttl) -> Self {
        Self { ttl, renewed: None, sent: VecDeque::new() }
    }

    /// How long a renewal lasts.
    pub fn ttl(&self) -> Ttl {
        self.ttl
    }

    /// A renewal is about to be sent.
    pub fn sending(&mut self, nonce: Nonce, now: Reading) {
        if self.sent.len() == RENEWALS_REMEMBERED_MAX {
            // To forget one only means not to be credited for it; the record stays ours.
            self.sent.pop_front();
        }
        self.sent.push_back((nonce, now));
    }

    /// The renewal with this nonce is known to have won: it was acknowledged, or read back. It counts
    /// from its own sending, whatever was sent after it; when this was `learnt` counts for nothing.
    pub fn won(&mut self, nonce: Nonce, learnt: Reading) -> Author {
        let Some(&(_, sent)) = self.sent.iter().find(|(each, _)| *each == nonce) else {
            return Author::Unknown;
        };
        let last = self.sent.back().map_or(sent, |(_, last)| *last);
        let from = pick(Mutant::ValidityFromReply, sent, learnt);
        let from = pick(Mutant::CreditLastSent, from, last);
        if self.renewed.is_none_or(|renewed| from.is_after(renewed)) {
            self.renewed = Some(from);
        }
        Author::Me
    }

    /// How long ago the last renewal that is known to have won was sent, by the faster clock; `None`
    /// if there was none.
    pub fn unrenewed_for(&self, now: Reading) -> Option<Duration> {
        self.renewed.map(|renewed| now.most_since(renewed))
    }

    /// The clocks before the last renewal was sent that is known to have won; `None` if there was none.
    pub fn renewed(&self) -> Option<Reading> {
        self.renewed
    }

    /// How much longer it may act, by the faster of its clocks; zero when it has lapsed.
    pub fn valid_for(&self, now: Reading) -> Duration {
        let Some(passed) = self.unrenewed_for(now) else { return Duration::ZERO };
        let ttl = self.ttl.length();
        let ttl = pick(Mutant::ActFor115Percent, ttl, ttl * 115 / 100);
        ttl.saturating_sub(pick(Mutant::ActAfterLapse, passed, Duration::ZERO))
    }

    /// Whether it may act now.
    pub fn is_valid(&self, now: Reading) -> bool {
        !self.valid_for(now).is_zero()
    }

    /// Whether a renewal that won was sent at `then` or later.
    pub fn renewed_since(&self, then: Reading) -> bool {
        self.renewed.is_some_and(|renewed| !then.is_after(renewed))
    }
}

#[cfg(test)]
mod tests {
    use super::super::test::{at, secs, ttl};
    use super::*;

    #[test]
    fn validity_runs_from_the_sending_of_the_renewal_that_won() {
        let mut holder = Holder::new(ttl(4.0));
        assert!(!holder.is_valid(at(0.0)));
        holder.sending(Nonce(1), at(1.0));
        assert!(!holder.is_valid(at(1.0)), "nothing is known of it yet");
        holder.won(Nonce(1), at(2.0));
        assert_eq!(holder.valid_for(at(3.0)), secs(2.0));
        assert_eq!(holder.unrenewed_for(at(3.0)), Some(secs(2.0)));
        assert!(!holder.is_valid(at(5.0)));
    }

    #[test]
    fn an_ambiguous_renewal_is_credited_to_the_attempt_that_won() {
        let mut holder = Holder::new(ttl(4.0));
        for (nonce, sent) in [(1, 1.0), (2, 2.0), (3, 3.0)] {
            holder.sending(Nonce(nonce), at(sent));
        }
        assert_eq!(holder.won(Nonce(2), at(3.0)), Author::Me);
        assert_eq!(holder.valid_for(at(3.0)), secs(3.0), "from 2.0, not from 3.0");
        assert_eq!(holder.won(Nonce(1), at(3.0)), Author::Me, "the store may have gone back to it");
        assert_eq!(holder.valid_for(at(3.0)), secs(3.0), "which takes nothing away");
        assert_eq!(holder.won(Nonce(9), at(3.0)), Author::Unknown);
        assert_eq!(holder.valid_for(at(3.0)), secs(3.0), "a foreign nonce counts for nothing");
        assert_eq!(holder.won(Nonce(3), at(3.0)), Author::Me);
        assert_eq!(holder.valid_for(at(3.0)), secs(4.0));
    }

    #[test]
    fn it_knows_whether_it_was_renewed_since_a_moment() {
        let mut holder = Holder::new(ttl(4.0));
        assert!(!holder.renewed_since(at(0.0)));
        holder.sending(Nonce(1), at(1.0));
        holder.won(Nonce(1), at(3.0));
        assert!(holder.renewed_since(at(1.0)));
        assert!(!holder.renewed_since(at(2.0)), "it was sent before, though answered after");
    }

    #[test]
    fn the_renewals_remembered_are_bounded_and_the_oldest_is_forgotten() {
        let mut holder = Holder::new(ttl(4.0));
        for nonce in 0..=RENEWALS_REMEMBERED_MAX as u64 {
            holder.sending(Nonce(nonce), at(1.0));
        }
        assert_eq!(holder.won(Nonce(0), at(1.0)), Author::Unknown);
        assert_eq!(holder.won(Nonce(1), at(1.0)), Author::Me);
        assert!(holder.is_valid(at(1.0)));
    }
}
