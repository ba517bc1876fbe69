//! A Watchbell server as a store: `https://HOST:PORT,HOST:PORT`, or `http://` on this machine.
//!
//! For candidates that are not to reach the store itself. What they may do there is a server's to decide
//! ([`crate::guest`]); to the rest of this crate it is a store like others, with sessions, claims and elections on top.
//! Three things differ. Sessions carry the project in their key. Nobody is buried from here: servers do that. And
//! nothing can be read or written but sessions and the project's elections, so there is no backup of it.
//!
//! Time stays on this side: what a renewal is worth is counted from when it was sent here, and a server adds nothing.
//! An answer that does not come is `Unknown`, whether the request was lost, or the answer, or the server; only where no
//! connection came about is it known that nothing left. A server passes on what its own store says.
//!
//! - `epoch`: which answers count
//! - `failover`: several servers, one after the other
//! - `wire`: from our types to the API's, and what its errors mean
//! - `hint`: word of changes

mod epoch;
mod failover;
mod hint;
mod wire;

use std::net::IpAddr;
use std::sync::Arc;

use client::ClientError;
use client::store::StoreFacts;
use tokio::task::JoinSet;

use self::epoch::RemoteEpochs;
use self::failover::ServerList;
use self::hint::HintListener;
use crate::{
    Adapter, Address, Class, Commit, CommitError, EngineFault, Epoch, Hints, Limits, OpenError,
    Page, Pending, Range, ScanError, Store, Version, Watchers,
};

/// A Watchbell server as a store.
pub struct RemoteStore {
    servers: Arc<ServerList>,
    epochs: RemoteEpochs,
    limits: Limits,
    project: String,
    watchers: Arc<Watchers>,
    listener: HintListener,
    _tasks: JoinSet<()>,
}

impl RemoteStore {
    /// Connects to the first server that answers, and asks what may be done there.
    pub async fn open(at: &Address) -> Result<Store, OpenError> {
        Ok(Store::new(Self::connect(at).await?))
    }

    async fn connect(at: &Address) -> Result<Self, OpenError> {
        let servers = Arc::new(ServerList::new(at, &check(at)?)?);
        let facts = servers.ask(|client| async move { client.store_facts().await }).await;
        let facts = facts.map_err(|why| refused(at, &why))?;
        let StoreFacts { moment, project, writes, commit_bytes, value_bytes } = facts;
        let watchers = Arc::new(Watchers::default());
        let mut tasks = JoinSet::new();
        let listener = HintListener::start(&mut tasks, &servers, &watchers);
        Ok(Self {
            epochs: RemoteEpochs::new(&moment),
            limits: Limits { writes, commit_bytes, value_bytes },
            project,
            servers,
            watchers,
            listener,
            _tasks: tasks,
        })
    }

    async fn read(&self, range: Range, limit: usize) -> Result<Page, ScanError> {
        let scan = &wire::scan(&range, limit)?;
        let ticket = self.epochs.ticket();
        let answer = self.servers.ask(|client| async move { client.store_scan(scan).await }).await;
        let page = answer.map_err(|why| {
            self.epochs.heed(&ticket, &why);
            wire::scan_error(&why)
        })?;
        if !self.epochs.admits(&ticket, &page.moment) {
            return Err(ScanError::Unavailable("an answer of a former epoch came late".into()));
        }
        wire::page(page, &range).map_err(ScanError::Unavailable)
    }

    async fn write(&self, commit: Commit) -> Result<Version, CommitError> {
        let sent = &wire::commit(&commit);
        let ticket = self.epochs.ticket();
        match self.servers.send(|client| async move { client.store_commit(sent).await }).await {
            Ok(done) if self.epochs.admits(&ticket, &done.moment) => Ok(Version(done.version)),
            Err(why) if self.epochs.heed(&ticket, &why) => Err(wire::commit_error(&why, &commit)),
            Ok(_) | Err(_) => {
                Err(CommitError::Unknown("an answer of a former epoch came late".into()))
            }
        }
    }
}

