//! What the model says of the lease, and that it would say otherwise of a wrong one.

use engine::mutant;
use sim::model::{Bounds, MUTANTS, explore};

#[test]
fn the_lease_is_explored_whole_without_a_violation() {
    let mut states = 0;
    for bounds in Bounds::ALL {
        let explored = explore(bounds).unwrap_or_else(|found| panic!("{found}"));
        println!("{}: {explored:?}", bounds.rates.name);
        assert!(explored.taken_over > 0, "nobody ever took over, so nothing was tried");
        states += explored.states;
    }
    println!("{states} states in all");
    assert!(states >= 1_000_000, "the bounds have become too tight to mean much");
}

#[test]
fn every_lease_mutant_is_found() {
    for mutant in MUTANTS {
        mutant::switch(Some(mutant));
        let explored = explore(Bounds::NARROW);
        mutant::switch(None);
        let Err(found) = explored else { panic!("{} goes unnoticed", mutant.name()) };
        println!("{}: {} states visited; {found}", mutant.name(), found.states);
    }
}
