//! Leaving a candidacy: whoever has left has not got the claim, and does not get it by a late commit.

use store::chain::ChainError;
use store::election::{Candidacy, Right, RightEnd};
use store::{Class, CommitError, Refusal};

use super::bench::{Bench, CLAIM, Hearing, JoinedNode, PAUSE, Plan, T, body, datum, within};
use super::tap::Fault;

/// Campaigns for a while, and gives up.
fn give_up(bench: &Bench, mut election: Candidacy, after: u64) -> Candidacy {
    let world = bench.world.clone();
    let (election, won) = bench.wait(async move {
        let won = within(&world, after, election.campaign()).await;
        (election, won.is_some())
    });
    assert!(!won);
    election
}

fn leave(bench: &Bench, mut election: Candidacy) {
    assert_eq!(bench.wait(async move { election.leave().await }), Ok(()));
}

#[track_caller]
fn check_late_take_misses(bench: &Bench, node: &JoinedNode) {
    let late = bench.wait(node.host.tap.clone().land());
    assert!(matches!(late, Some(Err(CommitError::Conflict(_)))), "the late take landed: {late:?}");
    assert_ne!(bench.holder(), Some(node.session.key().node().to_string()));
}

#[test]
fn whoever_never_tried_to_take_the_claim_leaves_without_a_trace() {
    let bench = Bench::new();
    let (anna, bert) = (bench.node("anna"), bench.node("bert"));
    let (_, holding) = bench.win(&anna);
    let election = give_up(&bench, bench.candidate(&bert), T);
    leave(&bench, election);
    assert_eq!(bert.host.tap.sent(CLAIM).len(), 0);
    assert!(holding.right.permit().is_some());
}

#[test]
fn a_take_that_is_still_on_its_way_misses_after_leaving() {
    let bench = Bench::new();
    let anna = bench.node("anna");
    anna.host.tap.on(CLAIM, [Fault::LandLater]);
    let election = give_up(&bench, bench.candidate(&anna), PAUSE / 2);
    leave(&bench, election);
    check_late_take_misses(&bench, &anna);
}

#[test]
fn a_take_that_was_dropped_half_way_and_lands_before_leaving_is_given_back() {
    let bench = Bench::new();
    let anna = bench.node("anna");
    anna.host.tap.on(CLAIM, [Fault::LoseAnswer]);
    let election = give_up(&bench, bench.candidate(&anna), PAUSE / 2);
    assert_eq!(bench.holder().as_deref(), Some("anna"));
    leave(&bench, election);
    assert_eq!(bench.holder(), None);
}

#[test]
fn leaving_waits_until_the_store_answers() {
    let bench = Bench::new();
    let anna = bench.node("anna");
    anna.host.tap.on(CLAIM, [Fault::LandLater]);
    let mut election = give_up(&bench, bench.candidate(&anna), PAUSE / 2);
    anna.host.cut();
    let leaving = bench.spawn(async move { election.leave().await });
    bench.run_for(3 * T);
    assert!(leaving.done_at().is_none());
    anna.host.heal();
    assert_eq!(bench.finish(&leaving), Ok(()));
    check_late_take_misses(&bench, &anna);
}

#[test]
fn leaving_is_done_when_the_session_has_ended() {
    let bench = Bench::new();
    let anna = bench.node("anna");
    anna.host.tap.on(CLAIM, [Fault::LandLater]);
    let election = give_up(&bench, bench.candidate(&anna), PAUSE / 2);
    bench.wait(anna.close());
    leave(&bench, election);
    check_late_take_misses(&bench, &anna);
}

#[test]
fn a_take_that_is_still_on_its_way_misses_though_the_next_one_was_refused() {
    let bench = Bench::new();
    let anna = bench.node("anna");
    let full = CommitError::Refused(Refusal::Full { place: "the attic".into() });
    anna.host.tap.on(CLAIM, [Fault::LandLater, Fault::Say(full)]);
    let election = give_up(&bench, bench.candidate(&anna), PAUSE * 3 / 2);
    assert_eq!(anna.host.tap.sent(CLAIM).len(), 2);
    leave(&bench, election);
    check_late_take_misses(&bench, &anna);
}

#[test]
fn a_take_that_is_still_on_its_way_misses_though_a_quarantine_has_begun() {
    let bench = Bench::of_class(Class::B);
    let anna = bench.node("anna");
    bench.run_for(10 * T);
    anna.host.tap.on(CLAIM, [Fault::LandLater]);
    let election = give_up(&bench, bench.candidate(&anna), PAUSE / 2);
    bench.sim_store.fail_over(bench.now(), 0, Vec::new());
    let election = give_up(&bench, election, T);
    leave(&bench, election);
    check_late_take_misses(&bench, &anna);
}

