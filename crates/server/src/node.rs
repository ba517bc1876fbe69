//! The node: a session, the shards that it owns, and the threads that serve them.
//!
//! ```text
//! Desk ─calls─▶ core ─orders─▶ committer ─▶ store
//!                │  ◀─written──┘
//!                └─calls─▶ dispatcher ─▶ receivers
//!                   ◀─results─┘
//! historian: merges the past into pages, through the desk
//! ```
//!
//! A node opens a session, claims every shard, reads each one and hands it to the core, which is a thread of
//! its own: nothing that a request or a slow store does keeps it from its clocks. The session is renewed only
//! while the node has moved lately, so one that is stuck loses its work instead of keeping it; see `pulse`. A
//! part that panics ends the node: see [`Node::ended`]. Stopping is ordered: nothing new fires, what is under
//! way ends or is written down as being so, all that was decided is written, and then the session is closed,
//! which frees everything at once.

mod cluster;
mod committer;
mod core;
mod counted;
mod crowd;
mod demand;
mod historian;
mod hold;
mod load;
mod log;
mod pulse;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use engine::id::ShardId;
use engine::instant::Instant;
use engine::lease::Ttl;
use engine::notice::Audience;
use engine::shard::record::head_key;
use engine::shard::{Kinds, Now, Room};
use store::backup::{Unfinished, check_finished};
use store::claim::Claim;
use store::cluster::Cluster;
use store::election::{Defeat, Election, Holding, Mode};
use store::machine::Machine;
use store::session::{self, BadNodeId, Keeper, NodeId, Session, SessionError, bury_local};
use store::{CommitError, Epoch, Limits, ScanError, Store};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;

pub use historian::Pace;
pub use load::ReadError;

use self::committer::Committer;
use self::core::{Core, Lines, Owned};
use self::counted::counted;
use self::historian::Historian;
use self::pulse::Pulse;
use crate::access::book::BookError;
use crate::access::{Access, Steward};
use crate::alarm::Alarm;
use crate::desk::{Desk, Face, Facts, Firing};
use crate::metric::Metrics;
use crate::webhook::{self, Cidr, Dispatcher};

/// How a node works.
#[derive(Debug, Clone)]
pub struct Config {
    /// Who it is.
    pub id: String,
    /// Where others reach it.
    pub url: Option<String>,
    /// How long it may act after a renewal of its session.
    pub ttl: Duration,
    /// Ranges that webhooks may call although they are not public.
    pub webhook_allow: Vec<Cidr>,
    /// A PEM file with further issuers that webhooks trust.
    pub webhook_ca: Option<std::path::PathBuf>,
    /// When the past is merged into pages.
    pub history: Pace,
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
    /// Allow this process more threads.
    #[error("cannot start a thread: {0}; raise this process's limit of threads")]
    Thread(#[from] io::Error),
}

/// How long a start takes before it says what it waits for.
const QUIET_START: Duration = Duration::from_secs(1);

/// What ended a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Its session was lost, and with it the right to act: another node may be started in its place.
    Session,
    /// A shard is not its own any more, or the store may have forgotten that it is: the same.
    Shard,
    /// A part of it panicked: this one.
    Broken(&'static str),
}

/// What a node leaves to the next one in the same process.
pub struct Former {
    session: Session,
    cluster: u64,
}

/// A node that runs.
pub struct Node {
    cluster: u64,
    session: Session,
    /// The epoch of the store in which it claimed its shards.
    epoch: Epoch,
    /// Whether it still has all of them.
    whole: watch::Receiver<bool>,
    alarm: Alarm,
    stop: watch::Sender<Stop>,
    core: JoinHandle<()>,
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
    /// Starts a node on a store: it fires from here on. The desk is the door to it.
    pub async fn start(
        store: Store,
        machine: Arc<dyn Machine>,
        config: &Config,
    ) -> Result<(Self, Desk), StartError> {
        Self::start_after(None, store, machine, config).await
    }

