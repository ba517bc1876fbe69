//! Rings in virtual time: real sessions and real drivers on several nodes, and a model of members and of those who listen.
//!
//! Two to four servers advance one ring with two subscriptions. Members join and beat through any of them, die, leave, move, and what
//! they send may come late and twice. Servers die, stall, stop and are cut off, the store goes away, wall clocks are set. The
//! [`checker`] sees each commit as it lands: what is written is the truth, and everybody who is told anything is told that. Everything
//! follows from a seed.

pub mod checker;
pub mod people;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engine::limits::CLOCK_APART_MS_MAX;
use engine::mutant::{self, Mutant};
use store::election::Mode;
use store::ring::{RingId, RingPart, RingSettings, Rings};
use store::session::Session;

use crate::clock::{MS, TrueTime};
use crate::cluster::{ClusterSetting, LeaseCluster, NodeBody, StoreKind, Weather};
use crate::dice::Dice;
use crate::fault::{self, Side};
use crate::node::NodeStart;
use crate::promise::LeaseViolation;
use crate::world::{ProcessId, Tracing};
use checker::{RingChecker, RingCounts};

/// How long a run lasts, in true time; and when nothing goes wrong any more.
pub const LENGTH: TrueTime = 110_000 * MS;
const CALM: TrueTime = 70_000 * MS;

/// What all wall clocks show at the beginning, but for a little.
const BEGIN_US: u64 = 1_800_000_000_000_000;

/// What came of a run.
#[derive(Debug, Clone)]
pub struct RingReport {
    /// What was simulated.
    pub setting: RingSetting,
    /// The first thing that was wrong, if anything was.
    pub violation: Option<String>,
    /// The first promise of leases that was broken.
    pub lease: Option<LeaseViolation>,
    /// How often which things happened.
    pub counts: RingCounts,
    /// How long it lasted, in true time.
    pub length: TrueTime,
    /// What happened, line by line, if that was asked for.
    pub trace: String,
}

impl RingReport {
    /// What was broken, if anything was.
    pub fn broken(&self) -> Option<String> {
        let of_lease = self.lease.as_ref().map(ToString::to_string);
        self.violation.clone().or(of_lease)
    }
}

/// What a seed stands for.
#[derive(Debug, Clone)]
pub struct RingSetting {
    /// The network, and T of each server.
    pub cluster: ClusterSetting,
    /// The interval of each subscription.
    pub every: [&'static str; 2],
    /// How many members have each turn of the first.
    pub count: u64,
    /// How many members there are.
    pub members: u64,
}

impl fmt::Display for RingSetting {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cluster, every: [one, two], count, members } = self;
        write!(out, "{cluster}, every {one} and {two}, {count} of {members} members a turn")
    }
}

impl RingSetting {
    fn of(dice: &mut Dice) -> Self {
        let mut cluster = ClusterSetting::of(dice);
        (cluster.kind, cluster.mode) = (StoreKind::Shared, Mode::Automatic);
        (cluster.stale_reads, cluster.hand_overs) = (false, false);
        cluster.weather =
            dice.pick(&[Weather::Calm, Weather::Calm, Weather::Lossy, Weather::SlowBack]);
        Self {
            every: [dice.pick(&["200ms", "500ms", "1s"]), dice.pick(&["1s", "2s"])],
            count: dice.pick(&[1, 1, 2, 3, 5]),
            members: dice.between(2, 6),
            cluster,
        }
    }
}

/// Servers, and how members reach them. Clones are the same.
#[derive(Clone)]
pub struct RingCluster {
    /// Nodes, links and the store.
    pub lease: LeaseCluster,
    /// What watches rings.
    pub checker: Arc<RingChecker>,
    /// What the seed stands for.
    pub setting: Arc<RingSetting>,
    servers: Arc<Mutex<Vec<Option<Rings>>>>,
    is_calm: Arc<AtomicBool>,
}

/// Runs a seed, with this bug switched on, or none.
pub fn run(seed: u64, bug: Option<Mutant>, tracing: Tracing) -> RingReport {
    mutant::switch(bug);
    let report = RingCluster::start(seed, tracing).goes_on(seed);
    mutant::switch(None);
    report
}

/// The ring of all runs.
pub fn ring() -> RingId {
    RingId::new("default", "watch").expect("good names")
}

impl RingCluster {
    fn start(seed: u64, tracing: Tracing) -> Self {
        let mut dice = Dice::new(seed);
        let setting = Arc::new(RingSetting::of(&mut dice));
        let servers: Arc<Mutex<Vec<Option<Rings>>>> =
            Arc::new(Mutex::new(vec![None; setting.cluster.ttls.len()]));
        let body: NodeBody = {
            let servers = Arc::clone(&servers);
            Arc::new(move |node, start, process| {
                let servers = Arc::clone(&servers);
                Box::pin(async move { serve(node, start, process, &servers).await })
            })
        };
        let lease = LeaseCluster::of(setting.cluster.clone(), dice, tracing, body);
        let checker = Arc::new(RingChecker::default());
        let onlooker = Arc::clone(&checker);
        lease.checker.show(move |world, landing, _| onlooker.lands(world, landing.commit));
        for node in 0..lease.len() {
            let off_us = lease.dice().between(0, 1_600_000);
            lease.at_site(node, |site| site.clocks.step(BEGIN_US + off_us));
        }
        Self { lease, checker, setting, servers, is_calm: Arc::default() }
    }