impl Adapter for RemoteStore {
    fn scan(&self, range: Range, limit: usize) -> Pending<'_, Result<Page, ScanError>> {
        Box::pin(self.read(range, limit))
    }

    fn commit(&self, commit: Commit) -> Pending<'_, Result<Version, CommitError>> {
        Box::pin(self.write(commit))
    }

    fn watch(&self, prefix: &str) -> Hints {
        self.listener.wake();
        self.watchers.watch(prefix)
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn class(&self) -> Class {
        self.epochs.class()
    }

    fn epoch(&self) -> Epoch {
        self.epochs.epoch()
    }

    fn guest(&self) -> Option<String> {
        Some(self.project.clone())
    }
}

/// What the URL says beside hosts and key: the project that an admin means.
struct Choice {
    project: Option<String>,
}

fn check(at: &Address) -> Result<Choice, OpenError> {
    let refuse = |why: String| Err(OpenError::Url { url: at.to_string(), why });
    let is_near = |name: &str| {
        let address: Option<IpAddr> = name.parse().ok();
        address.is_some_and(|address| address.is_loopback())
            || name.eq_ignore_ascii_case("localhost")
    };
    if at.scheme == "http"
        && let Some(host) = at.hosts.iter().find(|host| !is_near(&host.name))
    {
        return refuse(format!(
            "a key is not sent to {} in the clear: use https://, or http:// on this machine only",
            host.name
        ));
    }
    if !at.path.is_empty() {
        return refuse("nothing follows the port of a server".into());
    }
    if at.user.is_some() {
        return refuse(
            "a server has no users: give its key as https://:KEY@HOST, by --key-file or WATCHBELL_KEY"
                .into(),
        );
    }
    let mut options = at.options.clone();
    let project = options.remove("project");
    if let Some(unknown) = options.keys().next() {
        return refuse(format!("it has no option {unknown:?}; there are ca and project"));
    }
    Ok(Choice { project })
}

/// Why a server is no store for us.
fn refused(at: &Address, why: &ClientError) -> OpenError {
    let fault = match why {
        ClientError::Unauthorized(_) | ClientError::Forbidden(_) => EngineFault::Key,
        ClientError::Untrusted { .. } => EngineFault::Tls,
        ClientError::NotFound(problem) if problem.kind.ends_with(":no-project") => {
            EngineFault::Database
        }
        ClientError::NotFound(_) | ClientError::Answer { .. } => EngineFault::TooOld,
        ClientError::Url { .. }
        | ClientError::Setting { .. }
        | ClientError::Unreachable { .. }
        | ClientError::Conflict(_)
        | ClientError::Invalid(_)
        | ClientError::LimitReached { .. }
        | ClientError::Unavailable { .. }
        | ClientError::Refused(_) => EngineFault::Unreachable,
    };
    let why = match why {
        ClientError::Unreachable { why, .. } | ClientError::Untrusted { why, .. } => why.clone(),
        other => other.to_string(),
    };
    OpenError::Engine { store: at.to_string(), fault, why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoreUrl;

    #[tokio::test]
    async fn a_url_that_is_no_servers_is_refused_with_what_to_do() {
        for (url, said) in [
            ("http://example.com", "in the clear"),
            ("http://localhost,10.0.0.1:7400", "in the clear"),
            ("https://me:hunter2@h", "no users"),
            ("https://h/v1", "nothing follows"),
            ("https://h?compact=off", "no option \"compact\""),
            ("https://h?ca=/nowhere/ca.pem", "cannot read certificates"),
        ] {
            let why = crate::open_existing(&StoreUrl::parse(url).unwrap()).await.unwrap_err();
            let why = why.to_string();
            assert!(why.contains(said) && !why.contains("hunter2"), "{url}: {why}");
        }
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_unreachable() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let url = StoreUrl::parse(&format!("http://:wbk_hunter2@{free}")).unwrap();
        let why = crate::open_existing(&url).await.unwrap_err();
        assert!(matches!(why, OpenError::Engine { fault: EngineFault::Unreachable, .. }), "{why}");
        assert!(!format!("{why} {why:?}").contains("hunter2"));
    }
}
