//! Holds in virtual time: the real session, the real candidacy and the real life of a hold, and a model of a tree of processes.
//!
//! Two to four machines want to run one program. On each there is a [`supervisor`], which may be killed, stopped and
//! started anew, and under it a [`tree`] that may be so apart from it. [Faults](fault) are those of leases and those of
//! processes; the [`checker`] knows at each moment which programs execute, and whose the claim is. Everything follows
//! from a seed. In place of supervisors, [ancestors](ancestor) of Watchbell can be tried under the same faults.

pub mod ancestor;
pub mod checker;
pub mod fault;
pub mod machine;
pub mod promise;
pub mod setting;
pub mod supervisor;
pub mod tree;

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};

use engine::mutant::{self, Mutant};
use store::election::Mode;

use crate::clock::{MS, TrueTime};
use crate::cluster::{LeaseCluster, NodeBody, StoreKind, Weather};
use crate::dice::Dice;
use crate::node::node_id;
use crate::promise::LeaseViolation;
use crate::world::Tracing;
use ancestor::{Ancestor, AncestorSite, Expiry, Post};
use checker::{HoldChecker, HoldCounts, HoldPremises};
use machine::HoldMachine;
use promise::HoldViolation;
use setting::{Habit, HoldSetting};
use supervisor::HoldSite;

/// How long a run lasts, in true time.
pub const LENGTH: TrueTime = 180_000 * MS;

/// What came of a run.
#[derive(Debug, Clone)]
pub struct HoldReport {
    /// What was simulated.
    pub setting: HoldSetting,
    /// The first promise of holds that was broken, if any was.
    pub violation: Option<HoldViolation>,
    /// The first promise of leases that was.
    pub lease: Option<LeaseViolation>,
    /// How often which things happened.
    pub counts: HoldCounts,
    /// How long it lasted, in true time.
    pub length: TrueTime,
    /// What happened, line by line, if that was asked for.
    pub trace: String,
}

impl HoldReport {
    /// What was broken, if anything was.
    pub fn broken(&self) -> Option<String> {
        let of_hold = self.violation.as_ref().map(|violation| violation as &dyn fmt::Display);
        let of_lease = self.lease.as_ref().map(|violation| violation as &dyn fmt::Display);
        of_hold.or(of_lease).map(ToString::to_string)
    }
}

/// Machines, their store, and what runs there. Clones are the same.
#[derive(Clone)]
pub struct HoldCluster {
    /// Nodes, links and the store.
    pub lease: LeaseCluster,
    /// What watches programs.
    pub checker: Arc<HoldChecker>,
    /// What the seed stands for.
    pub setting: Arc<HoldSetting>,
    /// The machine of each node.
    pub machines: Arc<Vec<HoldMachine>>,
    /// Who holds the program, if that is no supervisor.
    pub ancestor: Option<Ancestor>,
}

/// Runs a seed, with this bug switched on, or none.
pub fn run(seed: u64, bug: Option<Mutant>, tracing: Tracing) -> HoldReport {
    mutant::switch(bug);
    let report = HoldCluster::start(seed, tracing).goes_on(seed);
    mutant::switch(None);
    report
}

/// Runs a seed with an ancestor in place of supervisors, of which nothing is promised.
pub fn run_ancestor(seed: u64, ancestor: Ancestor, tracing: Tracing) -> HoldReport {
    HoldCluster::start_ancestor(seed, ancestor, tracing).goes_on(seed)
}

impl HoldCluster {
    /// What a seed stands for, with all nodes started.
    pub fn start(seed: u64, tracing: Tracing) -> Self {
        let mut dice = Dice::new(seed);
        let setting = Arc::new(HoldSetting::of(&mut dice));
        let mut of_sites = dice.fork();
        let sites: Arc<OnceLock<Vec<Arc<HoldSite>>>> = Arc::default();
        let is_hosted = setting.cluster.kind == StoreKind::Exclusive;
        let body: NodeBody = {
            let sites = Arc::clone(&sites);
            Arc::new(move |node, start, process| {
                let sites = Arc::clone(&sites);
                Box::pin(async move {
                    let sites = sites.get().expect("nobody is polled before the world goes on");
                    if is_hosted && node == 0 {
                        supervisor::host(start, process).await;
                    } else {
                        supervisor::run(Arc::clone(&sites[node]), start, process).await;
                    }
                })
            })
        };
        let lease = LeaseCluster::of(setting.cluster.clone(), dice, tracing, body);
        let cluster = Self::around(lease, setting, None);
        let all = (0..cluster.lease.len()).map(|node| {
            Arc::new(HoldSite {
                node,
                machine: cluster.machines[node].clone(),
                checker: Arc::clone(&cluster.checker),
                rules: cluster.setting.rules(node),
                habit: cluster.setting.habit,
                host: is_hosted.then(|| node_id(0)),
                dice: Mutex::new(of_sites.fork()),
            })
        });
        let all = sites.set(all.collect());
        assert!(all.is_ok(), "they are made once");
        cluster
    }

