//! Whole servers, on every change: they keep their promises, and would be found out if they did not.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::mutant::Mutant;
use sim::fleet::{FleetReport, Load, run, run_under};
use sim::world::Tracing;

use super::gate::{self, Known};
use super::on_two_threads;

/// Seeds that every change must pass.
const SEEDS: u64 = 80;

/// Bugs that show in whole servers, each with a seed that is known to catch it; the others are for the simulators of
/// leases and of one shard.
const KNOWN: [Known; 12] = [
    (Mutant::ActAfterLapse, 4),
    (Mutant::EarlyAtSuccessor, 422),
    (Mutant::SetBackWithoutCursors, 6),
    (Mutant::HandedOverAndLeft, 0),
    (Mutant::LeavesAfterHandoverBegins, 8),
    (Mutant::RemoteNeverLeft, 8),
    (Mutant::StopWithoutWaiting, 8),
    (Mutant::GuardWithoutChain, 3),
    (Mutant::AtMostOnceResent, 1),
    (Mutant::OpenWithoutRecord, 0),
    (Mutant::UnfinishedForgetsLeft, 1),
    (Mutant::RecomputeInsteadOfOpen, 1),
];

/// Seeds that are tried when the known one does not catch its bug any more, and by `make soak`.
const TRIED: u64 = 80;
const TRIED_LONG: u64 = 500;

#[test]
fn whole_servers_keep_every_promise_on_fixed_seeds() {
    let broken = on_two_threads(0..SEEDS, |seed| {
        let violation = run(seed, None, Tracing::Off).violation?;
        Some(format!("--fleet --seed {seed}: {violation}"))
    });
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

fn violation(seed: u64, mutant: Mutant) -> Option<String> {
    run(seed, Some(mutant), Tracing::Off).violation.map(|violation| violation.to_string())
}

#[test]
fn what_whole_servers_do_wrong_is_noticed() {
    gate::check(&KNOWN, TRIED, violation);
}

#[test]
#[ignore = "long: make soak"]
fn what_whole_servers_do_wrong_is_noticed_by_a_search() {
    gate::search(&KNOWN.map(|(mutant, _)| mutant), TRIED_LONG, violation);
}

/// Seeds with queues that every change must pass.
const QUEUE_SEEDS: u64 = 24;

/// Bugs of queues that show in whole servers. A cookie of before shows there seldom, and in the world of queues often.
const QUEUES_KNOWN: [Known; 6] = [
    (Mutant::NumberOfUnbegunKept, 0),
    (Mutant::NoFreshPeriod, 2),
    (Mutant::CountsTwice, 5),
    (Mutant::AttemptOfDeadAgain, 2),
    (Mutant::TokenForgotten, 24),
    (Mutant::WithdrawnUnsettled, 0),
];

#[test]
fn whole_servers_keep_every_promise_of_queues_on_fixed_seeds() {
    let (stormy, unbegun) = (AtomicU64::new(0), AtomicU64::new(0));
    let wrong = on_two_threads(0..QUEUE_SEEDS, |seed| {
        let FleetReport { violation, counts, .. } =
            run_under(Load::TriggersAndQueues, seed, None, Tracing::Off);
        stormy.fetch_add(counts.stormy, Ordering::Relaxed);
        unbegun.fetch_add(counts.unbegun, Ordering::Relaxed);
        let idle = (counts.stormy < 50).then(|| format!("workers have little to do: {counts:?}"));
        let what = violation.map(|violation| violation.to_string()).or(idle)?;
        Some(format!("--fleet --queues --seed {seed}: {what}"))
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let (stormy, unbegun) = (stormy.into_inner(), unbegun.into_inner());
    println!("{stormy} attempts began while things went wrong, {unbegun} were given and never did");
    assert!(stormy > QUEUE_SEEDS * 150 && unbegun > 0, "{stormy}, {unbegun}");
}

fn violation_of_queues(seed: u64, mutant: Mutant) -> Option<String> {
    let report = run_under(Load::TriggersAndQueues, seed, Some(mutant), Tracing::Off);
    report.violation.map(|violation| violation.to_string())
}

#[test]
fn what_whole_servers_do_wrong_with_queues_is_noticed() {
    gate::check(&QUEUES_KNOWN, TRIED, violation_of_queues);
}

/// Within a moment, those who wait for the same thing may go on in any order: see [`sim::dice::Luck`].
#[test]
fn the_same_seed_gives_the_same_events() {
    for seed in [2, 6, 9] {
        let trace = || run(seed, None, Tracing::On).trace;
        let (first, second) = (trace(), trace());
        let lines = |trace: &str| trace.lines().map(str::to_owned).collect::<BTreeSet<_>>();
        assert!(first.lines().count() > 1_000, "seed {seed} is about something");
        assert_eq!(lines(&first), lines(&second), "seed {seed}");
    }
}
