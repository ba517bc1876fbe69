//! A server on a port of its own, with a memory store and a stand-in for the node: it answers commands by
//! writing what a shard would write, and fires nothing.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use client::Client;
use client::problem::Problem;
use client::spec::TriggerSpec;
use engine::id::{Birth, ProjectId, RunId, SerialId, ShardId, TriggerId};
use engine::instant::Instant;
use engine::lease::{Nonce, Reading};
use engine::notice::webhook_to;
use engine::past::exception::exception_key_of;
use engine::past::{End, Finished, Line, Segment};
use engine::record::{decode, encode};
use engine::shard::command::{BackfillProgress, Command, Done, Rejection};
use engine::shard::record::{
    FORMAT, HeadRecord, NameRecord, Pause, RunRecord, RunState, TriggerRecord, TriggerState,
    head_key, name_key, past_key, run_key, state_key, trigger_key,
};
use engine::shard::{CommandNote, Put, ShardAnswer};
use engine::trigger::Definition;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::to_raw_value;
use server::access::Access;
use server::api::ApiSecurity;
use server::handle::{
    CallError, FiringState, NodeCall, NodeContext, NodeHandle, NodeStatus, QuiesceId, QuiescePoint,
    WriteTrouble,
};
use server::monitor::Monitor;
use server::node::Component;
use server::notifier::Notifier;
use server::peers::Peers;
use server::webhook;
use store::claim::{ClaimState, Head, SHARD_HEAD};
use store::machine::{Machine, System};
use store::memory::MemoryStore;
use store::session::{NodeId, SessionKey};
use store::{Commit, Key, Pending, Store};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

/// 2027-01-15T08:00:00Z, a Friday.
pub(super) const NOW: Instant = Instant(1_800_000_000_000);

pub(super) const CLUSTER: u64 = 7;

pub(super) const SHARDS: u16 = 4;

/// A machine whose wall clock stands where it was put.
pub(super) struct Clock {
    wall_ms: AtomicU64,
    dice: AtomicU64,
}

impl Machine for Clock {
    fn reading(&self) -> Reading {
        Reading { boot: Duration::ZERO, raw: Duration::ZERO }
    }

    fn wall_us(&self) -> u64 {
        self.wall_ms.load(Ordering::Relaxed) * 1_000
    }

    fn random(&self) -> u64 {
        self.dice.fetch_add(1, Ordering::Relaxed)
    }

    fn sleep(&self, length: Duration) -> Pending<'static, ()> {
        Box::pin(tokio::time::sleep(length))
    }
}

/// Servers of different names have different dice.
fn seed(name: &str) -> u64 {
    name.bytes().fold(1, |seed, byte| seed * 251 % 1_000_003 + u64::from(byte)) << 20
}

/// How often shards were quiesced, and let go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Quiesces {
    pub(super) begun: u64,
    pub(super) ended: u64,
}

pub(super) struct Bench {
    pub(super) client: Client,
    pub(super) store: Store,
    pub(super) address: SocketAddr,
    pub(super) status: Arc<watch::Sender<NodeStatus>>,
    pub(super) trouble: watch::Sender<Option<WriteTrouble>>,
    clock: Arc<Clock>,
    /// What the next command is answered with, instead of being done.
    pub(super) refuse: Arc<Mutex<Option<CallError>>>,
    /// What a backfill is answered with after its first runs.
    pub(super) backfill: Arc<Mutex<Option<CallError>>>,
    /// Commands that were done.
    pub(super) done: Arc<AtomicUsize>,
    /// Shards that were quiesced.
    pub(super) quiesces: watch::Receiver<Quiesces>,
    pub(super) peers: Arc<Peers>,
    numbers: Arc<AtomicU64>,
    stop: Option<oneshot::Sender<()>>,
    tasks: JoinSet<()>,
}

impl Bench {
    pub(super) async fn new() -> Self {
        Self::of(Store::new(MemoryStore::new()), "bench", ApiSecurity::open()).await
    }

    /// A server of this name, which has every shard.
    pub(super) async fn of(store: Store, name: &str, gate: ApiSecurity) -> Self {
        Self::with(store, name, gate, None).await
    }

    /// One that notifies somebody at this URL of what goes wrong in the cluster.
    pub(super) async fn telling(url: &str) -> Self {
        Self::with(Store::new(MemoryStore::new()), "bench", ApiSecurity::open(), Some(url)).await
    }

