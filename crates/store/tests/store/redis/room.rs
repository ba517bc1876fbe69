//! A Redis without room, or one whose keys somebody else has touched: told as what it is, and over when it is over.

use rig::redis::Setup;
use store::{Commit, CommitError, Refusal, ScanError};

use super::{key, open, put};

#[tokio::test]
async fn a_full_memory_refuses_writes_takes_deletes_and_loses_nothing() {
    let redis = Setup::new().start();
    let store = open(&redis.url()).await;
    store.commit(put("large", &"x".repeat(512 * 1024))).await.unwrap();
    store.commit(put("small", "1")).await.unwrap();
    redis.ask(&["CONFIG", "SET", "maxmemory", "600kb"]);
    let both = put("small", "2").delete(key("large"));
    for commit in [put("small", "2"), put("new", ""), both] {
        let why = store.commit(commit).await.unwrap_err();
        assert!(matches!(why, CommitError::Refused(Refusal::Full { .. })), "{why}");
        assert!(why.to_string().contains("maxmemory"), "{why}");
    }
    assert_eq!(store.get(&key("small")).await.unwrap().unwrap().value.as_bytes(), b"1");
    assert!(store.get(&key("large")).await.unwrap().is_some());
    store.commit(Commit::new().delete(key("large"))).await.unwrap();
    redis.ask(&["CONFIG", "SET", "maxmemory", "100mb"]);
    store.commit(put("small", "2")).await.unwrap();
}

#[tokio::test]
async fn a_disk_that_takes_nothing_is_told_and_scans_go_on() {
    let redis = Setup::new().set("save", "3600 1").start();
    let store = open(&redis.url()).await;
    store.commit(put("k", "1")).await.unwrap();
    redis.lose_directory();
    assert!(redis.ask(&["SAVE"]).starts_with('-'));
    redis.ask(&["BGSAVE"]);
    let failed = async {
        while !redis.ask(&["INFO", "persistence"]).contains("rdb_last_bgsave_status:err") {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(super::LONG, failed).await.expect("it cannot save");
    let why = store.commit(put("k", "2")).await.unwrap_err();
    assert!(matches!(why, CommitError::Refused(Refusal::Full { .. })), "{why}");
    assert!(why.to_string().contains("MISCONF"), "{why}");
    assert_eq!(store.get(&key("k")).await.unwrap().unwrap().value.as_bytes(), b"1");
}

#[tokio::test]
async fn what_somebody_else_did_to_the_keys_is_damage() {
    let redis = Setup::new().start();
    let store = open(&redis.url()).await;
    store.commit(put("k", "1")).await.unwrap();
    redis.ask(&["HSET", "{watchbell}:entries", "k", "no version"]);
    assert!(matches!(store.get(&key("k")).await, Err(ScanError::Corrupt(_))));
    redis.ask(&["HDEL", "{watchbell}:entries", "k"]);
    assert!(matches!(store.get(&key("k")).await, Err(ScanError::Corrupt(_))));
    redis.ask(&["SET", "{watchbell}:order", "x"]);
    assert!(matches!(store.get(&key("k")).await, Err(ScanError::Corrupt(_))));
}

#[tokio::test]
async fn scripts_that_were_flushed_are_brought_again() {
    let redis = Setup::new().start();
    let store = open(&redis.url()).await;
    for _ in 0..3 {
        redis.ask(&["SCRIPT", "FLUSH"]);
        store.commit(put("k", "1")).await.unwrap();
        redis.ask(&["SCRIPT", "FLUSH"]);
        assert!(store.get(&key("k")).await.unwrap().is_some());
    }
}
