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
//! renewed only while the node has moved lately, so one that is stuck loses its work instead of keeping it; see `pulse`.
//! A part that panics ends the node: see [`Node::ended`]. Stopping is ordered: shards are handed over if there is anybody
//! ([`Node::drain`], `handover`), nothing new fires, what is under way ends or is written down as being so, all that was
//! decided is written, and then the session is closed, which frees everything at once.

mod assign;
mod backpressure;
mod call;
mod cluster;
mod committer;
mod core;
mod counted;
mod drain;
mod executor;
mod handover;
mod historian;
mod load;
mod log;
mod membership;
mod pulse;
mod quiesce;
mod quota;
mod report;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use engine::id::ShardId;
use engine::instant::Instant;
use engine::lease::Ttl;
use engine::notice::Audience;
use engine::shard::{Now, Room};
use engine::webhook::Webhook;
use store::backup::{Unfinished, check_finished};
use store::cluster::Cluster;
use store::election::Defeat;
use store::machine::{Machine, within};
use store::session::{self, BadNodeId, Keeper, NodeId, Session, SessionError, bury_local};
use store::{CommitError, Epoch, Limits, ScanError, Store};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

pub use executor::{Executor, SimulatedSender};
pub use historian::Pace;
pub use load::ReadError;

use self::assign::Assigner;
use self::committer::Committer;
use self::core::{Core, Lines};
use self::counted::counted;
use self::historian::Historian;
use self::pulse::Pulse;
use crate::access::book::BookError;
use crate::access::{Access, Reconciler};
use crate::alarm::Alarm;
use crate::event::Events;
use crate::handle::{Face, Facts, Firing, NodeHandle};
use crate::metric::Metrics;
use crate::notifier::Notifier;
use crate::peers::{Peers, View};
use crate::webhook::{self, Cidr};

/// How a node works.
#[derive(Debug, Clone)]
pub struct Config {
    /// Who it is.
    pub id: String,
    /// Where others reach it.
    pub url: Option<String>,
    /// What it does: see [`crate::peers::ROLES`].
    pub roles: Vec<String>,
    /// How long it may act after a renewal of its session.
    pub ttl: Duration,
    /// Ranges that webhooks may call although they are not public.
    pub webhook_allow: Vec<Cidr>,
    /// A PEM file with further issuers that webhooks trust.
    pub webhook_ca: Option<std::path::PathBuf>,
    /// Who is told what goes wrong among the servers, if anybody is.
    pub notify: Option<Webhook>,
    /// When the past is merged into pages.
    pub history: Pace,
    /// How many shards a new cluster has; none, if that does not matter.
    pub shards: Option<u16>,
}

