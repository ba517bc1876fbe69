//! `file:DIR`: the embedded store, on one machine, for one process at a time.
//!
//! The [`crate::log`] gives order and durability; the index behind it finds keys and may lag behind
//! on disk, because the log brings it up at open. One thread, the writer, decides and writes; three
//! keepers tidy up behind it; scans run beside them on the state of the last durable group.
//!
//! - `directory`: the lock, the format, what kind of file system it is
//! - `batch`: the writes of a commit as a record of the log
//! - `index`: finds keys, in `layer`s in memory and `table`s on disk
//! - `verify`: checks what the tree of tables does not, before it is opened
//! - `writer`: group commit
//! - `keeper`: what commits must not wait for

mod batch;
mod directory;
mod index;
mod keeper;
mod layer;
mod stored;
mod table;
mod verify;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::{fs, io};

use tokio::sync::{Semaphore, mpsc};
use tokio::task::spawn_blocking;

use crate::log::{self, Log, LogError, RecordVisitor, Recovered};
use crate::{
    Adapter, Class, Commit, CommitError, Entry, Epoch, Hints, Limits, OpenError, Page, Pending,
    Range, ScanError, Version, Watchers,
};
use directory::{Directory, Medium, Missing, StoreIdentity};
use index::Index;
use keeper::{AfterRound, BackgroundKeeper, KeeperTrouble, RETRY_AFTER};
use table::IndexError;
use writer::{CommitRequest, GroupWriter};

/// Commits that may wait for the writer; further ones wait for their place.
const WAITING_MAX: usize = 1_024;

/// Memory that commits on their way may take, in KiB; further ones wait for their place.
const WAITING_KIB_MAX: u32 = 64 * 1024;

/// Merges in one round of that keeper; when none is due they cost nothing.
const MERGES_PER_ROUND: usize = 4;

/// Tables that may wait to be merged before layers wait for them.
const UNMERGED_TABLES_MAX: usize = 32;

/// With less, a commit at the limit of writes would not fit in a segment.
pub const SEGMENT_BYTES_MIN: u64 = 64 * 1024;

/// Sizes that a store is made with. The defaults are right for people; tests use small ones to see
/// many segments and tables go by.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// Of a segment of the log, at least [`SEGMENT_BYTES_MIN`]. Fixed when the store is made.
    pub segment_bytes: u64,
    /// Of the index's newest layer, in memory, before it goes to disk.
    pub layer_bytes: u64,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { segment_bytes: 16 * 1024 * 1024, layer_bytes: 8 * 1024 * 1024 }
    }
}

/// The embedded store. Dropping it stops it cleanly, and waits for that.
pub struct FileStore {
    directory: Directory,
    index: Arc<Index>,
    watchers: Arc<Watchers>,
    requests: Option<mpsc::Sender<CommitRequest>>,
    room: Arc<Semaphore>,
    writer: Option<JoinHandle<()>>,
    /// Nothing is merged any more.
    is_closing: Arc<AtomicBool>,
}

impl FileStore {
    /// Opens the store in `dir`, and makes one if the directory is empty or not there.
    pub fn open_or_create(dir: &Path, sizes: Sizes) -> Result<Self, OpenError> {
        assert!(sizes.segment_bytes >= SEGMENT_BYTES_MIN, "a commit must fit in a segment");
        let missing = Missing::Make { segment_bytes: sizes.segment_bytes };
        Self::open(Directory::open(dir, missing)?, sizes.layer_bytes)
    }

    /// Opens the store in `dir`, which must be there.
    pub fn open_existing(dir: &Path, sizes: Sizes) -> Result<Self, OpenError> {
        Self::open(Directory::open(dir, Missing::Refuse)?, sizes.layer_bytes)
    }

