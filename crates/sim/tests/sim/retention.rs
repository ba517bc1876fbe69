//! What is kept of the past: whoever drops the rest may stop anywhere, and an account still adds up.
//!
//! The real rules go through a real shard, commit by commit, on a store that takes as little at a time as a
//! store may. Between any two commits the process may die. What is checked uses none of the rules: a line at
//! or above the floor is there, the newest ones of each trigger are there, and the index of exceptions has
//! what a look at everything finds.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use engine::id::{ProjectId, SerialId, ShardId};
use engine::instant::Instant;
use engine::limits::COMMIT_WRITES_MIN;
use engine::mutant::{self, Mutant};
use engine::past::exception::{exception_key_of, exception_pages, exceptions};
use engine::past::floor::{BucketFloor, ShardFloor, floor_key, floor_key_of};
use engine::past::page::{self, Bucket, Home, Identity, PageName};
use engine::past::retain::{self, LineTally, RetentionCut};
use engine::past::{End, Finished, Line, Reason, Segment, Skipped};
use engine::shard::record::{HeadRecord, past, past_key, past_number};
use engine::shard::{Loading, Now, Put, Room, Shard, Ticket};
use sim::dice::Dice;

use super::on_two_threads;

const SHARD: ShardId = ShardId(0);
const NOW: Now = Now { wall: Instant(1_800_000_000_000), steady: 0, random: 0 };
const ROOM: Room = Room { writes: COMMIT_WRITES_MIN, bytes: 1 << 20, value_bytes: 1 << 19 };
const PAGE_BYTES: usize = 1_500;
const HOUR_MS: i64 = 3_600_000;
const SEEDS: u64 = 40;

/// Lines that are kept of a trigger.
const MOST: usize = 10;

struct World {
    entries: BTreeMap<String, Vec<u8>>,
    number: u64,
    /// Everything that was ever recorded, in order.
    recorded: Vec<Line>,
    shard: Shard,
    pieces: VecDeque<Vec<Put>>,
}

impl World {
    fn new() -> Self {
        let (entries, recorded, pieces) = (BTreeMap::new(), Vec::new(), VecDeque::new());
        Self { entries, number: 0, recorded, shard: loaded(), pieces }
    }

    /// A commit with these lines, as a shard writes it.
    fn record(&mut self, lines: Vec<Line>) {
        self.number += 1;
        if let Some(key) = exception_key_of(SHARD, &lines, self.number) {
            let lines = lines
                .iter()
                .filter(|line| line.is_exception())
                .map(|line| line.clone().without_responses())
                .collect();
            self.entries.insert(key, Segment { lines }.to_bytes());
        }
        self.recorded.extend(lines.iter().cloned());
        self.entries.insert(past_key(SHARD, self.number), Segment { lines }.to_bytes());
    }

    fn below(&self, prefix: &str) -> impl Iterator<Item = (&String, Segment)> {
        let prefix = prefix.to_owned();
        let entries = self.entries.range(prefix.clone()..);
        entries
            .take_while(move |(key, _)| key.starts_with(&prefix))
            .map(|(key, bytes)| (key, Segment::from_bytes(bytes).unwrap()))
    }

    fn lines(&self, prefixes: &[String; 2]) -> BTreeMap<Identity, Line> {
        let lines = prefixes
            .iter()
            .flat_map(|prefix| self.below(prefix))
            .flat_map(|(_, segment)| segment.lines);
        lines.map(|line| (line.identity(), line)).collect()
    }

    fn floor(&self) -> ShardFloor {
        let bytes = self.entries.get(&floor_key(SHARD));
        bytes.map(|bytes| ShardFloor::from_bytes(bytes).unwrap()).unwrap_or_default()
    }

    fn floor_of(&self, bucket: Bucket) -> BucketFloor {
        let bytes = self.entries.get(&floor_key_of(SHARD, bucket));
        bytes.map(|bytes| BucketFloor::from_bytes(bytes).unwrap()).unwrap_or_default()
    }

    /// The oldest segments, at most so many, merged.
    fn merge(&mut self, most: usize) {
        let home = past(SHARD);
        let segments =
            self.below(&home).map(|(key, page)| (past_number(SHARD, key).unwrap(), page));
        let mut segments: Vec<_> = segments.collect();
        segments.reverse();
        segments.truncate(most);
        let before = self.floor().before;
        self.pieces = page::merge_from(SHARD, segments, before, PAGE_BYTES).pieces().into();
    }

    /// Some pages of a home and a day, compacted.
    fn compact(&mut self, dice: &mut Dice) {
        let mut days: BTreeMap<_, Vec<(PageName, Segment)>> = BTreeMap::new();
        for prefix in [page::pages(SHARD), exception_pages(SHARD)] {
            for (key, page) in self.below(&prefix) {
                let (home, name) = page::read_any_key(SHARD, key).unwrap();
                days.entry((home, name.day)).or_default().push((name, page));
            }
        }
        let days: Vec<_> = days.into_iter().filter(|(_, pages)| pages.len() > 1).collect();
        if days.is_empty() {
            return;
        }
        let at = usize::try_from(dice.between(0, days.len() as u64 - 1)).unwrap();
        let ((home, _), pages) = days[at].clone();
        let plan = page::compact(SHARD, home, self.number, pages, PAGE_BYTES).unwrap_or_default();
        self.pieces = plan.pieces().into();
    }

