//! A server process: one node and its API, from the first signal to the last.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use server::access::book::BookError;
use server::api::ApiSecurity;
use server::handle::NodeHandle;
use server::node::{FormerNode, NodeConfig, NodeEnd, NodeStartError, RunningNode, ShardReadError};
use store::election::Defeat;
use store::machine::{Machine, System};
use store::session::SessionError;
use store::{CommitError, OpenError, Refusal, ScanError, Store};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::exit::Ending;

/// How long a node may act after a renewal of its session.
pub(crate) const TTL: Duration = Duration::from_secs(3);

/// How long to wait before a node that could not be started is tried again.
const START_PAUSE: Duration = Duration::from_millis(200);

/// What kind of server it is.
pub(crate) struct ServePlan<'a, S, C> {
    pub(crate) listen: SocketAddr,
    pub(crate) webhook_ca: Option<&'a Path>,
    /// Opens the store, once everything else is known to be right.
    pub(crate) store: S,
    /// How the node works, once it is known where it listens.
    pub(crate) config: C,
    pub(crate) security: ApiSecurity,
}

/// Runs until it is told to stop by SIGTERM or SIGINT. `begin` is called when a node has started, before anybody is
/// let in; `farewell` is waited for when it is told to stop, while requests are still answered. A node that lost its session, as it does when a store forgets what it acknowledged, is followed
/// by another one in the same process: nobody has to start it by hand.
pub(crate) async fn serve<S, C>(
    plan: ServePlan<'_, S, C>,
    mut begin: impl AsyncFnMut(SocketAddr, &NodeHandle) -> Result<(), Ending>,
    mut farewell: impl AsyncFnMut(),
) -> Result<(), Ending>
where
    S: Future<Output = Result<Store, OpenError>>,
    C: FnOnce(SocketAddr) -> NodeConfig,
{
    raise_file_limit();
    // Whoever tells it to stop while it starts is heard.
    let mut stops = Stops::new()?;
    let listener = Arc::new(bind(plan.listen).await?);
    let api = ApiThreads::new()?;
    if let Some(path) = plan.webhook_ca {
        // Before there is a store that nobody wanted.
        server::webhook::check_ca(path).map_err(|why| Ending::wrong_input(why.to_string()))?;
    }
    let store = plan.store.await?;
    let at = listener.local_addr()?;
    let config = (plan.config)(at);
    let mut former = None;
    loop {
        let started = tokio::select! {
            biased;
            // What was written so far is that of a process that died: the next one goes on from there.
            () = stops.next() => return Ok(()),
            started = start(former.as_ref(), &store, &config) => started,
        };
        let (node, handle) = started?;
        if let Err(ending) = begin(at, &handle).await {
            node.stop().await;
            return Err(ending);
        }
        former = Some(node.legacy());
        let (listener, security) = (Arc::clone(&listener), plan.security.clone());
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = server::api::serve(listener, handle, security, async {
            let _ = stopped.await;
        });
        match attend(node, api.run(serving), stop, &mut stops, &mut farewell).await {
            None => return Ok(()),
            Some(NodeEnd::Session) => {
                tracing::error!(
                    "the node's session was lost, and with it the right to fire: another node is started"
                );
            }
            Some(NodeEnd::Epoch) => {
                tracing::error!("the store is another than before: another node is started");
            }
            Some(NodeEnd::Broken(component)) => {
                return Err(Ending::failed(format!(
                    "{component} has panicked, which is a bug: start it again, and report what it said before"
                )));
            }
        }
    }
}

/// Starts a node. Once one has run here, a store that does not answer is waited for.
async fn start(
    former: Option<&FormerNode>,
    store: &Store,
    config: &NodeConfig,
) -> Result<(RunningNode, NodeHandle), NodeStartError> {
    let machine: Arc<dyn Machine> = Arc::new(System);
    loop {
        match RunningNode::start(former, store.clone(), Arc::clone(&machine), config).await {
            Err(why) if former.is_some() && is_passing(&why) => {
                tracing::warn!(%why, "no node could be started: trying again");
                tokio::time::sleep(START_PAUSE).await;
            }
            started => return started,
        }
    }
}

/// Whether it may work later without anybody doing anything here.
fn is_passing(why: &NodeStartError) -> bool {
    matches!(
        why,
        NodeStartError::Scan(ScanError::Unavailable(_))
            | NodeStartError::Book(BookError::Scan(ScanError::Unavailable(_)))
            | NodeStartError::Commit(
                CommitError::Unavailable(_)
                    | CommitError::Unknown(_)
                    | CommitError::Refused(Refusal::Full { .. })
            )
            | NodeStartError::Session(
                SessionError::Unavailable(_)
                    | SessionError::AlreadyLive { .. }
                    | SessionError::Refused(Refusal::Full { .. })
            )
            | NodeStartError::Claim { why: Defeat::Ended(_), .. }
            | NodeStartError::Read { why: ShardReadError::Scan(ScanError::Unavailable(_)), .. }
    )
}

/// The threads that answer requests. They are not those of the node, so that what somebody asks for keeps its session from
/// being renewed no more than another process would. A connection to an engine that a request was the first to need is
/// served here, also when the node uses it later.
struct ApiThreads(Option<Runtime>);

