//! The door to the node: how everybody else asks it for something.
//!
//! Whoever has a [`NodeHandle`] can hand in a [`Call`] and wait for its answer, read the store, and look at what
//! the node shows of itself. What the node knows in memory is not reachable from here: answers about
//! triggers and runs come from the store, which every node reads alike.

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use engine::id::{ProjectId, ShardId};
use engine::instant::Instant;
#[cfg(doc)]
use engine::limits::BACKUP_QUIESCE_MAX;
use engine::limits::{OWNER_RETRY_AFTER, OWNER_WAIT_MAX, STORE_TROUBLE_MAX};
use engine::shard::command::{Command, CommandAnswer, Done, Rejection};
use engine::shard::{Note, Put, Quota};
use store::Store;
use store::machine::Machine;
use store::session::NodeId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};

use crate::access::Access;
use crate::event::{Events, Seats};
use crate::idempotency::UnderWay;
use crate::notifier::Notifier;
use crate::peers::{Peers, Place};
use crate::quota::{ShardUsage, UsageByShard};

/// What is asked of the node. Whoever takes a call answers it, or drops its `reply` when it stops.
pub enum Call {
    /// Something for a shard.
    Command {
        /// Which shard.
        shard: ShardId,
        /// What.
        command: Command,
        /// What is written together with it.
        note: Option<Note>,
        /// How much its project may have.
        quota: Option<(ProjectId, Quota)>,
        /// Kept until it is known what became of it, also when nobody waits for the answer any more.
        kept: Option<Kept>,
        /// Where the answer goes, once what it says is durable.
        reply: oneshot::Sender<Result<Done, CallError>>,
    },
    /// The past of a shard is to be kept elsewhere.
    Rewrite {
        /// Which shard.
        shard: ShardId,
        /// What is written, in order, but not as one.
        puts: Vec<Put>,
        /// Where the answer goes, once the last of it is durable.
        reply: oneshot::Sender<Result<Done, CallError>>,
    },
    /// The commits of a shard are to be held back for a moment, so that it can be read.
    Quiesce {
        /// Which shard.
        shard: ShardId,
        /// Where the answer goes, once none is on its way.
        reply: oneshot::Sender<Result<Quiet, CallError>>,
    },
    /// They need not be any longer.
    Release {
        /// The quiesce that is over.
        quiesce: QuiesceId,
    },
    /// What servers have written about limited projects, of every shard, is to be held against what is so.
    Compare {
        /// What was found.
        found: UsageByShard,
        /// Those projects.
        limited: BTreeSet<ProjectId>,
        /// Where the answer goes: what should be written of shards that are run here, and is not.
        reply: oneshot::Sender<Result<Vec<(ShardId, ShardUsage)>, CallError>>,
    },
    /// A person says that the clock is right.
    ConfirmTime {
        /// Where the answer goes.
        reply: oneshot::Sender<Result<(), CallError>>,
    },
}

/// Something that is kept until it is known what became of a command.
pub type Kept = Arc<dyn Any + Send + Sync>;

/// What a command comes with.
#[derive(Default)]
pub struct Bounds {
    /// What is written together with it.
    pub note: Option<Note>,
    /// How much its project may have.
    pub quota: Option<(ProjectId, Quota)>,
    /// Kept until it is known what became of it.
    pub kept: Option<Kept>,
}

/// Names a quiesce, among all of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuiesceId(pub u64);

/// A shard whose commits are held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quiet {
    /// By this quiesce.
    pub quiesce: QuiesceId,
    /// The number of the last commit of its chain, which is durable.
    pub number: u64,
}

/// Holds a shard's commits back until it is dropped, or [`BACKUP_QUIESCE_MAX`] has passed.
#[derive(Debug)]
pub struct QuiescedShard {
    /// What is held.
    pub quiet: Quiet,
    calls: mpsc::Sender<Call>,
}

impl Drop for QuiescedShard {
    fn drop(&mut self) {
        // If there is no room for it, the quiesce ends when its time is over.
        let _ = self.calls.try_send(Call::Release { quiesce: self.quiet.quiesce });
    }
}

