//! A commit: what must be so, and what shall then be.

use bytes::BytesMut;
use xxhash_rust::xxh3::xxh3_64;

use crate::{Conflict, Key, Limits, Refusal, Value, Version};

/// What must hold for a commit to happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// The key does not exist.
    Absent(Key),
    /// The key exists, at whatever version.
    Present(Key),
    /// The key exists, last written by the commit that was given this version.
    At(Key, Version),
}

impl Condition {
    /// The key that it is about.
    pub fn key(&self) -> &Key {
        match self {
            Self::Absent(key) | Self::Present(key) | Self::At(key, _) => key,
        }
    }

    fn holds(&self, found: Option<Version>) -> bool {
        match self {
            Self::Absent(_) => found.is_none(),
            Self::Present(_) => found.is_some(),
            Self::At(_, version) => found == Some(*version),
        }
    }
}

/// One change of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// The key has this value from now on.
    Put(Key, Value),
    /// The key is gone; nothing happens if it was not there.
    Delete(Key),
}

impl Write {
    /// The key that it changes.
    pub fn key(&self) -> &Key {
        match self {
            Self::Put(key, _) | Self::Delete(key) => key,
        }
    }

    /// Bytes of key and value.
    pub fn len(&self) -> usize {
        match self {
            Self::Put(key, value) => key.len() + value.len(),
            Self::Delete(key) => key.len(),
        }
    }

    /// Never: a key is not empty.
    pub fn is_empty(&self) -> bool {
        false
    }
}

impl Write {
    /// Writes of these values at these keys, or removals where there is none. All of them lie in one piece of memory, so
    /// that copies of them cost little.
    pub fn packed(puts: &[(&str, Option<&[u8]>)]) -> Result<Vec<Self>, Refusal> {
        let len = puts.iter().map(|(key, value)| key.len() + value.map_or(0, <[u8]>::len)).sum();
        let mut memory = BytesMut::with_capacity(len);
        for (key, value) in puts {
            memory.extend_from_slice(key.as_bytes());
            memory.extend_from_slice(value.unwrap_or_default());
        }
        let mut rest = memory.freeze();
        let pack = |(key, value): &(&str, Option<&[u8]>)| {
            let key = Key::from_bytes(rest.split_to(key.len()))?;
            Ok(match value {
                Some(value) => Self::Put(key, rest.split_to(value.len()).into()),
                None => Self::Delete(key),
            })
        };
        puts.iter().map(pack).collect()
    }
}

/// Conditions and writes that are checked and done as one atomic step.
///
/// To repeat a commit whose outcome is unknown, send a clone of it, unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Commit {
    /// All of these must hold; they are named in this order when they do not.
    pub when: Vec<Condition>,
    /// Then all of these are done.
    pub then: Vec<Write>,
}

impl Commit {
    /// A commit without conditions and writes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a condition.
    #[must_use]
    pub fn when(mut self, condition: Condition) -> Self {
        self.when.push(condition);
        self
    }

    /// Adds a write of `value` at `key`.
    #[must_use]
    pub fn put(mut self, key: Key, value: impl Into<Value>) -> Self {
        self.then.push(Write::Put(key, value.into()));
        self
    }

    /// Adds the removal of `key`.
    #[must_use]
    pub fn delete(mut self, key: Key) -> Self {
        self.then.push(Write::Delete(key));
        self
    }

    /// Bytes of all keys and values, as [`Limits::commit_bytes`] counts them.
    pub fn len(&self) -> usize {
        let conditions: usize = self.when.iter().map(|condition| condition.key().len()).sum();
        conditions + self.then.iter().map(Write::len).sum::<usize>()
    }

    /// Whether it would change nothing.
    pub fn is_empty(&self) -> bool {
        self.then.is_empty()
    }

