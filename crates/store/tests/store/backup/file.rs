//! A file that is not what was written, or was written wrong, is refused with a sentence.

use engine::id::{ProjectId, SerialId, ShardId};
use engine::instant::Instant;
use engine::record::{decode, encode};
use engine::shard::record::{
    FORMAT, ReservedName, TriggerState, head_key, past_key, reserved, state_key, trigger_key,
};
use store::backup::{BackupHeader, BackupReadError, BackupSection, Encoder, verify};
use store::cluster::ClusterIdentity;
use store::memory::MemoryStore;
use store::{Store, Value};

use super::sample::{SHARDS, fill, head, key, segment, trigger};
use super::{backup, put_back};

async fn sample() -> Vec<u8> {
    let store = Store::new(MemoryStore::new());
    fill(&store).await;
    backup(&store).await
}

#[track_caller]
fn check_refused(bytes: &[u8], what: &str) {
    let why = verify(bytes).expect_err(what).to_string();
    assert!(why.len() > 40 && why.contains(['.', ';', ':']), "{what}: {why}");
}

#[tokio::test]
async fn every_flipped_bit_is_noticed() {
    let mut bytes = sample().await;
    for at in 0..bytes.len() {
        for bit in 0..8 {
            bytes[at] ^= 1 << bit;
            check_refused(&bytes, &format!("bit {bit} of byte {at}"));
            bytes[at] ^= 1 << bit;
        }
    }
    verify(&bytes[..]).unwrap();
}

#[tokio::test]
async fn every_backup_that_is_cut_short_or_has_something_behind_it_is_noticed() {
    let bytes = sample().await;
    for len in 0..bytes.len() {
        check_refused(&bytes[..len], &format!("the first {len} bytes"));
    }
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    for junk in [&b"\n"[..], b"x", b"\0", lines[lines.len() - 1], &bytes] {
        check_refused(&[&bytes, junk].concat(), "junk behind the end");
    }
    for gone in 0..lines.len() {
        let others = lines.iter().enumerate().filter(|(at, _)| *at != gone);
        let others: Vec<&[u8]> = others.map(|(_, line)| *line).collect();
        check_refused(&others.concat(), &format!("line {gone} is gone"));
    }
}

#[tokio::test]
async fn a_damaged_backup_is_not_restored_at_all() {
    let mut bytes = sample().await;
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    let store = Store::new(MemoryStore::new());
    put_back(&store, &bytes).await.unwrap_err();
    assert!(super::contents(&store).await.is_empty());
}

/// A backup made by hand, with a checksum that is right.
fn by_hand(parts: &[(BackupSection, Vec<(String, Value)>)]) -> Vec<u8> {
    let header =
        BackupHeader { version: "0".into(), cluster: 7, shards: SHARDS, taken: Instant(5) };
    let mut out = Vec::new();
    let mut encoder = Encoder::begin(&header, &mut out);
    for (part, entries) in parts {
        encoder.section(*part, &mut out);
        for (name, value) in entries {
            encoder.entry(&key(name.clone()), value, &mut out).unwrap();
        }
    }
    encoder.end(&mut out);
    out
}

/// Shards of which the first holds this, and the rest.
fn with(first: Vec<(String, Value)>) -> Vec<(BackupSection, Vec<(String, Value)>)> {
    let about = ClusterIdentity { id: 7, shards: SHARDS }.to_value();
    vec![
        (BackupSection::Idempotency, Vec::new()),
        (BackupSection::Shard(ShardId(0)), first),
        (BackupSection::Shard(ShardId(1)), Vec::new()),
        (BackupSection::Shard(ShardId(2)), Vec::new()),
        (BackupSection::Rest, vec![("cluster/about".to_owned(), about)]),
    ]
}

#[track_caller]
fn check_wrong(parts: &[(BackupSection, Vec<(String, Value)>)], said: &str) {
    let why = verify(&by_hand(parts)[..]).expect_err(said);
    assert!(matches!(why, BackupReadError::Damaged { .. }), "{why}");
    assert!(why.to_string().contains(said), "{why}");
}

#[test]
fn records_of_different_moments_are_noticed_though_every_byte_is_right() {
    let shard = ShardId(0);
    let at = |number, open: &[_]| (head_key(shard), head(number, 20, open).to_value());
    let past = |number| (past_key(shard, number), segment().into());
    let bell = |name: &str, serial| {
        let record = encode(FORMAT, &trigger(0, serial, name));
        (trigger_key(shard, SerialId(serial)), Value::from(record))
    };
    let state = encode(FORMAT, &TriggerState::default());
    let state = (state_key(shard, SerialId(20)), Value::from(state));

    let right = vec![at(12, &[(20, 8)]), state.clone(), past(12), bell("bell", 20)];
    verify(&by_hand(&with(right))[..]).unwrap();
    // The head was read before the last commit, and the rest after it.
    check_wrong(&with(vec![at(11, &[]), past(12)]), "is younger than the head");
    check_wrong(&with(vec![at(12, &[]), bell("bell", 21)]), "is younger than the head");
    check_wrong(&with(vec![at(12, &[(20, 8)])]), "a run is open of trigger");
    check_wrong(&with(vec![at(12, &[]), state]), "something moved of trigger");
    check_wrong(&with(vec![past(12)]), "the head of its shard is not");
    check_wrong(&with(vec![at(12, &[]), bell("bell", 19), bell("bell", 20)]), "name of another");
    let misplaced = (trigger_key(shard, SerialId(19)), bell("bell", 20).1);
    check_wrong(&with(vec![at(12, &[]), misplaced]), "holds another trigger");
}

