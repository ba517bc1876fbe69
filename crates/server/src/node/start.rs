//! How a node starts, and the list of its components.
//!
//! A store is prepared, a session opened, and then every component is made and started. The first ones give the node its
//! shards; those at the end of the list work through the handle, as people do, and whoever adds another adds it there.

use std::sync::Arc;

use engine::lease::Ttl;
use store::backup::check_finished;
use store::cluster::ClusterIdentity;
use store::machine::Machine;
use store::ring::Rings;
use store::session::{self, NodeId, Session, SessionDriver, bury_local};
use store::{Epoch, Store};

use super::assign::Assigner;
use super::committer::Committer;
use super::component::Components;
use super::core::{CoreInbox, CoreOutputs, NodeCore};
use super::counted::counted;
use super::historian::Historian;
use super::liveness::{Liveness, SessionKeeper};
use super::report::{Collector, Poster};
use super::{Executor, FormerNode, NodeConfig, NodeStartError, RunningNode, cluster, now};
use crate::access::{Access, Reconciler};
use crate::alarm::Alarm;
use crate::election::monitor::ElectionMonitor;
use crate::event::EventLog;
use crate::follower::OutputFollowers;
use crate::handle::{NodeContext, NodeHandle};
use crate::metric::NodeMetrics;
use crate::monitor::Monitor;
use crate::notifier::Notifier;
use crate::peers::{Peers, View};
use crate::ring::{self, RingKeeper};
use crate::shard_usage::UsageCounter;
use crate::webhook;

/// What the components of a node share.
pub(super) struct NodeResources {
    pub(super) store: Store,
    pub(super) session: Session,
    pub(super) cluster: ClusterIdentity,
    /// The epoch of the store in which the node claims its shards.
    pub(super) epoch: Epoch,
    pub(super) access: Arc<Access>,
    pub(super) peers: Arc<Peers>,
    pub(super) events: Arc<EventLog>,
    pub(super) followers: Arc<OutputFollowers>,
    pub(super) metrics: Arc<NodeMetrics>,
    pub(super) liveness: Liveness,
}

impl RunningNode {
    /// Starts a node whose core and calls are run by `executor`.
    pub async fn start_by(
        executor: &Executor,
        former: Option<&FormerNode>,
        store: Store,
        machine: Arc<dyn Machine>,
        config: &NodeConfig,
    ) -> Result<(Self, NodeHandle), NodeStartError> {
        let (shared, keeper) = join(former, &store, &machine, config).await?;
        let (session, mut components) = (&shared.session, Components::default());
        let (liveness, clock) = (shared.liveness.clone(), Arc::clone(&machine));
        components.start(SessionKeeper { keeper, liveness, machine: clock });

        let (to_core, inbox) = CoreInbox::new();
        let webhooks = webhooks(config, &shared, components.alarm());
        let dispatcher =
            executor.dispatcher(&webhooks, &machine, &to_core.results, &mut components)?;
        let mut notifier = Notifier::default();
        if let Some(listener) = config.notify.clone() {
            let (delivery, taker) = Notifier::new(listener, &webhooks, &machine)?;
            components.start(delivery);
            notifier = taker;
        }
        let (on, liveness) = ((&shared.store, &shared.epoch), &shared.liveness);
        let (committer, orders) =
            Committer::new(on, &machine, liveness, to_core.shard_events.clone());
        let trouble = committer.trouble();
        components.start(committer);
        let (poster, posts) = Poster::new(session);
        components.start(poster);
        let (collector, awaited) = Collector::new(session, to_core.shard_events.clone());
        components.start(collector);
        let (assigner, started) =
            Assigner::new(&shared, executor.cores(), to_core.shard_events.clone());
        let outputs =
            CoreOutputs { dispatcher, orders, posts, awaited, shard_events: to_core.shard_events };
        let core = NodeCore::new(&shared, inbox, outputs);
        let (status, handed_over) = (core.status(), core.handed_over_count.subscribe());
        executor.run(core, &mut components)?;
        components.start(assigner);

        let node = Self {
            cluster: shared.cluster.id,
            session: session.clone(),
            epoch: shared.epoch.clone(),
            peers: Arc::clone(&shared.peers),
            handed_over,
            stop: to_core.stop,
            components,
        };
        let mut node = node.begun(started).await?;
        let (rings, driver) = ring::rings(&shared.session, &shared.peers);
        let (session, status_of_node) = (shared.session.clone(), status.clone());
        let keeper = RingKeeper { rings: rings.clone(), driver, session, status: status_of_node };
        let handle =
            NodeHandle::new(context(&shared, notifier, rings), to_core.calls, status, trouble);
        tracing::info!(
            class = %handle.store().class(), epoch = handle.store().epoch().0, shards = handle.shards(),
            "the node has started"
        );
        let metrics = Arc::clone(&shared.metrics);
        let components = &mut node.components;
        components.start(keeper);
        components.start(Historian::new(handle.clone(), &machine, config.history, metrics));
        components.start(Reconciler::new(handle.clone(), &shared.access, &machine));
        components.start(UsageCounter(handle.clone()));
        components.start(Monitor(handle.clone()));
        let (session, metrics) = (shared.session.clone(), Arc::clone(&shared.metrics));
        components.start(ElectionMonitor::begin(handle.clone(), session, metrics).await);
        Ok((node, handle))
    }
}

