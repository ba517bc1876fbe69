//! A node under test: its clocks can be set, and it can be killed.

use std::future::pending;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use client::account::Account;
use client::spec::{CatchUp, TriggerSpec};
use client::{Client, Timestamp};
use engine::id::ShardId;
use engine::lease::Reading;
use engine::limits::SHARDS_DEFAULT;
use engine::notice::webhook_to;
use rig::{PATIENCE, Receiver, Reply, until};
use serde_json::Value;
use server::api::ApiSecurity;
use server::handle::NodeHandle;
use server::node::{HistoryPace, NodeConfig, NodeEnd, NodeStartError, RunningNode};
use store::machine::{Machine, System};
use store::memory::MemoryStore;
use store::{
    Adapter, Class, Commit, CommitError, Epoch, Hints, Limits, Page, Pending, Range, ScanError,
    Store, Version,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

pub(crate) const MINUTE_MS: i64 = 60_000;
pub(crate) const HOUR_MS: i64 = 60 * MINUTE_MS;

/// The clocks of a machine: they run as ours do, from where they are set.
pub(crate) struct Clocks {
    wall_ms: AtomicI64,
    slept_ms: AtomicI64,
    broken: Mutex<Option<&'static str>>,
}

impl Clocks {
    /// The wall clock shows what that of this machine does.
    fn plain() -> Arc<Self> {
        Arc::new(Self {
            wall_ms: AtomicI64::new(0),
            slept_ms: AtomicI64::new(0),
            broken: Mutex::new(None),
        })
    }

    /// The wall clock shows this now.
    pub(crate) fn at(wall: &str) -> Arc<Self> {
        let clocks = Self::plain();
        let wall: Timestamp = wall.parse().unwrap();
        let ours = i64::try_from(System.wall_us() / 1_000).unwrap();
        clocks.wall_ms.store(wall.as_millisecond() - ours, Ordering::SeqCst);
        clocks
    }

    /// Somebody sets the wall clock.
    pub(crate) fn set_wall_by(&self, ms: i64) {
        self.wall_ms.fetch_add(ms, Ordering::SeqCst);
    }

    /// The machine was asleep for so long.
    pub(crate) fn sleep_for(&self, ms: i64) {
        self.slept_ms.fetch_add(ms, Ordering::SeqCst);
    }

    /// Threads whose name begins so panic when they look at a clock from now on.
    pub(crate) fn break_threads(&self, name: &'static str) {
        *self.broken.lock().unwrap() = Some(name);
    }

    fn check_thread(&self) {
        let broken = *self.broken.lock().unwrap_or_else(PoisonError::into_inner);
        let thread = thread::current();
        if let (Some(broken), Some(name)) = (broken, thread.name()) {
            assert!(!name.starts_with(broken), "{name} is broken on purpose");
        }
    }
}

impl Machine for Clocks {
    fn reading(&self) -> Reading {
        self.check_thread();
        let Reading { boot, raw } = System.reading();
        let slept = self.slept_ms.load(Ordering::SeqCst).unsigned_abs();
        Reading { boot: boot + Duration::from_millis(slept), raw }
    }

    fn wall_us(&self) -> u64 {
        let by = self.wall_ms.load(Ordering::SeqCst) + self.slept_ms.load(Ordering::SeqCst);
        System.wall_us().saturating_add_signed(by * 1_000)
    }

    fn random(&self) -> u64 {
        System.random()
    }

    fn sleep(&self, length: Duration) -> Pending<'static, ()> {
        System.sleep(length)
    }
}

/// A store that one node at a time has open, unless it is shared. A node that was killed reaches it no more.
struct Opened {
    memory: Arc<MemoryStore>,
    is_cut: AtomicBool,
    /// Whoever writes to a shard panics.
    is_broken: AtomicBool,
    /// What of shards cannot be read: `queue`, `body`, ...
    unreadable: Mutex<Option<&'static str>>,
    /// Pages are short, and each takes its time.
    is_slow: bool,
    is_shared: bool,
}

/// A page of a slow store, and how long it takes.
const SLOW_PAGE: (usize, Duration) = (3, Duration::from_millis(2));

impl Opened {
    fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::SeqCst)
    }
}

