//! Several chains in one commit: each is done once or not at all, whatever becomes of the others.

use engine::lease::Nonce;
use engine::record::{Format, decode, encode};
use store::chain::{Chain, ChainError, ChainWrites, commit_all};
use store::claim::{Claim, ClaimState, Head};
use store::{CommitError, Entry, Key, Limits, Range, Refusal, Version, Write};

use super::bench::{Bench, Host, JoinedNode, PAUSE, T, TRIP, Task, body, within};
use super::tap::{Fault, Sent};

pub(super) type Answers = Vec<Result<Version, ChainError>>;

/// All that is written here lies below.
pub(super) const SHARDS: &str = "shard/";

fn head_key(shard: usize) -> Key {
    Key::new(format!("{SHARDS}{shard}/head")).unwrap()
}

pub(super) fn run_key(shard: usize, id: u64) -> Key {
    Key::new(format!("{SHARDS}{shard}/run/{id}")).unwrap()
}

/// A bench with somebody who has so many shards, numbered from 0, each at number 1.
pub(super) fn fleet(shards: usize) -> (Bench, JoinedNode, Vec<Chain>) {
    let bench = Bench::new();
    let anna = bench.node("anna");
    let chains = (0..shards).map(|shard| take(&bench, &anna, shard)).collect();
    (bench, anna, chains)
}

fn take(bench: &Bench, node: &JoinedNode, shard: usize) -> Chain {
    let session = node.session.clone();
    bench.wait(async move {
        let claim = Claim::new(head_key(shard).as_str()).unwrap();
        let seen = claim.look(session.store()).await.unwrap();
        claim.take(&seen, &session, ClaimState::Held).await.unwrap()
    })
}

/// What a shard writes as number `id`.
pub(super) fn piece(shard: usize, chain: &mut Chain, id: u64) -> ChainWrites<'_> {
    let writes = vec![Write::Put(run_key(shard, id), "".into())];
    ChainWrites { chain, body: Some(body(id)), writes }
}

/// What shards write besides.
type Besides = Vec<(usize, Vec<Write>)>;

/// What all of them write.
fn pieces(chains: &mut [Chain], id: u64, besides: Besides) -> Vec<ChainWrites<'_>> {
    let chains = chains.iter_mut().enumerate();
    let mut pieces: Vec<_> = chains.map(|(shard, chain)| piece(shard, chain, id)).collect();
    for (shard, writes) in besides {
        pieces[shard].writes.extend(writes);
    }
    pieces
}

/// Begins to commit for all.
fn begin(
    bench: &Bench,
    mut chains: Vec<Chain>,
    id: u64,
    besides: Besides,
) -> Task<(Vec<Chain>, Answers)> {
    bench.spawn(async move {
        let answers = commit_all(pieces(&mut chains, id, besides)).await;
        (chains, answers)
    })
}

/// Commits for all, and tells what came of it.
pub(super) fn commit(bench: &Bench, chains: Vec<Chain>, id: u64) -> (Vec<Chain>, Answers) {
    commit_with(bench, chains, id, Vec::new())
}

fn commit_with(
    bench: &Bench,
    chains: Vec<Chain>,
    id: u64,
    besides: Besides,
) -> (Vec<Chain>, Answers) {
    bench.finish(&begin(bench, chains, id, besides))
}

/// Commits for all, and loses interest right after the first commit was sent.
pub(super) fn commit_and_drop(
    bench: &Bench,
    mut chains: Vec<Chain>,
    id: u64,
    besides: Besides,
) -> Vec<Chain> {
    let world = bench.world.clone();
    let (chains, dropped) = bench.wait(async move {
        let done = within(&world, 0, commit_all(pieces(&mut chains, id, besides))).await;
        (chains, done.is_none())
    });
    assert!(dropped);
    chains
}

/// Settles one chain.
pub(super) fn settle(
    bench: &Bench,
    chains: &mut Vec<Chain>,
    shard: usize,
) -> Result<(), ChainError> {
    let mut taken = std::mem::take(chains);
    let (back, done) = bench.wait(async move {
        let done = taken[shard].settle().await;
        (taken, done)
    });
    *chains = back;
    done
}

/// The copies that were sent since so many shards were taken.
pub(super) fn copies(host: &Host, shards: usize) -> Vec<Sent> {
    host.tap.sent(SHARDS).split_off(shards)
}