    async fn with(store: Store, name: &str, gate: ApiSecurity, notify: Option<&str>) -> Self {
        let scheme = if gate.tls.is_some() { "https" } else { "http" };
        let wall_ms = AtomicU64::new(NOW.0.unsigned_abs());
        let clock = Arc::new(Clock { wall_ms, dice: AtomicU64::new(seed(name)) });
        let (calls, taken) = mpsc::channel(16);
        let (status, shown) =
            watch::channel(NodeStatus { firing: FiringState::Going, is_ready: true });
        let machine: Arc<dyn Machine> = clock.clone();
        let me = SessionKey::new(&NodeId::new(name).unwrap(), 1);
        let peers = Arc::new(Peers::alone(me, SHARDS));
        let mut tasks = JoinSet::new();
        let mut notifier = Notifier::default();
        if let Some(url) = notify {
            let mut webhooks = webhook::Config::new(Arc::new(|| true));
            webhooks.allow = vec!["127.0.0.0/8".parse().unwrap()];
            let on: Arc<dyn Machine> = Arc::new(System);
            let (delivery, told) = Notifier::new(webhook_to(url).unwrap(), &webhooks, &on).unwrap();
            tasks.spawn(delivery.run());
            notifier = told;
        }
        let context = NodeContext {
            followers: Arc::default(),
            store: store.clone(),
            access: Access::open(&store, &machine).await.unwrap(),
            events: Arc::default(),
            peers: peers.clone(),
            notifier,
            rings: None,
            machine: clock.clone(),
            shards: SHARDS,
            cluster: CLUSTER,
            metrics: Box::new(|| "watchbell_up 1\n".to_owned()),
            quarantine: Box::new(|| std::time::Duration::ZERO),
            may_act: Box::new(|| true),
        };
        let (trouble, told) = watch::channel(None);
        let handle = NodeHandle::new(context, calls, shown, told);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let (refuse, status) = (Arc::new(Mutex::new(None)), Arc::new(status));
        let (done, backfill) = (Arc::<AtomicUsize>::default(), Arc::default());
        let quiesces = watch::Sender::new(Quiesces::default());
        let node = StandIn {
            store: store.clone(),
            clock: clock.clone(),
            refuse: refuse.clone(),
            backfill: Arc::clone(&backfill),
            status: status.clone(),
            done: done.clone(),
            quiesces: quiesces.clone(),
            last: SerialId(0),
            sequence: 0,
        };
        tasks.spawn(node.take(taken));
        tasks.spawn(async move {
            let stop = async { drop(stopped.await) };
            // The monitor ends with the server, as it does on a node.
            tokio::select! {
                () = Monitor(handle.clone()).run() => {}
                () = server::api::serve(listener, handle, gate, stop) => {}
            }
        });
        let client = Client::builder(&format!("{scheme}://{address}")).retries(0).build().unwrap();
        let (numbers, stop) = (Arc::default(), Some(stop));
        Self {
            client,
            store,
            address,
            status,
            trouble,
            clock,
            refuse,
            backfill,
            done,
            quiesces: quiesces.subscribe(),
            peers,
            numbers,
            stop,
            tasks,
        }
    }

    /// How many commands it has done.
    pub(super) fn done(&self) -> usize {
        self.done.load(Ordering::SeqCst)
    }

    /// Lets time pass.
    pub(super) fn set_now(&self, now: Instant) {
        self.clock.wall_ms.store(now.0.unsigned_abs(), Ordering::Relaxed);
    }

    /// Stops the server, and waits until it has.
    pub(super) async fn stop(mut self) {
        drop(self.stop.take());
        while self.tasks.join_next().await.is_some() {}
    }

    pub(super) async fn create(&self, spec: &TriggerSpec) -> TriggerId {
        self.client.create_trigger(spec).await.unwrap().id.parse().unwrap()
    }

    /// A trigger that fires every minute at second 0.
    pub(super) async fn minutely(&self, name: &str) -> TriggerId {
        self.create(&minutely(name)).await
    }

    /// Writes lines of the past as the next commit of a shard.
    pub(super) async fn past(&self, shard: ShardId, lines: Vec<Line>) {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let mut commit = Commit::new();
        if let Some(exceptions) = exception_key_of(shard, &lines, number) {
            let lines = lines
                .iter()
                .filter(|line| line.is_exception())
                .map(|line| line.clone().without_responses())
                .collect();
            commit = commit.put(key(exceptions), Segment { lines }.to_bytes());
        }
        let segment = Segment { lines }.to_bytes();
        self.store.commit(commit.put(key(past_key(shard, number)), segment)).await.unwrap();
    }

