//! The tables on disk: a log-structured merge tree without a journal of its own.
//!
//! A layer goes in as a whole, together with a checkpoint, the last record of the log that it holds: so at
//! open exactly the records behind the checkpoint are brought in from the log. Tables are checksummed
//! block by block, and every entry is checksummed once more with its key and version, from the
//! commit to the reader.
//!
//! The tree may panic on bytes that it did not expect. A panic inside it is damage like any other
//! and becomes [`IndexError::Damaged`].

use std::io;
use std::ops::{Bound, RangeBounds};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use lsm_tree::compaction::Leveled;
use lsm_tree::config::CompressionPolicy;
use lsm_tree::{
    AbstractTree, AnyTree, Cache, CompressionType, Config, Guard, SeqNo, SequenceNumberCounter,
};
use parking_lot::RwLock;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::layer::Layer;
use super::verify;
use crate::key::FIRST_KEY;
use crate::{Entry, Key, Range, Value, Version};

const CACHE_BYTES: u64 = 32 * 1024 * 1024;

/// Tables are synced one by one. Small ones keep the disk free for the log in between: with tables
/// of 8 MiB one commit in a thousand took 16 to 25 ms, with these 6 to 7 (docs/benchmarks.md).
const TABLE_BYTES: u64 = 2 * 1024 * 1024;

/// Layers that are merged at a time. More of them are less work for the disk, and a slower lookup.
const LAYERS_PER_MERGE: u8 = 8;

/// The tree counts these in one byte, and would not notice that it can no longer.
const UNMERGED_TABLES_MAX: usize = 200;

/// How much larger each level of tables is than the one above: wide at first, since tables are small.
const LEVEL_RATIOS: [f32; 2] = [30.0, 10.0];

/// Where the checkpoint lives; the stored text is older than the name, and stays. No key of the store begins
/// with a zero byte.
const CHECKPOINT_KEY: &[u8] = b"\0mark";

const VERSION_BYTES: usize = 8;
const CHECKSUM_BYTES: usize = 4;

/// Why the index could not answer.
#[derive(Debug)]
pub(super) enum IndexError {
    /// The operating system would not let us; it may be over soon.
    Io(io::Error),
    /// What is on disk is not what was written.
    Damaged(String),
}

pub(super) type Result<T> = std::result::Result<T, IndexError>;

pub(super) struct Tables {
    tree: AnyTree,
    /// The tree numbers its own changes, entries and reorganisations alike.
    numbers: SequenceNumberCounter,
    /// Readers see what is numbered below this: whole layers. Held for reading while a reader fixes
    /// its view, so that nothing is dropped that it is about to look at.
    view: RwLock<SeqNo>,
}

impl Tables {
    pub(super) fn open(dir: &Path) -> Result<Self> {
        let numbers = SequenceNumberCounter::default();
        let config = Config::new(dir, numbers.clone(), SequenceNumberCounter::default())
            .use_cache(Arc::new(Cache::with_capacity_bytes(CACHE_BYTES)))
            .data_block_compression_policy(CompressionPolicy::all(CompressionType::None));
        verify::check(dir)?;
        let tree = guarded("opening the index", || config.open().map_err(tree_error))?;
        numbers.fetch_max(tree.get_highest_seqno().map_or(1, |highest| highest + 1));
        let view = RwLock::new(numbers.get());
        Ok(Self { tree, numbers, view })
    }

    /// The last record that is in the tables; 0 if there are none.
    pub(super) fn checkpoint(&self) -> Result<u64> {
        match self.get(CHECKPOINT_KEY)? {
            Some(checkpoint) => Ok(unwrap_value(CHECKPOINT_KEY, &checkpoint)?.0.0),
            None if self.tree.table_count() == 0 => Ok(0),
            None => Err(IndexError::Damaged("the index has tables, but no checkpoint".into())),
        }
    }

    /// The version of a key, as far as the tables know.
    pub(super) fn version(&self, key: &[u8]) -> Result<Option<Version>> {
        self.get(key)?.map(|stored| Ok(unwrap_value(key, &stored)?.0)).transpose()
    }

