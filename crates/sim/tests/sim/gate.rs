//! The mutation gate: every bug put in on purpose is caught, or the simulator is worth nothing.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use engine::mutant::Mutant;
use sim::run::run;
use sim::world::Tracing;

/// Seeds that a bug may survive.
const SEEDS_MAX: u64 = 1_000;

#[test]
fn every_mutant_is_caught() {
    let (next, survivors) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(mutant) = Mutant::LEASE.get(next.fetch_add(1, Ordering::SeqCst)) {
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
        Some(format!("{:<28} {:>4} seeds  {violation}", mutant.name(), seed + 1))
    })
}
