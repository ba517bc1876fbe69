//! A cluster in one thread: nodes, their links, one store, and a run of faults from one seed.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::lease::Ttl;
use store::claim::Claim;
use store::election::Mode;
use store::machine::Machine;
use store::session::NodeInfo;
use store::{Class, Store};

use crate::checker::{Ailment, LeaseChecker, Premises};
use crate::clock::{Clocks, MS, TrueTime};
use crate::dice::{Dice, Luck};
use crate::network::{Endpoint, LinkQuality, SharedSite, SimAdapter, SimMachine, Site, StoreLink};
use crate::node::{self, DATA, NodeStart, ProcessControls, Style};
use crate::sim_store::{NodeIndex, SimStore};
use crate::world::{ProcessId, Tracing, World};

/// The claim that all nodes want.
const CLAIM: &str = "election/default/watch";

/// What kind of store a run has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreKind {
    /// Many processes share it, and it keeps its word.
    Shared,
    /// The process of node 0 has it open, and the others go through that one.
    Exclusive,
    /// Shared, and it may forget.
    Forgetful,
}

/// What the links are like on the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weather {
    /// Everything arrives, and soon.
    Calm,
    /// Some reads take almost as long as anybody waits.
    SlowReads,
    /// Some requests do.
    SlowThere,
    /// Some answers do.
    SlowBack,
    /// Messages get lost.
    Lossy,
    /// Messages get lost, and some come very late.
    Storm,
}

/// What a seed stands for.
#[derive(Debug, Clone)]
pub struct ClusterSetting {
    /// Which kind of store it has.
    pub kind: StoreKind,
    /// What its network is like.
    pub weather: Weather,
    /// T of each node.
    pub ttls: Vec<Duration>,
    /// Whether a person must approve each holder.
    pub mode: Mode,
    /// Whether reads may be answered from an old copy.
    pub stale_reads: bool,
    /// Whether holders are told to hand over.
    pub hand_overs: bool,
}

impl fmt::Display for ClusterSetting {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{:?} store, {:?} network, {:?} mode, T = {:?}{}{}",
            self.kind,
            self.weather,
            self.mode,
            self.ttls,
            if self.stale_reads { ", stale reads" } else { "" },
            if self.hand_overs { ", hand-overs" } else { "" }
        )
    }
}

impl ClusterSetting {
    /// The setting of a seed.
    pub fn of(dice: &mut Dice) -> Self {
        let kind = dice.pick(&[
            StoreKind::Shared,
            StoreKind::Shared,
            StoreKind::Exclusive,
            StoreKind::Forgetful,
        ]);
        let weather = dice.pick(&[
            Weather::Calm,
            Weather::Calm,
            Weather::SlowReads,
            Weather::SlowReads,
            Weather::SlowThere,
            Weather::SlowBack,
            Weather::Lossy,
            Weather::Storm,
        ]);
        let same = dice.chance(60);
        let ttls = (0..dice.between(2, 4)).map(|_| {
            let ms = if same { 3_000 } else { dice.pick(&[2_000, 3_000, 3_000, 5_000]) };
            Duration::from_millis(ms)
        });
        let ttls = ttls.collect();
        let mode = if dice.chance(15) { Mode::Manual } else { Mode::Automatic };
        let stale_reads = kind != StoreKind::Forgetful && dice.chance(15);
        let hand_overs = dice.chance(60);
        Self { kind, weather, ttls, mode, stale_reads, hand_overs }
    }

    fn longest_ttl(&self) -> Duration {
        self.ttls.iter().copied().max().expect("a cluster has nodes")
    }
}

/// What a process of a node does, from its start to its end.
pub type NodeBody = Arc<
    dyn Fn(NodeIndex, NodeStart, ProcessId) -> Pin<Box<dyn Future<Output = ()> + Send>>
        + Send
        + Sync,
>;

