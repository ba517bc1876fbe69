//! What goes wrong with holds, and when: what goes wrong with leases, and what can be done to processes beside.
//!
//! Supervisors, shims, launches and programs are stopped and killed apart from each other and together, machines sleep, stand
//! still and lose their power, and all that happens to the store and the network that happens to leases.

use std::sync::Arc;

use engine::limits::FAILOVER_LAG;
use store::Class;
use store::election::Mode;

use super::HoldCluster;
use super::ancestor::Ancestor;
use super::setting::Pace;
use super::tree::SimTree;
use crate::checker::{Ailment, PATROL};
use crate::clock::{MS, TrueTime};
use crate::cluster::StoreKind;
use crate::fault::{self, Side};
use crate::sim_store::NodeIndex;
use crate::world::seconds;

/// One kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HoldFault {
    /// A supervisor is killed, and comes back.
    KillSupervisor,
    /// A machine loses its power, and comes back.
    LosePower,
    /// All supervisors are killed, and come back.
    KillAll,
    /// A supervisor is stopped.
    StopSupervisor,
    /// A shim is stopped; launch lets it go on.
    StopShim,
    /// A program is stopped, and nobody else.
    StopProgram,
    /// A supervisor and all that it has are stopped.
    StopTogether,
    /// A shim is killed.
    KillShim,
    /// A launch is killed.
    KillLaunch,
    /// A program is killed.
    KillProgram,
    /// A shim and its launch are stopped, and the supervisor is well.
    StopGuards,
    /// A machine sleeps.
    Sleep,
    /// A supervisor is stopped, and another one is started in its place.
    Replace,
    /// A supervisor is told to end, and comes back.
    Stop,
    /// Requests of a node do not arrive.
    CutThere,
    /// Answers to a node do not arrive.
    CutBack,
    /// Neither do.
    Cut,
    /// Neither do, from the next renewal on.
    Ambush,
    /// Messages become slow, and then do not arrive.
    Fade,
    /// The store answers nobody.
    Outage,
    /// Clocks run at other rates.
    Rate,
    /// Somebody wishes that the holder leave.
    Wish,
    /// The store fails over.
    FailOver,
    /// Guards are stopped, and the supervisor with them: the stated limit.
    StopGuardsAndSupervisor,
    /// Guards are stopped, and the supervisor is killed: the stated limit.
    StopGuardsAndKillSupervisor,
    /// Both guards are killed: the stated limit where the kernel does not stand behind them.
    KillGuards,
}

impl HoldFault {
    /// Whether a supervisor stands still, and with it what it does itself.
    fn stops_supervisor(self) -> bool {
        matches!(self, Self::StopSupervisor | Self::Replace | Self::StopGuardsAndSupervisor)
    }
}

const ANY: [HoldFault; 34] = [
    HoldFault::KillSupervisor,
    HoldFault::KillSupervisor,
    HoldFault::KillSupervisor,
    HoldFault::LosePower,
    HoldFault::LosePower,
    HoldFault::KillAll,
    HoldFault::StopSupervisor,
    HoldFault::StopSupervisor,
    HoldFault::StopSupervisor,
    HoldFault::StopShim,
    HoldFault::StopProgram,
    HoldFault::StopTogether,
    HoldFault::StopTogether,
    HoldFault::KillShim,
    HoldFault::KillLaunch,
    HoldFault::KillProgram,
    HoldFault::StopGuards,
    HoldFault::Sleep,
    HoldFault::Sleep,
    HoldFault::Replace,
    HoldFault::Replace,
    HoldFault::Stop,
    HoldFault::Stop,
    HoldFault::CutThere,
    HoldFault::CutBack,
    HoldFault::Cut,
    HoldFault::Cut,
    HoldFault::Ambush,
    HoldFault::Ambush,
    HoldFault::Fade,
    HoldFault::Fade,
    HoldFault::Outage,
    HoldFault::Rate,
    HoldFault::Wish,
];

