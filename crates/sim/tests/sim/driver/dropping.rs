//! Several chains in one commit whose author loses interest half way; and whatever else may happen, by
//! chance.

use std::collections::BTreeSet;

use sim::dice::Dice;
use store::chain::{Chain, ChainError, commit_all};
use store::{CommitError, Refusal, Write};

use super::bench::{Bench, PAUSE, T, body, within};
use super::merging::{
    Answers, SHARDS, check_companies, check_done, check_runs, commit, commit_and_drop, copies,
    deletes, fleet, land, own_deletes, piece, run_key, runs, settle, stored, take_over,
};
use super::tap::Fault;

/// All that may happen to a commit whose author has lost interest.
fn fates() -> [Fault; 4] {
    [Fault::Pass, Fault::LoseAnswer, Fault::lose(), Fault::LandLater]
}

#[test]
fn after_a_commit_that_was_dropped_half_way_each_chain_settles_its_own() {
    for fate in fates() {
        let (bench, anna, chains) = fleet(3);
        anna.host.tap.on(SHARDS, [fate.clone()]);
        let mut chains = commit_and_drop(&bench, chains, 1, Vec::new());
        for shard in [2, 0, 1] {
            assert_eq!(settle(&bench, &mut chains, shard), Ok(()), "{fate:?}");
            assert_eq!(chains[shard].head().number, 2, "{fate:?}");
        }
        let late = land(&bench, &anna);
        assert!(matches!(late, None | Some(Err(CommitError::Conflict(_)))), "{fate:?}: {late:?}");
        let (chains, answers) = commit(&bench, chains, 2);
        check_done(&bench, &chains, &answers, 3);
        check_runs(&bench, &[&[1, 2], &[1, 2], &[1, 2]]);
    }
}

#[test]
fn after_a_commit_that_was_dropped_half_way_the_next_one_settles_it_first() {
    for fate in fates() {
        let (bench, anna, chains) = fleet(3);
        anna.host.tap.on(SHARDS, [fate.clone()]);
        let chains = commit_and_drop(&bench, chains, 1, Vec::new());
        let (chains, answers) = commit(&bench, chains, 2);
        check_done(&bench, &chains, &answers, 3);
        check_runs(&bench, &[&[1, 2], &[1, 2], &[1, 2]]);
        let sent = copies(&anna.host, 3);
        assert_eq!(sent[0].commit, sent[1].commit, "{fate:?}");
        check_companies(&anna.host, 3, &[&[0, 1, 2], &[0, 1, 2], &[0, 1, 2]]);
    }
}

#[test]
fn after_a_commit_that_was_dropped_half_way_one_goes_on_and_one_is_released() {
    for fate in fates() {
        let (bench, anna, chains) = fleet(3);
        anna.host.tap.on(SHARDS, [fate.clone()]);
        let mut chains = commit_and_drop(&bench, chains, 1, Vec::new());
        let mut chains = bench.wait(async move {
            chains[0].release().await.unwrap();
            let run = vec![Write::Put(run_key(1, 2), "".into())];
            chains[1].commit(Some(body(2)), run).await.unwrap();
            chains
        });
        assert_eq!(settle(&bench, &mut chains, 2), Ok(()), "{fate:?}");
        let numbers: Vec<_> = (0..3).map(|shard| stored(&bench, shard).0.number).collect();
        assert_eq!(numbers, [3, 3, 2], "{fate:?}");
        assert_eq!(stored(&bench, 0).0.session, None, "{fate:?}");
        let late = land(&bench, &anna);
        assert!(matches!(late, None | Some(Err(CommitError::Conflict(_)))), "{fate:?}: {late:?}");
        check_runs(&bench, &[&[1], &[1, 2], &[1]]);
    }
}

#[test]
fn a_copy_of_a_dropped_commit_that_lands_late_is_found_done_by_each() {
    let (bench, anna, chains) = fleet(2);
    anna.host.tap.on(SHARDS, [Fault::LandLater]);
    let mut chains = commit_and_drop(&bench, chains, 1, Vec::new());
    let landed = land(&bench, &anna).unwrap().unwrap();
    for shard in [1, 0] {
        assert_eq!(settle(&bench, &mut chains, shard), Ok(()));
        assert_eq!((chains[shard].head().number, stored(&bench, shard).1), (2, landed));
    }
}

#[test]
fn of_a_dropped_commit_a_chain_that_was_taken_over_has_moved_and_the_others_have_not() {
    for fate in fates() {
        let (bench, anna, chains) = fleet(3);
        anna.host.tap.on(SHARDS, [fate.clone()]);
        let mut chains = commit_and_drop(&bench, chains, 1, Vec::new());
        bench.run_for(PAUSE);
        take_over(&bench, 1);
        let done = runs(&bench, 1);
        assert_eq!(settle(&bench, &mut chains, 1), Err(ChainError::Moved), "{fate:?}");
        let (chains, answers) = commit(&bench, chains, 2);
        assert_eq!(answers[1], Err(ChainError::Moved), "{fate:?}");
        assert_eq!((chains[0].head().number, chains[2].head().number), (3, 3), "{fate:?}");
        check_runs(&bench, &[&[1, 2], &done, &[1, 2]]);
    }
}

#[test]
fn what_had_not_been_sent_yet_when_interest_was_lost_is_still_in_the_chain() {
    let (bench, anna, chains) = fleet(2);
    let many = anna.host.store.limits().writes / 2;
    anna.host.tap.on(SHARDS, [Fault::lose()]);
    let besides = vec![own_deletes(0, many), own_deletes(1, many)];
    let mut chains = commit_and_drop(&bench, chains, 1, besides);
    check_companies(&anna.host, 2, &[&[0]]);
    assert_eq!(settle(&bench, &mut chains, 1), Ok(()));
    check_runs(&bench, &[&[], &[1]]);
    assert_eq!(settle(&bench, &mut chains, 0), Ok(()));
    check_runs(&bench, &[&[1], &[1]]);
}