/// A running cluster. Clones are the same one.
#[derive(Clone)]
pub struct LeaseCluster {
    /// Its time and its processes.
    pub world: World,
    /// Looks out for broken promises.
    pub checker: Arc<LeaseChecker>,
    /// The store that its nodes share.
    pub sim_store: Arc<SimStore>,
    /// What the seed stands for.
    pub setting: Arc<ClusterSetting>,
    /// The claim that its nodes want.
    pub claim: Claim,
    nodes: Arc<Mutex<Vec<SimNode>>>,
    dice: Arc<Mutex<Dice>>,
    ids: Arc<AtomicU64>,
    body: NodeBody,
}

/// A node: its site, and the processes that run there.
struct SimNode {
    site: SharedSite,
    processes: Vec<(ProcessId, ProcessControls)>,
    /// What is wrong with the node, and until when.
    ills: Vec<(Ailment, TrueTime)>,
}

impl LeaseCluster {
    /// A cluster as the seed has it, with all nodes started.
    pub fn start(seed: u64, tracing: Tracing) -> Self {
        let mut dice = Dice::new(seed);
        let setting = ClusterSetting::of(&mut dice);
        Self::with(setting, dice, tracing)
    }

    /// A cluster of this setting, with all nodes started.
    pub fn with(setting: ClusterSetting, dice: Dice, tracing: Tracing) -> Self {
        let body: NodeBody = Arc::new(|_, start, process| Box::pin(node::run(start, process)));
        Self::of(setting, dice, tracing, body)
    }

    /// A cluster of this setting whose processes do this, with all nodes started.
    pub fn of(setting: ClusterSetting, mut dice: Dice, tracing: Tracing, body: NodeBody) -> Self {
        let class = match setting.kind {
            StoreKind::Shared | StoreKind::Exclusive => Class::S,
            StoreKind::Forgetful => Class::B,
        };
        let claim = Claim::new(CLAIM).expect("a valid key");
        let premises = Premises {
            claim: claim.key().clone(),
            data: DATA.to_owned(),
            ttl: setting.longest_ttl(),
            class,
            manual: setting.mode == Mode::Manual,
            calm: setting.weather == Weather::Calm && !setting.stale_reads,
        };
        let nodes = (0..setting.ttls.len()).map(|node| SimNode {
            site: Arc::new(Mutex::new(site(&setting, node, &mut dice))),
            processes: Vec::new(),
            ills: Vec::new(),
        });
        let nodes = nodes.collect();
        let cluster = Self {
            world: World::new(tracing),
            checker: Arc::new(LeaseChecker::new(premises)),
            sim_store: Arc::new(SimStore::new(class)),
            setting: Arc::new(setting),
            claim,
            nodes: Arc::new(Mutex::new(nodes)),
            dice: Arc::new(Mutex::new(dice)),
            ids: Arc::new(AtomicU64::new(1)),
            body,
        };
        for node in 0..cluster.len() {
            cluster.boot(node);
        }
        cluster
    }

    /// How many nodes it has.
    pub fn len(&self) -> usize {
        self.setting.ttls.len()
    }

    /// Always false: a cluster has nodes.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// T of the first node: what faults are measured in.
    pub fn ttl(&self) -> TrueTime {
        u64::try_from(self.setting.ttls[0].as_nanos()).expect("seconds")
    }

    /// The dice of the faults.
    pub fn dice(&self) -> MutexGuard<'_, Dice> {
        self.dice.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a node stands on.
    pub fn site(&self, node: NodeIndex) -> SharedSite {
        Arc::clone(&self.nodes()[node].site)
    }

