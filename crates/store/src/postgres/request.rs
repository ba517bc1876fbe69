//! A commit and a range, as Postgres takes them.

use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};

use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{Commit, Condition, Conflict, Range, Version, Write};

/// A commit of more keys than this takes the whole store for itself: a server has room for some thousand locks in all.
pub(super) const LOCKS_MAX: usize = 32;

/// Stands for "must not be there" in the place of a version.
const ABSENT: i64 = -1;

/// Stands for "must be there", in the place of a version.
const PRESENT: i64 = 0;

/// Commits as the columns that the function takes.
#[derive(Default)]
pub(super) struct CommitColumns<'a> {
    count: i32,
    lock: Vec<i64>,
    alone: Vec<bool>,
    when_of: Vec<i32>,
    when_key: Vec<&'a str>,
    when_version: Vec<i64>,
    put_of: Vec<i32>,
    put_key: Vec<&'a str>,
    put_value: Vec<&'a [u8]>,
    gone_of: Vec<i32>,
    gone: Vec<&'a str>,
}

impl<'a> CommitColumns<'a> {
    /// `store` is the number of the store's own lock.
    pub(super) fn of(commits: impl Iterator<Item = &'a Commit> + Clone, store: u64) -> Self {
        let (lock, alone) = locks(commits.clone(), store);
        let mut request = Self { lock, alone, ..Self::default() };
        for commit in commits {
            request.count += 1;
            request.add(commit);
        }
        request
    }

    fn add(&mut self, commit: &'a Commit) {
        for condition in &commit.when {
            self.when_of.push(self.count);
            self.when_key.push(condition.key().as_str());
            self.when_version.push(version_of(condition));
        }
        for write in &commit.then {
            match write {
                Write::Put(key, value) => {
                    self.put_of.push(self.count);
                    self.put_key.push(key.as_str());
                    self.put_value.push(value.as_bytes());
                }
                Write::Delete(key) => {
                    self.gone_of.push(self.count);
                    self.gone.push(key.as_str());
                }
            }
        }
    }

    /// The arguments of the function.
    pub(super) fn columns(&self) -> [(&(dyn ToSql + Sync), Type); 11] {
        [
            (&self.count, Type::INT4),
            (&self.lock, Type::INT8_ARRAY),
            (&self.alone, Type::BOOL_ARRAY),
            (&self.when_of, Type::INT4_ARRAY),
            (&self.when_key, Type::TEXT_ARRAY),
            (&self.when_version, Type::INT8_ARRAY),
            (&self.put_of, Type::INT4_ARRAY),
            (&self.put_key, Type::TEXT_ARRAY),
            (&self.put_value, Type::BYTEA_ARRAY),
            (&self.gone_of, Type::INT4_ARRAY),
            (&self.gone, Type::TEXT_ARRAY),
        ]
    }
}

/// What the function answered to each commit, in their order; none if that makes no sense.
pub(super) fn outcomes<'a>(
    commits: impl ExactSizeIterator<Item = &'a Commit>,
    row: &Row,
) -> Option<Vec<Result<Version, Conflict>>> {
    let versions: Vec<Option<i64>> = row.try_get(0).ok()?;
    let failed: Vec<Option<i32>> = row.try_get(1).ok()?;
    let seen: Vec<Option<i64>> = row.try_get(2).ok()?;
    if [versions.len(), failed.len(), seen.len()] != [commits.len(); 3] {
        return None;
    }
    let mut before = 0;
    let mut outcomes = Vec::with_capacity(commits.len());
    for (place, commit) in commits.enumerate() {
        outcomes.push(match (versions[place], failed[place]) {
            (Some(number), None) => Ok(version(number)),
            // Places are counted from 1, over the conditions of all.
            (None, Some(failed)) => {
                let own = usize::try_from(failed).ok()?.checked_sub(before + 1)?;
                let condition = commit.when.get(own)?.clone();
                Err(Conflict { condition, found: seen[place].map(version) })
            }
            (None, None) | (Some(_), Some(_)) => return None,
        });
        before += commit.when.len();
    }
    Some(outcomes)
}

fn version_of(condition: &Condition) -> i64 {
    match condition {
        Condition::Absent(_) => ABSENT,
        Condition::Present(_) => PRESENT,
        // A version that no commit was given is one that no key has.
        Condition::At(_, Version(version)) => {
            i64::try_from(*version).ok().filter(|version| *version > 0).unwrap_or(i64::MAX)
        }
    }
}

/// The locks of commits: the store's, shared; then its keys', in the order of their numbers, so that no two commits wait
/// for each other. What is written is locked alone, what is only looked at is shared with others who look.
fn locks<'a>(
    commits: impl Iterator<Item = &'a Commit> + Clone,
    store: u64,
) -> (Vec<i64>, Vec<bool>) {
    let mut keys = BTreeMap::new();
    for condition in commits.clone().flat_map(|commit| &commit.when) {
        keys.entry(number(condition.key().as_bytes(), store)).or_insert(false);
    }
    for write in commits.flat_map(|commit| &commit.then) {
        keys.insert(number(write.key().as_bytes(), store), true);
    }
    let store = store.cast_signed();
    if keys.len() > LOCKS_MAX {
        return (vec![store], vec![true]);
    }
    // The store's comes first, whatever its number is.
    std::iter::once((store, false)).chain(keys).unzip()
}

