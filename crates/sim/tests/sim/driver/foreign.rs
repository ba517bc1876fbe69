//! Records that cannot be read: nobody crashes, and nobody takes them for nothing.

use engine::limits::LEASE_TTL_MAX;
use serde_json::json;
use sim::clock::TrueTime;
use store::election::Defeat;
use store::{CommitError, ScanError};

use super::bench::{Bench, CLAIM, POLL, T, TRIP, check_between};

const RUBBISH: &str = "\u{0}what is this?";
const NEWER: &str = r#"{"format":2,"session":"node/x/1","ttl":"a new meaning"}"#;

/// How long a session without a T of its own is watched.
fn longest_patience() -> TrueTime {
    u64::try_from(LEASE_TTL_MAX.as_nanos()).unwrap() * 5 / 4
}

#[test]
fn a_session_that_cannot_be_read_is_never_taken_for_absent() {
    for record in [RUBBISH, NEWER] {
        let bench = Bench::new();
        bench.write("node/x/1", record);
        let head = json!({
            "format": 1, "session": "node/x/1", "token": 7, "state": "held", "number": 1,
            "nonce": "0000000000000001",
        });
        bench.write(CLAIM, head.to_string());
        let bert = bench.node("bert");
        let waiting = bench.campaign(bench.candidate(&bert));
        bench.run_for(100 * T);
        assert!(waiting.done_at().is_none(), "{record}");
        assert_eq!(bert.host.tap.sent(CLAIM).len(), 0);
        assert!(bert.session.is_valid());
    }
}

#[test]
fn a_session_that_cannot_be_read_is_watched_for_the_longest_lease_there_is() {
    let bench = Bench::new();
    bench.write("node/x/1", NEWER);
    let begun = bench.now();
    let bert = bench.node("bert");
    bench.run_until(begun + 2 * longest_patience(), || bench.sessions().len() == 1);
    let buried = begun + longest_patience();
    check_between(bench.now(), buried, buried + POLL + 4 * TRIP);
    assert_eq!(bench.sessions(), [bert.session.key().to_string()]);
}

#[test]
fn a_session_that_cannot_be_read_but_moves_is_one_that_lives() {
    let bench = Bench::new();
    bench.write("node/bert/1", NEWER);
    let opening = bench.spawn(bench.host("bert").open());
    bench.run_for(T);
    assert!(opening.done_at().is_none());
    for _ in 0..2 {
        bench.write("node/bert/1", NEWER);
        bench.run_for(2 * POLL);
    }
    let why = opening.take().expect("an answer").err().expect("a refusal").to_string();
    assert!(why.contains("another node with the id bert is alive (session node/bert/1):"), "{why}");
}

#[test]
fn a_session_with_no_lease_that_makes_sense_is_watched_for_the_longest_too() {
    let bench = Bench::new();
    let record = json!({
        "format": 1, "roles": [], "ttl_ms": 0, "beat": 1, "nonce": "01", "wall_us": 0, "reads": 1,
        "local": false,
    });
    bench.write("node/x/1", record.to_string());
    let _bert = bench.node("bert");
    bench.run_for(100 * T);
    assert_eq!(bench.sessions().len(), 2);
}

#[test]
fn keys_below_node_that_name_no_session_disturb_nobody() {
    let bench = Bench::new();
    for key in ["node//1", "node/a$b/1", "node/="] {
        bench.write(key, RUBBISH);
    }
    let anna = bench.node("anna");
    bench.win(&anna);
    bench.run_for(3 * T);
    assert!(anna.session.is_valid());
    assert_eq!(bench.sessions().len(), 4, "and they are left alone");
}

#[test]
fn a_claim_that_cannot_be_read_is_left_alone() {
    for head in [RUBBISH, NEWER] {
        let bench = Bench::new();
        let version = bench.write(CLAIM, head);
        let (anna, bert) = (bench.node("anna"), bench.node("bert"));
        for node in [&anna, &bert] {
            let mut election = bench.candidate(node);
            let told = bench.wait(async move { election.campaign().await.err() });
            assert!(matches!(told, Some(Defeat::Corrupt(_))), "{told:?}");
        }
        bench.run_for(20 * T);
        assert_eq!(bench.peek(bench.claim.key()).unwrap().version, version);
        assert!(anna.session.is_valid() && bert.session.is_valid());
    }
}

#[test]
fn a_claim_of_a_newer_format_says_what_to_do_about_it() {
    let bench = Bench::new();
    bench.write(CLAIM, NEWER);
    let (claim, store) = (bench.claim.clone(), bench.host("person").store);
    let (seen, wished) = bench.wait(async move {
        (claim.look(&store).await.err(), claim.wish(&store, "a person").await.err())
    });
    let Some(ScanError::Corrupt(why)) = seen else { panic!("{seen:?}") };
    assert!(why.contains(CLAIM) && why.contains("upgrade Watchbell"), "{why}");
    assert_eq!(wished, Some(CommitError::Corrupt(why)));
}

#[test]
fn notes_that_cannot_be_read_are_no_notes() {
    let bench = Bench::new();
    let anna = bench.node("anna");
    let (_, holding) = bench.win(&anna);
    let right = holding.right.clone();
    let over = bench.spawn(async move { right.over().await });
    for note in ["wish", "approval"] {
        bench.write(&format!("{CLAIM}/{note}"), RUBBISH);
        bench.run_for(T);
        bench.write(&format!("{CLAIM}/{note}"), NEWER);
        bench.run_for(T);
    }
    assert!(over.done_at().is_none() && holding.right.permit().is_some());
}