    /// The same, after another node of this process that has ended.
    pub async fn start_after(
        former: Option<&Former>,
        store: Store,
        machine: Arc<dyn Machine>,
        config: &Config,
    ) -> Result<(Self, Desk), StartError> {
        let metrics = Arc::new(Metrics::new());
        let store = counted(&store, &metrics);
        bury_local(&store).await?;
        check_finished(&store).await??;
        let cluster = cluster::found(&store, &*machine).await?;
        if former.is_some_and(|former| former.cluster != cluster.id) {
            tracing::error!(
                "the store is empty or another: what was in it is not here any more; restore a backup if it should be"
            );
        }
        let access = Access::open(&store, &machine).await?;
        let (session, mut keeper) = join(former, &store, &machine, config).await?;
        let (pulse, alarm) = (Pulse::new(&machine, config.ttl), Alarm::default());
        let mut tasks = JoinSet::new();
        let (alive, guard) = (pulse.clone(), alarm.guard("the keeper of the session"));
        tasks.spawn(async move {
            let _guard = guard;
            let end = keeper.run(move || alive.beats()).await;
            tracing::debug!(?end, "the session has ended");
        });

        // Rights are good in the epoch in which they were claimed; one that begins meanwhile ends this node.
        let epoch = store.epoch();
        let (shards, holdings) = claim_all(&session, cluster, &audience(&access), &pulse).await?;
        let events = Arc::default();
        let (results_in, results) = mpsc::unbounded_channel();
        let webhooks = webhooks(config, &session, &access, &alarm);
        let dispatcher = Dispatcher::start(&webhooks, &machine, &results_in)?;
        let (calls_in, calls) = mpsc::channel(1_024);
        let (orders, orders_out) = mpsc::unbounded_channel();
        let (written_in, written) = mpsc::unbounded_channel();
        let (stop_in, stop) = watch::channel(Stop::No);
        let (whole_in, whole) = watch::channel(true);
        let (face, face_out) = watch::channel(Face { firing: Firing::Going, is_ready: true });
        let (trouble, trouble_out) = watch::channel(None);
        let (on, beats) = (Arc::clone(&machine), pulse.clone());
        let committer = Committer { holdings, machine: on, pulse: beats, trouble, whole: whole_in };
        let guard = alarm.guard("the committer");
        tasks.spawn(async move {
            let _guard = guard;
            committer.run(orders_out, written_in).await;
        });
        let lines = Lines { calls, results, orders, written, face, stop };
        let room = room(store.limits());
        let core = Core::new(
            Arc::clone(&machine),
            shards,
            dispatcher,
            lines,
            room,
            (Arc::clone(&metrics), Arc::clone(&events)),
            pulse.core,
        );
        let core = spawn_core(core, &alarm)?;
        let facts = Facts {
            store,
            access: Arc::clone(&access),
            events,
            machine: Arc::clone(&machine),
            shards: cluster.shards,
            cluster: cluster.id,
            metrics: Box::new({
                let metrics = Arc::clone(&metrics);
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
        };
        tracing::info!(
            class = %facts.store.class(), epoch = facts.store.epoch().0, shards = cluster.shards,
            "the node has started"
        );
        let desk = Desk::new(facts, calls_in, face_out, trouble_out);
        let guard = alarm.guard("the historian");
        let historian = Historian::new(desk.clone(), &machine, config.history, metrics);
        tasks.spawn(async move {
            let _guard = guard;
            historian.run().await;
        });
        let guard = alarm.guard("the steward");
        let steward = Steward::new(desk.clone(), &access, &machine);
        tasks.spawn(async move {
            let _guard = guard;
            steward.run().await;
        });
        Ok((
            Self { cluster: cluster.id, session, epoch, whole, alarm, stop: stop_in, core, tasks },
            desk,
        ))
    }

    /// Waits for the end of this node, and tells what it was. All that is left to do then is to stop it.
    pub async fn ended(&self) -> End {
        tokio::select! {
            biased;
            part = self.alarm.rung() => End::Broken(part),
            _ = self.session.ended() => End::Session,
            () = self.dispossessed() => End::Shard,
        }
    }

    /// Waits until a shard is not this node's any more, or the store is in another epoch.
    async fn dispossessed(&self) {
        let (machine, pause) = (self.session.machine(), self.session.ttl().pause());
        let mut whole = self.whole.clone();
        while self.session.store().epoch() == self.epoch {
            tokio::select! {
                biased;
                Ok(_) = whole.wait_for(|whole| !whole) => return,
                () = machine.sleep(pause) => {}
            }
        }
    }

    /// What the next node in this process had better know.
    pub fn legacy(&self) -> Former {
        Former { session: self.session.clone(), cluster: self.cluster }
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
        let core = self.core;
        let _ = tokio::task::spawn_blocking(move || core.join()).await;
        self.session.close().await;
        self.tasks.shutdown().await;
    }
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
        roles: vec!["api".to_owned(), "schedule".to_owned()],
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

/// The core's thread, with a runtime of its own.
fn spawn_core(mut core: Core, alarm: &Alarm) -> io::Result<JoinHandle<()>> {
    // Whoever asks as soon as the node has started is told the truth.
    core.begin();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let guard = alarm.guard("the core");
    std::thread::Builder::new().name("core".to_owned()).spawn(move || {
        let _guard = guard;
        runtime.block_on(core.run());
    })
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

/// Claims and reads every shard, as many at a time as there are cores: most of it is reading JSON.
async fn claim_all(
    session: &Session,
    cluster: Cluster,
    audience: &Audience,
    pulse: &Pulse,
) -> Result<(BTreeMap<ShardId, Owned>, HashMap<ShardId, Holding>), StartError> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let turns = Arc::new(Semaphore::new(cores));
    let kinds = Kinds::default();
    let mut tasks = JoinSet::new();
    for shard in (0..cluster.shards).map(ShardId) {
        let (session, turns) = (session.clone(), Arc::clone(&turns));
        let (kinds, audience) = (kinds.clone(), Arc::clone(audience));
        tasks.spawn(async move {
            let _turn = turns.acquire().await.expect("it is never closed");
            claim(&session, cluster, shard, (&kinds, audience)).await.map(|owned| (shard, owned))
        });
    }
    let (mut shards, mut holdings) = (BTreeMap::new(), HashMap::new());
    let machine = session.machine();
    let (begun, mut is_told) = (machine.reading(), false);
    while !tasks.is_empty() {
        // There is no core yet to show that this node lives, and what it waits for may take longer than T.
        pulse.beat();
        if !is_told && machine.reading().least_since(begun) >= QUIET_START {
            is_told = true;
            tell_wait(session, shards.len(), cluster.shards);
        }
        let joined = tokio::select! {
            biased;
            Some(joined) = tasks.join_next() => joined,
            () = machine.sleep(pulse.pause().min(QUIET_START)) => continue,
        };
        let claimed = joined.unwrap_or_else(|why| std::panic::resume_unwind(why.into_panic()));
        let (shard, (owned, holding)) = claimed?;
        shards.insert(shard, owned);
        holdings.insert(shard, holding);
    }
    Ok((shards, holdings))
}

/// Says why a start takes its time.
fn tell_wait(session: &Session, taken: usize, shards: u16) {
    let wait = session.quarantine_left();
    let roster = session.roster();
    let others: Vec<String> = roster
        .borrow()
        .live()
        .filter(|(key, record)| {
            *key != session.key() && record.roles.iter().any(|role| role == "schedule")
        })
        .map(|(key, _)| key.node().to_string())
        .collect();
    if wait.is_zero() && taken == 0 && !others.is_empty() {
        let others = others.join(", ");
        tracing::warn!(%others, "another server has the shards of this store: this one waits until it has gone");
    } else if wait.is_zero() {
        tracing::warn!(taken, shards, "starting takes a while: shards are claimed and read");
    } else {
        tracing::warn!(
            seconds = wait.as_secs_f64().ceil(),
            "starting takes a while: this store may have forgotten what it acknowledged, so nothing is claimed until nobody can act on that any more"
        );
    }
}

/// Claims and reads a shard.
async fn claim(
    session: &Session,
    cluster: Cluster,
    shard: ShardId,
    (kinds, audience): (&Kinds, Audience),
) -> Result<(Owned, Holding), StartError> {
    let claim = Claim::new(head_key(shard)).expect("a short key");
    let mut election = Election::new(session, claim, Mode::Automatic);
    let holding = election.campaign().await.map_err(|why| StartError::Claim { shard, why })?;
    let body = holding.head().body.as_deref();
    let mut loading = load::load(session.store(), shard, cluster.id, kinds, body)
        .await
        .map_err(|why| StartError::Read { shard, why })?;
    loading.set_audience(audience);
    let loaded = loading.finish(now(&**session.machine()));
    tracing::debug!(%shard, triggers = loaded.len(), unfinished = loaded.unfinished(), "took a shard");
    let (right, number) = (holding.right.clone(), holding.head().number);
    Ok((Owned { shard: loaded, right, number, wake: Some(Instant::FIRST) }, holding))
}

fn now(machine: &dyn Machine) -> Now {
    let wall = Instant(i64::try_from(machine.wall_us() / 1_000).unwrap_or(i64::MAX));
    let steady = u64::try_from(machine.reading().boot.as_millis()).unwrap_or(u64::MAX);
    Now { wall, steady, random: machine.random() }
}