    /// What would be wrong with sending this to a store with these limits.
    pub fn check(&self, limits: &Limits) -> Result<(), Refusal> {
        if self.is_empty() {
            return Err(Refusal::Empty);
        }
        if self.then.len() > limits.writes {
            return Err(Refusal::Writes { len: self.then.len(), max: limits.writes });
        }
        if self.when.len() > limits.writes {
            return Err(Refusal::Conditions { len: self.when.len(), max: limits.writes });
        }
        if self.len() > limits.commit_bytes {
            return Err(Refusal::CommitBytes { len: self.len(), max: limits.commit_bytes });
        }
        for write in &self.then {
            if let Write::Put(key, value) = write
                && value.len() > limits.value_bytes
            {
                let (len, max) = (value.len(), limits.value_bytes);
                return Err(Refusal::ValueBytes { key: key.clone(), len, max });
            }
        }
        match self.written_twice() {
            Some(key) => Err(Refusal::WrittenTwice { key: key.clone() }),
            None => Ok(()),
        }
    }

    /// A key that more than one write is about. Keys are told apart by a quick hash first: a commit has many.
    fn written_twice(&self) -> Option<&Key> {
        let hashed = self.then.iter().map(|write| (xxh3_64(write.key().as_bytes()), write.key()));
        let mut hashed: Vec<(u64, &Key)> = hashed.collect();
        hashed.sort_unstable();
        let mut pairs = hashed.windows(2);
        pairs.find_map(|pair| (pair[0].1 == pair[1].1).then_some(pair[0].1))
    }

    /// Judges the conditions against what is there: the rule shared by every adapter that checks in
    /// this process. `find` tells the version of a key, or an error that ends the check.
    pub fn judge<E: From<Conflict>>(
        &self,
        mut find: impl FnMut(&Key) -> Result<Option<Version>, E>,
    ) -> Result<(), E> {
        for condition in &self.when {
            let found = find(condition.key())?;
            if !condition.holds(found) {
                return Err(Conflict { condition: condition.clone(), found }.into());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { writes: 8, commit_bytes: 100, value_bytes: 50 };

    fn key(text: &str) -> Key {
        Key::new(text).unwrap()
    }

    #[test]
    fn a_commit_that_writes_nothing_is_refused() {
        let check_only = Commit::new().when(Condition::Absent(key("a")));
        assert_eq!(check_only.check(&LIMITS), Err(Refusal::Empty));
    }

    #[test]
    fn a_commit_that_writes_one_key_twice_is_refused() {
        let commit = Commit::new().put(key("a"), "1").put(key("b"), "2").delete(key("a"));
        assert_eq!(commit.check(&LIMITS), Err(Refusal::WrittenTwice { key: key("a") }));
    }

    #[test]
    fn writes_and_conditions_are_taken_at_the_limit_and_refused_one_past_it() {
        let with = |conditions: usize, writes: usize| {
            let mut commit = Commit::new();
            for number in 0..conditions {
                commit = commit.when(Condition::Absent(key(&format!("c{number}"))));
            }
            for number in 0..writes {
                commit = commit.put(key(&format!("w{number}")), "");
            }
            commit.check(&LIMITS)
        };
        assert_eq!(with(8, 8), Ok(()));
        assert_eq!(with(0, 9), Err(Refusal::Writes { len: 9, max: 8 }));
        assert_eq!(with(9, 1), Err(Refusal::Conditions { len: 9, max: 8 }));
    }

    #[test]
    fn bytes_are_taken_at_the_limit_and_refused_one_past_it() {
        let value = |len: usize| Value::from(vec![b'v'; len]);
        let one = |len| Commit::new().put(key("k"), value(len)).check(&LIMITS);
        assert_eq!(one(50), Ok(()));
        assert_eq!(one(51), Err(Refusal::ValueBytes { key: key("k"), len: 51, max: 50 }));
        let two =
            |len| Commit::new().put(key("k"), value(50)).put(key("l"), value(len)).check(&LIMITS);
        assert_eq!(two(48), Ok(()));
        assert_eq!(two(49), Err(Refusal::CommitBytes { len: 101, max: 100 }));
    }

    #[test]
    fn a_conflict_names_the_first_condition_that_fails_and_what_was_found() {
        let commit = Commit::new()
            .when(Condition::Present(key("a")))
            .when(Condition::At(key("a"), Version(4)))
            .when(Condition::Absent(key("a")))
            .put(key("b"), "");
        let judged: Result<(), Conflict> = commit.judge(|_| Ok(Some(Version(5))));
        let expected =
            Conflict { condition: Condition::At(key("a"), Version(4)), found: Some(Version(5)) };
        assert_eq!(judged, Err(expected));
    }
}
