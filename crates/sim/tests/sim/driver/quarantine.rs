//! Stores that may forget: nobody claims and nobody acts until those before have certainly stopped.

use engine::limits::FAILOVER_LAG;
use sim::clock::{MS, TrueTime};
use store::Class;
use store::election::{Candidacy, Holding, RightEnd};
use store::session::SessionEnd;

use super::bench::{Bench, JoinedNode, PAUSE, POLL, Plan, T, TRIP, check_between};
use super::tap::Fault;

/// How long nobody may claim or act: 1.25 times a lease and what a fail-over may lose.
fn quarantine() -> TrueTime {
    (T + u64::try_from(FAILOVER_LAG.as_nanos()).unwrap()) * 5 / 4
}

/// Somebody who holds the claim, for long enough that nothing of it can be lost.
fn holder(bench: &Bench) -> (JoinedNode, Candidacy, Holding) {
    let anna = bench.node("anna");
    let (election, holding) = bench.win(&anna);
    bench.run_for(3 * T);
    assert!(holding.right.permit().is_some());
    (anna, election, holding)
}

#[test]
fn whoever_opens_a_session_takes_nothing_during_the_quarantine() {
    let bench = Bench::of_class(Class::B);
    let anna = bench.node("anna");
    let begun = bench.now();
    bench.win(&anna);
    check_between(bench.now(), begun + quarantine() - TRIP, begun + quarantine() + POLL);
    let sent = anna.host.tap.sent(bench.claim.key().as_str());
    assert_eq!(sent.len(), 1, "and has not tried before");
}

#[test]
fn nobody_is_buried_during_the_quarantine() {
    let bench = Bench::of_class(Class::B);
    let dead = bench.node("anna");
    dead.crash();
    let begun = bench.now();
    let _bert = bench.node("bert");
    bench.run_until(begun + quarantine() - MS, || false);
    assert!(bench.is_there(&dead.session));
    bench.run_for(POLL + 3 * TRIP);
    assert!(!bench.is_there(&dead.session));
}

#[test]
fn after_a_fail_over_the_former_right_is_over_and_never_comes_back() {
    let bench = Bench::of_class(Class::B);
    let (_anna, _election, holding) = holder(&bench);
    let right = holding.right.clone();
    let over = bench.spawn(async move { right.over().await });
    bench.run_for(T);
    bench.sim_store.fail_over(bench.now(), 0, Vec::new());
    let begun = bench.now();
    bench.run_for(POLL + 2 * TRIP);
    assert!(holding.right.permit().is_none(), "from the first answer of the new epoch on");
    assert_eq!(bench.finish(&over), RightEnd::Lost);
    assert!(bench.now() <= begun + 2 * POLL + 2 * TRIP);
    bench.run_for(3 * quarantine());
    assert!(holding.right.permit().is_none());
}

#[test]
fn after_a_fail_over_the_claim_is_taken_anew_under_a_new_token_when_the_quarantine_is_over() {
    for lost in [0, 1_000 * MS] {
        let bench = Bench::of_class(Class::B);
        let (_anna, election, holding) = holder(&bench);
        bench.sim_store.fail_over(bench.now(), lost, Vec::new());
        let begun = bench.now();
        bench.run_for(POLL + 2 * TRIP);
        let (_, anew) = bench.finish(&bench.campaign(election));
        check_between(bench.now(), begun + quarantine(), begun + quarantine() + 2 * POLL);
        assert!(anew.right.token() > holding.right.token());
        assert!(anew.right.permit().is_some());
    }
}

#[test]
fn a_claim_that_was_forgotten_is_taken_again_under_a_token_that_nobody_had() {
    let bench = Bench::of_class(Class::B);
    let (anna, bert) = (bench.node("anna"), bench.node("bert"));
    bench.run_for(2 * quarantine());
    let (_, holding) = bench.win(&anna);
    bench.sim_store.fail_over(bench.now(), 100 * MS, Vec::new());
    assert!(bench.head().is_none(), "it was taken a moment ago");
    bench.run_for(POLL + 2 * TRIP);
    let (_, anew) = bench.win(&bert);
    assert!(holding.right.permit().is_none());
    assert!(anew.right.token() > holding.right.token());
}

#[test]
fn a_session_that_the_store_forgot_is_lost() {
    let bench = Bench::of_class(Class::B);
    let anna = bench.node("anna");
    bench.sim_store.fail_over(bench.now(), 1_000 * MS, Vec::new());
    assert!(!bench.is_there(&anna.session));
    assert_eq!(bench.finish(&anna.keeping), SessionEnd::Lost);
    assert!(!anna.session.is_valid());
}