    /// The entries of a range, as of the last whole layer.
    pub(super) fn range(&self, range: &Range) -> impl Iterator<Item = Result<Entry>> {
        // The checkpoint sorts before every key.
        let start = match range.start_bound() {
            Bound::Included(text) | Bound::Excluded(text) if text >= FIRST_KEY => {
                range.start_bound().map(str::as_bytes)
            }
            _ => Bound::Included(FIRST_KEY.as_bytes()),
        };
        let bounds = (start, range.end_bound().map(str::as_bytes));
        let view = self.view.read();
        let entries = self.tree.range::<&[u8], _>(bounds, *view, None);
        drop(view);
        entries.map(|entry| {
            let (key, stored) = entry.into_inner().map_err(tree_error)?;
            read_entry(key.into(), &stored.into())
        })
    }

    /// Writes a layer to disk as a table, with its checkpoint, and shows it to readers. If it fails,
    /// nothing has happened; the next open sweeps what is left.
    pub(super) fn write(&self, layer: &Layer, checkpoint: u64) -> Result<()> {
        if self.unmerged()? >= UNMERGED_TABLES_MAX {
            return Err(IndexError::Io(io::Error::other("too many tables wait to be merged")));
        }
        guarded("writing the index", || {
            let mut table = self.tree.ingestion().map_err(tree_error)?;
            let stored = wrap_value(CHECKPOINT_KEY, Version(checkpoint), &Value::default());
            table.write(CHECKPOINT_KEY, stored).map_err(tree_error)?;
            for (key, version, value) in layer.range(&Range::all(), Version(u64::MAX)) {
                let written = match value {
                    Some(value) => table.write(&*key, wrap_value(&key, version, &value)),
                    None => table.write_tombstone(&*key),
                };
                written.map_err(tree_error)?;
            }
            table.finish().map_err(tree_error)
        })?;
        self.fix_view();
        Ok(())
    }

    /// Tables that wait to be merged. Each of them makes lookups slower.
    pub(super) fn unmerged(&self) -> Result<usize> {
        guarded("reading the index", || Ok(self.tree.l0_run_count()))
    }

    /// Merges tables, if there is reason to.
    pub(super) fn merge(&self) -> Result<()> {
        let strategy = Leveled::default()
            .with_table_target_size(TABLE_BYTES)
            .with_level_ratio_policy(LEVEL_RATIOS.to_vec())
            .with_l0_threshold(LAYERS_PER_MERGE);
        let oldest_view = self.fix_view();
        guarded("merging the index", || {
            self.tree.compact(Arc::new(strategy), oldest_view).map_err(tree_error)
        })
    }

    /// Moves the readers' view up to now: what only older views need may go. Views in use keep what
    /// they need; the lock makes sure that none is just being fixed. Only whole layers are in.
    fn fix_view(&self) -> SeqNo {
        let mut view = self.view.write();
        *view = self.numbers.get();
        *view
    }

    /// What a key holds.
    pub(super) fn entry(&self, key: &Key) -> Result<Option<Entry>> {
        let stored = self.get(key.as_bytes())?;
        stored.map(|stored| read_entry(key.to_bytes(), &stored.into())).transpose()
    }

    fn get(&self, key: &[u8]) -> Result<Option<lsm_tree::Slice>> {
        guarded("reading the index", || self.tree.get(key, SeqNo::MAX).map_err(tree_error))
    }
}

/// Calls into the tree; a panic in it comes back as an error.
pub(super) fn guarded<T>(doing: &str, call: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(call))
        .unwrap_or_else(|_| Err(IndexError::Damaged(format!("{doing} failed on unexpected bytes"))))
}

fn read_entry(key: Bytes, stored: &Bytes) -> Result<Entry> {
    let (version, _) = unwrap_value(&key, stored)?;
    let key = Key::from_bytes(key).map_err(|why| {
        IndexError::Damaged(format!("an entry of the index has no proper key: {why}"))
    })?;
    Ok(Entry { key, value: Value::from(stored.slice(VERSION_BYTES + CHECKSUM_BYTES..)), version })
}