const BEYOND: [HoldFault; 3] = [
    HoldFault::StopGuardsAndSupervisor,
    HoldFault::StopGuardsAndKillSupervisor,
    HoldFault::KillGuards,
];

/// Plans the first fault, and everything else that happens by itself.
pub fn begin(cluster: &HoldCluster) {
    plan_next(cluster);
    let lease = &cluster.lease;
    if lease.setting.stale_reads {
        fault::every(lease, 100 * MS, |lease| lease.sim_store.keep_copy());
    }
    if lease.setting.mode == Mode::Manual {
        fault::every(lease, 500 * MS, fault::approve);
    }
    patrol(cluster);
}

fn patrol(cluster: &HoldCluster) {
    let next = cluster.clone();
    cluster.lease.world.after(PATROL, move |world| {
        next.checker.patrol(world);
        patrol(&next);
    });
}

fn plan_next(cluster: &HoldCluster) {
    let (ttl, next) = (cluster.lease.ttl(), cluster.clone());
    let (least, most) = match cluster.setting.pace {
        Pace::Quick => (ttl / 4, ttl * 5 / 2),
        Pace::Slow => (ttl * 6, ttl * 12),
    };
    let delay = cluster.lease.dice().between(least, most);
    cluster.lease.world.after(delay, move |_| {
        strike(&next);
        plan_next(&next);
    });
}

fn strike(cluster: &HoldCluster) {
    let lease = &cluster.lease;
    let mut fault = lease.dice().pick(&ANY);
    if cluster.setting.beyond && lease.dice().chance(15) {
        fault = lease.dice().pick(&BEYOND);
    }
    if lease.sim_store.class() == Class::B && lease.dice().chance(25) {
        fault = HoldFault::FailOver;
    }
    let (node, length) = (target(cluster), fault::length(lease));
    lease.world.trace("fault", || format!("{fault:?} on node {node} for {:.3} s", seconds(length)));
    disturb(cluster, fault, node, length);
    if cluster.ancestor == Some(Ancestor::RedisLeader) && fault.stops_supervisor() {
        stop_programs(cluster, node, length);
    }
    match fault {
        HoldFault::KillSupervisor => fault::crash(lease, node, length),
        HoldFault::LosePower => {
            fault::crash(lease, node, length);
            cluster.machines[node].lose_power();
        }
        HoldFault::KillAll => {
            (0..lease.len()).for_each(|node| fault::crash(lease, node, length));
        }
        HoldFault::StopSupervisor => fault::pause(lease, node, length),
        HoldFault::StopShim => stop_shims(cluster, node, MS),
        HoldFault::StopProgram => stop_programs(cluster, node, length),
        HoldFault::StopTogether => {
            freeze(cluster, node, length);
            fault::pause(lease, node, length);
        }
        HoldFault::KillShim => each_tree(cluster, node, SimTree::kill_shim),
        HoldFault::KillLaunch => each_tree(cluster, node, SimTree::kill_launch),
        HoldFault::KillProgram => each_tree(cluster, node, |tree| Arc::clone(tree).exit()),
        HoldFault::StopGuards => stop_shims(cluster, node, length),
        HoldFault::Sleep => {
            freeze(cluster, node, length);
            fault::sleep(lease, node, length);
        }
        HoldFault::Replace => fault::replace(lease, node, length),
        HoldFault::Stop => fault::stop(lease, node, length),
        HoldFault::CutThere => fault::cut(lease, node, length, &[Side::There]),
        HoldFault::CutBack => fault::cut(lease, node, length, &[Side::Back]),
        HoldFault::Cut => fault::cut(lease, node, length, &[Side::There, Side::Back]),
        HoldFault::Ambush => fault::ambush(lease, node, length),
        HoldFault::Fade => fault::fade(lease, node, length),
        HoldFault::Outage => fault::outage(lease, length),
        HoldFault::Rate => fault::change_rate(lease, node),
        HoldFault::Wish => fault::wish(lease),
        HoldFault::FailOver => fault::fail_over(lease),
        HoldFault::StopGuardsAndSupervisor => {
            stop_shims(cluster, node, length);
            fault::pause(lease, node, length);
        }
        HoldFault::StopGuardsAndKillSupervisor => {
            stop_shims(cluster, node, length);
            fault::crash(lease, node, length);
        }
        HoldFault::KillGuards => each_tree(cluster, node, |tree| {
            tree.kill_launch();
            tree.kill_shim();
        }),
    }
}

