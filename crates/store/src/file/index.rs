//! The index: finds keys. It holds nothing that the log has not made durable before.
//!
//! New entries go into a layer in memory. A layer that has grown large is closed and a new one put
//! on top; the keeper brings closed ones to the tables on disk. A lookup asks the layers from the
//! top, then the tables; a scan merges them, the upper ones winning. The writer never waits for the
//! disk here, unless it asks for a key that no layer knows.
//!
//! **What a reader sees** is fixed in this order: the layers, the tables' view, the last commit
//! shown. Layers leave only after the tables show them, so nothing is missed in between. Tables show
//! whole layers only, and if a layer was closed meanwhile the reader begins again, so that the tables
//! are never newer than its layers. Of the layers it takes what is not newer than the last commit
//! shown, which the writer moves when a whole group is in. So no page shows half a commit.

use std::cmp::Ordering as Compared;
use std::iter::Peekable;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};

use super::layer::{Layer, LayerValue, Newest};
use super::table::{IndexError, Result, Tables, guarded};
use crate::{Entry, Key, Page, Range, Version, Write};

pub(super) struct Index {
    layers: RwLock<Arc<LayerStack>>,
    /// The last commit that readers see.
    shown: AtomicU64,
    tables: Tables,
    /// The last record that is in the tables on disk.
    indexed: AtomicU64,
    /// Layers that are on disk and perhaps still being read. Whoever lets go of a layer last pays
    /// for freeing it: that should be the keeper, not the writer.
    spent: Mutex<Vec<Arc<Layer>>>,
}

/// What is known of a key.
pub(super) enum Known {
    Holds(Entry),
    Deleted,
}

impl Known {
    /// What the key holds.
    pub(super) fn entry(self) -> Option<Entry> {
        match self {
            Self::Holds(entry) => Some(entry),
            Self::Deleted => None,
        }
    }
}

#[derive(Clone, Default)]
struct LayerStack {
    open: Arc<Layer>,
    /// With the last record of each, the newest first.
    closed: Vec<(u64, Arc<Layer>)>,
}

impl LayerStack {
    fn top_down(&self) -> impl Iterator<Item = &Layer> {
        std::iter::once(&*self.open).chain(self.closed.iter().map(|(_, layer)| &**layer))
    }
}

impl Index {
    pub(super) fn open(dir: &Path) -> Result<Self> {
        let tables = Tables::open(dir)?;
        let indexed = tables.checkpoint()?;
        Ok(Self {
            layers: RwLock::default(),
            shown: AtomicU64::new(indexed),
            tables,
            indexed: AtomicU64::new(indexed),
            spent: Mutex::default(),
        })
    }

    /// The last record of the log that is on disk here.
    pub(super) fn indexed(&self) -> u64 {
        self.indexed.load(Ordering::SeqCst)
    }

    /// The version of a key, as of the last group that went in.
    pub(super) fn version(&self, key: &Key) -> Result<Option<Version>> {
        let layers = self.layers();
        match layers.top_down().find_map(|layer| layer.newest(key)) {
            Some(Newest::At(version)) => Ok(Some(version)),
            Some(Newest::Deleted) => Ok(None),
            None => self.tables.version(key.as_bytes()),
        }
    }

    /// What is known of a key without the disk, as of the last group that was shown.
    pub(super) fn in_memory(&self, key: &Key) -> Option<Known> {
        let layers = self.layers();
        let view = Version(self.shown.load(Ordering::SeqCst));
        let range = Range::only(key);
        let found = layers.top_down().find_map(|layer| layer.range(&range, view).next());
        found.map(|(_, version, value)| match value {
            Some(value) => Known::Holds(Entry { key: key.clone(), value, version }),
            None => Known::Deleted,
        })
    }

    /// What a key holds, as of the last group that was shown. Tables that cannot have it are not read.
    pub(super) fn get(&self, key: &Key) -> Result<Option<Entry>> {
        self.in_memory(key).map_or_else(|| self.tables.entry(key), |known| Ok(known.entry()))
    }

    /// A page, as of the last group that was shown.
    pub(super) fn scan(&self, range: &Range, limit: usize) -> Result<Page> {
        self.scan_while(range, limit, || ())
    }

    /// The same, with something that happens while the view is being fixed.
    fn scan_while(&self, range: &Range, limit: usize, happens: impl FnMut()) -> Result<Page> {
        guarded("reading the index", || {
            let (layers, tables) = self.view(range, happens);
            let mut tables = tables.peekable();
            let view = Version(self.shown.load(Ordering::SeqCst));
            let mut upper: Vec<_> = layers
                .top_down()
                .map(|layer| layer.range(range, view).peekable())
                .filter_map(|mut layer| layer.peek().is_some().then_some(layer))
                .collect();
            Page::collect(range, limit, std::iter::from_fn(|| next_entry(&mut upper, &mut tables)))
        })
    }

