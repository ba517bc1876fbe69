//! Programs that are held, on every change: they keep their promises, and would be found out if they did not.

use std::sync::atomic::{AtomicU64, Ordering};

use engine::mutant::Mutant;
use sim::hold::ancestor::Ancestor;
use sim::hold::{run, run_ancestor};
use sim::world::Tracing;

use super::gate::{self, Known};
use super::on_two_threads;

/// Seeds that every change must pass.
const SEEDS: u64 = 200;

/// Each bug of holds, with a seed that is known to catch it.
const KNOWN: [Known; 5] = [
    (Mutant::StartWithoutMargin, 0),
    (Mutant::ReleaseBeforeEmpty, 3),
    (Mutant::HoldValidityFromReply, 18),
    (Mutant::KillAt115Percent, 3),
    (Mutant::LeftoversIgnored, 4),
];

/// Seeds that are tried when the known one does not catch its bug any more, and by `make soak`.
const TRIED: u64 = 100;
const TRIED_LONG: u64 = 500;

#[test]
fn holds_keep_every_promise_on_fixed_seeds() {
    let (starts, unconfirmed) = (AtomicU64::new(0), AtomicU64::new(0));
    let broken = on_two_threads(0..SEEDS, |seed| {
        let report = run(seed, None, Tracing::Off);
        starts.fetch_add(report.counts.starts, Ordering::Relaxed);
        unconfirmed.fetch_add(report.counts.unconfirmed, Ordering::Relaxed);
        let broken = report.broken()?;
        Some(format!("--hold --seed {seed}: {broken}"))
    });
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    let (starts, unconfirmed) = (starts.into_inner(), unconfirmed.into_inner());
    println!("{starts} starts, {unconfirmed} programs ended because nothing was confirmed");
    assert!(starts > SEEDS * 10 && unconfirmed > SEEDS, "{starts}, {unconfirmed}");
}

fn violation(seed: u64, mutant: Mutant) -> Option<String> {
    run(seed, Some(mutant), Tracing::Off).broken()
}

#[test]
fn what_holds_do_wrong_is_noticed() {
    assert_eq!(KNOWN.map(|(mutant, _)| mutant), Mutant::HOLD);
    gate::check(&KNOWN, TRIED, violation);
}

#[test]
#[ignore = "long: make soak"]
fn what_holds_do_wrong_is_noticed_by_a_search() {
    gate::search(&Mutant::HOLD, TRIED_LONG, violation);
}

#[test]
fn the_same_seed_gives_the_same_holds() {
    for seed in [1, 5] {
        let trace = || run(seed, None, Tracing::On).trace;
        let (first, second) = (trace(), trace());
        assert!(first.lines().count() > 1_000, "seed {seed} is about something");
        assert_eq!(first, second, "seed {seed}");
    }
}

/// The faults are such that they matter: what has no guard is caught by them.
#[test]
fn two_execute_at_once_where_ancestors_hold() {
    for ancestor in [Ancestor::SingleExecutor, Ancestor::RedisLeader] {
        let overlaps: u64 =
            (0..5).map(|seed| run_ancestor(seed, ancestor, Tracing::Off).counts.overlaps).sum();
        assert!(overlaps > 0, "{ancestor:?}");
    }
}