/// Why a call was not answered with what was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The shard decided against it.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// Nobody owns the shard now, and nothing was done: try again then.
    #[error("nobody owns this shard at the moment: try again in {retry_after:?}")]
    NoOwner {
        /// After so long.
        retry_after: Duration,
    },
    /// Another server has the shard, and nothing was done: ask that one.
    #[error("the server {node} has this shard: ask that one")]
    Elsewhere {
        /// Which.
        node: NodeId,
        /// Where it is, if it says so.
        url: Option<String>,
    },
    /// The same request was carried out meanwhile: send it again, and be told what came of it.
    #[error("the same request was carried out meanwhile: send it again to be told what came of it")]
    Repeated,
    /// The shard had too much to write, and nothing was done: try again.
    #[error("the shard has too much to write at the moment: try again")]
    Busy,
    /// The store takes nothing, and nothing was done: mend that, and try again.
    #[error("nothing was done, because the store takes nothing at the moment: {0}")]
    Refused(Trouble),
    /// It was handed in and is not written. It will be when the store takes it: look then.
    #[error(
        "it is not done yet, because the store takes nothing at the moment: {0}; look later whether it is"
    )]
    Unwritten(Trouble),
    /// The shard went to another server before it was known what came of it: look, or send it again under the same key.
    #[error(
        "the shard changed hands before this was answered: look first whether it was done, or send it again under the same idempotency key"
    )]
    HandedOver,
    /// This node is stopping: ask another, or try again later. It may have been done.
    #[error("this server is stopping: try again, and look first whether it was done")]
    Stopping,
}

/// Why nothing is written at the moment, as a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// There is no room: make some.
    #[error("{0}")]
    Full(String),
    /// The store is away, or refuses for another reason: look at it.
    #[error("{0}")]
    Closed(String),
}

/// Whether slots are fired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Firing {
    /// They are.
    Going,
    /// They are not, until a person confirms the time.
    Suspended {
        /// Since when.
        since: Instant,
        /// Why, as a sentence.
        why: String,
    },
}

/// What a node shows of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Face {
    /// Whether it fires.
    pub firing: Firing,
    /// Whether it takes calls.
    pub is_ready: bool,
}

/// What does not change while a node lives.
pub struct Facts {
    /// Where everything is kept.
    pub store: Store,
    /// Who may do what.
    pub access: Arc<Access>,
    /// What happened lately.
    pub events: Arc<Events>,
    /// The other servers, and who has which shard.
    pub peers: Arc<Peers>,
    /// Who tells somebody outside what goes wrong among them.
    pub notifier: Notifier,
    /// The clocks and the dice.
    pub machine: Arc<dyn Machine>,
    /// How many shards the cluster has.
    pub shards: u16,
    /// The cluster's id.
    pub cluster: u64,
    /// Writes the metrics as Prometheus reads them.
    pub metrics: Box<dyn Fn() -> String + Send + Sync>,
    /// How long nothing may be claimed yet, because the store may have forgotten what others act on.
    pub quarantine: Box<dyn Fn() -> Duration + Send + Sync>,
    /// Whether this node may act: its store has answered lately.
    pub may_act: Box<dyn Fn() -> bool + Send + Sync>,
}

/// The door. Clones are cheap and lead to the same node.
#[derive(Clone)]
pub struct NodeHandle {
    calls: mpsc::Sender<Call>,
    face: watch::Receiver<Face>,
    trouble: watch::Receiver<Option<Trouble>>,
    facts: Arc<Facts>,
    under_way: Arc<UnderWay>,
    seats: Arc<Seats>,
    guests: Arc<Seats>,
    start: u64,
    backups: Arc<Semaphore>,
}

