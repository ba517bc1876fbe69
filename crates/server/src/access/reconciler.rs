//! The reconciler: carries what the book says into the shards, and clears away what is old.
//!
//! A project is disabled in the book first. It fires nothing from when its shards have it in writing, each with
//! its own instant; telling them is the work of the reconciler of the server that has them, and of nobody else, so that two
//! who switch a project at the same time cannot leave it half on: whoever wrote last in the book wins. What is cut short
//! is done at the next look, and a shard that changes hands is told by its new owner's. Whether all shards of a cluster
//! know stands in the store: [`agreed`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use engine::id::{ProjectId, ShardId};
use engine::limits::{AUDIT_KEPT, IDEMPOTENCY_KEPT};
use engine::shard::command::{Command, Rejection};
use engine::shard::record::{FORMAT, StoppedRecord, stopped};
use store::machine::Machine;
use store::{Commit, CommitError, Range, Store, Version};

use super::audit;
use super::book::{Book, record, record_of};
use super::{Access, BookError};
use crate::handle::{CallError, FiringState, NodeHandle};
use crate::idempotency::{IDEMPOTENCY, IdempotencyRecord};
use crate::node::Component;

/// It looks by itself this often, should a hint be lost.
const LOOK: Duration = Duration::from_secs(1);

/// How soon it tries again what a shard could not do yet.
const AGAIN: Duration = Duration::from_millis(100);

/// How often it looks for what is old.
const SWEEP: Duration = Duration::from_secs(600);

/// The audit ages by the clock for so long after its last line.
const QUIET_MAX: Duration = Duration::from_secs(7 * 86_400);

/// Entries that are looked at, and cleared away, at a time.
const SWEEP_LEN: usize = 256;

pub(crate) struct Reconciler {
    handle: NodeHandle,
    access: Arc<Access>,
    machine: Arc<dyn Machine>,
}

impl Component for Reconciler {
    const NAME: &'static str = "the reconciler";

    async fn run(self) {
        let mut hints = self.handle.store().watch(super::record::ACCESS);
        let mut served = self.handle.peers().served();
        let mut told = ToldShards::default();
        let mut swept: Option<Duration> = None;
        loop {
            if let Err(why) = self.access.refresh().await {
                tracing::warn!(%why, "projects and keys could not be read");
            }
            let book = self.access.book();
            let here = Arc::clone(&served.borrow_and_update());
            told.keep(&book, &here);
            let mut pause = LOOK;
            if self.carry_out(&book, &here, &mut told).await {
                self.access.settled.send_replace(book.version);
            } else {
                pause = AGAIN;
            }
            let now = self.machine.reading().boot;
            if swept.is_none_or(|swept| now.saturating_sub(swept) >= SWEEP) {
                swept = Some(now);
                self.sweep().await;
            }
            tokio::select! {
                biased;
                () = hints.changed() => {}
                Ok(()) = served.changed() => {}
                () = self.machine.sleep(pause) => {}
            }
        }
    }
}

impl Reconciler {
    pub(crate) fn new(
        handle: NodeHandle,
        access: &Arc<Access>,
        machine: &Arc<dyn Machine>,
    ) -> Self {
        Self { handle, access: Arc::clone(access), machine: Arc::clone(machine) }
    }

    /// Tells the shards that are here which projects fire. Whether all of them know now.
    async fn carry_out(
        &self,
        book: &Book,
        here: &BTreeSet<ShardId>,
        told: &mut ToldShards,
    ) -> bool {
        let mut is_done = true;
        for shard in here {
            if told.shards.contains(shard) {
                continue;
            }
            match self.tell(*shard, book).await {
                Ok(true) => {
                    told.shards.insert(*shard);
                }
                Ok(false) => is_done = false,
                Err(why) => {
                    tracing::warn!(%shard, why, "a shard could not be told which projects fire");
                    is_done = false;
                }
            }
        }
        is_done
    }

    async fn tell(&self, shard: ShardId, book: &Book) -> Result<bool, String> {
        let silent = silent(self.handle.store(), shard).await.map_err(|why| why.to_string())?;
        let mut is_done = true;
        for (_, project) in book.projects() {
            let (id, fires) = (project.id, book.fires(project));
            let command = match (fires, silent.contains(&id)) {
                (true, true) => Command::Enable { project: id },
                (false, false) => Command::Disable { project: id },
                (true, false) | (false, true) => continue,
            };
            match self.handle.command(shard, command).await {
                Ok(()) => {}
                // Its triggers are not up to date since it was last enabled: that is soon over.
                Err(CallError::Rejected(Rejection::ProjectIsEnabling)) => is_done = false,
                // It is another server's now, which tells it.
                Err(
                    CallError::Elsewhere { .. } | CallError::NoOwner { .. } | CallError::HandedOver,
                ) => return Ok(false),
                Err(why) => return Err(why.to_string()),
            }
        }
        Ok(is_done)
    }

