//! Chains: commits in order, each done once or not at all.

use store::chain::ChainError;
use store::claim::ClaimState;
use store::election::{Holding, RightEnd};
use store::{CommitError, Key, Refusal, Version, Write};

use super::bench::{Bench, CLAIM, Host, JoinedNode, PAUSE, T, TRIP, body, datum, within};
use super::tap::{Fault, Sent};

/// Somebody who has the claim, at number 1.
fn holder(bench: &Bench) -> (JoinedNode, Holding) {
    let anna = bench.node("anna");
    let (_, holding) = bench.win(&anna);
    assert_eq!(holding.head().number, 1);
    (anna, holding)
}

type Done = (Holding, Result<Version, ChainError>);

/// Commits, and tells what came of it.
fn commit(bench: &Bench, mut holding: Holding, id: u64) -> Done {
    let writes = datum(&id.to_string(), &holding);
    bench.wait(async move {
        let done = holding.commit(Some(body(id)), writes).await;
        (holding, done)
    })
}

/// Commits, and loses interest right after the commit was sent.
fn commit_and_drop(bench: &Bench, mut holding: Holding, id: u64) -> Holding {
    let (world, writes) = (bench.world.clone(), datum(&id.to_string(), &holding));
    let (holding, dropped) = bench.wait(async move {
        let done = within(&world, 0, holding.commit(Some(body(id)), writes)).await;
        (holding, done.is_none())
    });
    assert!(dropped);
    holding
}

/// The copies that were sent of commits of the chain since it was taken.
fn copies(host: &Host) -> Vec<Sent> {
    host.tap.sent(CLAIM).split_off(1)
}

#[track_caller]
fn check_data(bench: &Bench, ids: &[u64]) {
    for id in 1..=9 {
        let key = Key::new(format!("data/{id}")).unwrap();
        assert_eq!(bench.peek(&key).is_some(), ids.contains(&id), "of {id}");
    }
}

fn stored_body(bench: &Bench) -> Option<String> {
    bench.head()?.body.map(|body| body.get().to_owned())
}

