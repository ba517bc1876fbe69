//! etcd: the contract on one member and on three, and everything that may happen to them.

mod election;
mod fault;
mod open;
mod quota;
mod ring;

use std::time::Duration;

use engine::limits::{ETCD_PREFIX_BYTES_MAX, KEY_BYTES_MAX};
use rig::Road;
use rig::etcd::{Etcd, Setup};
use store::conformance::StoreUnderTest;
use store::memory::MemoryStore;
use store::{Class, Commit, Condition, Key, Page, Range, ScanError, Store, StoreUrl, Version};

use super::backup::{backup, check_round_trip, put_back};
use super::patience::opened;
use super::suite::check;

/// A store at this URL.
pub(super) async fn open(url: &str) -> Store {
    let url = StoreUrl::parse(url).unwrap();
    opened(|| store::open_or_create(&url)).await
}

/// A key that is fine.
pub(super) fn key(text: impl Into<String>) -> Key {
    Key::new(text).unwrap()
}

/// A page, asked for again while there is no answer. Whoever calls this bounds it.
async fn scan_again(store: &Store, range: Range, limit: usize) -> Page {
    loop {
        match store.scan(range.clone(), limit).await {
            Ok(page) => return page,
            Err(ScanError::Unavailable(_)) => tokio::task::yield_now().await,
            Err(why) => panic!("{why}"),
        }
    }
}

