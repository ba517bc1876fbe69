//! The conformance suite: the contract, one function per clause.
//!
//! Every adapter runs it against a real engine, and `watchbell store check` runs it against the
//! user's. A clause works below a scratch prefix of its own and returns a [`ClauseViolation`] instead of
//! panicking, so that a person can read what does not hold. None of them waits for time to pass.
//!
//! A clause that cannot fail proves nothing: `tests/store/mutant.rs` breaks a store in one way after
//! the other and asks that the right clause notices.

mod bound;
mod commit;
mod hint;
mod race;
mod scan;
mod version;

use std::fmt;
use std::time::Duration;

use engine::limits::PAGE_ENTRIES_MAX;

use crate::{
    Commit, CommitError, Condition, Entry, Key, Pending, Range, ScanError, Store, Value, Version,
};

/// No clause takes nearly as long on any engine; one that does is stuck.
const CLAUSE_TIMEOUT: Duration = Duration::from_secs(120);

/// The store that is examined.
pub struct StoreUnderTest {
    /// One way to the store.
    store: Store,
    /// Another way to the same store: another client, if the engine has clients.
    other: Store,
    /// Everything happens below this.
    prefix: String,
    /// Breaks the connections that watches stand on, if there are any.
    reconnect: Option<Reconnect>,
}

type Reconnect = Box<dyn Fn() + Send + Sync>;

impl StoreUnderTest {
    /// Examines `store` below `prefix`, which must be empty.
    pub fn new(store: Store, prefix: impl Into<String>) -> Self {
        Self { other: store.clone(), store, prefix: prefix.into(), reconnect: None }
    }

    /// Reads back through another client.
    #[must_use]
    pub fn with_other(mut self, other: Store) -> Self {
        self.other = other;
        self
    }

    /// Says how the connections of watches are broken.
    #[must_use]
    pub fn with_reconnect(mut self, reconnect: impl Fn() + Send + Sync + 'static) -> Self {
        self.reconnect = Some(Box::new(reconnect));
        self
    }
}

/// What a step of a clause came to, unless the store violates the clause there.
pub type ClauseResult<T = ()> = Result<T, ClauseViolation>;

/// A promise that was not kept, or could not be examined.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClauseViolation {
    /// What was expected, and what came.
    #[error("{0}")]
    Broken(String),
    /// A commit that should succeed did not.
    #[error("a commit that should succeed failed: {0}")]
    Commit(#[from] CommitError),
    /// A scan that should succeed did not.
    #[error("a scan that should succeed failed: {0}")]
    Scan(#[from] ScanError),
}

/// What came of a clause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClauseOutcome {
    /// The promise was kept.
    Held,
    /// It cannot be broken here, for this reason.
    NotApplicable(&'static str),
    /// The promise was broken.
    Violated(ClauseViolation),
}

/// One promise of the contract.
pub struct Clause {
    /// Short, for tables and test names.
    pub name: &'static str,
    /// The promise in words.
    pub promise: &'static str,
    check: Check,
}

type Check = for<'a> fn(&'a ScratchSpace<'a>) -> Pending<'a, ClauseResult<ClauseOutcome>>;

macro_rules! clauses {
    ($($module:ident :: $name:ident: $promise:literal,)*) => {
        /// The contract, in the order in which it is best read.
        pub const CLAUSES: &[Clause] = &[$(Clause {
            name: stringify!($name),
            promise: $promise,
            check: |scratch| Box::pin($module::$name(scratch)),
        },)*];
    };
}

clauses! {
    commit::all_or_nothing: "a commit happens whole or not at all, and no page shows half of one",
    commit::absent: "Absent holds for a key that is not there, and only then",
    commit::present: "Present holds for a key that is there, and only then",
    commit::at: "At holds for the version that was read, and for no other",
    commit::conflict_names_condition: "a conflict names the condition that failed and what was found",
    version::later_is_greater: "a commit that begins after another was acknowledged has the greater version",
    version::survives_deletion: "a key's versions grow across its deletion, and none is given twice",
    scan::order: "a scan gives exactly the keys of its range, in the order of their bytes",
    scan::pages: "pages of any size together give the range, each no larger than asked for",
    scan::pages_across_deletes: "a scan goes on where it was although keys around that place went and came",
    scan::nothing: "an empty range gives an empty page and no next one",
    scan::sees_acknowledged: "a scan sees every commit acknowledged before, through any client",
    scan::values: "values are any bytes, none included, and come back as they were",
    bound::limits: "what is at a limit is taken, what is one past it is refused and changes nothing",
    bound::bad_commits: "a commit that writes nothing, or one key twice, is refused and changes nothing",
    race::guard: "a slow commit does not land on a guard that has changed meanwhile",
    race::skew: "of two commits that each require the other's key to be absent, one happens",
    race::unknown_lands_late: "a commit of unknown outcome may land later, and obeys its conditions then",
    race::counters: "64 writers with compare-and-set lose nothing",
    hint::after_change: "a hint comes, and when it comes the change can be read",
    hint::reconnect: "watches survive the loss of their connection",
    hint::slow_watcher: "a watcher that does not listen keeps no writer waiting",
}

impl Clause {
    /// Examines one clause.
    pub async fn check(&self, subject: &StoreUnderTest) -> ClauseOutcome {
        let prefix = format!("{}{}/", subject.prefix, self.name);
        let scratch = ScratchSpace { subject, prefix };
        match tokio::time::timeout(CLAUSE_TIMEOUT, (self.check)(&scratch)).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(violation)) => ClauseOutcome::Violated(violation),
            Err(_) => {
                let seconds = CLAUSE_TIMEOUT.as_secs();
                ClauseOutcome::Violated(ClauseViolation::Broken(format!(
                    "it was still not done after {seconds} seconds"
                )))
            }
        }
    }
}

