//! Opening a session: once, alone, or not at all.

use sim::clock::MS;
use store::session::{SessionError, bury_local};
use store::{CommitError, Condition, Refusal, ScanError};

use super::bench::{Access, BEAT, Bench, PATIENCE, POLL, Plan, T, TRIP, check_between};
use super::tap::Fault;

#[test]
fn a_session_is_created_once_and_then_renewed_at_the_version_of_the_last_renewal() {
    let bench = Bench::new();
    let anna = bench.node("anna");
    bench.run_for(3 * T);
    let key = anna.session.key().key().clone();
    let sent = anna.host.tap.sent("node/");
    assert_eq!(sent[0].commit.when, [Condition::Absent(key.clone())]);
    assert!(sent.len() >= 14, "{} in three leases", sent.len());
    for pair in sent.windows(2) {
        let version = pair[0].answer.clone().unwrap().unwrap();
        assert_eq!(pair[1].commit.when, [Condition::At(key.clone(), version)]);
    }
}

#[test]
fn a_session_is_renewed_every_fifth_of_a_lease() {
    let bench = Bench::new();
    let anna = bench.node("anna");
    bench.run_for(3 * T);
    let sent = anna.host.tap.sent("node/");
    // The first renewal is counted from the answer that the session was made.
    check_between(sent[1].at - sent[0].at, BEAT, BEAT + TRIP);
    for pair in sent[1..].windows(2) {
        check_between(pair[1].at - pair[0].at, BEAT, BEAT + MS / 100);
    }
}

#[test]
fn a_second_live_session_with_the_same_id_is_refused_and_told_of_the_other() {
    let bench = Bench::new();
    let anna = bench.node("anna");
    let begun = bench.now();
    let refused = bench.wait(bench.host("anna").open());
    let why = refused.err().expect("a refusal");
    let expected = format!(
        "another node with the id anna is alive (session {}, at http://anna:7400): stop it, or give this one another id",
        anna.session.key()
    );
    assert_eq!(why.to_string(), expected);
    assert!(bench.now() < begun + 2 * BEAT + 3 * POLL, "it moves twice in two beats");
}

#[test]
fn a_session_that_is_refused_leaves_no_record_behind() {
    let bench = Bench::new();
    let anna = bench.node("anna");
    assert!(bench.wait(bench.host("anna").open()).is_err());
    assert_eq!(bench.sessions(), [anna.session.key().to_string()]);
    bench.run_for(2 * T);
    assert!(anna.session.is_valid(), "and the other one has not noticed");
}

#[test]
fn a_dead_session_with_the_same_id_is_buried_after_its_patience_and_then_the_new_one_opens() {
    let bench = Bench::new();
    let dead = bench.node("anna");
    dead.crash();
    bench.run_for(BEAT);
    let begun = bench.now();
    let anna = bench.node("anna");
    check_between(bench.now(), begun + PATIENCE, begun + PATIENCE + 3 * POLL);
    assert_eq!(bench.sessions(), [anna.session.key().to_string()]);
    assert!(anna.session.is_valid(), "it was renewed while it waited");
}

#[test]
fn a_node_that_restarts_in_time_does_not_wait_for_other_nodes_that_are_dead() {
    let bench = Bench::new();
    bench.node("bert").crash();
    let begun = bench.now();
    bench.node("anna");
    assert!(bench.now() < begun + POLL);
}

#[test]
fn while_it_waits_for_a_former_one_a_session_takes_no_part() {
    let bench = Bench::new();
    bench.node("anna").crash();
    let bert = bench.node("bert");
    let opening = bench.spawn(bench.host("anna").open());
    bench.run_for(T);
    assert!(opening.done_at().is_none());
    assert_eq!(bench.sessions().len(), 3);
    let roster = bert.session.roster().borrow().clone();
    let live: Vec<_> = roster.live().map(|(key, _)| key.node().to_string()).collect();
    assert_eq!(live, ["bert"], "the former one was never more than joining, nor is the new one");
}

#[test]
fn a_creation_that_is_answered_unknown_draws_a_new_incarnation() {
    let bench = Bench::new();
    let host = bench.host("anna");
    host.tap.on("node/", [Fault::lose(), Fault::LandLater]);
    let anna = bench.join(host);
    let mut keys: Vec<_> = anna.host.tap.sent("node/")[..3]
        .iter()
        .map(|sent| sent.commit.then[0].key().to_string())
        .collect();
    assert_eq!(keys[2], anna.session.key().to_string());
    keys.dedup();
    assert_eq!(keys.len(), 3, "each is sent once and never again: {keys:?}");
}

#[test]
fn an_incarnation_that_was_given_up_hinders_nobody_and_is_buried_in_time() {
    let bench = Bench::new();
    let host = bench.host("anna");
    host.tap.on("node/", [Fault::LoseAnswer]);
    let anna = bench.join(host);
    assert!(bench.now() < POLL, "it does not wait for its own ghost");
    assert_eq!(bench.sessions().len(), 2);
    bench.run_for(PATIENCE + 3 * POLL);
    assert_eq!(bench.sessions(), [anna.session.key().to_string()]);
}

