//! The bench that these tests work at: a world, a store, and nodes that do as they are told.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engine::lease::Ttl;
use engine::record::{Format, decode};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use sim::checker::{LeaseChecker, Premises};
use sim::clock::{Clocks, MS, TrueTime};
use sim::dice::{Dice, Luck};
use sim::network::{Endpoint, LinkQuality, SharedSite, SimAdapter, SimMachine, Site, StoreLink};
use sim::sim_store::SimStore;
use sim::world::{ProcessId, Tracing, World, seconds};
use store::claim::{Claim, Head};
use store::election::{Candidacy, Holding, Mode};
use store::machine::Machine;
use store::session::{NodeId, NodeInfo, Session, SessionDriver, SessionEnd, SessionError};
use store::{Class, Commit, Entry, Key, Range, Store, Version, Write};

use super::tap::Tap;

/// T of everybody who is not said to have another, and what follows from it.
pub(super) const T: TrueTime = 3_000 * MS;
pub(super) const BEAT: TrueTime = T / 5;
pub(super) const POLL: TrueTime = T / 10;
/// Lies beside the sessions, and is none.
pub(super) const LONGEST_KEY: &str = "node/~longest";

pub(super) const PAUSE: TrueTime = 100 * MS;
pub(super) const PATIENCE: TrueTime = T * 5 / 4;

/// A request and its answer take at most this long.
pub(super) const TRIP: TrueTime = 2 * LANE.delay;

/// What the roads are like: short and good.
pub(super) const LANE: LinkQuality = LinkQuality { delay: 2 * MS, ..LinkQuality::GOOD };

/// What everybody wants.
pub(super) const CLAIM: &str = "election/default/watch";

/// What the wall clocks say at the beginning.
pub(super) const NOON_US: u64 = 1_800_000_000_000_000;

/// How long anything is waited for, in true time.
const LONGEST: TrueTime = 60_000 * MS;

/// The bench.
pub(super) struct Bench {
    pub(super) world: World,
    pub(super) sim_store: Arc<SimStore>,
    pub(super) claim: Claim,
    checker: Arc<LeaseChecker>,
    hosts: AtomicUsize,
}

/// What a host is like.
pub(super) struct Plan {
    pub(super) id: &'static str,
    pub(super) ttl: TrueTime,
    pub(super) hints: Hearing,
    pub(super) access: Access,
}

/// Whether a host hears of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hearing {
    Good,
    Deaf,
}

/// How a host has the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Shared,
    Exclusive,
}

impl Plan {
    pub(super) fn of(id: &'static str) -> Self {
        Self { id, ttl: T, hints: Hearing::Good, access: Access::Shared }
    }
}

/// A machine with a way to the store, on which a session can be opened.
#[derive(Clone)]
pub(super) struct Host {
    pub(super) store: Store,
    pub(super) tap: Arc<Tap>,
    machine: Arc<dyn Machine>,
    node: NodeInfo,
    site: SharedSite,
}

/// A session that is kept.
pub(super) struct JoinedNode {
    pub(super) host: Host,
    pub(super) session: Session,
    pub(super) keeping: Task<SessionEnd>,
    alive: Arc<AtomicBool>,
}

/// Something that goes on by itself.
pub(super) struct Task<T> {
    world: World,
    process: ProcessId,
    done: Arc<Mutex<Option<(TrueTime, T)>>>,
}

impl Bench {
    /// With a store that keeps its word.
    pub(super) fn new() -> Self {
        Self::of_class(Class::S)
    }

    pub(super) fn of_class(class: Class) -> Self {
        let claim = Claim::new(CLAIM).unwrap();
        let premises = Premises {
            claim: claim.key().clone(),
            data: "data/".into(),
            ttl: Duration::from_nanos(T),
            class,
            manual: false,
            calm: false,
        };
        Self {
            world: World::new(Tracing::Off),
            sim_store: Arc::new(SimStore::new(class)),
            claim,
            checker: Arc::new(LeaseChecker::new(premises)),
            hosts: AtomicUsize::new(0),
        }
    }

    pub(super) fn host(&self, id: &'static str) -> Host {
        self.host_with(&Plan::of(id))
    }

