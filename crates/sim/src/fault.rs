//! What goes wrong, and when: one fault after the other, as the dice have it.
//!
//! Faults overlap: the next one comes whether or not the last one is over. Their lengths lie around T,
//! where the rules of the lease are tight.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use engine::limits::FAILOVER_LAG;
use store::Class;
use store::claim::{ClaimState, Head};
use store::election::Mode;

use crate::checker::{Ailment, PATROL};
use crate::clock::{MS, TrueTime};
use crate::cluster::{LeaseCluster, StoreKind, node_links, rate, wall_us};
use crate::network::LinkQuality;
use crate::sim_store::NodeIndex;
use crate::world::World;

/// One kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// A process dies and comes back.
    Crash,
    /// All processes die and come back.
    CrashAll,
    /// A process stands still.
    Pause,
    /// A machine falls asleep: its process and one of its clocks stand still.
    Sleep,
    /// A process stands still, and another one is started in its place.
    Replace,
    /// A process runs but no longer works.
    Hang,
    /// A process is asked to stop, and comes back.
    Stop,
    /// Requests of a node do not arrive.
    CutThere,
    /// Answers to a node do not arrive.
    CutBack,
    /// Neither requests nor answers of a node arrive.
    Cut,
    /// Neither arrive, from the moment when the node's next renewal has been acknowledged.
    Ambush,
    /// Requests or answers of a node become slow, and then both are cut.
    Fade,
    /// The store answers nobody.
    Outage,
    /// A machine's clocks run at other rates.
    Rate,
    /// A wall clock is set.
    Step,
    /// The store's own clock is set.
    StoreStep,
    /// The store fails over.
    FailOver,
    /// Somebody wishes that the holder leave.
    Wish,
}

const ANY: [Fault; 28] = [
    Fault::Crash,
    Fault::Crash,
    Fault::CrashAll,
    Fault::Pause,
    Fault::Pause,
    Fault::Sleep,
    Fault::Replace,
    Fault::Replace,
    Fault::Hang,
    Fault::Stop,
    Fault::CutThere,
    Fault::CutThere,
    Fault::CutBack,
    Fault::CutBack,
    Fault::Cut,
    Fault::Cut,
    Fault::Ambush,
    Fault::Ambush,
    Fault::Ambush,
    Fault::Ambush,
    Fault::Fade,
    Fault::Fade,
    Fault::Outage,
    Fault::Outage,
    Fault::Rate,
    Fault::Step,
    Fault::StoreStep,
    Fault::Wish,
];

/// Plans the first fault, and everything else that happens by itself.
pub fn begin(cluster: &LeaseCluster) {
    plan_next(cluster);
    if cluster.setting.stale_reads {
        every(cluster, 100 * MS, |cluster| cluster.sim_store.keep_copy());
    }
    if cluster.setting.mode == Mode::Manual {
        every(cluster, 500 * MS, approve);
    }
    every(cluster, PATROL, |cluster| cluster.checker.patrol(&cluster.world, &cluster.sim_store));
    forget_takes(cluster, 0);
    if cluster.setting.hand_overs {
        plan_hand_over(cluster);
    }
}

/// Whoever has just taken the claim is often forgotten, where that can happen.
fn forget_takes(cluster: &LeaseCluster, last: u64) {
    let next = cluster.clone();
    cluster.world.after(50 * MS, move |world| {
        let takes = next.checker.counts().takes;
        if takes > last && next.dice().chance(40) {
            let (delay, later) = (next.dice().between(0, 900 * MS), next.clone());
            world.after(delay, move |_| fail_over(&later));
        }
        forget_takes(&next, takes);
    });
}

pub(crate) fn every(cluster: &LeaseCluster, interval: TrueTime, act: fn(&LeaseCluster)) {
    let next = cluster.clone();
    cluster.world.after(interval, move |_| {
        act(&next);
        every(&next, interval, act);
    });
}

fn plan_next(cluster: &LeaseCluster) {
    let (ttl, next) = (cluster.ttl(), cluster.clone());
    let delay = cluster.dice().between(ttl / 4, ttl * 5 / 2);
    cluster.world.after(delay, move |_| {
        strike(&next);
        plan_next(&next);
    });
}

fn plan_hand_over(cluster: &LeaseCluster) {
    let (ttl, next) = (cluster.ttl(), cluster.clone());
    let delay = cluster.dice().between(ttl / 4, ttl * 5);
    cluster.world.after(delay, move |_| {
        hand_over(&next);
        plan_hand_over(&next);
    });
}