    /// Writes so many batches of this one line.
    pub(super) async fn fill(&self, shard: ShardId, batches: usize, line: &Line) {
        let mut commit = Commit::new();
        for batch in 1..=batches {
            let number = self.numbers.fetch_add(1, Ordering::Relaxed);
            let segment = Segment { lines: vec![line.clone()] }.to_bytes();
            commit = commit.put(key(past_key(shard, number)), segment);
            if batch % 1_000 == 0 || batch == batches {
                self.store.commit(std::mem::take(&mut commit)).await.unwrap();
            }
        }
    }

    pub(super) async fn put(&self, name: String, record: &impl Serialize) {
        put(&self.store, name, record).await;
    }

    pub(super) async fn head(&self, shard: ShardId, record: &HeadRecord) {
        let head = Head {
            format: SHARD_HEAD,
            session: None,
            token: 1,
            state: ClaimState::Free,
            number: 1,
            nonce: Nonce(1),
            body: Some(to_raw_value(record).unwrap()),
        };
        let commit = Commit::new().put(key(head_key(shard)), head.to_value());
        self.store.commit(commit).await.unwrap();
    }

    /// Sends bytes as they are, and gives back the whole answer. The request closes its connection.
    pub(super) async fn raw(&self, request: &str) -> Answer {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        Answer(String::from_utf8(answer).unwrap())
    }

    /// A request with a JSON body.
    pub(super) async fn json(&self, method: &str, path: &str, body: &str) -> Answer {
        self.with_headers(method, path, "content-type: application/json\r\n", body).await
    }

    pub(super) async fn with_headers(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        body: &str,
    ) -> Answer {
        let len = body.len();
        self.raw(&format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-length: {len}\r\n{headers}\r\n{body}",
            self.address
        ))
        .await
    }
}

/// The text of an answer.
pub(super) struct Answer(pub(super) String);

impl Answer {
    pub(super) fn status(&self) -> u16 {
        self.0.split(' ').nth(1).unwrap().parse().unwrap()
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let head = self.0.split("\r\n\r\n").next().unwrap();
        let mut lines = head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub(super) fn body<T: DeserializeOwned>(&self) -> T {
        let (_, body) = self.0.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap_or_else(|why| panic!("{why}: {}", self.0))
    }

    /// The problem that it is, with all that every problem has.
    #[track_caller]
    pub(super) fn problem(&self, status: u16) -> Problem {
        assert_eq!(self.status(), status, "{}", self.0);
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{}", self.0);
        let problem: Problem = self.body();
        assert_eq!(problem.status, status);
        assert_eq!(problem.request_id.as_deref(), self.header("x-request-id"));
        assert!(problem.request_id.is_some() && !problem.detail.is_empty(), "{}", self.0);
        problem
    }
}

pub(super) fn minutely(name: &str) -> TriggerSpec {
    TriggerSpec::webhook(name, "http://example.com/hook").cron("* * * * *")
}

/// So many minutes after now.
pub(super) fn minute(minutes: i64) -> Instant {
    Instant(NOW.0 + minutes * 60_000)
}

/// A slot of the first generation that ended well.
pub(super) fn succeeded(id: TriggerId, slot: Instant) -> Line {
    Line::Run(Finished {
        project: engine::id::ProjectId::DEFAULT,
        trigger: id.serial,
        slot,
        generation: Some(1),
        sequence: None,
        notice: None,
        queue: None,
        end: End::Succeeded,
        at: Instant(slot.0 + 40),
        attempt: 1,
        attempts: vec![engine::past::Attempt {
            at: slot,
            ms: 40,
            status: Some(200),
            ..engine::past::Attempt::default()
        }],
    })
}

pub(super) fn key(text: String) -> Key {
    Key::new(text).unwrap()
}

async fn put(store: &Store, name: String, record: &impl Serialize) {
    store.commit(Commit::new().put(key(name), encode(FORMAT, record))).await.unwrap();
}

async fn get<T: DeserializeOwned>(store: &Store, name: String) -> Option<T> {
    let entry = store.get(&key(name)).await.unwrap()?;
    Some(decode(entry.value.as_bytes(), FORMAT).unwrap())
}

/// Does what commands say, in the store, without any rule of the real one.
struct StandIn {
    store: Store,
    clock: Arc<Clock>,
    refuse: Arc<Mutex<Option<CallError>>>,
    backfill: Arc<Mutex<Option<CallError>>>,
    status: Arc<watch::Sender<NodeStatus>>,
    done: Arc<AtomicUsize>,
    quiesces: watch::Sender<Quiesces>,
    last: SerialId,
    sequence: u64,
}

impl StandIn {
    async fn take(mut self, mut calls: mpsc::Receiver<NodeCall>) {
        while let Some(call) = calls.recv().await {
            match call {
                NodeCall::Command { shard, command, note, reply, .. } => {
                    let refused = self.refuse.lock().unwrap().take();
                    let done = match refused {
                        Some(error) => Err(error),
                        None => self.obey(shard, command).await.map_err(CallError::Rejected),
                    };
                    if let Ok(done) = &done {
                        self.done.fetch_add(1, Ordering::SeqCst);
                        self.note(note, done).await;
                    }
                    let _ = reply.send(done);
                }
                // No queue has a run here.
                NodeCall::Ask { reply, .. } => {
                    let refused = self.refuse.lock().unwrap().take();
                    let answer = refused.map_or(Ok(ShardAnswer::Runs(Vec::new())), Err);
                    drop(reply.send(answer));
                }
                NodeCall::StopWaiting { .. } => {}
                NodeCall::Rewrite { .. } => unreachable!("nobody keeps this past elsewhere"),
                NodeCall::CompareUsage { .. } => unreachable!("nobody counts what others have"),
                NodeCall::Quiesce { shard, reply } => {
                    let number = self.number(shard).await;
                    self.quiesces.send_modify(|quiesces| quiesces.begun += 1);
                    let quiesce = QuiesceId(self.quiesces.borrow().begun);
                    let _ = reply.send(Ok(QuiescePoint { quiesce, number }));
                }
                NodeCall::Census { reply } => drop(reply.send(Ok(()))),
                NodeCall::Release { .. } => {
                    self.quiesces.send_modify(|quiesces| quiesces.ended += 1);
                }
                NodeCall::ConfirmTime { reply } => {
                    self.status.send_modify(|status| status.firing = FiringState::Going);
                    let _ = reply.send(Ok(()));
                }
            }
        }
    }