/// The contract, through one member, and through another one, or another connection, which is cut.
async fn check_contract(etcd: &Etcd) {
    let road = Road::to(etcd.address(etcd.len() - 1)).await;
    let store = open(&format!("etcd://{}", etcd.address(0))).await;
    let other = open(&format!("etcd://{}", road.address())).await;
    let subject = StoreUnderTest::new(store.clone(), "scratch/")
        .with_other(other)
        .with_reconnect(move || road.cut());
    check(subject, &store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_of_one_member_keeps_the_contract() {
    let etcd = Etcd::one();
    check_contract(&etcd).await;
    assert_eq!(open(&format!("etcd://{}", etcd.hosts())).await.class(), Class::S);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_of_three_members_keeps_the_contract() {
    let etcd = Etcd::three_calm();
    check_contract(&etcd).await;
    assert_eq!(open(&format!("etcd://{}", etcd.hosts())).await.class(), Class::A);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_with_tls_and_passwords_keeps_the_contract() {
    let setup = Setup { tls: true, password: Some("hunter2".into()), ..Setup::default() };
    let etcd = Etcd::start(1, &setup);
    let url = format!("etcds://wb:hunter2@{}?ca={}", etcd.hosts(), etcd.ca().display());
    let store = open(&url).await;
    check(StoreUnderTest::new(store.clone(), "scratch/").with_other(open(&url).await), &store)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_etcd_store_is_restored_as_it_was_and_to_other_kinds() {
    let etcd = Etcd::one();
    let (one, other) = (
        open(&format!("etcd://{}/one", etcd.hosts())).await,
        open(&format!("etcd://{}/other", etcd.hosts())).await,
    );
    check_round_trip(&one, &other).await;
    let memory = Store::new(MemoryStore::new());
    put_back(&memory, &backup(&one).await).await.unwrap();
    let third = open(&format!("etcd://{}/third", etcd.hosts())).await;
    put_back(&third, &backup(&memory).await).await.unwrap();
}

#[tokio::test]
async fn a_commit_that_deletes_what_is_not_there_has_a_version_of_its_own() {
    let etcd = Etcd::one();
    let store = open(&format!("etcd://{}", etcd.hosts())).await;
    let mut last = Version(0);
    for _ in 0..3 {
        let version = store.commit(Commit::new().delete(key("nothing"))).await.unwrap();
        assert!(version > last, "{version:?} after {last:?}");
        last = version;
    }
    assert_eq!(store.scan(Range::all(), 10).await.unwrap().entries, vec![], "nor is it seen");
}

#[tokio::test]
async fn no_commit_was_given_version_0_nor_one_beyond_all_revisions() {
    let etcd = Etcd::one();
    let store = open(&format!("etcd://{}", etcd.hosts())).await;
    for version in [0, u64::MAX] {
        let at = Condition::At(key("absent"), Version(version));
        let outcome = store.commit(Commit::new().when(at).put(key("a"), "")).await;
        assert!(matches!(outcome, Err(store::CommitError::Conflict(_))), "{outcome:?}");
    }
}

#[tokio::test]
async fn stores_of_one_etcd_do_not_see_each_other_and_etcdctl_sees_both() {
    let etcd = Etcd::one();
    let a = open(&format!("etcd://{}/team/a", etcd.hosts())).await;
    let b = open(&format!("etcd://{}/team/a/b", etcd.hosts())).await;
    let default = open(&format!("etcd://{}", etcd.hosts())).await;
    a.commit(Commit::new().put(key("k"), "of a")).await.unwrap();
    default.commit(Commit::new().put(key("k"), "of all")).await.unwrap();
    assert_eq!(b.scan(Range::all(), 10).await.unwrap().entries, vec![]);
    assert_eq!(default.scan(Range::all(), 10).await.unwrap().entries.len(), 1);
    assert_eq!(etcd.ctl(&["get", "team/a/k"]), "team/a/k\nof a\n");
    assert_eq!(etcd.ctl(&["get", "watchbell/k"]), "watchbell/k\nof all\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_large_values_ends_early_and_is_of_one_moment() {
    let etcd = Etcd::one();
    let store = open(&format!("etcd://{}", etcd.hosts())).await;
    // Small ones first, so that the next portion is asked for in good faith.
    for number in 0..60 {
        store.commit(Commit::new().put(key(format!("a{number:03}")), "small")).await.unwrap();
    }
    let large = vec![b'v'; store.limits().value_bytes];
    for number in 0..90 {
        store.commit(Commit::new().put(key(format!("b{number:03}")), large.clone())).await.unwrap();
    }
    let (mut rest, mut seen, mut pages) = (Some(Range::all()), 0, 0);
    let reading = async {
        while let Some(range) = rest {
            let page = scan_again(&store, range, 1_000).await;
            let bytes: usize = page.entries.iter().map(|entry| entry.value.len()).sum();
            assert!(bytes <= 5 * 1024 * 1024, "{bytes} bytes in a page");
            (seen, pages, rest) = (seen + page.entries.len(), pages + 1, page.next);
        }
    };
    tokio::time::timeout(Duration::from_secs(60), reading).await.expect("all pages come");
    assert_eq!(seen, 150);
    assert!(pages >= 90 / 5, "{pages}");
}

#[tokio::test]
async fn the_largest_commit_fits_also_with_the_longest_prefix_and_keys() {
    let etcd = Etcd::one();
    let prefix = "p".repeat(ETCD_PREFIX_BYTES_MAX - 1);
    let store = open(&format!("etcd://{}/{prefix}", etcd.hosts())).await;
    let limits = store.limits();
    let long = |kind: &str, number: usize| {
        key(format!("{kind}{number:0>width$}", width = KEY_BYTES_MAX - 1))
    };
    let mut commit = Commit::new();
    for number in 0..limits.writes {
        commit = commit.when(Condition::Absent(long("c", number)));
    }
    for number in 1..limits.writes {
        commit = commit.put(long("w", number), "");
    }
    let room = limits.commit_bytes - commit.len() - KEY_BYTES_MAX;
    let commit = commit.put(long("w", 0), vec![b'v'; room.min(limits.value_bytes)]);
    store.commit(commit.clone()).await.unwrap();
    let deletes =
        (0..limits.writes).fold(Commit::new(), |all, number| all.delete(long("w", number)));
    store.commit(deletes).await.unwrap();
}