impl NodeHandle {
    /// A door to whoever takes these calls and shows this face, and this trouble with the store.
    pub fn new(
        facts: Facts,
        calls: mpsc::Sender<Call>,
        face: watch::Receiver<Face>,
        trouble: watch::Receiver<Option<Trouble>>,
    ) -> Self {
        let start = facts.machine.random();
        let (under_way, backups) = (Arc::default(), Arc::new(Semaphore::new(1)));
        let (facts, seats, guests) = (Arc::new(facts), Arc::default(), Arc::default());
        Self { calls, face, trouble, facts, under_way, seats, guests, start, backups }
    }

    /// Tells a shard something. The answer comes when it is durable, or when the store has taken nothing for
    /// a while.
    pub async fn command<T: CommandAnswer>(
        &self,
        shard: ShardId,
        command: Command,
    ) -> Result<T, CallError> {
        self.command_within(shard, command, Bounds::default()).await.map(Done::answer)
    }

    /// The same, within bounds.
    pub async fn command_within(
        &self,
        shard: ShardId,
        command: Command,
        Bounds { note, quota, kept }: Bounds,
    ) -> Result<Done, CallError> {
        if let Some(trouble) = self.trouble.borrow().clone() {
            return Err(CallError::Refused(trouble));
        }
        self.find(shard).await?;
        tokio::select! {
            biased;
            answer = self.ask(|reply| Call::Command { shard, command, note, quota, kept, reply }) => answer,
            trouble = self.lasting_trouble() => Err(CallError::Unwritten(trouble)),
        }
    }

    /// Writes to the past of a shard, in order. The answer comes when the last of it is durable; without
    /// one, any beginning of it may be.
    pub async fn rewrite(&self, shard: ShardId, puts: Vec<Put>) -> Result<(), CallError> {
        self.ask(|reply| Call::Rewrite { shard, puts, reply }).await.map(|_| ())
    }

    /// Holds the commits of a shard back for a moment: what is due is decided, and leaves afterwards.
    pub async fn quiesce(&self, shard: ShardId) -> Result<QuiescedShard, CallError> {
        let quiet = self.quiesce_for_another(shard).await?;
        Ok(QuiescedShard { quiet, calls: self.calls.clone() })
    }

    /// The same, until [`NodeHandle::release`], or [`BACKUP_QUIESCE_MAX`] has passed.
    pub async fn quiesce_for_another(&self, shard: ShardId) -> Result<Quiet, CallError> {
        self.ask(|reply| Call::Quiesce { shard, reply }).await
    }

    /// Ends a quiesce, if it is not over yet.
    pub fn release(&self, quiesce: QuiesceId) {
        // If there is no room for it, the quiesce ends when its time is over.
        let _ = self.calls.try_send(Call::Release { quiesce });
    }