    /// Cuts off what is too much of each trigger of a bucket.
    fn count(&mut self, bucket: Bucket) {
        let (mut floor, mut tally) = (self.floor_of(bucket), LineTally::new(MOST));
        let home = page::pages_of(SHARD, bucket);
        self.below(&home).for_each(|(_, page)| tally.add(&page.lines));
        let bounds = tally.bounds();
        if bounds.highest().is_none() {
            return;
        }
        bounds.raise(&mut floor);
        floor.tidy(self.floor());
        let mut cut = RetentionCut::of_bucket(SHARD, bucket, &floor);
        for (key, page) in self.below(&home) {
            if let Some(kept) = bounds.page(&page.lines) {
                cut.page(key.clone(), kept);
            }
        }
        self.pieces = cut.pieces().into();
    }

    /// Drops what is about slots before an instant.
    fn age(&mut self, before: Instant) {
        let floor = ShardFloor { before: before.max(self.floor().before), indexed: true };
        let mut cut = RetentionCut::of_shard(SHARD, floor);
        for (key, page) in self.below(&page::pages(SHARD)) {
            let (bucket, _) = page::read_key(SHARD, key).unwrap();
            if let Some(kept) = retain::from(Home::Bucket(bucket), &page.lines, floor.before) {
                cut.page(key.clone(), kept);
            }
        }
        self.pieces = cut.pieces().into();
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
        for put in batch.puts {
            match put {
                Put::Value(key, value) => self.entries.insert(key, value),
                Put::Gone(key) => self.entries.remove(&key),
            };
        }
        self.shard.committed(NOW);
    }

    fn finish(&mut self) {
        while !self.is_idle() {
            self.commit();
        }
    }

    fn crash(&mut self) {
        self.shard = loaded();
        self.pieces.clear();
    }

    /// What is wrong at this moment, if anything is.
    fn fault(&self) -> Option<String> {
        let kept = self.lines(&[past(SHARD), page::pages(SHARD)]);
        let all = self.floor().before;
        for line in &self.recorded {
            let bucket = Bucket::of(line.trigger());
            let floor = all.max(self.floor_of(bucket).of(line.trigger()));
            if line.slot() >= floor && !kept.contains_key(&line.identity()) {
                return Some(format!("{line:?} is gone, and the floor is at {floor}"));
            }
        }
        // The newest of each trigger, those that got too old aside.
        let mut newest: BTreeMap<SerialId, Vec<&Line>> = BTreeMap::new();
        for line in self.recorded.iter().filter(|line| line.slot() >= all) {
            newest.entry(line.trigger()).or_default().push(line);
        }
        for lines in newest.values_mut() {
            lines.sort_by_key(|line| std::cmp::Reverse(line.slot()));
            let lost = lines.iter().take(MOST).find(|line| !kept.contains_key(&line.identity()));
            if let Some(lost) = lost {
                return Some(format!("{lost:?} is among the newest, and gone"));
            }
        }
        let index = self.lines(&[exceptions(SHARD), exception_pages(SHARD)]);
        let exceptions = kept.values().filter(|line| line.is_exception());
        let lost = exceptions
            .map(|line| (line.identity(), line.clone().without_responses()))
            .find(|(identity, line)| index.get(identity) != Some(line));
        lost.map(|(_, line)| format!("{line:?} is not in the index"))
    }
}

fn loaded() -> Shard {
    Loading::begin(SHARD, 7, &HeadRecord::default()).finish(NOW)
}

/// A line of a trigger about an hour; each third one is an exception.
fn line(trigger: u64, hour: i64, dice: &mut Dice) -> Line {
    let slot = Instant(NOW.wall.0 + hour * HOUR_MS);
    let (project, trigger) = (ProjectId(u32::try_from(trigger % 2).unwrap()), SerialId(trigger));
    if dice.chance(10) {
        let (from, to, reason) = (Instant(slot.0 - 60_000), slot, Reason::Paused);
        return Line::Skip(Skipped {
            project,
            trigger,
            generation: 1,
            from,
            to,
            count: 2,
            reason,
            at: slot,
        });
    }
    let end = dice.pick(&[End::Succeeded, End::Succeeded, End::Succeeded, End::Failed, End::Dead]);
    let (generation, sequence, attempt) = (Some(1), None, 1);
    let attempts = Vec::new();
    Line::Run(Finished {
        project,
        trigger,
        slot,
        generation,
        sequence,
        notice: None,
        queue: None,
        end,
        at: slot,
        attempt,
        attempts,
    })
}