impl Adapter for Opened {
    fn scan(&self, range: Range, limit: usize) -> Pending<'_, Result<Page, ScanError>> {
        if self.is_cut() {
            return Box::pin(pending());
        }
        let unreadable = *self.unreadable.lock().unwrap();
        let is_of =
            |part: &str, shard: u16| range.is_within(&format!("shard/{}/{part}/", ShardId(shard)));
        if unreadable.is_some_and(|part| (0..SHARDS_DEFAULT).any(|shard| is_of(part, shard))) {
            return Box::pin(async { Err(ScanError::Unavailable("unreadable on purpose".into())) });
        }
        if !self.is_slow {
            return self.memory.scan(range, limit);
        }
        let (most, time) = SLOW_PAGE;
        Box::pin(async move {
            // Not a wait for anything: what the store is like.
            tokio::time::sleep(time).await;
            self.memory.scan(range, limit.min(most)).await
        })
    }

    fn commit(&self, commit: Commit) -> Pending<'_, Result<Version, CommitError>> {
        if self.is_cut() {
            return Box::pin(pending());
        }
        let is_of_shard =
            commit.then.iter().any(|write| write.key().as_str().starts_with("shard/"));
        assert!(!is_of_shard || !self.is_broken.load(Ordering::SeqCst), "broken on purpose");
        self.memory.commit(commit)
    }

    fn watch(&self, prefix: &str) -> Hints {
        self.memory.watch(prefix)
    }

    fn limits(&self) -> Limits {
        self.memory.limits()
    }

    fn class(&self) -> Class {
        self.memory.class()
    }

    fn epoch(&self) -> Epoch {
        self.memory.epoch()
    }

    fn is_exclusive(&self) -> bool {
        !self.is_shared
    }
}

/// What outlives a node: the store, and the receiver.
pub(crate) struct World {
    memory: Arc<MemoryStore>,
    is_slow: bool,
    is_shared: bool,
    pub(crate) receiver: Receiver,
}

/// A node that runs.
pub(crate) struct Running {
    node: RunningNode,
    pub(crate) client: Client,
    pub(crate) address: SocketAddr,
    pub(crate) handle: NodeHandle,
    pub(crate) clocks: Arc<Clocks>,
    opened: Arc<Opened>,
    serving: JoinSet<()>,
}

impl World {
    /// One whose receiver takes everything.
    pub(crate) fn new() -> Self {
        Self::with(Receiver::start(1, |_| Reply::FINE))
    }

    pub(crate) fn with(receiver: Receiver) -> Self {
        Self { memory: Arc::new(MemoryStore::new()), is_slow: false, is_shared: false, receiver }
    }

    /// One for several nodes, with this receiver.
    pub(crate) fn shared(receiver: Receiver) -> Self {
        Self { is_shared: true, ..Self::with(receiver) }
    }

    /// One whose store reads little at a time, and slowly.
    pub(crate) fn slow() -> Self {
        Self { is_slow: true, ..Self::new() }
    }

    /// One whose store may forget what it acknowledged.
    pub(crate) fn forgetful() -> Self {
        Self { memory: Arc::new(MemoryStore::of_class(Class::B)), ..Self::new() }
    }

    /// The store, as it is without any node.
    pub(crate) fn store(&self) -> Store {
        Store::shared(Arc::clone(&self.memory) as Arc<dyn Adapter>)
    }

    /// The store goes on elsewhere, and has forgotten nothing.
    pub(crate) fn fail_over(&self) {
        self.memory.fail_over(0);
    }

    /// Starts a node, whose wall clock shows this, and which asks nobody for a key.
    pub(crate) async fn start(&self, wall: &str) -> Running {
        self.start_behind(wall, ApiSecurity::open()).await
    }

    /// Starts a node that lets people in through this gate.
    pub(crate) async fn start_behind(&self, wall: &str, gate: ApiSecurity) -> Running {
        self.try_start(wall, gate).await.unwrap()
    }

    pub(crate) async fn try_start(
        &self,
        wall: &str,
        gate: ApiSecurity,
    ) -> Result<Running, NodeStartError> {
        self.start_on(Clocks::at(wall), gate, |_| {}).await
    }

    /// Starts one of several nodes, whose clocks agree: each has its name, and notifies somebody at this URL.
    pub(crate) async fn start_one(&self, name: &str, notify: &str) -> Running {
        let started = self.start_on(Clocks::plain(), ApiSecurity::open(), |config| {
            name.clone_into(&mut config.id);
            config.notify = Some(webhook_to(notify).unwrap());
        });
        started.await.unwrap()
    }

    async fn start_on(
        &self,
        clocks: Arc<Clocks>,
        gate: ApiSecurity,
        change: impl FnOnce(&mut NodeConfig),
    ) -> Result<Running, NodeStartError> {
        let opened = Arc::new(Opened {
            memory: Arc::clone(&self.memory),
            is_cut: AtomicBool::new(false),
            is_broken: AtomicBool::new(false),
            unreadable: Mutex::new(None),
            is_slow: self.is_slow,
            is_shared: self.is_shared,
        });
        let store = Store::shared(Arc::clone(&opened) as Arc<dyn Adapter>);
        let mut config = NodeConfig {
            id: "test".to_owned(),
            url: None,
            roles: server::peers::ROLES.map(str::to_owned).to_vec(),
            ttl: Duration::from_secs(3),
            webhook_allow: vec!["127.0.0.0/8".parse().unwrap()],
            webhook_ca: None,
            notify: None,
            history: HistoryPace::default(),
            shards: None,
        };
        change(&mut config);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let url = format!("http://{address}");
        // Others reach it there.
        config.url = self.is_shared.then(|| url.clone());
        let machine = Arc::clone(&clocks) as Arc<dyn Machine>;
        let (node, handle) = RunningNode::start(None, store, machine, &config).await?;
        let client = Client::builder(&url).retries(0).build().unwrap();
        let mut serving = JoinSet::new();
        let until = handle.clone();
        let stopped = async move { until.stopped().await };
        serving.spawn(server::api::serve(listener, handle.clone(), gate, stopped));
        Ok(Running { node, client, address, handle, clocks, opened, serving })
    }

