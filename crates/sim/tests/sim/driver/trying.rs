//! One look and one try: by the rules of a campaign, and without its patience.

use sim::clock::MS;
use store::Class;
use store::election::{Candidacy, Defeat, Holding};
use store::session::SessionEnd;

use super::bench::{Bench, CLAIM, Host, JoinedNode, PATIENCE, PAUSE, T, TRIP, body};
use super::tap::Fault;

fn try_take(
    bench: &Bench,
    mut election: Candidacy,
) -> (Candidacy, Result<Option<Holding>, Defeat>) {
    bench.wait(async move {
        let tried = election.try_take().await;
        (election, tried)
    })
}

fn try_once(bench: &Bench, node: &JoinedNode) -> Option<Holding> {
    try_take(bench, bench.candidate(node)).1.unwrap()
}

fn takes(host: &Host) -> usize {
    host.tap.sent(CLAIM).len()
}

#[test]
fn what_is_free_is_taken_and_what_somebody_has_is_not() {
    let bench = Bench::new();
    let (anna, bert) = (bench.node("anna"), bench.node("bert"));
    bench.run_for(T);
    let begun = bench.now();
    let mut holding = try_once(&bench, &anna).expect("nobody has it");
    assert!(holding.right.permit().is_some() && bench.now() <= begun + 2 * TRIP);
    let begun = bench.now();
    assert!(try_once(&bench, &bert).is_none());
    assert!(bench.now() <= begun + TRIP, "it waits for nothing but one look");
    assert_eq!(takes(&bert.host), 0, "and writes nothing");
    bench.wait(async move { holding.release().await }).unwrap();
    assert!(try_once(&bench, &bert).is_some());
}

#[test]
fn what_names_this_session_is_taken() {
    let bench = Bench::new();
    let (anna, bert) = (bench.node("anna"), bench.node("bert"));
    let mut holding = try_once(&bench, &anna).unwrap();
    let to = bert.session.key().clone();
    bench.wait(async move { holding.hand_over(&to, body(1)).await }).unwrap();
    assert!(try_once(&bench, &anna).is_none(), "it is bert's");
    let holding = try_once(&bench, &bert).unwrap();
    assert_eq!(holding.head().body.as_ref().unwrap().get(), r#"{"id":1}"#);
}

#[test]
fn what_somebody_had_who_is_gone_is_taken_and_before_that_it_is_not() {
    let bench = Bench::new();
    let (anna, bert) = (bench.node("anna"), bench.node("bert"));
    try_once(&bench, &anna).unwrap();
    anna.crash();
    assert!(try_once(&bench, &bert).is_none());
    bench.run_for(PATIENCE + T);
    assert!(!bench.is_there(&anna.session));
    assert!(try_once(&bench, &bert).is_some());
}

#[test]
fn a_holder_that_the_roster_does_not_know_yet_is_looked_for() {
    let bench = Bench::new();
    let bert = bench.node("bert");
    let anna = bench.node("anna");
    try_once(&bench, &anna).unwrap();
    // Whatever bert's last look showed.
    assert!(try_once(&bench, &bert).is_none());
    assert_eq!(takes(&bert.host), 0);
}

#[test]
fn whoever_has_less_than_half_of_its_time_left_takes_nothing() {
    let bench = Bench::new();
    let anna = bench.node("anna");
    bench.run_to_renewal(&anna);
    anna.hang();
    bench.run_for(T / 2 + PAUSE);
    assert!(try_once(&bench, &anna).is_none());
    anna.recover();
    bench.run_to_renewal(&anna);
    bench.run_for(TRIP);
    assert!(try_once(&bench, &anna).is_some());
}

#[test]
fn nothing_is_taken_in_quarantine() {
    let bench = Bench::of_class(Class::B);
    let anna = bench.node("anna");
    assert!(try_once(&bench, &anna).is_none());
    assert_eq!(takes(&anna.host), 0);
    bench.run_for(4 * T);
    assert!(try_once(&bench, &anna).is_some());
}

#[test]
fn a_store_that_does_not_answer_gives_nothing_and_a_take_that_was_done_is_found() {
    let bench = Bench::new();
    let anna = bench.node("anna");
    anna.host.tap.on(CLAIM, [Fault::LoseAnswer]);
    let (election, tried) = try_take(&bench, bench.candidate(&anna));
    assert!(matches!(tried, Ok(None)));
    let (_, tried) = try_take(&bench, election);
    assert!(tried.unwrap().is_some(), "it names this session");

    let bench = Bench::new();
    let anna = bench.node("anna");
    anna.host.cut();
    let begun = bench.now();
    assert!(try_once(&bench, &anna).is_none());
    assert!(bench.now() <= begun + T / 4 + MS, "it waits for one answer");
}

#[test]
fn whose_session_has_ended_is_told() {
    let bench = Bench::new();
    let anna = bench.node("anna");
    let election = bench.candidate(&anna);
    bench.wait(anna.close());
    let tried = try_take(&bench, election).1;
    assert!(matches!(tried, Err(Defeat::Ended(SessionEnd::Closed))));
}

#[test]
fn a_claim_that_cannot_be_read_is_told() {
    let bench = Bench::new();
    let anna = bench.node("anna");
    bench.write(CLAIM, "rubbish");
    let tried = try_take(&bench, bench.candidate(&anna)).1;
    assert!(matches!(tried, Err(Defeat::Corrupt(_))));
}
