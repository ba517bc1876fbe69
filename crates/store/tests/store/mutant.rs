//! The gate of the conformance suite: a clause that cannot fail proves nothing.
//!
//! A [`Mutant`] is a small store that keeps the contract but for one [`Bug`]. Every clause is run
//! against every mutant, and the clauses that are meant for its bug must say that it is violated.
//! The table below is the whole story; behind it, each bug is one place in the mutant that asks
//! [`Mutant::has`].
//!
//! All of it is deterministic. There is one thread; a call lets others go first, as one over a
//! network would; and time is virtual, so that a clause that waits for ever runs into its timeout at
//! once. A clause that goes round in circles gets there too, since a mutant falls silent after
//! [`CALLS_MAX`].

use std::collections::BTreeMap;
use std::future::pending;
use std::ops::{Bound, RangeBounds};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use store::conformance::{CLAUSES, ClauseOutcome, StoreUnderTest};
use store::{
    Adapter, Class, Commit, CommitError, Condition, Conflict, Entry, Epoch, Hints, Key, Limits,
    Page, Pending, Range, Refusal, ScanError, Store, Version, Watchers, Write,
};
use tokio::task::yield_now;

macro_rules! bugs {
    ($($bug:ident: [$($clause:ident)+] $what:literal,)*) => {
        /// One way to break the contract.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        enum Bug { $(#[doc = $what] $bug,)* }

        /// Each bug, the clauses that are meant for it, and the bug in words.
        const BUGS: &[(Bug, &[&str], &str)] =
            &[$((Bug::$bug, &[$(stringify!($clause)),+], $what),)*];
    };
}

bugs! {
    FirstWriteIsUnconditional: [all_or_nothing] "the first write is done though a condition failed",
    CommitInTwoSteps: [all_or_nothing] "the first write can be read before the others",
    DeleteNeedsItsKey: [all_or_nothing] "a commit that deletes what is not there fails",
    PageInTwoSteps: [all_or_nothing] "half of a page is read, then the other half",
    AbsentIsIgnored: [absent] "Absent always holds",
    PresentIsIgnored: [present] "Present always holds",
    AtIsIgnored: [at] "At always holds",
    AtMeansPresent: [at] "At holds for any version",
    ConflictNamesTheLast: [conflict_names_condition] "a conflict names the last condition that failed",
    ConflictHidesTheFound: [conflict_names_condition] "a conflict never tells what was found",
    ConflictOnAbsentHidesTheFound: [conflict_names_condition] "a conflict on Absent does not tell what was found",
    VersionsRepeat: [later_is_greater] "two commits in a row have the same version",
    OtherClientCountsSlowly: [later_is_greater] "versions of another client are behind",
    VersionsRestart: [survives_deletion] "a key that was deleted begins again at version 1",
    OrderIgnoresCase: [order] "upper case sorts like lower case",
    OrderOfArrival: [order] "keys come in the order in which they were written",
    EndIsIncluded: [order] "the end of a range belongs to it",
    PageLimitIsIgnored: [pages] "a page has everything",
    PageRepeatsAnEntry: [pages] "a page begins with the last entry of the one before",
    PageSkipsAnEntry: [pages] "a page begins one entry too late",
    PageIsTheLast: [pages] "no page says that there is more",
    TokenIsAnOffset: [pages_across_deletes] "a scan goes on after so many entries, not after a key",
    TokenDiesWithItsKey: [pages_across_deletes] "a scan cannot go on after a key that is gone",
    EmptyPageHasANext: [nothing] "a range that holds nothing is never at its end",
    ScanIsStale: [sees_acknowledged] "a scan misses the last commit",
    OtherClientIsStale: [sees_acknowledged] "a scan misses the last commit of another client",
    EmptyValueIsAbsent: [values] "a key with an empty value is not found",
    ValuesAreText: [values] "what is not UTF-8 in a value is replaced",
    LargestValueIsRefused: [limits] "a value at the limit is refused",
    MostWritesAreRefused: [limits] "writes at the limit are refused",
    MostConditionsAreRefused: [limits] "conditions at the limit are refused",
    LargestCommitIsRefused: [limits] "a commit of as many bytes as the limit is refused",
    LongKeysAreCut: [limits] "a key is cut after 255 bytes",
    TooFewWrites: [limits] "the limit of writes is lower than the contract allows",
    JudgesEarly: [guard skew counters] "others may commit between the check and the writes",
    JudgesOtherKeysEarly: [guard skew] "only keys that it writes are safe from others, as in snapshot isolation",
    JudgesLargeCommitsEarly: [guard] "a large commit is checked, then staged, then written",
    TakesConflictForDone: [unknown_lands_late] "a conflict is a success if all that it writes is there",
    HintsComeEarly: [after_change] "a hint comes before the change can be read",
    HintsAreLost: [after_change] "no hint ever comes",
    HintsForgetDeletes: [after_change] "a deletion gives no hint",
    WatchesDieOnReconnect: [reconnect] "no hint comes once the connection was lost",
    WatchesAreNotRenewed: [reconnect] "after a loss one hint for what was missed, and none for what comes",
    CommitsWaitForWatchers: [slow_watcher] "a commit waits for room in the queues of its watchers",
}

