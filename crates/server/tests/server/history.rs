//! The past of a real node, while it is merged into pages: each line is found, once.

mod output;
mod retention;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use client::spec::TriggerSpec;
use client::{Client, RunFilter};
use engine::id::{ShardId, TriggerId};
use engine::instant::Instant;
use engine::past::page::{pages, read_key};
use engine::past::retain::Retention;
use engine::past::{End, Finished, Line, Segment};
use engine::shard::record::{head_key, past, past_key};
use server::handle::NodeHandle;
use server::node::{HistoryPace, NodeConfig, RunningNode};
use store::claim::Head;
use store::machine::System;
use store::memory::MemoryStore;
use store::{
    Adapter, Class, Commit, CommitError, Epoch, Hints, Key, Limits, Page, Pending, Range,
    ScanError, Store, Version, Write,
};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

const SHARD: ShardId = ShardId(0);
const SEGMENTS: u64 = 300;

/// Works at once, and often.
const QUICK: HistoryPace = HistoryPace {
    look: Duration::from_millis(5),
    keep: 4,
    round_min: 8,
    age_max: Duration::from_secs(3_600),
    round_max: 50,
    round_bytes_max: 1 << 20,
    small_max: 2,
    day_over: Duration::from_secs(3_600),
    retention: Retention {
        age: Duration::from_secs(30 * 86_400),
        lines: 1_000,
        exception_lines: 10_000,
        bytes: 1 << 30,
        output_bytes: 1 << 30,
        ended: Duration::from_secs(30 * 86_400),
    },
};

/// A road to a store on which, if it is so told, no segment is ever deleted: whoever tries hangs there as
/// if dead, and that shows.
struct Road {
    inner: Arc<dyn Adapter>,
    keeps_segments: bool,
    tried: watch::Sender<bool>,
    room: Option<u64>,
}

impl Road {
    /// On which all is well.
    fn open(inner: &Arc<MemoryStore>) -> Store {
        Self::with_room(inner, None)
    }

    /// To a store that has room for so many bytes, or says nothing of that.
    fn with_room(inner: &Arc<MemoryStore>, room: Option<u64>) -> Store {
        let inner: Arc<dyn Adapter> = Arc::clone(inner) as Arc<dyn Adapter>;
        Store::new(Self { inner, keeps_segments: false, tried: watch::Sender::new(false), room })
    }

    /// On which no segment goes; and whether somebody has tried.
    fn keeping_segments(inner: &Arc<MemoryStore>) -> (Store, watch::Receiver<bool>) {
        let (tried, sees) = watch::channel(false);
        let inner: Arc<dyn Adapter> = Arc::clone(inner) as Arc<dyn Adapter>;
        (Store::new(Self { inner, keeps_segments: true, tried, room: None }), sees)
    }
}

impl Adapter for Road {
    fn scan(&self, range: Range, limit: usize) -> Pending<'_, Result<Page, ScanError>> {
        self.inner.scan(range, limit)
    }

    fn commit(&self, commit: Commit) -> Pending<'_, Result<Version, CommitError>> {
        let prefix = past(SHARD);
        let deletes = |write: &Write| matches!(write, Write::Delete(key) if key.as_str().starts_with(&prefix));
        if self.keeps_segments && commit.then.iter().any(deletes) {
            self.tried.send_replace(true);
            return Box::pin(async { Err(CommitError::Unavailable("no segment goes".into())) });
        }
        self.inner.commit(commit)
    }

    fn watch(&self, prefix: &str) -> Hints {
        self.inner.watch(prefix)
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn class(&self) -> Class {
        self.inner.class()
    }

    fn epoch(&self) -> Epoch {
        self.inner.epoch()
    }

    fn room(&self) -> Option<u64> {
        self.room
    }

    /// One node after the other.
    fn is_exclusive(&self) -> bool {
        true
    }
}

/// A node with its API.
struct Served {
    node: RunningNode,
    client: Client,
    handle: NodeHandle,
    _tasks: JoinSet<()>,
}

impl Served {
    async fn start(store: Store, history: HistoryPace) -> Self {
        let config = NodeConfig {
            id: "one".to_owned(),
            url: None,
            roles: server::peers::ROLES.map(str::to_owned).to_vec(),
            ttl: Duration::from_secs(3),
            webhook_allow: Vec::new(),
            webhook_ca: None,
            notify: None,
            history,
            shards: None,
        };
        let (node, handle) =
            RunningNode::start(None, store, Arc::new(System), &config).await.unwrap();
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let client = Client::builder(&url).retries(0).build().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(server::api::serve(
            listener,
            handle.clone(),
            server::api::ApiSecurity::open(),
            std::future::pending(),
        ));
        Self { node, client, handle, _tasks: tasks }
    }

    /// All runs of a trigger that one request finds.
    async fn runs(&self, name: &str) -> Vec<String> {
        let filter = RunFilter { limit: Some(500), ..RunFilter::default() };
        let page = self.client.runs_of(name, &filter).await.unwrap();
        assert_eq!(page.next, None, "one request reads it all");
        page.items.into_iter().map(|run| run.id).collect()
    }

    /// Some runs of a trigger, and where to go on.
    async fn some(&self, name: &str, cursor: Option<String>) -> (Vec<String>, Option<String>) {
        let filter = RunFilter { limit: Some(70), cursor, ..RunFilter::default() };
        let page = self.client.runs_of(name, &filter).await.unwrap();
        (page.items.into_iter().map(|run| run.id).collect(), page.next)
    }