/// Makes sure that a store can be worked with, and opens a session on it.
async fn join(
    former: Option<&FormerNode>,
    store: &Store,
    machine: &Arc<dyn Machine>,
    config: &NodeConfig,
) -> Result<(NodeResources, SessionDriver), NodeStartError> {
    let metrics: Arc<NodeMetrics> = Arc::default();
    let store = counted(store, &metrics);
    bury_local(&store).await?;
    check_finished(&store).await??;
    let cluster = cluster::found(&store, &**machine, config.shards).await?;
    if former.is_some_and(|former| former.cluster != cluster.id) {
        tracing::error!(
            "the store is empty or another: what was in it is not here any more; restore a backup if it should be"
        );
    }
    let access = Access::open(&store, machine).await?;
    let about = session::NodeInfo {
        id: NodeId::new(config.id.clone())?,
        ttl: Ttl::new(config.ttl).map_err(|why| NodeStartError::Corrupt(why.to_string()))?,
        url: config.url.clone(),
        roles: config.roles.clone(),
        candidacies: Vec::new(),
    };
    let before = former.map(|former| &former.session);
    let (session, keeper) = Session::open_after(before, &store, machine, &about).await?;
    // A restore that began since has seen the session, or it is seen here.
    if let Err(unfinished) = check_finished(&store).await? {
        session.close().await;
        return Err(unfinished.into());
    }
    let peers = Arc::new(Peers::new(View::first(session.key().clone(), cluster.shards)));
    peers.drain(former.is_some_and(|former| *former.peers.drained().borrow()));
    let shared = NodeResources {
        // Rights are good in the epoch in which they were claimed; one that begins meanwhile ends this node.
        epoch: store.epoch(),
        store,
        session,
        cluster,
        access,
        peers,
        events: Arc::default(),
        followers: Arc::default(),
        metrics,
        liveness: Liveness::new(now(&**machine).steady, config.ttl),
    };
    Ok((shared, keeper))
}

fn webhooks(config: &NodeConfig, shared: &NodeResources, alarm: &Alarm) -> webhook::Config {
    let (session, access) = (shared.session.clone(), Arc::clone(&shared.access));
    webhook::Config {
        allow: config.webhook_allow.clone(),
        extra_ca: config.webhook_ca.clone(),
        signing: Arc::new(move |project| access.book().signer(project).cloned()),
        alarm: alarm.clone(),
        ..webhook::Config::new(Arc::new(move || !session.valid_for().is_zero()))
    }
}

/// What those with a handle know of the node.
fn context(shared: &NodeResources, notifier: Notifier, rings: Rings) -> NodeContext {
    let metrics = Arc::clone(&shared.metrics);
    let (quarantine, may_act) = (shared.session.clone(), shared.session.clone());
    NodeContext {
        store: shared.store.clone(),
        access: Arc::clone(&shared.access),
        events: Arc::clone(&shared.events),
        followers: Arc::clone(&shared.followers),
        peers: Arc::clone(&shared.peers),
        notifier,
        rings: Some(rings),
        machine: Arc::clone(shared.session.machine()),
        shards: shared.cluster.shards,
        cluster: shared.cluster.id,
        metrics: Box::new(move || metrics.text()),
        quarantine: Box::new(move || quarantine.quarantine_left()),
        may_act: Box::new(move || may_act.is_valid()),
    }
}
