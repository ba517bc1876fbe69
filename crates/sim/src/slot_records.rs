//! What a whole store says about each slot, without asking any server: every shard's head, records and past, put
//! together by nothing but the words of the design.
//!
//! This is for tests that look at a store when nobody writes to it any more. A store that cannot be read is a fault of
//! whoever wrote it, so it panics.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use engine::id::{Birth, RunId, SerialId, ShardId};
use engine::past::page::pages;
use engine::past::{End, Finished, Line, Segment, Skipped};
use engine::record::decode;
use engine::shard::record::{
    FORMAT, HeadRecord, RunRecord, StoppedRecord, TriggerRecord, TriggerState, head_key, past,
    runs, states, stopped, triggers,
};
use serde::Deserialize;
use store::file::{FileStore, Sizes};
use store::{Range, Store};

/// All that a store says about triggers and slots.
#[derive(Default)]
pub struct SlotRecords {
    /// Triggers that are there.
    pub triggers: BTreeMap<SerialId, KnownTrigger>,
    /// Runs that were launched and not recorded, over all shards.
    pub open: usize,
    /// Runs with a record of their own that have not ended.
    pub unfinished: Vec<RunRecord>,
    /// Runs that ended, by trigger, generation of its schedule, and slot.
    pub runs: Vec<EndedRun>,
    /// Ranges of slots that were skipped.
    pub skips: Vec<Skipped>,
    /// Up to where slots are decided in shards that fire nothing.
    pub stopped: BTreeMap<ShardId, i64>,
    cluster: u64,
}

/// A trigger that is there.
pub struct KnownTrigger {
    /// As it was written.
    pub record: TriggerRecord,
    /// Its state: cursor, pause and what else changes while it fires.
    pub state: TriggerState,
}

/// A run that ended.
#[derive(Debug, Clone)]
pub struct EndedRun {
    /// The id under which it was sent.
    pub id: String,
    /// What became of it.
    pub run: Finished,
}

/// What became of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotFate {
    /// It was launched, and ended like this.
    Run(End),
    /// It was skipped.
    Skipped,
    /// It has not ended.
    Unfinished,
}

#[derive(Deserialize)]
struct ClusterAbout {
    id: u64,
    shards: u16,
}

impl SlotRecords {
    /// Reads a directory that nobody has open.
    pub async fn read(data: &Path) -> Self {
        Self::of(&Store::new(FileStore::open_existing(data, Sizes::default()).unwrap())).await
    }

    /// Reads a store, shard by shard.
    pub async fn of(store: &Store) -> Self {
        let about = all(store, "cluster/about").await;
        let cluster: ClusterAbout = decode(&about[0].1, engine::record::Format(1)).unwrap();
        let mut records = Self { cluster: cluster.id, ..Self::default() };
        for number in 0..cluster.shards {
            records.shard(store, ShardId(number)).await;
        }
        records
    }

    async fn shard(&mut self, store: &Store, shard: ShardId) {
        for (_, head) in all(store, &head_key(shard)).await {
            let head: serde_json::Value = serde_json::from_slice(&head).unwrap();
            if let Ok(body) = serde_json::from_value::<HeadRecord>(head["body"].clone()) {
                self.open += body.open.len();
            }
        }
        for (_, value) in all(store, &triggers(shard)).await {
            let record: TriggerRecord = decode(&value, FORMAT).unwrap();
            let known = KnownTrigger { state: TriggerState::default(), record };
            self.triggers.insert(known.record.id.serial, known);
        }
        for (key, value) in all(store, &states(shard)).await {
            let serial: SerialId = key.rsplit('/').next().unwrap().parse().unwrap();
            let known = self.triggers.get_mut(&serial).expect("what moved has a trigger");
            known.state = decode(&value, FORMAT).unwrap();
        }
        for (_, value) in all(store, &stopped(shard)).await {
            let stopped: StoppedRecord = decode(&value, FORMAT).unwrap();
            self.stopped.insert(shard, stopped.since.0.0);
        }
        for (_, value) in all(store, &runs(shard)).await {
            self.unfinished.push(decode(&value, FORMAT).unwrap());
        }
        // A merge that is under way or was cut short has left what it wrote where it was as well: the same to the
        // letter, if it is right. What is merged is written behind what it was merged from, in the order of reading.
        let mut seen = BTreeSet::new();
        let mut lines = lines(store, &past(shard)).await;
        lines.extend(self::lines(store, &pages(shard)).await);
        lines.retain(|line| seen.insert(format!("{line:?}")));
        for line in lines {
            match line {
                Line::Run(run) => {
                    let id = self.run_id(shard, &run);
                    self.runs.push(EndedRun { id, run });
                }
                Line::Skip(skip) => self.skips.push(skip),
            }
        }
    }

