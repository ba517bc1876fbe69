//! Keys are readable text, and ranges of them.
//!
//! Printable ASCII without spaces: every engine sorts it the same way, byte by byte, and every
//! engine's own tool shows it as it is.

use std::borrow::Borrow;
use std::fmt;
use std::ops::{Bound, RangeBounds};

use bytes::Bytes;
use engine::limits::KEY_BYTES_MAX;

use crate::Refusal;

/// The lowest key of all.
pub(crate) const FIRST_KEY: &str = "!";

/// A valid key: 1 to 512 bytes of printable ASCII without spaces. Clones share their bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Bytes);

impl Key {
    /// Checks the text; a bad key cannot be made.
    pub fn new(text: impl Into<String>) -> Result<Self, Refusal> {
        Self::from_bytes(text.into().into())
    }

    /// The same for bytes that are somewhere already.
    pub(crate) fn from_bytes(text: Bytes) -> Result<Self, Refusal> {
        if text.is_empty() || text.len() > KEY_BYTES_MAX {
            return Err(Refusal::KeyLength { len: text.len() });
        }
        match text.iter().position(|byte| !byte.is_ascii_graphic()) {
            Some(position) => {
                let key = String::from_utf8_lossy(&text).into_owned();
                Err(Refusal::KeyCharacter { key, position })
            }
            None => Ok(Self(text)),
        }
    }

    /// The key's text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("a key is ASCII")
    }

    /// The key's text as bytes: what it sorts by.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn to_bytes(&self) -> Bytes {
        self.0.clone()
    }

    /// How many bytes; never 0.
    #[expect(clippy::len_without_is_empty, reason = "a key is never empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Key({self})")
    }
}

/// A stretch of the key space. Its bounds are text, not keys: the end of a prefix is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    start: Bound<String>,
    end: Bound<String>,
}

impl Range {
    /// The range of all keys.
    pub fn all() -> Self {
        Self { start: Bound::Unbounded, end: Bound::Unbounded }
    }

    /// The range of one key.
    pub fn only(key: &Key) -> Self {
        let text = key.as_str().to_owned();
        Self { start: Bound::Included(text.clone()), end: Bound::Included(text) }
    }

    /// The one key of this range, if it is the range of one.
    pub(crate) fn single(&self) -> Option<Key> {
        match (&self.start, &self.end) {
            (Bound::Included(start), Bound::Included(end)) if start == end => {
                Key::new(start.as_str()).ok()
            }
            _ => None,
        }
    }

    /// Every key that begins with `prefix`; every key when it is empty.
    pub fn prefix(prefix: &str) -> Self {
        if prefix.is_empty() {
            return Self::all();
        }
        Self { start: Bound::Included(prefix.to_owned()), end: end_of_prefix(prefix) }
    }

    /// From `start`, and up to but without `end`.
    pub fn between(start: &Key, end: &Key) -> Self {
        Self {
            start: Bound::Included(start.as_str().to_owned()),
            end: Bound::Excluded(end.as_str().to_owned()),
        }
    }

    /// Between these bounds, whatever they are.
    pub fn of(start: Bound<String>, end: Bound<String>) -> Self {
        Self { start, end }
    }

    /// Whether it holds nothing but keys that begin with `prefix`.
    pub fn is_within(&self, prefix: &str) -> bool {
        let begins = |text: &str| text.starts_with(prefix);
        let from =
            matches!(&self.start, Bound::Included(start) | Bound::Excluded(start) if begins(start));
        let to = match &self.end {
            Bound::Included(end) | Bound::Excluded(end) if begins(end) => true,
            end => *end == end_of_prefix(prefix),
        };
        from && to
    }

    /// From `start` on.
    pub fn since(start: &Key) -> Self {
        Self { start: Bound::Included(start.as_str().to_owned()), end: Bound::Unbounded }
    }

    /// What is left of this range behind `key`: how a scan goes on after a page.
    #[must_use]
    pub fn after(&self, key: &Key) -> Self {
        let start = match &self.start {
            Bound::Included(start) | Bound::Excluded(start) if start.as_str() > key.as_str() => {
                self.start.clone()
            }
            _ => Bound::Excluded(key.as_str().to_owned()),
        };
        Self { start, end: self.end.clone() }
    }