    /// Changes a node's site.
    pub fn at_site<T>(&self, node: NodeIndex, change: impl FnOnce(&mut Site) -> T) -> T {
        let site = Arc::clone(&self.nodes()[node].site);
        let mut site = site.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut site)
    }

    /// The process that was started last on a node, if one runs, and how to reach it.
    pub fn process(&self, node: NodeIndex) -> Option<(ProcessId, ProcessControls)> {
        self.processes(node).pop()
    }

    /// All processes of a node, the oldest first. There is more than one if somebody started a second
    /// while the first was paused.
    fn processes(&self, node: NodeIndex) -> Vec<(ProcessId, ProcessControls)> {
        let mut nodes = self.nodes();
        nodes[node].processes.retain(|(process, _)| self.world.lives(*process));
        nodes[node].processes.clone()
    }

    /// Whether the store is in this node's hands.
    pub fn is_host(&self, node: NodeIndex) -> bool {
        self.setting.kind == StoreKind::Exclusive && node == 0
    }

    /// Starts a process on a node, whatever runs there already.
    pub fn boot(&self, node: NodeIndex) {
        let controls = ProcessControls::default();
        let host = self.is_host(node);
        let cluster = self.clone();
        let told = controls.clone();
        let process = self.world.spawn(|process| {
            cluster.checker.born(process, cluster.world.now());
            (cluster.body)(node, cluster.prepare(node, process, told), process)
        });
        self.world.trace(process, || format!("starts  on node {node}"));
        if host {
            // Nobody else gets in before the door has been opened from inside.
            self.sim_store.admit_only(node);
            let (cluster, opened) = (self.clone(), controls.opened.clone());
            self.world.spawn(|_| async move {
                opened.notified().await;
                cluster.sim_store.admit_all();
                cluster.checker.store_is_up(cluster.world.now());
            });
        }
        let (now, ills) = {
            let mut nodes = self.nodes();
            nodes[node].processes.push((process, controls));
            let now = self.world.now();
            nodes[node].ills.retain(|(_, until)| *until > now);
            (now, nodes[node].ills.clone())
        };
        for (ill, until) in ills {
            self.ail_process(process, ill, until - now);
        }
    }

    /// Ends all processes of a node, as kill -9 does.
    pub fn kill(&self, node: NodeIndex) {
        for (process, _) in self.processes(node) {
            self.world.trace(process, || "is killed".into());
            self.world.kill(process);
            self.checker.died(process, self.world.now());
        }
        if self.is_host(node) {
            self.sim_store.admit_only(node);
        }
    }

    /// Something goes wrong with a node, and so with whatever runs or is started on it, for so long.
    pub fn ail(&self, node: NodeIndex, ill: Ailment, length: TrueTime) {
        let until = self.world.now() + length;
        self.nodes()[node].ills.push((ill, until));
        for (process, _) in self.processes(node) {
            self.ail_process(process, ill, length);
        }
    }

    /// Something goes wrong with one process.
    pub fn ail_process(&self, process: ProcessId, ill: Ailment, length: TrueTime) {
        self.checker.ails(process, ill, self.world.now());
        let checker = Arc::clone(&self.checker);
        self.world.after(length, move |world| checker.recovers(process, ill, world.now()));
    }

    /// A way to the store for somebody who is no node: a person.
    pub fn person(&self) -> Store {
        let (node, process) = (self.len() - 1, ProcessId(0));
        let site = Arc::new(Mutex::new(Site {
            there: LinkQuality::GOOD,
            read: LinkQuality::GOOD,
            back: LinkQuality::GOOD,
            clocks: Clocks::new(1_000_000, 1_000_000, 0),
            stale_percent: 0,
            refused_percent: 0,
            ambush: None,
        }));
        let sender = Endpoint { node, process, exclusive: false };
        let luck = Luck::stream(self.dice().fork());
        let link =
            StoreLink::new(&self.world, &self.sim_store, &self.checker, &site, &sender, luck);
        Store::new(SimAdapter(link))
    }

    fn prepare(&self, node: NodeIndex, process: ProcessId, controls: ProcessControls) -> NodeStart {
        let site = Arc::clone(&self.nodes()[node].site);
        let for_link = Luck::stream(self.dice().fork());
        let for_machine = Luck::stream(self.dice().fork());
        let sender = Endpoint { node, process, exclusive: self.is_host(node) };
        let link =
            StoreLink::new(&self.world, &self.sim_store, &self.checker, &site, &sender, for_link);
        self.sim_store.watched_by(&link);
        let machine: Arc<dyn Machine> = Arc::new(SimMachine::new(&self.world, &site, for_machine));
        NodeStart {
            world: self.world.clone(),
            checker: Arc::clone(&self.checker),
            store: Store::new(SimAdapter(link)),
            machine,
            node: NodeInfo {
                id: node::node_id(node),
                ttl: Ttl::new(self.setting.ttls[node]).expect("a valid T"),
                url: None,
                roles: Vec::new(),
                candidacies: Vec::new(),
            },
            claim: self.claim.clone(),
            mode: self.setting.mode,
            style: self.style(node),
            ids: Arc::clone(&self.ids),
            controls,
        }
    }

    /// Who waits for a person's approval campaigns; of the others some look from time to time.
    fn style(&self, node: NodeIndex) -> Style {
        match self.setting.mode {
            Mode::Automatic if self.setting.hand_overs && node % 2 == 1 => Style::Tries,
            Mode::Automatic | Mode::Manual => Style::Campaigns,
        }
    }

    fn nodes(&self) -> MutexGuard<'_, Vec<SimNode>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A node's links and clocks.
