//! The node handle: how everybody else asks a node for something.
//!
//! Whoever has a [`NodeHandle`] can hand in a [`NodeCall`] and wait for its answer, read the store, and look at what
//! the node shows of itself. What the node knows in memory is not reachable from here: answers about
//! triggers and runs come from the store, which every node reads alike.
//!
//! - `call`: what may be asked, and why it was not answered

mod call;

use std::collections::BTreeSet;
use std::fmt;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use engine::id::{ProjectId, ShardId};
use engine::instant::Instant;
#[cfg(doc)]
use engine::limits::BACKUP_QUIESCE_MAX;
use engine::limits::{CENSUS_TIME_MAX, OWNER_RETRY_AFTER, OWNER_WAIT_MAX, STORE_TROUBLE_MAX};
use engine::shard::command::{Command, CommandAnswer, Done};
use engine::shard::{Put, ShardAnswer, Ticket};
use store::Store;
use store::machine::Machine;
use store::ring::Rings;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};

pub use self::call::{
    CallError, CommandGuard, CommandOptions, NodeCall, QuiesceId, QuiescePoint, ShardAsk,
    WriteTrouble,
};
use crate::access::Access;
use crate::api::WaitingClaims;
use crate::event::{EventLog, WatcherSeats};
use crate::follower::OutputFollowers;
use crate::idempotency::RequestsUnderWay;
use crate::notifier::Notifier;
use crate::peers::{Peers, ShardLocation};
use crate::shard_usage::{ShardUsage, UsageByShard};

/// Holds a shard's commits back until it is dropped, or [`BACKUP_QUIESCE_MAX`] has passed.
#[derive(Debug)]
pub struct QuiesceGuard {
    /// Where the shard's chain stands meanwhile.
    pub point: QuiescePoint,
    handle: NodeHandle,
}

impl Drop for QuiesceGuard {
    fn drop(&mut self) {
        self.handle.release(self.point.quiesce);
    }
}

/// Whether slots are fired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FiringState {
    /// Slots are fired.
    Going,
    /// No slot is fired until a person confirms the time.
    Suspended {
        /// When the suspension began.
        since: Instant,
        /// The reason, as a sentence.
        why: String,
    },
}

/// What a node shows of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeStatus {
    /// Whether the node fires slots.
    pub firing: FiringState,
    /// Whether the node takes calls.
    pub is_ready: bool,
}

/// What does not change while a node lives.
pub struct NodeContext {
    /// Where everything is kept.
    pub store: Store,
    /// Who may do what.
    pub access: Arc<Access>,
    /// What happened lately.
    pub events: Arc<EventLog>,
    /// Who is told what runs print.
    pub followers: Arc<OutputFollowers>,
    /// The other servers, and who has which shard.
    pub peers: Arc<Peers>,
    /// Tells somebody outside what goes wrong among the servers.
    pub notifier: Notifier,
    /// The node's part in rings, if it has one.
    pub rings: Option<Rings>,
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

/// How to ask a node for something. Clones are cheap and lead to the same node.
#[derive(Clone)]
pub struct NodeHandle {
    shared: Arc<HandleShared>,
}

/// What all clones of a handle share: every request has several.
struct HandleShared {
    calls: mpsc::Sender<NodeCall>,
    status: watch::Receiver<NodeStatus>,
    trouble: watch::Receiver<Option<WriteTrouble>>,
    context: NodeContext,
    under_way: Arc<RequestsUnderWay>,
    seats: Arc<WatcherSeats>,
    guests: Arc<WatcherSeats>,
    follower_seats: Arc<WatcherSeats>,
    ring_seats: Arc<WatcherSeats>,
    waiting_claims: Arc<WaitingClaims>,
    start: u64,
    backups: Arc<Semaphore>,
    last_ask: AtomicU64,
}

/// Tickets of those who ask a shard's memory: the core draws none of these.
const ASK_TICKETS: u64 = 1 << 63;

/// A question to a shard that is under way. Whoever drops it waits no more.
pub struct AskGuard {
    handle: NodeHandle,
    shard: ShardId,
    ticket: Ticket,
    stop: Notify,
    is_answered: AtomicBool,
}

impl AskGuard {
    /// Lets a worker that waits be answered now, also if its question is still on its way: the shard is told behind it.
    pub fn stop_waiting(&self) {
        self.stop.notify_one();
    }
}

impl Drop for AskGuard {
    fn drop(&mut self) {
        if !*self.is_answered.get_mut() {
            let (shard, ticket) = (self.shard, self.ticket);
            // If there is no room for it, the claim ends when its time is over.
            let _ = self.handle.shared.calls.try_send(NodeCall::StopWaiting { shard, ticket });
        }
    }
}

impl NodeHandle {
    /// A handle of the node that takes these calls and shows its status and its trouble with the store.
    pub fn new(
        context: NodeContext,
        calls: mpsc::Sender<NodeCall>,
        status: watch::Receiver<NodeStatus>,
        trouble: watch::Receiver<Option<WriteTrouble>>,
    ) -> Self {
        let start = context.machine.random();
        let (under_way, backups) = (Arc::default(), Arc::new(Semaphore::new(1)));
        let (seats, guests) = (Arc::default(), Arc::default());
        let last_ask = AtomicU64::new(ASK_TICKETS);
        let (follower_seats, ring_seats) = (Arc::default(), Arc::default());
        let waiting_claims = Arc::default();
        let shared = HandleShared {
            calls,
            status,
            trouble,
            context,
            under_way,
            seats,
            guests,
            follower_seats,
            ring_seats,
            waiting_claims,
            start,
            backups,
            last_ask,
        };
        Self { shared: Arc::new(shared) }
    }

