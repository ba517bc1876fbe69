//! What a seed stands for, when programs are held.

use std::fmt;
use std::time::Duration;

use engine::hold::life::{HealthRules, LifeRules};
use engine::hold::timing::{HoldTiming, TreeKill};
use engine::lease::Ttl;

use crate::cluster::{ClusterSetting, StoreKind};
use crate::dice::Dice;
use crate::sim_store::NodeIndex;

/// What kind of program is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Habit {
    /// It ends when it is told to.
    Obeys,
    /// It does so some time later.
    Lingers,
    /// It does not.
    Ignores,
    /// It ends by itself, again and again.
    Crashes,
}

/// How close to each other faults are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// The next one comes whether or not the last one is over.
    Quick,
    /// Between two of them everything comes to rest.
    Slow,
}

/// What a seed stands for.
#[derive(Debug, Clone)]
pub struct HoldSetting {
    /// The store, the network, T of each node, and who approves.
    pub cluster: ClusterSetting,
    /// Who kills trees on each node.
    pub kills: Vec<TreeKill>,
    /// What the program does when it is told to end.
    pub habit: Habit,
    /// How long it is given then.
    pub stop_timeout: Duration,
    /// Whether somebody asks for its health.
    pub health: Option<HealthRules>,
    /// How close to each other faults are.
    pub pace: Pace,
    /// Whether all of that which docs/holds.md leaves out happens, too.
    pub beyond: bool,
}

impl fmt::Display for HoldSetting {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cluster, kills, habit, stop_timeout, health, pace, beyond } = self;
        write!(
            out,
            "{cluster}, kills {kills:?}, program {habit:?}, {stop_timeout:?} to stop, {pace:?} faults{}{}",
            if health.is_some() { ", health" } else { "" },
            if *beyond { ", beyond the limits" } else { "" },
        )
    }
}

impl HoldSetting {
    /// The setting of a seed.
    pub fn of(dice: &mut Dice) -> Self {
        let mut cluster = ClusterSetting::of(dice);
        cluster.hand_overs = false;
        if cluster.kind == StoreKind::Exclusive {
            // Whoever has the directory open holds nothing itself.
            let ttl = cluster.ttls[0];
            cluster.ttls.push(ttl);
        }
        let kills = cluster.ttls.iter().map(|ttl| {
            let ttl = Ttl::new(*ttl).expect("some seconds");
            let weak = dice.chance(20) && HoldTiming::check(ttl, TreeKill::Search).is_ok();
            if weak { TreeKill::Search } else { TreeKill::Kernel }
        });
        let kills = kills.collect();
        let health = HealthRules {
            interval: Duration::from_secs(1),
            failures: 2,
            start_grace: Duration::from_secs(1),
        };
        Self {
            kills,
            habit: dice.pick(&[
                Habit::Obeys,
                Habit::Obeys,
                Habit::Lingers,
                Habit::Ignores,
                Habit::Ignores,
                Habit::Crashes,
            ]),
            stop_timeout: Duration::from_millis(dice.between(200, 5_000)),
            health: dice.chance(20).then_some(health),
            pace: if dice.chance(30) { Pace::Slow } else { Pace::Quick },
            beyond: dice.chance(30),
            cluster,
        }
    }

    /// What the supervisor on a node keeps to.
    pub fn rules(&self, node: NodeIndex) -> LifeRules {
        let ttl = Ttl::new(self.cluster.ttls[node]).expect("some seconds");
        let timing = HoldTiming::check(ttl, self.kills[node]).expect("it was looked at before");
        LifeRules { timing, stop_timeout: self.stop_timeout, health: self.health }
    }
}