#[test]
fn after_five_creations_without_an_answer_the_error_says_so() {
    let bench = Bench::new();
    let host = bench.host("anna");
    host.cut();
    let why = bench.wait(host.open()).err().expect("an error");
    assert_eq!(
        why.to_string(),
        "the store does not answer, try again: it was asked for a session 5 times"
    );
    check_between(bench.now(), T * 5 / 4, T * 5 / 4 + MS);
}

#[track_caller]
fn check_creation(answer: CommitError, expected: &SessionError) {
    let bench = Bench::new();
    let host = bench.host("anna");
    host.tap.on("node/", [Fault::Say(answer)]);
    assert_eq!(bench.wait(host.open()).err().as_ref(), Some(expected));
    assert_eq!(host.tap.sent("node/").len(), 1, "it is not tried again");
}

#[test]
fn why_a_session_is_not_created_is_told_as_the_store_told_it() {
    let text = "such is life".to_owned();
    let full = Refusal::Full { place: "the attic".into() };
    check_creation(
        CommitError::Unavailable(text.clone()),
        &SessionError::Unavailable(text.clone()),
    );
    check_creation(CommitError::Refused(full.clone()), &SessionError::Refused(full));
    check_creation(CommitError::Corrupt(text.clone()), &SessionError::Corrupt(text));
}

#[test]
fn a_store_that_says_it_is_damaged_when_read_gives_no_session() {
    let bench = Bench::new();
    let host = bench.host("anna");
    host.tap.on_scans(ScanError::Corrupt("a page is torn".into()));
    let opening = bench.spawn(host.open());
    bench.run_for(10 * T);
    let opened = opening.take().expect("an answer within ten leases");
    assert_eq!(opened.err(), Some(SessionError::Corrupt("a page is torn".into())));
}

#[test]
fn a_store_that_cannot_be_read_at_all_gives_no_session() {
    let bench = Bench::new();
    let host = bench.host("anna");
    host.tap.on_scans(ScanError::Unavailable("nobody is there".into()));
    let opening = bench.spawn(host.open());
    bench.run_for(10 * T);
    let opened = opening.take().expect("an answer within ten leases");
    assert!(matches!(opened.err(), Some(SessionError::Unavailable(_))));
}

fn exclusive(id: &'static str) -> Plan {
    Plan { access: Access::Exclusive, ..Plan::of(id) }
}

#[test]
fn whoever_opens_an_exclusive_store_buries_the_local_sessions_and_no_others() {
    let bench = Bench::new();
    bench.join(bench.host_with(&exclusive("anna"))).crash();
    bench.join(bench.host_with(&exclusive("carl"))).crash();
    let bert = bench.node("bert");
    let store = bench.host_with(&exclusive("anna")).store;
    assert_eq!(bench.wait(async move { bury_local(&store).await }), Ok(2));
    assert_eq!(bench.sessions(), [bert.session.key().to_string()]);
}

#[test]
fn on_a_store_that_several_share_nobody_is_buried_on_opening() {
    let bench = Bench::new();
    let anna = bench.join(bench.host_with(&exclusive("anna")));
    let store = bench.host("bert").store;
    assert_eq!(bench.wait(async move { bury_local(&store).await }), Ok(0));
    assert!(bench.is_there(&anna.session));
}

#[test]
fn one_late_renewal_of_a_dead_former_session_is_not_taken_for_life() {
    let bench = Bench::new();
    let dead = bench.node("anna");
    bench.run_to_renewal(&dead);
    let key = dead.session.key().key().as_str();
    let before = dead.host.tap.sent(key).len();
    dead.host.tap.on(key, [Fault::LandLater]);
    bench.run_until(bench.now() + T, || dead.host.tap.sent(key).len() > before);
    dead.crash();
    let opening = bench.spawn(bench.host("anna").open());
    bench.run_for(T / 2);
    let late = bench.wait(dead.host.tap.clone().land());
    assert!(matches!(late, Some(Ok(_))), "{late:?}");
    let landed = bench.now();
    let (session, _keeper) = bench.finish(&opening).expect("a session");
    check_between(bench.now(), landed + PATIENCE - TRIP, landed + PATIENCE + 3 * POLL);
    assert!(session.is_valid() && !bench.is_there(&dead.session));
}

#[test]
fn a_former_session_that_moves_twice_is_taken_for_life() {
    let bench = Bench::new();
    let dead = bench.node("anna");
    dead.crash();
    let opening = bench.spawn(bench.host("anna").open());
    bench.run_for(T / 2);
    let key = dead.session.key().key();
    let record = bench.peek(key).unwrap().value;
    bench.write(key.as_str(), record.as_bytes());
    bench.run_for(T / 2);
    assert!(opening.done_at().is_none(), "once is not enough");
    bench.write(key.as_str(), record.as_bytes());
    bench.run_for(2 * POLL);
    let why = opening.take().expect("an answer").err().expect("a refusal");
    assert!(
        matches!(&why, SessionError::AlreadyLive { other, .. } if other == dead.session.key()),
        "{why:?}"
    );
}