    fn open(mut directory: Directory, layer_bytes: u64) -> Result<Self, OpenError> {
        let (log, index) = open_parts(&directory, layer_bytes)?;
        directory.make_current()?;
        let index = Arc::new(index);
        let watchers = Arc::new(Watchers::default());
        let started = |why| OpenError::Io { path: directory.path().to_owned(), why };
        let pool = log.pool();
        let log_keeper = BackgroundKeeper::start("store-log", {
            let index = Arc::clone(&index);
            move || {
                pool.tidy(index.indexed())?;
                Ok(AfterRound::Rest)
            }
        });
        let log_keeper = log_keeper.map_err(started)?;
        log_keeper.call();
        let is_closing = Arc::new(AtomicBool::new(false));
        let merge_keeper = BackgroundKeeper::start("store-merge", {
            let (index, is_closing) = (Arc::clone(&index), Arc::clone(&is_closing));
            move || merge_tables(&index, &is_closing)
        });
        let merge_keeper = merge_keeper.map_err(started)?;
        let index_keeper = BackgroundKeeper::start("store-index", {
            let (index, is_closing) = (Arc::clone(&index), Arc::clone(&is_closing));
            move || write_layer(&index, &merge_keeper, &is_closing)
        });
        let index_keeper = index_keeper.map_err(started)?;
        index_keeper.call();
        let (requests, waiting) = mpsc::channel(WAITING_MAX);
        let writer = GroupWriter {
            place: directory.path().to_owned(),
            log,
            index: Arc::clone(&index),
            index_keeper,
            log_keeper,
            watchers: Arc::clone(&watchers),
            layer_bytes,
            poison: None,
        };
        let writer = thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || writer.run(waiting))
            .map_err(started)?;
        let room = Arc::new(Semaphore::new(WAITING_KIB_MAX as usize));
        let (requests, writer) = (Some(requests), Some(writer));
        Ok(Self { directory, index, watchers, requests, room, writer, is_closing })
    }
}

/// Brings the oldest closed layer to disk; waits for the merges when they are far behind.
fn write_layer(
    index: &Index,
    merge_keeper: &BackgroundKeeper,
    is_closing: &AtomicBool,
) -> Result<AfterRound, KeeperTrouble> {
    // Before anything is written: while merges fail, layers must pile up until commits are refused,
    // and not tables.
    while index.unmerged_tables()? >= UNMERGED_TABLES_MAX {
        if let Some(trouble) = merge_keeper.trouble() {
            return Err(trouble);
        }
        if is_closing.load(Ordering::Relaxed) {
            // The log has them.
            return Ok(AfterRound::Rest);
        }
        merge_keeper.call_and_wait(RETRY_AFTER);
    }
    if !index.write_layer()? {
        return merge_keeper.trouble().map_or(Ok(AfterRound::Rest), Err);
    }
    merge_keeper.call();
    Ok(AfterRound::Again)
}

/// Merges tables a few times: one merge can make another one due, and where none is it costs nothing. Who closes the store
/// waits for one merge at the most.
fn merge_tables(index: &Index, is_closing: &AtomicBool) -> Result<AfterRound, KeeperTrouble> {
    for _ in 0..MERGES_PER_ROUND {
        if is_closing.load(Ordering::Relaxed) {
            break;
        }
        index.merge()?;
    }
    Ok(AfterRound::Rest)
}

/// Opens the index and brings it up from the log. An index that cannot be used is made anew if the
/// log still has everything.
fn open_parts(directory: &Directory, layer_bytes: u64) -> Result<(Log, Index), OpenError> {
    let dir = directory.index();
    let damage = match Index::open(&dir) {
        Ok(index) => return bring_up(directory, index, layer_bytes),
        Err(IndexError::Io(why)) => return Err(directory::at(&dir)(why)),
        Err(IndexError::Damaged(damage)) => damage,
    };
    // Nothing is moved before the log is known to have everything.
    read_log(directory, 0, &mut |_, _| Ok(())).map_err(|error| match error {
        OpenError::Corrupt(_) => OpenError::Corrupt(format!(
            "{damage}, in {}, and the log no longer reaches back to the beginning to make it anew: \
             restore the directory from a backup, and check the disk",
            dir.display()
        )),
        other => other,
    })?;
    let aside = directory.path().join("index.damaged");
    remove_dir_if_there(&aside)
        .and_then(|()| fs::rename(&dir, &aside))
        .map_err(directory::at(&dir))?;
    tracing::warn!(%damage, "the index is damaged and is made anew from the log: check the disk");
    let index = Index::open(&dir).map_err(|error| index_error(&dir, error))?;
    bring_up(directory, index, layer_bytes)
}

fn remove_dir_if_there(dir: &Path) -> io::Result<()> {
    fs::remove_dir_all(dir)
        .or_else(|why| if why.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(why) })
}

fn bring_up(
    directory: &Directory,
    index: Index,
    layer_bytes: u64,
) -> Result<(Log, Index), OpenError> {
    let mut take_in = |number: u64, payload: &[u8]| {
        let writes = batch::decode(payload)?;
        index.apply([(Version(number), writes.as_slice())].into_iter());
        if index.open_bytes() >= layer_bytes {
            index.close_layer();
        }
        Ok(())
    };
    let (log, recovered) = read_log(directory, index.indexed(), &mut take_in)?;
    report(&recovered);
    Ok((log, index))
}

