//! `etcd`: a store on an etcd cluster.
//!
//! A commit is one transaction that compares mod revisions, and its version is the revision that it makes. A
//! scan is a linearizable range read. Hints come from one watch. Leases of etcd are not used: who may act is
//! decided by sessions, on the observer's clock.
//!
//! - `option`, `open`, `full`: from the URL to an etcd that can be relied on, or a sentence that says why not;
//! - `member`, `request`, `call`, `failure`: which member is asked, for how long, and what an error proves;
//! - `epoch`: whether an answer speaks of the store that we know;
//! - `space`, `commit`, `scan`, `hint`: keys and the three verbs;
//! - `compaction`: compaction and what there is to know.

mod call;
mod commit;
mod compaction;
mod epoch;
mod failure;
mod full;
mod hint;
mod member;
mod open;
mod option;
mod request;
mod scan;
mod space;

use std::sync::Arc;

use engine::limits::STORE_ANSWER_MAX;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;

use self::call::EtcdHandle;
use self::compaction::SharedStatus;
use self::epoch::EtcdEpochs;
use self::option::EtcdOptions;
use self::request::Transaction;
use self::space::Space;
use crate::{
    Adapter, Address, Class, Commit, CommitError, Epoch, Hints, Limits, OpenError, Page, Pending,
    Range, ScanError, Store, Version, Watchers,
};

/// What fits into a transaction with the default limits of etcd: 128 operations, of which one is the tick, and
/// requests of 1.5 MiB, in which keys of conditions stand twice and every key has its prefix.
const LIMITS: Limits =
    Limits { writes: 127, commit_bytes: 5 * 256 * 1024, value_bytes: 1024 * 1024 };

/// Largest answer that is taken.
const MESSAGE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A store on etcd. Its work in the background ends with it.
pub struct EtcdStore {
    at: Address,
    etcd: Arc<EtcdHandle>,
    status: Arc<SharedStatus>,
    /// Somebody wants hints.
    wanted: Arc<Notify>,
    _tasks: JoinSet<()>,
}

impl EtcdStore {
    /// Connects, and makes sure that the engine can be relied on.
    pub async fn open(at: &Address) -> Result<Store, OpenError> {
        let setting = EtcdOptions::read(at)?;
        let greeting = open::greet(at, &setting).await?;
        let etcd = Arc::new(EtcdHandle {
            members: greeting.members,
            epochs: EtcdEpochs::new(greeting.origin),
            space: Space::new(setting.prefix),
            watchers: Watchers::default(),
        });
        let status = Arc::new(SharedStatus::new(greeting.state, setting.compact));
        let wanted = Arc::new(Notify::new());
        let mut tasks = JoinSet::new();
        tasks.spawn(hint::listen(Arc::clone(&etcd), Arc::clone(&wanted)));
        tasks.spawn(compaction::keep(Arc::clone(&etcd), Arc::clone(&status)));
        Ok(Store::new(Self { at: at.clone(), etcd, status, wanted, _tasks: tasks }))
    }

    async fn commit_one(&self, commit: Commit) -> Result<Version, CommitError> {
        let transaction = commit::transaction(&self.etcd.space, &commit);
        match self.etcd.call(Transaction(transaction)).await {
            Ok(answer) => commit::outcome(&commit, &answer),
            Err(why) => Err(why.of_commit(|| self.place())),
        }
    }

    /// Where there is no room, and what to do about it.
    fn place(&self) -> String {
        let typed = full::what_to_type(&self.at, Some(self.etcd.epochs.revision()));
        format!("{} (alarm NOSPACE; {typed})", self.at)
    }
}

impl Adapter for EtcdStore {
    fn scan(&self, range: Range, limit: usize) -> Pending<'_, Result<Page, ScanError>> {
        Box::pin(async move {
            let page = timeout(STORE_ANSWER_MAX, scan::page(&self.etcd, range, limit)).await;
            page.unwrap_or_else(|_| Err(ScanError::Unavailable("it took too long".to_owned())))
        })
    }

    fn commit(&self, commit: Commit) -> Pending<'_, Result<Version, CommitError>> {
        Box::pin(self.commit_one(commit))
    }

    fn watch(&self, prefix: &str) -> Hints {
        self.wanted.notify_one();
        self.etcd.watchers.watch(prefix)
    }

    fn limits(&self) -> Limits {
        LIMITS
    }

    fn class(&self) -> Class {
        self.status.class()
    }

    fn epoch(&self) -> Epoch {
        self.etcd.epochs.epoch()
    }

    fn room(&self) -> Option<u64> {
        Some(self.status.room())
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        self.status.facts()
    }
}