    /// Whether no key can lie in it. `BTreeMap` and the like panic on such ranges.
    pub fn is_empty(&self) -> bool {
        if let Bound::Included(end) | Bound::Excluded(end) = &self.end
            && end.as_str() < FIRST_KEY
        {
            return true;
        }
        match (&self.start, &self.end) {
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(start), Bound::Included(end)) => start > end,
            (Bound::Included(start) | Bound::Excluded(start), Bound::Excluded(end))
            | (Bound::Excluded(start), Bound::Included(end)) => start >= end,
        }
    }
}

impl RangeBounds<str> for Range {
    fn start_bound(&self) -> Bound<&str> {
        self.start.as_ref().map(String::as_str)
    }

    fn end_bound(&self) -> Bound<&str> {
        self.end.as_ref().map(String::as_str)
    }
}

/// The first text behind everything that begins with `prefix`.
fn end_of_prefix(prefix: &str) -> Bound<String> {
    let mut text = prefix.to_owned();
    while let Some(last) = text.pop() {
        if let Some(next) = char::from_u32(last as u32 + 1) {
            text.push(next);
            return Bound::Excluded(text);
        }
    }
    Bound::Unbounded
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(text: &str) -> Key {
        Key::new(text).unwrap()
    }

    #[test]
    fn a_key_of_the_longest_length_is_taken_and_one_longer_is_refused() {
        assert!(Key::new("k".repeat(KEY_BYTES_MAX)).is_ok());
        let refusal = Key::new("k".repeat(KEY_BYTES_MAX + 1));
        assert_eq!(refusal, Err(Refusal::KeyLength { len: KEY_BYTES_MAX + 1 }));
        assert_eq!(Key::new(""), Err(Refusal::KeyLength { len: 0 }));
    }

    #[test]
    fn a_key_with_a_character_that_is_not_printable_ascii_is_refused_at_its_place() {
        for bad in ["a b", "a\0", "a\n", "aä", "a\u{7f}"] {
            let refusal = Refusal::KeyCharacter { key: bad.into(), position: 1 };
            assert_eq!(Key::new(bad), Err(refusal));
        }
        assert_eq!(
            Key::new("shard/1/a b"),
            Err(Refusal::KeyCharacter { key: "shard/1/a b".into(), position: 9 })
        );
    }

    #[test]
    fn a_range_that_can_hold_nothing_says_so() {
        let (a, b) = (key("a"), key("b"));
        assert!(Range::between(&b, &a).is_empty());
        assert!(Range::between(&a, &a).is_empty());
        assert!(Range::only(&a).after(&a).is_empty());
        assert!(!Range::only(&a).is_empty());
        assert!(!Range::prefix("a").after(&a).is_empty());
        assert!(!Range::all().is_empty());
        assert!(Range::prefix("\0").is_empty(), "no key begins with a control character");
        assert!(!Range::prefix("!").is_empty());
    }

    proptest! {
        #[test]
        fn a_prefix_holds_exactly_what_begins_with_it(prefix in "[!-~]{0,3}", text in "[!-~]{1,5}") {
            let range = Range::prefix(&prefix);
            prop_assert_eq!(range.contains(text.as_str()), text.starts_with(&prefix));
        }

        #[test]
        fn what_is_within_a_prefix_holds_nothing_else(
            prefix in "[a-c]{1,2}", start in "[a-d]{0,3}", end in "[a-d]{0,3}", text in "[a-d]{1,4}", kind in 0..9,
        ) {
            let bound = |text: &String, kind| match kind {
                0 => Bound::Unbounded,
                1 => Bound::Included(text.clone()),
                _ => Bound::Excluded(text.clone()),
            };
            let range = Range::of(bound(&start, kind % 3), bound(&end, kind / 3));
            if range.is_within(&prefix) && !range.is_empty() && range.contains(text.as_str()) {
                prop_assert!(text.starts_with(&prefix));
            }
            prop_assert!(Range::prefix(&prefix).is_within(&prefix));
        }

        #[test]
        fn after_leaves_what_sorts_behind(prefix in "[!-~]{0,2}", last in "[!-~]{1,4}", text in "[!-~]{1,4}") {
            let range = Range::prefix(&prefix).after(&key(&last));
            let expected = text.starts_with(&prefix) && text.as_str() > last.as_str();
            prop_assert_eq!(!range.is_empty() && range.contains(text.as_str()), expected);
        }
    }
}