fn site(setting: &ClusterSetting, node: NodeIndex, dice: &mut Dice) -> Site {
    let NodeLinks { there, read, back } = node_links(setting, node);
    let boot = rate(dice);
    let raw = if dice.chance(75) { boot } else { rate(dice) };
    Site {
        there,
        read,
        back,
        clocks: Clocks::new(boot, raw, wall_us(setting, dice)),
        stale_percent: if setting.stale_reads { 5 } else { 0 },
        refused_percent: u64::from(setting.weather != Weather::Calm),
        ambush: None,
    }
}

/// The quality of a node's link, by what travels on it.
pub struct NodeLinks {
    /// How commits travel to the store.
    pub there: LinkQuality,
    /// How reads travel to the store.
    pub read: LinkQuality,
    /// How answers travel back.
    pub back: LinkQuality,
}

impl NodeLinks {
    /// Good ones.
    pub const GOOD: Self =
        Self { there: LinkQuality::GOOD, read: LinkQuality::GOOD, back: LinkQuality::GOOD };
}

/// What a node's link is like when no fault affects it.
pub fn node_links(setting: &ClusterSetting, node: NodeIndex) -> NodeLinks {
    let ttl = u64::try_from(setting.ttls[node].as_nanos()).expect("seconds");
    let good = LinkQuality::GOOD;
    let slow = LinkQuality { late_percent: 20, late: (ttl * 20 / 100, ttl * 24 / 100), ..good };
    let lossy = LinkQuality { lost_percent: 3, ..good };
    let storm = LinkQuality {
        delay: 40 * MS,
        late_percent: 6,
        late: (0, ttl * 5 / 2),
        lost_percent: 3,
        ..good
    };
    if setting.kind == StoreKind::Exclusive && node == 0 {
        return NodeLinks { there: good, read: good, back: good };
    }
    match setting.weather {
        Weather::Calm => NodeLinks { there: good, read: good, back: good },
        Weather::SlowReads => NodeLinks { there: good, read: slow, back: good },
        Weather::SlowThere => NodeLinks { there: slow, read: slow, back: good },
        Weather::SlowBack => NodeLinks { there: good, read: good, back: slow },
        Weather::Lossy => NodeLinks { there: lossy, read: lossy, back: lossy },
        Weather::Storm => NodeLinks { there: storm, read: storm, back: storm },
    }
}

/// A clock's rate: often at one of the ends of what is assumed.
pub fn rate(dice: &mut Dice) -> u64 {
    let any = dice.between(900_000, 1_100_000);
    dice.pick(&[900_000, 900_000, 900_000, 1_000_000, 1_100_000, 1_100_000, 1_100_000, any])
}

/// A wall clock: wrong by up to an hour; where a store may forget tokens, by less than a node waits
/// before it claims, since then tokens rest on it.
pub fn wall_us(setting: &ClusterSetting, dice: &mut Dice) -> u64 {
    let now_us = 1_800_000_000_000_000;
    let off_us = match setting.kind {
        StoreKind::Forgetful => 1_000_000,
        StoreKind::Shared | StoreKind::Exclusive => 3_600_000_000,
    };
    now_us + dice.between(0, off_us)
}
