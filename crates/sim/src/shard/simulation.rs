//! One run of a shard: true time, the store, and one owner after the other.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use engine::id::SerialId;
use engine::instant::Instant;
use engine::shard::Now;
use engine::shard::record::HeadRecord;
use engine::trigger::Draft;

use crate::dice::Dice;
use crate::world::Tracing;

use super::checker::ShardChecker;
use super::draft::Written;
use super::node::{MachineClock, OwnerNodes, SESSION_MS};
use super::oracle::{Broken, SlotOracle};
use super::owner::worker::FedWorker;
use super::owner::{Owner, ReignEnd};
use super::promise::ShardPromise;
use super::setting::{Company, ShardSetting};
use super::shard_store::ShardStore;

/// What the wall clock says when true time begins.
pub const BEGIN: i64 = 1_800_000_000_000;

/// How long the last owner runs on before everything is paused.
const CALM_MS: u64 = 25_000;

/// So many times that long, at most, until nothing that is due is undecided.
const CALM_PERIODS_MAX: usize = 4;

/// A run of one shard: everything but the owner, who comes and goes.
pub struct Simulation {
    /// What the run is like.
    pub setting: ShardSetting,
    /// Where all chance comes from.
    pub dice: Dice,
    /// True time, in milliseconds.
    pub now: u64,
    /// What is in the store.
    pub store: ShardStore,
    /// Where everything is.
    pub oracle: SlotOracle,
    /// What left, and what clients were told.
    pub checker: ShardChecker,
    /// Who may own the shard, or did.
    pub cluster: OwnerNodes,
    /// What clients wrote last, by trigger.
    pub drafts: BTreeMap<SerialId, Draft>,
    /// Whoever carries out what triggers let their queue have.
    pub worker: FedWorker,
    /// Names that were given.
    pub names: u64,
    /// Tickets that were given.
    pub tickets: u64,
    /// Faults are over.
    pub is_calm: bool,
    counts: ShardCounts,
    trace: Option<String>,
}

/// Who owns the shard next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Any node that claims the shard.
    Claims,
    /// The former owner, who reads the shard anew.
    ClaimsAgain(usize),
    /// The node that the head names.
    IsNamed,
}

/// How often which things happened in a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct ShardCounts {
    /// How many owners there were.
    pub owners: u64,
    /// Owners that crashed.
    pub crashes: u64,
    /// Owners that were named by their predecessors.
    pub hand_overs: u64,
    /// Hand-overs that were called off.
    pub called_off: u64,
    /// Reports of former owners.
    pub reports: u64,
    /// Commands that were taken.
    pub commands: u64,
    /// Batches that landed.
    pub commits: u64,
    /// Attempts that left.
    pub departures: u64,
    /// Runs that ended.
    pub ended: u64,
    /// Slots that were skipped.
    pub skipped: u64,
    /// Runs that a worker was given.
    pub given: u64,
    /// True time, in milliseconds.
    pub length: u64,
}

impl Simulation {
    /// A simulation in which nothing has happened yet.
    pub fn new(setting: ShardSetting, tracing: Tracing) -> Self {
        let trace = match tracing {
            Tracing::On => Some(format!("seed {}: {setting}\n", setting.seed)),
            Tracing::Off => None,
        };
        let mut dice = Dice::new(setting.seed);
        let mut checker = ShardChecker::default();
        checker.is_rolling = setting.company == Company::Rolling;
        Self {
            cluster: OwnerNodes::new(&setting, &mut dice),
            dice,
            setting,
            now: 0,
            store: ShardStore::default(),
            oracle: SlotOracle::default(),
            checker,
            drafts: BTreeMap::new(),
            worker: FedWorker::default(),
            names: 0,
            tickets: 0,
            is_calm: false,
            counts: ShardCounts::default(),
            trace,
        }
    }

    /// Runs the simulation to its end.
    pub fn play(&mut self) -> Result<(), Broken> {
        let mut next = Next::Claims;
        while self.now < self.setting.length {
            let mut owner = self.crown(next)?;
            let end = owner.reign(self)?;
            next = self.follow(&mut owner, end)?;
            self.pass();
        }
        self.is_calm = true;
        let mut owner = self.crown(next)?;
        self.catch_up(&mut owner)?;
        owner.pause_all(self)?;
        owner.run_out(self)?;
        self.oracle.check_end()?;
        self.checker.check_words(&self.oracle)
    }

    /// Lets the owner decide what is due. One whose store takes little at a time, and slowly, needs longer.
    fn catch_up(&mut self, owner: &mut Owner) -> Result<(), Broken> {
        let mut decided = Ok(());
        for _ in 0..CALM_PERIODS_MAX {
            owner.run_on(self, CALM_MS)?;
            let late = Instant(owner.now(self).wall.0 - 3_000);
            decided = self.oracle.check_up_to(late);
            if decided.is_ok() {
                break;
            }
        }
        decided
    }

