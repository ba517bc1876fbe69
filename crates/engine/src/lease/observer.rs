//! The observer's side: whom may it bury, and may it claim anything?
//!
//! An observer looks at all sessions again and again. It buries one when it has seen the same version
//! for the whole patience, counted from the arrival of the first look that showed it. Two more things
//! must hold. It must have been in contact with the store for half a lease, its own or the other's,
//! whichever is longer, and have renewed its own session since contact began: after an outage
//! everybody's record has stood still, and everybody would bury everybody. A store that answers and
//! refuses to be written to is an outage too. And it must not be in quarantine.
//!
//! Quarantine is for stores that may forget. When such a store fails over, a renewal or a claim that
//! was acknowledged may be gone, and its author acts on. The author's last acknowledgement came before
//! the new epoch answered anybody, or within `lag` of it (a former primary may not know yet); so
//! whoever has been in contact with the new epoch for 1.25·(T + lag) knows that it has stopped. T is
//! the longest that any session ever had: the author's own record may be gone, so the store keeps that
//! number apart. A
//! process that has just started cannot know how young the epoch is, and waits as well. So does a
//! holder: what it has may have been given to another by the former primary.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Holder, Reading, Ttl, patience};
use crate::limits::FAILOVER_LAG;
use crate::mutant::{Mutant, pick};

/// What an acknowledgement of the store is worth to somebody who waits for others to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StoreMemory {
    /// What it acknowledged it still has, as long as its epoch is the same.
    Keeps,
    /// A fail-over may have lost what it acknowledged last.
    MayForget,
}

/// One look at all sessions, when it has arrived whole.
#[derive(Debug, Clone)]
pub struct SessionsLook<K, V> {
    /// When it was asked for.
    pub asked: Reading,
    /// When the last of it arrived.
    pub arrived: Reading,
    /// The store's epoch.
    pub epoch: String,
    /// What the store's acknowledgements are worth.
    pub memory: StoreMemory,
    /// Every session there is, with its version and its T; `None` if that cannot be read.
    pub sessions: Vec<(K, V, Option<Ttl>)>,
    /// The longest T that any session ever had, as far as the store knows.
    pub longest: Option<Ttl>,
}

/// What one observer has seen.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Observer<K: Ord, V> {
    own: Ttl,
    contact: Contact,
    watched: BTreeMap<K, Watched<V>>,
    epoch: Option<String>,
    quarantined: Option<Reading>,
    /// How long another server may have gone on acknowledging what this epoch does not know of. None, where a store keeps its
    /// word: then nobody answered before the new epoch did but the one that is gone.
    lag: Duration,
    /// What the store's acknowledgements were worth at the last look.
    memory: StoreMemory,
    /// The longest T that it ever heard of.
    longest: Ttl,
}

impl<K: Ord + Clone, V: Copy + Eq> Observer<K, V> {
    /// One that has seen nothing yet; its own sessions last `own`.
    pub fn new(own: Ttl) -> Self {
        Self {
            own,
            contact: Contact::new(own),
            watched: BTreeMap::new(),
            epoch: None,
            quarantined: None,
            lag: Duration::ZERO,
            memory: StoreMemory::Keeps,
            longest: own,
        }
    }

    /// The observer of another session of the same process, which knows what this one knew of the store's epoch: that it
    /// looks for the first time is no reason to trust a store that has just been restored.
    #[must_use]
    pub fn successor(&self, own: Ttl) -> Self {
        Self {
            epoch: self.epoch.clone(),
            quarantined: self.quarantined,
            lag: self.lag,
            memory: self.memory,
            longest: self.longest.max(own),
            ..Self::new(own)
        }
    }

    /// The store has answered something else than a look.
    pub fn answered(&mut self, now: Reading) {
        self.contact.answered(now);
    }

    /// The store has answered that it takes no writes: until it does nobody can renew, so contact begins anew after it.
    pub fn refused(&mut self) {
        self.contact = Contact::new(self.own);
    }