    pub(super) fn host_with(&self, plan: &Plan) -> Host {
        let number = self.hosts.fetch_add(1, Ordering::SeqCst);
        let site = Arc::new(Mutex::new(Site {
            there: LANE,
            read: LANE,
            back: LANE,
            clocks: Clocks::new(1_000_000, 1_000_000, NOON_US),
            stale_percent: 0,
            refused_percent: 0,
            ambush: None,
        }));
        let mut dice = Dice::new(number as u64);
        let process = ProcessId(1_000_000 + number as u64);
        let exclusive = plan.access == Access::Exclusive;
        let sender = Endpoint { node: number, process, exclusive };
        let luck = Luck::stream(dice.fork());
        let link =
            StoreLink::new(&self.world, &self.sim_store, &self.checker, &site, &sender, luck);
        if plan.hints == Hearing::Good {
            self.sim_store.watched_by(&link);
        }
        let tap = Tap::new(&self.world, Arc::new(SimAdapter(link)));
        let node = NodeInfo {
            id: NodeId::new(plan.id).unwrap(),
            ttl: Ttl::new(Duration::from_nanos(plan.ttl)).unwrap(),
            url: Some(format!("http://{}:7400", plan.id)),
            roles: Vec::new(),
            candidacies: Vec::new(),
        };
        let machine = Arc::new(SimMachine::new(&self.world, &site, Luck::stream(dice)));
        Host { store: Store::shared(tap.clone()), tap, machine, node, site }
    }

    /// Opens a session and keeps it.
    pub(super) fn join(&self, host: Host) -> JoinedNode {
        let (session, keeper) = self.wait(host.open()).expect("a session");
        self.keep(host, session, keeper)
    }

    pub(super) fn node(&self, id: &'static str) -> JoinedNode {
        self.join(self.host(id))
    }

    pub(super) fn keep(
        &self,
        host: Host,
        session: Session,
        mut keeper: SessionDriver,
    ) -> JoinedNode {
        let alive = Arc::new(AtomicBool::new(true));
        let is_alive = Arc::clone(&alive);
        let keeping =
            self.spawn(async move { keeper.run(|| is_alive.load(Ordering::SeqCst)).await });
        JoinedNode { host, session, keeping, alive }
    }

    /// Campaigns until it has won.
    pub(super) fn campaign(&self, mut election: Candidacy) -> Task<(Candidacy, Holding)> {
        let checker = Arc::clone(&self.checker);
        self.spawn_as(|process| async move {
            let holding = election.campaign().await.expect("the session lives");
            checker.holds(process, holding.right.clone());
            (election, holding)
        })
    }

    /// Has the claim, at once.
    pub(super) fn win(&self, node: &JoinedNode) -> (Candidacy, Holding) {
        self.finish(&self.campaign(self.candidate(node)))
    }

    pub(super) fn candidate(&self, node: &JoinedNode) -> Candidacy {
        Candidacy::new(&node.session, self.claim.clone(), Mode::Automatic)
    }

    /// Starts something.
    pub(super) fn spawn<O: Send + 'static>(
        &self,
        task: impl Future<Output = O> + Send + 'static,
    ) -> Task<O> {
        self.spawn_as(|_| task)
    }

    fn spawn_as<O: Send + 'static, F>(&self, task: impl FnOnce(ProcessId) -> F) -> Task<O>
    where
        F: Future<Output = O> + Send + 'static,
    {
        let done = Arc::new(Mutex::new(None));
        let (world, slot) = (self.world.clone(), Arc::clone(&done));
        let process = self.world.spawn(|process| {
            let task = task(process);
            async move {
                let output = task.await;
                let now = world.now();
                *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, output));
            }
        });
        Task { world: self.world.clone(), process, done }
    }

    /// Lets the world go on until something is done.
    #[track_caller]
    pub(super) fn finish<O>(&self, task: &Task<O>) -> O {
        self.run_until(self.world.now() + LONGEST, || task.done_at().is_some());
        task.take().unwrap_or_else(|| panic!("not done within {} s", seconds(LONGEST)))
    }

    /// Does something, and lets the world go on meanwhile.
    #[track_caller]
    pub(super) fn wait<O: Send + 'static>(
        &self,
        task: impl Future<Output = O> + Send + 'static,
    ) -> O {
        self.finish(&self.spawn(task))
    }

    /// Lets the world go on for so long.
    pub(super) fn run_for(&self, length: TrueTime) {
        self.run_until(self.world.now() + length, || false);
    }

    /// Lets the world go on until there is something to see, and at most until `end`.
    pub(super) fn run_until(&self, end: TrueTime, mut seen: impl FnMut() -> bool) {
        // Time stands where the last event was: there is one at the end.
        self.world.after(end - self.world.now(), |_| {});
        self.world.run(end, |world| {
            self.checker.ask_everybody(world);
            seen()
        });
    }

    /// Lets the world go on until the node has been renewed anew.
    pub(super) fn run_to_renewal(&self, node: &JoinedNode) -> TrueTime {
        let before = node.renewals();
        self.run_until(self.world.now() + LONGEST, || node.renewals() > before);
        node.last_renewal()
    }

    pub(super) fn now(&self) -> TrueTime {
        self.world.now()
    }

    /// What is in the store at a key.
    pub(super) fn peek(&self, key: &Key) -> Option<Entry> {
        self.sim_store.peek_primary(key)
    }

    pub(super) fn is_there(&self, session: &Session) -> bool {
        self.peek(session.key().key()).is_some()
    }

    pub(super) fn head(&self) -> Option<Head> {
        let entry = self.peek(self.claim.key())?;
        Some(decode(entry.value.as_bytes(), Format(1)).unwrap())
    }

    /// Whose session has the claim.
    pub(super) fn holder(&self) -> Option<String> {
        Some(self.head()?.session?.node().to_string())
    }

    /// The keys of all sessions.
    pub(super) fn sessions(&self) -> Vec<String> {
        let page = self.sim_store.scan(0, Range::prefix("node/"), 100, self.now()).unwrap();
        let keys = page.said.unwrap().entries.into_iter().map(|entry| entry.key.to_string());
        keys.filter(|key| key != LONGEST_KEY).collect()
    }

    /// Somebody else writes something, and everybody hears of it.
    pub(super) fn write(&self, key: &str, value: impl Into<Vec<u8>>) -> Version {
        self.put(&Commit::new().put(Key::new(key).unwrap(), value.into()))
    }

    pub(super) fn put(&self, commit: &Commit) -> Version {
        let landed = self.sim_store.commit(0, commit, self.now()).unwrap().said.unwrap();
        self.sim_store.hint(commit);
        landed
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.world.end();
        if !std::thread::panicking() {
            assert_eq!(self.checker.violation(), None);
        }
    }
}

