//! `watchbell dev`: a whole Watchbell in one process, for one machine.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use server::access::book::BookError;
use server::api::Gate;
use server::node::{Config, End, Node, Pace, StartError};
use server::webhook::Cidr;
use store::machine::{Machine, System};
use store::session::SessionError;
use store::{CommitError, StoreUrl, open_or_create};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::args::DevArgs;
use crate::exit::{Ending, say};

/// How long a node may act after a renewal of its session.
const TTL: Duration = Duration::from_secs(3);

/// Runs until it is told to stop by SIGTERM or SIGINT.
pub(crate) async fn dev(typed: &DevArgs) -> Result<(), Ending> {
    if !typed.listen.ip().is_loopback() {
        return Err(Ending::wrong_input(format!(
            "--listen: {} is not a loopback address: dev asks nobody for a key, so nobody else may reach it; \
             use 127.0.0.1:{}, and a proxy or a tunnel if others shall reach it",
            typed.listen.ip(),
            typed.listen.port()
        )));
    }
    raise_file_limit();
    // Whoever tells it to stop while it starts is heard.
    let mut stops = Stops::new()?;
    let listener = bind(typed.listen).await?;
    if let Some(path) = &typed.webhook_ca {
        // Before there is a store that nobody wanted.
        server::webhook::check_ca(path).map_err(|why| Ending::wrong_input(why.to_string()))?;
    }
    let url = StoreUrl::parse(&format!("file:{}", typed.data.display()))?;
    let store = open_or_create(&url)?;
    let machine: Arc<dyn Machine> = Arc::new(System);
    let at = listener.local_addr()?;
    let config = config(typed, at);
    let (node, desk) = tokio::select! {
        biased;
        // What was written so far is that of a process that died: the next one goes on from there.
        () = stops.next() => return Ok(()),
        started = Node::start(store, machine, &config) => started?,
    };
    tell(at, &typed.data);
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = server::api::serve(listener, desk, Gate::open(), async {
        let _ = stopped.await;
    });
    let ending = async {
        let ending = tokio::select! {
            () = stops.next() => Ok(()),
            end = node.ended() => Err(Ending::failed(sentence(end))),
        };
        let _ = stop.send(());
        node.stop().await;
        ending
    };
    let (ending, ()) = tokio::join!(ending, serving);
    ending
}

/// The signals that tell it to stop.
struct Stops {
    term: Signal,
    interrupt: Signal,
}

impl Stops {
    fn new() -> io::Result<Self> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

fn sentence(end: End) -> String {
    match end {
        End::Session => {
            "the node's session was lost, and with it the right to fire: start it again".to_owned()
        }
        End::Broken(part) => format!(
            "{part} has panicked, which is a bug: start it again, and report what it said before"
        ),
    }
}

/// Takes as many open files as this process may have: each webhook under way is one.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    if let Err(why) = raised {
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

fn config(typed: &DevArgs, at: SocketAddr) -> Config {
    let loopback = ["127.0.0.0/8", "::1/128"].into_iter();
    let loopback = loopback.map(|range| range.parse::<Cidr>().expect("written here, and right"));
    Config {
        id: "dev".to_owned(),
        url: Some(format!("http://{at}")),
        ttl: TTL,
        webhook_allow: loopback.chain(typed.webhook_allow.iter().copied()).collect(),
        webhook_ca: typed.webhook_ca.clone(),
        history: Pace::default(),
    }
}

/// Says where it is, and the three lines to try next. Who has closed stdout, as `| head -1` does, has had
/// enough of it; the server goes on.
fn tell(at: SocketAddr, data: &Path) {
    let mut out = io::stdout().lock();
    let told = out.write_all(welcome(at, data).as_bytes()).and_then(|()| out.flush());
    if let Err(why) = told {
        say(&format!("listening on http://{at}, which could not be said on stdout: {why}"));
    }
}

/// In the words by which this program was started.
fn welcome(at: SocketAddr, data: &Path) -> String {
    let program = std::env::args().next().unwrap_or_else(|| "watchbell".to_owned());
    let is_plain = |char: char| char.is_alphanumeric() || "/._-+~".contains(char);
    let program = if program.chars().all(is_plain) { program } else { format!("'{program}'") };
    let server = if at.port() == 7400 { String::new() } else { format!(" --server http://{at}") };
    format!(
        "Watchbell listens on http://{at} and keeps its data in {}.
Try this in a second terminal; it rings at its own door every five seconds:

  {program} trigger create --name hello --cron '*/5 * * * * *' --method GET --webhook http://{at}/livez{server}
  {program} trigger explain hello{server}
  {program} run list{server}

",
        data.display()
    )
}

impl From<StartError> for Ending {
    fn from(why: StartError) -> Self {
        match why {
            StartError::Corrupt(_)
            | StartError::Read { .. }
            | StartError::Book(BookError::Record { .. }) => Self::damaged(why.to_string()),
            StartError::Scan(why) | StartError::Book(BookError::Scan(why)) => why.into(),
            StartError::Unfinished(why) => Self::refused(why.to_string()),
            StartError::Commit(why) => why.into(),
            StartError::Session(SessionError::Refused(why)) => CommitError::Refused(why).into(),
            StartError::Id(_) | StartError::Webhooks(_) => Self::wrong_input(why.to_string()),
            StartError::Session(_) | StartError::Claim { .. } => Self::unreachable(why.to_string()),
            StartError::Thread(_) => Self::failed(why.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    #[test]
    fn a_port_without_permission_is_told_from_one_that_is_taken() {
        let told = |kind: io::ErrorKind| {
            cannot_listen("127.0.0.1:80".parse().unwrap(), &io::Error::from(kind)).tell()
        };
        assert_eq!(told(io::ErrorKind::PermissionDenied), Exit::Refused);
        assert_eq!(told(io::ErrorKind::AddrInUse), Exit::Unreachable);
    }
}