    /// Takes in a look.
    pub fn see(&mut self, look: SessionsLook<K, V>) {
        self.contact.answered(look.arrived);
        if self.epoch.as_ref() != Some(&look.epoch) {
            // What stood still in another epoch says nothing about this one.
            self.watched.clear();
            let starts = self.epoch.is_none();
            let waits = match look.memory {
                StoreMemory::MayForget => pick(Mutant::NoQuarantineForStarters, true, !starts),
                // A new epoch of a store that keeps its word means that it was restored.
                StoreMemory::Keeps => !starts,
            };
            self.quarantined = waits.then_some(look.arrived);
            let forgets = [self.memory, look.memory].contains(&StoreMemory::MayForget);
            self.lag = if forgets { FAILOVER_LAG } else { Duration::ZERO };
            self.epoch = Some(look.epoch);
        }
        self.memory = look.memory;
        let since = pick(Mutant::PatienceFromAsking, look.arrived, look.asked);
        let readable = look.sessions.iter().filter_map(|(_, _, ttl)| *ttl);
        self.longest = readable.chain(look.longest).fold(self.longest, Ttl::max);
        let mut watched = BTreeMap::new();
        for (session, version, ttl) in look.sessions {
            let ttl = ttl.unwrap_or(Ttl::LONGEST);
            let former = self.watched.remove(&session).filter(|former| former.version == version);
            watched.insert(session, former.unwrap_or(Watched { version, ttl, since }));
        }
        self.watched = watched;
    }

    /// The sessions that stood still for the whole patience and may be buried now, each at this version
    /// and no other. `own` is the holder of this observer's own session.
    pub fn overdue(&self, own: &Holder, now: Reading) -> Vec<(K, V)> {
        if self.quarantine_left(now) > Duration::ZERO {
            return Vec::new();
        }
        let begun = self.contact.since(now).filter(|begun| own.renewed_since(*begun));
        let contact = match begun {
            Some(begun) if own.is_valid(now) => now.least_since(begun),
            Some(_) | None => Duration::ZERO,
        };
        let overdue = |watched: &Watched<V>| {
            // Whoever lives has had the time to renew since contact began.
            let steady = contact >= watched.ttl.max(self.own).length() / 2;
            pick(Mutant::PatienceThroughOutage, steady, true) && watched.stood_still(self.own, now)
        };
        self.watched
            .iter()
            .filter(|(_, watched)| overdue(watched))
            .map(|(session, watched)| (session.clone(), watched.version))
            .collect()
    }

    /// The store's epoch at the last look.
    pub fn epoch(&self) -> Option<&str> {
        self.epoch.as_deref()
    }

    /// How long it may neither bury nor claim nor act because the store may have forgotten something.
    pub fn quarantine_left(&self, now: Reading) -> Duration {
        let Some(begun) = self.quarantined else { return Duration::ZERO };
        patience(self.longest.length() + self.lag).saturating_sub(now.least_since(begun))
    }

    /// How long until a session that stands still may be buried, as far as patience alone decides;
    /// `None` if it has not been seen.
    pub fn patience_left(&self, session: &K, now: Reading) -> Option<Duration> {
        let watched = self.watched.get(session)?;
        Some(watched.patience(self.own).saturating_sub(now.least_since(watched.since)))
    }
}

/// A session that has stood still since it was seen first at this version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Watched<V> {
    version: V,
    ttl: Ttl,
    since: Reading,
}

impl<V> Watched<V> {
    fn patience(&self, own: Ttl) -> Duration {
        patience(self.ttl.max(own).length())
    }

    fn stood_still(&self, own: Ttl, now: Reading) -> bool {
        now.least_since(self.since) >= self.patience(own)
    }
}

/// An observer's contact with the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Contact {
    own: Ttl,
    /// When the present stretch of answers began, and its last answer.
    stretch: Option<(Reading, Reading)>,
}