/// Clauses that no adapter can break, and why.
const OUT_OF_REACH: &[(&str, &str)] =
    &[("bad_commits", "`Store` refuses such commits in front of every adapter")];

/// Small, so that commits at the limit are quick to make.
const LIMITS: Limits = Limits { writes: 64, commit_bytes: 64 * 1024, value_bytes: 16 * 1024 };

/// Several times what the busiest clause needs of a healthy store.
const CALLS_MAX: usize = 30_000;

/// How many hints fit in the queue of [`Bug::CommitsWaitForWatchers`]. A mutant cannot see who listens,
/// so nothing ever leaves that queue.
const HINT_QUEUE_LEN: usize = 32;

/// A client of an engine, wrong in one way or in none.
struct Mutant {
    bug: Option<Bug>,
    client: Client,
    engine: Arc<Engine>,
}

/// Which one: some bugs show in one client only.
#[derive(PartialEq, Eq)]
enum Client {
    First,
    Other,
}

#[derive(Default)]
struct Engine {
    state: Mutex<State>,
    watchers: Watchers,
    calls: AtomicUsize,
}

#[derive(Default)]
struct State {
    entries: Entries,
    /// As they were before the last commit, for scans that miss it.
    former: Entries,
    last: u64,
    /// For [`Bug::TokenIsAnOffset`]: what was left, of which range, and how much had been given.
    tokens: Vec<(Range, Range, usize)>,
    /// Hints given since the first watch; `None` if nobody watches, or can be reached.
    hints: Option<usize>,
}

impl State {
    /// The whole of which `rest` was left, and how many entries of it had been given.
    fn token(&self, rest: &Range) -> Option<(Range, usize)> {
        let token = self.tokens.iter().rfind(|(next, ..)| next == rest);
        token.map(|(_, whole, offset)| (whole.clone(), *offset))
    }
}

type Entries = BTreeMap<Key, Entry>;

impl Mutant {
    fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    fn has_as_other(&self, bug: Bug) -> bool {
        self.has(bug) && self.client == Client::Other
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.engine.state.lock().expect("nothing panics while it is held")
    }

    /// How every call begins.
    async fn arrive(&self) {
        if self.engine.calls.fetch_add(1, Ordering::Relaxed) >= CALLS_MAX {
            pending::<()>().await;
        }
        yield_now().await;
    }

    async fn scan_one(&self, range: Range, limit: usize) -> Result<Page, ScanError> {
        self.arrive().await;
        let mut entries = self.read(&range);
        if self.has(Bug::PageInTwoSteps) {
            let half = entries.len() / 2;
            entries.truncate(half);
            others_go_first().await;
            entries.extend(self.read(&range).into_iter().skip(half));
        }
        if self.has(Bug::OrderIgnoresCase) {
            entries.sort_by_key(|entry| entry.key.as_str().to_lowercase());
        }
        if self.has(Bug::OrderOfArrival) {
            entries.sort_by_key(|entry| entry.version);
        }
        let limit = if self.has(Bug::PageLimitIsIgnored) { usize::MAX } else { limit };
        Ok(self.page(&range, limit, entries))
    }

