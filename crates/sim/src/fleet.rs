//! Whole servers in virtual time: sessions, claims, assignment, hand-overs, shards, committers and historians together, as
//! they ship, on a store and a network that misbehave.
//!
//! The leases of [`crate::cluster`] and the one shard of [`crate::shard`] are tried apart and more closely. Here it is
//! tried that they fit: a server is [`server::node::RunningNode`] with all its parts, in one thread ([`process`]); only who calls
//! receivers is of the simulation ([`sender`]). Triggers are due every two seconds while servers are killed, stopped,
//! started anew, cut off and slowed down ([`fault`]). In the end everything is mended, and when things have come to rest
//! what is in the store is held against what was heard ([`audit`]). Everything follows from a seed. A seed may have queues
//! too: runs are submitted through any server, and [workers](worker) carry them out ([`queue`]).

pub mod attempt;
pub mod audit;
pub mod fault;
pub mod process;
pub mod queue;
pub mod sender;
pub mod setting;
pub mod worker;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::id::ShardId;
use engine::mutant::{self, Mutant};
use engine::shard::record::head_key;
use server::node::{HistoryPace, NodeConfig};
use store::claim::{Claim, Head};
use store::{Class, Key};
use tokio::sync::Notify;

use crate::checker::{LeaseChecker, Premises};
use crate::clock::{MS, TrueTime};
use crate::dice::{Dice, Luck};
use crate::network::{Endpoint, SharedSite, SimAdapter, SimMachine, StoreLink};
use crate::promise::words;
use crate::shard::promise::{ShardPromise, ShardViolation};
use crate::sim_store::{NodeIndex, SimStore};
use crate::world::{ProcessId, Tracing, World};
use process::{ServerProcess, ServerStart};
use queue::Hall;
use sender::Receivers;
use setting::FleetSetting;

/// T of every server.
pub const TTL: Duration = Duration::from_secs(3);

/// How long it may take until things have come to rest, and until all servers have stopped.
const CALM: TrueTime = 30_000 * MS;
const STOP: TrueTime = 60_000 * MS;

/// How long workers may go on until nothing waits in queues, and how often that is looked at.
const QUEUES_REST: TrueTime = 10_000 * MS;
const QUEUES_REST_ROUNDS: usize = 6;

/// What came of a run.
#[derive(Debug, Clone)]
pub struct FleetReport {
    /// What was simulated.
    pub setting: FleetSetting,
    /// The first promise that was broken, if any was.
    pub violation: Option<ShardViolation>,
    /// How often which things happened.
    pub counts: FleetCounts,
    /// How long it lasted, in true time.
    pub length: TrueTime,
    /// What happened, line by line, if that was asked for.
    pub trace: String,
}

/// How often which things happened in a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct FleetCounts {
    pub starts: u64,
    pub kills: u64,
    pub stops: u64,
    pub pauses: u64,
    pub cuts: u64,
    pub outages: u64,
    pub calls: u64,
    pub again: u64,
    pub slots: u64,
    pub begun: u64,
    pub stormy: u64,
    pub unbegun: u64,
}

/// Servers, their store, and who they call. Clones are the same.
#[derive(Clone)]
pub struct Fleet {
    /// What the servers have to do.
    pub load: Load,
    /// Its time and its processes.
    pub world: World,
    /// The store that the servers share.
    pub sim_store: Arc<SimStore>,
    /// The receivers that the servers call.
    pub receivers: Arc<Receivers>,
    /// What the seed stands for.
    pub setting: Arc<FleetSetting>,
    /// Who carries out runs of queues, and what they were told.
    pub hall: Arc<Hall>,
    checker: Arc<LeaseChecker>,
    hosts: Arc<Mutex<Vec<ServerHost>>>,
    dice: Arc<Mutex<Dice>>,
    findings: Arc<Mutex<(Option<ShardViolation>, FleetCounts)>>,
}

/// A machine that a server runs on, and its process if it does.
struct ServerHost {
    site: SharedSite,
    process: Option<ProcessId>,
    /// Tells it to stop in order.
    stop: Arc<Notify>,
    is_stopping: bool,
}

/// What servers have to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// Triggers are due.
    Triggers,
    /// Besides, runs are submitted to queues, and workers claim them.
    TriggersAndQueues,
}

