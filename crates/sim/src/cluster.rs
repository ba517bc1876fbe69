//! A cluster in one thread: nodes, their roads, one store, and a run of faults from one seed.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::lease::Ttl;
use store::claim::Claim;
use store::election::Mode;
use store::machine::Machine;
use store::session::NodeInfo;
use store::{Class, Store};

use crate::clock::{Clocks, Instant, MS};
use crate::dice::{Dice, Luck};
use crate::node::{self, DATA, Start, Strings, Style};
use crate::road::{Lane, Road, Sender, SharedSite, SimMachine, Site, Traveller};
use crate::vault::{NodeIndex, Vault};
use crate::witness::{Ill, Premises, Witness};
use crate::world::{ProcessId, Tracing, World};

/// The claim that all nodes want.
const CLAIM: &str = "election/default/watch";

/// What kind of store a run has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Many processes share it, and it keeps its word.
    Shared,
    /// The process of node 0 has it open, and the others go through that one.
    Exclusive,
    /// Shared, and it may forget.
    Forgetful,
}

/// What the roads are like on the whole.
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
pub struct Setting {
    /// Its store.
    pub kind: Kind,
    /// Its roads.
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

impl fmt::Display for Setting {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{:?} store, {:?} roads, {:?} mode, T = {:?}{}{}",
            self.kind,
            self.weather,
            self.mode,
            self.ttls,
            if self.stale_reads { ", stale reads" } else { "" },
            if self.hand_overs { ", hand-overs" } else { "" }
        )
    }
}

impl Setting {
    /// The setting of a seed.
    pub fn of(dice: &mut Dice) -> Self {
        let kind = dice.pick(&[Kind::Shared, Kind::Shared, Kind::Exclusive, Kind::Forgetful]);
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
        let stale_reads = kind != Kind::Forgetful && dice.chance(15);
        let hand_overs = dice.chance(60);
        Self { kind, weather, ttls, mode, stale_reads, hand_overs }
    }

    fn longest_ttl(&self) -> Duration {
        self.ttls.iter().copied().max().expect("a cluster has nodes")
    }
}

/// A running cluster. Clones are the same one.
#[derive(Clone)]
pub struct Cluster {
    /// Its time and its processes.
    pub world: World,
    /// Who watches.
    pub witness: Arc<Witness>,
    /// Its store.
    pub vault: Arc<Vault>,
    /// What it is like.
    pub setting: Arc<Setting>,
    /// What its nodes want.
    pub claim: Claim,
    members: Arc<Mutex<Vec<Member>>>,
    dice: Arc<Mutex<Dice>>,
    ids: Arc<AtomicU64>,
}

/// A node's place: its site, and the processes that run there.
struct Member {
    site: SharedSite,
    processes: Vec<(ProcessId, Strings)>,
    /// What is wrong with the node, and until when.
    ills: Vec<(Ill, Instant)>,
}

impl Cluster {
    /// A cluster as the seed has it, with all nodes started.
    pub fn start(seed: u64, tracing: Tracing) -> Self {
        let mut dice = Dice::new(seed);
        let setting = Setting::of(&mut dice);
        Self::with(setting, dice, tracing)
    }

