//! Nodes: the processes that own the shard one after the other, their machines' clocks, and what they have under way
//! for a shard that is theirs no more.
//!
//! A node that handed the shard over lives on as a sender. Its attempts end, and what came of each lands in the store
//! as a report: soon, late, twice or never. It may die before that, or stall for so long that its session is gone. All
//! of this follows from what is rolled when the shard leaves it, so nothing needs to run here: time passes, and what
//! was to happen by then has happened.

use std::collections::BTreeSet;

use engine::mutant::{self, Mutant};
use engine::shard::HandedOverAttempt;
use engine::shard::record::{ReportRecord, report_key};

use crate::dice::Dice;

use super::oracle::SlotOracle;
use super::setting::{Company, ShardSetting};
use super::shard_store::{SHARD, ShardStore};

/// Machines that a cluster has.
const MACHINES: usize = 3;

/// A session is gone no sooner than this after its node has died or stalls.
pub const SESSION_MS: u64 = 3_000;

/// The clocks of a machine.
#[derive(Debug, Clone, Copy)]
pub struct MachineClock {
    /// Its wall clock is ahead of true time by so much.
    pub wall_offset: i64,
    /// What its steady clock said when true time began.
    pub steady_offset: u64,
    /// So much its steady clock counts in a thousand milliseconds.
    pub rate: u64,
}

/// What came of an attempt, or will have come, and is to be reported.
#[derive(Debug)]
pub struct PendingReport {
    /// The key of the attempt at its node.
    pub key: u64,
    /// The attempt that it is about.
    pub handed_over: HandedOverAttempt,
    /// The report as it will land in the store.
    pub report: ReportRecord,
    /// When it ends, in true time.
    pub ends: u64,
    /// When its report lands, soonest last.
    lands: Vec<u64>,
}

/// A process with a session.
pub struct OwnerNode {
    /// The key of its session.
    pub session: Box<str>,
    /// Where it runs.
    pub machine: usize,
    /// The key of its next attempt.
    pub next_key: u64,
    /// From when on it is dead.
    dead: Option<u64>,
    /// From when on its session is gone.
    absent: Option<u64>,
    /// Whether it stops once everything is reported.
    is_leaving: bool,
    tasks: Vec<PendingReport>,
}

/// All nodes that there were.
pub struct OwnerNodes {
    company: Company,
    /// The clocks of machines.
    pub clocks: Vec<MachineClock>,
    /// In the order in which they were started.
    pub nodes: Vec<OwnerNode>,
    /// The node that the head names as the owner.
    pub named: usize,
    /// Where reports landed, in this order.
    pub report_keys: Vec<String>,
}

impl MachineClock {
    fn of(setting: &ShardSetting, dice: &mut Dice) -> Self {
        let apart = setting.apart_ms.cast_signed();
        let apart_now = dice.between(0, 2 * apart.unsigned_abs()).cast_signed() - apart;
        let is_far = dice.chance(setting.far_ahead);
        let far = dice.between(61_000, 200_000).cast_signed();
        let rate = match setting.company {
            Company::Alone => 1_000,
            Company::Cluster | Company::Rolling => dice.pick(&[900, 1_000, 1_100]),
        };
        let wall_offset = if is_far { far } else { apart_now };
        Self { wall_offset, steady_offset: dice.between(0, 1 << 40), rate }
    }

    /// What the steady clock says.
    pub fn steady(&self, now: u64) -> u64 {
        self.steady_offset + now * self.rate / 1_000
    }

    /// The true time in which the steady clock counts so much.
    pub fn true_ms(&self, length: u64) -> u64 {
        (length * 1_000).div_ceil(self.rate)
    }
}

impl OwnerNodes {
    /// A cluster without nodes.
    pub fn new(setting: &ShardSetting, dice: &mut Dice) -> Self {
        let machines = if setting.company == Company::Alone { 1 } else { MACHINES };
        let clocks = (0..machines).map(|_| MachineClock::of(setting, dice)).collect();
        let (nodes, report_keys) = (Vec::new(), Vec::new());
        Self { company: setting.company, clocks, nodes, named: 0, report_keys }
    }

    fn start(&mut self, machine: usize) -> usize {
        let incarnation = self.nodes.len();
        self.nodes.push(OwnerNode {
            session: format!("node/m{machine}/{incarnation:016x}").into(),
            machine,
            next_key: 1,
            dead: None,
            absent: None,
            is_leaving: false,
            tasks: Vec::new(),
        });
        incarnation
    }

    /// A node that can take the shard, other than this one. Started, if there is room.
    pub fn pick(
        &mut self,
        but: Option<usize>,
        now: u64,
        setting: &ShardSetting,
        dice: &mut Dice,
    ) -> usize {
        if self.company == Company::Alone {
            // Clocks of a machine may be anything after a restart.
            self.clocks[0] = MachineClock::of(setting, dice);
            return self.start(0);
        }
        let fit = |(id, node): &(usize, &OwnerNode)| {
            self.is_there(*id, now) && !node.is_leaving && Some(*id) != but
        };
        let here: Vec<usize> =
            self.nodes.iter().enumerate().filter(fit).map(|(id, _)| id).collect();
        let is_used = |machine: &usize| {
            let mut nodes = self.nodes.iter().enumerate();
            nodes.any(|(id, node)| node.machine == *machine && self.is_there(id, now))
        };
        let free: Vec<usize> = (0..MACHINES).filter(|machine| !is_used(machine)).collect();
        if here.is_empty() || (!free.is_empty() && dice.chance(30)) {
            // One that is about to go is restarted on its machine, if there is no other.
            let machine = if free.is_empty() { MACHINES - 1 } else { dice.pick(&free) };
            return self.start(machine);
        }
        let id = dice.pick(&here);
        let node = &mut self.nodes[id];
        // What was to become of it is not to be.
        (node.dead, node.absent) = (None, None);
        id
    }