/// A value as the tables store it: version, checksum, bytes.
fn wrap_value(key: &[u8], version: Version, value: &Value) -> Vec<u8> {
    let mut stored = Vec::with_capacity(VERSION_BYTES + CHECKSUM_BYTES + value.len());
    stored.extend_from_slice(&version.0.to_le_bytes());
    stored.extend_from_slice(&entry_checksum(key, version, value.as_bytes()));
    stored.extend_from_slice(value.as_bytes());
    stored
}

fn unwrap_value<'a>(key: &[u8], stored: &'a [u8]) -> Result<(Version, &'a [u8])> {
    let damaged = || {
        let key = String::from_utf8_lossy(key);
        IndexError::Damaged(format!("the index's entry for {key:?} is not what was written"))
    };
    let (version, rest) = stored.split_first_chunk::<VERSION_BYTES>().ok_or_else(damaged)?;
    let (checksum, value) = rest.split_first_chunk::<CHECKSUM_BYTES>().ok_or_else(damaged)?;
    let version = Version(u64::from_le_bytes(*version));
    if *checksum == entry_checksum(key, version, value) {
        Ok((version, value))
    } else {
        Err(damaged())
    }
}

fn entry_checksum(key: &[u8], version: Version, value: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let checksum = xxh3_64_with_seed(value, xxh3_64_with_seed(key, version.0));
    *checksum.to_le_bytes().first_chunk().expect("eight bytes have a first half")
}

fn tree_error(error: lsm_tree::Error) -> IndexError {
    // Places that do not exist, or that a damaged file points to; anything else the system says may
    // pass.
    const DAMAGE: [io::ErrorKind; 4] = [
        io::ErrorKind::UnexpectedEof,
        io::ErrorKind::InvalidData,
        io::ErrorKind::InvalidInput,
        io::ErrorKind::NotFound,
    ];
    let what = match error {
        lsm_tree::Error::Io(why) if !DAMAGE.contains(&why.kind()) => return IndexError::Io(why),
        lsm_tree::Error::Io(why) => why.to_string(),
        lsm_tree::Error::ChecksumMismatch { .. } => "its checksum does not match".into(),
        other => format!("{other:?}"),
    };
    IndexError::Damaged(format!("a table of the index is not what was written: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_table_is_refused_before_the_tree_can_no_longer_count_them() {
        let dir = tempfile::tempdir().unwrap();
        let tables = Tables::open(dir.path()).unwrap();
        let layer = Layer::default();
        layer.insert(Version(1), &crate::Write::Put(Key::new("k").unwrap(), "v".into()));
        for checkpoint in 1..=UNMERGED_TABLES_MAX as u64 {
            tables.write(&layer, checkpoint).unwrap();
        }
        assert!(matches!(tables.write(&layer, 1_000), Err(IndexError::Io(_))));
        drop(tables);
        let tables = Tables::open(dir.path()).unwrap();
        assert_eq!(tables.checkpoint().unwrap(), UNMERGED_TABLES_MAX as u64);
        tables.merge().unwrap();
        tables.write(&layer, 1_000).unwrap();
        assert_eq!(tables.checkpoint().unwrap(), 1_000);
    }

    proptest! {
        #[test]
        fn any_bytes_give_an_entry_or_an_error(
            key in prop::collection::vec(any::<u8>(), 0..20), stored in prop::collection::vec(any::<u8>(), 0..40)
        ) {
            let _ = read_entry(key.into(), &stored.into());
        }

        #[test]
        fn an_entry_with_any_bit_changed_is_noticed(
            value in prop::collection::vec(any::<u8>(), 0..40), at in any::<prop::sample::Index>()
        ) {
            let mut stored = wrap_value(b"bell", Version(5), &Value::from(value.clone()));
            prop_assert_eq!(unwrap_value(b"bell", &stored).unwrap(), (Version(5), value.as_slice()));
            prop_assert!(unwrap_value(b"ball", &stored).is_err());
            let bit = at.index(stored.len() * 8);
            stored[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(unwrap_value(b"bell", &stored).is_err());
        }
    }
}
