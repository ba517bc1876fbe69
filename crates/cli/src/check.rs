//! `watchbell store check`: is this store whole, does it keep its promises, and how fast is it?
//!
//! What the check writes lies below a prefix that it claims for itself, and is removed whatever
//! comes of it: all promises kept, one broken, or the person at the keyboard out of patience.

use std::io::{self, Write};
use std::process;
use std::time::Duration;

use engine::limits::{CHECK_PREFIXES_MAX, PAGE_ENTRIES_MAX};
use store::conformance::{self, CLAUSES, StoreUnderTest};
use store::{Commit, CommitError, Condition, Key, Range, ScanError, Store, StoreUrl, speed};

use tokio::signal::unix::{SignalKind, signal};

use crate::args::OutputFormat;
use crate::exit::Ending;
use crate::progress::Progress;
use crate::report::{Contents, Examined, Measured, StoreReport, Work};

/// What is measured: how long one must wait, how much many get done, and how long reading takes.
/// The scans read what the commits wrote.
const WORKS: [Work; 3] = [Work::Commits { writers: 1 }, Work::Commits { writers: 64 }, Work::Scans];

pub(crate) async fn check(
    url: &StoreUrl,
    measure_for: Option<Duration>,
    output: OutputFormat,
) -> Result<(), Ending> {
    let store = store::open_or_create(url).await?;
    sweep_dead_checks(url, &store).await?;
    let report = examine(&store, measure_for).await?;
    let text = match output {
        OutputFormat::Table => report.table(),
        OutputFormat::Json => report.json(),
    };
    let written = io::stdout().write_all(text.as_bytes());
    // A reader that has had enough does not make a broken promise whole.
    report.verdict()?;
    Ok(written?)
}

/// Removes what former checks left that were killed. Only where this process has the store for
/// itself: elsewhere they may be alive.
async fn sweep_dead_checks(url: &StoreUrl, store: &Store) -> Result<(), Ending> {
    match url {
        StoreUrl::File(_) => match conformance::sweep(store, "scratch/").await {
            Ok(_) => Ok(()),
            Err(violation) => Err(Ending::of_cause(&violation)
                .unwrap_or_else(|| Ending::failed(violation.to_string()))),
        },
        _ => Ok(()),
    }
}

async fn examine(store: &Store, measure_for: Option<Duration>) -> Result<StoreReport, Ending> {
    let progress = Progress::on_stderr();
    let contents = read_everything(store, &progress).await?;
    let scratch = Scratch::claim(store).await?;
    let tried = unless_interrupted(async {
        let clauses = try_clauses(store, &scratch, &progress).await;
        let speeds = match measure_for {
            Some(duration) => measure_all(store, &scratch, duration, &progress).await,
            None => Vec::new(),
        };
        (clauses, speeds)
    })
    .await;
    progress.show("removing what the check wrote");
    let left = scratch.sweep(store).await.err();
    let Some((clauses, speeds)) = tried else {
        let left = left.unwrap_or_else(|| "what it wrote is removed".into());
        return Err(Ending::failed(format!("the check was interrupted, and {left}")));
    };
    let (class, epoch, limits) = (store.class(), store.epoch(), store.limits());
    let facts = store.facts();
    Ok(StoreReport { class, epoch, limits, facts, contents, clauses, speeds, left })
}

/// Damage anywhere shows once everything was read.
async fn read_everything(store: &Store, progress: &Progress) -> Result<Contents, ScanError> {
    let mut contents = Contents::default();
    // Through a server there is nothing else to read.
    let whole = if store.guest().is_some() { Range::prefix("scratch/") } else { Range::all() };
    let mut pages = store.pages(whole, PAGE_ENTRIES_MAX);
    while let Some(entries) = pages.next().await? {
        for entry in &entries {
            contents.add(entry);
        }
        progress.show(format_args!("reading everything: {} entries", contents.entries));
    }
    Ok(contents)
}

async fn try_clauses(store: &Store, scratch: &Scratch, progress: &Progress) -> Vec<Examined> {
    let subject = StoreUnderTest::new(store.clone(), scratch.below("clause/"));
    let mut examined = Vec::with_capacity(CLAUSES.len());
    for (number, clause) in (1..).zip(CLAUSES) {
        progress.show(format_args!("clause {number} of {}: {}", CLAUSES.len(), clause.name));
        let outcome = clause.check(&subject).await;
        examined.push(Examined { clause, outcome });
    }
    examined
}

