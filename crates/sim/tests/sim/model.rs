//! What the model says of the lease, and that it would say otherwise of a wrong one.

use std::io::Write as _;

use engine::mutant::{self, Mutant};
use sim::model::{Counterexample, MUTANTS, ModelBounds, explore, replay};

use super::on_two_threads;

/// Each bug of the lease, with the steps by which the model finds it.
const KNOWN: [(Mutant, &[usize]); 8] = [
    (Mutant::ValidityFromReply, &[2, 3, 4, 3, 3, 0, 0, 0, 0, 0, 2, 5, 1, 5, 5, 6, 5, 4]),
    (Mutant::PatienceFromAsking, &[4, 0, 0, 0, 0, 0, 3, 2, 2, 5, 4, 4, 5, 1, 5, 5, 6, 5, 4]),
    (Mutant::PatienceOfOneTtl, &[4, 5, 4, 4, 0, 0, 0, 0, 5, 1, 5, 5, 6, 5, 4]),
    (Mutant::ActFor115Percent, &[4, 5, 4, 4, 0, 0, 0, 0, 0, 5, 1, 5, 5, 6, 5, 4]),
    (Mutant::CreditLastSent, &[4, 5, 4, 4, 0, 0, 0, 0, 0, 3, 3, 3, 3, 5, 1, 4, 4, 5, 4, 3]),
    (Mutant::BuryByName, &[4, 5, 4, 4, 0, 0, 0, 0, 0, 3, 2, 2, 5, 1, 5, 5, 6, 5, 4]),
    (Mutant::ActAfterLapse, &[4, 5, 4, 4, 0, 0, 0, 0, 0, 5, 1, 5, 5, 6, 5, 4]),
    (Mutant::FreeOnResign, &[1, 4, 4, 4, 5, 4]),
];

#[test]
fn the_lease_is_explored_whole_without_a_violation() {
    let explored = on_two_threads(ModelBounds::ALL, |bounds| {
        let explored = explore(bounds).unwrap_or_else(|found| panic!("{found}"));
        println!("{}: {explored:?}", bounds.rates.name);
        assert!(explored.taken_over > 0, "nobody ever took over, so nothing was tried");
        Some(explored.states)
    });
    let states: u64 = explored.into_iter().sum();
    println!("{states} states in all");
    assert!(states >= 1_000_000, "the bounds have become too tight to mean much");
}

#[test]
fn every_lease_mutant_is_found() {
    assert_eq!(KNOWN.map(|(mutant, _)| mutant), MUTANTS);
    for (mutant, choices) in KNOWN {
        mutant::switch(Some(mutant));
        let broken = replay(ModelBounds::NARROW, choices);
        mutant::switch(None);
        if broken.is_none() {
            let found = find(mutant);
            // Not `eprintln!`, of which nothing is seen when a test passes.
            let _closed = writeln!(
                std::io::stderr(),
                "{} is not found by the known steps any more: put {:?} into the table",
                mutant.name(),
                found.choices
            );
        }
        assert_eq!(replay(ModelBounds::NARROW, choices), None, "the right rules break nothing");
    }
}

#[test]
#[ignore = "long: make soak"]
fn every_lease_mutant_is_found_by_exploring() {
    for mutant in MUTANTS {
        let found = find(mutant);
        println!("{}: {} states visited; {found}", mutant.name(), found.states);
    }
}

fn find(mutant: Mutant) -> Counterexample {
    mutant::switch(Some(mutant));
    let explored = explore(ModelBounds::NARROW);
    mutant::switch(None);
    explored.err().unwrap_or_else(|| panic!("{} goes unnoticed", mutant.name()))
}
