//! The mutation gate: every bug put in on purpose is caught, or the simulator is worth nothing.
//!
//! Beside each bug stands a seed that is known to catch it. When a change of the simulation has made that seed
//! harmless, the first few seeds are tried instead, and the one that catches the bug is printed, to be put into the
//! table. `make soak` looks further, and tells how many seeds each bug survives.

use std::io::Write as _;

use engine::mutant::Mutant;
use sim::run::run;
use sim::world::Tracing;

use super::on_two_threads;

/// A bug, and a seed that is known to catch it.
pub(super) type Known = (Mutant, u64);

/// Seeds that are tried when the known one does not catch its bug any more, and by `make soak`.
const TRIED: u64 = 300;
const TRIED_LONG: u64 = 2_000;

const KNOWN: [Known; 19] = [
    (Mutant::ValidityFromReply, 2),
    (Mutant::PatienceFromAsking, 42),
    (Mutant::PatienceOfOneTtl, 2),
    (Mutant::ActFor115Percent, 2),
    (Mutant::CreditLastSent, 42),
    (Mutant::BuryByName, 20),
    (Mutant::StoreTtl, 3),
    (Mutant::BuryAllOnOpen, 5),
    (Mutant::KeyWithoutIncarnation, 1),
    (Mutant::GuardWithoutChain, 0),
    (Mutant::DecideAnew, 7),
    (Mutant::ActAfterLapse, 0),
    (Mutant::FreeOnResign, 1),
    (Mutant::PatienceThroughOutage, 3),
    (Mutant::NoQuarantineForStarters, 21),
    (Mutant::HandOverToAnybody, 1),
    (Mutant::GoneWhateverTheHead, 1),
    (Mutant::ActWhileHandingOver, 1),
    (Mutant::HandedOverAndLeft, 15),
];

fn violation(seed: u64, mutant: Mutant) -> Option<String> {
    run(seed, Some(mutant), Tracing::Off).violation.map(|violation| violation.to_string())
}

#[test]
fn every_mutant_is_caught() {
    assert_eq!(KNOWN.map(|(mutant, _)| mutant), Mutant::LEASE);
    check(&KNOWN, TRIED, violation);
}

#[test]
#[ignore = "long: make soak"]
fn every_mutant_is_caught_by_a_search() {
    search(&Mutant::LEASE, TRIED_LONG, violation);
}

/// Fails unless each bug is caught, by the seed that is known to or by one of the first few.
pub(super) fn check(
    known: &[Known],
    tried: u64,
    violation: impl Fn(u64, Mutant) -> Option<String> + Sync,
) {
    let survivors = on_two_threads(known, |&(mutant, seed)| {
        if violation(seed, mutant).is_some() {
            return None;
        }
        let Some((found, _)) = first(mutant, tried, &violation) else { return Some(mutant.name()) };
        // Not `eprintln!`, of which nothing is seen when a test passes.
        let _closed = writeln!(
            std::io::stderr(),
            "{} is not caught by seed {seed} any more: put seed {found} into its table",
            mutant.name()
        );
        None
    });
    assert!(survivors.is_empty(), "not caught within {tried} seeds: {survivors:?}");
}

/// Tells how many seeds each bug survives. Fails if one survives all of them.
pub(super) fn search(
    mutants: &[Mutant],
    tried: u64,
    violation: impl Fn(u64, Mutant) -> Option<String> + Sync,
) {
    let survivors = on_two_threads(mutants, |mutant| match first(*mutant, tried, &violation) {
        Some((seed, why)) => {
            println!("{:<28} {:>4} seeds  {why:.120}", mutant.name(), seed + 1);
            None
        }
        None => Some(mutant.name()),
    });
    assert!(survivors.is_empty(), "not caught within {tried} seeds: {survivors:?}");
}

/// The first seed that catches a bug, and what it shows.
fn first(
    mutant: Mutant,
    tried: u64,
    violation: impl Fn(u64, Mutant) -> Option<String>,
) -> Option<(u64, String)> {
    (0..tried).find_map(|seed| Some((seed, violation(seed, mutant)?)))
}
