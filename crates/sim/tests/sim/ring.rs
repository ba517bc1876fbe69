//! Rings, on every change: they keep their promises, and would be found out if they did not.

use std::sync::atomic::{AtomicU64, Ordering};

use engine::mutant::Mutant;
use sim::ring::run;
use sim::world::Tracing;

use super::gate::{self, Known};
use super::on_two_threads;

/// Seeds that every change must pass.
const SEEDS: u64 = 60;

/// Each bug of rings, with a seed that is known to catch it.
const KNOWN: [Known; 10] = [
    (Mutant::TurnToldUnwon, 0),
    (Mutant::TurnOnStaleRead, 0),
    (Mutant::PositionAsIndex, 0),
    (Mutant::SponsorForgets, 0),
    (Mutant::SuccessorSkipsSlot, 0),
    (Mutant::TurnWithoutRoll, 0),
    (Mutant::NoMarkOfLeaver, 0),
    (Mutant::VisitIgnored, 0),
    (Mutant::CursorWithoutGeneration, 0),
    (Mutant::AcceptUnacknowledged, 0),
];

/// Seeds that are tried when the known one does not catch its bug any more, and by `make soak`.
const TRIED: u64 = 60;
const TRIED_LONG: u64 = 400;

fn violation(seed: u64, mutant: Mutant) -> Option<String> {
    run(seed, Some(mutant), Tracing::Off).broken()
}

#[test]
fn rings_keep_every_promise_on_fixed_seeds() {
    let (turns, take_overs) = (AtomicU64::new(0), AtomicU64::new(0));
    let broken = on_two_threads(0..SEEDS, |seed| {
        let report = run(seed, None, Tracing::Off);
        turns.fetch_add(report.counts.turns, Ordering::Relaxed);
        take_overs.fetch_add(report.counts.take_overs, Ordering::Relaxed);
        let broken = report.broken()?;
        Some(format!("--ring --seed {seed} ({}): {broken}", report.setting))
    });
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    let (turns, take_overs) = (turns.into_inner(), take_overs.into_inner());
    println!("{turns} turns, {take_overs} times by another server than before");
    assert!(turns > SEEDS * 50 && take_overs > SEEDS, "{turns}, {take_overs}");
}

#[test]
fn what_rings_do_wrong_is_noticed() {
    assert_eq!(KNOWN.map(|(mutant, _)| mutant), Mutant::RING);
    gate::check(&KNOWN, TRIED, violation);
}

#[test]
#[ignore = "long: make soak"]
fn what_rings_do_wrong_is_noticed_by_a_search() {
    gate::search(&Mutant::RING, TRIED_LONG, violation);
}

#[test]
fn the_same_seed_gives_the_same_rings() {
    let trace = || run(1, None, Tracing::On).trace;
    let (first, second) = (trace(), trace());
    assert!(first.lines().count() > 1_000, "it is about something");
    assert_eq!(first, second);
}
