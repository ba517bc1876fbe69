//! Mirrors: who has a claim can be read beside it, and changes only when that does.

use engine::id::ShardId;
use engine::lease::{Nonce, Token};
use store::chain::Chain;
use store::claim::{Claim, ClaimState, Head};
use store::ownership::{Ownership, owners, shard_claim};
use store::{Condition, Key, Write};

use super::bench::{Bench, JoinedNode, body};

const SHARD: ShardId = ShardId(7);

fn take(bench: &Bench, node: &JoinedNode, claim: Claim) -> Chain {
    let session = node.session.clone();
    bench.wait(async move {
        let seen = claim.look(session.store()).await.unwrap();
        claim.take(&seen, &session, ClaimState::Held).await.unwrap()
    })
}

/// Who owns the shard, as everybody reads it, and as the head has it.
#[track_caller]
fn check_owner(bench: &Bench, reader: &JoinedNode, expected: Option<&JoinedNode>) {
    let store = reader.host.store.clone();
    let found = bench.wait(async move { owners(&store).await.unwrap() });
    let head = bench.peek(shard_claim(SHARD).key()).unwrap();
    let head = Head::from_value(&head.value).unwrap();
    let session = expected.map(|node| node.session.key().clone());
    assert_eq!(head.session, session);
    assert_eq!(found.len(), 1);
    assert_eq!(found[&SHARD], Ownership { session, token: Token(head.token) });
}

/// How often the mirror was written.
fn written(node: &JoinedNode) -> usize {
    node.host.tap.sent("owner/").len()
}

#[test]
fn every_commit_that_changes_the_holder_says_so_beside_and_no_other_does() {
    let bench = Bench::new();
    let (anna, bert) = (bench.node("anna"), bench.node("bert"));
    let mut chain = take(&bench, &anna, shard_claim(SHARD));
    check_owner(&bench, &bert, Some(&anna));
    let mut chain = bench.wait(async move {
        chain.commit(Some(body(1)), Vec::new()).await.unwrap();
        chain
    });
    assert_eq!(written(&anna), 1, "a commit of the holder does not touch it");

    let to = bert.session.key().clone();
    bench.wait(async move { chain.hand_over(&to, body(2)).await }).unwrap();
    check_owner(&bench, &anna, Some(&bert));
    assert_eq!(written(&anna), 2);

    let mut chain = take(&bench, &bert, shard_claim(SHARD));
    check_owner(&bench, &anna, Some(&bert));
    bench.wait(async move { chain.release().await }).unwrap();
    check_owner(&bench, &anna, None);
    assert_eq!(written(&bert), 2);
}

#[test]
fn whoever_frees_a_claim_for_somebody_says_so_beside() {
    let bench = Bench::new();
    let anna = bench.node("anna");
    take(&bench, &anna, shard_claim(SHARD));
    let store = anna.host.store.clone();
    bench.wait(async move {
        let seen = shard_claim(SHARD).look(&store).await.unwrap();
        let freeing = shard_claim(SHARD).releasing(&seen, Nonce(5)).unwrap();
        store.commit(freeing).await.unwrap();
    });
    check_owner(&bench, &anna, None);
}

#[test]
fn a_hand_over_that_came_to_nothing_leaves_the_mirror() {
    let bench = Bench::new();
    let (anna, bert) = (bench.node("anna"), bench.node("bert"));
    let mut chain = take(&bench, &anna, shard_claim(SHARD));
    bench.wait(bert.close());
    let to = bert.session.key().clone();
    bench.wait(async move { chain.hand_over(&to, body(2)).await }).unwrap_err();
    check_owner(&bench, &anna, Some(&anna));
}

#[test]
fn a_claim_without_a_mirror_writes_none() {
    let bench = Bench::new();
    let anna = bench.node("anna");
    let mut chain = take(&bench, &anna, Claim::new("election/default/other").unwrap());
    bench.wait(async move { chain.release().await }).unwrap();
    assert_eq!(written(&anna), 0);
}

#[test]
fn the_mirror_is_no_part_of_what_is_decided() {
    let bench = Bench::new();
    let (anna, bert) = (bench.node("anna"), bench.node("bert"));
    take(&bench, &anna, shard_claim(SHARD));
    // Whatever it says, the claim is anna's.
    let lie = Ownership { session: Some(bert.session.key().clone()), token: Token(9) };
    bench.write("owner/7", lie.to_value().as_bytes());
    let sent = anna.host.tap.sent("owner/");
    let mirror = Key::new("owner/7").unwrap();
    assert!(sent[0].commit.when.iter().map(Condition::key).all(|key| *key != mirror));
    assert!(sent[0].commit.then.iter().map(Write::key).any(|key| *key == mirror));
    bench.wait(anna.close());
    take(&bench, &bert, shard_claim(SHARD));
    check_owner(&bench, &anna, Some(&bert));
}