impl Contact {
    fn new(own: Ttl) -> Self {
        Self { own, stretch: None }
    }

    /// The store has answered. After a gap of over T/4 a new stretch begins.
    fn answered(&mut self, now: Reading) {
        let begun = match self.stretch {
            Some((begun, last)) if now.most_since(last) <= self.own.length() / 4 => begun,
            Some(_) | None => now,
        };
        self.stretch = Some((begun, now));
    }

    /// Since when the store has answered without a gap, if it still does.
    fn since(&self, now: Reading) -> Option<Reading> {
        let (begun, last) = self.stretch?;
        (now.most_since(last) <= self.own.length() / 4).then_some(begun)
    }
}

#[cfg(test)]
mod tests {
    use super::super::test::{at, secs, ttl};
    use super::super::{Nonce, Reading};
    use super::*;

    /// An observer with T = 4 and a look every half second, that renews at every look.
    struct Bench {
        observer: Observer<&'static str, u32>,
        own: Holder,
        epoch: &'static str,
        memory: StoreMemory,
        now: f64,
    }

    impl Bench {
        fn new() -> Self {
            let (observer, own) = (Observer::new(ttl(4.0)), Holder::new(ttl(4.0)));
            Self { observer, own, epoch: "e", memory: StoreMemory::Keeps, now: 0.0 }
        }

        fn renew(&mut self) {
            let nonce = Nonce(self.now.to_bits());
            self.own.sending(nonce, at(self.now));
            self.own.won(nonce, at(self.now));
        }

        fn look(&mut self, version: u32, length: f64) {
            let (asked, arrived) = (at((self.now - 0.1).max(0.0)), at(self.now));
            let sessions = vec![("other", version, Some(ttl(length)))];
            let epoch = self.epoch.to_owned();
            let memory = self.memory;
            self.observer.see(SessionsLook {
                asked,
                arrived,
                epoch,
                memory,
                sessions,
                longest: None,
            });
        }

        /// Looks every half second until `end`, and tells when "other" became overdue.
        fn watch(&mut self, end: f64, version: u32, length: f64) -> Option<f64> {
            while self.now <= end {
                self.renew();
                self.look(version, length);
                if !self.observer.overdue(&self.own, at(self.now)).is_empty() {
                    return Some(self.now);
                }
                self.now += 0.5;
            }
            None
        }
    }

    #[test]
    fn patience_is_a_quarter_more_than_the_longer_lease() {
        assert_eq!(Bench::new().watch(20.0, 7, 4.0), Some(5.0));
        assert_eq!(Bench::new().watch(20.0, 7, 1.0), Some(5.0), "its own T is longer");
        assert_eq!(Bench::new().watch(20.0, 7, 8.0), Some(10.0));
    }

    #[test]
    fn a_session_that_moved_is_watched_anew_and_buried_at_what_it_stood_still_at() {
        let mut bench = Bench::new();
        assert_eq!(bench.watch(3.0, 7, 4.0), None);
        assert_eq!(bench.watch(20.0, 8, 4.0), Some(8.5), "from 3.5, when 8 was first seen");
        assert_eq!(bench.observer.overdue(&bench.own, at(8.5)), [("other", 8)]);
        assert_eq!(bench.observer.patience_left(&"other", at(8.0)), Some(secs(0.5)));
        assert_eq!(bench.observer.patience_left(&"nobody", at(8.0)), None);
    }

    #[test]
    fn after_an_outage_nobody_is_buried_until_contact_was_steady_for_half_a_lease() {
        let mut bench = Bench::new();
        assert_eq!(bench.watch(2.0, 7, 4.0), None);
        bench.now = 12.0;
        assert_eq!(bench.watch(20.0, 7, 4.0), Some(14.0), "contact is back since 12.0");
        let mut bench = Bench::new();
        assert_eq!(bench.watch(2.0, 7, 8.0), None);
        bench.now = 12.0;
        assert_eq!(bench.watch(20.0, 7, 8.0), Some(16.0), "the other renews less often");
    }

