//! What Watchbell's ancestors do under the same faults: their algorithms as their documents state them, as small models.
//!
//! - *The single executor*: watchdogs that elect a leader among themselves by terms and votes, which they keep in memory only. The
//!   leader waits for a grace, and then runs the program as its child.
//! - *The Redis leader*: whoever finds no leader key writes one that expires, and acts until it reads somebody else's. It is a
//!   program of its own, so that it is stopped and killed with what it leads.
//!
//! Where a document names no time, it has one that is kind to it: a leader drops out after T without a majority, a follower waits
//! for T, then for half of T or more, and whoever has won waits for T before it starts anything. Nothing is checked here but how
//! often two execute at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::hold::timing::TreeKill;
use engine::lease::Reading;
use store::machine::within;
use store::{Commit, Condition, Key, Write};
use tokio::sync::mpsc;

use super::checker::{HoldChecker, HoldStart};
use super::machine::HoldMachine;
use super::setting::Habit;
use super::tree::{SimTree, TreePlan};
use crate::clock::TrueTime;
use crate::dice::Dice;
use crate::network::SharedSite;
use crate::node::NodeStart;
use crate::sim_store::{NodeIndex, SimStore};
use crate::world::{ProcessId, World};

/// Which ancestor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ancestor {
    /// Watchdogs that elect a leader, which runs the program as its child.
    SingleExecutor,
    /// Whoever has written a key that expires.
    RedisLeader,
}

/// How long the Redis leader waits for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(3);

/// What ancestors on a node are made of.
pub struct AncestorSite {
    pub(super) node: NodeIndex,
    pub(super) nodes: usize,
    pub(super) machine: HoldMachine,
    pub(super) checker: Arc<HoldChecker>,
    pub(super) habit: Habit,
    pub(super) post: Arc<Post>,
    pub(super) expiry: Arc<Expiry>,
    pub(super) dice: Mutex<Dice>,
}