    /// Everything in the range.
    fn read(&self, range: &Range) -> Vec<Entry> {
        let state = self.lock();
        let behind = self.has(Bug::ScanIsStale) || self.has_as_other(Bug::OtherClientIsStale);
        let entries = if behind { &state.former } else { &state.entries };
        if let Bound::Excluded(text) = range.start_bound()
            && self.has(Bug::TokenDiesWithItsKey)
            && !entries.contains_key(text)
        {
            return Vec::new();
        }
        let (whole, skip) = state.token(range).unwrap_or((range.clone(), 0));
        let end = match whole.end_bound() {
            Bound::Excluded(text) if self.has(Bug::EndIsIncluded) => Bound::Included(text),
            end => end,
        };
        entries
            .range::<str, _>((whole.start_bound(), end))
            .skip(skip)
            .map(|(_, entry)| entry.clone())
            .filter(|entry| !(self.has(Bug::EmptyValueIsAbsent) && entry.value.is_empty()))
            .collect()
    }

    /// Cuts a page off.
    fn page(&self, range: &Range, limit: usize, mut entries: Vec<Entry>) -> Page {
        let rest = entries.split_off(limit.min(entries.len()));
        let Some(last) = entries.last() else {
            let next = self.has(Bug::EmptyPageHasANext).then(|| range.clone());
            return Page { entries, next };
        };
        let Some(first_of_rest) = rest.first().filter(|_| !self.has(Bug::PageIsTheLast)) else {
            return Page { entries, next: None };
        };
        let next = if self.has(Bug::PageSkipsAnEntry) {
            range.after(&first_of_rest.key)
        } else if self.has(Bug::PageRepeatsAnEntry) {
            let last_but_one = entries.iter().nth_back(1);
            last_but_one.map_or_else(|| range.clone(), |entry| range.after(&entry.key))
        } else {
            range.after(&last.key)
        };
        if self.has(Bug::TokenIsAnOffset) {
            let mut state = self.lock();
            let (whole, offset) = state.token(range).unwrap_or((range.clone(), 0));
            state.tokens.push((next.clone(), whole, offset + entries.len()));
        }
        Page { entries, next: Some(next) }
    }

    async fn commit_one(&self, commit: Commit) -> Result<Version, CommitError> {
        self.arrive().await;
        self.refuse(&commit)?;
        if self.has(Bug::HintsComeEarly) {
            self.ring(&commit);
            others_go_first().await;
        }
        let (early, late): (Vec<_>, Vec<_>) =
            commit.when.iter().partition(|condition| self.judges_early(&commit, condition));
        if !early.is_empty() {
            self.judge(&early, &self.lock().entries)?;
            others_go_first().await;
        }
        let at_once = if self.has(Bug::CommitInTwoSteps) { 1 } else { commit.then.len() };
        let (at_once, later) = commit.then.split_at(at_once);
        let version = self.judge_and_write(&commit, &late, at_once)?;
        if !later.is_empty() {
            others_go_first().await;
            self.write(&mut self.lock().entries, later, version);
        }
        if !self.has(Bug::HintsComeEarly) {
            self.ring(&commit);
        }
        if self.has(Bug::CommitsWaitForWatchers) && self.lock().hints > Some(HINT_QUEUE_LEN) {
            pending::<()>().await;
        }
        Ok(version)
    }

    /// Refuses too much, if anything: [`Store`] has refused what is past the limits.
    fn refuse(&self, commit: &Commit) -> Result<(), Refusal> {
        let entries = &self.lock().entries;
        let is_refused = |write: &Write| match write {
            Write::Put(_, value) => {
                self.has(Bug::LargestValueIsRefused) && value.len() == LIMITS.value_bytes
            }
            Write::Delete(key) => self.has(Bug::DeleteNeedsItsKey) && !entries.contains_key(key),
        };
        let refused = commit.then.iter().any(is_refused)
            || (self.has(Bug::MostWritesAreRefused) && commit.then.len() == LIMITS.writes)
            || (self.has(Bug::MostConditionsAreRefused) && commit.when.len() == LIMITS.writes)
            || (self.has(Bug::LargestCommitIsRefused) && commit.len() == LIMITS.commit_bytes);
        if refused { Err(Refusal::Full { place: "the mutant".into() }) } else { Ok(()) }
    }

