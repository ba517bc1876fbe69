//! What must be so of runs that have parts, by what commits write and what workers begin.

use std::collections::{BTreeMap, BTreeSet};

use engine::id::{RunId, SerialId};
use engine::past::{End, Line, Segment};
use engine::queue::given::ClaimedRecord;
use engine::queue::pick::{ChosenRecord, Pick, PicksRecord, chosen, part_ends, picks};
use engine::queue::record::{self as queue, QueuedRecord};
use engine::record::decode;
use engine::shard::record::{FORMAT, TriggerState, past, states, triggers};
use engine::shard::{Put, ShardBatch};
use serde::de::DeserializeOwned;

use super::super::shard_store::{SHARD, ShardStore};

/// What waits for a worker that is gone is another's within two beats and the pause between two looks, here with room for a
/// request that is lost.
const PASSED_WITHIN: u64 = 1_600 + 250 + 2_500;

/// What is not taken after so long is anybody's, and for whom it is does not matter.
const ANYBODYS_AFTER: i64 = 10_000;

#[derive(Default)]
pub(super) struct Judge {
    pub(super) broken: Option<String>,
    pub(super) trigger: Option<SerialId>,
    pub(super) chosen: u64,
    pub(super) passed: u64,
    pub(super) by_others: u64,
    pub(super) parts: u64,
    /// Runs that have parts, for how many workers each is, and whether it is one of the trigger.
    wholes: BTreeMap<u64, (Pick, bool)>,
    known: BTreeMap<u64, ChosenRecord>,
    begun: BTreeMap<(RunId, u32), u32>,
    ended: BTreeMap<u64, End>,
    over: BTreeSet<u64>,
    /// Parts that wait for a worker that is gone, and since when.
    waits_in_vain: BTreeMap<(u64, usize, String), u64>,
}

impl Judge {
    fn bad(&mut self, is_bad: bool, what: impl FnOnce() -> String) {
        if is_bad && self.broken.is_none() {
            self.broken = Some(what());
        }
    }

    /// A worker begins an attempt.
    pub(super) fn begins(&mut self, run: RunId, attempt: u32) {
        let times = self.begun.entry((run, attempt)).or_default();
        *times += 1;
        let is_again = *times > 1;
        self.bad(is_again, || format!("attempt {attempt} of {run} begins twice"));
    }

    /// A batch is about to land.
    pub(super) fn see(&mut self, before: &ShardStore, batch: &ShardBatch) {
        let mut after = before.entries.clone();
        for put in &batch.puts {
            match put {
                Put::Value(key, value) => _ = after.insert(key.clone(), value.clone()),
                Put::Gone(key) => _ = after.remove(key),
            }
        }
        let (before, after) = (Look::at(&before.entries), Look::at(&after));
        self.wholes.extend(after.wholes.iter().map(|(whole, known)| (*whole, *known)));
        let is_steady = before.workers == after.workers;
        let mut turns: BTreeMap<bool, Vec<String>> = BTreeMap::new();
        for (whole, chosen) in &after.chosen {
            let former = self.known.insert(*whole, chosen.clone());
            let Some((pick, of_trigger)) = self.wholes.get(whole).copied() else {
                self.bad(true, || format!("run {whole} has parts and no record"));
                continue;
            };
            let names: Vec<String> = chosen.workers.iter().map(ToString::to_string).collect();
            let moved: Vec<String> = match &former {
                None => names.clone(),
                Some(former) => {
                    self.bad(former.first != chosen.first, || {
                        format!("run {whole} is chosen for anew")
                    });
                    let pairs = former.workers.iter().zip(&chosen.workers);
                    let moved = pairs.filter(|(one, other)| one != other);
                    moved.map(|(_, other)| other.to_string()).collect()
                }
            };
            if former.is_none() {
                self.chosen += 1;
                let wanted = match pick {
                    Pick::Next(count) => usize::from(count),
                    Pick::Any | Pick::All => names.len(),
                };
                self.bad(names.len() != wanted, || {
                    format!("run {whole} has {names:?}, and wants {wanted}")
                });
                let is_all =
                    names.iter().collect::<BTreeSet<_>>() == before.workers.keys().collect();
                self.bad(pick == Pick::All && is_steady && !is_all, || {
                    format!("run {whole} is for {names:?}, and there are {:?}", before.workers)
                });
            } else {
                self.passed += moved.len() as u64;
            }
            if matches!(pick, Pick::Next(_)) {
                turns.entry(of_trigger).or_default().extend(moved);
            }
        }
        for (of_trigger, mut served) in turns {
            let (from, to) = (before.position(of_trigger), after.position(of_trigger));
            let mut expected = around(&before.workers, &from, served.len());
            let last = expected.last().cloned().unwrap_or(from.clone());
            served.sort();
            expected.sort();
            self.bad(is_steady && served != expected, || {
                format!(
                    "after {from:?} of {:?} it was the turn of {expected:?}, not of {served:?}",
                    before.workers
                )
            });
            self.bad(is_steady && to != last, || {
                format!("the position is {to:?}, and was {last:?}'s")
            });
        }
        for put in &batch.puts {
            if let Put::Value(key, value) = put
                && key.starts_with(&past(SHARD))
            {
                let segment = Segment::from_bytes(value).expect("the past can be read");
                segment.lines.iter().for_each(|line| self.line(line));
            }
        }
        self.known.retain(|whole, _| after.chosen.contains_key(whole));
    }