    /// Whether a node lives and has its session.
    pub fn is_there(&self, id: usize, now: u64) -> bool {
        let node = &self.nodes[id];
        let is_over = |from: Option<u64>| from.is_some_and(|from| from <= now);
        !is_over(node.dead) && !is_over(node.absent)
    }

    /// Whether a session is gone.
    pub fn is_absent(&self, session: &str, now: u64) -> bool {
        let node = self.nodes.iter().find(|node| *node.session == *session);
        node.is_none_or(|node| node.absent.is_some_and(|absent| absent <= now))
    }

    /// The sessions that there are.
    pub fn sessions(&self, now: u64) -> BTreeSet<Box<str>> {
        let nodes = self.nodes.iter();
        let there = nodes.filter(|node| node.absent.is_none_or(|absent| absent > now));
        there.map(|node| node.session.clone()).collect()
    }

    /// A node dies. What it has not reported it never will.
    pub fn die(&mut self, id: usize, now: u64, dice: &mut Dice) {
        let grace = match self.company {
            Company::Alone => 0,
            Company::Cluster | Company::Rolling => SESSION_MS + dice.between(0, 5_000),
        };
        let node = &mut self.nodes[id];
        (node.dead, node.absent) = (Some(now), Some(now + grace));
    }

    /// Every node dies that is there.
    pub fn die_all(&mut self, now: u64, dice: &mut Dice) {
        for id in 0..self.nodes.len() {
            if self.is_there(id, now) {
                self.die(id, now, dice);
            }
        }
    }

    /// A node has been dead for so long that its session is gone.
    pub fn was_dead(&mut self, id: usize, now: u64) {
        let node = &mut self.nodes[id];
        (node.dead, node.absent) = (Some(now), Some(now));
    }

    /// A node stops cleanly: when all is reported, it is gone.
    pub fn leave(&mut self, id: usize) {
        let node = &mut self.nodes[id];
        node.is_leaving = true;
        if mutant::active(Mutant::StopWithoutWaiting) {
            node.tasks.clear();
        }
    }

    /// A node has these to report, from now on.
    pub fn take_on(&mut self, id: usize, mut tasks: Vec<PendingReport>, now: u64, dice: &mut Dice) {
        let mut stall = 0;
        if self.company == Company::Cluster {
            let node = &mut self.nodes[id];
            match dice.between(0, 99) {
                0..=11 => {
                    let dead = now + dice.between(0, 10_000);
                    let absent = dead + SESSION_MS + dice.between(0, 5_000);
                    (node.dead, node.absent) = (Some(dead), Some(absent));
                }
                12..=19 => {
                    stall = dice.between(0, 20_000);
                    node.absent = (stall > SESSION_MS).then_some(now + stall);
                }
                _ => {}
            }
        }
        for task in &mut tasks {
            let soonest = task.ends.max(now + stall);
            let (is_never, late) = match self.company {
                Company::Alone | Company::Rolling => (false, dice.between(0, 300)),
                Company::Cluster => (
                    dice.chance(5),
                    match dice.between(0, 9) {
                        0..=7 => dice.between(0, 400),
                        _ => dice.between(0, 12_000),
                    },
                ),
            };
            if !is_never {
                task.lands.push(soonest + late);
            }
            if self.company == Company::Cluster && dice.chance(10) {
                task.lands.insert(0, soonest + late + dice.between(0, 9_000));
            }
        }
        self.nodes[id].tasks.extend(tasks);
    }

    /// Whether a node still has something to report of an attempt with this key.
    pub fn has_key(&self, id: usize, key: u64) -> bool {
        self.nodes[id].tasks.iter().any(|task| task.key == key)
    }

    /// What was to happen by now has happened.
    pub fn pass(&mut self, now: u64, store: &mut ShardStore, oracle: &mut SlotOracle) {
        for node in &mut self.nodes {
            let dead = node.dead.unwrap_or(u64::MAX);
            for task in &mut node.tasks {
                while let Some(lands) = task.lands.last().copied().filter(|lands| *lands <= now) {
                    task.lands.pop();
                    if lands <= dead {
                        let HandedOverAttempt { sequence, attempt } = task.handed_over;
                        let key = report_key(SHARD, sequence, attempt);
                        store.put_report(&key, &task.report);
                        oracle.report_landed(&key, &task.report);
                        self.report_keys.push(key);
                    }
                }
            }
            node.tasks.retain(|task| !task.lands.is_empty() && dead > now);
            if node.is_leaving && node.tasks.is_empty() && node.dead.is_none() {
                (node.dead, node.absent) = (Some(now), Some(now));
            }
        }
    }

    /// When something happens next.
    pub fn next(&self, now: u64) -> Option<u64> {
        let nodes = self.nodes.iter();
        let times = nodes.flat_map(|node| {
            let landing = node.tasks.iter().filter_map(|task| task.lands.last().copied());
            landing.chain(node.absent)
        });
        times.filter(|at| *at > now).min()
    }
}

impl PendingReport {
    /// A report for which no landing time is rolled yet.
    pub fn new(key: u64, handed_over: HandedOverAttempt, report: ReportRecord, ends: u64) -> Self {
        Self { key, handed_over, report, ends, lands: Vec::new() }
    }
}