/// The number of a lock. Everybody who shares a store must count alike, whatever their version.
fn number(key: &[u8], store: u64) -> i64 {
    xxh3_64_with_seed(key, store).cast_signed()
}

/// The number of a store's own lock; stores in other schemas of the database have others.
pub(super) fn store_lock(schema: &str) -> u64 {
    xxh3_64_with_seed(schema.as_bytes(), 0)
}

/// A version as Postgres says it.
pub(super) fn version(number: i64) -> Version {
    Version(number.cast_unsigned())
}

/// A range as its first text and the first one behind it.
pub(super) fn bounds(range: &Range) -> (String, String) {
    let behind = |text: &str| format!("{text}!");
    let first = match range.start_bound() {
        Bound::Unbounded => String::new(),
        Bound::Included(text) => plain(text),
        Bound::Excluded(text) => plain(&behind(text)),
    };
    let end = match range.end_bound() {
        Bound::Unbounded => "\u{7f}".to_owned(),
        Bound::Included(text) => plain(&behind(text)),
        Bound::Excluded(text) => plain(text),
    };
    (first, end)
}

/// The text of printable ASCII, with one DEL at the most, which has the same keys before it: Postgres takes no zero, and
/// not every database has all letters. Nothing is before the exclamation mark in a key, and nothing behind the tilde.
fn plain(text: &str) -> String {
    match text.bytes().position(|byte| !byte.is_ascii_graphic()) {
        None => text.to_owned(),
        Some(place) if text.as_bytes()[place] < b'!' => format!("{}!", &text[..place]),
        Some(place) => format!("{}\u{7f}", &text[..place]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Key;
    use proptest::prelude::*;

    fn key(text: &str) -> Key {
        Key::new(text).unwrap()
    }

    #[test]
    fn what_is_written_is_locked_alone_and_what_is_looked_at_is_shared() {
        let commit = Commit::new()
            .when(Condition::Present(key("session")))
            .when(Condition::Absent(key("both")))
            .put(key("both"), "")
            .delete(key("gone"));
        let (lock, alone) = locks([&commit].into_iter(), 7);
        assert_eq!((lock[0], alone[0]), (7, false));
        assert!(lock[1..].is_sorted(), "{lock:?}");
        for (name, is_alone) in [("session", false), ("both", true), ("gone", true)] {
            let place = lock.iter().position(|lock| *lock == number(name.as_bytes(), 7)).unwrap();
            assert_eq!(alone[place], is_alone, "{name}");
        }
        assert_eq!(lock.len(), 4);
    }

    #[test]
    fn a_commit_of_many_keys_takes_the_store_for_itself() {
        let many = |count: usize| {
            let keys = (0..count).map(|number| key(&format!("k{number}")));
            let commit = keys.fold(Commit::new(), |commit, key| commit.put(key, ""));
            locks([&commit].into_iter(), 7)
        };
        assert_eq!(many(LOCKS_MAX).0.len(), LOCKS_MAX + 1);
        assert_eq!(many(LOCKS_MAX + 1), (vec![7], vec![true]));
    }

    /// Others who share the store may run another version: these numbers never change.
    #[test]
    fn locks_have_the_numbers_that_they_always_had() {
        let store = store_lock("watchbell");
        assert_eq!(store, 8_394_408_433_392_841_904);
        assert_eq!(number(b"shard/0/head", store), -4_333_219_763_469_247_071);
    }

    proptest! {
        #[test]
        fn bounds_have_the_keys_of_their_range_between_them(
            from in "[!-~\u{0}-\u{20}\u{7f}-\u{ff}]{0,3}",
            to in "[!-~\u{0}-\u{20}\u{7f}-\u{ff}]{0,3}",
            name in "[!-~]{1,4}",
        ) {
            for range in [Range::prefix(&from), Range::all(), Range::prefix(&to)] {
                let (first, end) = bounds(&range);
                let inside = first.as_str() <= name.as_str() && name.as_str() < end.as_str();
                prop_assert_eq!(inside, RangeBounds::<str>::contains(&range, name.as_str()));
            }
        }

        #[test]
        fn bounds_between_keys_have_what_is_between_them(
            from in "[!-~]{1,3}", to in "[!-~]{1,3}", name in "[!-~]{1,4}",
        ) {
            let (from, to, name) = (key(&from), key(&to), key(&name));
            for range in [Range::between(&from, &to), Range::only(&from), Range::since(&from).after(&to)] {
                let (first, end) = bounds(&range);
                let inside = first.as_str() <= name.as_str() && name.as_str() < end.as_str();
                prop_assert_eq!(inside, RangeBounds::<str>::contains(&range, name.as_str()));
            }
        }
    }
}