impl Host {
    /// Opens a session.
    pub(super) fn open(
        &self,
    ) -> impl Future<Output = Result<(Session, SessionDriver), SessionError>> + Send + 'static {
        let host = self.clone();
        async move { Session::open(&host.store, &host.machine, &host.node).await }
    }

    /// Nothing gets through any more, in either direction.
    pub(super) fn cut(&self) {
        self.change(|site| {
            site.there.cuts = 1;
            site.read.cuts = 1;
            site.back.cuts = 1;
        });
    }

    pub(super) fn heal(&self) {
        self.change(|site| {
            site.there.cuts = 0;
            site.read.cuts = 0;
            site.back.cuts = 0;
        });
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Site)) {
        change(&mut self.site.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl JoinedNode {
    /// How many renewals it knows to be done.
    pub(super) fn renewals(&self) -> usize {
        self.acknowledged().count()
    }

    /// When the last renewal that it knows to be done was sent.
    pub(super) fn last_renewal(&self) -> TrueTime {
        self.acknowledged().last().expect("it has a session")
    }

    fn acknowledged(&self) -> impl Iterator<Item = TrueTime> {
        let sent = self.host.tap.sent(self.session.key().key().as_str());
        sent.into_iter().filter(|sent| matches!(sent.answer, Some(Ok(_)))).map(|sent| sent.at)
    }

    /// Its node no longer works, though the process runs.
    pub(super) fn hang(&self) {
        self.alive.store(false, Ordering::SeqCst);
    }

    /// Its node works again.
    pub(super) fn recover(&self) {
        self.alive.store(true, Ordering::SeqCst);
    }

    /// The process ends without a word.
    pub(super) fn crash(&self) {
        self.keeping.kill();
    }

    pub(super) fn valid_for(&self) -> TrueTime {
        u64::try_from(self.session.valid_for().as_nanos()).unwrap()
    }

    /// Gives the session up.
    pub(super) fn close(&self) -> impl Future<Output = ()> + Send + 'static {
        let session = self.session.clone();
        async move { session.close().await }
    }
}

impl<O> Task<O> {
    /// When it was done, if it is.
    pub(super) fn done_at(&self) -> Option<TrueTime> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|(at, _)| *at)
    }

    pub(super) fn take(&self) -> Option<O> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner).take().map(|(_, output)| output)
    }

    pub(super) fn kill(&self) {
        self.world.kill(self.process);
    }
}

/// What the future gives, if it does so within `length`; it is dropped otherwise.
pub(super) async fn within<O>(
    world: &World,
    length: TrueTime,
    future: impl Future<Output = O>,
) -> Option<O> {
    tokio::select! {
        biased;
        done = future => Some(done),
        () = world.sleep(length) => None,
    }
}

/// Whether a moment lies in a stretch of time; says where it was otherwise.
#[track_caller]
pub(super) fn check_between(at: TrueTime, from: TrueTime, to: TrueTime) {
    let [at, from, to] = [at, from, to].map(seconds);
    assert!((from..=to).contains(&at), "at {at} s, and not between {from} s and {to} s");
}

/// What a holder keeps in its head.
pub(super) fn body(id: u64) -> Box<RawValue> {
    to_raw_value(&json!({ "id": id })).unwrap()
}

/// What a holder writes.
pub(super) fn datum(name: &str, holding: &Holding) -> Vec<Write> {
    let value = json!({ "token": holding.right.token().0 }).to_string();
    vec![Write::Put(Key::new(format!("data/{name}")).unwrap(), value.into())]
}