    fn goes_on(&self, seed: u64) -> RingReport {
        let (lease, checker) = (&self.lease, &self.checker);
        lease.world.trace("seed", || format!("{seed}: {}", self.setting));
        people::begin(self);
        plan_fault(self);
        let all = self.clone();
        lease.world.after(CALM, move |_| all.is_calm.store(true, Ordering::SeqCst));
        lease.world.run(LENGTH, |world| {
            lease.checker.ask_everybody(world);
            checker.is_broken() || lease.checker.violation().is_some()
        });
        checker.ends(&lease.world);
        let report = RingReport {
            setting: (*self.setting).clone(),
            violation: checker.violation(),
            lease: lease.checker.violation(),
            counts: checker.counts(),
            length: lease.world.now(),
            trace: lease.world.take_trace(),
        };
        lease.world.end();
        lease.checker.rests();
        self.servers.lock().unwrap_or_else(PoisonError::into_inner).clear();
        report
    }

    /// Whether nothing goes wrong any more.
    pub fn is_calm(&self) -> bool {
        self.is_calm.load(Ordering::SeqCst)
    }

    /// The rings of a server, if it has ever been up. Its process may be gone.
    pub fn server(&self, node: usize) -> Option<Rings> {
        let servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        servers.get(node).cloned().flatten()
    }
}

/// A server: a session, and the driver of its rings.
async fn serve(
    node: usize,
    start: NodeStart,
    process: ProcessId,
    servers: &Mutex<Vec<Option<Rings>>>,
) {
    let mut about = start.node.clone();
    about.roles = vec!["schedule".to_owned()];
    loop {
        let opened = Session::open(&start.store, &start.machine, &about).await;
        let (session, mut keeper) = match opened {
            Ok(opened) => opened,
            Err(why) => {
                start.world.trace(process, || format!("waits   {why}"));
                start.machine.sleep(about.ttl.pause()).await;
                continue;
            }
        };
        start.checker.lives_in(process, Some(session.key()));
        start.controls.settled.store(true, Ordering::SeqCst);
        let (machine, world) = (Arc::clone(&start.machine), start.world.clone());
        let clock_is_good = move || {
            let true_us = BEGIN_US + 800_000 + world.now() / 1_000;
            let apart_ms = machine.wall_us().abs_diff(true_us) / 1_000;
            apart_ms <= CLOCK_APART_MS_MAX.unsigned_abs() / 2
        };
        let settings = RingSettings {
            is_server: |record| record.roles.iter().any(|role| role == "schedule"),
            clock_is_good: Arc::new(clock_is_good),
            part: RingPart::Advances,
        };
        let (rings, mut driver) = Rings::new(&session, settings);
        servers.lock().unwrap_or_else(PoisonError::into_inner)[node] = Some(rings.clone());
        let hangs = Arc::clone(&start.controls.hangs);
        let stopped = tokio::select! {
            biased;
            end = keeper.run(|| hangs.load(Ordering::SeqCst) == 0) => {
                start.world.trace(process, || format!("ended   {}: {end:?}", session.key()));
                false
            }
            () = driver.run() => false,
            () = start.controls.stop.notified() => true,
        };
        start.controls.settled.store(false, Ordering::SeqCst);
        start.checker.lives_in(process, None);
        if stopped {
            session.close().await;
            start.checker.died(process, start.world.now());
            return;
        }
    }
}

/// Something goes wrong, again and again, until it is calm.
fn plan_fault(all: &RingCluster) {
    let delay = all.lease.dice().between(500 * MS, 6_000 * MS);
    let next = all.clone();
    all.lease.world.after(delay, move |_| {
        if next.is_calm() {
            for node in 0..next.lease.len() {
                set_clock(&next, node, 800_000);
            }
            return;
        }
        strike(&next);
        plan_fault(&next);
    });
}

fn set_clock(all: &RingCluster, node: usize, off_us: u64) {
    all.lease.at_site(node, |site| site.clocks.step(BEGIN_US + off_us));
}

fn strike(all: &RingCluster) {
    let lease = &all.lease;
    let (what, node, clock_us) = {
        let mut dice = lease.dice();
        let node = usize::try_from(dice.between(0, lease.len() as u64 - 1)).expect("an index");
        (dice.between(0, 11), node, dice.between(0, 1_600_000))
    };
    // Who writes is hit more often than others.
    let node = all.checker.favourite().filter(|_| what % 2 == 0).unwrap_or(node) % lease.len();
    let length = fault::length(lease);
    lease.world.trace("fault", || format!("{what} on node {node}"));
    match what {
        0 | 1 => fault::crash(lease, node, length),
        2 => (0..lease.len()).for_each(|node| fault::crash(lease, node, length)),
        3 | 4 => fault::pause(lease, node, length),
        5 => fault::stop(lease, node, length),
        6 => fault::cut(lease, node, length, &[Side::There]),
        7 => fault::cut(lease, node, length, &[Side::Back]),
        8 => fault::cut(lease, node, length, &[Side::There, Side::Back]),
        9 => fault::outage(lease, length),
        10 => set_clock(all, node, clock_us),
        _ => {
            // One clock runs far ahead for a moment, and is set right again.
            set_clock(all, node, 400_000_000);
            let later = all.clone();
            lease.world.after(2_000 * MS, move |_| set_clock(&later, node, clock_us));
        }
    }
}

/// Waits for something no longer than this.
pub(crate) async fn no_longer<T>(
    world: &crate::world::World,
    length: Duration,
    future: impl Future<Output = T>,
) -> Option<T> {
    let length = u64::try_from(length.as_nanos()).expect("seconds");
    tokio::select! {
        biased;
        done = future => Some(done),
        () = world.sleep(length) => None,
    }
}
