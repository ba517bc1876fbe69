//! Where our keys lie among all keys of an etcd: below a prefix, as they are.
//!
//! `node/a` of a store at `watchbell/` is `watchbell/node/a` to etcdctl. One more key lies there, the tick,
//! which is no key of the contract since it begins with a space, and so comes before all of them.

use std::ops::{Bound, RangeBounds};

use crate::key::FIRST_KEY;
use crate::{Key, Range};

const TICK: &str = " tick";

/// The keys of one store.
#[derive(Debug, Clone)]
pub(super) struct Space {
    prefix: String,
}

impl Space {
    pub(super) fn new(prefix: String) -> Self {
        Self { prefix }
    }

    /// The prefix of all keys.
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Written by commits that put nothing, so that they get a revision of their own: to etcd, a transaction
    /// that deletes what is not there is none.
    pub(super) fn tick(&self) -> Vec<u8> {
        self.of(TICK)
    }

    /// The key as etcd knows it.
    pub(super) fn key(&self, key: &Key) -> Vec<u8> {
        self.of(key.as_str())
    }

    /// The key as we know it, if it is one of ours.
    pub(super) fn read(&self, key: &[u8]) -> Option<Key> {
        let own = key.strip_prefix(self.prefix.as_bytes())?;
        Key::from_bytes(own.to_vec().into()).ok()
    }

    /// First key and end of a range; the end does not belong to it.
    pub(super) fn range(&self, range: &Range) -> (Vec<u8>, Vec<u8>) {
        // The next text in the order of bytes is the same with a zero behind it.
        let behind = |text: &str| [self.of(text), vec![0]].concat();
        let start = match range.start_bound() {
            Bound::Unbounded => self.of(FIRST_KEY),
            Bound::Included(text) => self.of(text.max(FIRST_KEY)),
            Bound::Excluded(text) => behind(text).max(self.of(FIRST_KEY)),
        };
        let end = match range.end_bound() {
            Bound::Unbounded => self.end(),
            Bound::Included(text) => behind(text).min(self.end()),
            Bound::Excluded(text) => self.of(text).min(self.end()),
        };
        (start, end)
    }

    /// The first key behind all of ours.
    pub(super) fn end(&self) -> Vec<u8> {
        let mut end = self.prefix.clone().into_bytes();
        let last = end.last_mut().expect("a prefix ends with a slash");
        *last += 1;
        end
    }

    fn of(&self, text: &str) -> Vec<u8> {
        [self.prefix.as_bytes(), text.as_bytes()].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space() -> Space {
        Space::new("p/".to_owned())
    }

    fn key(text: &str) -> Key {
        Key::new(text).unwrap()
    }

    #[track_caller]
    fn check(range: &Range, start: &str, end: &str) {
        assert_eq!(space().range(range), (start.into(), end.into()));
    }

    #[test]
    fn every_range_stays_among_our_keys() {
        check(&Range::all(), "p/!", "p0");
        check(&Range::only(&key("a")), "p/a", "p/a\0");
        check(&Range::prefix("a/"), "p/a/", "p/a0");
        check(&Range::prefix(" "), "p/!", "p/!");
        check(&Range::prefix("\u{7f}"), "p/\u{7f}", "p/\u{80}");
        check(&Range::between(&key("a"), &key("b")), "p/a", "p/b");
        check(&Range::all().after(&key("a")), "p/a\0", "p0");
        check(&Range::prefix("\u{10ffff}"), "p/\u{10ffff}", "p0");
    }

    #[test]
    fn the_tick_is_none_of_our_keys() {
        let tick = space().tick();
        assert_eq!(space().read(&tick), None);
        assert!(tick < space().range(&Range::all()).0);
    }

    #[test]
    fn a_key_comes_back_as_it_was() {
        assert_eq!(space().read(&space().key(&key("node/a"))), Some(key("node/a")));
        assert_eq!(space().read(b"q/a"), None);
        assert_eq!(space().read(b"p/"), None);
    }
}
