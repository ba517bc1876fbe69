//! The tables on disk: a log-structured merge tree without a journal of its own.
//!
//! A layer goes in as a whole, together with a checkpoint, the last record of the log that it holds: so at
//! open exactly the records behind the checkpoint are brought in from the log. Tables are checksummed
//! block by block, and every entry once more: [`stored`].
//!
//! The tree may panic on bytes that it did not expect. A panic inside it is damage like any other
//! and becomes [`IndexError::Damaged`].

use std::io;
use std::ops::{Bound, RangeBounds};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use lsm_tree::compaction::Leveled;
use lsm_tree::config::CompressionPolicy;
use lsm_tree::{
    AbstractTree, AnyTree, Cache, CompressionType, Config, Guard, SeqNo, SequenceNumberCounter,
};
use parking_lot::RwLock;

use super::layer::Layer;
use super::{stored, verify};
use crate::key::FIRST_KEY;
use crate::{Entry, Key, Range, Value, Version};

const MIB: u64 = 1_024 * 1_024;
const CACHE_BYTES: u64 = 32 * MIB;

/// Tables are synced one by one. Small ones keep the disk free for the log in between: with tables
/// of 8 MiB one commit in a thousand took 16 to 25 ms, with these 6 to 7 (docs/benchmarks.md).
const TABLE_MIB_MIN: u16 = 2;

/// Tables of a large index are larger.
const TABLE_MIB_MAX: u16 = 16;

/// The tree compares each table of a level with each other one when a merge ends, and nobody reads or writes meanwhile:
/// with two thousand of them that takes a second.
const TABLES_EASY: u64 = 512;

/// Layers that are merged at a time. More of them are less work for the disk, and a slower lookup.
const LAYERS_PER_MERGE: u8 = 8;

/// The tree counts these in one byte, and would not notice that it can no longer.
const UNMERGED_TABLES_MAX: usize = 200;

/// The second level is wide, since tables are small; each one below is so many times larger.
const SECOND_LEVEL_MIB: u16 = 480;
const LEVEL_RATIO: f32 = 10.0;

/// Where the checkpoint lives; the stored text is older than the name, and stays. No key of the store begins
/// with a zero byte.
const CHECKPOINT_KEY: &[u8] = b"\0mark";

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
            Some(checkpoint) => Ok(stored::version(CHECKPOINT_KEY, &checkpoint)?.0),
            None if self.tree.table_count() == 0 => Ok(0),
            None => Err(IndexError::Damaged("the index has tables, but no checkpoint".into())),
        }
    }

    /// The version of a key, as far as the tables know.
    pub(super) fn version(&self, key: &[u8]) -> Result<Option<Version>> {
        self.get(key)?.map(|stored| stored::version(key, &stored)).transpose()
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
            stored::entry(key.into(), &stored.into())
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
            let stored = stored::bytes(CHECKPOINT_KEY, Version(checkpoint), &Value::default());
            table.write(CHECKPOINT_KEY, stored).map_err(tree_error)?;
            for (key, version, value) in layer.range(&Range::all(), Version(u64::MAX)) {
                let written = match value {
                    Some(value) => table.write(&*key, stored::bytes(&key, version, &value)),
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
        let table_mib = table_mib(self.tree.disk_space());
        let first_level_mib = table_mib * u16::from(LAYERS_PER_MERGE);
        let first_ratio = f32::from(SECOND_LEVEL_MIB) / f32::from(first_level_mib);
        let strategy = Leveled::default()
            .with_table_target_size(u64::from(table_mib) * MIB)
            .with_level_ratio_policy(vec![first_ratio, LEVEL_RATIO])
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
        stored.map(|stored| stored::entry(key.to_bytes(), &stored.into())).transpose()
    }

    fn get(&self, key: &[u8]) -> Result<Option<lsm_tree::Slice>> {
        guarded("reading the index", || self.tree.get(key, SeqNo::MAX).map_err(tree_error))
    }
}

/// How large tables should be in an index of so many bytes.
fn table_mib(index_bytes: u64) -> u16 {
    let even = index_bytes.div_ceil(MIB * TABLES_EASY).next_power_of_two();
    u16::try_from(even).unwrap_or(u16::MAX).clamp(TABLE_MIB_MIN, TABLE_MIB_MAX)
}

/// Calls into the tree; a panic in it comes back as an error.
pub(super) fn guarded<T>(doing: &str, call: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(call))
        .unwrap_or_else(|_| Err(IndexError::Damaged(format!("{doing} failed on unexpected bytes"))))
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

    #[test]
    fn tables_grow_with_the_index() {
        let gib = 1_024 * MIB;
        let sizes = [0, gib, gib + 1, 2 * gib, 2 * gib + 1, 8 * gib, 1_000 * gib].map(table_mib);
        assert_eq!(sizes, [2, 2, 4, 4, 8, 16, 16]);
    }

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
}
