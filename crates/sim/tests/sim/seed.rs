//! Seeds on every change, and the same trace from the same seed.

use std::process::Command;

use sim::run::run;
use sim::world::Tracing;

use super::on_two_threads;

/// Seeds that every change must pass.
const SEEDS: u64 = 200;

#[test]
fn every_promise_is_kept_on_fixed_seeds() {
    let broken = on_two_threads(0..SEEDS, |seed| {
        let violation = run(seed, None, Tracing::Off).violation?;
        Some(format!("seed {seed}: {violation}"))
    });
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn the_same_seed_gives_the_same_trace_byte_for_byte() {
    for seed in [3, 5, 7] {
        let first = run(seed, None, Tracing::On).trace;
        assert!(first.lines().count() > 500, "seed {seed} is about something");
        assert_eq!(first, run(seed, None, Tracing::On).trace, "seed {seed}");
    }
}

#[test]
fn another_process_gives_the_same_trace_too() {
    let trace = |seed: &str| {
        let sim =
            Command::new(env!("CARGO_BIN_EXE_sim")).args(["--seed", seed, "--trace"]).output();
        let sim = sim.expect("the simulator runs");
        assert!(sim.status.success());
        String::from_utf8(sim.stdout).expect("a trace is text")
    };
    let there = trace("11");
    assert_eq!(there, trace("11"));
    let here = run(11, None, Tracing::On).trace;
    assert_eq!(there, format!("{here}every promise was kept\n"));
}

#[test]
fn a_broken_promise_names_its_seed_and_how_to_see_it() {
    let args = ["--seeds", "0..4", "--mutant", "act-after-lapse"];
    let sim = Command::new(env!("CARGO_BIN_EXE_sim")).args(args).output().expect("it runs");
    assert_eq!(sim.status.code(), Some(1));
    let said = String::from_utf8(sim.stdout).expect("text");
    assert!(said.contains("seed "), "{said}");
    let hint = said.split("look at the first with ").nth(1).expect("a hint").trim();
    let again = Command::new(env!("CARGO_BIN_EXE_sim")).args(hint.split(' ')).output();
    assert_eq!(again.expect("it runs").status.code(), Some(1), "{hint}");
}

#[test]
fn bad_arguments_are_refused_with_what_would_be_right() {
    for (args, right) in [
        (["--seeds", "7"], "such as 0..200"),
        (["--seeds", "9..3"], "such as 0..200"),
        (["--mutant", "gremlin"], "one of validity-from-reply"),
    ] {
        let sim = Command::new(env!("CARGO_BIN_EXE_sim")).args(args).output().expect("it runs");
        assert_eq!(sim.status.code(), Some(2));
        let said = String::from_utf8(sim.stderr).expect("text");
        assert!(said.contains(right), "{said}");
    }
}
