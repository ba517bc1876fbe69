//! A server's process: everything in it is run by a runtime of its own, when the world says so.
//!
//! A node is many tasks that wake each other, which the world knows nothing about. So its process looks around whenever
//! something has happened in the world, and lets all of them go on that can. Not to poll it stops all of them at once; to
//! drop it ends them where they are.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use engine::limits::STORE_ANSWER_MAX;
use server::handle::NodeHandle;
use server::node::{
    Executor, FormerNode, NodeConfig, NodeEnd, NodeStartError, RunningNode, ShardReadError,
};
use store::machine::Machine;
use store::{
    Adapter, Class, Commit, CommitError, Epoch, Hints, Limits, Page, Pending, Range, ScanError,
    Store, Version,
};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet, yield_now};

use super::sender::sender;
use super::{Fleet, queue};
use crate::clock::TrueTime;
use crate::dice::Dice;
use crate::network::SimAdapter;
use crate::shard::promise::ShardPromise;
use crate::sim_store::NodeIndex;
use crate::world::{ProcessId, World};

/// How long a server that could not start waits before it tries again.
const START_PAUSE: Duration = Duration::from_millis(200);

/// What a process is started with.
pub struct ServerStart {
    /// The fleet that the server belongs to.
    pub fleet: Fleet,
    /// Which server of the fleet it is.
    pub server: NodeIndex,
    /// Which process it is.
    pub process: ProcessId,
    /// Its way to the store.
    pub link: SimAdapter,
    /// The clocks and the dice of its machine.
    pub machine: Arc<dyn Machine>,
    /// The configuration of its node.
    pub config: NodeConfig,
    /// For what becomes of its calls.
    pub dice: Dice,
    /// Tells it to stop in order.
    pub stop: Arc<Notify>,
}

/// A process that runs.
pub struct ServerProcess {
    runtime: Runtime,
    server: JoinHandle<()>,
}

impl ServerProcess {
    /// Starts a server in a runtime of its own.
    pub fn new(start: ServerStart) -> Self {
        let mut builder = Builder::new_current_thread();
        // What is ready goes on before anybody looks whether there is more.
        let runtime = builder.event_interval(u32::MAX).build().expect("it needs nothing");
        let server = runtime.spawn(live(start));
        Self { runtime, server }
    }
}

impl Future for ServerProcess {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        // This waits behind all that is ready.
        this.runtime.block_on(yield_now());
        if !this.server.is_finished() {
            return Poll::Pending;
        }
        this.runtime.block_on(&mut this.server).expect("a server ends, and does not panic");
        Poll::Ready(())
    }
}

/// Runs a server until it is told to stop, one node after the other, as `watchbell server` does.
async fn live(start: ServerStart) {
    let ServerStart { fleet, server, process, link, machine, config, dice, stop } = start;
    let store = Store::new(ImpatientAdapter { link, world: fleet.world.clone() });
    let executor = Executor::Tasks(sender(&fleet, process, &machine, dice));
    let mut former: Option<FormerNode> = None;
    loop {
        let starting = begin(&executor, former.as_ref(), &store, &machine, &config, |why| {
            fleet.world.trace(process, || format!("waits   {why}"));
            if let NodeStartError::Broken(_)
            | NodeStartError::Corrupt(_)
            | NodeStartError::Read { .. } = why
                && !matches!(why, NodeStartError::Read { why: ShardReadError::Scan(_), .. })
            {
                fleet.accuse(ShardPromise::NoPanic, why.to_string());
            }
        });
        let (node, handle) = tokio::select! {
            biased;
            () = stop.notified() => return,
            started = starting => started,
        };
        fleet.world.trace(process, || "serves".into());
        // Dropped with the node: whoever called is told that there is no answer.
        let mut door = JoinSet::new();
        door.spawn(queue::serve(fleet.clone(), server, handle.clone()));
        former = Some(node.legacy());
        let end = tokio::select! {
            biased;
            end = node.ended() => Some(end),
            () = stop.notified() => tokio::select! {
                biased;
                // It stops, whatever else would end it.
                end = node.ended() => Some(end).filter(|end| matches!(end, NodeEnd::Broken(_))),
                () = node.drain() => None,
            },
        };
        fleet.world.trace(process, || format!("ends    {end:?}"));
        match end {
            None => return node.stop().await,
            Some(NodeEnd::Broken(component)) => {
                return fleet.accuse(ShardPromise::NoPanic, format!("{component} has panicked"));
            }
            Some(NodeEnd::Session | NodeEnd::Epoch) => node.abandon().await,
        }
        drop(handle);
    }
}

async fn begin(
    executor: &Executor,
    former: Option<&FormerNode>,
    store: &Store,
    machine: &Arc<dyn Machine>,
    config: &NodeConfig,
    tell: impl Fn(NodeStartError),
) -> (RunningNode, NodeHandle) {
    loop {
        let started =
            RunningNode::start_by(executor, former, store.clone(), Arc::clone(machine), config)
                .await;
        match started {
            Ok(started) => return started,
            Err(why) => tell(why),
        }
        machine.sleep(START_PAUSE).await;
    }
}

/// How long a request may take before nobody waits for it any more, as adapters have it.
fn answer_max() -> TrueTime {
    u64::try_from(STORE_ANSWER_MAX.as_nanos()).expect("seconds")
}

/// A link on which nobody waits for ever: who has had no answer after a while says so.
struct ImpatientAdapter {
    link: SimAdapter,
    world: World,
}

impl Adapter for ImpatientAdapter {
    fn scan(&self, range: Range, limit: usize) -> Pending<'_, Result<Page, ScanError>> {
        Box::pin(async move {
            tokio::select! {
                biased;
                answer = self.link.scan(range, limit) => answer,
                () = self.world.sleep(answer_max()) => Err(ScanError::Unavailable("no answer".into())),
            }
        })
    }

    fn commit(&self, commit: Commit) -> Pending<'_, Result<Version, CommitError>> {
        Box::pin(async move {
            tokio::select! {
                biased;
                answer = self.link.commit(commit) => answer,
                () = self.world.sleep(answer_max()) => Err(CommitError::Unknown("no answer".into())),
            }
        })
    }

    fn watch(&self, prefix: &str) -> Hints {
        self.link.watch(prefix)
    }

    fn limits(&self) -> Limits {
        self.link.limits()
    }

    fn class(&self) -> Class {
        self.link.class()
    }

    fn epoch(&self) -> Epoch {
        self.link.epoch()
    }
}