/// Whom it hits: more often than not the one that matters.
fn target(cluster: &HoldCluster) -> NodeIndex {
    let busy = cluster.machines.iter().position(|machine| !machine.trees().is_empty());
    let holder = busy.or_else(|| fault::holder(&cluster.lease));
    let mut dice = cluster.lease.dice();
    match holder {
        Some(holder) if dice.chance(60) => holder,
        _ => {
            let last = cluster.lease.len() as u64 - 1;
            usize::try_from(dice.between(0, last)).expect("an index fits")
        }
    }
}

/// Tells the checker until when this is felt.
fn disturb(cluster: &HoldCluster, fault: HoldFault, node: NodeIndex, length: TrueTime) {
    let (now, ttl) = (cluster.lease.world.now(), cluster.lease.ttl());
    let is_host = cluster.setting.cluster.kind == StoreKind::Exclusive && node == 0;
    let (whom, until) = match fault {
        HoldFault::FailOver => {
            (None, now + u64::try_from(FAILOVER_LAG.as_nanos()).expect("seconds") * 3)
        }
        // While a program is stopped nobody executes, and nobody else shall.
        HoldFault::KillAll | HoldFault::Outage | HoldFault::StopProgram => (None, now + length),
        // Somebody else goes first, and nobody else may be there.
        HoldFault::Wish => (None, now + 2 * ttl),
        // They last longer, or begin later.
        HoldFault::Fade | HoldFault::Ambush => (Some(node), now + 12 * ttl),
        HoldFault::KillSupervisor
        | HoldFault::LosePower
        | HoldFault::StopSupervisor
        | HoldFault::StopShim
        | HoldFault::StopTogether
        | HoldFault::KillShim
        | HoldFault::KillLaunch
        | HoldFault::KillProgram
        | HoldFault::StopGuards
        | HoldFault::Sleep
        | HoldFault::Replace
        | HoldFault::Stop
        | HoldFault::CutThere
        | HoldFault::CutBack
        | HoldFault::Cut
        | HoldFault::Rate
        | HoldFault::StopGuardsAndSupervisor
        | HoldFault::StopGuardsAndKillSupervisor
        | HoldFault::KillGuards => (Some(node), now + length),
    };
    let whom = whom.filter(|_| !is_host);
    cluster.checker.disturb(whom, until);
}

fn each_tree(cluster: &HoldCluster, node: NodeIndex, act: impl Fn(&Arc<SimTree>)) {
    cluster.machines[node].trees().iter().for_each(act);
}

fn stop_programs(cluster: &HoldCluster, node: NodeIndex, length: TrueTime) {
    each_tree(cluster, node, |tree| {
        tree.stop_program();
        let tree = Arc::clone(tree);
        cluster.lease.world.after(length, move |_| tree.continue_program());
    });
}

fn stop_shims(cluster: &HoldCluster, node: NodeIndex, length: TrueTime) {
    each_tree(cluster, node, |tree| {
        tree.stop_shim();
        let tree = Arc::clone(tree);
        cluster.lease.world.after(length, move |_| tree.continue_shim());
    });
}

/// Everything on a machine but its supervisor stands still.
fn freeze(cluster: &HoldCluster, node: NodeIndex, length: TrueTime) {
    let machine = cluster.machines[node].clone();
    machine.freeze();
    cluster.lease.ail(node, Ailment::Weak, length);
    cluster.lease.world.after(length, move |_| machine.thaw());
}