/// The shards that a commit is for.
fn company(sent: &Sent) -> Vec<usize> {
    let keys: Vec<_> = sent.commit.when.iter().map(|condition| condition.key().clone()).collect();
    let written = |shard: &usize| sent.commit.then.iter().any(|w| *w.key() == head_key(*shard));
    let shards: Vec<_> = (0..9).filter(written).collect();
    assert_eq!(keys, shards.iter().copied().map(head_key).collect::<Vec<_>>());
    shards
}

#[track_caller]
pub(super) fn check_companies(host: &Host, shards: usize, expected: &[&[usize]]) {
    let companies: Vec<_> = copies(host, shards).iter().map(company).collect();
    assert_eq!(companies, expected);
}

pub(super) fn stored(bench: &Bench, shard: usize) -> (Head, Version) {
    let entry = bench.peek(&head_key(shard)).unwrap();
    (decode(entry.value.as_bytes(), Format(1)).unwrap(), entry.version)
}

/// What a shard has written, by number.
pub(super) fn runs(bench: &Bench, shard: usize) -> Vec<u64> {
    let range = Range::prefix(format!("{SHARDS}{shard}/run/").as_str());
    let page = bench.sim_store.scan(0, range, 1_000, bench.now()).unwrap().said.unwrap();
    let id = |entry: &Entry| entry.key.as_str().rsplit_once('/').unwrap().1.parse().unwrap();
    page.entries.iter().map(id).collect()
}

#[track_caller]
pub(super) fn check_runs(bench: &Bench, expected: &[&[u64]]) {
    let found: Vec<_> = (0..expected.len()).map(|shard| runs(bench, shard)).collect();
    assert_eq!(found, expected);
}

/// What the head of a shard says, and at which version, is what was answered and what its chain knows.
#[track_caller]
pub(super) fn check_done(bench: &Bench, chains: &[Chain], answers: &Answers, number: u64) {
    for (shard, (chain, answer)) in chains.iter().zip(answers).enumerate() {
        let (head, version) = stored(bench, shard);
        assert_eq!(*answer, Ok(version), "of {shard}");
        assert_eq!((head.number, chain.head().number), (number, number), "of {shard}");
        assert_eq!(head.nonce, chain.head().nonce, "of {shard}");
    }
}

/// Somebody else takes a shard.
pub(super) fn take_over(bench: &Bench, shard: usize) {
    let (head, _) = stored(bench, shard);
    let (token, number, nonce) = (head.token + 1, head.number + 1, Nonce(head.nonce.0 ^ 1));
    let head = Head { session: None, token, number, nonce, ..head };
    bench.write(head_key(shard).as_str(), encode(Format(1), &head));
}

pub(super) fn land(bench: &Bench, node: &JoinedNode) -> Option<Result<Version, CommitError>> {
    bench.wait(node.host.tap.clone().land())
}

#[track_caller]
fn check_landed_nowhere(bench: &Bench, node: &JoinedNode) {
    let late = land(bench, node);
    assert!(matches!(late, Some(Err(CommitError::Conflict(_)))), "{late:?}");
}

/// So many writes that do nothing.
pub(super) fn deletes(count: usize) -> Vec<Write> {
    (0..count).map(|number| Write::Delete(Key::new(format!("none/{number}")).unwrap())).collect()
}

/// The same, for a shard of its own.
pub(super) fn own_deletes(shard: usize, count: usize) -> (usize, Vec<Write>) {
    let key = |number| Key::new(format!("none/{shard}/{number}")).unwrap();
    (shard, (0..count).map(|number| Write::Delete(key(number))).collect())
}

#[test]
fn chains_that_write_together_share_one_commit_and_its_version() {
    let (bench, anna, mut chains) = fleet(3);
    for id in 1..=2 {
        let answers;
        (chains, answers) = commit(&bench, chains, id);
        check_done(&bench, &chains, &answers, id + 1);
        assert!(answers.iter().all(|answer| *answer == answers[0]));
    }
    check_companies(&anna.host, 3, &[&[0, 1, 2], &[0, 1, 2]]);
    check_runs(&bench, &[&[1, 2], &[1, 2], &[1, 2]]);
}

#[test]
fn nothing_to_write_is_nothing_sent() {
    let (bench, anna, chains) = fleet(0);
    assert_eq!(commit(&bench, chains, 1).1, []);
    check_companies(&anna.host, 0, &[]);
}