/// Runs a seed, with this bug switched on, or none.
pub fn run(seed: u64, bug: Option<Mutant>, tracing: Tracing) -> FleetReport {
    run_under(Load::Triggers, seed, bug, tracing)
}

/// Runs a seed under a load, with this bug switched on, or none.
pub fn run_under(load: Load, seed: u64, bug: Option<Mutant>, tracing: Tracing) -> FleetReport {
    mutant::switch(bug);
    let fleet = Fleet::start(load, seed, tracing);
    if load == Load::TriggersAndQueues {
        worker::start(&fleet, &mut Dice::new(seed ^ 0x9e0e));
    }
    fleet.world.trace("seed", || format!("{seed}: {}", fleet.setting));
    let played = catch_unwind(AssertUnwindSafe(|| fleet.play()));
    if let Err(panic) = played {
        fleet.accuse(ShardPromise::NoPanic, words(&*panic));
    }
    let (violation, counts) = fleet.findings().clone();
    let report = FleetReport {
        setting: (*fleet.setting).clone(),
        violation,
        counts,
        length: fleet.world.now(),
        trace: fleet.world.take_trace(),
    };
    fleet.world.end();
    mutant::switch(None);
    report
}

impl Fleet {
    fn start(load: Load, seed: u64, tracing: Tracing) -> Self {
        let mut dice = Dice::new(seed);
        let setting = FleetSetting::of(&mut dice);
        let hosts = (0..setting.servers).map(|server| ServerHost {
            site: Arc::new(Mutex::new(setting.site(server, &mut dice))),
            process: None,
            stop: Arc::default(),
            is_stopping: false,
        });
        let hosts = hosts.collect();
        let premises = Premises {
            claim: Claim::new("election/default/nobody").expect("a valid key").key().clone(),
            data: "data/".to_owned(),
            ttl: TTL,
            class: Class::S,
            manual: false,
            calm: false,
        };
        let fleet = Self {
            load,
            world: World::new(tracing),
            sim_store: Arc::new(SimStore::new(Class::S)),
            receivers: Arc::new(Receivers::new(&setting, dice.fork())),
            hall: Arc::default(),
            hosts: Arc::new(Mutex::new(hosts)),
            setting: Arc::new(setting),
            checker: Arc::new(LeaseChecker::new(premises)),
            dice: Arc::new(Mutex::new(dice)),
            findings: Arc::default(),
        };
        let hall = Arc::clone(&fleet.hall);
        fleet.sim_store.observe(move |commit| hall.landed(commit));
        fleet.setting.fill(&fleet.sim_store);
        (0..fleet.setting.servers).for_each(|server| fleet.boot(server));
        fleet
    }

    /// Lets things go wrong, mends them, lets them come to rest, and looks.
    fn play(&self) {
        fault::plan_next(self);
        if !self.go_on(fault::storm(self)) {
            return;
        }
        self.count(|counts| counts.stormy = self.hall.begun().0);
        fault::mend(self);
        if !self.go_on(CALM) {
            return;
        }
        audit::check_owners(self);
        for _ in 0..QUEUES_REST_ROUNDS {
            if !queue::unfinished(self).is_empty() && !self.go_on(QUEUES_REST) {
                return;
            }
        }
        self.hall.close();
        let due_until = self.wall_ms();
        (0..self.setting.servers).for_each(|server| self.stop(server));
        if !self.go_on(STOP) {
            return;
        }
        audit::check_slots(self, due_until);
        queue::check(self);
        self.hall.tell(self);
        self.count(|counts| (counts.begun, counts.unbegun) = self.hall.begun());
    }

    /// Lets the world go on. Whether no promise was broken.
    fn go_on(&self, length: TrueTime) -> bool {
        let end = self.world.now() + length;
        // Something happens at the end, so that time gets there.
        self.world.after(length, |_| {});
        self.world.run(end, |_| {
            self.hall.tell(self);
            self.findings().0.is_some()
        });
        self.findings().0.is_none()
    }

    /// What a right clock shows.
    pub fn wall_ms(&self) -> i64 {
        setting::WALL_MS + i64::try_from(self.world.now() / MS).expect("minutes")
    }

