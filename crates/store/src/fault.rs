//! Faults on order: stands between a caller and any adapter, with a script of what goes wrong.
//!
//! Each call takes the next fault of its verb from the script, and passes when there is none. A
//! commit whose answer is Unknown and that lands later waits here until the test lets it land: so a
//! test decides the order of events, and nothing depends on how long anything takes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::{
    Adapter, Class, Commit, CommitError, Epoch, Hints, Limits, Page, Pending, Range, ScanError,
    Store, Version,
};

/// What happens to one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InjectedFault {
    /// Nothing: the call passes.
    Pass,
    /// The request takes this long to arrive.
    SlowRequest(Duration),
    /// The answer takes this long to come back.
    SlowAnswer(Duration),
    /// It never leaves: `Unavailable`.
    Refuse,
    /// It leaves and never arrives: `Unknown`, and nothing is done.
    LoseRequest,
    /// It is done, and the answer is lost: `Unknown`.
    LoseAnswer,
    /// `Unknown`, and it arrives when [`Faulty::land`] says so. A scan treats it as lost.
    LandLater,
}

/// A road to a store, with faults.
pub struct Faulty {
    inner: Arc<dyn Adapter>,
    script: Mutex<FaultScript>,
}

#[derive(Default)]
struct FaultScript {
    commits: VecDeque<InjectedFault>,
    scans: VecDeque<InjectedFault>,
    under_way: VecDeque<Commit>,
}

impl Faulty {
    /// A road to `store` on which all is well, until told otherwise.
    pub fn new(store: &Store) -> Arc<Self> {
        Arc::new(Self { inner: store.adapter(), script: Mutex::default() })
    }

    /// The store at the end of this road.
    pub fn store(self: &Arc<Self>) -> Store {
        Store::shared(Arc::clone(self) as Arc<dyn Adapter>)
    }

    /// The next commits meet these, one each.
    pub fn on_commits(&self, faults: impl IntoIterator<Item = InjectedFault>) {
        self.script.lock().commits.extend(faults);
    }

    /// The next scans meet these, one each.
    pub fn on_scans(&self, faults: impl IntoIterator<Item = InjectedFault>) {
        self.script.lock().scans.extend(faults);
    }

    /// Lets the oldest commit that is still under way arrive, and tells what became of it; nobody
    /// else ever learns. `None` if none is under way.
    pub async fn land(&self) -> Option<Result<Version, CommitError>> {
        let commit = self.script.lock().under_way.pop_front()?;
        Some(self.inner.commit(commit).await)
    }

    async fn faulty_commit(&self, commit: Commit) -> Result<Version, CommitError> {
        let fault = self.script.lock().commits.pop_front().unwrap_or(InjectedFault::Pass);
        match fault {
            InjectedFault::Pass => self.inner.commit(commit).await,
            InjectedFault::SlowRequest(delay) => {
                tokio::time::sleep(delay).await;
                self.inner.commit(commit).await
            }
            InjectedFault::SlowAnswer(delay) => {
                let answer = self.inner.commit(commit).await;
                tokio::time::sleep(delay).await;
                answer
            }
            InjectedFault::Refuse => Err(CommitError::Unavailable("refused by the script".into())),
            InjectedFault::LoseRequest => {
                Err(CommitError::Unknown("the script lost the request".into()))
            }
            InjectedFault::LoseAnswer => {
                let _lost = self.inner.commit(commit).await;
                Err(CommitError::Unknown("the script lost the answer".into()))
            }
            InjectedFault::LandLater => {
                self.script.lock().under_way.push_back(commit);
                Err(CommitError::Unknown("the script holds the request back".into()))
            }
        }
    }

    async fn faulty_scan(&self, range: Range, limit: usize) -> Result<Page, ScanError> {
        let fault = self.script.lock().scans.pop_front().unwrap_or(InjectedFault::Pass);
        match fault {
            InjectedFault::Pass => self.inner.scan(range, limit).await,
            InjectedFault::SlowRequest(delay) => {
                tokio::time::sleep(delay).await;
                self.inner.scan(range, limit).await
            }
            InjectedFault::SlowAnswer(delay) => {
                let answer = self.inner.scan(range, limit).await;
                tokio::time::sleep(delay).await;
                answer
            }
            InjectedFault::Refuse
            | InjectedFault::LoseRequest
            | InjectedFault::LoseAnswer
            | InjectedFault::LandLater => {
                Err(ScanError::Unavailable("refused by the script".into()))
            }
        }
    }
}

impl Adapter for Faulty {
    fn scan(&self, range: Range, limit: usize) -> Pending<'_, Result<Page, ScanError>> {
        Box::pin(self.faulty_scan(range, limit))
    }

    fn commit(&self, commit: Commit) -> Pending<'_, Result<Version, CommitError>> {
        Box::pin(self.faulty_commit(commit))
    }

    fn watch(&self, prefix: &str) -> Hints {
        self.inner.watch(prefix)
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn class(&self) -> Class {
        self.inner.class()
    }

    fn epoch(&self) -> Epoch {
        self.inner.epoch()
    }

    fn behind(&self) -> Option<&dyn Adapter> {
        Some(&*self.inner)
    }
}