    fn line(&mut self, line: &Line) {
        let Line::Run(run) = line else { return };
        if run.is_part() {
            self.parts += 1;
            let again = self.ended.insert(run.trigger.0, run.end).is_some();
            self.bad(again, || format!("part {} ends twice", run.trigger.0));
        } else if let Some(parts) = run.queue.as_ref().and_then(|queue| queue.parts.as_deref()) {
            self.by_others += parts.by.len() as u64;
            let again = !self.over.insert(parts.first);
            self.bad(again, || format!("the run of part {} ends twice", parts.first));
            let numbers = parts.first..parts.first + parts.workers.len() as u64;
            let ends: Vec<Option<End>> =
                numbers.map(|number| self.ended.get(&number).copied()).collect();
            let expected = worst(&ends);
            self.bad(Some(run.end) != expected, || {
                format!("{run:?} ends so, and its parts did {ends:?}")
            });
        }
    }

    /// What landed is there.
    pub(super) fn learn(&mut self, store: &ShardStore) {
        let known = store.entries.keys().find_map(|key| key.strip_prefix(&triggers(SHARD)));
        self.trigger = known.and_then(|serial| serial.parse().ok()).or(self.trigger);
    }

    /// What waits for a worker that is gone is not waited for long.
    pub(super) fn watch(
        &mut self,
        now: u64,
        is_owned: bool,
        store: &ShardStore,
        is_there: impl Fn(&str) -> bool,
    ) {
        if !is_owned {
            return self.waits_in_vain.clear();
        }
        let own = |worker: &str| worker.rsplit('/').next().unwrap_or_default().to_owned();
        let live: Vec<String> = below::<PicksRecord>(&store.entries, &picks(SHARD))
            .flat_map(|(_, picks)| picks.workers.into_keys())
            .map(|worker| own(&worker))
            .filter(|worker| is_there(worker))
            .collect();
        let mut vain = BTreeMap::new();
        for (whole, chosen) in self.known.iter().filter(|_| !live.is_empty()) {
            for (place, worker) in chosen.workers.iter().map(|worker| own(worker)).enumerate() {
                let has_ended = self.ended.contains_key(&(chosen.first + place as u64));
                if !has_ended && !is_there(&worker) {
                    let key = (*whole, place, worker);
                    let since = self.waits_in_vain.get(&key).copied().unwrap_or(now);
                    vain.insert(key, since);
                }
            }
        }
        let late = vain.iter().filter(|(_, since)| now - **since > PASSED_WITHIN);
        let late: Vec<_> = late.map(|(key, _)| key.clone()).collect();
        self.waits_in_vain = vain;
        for (whole, place, worker) in late {
            let number = self.known[&whole].first + place as u64;
            let wall = super::at(now).wall;
            let queued = store.entries.keys().filter_map(|key| queue::placed_at(SHARD, key));
            let due =
                queued.filter(|(_, order)| order.sequence == whole).map(|(_, order)| order.due);
            let is_young = due.min().is_some_and(|due| wall.0 - due.0 < ANYBODYS_AFTER);
            let is_given = is_given(store, number);
            self.bad(is_young && !is_given, || {
                format!("part {place} of {whole} waits for {worker}, who is gone")
            });
        }
    }

