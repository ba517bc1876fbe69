//! The contract: what every store is, in types.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use engine::limits::{PAGE_BYTES_MAX, PAGE_ENTRIES_MAX};

use crate::{Commit, CommitError, Hints, Key, Range, Refusal, ScanError};

/// Names a commit. Never given twice; a commit that begins after another was acknowledged has the
/// greater one; a key's versions always grow, also across its deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

/// What a key holds: any bytes, though ours are JSON with a format number (`engine::record`).
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Value(Bytes);

impl Value {
    /// The bytes of the value.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T: Into<Bytes>> From<T> for Value {
    fn from(bytes: T) -> Self {
        Self(bytes.into())
    }
}

impl fmt::Debug for Value {
    /// Values may hold secrets, and errors that name a commit end up in logs: only the length shows.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Value({} bytes)", self.len())
    }
}

/// One key with what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key of the entry.
    pub key: Key,
    /// The value at that key.
    pub value: Value,
    /// The commit that wrote it last.
    pub version: Version,
}

/// A part of a range, in the order of keys.
///
/// A page is one moment's view: it never shows half a commit. Pages together are no snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// At most as many as were asked for; fewer when they are large.
    pub entries: Vec<Entry>,
    /// What is left of the range, if anything may be; nothing is left behind an empty page.
    pub next: Option<Range>,
}

impl Page {
    /// Fills a page from entries that are already in order: the rule where pages end, shared by the
    /// adapters that walk a map of their own.
    pub fn collect<E>(
        range: &Range,
        limit: usize,
        entries: impl Iterator<Item = Result<Entry, E>>,
    ) -> Result<Self, E> {
        let mut page: Vec<Entry> = Vec::new();
        let mut bytes = 0;
        for entry in entries {
            let entry = entry?;
            if let Some(last) = page.last()
                && (page.len() == limit || bytes >= PAGE_BYTES_MAX)
            {
                let next = Some(range.after(&last.key));
                return Ok(Self { entries: page, next });
            }
            bytes += entry.key.len() + entry.value.len();
            page.push(entry);
        }
        Ok(Self { entries: page, next: None })
    }
}

/// What an engine takes in one commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Writes in a commit, and conditions in a commit. At least 8.
    pub writes: usize,
    /// Bytes of all keys and values of a commit.
    pub commit_bytes: usize,
    /// Bytes of one value.
    pub value_bytes: usize,
}

/// What an acknowledgement is worth when machines die.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Acknowledged writes survive the loss of a minority of machines, with their disks.
    A,
    /// One copy that syncs before it answers: survives crashes and power cuts, not the disk's loss.
    S,
    /// A crash or a fail-over may lose acknowledged writes.
    B,
}

impl Class {
    /// The class in one sentence, for people.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::A => {
                "acknowledged writes survive the loss of a minority of machines and their disks"
            }
            Self::S => {
                "acknowledged writes survive crashes and power cuts, but not the loss of the one disk"
            }
            Self::B => "a crash or a fail-over may lose acknowledged writes",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::A => "A",
            Self::S => "S",
            Self::B => "B",
        })
    }
}

/// Changes when the engine failed over or was restored: what was acknowledged before may be gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Epoch(pub String);

/// An answer that is waited for.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What an adapter writes. It may rely on [`Store`] having checked limits and keys.
pub trait Adapter: Send + Sync + 'static {
    /// Up to `limit` entries of `range`, in order, having seen every commit acknowledged before.
    fn scan(&self, range: Range, limit: usize) -> Pending<'_, Result<Page, ScanError>>;

    /// Checks and writes as one atomic step.
    fn commit(&self, commit: Commit) -> Pending<'_, Result<Version, CommitError>>;

    /// Hints of changes to keys that begin with `prefix`.
    fn watch(&self, prefix: &str) -> Hints;

    /// What fits in one commit. Constant.
    fn limits(&self) -> Limits;

    /// What an acknowledgement is worth. May be learnt anew with each epoch.
    fn class(&self) -> Class;

    /// The epoch of the last answer. Once it has left an epoch it never goes back: an answer that comes
    /// late from a former one is none, its commit `Unknown`.
    fn epoch(&self) -> Epoch;

    /// The adapter that this one stands in front of, if it does. What follows is as that one says, unless this one
    /// says otherwise.
    fn behind(&self) -> Option<&dyn Adapter> {
        None
    }

    /// Whether only one process at a time can have this store open, so that whoever opens it knows that
    /// those before are gone.
    fn is_exclusive(&self) -> bool {
        self.behind().is_some_and(Adapter::is_exclusive)
    }

    /// The project on whose behalf it is used, if a Watchbell server stands before it. Then sessions say so in
    /// their keys, and others are buried by servers alone.
    fn guest(&self) -> Option<String> {
        self.behind()?.guest()
    }

    /// How many bytes the engine has room for, if it has less than a disk.
    fn room(&self) -> Option<u64> {
        self.behind()?.room()
    }

    /// What else a person may want to know about the engine, as name and value. Never a secret.
    fn facts(&self) -> Vec<(&'static str, String)> {
        self.behind().map_or_else(Vec::new, Adapter::facts)
    }
}

