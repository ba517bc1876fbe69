//! Elections: hand-over by closing, by a wish, and by approval.

use engine::lease::Token;
use serde_json::json;
use sim::clock::{MS, TrueTime};
use store::claim::ClaimState;
use store::election::{Candidacy, ClaimStanding, Defeat, Holding, Mode, RightEnd};
use store::session::SessionEnd;

use super::bench::{
    Bench, CLAIM, Hearing, Host, JoinedNode, PATIENCE, PAUSE, POLL, Plan, T, TRIP, Task, body,
    check_between,
};
use super::tap::Fault;

/// How long after a close the claim is somebody else's, at the worst of many moments of a beat.
fn slowest_hand_over(ttl: TrueTime, hints: Hearing) -> TrueTime {
    let moments = (0..20).map(|moment| {
        let bench = Bench::new();
        let host = |id| bench.host_with(&Plan { ttl, hints, ..Plan::of(id) });
        let (anna, bert) = (bench.join(host("anna")), bench.join(host("bert")));
        let _held = bench.win(&anna);
        let waiting = bench.campaign(bench.candidate(&bert));
        bench.run_for(2 * ttl + ttl * moment / 100);
        let begun = bench.now();
        bench.spawn(anna.close());
        bench.finish(&waiting);
        bench.now() - begun
    });
    moments.max().unwrap()
}

#[test]
fn with_hints_the_claim_of_a_session_that_is_closed_is_taken_within_200_ms() {
    let slowest = slowest_hand_over(T, Hearing::Good);
    assert!(slowest <= 200 * MS, "{} ms", slowest / MS);
}

#[test]
fn with_hints_a_longer_lease_does_not_make_the_hand_over_slower() {
    let slowest = slowest_hand_over(5_000 * MS, Hearing::Good);
    assert!(slowest <= 200 * MS, "{} ms", slowest / MS);
}

#[test]
fn without_hints_the_claim_of_a_session_that_is_closed_is_taken_within_two_polls() {
    let slowest = slowest_hand_over(T, Hearing::Deaf);
    assert!(slowest <= 2 * POLL, "{} ms", slowest / MS);
}

#[test]
fn with_hints_a_released_claim_is_taken_at_once() {
    let bench = Bench::new();
    let (anna, bert) = (bench.node("anna"), bench.node("bert"));
    let (_, mut holding) = bench.win(&anna);
    let waiting = bench.campaign(bench.candidate(&bert));
    bench.run_for(T);
    let begun = bench.now();
    bench.spawn(async move { holding.release().await });
    bench.finish(&waiting);
    assert!(bench.now() < begun + PAUSE + 5 * TRIP);
}

#[test]
fn a_permit_is_gone_while_the_session_is_lapsed_and_back_when_it_is_renewed() {
    let bench = Bench::new();
    let anna = bench.node("anna");
    let (_, holding) = bench.win(&anna);
    let last = bench.run_to_renewal(&anna);
    let permit = holding.right.permit().unwrap();
    assert_eq!((permit.token, permit.valid_for), (holding.right.token(), anna.session.valid_for()));
    anna.host.cut();
    bench.run_until(last + T - MS, || false);
    assert!(holding.right.permit().is_some());
    bench.run_for(2 * MS);
    assert!(holding.right.permit().is_none());
    anna.host.heal();
    bench.run_for(T);
    assert_eq!(holding.right.permit().unwrap().token, permit.token);
}

#[test]
fn a_right_is_over_when_its_session_is_closed() {
    let bench = Bench::new();
    let anna = bench.node("anna");
    let (_, holding) = bench.win(&anna);
    let over = over(&bench, &holding);
    bench.spawn(anna.close());
    assert_eq!(bench.finish(&over), RightEnd::Lost);
    assert!(holding.right.permit().is_none());
}

#[test]
fn a_candidate_whose_session_ends_is_told_so() {
    let bench = Bench::new();
    let (anna, bert) = (bench.node("anna"), bench.node("bert"));
    let _held = bench.win(&anna);
    let mut election = bench.candidate(&bert);
    let waiting = bench.spawn(async move { election.campaign().await.err() });
    bench.run_for(T);
    bench.spawn(bert.close());
    assert_eq!(bench.finish(&waiting), Some(Defeat::Ended(SessionEnd::Closed)));
}

fn over(bench: &Bench, holding: &Holding) -> Task<RightEnd> {
    let right = holding.right.clone();
    bench.spawn(async move { right.over().await })
}

fn wish(bench: &Bench, person: &Host) -> Option<String> {
    let (claim, store) = (bench.claim.clone(), person.store.clone());
    let asked = bench.wait(async move { claim.wish(&store, "a person").await });
    asked.unwrap().map(|node| node.to_string())
}