impl AncestorSite {
    fn roll<T>(&self, roll: impl FnOnce(&mut Dice) -> T) -> T {
        roll(&mut self.dice.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn launch(&self, world: &World, supervisor: ProcessId, token: u64) -> Arc<SimTree> {
        let start = HoldStart { node: self.node, supervisor, session: None, token };
        let plan = TreePlan {
            start,
            kill: TreeKill::Kernel,
            habit: self.habit,
            dice: self.roll(Dice::fork),
            lock: None,
        };
        SimTree::start_unguarded(world, &self.checker, &self.machine, plan)
    }
}

/// What watchdogs tell each other.
#[derive(Debug, Clone, Copy)]
struct Message {
    from: NodeIndex,
    term: u64,
    about: About,
}

#[derive(Debug, Clone, Copy)]
enum About {
    VoteRequest,
    Vote,
    /// From a leader.
    Leads,
    /// From a follower.
    Follows,
}

/// The network between watchdogs: it has the faults of their links.
pub struct Post {
    world: World,
    sites: Vec<SharedSite>,
    boxes: Mutex<BTreeMap<NodeIndex, mpsc::UnboundedSender<Message>>>,
    dice: Mutex<Dice>,
}

impl Post {
    pub(super) fn new(world: &World, sites: Vec<SharedSite>, dice: Dice) -> Arc<Self> {
        let (world, boxes, dice) = (world.clone(), Mutex::default(), Mutex::new(dice));
        Arc::new(Self { world, sites, boxes, dice })
    }

    /// Whoever listens on a node hears no more, and this one does.
    fn listen(&self, node: NodeIndex) -> mpsc::UnboundedReceiver<Message> {
        let (tell, heard) = mpsc::unbounded_channel();
        self.boxes().insert(node, tell);
        heard
    }

    fn send(self: &Arc<Self>, to: NodeIndex, message: Message) {
        let lane = |node: NodeIndex, is_out: bool| {
            let site = self.sites[node].lock().unwrap_or_else(PoisonError::into_inner);
            let lane = if is_out { site.there } else { site.back };
            lane.travel(&mut self.dice.lock().unwrap_or_else(PoisonError::into_inner))
        };
        let (Some(out), Some(back)) = (lane(message.from, true), lane(to, false)) else { return };
        let post = Arc::clone(self);
        self.world.after(out + back, move |_| {
            if let Some(there) = post.boxes().get(&to) {
                there.send(message).ok();
            }
        });
    }

    fn boxes(&self) -> MutexGuard<'_, BTreeMap<NodeIndex, mpsc::UnboundedSender<Message>>> {
        self.boxes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A watchdog of the single executor.
struct Watchdog {
    site: Arc<AncestorSite>,
    start: NodeStart,
    process: ProcessId,
    state: State,
    term: u64,
    voted_for: Option<NodeIndex>,
    /// When the state that it is in runs out.
    until: Reading,
    timeout: Duration,
    /// When it speaks next.
    spoke: Reading,
    program: Option<Arc<SimTree>>,
}

enum State {
    Idle,
    Election { votes: BTreeSet<NodeIndex> },
    Follower { leader: NodeIndex },
    Leader { since: Reading, heartbeats: BTreeSet<NodeIndex> },
}

/// Runs a watchdog until it is told to stop.
pub async fn watchdog(site: Arc<AncestorSite>, start: NodeStart, process: ProcessId) {
    let mut heard = site.post.listen(site.node);
    let now = start.machine.reading();
    let mut watchdog = Watchdog {
        site,
        process,
        state: State::Idle,
        term: 0,
        voted_for: None,
        until: now,
        timeout: Duration::ZERO,
        spoke: now,
        program: None,
        start,
    };
    watchdog.idle();
    let (machine, stop) =
        (Arc::clone(&watchdog.start.machine), watchdog.start.controls.stop.clone());
    let tick = watchdog.ttl() / 50;
    loop {
        tokio::select! {
            biased;
            () = stop.notified() => break,
            Some(message) = heard.recv() => watchdog.hears(message),
            () = machine.sleep(tick) => watchdog.looks(),
        }
    }
    watchdog.ends_program();
    watchdog.start.checker.died(process, watchdog.start.world.now());
}

impl Watchdog {
    fn ttl(&self) -> Duration {
        self.start.node.ttl.length()
    }

    fn majority(&self) -> usize {
        self.site.nodes / 2 + 1
    }

    /// From now on it is in this state, for so long.
    fn becomes(&mut self, state: State, timeout: Duration) {
        if !matches!(state, State::Leader { .. }) {
            self.ends_program();
        }
        (self.state, self.timeout, self.until) = (state, timeout, self.start.machine.reading());
    }

    fn idle(&mut self) {
        let timeout = self.election_timeout();
        self.becomes(State::Idle, timeout);
    }

    fn election_timeout(&self) -> Duration {
        let percent = self.site.roll(|dice| dice.between(50, 100));
        self.ttl() * u32::try_from(percent).expect("a percentage") / 100
    }

    fn elects(&mut self) {
        self.term += 1;
        self.voted_for = Some(self.site.node);
        self.tell_all(About::VoteRequest);
        let (votes, timeout) = (BTreeSet::from([self.site.node]), self.election_timeout());
        self.becomes(State::Election { votes }, timeout);
    }

    fn follows(&mut self, message: Message) {
        self.term = message.term;
        self.becomes(State::Follower { leader: message.from }, self.ttl());
    }

    fn hears(&mut self, message: Message) {
        if message.term < self.term {
            return;
        }
        let is_newer = message.term > self.term;
        match message.about {
            About::VoteRequest => {
                let is_idle = matches!(self.state, State::Idle);
                if is_idle && (is_newer || self.voted_for.is_none()) {
                    (self.term, self.voted_for) = (message.term, Some(message.from));
                    self.tell(message.from, About::Vote);
                }
            }
            About::Vote => self.counts_vote(message.from),
            About::Leads => {
                let heeds = match &self.state {
                    State::Idle => true,
                    State::Follower { leader } => is_newer || *leader == message.from,
                    State::Election { .. } | State::Leader { .. } => is_newer,
                };
                if heeds {
                    self.follows(message);
                }
            }
            About::Follows => self.counts_heartbeat(message.from),
        }
    }

    fn counts_vote(&mut self, from: NodeIndex) {
        let (node, majority) = (self.site.node, self.majority());
        let State::Election { votes } = &mut self.state else { return };
        votes.insert(from);
        if votes.len() >= majority {
            let since = self.start.machine.reading();
            let heartbeats = BTreeSet::from([node]);
            self.becomes(State::Leader { since, heartbeats }, self.ttl());
            self.tell_all(About::Leads);
        }
    }

    fn counts_heartbeat(&mut self, from: NodeIndex) {
        let (node, majority) = (self.site.node, self.majority());
        let State::Leader { heartbeats, .. } = &mut self.state else { return };
        heartbeats.insert(from);
        if heartbeats.len() >= majority {
            *heartbeats = BTreeSet::from([node]);
            self.until = self.start.machine.reading();
        }
    }

    fn looks(&mut self) {
        let now = self.start.machine.reading();
        if now.most_since(self.until) >= self.timeout {
            match self.state {
                State::Idle | State::Election { .. } => self.elects(),
                State::Follower { .. } | State::Leader { .. } => self.idle(),
            }
        }
        if now.most_since(self.spoke) >= self.ttl() / 5 {
            self.spoke = now;
            match self.state {
                State::Leader { .. } => self.tell_all(About::Leads),
                State::Follower { leader } => self.tell(leader, About::Follows),
                State::Idle | State::Election { .. } => {}
            }
        }
        if let State::Leader { since, .. } = self.state
            && self.program.is_none()
            && now.most_since(since) >= self.ttl()
        {
            let (world, site) = (&self.start.world, &self.site);
            self.program = Some(site.launch(world, self.process, self.term));
        }
    }

    fn tell(&self, to: NodeIndex, about: About) {
        self.site.post.send(to, Message { from: self.site.node, term: self.term, about });
    }

    fn tell_all(&self, about: About) {
        let others = (0..self.site.nodes).filter(|node| *node != self.site.node);
        others.for_each(|node| self.tell(node, about));
    }

    fn ends_program(&mut self) {
        if let Some(program) = self.program.take() {
            program.kill_program();
        }
    }
}

/// When what was written to the leader key expires.
#[derive(Default)]
pub struct Expiry(Mutex<BTreeMap<Vec<u8>, TrueTime>>);

impl Expiry {
    /// The key of the leader.
    pub(super) fn key() -> Key {
        Key::new("leader/uuid").expect("short and printable")
    }

    /// Notes when the key is written, as a store does that lets it expire.
    pub(super) fn follow(self: &Arc<Self>, world: &World, store: &SimStore) {
        let (expiry, world) = (Arc::clone(self), world.clone());
        store.observe(move |commit| {
            for write in &commit.then {
                if let Write::Put(_, value) = write {
                    expiry.lock().insert(value.as_bytes().to_vec(), world.now());
                }
            }
        });
    }

    fn age(&self, value: &[u8], now: TrueTime) -> TrueTime {
        self.lock().get(value).map_or(TrueTime::MAX, |written| now - written)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Vec<u8>, TrueTime>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the Redis leader does as long as it leads. It is in the same process: with that it is gone.
struct Leading(Arc<SimTree>);

impl Drop for Leading {
    fn drop(&mut self) {
        self.0.vanish();
    }
}

/// Runs a candidate for the leader key until it is told to stop.
pub async fn candidate(site: Arc<AncestorSite>, start: NodeStart, process: ProcessId) {
    let (machine, store) = (&start.machine, &start.store);
    let (key, ttl) = (Expiry::key(), start.node.ttl.length());
    let ttl_true = u64::try_from(ttl.as_nanos()).expect("seconds");
    let me = format!("{process}/");
    let (mut leading, mut writes) = (None, 0_u64);
    loop {
        tokio::select! {
            biased;
            () = start.controls.stop.notified() => break,
            () = machine.sleep(ttl / 5) => {}
        }
        writes += 1;
        let value = format!("{me}{writes}");
        let read = within(machine, ANSWER_MAX, store.get(&key)).await;
        let leader = match read {
            Some(Ok(Some(entry)))
                if site.expiry.age(entry.value.as_bytes(), start.world.now()) < ttl_true =>
            {
                Some(entry)
            }
            // Whatever is no answer is no leader.
            _ => None,
        };
        let mut commit = Commit::new().put(key.clone(), value);
        let is_mine = match &leader {
            Some(entry) => entry.value.as_bytes().starts_with(me.as_bytes()),
            None => true,
        };
        if !is_mine {
            leading = None;
            continue;
        }
        if let Some(entry) = leader {
            commit = commit.when(Condition::At(key.clone(), entry.version));
        }
        let written = within(machine, ANSWER_MAX, store.commit(commit)).await;
        if matches!(written, Some(Ok(_))) && leading.is_none() {
            leading = Some(Leading(site.launch(&start.world, process, writes)));
        }
    }
    drop(leading);
    start.checker.died(process, start.world.now());
}