#[test]
fn a_refusal_that_nobody_heard_is_told_by_the_next_commit() {
    let (bench, anna, chains) = fleet(2);
    let max = anna.host.store.limits().writes;
    anna.host.tap.on(SHARDS, [Fault::lose()]);
    let chains = commit_and_drop(&bench, chains, 1, vec![(0, deletes(max))]);
    check_companies(&anna.host, 2, &[&[1]]);
    let (chains, answers) = commit(&bench, chains, 2);
    let refused = ChainError::Refused(Refusal::Writes { len: max + 2, max });
    assert_eq!((&answers[0], answers[1].is_ok()), (&Err(refused), true));
    check_runs(&bench, &[&[], &[1, 2]]);
    let (_, answers) = commit(&bench, chains, 3);
    assert!(answers.iter().all(Result::is_ok), "it is told once");
    check_runs(&bench, &[&[3], &[1, 2, 3]]);
}

#[test]
fn a_refusal_that_nobody_heard_does_not_keep_a_chain_from_being_released() {
    let (bench, anna, chains) = fleet(2);
    let max = anna.host.store.limits().writes;
    anna.host.tap.on(SHARDS, [Fault::lose()]);
    let mut chains = commit_and_drop(&bench, chains, 1, vec![(0, deletes(max))]);
    bench.wait(async move { chains[0].release().await }).unwrap();
    assert_eq!((stored(&bench, 0).0.session, runs(&bench, 0)), (None, vec![]));
}

/// One more than fit in a commit.
const SHARD_COUNT: usize = 5;

/// What may happen to a commit, by chance.
fn chance(dice: &mut Dice) -> Fault {
    match dice.between(0, 9) {
        0 => Fault::LoseAnswer,
        1 => Fault::lose(),
        2 | 3 => Fault::LandLater,
        4 => Fault::refuse(),
        5 => Fault::Say(CommitError::Refused(Refusal::Full { place: "here".into() })),
        _ => Fault::Pass,
    }
}

/// Commits for some of the shards, and may lose interest after a while.
fn commit_some(
    bench: &Bench,
    mut chains: Vec<Chain>,
    id: u64,
    dice: &mut Dice,
) -> (Vec<Chain>, Vec<usize>, Option<Answers>) {
    let some: Vec<usize> = (0..chains.len()).filter(|_| dice.chance(70)).collect();
    let patience = if dice.chance(50) { dice.between(0, 3 * PAUSE) } else { 100 * T };
    let (world, chosen) = (bench.world.clone(), some.clone());
    let (chains, answers) = bench.wait(async move {
        let shards = chains.iter_mut().enumerate().filter(|(shard, _)| chosen.contains(shard));
        let pieces = shards.map(|(shard, chain)| piece(shard, chain, id)).collect();
        let answers = within(&world, patience, commit_all(pieces)).await;
        (chains, answers)
    });
    (chains, some, answers)
}

/// Done means done once, refused means never, and after a shard was taken over nothing lands in it.
fn run_by_chance(seed: u64) {
    let mut dice = Dice::new(seed);
    let (bench, anna, mut chains) = fleet(SHARD_COUNT);
    let mut done: Vec<BTreeSet<u64>> = vec![BTreeSet::new(); SHARD_COUNT];
    let mut undone = done.clone();
    let mut taken: Vec<Option<Vec<u64>>> = vec![None; SHARD_COUNT];
    for id in 100..130 {
        let faults: Vec<_> = (0..dice.between(0, 4)).map(|_| chance(&mut dice)).collect();
        anna.host.tap.on(SHARDS, faults);
        let (some, answers);
        (chains, some, answers) = commit_some(&bench, chains, id, &mut dice);
        for (shard, answer) in some.into_iter().zip(answers.into_iter().flatten()) {
            match answer {
                Ok(_) => assert!(done[shard].insert(id)),
                Err(ChainError::Moved) => assert!(taken[shard].is_some(), "{seed}: {shard}"),
                // It may be that of an earlier one: nothing was done of this one either.
                Err(_) => assert!(undone[shard].insert(id)),
            }
        }
        if dice.chance(30) {
            land(&bench, &anna);
        }
        if dice.chance(4) {
            let shard = dice.pick(&[0, 1, 2, 3, 4]);
            take_over(&bench, shard);
            taken[shard].get_or_insert(runs(&bench, shard));
        }
    }
    for shard in 0..SHARD_COUNT {
        let settled = settle(&bench, &mut chains, shard);
        while land(&bench, &anna).is_some() {}
        let found = runs(&bench, shard);
        assert!(done[shard].iter().all(|id| found.contains(id)), "{seed}: {shard}");
        assert!(undone[shard].iter().all(|id| !found.contains(id)), "{seed}: {shard}");
        if let Some(before) = &taken[shard] {
            assert_eq!(found, *before, "{seed}: {shard}");
        } else {
            assert_ne!(settled, Err(ChainError::Moved), "{seed}: {shard}");
            let (head, _) = stored(&bench, shard);
            assert_eq!(head.number, 1 + found.len() as u64, "{seed}: {shard}");
            assert_eq!(head.nonce, chains[shard].head().nonce, "{seed}: {shard}");
        }
    }
}

#[test]
fn whatever_happens_each_piece_is_done_once_or_not_at_all() {
    (0..300).for_each(run_by_chance);
}