fn strike(cluster: &LeaseCluster) {
    let forgetful = cluster.setting.kind == StoreKind::Forgetful;
    let mut fault = cluster.dice().pick(&ANY);
    if forgetful && cluster.dice().chance(30) {
        fault = Fault::FailOver;
    }
    let node = target(cluster);
    let length = length(cluster);
    cluster.world.trace("fault", || {
        format!("{fault:?} on node {node} for {:.3} s", crate::world::seconds(length))
    });
    match fault {
        Fault::Crash => crash(cluster, node, length),
        Fault::CrashAll => (0..cluster.len()).for_each(|node| crash(cluster, node, length)),
        Fault::Pause => pause(cluster, node, length),
        Fault::Sleep => sleep(cluster, node, length),
        Fault::Replace => replace(cluster, node, length),
        Fault::Hang => hang(cluster, node, length),
        Fault::Stop => stop(cluster, node, length),
        Fault::CutThere => cut(cluster, node, length, &[Side::There]),
        Fault::CutBack => cut(cluster, node, length, &[Side::Back]),
        Fault::Cut => cut(cluster, node, length, &[Side::There, Side::Back]),
        Fault::Ambush => ambush(cluster, node, length),
        Fault::Fade => fade(cluster, node, length),
        Fault::Outage => outage(cluster, length),
        Fault::Rate => change_rate(cluster, node),
        Fault::Step => {
            let wall_us = wall_us(&cluster.setting, &mut cluster.dice());
            cluster.at_site(node, |site| site.clocks.step(wall_us));
        }
        Fault::StoreStep => cluster.sim_store.step_clock(cluster.dice().between(1, 600) * 1_000),
        Fault::FailOver => fail_over(cluster),
        Fault::Wish => wish(cluster),
    }
}

/// Whom it hits: more often than not the one that matters.
fn target(cluster: &LeaseCluster) -> NodeIndex {
    let holder = holder(cluster);
    let mut dice = cluster.dice();
    match holder {
        Some(holder) if dice.chance(60) => holder,
        _ => usize::try_from(dice.between(0, cluster.len() as u64 - 1)).expect("an index fits"),
    }
}

fn head(cluster: &LeaseCluster) -> Option<Head> {
    let entry = cluster.sim_store.peek_primary(cluster.claim.key())?;
    engine::record::decode(entry.value.as_bytes(), engine::record::Format(1)).ok()
}

pub(crate) fn holder(cluster: &LeaseCluster) -> Option<NodeIndex> {
    let session = head(cluster)?.session?;
    session.node().as_str().strip_prefix('n')?.parse().ok()
}

/// For how long: around T, and around the patience of others.
pub(crate) fn length(cluster: &LeaseCluster) -> TrueTime {
    let (ttl, mut dice) = (cluster.ttl(), cluster.dice());
    match dice.between(0, 9) {
        0..=2 => dice.between(ttl / 10, ttl),
        3..=7 => dice.between(ttl, ttl * 17 / 10),
        _ => dice.between(ttl, ttl * 3),
    }
}

pub(crate) fn crash(cluster: &LeaseCluster, node: NodeIndex, length: TrueTime) {
    cluster.kill(node);
    let cluster = cluster.clone();
    let down = length / 2;
    cluster.world.clone().after(down, move |_| {
        if cluster.process(node).is_none() {
            cluster.boot(node);
        }
    });
}

pub(crate) fn pause(cluster: &LeaseCluster, node: NodeIndex, length: TrueTime) {
    let Some((process, _)) = cluster.process(node) else { return };
    cluster.world.pause(process);
    cluster.ail_process(process, Ailment::Silent, length);
    let host = cluster.is_host(node);
    if host {
        cluster.sim_store.shut();
    }
    let cluster = cluster.clone();
    cluster.world.clone().after(length, move |world| {
        world.resume(process);
        if host {
            reopen(&cluster);
        }
    });
}

pub(crate) fn sleep(cluster: &LeaseCluster, node: NodeIndex, length: TrueTime) {
    pause(cluster, node, length);
    let now = cluster.world.now();
    cluster.at_site(node, |site| site.clocks.sleep(now));
    cluster.ail(node, Ailment::Weak, length);
    let cluster = cluster.clone();
    cluster.world.clone().after(length, move |world| {
        cluster.at_site(node, |site| site.clocks.wake(world.now()));
    });
}