    /// What is in the store, key by key.
    pub(crate) async fn entries(&self) -> Vec<store::Entry> {
        let store = Store::shared(Arc::clone(&self.memory) as Arc<dyn Adapter>);
        let (mut entries, mut rest) = (Vec::new(), Some(Range::all()));
        while let Some(range) = rest {
            let page = store.scan(range, 1_000).await.unwrap();
            entries.extend(page.entries);
            rest = page.next;
        }
        entries
    }

    /// A trigger that calls a path of its own name.
    pub(crate) fn spec(&self, name: &str) -> TriggerSpec {
        TriggerSpec::webhook(name, self.receiver.url(0, &format!("/{name}")))
    }

    /// The slots for which a trigger's receiver was called.
    pub(crate) fn slots(&self, name: &str) -> Vec<String> {
        self.receiver.slots(&format!("/{name}"))
    }

    /// Waits until a trigger's receiver was called so often.
    pub(crate) async fn heard(&self, name: &str, calls: usize) -> Vec<String> {
        until(&format!("{name} is called {calls} times"), PATIENCE, || async {
            let slots = self.slots(name);
            (slots.len() >= calls).then_some(slots)
        })
        .await
    }
}

impl Running {
    pub(crate) async fn create(&self, spec: TriggerSpec) {
        self.client.create_trigger(&spec).await.unwrap();
    }

    /// What the API answers to a request with a JSON body, which must be fine.
    pub(super) async fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let (status, answer) = self.answer(method, path, body).await;
        assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
        answer
    }

    /// The same, whatever comes of it: the status, and the body of the answer.
    pub(super) async fn answer(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let (body, address) = (body.to_string(), self.address);
        let head = format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n");
        let about = format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len());
        stream.write_all(format!("{head}{about}\r\n{body}").as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap())
    }

    /// Ends it as a loss of power would: from here on it writes nothing and sends nothing.
    pub(crate) fn kill(mut self) {
        self.opened.is_cut.store(true, Ordering::SeqCst);
        self.clocks.sleep_for(HOUR_MS);
        self.serving.abort_all();
        drop(self.node);
    }

    /// From here on, whoever writes to a shard panics.
    pub(crate) fn break_store(&self) {
        self.opened.is_broken.store(true, Ordering::SeqCst);
    }

    /// Nothing of this part of shards can be read from now on, or all can.
    pub(crate) fn lose_sight_of(&self, part: Option<&'static str>) {
        *self.opened.unreadable.lock().unwrap() = part;
    }

    /// Waits for its end.
    pub(crate) async fn ended(&self) -> NodeEnd {
        let ended = tokio::time::timeout(PATIENCE, self.node.ended()).await;
        ended.expect("the node ends")
    }

    /// Stops it in order.
    pub(crate) async fn stop(self) {
        self.node.stop().await;
    }

    /// Stops it at once.
    pub(crate) async fn abandon(self) {
        self.node.abandon().await;
    }

    /// The account of a trigger from an instant on, once every slot in it has come to an end.
    pub(crate) async fn settled(&self, name: &str, from: &str) -> Account {
        let from: Timestamp = from.parse().unwrap();
        until(&format!("{name} rests"), PATIENCE, || async {
            let account = self.client.account(name, Some(from), None).await.unwrap();
            let totals = &account.totals;
            assert_eq!(totals.missing + totals.unread, 0, "{account:?}");
            (totals.pending + totals.under_way == 0).then_some(account)
        })
        .await
    }

    pub(crate) async fn is_suspended(&self) -> bool {
        let status = self.client.scheduler().await.unwrap();
        assert_eq!(status.why.is_some(), status.since.is_some(), "{status:?}");
        status.why.is_some()
    }

    /// Waits until firing is suspended, or goes on.
    pub(crate) async fn wait_suspended(&self, is_suspended: bool) {
        until(&format!("firing is suspended: {is_suspended}"), PATIENCE, || async {
            (self.is_suspended().await == is_suspended).then_some(())
        })
        .await;
    }
}

/// With this rule for what was missed.
pub(crate) fn catching_up(mut spec: TriggerSpec, catch_up: CatchUp) -> TriggerSpec {
    spec.catch_up = Some(catch_up);
    spec
}
