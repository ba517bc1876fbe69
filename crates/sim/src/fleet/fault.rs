//! What goes wrong with whole servers, and when.

use crate::clock::{MS, TrueTime};
use crate::cluster::{NodeLinks, rate};
use crate::network::LinkQuality;
use crate::sim_store::NodeIndex;
use crate::world::seconds;

use super::setting::{Temper, wall_us};
use super::{Fleet, Load, TTL};

/// What can go wrong. What is listed twice happens twice as often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Kill,
    KillAll,
    Stop,
    StopAll,
    /// One is stopped, and another one killed while it has its hands full.
    StopAndKill,
    Pause,
    CutThere,
    CutBack,
    Cut,
    Outage,
    Rate,
}

const ANY: [Fault; 15] = [
    Fault::Kill,
    Fault::Kill,
    Fault::KillAll,
    Fault::Stop,
    Fault::Stop,
    Fault::Stop,
    Fault::StopAll,
    Fault::StopAndKill,
    Fault::Pause,
    Fault::Pause,
    Fault::CutThere,
    Fault::CutBack,
    Fault::Cut,
    Fault::Outage,
    Fault::Rate,
];

/// For how long things go wrong.
pub fn storm(fleet: &Fleet) -> TrueTime {
    match fleet.load {
        Load::Triggers => 60_000 * MS,
        Load::TriggersAndQueues => 150_000 * MS,
    }
}

/// So often among a hundred, where there are queues, a lull comes before the next thing goes wrong: where servers never get
/// to own anything, as on a network that loses much, workers have nothing to do, and nothing can go wrong for them.
const LULLS: u64 = 40;

/// Nothing is wrong any more: every server runs, and its link and its clocks are as they should be.
pub fn mend(fleet: &Fleet) {
    fleet.world.trace("fault", || "all is mended".into());
    for server in 0..fleet.setting.servers {
        let is_apart = fleet.setting.apart == Some(server);
        fleet.at_site(server, |site| {
            (site.there, site.read, site.back) =
                (LinkQuality::GOOD, LinkQuality::GOOD, LinkQuality::GOOD);
            site.refused_percent = 0;
            if is_apart {
                site.clocks.step(wall_us(0));
            }
        });
        boot_when_gone(fleet, server);
    }
}

/// Things go wrong one after the other, until all is to be mended.
pub fn plan_next(fleet: &Fleet) {
    let next = fleet.clone();
    let (least, most) = match fleet.setting.temper {
        Temper::Gentle => (4_000, 12_000),
        Temper::Rough => (300, 7_000),
    };
    let is_hard = fleet.load == Load::TriggersAndQueues && fleet.setting.temper == Temper::Rough;
    let is_lull = is_hard && fleet.dice().chance(LULLS);
    let (least, most) = if is_lull { (9_000, 20_000) } else { (least, most) };
    if is_lull {
        fleet.world.trace("fault", || "a lull".into());
        set_links(fleet, |_| NodeLinks::GOOD);
    }
    let delay = fleet.dice().between(least, most) * MS;
    fleet.world.after(delay, move |world| {
        // What goes wrong is over by then.
        let left = storm(&next).saturating_sub(world.now());
        if left > 0 {
            set_links(&next, |server| next.setting.node_links(server));
            strike(&next, left);
            plan_next(&next);
        }
    });
}

/// Changes what links are like. Those that are cut stay cut.
fn set_links(fleet: &Fleet, links: impl Fn(NodeIndex) -> NodeLinks) {
    for server in 0..fleet.setting.servers {
        let NodeLinks { there, read, back } = links(server);
        fleet.at_site(server, |site| {
            site.there = LinkQuality { cuts: site.there.cuts, ..there };
            site.read = LinkQuality { cuts: site.read.cuts, ..read };
            site.back = LinkQuality { cuts: site.back.cuts, ..back };
        });
    }
}

