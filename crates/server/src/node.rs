//! The node: a session, the shards that it owns, and the threads that serve them.
//!
//! ```text
//! NodeHandle ─calls─▶ core ─orders─▶ committer ─▶ store
//!                │  ◀─written──┘
//!                └─calls─▶ dispatcher ─▶ receivers
//!                   ◀─results─┘
//! assigner ─shards─▶ core: takes what this node should have, hands over what another should
//! historian: merges the past into pages, through the handle
//! ```
//!
//! A node opens a session, claims the shards that it should have (`assign`), reads each one and hands it to the core,
//! which is a thread of its own: nothing that a request or a slow store does keeps it from its clocks. The session is
//! renewed only while the node has moved lately, so one that is stuck loses its work instead of keeping it; see `liveness`.
//! A component that panics ends the node: see [`RunningNode::ended`]. Stopping is ordered: shards are handed over if
//! there is anybody ([`RunningNode::drain`], `handover`), nothing new fires, what is under way ends or is written down
//! as being so, all that was decided is written, and then the session is closed, which frees everything at once.

mod assign;
mod backpressure;
mod call;
mod cluster;
mod committer;
mod component;
mod core;
mod counted;
mod drain;
mod executor;
mod handover;
mod historian;
mod liveness;
mod log;
mod membership;
mod quiesce;
mod quota;
mod report;
mod shard_reader;
mod start;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use engine::id::ShardId;
use engine::instant::Instant;
use engine::shard::Now;
use engine::webhook::Webhook;
use store::backup::UnfinishedRestore;
use store::election::Defeat;
use store::machine::Machine;
use store::session::{BadNodeId, Session, SessionError};
use store::{CommitError, Epoch, ScanError, Store};
use tokio::sync::{oneshot, watch};

pub use component::{Component, StopOrder};
pub use executor::{Executor, SimulatedSender};
pub use historian::HistoryPace;
pub use shard_reader::ShardReadError;

use self::assign::StartOutcome;
use self::component::Components;
use crate::access::book::BookError;
use crate::handle::NodeHandle;
use crate::peers::Peers;
use crate::webhook::{self, Cidr};

/// How a node works.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// Its id, which no other node of the cluster has.
    pub id: String,
    /// The URL under which others reach it.
    pub url: Option<String>,
    /// Its roles: see [`crate::peers::ROLES`].
    pub roles: Vec<String>,
    /// How long it may act after a renewal of its session.
    pub ttl: Duration,
    /// Ranges that webhooks may call although they are not public.
    pub webhook_allow: Vec<Cidr>,
    /// A PEM file with further issuers that webhooks trust.
    pub webhook_ca: Option<std::path::PathBuf>,
    /// The webhook that is told what goes wrong among the servers, if there is one.
    pub notify: Option<Webhook>,
    /// When the past is merged into pages.
    pub history: HistoryPace,
    /// How many shards a new cluster has; none, if that does not matter.
    pub shards: Option<u16>,
}