async fn measure_all(
    store: &Store,
    scratch: &Scratch,
    duration: Duration,
    progress: &Progress,
) -> Vec<Measured> {
    let prefix = scratch.below("speed/");
    let mut measured = Vec::with_capacity(WORKS.len());
    for work in WORKS {
        progress.show(format_args!("measuring for {} s: {work}", duration.as_secs()));
        let speed = match work {
            Work::Commits { writers } => speed::commits(store, &prefix, writers, duration).await,
            Work::Scans => speed::scans(store, &prefix, duration).await,
        };
        measured.push(Measured { work, speed });
    }
    measured
}

/// What `future` comes to, unless Ctrl-C or SIGTERM comes first.
pub(crate) async fn unless_interrupted<T>(future: impl Future<Output = T>) -> Option<T> {
    let terminated = async {
        match signal(SignalKind::terminate()) {
            Ok(mut signals) => signals.recv().await,
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        outcome = future => Some(outcome),
        Ok(()) = tokio::signal::ctrl_c() => None,
        Some(()) = terminated => None,
    }
}

/// A prefix that this check has for itself.
struct Scratch {
    prefix: String,
}

impl Scratch {
    /// Claims the first one that nobody has, not even a former check that was killed.
    async fn claim(store: &Store) -> Result<Self, Ending> {
        let id = process::id();
        for number in 0..CHECK_PREFIXES_MAX {
            let scratch = Self { prefix: format!("scratch/{id}-{number}/") };
            let owner = scratch.owner();
            let claim =
                Commit::new().when(Condition::Absent(owner.clone())).put(owner, id.to_string());
            match store.commit(claim).await {
                Ok(_) => return Ok(scratch),
                Err(CommitError::Conflict(_)) => {}
                Err(other) => return Err(other.into()),
            }
        }
        Err(Ending::failed(format!(
            "{CHECK_PREFIXES_MAX} checks that were killed left entries below scratch/{id}-: remove them"
        )))
    }

    /// It sorts last, so a sweep removes it last: where it is absent, so is everything else. And as
    /// there is always something to remove, a sweep always commits, behind whatever an interrupted
    /// writer had still under way.
    fn owner(&self) -> Key {
        Key::new(self.below("~owner")).expect("short and printable")
    }

    fn below(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Removes everything; the error says what is left.
    async fn sweep(self, store: &Store) -> Result<(), String> {
        let why = match unless_interrupted(conformance::sweep(store, &self.prefix)).await {
            Some(Ok(_)) => return Ok(()),
            Some(Err(violation)) => violation.to_string(),
            None => "it was interrupted".into(),
        };
        Err(format!("what the check wrote below {} is not all removed: {why}", self.prefix))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::conformance::ClauseOutcome;
    use store::fault::{Faulty, InjectedFault};
    use store::memory::MemoryStore;

    async fn keys(store: &Store) -> Vec<String> {
        let page = store.scan(Range::all(), PAGE_ENTRIES_MAX).await.unwrap();
        page.entries.into_iter().map(|entry| entry.key.to_string()).collect()
    }

    #[tokio::test]
    async fn a_broken_promise_is_a_failure_and_leaves_nothing_behind() {
        let memory = Store::new(MemoryStore::new());
        let road = Faulty::new(&memory);
        // The claim arrives; the first commit of the first clause does not.
        road.on_commits([InjectedFault::Pass, InjectedFault::Refuse]);
        let report = examine(&road.store(), None).await.unwrap();
        assert!(matches!(report.clauses[0].outcome, ClauseOutcome::Violated(_)));
        assert!(!matches!(report.clauses[1].outcome, ClauseOutcome::Violated(_)));
        assert!(report.table().contains("VIOLATED"), "{}", report.table());
        let said = format!("1 of {} clauses is violated", CLAUSES.len());
        let said = format!("{said}: do not run Watchbell on this store");
        assert_eq!(report.verdict(), Err(Ending::failed(said)));
        assert_eq!(keys(&memory).await, Vec::<String>::new());
    }

    #[tokio::test]
    async fn a_scratch_that_somebody_has_is_left_alone() {
        let store = Store::new(MemoryStore::new());
        let first = Scratch::claim(&store).await.unwrap();
        let second = Scratch::claim(&store).await.unwrap();
        assert_ne!(first.prefix, second.prefix);
        second.sweep(&store).await.unwrap();
        assert_eq!(keys(&store).await, [first.owner().to_string()]);
    }
}
