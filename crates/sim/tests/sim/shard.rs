//! A shard on fixed seeds, the crowd at one second, and the mutants of the shard engine.

use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use engine::mutant::Mutant;
use sim::shard::setting::Setting;
use sim::shard::{run, run_in};
use sim::world::Tracing;

/// Seeds that every change must pass.
const SEEDS: u64 = 1_500;

/// Seeds on which nodes are only restarted.
const ROLLING_SEEDS: u64 = 300;

/// Seeds that a bug may survive.
const SEEDS_MAX: u64 = 4_000;

#[test]
fn every_promise_of_a_shard_is_kept_on_fixed_seeds() {
    let (next, broken) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::SeqCst);
                    if seed >= SEEDS {
                        return;
                    }
                    if let Some(violation) = run(seed, None, Tracing::Off).violation {
                        broken.lock().unwrap().push(format!("seed {seed}: {violation}"));
                    }
                }
            });
        }
    });
    let broken = broken.into_inner().unwrap();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn restarts_of_one_node_after_the_other_double_nothing_and_leave_nothing_unknown() {
    let (mut hand_overs, mut reports) = (0, 0);
    for seed in 0..ROLLING_SEEDS {
        let report = run_in(Setting::of(seed).rolling(), None, Tracing::Off);
        assert_eq!(report.violation, None, "seed {seed}");
        assert_eq!(report.counts.crashes, 0);
        hand_overs += report.counts.hand_overs;
        reports += report.counts.reports;
    }
    assert!(hand_overs > 5 * ROLLING_SEEDS, "{hand_overs} hand-overs");
    assert!(reports > ROLLING_SEEDS, "{reports} attempts were under way meanwhile");
}

#[test]
fn twenty_thousand_triggers_are_due_at_one_second() {
    for seed in 0..2 {
        let report = run_in(Setting::crowded(seed, 20_000), None, Tracing::Off);
        assert_eq!(report.violation, None, "seed {seed}");
        let counts = report.counts;
        assert!(counts.ended > 10_000, "{counts:?}");
        assert!(counts.ended + counts.skipped >= 20_000, "{counts:?}");
    }
}

#[test]
fn every_mutant_of_the_shard_is_caught() {
    let (next, survivors) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(mutant) = Mutant::SHARD.get(next.fetch_add(1, Ordering::SeqCst)) {
                    match caught(*mutant) {
                        Some(how) => println!("{how}"),
                        None => survivors.lock().unwrap().push(mutant.name()),
                    }
                }
            });
        }
    });
    let survivors = survivors.into_inner().unwrap();
    assert!(survivors.is_empty(), "not caught within {SEEDS_MAX} seeds: {survivors:?}");
}

/// By which seed it is caught, and how.
fn caught(mutant: Mutant) -> Option<String> {
    (0..SEEDS_MAX).find_map(|seed| {
        let violation = run(seed, Some(mutant), Tracing::Off).violation?;
        let mut how = format!("{:<28} {:>4} seeds  {violation}", mutant.name(), seed + 1);
        how.truncate(160);
        Some(how)
    })
}

#[test]
fn the_same_seed_gives_the_same_trace_of_a_shard() {
    let here = run(15, None, Tracing::On).trace;
    assert!(here.lines().count() > 500, "seed 15 is about something");
    assert_eq!(here, run(15, None, Tracing::On).trace);
    let args = ["--shard", "--seed", "15", "--trace"];
    let there = Command::new(env!("CARGO_BIN_EXE_sim")).args(args).output().expect("it runs");
    let there = String::from_utf8(there.stdout).expect("a trace is text");
    assert_eq!(there, format!("{here}every promise was kept\n"));
}