/// A store, whichever engine is behind it. Clones are cheap and share the engine.
///
/// It refuses what breaks a limit before the adapter sees it, so that all adapters refuse alike.
#[derive(Clone)]
pub struct Store(Arc<dyn Adapter>);

impl Store {
    /// A store on this adapter.
    pub fn new(adapter: impl Adapter) -> Self {
        Self::shared(Arc::new(adapter))
    }

    /// A store on an adapter that somebody else holds too.
    pub fn shared(adapter: Arc<dyn Adapter>) -> Self {
        Self(adapter)
    }

    /// Up to `limit` entries (1 to 1,000) of `range`; see [`Page`].
    pub async fn scan(&self, range: Range, limit: usize) -> Result<Page, ScanError> {
        if limit == 0 || limit > PAGE_ENTRIES_MAX {
            return Err(Refusal::PageLimit { limit }.into());
        }
        if range.is_empty() {
            return Ok(Page { entries: Vec::new(), next: None });
        }
        self.0.scan(range, limit).await
    }

    /// The pages of `range`, one after the other, each with up to `limit` entries (1 to 1,000).
    pub fn pages(&self, range: Range, limit: usize) -> Pages<'_> {
        Pages { store: self, rest: Some(range), limit }
    }

    /// Every entry of `range`: where something else bounds how many there are.
    pub async fn scan_all(&self, range: Range) -> Result<Vec<Entry>, ScanError> {
        let (mut entries, mut pages) = (Vec::new(), self.pages(range, PAGE_ENTRIES_MAX));
        while let Some(page) = pages.next().await? {
            entries.extend(page);
        }
        Ok(entries)
    }

    /// The entry at `key`, if there is one.
    pub async fn get(&self, key: &Key) -> Result<Option<Entry>, ScanError> {
        Ok(self.scan(Range::only(key), 1).await?.entries.pop())
    }

    /// Checks and writes as one atomic step.
    pub async fn commit(&self, commit: Commit) -> Result<Version, CommitError> {
        commit.check(&self.limits())?;
        self.0.commit(commit).await
    }

    /// The adapter itself, for those that stand in front of another one.
    pub fn adapter(&self) -> Arc<dyn Adapter> {
        Arc::clone(&self.0)
    }

    /// Hints of changes to keys that begin with `prefix`.
    pub fn watch(&self, prefix: &str) -> Hints {
        self.0.watch(prefix)
    }

    /// What fits in one commit.
    pub fn limits(&self) -> Limits {
        self.0.limits()
    }

    /// What an acknowledgement is worth.
    pub fn class(&self) -> Class {
        self.0.class()
    }

    /// The epoch of the last answer.
    pub fn epoch(&self) -> Epoch {
        self.0.epoch()
    }

    /// Whether only one process at a time can have this store open.
    pub fn is_exclusive(&self) -> bool {
        self.0.is_exclusive()
    }

    /// The project on whose behalf it is used, if a Watchbell server stands before it.
    pub fn guest(&self) -> Option<String> {
        self.0.guest()
    }

    /// How many bytes the engine has room for, if it has less than a disk.
    pub fn room(&self) -> Option<u64> {
        self.0.room()
    }

    /// What else there is to know about the engine.
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        self.0.facts()
    }
}

/// What is still to be read of a range, page by page; see [`Page`]. A page that was not read, because of an error or of
/// a reader that gave up waiting, is read again.
#[derive(Debug)]
pub struct Pages<'a> {
    store: &'a Store,
    rest: Option<Range>,
    limit: usize,
}

impl Pages<'_> {
    /// The entries of the next page, if there is one.
    pub async fn next(&mut self) -> Result<Option<Vec<Entry>>, ScanError> {
        let Some(range) = self.rest.clone() else { return Ok(None) };
        let page = self.store.scan(range, self.limit).await?;
        self.rest = page.next;
        Ok(Some(page.entries))
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Store(class {}, epoch {})", self.class(), self.epoch().0)
    }
}