    /// The same with an ancestor in place of supervisors.
    pub fn start_ancestor(seed: u64, ancestor: Ancestor, tracing: Tracing) -> Self {
        let mut dice = Dice::new(seed);
        let setting = Arc::new(HoldSetting::of(&mut dice));
        let mut of_sites = dice.fork();
        let sites: Arc<OnceLock<Vec<Arc<AncestorSite>>>> = Arc::default();
        let body: NodeBody = {
            let sites = Arc::clone(&sites);
            Arc::new(move |node, start, process| {
                let sites = Arc::clone(&sites);
                Box::pin(async move {
                    let sites = sites.get().expect("nobody is polled before the world goes on");
                    let site = Arc::clone(&sites[node]);
                    start.controls.opened.notify_one();
                    match ancestor {
                        Ancestor::SingleExecutor => {
                            ancestor::watchdog(site, start, process).await;
                        }
                        Ancestor::RedisLeader => ancestor::candidate(site, start, process).await,
                    }
                })
            })
        };
        let lease = LeaseCluster::of(setting.cluster.clone(), dice, tracing, body);
        let cluster = Self::around(lease, setting, Some(ancestor));
        let (world, expiry) = (&cluster.lease.world, Arc::new(Expiry::default()));
        expiry.follow(world, &cluster.lease.sim_store);
        let nodes = cluster.lease.len();
        let links = (0..nodes).map(|node| cluster.lease.site(node)).collect();
        let post = Post::new(world, links, of_sites.fork());
        let habit = match ancestor {
            Ancestor::SingleExecutor => cluster.setting.habit,
            Ancestor::RedisLeader => Habit::Obeys,
        };
        let all = (0..nodes).map(|node| {
            Arc::new(AncestorSite {
                node,
                nodes,
                machine: cluster.machines[node].clone(),
                checker: Arc::clone(&cluster.checker),
                habit,
                post: Arc::clone(&post),
                expiry: Arc::clone(&expiry),
                dice: Mutex::new(of_sites.fork()),
            })
        });
        let all = sites.set(all.collect());
        assert!(all.is_ok(), "they are made once");
        cluster
    }

    /// Lets everything happen.
    fn goes_on(&self, seed: u64) -> HoldReport {
        let (lease, checker) = (&self.lease, &self.checker);
        lease.world.trace("seed", || format!("{seed}: {}", self.setting));
        fault::begin(self);
        lease.world.run(LENGTH, |world| {
            lease.checker.ask_everybody(world);
            checker.look(world);
            checker.violation().is_some() || lease.checker.violation().is_some()
        });
        let report = HoldReport {
            setting: (*self.setting).clone(),
            violation: checker.violation(),
            lease: lease.checker.violation(),
            counts: checker.counts(),
            length: lease.world.now(),
            trace: lease.world.take_trace(),
        };
        self.end();
        report
    }

    fn around(lease: LeaseCluster, setting: Arc<HoldSetting>, ancestor: Option<Ancestor>) -> Self {
        let class = lease.sim_store.class();
        let checker = Arc::new(HoldChecker::new(HoldPremises {
            head: lease.claim.key().clone(),
            ttls: setting.cluster.ttls.clone(),
            class,
            manual: setting.cluster.mode == Mode::Manual,
            calm: setting.cluster.weather == Weather::Calm && !setting.cluster.stale_reads,
            promised: ancestor.is_none(),
        }));
        let machines: Vec<_> = (0..lease.len())
            .map(|node| HoldMachine::new(&lease.world, &lease.site(node)))
            .collect();
        let (onlooker, there) = (Arc::clone(&checker), machines.clone());
        lease.checker.show(move |world, landing, place| {
            onlooker.lands(world, landing, place, there[landing.node].reading());
        });
        Self { lease, checker, setting, machines: Arc::new(machines), ancestor }
    }

    /// Ends everything: processes hold the world, trees their machine, and both each other.
    fn end(&self) {
        self.lease.world.end();
        self.lease.checker.rests();
        self.machines.iter().for_each(HoldMachine::forget);
    }
}
