//! The simulated store: the reference adapter behind doors that can be shut, and that can be made to
//! forget.

use std::collections::{BTreeMap, VecDeque};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use engine::limits::FAILOVER_LAG;
use engine::mutant::{self, Mutant};
use engine::record::{Format, decode};
use store::memory::MemoryStore;
use store::session::SessionRecord;
use store::{
    Adapter, Class, Commit, CommitError, Entry, Key, Page, Range, ScanError, Store, Version, Write,
};

use crate::clock::{MS, TrueTime};
use crate::network::StoreLink;

/// How far back a stale read can look.
const COPIES_MAX: usize = 16;

/// A node, by its place in the cluster.
pub type NodeIndex = usize;

/// The store of a cluster.
pub struct SimStore(Mutex<StoreState>);

struct StoreState {
    memory: Arc<MemoryStore>,
    epoch: u64,
    /// A former primary that these nodes still talk to.
    former: Option<Former>,
    /// How often it was shut and not yet opened.
    shut: u32,
    /// Nobody else gets in.
    only: Option<NodeIndex>,
    /// When the last commits of the primary landed.
    landed: VecDeque<TrueTime>,
    /// What it looked like before, for stale reads.
    copies: VecDeque<Arc<MemoryStore>>,
    /// How far the store's own wall clock has been set forward.
    wall_offset_ms: u64,
    /// When it drops which session, under a mutant that trusts it to.
    expiries_ms: BTreeMap<Key, u64>,
    links: Vec<Weak<StoreLink>>,
    observer: Option<Observer>,
}

/// Sees every commit that lands.
type Observer = Box<dyn Fn(&Commit) + Send>;

struct Former {
    memory: Arc<MemoryStore>,
    epoch: u64,
    nodes: Vec<NodeIndex>,
}

/// An answer, and the epoch that it came from.
pub struct StoreAnswer<T> {
    /// What the store said.
    pub said: T,
    /// In which epoch.
    pub epoch: u64,
}

impl SimStore {
    /// An empty store.
    pub fn new(class: Class) -> Self {
        Self(Mutex::new(StoreState {
            memory: Arc::new(MemoryStore::of_class(class)),
            epoch: 0,
            former: None,
            shut: 0,
            only: None,
            landed: VecDeque::new(),
            copies: VecDeque::new(),
            wall_offset_ms: 0,
            expiries_ms: BTreeMap::new(),
            links: Vec::new(),
            observer: None,
        }))
    }

    /// What its acknowledgements are worth.
    pub fn class(&self) -> Class {
        self.lock().memory.class()
    }

    /// Which epoch the primary is in.
    pub fn epoch(&self) -> u64 {
        self.lock().epoch
    }

    /// A commit of this node arrives. `None` if nobody is there.
    pub fn commit(
        &self,
        node: NodeIndex,
        commit: &Commit,
        now: TrueTime,
    ) -> Option<StoreAnswer<Result<Version, CommitError>>> {
        let mut state = self.lock();
        state.expire(now);
        let (memory, epoch) = state.serving(node)?;
        let said = at_once(memory.commit(commit.clone()));
        if said.is_ok() {
            state.expect_renewal(commit, now);
            state.observer.iter().for_each(|observer| observer(commit));
        }
        if said.is_ok() && epoch == state.epoch {
            state.landed.push_back(now);
            if state.landed.len() > 1_000 {
                state.landed.pop_front();
            }
        }
        Some(StoreAnswer { said, epoch })
    }

    /// A scan of this node arrives.
    pub fn scan(
        &self,
        node: NodeIndex,
        range: Range,
        limit: usize,
        now: TrueTime,
    ) -> Option<StoreAnswer<Result<Page, ScanError>>> {
        let mut state = self.lock();
        state.expire(now);
        let (memory, epoch) = state.serving(node)?;
        Some(StoreAnswer { said: at_once(memory.scan(range, limit)), epoch })
    }

    /// A scan that is answered from the oldest copy.
    pub fn stale_scan(
        &self,
        range: Range,
        limit: usize,
    ) -> Option<StoreAnswer<Result<Page, ScanError>>> {
        let state = self.lock();
        let copy = state.copies.front().filter(|_| state.shut == 0)?;
        Some(StoreAnswer { said: at_once(copy.scan(range, limit)), epoch: state.epoch })
    }

    /// What a node's store holds at a key, for those who only watch.
    pub fn peek(&self, node: NodeIndex, key: &Key) -> Option<Entry> {
        let (memory, _) = self.lock().serving(node)?;
        peek(&memory, key)
    }

    /// What the primary holds at a key, whether it is up or not.
    pub fn peek_primary(&self, key: &Key) -> Option<Entry> {
        let memory = Arc::clone(&self.lock().memory);
        peek(&memory, key)
    }

    /// What the primary holds, for those who only watch.
    pub fn store(&self) -> Store {
        Store::shared(Arc::clone(&self.lock().memory) as Arc<dyn Adapter>)
    }

