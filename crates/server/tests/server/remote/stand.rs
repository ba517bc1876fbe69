//! A real node on any store, with keys, that can be started again at the same address.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use client::Client;
use client::key::{KeySpec, Scope};
use client::project::NewProjectSpec;
use engine::notice::webhook_to;
use engine::webhook::Webhook;
use server::api::ApiSecurity;
use server::node::{HistoryPace, NodeConfig, RunningNode};
use store::machine::{Machine, System};
use store::session::{NodeId, Session, SessionDriver};
use store::{Store, StoreUrl, session};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::server::access::house::first_admin;

/// T of the servers, and of whoever comes through them: longer than a busy machine keeps a thread waiting.
pub(super) const TTL: Duration = Duration::from_secs(3);

/// A server.
pub(super) struct Stand {
    node: RunningNode,
    pub(super) address: SocketAddr,
    /// The text of an admin's key.
    pub(super) admin: String,
    serving: JoinSet<()>,
}

/// The machine that everybody here runs on.
pub(super) fn machine() -> Arc<dyn Machine> {
    Arc::new(System)
}

impl Stand {
    pub(super) async fn on(store: Store) -> Self {
        Self::at("127.0.0.1:0".parse().unwrap(), store).await
    }

    /// One that notifies somebody at this URL of what a person should see to.
    pub(super) async fn telling(store: Store, url: &str) -> Self {
        let notify = Some(webhook_to(url).unwrap());
        Self::with("127.0.0.1:0".parse().unwrap(), store, notify).await
    }

    async fn at(address: SocketAddr, store: Store) -> Self {
        Self::with(address, store, None).await
    }

    async fn with(address: SocketAddr, store: Store, notify: Option<Webhook>) -> Self {
        let config = NodeConfig {
            id: "server-1".to_owned(),
            url: Some("http://secret-place:7400".to_owned()),
            roles: server::peers::ROLES.map(str::to_owned).to_vec(),
            ttl: TTL,
            webhook_allow: vec!["127.0.0.0/8".parse().unwrap()],
            webhook_ca: None,
            notify,
            history: HistoryPace::default(),
            shards: None,
        };
        let (node, handle) = RunningNode::start(None, store, machine(), &config).await.unwrap();
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let admin = first_admin(&handle).await;
        let mut serving = JoinSet::new();
        let (until, gate) = (handle.clone(), ApiSecurity::locked());
        let stopped = async move { until.stopped().await };
        serving.spawn(server::api::serve(listener, handle, gate, stopped));
        Self { node, address, admin, serving }
    }

    pub(super) fn client(&self, key: &str) -> Client {
        Client::builder(&format!("http://{}", self.address)).key(key).build().unwrap()
    }

    /// A client of an admin.
    pub(super) fn admin(&self) -> Client {
        self.client(&self.admin)
    }

    /// Makes a project.
    pub(super) async fn project(&self, name: &str) {
        let spec = NewProjectSpec { name: name.to_owned(), limits: None, notify: None };
        self.admin().create_project(&spec).await.unwrap();
    }

    /// Makes a key for a project, and gives its text.
    pub(super) async fn key(&self, project: &str, scopes: &[Scope]) -> String {
        let spec = KeySpec { name: "test".to_owned(), scopes: scopes.to_vec(), expires: None };
        let made = self.admin().in_project(project).unwrap().create_key(&spec).await.unwrap();
        made.secret.expect("a new key is told")
    }

    /// Where it is, for somebody with this key.
    pub(super) fn url(&self, key: &str) -> StoreUrl {
        StoreUrl::parse(&format!("http://:{key}@{}", self.address)).unwrap()
    }

    /// The server as a store.
    pub(super) async fn store(&self, key: &str) -> Store {
        store::open_existing(&self.url(key)).await.unwrap()
    }

    /// Ends everything but what it wrote.
    pub(super) async fn stop(mut self) -> SocketAddr {
        self.serving.shutdown().await;
        self.node.stop().await;
        self.address
    }

    /// Starts another one where one was.
    pub(super) async fn again(address: SocketAddr, store: Store) -> Self {
        Self::at(address, store).await
    }
}

/// A node that takes part.
pub(super) fn node(id: &str) -> session::NodeInfo {
    session::NodeInfo {
        id: NodeId::new(id).unwrap(),
        ttl: engine::lease::Ttl::new(TTL).unwrap(),
        url: None,
        roles: vec!["candidate".to_owned()],
        candidacies: Vec::new(),
    }
}

/// A session through this store.
pub(super) async fn open(store: &Store, id: &str) -> (Session, SessionDriver) {
    Session::open(store, &machine(), &node(id)).await.unwrap()
}

/// Keeps a session until it ends.
pub(super) fn keep(tasks: &mut JoinSet<()>, mut keeper: SessionDriver) {
    tasks.spawn(async move {
        keeper.run(|| true).await;
    });
}