#[test]
fn a_chain_that_has_moved_is_named_and_the_others_are_sent_again_without_it() {
    let (bench, anna, chains) = fleet(3);
    take_over(&bench, 1);
    let begun = bench.now();
    let (chains, answers) = commit(&bench, chains, 1);
    assert!(bench.now() <= begun + 2 * TRIP, "at once");
    assert_eq!((answers[0].is_ok(), &answers[1]), (true, &Err(ChainError::Moved)));
    assert_eq!(answers[2], answers[0]);
    check_companies(&anna.host, 3, &[&[0, 1, 2], &[0, 2]]);
    assert!((0..3).all(|shard| anna.host.tap.reads(&head_key(shard)) == 1), "when it was taken");

    let (_, answers) = commit(&bench, chains, 2);
    assert_eq!(answers[1], Err(ChainError::Moved));
    check_companies(&anna.host, 3, &[&[0, 1, 2], &[0, 2], &[0, 2]]);
    check_runs(&bench, &[&[1, 2], &[], &[1, 2]]);
}

#[test]
fn chains_that_have_moved_are_found_one_after_the_other() {
    let (bench, anna, chains) = fleet(3);
    take_over(&bench, 0);
    take_over(&bench, 2);
    let (_, answers) = commit(&bench, chains, 1);
    assert_eq!(answers, [Err(ChainError::Moved), answers[1].clone(), Err(ChainError::Moved)]);
    check_companies(&anna.host, 3, &[&[0, 1, 2], &[1, 2], &[1]]);
    check_runs(&bench, &[&[], &[1], &[]]);
}

#[test]
fn a_commit_that_is_lost_is_sent_again_unchanged_until_it_is_done() {
    let (bench, anna, chains) = fleet(3);
    let full = CommitError::Refused(Refusal::Full { place: "here".into() });
    anna.host.tap.on(SHARDS, [Fault::lose(), Fault::lose(), Fault::refuse()]);
    let begun = bench.now();
    let (chains, answers) = commit(&bench, chains, 1);
    check_done(&bench, &chains, &answers, 2);
    let sent = copies(&anna.host, 3);
    assert_eq!(sent.len(), 4);
    assert!(sent.iter().all(|copy| copy.commit == sent[0].commit));
    assert!(bench.now() >= begun + 3 * PAUSE, "with a pause between them");

    // Turned away later, it may have been done before: each goes on by itself until that is known.
    anna.host.tap.on(SHARDS, [Fault::lose(), Fault::Say(full)]);
    let (chains, answers) = commit(&bench, chains, 2);
    check_done(&bench, &chains, &answers, 3);
    check_runs(&bench, &[&[1, 2], &[1, 2], &[1, 2]]);
}

#[test]
fn a_commit_whose_answer_is_lost_is_found_done_by_all() {
    let (bench, anna, chains) = fleet(3);
    anna.host.tap.on(SHARDS, [Fault::LoseAnswer]);
    let (chains, answers) = commit(&bench, chains, 1);
    check_done(&bench, &chains, &answers, 2);
    check_companies(&anna.host, 3, &[&[0, 1, 2], &[0, 1, 2]]);
    check_runs(&bench, &[&[1], &[1], &[1]]);
}

#[test]
fn a_commit_is_waited_for_as_long_as_the_store_is_out_of_reach() {
    let (bench, anna, chains) = fleet(2);
    anna.host.cut();
    let committing = begin(&bench, chains, 1, Vec::new());
    bench.run_for(10 * T);
    assert!(committing.done_at().is_none());
    anna.host.heal();
    let (chains, answers) = bench.finish(&committing);
    check_done(&bench, &chains, &answers, 2);
}

#[test]
fn a_copy_that_lands_late_is_found_done_by_all() {
    let (bench, anna, chains) = fleet(3);
    anna.host.tap.on(SHARDS, [Fault::LandLater, Fault::lose(), Fault::LandLater]);
    let committing = begin(&bench, chains, 1, Vec::new());
    bench.run_for(PAUSE * 3 / 2);
    let landed = land(&bench, &anna).unwrap();
    let (chains, answers) = bench.finish(&committing);
    assert!(answers.iter().all(|answer| *answer == Ok(*landed.as_ref().unwrap())));
    check_done(&bench, &chains, &answers, 2);
    check_landed_nowhere(&bench, &anna);
    let (chains, answers) = commit(&bench, chains, 2);
    check_done(&bench, &chains, &answers, 3);
}