impl ApiThreads {
    fn new() -> io::Result<Self> {
        Builder::new_multi_thread().thread_name("api").enable_all().build().map(Some).map(Self)
    }

    /// Runs this there, to its end.
    async fn run(&self, serving: impl Future<Output = ()> + Send + 'static) {
        let runtime = self.0.as_ref().expect("it is there until it is dropped");
        if let Err(why) = runtime.spawn(serving).await
            && let Ok(panic) = why.try_into_panic()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

impl Drop for ApiThreads {
    fn drop(&mut self) {
        // Whoever drops it is a task, which must not wait for threads.
        self.0.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

/// Attends to a node until it ends, or is told to, and to its API meanwhile, which `stop` ends. Tells what ended the node.
async fn attend(
    node: RunningNode,
    serving: impl Future<Output = ()>,
    stop: oneshot::Sender<()>,
    stops: &mut Stops,
    farewell: &mut impl AsyncFnMut(),
) -> Option<NodeEnd> {
    let ending = async {
        let mut end = tokio::select! {
            () = stops.next() => None,
            end = node.ended() => Some(end),
        };
        if end.is_none() {
            // Requests are answered meanwhile. Whoever says it twice does not want to wait.
            tokio::select! {
                () = stops.next() => tracing::warn!("told twice to stop: what is under way is not waited for"),
                ended = node.ended() => end = Some(ended).filter(|end| matches!(end, NodeEnd::Broken(_))),
                () = async { farewell().await; node.drain().await } => {}
            }
        }
        let _ = stop.send(());
        match end {
            None | Some(NodeEnd::Broken(_)) => node.stop().await,
            // Whatever it would write now is not its own any more.
            Some(NodeEnd::Session | NodeEnd::Epoch) => node.abandon().await,
        }
        end
    };
    let (end, ()) = tokio::join!(ending, serving);
    end
}

/// The signals that tell it to stop.
pub(crate) struct Stops {
    term: Signal,
    interrupt: Signal,
}

impl Stops {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Takes as many open files as this process may have: each webhook under way is one. Programs of a worker do not get them.
pub(crate) fn raise_file_limit() {
    if let Err(why) = process::raise_file_limit() {
        tracing::warn!(%why, "cannot raise the limit of open files");
    }
}

async fn bind(at: SocketAddr) -> Result<TcpListener, Ending> {
    TcpListener::bind(at).await.map_err(|why| cannot_listen(at, &why))
}

fn cannot_listen(at: SocketAddr, why: &io::Error) -> Ending {
    if why.kind() == io::ErrorKind::PermissionDenied {
        return Ending::refused(format!(
            "no permission to listen on {at}: ports below 1024 are for root; give another with --listen"
        ));
    }
    Ending::unreachable(format!(
        "cannot listen on {at}: {why}; stop whoever does, or give another address with --listen"
    ))
}

impl From<NodeStartError> for Ending {
    fn from(why: NodeStartError) -> Self {
        match why {
            NodeStartError::Corrupt(_)
            | NodeStartError::Read { .. }
            | NodeStartError::Book(BookError::Record { .. }) => Self::damaged(why.to_string()),
            NodeStartError::Scan(why) | NodeStartError::Book(BookError::Scan(why)) => why.into(),
            NodeStartError::Unfinished(why) => Self::refused(why.to_string()),
            NodeStartError::Commit(why) => why.into(),
            NodeStartError::Session(SessionError::Refused(why)) => CommitError::Refused(why).into(),
            NodeStartError::Id(_) | NodeStartError::Webhooks(_) | NodeStartError::Shards { .. } => {
                Self::wrong_input(why.to_string())
            }
            NodeStartError::Session(_) | NodeStartError::Claim { .. } => {
                Self::unreachable(why.to_string())
            }
            NodeStartError::Thread(_) | NodeStartError::Broken(_) => Self::failed(why.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    #[test]
    fn a_node_that_follows_another_waits_for_a_store_that_is_away_or_full() {
        let full = || Refusal::Full { place: "it".to_owned() };
        for passing in [
            NodeStartError::Commit(CommitError::Unknown("no answer".to_owned())),
            NodeStartError::Commit(CommitError::Refused(full())),
            NodeStartError::Session(SessionError::Refused(full())),
            NodeStartError::Scan(ScanError::Unavailable("away".to_owned())),
        ] {
            assert!(is_passing(&passing), "{passing}");
        }
        assert!(!is_passing(&NodeStartError::Corrupt("a bit".to_owned())));
        assert!(!is_passing(&NodeStartError::Commit(CommitError::Refused(Refusal::Empty))));
    }

    #[test]
    fn a_port_without_permission_is_told_from_one_that_is_taken() {
        let told = |kind: io::ErrorKind| {
            cannot_listen("127.0.0.1:80".parse().unwrap(), &io::Error::from(kind)).tell()
        };
        assert_eq!(told(io::ErrorKind::PermissionDenied), Exit::Refused);
        assert_eq!(told(io::ErrorKind::AddrInUse), Exit::Unreachable);
    }
}