/// A trigger of a shard, whose name's home is the first one, and the head of that shard.
fn of_first_name(shard: u16) -> Vec<(String, Value)> {
    let mut names = (0..).map(|number| format!("bell-{number}"));
    let is_first = |name: &String| ShardId::of(ProjectId::DEFAULT, name, SHARDS) == ShardId(0);
    let name = names.find(is_first).unwrap();
    let record = encode(FORMAT, &trigger(shard, 20, &name));
    let head = (head_key(ShardId(shard)), head(12, 20, &[]).to_value());
    vec![head, (trigger_key(ShardId(shard), SerialId(20)), record.into())]
}

/// Shards that hold this, and the rest.
fn shards(content: [Vec<(String, Value)>; 3]) -> Vec<(BackupSection, Vec<(String, Value)>)> {
    let mut parts = with(Vec::new());
    for (part, content) in parts[1..].iter_mut().zip(content) {
        part.1 = content;
    }
    parts
}

#[test]
fn a_name_that_triggers_of_two_shards_have_is_noticed() {
    let none = Vec::new;
    let both = shards([of_first_name(0), of_first_name(1), none()]);
    check_wrong(&both, "in shard 0 and in shard 1");
    let both = shards([none(), of_first_name(1), of_first_name(2)]);
    check_wrong(&both, "in shard 1 and in shard 2");
    verify(&by_hand(&shards([of_first_name(0), none(), none()]))[..]).unwrap();
}

#[tokio::test]
async fn a_name_that_its_home_did_not_know_yet_is_reserved_at_restore() {
    let bytes = by_hand(&shards([Vec::new(), of_first_name(1), Vec::new()]));
    let store = Store::new(MemoryStore::new());
    put_back(&store, &bytes).await.unwrap();
    let reserved = store.scan_all(store::Range::prefix(&reserved(ShardId(0)))).await.unwrap();
    let reserved: Vec<ReservedName> =
        reserved.iter().map(|entry| decode(entry.value.as_bytes(), FORMAT).unwrap()).collect();
    assert_eq!(reserved, [ReservedName { shard: ShardId(1), at: Instant(5) }]);
}

#[test]
fn parts_that_are_missing_or_misplaced_are_noticed_though_every_byte_is_right() {
    let all = with(Vec::new());
    verify(&by_hand(&all)[..]).unwrap();
    for gone in 0..all.len() {
        let mut parts = all.clone();
        parts.remove(gone);
        let said = if gone + 1 == all.len() { "parts are missing" } else { "is next" };
        check_wrong(&parts, said);
    }
    let mut parts = all.clone();
    parts[4].1.clear();
    check_wrong(&parts, "cluster/about is missing");
    let mut parts = all.clone();
    parts[4].1[0].1 = ClusterIdentity { id: 8, shards: SHARDS }.to_value();
    check_wrong(&parts, "not what the first line says");
    let mut parts = all;
    parts[2].1.push(("shard/2/x".to_owned(), Value::from("{}")));
    check_wrong(&parts, "does not belong to this part");
}

#[test]
fn a_newer_backup_says_that_an_upgrade_is_needed() {
    let newer = r#"{"format":2,"watchbell":"backup","sharks":"a new meaning"}"#;
    let why = verify(newer.as_bytes()).unwrap_err();
    assert!(matches!(why, BackupReadError::Newer(_)), "{why}");
    assert!(why.to_string().contains("upgrade Watchbell"), "{why}");
    let mut parts = with(vec![(head_key(ShardId(0)), head(1, 0, &[]).to_value())]);
    parts[1].1.push((past_key(ShardId(0), 1), Value::from(r#"{"format":9}"#)));
    let why = verify(&by_hand(&parts)[..]).unwrap_err();
    assert!(matches!(why, BackupReadError::Newer(_)), "{why}");
}

#[test]
fn a_backup_that_was_given_up_says_why() {
    let header =
        BackupHeader { version: "0".into(), cluster: 7, shards: SHARDS, taken: Instant(5) };
    let mut out = Vec::new();
    Encoder::begin(&header, &mut out).broken("the disk is full", &mut out);
    let why = verify(&out[..]).unwrap_err().to_string();
    assert!(why.contains("was given up while it was taken: the disk is full"), "{why}");
}