    /// The head of a shard.
    pub fn head(&self, shard: ShardId) -> Option<Head> {
        let key = Key::new(head_key(shard)).expect("a valid key");
        let entry = self.sim_store.peek_primary(&key)?;
        Some(Head::from_value(&entry.value).expect("a head that servers wrote"))
    }

    /// The dice of the faults.
    pub fn dice(&self) -> MutexGuard<'_, Dice> {
        self.dice.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn findings(&self) -> MutexGuard<'_, (Option<ShardViolation>, FleetCounts)> {
        self.findings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts something that happened.
    pub fn count(&self, count: impl FnOnce(&mut FleetCounts)) {
        count(&mut self.findings().1);
    }

    /// A promise is broken.
    pub fn accuse(&self, promise: ShardPromise, what: String) {
        self.world.trace("checker", || format!("BROKEN  {}: {what}", promise.sentence()));
        let at = self.world.now() / MS;
        self.findings().0.get_or_insert(ShardViolation { promise, at, what });
    }

    /// Changes a server's link or clocks.
    pub fn at_site<T>(
        &self,
        server: NodeIndex,
        change: impl FnOnce(&mut crate::network::Site) -> T,
    ) -> T {
        let site = Arc::clone(&self.hosts()[server].site);
        let mut site = site.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut site)
    }

    /// The process of a server, if it runs.
    pub fn process(&self, server: NodeIndex) -> Option<ProcessId> {
        self.hosts()[server].process.filter(|process| self.world.lives(*process))
    }

    /// Starts a server, unless it runs.
    pub fn boot(&self, server: NodeIndex) {
        if self.process(server).is_some() {
            return;
        }
        self.count(|counts| counts.starts += 1);
        let stop = Arc::new(Notify::new());
        let (fleet, told) = (self.clone(), Arc::clone(&stop));
        let process =
            self.world.spawn(|process| ServerProcess::new(fleet.prepare(server, process, told)));
        self.world.attend(process);
        self.world.trace(process, || format!("starts  {}", setting::name(server)));
        let mut hosts = self.hosts();
        hosts[server].process = Some(process);
        hosts[server].stop = stop;
        hosts[server].is_stopping = false;
    }

    /// Ends a server as kill -9 does.
    pub fn kill(&self, server: NodeIndex) {
        if let Some(process) = self.process(server) {
            self.count(|counts| counts.kills += 1);
            self.world.trace(process, || "is killed".into());
            self.world.kill(process);
        }
    }

    /// Tells a server to stop in order.
    pub fn stop(&self, server: NodeIndex) {
        if let Some(process) = self.process(server) {
            self.count(|counts| counts.stops += 1);
            self.world.trace(process, || "is told to stop".into());
            let mut hosts = self.hosts();
            hosts[server].is_stopping = true;
            hosts[server].stop.notify_one();
        }
    }

    /// Whether a server was told to stop.
    pub fn is_stopping(&self, server: NodeIndex) -> bool {
        self.hosts()[server].is_stopping
    }

    fn prepare(&self, server: NodeIndex, process: ProcessId, stop: Arc<Notify>) -> ServerStart {
        let site = Arc::clone(&self.hosts()[server].site);
        let (for_link, for_machine, for_sender) = {
            let mut dice = self.dice();
            (Luck::moment(dice.fork()), Luck::moment(dice.fork()), dice.fork())
        };
        let sender = Endpoint { node: server, process, exclusive: false };
        let link =
            StoreLink::new(&self.world, &self.sim_store, &self.checker, &site, &sender, for_link);
        self.sim_store.watched_by(&link);
        let config = NodeConfig {
            id: setting::name(server),
            url: None,
            roles: server::peers::ROLES.map(str::to_owned).to_vec(),
            ttl: TTL,
            webhook_allow: Vec::new(),
            webhook_ca: None,
            notify: None,
            history: HistoryPace::default(),
            shards: Some(self.setting.shards),
        };
        ServerStart {
            fleet: self.clone(),
            server,
            process,
            link: SimAdapter(link),
            machine: Arc::new(SimMachine::new(&self.world, &site, for_machine)),
            config,
            dice: for_sender,
            stop,
        }
    }

    fn hosts(&self) -> MutexGuard<'_, Vec<ServerHost>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