    #[test]
    fn a_store_that_answers_and_takes_no_writes_is_an_outage_too() {
        let mut bench = Bench::new();
        assert_eq!(bench.watch(2.0, 7, 4.0), None);
        while bench.now <= 12.0 {
            bench.look(7, 4.0);
            bench.observer.refused();
            bench.now += 0.5;
        }
        assert_eq!(bench.watch(20.0, 7, 4.0), Some(14.5), "it takes writes since 12.5");
    }

    #[test]
    fn an_observer_that_did_not_renew_since_contact_began_buries_nobody() {
        let mut bench = Bench::new();
        bench.renew();
        while bench.now <= 20.0 {
            bench.look(7, 4.0);
            assert_eq!(bench.observer.overdue(&bench.own, at(bench.now)), []);
            bench.now += 0.5;
        }
    }

    #[test]
    fn a_store_that_may_forget_puts_every_starter_in_quarantine() {
        let mut bench = Bench::new();
        bench.memory = StoreMemory::MayForget;
        let whole = (4.0 + FAILOVER_LAG.as_secs_f64()) * 1.25;
        assert_eq!(bench.watch(20.0, 7, 4.0), Some(whole));
        assert_eq!(bench.observer.quarantine_left(at(0.0)), secs(whole));
        assert_eq!(bench.observer.quarantine_left(at(whole)), Duration::ZERO);
    }

    #[test]
    fn the_longest_lease_in_sight_decides_about_the_quarantine() {
        let mut bench = Bench::new();
        bench.memory = StoreMemory::MayForget;
        bench.look(7, 8.0);
        let whole = (8.0 + FAILOVER_LAG.as_secs_f64()) * 1.25;
        assert_eq!(bench.observer.quarantine_left(at(0.0)), secs(whole));
    }

    #[test]
    fn a_lease_that_is_no_longer_in_sight_is_not_forgotten() {
        let mut bench = Bench::new();
        bench.memory = StoreMemory::MayForget;
        bench.look(7, 8.0);
        bench.look(8, 4.0);
        let whole = (8.0 + FAILOVER_LAG.as_secs_f64()) * 1.25;
        assert_eq!(bench.observer.quarantine_left(at(0.0)), secs(whole));
    }

    #[test]
    fn the_next_session_of_a_process_does_not_take_a_restored_store_for_a_first_contact() {
        let whole = 4.0 * 1.25;
        let own = Ttl::new(secs(4.0)).unwrap();
        // Whether the former one has seen it or not.
        for is_seen in [true, false] {
            let mut bench = Bench::new();
            bench.look(7, 4.0);
            bench.epoch = "restored";
            if is_seen {
                bench.look(8, 4.0);
            }
            bench.observer = bench.observer.successor(own);
            bench.look(9, 4.0);
            assert_eq!(bench.observer.quarantine_left(at(0.0)), secs(whole), "{is_seen}");
        }
    }

    #[test]
    fn a_new_epoch_begins_a_quarantine_also_where_nothing_is_forgotten() {
        let mut bench = Bench::new();
        bench.look(7, 4.0);
        assert_eq!(bench.observer.quarantine_left(at(0.0)), Duration::ZERO, "a first contact");
        assert_eq!(bench.watch(4.0, 7, 4.0), None);
        bench.epoch = "restored";
        let whole = 4.0 * 1.25;
        assert_eq!(bench.watch(30.0, 7, 4.0), Some(4.5 + whole));
    }

    #[test]
    fn the_observer_believes_the_slower_clock() {
        let mut bench = Bench::new();
        bench.look(7, 4.0);
        let slept = Reading { boot: secs(6.0), raw: secs(1.0) };
        assert_eq!(bench.observer.patience_left(&"other", slept), Some(secs(4.0)));
    }
}