/// Everything at once, in an order that comes from the seed. What goes wrong?
fn storm(seed: u64) -> Option<String> {
    let mut dice = Dice::new(seed);
    let mut world = World::new();
    let mut hour = 0;
    for step in 0..400 {
        match dice.between(0, 11) {
            0..=3 => {
                hour += 1;
                let triggers = dice.between(1, 4);
                let lines = (1..=triggers).map(|trigger| line(trigger, hour, &mut dice)).collect();
                world.record(lines);
            }
            4 if world.is_idle() => {
                let most = usize::try_from(dice.between(1, 12)).unwrap();
                world.merge(most);
            }
            5 if world.is_idle() => world.compact(&mut dice),
            6 if world.is_idle() => world.count(Bucket::of(SerialId(dice.between(1, 4)))),
            7 if world.is_idle() && dice.chance(30) => {
                world.age(Instant(NOW.wall.0 + (hour - 40) * HOUR_MS));
            }
            8 if dice.chance(30) => world.crash(),
            _ if !world.is_idle() => world.commit(),
            _ => {}
        }
        if let Some(fault) = world.fault() {
            return Some(format!("step {step}: {fault}"));
        }
    }
    None
}

/// Each rule dies after each number of commits, and a successor does it again. What goes wrong?
fn crashes() -> Option<String> {
    for crash_after in 0..60 {
        let mut dice = Dice::new(crash_after);
        let mut world = World::new();
        for hour in 1..=40 {
            let lines = (1..=6).map(|trigger| line(trigger, hour, &mut dice)).collect();
            world.record(lines);
        }
        world.merge(40);
        world.finish();
        let before = Instant(NOW.wall.0 + 25 * HOUR_MS);
        let rules: [&dyn Fn(&mut World); 2] =
            [&|world| world.age(before), &|world| world.count(Bucket::of(SerialId(1)))];
        for rule in rules {
            rule(&mut world);
            for _ in 0..crash_after {
                world.commit();
                if let Some(fault) = world.fault() {
                    return Some(format!("after {crash_after} commits: {fault}"));
                }
            }
            world.crash();
            rule(&mut world);
            world.finish();
            if let Some(fault) = world.fault() {
                return Some(format!("after {crash_after} commits, done again: {fault}"));
            }
        }
        let kept = world.lines(&[past(SHARD), page::pages(SHARD)]);
        let first = kept.values().filter(|line| line.trigger() == SerialId(1)).count();
        assert_eq!(first, MOST, "what is too much is gone");
        assert!(kept.values().all(|line| line.slot() >= before), "what is too old is gone");
        let doubles: usize =
            world.below(&page::pages(SHARD)).map(|(_, page)| page.lines.len()).sum();
        assert_eq!(doubles, kept.len(), "no line is there twice");
    }
    None
}

#[test]
fn a_rule_that_dies_anywhere_is_applied_again_and_loses_nothing_that_is_kept() {
    assert_eq!(crashes(), None);
}

#[test]
fn rules_merges_compactions_and_crashes_keep_what_is_to_be_kept_and_the_index_whole() {
    let wrong = on_two_threads(0..SEEDS, |seed| Some(format!("seed {seed}, {}", storm(seed)?)));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn merged_exceptions_are_those_of_all_lines_for_any_past() {
    for seed in 0..SEEDS {
        let mut dice = Dice::new(seed);
        let mut world = World::new();
        for hour in 1..=i64::try_from(dice.between(1, 120)).unwrap() {
            let triggers = dice.between(1, 6);
            let lines = (1..=triggers).map(|trigger| line(trigger, hour, &mut dice)).collect();
            world.record(lines);
            if dice.chance(15) {
                world.merge(usize::try_from(dice.between(1, 30)).unwrap());
                world.finish();
            }
        }
        for project in [ProjectId(0), ProjectId(1)] {
            let of = |lines: BTreeMap<Identity, Line>| -> BTreeSet<Identity> {
                let lines = lines
                    .into_values()
                    .filter(|line| line.is_exception() && line.project() == project);
                lines.map(|line| line.identity()).collect()
            };
            let scanned = of(world.lines(&[past(SHARD), page::pages(SHARD)]));
            let home = Home::Exceptions(project).pages(SHARD);
            assert_eq!(of(world.lines(&[exceptions(SHARD), home])), scanned, "seed {seed}");
        }
    }
}

#[test]
fn every_mutant_of_what_is_kept_is_caught() {
    for mutant in Mutant::RETENTION {
        mutant::switch(Some(mutant));
        let crashed = crashes();
        let caught =
            (0..SEEDS).find_map(|seed| storm(seed).map(|why| format!("seed {seed}, {why}")));
        mutant::switch(None);
        println!("{:<28} {crashed:?}; {caught:?}", mutant.name());
        assert!(crashed.is_some() && caught.is_some(), "{} is not caught", mutant.name());
    }
}