    /// A ticket for a question to a shard.
    pub fn ask_guard(&self, shard: ShardId) -> AskGuard {
        let ticket = Ticket(self.shared.last_ask.fetch_add(1, Ordering::Relaxed));
        let (stop, is_answered) = (Notify::new(), AtomicBool::new(false));
        AskGuard { handle: self.clone(), shard, ticket, stop, is_answered }
    }

    /// Asks a shard of this node something that it answers from memory.
    pub async fn ask_shard(
        &self,
        guard: &AskGuard,
        ask: ShardAsk,
    ) -> Result<ShardAnswer, CallError> {
        let AskGuard { shard, ticket, .. } = *guard;
        if let Some(trouble) = self.shared.trouble.borrow().clone() {
            return Err(CallError::Refused(trouble));
        }
        self.find(shard).await?;
        let asked = async {
            let call = |reply| NodeCall::Ask { shard, ask, ticket, reply };
            let mut answer = pin!(self.send(call).await?);
            loop {
                tokio::select! {
                    biased;
                    answer = &mut answer => return answer,
                    () = guard.stop.notified() => {
                        let stop = NodeCall::StopWaiting { shard, ticket };
                        // A node that takes none ends, which the answer tells.
                        let _ = self.shared.calls.send(stop).await;
                    }
                }
            }
        };
        let answer = tokio::select! {
            biased;
            answer = asked => answer,
            trouble = self.lasting_trouble() => Err(CallError::Unwritten(trouble)),
        };
        guard.is_answered.fetch_or(answer.is_ok(), Ordering::Relaxed);
        answer
    }

    /// Tells a shard something. The answer comes when it is durable, or when the store has taken nothing for
    /// a while.
    pub async fn command<T: CommandAnswer>(
        &self,
        shard: ShardId,
        command: Command,
    ) -> Result<T, CallError> {
        self.command_with(shard, command, CommandOptions::default()).await.map(Done::answer)
    }

    /// Tells a shard something, with options. The answer is the one of any command.
    pub async fn command_with(
        &self,
        shard: ShardId,
        command: Command,
        CommandOptions { note, quota, guard }: CommandOptions,
    ) -> Result<Done, CallError> {
        if let Some(trouble) = self.shared.trouble.borrow().clone() {
            return Err(CallError::Refused(trouble));
        }
        self.find(shard).await?;
        tokio::select! {
            biased;
            answer = self.ask(|reply| NodeCall::Command { shard, command, note, quota, guard, reply }) => answer,
            trouble = self.lasting_trouble() => Err(CallError::Unwritten(trouble)),
        }
    }

