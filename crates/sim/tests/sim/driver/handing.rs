//! Hand-overs: a claim goes to the session that it is meant for, once or not at all.

use store::chain::ChainError;
use store::claim::ClaimState;
use store::election::{Holding, RightEnd};
use store::session::SessionKey;
use store::{CommitError, Condition, Refusal, Version, Write};

use super::bench::{Bench, CLAIM, Host, JoinedNode, PAUSE, T, TRIP, Task, body, datum, within};
use super::tap::{Fault, Sent};

type Done = (Holding, Result<Version, ChainError>);

/// Somebody who has the claim, at number 1, and somebody else.
fn pair(bench: &Bench) -> (JoinedNode, Holding, JoinedNode) {
    let (anna, bert) = (bench.node("anna"), bench.node("bert"));
    let (_, holding) = bench.win(&anna);
    (anna, holding, bert)
}

fn begin(bench: &Bench, mut holding: Holding, to: &JoinedNode, id: u64) -> Task<Done> {
    let to = to.session.key().clone();
    bench.spawn(async move {
        let done = holding.hand_over(&to, body(id)).await;
        (holding, done)
    })
}

fn hand_over(bench: &Bench, holding: Holding, to: &JoinedNode, id: u64) -> Done {
    bench.finish(&begin(bench, holding, to, id))
}

/// Hands over, and loses interest right after the commit was sent.
fn hand_over_and_drop(bench: &Bench, mut holding: Holding, to: &JoinedNode, id: u64) -> Holding {
    let (world, to) = (bench.world.clone(), to.session.key().clone());
    let (holding, dropped) = bench.wait(async move {
        let done = within(&world, 0, holding.hand_over(&to, body(id))).await;
        (holding, done.is_none())
    });
    assert!(dropped);
    holding
}

fn commit(bench: &Bench, mut holding: Holding, id: u64) -> Done {
    let writes = datum(&id.to_string(), &holding);
    bench.wait(async move {
        let done = holding.commit(Some(body(id)), writes).await;
        (holding, done)
    })
}

fn release(bench: &Bench, mut holding: Holding) -> Result<(), ChainError> {
    bench.wait(async move { holding.release().await })
}

/// The copies that were sent of commits of the chain since it was taken.
fn copies(host: &Host) -> Vec<Sent> {
    host.tap.sent(CLAIM).split_off(1)
}