/// Removes everything below `prefix`. Returns how many keys there were.
pub async fn sweep(store: &Store, prefix: &str) -> ClauseResult<usize> {
    let mut count = 0;
    loop {
        let limit = store.limits().writes.min(PAGE_ENTRIES_MAX);
        let page = store.scan(Range::prefix(prefix), limit).await?;
        if page.entries.is_empty() {
            return Ok(count);
        }
        count += page.entries.len();
        let commit =
            page.entries.into_iter().fold(Commit::new(), |commit, entry| commit.delete(entry.key));
        store.commit(commit).await?;
    }
}

/// One clause's own corner of the store.
struct ScratchSpace<'a> {
    subject: &'a StoreUnderTest,
    prefix: String,
}

impl ScratchSpace<'_> {
    fn store(&self) -> &Store {
        &self.subject.store
    }

    fn other(&self) -> &Store {
        &self.subject.other
    }

    fn key(&self, name: impl fmt::Display) -> Key {
        Key::new(format!("{}{name}", self.prefix)).expect("clauses use short printable names")
    }

    fn range(&self) -> Range {
        Range::prefix(&self.prefix)
    }

    async fn put(&self, name: impl fmt::Display, value: impl Into<Value>) -> ClauseResult<Version> {
        Ok(self.store().commit(Commit::new().put(self.key(name), value)).await?)
    }

    async fn delete(&self, name: impl fmt::Display) -> ClauseResult<Version> {
        Ok(self.store().commit(Commit::new().delete(self.key(name))).await?)
    }

    async fn get(&self, name: impl fmt::Display) -> ClauseResult<Option<Entry>> {
        Ok(self.store().get(&self.key(name)).await?)
    }

    /// Every entry of a range, in pages of `limit`.
    async fn collect(&self, range: Range, limit: usize) -> ClauseResult<Vec<Entry>> {
        let mut entries = Vec::new();
        let mut rest = Some(range);
        while let Some(range) = rest {
            let page = self.store().scan(range, limit).await?;
            ensure(page.entries.len() <= limit, || {
                format!("a page of {limit} has {} entries", page.entries.len())
            })?;
            // A scan that does not go forward would never end.
            if let (Some(last), Some(first)) = (entries.last(), page.entries.first()) {
                let last: &Entry = last;
                ensure(first.key > last.key, || format!("{first:?} came after {last:?}"))?;
            }
            entries.extend(page.entries);
            rest = page.next;
        }
        Ok(entries)
    }

    /// The names (without prefix) of a range, in pages of `limit`.
    async fn names(&self, range: Range, limit: usize) -> ClauseResult<Vec<String>> {
        let entries = self.collect(range, limit).await?;
        let name = |entry: &Entry| entry.key.as_str().strip_prefix(&self.prefix).map(str::to_owned);
        let outside = || ClauseViolation::Broken("a scan gave a key outside of its range".into());
        entries.iter().map(|entry| name(entry).ok_or_else(outside)).collect()
    }
}

fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> ClauseResult {
    if holds { Ok(()) } else { Err(ClauseViolation::Broken(otherwise())) }
}

fn ensure_eq<T: PartialEq + fmt::Debug>(found: &T, expected: &T, what: &str) -> ClauseResult {
    ensure(found == expected, || format!("{what}: expected {expected:?}, found {found:?}"))
}

/// The commit must fail on exactly this condition.
fn ensure_conflict(outcome: Result<Version, CommitError>, condition: &Condition) -> ClauseResult {
    match outcome {
        Err(CommitError::Conflict(conflict)) => {
            ensure_eq(&conflict.condition, condition, "the condition named by the conflict")
        }
        other => Err(ClauseViolation::Broken(format!(
            "expected a conflict on {condition:?}, found {other:?}"
        ))),
    }
}