pub(crate) fn replace(cluster: &LeaseCluster, node: NodeIndex, length: TrueTime) {
    if cluster.is_host(node) || cluster.process(node).is_none() {
        return crash(cluster, node, length);
    }
    pause(cluster, node, length);
    cluster.boot(node);
}

fn hang(cluster: &LeaseCluster, node: NodeIndex, length: TrueTime) {
    let Some((process, controls)) = cluster.process(node) else { return };
    // Who has no session yet does no work either, and renews while it waits.
    if !controls.settled.load(Ordering::SeqCst) {
        return;
    }
    controls.hangs.fetch_add(1, Ordering::SeqCst);
    cluster.ail_process(process, Ailment::Silent, length);
    cluster.world.after(length, move |_| {
        controls.hangs.fetch_sub(1, Ordering::SeqCst);
    });
}

pub(crate) fn stop(cluster: &LeaseCluster, node: NodeIndex, length: TrueTime) {
    let Some((process, controls)) = cluster.process(node) else { return };
    if cluster.is_host(node) {
        return crash(cluster, node, length);
    }
    cluster.ail_process(process, Ailment::Weak, length);
    controls.stop.notify_one();
    let cluster = cluster.clone();
    cluster.world.clone().after(length, move |_| {
        if cluster.process(node).is_none() {
            cluster.boot(node);
        }
    });
}

/// A direction of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    There,
    Back,
}

fn lane(cluster: &LeaseCluster, node: NodeIndex, side: Side, change: impl Fn(&mut LinkQuality)) {
    cluster.at_site(node, |site| match side {
        Side::There => {
            change(&mut site.there);
            change(&mut site.read);
        }
        Side::Back => change(&mut site.back),
    });
}

pub(crate) fn cut(
    cluster: &LeaseCluster,
    node: NodeIndex,
    length: TrueTime,
    sides: &'static [Side],
) {
    if cluster.is_host(node) {
        return;
    }
    let ill = if sides.contains(&Side::There) { Ailment::Silent } else { Ailment::Weak };
    cluster.ail(node, ill, length);
    for side in sides {
        lane(cluster, node, *side, |lane| lane.cuts += 1);
    }
    let cluster = cluster.clone();
    cluster.world.clone().after(length, move |_| {
        for side in sides {
            lane(&cluster, node, *side, |lane| lane.cuts -= 1);
        }
    });
}

pub(crate) fn ambush(cluster: &LeaseCluster, node: NodeIndex, length: TrueTime) {
    // Long enough for the others to lose patience.
    let length = length.max(cluster.ttl() * 3 / 2);
    let later = cluster.clone();
    let strike = move |_: &World| cut(&later, node, length, &[Side::There, Side::Back]);
    cluster.at_site(node, |site| site.ambush = Some(Box::new(strike)));
}

pub(crate) fn fade(cluster: &LeaseCluster, node: NodeIndex, length: TrueTime) {
    if cluster.is_host(node) {
        return;
    }
    let (ttl, sides) = (cluster.ttl(), [Side::There, Side::Back]);
    let side = cluster.dice().pick(&sides);
    let delay = ttl / 4;
    lane(cluster, node, side, |lane| lane.delay = delay);
    cluster.ail(node, Ailment::Weak, ttl + length);
    let cluster = cluster.clone();
    cluster.world.clone().after(ttl, move |world| {
        cut(&cluster, node, length, &[Side::There, Side::Back]);
        let cluster = cluster.clone();
        world.after(length, move |_| {
            let usual = node_links(&cluster.setting, node);
            lane(&cluster, node, Side::There, |lane| lane.delay = usual.there.delay);
            lane(&cluster, node, Side::Back, |lane| lane.delay = usual.back.delay);
        });
    });
}

pub(crate) fn outage(cluster: &LeaseCluster, length: TrueTime) {
    cluster.sim_store.shut();
    let cluster = cluster.clone();
    cluster.world.clone().after(length, move |_| reopen(&cluster));
}

fn reopen(cluster: &LeaseCluster) {
    cluster.sim_store.open();
    cluster.checker.store_is_up(cluster.world.now());
}

pub(crate) fn change_rate(cluster: &LeaseCluster, node: NodeIndex) {
    let (boot, raw) = {
        let mut dice = cluster.dice();
        (rate(&mut dice), rate(&mut dice))
    };
    let now = cluster.world.now();
    cluster.at_site(node, |site| site.clocks.run_at(now, boot, raw));
}

