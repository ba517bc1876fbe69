//! A layer: the newest entries, in memory, until they are in a table on disk.
//!
//! One thread writes, any number read beside it. A key's former versions stay until the layer goes,
//! so that a reader who began before a commit sees what was there before.

use std::cmp::Reverse;
use std::ops::{Bound, RangeBounds};
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use crossbeam_skiplist::SkipMap;

use crate::{Key, Range, Value, Version, Write};

/// What an entry costs beside its key and value: the nodes that hold it.
const ENTRY_OVERHEAD_BYTES: u64 = 120;

/// A key at a version; the newest first.
type VersionedKey = (Bytes, Reverse<Version>);

/// The value of a key; `None` if it was deleted.
pub(super) type LayerValue = Option<Value>;

/// What became of a key last.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Newest {
    At(Version),
    Deleted,
}

#[derive(Default)]
pub(super) struct Layer {
    entries: SkipMap<VersionedKey, LayerValue>,
    bytes: AtomicU64,
}

impl Layer {
    pub(super) fn insert(&self, version: Version, write: &Write) {
        let value = match write {
            Write::Put(_, value) => Some(value.clone()),
            Write::Delete(_) => None,
        };
        self.entries.insert((write.key().to_bytes(), Reverse(version)), value);
        self.bytes.fetch_add(write.len() as u64 + ENTRY_OVERHEAD_BYTES, Ordering::Relaxed);
    }

    /// Roughly how much memory it takes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What became of a key last; `None` if this layer knows nothing of it.
    pub(super) fn newest(&self, key: &Key) -> Option<Newest> {
        let first = (key.to_bytes(), Reverse(NEWEST));
        let entry = self.entries.lower_bound(Bound::Included(&first))?;
        let (text, Reverse(version)) = entry.key();
        (text == key.as_bytes()).then(|| match entry.value() {
            Some(_) => Newest::At(*version),
            None => Newest::Deleted,
        })
    }

    /// The keys of a range with what they held as of `view`, in order.
    pub(super) fn range(
        &self,
        range: &Range,
        view: Version,
    ) -> impl Iterator<Item = (Bytes, Version, LayerValue)> {
        let copy = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        // A key's versions come newest first: those before `(key, oldest)` are all of them.
        let start = match range.start_bound() {
            Bound::Included(text) => Bound::Included((copy(text), Reverse(NEWEST))),
            Bound::Excluded(text) => Bound::Excluded((copy(text), Reverse(OLDEST))),
            Bound::Unbounded => Bound::Unbounded,
        };
        let end = match range.end_bound() {
            Bound::Included(text) => Bound::Included((copy(text), Reverse(OLDEST))),
            Bound::Excluded(text) => Bound::Excluded((copy(text), Reverse(NEWEST))),
            Bound::Unbounded => Bound::Unbounded,
        };
        let mut last: Option<Bytes> = None;
        self.entries
            .range::<VersionedKey, (Bound<VersionedKey>, Bound<VersionedKey>)>((start, end))
            .filter_map(move |entry| {
                let (text, Reverse(version)) = entry.key();
                if *version > view || last.as_ref() == Some(text) {
                    return None;
                }
                last = Some(text.clone());
                Some((text.clone(), *version, entry.value().clone()))
            })
    }
}

const NEWEST: Version = Version(u64::MAX);
const OLDEST: Version = Version(0);

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::new(text).unwrap()
    }

    fn layer() -> Layer {
        let layer = Layer::default();
        layer.insert(Version(1), &Write::Put(key("a"), "one".into()));
        layer.insert(Version(2), &Write::Put(key("b"), "two".into()));
        layer.insert(Version(3), &Write::Delete(key("a")));
        layer.insert(Version(4), &Write::Put(key("a"), "four".into()));
        layer
    }

    #[track_caller]
    fn check(range: &Range, view: u64, expected: &[(&str, u64, Option<&str>)]) {
        let layer = layer();
        let found: Vec<_> = layer.range(range, Version(view)).collect();
        let expected: Vec<(Bytes, Version, LayerValue)> = expected
            .iter()
            .map(|(text, version, value)| {
                (
                    Bytes::copy_from_slice(text.as_bytes()),
                    Version(*version),
                    value.map(|text| Value::from(text.to_owned())),
                )
            })
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_view_shows_what_was_there_at_its_time() {
        check(&Range::all(), 4, &[("a", 4, Some("four")), ("b", 2, Some("two"))]);
        check(&Range::all(), 3, &[("a", 3, None), ("b", 2, Some("two"))]);
        check(&Range::all(), 2, &[("a", 1, Some("one")), ("b", 2, Some("two"))]);
        check(&Range::all(), 0, &[]);
    }

    #[test]
    fn bounds_hold_for_all_versions_of_a_key() {
        check(&Range::only(&key("a")), 4, &[("a", 4, Some("four"))]);
        check(&Range::all().after(&key("a")), 4, &[("b", 2, Some("two"))]);
        check(&Range::between(&key("a"), &key("b")), 4, &[("a", 4, Some("four"))]);
    }

    #[test]
    fn the_newest_version_is_told_and_a_deleted_key_is_known_to_be_gone() {
        let layer = layer();
        assert_eq!(layer.newest(&key("a")), Some(Newest::At(Version(4))));
        assert_eq!(layer.newest(&key("c")), None);
        layer.insert(Version(5), &Write::Delete(key("a")));
        assert_eq!(layer.newest(&key("a")), Some(Newest::Deleted));
    }
}