    /// Nothing went wrong for long: everything has ended, and nothing is left of it.
    pub(super) fn conclude(&mut self, store: &ShardStore) {
        let kinds = [
            queue::queued(SHARD),
            queue::given(SHARD),
            queue::claimed(SHARD),
            chosen(SHARD),
            part_ends(SHARD),
        ];
        for kind in kinds {
            let left = store.entries.keys().find(|key| key.starts_with(&kind)).cloned();
            self.bad(left.is_some(), || format!("{left:?} is left"));
        }
    }
}

/// Whether a part has a record of having been given.
fn is_given(store: &ShardStore, number: u64) -> bool {
    store.entries.contains_key(&queue::given_key(SHARD, number))
        || below::<ClaimedRecord>(&store.entries, &queue::claimed(SHARD))
            .any(|(_, claimed)| claimed.numbers().any(|of| of == number))
}

/// The worst of some ends, if all are known.
fn worst(ends: &[Option<End>]) -> Option<End> {
    let order =
        [End::Failed, End::Dead, End::Unknown, End::Expired, End::Cancelled, End::Succeeded];
    if ends.iter().any(Option::is_none) {
        return None;
    }
    order.into_iter().find(|end| ends.contains(&Some(*end)))
}

/// Whose turn it is, as one reads it off a list.
fn around(workers: &BTreeMap<String, u32>, from: &str, count: usize) -> Vec<String> {
    let (mut served, mut last) = (Vec::new(), from.to_owned());
    while served.len() < count && !workers.is_empty() {
        let next = workers.keys().find(|worker| **worker > last).or(workers.keys().next());
        last = next.cloned().unwrap_or_default();
        served.push(last.clone());
    }
    served
}

/// What is in the store at a moment.
struct Look {
    chosen: BTreeMap<u64, ChosenRecord>,
    wholes: BTreeMap<u64, (Pick, bool)>,
    workers: BTreeMap<String, u32>,
    by_hand: String,
    of_trigger: String,
}

impl Look {
    fn at(entries: &BTreeMap<String, Vec<u8>>) -> Self {
        let number = |key: &str| key.rsplit('/').next().and_then(|text| text.parse().ok());
        let wholes = below::<QueuedRecord>(entries, &queue::queued(SHARD));
        let wholes =
            wholes.filter_map(|(key, run)| Some((number(key)?, (run.pick, run.trigger.is_some()))));
        let picks = below::<PicksRecord>(entries, &picks(SHARD)).next().map(|(_, picks)| picks);
        let picks = picks.unwrap_or_default();
        let state = below::<TriggerState>(entries, &states(SHARD)).next().map(|(_, state)| state);
        Self {
            chosen: below(entries, &chosen(SHARD))
                .filter_map(|(key, it)| Some((number(key)?, it)))
                .collect(),
            wholes: wholes.collect(),
            workers: picks
                .workers
                .into_iter()
                .map(|(name, lease)| (name.to_string(), lease))
                .collect(),
            by_hand: picks.position.into(),
            of_trigger: state.map_or_else(String::new, |state| state.position().to_owned()),
        }
    }

    fn position(&self, of_trigger: bool) -> String {
        if of_trigger { self.of_trigger.clone() } else { self.by_hand.clone() }
    }
}

fn below<'a, T: DeserializeOwned>(
    entries: &'a BTreeMap<String, Vec<u8>>,
    prefix: &str,
) -> impl Iterator<Item = (&'a str, T)> + use<'a, T> {
    let prefix = prefix.to_owned();
    let from = entries.range(prefix.clone()..);
    from.take_while(move |(key, _)| key.starts_with(&prefix)).map(|(key, value)| {
        (key.as_str(), decode(value, FORMAT).expect("what was written is read"))
    })
}
