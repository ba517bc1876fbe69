//! The door to the node: how everybody else asks it for something.
//!
//! Whoever has a [`Desk`] can hand in a [`Call`] and wait for its answer, read the store, and look at what
//! the node shows of itself. What the node knows in memory is not reachable from here: answers about
//! triggers and runs come from the store, which every node reads alike.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use engine::id::ShardId;
use engine::instant::Instant;
use engine::shard::Put;
use engine::shard::command::{Command, Done, Rejection};
use store::Store;
use store::machine::Machine;
use tokio::sync::{mpsc, oneshot, watch};

/// What is asked of the node. Whoever takes a call answers it, or drops its `reply` when it stops.
#[derive(Debug)]
pub enum Call {
    /// Something for a shard.
    Command {
        /// Which shard.
        shard: ShardId,
        /// What.
        command: Command,
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
    /// A person says that the clock is right.
    ConfirmTime {
        /// Where the answer goes.
        reply: oneshot::Sender<Result<(), CallError>>,
    },
}

/// Why a call was not answered with what was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The shard decided against it.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// Nobody owns the shard now: try again then.
    #[error("nobody owns this shard at the moment: try again in {retry_after:?}")]
    NoOwner {
        /// After so long.
        retry_after: Duration,
    },
    /// This node is stopping: ask another, or try again later. It may have been done.
    #[error("this server is stopping: try again, and look first whether it was done")]
    Stopping,
}

/// Whether slots are fired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Firing {
    /// They are.
    Going,
    /// They are not, until a person confirms the time.
    Held {
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
    /// The clocks and the dice.
    pub machine: Arc<dyn Machine>,
    /// How many shards the cluster has.
    pub shards: u16,
    /// The cluster's id.
    pub cluster: u64,
    /// Writes the metrics as Prometheus reads them.
    pub metrics: Box<dyn Fn() -> String + Send + Sync>,
}

/// The door. Clones are cheap and lead to the same node.
#[derive(Clone)]
pub struct Desk {
    calls: mpsc::Sender<Call>,
    face: watch::Receiver<Face>,
    facts: Arc<Facts>,
}

impl Desk {
    /// A door to whoever takes these calls and shows this face.
    pub fn new(facts: Facts, calls: mpsc::Sender<Call>, face: watch::Receiver<Face>) -> Self {
        Self { calls, face, facts: Arc::new(facts) }
    }

    /// Tells a shard something. The answer comes when it is durable.
    pub async fn command(&self, shard: ShardId, command: Command) -> Result<Done, CallError> {
        self.ask(|reply| Call::Command { shard, command, reply }).await
    }

    /// Writes to the past of a shard, in order. The answer comes when the last of it is durable; without
    /// one, any beginning of it may be.
    pub async fn rewrite(&self, shard: ShardId, puts: Vec<Put>) -> Result<(), CallError> {
        self.ask(|reply| Call::Rewrite { shard, puts, reply }).await.map(|_| ())
    }

    /// Says that the clock is right.
    pub async fn confirm_time(&self) -> Result<(), CallError> {
        self.ask(|reply| Call::ConfirmTime { reply }).await
    }

    /// Where everything is kept.
    pub fn store(&self) -> &Store {
        &self.facts.store
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
        self.face.borrow().is_ready && !self.calls.is_closed()
    }

    /// What there is to measure, as Prometheus reads it.
    pub fn metrics(&self) -> String {
        (self.facts.metrics)()
    }

    async fn ask<T>(
        &self,
        call: impl FnOnce(oneshot::Sender<Result<T, CallError>>) -> Call,
    ) -> Result<T, CallError> {
        let (reply, answer) = oneshot::channel();
        self.calls.send(call(reply)).await.map_err(|_| CallError::Stopping)?;
        answer.await.unwrap_or(Err(CallError::Stopping))
    }
}

impl fmt::Debug for Desk {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Desk({:?})", *self.face.borrow())
    }
}