    fn judges_early(&self, commit: &Commit, condition: &Condition) -> bool {
        let large = commit.len() > LIMITS.commit_bytes / 4;
        let of_another_key = commit.then.iter().all(|write| write.key() != condition.key());
        self.has(Bug::JudgesEarly)
            || (self.has(Bug::JudgesLargeCommitsEarly) && large)
            || (self.has(Bug::JudgesOtherKeysEarly) && of_another_key)
    }

    fn judge(&self, conditions: &[&Condition], entries: &Entries) -> Result<(), Conflict> {
        let find = |condition: &Condition| entries.get(condition.key()).map(|entry| entry.version);
        let mut failed =
            conditions.iter().filter(|condition| !self.holds(condition, find(condition)));
        let named =
            if self.has(Bug::ConflictNamesTheLast) { failed.next_back() } else { failed.next() };
        let Some(&condition) = named else {
            return Ok(());
        };
        let hidden = self.has(Bug::ConflictHidesTheFound)
            || (self.has(Bug::ConflictOnAbsentHidesTheFound)
                && matches!(condition, Condition::Absent(_)));
        let found = find(condition).filter(|_| !hidden);
        Err(Conflict { condition: condition.clone(), found })
    }

    fn holds(&self, condition: &Condition, found: Option<Version>) -> bool {
        match condition {
            Condition::Absent(_) => found.is_none() || self.has(Bug::AbsentIsIgnored),
            Condition::Present(_) => found.is_some() || self.has(Bug::PresentIsIgnored),
            Condition::At(_, version) => {
                found == Some(*version)
                    || self.has(Bug::AtIsIgnored)
                    || (found.is_some() && self.has(Bug::AtMeansPresent))
            }
        }
    }

    /// The one atomic step, as far as the bug leaves it one.
    fn judge_and_write(
        &self,
        commit: &Commit,
        conditions: &[&Condition],
        writes: &[Write],
    ) -> Result<Version, Conflict> {
        let mut state = self.lock();
        if let Err(conflict) = self.judge(conditions, &state.entries) {
            let last = Version(state.last);
            if self.has(Bug::FirstWriteIsUnconditional) {
                self.write(&mut state.entries, &writes[..1], last);
            }
            let taken_for_done =
                self.has(Bug::TakesConflictForDone) && is_done(commit, &state.entries);
            return if taken_for_done { Ok(last) } else { Err(conflict) };
        }
        state.former = state.entries.clone();
        state.last += 1;
        let version = self.version(commit, &state);
        self.write(&mut state.entries, writes, version);
        Ok(version)
    }

    fn version(&self, commit: &Commit, state: &State) -> Version {
        if self.has(Bug::VersionsRestart) {
            let former = state.entries.get(commit.then[0].key());
            return Version(former.map_or(1, |entry| entry.version.0 + 1));
        }
        if self.has(Bug::VersionsRepeat) || self.has_as_other(Bug::OtherClientCountsSlowly) {
            return Version(state.last.div_ceil(2));
        }
        Version(state.last)
    }

    fn write(&self, entries: &mut Entries, writes: &[Write], version: Version) {
        for write in writes {
            let text = write.key().as_str();
            let len = if self.has(Bug::LongKeysAreCut) { text.len().min(255) } else { text.len() };
            let key = Key::new(&text[..len]).expect("a part of a key is a key");
            match write {
                Write::Put(_, value) => {
                    let mut value = value.clone();
                    if self.has(Bug::ValuesAreText) {
                        value = String::from_utf8_lossy(value.as_bytes()).into_owned().into();
                    }
                    entries.insert(key.clone(), Entry { key, value, version });
                }
                Write::Delete(_) => {
                    entries.remove(&key);
                }
            }
        }
    }

