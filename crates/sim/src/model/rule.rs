//! The real rules, asked in the model's terms.
//!
//! A state holds ages and no readings. For each question a `lease::Holder` or a `lease::Observer` is
//! brought by its public functions to where the state says it is, and then asked; nothing is decided
//! here.

use std::time::Duration;

use engine::lease::{self, Nonce, SessionsLook, StoreMemory};

use super::clock::{Age, ClockRates, ttl};
use super::state::{Behind, ModelHolder, SessionWrite};

/// The rules of `engine::lease`, for actors whose clocks run at these rates.
pub(super) struct Rules {
    pub(super) rates: ClockRates,
    /// How long an observer waits that has just begun to watch.
    patience: Duration,
}

impl Rules {
    pub(super) fn new(rates: ClockRates) -> Self {
        let rules = Self { rates, patience: Duration::ZERO };
        let patience = rules.patience_left(&rules.observer(Behind::CURRENT, Age::NOW));
        Self { patience, ..rules }
    }

    /// Whether the holder may act.
    pub(super) fn may_act(&self, holder: &ModelHolder) -> bool {
        self.holder(holder).is_valid(self.rates.holder.at(Age::NOW))
    }

    /// From when the holder's validity runs once it knows that this write is its own and won.
    pub(super) fn renewed(&self, holder: &ModelHolder, won: SessionWrite) -> Age {
        let now = self.rates.holder.at(Age::NOW);
        let mut holder = self.holder(holder);
        let author = holder.won(nonce(won), now);
        assert_eq!(author, lease::Author::Me, "nobody else renews this session");
        let passed = holder.unrenewed_for(now).expect("it just won");
        self.rates.holder.age_by_faster(passed)
    }

    /// Since when the session has stood still for a contender that sees it at this version.
    pub(super) fn since(&self, watched: Option<(Behind, Age)>, asked: Age, seen: Behind) -> Age {
        let mut observer = match watched {
            Some((version, since)) => self.observer(version, since),
            None => lease::Observer::new(ttl()),
        };
        observer.see(self.look(asked, Age::NOW, seen));
        let passed = self.patience.saturating_sub(self.patience_left(&observer));
        self.rates.contender.age_by_slower(passed)
    }

    /// Whether a session that has stood still for so long may be buried.
    pub(super) fn is_overdue(&self, since: Age) -> bool {
        self.patience_left(&self.observer(Behind::CURRENT, since)).is_zero()
    }

    fn holder(&self, holder: &ModelHolder) -> lease::Holder {
        let clocks = self.rates.holder;
        let mut real = lease::Holder::new(ttl());
        real.sending(nonce(SessionWrite::Known), clocks.at(holder.renewed));
        real.won(nonce(SessionWrite::Known), clocks.at(holder.renewed));
        for (write, renewal) in holder.unanswered() {
            real.sending(nonce(write), clocks.at(renewal.sent));
        }
        real
    }

    fn observer(&self, version: Behind, since: Age) -> lease::Observer<(), Behind> {
        let mut real = lease::Observer::new(ttl());
        real.see(self.look(since, since, version));
        real
    }

    fn look(&self, asked: Age, arrived: Age, version: Behind) -> SessionsLook<(), Behind> {
        SessionsLook {
            asked: self.rates.contender.at(asked),
            arrived: self.rates.contender.at(arrived),
            epoch: String::new(),
            memory: StoreMemory::Keeps,
            sessions: vec![((), version, Some(ttl()))],
            longest: None,
        }
    }

    fn patience_left(&self, observer: &lease::Observer<(), Behind>) -> Duration {
        let now = self.rates.contender.at(Age::NOW);
        observer.patience_left(&(), now).expect("it has seen the session")
    }
}

fn nonce(write: SessionWrite) -> Nonce {
    match write {
        SessionWrite::Known => Nonce(0),
        SessionWrite::Unanswered(place) => Nonce(1 + u64::from(place)),
    }
}
