//! `memory`: the reference. What the contract means, in the fewest lines.
//!
//! It lives in tests and in the simulator. Beside the contract it can be told to misbehave where
//! only the engine itself can: to lose or repeat hints, and to fail over to a copy that had not
//! received the last commits. Faults on the way to a store are [`crate::fault`]'s.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::{
    Adapter, Class, Commit, CommitError, Conflict, Entry, Epoch, Hints, Key, Limits, Page, Pending,
    Range, ScanError, Value, Version, Watchers, Write,
};

/// How many commits a fail-over can lose at the most.
const TAIL_COMMITS_MAX: usize = 1_024;

/// How far ahead a fork begins to count: more commits than its former primary will still take.
const FORK_VERSIONS: u64 = 1 << 32;

const LIMITS: Limits =
    Limits { writes: 3_072, commit_bytes: 4 * 1024 * 1024, value_bytes: 1024 * 1024 };

/// A store that is gone with its process.
#[derive(Debug)]
pub struct MemoryStore {
    class: Class,
    state: Mutex<MemoryState>,
    watchers: Watchers,
    hints_are_lost: AtomicBool,
}

/// A key and what it held before.
type Undo = (Key, Option<(Value, Version)>);

#[derive(Debug, Clone, Default)]
struct MemoryState {
    entries: BTreeMap<Key, (Value, Version)>,
    last: u64,
    epoch: u64,
    /// What the last commits replaced, the latest last.
    tail: VecDeque<Vec<Undo>>,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    /// An empty one that loses nothing while the process lives.
    pub fn new() -> Self {
        Self::of_class(Class::S)
    }

    /// An empty one that says it is of this class: B, if [`MemoryStore::fail_over`] is going to be used.
    pub fn of_class(class: Class) -> Self {
        Self {
            class,
            state: Mutex::default(),
            watchers: Watchers::default(),
            hints_are_lost: AtomicBool::new(false),
        }
    }

    /// Takes the last commits back, at most as many as it remembers, and begins a new epoch. No
    /// version is ever given again. Returns how many were lost.
    pub fn fail_over(&self, commits: usize) -> usize {
        assert_eq!(self.class, Class::B, "only class B may lose what it acknowledged");
        let mut state = self.state.lock();
        state.epoch += 1;
        let lost = commits.min(state.tail.len());
        for _ in 0..lost {
            let undo = state.tail.pop_back().expect("counted above");
            for (key, former) in undo {
                match former {
                    Some(former) => state.entries.insert(key, former),
                    None => state.entries.remove(&key),
                };
            }
        }
        lost
    }

    /// What it holds at this moment, as a store of its own.
    #[must_use]
    pub fn copy(&self) -> Self {
        Self { state: Mutex::new(self.state.lock().clone()), ..Self::of_class(self.class) }
    }

    /// A copy that had not received the last commits, in a new epoch, as a fail-over makes one that the
    /// former primary has not heard of. No version is given by both.
    #[must_use]
    pub fn fork(&self, commits: usize) -> Self {
        let copy = self.copy();
        copy.state.lock().last += FORK_VERSIONS;
        copy.fail_over(commits);
        copy
    }

    /// From now on hints get lost, or no longer do.
    pub fn lose_hints(&self, lost: bool) {
        self.hints_are_lost.store(lost, Ordering::SeqCst);
    }

    /// Gives every watcher a hint though nothing has changed: a stale or repeated one.
    pub fn stale_hint(&self) {
        self.watchers.notify_all();
    }
}

impl MemoryState {
    fn commit(&mut self, commit: &Commit) -> Result<Version, Conflict> {
        commit
            .judge(|key| Ok::<_, Conflict>(self.entries.get(key).map(|(_, version)| *version)))?;
        self.last += 1;
        let version = Version(self.last);
        let mut undo = Vec::with_capacity(commit.then.len());
        for write in &commit.then {
            let former = match write {
                Write::Put(key, value) => {
                    self.entries.insert(key.clone(), (value.clone(), version))
                }
                Write::Delete(key) => self.entries.remove(key),
            };
            undo.push((write.key().clone(), former));
        }
        if self.tail.len() == TAIL_COMMITS_MAX {
            self.tail.pop_front();
        }
        self.tail.push_back(undo);
        Ok(version)
    }

    fn scan(&self, range: &Range, limit: usize) -> Page {
        let entries = self.entries.range::<str, _>(range.clone()).map(|(key, (value, version))| {
            Ok::<_, Infallible>(Entry { key: key.clone(), value: value.clone(), version: *version })
        });
        match Page::collect(range, limit, entries) {
            Ok(page) => page,
            Err(never) => match never {},
        }
    }
}

impl Adapter for MemoryStore {
    fn scan(&self, range: Range, limit: usize) -> Pending<'_, Result<Page, ScanError>> {
        Box::pin(async move { Ok(self.state.lock().scan(&range, limit)) })
    }

    fn commit(&self, commit: Commit) -> Pending<'_, Result<Version, CommitError>> {
        Box::pin(async move {
            let version = self.state.lock().commit(&commit)?;
            if !self.hints_are_lost.load(Ordering::SeqCst) {
                self.watchers.notify(&commit.then.iter().map(Write::key));
            }
            Ok(version)
        })
    }

    fn watch(&self, prefix: &str) -> Hints {
        self.watchers.watch(prefix)
    }

    fn limits(&self) -> Limits {
        LIMITS
    }

    fn class(&self) -> Class {
        self.class
    }

    fn epoch(&self) -> Epoch {
        Epoch(self.state.lock().epoch.to_string())
    }
}