#[test]
fn a_chain_taken_over_after_the_commit_was_done_has_moved_and_the_others_find_it_done() {
    let (bench, anna, chains) = fleet(3);
    anna.host.tap.on(SHARDS, [Fault::LoseAnswer]);
    let committing = begin(&bench, chains, 1, Vec::new());
    bench.run_for(PAUSE / 2);
    check_runs(&bench, &[&[1], &[1], &[1]]);
    take_over(&bench, 1);
    let (chains, answers) = bench.finish(&committing);
    let version = stored(&bench, 0).1;
    assert_eq!(answers, [Ok(version), Err(ChainError::Moved), Ok(version)]);
    check_companies(&anna.host, 3, &[&[0, 1, 2], &[0, 1, 2]]);
    let (_, answers) = commit(&bench, chains, 2);
    assert_eq!(answers[1], Err(ChainError::Moved));
    check_runs(&bench, &[&[1, 2], &[1], &[1, 2]]);
}

#[test]
fn when_a_commit_in_doubt_cannot_land_any_more_the_chains_that_have_not_moved_send_theirs_again() {
    let (bench, anna, chains) = fleet(3);
    anna.host.tap.on(SHARDS, [Fault::LandLater]);
    let committing = begin(&bench, chains, 1, Vec::new());
    bench.run_for(PAUSE / 2);
    take_over(&bench, 1);
    let (chains, answers) = bench.finish(&committing);
    let version = stored(&bench, 0).1;
    assert_eq!(answers, [Ok(version), Err(ChainError::Moved), Ok(version)]);
    check_companies(&anna.host, 3, &[&[0, 1, 2], &[0, 1, 2], &[0, 2]]);
    check_landed_nowhere(&bench, &anna);
    let (chains, _) = commit(&bench, chains, 2);
    assert_eq!((chains[0].head().number, chains[2].head().number), (3, 3));
    check_runs(&bench, &[&[1, 2], &[], &[1, 2]]);
}

#[test]
fn when_the_heads_cannot_be_read_the_same_is_sent_again() {
    let (bench, anna, chains) = fleet(3);
    anna.host.tap.on(SHARDS, [Fault::LoseAnswer]);
    let committing = begin(&bench, chains, 1, Vec::new());
    bench.run_for(PAUSE / 2);
    anna.host.change(|site| site.read.cuts = 1);
    bench.run_for(T);
    assert!(committing.done_at().is_none());
    anna.host.heal();
    let (chains, answers) = bench.finish(&committing);
    check_done(&bench, &chains, &answers, 2);
    let sent = copies(&anna.host, 3);
    assert!(sent.len() > 2 && sent.iter().all(|copy| copy.commit == sent[0].commit));
}

#[test]
fn a_commit_that_was_never_sent_leaves_all_chains_as_they_were() {
    let (bench, anna, chains) = fleet(2);
    anna.host.tap.on(SHARDS, [Fault::refuse()]);
    let (chains, answers) = commit(&bench, chains, 1);
    let not_sent = Err(ChainError::NotSent("the script says so".into()));
    assert_eq!(answers, [not_sent.clone(), not_sent]);
    let (chains, answers) = commit(&bench, chains, 2);
    check_done(&bench, &chains, &answers, 2);
    check_runs(&bench, &[&[2], &[2]]);
}

#[test]
fn a_store_that_is_damaged_is_told_to_all() {
    let (bench, anna, chains) = fleet(2);
    anna.host.tap.on(SHARDS, [Fault::Say(CommitError::Corrupt("a page is torn".into()))]);
    let (_, answers) = commit(&bench, chains, 1);
    let corrupt = Err(ChainError::Corrupt("a page is torn".into()));
    assert_eq!(answers, [corrupt.clone(), corrupt]);
}

#[test]
fn as_many_writes_as_the_store_takes_go_in_one_commit_and_one_more_makes_two() {
    let (bench, anna, chains) = fleet(3);
    let most = anna.host.store.limits().writes;
    // Each writes a head and a run besides.
    let at_limit = || vec![own_deletes(0, most / 2 - 2), own_deletes(1, most / 2 - 4)];
    let (chains, answers) = commit_with(&bench, chains, 1, at_limit());
    check_done(&bench, &chains, &answers, 2);
    let mut past_it = at_limit();
    past_it.push((2, deletes(1)));
    let (chains, answers) = commit_with(&bench, chains, 2, past_it);
    check_done(&bench, &chains, &answers, 3);
    check_companies(&anna.host, 3, &[&[0, 1, 2], &[0, 1], &[2]]);
    assert_eq!(copies(&anna.host, 3)[0].commit.then.len(), most);
}