#[test]
fn renewals_that_the_store_forgot_do_not_end_the_session() {
    let bench = Bench::of_class(Class::B);
    let anna = bench.node("anna");
    bench.run_for(3 * T);
    assert!(bench.sim_store.fail_over(bench.now(), 2_000 * MS, Vec::new()) > 0);
    bench.run_for(3 * T);
    assert!(anna.session.is_valid() && bench.is_there(&anna.session));
}

#[test]
fn a_former_primary_that_still_answers_gives_nobody_a_second_right() {
    let bench = Bench::of_class(Class::B);
    let (anna, bert) = (bench.node("anna"), bench.node("bert"));
    let (_, holding) = bench.win(&anna);
    let waiting = bench.campaign(bench.candidate(&bert));
    bench.run_for(3 * T);
    // Anna goes on talking to the former primary for as long as that may be.
    bench.sim_store.fail_over(bench.now(), 2_000 * MS, vec![0]);
    let begun = bench.now();
    bench.run_for(u64::try_from(FAILOVER_LAG.as_nanos()).unwrap());
    anna.host.cut();
    bench.sim_store.retire();
    let (_, anew) = bench.finish(&waiting);
    assert!(bench.now() >= begun + quarantine());
    assert!(holding.right.permit().is_none() && anew.right.permit().is_some());
}

#[test]
fn a_session_that_cannot_be_read_does_not_prolong_the_quarantine() {
    let bench = Bench::of_class(Class::B);
    bench.write("node/x/1", "rubbish");
    let anna = bench.node("anna");
    let begun = bench.now();
    bench.win(&anna);
    check_between(bench.now(), begun + quarantine() - TRIP, begun + quarantine() + POLL);
}

/// Anna has twice the lease of bert, and holds the claim. Bert's burial of her is late; she is renewed
/// before it lands, and the store fails over and forgets that. Then the burial lands, and anna, who talks
/// to the former primary for as long as that may be, may act on.
fn bury_late(bench: &Bench) -> (JoinedNode, JoinedNode, Holding) {
    let anna = bench.join(bench.host_with(&Plan { ttl: 2 * T, ..Plan::of("anna") }));
    let bert = bench.node("bert");
    let (_, holding) = bench.win(&anna);
    bench.run_to_renewal(&anna);
    let key = anna.session.key().key().clone();
    bert.host.tap.on(key.as_str(), (0..99).map(|_| Fault::LandLater));
    anna.hang();
    bench.run_until(bench.now() + 4 * T, || !bert.host.tap.sent(key.as_str()).is_empty());
    let still = bench.peek(&key).unwrap().version;
    anna.recover();
    let renewed = bench.run_to_renewal(&anna);
    assert!(holding.right.permit().is_some(), "a lapse is no loss");
    bench.sim_store.fail_over(bench.now(), bench.now() - renewed, vec![0]);
    assert_eq!(bench.peek(&key).unwrap().version, still, "the renewal is forgotten");
    let late = bench.wait(bert.host.tap.clone().land());
    assert!(matches!(late, Some(Ok(_))), "{late:?}");
    assert!(holding.right.permit().is_some() && !bench.is_there(&anna.session));
    (anna, bert, holding)
}

#[test]
fn a_late_burial_after_a_fail_over_does_not_shorten_the_quarantine() {
    let bench = Bench::of_class(Class::B);
    let (anna, bert, holding) = bury_late(&bench);
    check_longest_quarantine(&bench, &anna, &bert, &holding);
}

#[test]
fn a_late_burial_after_a_fail_over_does_not_shorten_the_quarantine_of_a_newcomer() {
    let bench = Bench::of_class(Class::B);
    let (anna, _bert, holding) = bury_late(&bench);
    let carl = bench.node("carl");
    check_longest_quarantine(&bench, &anna, &carl, &holding);
}

/// Whoever follows waits until anna has stopped, though it does not see her any more.
#[track_caller]
fn check_longest_quarantine(
    bench: &Bench,
    anna: &JoinedNode,
    next: &JoinedNode,
    holding: &Holding,
) {
    let (begun, lag) = (bench.now(), u64::try_from(FAILOVER_LAG.as_nanos()).unwrap());
    let waiting = bench.campaign(bench.candidate(next));
    bench.run_for(lag - 2 * PAUSE);
    anna.host.cut();
    bench.sim_store.retire();
    let (_, anew) = bench.finish(&waiting);
    let over = begun + (2 * T + lag) * 5 / 4;
    check_between(bench.now(), over - PAUSE, over + 2 * POLL);
    assert!(holding.right.permit().is_none() && anew.right.permit().is_some());
}