    /// Writes to the past of a shard, in order. The answer comes when the last of it is durable; without
    /// one, any beginning of it may be.
    pub async fn rewrite(&self, shard: ShardId, puts: Vec<Put>) -> Result<(), CallError> {
        self.ask(|reply| NodeCall::Rewrite { shard, puts, reply }).await.map(|_| ())
    }

    /// Holds the commits of a shard back for a moment: what is due is decided, and leaves afterwards.
    pub async fn quiesce(&self, shard: ShardId) -> Result<QuiesceGuard, CallError> {
        let point = self.quiesce_for_another(shard).await?;
        Ok(QuiesceGuard { point, handle: self.clone() })
    }

    /// Holds the commits of a shard back until [`NodeHandle::release`], or [`BACKUP_QUIESCE_MAX`] has passed.
    pub async fn quiesce_for_another(&self, shard: ShardId) -> Result<QuiescePoint, CallError> {
        self.ask(|reply| NodeCall::Quiesce { shard, reply }).await
    }

    /// Ends a quiesce, if it is not over yet.
    pub fn release(&self, quiesce: QuiesceId) {
        // If there is no room for it, the quiesce ends when its time is over.
        let _ = self.shared.calls.try_send(NodeCall::Release { quiesce });
    }

    /// Permission to take a backup, if nobody takes one: one at a time is enough.
    pub fn backup_permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.shared.backups).try_acquire_owned().ok()
    }

    /// Waits for a moment until a shard is run here, and says where it is if it is not.
    pub async fn find(&self, shard: ShardId) -> Result<(), CallError> {
        let mut served = self.shared.context.peers.served();
        if served.borrow().contains(&shard) {
            return Ok(());
        }
        let mut view = self.shared.context.peers.follow();
        let mut waiting = self.shared.context.machine.sleep(OWNER_WAIT_MAX);
        loop {
            if served.borrow_and_update().contains(&shard) {
                return Ok(());
            }
            let place = view.borrow_and_update().place(shard);
            if let ShardLocation::There(server) = place {
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

    /// The metrics as Prometheus reads them. What the node is too busy to count is as it was counted last.
    pub async fn counted_metrics(&self) -> String {
        tokio::select! {
            biased;
            _ = self.ask(|reply| NodeCall::Census { reply }) => {}
            () = self.shared.context.machine.sleep(CENSUS_TIME_MAX) => {}
        }
        self.metrics()
    }

    /// Compares what was written about limited projects with what shards hold, see [`crate::shard_usage`].
    pub(crate) async fn compare_usage(
        &self,
        found: UsageByShard,
        limited: BTreeSet<ProjectId>,
    ) -> Result<Vec<(ShardId, ShardUsage)>, CallError> {
        self.ask(|reply| NodeCall::CompareUsage { found, limited, reply }).await
    }

    /// Says that the clock is right.
    pub async fn confirm_time(&self) -> Result<(), CallError> {
        self.ask(|reply| NodeCall::ConfirmTime { reply }).await
    }

    /// Where everything is kept.
    pub fn store(&self) -> &Store {
        &self.shared.context.store
    }

    /// Who may do what.
    pub fn access(&self) -> &Arc<Access> {
        &self.shared.context.access
    }

    /// The other servers, and who has which shard.
    pub fn peers(&self) -> &Arc<Peers> {
        &self.shared.context.peers
    }

    /// Tells somebody outside what goes wrong among the servers.
    pub(crate) fn notifier(&self) -> &Notifier {
        &self.shared.context.notifier
    }

    /// The clocks and the dice.
    pub fn machine(&self) -> &dyn Machine {
        &*self.shared.context.machine
    }

    /// What happened lately.
    pub fn events(&self) -> &Arc<EventLog> {
        &self.shared.context.events
    }

    /// A number that tells this start of the server from others.
    pub fn start(&self) -> u64 {
        self.shared.start
    }

    /// Waits until the node stops.
    pub async fn stopped(&self) {
        let mut status = self.shared.status.clone();
        // If nobody shows it any more, there is no node.
        let _ = status.wait_for(|status| !status.is_ready).await;
    }

    /// The seats of those who watch events.
    pub(crate) fn seats(&self) -> &Arc<WatcherSeats> {
        &self.shared.seats
    }

    /// The seats of those who watch the store.
    pub(crate) fn guests(&self) -> &Arc<WatcherSeats> {
        &self.shared.guests
    }

    /// The seats of those who follow what runs print.
    pub(crate) fn follower_seats(&self) -> &Arc<WatcherSeats> {
        &self.shared.follower_seats
    }

    /// The node's part in rings.
    pub(crate) fn rings(&self) -> Option<&Rings> {
        self.shared.context.rings.as_ref()
    }

    /// The seats of those who follow rings.
    pub(crate) fn ring_seats(&self) -> &Arc<WatcherSeats> {
        &self.shared.ring_seats
    }

    /// The claims that wait here.
    pub(crate) fn waiting_claims(&self) -> &Arc<WaitingClaims> {
        &self.shared.waiting_claims
    }

    /// Who is told what runs print.
    pub(crate) fn followers(&self) -> &Arc<OutputFollowers> {
        &self.shared.context.followers
    }

    /// How long nothing may be claimed yet.
    pub(crate) fn quarantine(&self) -> Duration {
        (self.shared.context.quarantine)()
    }

    /// Requests that are under way.
    pub(crate) fn under_way(&self) -> &RequestsUnderWay {
        &self.shared.under_way
    }

    /// How many shards there are.
    pub fn shards(&self) -> u16 {
        self.shared.context.shards
    }

    /// The cluster's id.
    pub fn cluster(&self) -> u64 {
        self.shared.context.cluster
    }

    /// What the wall clock shows.
    pub fn now(&self) -> Instant {
        let millis = self.shared.context.machine.wall_us() / 1_000;
        Instant(i64::try_from(millis).unwrap_or(i64::MAX))
    }

    /// A random number.
    pub fn random(&self) -> u64 {
        self.shared.context.machine.random()
    }

    /// Whether slots are fired.
    pub fn firing(&self) -> FiringState {
        self.shared.status.borrow().firing.clone()
    }

    /// Whether the node takes calls.
    pub fn is_ready(&self) -> bool {
        self.shared.status.borrow().is_ready
            && !self.shared.calls.is_closed()
            && (self.shared.context.may_act)()
    }

    /// What there is to measure, as Prometheus reads it.
    pub fn metrics(&self) -> String {
        (self.shared.context.metrics)()
    }

    /// Waits until the store has taken nothing for a while.
    async fn lasting_trouble(&self) -> WriteTrouble {
        let mut trouble = self.shared.trouble.clone();
        loop {
            if trouble.wait_for(Option::is_some).await.is_err() {
                // The committer has ended: the answer to the call tells.
                return pending().await;
            }
            let mut over = trouble.clone();
            tokio::select! {
                biased;
                () = async { drop(over.wait_for(Option::is_none).await) } => {}
                () = self.shared.context.machine.sleep(STORE_TROUBLE_MAX) => {}
            }
            if let Some(trouble) = trouble.borrow_and_update().clone() {
                return trouble;
            }
        }
    }

    async fn ask<T>(
        &self,
        call: impl FnOnce(oneshot::Sender<Result<T, CallError>>) -> NodeCall,
    ) -> Result<T, CallError> {
        self.send(call).await?.await
    }

    /// Calls the node. What this gives waits for the answer.
    async fn send<T>(
        &self,
        call: impl FnOnce(oneshot::Sender<Result<T, CallError>>) -> NodeCall,
    ) -> Result<impl Future<Output = Result<T, CallError>>, CallError> {
        let (reply, answer) = oneshot::channel();
        self.shared.calls.send(call(reply)).await.map_err(|_| CallError::Stopping)?;
        // A node that goes on has dropped it with the shard.
        let is_stopping = || self.shared.calls.is_closed();
        Ok(async move {
            answer.await.unwrap_or_else(|_| {
                Err(if is_stopping() { CallError::Stopping } else { CallError::HandedOver })
            })
        })
    }
}

impl fmt::Debug for NodeHandle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "NodeHandle({:?})", *self.shared.status.borrow())
    }
}