#[test]
fn as_many_bytes_as_the_store_takes_go_in_one_commit_and_one_more_makes_two() {
    let (bench, anna, chains) = fleet(3);
    let limits = Limits { writes: 8, commit_bytes: 4_096, value_bytes: 4_096 };
    anna.host.tap.limit(limits);
    let blob = |len: usize| {
        let key = Key::new("blob").unwrap();
        vec![(1, vec![Write::Put(key, vec![b' '; len].into())])]
    };
    let (chains, _) = commit_with(&bench, chains, 1, blob(0));
    let room = limits.commit_bytes - copies(&anna.host, 3)[0].commit.len();
    let (chains, _) = commit_with(&bench, chains, 2, blob(room));
    let (chains, answers) = commit_with(&bench, chains, 3, blob(room + 1));
    check_done(&bench, &chains, &answers, 4);
    check_companies(&anna.host, 3, &[&[0, 1, 2], &[0, 1, 2], &[0, 1], &[2]]);
    assert_eq!(copies(&anna.host, 3)[1].commit.len(), limits.commit_bytes);
}

#[test]
fn a_piece_that_is_too_large_is_refused_by_itself() {
    let (bench, anna, chains) = fleet(4);
    let max = anna.host.store.limits().writes;
    let (chains, answers) = commit_with(&bench, chains, 1, vec![(1, deletes(max - 1))]);
    let refused = Refusal::Writes { len: max + 1, max };
    assert_eq!(answers[1], Err(ChainError::Refused(refused)));
    assert!([0, 2, 3].iter().all(|shard| answers[*shard].is_ok()));
    check_companies(&anna.host, 4, &[&[0], &[2, 3]]);
    let (chains, answers) = commit(&bench, chains, 2);
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(chains[1].head().number, 2);
    check_runs(&bench, &[&[1, 2], &[2], &[1, 2], &[1, 2]]);
}

#[test]
fn a_piece_at_fault_in_another_way_is_refused_by_itself() {
    let (bench, anna, chains) = fleet(3);
    let twice = run_key(1, 1);
    let fault = vec![(1, vec![Write::Delete(twice.clone())])];
    let (chains, answers) = commit_with(&bench, chains, 1, fault);
    let refused = ChainError::Refused(Refusal::WrittenTwice { key: twice });
    assert_eq!(answers[1], Err(refused));
    check_companies(&anna.host, 3, &[&[0], &[2]]);
    let (_, answers) = commit(&bench, chains, 2);
    assert!(answers.iter().all(Result::is_ok));
    check_runs(&bench, &[&[1, 2], &[2], &[1, 2]]);
}

#[test]
fn pieces_that_write_the_same_key_go_each_by_itself() {
    let (bench, anna, chains) = fleet(2);
    let (chains, answers) = commit_with(&bench, chains, 1, vec![(0, deletes(1)), (1, deletes(1))]);
    check_done(&bench, &chains, &answers, 2);
    check_companies(&anna.host, 2, &[&[0], &[1]]);
}

#[test]
fn a_store_without_room_refuses_each_by_itself() {
    let (bench, anna, chains) = fleet(2);
    let full = Refusal::Full { place: "here".into() };
    let say = || Fault::Say(CommitError::Refused(full.clone()));
    anna.host.tap.on(SHARDS, [say(), say()]);
    let (chains, answers) = commit(&bench, chains, 1);
    assert_eq!(answers[0], Err(ChainError::Refused(full.clone())));
    assert!(answers[1].is_ok(), "there was room again");
    check_companies(&anna.host, 2, &[&[0, 1], &[0], &[1]]);
    assert_eq!((chains[0].head().number, chains[1].head().number), (1, 2));
}

#[test]
fn a_chain_that_was_released_writes_nothing_and_does_not_hold_up_the_others() {
    let (bench, anna, mut chains) = fleet(3);
    anna.host.tap.on(SHARDS, [Fault::lose()]);
    let world = bench.world.clone();
    let chains = bench.wait(async move {
        assert!(within(&world, 0, chains[1].release()).await.is_none());
        chains
    });
    let (chains, answers) = commit(&bench, chains, 1);
    assert_eq!((answers[0].is_ok(), &answers[1]), (true, &Err(ChainError::Moved)));
    check_companies(&anna.host, 3, &[&[1], &[0, 2]]);
    let mut chains = chains;
    bench.wait(async move { chains[1].release().await }).unwrap();
    assert_eq!(stored(&bench, 1).0.session, None);
    check_runs(&bench, &[&[1], &[], &[1]]);
}

#[test]
#[should_panic(expected = "one session writes in one commit")]
fn chains_of_two_sessions_do_not_write_together() {
    let (bench, _anna, mut chains) = fleet(1);
    let bert = bench.node("bert");
    chains.push(take(&bench, &bert, 1));
    commit(&bench, chains, 1);
}