fn read_log(
    directory: &Directory,
    indexed: u64,
    visit: &mut RecordVisitor<'_>,
) -> Result<(Log, Recovered), OpenError> {
    let StoreIdentity { segment_bytes, .. } = directory.identity;
    let id = directory.identity.log_id();
    log::recover(&directory.log(), id, segment_bytes, indexed, visit).map_err(|error| match error {
        LogError::Io { path, why } => directory::at(&path)(why),
        LogError::Damaged(why) => OpenError::Corrupt(why),
    })
}

fn report(recovered: &Recovered) {
    if recovered.torn {
        let last = recovered.last;
        tracing::info!(last, "a group of commits that nobody was told about was cut off");
    }
    for (first, last) in &recovered.damaged {
        tracing::warn!(
            first,
            last,
            "records of the log are damaged, and held by the index: check the disk"
        );
    }
}

fn index_error(dir: &Path, error: IndexError) -> OpenError {
    match error {
        IndexError::Io(why) => directory::at(dir)(why),
        IndexError::Damaged(why) => OpenError::Corrupt(format!("{why}, in {}", dir.display())),
    }
}

impl Drop for FileStore {
    fn drop(&mut self) {
        self.is_closing.store(true, Ordering::Relaxed);
        drop(self.requests.take());
        if let Some(writer) = self.writer.take() {
            // It ends when nobody can send any more; a panic in it has been reported by itself.
            let _ = writer.join();
        }
    }
}

impl Adapter for FileStore {
    fn scan(&self, range: Range, limit: usize) -> Pending<'_, Result<Page, ScanError>> {
        let index = Arc::clone(&self.index);
        Box::pin(async move {
            let whole = |entry: Option<Entry>| Page { entries: Vec::from_iter(entry), next: None };
            let page = match range.single().filter(|_| limit > 0) {
                // What waits for no disk needs no thread of its own.
                Some(key) => match index.in_memory(&key) {
                    Some(known) => return Ok(whole(known.entry())),
                    None => spawn_blocking(move || index.get(&key).map(whole)).await,
                },
                None => spawn_blocking(move || index.scan(&range, limit)).await,
            };
            match page {
                Ok(Ok(page)) => Ok(page),
                Ok(Err(IndexError::Io(why))) => Err(ScanError::Unavailable(why.to_string())),
                Ok(Err(IndexError::Damaged(why))) => Err(ScanError::Corrupt(format!(
                    "{why}, in {}: stop, check the disk, and restore the directory from a backup",
                    self.directory.path().display()
                ))),
                Err(stopped) => Err(ScanError::Unavailable(stopped.to_string())),
            }
        })
    }

    fn commit(&self, commit: Commit) -> Pending<'_, Result<Version, CommitError>> {
        Box::pin(async move {
            let room =
                u32::try_from(commit.len() / 1024 + 1).unwrap_or(u32::MAX).min(WAITING_KIB_MAX);
            let room = Arc::clone(&self.room).acquire_many_owned(room).await;
            let room = room.expect("nobody closes it");
            let (request, answer) = CommitRequest::new(commit, room);
            let requests = self.requests.as_ref().expect("present until drop");
            if requests.send(request).await.is_err() {
                return Err(CommitError::Unavailable("the store has stopped".into()));
            }
            answer.await.unwrap_or_else(|_| {
                Err(CommitError::Unknown("the store stopped before it answered".into()))
            })
        })
    }

    fn watch(&self, prefix: &str) -> Hints {
        self.watchers.watch(prefix)
    }

    fn limits(&self) -> Limits {
        let quarter =
            usize::try_from(self.directory.identity.segment_bytes / 4).unwrap_or(usize::MAX);
        let commit_bytes = quarter.min(4 * 1024 * 1024);
        // Short ones: with small segments, bytes run out first.
        let writes = (commit_bytes / 64).min(4_096);
        Limits { writes, commit_bytes, value_bytes: (commit_bytes / 2).min(1024 * 1024) }
    }

    fn class(&self) -> Class {
        match self.directory.medium {
            Medium::Disk => Class::S,
            // A restart of the machine is enough to lose everything.
            Medium::Ram | Medium::Network(_) => Class::B,
        }
    }

    fn epoch(&self) -> Epoch {
        Epoch(format!("{:016x}", self.directory.identity.id))
    }

    fn is_exclusive(&self) -> bool {
        true
    }
}