    /// A cluster of this setting, with all nodes started.
    pub fn with(setting: Setting, mut dice: Dice, tracing: Tracing) -> Self {
        let class = match setting.kind {
            Kind::Shared | Kind::Exclusive => Class::S,
            Kind::Forgetful => Class::B,
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
        let members = (0..setting.ttls.len()).map(|node| Member {
            site: Arc::new(Mutex::new(site(&setting, node, &mut dice))),
            processes: Vec::new(),
            ills: Vec::new(),
        });
        let members = members.collect();
        let cluster = Self {
            world: World::new(tracing),
            witness: Arc::new(Witness::new(premises)),
            vault: Arc::new(Vault::new(class)),
            setting: Arc::new(setting),
            claim,
            members: Arc::new(Mutex::new(members)),
            dice: Arc::new(Mutex::new(dice)),
            ids: Arc::new(AtomicU64::new(1)),
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

    /// Never.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// T of the first node: what faults are measured in.
    pub fn ttl(&self) -> Instant {
        u64::try_from(self.setting.ttls[0].as_nanos()).expect("seconds")
    }

    /// The dice of the faults.
    pub fn dice(&self) -> MutexGuard<'_, Dice> {
        self.dice.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes a node's site.
    pub fn at_site<T>(&self, node: NodeIndex, change: impl FnOnce(&mut Site) -> T) -> T {
        let site = Arc::clone(&self.members()[node].site);
        let mut site = site.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut site)
    }

    /// The process that was started last on a node, if one runs, and how to reach it.
    pub fn process(&self, node: NodeIndex) -> Option<(ProcessId, Strings)> {
        self.processes(node).pop()
    }

    /// All processes of a node, the oldest first. There is more than one if somebody started a second
    /// while the first was paused.
    fn processes(&self, node: NodeIndex) -> Vec<(ProcessId, Strings)> {
        let mut members = self.members();
        members[node].processes.retain(|(process, _)| self.world.lives(*process));
        members[node].processes.clone()
    }

    /// Whether the store is in this node's hands.
    pub fn is_host(&self, node: NodeIndex) -> bool {
        self.setting.kind == Kind::Exclusive && node == 0
    }

    /// Starts a process on a node, whatever runs there already.
    pub fn boot(&self, node: NodeIndex) {
        let strings = Strings::default();
        let host = self.is_host(node);
        let cluster = self.clone();
        let told = strings.clone();
        let process = self.world.spawn(|process| {
            cluster.witness.born(process, cluster.world.now());
            node::run(cluster.prepare(node, process, told), process)
        });
        self.world.trace(process, || format!("starts  on node {node}"));
        if host {
            // Nobody else gets in before the door has been opened from inside.
            self.vault.admit_only(node);
            let (cluster, opened) = (self.clone(), strings.opened.clone());
            self.world.spawn(|_| async move {
                opened.notified().await;
                cluster.vault.admit_all();
                cluster.witness.store_is_up(cluster.world.now());
            });
        }
        let (now, ills) = {
            let mut members = self.members();
            members[node].processes.push((process, strings));
            let now = self.world.now();
            members[node].ills.retain(|(_, until)| *until > now);
            (now, members[node].ills.clone())
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
            self.witness.died(process, self.world.now());
        }
        if self.is_host(node) {
            self.vault.admit_only(node);
        }
    }

    /// Something goes wrong with a node, and so with whatever runs or is started on it, for so long.
    pub fn ail(&self, node: NodeIndex, ill: Ill, length: Instant) {
        let until = self.world.now() + length;
        self.members()[node].ills.push((ill, until));
        for (process, _) in self.processes(node) {
            self.ail_process(process, ill, length);
        }
    }

    /// Something goes wrong with one process.
    pub fn ail_process(&self, process: ProcessId, ill: Ill, length: Instant) {
        self.witness.ails(process, ill, self.world.now());
        let witness = Arc::clone(&self.witness);
        self.world.after(length, move |world| witness.recovers(process, ill, world.now()));
    }

    /// A way to the store for somebody who is no node: a person.
    pub fn person(&self) -> Store {
        let (node, process) = (self.len() - 1, ProcessId(0));
        let site = Arc::new(Mutex::new(Site {
            there: Lane::GOOD,
            read: Lane::GOOD,
            back: Lane::GOOD,
            clocks: Clocks::new(1_000_000, 1_000_000, 0),
            stale_percent: 0,
            refused_percent: 0,
            ambush: None,
        }));
        let sender = Sender { node, process, exclusive: false };
        let luck = Luck::stream(self.dice().fork());
        let road = Road::new(&self.world, &self.vault, &self.witness, &site, &sender, luck);
        Store::new(Traveller(road))
    }

    fn prepare(&self, node: NodeIndex, process: ProcessId, strings: Strings) -> Start {
        let site = Arc::clone(&self.members()[node].site);
        let for_road = Luck::stream(self.dice().fork());
        let for_machine = Luck::stream(self.dice().fork());
        let sender = Sender { node, process, exclusive: self.is_host(node) };
        let road = Road::new(&self.world, &self.vault, &self.witness, &site, &sender, for_road);
        self.vault.watched_by(&road);
        let machine: Arc<dyn Machine> = Arc::new(SimMachine::new(&self.world, &site, for_machine));
        Start {
            world: self.world.clone(),
            witness: Arc::clone(&self.witness),
            store: Store::new(Traveller(road)),
            machine,
            node: NodeInfo {
                id: node::node_id(node),
                ttl: Ttl::new(self.setting.ttls[node]).expect("a valid T"),
                url: None,
                roles: Vec::new(),
            },
            claim: self.claim.clone(),
            mode: self.setting.mode,
            style: self.style(node),
            ids: Arc::clone(&self.ids),
            strings,
        }
    }

    /// Who waits for a person's approval campaigns; of the others some look from time to time.
    fn style(&self, node: NodeIndex) -> Style {
        match self.setting.mode {
            Mode::Automatic if self.setting.hand_overs && node % 2 == 1 => Style::Tries,
            Mode::Automatic | Mode::Manual => Style::Campaigns,
        }
    }

    fn members(&self) -> MutexGuard<'_, Vec<Member>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A node's roads and clocks.
fn site(setting: &Setting, node: NodeIndex, dice: &mut Dice) -> Site {
    let Lanes { there, read, back } = lanes(setting, node);
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

/// A node's lanes.
pub struct Lanes {
    /// For commits.
    pub there: Lane,
    /// For reads.
    pub read: Lane,
    /// For answers.
    pub back: Lane,
}

/// What a node's lanes are like when nothing else is wrong with them.
pub fn lanes(setting: &Setting, node: NodeIndex) -> Lanes {
    let ttl = u64::try_from(setting.ttls[node].as_nanos()).expect("seconds");
    let good = Lane::GOOD;
    let slow = Lane { late_percent: 20, late: (ttl * 20 / 100, ttl * 24 / 100), ..good };
    let lossy = Lane { lost_percent: 3, ..good };
    let storm =
        Lane { delay: 40 * MS, late_percent: 6, late: (0, ttl * 5 / 2), lost_percent: 3, ..good };
    if setting.kind == Kind::Exclusive && node == 0 {
        return Lanes { there: good, read: good, back: good };
    }
    match setting.weather {
        Weather::Calm => Lanes { there: good, read: good, back: good },
        Weather::SlowReads => Lanes { there: good, read: slow, back: good },
        Weather::SlowThere => Lanes { there: slow, read: slow, back: good },
        Weather::SlowBack => Lanes { there: good, read: good, back: slow },
        Weather::Lossy => Lanes { there: lossy, read: lossy, back: lossy },
        Weather::Storm => Lanes { there: storm, read: storm, back: storm },
    }
}

/// A clock's rate: often at one of the ends of what is assumed.
pub fn rate(dice: &mut Dice) -> u64 {
    let any = dice.between(900_000, 1_100_000);
    dice.pick(&[900_000, 900_000, 900_000, 1_000_000, 1_100_000, 1_100_000, 1_100_000, any])
}

/// A wall clock: wrong by up to an hour; where a store may forget tokens, by less than a node waits
/// before it claims, since then tokens rest on it.
pub fn wall_us(setting: &Setting, dice: &mut Dice) -> u64 {
    let now_us = 1_800_000_000_000_000;
    let off_us = match setting.kind {
        Kind::Forgetful => 1_000_000,
        Kind::Shared | Kind::Exclusive => 3_600_000_000,
    };
    now_us + dice.between(0, off_us)
}
