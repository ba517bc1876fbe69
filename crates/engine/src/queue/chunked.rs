//! A sorted map for a million small entries, most of which come in order.
//!
//! A `BTreeMap` that is filled in ascending order leaves its nodes half empty, and a million runs wait in ascending
//! order. Here entries lie in sorted chunks: one that is full when an entry comes behind it stays full, and the entry
//! begins the next chunk. So what waits takes its own size and little more, and a search is one in a tree of as
//! many entries as there are chunks, then one in a chunk. Chunks of which few entries are left give their room back.

use std::collections::BTreeMap;
use std::ops::Bound;

/// Entries that a chunk has at most.
const CHUNK_LEN_MAX: usize = 32;

/// A sorted map in chunks.
#[derive(Debug, Clone)]
pub struct ChunkedMap<K, V> {
    /// Chunks that are sorted and not empty, by a bound: no entry of a chunk is less, and none of those before it is not.
    chunks: BTreeMap<K, Vec<(K, V)>>,
    len: usize,
}

impl<K, V> Default for ChunkedMap<K, V> {
    fn default() -> Self {
        Self { chunks: BTreeMap::new(), len: 0 }
    }
}

impl<K: Ord + Copy, V> ChunkedMap<K, V> {
    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value of a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        let (_, chunk) = self.chunks.range(..=key).next_back()?;
        search(chunk, key).ok().map(|place| &chunk[place].1)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let (_, chunk) = self.chunks.range_mut(..=key).next_back()?;
        search(chunk, key).ok().map(|place| &mut chunk[place].1)
    }

    /// Whether a key has a value.
    pub fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// The least entry.
    pub fn first(&self) -> Option<(K, &V)> {
        let (_, chunk) = self.chunks.first_key_value()?;
        chunk.first().map(|(key, value)| (*key, value))
    }

    /// The entries from here on, in order.
    pub fn range_from(&self, from: Bound<K>) -> impl Iterator<Item = (K, &V)> {
        let bound = match &from {
            Bound::Included(key) | Bound::Excluded(key) => self.chunks.range(..=key).next_back(),
            Bound::Unbounded => None,
        };
        let chunks = match bound {
            Some((bound, _)) => self.chunks.range(*bound..),
            None => self.chunks.range::<K, _>(..),
        };
        let is_before = move |key: &K| match &from {
            Bound::Included(from) => key < from,
            Bound::Excluded(from) => key <= from,
            Bound::Unbounded => false,
        };
        // Only the first chunk has entries before it.
        chunks
            .flat_map(move |(_, chunk)| &chunk[chunk.partition_point(|(key, _)| is_before(key))..])
            .map(|(key, value)| (*key, value))
    }

    /// Gives a key a value, and gives back the one that it had.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let Some((_, chunk)) = self.chunks.range_mut(..=key).next_back() else {
            self.insert_first(key, value);
            return None;
        };
        let place = match search(chunk, &key) {
            Ok(place) => return Some(std::mem::replace(&mut chunk[place].1, value)),
            Err(place) => place,
        };
        self.len += 1;
        if chunk.len() < CHUNK_LEN_MAX {
            chunk.insert(place, (key, value));
            return None;
        }
        let next = if place == CHUNK_LEN_MAX {
            let mut next = Vec::with_capacity(CHUNK_LEN_MAX);
            next.push((key, value));
            next
        } else {
            let mut next = chunk.split_off(CHUNK_LEN_MAX / 2);
            match place.checked_sub(chunk.len()) {
                None | Some(0) => chunk.insert(place, (key, value)),
                Some(place) => next.insert(place, (key, value)),
            }
            next
        };
        self.chunks.insert(next[0].0, next);
        None
    }

    /// Takes an entry out.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let (bound, chunk) = self.chunks.range_mut(..=key).next_back()?;
        let place = search(chunk, key).ok()?;
        self.len -= 1;
        let (_, value) = chunk.remove(place);
        if chunk.is_empty() {
            let bound = *bound;
            self.chunks.remove(&bound);
        } else if chunk.len() <= chunk.capacity() / 4 {
            chunk.shrink_to(chunk.len() * 2);
        }
        Some(value)
    }

    /// Puts an entry before all others.
    fn insert_first(&mut self, key: K, value: V) {
        self.len += 1;
        let is_room = |chunk: &Vec<_>| chunk.len() < CHUNK_LEN_MAX;
        let mut chunk = match self.chunks.first_entry().filter(|first| is_room(first.get())) {
            Some(first) => first.remove(),
            None => Vec::new(),
        };
        chunk.insert(0, (key, value));
        self.chunks.insert(key, chunk);
    }
}

fn search<K: Ord, V>(chunk: &[(K, V)], key: &K) -> Result<usize, usize> {
    chunk.binary_search_by(|(known, _)| known.cmp(key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_comes_in_order_takes_its_own_size() {
        let mut map = ChunkedMap::default();
        for key in 0..10_000_u64 {
            map.insert(key, ());
        }
        let room: usize = map.chunks.values().map(Vec::capacity).sum();
        assert!(room < 10_000 + CHUNK_LEN_MAX, "{room}");
    }

    #[test]
    fn what_is_left_of_many_takes_little() {
        let mut map = ChunkedMap::default();
        for key in 0..10_000_u64 {
            map.insert(key, ());
        }
        for key in (0..10_000).filter(|key| key % 100 != 0) {
            map.remove(&key);
        }
        let room: usize = map.chunks.values().map(Vec::capacity).sum();
        assert!((map.len(), room) <= (100, 400), "{room}");
    }

    proptest! {
        #[test]
        fn it_is_a_map(
            steps in prop::collection::vec((0_u8..4, 0_u16..300), 1..2_000),
            from in 0_u16..300,
        ) {
            let (mut map, mut model) = (ChunkedMap::default(), BTreeMap::new());
            for (number, (step, key)) in steps.into_iter().enumerate() {
                match step {
                    0 => prop_assert_eq!(map.remove(&key), model.remove(&key)),
                    1 => if let Some(value) = map.get_mut(&key) {
                        *value += 1;
                        *model.get_mut(&key).unwrap() += 1;
                    },
                    _ => prop_assert_eq!(map.insert(key, number), model.insert(key, number)),
                }
                prop_assert_eq!(map.get(&key), model.get(&key));
                prop_assert_eq!(map.contains_key(&key), model.contains_key(&key));
                prop_assert_eq!(map.first(), model.first_key_value().map(|(key, value)| (*key, value)));
                prop_assert_eq!((map.len(), map.is_empty()), (model.len(), model.is_empty()));
            }
            for from in [Bound::Included(from), Bound::Excluded(from), Bound::Unbounded] {
                let expected = model.range((from, Bound::Unbounded)).map(|(key, value)| (*key, value));
                prop_assert!(map.range_from(from).eq(expected));
            }
            prop_assert!(map.chunks.values().all(|chunk| !chunk.is_empty()));
        }
    }
}
