//! Whole servers, on every change: they keep their promises, and would be found out if they did not.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use engine::mutant::Mutant;
use sim::fleet::run;
use sim::world::Tracing;

/// Seeds that every change must pass.
const SEEDS: u64 = 80;

/// Seeds that a bug may survive.
const SURVIVED_MAX: u64 = 80;

/// Bugs that show in whole servers; the others are for the simulators of leases and of one shard.
const BUGS: [Mutant; 12] = [
    Mutant::ActAfterLapse,
    Mutant::EarlyAtSuccessor,
    Mutant::SetBackWithoutCursors,
    Mutant::HandedOverAndLeft,
    Mutant::LeavesAfterHandoverBegins,
    Mutant::RemoteNeverLeft,
    Mutant::StopWithoutWaiting,
    Mutant::GuardWithoutChain,
    Mutant::AtMostOnceResent,
    Mutant::OpenWithoutRecord,
    Mutant::UnfinishedForgetsLeft,
    Mutant::RecomputeInsteadOfOpen,
];

/// Does something twice at a time.
fn twice(work: impl Fn() + Sync) {
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(&work);
        }
    });
}

#[test]
fn whole_servers_keep_every_promise_on_fixed_seeds() {
    let (next, broken) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    twice(|| {
        loop {
            let seed = next.fetch_add(1, Ordering::SeqCst);
            if seed >= SEEDS {
                return;
            }
            if let Some(violation) = run(seed, None, Tracing::Off).violation {
                broken.lock().unwrap().push(format!("--fleet --seed {seed}: {violation}"));
            }
        }
    });
    let broken = broken.into_inner().unwrap();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn what_whole_servers_do_wrong_is_noticed() {
    let (next, survivors) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    twice(|| {
        while let Some(bug) = BUGS.get(next.fetch_add(1, Ordering::SeqCst)) {
            let caught = |seed: &u64| run(*seed, Some(*bug), Tracing::Off).violation.is_some();
            if (0..SURVIVED_MAX).find(caught).is_none() {
                survivors.lock().unwrap().push(bug.name());
            }
        }
    });
    let survivors = survivors.into_inner().unwrap();
    assert!(survivors.is_empty(), "not caught within {SURVIVED_MAX} seeds: {survivors:?}");
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
