//! Claims: when one is free, and what its token does.

use engine::id::ShardId;
use engine::record::{Format, RecordError, decode};
use serde_json::json;
use store::ScanError;
use store::claim::{ClaimError, ClaimState, ClaimView, Head};
use store::election::Defeat;
use store::ownership::shard_claim;

use super::bench::{Bench, CLAIM, JoinedNode, NOON_US, PATIENCE, POLL, T, TRIP, check_between};

fn look(bench: &Bench, node: &JoinedNode) -> ClaimView {
    let (claim, store) = (bench.claim.clone(), node.host.store.clone());
    bench.wait(async move { claim.look(&store).await }).unwrap()
}

/// Takes the claim as it was seen, and tells the token.
fn take(bench: &Bench, node: &JoinedNode, seen: ClaimView) -> Result<u64, ClaimError> {
    let (claim, session) = (bench.claim.clone(), node.session.clone());
    let taken = async move { claim.take(&seen, &session, ClaimState::Held).await };
    bench.wait(taken).map(|chain| chain.token().0)
}

#[test]
fn a_claim_that_nobody_ever_had_is_free() {
    let bench = Bench::new();
    let anna = bench.node("anna");
    let seen = look(&bench, &anna);
    assert_eq!((seen.version, seen.head.token, seen.head.state), (None, 0, ClaimState::Free));
    let token = take(&bench, &anna, seen).unwrap();
    assert!(token >= NOON_US, "it is at least the wall clock");
    assert_eq!(bench.holder().as_deref(), Some("anna"));
}

#[test]
fn a_claim_is_not_taken_while_the_session_that_it_names_is_there() {
    let bench = Bench::new();
    let (anna, bert) = (bench.node("anna"), bench.node("bert"));
    let seen = look(&bench, &anna);
    take(&bench, &anna, seen).unwrap();
    anna.crash();
    let seen = look(&bench, &bert);
    assert_eq!(take(&bench, &bert, seen), Err(ClaimError::NotFree));
    assert_eq!(bench.holder().as_deref(), Some("anna"));
}

#[test]
fn a_claim_is_free_as_soon_as_the_session_that_it_names_is_absent() {
    let bench = Bench::new();
    let (anna, bert) = (bench.node("anna"), bench.node("bert"));
    let seen = look(&bench, &anna);
    let former = take(&bench, &anna, seen).unwrap();
    let seen = look(&bench, &bert);
    bench.wait(anna.close());
    assert!(take(&bench, &bert, seen).unwrap() > former, "its head has not moved since");
    assert_eq!(bench.holder().as_deref(), Some("bert"));
}

#[test]
fn a_claim_that_has_moved_since_it_was_seen_is_not_taken() {
    let bench = Bench::new();
    let (anna, bert) = (bench.node("anna"), bench.node("bert"));
    let seen = look(&bench, &bert);
    take(&bench, &anna, seen.clone()).unwrap();
    assert_eq!(take(&bench, &bert, seen), Err(ClaimError::NotFree));
}

#[test]
fn a_session_that_is_gone_takes_nothing() {
    let bench = Bench::new();
    let anna = bench.node("anna");
    let seen = look(&bench, &anna);
    bench.wait(anna.close());
    assert_eq!(take(&bench, &anna, seen), Err(ClaimError::NotFree));
    assert!(bench.head().is_none());
}

#[test]
fn tokens_grow_though_the_wall_clock_goes_back() {
    let bench = Bench::new();
    let (anna, bert) = (bench.node("anna"), bench.node("bert"));
    let seen = look(&bench, &anna);
    let first = take(&bench, &anna, seen).unwrap();
    bench.wait(anna.close());
    bert.host.change(|site| site.clocks.step(NOON_US / 2));
    let seen = look(&bench, &bert);
    assert_eq!(take(&bench, &bert, seen), Ok(first + 1));
}

#[test]
fn a_freed_claim_keeps_its_token_and_names_nobody() {
    let bench = Bench::new();
    let anna = bench.node("anna");
    let (election, mut holding) = bench.win(&anna);
    let token = holding.right.token();
    bench.wait(async move { holding.release().await }).unwrap();
    let standing = bench.wait(async move { election.standing().await }).unwrap();
    assert_eq!((standing.holder, standing.token, standing.state), (None, token, ClaimState::Free));
}

