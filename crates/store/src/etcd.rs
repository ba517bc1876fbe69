//! `etcd`: a store on an etcd cluster.
//!
//! A commit is one transaction that compares mod revisions, and its version is the revision that it makes. A
//! scan is a linearizable range read. Hints come from one watch. Leases of etcd are not used: who may act is
//! decided by sessions, on the observer's clock.
//!
//! - `setting`, `open`, `full`: from the URL to an etcd that can be relied on, or a sentence that says why not;
//! - `seat`, `question`, `call`, `failure`: which member is asked, for how long, and what an error proves;
//! - `era`: whether an answer speaks of the store that we know;
//! - `space`, `commit`, `scan`, `listen`: keys and the three verbs;
//! - `keeper`: compaction and what there is to know.

mod call;
mod commit;
mod era;
mod failure;
mod full;
mod keeper;
mod listen;
mod open;
mod question;
mod scan;
mod seat;
mod setting;
mod space;

use std::sync::Arc;

use engine::limits::STORE_ANSWER_MAX;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;

use self::call::Reach;
use self::era::Eras;
use self::keeper::Knowledge;
use self::question::Transaction;
use self::setting::Setting;
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
pub struct Etcd {
    at: Address,
    reach: Arc<Reach>,
    knowledge: Arc<Knowledge>,
    /// Somebody wants hints.
    wanted: Arc<Notify>,
    _tasks: JoinSet<()>,
}

impl Etcd {
    /// Connects, and makes sure that the engine can be relied on.
    pub async fn open(at: &Address) -> Result<Store, OpenError> {
        let setting = Setting::read(at)?;
        let greeting = open::greet(at, &setting).await?;
        let reach = Arc::new(Reach {
            seats: greeting.seats,
            eras: Eras::new(greeting.origin),
            space: Space::new(setting.prefix),
            watchers: Watchers::default(),
        });
        let knowledge = Arc::new(Knowledge::new(greeting.state, setting.compact));
        let wanted = Arc::new(Notify::new());
        let mut tasks = JoinSet::new();
        tasks.spawn(listen::listen(Arc::clone(&reach), Arc::clone(&wanted)));
        tasks.spawn(keeper::keep(Arc::clone(&reach), Arc::clone(&knowledge)));
        Ok(Store::new(Self { at: at.clone(), reach, knowledge, wanted, _tasks: tasks }))
    }

    async fn commit_one(&self, commit: Commit) -> Result<Version, CommitError> {
        let transaction = commit::transaction(&self.reach.space, &commit);
        match self.reach.call(Transaction(transaction)).await {
            Ok(answer) => commit::outcome(&commit, &answer),
            Err(why) => Err(why.of_commit(|| self.place())),
        }
    }

    /// Where there is no room, and what to do about it.
    fn place(&self) -> String {
        let typed = full::what_to_type(&self.at, Some(self.reach.eras.revision()));
        format!("{} (alarm NOSPACE; {typed})", self.at)
    }
}

impl Adapter for Etcd {
    fn scan(&self, range: Range, limit: usize) -> Pending<'_, Result<Page, ScanError>> {
        Box::pin(async move {
            let page = timeout(STORE_ANSWER_MAX, scan::page(&self.reach, range, limit)).await;
            page.unwrap_or_else(|_| Err(ScanError::Unavailable("it took too long".to_owned())))
        })
    }

    fn commit(&self, commit: Commit) -> Pending<'_, Result<Version, CommitError>> {
        Box::pin(self.commit_one(commit))
    }

    fn watch(&self, prefix: &str) -> Hints {
        self.wanted.notify_one();
        self.reach.watchers.watch(prefix)
    }

    fn limits(&self) -> Limits {
        LIMITS
    }

    fn class(&self) -> Class {
        self.knowledge.class()
    }

    fn epoch(&self) -> Epoch {
        self.reach.eras.epoch()
    }

    fn room(&self) -> Option<u64> {
        Some(self.knowledge.room())
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        self.knowledge.facts()
    }
}
