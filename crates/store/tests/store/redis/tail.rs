//! A Redis that lost its tail, or the lead: no version twice, another epoch, and nothing from a former one.

use rig::redis::Setup;
use rig::{Road, Way};
use store::{Class, CommitError, Condition, ScanError, Store, Version};

use super::{LONG, insist, key, open, put};

async fn versions(store: &Store, count: usize) -> Vec<Version> {
    let mut given = Vec::new();
    for number in 0..count {
        given.push(store.commit(put("k", &number.to_string())).await.unwrap());
    }
    given
}

#[tokio::test]
async fn a_redis_that_lost_its_tail_gives_no_version_twice_and_begins_another_epoch() {
    for is_saved in [true, false] {
        let mut redis = Setup::new().start();
        let store = open(&redis.url()).await;
        let mut given = versions(&store, 20).await;
        if is_saved {
            assert_eq!(redis.ask(&["SAVE"]), "OK");
        }
        given.extend(versions(&store, 200).await);
        let (epoch, lost) = (store.epoch(), *given.last().unwrap());
        assert_eq!(store.class(), Class::B);
        redis.restart();

        let again = insist(&store, put("other", "")).await;
        assert!(again > lost, "{again:?} was given after {lost:?}");
        assert_ne!(store.epoch(), epoch);
        let found = store.get(&key("k")).await.unwrap().map(|entry| entry.version);
        assert_eq!(found, is_saved.then(|| given[19]), "the tail is gone");
        let late = put("k", "late").when(Condition::At(key("k"), lost));
        assert!(matches!(store.commit(late).await, Err(CommitError::Conflict(_))));
        assert!(versions(&store, 20).await.into_iter().all(|version| version > again));
    }
}

#[tokio::test]
async fn versions_grow_although_the_clock_of_redis_stands_behind_the_last_one() {
    let redis = Setup::new().start();
    let store = open(&redis.url()).await;
    store.commit(put("k", "")).await.unwrap();
    // As far ahead as a clock that was set back by thirty years leaves it; still exact in a double.
    let ahead = 2_700_000_000_000_001_u64;
    redis.ask(&["HSET", "{watchbell}:entries", " last", &ahead.to_string()]);
    let given = versions(&store, 3).await;
    assert_eq!(given, [1, 2, 3].map(|more| Version(ahead + more)));
    assert_eq!(store.get(&key("k")).await.unwrap().unwrap().version, Version(ahead + 3));
}

#[tokio::test]
async fn a_server_that_was_demoted_and_promoted_again_begins_another_epoch() {
    let (redis, other) = (Setup::new().start(), Setup::new().start());
    let store = open(&redis.url()).await;
    store.commit(put("k", "")).await.unwrap();
    let epoch = store.epoch();
    redis.ask(&["REPLICAOF", "127.0.0.1", &other.address().port().to_string()]);
    let refused = store.commit(put("k", "")).await.unwrap_err();
    assert!(matches!(refused, CommitError::Unavailable(_)), "{refused}");
    let unread = store.get(&key("k")).await.unwrap_err();
    assert!(matches!(unread, ScanError::Unavailable(_)), "a replica's view may be old: {unread}");
    assert_eq!(store.epoch(), epoch);
    redis.ask(&["REPLICAOF", "NO", "ONE"]);
    insist(&store, put("k", "")).await;
    assert_ne!(store.epoch(), epoch, "the same process, and another reign");
}

#[tokio::test]
async fn a_master_that_was_left_is_never_believed_again() {
    let (one, other) = (Setup::new().start(), Setup::new().start());
    let (to_one, to_other) = (Road::to(one.address()).await, Road::to(other.address()).await);
    let store = open(&format!("redis://{},{}", to_one.address(), to_other.address())).await;
    store.commit(put("k", "one")).await.unwrap();
    let first = store.epoch();

    to_one.both(Way::Closed);
    insist(&store, put("k", "other")).await;
    let second = store.epoch();
    assert_ne!(first, second);

    to_other.both(Way::Closed);
    to_one.both(Way::Open);
    for _ in 0..6 {
        let refused = store.commit(put("k", "back")).await.unwrap_err();
        let is_known = matches!(refused, CommitError::Unavailable(_) | CommitError::Unknown(_));
        assert!(is_known, "{refused}");
        assert!(matches!(store.get(&key("k")).await, Err(ScanError::Unavailable(_))));
    }
    assert_eq!(store.epoch(), second);
    // What was on its way there when it was cut off may have landed since; nothing was sent behind it.
    assert!(!one.ask(&["HGET", "{watchbell}:entries", "k"]).ends_with(" back"));

    to_other.both(Way::Open);
    let back = async {
        loop {
            if let Ok(Some(entry)) = store.get(&key("k")).await {
                return entry;
            }
        }
    };
    let entry = tokio::time::timeout(LONG, back).await.unwrap();
    assert_ne!(entry.value.as_bytes(), b"one");
    assert_eq!(store.epoch(), second);
}
