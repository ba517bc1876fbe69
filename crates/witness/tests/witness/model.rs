//! The judge beside a naive model, which remembers every tick and looks at all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use witness::{Report, Tick};

use super::plan::{GAP, from, judged, tick};

/// Two that acted at a time: their instances, and for how many milliseconds.
type Pairs = BTreeMap<(String, String), u64>;

/// What becomes of a tick on its way: after how many milliseconds each copy of it arrives.
type Copies = Vec<u64>;

/// An instance: when it begins, under which token, on which machine, and after how much it makes each tick.
#[derive(Debug, Clone)]
struct Life {
    begins: u64,
    token: u64,
    machine: usize,
    ticks: Vec<(u64, Copies)>,
}

fn copies() -> impl Strategy<Value = Copies> {
    let delay = prop_oneof![4 => Just(0_u64), 2 => 0..60_u64, 1 => 0..3_000_u64];
    prop_oneof![
        1 => Just(Vec::new()),
        6 => prop::collection::vec(delay.clone(), 1),
        1 => prop::collection::vec(delay, 2),
    ]
}

fn life() -> impl Strategy<Value = Life> {
    let pause = prop_oneof![6 => 0..80_u64, 1 => 500..4_000_u64];
    let ticks = prop::collection::vec((pause, copies()), 1..14);
    (0..5_000_u64, 1..4_u64, 0..2_usize, ticks).prop_map(|(begins, token, machine, ticks)| Life {
        begins,
        token,
        machine,
        ticks,
    })
}

/// All that arrives, in the order and at the moments in which it does.
fn arrivals(lives: &[Life]) -> Vec<(u64, Tick)> {
    let mut all = Vec::new();
    for (number, life) in lives.iter().enumerate() {
        let mut made = life.begins;
        for (sequence, (pause, copies)) in (1..).zip(&life.ticks) {
            made += pause;
            let name = format!("{number}");
            // Most have one token; a few are given a greater one on the way.
            let token = life.token + u64::from(life.machine == 1 && sequence > 7);
            let tick = tick(&name, token, sequence, made);
            let tick = from(["here", "there"][life.machine], tick);
            all.extend(copies.iter().map(|delay| (made + delay, tick.clone())));
        }
    }
    all.sort_by_key(|(arrives, _)| *arrives);
    // No two arrive at one moment.
    let mut last = 0;
    for (arrives, _) in &mut all {
        *arrives = (last + 1).max(*arrives);
        last = *arrives;
    }
    all
}

/// What the model knows of an instance.
#[derive(Debug, Default)]
struct Known {
    machine: String,
    /// When each tick was made, and its token, by number.
    made: BTreeMap<u64, (u64, u64)>,
    /// When those came that were newer than all before.
    arrived: Vec<u64>,
    repeated: u64,
}

fn known(arrivals: &[(u64, Tick)]) -> BTreeMap<String, Known> {
    let mut all: BTreeMap<String, Known> = BTreeMap::new();
    for (arrives, tick) in arrivals {
        let known = all.entry(tick.instance.clone()).or_default();
        let made = tick.made.as_ref().unwrap();
        known.machine.clone_from(&made.boot);
        if known.made.keys().all(|sequence| *sequence < tick.sequence) {
            known.arrived.push(*arrives);
        }
        let at = made.since_boot_us / 1_000;
        if known.made.insert(tick.sequence, (at, tick.token)).is_some() {
            known.repeated += 1;
        }
    }
    all
}

/// When two acted, on a clock that they share.
fn moments(one: &Known, other: &Known) -> (Vec<u64>, Vec<u64>) {
    if one.machine != other.machine {
        return (one.arrived.clone(), other.arrived.clone());
    }
    let made = |known: &Known| known.made.values().map(|(at, _)| *at).collect();
    (made(one), made(other))
}

/// Whether one acts, then the other, then the first again.
fn returns(one: &[u64], other: &[u64]) -> bool {
    let between = |at: &u64| one.iter().any(|it| it <= at) && one.iter().any(|it| it >= at);
    other.iter().any(between)
}

fn overlaps(all: &BTreeMap<String, Known>) -> Pairs {
    let mut found = Pairs::new();
    for (one_name, one) in all {
        for (other_name, other) in all.range(one_name.clone()..).skip(1) {
            let (ones, others) = moments(one, other);
            if !returns(&ones, &others) && !returns(&others, &ones) {
                continue;
            }
            // The moments between which each of them has acted and will act.
            let both = |at: &&u64| {
                [&ones, &others]
                    .iter()
                    .all(|it| it.iter().any(|it| it <= *at) && it.iter().any(|it| it >= *at))
            };
            let shared: BTreeSet<_> = ones.iter().chain(&others).filter(both).collect();
            let length = **shared.last().unwrap() - **shared.first().unwrap();
            found.insert((one_name.clone(), other_name.clone()), length);
        }
    }
    found
}