    /// From now on somebody sees every commit that lands.
    pub fn observe(&self, observer: impl Fn(&Commit) + Send + 'static) {
        self.lock().observer = Some(Box::new(observer));
    }

    /// From now on the process behind this link hears of changes.
    pub fn watched_by(&self, link: &Arc<StoreLink>) {
        let mut state = self.lock();
        state.links.retain(|link| link.strong_count() > 0);
        state.links.push(Arc::downgrade(link));
    }

    /// Tells every link that a commit has changed something.
    pub fn hint(&self, commit: &Commit) {
        let links = self.lock().links.clone();
        links.iter().filter_map(Weak::upgrade).for_each(|link| link.hint(commit));
    }

    /// Whether it answers everybody.
    pub fn is_up(&self) -> bool {
        let state = self.lock();
        state.shut == 0 && state.only.is_none()
    }

    /// The store stops answering.
    pub fn shut(&self) {
        self.lock().shut += 1;
    }

    /// The store answers again, as if nothing had happened.
    pub fn open(&self) {
        self.lock().shut -= 1;
    }

    /// Only this node gets in: it has the store to itself, and opens it.
    pub fn admit_only(&self, node: NodeIndex) {
        self.lock().only = Some(node);
    }

    /// Everybody gets in.
    pub fn admit_all(&self) {
        self.lock().only = None;
    }

    /// Keeps a copy for stale reads.
    pub fn keep_copy(&self) {
        let mut state = self.lock();
        let copy = Arc::new(state.memory.copy());
        state.copies.push_back(copy);
        if state.copies.len() > COPIES_MAX {
            state.copies.pop_front();
        }
    }

    /// Its own clock is set forward.
    pub fn step_clock(&self, ms: u64) {
        self.lock().wall_offset_ms += ms;
    }

    /// Fails over to a copy that misses what landed within `lost` of now. These nodes go on talking to
    /// the former primary until [`SimStore::retire`]. Tells how many commits the copy misses.
    pub fn fail_over(&self, now: TrueTime, lost: TrueTime, stay: Vec<NodeIndex>) -> usize {
        assert!(u128::from(lost) <= FAILOVER_LAG.as_nanos(), "more than class B may lose");
        let mut state = self.lock();
        let misses = state.landed.iter().filter(|landed| **landed + lost > now).count();
        let copy = Arc::new(state.memory.fork(misses));
        let memory = std::mem::replace(&mut state.memory, copy);
        let epoch = state.epoch;
        state.former = Some(Former { memory, epoch, nodes: stay });
        state.epoch += 1;
        // What landed before lives on in the copy, or is lost: neither may be lost a second time.
        state.landed.clear();
        state.copies.clear();
        misses
    }

    /// The former primary is gone.
    pub fn retire(&self) {
        self.lock().former = None;
    }

    fn lock(&self) -> MutexGuard<'_, StoreState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StoreState {
    fn serving(&self, node: NodeIndex) -> Option<(Arc<MemoryStore>, u64)> {
        if self.shut > 0 || self.only.is_some_and(|only| only != node) {
            return None;
        }
        match &self.former {
            Some(former) if former.nodes.contains(&node) => {
                Some((Arc::clone(&former.memory), former.epoch))
            }
            _ => Some((Arc::clone(&self.memory), self.epoch)),
        }
    }

    fn wall_ms(&self, now: TrueTime) -> u64 {
        now / MS + self.wall_offset_ms
    }

    /// What a store does that is trusted to drop sessions by its own clock: it gives each 1.25 T from
    /// its last renewal, and drops those whose time is over.
    fn expire(&mut self, now: TrueTime) {
        let wall_ms = self.wall_ms(now);
        let over: Vec<Key> = self
            .expiries_ms
            .iter()
            .filter(|(_, at)| **at < wall_ms)
            .map(|(key, _)| key.clone())
            .collect();
        for key in over {
            self.expiries_ms.remove(&key);
            let gone = at_once(self.memory.commit(Commit::new().delete(key)));
            gone.expect("an unconditional commit to memory");
        }
    }

    fn expect_renewal(&mut self, commit: &Commit, now: TrueTime) {
        if !mutant::active(Mutant::StoreTtl) {
            return;
        }
        let wall_ms = self.wall_ms(now);
        for write in &commit.then {
            if let Write::Put(key, value) = write
                && key.as_str().starts_with("node/")
                && let Ok(record) = decode::<SessionRecord>(value.as_bytes(), Format(1))
            {
                self.expiries_ms.insert(key.clone(), wall_ms + record.ttl_ms * 5 / 4);
            }
        }
    }
}

fn peek(memory: &MemoryStore, key: &Key) -> Option<Entry> {
    at_once(memory.scan(Range::only(key), 1)).ok()?.entries.pop()
}

/// The reference adapter never waits.
pub fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => unreachable!("memory answers at once"),
    }
}