/// Anna comes between two looks of bert's. If he takes her for gone, and sends a take that cannot succeed
/// as long as she is there, that one is late.
fn overlooked(bench: &Bench) -> (JoinedNode, JoinedNode) {
    let deaf = |id| bench.host_with(&Plan { hints: Hearing::Deaf, ..Plan::of(id) });
    let bert = bench.join(deaf("bert"));
    let anna = bench.join(deaf("anna"));
    bert.host.tap.on(CLAIM, [Fault::LandLater]);
    (anna, bert)
}

#[test]
fn leaving_does_not_move_the_head_of_somebody_who_holds_the_claim() {
    let bench = Bench::new();
    let (anna, bert) = overlooked(&bench);
    let (_, mut holding) = bench.win(&anna);
    let election = give_up(&bench, bench.candidate(&bert), PAUSE / 2);
    leave(&bench, election);
    let writes = datum("1", &holding);
    let (holding, done) = bench.wait(async move {
        let done = holding.commit(Some(body(1)), writes).await;
        (holding, done)
    });
    assert!(done.is_ok(), "{done:?}");
    let right = holding.right.clone();
    let over = bench.spawn(async move { right.over().await });
    bench.run_for(T);
    assert_ne!(over.take(), Some(RightEnd::Lost));
}

#[test]
fn a_take_that_is_still_on_its_way_misses_though_the_next_one_met_a_conflict() {
    let bench = Bench::new();
    let (anna, bert) = overlooked(&bench);
    let _held = bench.win(&anna);
    // A second try would be made before bert has looked at the sessions again; then he knows of her.
    let election = give_up(&bench, bench.candidate(&bert), T);
    leave(&bench, election);
    bench.wait(anna.close());
    let late = bench.wait(bert.host.tap.clone().land());
    assert!(!matches!(late, Some(Ok(_))), "the late take landed: {late:?}");
}

/// Commits, and gives everything up while the commit is still on its way.
fn commit_and_drop(bench: &Bench, node: &JoinedNode) -> (Candidacy, Right) {
    let (election, mut holding) = bench.win(node);
    node.host.tap.on(CLAIM, [Fault::LandLater]);
    let (world, writes) = (bench.world.clone(), datum("1", &holding));
    let right = holding.right.clone();
    let done = bench.wait(async move {
        within(&world, PAUSE / 2, holding.commit(Some(body(1)), writes)).await.is_some()
    });
    assert!(!done);
    (election, right)
}

#[track_caller]
fn check_late_commit_misses(bench: &Bench, node: &JoinedNode) {
    let late = bench.wait(node.host.tap.clone().land());
    assert!(matches!(late, Some(Err(CommitError::Conflict(_)))), "{late:?}");
}

#[test]
fn a_commit_that_lands_while_its_holder_leaves_does_not_keep_the_claim() {
    let bench = Bench::new();
    let anna = bench.node("anna");
    let (mut election, _) = commit_and_drop(&bench, &anna);
    // It lands after leaving has looked, and before the release does.
    anna.host.tap.on(CLAIM, [Fault::LandLater]);
    let before = anna.host.tap.sent(CLAIM).len();
    let leaving = bench.spawn(async move { election.leave().await });
    bench.run_until(bench.now() + T, || anna.host.tap.sent(CLAIM).len() > before);
    let late = bench.wait(anna.host.tap.clone().land());
    assert!(matches!(late, Some(Ok(_))), "{late:?}");
    check_late_commit_misses(&bench, &anna);
    assert_eq!(bench.finish(&leaving), Ok(()));
    assert_eq!(bench.holder(), None);
    let kept = bench.head().unwrap().body.map(|body| body.get().to_owned());
    assert_eq!(kept.as_deref(), Some(r#"{"id":1}"#), "and what it wrote is kept");
}

#[test]
fn a_commit_that_is_still_on_its_way_misses_after_leaving() {
    let bench = Bench::new();
    let anna = bench.node("anna");
    let (election, _) = commit_and_drop(&bench, &anna);
    leave(&bench, election);
    check_late_commit_misses(&bench, &anna);
    assert_eq!(bench.holder(), None);
}

#[test]
fn whoever_has_left_has_no_permit_any_more() {
    let bench = Bench::new();
    let anna = bench.node("anna");
    let (election, right) = commit_and_drop(&bench, &anna);
    leave(&bench, election);
    assert!(right.permit().is_none());
}

#[test]
fn leaving_ends_though_the_claim_cannot_be_read() {
    let bench = Bench::new();
    let anna = bench.node("anna");
    let mut election = bench.candidate(&anna);
    bench.write(CLAIM, "rubbish");
    let left = bench.wait(async move { election.leave().await });
    assert!(matches!(left, Err(ChainError::Corrupt(_))), "{left:?}");
    assert!(anna.session.is_valid());
}
