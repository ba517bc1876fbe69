//! Runs that have parts, in memory: for whom the parts are, and how those ended that have.
//!
//! The parts that are unfinished are among all other runs, and known by their numbers; here is what they are parts of.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::given::RunEnd;
use super::pick::{ChosenRecord, PartEndsRecord, Pick};

/// A run that has parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whole {
    /// For how many workers it is.
    pub pick: Pick,
    /// For whom its parts are; none, until that is chosen.
    pub chosen: Option<Arc<ChosenRecord>>,
    /// How its parts ended, once one has.
    pub ends: Option<Arc<PartEndsRecord>>,
}

/// Which part of which run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartPlace {
    /// The number of the run.
    pub whole: u64,
    /// Which of its parts, from 0.
    pub place: usize,
}

/// The runs of a shard that have parts.
#[derive(Debug, Default)]
pub struct Wholes {
    by_number: BTreeMap<u64, Whole>,
    /// The same, by the numbers of their first parts.
    by_part: BTreeMap<u64, u64>,
}

impl Whole {
    /// How its parts have ended so far.
    pub fn ends(&self) -> PartEndsRecord {
        let parts = self.chosen.as_ref().map_or(0, |chosen| chosen.workers.len());
        self.ends.as_deref().cloned().unwrap_or_else(|| PartEndsRecord::open(parts))
    }

    /// How a part ended, if it has.
    pub fn end_of(&self, place: usize) -> Option<RunEnd> {
        self.ends.as_ref()?.of(place)
    }
}

impl Wholes {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.by_number.is_empty()
    }

    /// A run with this number.
    pub fn get(&self, whole: u64) -> Option<&Whole> {
        self.by_number.get(&whole)
    }

    /// Which part of which run has this number.
    pub fn part(&self, number: u64) -> Option<PartPlace> {
        let (_, whole) = self.by_part.range(..=number).next_back()?;
        let place = self.by_number.get(whole)?.chosen.as_ref()?.place(number)?;
        Some(PartPlace { whole: *whole, place })
    }

    /// For whom the part with this number is.
    pub fn worker(&self, number: u64) -> Option<(Pick, &Arc<str>)> {
        let whole = self.by_number.get(&self.part(number)?.whole)?;
        Some((whole.pick, whole.chosen.as_ref()?.worker(number)?))
    }

    pub(super) fn insert(&mut self, whole: u64, pick: Pick) {
        self.by_number.insert(whole, Whole { pick, chosen: None, ends: None });
    }

    pub(super) fn choose(&mut self, whole: u64, chosen: &Arc<ChosenRecord>) {
        if let Some(known) = self.by_number.get_mut(&whole) {
            known.chosen = Some(Arc::clone(chosen));
            self.by_part.insert(chosen.first, whole);
        }
    }

    pub(super) fn end_parts(&mut self, whole: u64, ends: &Arc<PartEndsRecord>) {
        if let Some(known) = self.by_number.get_mut(&whole) {
            known.ends = Some(Arc::clone(ends));
        }
    }

    pub(super) fn remove(&mut self, whole: u64) -> Option<Whole> {
        let known = self.by_number.remove(&whole)?;
        if let Some(chosen) = &known.chosen {
            self.by_part.remove(&chosen.first);
        }
        Some(known)
    }
}