#[test]
fn a_wish_is_told_to_the_holder_who_may_go_on_until_it_has_stopped() {
    let bench = Bench::new();
    let (anna, person) = (bench.node("anna"), bench.host("person"));
    let (election, holding) = bench.win(&anna);
    let (over, right) = (over(&bench, &holding), holding.right.clone());
    bench.run_for(T);
    assert_eq!(wish(&bench, &person).as_deref(), Some("anna"));
    let begun = bench.now();
    assert_eq!(bench.finish(&over), RightEnd::Wished);
    assert!(bench.now() < begun + PAUSE + 3 * TRIP, "it hears of it by a hint");
    assert!(right.permit().is_some(), "a wish takes nothing away");
    step_down(&bench, election, holding);
    assert!(right.permit().is_none());
    assert_eq!(bench.holder(), None);
}

fn step_down(bench: &Bench, mut election: Candidacy, holding: Holding) -> Candidacy {
    let (election, left) = bench.wait(async move {
        let left = election.step_down(holding).await;
        (election, left)
    });
    assert_eq!(left, Ok(()));
    election
}

#[test]
fn without_hints_a_wish_is_told_within_half_a_lease() {
    let bench = Bench::new();
    let deaf = bench.host_with(&Plan { hints: Hearing::Deaf, ..Plan::of("anna") });
    let (anna, person) = (bench.join(deaf), bench.host("person"));
    let (_election, holding) = bench.win(&anna);
    let over = over(&bench, &holding);
    bench.run_for(T);
    wish(&bench, &person);
    let begun = bench.now();
    assert_eq!(bench.finish(&over), RightEnd::Wished);
    assert!(bench.now() <= begun + T / 2 + POLL + 2 * TRIP);
}

#[test]
fn after_a_wish_somebody_else_goes_first_though_the_former_holder_campaigns_at_once() {
    let bench = Bench::new();
    let deaf = |id| bench.host_with(&Plan { hints: Hearing::Deaf, ..Plan::of(id) });
    // Even without hints: the former holder is the first to see that the claim is free.
    let (anna, bert) = (bench.join(deaf("anna")), bench.join(deaf("bert")));
    let (election, holding) = bench.win(&anna);
    let waiting = bench.campaign(bench.candidate(&bert));
    wish(&bench, &bench.host("person"));
    let election = step_down(&bench, election, holding);
    let again = bench.campaign(election);
    bench.finish(&waiting);
    bench.run_for(5 * T);
    assert_eq!(bench.holder().as_deref(), Some("bert"));
    assert!(again.done_at().is_none());
}

#[test]
fn after_a_wish_the_former_holder_comes_back_if_nobody_else_wants_the_claim() {
    let bench = Bench::new();
    let anna = bench.node("anna");
    let (election, holding) = bench.win(&anna);
    let former = holding.right.token();
    wish(&bench, &bench.host("person"));
    let begun = bench.now();
    let election = step_down(&bench, election, holding);
    let (_, holding) = bench.finish(&bench.campaign(election));
    check_between(bench.now(), begun + T * 3 / 2, begun + T * 3 / 2 + POLL + 4 * TRIP);
    assert!(holding.right.token() > former);
    let over = over(&bench, &holding);
    bench.run_for(3 * T);
    assert!(over.done_at().is_none(), "the wish was about the former token");
}

#[test]
fn a_wish_about_a_former_token_does_nothing() {
    let bench = Bench::new();
    let (anna, bert) = (bench.node("anna"), bench.node("bert"));
    let (_, former) = bench.win(&anna);
    bench.wait(anna.close());
    let (_, holding) = bench.win(&bert);
    let over = over(&bench, &holding);
    let note = json!({ "format": 1, "token": former.right.token().0, "by": "a person" });
    bench.write(&format!("{CLAIM}/wish"), note.to_string());
    bench.run_for(3 * T);
    assert!(over.done_at().is_none() && holding.right.permit().is_some());
}

#[test]
fn nobody_is_wished_away_from_a_claim_that_nobody_has() {
    let bench = Bench::new();
    let anna = bench.node("anna");
    let (election, holding) = bench.win(&anna);
    step_down(&bench, election, holding);
    assert_eq!(wish(&bench, &bench.host("person")), None);
}

/// A candidate that has taken the claim and waits to be approved.
fn waiting(bench: &Bench, node: &JoinedNode) -> Task<(Candidacy, Holding)> {
    let election = Candidacy::new(&node.session, bench.claim.clone(), Mode::Manual);
    let waiting = bench.campaign(election);
    bench.run_for(T);
    waiting
}