    /// Gives the hints of a commit, if there is anybody to give them to.
    fn ring(&self, commit: &Commit) {
        let mut state = self.lock();
        let Some(hints) = &mut state.hints else {
            return;
        };
        *hints += 1;
        let is_hinted = |write: &&Write| match write {
            Write::Put(..) => !self.has(Bug::HintsAreLost),
            Write::Delete(_) => !self.has(Bug::HintsAreLost) && !self.has(Bug::HintsForgetDeletes),
        };
        self.engine.watchers.notify(&commit.then.iter().filter(is_hinted).map(Write::key));
    }

    /// Loses the connection that watches stand on, and makes it anew.
    fn reconnect(&self) {
        if self.has(Bug::WatchesDieOnReconnect) || self.has(Bug::WatchesAreNotRenewed) {
            self.lock().hints = None;
        }
        if !self.has(Bug::WatchesDieOnReconnect) {
            self.engine.watchers.notify_all();
        }
    }
}

impl Adapter for Mutant {
    fn scan(&self, range: Range, limit: usize) -> Pending<'_, Result<Page, ScanError>> {
        Box::pin(self.scan_one(range, limit))
    }

    fn commit(&self, commit: Commit) -> Pending<'_, Result<Version, CommitError>> {
        Box::pin(self.commit_one(commit))
    }

    fn watch(&self, prefix: &str) -> Hints {
        self.lock().hints.get_or_insert(0);
        self.engine.watchers.watch(prefix)
    }

    fn limits(&self) -> Limits {
        let writes = if self.has(Bug::TooFewWrites) { 7 } else { LIMITS.writes };
        Limits { writes, ..LIMITS }
    }

    fn class(&self) -> Class {
        Class::S
    }

    fn epoch(&self) -> Epoch {
        Epoch("0".into())
    }
}

/// Long enough for whoever else is there to read or to commit in between.
async fn others_go_first() {
    for _ in 0..8 {
        yield_now().await;
    }
}

/// Whether all that it puts is there, whoever wrote it.
fn is_done(commit: &Commit, entries: &Entries) -> bool {
    commit.then.iter().all(|write| match write {
        Write::Put(key, value) => entries.get(key).is_some_and(|entry| entry.value == *value),
        Write::Delete(key) => !entries.contains_key(key),
    })
}

/// What each clause says of a store with this bug, or with none. Each gets a store of its own.
async fn outcomes(bug: Option<Bug>) -> Vec<(&'static str, ClauseOutcome)> {
    let mut outcomes = Vec::new();
    for clause in CLAUSES {
        let engine = Arc::new(Engine::default());
        let client = |client| Mutant { bug, client, engine: Arc::clone(&engine) };
        let connection = client(Client::Other);
        let subject = StoreUnderTest::new(Store::new(client(Client::First)), "scratch/")
            .with_other(Store::new(client(Client::Other)))
            .with_reconnect(move || connection.reconnect());
        outcomes.push((clause.name, clause.check(&subject).await));
    }
    outcomes
}

#[tokio::test(start_paused = true)]
async fn a_mutant_without_a_bug_keeps_the_contract() {
    for (clause, outcome) in outcomes(None).await {
        assert_eq!(outcome, ClauseOutcome::Held, "{clause}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_mutant_is_caught_by_the_clause_meant_for_it() {
    let mut missed = Vec::new();
    for (bug, meant, what) in BUGS {
        let outcomes = outcomes(Some(*bug)).await;
        for clause in *meant {
            let caught = outcomes.iter().any(|(name, outcome)| {
                name == clause && matches!(outcome, ClauseOutcome::Violated(_))
            });
            if !caught {
                missed.push(format!("{clause} did not notice {bug:?}: {what}"));
            }
        }
    }
    assert_eq!(missed, Vec::<String>::new());
}

#[test]
fn every_clause_is_meant_for_a_bug_or_out_of_reach_of_one() {
    for clause in CLAUSES {
        let meant = BUGS.iter().any(|(_, meant, _)| meant.contains(&clause.name));
        let out_of_reach = OUT_OF_REACH.iter().any(|(name, _)| *name == clause.name);
        assert!(meant != out_of_reach, "no bug, or a bug and an excuse, for {}", clause.name);
    }
}