/// Whose the claim is, at which number, and with which body.
#[track_caller]
fn check_head(bench: &Bench, holder: &JoinedNode, number: u64, id: Option<u64>) {
    let head = bench.head().unwrap();
    assert_eq!((head.session.as_ref(), head.number), (Some(holder.session.key()), number));
    assert_eq!(head.state, ClaimState::Held);
    let body = head.body.map(|body| body.get().to_owned());
    assert_eq!(body, id.map(|id| format!(r#"{{"id":{id}}}"#)));
}

fn version(bench: &Bench) -> Version {
    bench.peek(bench.claim.key()).unwrap().version
}

fn close(bench: &Bench, node: &JoinedNode) {
    bench.wait(node.close());
    assert!(!bench.is_there(&node.session));
}

#[track_caller]
fn check_lands_nowhere(bench: &Bench, node: &JoinedNode) {
    let late = bench.wait(node.host.tap.clone().land());
    assert!(matches!(late, Some(Err(CommitError::Conflict(_)))), "{late:?}");
}

#[test]
fn a_claim_is_handed_over_in_one_commit_and_served_at_once() {
    let bench = Bench::new();
    let (anna, holding, bert) = pair(&bench);
    let campaign = bench.campaign(bench.candidate(&bert));
    bench.run_for(T);
    let (right, before, begun) = (holding.right.clone(), version(&bench), bench.now());
    let (_holding, done) = hand_over(&bench, holding, &bert, 7);
    assert!(done.is_ok() && bench.now() <= begun + TRIP);
    let sent = copies(&anna.host);
    assert_eq!(sent.len(), 1);
    let there = Condition::Present(bert.session.key().key().clone());
    assert_eq!(sent[0].commit.when, [Condition::At(bench.claim.key().clone(), before), there]);
    let token = match &sent[0].commit.then[..] {
        [Write::Put(key, value)] if key == bench.claim.key() => {
            let head = store::claim::Head::from_value(value).unwrap();
            assert_eq!(head.session.as_ref(), Some(bert.session.key()));
            head.token()
        }
        other => panic!("{other:?}"),
    };
    assert!(token > right.token());
    assert!(right.permit().is_none());

    let (_, won) = bench.finish(&campaign);
    assert!(bench.now() <= begun + TRIP + PAUSE + 3 * TRIP, "it hears of it");
    assert!(won.right.token() > token && won.right.permit().is_some());
    check_head(&bench, &bert, 3, Some(7));
}

#[test]
fn from_the_call_on_there_is_no_permit_whatever_comes_of_it() {
    let bench = Bench::new();
    let (anna, holding, bert) = pair(&bench);
    let right = holding.right.clone();
    assert!(right.permit().is_some());
    anna.host.cut();
    let handing = begin(&bench, holding, &bert, 1);
    bench.run_for(PAUSE);
    assert!(handing.done_at().is_none() && right.permit().is_none());
    let over = right.clone();
    assert_eq!(bench.wait(async move { over.over().await }), RightEnd::Released);
    anna.host.heal();
    assert!(bench.finish(&handing).1.is_ok());
    assert!(right.permit().is_none());
}

#[test]
fn a_hand_over_is_sent_again_unchanged_until_it_is_done() {
    for (faults, sent) in [
        (vec![Fault::LoseAnswer], 2),
        (vec![Fault::lose(), Fault::lose(), Fault::refuse()], 4),
        (vec![Fault::LandLater], 2),
    ] {
        let bench = Bench::new();
        let (anna, holding, bert) = pair(&bench);
        anna.host.tap.on(CLAIM, faults.clone());
        let (_holding, done) = hand_over(&bench, holding, &bert, 1);
        assert_eq!(done, Ok(version(&bench)), "{faults:?}");
        let copies = copies(&anna.host);
        assert_eq!(copies.len(), sent, "{faults:?}");
        assert!(copies.iter().all(|copy| copy.commit == copies[0].commit), "{faults:?}");
        check_head(&bench, &bert, 2, Some(1));
    }
}

#[test]
fn a_hand_over_is_waited_for_as_long_as_the_store_is_out_of_reach() {
    let bench = Bench::new();
    let (anna, holding, bert) = pair(&bench);
    anna.host.cut();
    let handing = begin(&bench, holding, &bert, 1);
    bench.run_for(10 * T);
    assert!(handing.done_at().is_none());
    anna.host.heal();
    assert!(bench.finish(&handing).1.is_ok(), "nobody else wanted the claim");
    check_head(&bench, &bert, 2, Some(1));
}

#[test]
fn what_was_open_is_settled_first() {
    for fault in [Fault::Pass, Fault::LoseAnswer, Fault::lose()] {
        let bench = Bench::new();
        let (anna, mut holding, bert) = pair(&bench);
        anna.host.tap.on(CLAIM, [fault.clone()]);
        let (world, writes) = (bench.world.clone(), datum("1", &holding));
        let holding = bench.wait(async move {
            assert!(within(&world, 0, holding.commit(Some(body(1)), writes)).await.is_none());
            holding
        });
        let (_holding, done) = hand_over(&bench, holding, &bert, 2);
        assert!(done.is_ok(), "{fault:?}");
        check_head(&bench, &bert, 3, Some(2));
        assert!(bench.peek(&store::Key::new("data/1").unwrap()).is_some(), "{fault:?}");
    }
}

#[test]
fn when_the_successor_is_gone_the_claim_is_still_this_nodes_and_is_taken_anew() {
    let bench = Bench::new();
    let (anna, holding, bert) = pair(&bench);
    close(&bench, &bert);
    let former = holding.right.token();
    let (holding, done) = hand_over(&bench, holding, &bert, 1);
    assert_eq!(done, Err(ChainError::Gone));
    check_head(&bench, &anna, 1, None);
    let (holding, done) = commit(&bench, holding, 2);
    assert_eq!(done, Err(ChainError::Moved), "it had begun to leave");
    assert!(holding.right.permit().is_none());

    let (_, anew) = bench.win(&anna);
    assert!(anew.right.token() > former && anew.right.permit().is_some());
    assert!(holding.right.permit().is_none(), "the right of before is over");
    let (_holding, done) = commit(&bench, anew, 3);
    assert!(done.is_ok());
}

#[test]
fn when_the_successor_is_gone_somebody_else_can_have_it_or_nobody() {
    let bench = Bench::new();
    let (_anna, holding, bert) = pair(&bench);
    let carl = bench.node("carl");
    close(&bench, &bert);
    let (holding, done) = hand_over(&bench, holding, &bert, 1);
    assert_eq!(done, Err(ChainError::Gone));
    let (_holding, done) = hand_over(&bench, holding, &carl, 2);
    assert!(done.is_ok());
    check_head(&bench, &carl, 2, Some(2));

    let bench = Bench::new();
    let (_anna, holding, bert) = pair(&bench);
    close(&bench, &bert);
    let (holding, _) = hand_over(&bench, holding, &bert, 1);
    assert_eq!(release(&bench, holding), Ok(()));
    assert_eq!(bench.holder(), None);
}

#[test]
fn a_copy_that_lands_late_after_the_successor_died_lands_nowhere() {
    let bench = Bench::new();
    let (anna, holding, bert) = pair(&bench);
    anna.host.tap.on(CLAIM, [Fault::LandLater, Fault::LandLater]);
    let handing = begin(&bench, holding, &bert, 1);
    bench.run_for(PAUSE * 3 / 2);
    close(&bench, &bert);
    assert_eq!(bench.finish(&handing).1, Err(ChainError::Gone));
    check_lands_nowhere(&bench, &anna);
    let (_, anew) = bench.win(&anna);
    check_lands_nowhere(&bench, &anna);
    assert!(anew.right.permit().is_some());
    check_head(&bench, &anna, 2, None);
}

#[test]
fn a_copy_that_landed_before_the_successor_died_is_found_done() {
    for fault in [Fault::LoseAnswer, Fault::LandLater] {
        let bench = Bench::new();
        let (anna, holding, bert) = pair(&bench);
        anna.host.tap.on(CLAIM, [fault.clone(), Fault::lose()]);
        let handing = begin(&bench, holding, &bert, 1);
        bench.run_for(PAUSE / 2);
        // It does nothing if it was there already.
        bench.wait(anna.host.tap.clone().land());
        close(&bench, &bert);
        assert_eq!(bench.finish(&handing).1, Ok(version(&bench)), "{fault:?}");
        check_head(&bench, &bert, 2, Some(1));
        let (_, anew) = bench.win(&anna);
        assert!(anew.right.permit().is_some(), "whose session is absent has nothing");
    }
}

#[test]
fn a_successor_that_has_taken_it_and_gone_is_not_called_gone() {
    let bench = Bench::new();
    let (anna, holding, bert) = pair(&bench);
    anna.host.tap.on(CLAIM, [Fault::LoseAnswer, Fault::lose()]);
    let handing = begin(&bench, holding, &bert, 1);
    bench.run_for(PAUSE / 2);
    let (_, won) = bench.win(&bert);
    assert!(won.right.permit().is_some());
    close(&bench, &bert);
    assert_eq!(bench.finish(&handing).1, Err(ChainError::Moved), "it acted under it");
}

#[test]
fn when_the_head_was_moved_by_somebody_else_nothing_is_handed_over() {
    let bench = Bench::new();
    let (anna, holding, bert) = pair(&bench);
    anna.host.tap.on(CLAIM, [Fault::LandLater, Fault::lose()]);
    let handing = begin(&bench, holding, &bert, 1);
    bench.run_for(PAUSE / 2);
    let before = bench.peek(bench.claim.key()).unwrap().value;
    bench.write(CLAIM, before.as_bytes());
    assert_eq!(bench.finish(&handing).1, Err(ChainError::Moved));
    check_lands_nowhere(&bench, &anna);
    check_head(&bench, &anna, 1, None);
}

#[test]
fn a_hand_over_that_was_never_sent_or_was_refused_may_be_tried_again() {
    let full = Refusal::Full { place: "here".into() };
    for (fault, why) in [
        (Fault::refuse(), ChainError::NotSent("the script says so".into())),
        (Fault::Say(CommitError::Refused(full.clone())), ChainError::Refused(full)),
    ] {
        let bench = Bench::new();
        let (anna, holding, bert) = pair(&bench);
        anna.host.tap.on(CLAIM, [fault]);
        let (holding, done) = hand_over(&bench, holding, &bert, 1);
        assert_eq!(done, Err(why));
        assert!(holding.right.permit().is_none());
        let (holding, done) = commit(&bench, holding, 2);
        assert_eq!(done, Err(ChainError::Moved));
        let (_holding, done) = hand_over(&bench, holding, &bert, 3);
        assert!(done.is_ok());
        check_head(&bench, &bert, 2, Some(3));
    }
}

#[test]
fn what_was_handed_over_is_the_successors() {
    let bench = Bench::new();
    let (anna, holding, bert) = pair(&bench);
    let carl = bench.node("carl");
    let (holding, done) = hand_over(&bench, holding, &bert, 1);
    assert!(done.is_ok());
    let sent = copies(&anna.host).len();
    let (holding, done) = commit(&bench, holding, 2);
    assert_eq!(done, Err(ChainError::Moved));
    let (holding, done) = hand_over(&bench, holding, &carl, 3);
    assert_eq!(done, Err(ChainError::Moved));
    assert_eq!(release(&bench, holding), Err(ChainError::Moved));
    assert_eq!(copies(&anna.host).len(), sent, "it is not even tried");
    check_head(&bench, &bert, 2, Some(1));
}

#[test]
fn a_hand_over_that_was_dropped_half_way_is_settled_by_the_next_one() {
    for fault in [Fault::Pass, Fault::LoseAnswer, Fault::lose()] {
        let bench = Bench::new();
        let (anna, holding, bert) = pair(&bench);
        let carl = bench.node("carl");
        anna.host.tap.on(CLAIM, [fault.clone()]);
        let holding = hand_over_and_drop(&bench, holding, &bert, 1);
        assert!(holding.right.permit().is_none(), "{fault:?}");
        let (holding, done) = hand_over(&bench, holding, &bert, 2);
        assert_eq!(done, Ok(version(&bench)), "{fault:?}");
        let (_holding, done) = hand_over(&bench, holding, &carl, 3);
        assert_eq!(done, Err(ChainError::Moved), "{fault:?}");
        check_head(&bench, &bert, 2, Some(1));
    }
}

#[test]
fn a_hand_over_that_was_dropped_before_anything_was_sent_is_begun_all_the_same() {
    let bench = Bench::new();
    let (anna, mut holding, bert) = pair(&bench);
    anna.host.tap.on(CLAIM, [Fault::lose()]);
    let (world, writes) = (bench.world.clone(), datum("1", &holding));
    let holding = bench.wait(async move {
        assert!(within(&world, 0, holding.commit(Some(body(1)), writes)).await.is_none());
        holding
    });
    // It settles that commit first.
    let holding = hand_over_and_drop(&bench, holding, &bert, 2);
    assert!(holding.right.permit().is_none());
    let (holding, done) = commit(&bench, holding, 3);
    assert_eq!(done, Err(ChainError::Moved));
    let (_holding, done) = hand_over(&bench, holding, &bert, 4);
    assert!(done.is_ok());
    check_head(&bench, &bert, 3, Some(4));
}

#[test]
fn to_and_fro_each_stay_has_its_own_right() {
    let bench = Bench::new();
    let (anna, holding, bert) = pair(&bench);
    let first = holding.right.clone();
    let (_, done) = hand_over(&bench, holding, &bert, 1);
    assert!(done.is_ok());
    let (_, holding) = bench.win(&bert);
    let (_, done) = hand_over(&bench, holding, &anna, 2);
    assert!(done.is_ok() && first.permit().is_none());
    let (_, again) = bench.win(&anna);
    assert!(again.right.token() > first.token());
    assert!(again.right.permit().is_some() && first.permit().is_none());
    check_head(&bench, &anna, 5, Some(2));
}

#[test]
fn a_successor_that_never_was_is_gone() {
    let bench = Bench::new();
    let (_anna, mut holding, bert) = pair(&bench);
    let nobody = SessionKey::new(bert.session.key().node(), 7);
    let done = bench.wait(async move { holding.hand_over(&nobody, body(1)).await });
    assert_eq!(done, Err(ChainError::Gone));
}