fn approve(bench: &Bench, token: u64) {
    let (claim, store) = (bench.claim.clone(), bench.host("person").store);
    bench.wait(async move { claim.approve(&store, Token(token), "a person").await }).unwrap();
}

#[test]
fn in_manual_mode_a_claim_is_taken_as_waiting_and_nobody_acts_before_the_approval() {
    let bench = Bench::new();
    let anna = bench.node("anna");
    let waiting = waiting(&bench, &anna);
    let head = bench.head().unwrap();
    assert_eq!((bench.holder().as_deref(), head.state), (Some("anna"), ClaimState::Waiting));
    bench.run_for(10 * T);
    assert!(waiting.done_at().is_none(), "without a holding there is no right");
    assert_eq!(bench.head().unwrap().token, head.token, "it keeps waiting under one token");
}

#[test]
fn an_approval_of_another_token_does_nothing() {
    let bench = Bench::new();
    let anna = bench.node("anna");
    let waiting = waiting(&bench, &anna);
    let token = bench.head().unwrap().token;
    for other in [token - 1, token + 1] {
        approve(&bench, other);
        bench.run_for(2 * T);
        assert!(waiting.done_at().is_none());
        assert_eq!(bench.head().unwrap().state, ClaimState::Waiting);
    }
}

#[test]
fn the_approval_of_its_token_lets_the_holder_begin() {
    let bench = Bench::new();
    let anna = bench.node("anna");
    let waiting = waiting(&bench, &anna);
    let token = bench.head().unwrap().token;
    approve(&bench, token);
    let begun = bench.now();
    let (_, holding) = bench.finish(&waiting);
    assert!(bench.now() < begun + 5 * TRIP, "it hears of it by a hint");
    assert_eq!(holding.right.permit().unwrap().token, Token(token));
    assert_eq!(bench.head().unwrap().state, ClaimState::Held);
}

#[test]
fn a_holder_that_waits_may_be_wished_away_before_it_has_begun() {
    let bench = Bench::new();
    let (anna, bert) = (bench.node("anna"), bench.node("bert"));
    let first = waiting(&bench, &anna);
    let _second = waiting(&bench, &bert);
    assert_eq!(wish(&bench, &bench.host("person")).as_deref(), Some("anna"));
    bench.run_for(POLL);
    assert_eq!(bench.holder().as_deref(), Some("bert"));
    assert!(first.done_at().is_none());
}

#[test]
fn a_change_of_the_standing_is_told_once_and_by_a_hint() {
    let bench = Bench::new();
    let (anna, bert) = (bench.node("anna"), bench.node("bert"));
    let mut watcher = bench.candidate(&bert);
    let (watcher, nobody): (Candidacy, ClaimStanding) = bench.wait(async move {
        let standing = watcher.changed(None).await;
        (watcher, standing)
    });
    assert_eq!((nobody.holder.as_ref(), nobody.token), (None, Token(0)));
    let mut watcher = watcher;
    let told = bench.spawn(async move { watcher.changed(Some(&nobody)).await });
    bench.run_for(2 * T);
    assert!(told.done_at().is_none());
    let (_, holding) = bench.win(&anna);
    let begun = bench.now();
    let standing = bench.finish(&told);
    assert!(bench.now() < begun + PAUSE + 4 * TRIP);
    assert_eq!(standing.holder.as_ref(), Some(anna.session.key()));
    assert_eq!((standing.token, standing.state), (holding.right.token(), ClaimState::Held));
}

#[test]
fn a_candidate_with_little_time_left_takes_nothing() {
    let bench = Bench::new();
    let (anna, bert) = (bench.node("anna"), bench.node("bert"));
    let _held = bench.win(&anna);
    let waiting = bench.campaign(bench.candidate(&bert));
    bench.run_to_renewal(&bert);
    bert.hang();
    bench.run_for(T * 6 / 10);
    bench.spawn(anna.close());
    bench.run_for(T * 3 / 10);
    assert!(bert.session.is_valid() && waiting.done_at().is_none());
    bert.recover();
    bench.finish(&waiting);
}

#[test]
fn a_candidate_that_does_not_know_of_the_holder_yet_does_not_hammer_the_store() {
    let bench = Bench::new();
    let deaf = bench.host_with(&Plan { hints: Hearing::Deaf, ..Plan::of("bert") });
    let bert = bench.join(deaf);
    // Anna comes and takes the claim between two looks of bert's.
    let anna = bench.node("anna");
    let _held = bench.win(&anna);
    assert!(!bert.session.roster().borrow().contains(anna.session.key()));
    let _waiting = bench.campaign(bench.candidate(&bert));
    bench.run_for(POLL);
    let tries = bert.host.tap.sent(CLAIM).len();
    assert!(tries <= 3, "{tries} tries, and a pause between two is {} ms", PAUSE / MS);
}