    /// Writes what belongs to something that was done.
    async fn note(&self, note: Option<CommandNote>, done: &Done) {
        let runs = if let Done::Started(run) = done { vec![*run] } else { Vec::new() };
        let puts = note.map_or_else(Vec::new, |note| note(&runs));
        let commit = puts.into_iter().fold(Commit::new(), |commit, put| match put {
            Put::Value(name, value) => commit.put(key(name), value),
            Put::Gone(name) => commit.delete(key(name)),
        });
        if !commit.is_empty() {
            self.store.commit(commit).await.unwrap();
        }
    }

    fn now(&self) -> Instant {
        Instant(i64::try_from(self.clock.wall_us() / 1_000).unwrap())
    }

    async fn obey(&mut self, shard: ShardId, command: Command) -> Result<Done, Rejection> {
        match command {
            Command::Disable { .. }
            | Command::Enable { .. }
            | Command::Prune { .. }
            | Command::Submit { .. }
            | Command::SetQueue { .. }
            | Command::PauseQueue { .. }
            | Command::ResumeQueue { .. }
            | Command::DeleteQueue { .. }
            | Command::CancelRun { .. }
            | Command::CancelRuns { .. }
            | Command::Redrive { .. }
            | Command::ReserveName { .. }
            | Command::ReleaseName { .. } => panic!("nobody asks for that here"),
            Command::Create { definition, draft, author, .. } => {
                self.create(shard, &definition, draft, author).await
            }
            Command::Replace { trigger, draft, author, revision, .. } => {
                let mut record = self.record(shard, trigger).await?;
                if revision.is_some_and(|revision| revision != record.revision) {
                    return Err(Rejection::RevisionMoved { found: record.revision });
                }
                (record.draft, record.author) = (draft, author);
                record.revision += 1;
                record.written = self.now();
                put(&self.store, trigger_key(shard, trigger), &record).await;
                Ok(Done::Replaced { revision: record.revision })
            }
            Command::Pause { trigger, author, note, until } => {
                let mut state = self.state(shard, trigger).await?;
                if state.paused.is_some() {
                    return Err(Rejection::AlreadyPaused);
                }
                state.paused = Some(Pause { since: self.now(), until, author, note });
                put(&self.store, state_key(shard, trigger), &state).await;
                Ok(Done::Paused)
            }
            Command::Resume { trigger, .. } => {
                let mut state = self.state(shard, trigger).await?;
                state.paused.take().ok_or(Rejection::NotPaused)?;
                put(&self.store, state_key(shard, trigger), &state).await;
                Ok(Done::Resumed)
            }
            Command::Cancel { trigger, .. } => {
                let mut state = self.state(shard, trigger).await?;
                if state.cancelled.is_some() {
                    return Err(Rejection::AlreadyCancelled);
                }
                state.cancelled = Some(self.now());
                put(&self.store, state_key(shard, trigger), &state).await;
                Ok(Done::Cancelled)
            }
            Command::Delete { trigger, .. } => {
                let record = self.record(shard, trigger).await?;
                let draft: serde_json::Value = serde_json::from_str(record.draft.get()).unwrap();
                let name = name_key(ProjectId::DEFAULT, draft["name"].as_str().unwrap());
                let gone = Commit::new().delete(key(name)).delete(key(trigger_key(shard, trigger)));
                self.store.commit(gone).await.unwrap();
                Ok(Done::Deleted)
            }
            Command::Run { trigger, .. } => self.run(shard, trigger).await,
            // What a shard makes of it is told by its own tests.
            Command::Backfill { .. } => {
                let then = self.backfill.lock().unwrap().take();
                let has_more = then.is_some();
                *self.refuse.lock().unwrap() = then;
                Ok(Done::Backfilled(BackfillProgress { started: 1, has_more }))
            }
        }
    }