    /// Each run of both triggers is found once, in the list and by its id.
    async fn check_all_once(&self, when: &str) -> BTreeSet<String> {
        for name in ["first", "second"] {
            let runs = self.runs(name).await;
            let set: BTreeSet<String> = runs.iter().cloned().collect();
            assert_eq!(set.len(), usize::try_from(SEGMENTS).unwrap(), "{when}: all of {name}");
            assert_eq!(set.len(), runs.len(), "{when}: each of {name} once");
            for id in set.iter().step_by(37) {
                assert_eq!(self.client.run_by_id(id).await.unwrap().id, *id, "{when}");
            }
        }
        self.runs("first").await.into_iter().collect()
    }
}

fn key(text: String) -> Key {
    Key::new(text).unwrap()
}

/// What is below a prefix.
async fn below(store: &Store, prefix: &str) -> Vec<String> {
    let (mut keys, mut rest) = (Vec::new(), Some(Range::prefix(prefix)));
    while let Some(range) = rest {
        let page = store.scan(range, 1_000).await.unwrap();
        keys.extend(page.entries.into_iter().map(|entry| entry.key.as_str().to_owned()));
        rest = page.next;
    }
    keys
}

/// Writes the past as commits of the shard would, two days of it, while nobody owns the shard.
async fn write_past(store: &Store, triggers: &[TriggerId]) {
    let entry = store.get(&key(head_key(SHARD))).await.unwrap().unwrap();
    let mut head = Head::from_value(&entry.value).unwrap();
    for _ in 0..SEGMENTS {
        head.number += 1;
        let run = |trigger: &TriggerId| {
            let slot = trigger.serial.birth().0 + i64::try_from(head.number).unwrap() * 600_000;
            Line::Run(Finished {
                project: engine::id::ProjectId::DEFAULT,
                trigger: trigger.serial,
                slot: Instant(slot),
                generation: None,
                sequence: Some(head.number),
                notice: None,
                queue: None,
                end: End::Succeeded,
                at: Instant(slot),
                attempt: 1,
                attempts: Vec::new(),
            })
        };
        let segment = Segment { lines: triggers.iter().map(run).collect() };
        let commit = Commit::new()
            .put(key(past_key(SHARD, head.number)), segment.to_bytes())
            .put(key(head_key(SHARD)), head.to_value());
        store.commit(commit).await.unwrap();
    }
}

/// Waits until something holds of the store, looking again after each change.
async fn until(store: &Store, what: impl AsyncFn(&Store) -> bool) {
    let mut hints = store.watch("shard/");
    let holds = async {
        while !what(store).await {
            let _ = tokio::time::timeout(Duration::from_millis(500), hints.changed()).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), holds).await.expect("it comes to that");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_line_is_found_once_before_during_and_after_a_merge_that_was_cut_short() {
    let memory = Arc::new(MemoryStore::new());
    let store = Road::open(&memory);
    let about = engine::record::encode(
        engine::record::Format(1),
        &std::collections::BTreeMap::from([("id", 7_u64), ("shards", 1)]),
    );
    store.commit(Commit::new().put(key("cluster/about".to_owned()), about)).await.unwrap();
    let maker = Served::start(store.clone(), HistoryPace::default()).await;
    let mut triggers = Vec::new();
    for name in ["first", "second"] {
        let spec = TriggerSpec::webhook(name, "http://127.0.0.1:9/");
        let made = maker.client.create_trigger(&spec).await.unwrap();
        triggers.push(made.id.parse().unwrap());
    }
    maker.node.stop().await;
    write_past(&store, &triggers).await;

    // Before: nothing is merged yet. A reader begins here.
    let slow = HistoryPace { look: Duration::from_secs(3_600), ..QUICK };
    let before = Served::start(store.clone(), slow).await;
    let all = before.check_all_once("before").await;
    let (mut told, cursor) = before.some("first", None).await;
    before.node.stop().await;

    // During: the pages of the first round are written, and then the node dies.
    let (road, mut tried) = Road::keeping_segments(&memory);
    let during = Served::start(road, QUICK).await;
    tried.wait_for(|tried| *tried).await.unwrap();
    assert!(!below(&store, &pages(SHARD)).await.is_empty(), "pages are written first");
    let segments = below(&store, &past(SHARD)).await.len();
    assert_eq!(segments, usize::try_from(SEGMENTS).unwrap(), "no segment has gone");
    assert_eq!(during.check_all_once("during").await, all);
    drop(during);

    // After: a successor does it again, and goes on. The reader does too.
    let after = Served::start(store.clone(), QUICK).await;
    let (some, mut cursor) = after.some("first", cursor).await;
    told.extend(some);
    until(&store, async |store| below(store, &past(SHARD)).await.len() <= 12).await;
    assert_eq!(after.check_all_once("after").await, all);
    while cursor.is_some() {
        let (some, next) = after.some("first", cursor).await;
        told.extend(some);
        cursor = next;
    }
    assert_eq!(told.into_iter().collect::<BTreeSet<_>>(), all, "the slow reader missed nothing");

    // Small pages become few: at most as many as are left alone in each bucket and day.
    until(&store, async |store| {
        let mut count = std::collections::BTreeMap::new();
        for key in below(store, &pages(SHARD)).await {
            let (bucket, name) = read_key(SHARD, &key).unwrap();
            *count.entry((bucket, name.day)).or_insert(0) += 1;
        }
        count.values().all(|pages| *pages <= QUICK.small_max)
    })
    .await;
    assert_eq!(after.check_all_once("compacted").await, all);
    assert!(after.handle.is_ready());
    after.node.stop().await;
}