#[test]
fn of_many_candidates_one_at_a_time_holds() {
    let bench = Bench::new();
    let nodes = ["anna", "bert", "carl", "dora"].map(|id| bench.node(id));
    let tasks = nodes.each_ref().map(|node| bench.campaign(bench.candidate(node)));
    let mut left: Vec<_> = nodes.iter().zip(tasks).collect();
    for round in 0..4 {
        bench.run_for(2 * PATIENCE);
        let won: Vec<_> = left.iter().map(|(_, task)| task.done_at().is_some()).collect();
        assert_eq!(won.iter().filter(|won| **won).count(), 1, "in round {round}");
        let (holder, _) = left.remove(won.iter().position(|won| *won).unwrap());
        bench.wait(holder.close());
    }
}

#[test]
fn a_candidate_does_not_look_at_every_commit_of_a_busy_holder() {
    let bench = Bench::new();
    let (anna, bert) = (bench.node("anna"), bench.node("bert"));
    let (_, mut holding) = bench.win(&anna);
    let world = bench.world.clone();
    bench.spawn(async move {
        loop {
            holding.commit(Some(body(1)), Vec::new()).await.unwrap();
            world.sleep(MS).await;
        }
    });
    bench.run_for(T);
    let count = || (anna.host.tap.sent(CLAIM).len(), bert.host.tap.reads(bench.claim.key()));
    let before = count();
    let waiting = bench.campaign(bench.candidate(&bert));
    bench.run_for(T);
    let (commits, looks) = (count().0 - before.0, count().1 - before.1);
    assert!(waiting.done_at().is_none());
    assert!(commits > 300, "{commits} commits are not many");
    assert!(looks <= 1 + usize::try_from(T / PAUSE).unwrap(), "{looks} looks");
}

#[test]
fn an_approval_survives_requests_that_are_refused() {
    let bench = Bench::new();
    let anna = bench.node("anna");
    let waiting = waiting(&bench, &anna);
    let token = bench.head().unwrap().token;
    anna.host.tap.on(CLAIM, (0..3).map(|_| Fault::refuse()));
    approve(&bench, token);
    let begun = bench.now();
    let (_, holding) = bench.finish(&waiting);
    check_between(bench.now(), begun + 3 * PAUSE, begun + 4 * PAUSE + 8 * TRIP);
    assert_eq!(holding.right.permit().unwrap().token, Token(token));
    assert_eq!(bench.head().unwrap().state, ClaimState::Held);
}

#[test]
fn a_wish_survives_requests_that_are_refused() {
    let bench = Bench::new();
    let (anna, bert) = (bench.node("anna"), bench.node("bert"));
    let (election, holding) = bench.win(&anna);
    let waiting = bench.campaign(bench.candidate(&bert));
    let over = over(&bench, &holding);
    wish(&bench, &bench.host("person"));
    assert_eq!(bench.finish(&over), RightEnd::Wished);
    anna.host.tap.on(CLAIM, (0..3).map(|_| Fault::refuse()));
    let begun = bench.now();
    let election = step_down(&bench, election, holding);
    let again = bench.campaign(election);
    bench.finish(&waiting);
    assert!(bench.now() <= begun + 4 * PAUSE + 8 * TRIP);
    bench.run_for(5 * T);
    assert_eq!(bench.holder().as_deref(), Some("bert"));
    assert!(again.done_at().is_none());
}

#[test]
fn a_wish_about_a_holder_that_waits_survives_requests_that_are_refused() {
    let bench = Bench::new();
    let (anna, bert) = (bench.node("anna"), bench.node("bert"));
    let first = waiting(&bench, &anna);
    let _second = waiting(&bench, &bert);
    anna.host.tap.on(CLAIM, (0..3).map(|_| Fault::refuse()));
    wish(&bench, &bench.host("person"));
    bench.run_for(4 * PAUSE + POLL);
    assert_eq!(bench.holder().as_deref(), Some("bert"));
    assert!(first.done_at().is_none());
}

#[test]
fn a_candidate_is_told_that_the_claim_cannot_be_read() {
    let bench = Bench::new();
    let anna = bench.node("anna");
    let version = bench.write(CLAIM, "rubbish");
    let mut election = bench.candidate(&anna);
    let defeat = bench.wait(async move { election.campaign().await.err() });
    let Some(Defeat::Corrupt(why)) = defeat else { panic!("{defeat:?}") };
    assert!(why.contains(CLAIM), "{why}");
    assert_eq!(bench.peek(bench.claim.key()).unwrap().version, version, "it is left alone");
    assert!(anna.session.is_valid());
}