/// Acts under a token after acts under a greater one, on one machine.
fn tokens_back(all: &BTreeMap<String, Known>) -> BTreeMap<(String, u64, String, u64), u64> {
    let mut found = BTreeMap::new();
    for (one_name, one) in all {
        for (other_name, other) in all {
            if one.machine != other.machine {
                continue;
            }
            for (late, lower) in one.made.values() {
                for (first, greater) in other.made.values() {
                    if lower < greater && late > first {
                        let pair = (one_name.clone(), *lower, other_name.clone(), *greater);
                        let by = found.entry(pair).or_insert(0);
                        *by = (*by).max(late - first);
                    }
                }
            }
        }
    }
    found
}

fn lost(known: &Known) -> u64 {
    let (first, last) = (known.made.keys().next().unwrap(), known.made.keys().last().unwrap());
    (*first..=*last).filter(|sequence| !known.made.contains_key(sequence)).count() as u64
}

/// Silences of instances on one machine in which nobody else acted, in milliseconds.
fn gaps(all: &BTreeMap<String, Known>) -> Vec<u64> {
    let mut found = Vec::new();
    for (name, one) in all {
        let ticks: Vec<_> = one.made.iter().map(|(sequence, (at, _))| (*sequence, *at)).collect();
        for pair in ticks.windows(2) {
            let ((before, from), (after, until)) = (pair[0], pair[1]);
            let least =
                Duration::from_millis(until - from) / u32::try_from(after - before).unwrap();
            let others = all.iter().filter(|(other, _)| *other != name);
            let mut others = others.map(|(_, other)| other.made.values().map(|(at, _)| *at));
            let acts = others.any(|times| {
                let times: Vec<_> = times.collect();
                times.iter().min() <= Some(&until) && times.iter().max() >= Some(&from)
            });
            if least > GAP && !acts {
                found.push(until - from);
            }
        }
    }
    found.sort_unstable();
    found
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap()
}

fn found_overlaps(report: &Report) -> Pairs {
    let mut found = Pairs::new();
    for overlap in &report.overlaps {
        let mut pair = [overlap.earlier.instance.clone(), overlap.later.instance.clone()];
        pair.sort();
        let [one, other] = pair;
        assert!(found.insert((one, other), millis(overlap.length)).is_none(), "told once");
    }
    found
}

fn found_tokens_back(
    report: &Report,
    all: &BTreeMap<String, Known>,
) -> BTreeMap<(String, u64, String, u64), u64> {
    let is_shared = |one: &str, other: &str| all[one].machine == all[other].machine;
    let back = report.tokens_back.iter();
    back.filter(|it| is_shared(&it.lower.instance, &it.greater.instance))
        .map(|it| {
            let (lower, greater) = (it.lower.clone(), it.greater.clone());
            ((lower.instance, lower.token, greater.instance, greater.token), millis(it.late_by))
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_judge_agrees_with_whoever_remembers_every_tick(
        lives in prop::collection::vec(life(), 1..5),
    ) {
        let arrivals = arrivals(&lives);
        let all = known(&arrivals);
        let (report, happenings) = judged(&arrivals);
        prop_assert_eq!(found_overlaps(&report), overlaps(&all));
        prop_assert_eq!(found_tokens_back(&report, &all), tokens_back(&all));
        prop_assert_eq!(report.counts.lost, all.values().map(lost).sum::<u64>());
        prop_assert_eq!(report.counts.repeated, all.values().map(|it| it.repeated).sum::<u64>());
        prop_assert_eq!(report.counts.ticks, all.values().map(|it| it.made.len() as u64).sum::<u64>());
        // Each finding is told once, when it is seen first.
        let told = |name: &str| happenings.iter().filter(|it| it.name() == name).count();
        prop_assert_eq!(told("overlap"), report.overlaps.len());
        prop_assert_eq!(told("token_back"), report.tokens_back.len());
    }

    #[test]
    fn gaps_are_those_that_loss_does_not_explain(
        lives in prop::collection::vec(life(), 1..5),
    ) {
        let lives: Vec<_> = lives.into_iter().map(|life| Life { machine: 0, ..life }).collect();
        let arrivals = arrivals(&lives);
        let (report, _) = judged(&arrivals);
        let gaps_of = |hold: &witness::report::HoldReport| {
            let within = hold.gaps.iter().filter(|gap| gap.before.instance == gap.after.instance);
            within.map(|gap| millis(gap.length)).collect::<Vec<_>>()
        };
        let mut found: Vec<_> = report.holds.iter().flat_map(gaps_of).collect();
        found.sort_unstable();
        prop_assert_eq!(found, gaps(&known(&arrivals)));
    }
}