#[test]
fn a_holder_that_lives_is_not_followed_by_a_candidate() {
    let bench = Bench::new();
    let (anna, bert) = (bench.node("anna"), bench.node("bert"));
    let (_, holding) = bench.win(&anna);
    let waiting = bench.campaign(bench.candidate(&bert));
    bench.run_for(20 * T);
    assert!(waiting.done_at().is_none());
    assert!(holding.right.permit().is_some());
}

#[test]
fn a_holder_that_crashed_is_followed_after_the_patience_of_others() {
    let bench = Bench::new();
    let (anna, bert) = (bench.node("anna"), bench.node("bert"));
    let (_, holding) = bench.win(&anna);
    let waiting = bench.campaign(bench.candidate(&bert));
    let last = bench.run_to_renewal(&anna);
    anna.crash();
    let (_, followed) = bench.finish(&waiting);
    check_between(bench.now(), last + PATIENCE, last + PATIENCE + POLL + 6 * TRIP);
    assert!(holding.right.permit().is_none(), "its own clock has said so before");
    assert!(followed.right.token() > holding.right.token());
}

#[test]
fn a_head_after_whose_token_or_number_there_is_no_other_is_damaged() {
    for (token, number) in [(u64::MAX, 5), (5, u64::MAX)] {
        let bench = Bench::new();
        let anna = bench.node("anna");
        let head = json!({
            "format": 1, "session": null, "token": token, "state": "free", "number": number,
            "nonce": "0000000000000001",
        });
        let version = bench.write(CLAIM, head.to_string());
        let (claim, store) = (bench.claim.clone(), anna.host.store.clone());
        let seen = bench.wait(async move { claim.look(&store).await }).err();
        let Some(ScanError::Corrupt(why)) = seen else { panic!("{seen:?}") };
        assert!(why.contains(CLAIM), "{why}");
        let mut election = bench.candidate(&anna);
        let defeat = bench.wait(async move { election.campaign().await.err() });
        assert_eq!(defeat, Some(Defeat::Corrupt(why)));
        assert_eq!(bench.peek(bench.claim.key()).unwrap().version, version, "it is left alone");
    }
}

#[test]
fn a_session_that_takes_a_claim_anew_has_one_right_to_it() {
    let bench = Bench::new();
    let anna = bench.node("anna");
    let (election, older) = bench.win(&anna);
    for election in [election, bench.candidate(&anna)] {
        let before = anna.host.tap.sent(CLAIM).len();
        let (former, again) = (bench.head().unwrap().token, bench.campaign(election));
        bench.run_until(bench.now() + T, || anna.host.tap.sent(CLAIM).len() > before);
        assert!(again.done_at().is_none());
        assert!(older.right.permit().is_none(), "as soon as it is sent");
        let (_, newer) = bench.finish(&again);
        assert!(newer.right.token().0 > former);
        assert!(newer.right.permit().is_some() && older.right.permit().is_none());
    }
}

#[test]
fn a_shard_that_a_former_version_left_is_taken_and_refused_to_that_version_from_then_on() {
    let bench = Bench::new();
    let anna = bench.node("anna");
    let claim = shard_claim(ShardId(0));
    let left = json!({
        "format": 1, "session": null, "token": 7, "state": "free", "number": 3,
        "nonce": "0000000000000001", "body": {"fired": "what it was"},
    });
    bench.write(claim.key().as_str(), left.to_string());
    let (session, taken) = (anna.session.clone(), claim.clone());
    let mut chain = bench.wait(async move {
        let seen = taken.look(session.store()).await.unwrap();
        taken.take(&seen, &session, ClaimState::Held).await.unwrap()
    });
    let check = |number: u64| {
        let value = bench.peek(claim.key()).unwrap().value;
        let refused = decode::<Head>(value.as_bytes(), Format(1)).err();
        let newer = RecordError::Newer { found: Format(2), reads: Format(1) };
        assert_eq!(refused, Some(newer));
        let head = Head::from_value(&value).unwrap();
        assert_eq!((head.number, head.body.unwrap().get()), (number, r#"{"fired":"what it was"}"#));
    };
    check(4);
    // So does everything that follows.
    bench.wait(async move {
        let body = chain.head().body.clone();
        chain.commit(body, Vec::new()).await.unwrap();
        chain.release().await.unwrap();
    });
    check(6);
    // Candidates of an election may be of any version.
    bench.win(&anna);
    let value = bench.peek(bench.claim.key()).unwrap().value;
    assert!(decode::<Head>(value.as_bytes(), Format(1)).is_ok());
}
