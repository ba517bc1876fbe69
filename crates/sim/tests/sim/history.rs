//! The packed past: whoever merges it may stop anywhere, and whoever reads it may take any time.
//!
//! The real plans go through a real shard, commit by commit, on a store that takes as little at a time as a
//! store may. Segments are merged, pages are compacted, and a process dies between any two commits.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

use engine::id::{SerialId, ShardId};
use engine::instant::Instant;
use engine::limits::COMMIT_WRITES_MIN;
use engine::mutant::{self, Mutant};
use engine::past::page::{self, Bucket, Identity, MergePlan, PageName};
use engine::past::{End, Finished, Line, Segment};
use engine::shard::record::{HeadRecord, past, past_key, past_number};
use engine::shard::{Loading, Now, Put, Room, Shard, Ticket};
use sim::dice::Dice;

use super::on_two_threads;

const SHARD: ShardId = ShardId(0);
const NOW: Now = Now { wall: Instant(1_800_000_000_000), steady: 0, random: 0 };
const ROOM: Room = Room { writes: COMMIT_WRITES_MIN, bytes: 1 << 20, value_bytes: 1 << 19 };
const PAGE_BYTES: usize = 1_500;
const SEEDS: u64 = 60;

/// A shard with a past, and whoever packs it.
struct World {
    entries: BTreeMap<String, Vec<u8>>,
    /// Commits of the chain.
    number: u64,
    /// Everything that was ever recorded.
    recorded: BTreeSet<Identity>,
    shard: Shard,
    pieces: VecDeque<Vec<Put>>,
}

impl World {
    fn new() -> Self {
        Self {
            entries: BTreeMap::new(),
            number: 0,
            recorded: BTreeSet::new(),
            shard: loaded(),
            pieces: VecDeque::new(),
        }
    }

    /// A commit with a line of each of these triggers.
    fn record(&mut self, triggers: impl Iterator<Item = u64>) {
        self.number += 1;
        let slot = Instant(NOW.wall.0 + i64::try_from(self.number).unwrap() * 3_600_000);
        let lines: Vec<Line> = triggers.map(|trigger| run(trigger, slot)).collect();
        self.recorded.extend(lines.iter().map(Line::identity));
        self.entries.insert(past_key(SHARD, self.number), Segment { lines }.to_bytes());
    }

    /// The oldest segments, at most so many.
    fn oldest(&self, most: usize) -> Vec<(u64, Segment)> {
        let segments = self.entries.range(past(SHARD)..).rev();
        let segments = segments.filter_map(|(key, bytes)| {
            Some((past_number(SHARD, key)?, Segment::from_bytes(bytes).unwrap()))
        });
        segments.take(most).collect()
    }

    /// The pages of the bucket and day that has most of them.
    fn crowd(&self) -> Option<(Bucket, Vec<(PageName, Segment)>)> {
        let mut days: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (key, bytes) in &self.entries {
            if let Some((bucket, name)) = page::read_key(SHARD, key) {
                let page = Segment::from_bytes(bytes).unwrap();
                days.entry((bucket, name.day)).or_default().push((name, page));
            }
        }
        let most = days.into_iter().max_by_key(|(_, pages)| pages.len());
        most.map(|((bucket, _), pages)| (bucket, pages))
    }

    fn begin(&mut self, plan: MergePlan) {
        self.pieces = plan.pieces().into();
    }

    fn is_idle(&self) -> bool {
        self.pieces.is_empty() && self.shard.is_settled()
    }

    /// The next commit of what was begun.
    fn commit(&mut self) {
        if self.shard.is_settled() {
            let Some(piece) = self.pieces.pop_front() else { return };
            self.shard.rewrite(piece, Ticket(1), NOW);
        }
        self.number += 1;
        let batch = self.shard.take_batch(self.number, ROOM).expect("it is not settled");
        assert!(batch.puts.len() < ROOM.writes, "there is room for the head");
        for put in batch.puts {
            match put {
                Put::Value(key, value) => self.entries.insert(key, value),
                Put::Gone(key) => self.entries.remove(&key),
            };
        }
        self.shard.committed(NOW);
    }

    /// All that is known in memory is gone.
    fn crash(&mut self) {
        self.shard = loaded();
        self.pieces.clear();
    }

    /// What a reader finds at this moment.
    fn found(&self) -> BTreeSet<Identity> {
        let mut reader = Reader::new(self);
        while reader.step(self) {}
        reader.found
    }
}

fn loaded() -> Shard {
    Loading::begin(SHARD, 7, &HeadRecord::default()).finish(NOW)
}