    /// Takes in commits that the log has made durable, and shows them to readers all at once.
    pub(super) fn apply<'a>(&self, commits: impl Iterator<Item = (Version, &'a [Write])>) {
        let layers = self.layers();
        let mut last = self.shown.load(Ordering::SeqCst);
        for (version, writes) in commits {
            for write in writes {
                layers.open.insert(version, write);
            }
            last = version.0;
        }
        self.shown.store(last, Ordering::SeqCst);
    }

    /// Memory that the open layer takes.
    pub(super) fn open_bytes(&self) -> u64 {
        self.layers().open.bytes()
    }

    /// Layers that wait for the keeper.
    pub(super) fn closed_layers(&self) -> usize {
        self.layers().closed.len()
    }

    /// Closes the open layer. Only the writer calls this, between groups.
    pub(super) fn close_layer(&self) {
        let last = self.shown.load(Ordering::SeqCst);
        self.change_layers(|layers| {
            if !layers.open.is_empty() {
                layers.closed.insert(0, (last, std::mem::take(&mut layers.open)));
            }
        });
    }

    /// Brings the oldest closed layer to disk. Returns whether there was one.
    pub(super) fn write_layer(&self) -> Result<bool> {
        let Some((last, layer)) = self.layers().closed.last().cloned() else {
            return Ok(false);
        };
        self.tables.write(&layer, last)?;
        self.indexed.store(last, Ordering::SeqCst);
        self.change_layers(|layers| {
            layers.closed.pop();
        });
        let mut spent = self.spent.lock();
        spent.retain(|layer| Arc::strong_count(layer) > 1);
        spent.push(layer);
        Ok(true)
    }

    /// Tables on disk that wait to be merged.
    pub(super) fn unmerged_tables(&self) -> Result<usize> {
        self.tables.unmerged()
    }

    /// Merges tables on disk, if there is reason to.
    pub(super) fn merge(&self) -> Result<()> {
        self.tables.merge()
    }

    /// Layers and tables that fit together: tables that hold none but layers closed before.
    fn view(
        &self,
        range: &Range,
        mut happens: impl FnMut(),
    ) -> (Arc<LayerStack>, impl Iterator<Item = Result<Entry>>) {
        loop {
            let layers = self.layers();
            happens();
            let tables = self.tables.range(range);
            // Each further turn means that a whole layer was filled and closed meanwhile.
            if Arc::ptr_eq(&layers.open, &self.layers().open) {
                return (layers, tables);
            }
        }
    }

    fn layers(&self) -> Arc<LayerStack> {
        Arc::clone(&self.layers.read())
    }

    fn change_layers(&self, change: impl FnOnce(&mut LayerStack)) {
        change(Arc::make_mut(&mut self.layers.write()));
    }
}

/// The next entry of layers and tables merged: of several with the same key the uppermost wins, and
/// a key that it knows to be deleted is passed over.
fn next_entry<L, T>(upper: &mut [Peekable<L>], tables: &mut Peekable<T>) -> Option<Result<Entry>>
where
    L: Iterator<Item = (Bytes, Version, LayerValue)>,
    T: Iterator<Item = Result<Entry>>,
{
    loop {
        let lowest = upper.iter_mut().filter_map(|layer| layer.peek()).map(|(text, ..)| text).min();
        let Some(lowest) = lowest.cloned() else {
            return tables.next();
        };
        match tables.peek() {
            Some(Err(_)) => return tables.next(),
            Some(Ok(entry)) => match entry.key.as_bytes().cmp(&lowest) {
                Compared::Less => return tables.next(),
                Compared::Equal => drop(tables.next()),
                Compared::Greater => {}
            },
            None => {}
        }
        let mut winner = None;
        for layer in upper.iter_mut() {
            if let Some(found) = layer.next_if(|(text, ..)| *text == lowest) {
                winner = winner.or(Some(found));
            }
        }
        if let Some((text, version, Some(value))) = winner {
            return Some(match Key::from_bytes(text) {
                Ok(key) => Ok(Entry { key, value, version }),
                Err(why) => Err(IndexError::Damaged(why.to_string())),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(index: &Index, version: u64, names: &[&str]) {
        let writes: Vec<Write> =
            names.iter().map(|name| Write::Put(Key::new(*name).unwrap(), "".into())).collect();
        index.apply([(Version(version), writes.as_slice())].into_iter());
    }

    fn to_disk(index: &Index) {
        index.close_layer();
        while index.write_layer().unwrap() {}
    }

    #[test]
    fn a_page_is_whole_though_layers_become_tables_while_its_view_is_fixed() {
        let dir = tempfile::tempdir().unwrap();
        let index = Index::open(dir.path()).unwrap();
        put(&index, 1, &["k"]);
        let mut turns = 0;
        let page = index.scan_while(&Range::all(), 10, || {
            turns += 1;
            if turns == 1 {
                to_disk(&index);
                put(&index, 2, &["k", "m"]);
                to_disk(&index);
            }
        });
        let found: Vec<_> = page
            .unwrap()
            .entries
            .into_iter()
            .map(|entry| (entry.key.to_string(), entry.version))
            .collect();
        assert_eq!(found, [("k".into(), Version(2)), ("m".into(), Version(2))]);
        assert_eq!(turns, 2, "it had to begin again");
    }
}