fn strike(fleet: &Fleet, left: TrueTime) {
    let (fault, server, length) = {
        let mut dice = fleet.dice();
        let last = fleet.setting.servers as u64 - 1;
        let server = usize::try_from(dice.between(0, last)).expect("an index fits");
        let ttl = u64::try_from(TTL.as_nanos()).expect("seconds");
        let length = match dice.between(0, 9) {
            0..=3 => dice.between(ttl / 20, ttl),
            4..=7 => dice.between(ttl, ttl * 17 / 10),
            _ => dice.between(ttl, ttl * 3),
        };
        (dice.pick(&ANY), server, length.min(left))
    };
    if fleet.setting.temper == Temper::Gentle {
        return restart(fleet, server);
    }
    fleet
        .world
        .trace("fault", || format!("{fault:?} on server {server} for {:.3} s", seconds(length)));
    let all = 0..fleet.setting.servers;
    let next = (server + 1) % fleet.setting.servers;
    match fault {
        Fault::Kill => kill(fleet, server, length),
        Fault::KillAll => all.for_each(|server| kill(fleet, server, length)),
        Fault::Stop => stop(fleet, server, length),
        Fault::StopAll => all.for_each(|server| stop(fleet, server, length)),
        Fault::StopAndKill => {
            stop(fleet, server, length);
            let delay = fleet.dice().between(0, 1_500 * MS).min(left);
            let fleet = fleet.clone();
            fleet.world.clone().after(delay, move |_| kill(&fleet, next, length));
        }
        Fault::Pause => pause(fleet, server, length),
        Fault::CutThere => cut(fleet, server, length, &[Side::There]),
        Fault::CutBack => cut(fleet, server, length, &[Side::Back]),
        Fault::Cut => cut(fleet, server, length, &[Side::There, Side::Back]),
        Fault::Outage => outage(fleet, length),
        Fault::Rate => {
            let (now, mut dice) = (fleet.world.now(), fleet.dice());
            let (boot, raw) = (rate(&mut dice), rate(&mut dice));
            drop(dice);
            fleet.at_site(server, |site| site.clocks.run_at(now, boot, raw));
        }
    }
}

/// Stops a server in order, and starts it anew when it has ended; unless one is being restarted.
fn restart(fleet: &Fleet, server: NodeIndex) {
    let is_whole = (0..fleet.setting.servers).all(|server| fleet.process(server).is_some());
    if is_whole {
        fleet.stop(server);
        boot_when_gone(fleet, server);
    }
}

/// Starts a server once it has ended, if it was told to.
fn boot_when_gone(fleet: &Fleet, server: NodeIndex) {
    if fleet.process(server).is_none() {
        fleet.boot(server);
    } else if fleet.is_stopping(server) {
        let later = fleet.clone();
        fleet.world.after(100 * MS, move |_| boot_when_gone(&later, server));
    }
}

fn kill(fleet: &Fleet, server: NodeIndex, length: TrueTime) {
    fleet.kill(server);
    boot_after(fleet, server, length / 2);
}

/// Tells a server to stop, and starts it anew after a while, if it has ended by then.
fn stop(fleet: &Fleet, server: NodeIndex, length: TrueTime) {
    fleet.stop(server);
    boot_after(fleet, server, length);
}

fn boot_after(fleet: &Fleet, server: NodeIndex, delay: TrueTime) {
    let later = fleet.clone();
    fleet.world.after(delay, move |world| {
        // When all is mended every server is started.
        if world.now() < storm(&later) {
            boot_when_gone(&later, server);
        }
    });
}

fn pause(fleet: &Fleet, server: NodeIndex, length: TrueTime) {
    let Some(process) = fleet.process(server) else { return };
    fleet.count(|counts| counts.pauses += 1);
    fleet.world.pause(process);
    fleet.world.after(length, move |world| world.resume(process));
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    There,
    Back,
}

fn cut(fleet: &Fleet, server: NodeIndex, length: TrueTime, sides: &'static [Side]) {
    fleet.count(|counts| counts.cuts += 1);
    let change = move |fleet: &Fleet, by: fn(&mut u32)| {
        fleet.at_site(server, |site| {
            for side in sides {
                match side {
                    Side::There => {
                        by(&mut site.there.cuts);
                        by(&mut site.read.cuts);
                    }
                    Side::Back => by(&mut site.back.cuts),
                }
            }
        });
    };
    change(fleet, |cuts| *cuts += 1);
    let later = fleet.clone();
    fleet.world.after(length, move |_| change(&later, |cuts| *cuts -= 1));
}

fn outage(fleet: &Fleet, length: TrueTime) {
    fleet.count(|counts| counts.outages += 1);
    fleet.sim_store.shut();
    let sim_store = std::sync::Arc::clone(&fleet.sim_store);
    fleet.world.after(length, move |_| sim_store.open());
}