fn run(trigger: u64, slot: Instant) -> Line {
    Line::Run(Finished {
        project: engine::id::ProjectId::DEFAULT,
        trigger: SerialId(trigger),
        slot,
        generation: Some(1),
        sequence: None,
        notice: None,
        queue: None,
        end: End::Succeeded,
        at: slot,
        attempt: 1,
        attempts: Vec::new(),
    })
}

/// Reads one entry at a time: segments, and then pages.
struct Reader {
    /// What was recorded when it began.
    wanted: BTreeSet<Identity>,
    found: BTreeSet<Identity>,
    homes: VecDeque<String>,
    last: Option<String>,
}

impl Reader {
    fn new(world: &World) -> Self {
        let homes = [past(SHARD), page::pages(SHARD)].into();
        Self { wanted: world.recorded.clone(), found: BTreeSet::new(), homes, last: None }
    }

    /// Reads on. Tells whether there was something.
    fn step(&mut self, world: &World) -> bool {
        let Some(home) = self.homes.front() else { return false };
        let from = self.last.take().map_or(Bound::Included(home.clone()), Bound::Excluded);
        let next = world.entries.range((from, Bound::Unbounded)).next();
        match next.filter(|(key, _)| key.starts_with(home)) {
            Some((key, bytes)) => {
                let lines = Segment::from_bytes(bytes).unwrap().lines;
                self.found.extend(lines.iter().map(Line::identity));
                self.last = Some(key.clone());
            }
            None => drop(self.homes.pop_front()),
        }
        true
    }
}

/// A merge that dies after each number of commits, and is done again by a successor. What is missing then?
fn missing_after_crashes() -> usize {
    let mut missing = 0;
    for crash_after in 0..60 {
        let mut world = World::new();
        (0..40).for_each(|_| world.record(1..=4));
        world.begin(page::merge(SHARD, world.oldest(40), PAGE_BYTES));
        for _ in 0..crash_after {
            world.commit();
        }
        world.crash();
        missing += world.recorded.difference(&world.found()).count();
        world.begin(page::merge(SHARD, world.oldest(40), PAGE_BYTES));
        while !world.is_idle() {
            world.commit();
        }
        assert!(world.oldest(1).is_empty(), "the second merge is done");
        missing += world.recorded.difference(&world.found()).count();
    }
    missing
}

/// Everything at once, in an order that comes from the seed. What goes wrong?
fn storm(seed: u64) -> Option<String> {
    let mut dice = Dice::new(seed);
    let mut world = World::new();
    let mut reader: Option<Reader> = None;
    for step in 0..300 {
        match dice.between(0, 9) {
            0 | 1 => {
                let triggers = dice.between(1, 4);
                world.record(1..=triggers);
            }
            2 if world.is_idle() => {
                let most = usize::try_from(dice.between(1, 12)).unwrap();
                world.begin(page::merge(SHARD, world.oldest(most), PAGE_BYTES));
            }
            3 if world.is_idle() => {
                if let Some((bucket, mut pages)) = world.crowd() {
                    // Any of them: those that are full, or too many, are left out.
                    pages.retain(|_| dice.chance(80));
                    let plan = page::compact(SHARD, bucket, world.number, pages, PAGE_BYTES);
                    world.begin(plan.unwrap_or_default());
                }
            }
            4 if dice.chance(20) => world.crash(),
            5 | 6 => {
                let reading = reader.get_or_insert_with(|| Reader::new(&world));
                if !reading.step(&world) {
                    let missed = reading.wanted.difference(&reading.found).count();
                    if missed > 0 {
                        return Some(format!("step {step}: a reader missed {missed} lines"));
                    }
                    reader = None;
                }
            }
            _ if !world.is_idle() => world.commit(),
            _ => {}
        }
        let found = world.found();
        if found != world.recorded {
            let lost = world.recorded.difference(&found).count();
            return Some(format!("step {step}: {lost} lines are nowhere"));
        }
    }
    None
}

#[test]
fn a_merge_that_dies_anywhere_is_done_again_and_loses_nothing() {
    assert_eq!(missing_after_crashes(), 0);
}

#[test]
fn merges_compactions_crashes_and_slow_readers_lose_nothing() {
    let wrong = on_two_threads(0..SEEDS, |seed| Some(format!("seed {seed}, {}", storm(seed)?)));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_mutant_of_the_packed_past_is_caught() {
    for mutant in Mutant::HISTORY {
        mutant::switch(Some(mutant));
        let missing = missing_after_crashes();
        let caught =
            (0..SEEDS).find_map(|seed| storm(seed).map(|why| format!("seed {seed}, {why}")));
        mutant::switch(None);
        println!("{:<28} {missing} lines missing; {caught:?}", mutant.name());
        assert!(missing > 0, "{}: lines are lost by a crash", mutant.name());
        assert!(caught.is_some(), "{}: not caught by any seed", mutant.name());
    }
}