/// The store fails over, and somebody starts who knows nothing of it.
pub(crate) fn fail_over(cluster: &LeaseCluster) {
    if cluster.sim_store.class() != Class::B {
        return;
    }
    let lag = u64::try_from(FAILOVER_LAG.as_nanos()).expect("seconds");
    let (lost, split, stay, newcomer) = {
        let mut dice = cluster.dice();
        let stay = (0..cluster.len()).filter(|_| dice.chance(40)).collect::<Vec<_>>();
        let newcomer = dice.between(0, cluster.len() as u64 - 1);
        (dice.between(0, lag), dice.between(0, lag), stay, newcomer)
    };
    let misses = cluster.sim_store.fail_over(cluster.world.now(), lost, stay.clone());
    cluster.checker.new_epoch(cluster.world.now());
    cluster
        .world
        .trace("fault", || format!("{misses} commits are forgotten, {stay:?} do not know"));
    let sim_store = Arc::clone(&cluster.sim_store);
    cluster.world.after(split, move |_| sim_store.retire());
    let newcomer = usize::try_from(newcomer).expect("an index fits");
    if holder(cluster) != Some(newcomer) {
        crash(cluster, newcomer, 200 * MS);
    }
}

/// What goes wrong with a hand-over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mishap {
    None,
    /// The one who shall have the claim dies.
    HeirDies,
    /// It stops, and its session is gone at once.
    HeirStops,
    /// It stops, and whoever hands over hears nothing for a while: not even that it was done.
    HeirStopsUnheard,
    /// It stands still.
    HeirPauses,
    /// Whoever hands over stands still.
    HolderPauses,
    /// Its messages do not arrive, nor do the answers.
    HolderIsCut,
}

const MISHAPS: [Mishap; 10] = [
    Mishap::None,
    Mishap::None,
    Mishap::HeirDies,
    Mishap::HeirStops,
    Mishap::HeirStops,
    Mishap::HeirStopsUnheard,
    Mishap::HeirStopsUnheard,
    Mishap::HeirPauses,
    Mishap::HolderPauses,
    Mishap::HolderIsCut,
];

/// The holder is told to hand over, and something goes wrong at about the same time.
fn hand_over(cluster: &LeaseCluster) {
    let Some(node) = holder(cluster) else { return };
    let Some((_, controls)) = cluster.process(node) else { return };
    let (heir, mishap, delay, silence) = {
        let (ttl, len, mut dice) = (cluster.ttl(), cluster.len() as u64, cluster.dice());
        let heir = (node as u64 + dice.between(1, len - 1)) % len;
        let heir = usize::try_from(heir).expect("an index fits");
        let (delay, silence) = (dice.between(0, ttl / 4), dice.between(ttl / 4, ttl));
        (heir, dice.pick(&MISHAPS), delay, silence)
    };
    let length = length(cluster);
    cluster.world.trace("fault", || format!("node {node} hands over to node {heir}: {mishap:?}"));
    controls.heir.store(heir, Ordering::SeqCst);
    controls.hand_over.notify_one();
    if mishap == Mishap::HeirStopsUnheard {
        cut(cluster, node, silence, &[Side::Back]);
    }
    let later = cluster.clone();
    cluster.world.after(delay, move |_| match mishap {
        Mishap::None => {}
        Mishap::HeirDies => crash(&later, heir, length),
        Mishap::HeirStops | Mishap::HeirStopsUnheard => stop(&later, heir, length),
        Mishap::HeirPauses => pause(&later, heir, length),
        Mishap::HolderPauses => pause(&later, node, length),
        Mishap::HolderIsCut => cut(&later, node, length, &[Side::There, Side::Back]),
    });
}

pub(crate) fn wish(cluster: &LeaseCluster) {
    let (store, claim) = (cluster.person(), cluster.claim.clone());
    let world: World = cluster.world.clone();
    cluster.world.spawn(|_| async move {
        let asked = claim.wish(&store, "a person").await;
        world.trace("person", || format!("wished  {asked:?}"));
    });
}

pub(crate) fn approve(cluster: &LeaseCluster) {
    let Some(head) = head(cluster).filter(|head| head.state == ClaimState::Waiting) else { return };
    let (store, claim) = (cluster.person(), cluster.claim.clone());
    cluster.world.spawn(|_| async move {
        // If it is lost, the person tries again.
        let _lost = claim.approve(&store, head.token(), "a person").await;
    });
}
