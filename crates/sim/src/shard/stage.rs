//! The stage: true time, the store, and one owner after the other.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use engine::id::Unique;
use engine::instant::Instant;
use engine::shard::Now;
use engine::trigger::Draft;

use crate::dice::Dice;
use crate::world::Tracing;

use super::draft::Written;
use super::ledger::{Broken, Ledger};
use super::owner::{End, Owner};
use super::setting::Setting;
use super::shelf::Shelf;
use super::witness::Witness;

/// What the wall clock says when true time begins.
pub const BEGIN: i64 = 1_800_000_000_000;

/// How long the last owner runs on before everything is paused.
const CALM_MS: u64 = 25_000;

/// Everything but the owner.
pub struct Stage {
    /// What the run is like.
    pub setting: Setting,
    /// Chance.
    pub dice: Dice,
    /// True time, in milliseconds.
    pub now: u64,
    /// What is in the store.
    pub shelf: Shelf,
    /// Where everything is.
    pub ledger: Ledger,
    /// What left, and what people were told.
    pub witness: Witness,
    /// What people wrote last, by trigger.
    pub drafts: BTreeMap<Unique, Draft>,
    /// Names that were given.
    pub names: u64,
    /// Tickets that were given.
    pub tickets: u64,
    /// Faults are over.
    pub is_calm: bool,
    counts: Counts,
    trace: Option<String>,
}

/// What happened.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    /// Owners.
    pub owners: u64,
    /// Owners that crashed.
    pub crashes: u64,
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
    /// True time, in milliseconds.
    pub length: u64,
}

impl Stage {
    /// An empty one.
    pub fn new(setting: Setting, tracing: Tracing) -> Self {
        let trace = match tracing {
            Tracing::On => Some(format!("seed {}: {setting}\n", setting.seed)),
            Tracing::Off => None,
        };
        Self {
            dice: Dice::new(setting.seed),
            setting,
            now: 0,
            shelf: Shelf::default(),
            ledger: Ledger::default(),
            witness: Witness::default(),
            drafts: BTreeMap::new(),
            names: 0,
            tickets: 0,
            is_calm: false,
            counts: Counts::default(),
            trace,
        }
    }

    /// Plays it to its end.
    pub fn play(&mut self) -> Result<(), Broken> {
        while self.now < self.setting.length {
            let mut owner = self.crown()?;
            match owner.reign(self)? {
                End::Crash => {
                    self.counts.crashes += 1;
                    owner.die(self)?;
                }
                End::Stop => {}
            }
            let gap_ms = self.setting.gap_ms;
            self.now += if self.dice.chance(50) { self.dice.between(0, gap_ms) } else { 0 };
        }
        self.is_calm = true;
        let mut owner = self.crown()?;
        owner.run_on(self, CALM_MS)?;
        let late = Instant(owner.now(self).wall.0 - 3_000);
        self.ledger.check_up_to(late)?;
        owner.pause_all(self)?;
        owner.run_out(self)?;
        self.ledger.check_end()?;
        self.witness.check_words(&self.ledger)
    }

    /// Somebody takes the shard over.
    fn crown(&mut self) -> Result<Owner, Broken> {
        self.counts.owners += 1;
        self.witness.check_words(&self.ledger)?;
        Owner::claim(self)
    }

    /// What it is for an owner whose clocks are these.
    pub fn time(&mut self, wall_offset: i64, steady_offset: u64) -> Now {
        let wall = Instant(BEGIN + self.now.cast_signed() + wall_offset);
        Now { wall, steady: self.now + steady_offset, random: self.dice.roll() }
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
    pub fn name(&mut self) -> String {
        self.names += 1;
        format!(
            "t{}",
            if self.dice.chance(80) { self.names } else { self.dice.between(1, self.names) }
        )
    }

    /// Remembers what people wrote.
    pub fn remember(&mut self, trigger: Unique, written: &Written) {
        self.drafts.insert(trigger, written.draft.clone());
    }

    /// What happened.
    pub fn counts(&self) -> Counts {
        let ledger = self.ledger.counts;
        Counts {
            commits: ledger.commits,
            departures: self.witness.departures,
            ended: ledger.ended,
            skipped: ledger.skipped,
            length: self.now,
            ..self.counts
        }
    }

    /// What happened, line by line.
    pub fn take_trace(&mut self) -> String {
        self.trace.take().unwrap_or_default()
    }
}