    /// Clears away what is too old. While nobody knows what time it is, nothing is too old. A line of the audit ages by
    /// the lines written after it, so a clock that is far ahead makes nothing old by itself.
    async fn sweep(&self) {
        if self.handle.firing() != FiringState::Going {
            return;
        }
        let now = self.access.now();
        let old_idempotency = now.before(IDEMPOTENCY_KEPT);
        let swept = async {
            let newest = audit::newest(self.handle.store()).await.map_err(|why| why.to_string())?;
            let now = newest.map_or(now, |newest| now.min(newest.after(QUIET_MAX)));
            let old_audit = audit::until(now.before(AUDIT_KEPT));
            sweep(self.handle.store(), old_audit, |_| true).await?;
            sweep(self.handle.store(), Range::prefix(IDEMPOTENCY), |entry| {
                record::<IdempotencyRecord>(entry)
                    .is_ok_and(|idempotency| idempotency.at < old_idempotency)
            })
            .await
        };
        if let Err(why) = swept.await {
            tracing::warn!(why, "what is old could not be cleared away");
        }
    }
}

/// The shards that know which projects fire, by one book.
#[derive(Default)]
struct ToldShards {
    book: Option<Version>,
    shards: BTreeSet<ShardId>,
}

impl ToldShards {
    /// Forgets what another book said, and shards that have gone.
    fn keep(&mut self, book: &Book, here: &BTreeSet<ShardId>) {
        if std::mem::replace(&mut self.book, book.version) != book.version {
            self.shards.clear();
        }
        self.shards.retain(|shard| here.contains(shard));
    }
}

/// Waits until the shards that other servers have do as the book says, by what stands in the store.
pub(crate) async fn agreed(handle: &NodeHandle) {
    let served = Arc::clone(&handle.peers().served().borrow());
    let shards = (0..handle.shards()).map(ShardId);
    let mut left: Vec<ShardId> = shards.filter(|shard| !served.contains(shard)).collect();
    loop {
        let book = handle.access().book();
        let mut waiting = Vec::new();
        for shard in left {
            let silent = silent(handle.store(), shard).await;
            if !silent.is_ok_and(|silent| agrees(&silent, &book)) {
                waiting.push(shard);
            }
        }
        if waiting.is_empty() {
            return;
        }
        left = waiting;
        handle.machine().sleep(AGAIN).await;
    }
}

/// Whether a shard fires what the book says, and nothing else.
fn agrees(silent: &BTreeSet<ProjectId>, book: &Book) -> bool {
    book.projects().all(|(_, project)| book.fires(project) != silent.contains(&project.id))
}

/// Projects of which a shard fires nothing.
async fn silent(store: &Store, shard: ShardId) -> Result<BTreeSet<ProjectId>, BookError> {
    let mut found = BTreeSet::new();
    for entry in store.scan_all(Range::prefix(&stopped(shard))).await? {
        let project = entry.key.as_str().rsplit('/').next().and_then(|id| id.parse().ok());
        if let Some(project) = project
            && record_of::<StoppedRecord>(&entry, FORMAT)?.enabled.is_none()
        {
            found.insert(ProjectId(project));
        }
    }
    Ok(found)
}

/// Deletes what is old, some at a time, each only if nobody wrote it meanwhile.
async fn sweep(
    store: &Store,
    range: Range,
    is_old: impl Fn(&store::Entry) -> bool,
) -> Result<(), String> {
    let limit = SWEEP_LEN.min(store.limits().writes);
    let mut pages = store.pages(range, limit);
    while let Some(entries) = pages.next().await.map_err(|why| why.to_string())? {
        let mut commit = Commit::new();
        for entry in entries.iter().filter(|entry| is_old(entry)) {
            commit = commit
                .when(store::Condition::At(entry.key.clone(), entry.version))
                .delete(entry.key.clone());
        }
        if !commit.is_empty() {
            match store.commit(commit).await {
                // Another server is at it: what it leaves is found the next time.
                Ok(_) | Err(CommitError::Conflict(_)) => {}
                Err(why) => return Err(why.to_string()),
            }
        }
    }
    Ok(())
}
