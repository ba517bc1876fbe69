//! Runs that have parts: every promise on fixed seeds, and every bug found.

use std::sync::atomic::{AtomicU64, Ordering};

use engine::mutant::Mutant;
use sim::shard::pick::run;

use super::gate::{self, Known};
use super::on_two_threads;

/// Seeds that every change must pass.
const SEEDS: u64 = 200;
const SEEDS_LONG: u64 = 5_000;

/// Seeds that are tried for a bug whose known seed does not find it any more.
const TRIED: u64 = 60;

/// Each bug, with a seed that is known to catch it.
const KNOWN: [Known; 6] = [
    (Mutant::PositionUnwritten, 0),
    (Mutant::NotPassedOn, 0),
    (Mutant::PartsByName, 0),
    (Mutant::PartEndsApart, 0),
    (Mutant::ChosenUnread, 0),
    (Mutant::FormerLifeKept, 0),
];

/// Tries seeds, and says that something happened in them.
fn all_is_kept(seeds: u64) {
    let (parts, passed, by_others) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let broken = on_two_threads(0..seeds, |seed| {
        let report = run(seed, None);
        parts.fetch_add(report.counts.parts, Ordering::Relaxed);
        passed.fetch_add(report.counts.passed, Ordering::Relaxed);
        by_others.fetch_add(report.counts.by_others, Ordering::Relaxed);
        Some(format!("seed {seed}: {}", report.violation?))
    });
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    let counts = [parts, passed, by_others].map(AtomicU64::into_inner);
    println!("{seeds} seeds: {counts:?} parts, passed on, carried out by others");
    assert!(counts[0] > 40 * seeds && counts[1] > seeds && counts[2] > 0, "{counts:?}");
}

#[test]
fn every_part_is_carried_out_once_by_whose_turn_it_is_on_fixed_seeds() {
    all_is_kept(SEEDS);
}

#[test]
#[ignore = "long: make soak"]
fn every_part_is_carried_out_once_on_many_seeds() {
    all_is_kept(SEEDS_LONG);
}

#[test]
fn every_mutant_of_runs_that_have_parts_is_caught() {
    assert_eq!(KNOWN.map(|(mutant, _)| mutant), Mutant::PICK);
    gate::check(&KNOWN, TRIED, |seed, mutant| run(seed, Some(mutant)).violation);
}