    fn run_id(&self, shard: ShardId, run: &Finished) -> String {
        let birth = match (run.generation, run.sequence) {
            (_, Some(sequence)) => Birth::Demand(sequence),
            (Some(generation), None) => Birth::Slot(generation),
            (None, None) => panic!("{run:?} came from nowhere"),
        };
        let letters = birth.letters(self.cluster);
        RunId { shard, trigger: run.trigger, slot: run.slot, letters }.to_string()
    }

    /// What became of each slot of a trigger, by generation of its schedule. A slot that is on record twice
    /// is a fault, and said.
    pub fn slots(&self) -> BTreeMap<(SerialId, u32), BTreeMap<i64, SlotFate>> {
        let mut slots: BTreeMap<(SerialId, u32), BTreeMap<i64, SlotFate>> = BTreeMap::new();
        let mut add = |trigger: SerialId, generation: u32, slot: i64, fate: SlotFate| {
            let before = slots.entry((trigger, generation)).or_default().insert(slot, fate);
            if before.is_some() {
                let runs = self.runs.iter().filter(|ended| ended.run.trigger == trigger);
                let runs: Vec<_> = runs.filter(|ended| ended.run.slot.0 == slot).collect();
                let skips = self.skips.iter().filter(|skip| skip.trigger == trigger);
                let skips: Vec<_> =
                    skips.filter(|skip| skip.from.0 <= slot && slot <= skip.to.0).collect();
                panic!("{trigger} at {slot} is on record twice: {runs:?} {skips:?}");
            }
        };
        for EndedRun { run, .. } in &self.runs {
            if let (Some(generation), None) = (run.generation, run.sequence) {
                add(run.trigger, generation, run.slot.0, SlotFate::Run(run.end));
            }
        }
        for skip in &self.skips {
            let count = i64::try_from(skip.count).unwrap();
            let span = skip.to.0 - skip.from.0;
            assert!(count > 0 && (count > 1 || span == 0), "{skip:?}");
            // Intervals only: slots of a range are equally far apart.
            let step = if count == 1 { 0 } else { span / (count - 1) };
            assert_eq!(step * (count - 1), span, "{skip:?}");
            for place in 0..count {
                add(skip.trigger, skip.generation, skip.from.0 + place * step, SlotFate::Skipped);
            }
        }
        slots
    }

    /// What became of each slot of triggers that are due at an interval and were never changed, with what has not ended.
    /// Panics unless every slot from the first to the last is there once.
    pub fn whole(&self, step_ms: i64) -> BTreeMap<SerialId, BTreeMap<i64, SlotFate>> {
        let mut slots = self.slots();
        for run in &self.unfinished {
            let Some(generation) = run.generation else { continue };
            let of = slots.entry((run.trigger, generation)).or_default();
            let before = of.insert(run.slot.0, SlotFate::Unfinished);
            assert!(before.is_none(), "{run:?} is on record, and waits");
        }
        let mut whole = BTreeMap::new();
        for ((trigger, _), of) in slots {
            let ends = (of.keys().next(), of.keys().next_back());
            let (Some(first), Some(last)) = ends else { continue };
            let due = (last - first) / step_ms + 1;
            assert_eq!(of.len() as u64, due.unsigned_abs(), "{trigger}: slots are missing: {of:?}");
            let before = whole.insert(trigger, of);
            assert!(before.is_none(), "{trigger} was changed");
        }
        whole
    }
}

/// The lines of all segments, or pages, below a prefix.
async fn lines(store: &Store, prefix: &str) -> Vec<Line> {
    let all = all(store, prefix).await;
    all.iter().flat_map(|(_, value)| Segment::from_bytes(value).unwrap().lines).collect()
}

/// Everything below a prefix.
async fn all(store: &Store, prefix: &str) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut range = Some(Range::prefix(prefix));
    while let Some(rest) = range {
        let page = store.scan(rest, engine::limits::PAGE_ENTRIES_MAX).await.unwrap();
        for entry in page.entries {
            found.push((entry.key.as_str().to_owned(), entry.value.as_bytes().to_vec()));
        }
        range = page.next;
    }
    found
}