/// Why a node does not start. Each sentence says what to do.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the sentences are the documentation of each field")]
pub enum NodeStartError {
    /// Give it another id.
    #[error(transparent)]
    Id(#[from] BadNodeId),
    /// Look at the session.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// Have a person look.
    #[error("the store is damaged: {0}")]
    Corrupt(String),
    /// The store could not be read: try again.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// Look at the store.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// Finish the restore.
    #[error(transparent)]
    Unfinished(#[from] UnfinishedRestore),
    /// Ask for as many as there are.
    #[error(
        "the cluster has {found} shards, which was fixed when it first started, and {wanted} are asked for: leave --shards out"
    )]
    Shards { found: u16, wanted: u16 },
    /// Have a person look, or upgrade.
    #[error("shard {shard} cannot be read: {why}")]
    Read { shard: ShardId, why: ShardReadError },
    /// Look at the store, or wait for the session.
    #[error("shard {shard} was not to be had: {why}")]
    Claim { shard: ShardId, why: Defeat },
    /// Have a person look, or upgrade.
    #[error(transparent)]
    Book(#[from] BookError),
    /// Look at the file, or allow more threads.
    #[error(transparent)]
    Webhooks(#[from] webhook::StartError),
    /// The component of this name panicked: start it again, and report that.
    #[error("{0} has panicked, which is a bug: start it again, and report what it said before")]
    Broken(&'static str),
    /// Allow this process more threads.
    #[error("cannot start a thread: {0}; raise this process's limit of threads")]
    Thread(#[from] io::Error),
}

/// What ended a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeEnd {
    /// Its session was lost, and with it the right to act: another node may be started in its place.
    Session,
    /// The store may have forgotten what was claimed: another node may be started as well.
    Epoch,
    /// The component of this name panicked.
    Broken(&'static str),
}

/// What a node leaves to the next one in the same process.
pub struct FormerNode {
    session: Session,
    cluster: u64,
    peers: Arc<Peers>,
}

/// A node that runs.
pub struct RunningNode {
    cluster: u64,
    session: Session,
    /// The epoch of the store in which it claimed its shards.
    epoch: Epoch,
    peers: Arc<Peers>,
    /// How many attempts of shards that were handed over are under way.
    handed_over: watch::Receiver<usize>,
    stop: watch::Sender<Stop>,
    components: Components,
}

/// How a node is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// The node goes on.
    No,
    /// In order: what is decided is written.
    InOrder,
    /// At once: nothing that it could write would count.
    AtOnce,
}

impl RunningNode {
    /// Starts a node on a store, after another one of this process that has ended, if there was one: it fires from here on.
    pub async fn start(
        former: Option<&FormerNode>,
        store: Store,
        machine: Arc<dyn Machine>,
        config: &NodeConfig,
    ) -> Result<(Self, NodeHandle), NodeStartError> {
        Self::start_by(&Executor::Threads, former, store, machine, config).await
    }

    /// Waits until this node has the shards that it should have at first.
    async fn begun(self, started: oneshot::Receiver<StartOutcome>) -> Result<Self, NodeStartError> {
        let why = tokio::select! {
            biased;
            Ok(begun) = started => match begun {
                Ok(()) => return Ok(self),
                Err(why) => why,
            },
            component = self.components.alarm().rung() => NodeStartError::Broken(component),
            end = self.session.ended() => {
                NodeStartError::Claim { shard: ShardId(0), why: Defeat::Ended(end) }
            }
        };
        self.abandon().await;
        Err(why)
    }

    /// Waits for the end of this node, and tells what it was. All that is left to do then is to stop it.
    pub async fn ended(&self) -> NodeEnd {
        tokio::select! {
            biased;
            component = self.components.alarm().rung() => NodeEnd::Broken(component),
            _ = self.session.ended() => NodeEnd::Session,
            () = self.outlived() => NodeEnd::Epoch,
        }
    }

    /// Waits until the store is in another epoch.
    async fn outlived(&self) {
        let (machine, pause) = (self.session.machine(), self.session.ttl().pause());
        while self.session.store().epoch() == self.epoch {
            machine.sleep(pause).await;
        }
    }

    /// What the next node in this process starts from.
    pub fn legacy(&self) -> FormerNode {
        let peers = Arc::clone(&self.peers);
        FormerNode { session: self.session.clone(), cluster: self.cluster, peers }
    }

    /// Stops in order, within five seconds.
    pub async fn stop(self) {
        self.end(Stop::InOrder).await;
    }

    /// Stops at once: for a node that has lost the right to write what it has decided.
    pub async fn abandon(self) {
        self.end(Stop::AtOnce).await;
    }

    async fn end(self, how: Stop) {
        let _ = self.stop.send(how);
        self.components.stop(&self.session, how).await;
    }
}

fn now(machine: &dyn Machine) -> Now {
    let wall = Instant(i64::try_from(machine.wall_us() / 1_000).unwrap_or(i64::MAX));
    let steady = u64::try_from(machine.reading().boot.as_millis()).unwrap_or(u64::MAX);
    Now { wall, steady, random: machine.dice() }
}