#[test]
fn commits_are_done_in_order_and_numbered() {
    let bench = Bench::new();
    let (_anna, mut holding) = holder(&bench);
    for id in 1..=3 {
        let done;
        (holding, done) = commit(&bench, holding, id);
        let head = bench.head().unwrap();
        assert_eq!(done, Ok(bench.peek(bench.claim.key()).unwrap().version));
        assert_eq!((head.number, head.token), (id + 1, holding.right.token().0));
        assert_eq!(stored_body(&bench), Some(format!(r#"{{"id":{id}}}"#)));
    }
    check_data(&bench, &[1, 2, 3]);
}

#[test]
fn a_commit_whose_answer_is_lost_is_sent_again_unchanged_and_found_done() {
    let bench = Bench::new();
    let (anna, holding) = holder(&bench);
    anna.host.tap.on(CLAIM, [Fault::LoseAnswer]);
    let (holding, done) = commit(&bench, holding, 1);
    let copies = copies(&anna.host);
    assert_eq!(copies.len(), 2);
    assert_eq!(copies[0].commit, copies[1].commit);
    assert!(matches!(copies[1].answer, Some(Err(CommitError::Conflict(_)))));
    assert_eq!(done, Ok(bench.peek(bench.claim.key()).unwrap().version));
    assert_eq!((holding.head().number, bench.head().unwrap().number), (2, 2));
}

#[test]
fn a_commit_that_is_lost_is_sent_again_unchanged_until_it_is_done() {
    let bench = Bench::new();
    let (anna, holding) = holder(&bench);
    anna.host.tap.on(CLAIM, [Fault::lose(), Fault::lose(), Fault::refuse()]);
    let begun = bench.now();
    let (holding, done) = commit(&bench, holding, 1);
    assert!(done.is_ok());
    let copies = copies(&anna.host);
    assert_eq!(copies.len(), 4);
    assert!(copies.iter().all(|copy| copy.commit == copies[0].commit));
    assert!(bench.now() >= begun + 3 * PAUSE, "with a pause between them");
    assert_eq!(holding.head().number, 2);
}

#[test]
fn a_commit_is_waited_for_as_long_as_the_store_is_out_of_reach() {
    let bench = Bench::new();
    let (anna, mut holding) = holder(&bench);
    anna.host.cut();
    let writes = datum("1", &holding);
    let committing = bench.spawn(async move { holding.commit(Some(body(1)), writes).await });
    bench.run_for(10 * T);
    assert!(committing.done_at().is_none());
    anna.host.heal();
    assert!(bench.finish(&committing).is_ok(), "nobody else wanted the claim");
    check_data(&bench, &[1]);
}

#[test]
fn a_commit_that_was_dropped_half_way_is_settled_before_the_next_one() {
    for fault in [Fault::Pass, Fault::LoseAnswer, Fault::lose()] {
        let bench = Bench::new();
        let (anna, holding) = holder(&bench);
        anna.host.tap.on(CLAIM, [fault.clone()]);
        let holding = commit_and_drop(&bench, holding, 1);
        let (holding, done) = commit(&bench, holding, 2);
        assert!(done.is_ok(), "{fault:?}");
        assert_eq!((holding.head().number, bench.head().unwrap().number), (3, 3), "{fault:?}");
        check_data(&bench, &[1, 2]);
        assert_eq!(stored_body(&bench).as_deref(), Some(r#"{"id":2}"#));
    }
}

#[test]
fn a_release_after_a_commit_that_was_dropped_half_way_keeps_what_that_one_wrote() {
    let bench = Bench::new();
    let (_anna, holding) = holder(&bench);
    let (holding, _) = commit(&bench, holding, 1);
    let mut holding = commit_and_drop(&bench, holding, 2);
    bench.wait(async move { holding.release().await }).unwrap();
    check_data(&bench, &[1, 2]);
    let head = bench.head().unwrap();
    assert_eq!((head.session, head.number), (None, 4));
    assert_eq!(stored_body(&bench).as_deref(), Some(r#"{"id":2}"#));
}

#[test]
fn a_late_copy_lands_nowhere() {
    let bench = Bench::new();
    let (anna, holding) = holder(&bench);
    anna.host.tap.on(CLAIM, [Fault::LandLater]);
    let (holding, done) = commit(&bench, holding, 1);
    assert!(done.is_ok());
    let (_holding, done) = commit(&bench, holding, 2);
    assert!(done.is_ok());
    let late = bench.wait(anna.host.tap.clone().land());
    assert!(matches!(late, Some(Err(CommitError::Conflict(_)))), "{late:?}");
    assert_eq!(bench.head().unwrap().number, 3);
}

#[test]
fn after_somebody_else_has_moved_the_head_nothing_more_is_done() {
    let bench = Bench::new();
    let (anna, holding) = holder(&bench);
    let before = bench.peek(bench.claim.key()).unwrap().value;
    bench.write(CLAIM, before.as_bytes());
    let (holding, done) = commit(&bench, holding, 1);
    assert_eq!(done, Err(ChainError::Moved));
    assert!(holding.right.permit().is_none());
    let right = holding.right.clone();
    assert_eq!(bench.wait(async move { right.over().await }), RightEnd::Lost);
    let sent = copies(&anna.host).len();
    let (_holding, done) = commit(&bench, holding, 2);
    assert_eq!(done, Err(ChainError::Moved));
    assert_eq!(copies(&anna.host).len(), sent, "it is not even tried");
    check_data(&bench, &[]);
}

#[test]
fn a_lost_commit_that_finds_the_head_moved_is_never_done() {
    let bench = Bench::new();
    let (anna, mut holding) = holder(&bench);
    anna.host.tap.on(CLAIM, [Fault::LandLater, Fault::lose()]);
    let writes = datum("1", &holding);
    let committing = bench.spawn(async move { holding.commit(Some(body(1)), writes).await });
    bench.run_for(PAUSE / 2);
    let before = bench.peek(bench.claim.key()).unwrap().value;
    bench.write(CLAIM, before.as_bytes());
    assert_eq!(bench.finish(&committing), Err(ChainError::Moved));
    let late = bench.wait(anna.host.tap.clone().land());
    assert!(matches!(late, Some(Err(CommitError::Conflict(_)))), "{late:?}");
    check_data(&bench, &[]);
}

#[test]
fn a_commit_that_is_refused_leaves_the_chain_as_it_was() {
    let bench = Bench::new();
    let (_anna, mut holding) = holder(&bench);
    let max = bench.host("bert").store.limits().writes;
    let writes: Vec<_> =
        (0..max).map(|number| Write::Delete(Key::new(format!("data/{number}")).unwrap())).collect();
    let (holding, refused) = bench.wait(async move {
        let refused = holding.commit(Some(body(1)), writes).await;
        (holding, refused)
    });
    assert_eq!(refused, Err(ChainError::Refused(Refusal::Writes { len: max + 1, max })));
    let (holding, done) = commit(&bench, holding, 2);
    assert!(done.is_ok());
    assert_eq!(holding.head().number, 2);
}

#[test]
fn a_commit_that_was_never_sent_leaves_the_chain_as_it_was() {
    let bench = Bench::new();
    let (anna, holding) = holder(&bench);
    anna.host.tap.on(CLAIM, [Fault::refuse()]);
    let begun = bench.now();
    let (holding, done) = commit(&bench, holding, 1);
    assert_eq!(done, Err(ChainError::NotSent("the script says so".into())));
    assert_eq!(bench.now(), begun, "it is told at once");
    assert!(holding.right.permit().is_some());
    let (holding, done) = commit(&bench, holding, 2);
    assert!(done.is_ok() && bench.now() <= begun + TRIP);
    assert_eq!(holding.head().number, 2);
    check_data(&bench, &[2]);
}

#[test]
fn a_store_that_is_damaged_is_told_as_such() {
    let bench = Bench::new();
    let (anna, holding) = holder(&bench);
    anna.host.tap.on(CLAIM, [Fault::Say(CommitError::Corrupt("a page is torn".into()))]);
    let (_holding, done) = commit(&bench, holding, 1);
    assert_eq!(done, Err(ChainError::Corrupt("a page is torn".into())));
}

#[test]
fn a_chain_that_was_released_writes_nothing() {
    let bench = Bench::new();
    let (anna, mut holding) = holder(&bench);
    let (holding, released) = bench.wait(async move {
        let released = holding.release().await;
        (holding, released)
    });
    assert_eq!(released, Ok(()));
    let (_holding, done) = commit(&bench, holding, 1);
    assert_eq!(done, Err(ChainError::Moved));
    assert_eq!(copies(&anna.host).len(), 1, "it is not even tried");
    check_data(&bench, &[]);
    let head = bench.head().unwrap();
    assert_eq!((head.session, head.state, head.number), (None, ClaimState::Free, 2));
}

#[test]
fn a_chain_whose_release_was_dropped_half_way_writes_nothing_but_that_release() {
    for fault in [Fault::Pass, Fault::LoseAnswer, Fault::lose(), Fault::refuse()] {
        let bench = Bench::new();
        let (anna, mut holding) = holder(&bench);
        anna.host.tap.on(CLAIM, [fault.clone()]);
        let world = bench.world.clone();
        let (holding, dropped) = bench.wait(async move {
            let done = within(&world, 0, holding.release()).await;
            (holding, done.is_none())
        });
        assert!(dropped, "{fault:?}");
        assert!(holding.right.permit().is_none(), "{fault:?}");
        let (mut holding, done) = commit(&bench, holding, 1);
        assert_eq!(done, Err(ChainError::Moved), "{fault:?}");
        assert_eq!(bench.wait(async move { holding.release().await }), Ok(()), "{fault:?}");
        let head = bench.head().unwrap();
        assert_eq!(
            (head.session, head.state, head.number),
            (None, ClaimState::Free, 2),
            "{fault:?}"
        );
        check_data(&bench, &[]);
    }
}