    async fn create(
        &mut self,
        shard: ShardId,
        definition: &Definition,
        draft: Box<serde_json::value::RawValue>,
        author: String,
    ) -> Result<Done, Rejection> {
        let name = name_key(ProjectId::DEFAULT, &definition.name);
        if let Some(NameRecord { id }) = get(&self.store, name.clone()).await {
            return Err(Rejection::NameTaken(id));
        }
        let now = self.now();
        self.last = SerialId::born(now, self.last, 0);
        let id = TriggerId { shard, project: ProjectId::DEFAULT, serial: self.last };
        put(&self.store, name, &NameRecord { id }).await;
        let record = TriggerRecord {
            id,
            draft,
            created: now,
            written: now,
            author,
            revision: 1,
            generation: 1,
            since: now,
        };
        put(&self.store, trigger_key(shard, id.serial), &record).await;
        Ok(Done::Created(id))
    }

    async fn run(&mut self, shard: ShardId, trigger: SerialId) -> Result<Done, Rejection> {
        let record = self.record(shard, trigger).await?;
        let draft: engine::trigger::Draft = serde_json::from_str(record.draft.get()).unwrap();
        let definition = draft.build(Instant(0)).unwrap();
        self.sequence += 1;
        let run = RunRecord {
            project: engine::id::ProjectId::DEFAULT,
            trigger,
            name: definition.name.into(),
            slot: self.now(),
            leaves_at: self.now(),
            generation: None,
            state: RunState::Running,
            attempt: 1,
            tries: 0,
            untried_since: None,
            notice: None,
            target: definition.target.into(),
            policy: definition.policy,
            attempts: Vec::new(),
            remote: None,
            redriven_from: None,
        };
        put(&self.store, run_key(shard, self.sequence), &run).await;
        let letters = Birth::Demand(self.sequence).letters(CLUSTER);
        Ok(Done::Started(RunId { shard, trigger, slot: run.slot, letters }))
    }

    /// The number of the last commit of a shard.
    async fn number(&self, shard: ShardId) -> u64 {
        let entry = self.store.get(&key(head_key(shard))).await.unwrap();
        entry.map_or(0, |entry| Head::from_value(&entry.value).unwrap().number)
    }

    async fn record(&self, shard: ShardId, trigger: SerialId) -> Result<TriggerRecord, Rejection> {
        get(&self.store, trigger_key(shard, trigger)).await.ok_or(Rejection::NoSuchTrigger)
    }

    async fn state(&self, shard: ShardId, trigger: SerialId) -> Result<TriggerState, Rejection> {
        self.record(shard, trigger).await?;
        Ok(get(&self.store, state_key(shard, trigger)).await.unwrap_or_default())
    }
}
