//! How far the wall clocks of others are from one's own, by what their sessions say.
//!
//! Every renewal carries what its sender's wall clock showed when it was sent. Whoever reads it for the first
//! time compares that with its own wall clock at that moment. In between lies the way to the store and back, and
//! the time until this look: at the most the time between two looks, if both nodes and the store are well. All
//! of it can only make the other clock look *more behind* than it is, never ahead. So of the last few
//! renewals the one that looks least behind is nearest to the truth, and what is said here errs by the shortest
//! of those delays, to one side.
//!
//! A clock that is set forward is noticed at the next renewal, and one that is set back when the renewals of
//! before are forgotten, after five of them: one T. What stood there at the first look of all may be of any age,
//! of somebody dead perhaps, and says nothing; nor does a session that was not seen to move.

use std::collections::{BTreeMap, VecDeque};

use engine::limits::CLOCK_BEATS;

use super::SessionKey;
use super::roster::SeenSession;
use crate::Version;

/// What the renewals of others said.
#[derive(Default)]
pub(super) struct PeerClocks {
    sessions: BTreeMap<SessionKey, Beats>,
    has_looked: bool,
}

/// The last renewals of one session.
struct Beats {
    version: Version,
    /// How far ahead of the own clock each of them looked.
    ahead_ms: VecDeque<i64>,
}

impl PeerClocks {
    /// Notes what a look showed, by an own wall clock of `wall_us` when it came. Tells how far the others are
    /// ahead, as far as that is known.
    pub(super) fn see(
        &mut self,
        sessions: &BTreeMap<SessionKey, SeenSession>,
        wall_us: u64,
    ) -> BTreeMap<SessionKey, i64> {
        self.sessions.retain(|key, _| sessions.contains_key(key));
        for (key, seen) in sessions {
            let former = self.sessions.get(key).map(|beats| beats.version);
            if former == Some(seen.version) {
                continue;
            }
            let beats = self.sessions.entry(key.clone());
            let beats = beats.or_insert(Beats { version: seen.version, ahead_ms: VecDeque::new() });
            beats.version = seen.version;
            // Those who come through a server are not told of the clocks of servers.
            let theirs = seen.record.as_ref().map(|record| record.wall_us).filter(|us| *us > 0);
            if let Some(theirs) = theirs.filter(|_| self.has_looked) {
                beats.ahead_ms.truncate(CLOCK_BEATS - 1);
                beats.ahead_ms.push_front(millis(theirs) - millis(wall_us));
            }
        }
        self.has_looked = true;
        let ahead = |(key, beats): (&SessionKey, &Beats)| {
            Some((key.clone(), *beats.ahead_ms.iter().max()?))
        };
        self.sessions.iter().filter_map(ahead).collect()
    }
}

/// Milliseconds since 1970: two of them never differ by more than an `i64` holds.
fn millis(wall_us: u64) -> i64 {
    i64::try_from(wall_us / 1_000).expect("a thousandth of 64 bits fits")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{NodeId, SessionRecord};

    const NOON_US: u64 = 1_800_000_000_000_000;

    fn key(node: &str) -> SessionKey {
        SessionKey::new(&NodeId::new(node).unwrap(), 1)
    }

    /// A session at a version, whose clock showed so many milliseconds after noon.
    fn session(node: &str, version: u64, wall_ms: u64) -> (SessionKey, SeenSession) {
        let text = format!(
            r#"{{"format":1,"roles":[],"ttl_ms":3000,"beat":1,"nonce":"1","wall_us":{},"reads":1,"local":false}}"#,
            NOON_US + wall_ms * 1_000
        );
        let record = SessionRecord::from_value(&text.into_bytes().into()).ok();
        (key(node), SeenSession { record, version: Version(version) })
    }

    /// One look at one session, so many milliseconds after noon.
    fn look(clocks: &mut PeerClocks, version: u64, wall_ms: u64, now_ms: u64) -> Option<i64> {
        let sessions = [session("anna", version, wall_ms)].into();
        clocks.see(&sessions, NOON_US + now_ms * 1_000).get(&key("anna")).copied()
    }

    #[test]
    fn what_was_there_at_the_first_look_says_nothing_until_it_moves() {
        let mut clocks = PeerClocks::default();
        assert_eq!(look(&mut clocks, 1, 5_000, 9_000), None);
        assert_eq!(look(&mut clocks, 1, 5_000, 9_300), None);
        assert_eq!(look(&mut clocks, 2, 9_500, 9_600), Some(-100));
        assert_eq!(look(&mut clocks, 2, 9_500, 20_000), Some(-100), "and stays until it moves");
    }

    #[test]
    fn who_comes_later_is_judged_at_once() {
        let mut clocks = PeerClocks::default();
        clocks.see(&BTreeMap::new(), NOON_US);
        assert_eq!(look(&mut clocks, 1, 7_000, 4_000), Some(3_000));
    }

    #[test]
    fn of_the_last_five_renewals_the_one_that_looks_least_behind_counts() {
        let mut clocks = PeerClocks::default();
        look(&mut clocks, 1, 0, 0);
        let delays = [300, 20, 250, 100, 400, 200];
        let expected = [-300, -20, -20, -20, -20, -20];
        for (version, (delay, expected)) in (2..).zip(delays.into_iter().zip(expected)) {
            let wall_ms = version * 600;
            let found = look(&mut clocks, version, wall_ms, wall_ms + delay);
            assert_eq!(found, Some(expected), "version {version}");
        }
        assert_eq!(look(&mut clocks, 8, 5_000, 5_250), Some(-100), "the second was five before");
    }

    #[test]
    fn a_clock_that_is_set_forward_is_noticed_at_once_and_one_that_is_set_back_after_five() {
        let mut clocks = PeerClocks::default();
        look(&mut clocks, 1, 0, 0);
        assert_eq!(look(&mut clocks, 2, 600, 600), Some(0));
        assert_eq!(look(&mut clocks, 3, 6_200, 1_200), Some(5_000));
        for version in 4..8 {
            let now_ms = (version - 1) * 600;
            assert_eq!(look(&mut clocks, version, now_ms, now_ms), Some(5_000));
        }
        assert_eq!(look(&mut clocks, 8, 4_200, 4_200), Some(0));
    }

    #[test]
    fn whoever_is_gone_is_forgotten_and_who_cannot_be_read_says_nothing() {
        let mut clocks = PeerClocks::default();
        look(&mut clocks, 1, 0, 0);
        look(&mut clocks, 2, 600, 600);
        assert_eq!(clocks.see(&BTreeMap::new(), NOON_US), BTreeMap::new());
        assert!(clocks.sessions.is_empty());
        let (key, seen) = session("bert", 5, 0);
        let unread = [(key, SeenSession { record: None, ..seen })].into();
        assert_eq!(clocks.see(&unread, NOON_US), BTreeMap::new());
    }

    #[test]
    fn any_clock_can_be_compared_with_any() {
        assert_eq!(millis(u64::MAX) - millis(0), 18_446_744_073_709_551);
        assert_eq!(millis(1) - millis(u64::MAX), -18_446_744_073_709_551);
    }
}