    /// The turn to take a backup, if nobody takes one: one at a time is enough.
    pub fn backup_permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.backups).try_acquire_owned().ok()
    }

    /// Waits for a moment until a shard is run here, and says where it is if it is not.
    pub async fn find(&self, shard: ShardId) -> Result<(), CallError> {
        let (mut served, mut view) = (self.facts.peers.served(), self.facts.peers.follow());
        let mut waiting = self.facts.machine.sleep(OWNER_WAIT_MAX);
        loop {
            if served.borrow_and_update().contains(&shard) {
                return Ok(());
            }
            let place = view.borrow_and_update().place(shard);
            if let Place::There(server) = place {
                return Err(CallError::Elsewhere { node: server.node().clone(), url: server.url });
            }
            tokio::select! {
                biased;
                Ok(()) = served.changed() => {}
                Ok(()) = view.changed() => {}
                () = &mut waiting => {
                    return Err(CallError::NoOwner { retry_after: OWNER_RETRY_AFTER });
                }
            }
        }
    }

    /// Holds what was written about limited projects against what is so, see [`crate::quota`].
    pub(crate) async fn compare(
        &self,
        found: UsageByShard,
        limited: BTreeSet<ProjectId>,
    ) -> Result<Vec<(ShardId, ShardUsage)>, CallError> {
        self.ask(|reply| Call::Compare { found, limited, reply }).await
    }

    /// Says that the clock is right.
    pub async fn confirm_time(&self) -> Result<(), CallError> {
        self.ask(|reply| Call::ConfirmTime { reply }).await
    }

    /// Where everything is kept.
    pub fn store(&self) -> &Store {
        &self.facts.store
    }

    /// Who may do what.
    pub fn access(&self) -> &Arc<Access> {
        &self.facts.access
    }

    /// The other servers, and who has which shard.
    pub fn peers(&self) -> &Arc<Peers> {
        &self.facts.peers
    }

    /// Who tells somebody outside what goes wrong among them.
    pub(crate) fn notifier(&self) -> &Notifier {
        &self.facts.notifier
    }

    /// The clocks and the dice.
    pub fn machine(&self) -> &dyn Machine {
        &*self.facts.machine
    }

    /// What happened lately.
    pub fn events(&self) -> &Events {
        &self.facts.events
    }

    /// A number that tells this start of the server from others.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Waits until the node stops.
    pub async fn stopped(&self) {
        let mut face = self.face.clone();
        // If nobody shows it any more, there is no node.
        let _ = face.wait_for(|face| !face.is_ready).await;
    }

    /// Those who watch.
    pub(crate) fn seats(&self) -> &Arc<Seats> {
        &self.seats
    }

    /// Those who watch the store.
    pub(crate) fn guests(&self) -> &Arc<Seats> {
        &self.guests
    }

    /// How long nothing may be claimed yet.
    pub(crate) fn quarantine(&self) -> Duration {
        (self.facts.quarantine)()
    }

    /// Requests that are under way.
    pub(crate) fn under_way(&self) -> &UnderWay {
        &self.under_way
    }

    /// How many shards there are.
    pub fn shards(&self) -> u16 {
        self.facts.shards
    }

    /// The cluster's id.
    pub fn cluster(&self) -> u64 {
        self.facts.cluster
    }

    /// What the wall clock shows.
    pub fn now(&self) -> Instant {
        let millis = self.facts.machine.wall_us() / 1_000;
        Instant(i64::try_from(millis).unwrap_or(i64::MAX))
    }

    /// A random number.
    pub fn random(&self) -> u64 {
        self.facts.machine.random()
    }

    /// Whether slots are fired.
    pub fn firing(&self) -> Firing {
        self.face.borrow().firing.clone()
    }

    /// Whether the node takes calls.
    pub fn is_ready(&self) -> bool {
        self.face.borrow().is_ready && !self.calls.is_closed() && (self.facts.may_act)()
    }

    /// What there is to measure, as Prometheus reads it.
    pub fn metrics(&self) -> String {
        (self.facts.metrics)()
    }

    /// Waits until the store has taken nothing for a while.
    async fn lasting_trouble(&self) -> Trouble {
        let mut trouble = self.trouble.clone();
        loop {
            if trouble.wait_for(Option::is_some).await.is_err() {
                // Whoever writes has ended: the answer to the call tells.
                return pending().await;
            }
            let mut over = trouble.clone();
            tokio::select! {
                biased;
                () = async { drop(over.wait_for(Option::is_none).await) } => {}
                () = self.facts.machine.sleep(STORE_TROUBLE_MAX) => {}
            }
            if let Some(trouble) = trouble.borrow_and_update().clone() {
                return trouble;
            }
        }
    }

    async fn ask<T>(
        &self,
        call: impl FnOnce(oneshot::Sender<Result<T, CallError>>) -> Call,
    ) -> Result<T, CallError> {
        let (reply, answer) = oneshot::channel();
        self.calls.send(call(reply)).await.map_err(|_| CallError::Stopping)?;
        // A node that goes on has dropped it with the shard.
        let is_stopping = || self.calls.is_closed();
        answer.await.unwrap_or_else(|_| {
            Err(if is_stopping() { CallError::Stopping } else { CallError::HandedOver })
        })
    }
}

impl fmt::Debug for NodeHandle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "NodeHandle({:?})", *self.face.borrow())
    }
}