    /// Somebody takes the shard over.
    fn crown(&mut self, next: Next) -> Result<Owner, Broken> {
        self.counts.owners += 1;
        self.checker.check_words(&self.oracle)?;
        match next {
            Next::IsNamed => {}
            Next::Claims => {
                let Self { cluster, setting, dice, now, .. } = self;
                cluster.named = cluster.pick(None, *now, setting, dice);
                self.store.claim();
            }
            Next::ClaimsAgain(node) => {
                self.cluster.named = node;
                self.store.claim();
            }
        }
        Owner::load(self.cluster.named, self)
    }

    /// An owner has ended. Says who is next, and lets the time pass until then.
    fn follow(&mut self, owner: &mut Owner, end: ReignEnd) -> Result<Next, Broken> {
        let node = owner.node;
        match end {
            ReignEnd::Crash => {
                self.counts.crashes += 1;
                owner.die(self)?;
                self.cluster.die(node, self.now, &mut self.dice);
                self.counts.hand_overs += u64::from(self.cluster.named != node);
                if self.dice.chance(15) {
                    self.cluster.die_all(self.now, &mut self.dice);
                }
            }
            ReignEnd::Stop => self.cluster.leave(node),
            ReignEnd::CalledOff => {
                self.counts.called_off += 1;
                return Ok(Next::ClaimsAgain(node));
            }
            ReignEnd::HandedOver => self.counts.hand_overs += 1,
        }
        let named = self.cluster.named;
        if named != node {
            self.now += self.dice.between(0, self.setting.commit_ms);
            if self.setting.company == Company::Cluster && self.dice.chance(4) {
                self.cluster.die(named, self.now, &mut self.dice);
            }
            if self.cluster.is_there(named, self.now) {
                return Ok(Next::IsNamed);
            }
            self.note(|| "the one that was named is dead".to_owned());
        }
        let gap_ms = self.setting.gap_ms;
        self.now += if self.dice.chance(50) { self.dice.between(0, gap_ms) } else { 0 };
        if self.setting.company != Company::Alone {
            // Whose session is gone was not there for a while.
            self.now += SESSION_MS;
            while !self.cluster.is_absent(&self.cluster.nodes[named].session, self.now) {
                self.now += 500;
                self.pass();
            }
        }
        Ok(Next::Claims)
    }

    /// What was to happen by now has happened.
    pub fn pass(&mut self) {
        self.cluster.pass(self.now, &mut self.store, &mut self.oracle);
    }

    /// The new owner's name lands in the head, if that node's session is there. The rest stays as it is.
    pub fn name(&mut self, target: usize, head: &HeadRecord) -> Result<(), Broken> {
        let session = &self.cluster.nodes[target].session;
        if self.cluster.is_absent(session, self.now) {
            return Ok(());
        }
        if *head != self.store.head {
            let what =
                format!("the new owner reads {head:?}, and {:?} was written", self.store.head);
            return Err((ShardPromise::OnePlace, what));
        }
        self.note(|| format!("node {target} is named"));
        self.store.number += 1;
        self.cluster.named = target;
        Ok(())
    }

    /// The time, and a random number, as an owner with this clock has them.
    pub fn time(&mut self, clock: &MachineClock) -> Now {
        let wall = Instant(BEGIN + self.now.cast_signed() + clock.wall_offset);
        Now { wall, steady: clock.steady(self.now), random: self.dice.roll() }
    }

    /// Notes a line, if that was asked for.
    pub fn note(&mut self, what: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            let (second, millis) = (self.now / 1_000, self.now % 1_000);
            writeln!(trace, "{second:>5}.{millis:03} {}", what()).expect("a text grows");
        }
    }

    /// Whether lines are noted.
    pub fn is_tracing(&self) -> bool {
        self.trace.is_some()
    }

    /// A command was taken.
    pub fn count_command(&mut self) {
        self.counts.commands += 1;
    }

    /// A name that nobody had, or had some time ago.
    pub fn trigger_name(&mut self) -> String {
        self.names += 1;
        format!(
            "t{}",
            if self.dice.chance(80) { self.names } else { self.dice.between(1, self.names) }
        )
    }

    /// Remembers what clients wrote.
    pub fn remember(&mut self, trigger: SerialId, written: &Written) {
        self.drafts.insert(trigger, written.draft.clone());
    }

    /// How often which things happened.
    pub fn counts(&self) -> ShardCounts {
        let oracle = self.oracle.counts;
        ShardCounts {
            commits: oracle.commits,
            departures: self.checker.departures,
            ended: oracle.ended,
            skipped: oracle.skipped,
            reports: self.cluster.report_keys.len() as u64,
            given: self.worker.given,
            length: self.now,
            ..self.counts
        }
    }

    /// What happened, line by line.
    pub fn take_trace(&mut self) -> String {
        self.trace.take().unwrap_or_default()
    }
}