/// Why a node does not start. Each sentence says what to do.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Give it another id.
    #[error(transparent)]
    Id(#[from] BadNodeId),
    /// Look at the session.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// Have a person look.
    #[error("the store is damaged: {0}")]
    Corrupt(String),
    /// Try again.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// Look at the store.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// Finish the restore.
    #[error(transparent)]
    Unfinished(#[from] Unfinished),
    /// Ask for as many as there are.
    #[error(
        "the cluster has {found} shards, which was fixed when it first started, and {wanted} are asked for: leave --shards out"
    )]
    Shards {
        /// So many there are.
        found: u16,
        /// So many were call for.
        wanted: u16,
    },
    /// Have a person look, or upgrade.
    #[error("shard {shard} cannot be read: {why}")]
    Read {
        /// Which.
        shard: ShardId,
        /// Why.
        why: ReadError,
    },
    /// A shard was not to be had.
    #[error("shard {shard} was not to be had: {why}")]
    Claim {
        /// Which.
        shard: ShardId,
        /// Why.
        why: Defeat,
    },
    /// Have a person look, or upgrade.
    #[error(transparent)]
    Book(#[from] BookError),
    /// Look at the file, or allow more threads.
    #[error(transparent)]
    Webhooks(#[from] webhook::StartError),
    /// This one.
    #[error("{0} has panicked, which is a bug: start it again, and report what it said before")]
    Broken(&'static str),
    /// Allow this process more threads.
    #[error("cannot start a thread: {0}; raise this process's limit of threads")]
    Thread(#[from] io::Error),
}

/// What ended a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Its session was lost, and with it the right to act: another node may be started in its place.
    Session,
    /// The store may have forgotten what was claimed: the same.
    Epoch,
    /// A part of it panicked: this one.
    Broken(&'static str),
}

/// What a node leaves to the next one in the same process.
pub struct Former {
    session: Session,
    cluster: u64,
    peers: Arc<Peers>,
}

/// A node that runs.
pub struct Node {
    cluster: u64,
    session: Session,
    /// The epoch of the store in which it claimed its shards.
    epoch: Epoch,
    peers: Arc<Peers>,
    /// How many attempts of shards that were handed over are under way.
    handed_over: watch::Receiver<usize>,
    alarm: Alarm,
    stop: watch::Sender<Stop>,
    /// Ends when the core has.
    core: oneshot::Receiver<()>,
    /// What has to be done to the end when the core has ended.
    posting: JoinSet<()>,
    tasks: JoinSet<()>,
}

/// How a node is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// Not at all yet.
    No,
    /// In order: what is decided is written.
    InOrder,
    /// At once: nothing that it could write would count.
    AtOnce,
}

impl Node {
    /// Starts a node on a store: it fires from here on. The handle is the door to it.
    pub async fn start(
        store: Store,
        machine: Arc<dyn Machine>,
        config: &Config,
    ) -> Result<(Self, NodeHandle), StartError> {
        Self::start_after(None, store, machine, config).await
    }

    /// The same, after another node of this process that has ended.
    pub async fn start_after(
        former: Option<&Former>,
        store: Store,
        machine: Arc<dyn Machine>,
        config: &Config,
    ) -> Result<(Self, NodeHandle), StartError> {
        Self::start_by(&Executor::Threads, former, store, machine, config).await
    }

    /// Starts a node whose core and calls are run by `executor`.
    pub async fn start_by(
        executor: &Executor,
        former: Option<&Former>,
        store: Store,
        machine: Arc<dyn Machine>,
        config: &Config,
    ) -> Result<(Self, NodeHandle), StartError> {
        let metrics = Arc::new(Metrics::new());
        let store = counted(&store, &metrics);
        let cluster = prepare(former, &store, &*machine, config).await?;
        let access = Access::open(&store, &machine).await?;
        let (session, mut keeper) = join(former, &store, &machine, config).await?;
        let (pulse, alarm) = (Pulse::new(&machine, config.ttl), Alarm::default());
        let mut tasks = JoinSet::new();
        let alive = pulse.clone();
        keep(&mut tasks, &alarm, "the keeper of the session", async move {
            let end = keeper.run(move || alive.beats()).await;
            tracing::debug!(?end, "the session has ended");
        });

        // Rights are good in the epoch in which they were claimed; one that begins meanwhile ends this node.
        let epoch = store.epoch();
        let me = session.key().clone();
        let peers = Arc::new(Peers::new(View::first(me.clone(), cluster.shards)));
        peers.drain(former.is_some_and(|former| *former.peers.drained().borrow()));
        let events: Arc<Events> = Arc::default();
        let (results_in, results) = mpsc::unbounded_channel();
        let webhooks = webhooks(config, &session, &access, &alarm);
        let dispatcher = executor.dispatcher(&webhooks, &machine, &results_in, &mut tasks)?;
        let notifier = notifier(config, &webhooks, &machine, &mut tasks)?;
        let (calls_in, calls) = mpsc::channel(1_024);
        let (orders, orders_out) = mpsc::unbounded_channel();
        let (answers_in, answers) = mpsc::unbounded_channel();
        let (moves_in, moves) = mpsc::unbounded_channel();
        let (posts, posts_out) = mpsc::unbounded_channel();
        let (awaited, awaited_out) = watch::channel(BTreeMap::new());
        let (handed_over, errands_out) = watch::channel(0);
        let (stop_in, stop) = watch::channel(Stop::No);
        let (face, face_out) = watch::channel(Face { firing: Firing::Going, is_ready: true });
        let (trouble, trouble_out) = watch::channel(None);
        let committer = Committer::new((&store, &epoch), &machine, &pulse, trouble);
        keep(&mut tasks, &alarm, "the committer", committer.run(orders_out, answers_in));
        let mut posting = JoinSet::new();
        let post = report::post(session.clone(), posts_out);
        keep(&mut posting, &alarm, "the poster of reports", post);
        let collecting = report::collect(session.clone(), awaited_out, moves_in.clone());
        keep(&mut tasks, &alarm, "the collector of reports", collecting);
        let assigner = Assigner::new(
            (&session, &peers),
            cluster,
            executor.cores(),
            audience(&access),
            moves_in.clone(),
        );
        let lines = Lines {
            calls,
            results,
            orders,
            answers,
            moves,
            moves_in,
            posts,
            awaited,
            handed_over,
            face,
            stop,
        };
        let room = room(store.limits());
        let core = Core::new(
            (me, Arc::clone(&peers)),
            Arc::clone(&machine),
            dispatcher,
            lines,
            room,
            (Arc::clone(&metrics), Arc::clone(&events)),
            pulse.core,
        );
        let core = executor.run(core, &alarm, &mut tasks)?;
        let (started_in, started) = oneshot::channel();
        keep(&mut tasks, &alarm, "the assigner", assigner.run(started_in));
        let node = Self {
            cluster: cluster.id,
            session: session.clone(),
            epoch,
            peers: Arc::clone(&peers),
            handed_over: errands_out,
            alarm: alarm.clone(),
            stop: stop_in,
            core,
            posting,
            tasks,
        };
        let mut node = node.begun(started).await?;
        let shared = (store, Arc::clone(&access), events, peers, notifier);
        let facts = facts(shared, &session, cluster, &metrics);
        tracing::info!(
            class = %facts.store.class(), epoch = facts.store.epoch().0, shards = cluster.shards,
            "the node has started"
        );
        let handle = NodeHandle::new(facts, calls_in, face_out, trouble_out);
        let historian = Historian::new(handle.clone(), &machine, config.history, metrics);
        node.employ("the historian", historian.run());
        node.employ("the reconciler", Reconciler::new(handle.clone(), &access, &machine).run());
        node.employ("the counter of shares", crate::quota::count(handle.clone()));
        Ok((node, handle))
    }

    fn employ(&mut self, name: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        keep(&mut self.tasks, &self.alarm, name, work);
    }

    /// Waits until this node has the shards that it should have at first.
    async fn begun(
        self,
        started: oneshot::Receiver<Result<(), StartError>>,
    ) -> Result<Self, StartError> {
        let why = tokio::select! {
            biased;
            Ok(begun) = started => match begun {
                Ok(()) => return Ok(self),
                Err(why) => why,
            },
            part = self.alarm.rung() => StartError::Broken(part),
            end = self.session.ended() => {
                StartError::Claim { shard: ShardId(0), why: Defeat::Ended(end) }
            }
        };
        self.abandon().await;
        Err(why)
    }

    /// Waits for the end of this node, and tells what it was. All that is left to do then is to stop it.
    pub async fn ended(&self) -> End {
        tokio::select! {
            biased;
            part = self.alarm.rung() => End::Broken(part),
            _ = self.session.ended() => End::Session,
            () = self.outlived() => End::Epoch,
        }
    }

    /// Waits until the store is in another epoch.
    async fn outlived(&self) {
        let (machine, pause) = (self.session.machine(), self.session.ttl().pause());
        while self.session.store().epoch() == self.epoch {
            machine.sleep(pause).await;
        }
    }

    /// What the next node in this process had better know.
    pub fn legacy(&self) -> Former {
        let peers = Arc::clone(&self.peers);
        Former { session: self.session.clone(), cluster: self.cluster, peers }
    }

    /// Stops in order, within five seconds.
    pub async fn stop(self) {
        self.end(Stop::InOrder).await;
    }

    /// Stops at once: for a node that has lost the right to write what it has decided.
    pub async fn abandon(self) {
        self.end(Stop::AtOnce).await;
    }

    async fn end(mut self, how: Stop) {
        let _ = self.stop.send(how);
        let _ = self.core.await;
        if how == Stop::InOrder {
            // Nobody gives it anything any more: it ends by itself, or with its session.
            let posted = async { while self.posting.join_next().await.is_some() {} };
            within(self.session.machine(), self.session.ttl().length(), posted).await;
        }
        self.session.close().await;
        self.tasks.shutdown().await;
    }
}

/// Has a part of the node work; if it panics, the alarm rings.
fn keep(
    tasks: &mut JoinSet<()>,
    alarm: &Alarm,
    name: &'static str,
    work: impl Future<Output = ()> + Send + 'static,
) {
    let guard = alarm.guard(name);
    tasks.spawn(async move {
        let _guard = guard;
        work.await;
    });
}

/// What those with a handle know of the node.
fn facts(
    (store, access, events, peers, notifier): (
        Store,
        Arc<Access>,
        Arc<Events>,
        Arc<Peers>,
        Notifier,
    ),
    session: &Session,
    cluster: Cluster,
    metrics: &Arc<Metrics>,
) -> Facts {
    Facts {
        store,
        access,
        events,
        peers,
        notifier,
        machine: Arc::clone(session.machine()),
        shards: cluster.shards,
        cluster: cluster.id,
        metrics: Box::new({
            let metrics = Arc::clone(metrics);
            move || metrics.text()
        }),
        quarantine: Box::new({
            let session = session.clone();
            move || session.quarantine_left()
        }),
        may_act: Box::new({
            let session = session.clone();
            move || session.is_valid()
        }),
    }
}

/// Makes sure that a store can be worked with, and tells what it belongs to.
async fn prepare(
    former: Option<&Former>,
    store: &Store,
    machine: &dyn Machine,
    config: &Config,
) -> Result<Cluster, StartError> {
    bury_local(store).await?;
    check_finished(store).await??;
    let cluster = cluster::found(store, machine, config.shards).await?;
    if former.is_some_and(|former| former.cluster != cluster.id) {
        tracing::error!(
            "the store is empty or another: what was in it is not here any more; restore a backup if it should be"
        );
    }
    Ok(cluster)
}

/// Opens the session of a node.
async fn join(
    former: Option<&Former>,
    store: &Store,
    machine: &Arc<dyn Machine>,
    config: &Config,
) -> Result<(Session, Keeper), StartError> {
    let about = session::Node {
        id: NodeId::new(config.id.clone())?,
        ttl: Ttl::new(config.ttl).map_err(|why| StartError::Corrupt(why.to_string()))?,
        url: config.url.clone(),
        roles: config.roles.clone(),
    };
    let former = former.map(|former| &former.session);
    let (session, keeper) = Session::open_after(former, store, machine, &about).await?;
    // A restore that began since has seen the session, or it is seen here.
    if let Err(unfinished) = check_finished(store).await? {
        session.close().await;
        return Err(unfinished.into());
    }
    Ok((session, keeper))
}

fn webhooks(
    config: &Config,
    session: &Session,
    access: &Arc<Access>,
    alarm: &Alarm,
) -> webhook::Config {
    let (session, access) = (session.clone(), Arc::clone(access));
    webhook::Config {
        allow: config.webhook_allow.clone(),
        extra_ca: config.webhook_ca.clone(),
        signing: Arc::new(move |project| access.book().signer(project).cloned()),
        alarm: alarm.clone(),
        ..webhook::Config::new(Arc::new(move || !session.valid_for().is_zero()))
    }
}

/// Who tells somebody outside what goes wrong among the servers, if anybody is to be told.
fn notifier(
    config: &Config,
    webhooks: &webhook::Config,
    machine: &Arc<dyn Machine>,
    tasks: &mut JoinSet<()>,
) -> Result<Notifier, StartError> {
    let Some(listener) = config.notify.clone() else { return Ok(Notifier::default()) };
    let (notifier, work) = Notifier::new(listener, webhooks, machine)?;
    keep(tasks, &webhooks.alarm, "the notifier", work);
    Ok(notifier)
}

/// Who listens to which project, as the book of the moment says.
fn audience(access: &Arc<Access>) -> Audience {
    let access = Arc::clone(access);
    Arc::new(move |project| access.book().listener(project).cloned())
}

/// What of a store's limits a shard may use for one batch.
fn room(limits: Limits) -> Room {
    let Limits { writes, commit_bytes, value_bytes } = limits;
    Room { writes, bytes: commit_bytes, value_bytes }
}

fn now(machine: &dyn Machine) -> Now {
    let wall = Instant(i64::try_from(machine.wall_us() / 1_000).unwrap_or(i64::MAX));
    let steady = u64::try_from(machine.reading().boot.as_millis()).unwrap_or(u64::MAX);
    Now { wall, steady, random: machine.random() }
}
