//! Members that die, stall and come back, and roads that lose.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use engine::limits::STORE_ANSWER_MAX;
use rig::etcd::{Etcd, Setup};
use rig::{Road, Way};
use store::{Commit, CommitError, Condition, Range, Store, Version};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::{key, open, scan_again};

/// Longer than anything here takes, on a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// How long an answer may take; twice what it does, because the machine is busy.
const IN_TIME: Duration = Duration::from_secs(2 * STORE_ANSWER_MAX.as_secs());

/// Commits until it succeeds; tells how long that took.
async fn commit_again(store: &Store, name: &str) -> (Version, Duration) {
    let begin = Instant::now();
    loop {
        let commit = Commit::new().put(key(name), "x");
        match timeout(IN_TIME, store.commit(commit)).await.expect("an answer in time") {
            Ok(version) => return (version, begin.elapsed()),
            Err(CommitError::Unknown(_) | CommitError::Unavailable(_)) => {}
            Err(why) => panic!("{why}"),
        }
        assert!(begin.elapsed() < SOON, "commits do not resume");
    }
}

/// 16 committers that each count up a chain of their own, and remember what was acknowledged.
struct Load {
    committers: JoinSet<(usize, u64)>,
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
}

impl Load {
    fn on(store: &Store) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let acknowledged = Arc::new(AtomicU64::new(0));
        let mut committers = JoinSet::new();
        for number in 0..16 {
            let (store, stop) = (store.clone(), Arc::clone(&stop));
            let acknowledged = Arc::clone(&acknowledged);
            committers.spawn(async move {
                let mut count = 0;
                while !stop.load(Ordering::SeqCst) {
                    let name = format!("load/{number:02}/{:06}", count + 1);
                    // As the contract asks: the same again, until it is acknowledged or found done.
                    let commit = Commit::new()
                        .when(Condition::Absent(key(name.clone())))
                        .put(key(name.clone()), "x");
                    let done = match store.commit(commit).await {
                        Ok(_) | Err(CommitError::Conflict(_)) => true,
                        Err(CommitError::Unknown(_) | CommitError::Unavailable(_)) => false,
                        Err(why) => panic!("{why}"),
                    };
                    if done {
                        count += 1;
                        acknowledged.fetch_add(1, Ordering::SeqCst);
                    }
                }
                (number, count)
            });
        }
        Self { committers, stop, acknowledged }
    }

    /// Waits until this many more were acknowledged; tells how long that took.
    async fn goes_on(&self, more: u64) -> Duration {
        let (begin, before) = (Instant::now(), self.acknowledged.load(Ordering::SeqCst));
        while self.acknowledged.load(Ordering::SeqCst) < before + more {
            assert!(begin.elapsed() < SOON, "commits do not resume");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        begin.elapsed()
    }

    /// Stops, and makes sure that nothing that was acknowledged is missing.
    async fn check_nothing_lost(mut self, store: &Store) {
        self.stop.store(true, Ordering::SeqCst);
        let mut counts = BTreeMap::new();
        while let Some(done) = self.committers.join_next().await {
            let (number, count) = done.unwrap();
            counts.insert(number, count);
        }
        for (number, count) in counts {
            let mut rest = Some(Range::prefix(&format!("load/{number:02}/")));
            let mut found = 0;
            while let Some(range) = rest {
                let page = timeout(SOON, scan_again(store, range, 1_000)).await.expect("a page");
                found += page.entries.len() as u64;
                rest = page.next;
            }
            // The last one may be done without anybody knowing.
            assert!(found == count || found == count + 1, "{number}: {found} of {count}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_death_of_the_leader_loses_nothing_and_commits_resume_by_themselves() {
    let mut etcd = Etcd::three();
    let store = open(&format!("etcd://{}", etcd.hosts())).await;
    let load = Load::on(&store);
    for _ in 0..2 {
        load.goes_on(200).await;
        let leader = etcd.leader();
        etcd.kill(leader);
        // What is under way is answered late or never; then it goes on.
        let took = load.goes_on(100).await;
        println!("commits went on {took:?} after the leader was killed");
        etcd.restart(leader);
        load.goes_on(100).await;
    }
    load.check_nothing_lost(&store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_members_stop_and_start_and_commits_resume_by_themselves() {
    let mut etcd = Etcd::three();
    let store = open(&format!("etcd://{}", etcd.hosts())).await;
    let epoch = store.epoch();
    let mut hints = store.watch("late");
    let load = Load::on(&store);
    load.goes_on(100).await;
    (0..3).for_each(|number| etcd.kill(number));
    let outcome = timeout(IN_TIME, store.commit(Commit::new().put(key("k"), "x"))).await;
    outcome.expect("an answer in time").unwrap_err();
    etcd.restart_all();
    let took = load.goes_on(50).await;
    println!("commits went on {took:?} after all members were back");
    load.check_nothing_lost(&store).await;
    commit_again(&store, "late").await;
    timeout(SOON, hints.changed()).await.expect("watches come back too");
    assert_eq!(store.epoch(), epoch, "nothing was restored");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_stalls_is_left_in_time() {
    let etcd = Etcd::three();
    let leader = etcd.leader();
    let stalled = (leader + 1) % 3;
    let rest: Vec<_> =
        (0..3).filter(|number| *number != stalled).map(|number| etcd.address(number)).collect();
    let hosts = format!("{},{},{}", etcd.address(stalled), rest[0], rest[1]);
    let store = open(&format!("etcd://{hosts}")).await;
    let mut hints = store.watch("w");
    commit_again(&store, "before").await;
    etcd.pause(stalled);
    let (_, took) = commit_again(&store, "after").await;
    println!("a stalled member was left after {took:?}");
    // Its watch is left with it, also if a hint was rung meanwhile.
    for _ in 0..2 {
        commit_again(&store, "w").await;
        timeout(SOON, hints.changed()).await.expect("hints come from another member");
    }
    etcd.wake(stalled);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_stalls_is_left_also_by_callers_without_patience() {
    let etcd = Etcd::three();
    let stalled = (etcd.leader() + 1) % 3;
    let others: Vec<_> =
        (0..3).filter(|number| *number != stalled).map(|number| etcd.address(number)).collect();
    let store =
        open(&format!("etcd://{},{},{}", etcd.address(stalled), others[0], others[1])).await;
    etcd.pause(stalled);
    let begin = Instant::now();
    loop {
        // They wait for less than it takes to find out that a member is silent.
        let commit = Commit::new().put(key("k"), "x");
        if let Ok(Ok(_)) = timeout(Duration::from_millis(700), store.commit(commit)).await {
            break;
        }
        assert!(begin.elapsed() < SOON, "it was never left");
    }
    println!("impatient callers left a stalled member after {:?}", begin.elapsed());
    etcd.wake(stalled);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_is_lost_is_unknown_and_sent_once() {
    let etcd = Etcd::one();
    let road = Road::to(etcd.address(0)).await;
    // Somebody who would send it again elsewhere has an elsewhere.
    let direct = open(&format!("etcd://{}", etcd.hosts())).await;
    let store = open(&format!("etcd://{},{}", road.address(), etcd.address(0))).await;
    store.commit(Commit::new().put(key("k"), "0")).await.unwrap();
    road.back(Way::Closed);
    let outcome = store.commit(Commit::new().put(key("k"), "1")).await;
    assert!(matches!(outcome, Err(CommitError::Unknown(_))), "{outcome:?}");
    let entry = direct.get(&key("k")).await.unwrap().unwrap();
    assert_eq!(entry.value.as_bytes(), b"1", "it was done all the same");
    assert_eq!(
        etcd.ctl(&["get", "watchbell/k", "-w", "fields"]).matches("\"Version\" : 2").count(),
        1
    );
    // The next one goes elsewhere.
    store.commit(Commit::new().put(key("k"), "2")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_did_not_get_there_is_unknown_too() {
    let etcd = Etcd::one();
    let road = Road::to(etcd.address(0)).await;
    let direct = open(&format!("etcd://{}", etcd.hosts())).await;
    let store = open(&format!("etcd://{}", road.address())).await;
    store.commit(Commit::new().put(key("k"), "")).await.unwrap();
    road.there(Way::Closed);
    let outcome = store.commit(Commit::new().put(key("lost"), "")).await;
    assert!(matches!(outcome, Err(CommitError::Unknown(_))), "{outcome:?}");
    assert_eq!(direct.get(&key("lost")).await.unwrap(), None);
    road.there(Way::Open);
    commit_again(&store, "k").await;
}

#[tokio::test]
async fn a_member_that_refuses_connections_leaves_nothing_unknown() {
    let mut etcd = Etcd::one();
    let store = open(&format!("etcd://{}", etcd.hosts())).await;
    store.commit(Commit::new().put(key("k"), "x")).await.unwrap();
    etcd.kill(0);
    // The first one may meet a connection that is only just broken.
    let _ = store.commit(Commit::new().put(key("k"), "y")).await;
    let outcome = store.commit(Commit::new().put(key("k"), "z")).await;
    assert!(matches!(outcome, Err(CommitError::Unavailable(_))), "{outcome:?}");
    etcd.restart(0);
    commit_again(&store, "k").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_that_are_no_longer_good_are_replaced() {
    let setup = Setup { password: Some("hunter2".into()), ..Setup::default() };
    let mut etcd = Etcd::start(1, &setup);
    let store = open(&format!("etcd://wb:hunter2@{}", etcd.hosts())).await;
    let late = open(&format!("etcd://wb:hunter2@{}", etcd.hosts())).await;
    store.commit(Commit::new().put(key("w"), "1")).await.unwrap();
    etcd.forget_tokens();
    store.commit(Commit::new().put(key("w"), "2")).await.unwrap();
    // The first thing that this one asks for is a watch.
    let mut hints = late.watch("w");
    for _ in 0..2 {
        store.commit(Commit::new().put(key("w"), "3")).await.unwrap();
        timeout(SOON, hints.changed()).await.expect("the watch has a new token too");
    }
    etcd.kill(0);
    etcd.restart(0);
    commit_again(&store, "w").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_etcd_whose_data_went_back_is_a_new_epoch() {
    let mut etcd = Etcd::one();
    let store = open(&format!("etcd://{}", etcd.hosts())).await;
    for _ in 0..10 {
        store.commit(Commit::new().put(key("k"), "x")).await.unwrap();
    }
    let epoch = store.epoch();
    etcd.forget();
    etcd.restart_all();
    commit_again(&store, "k").await;
    assert_ne!(store.epoch(), epoch, "the same cluster id, and a revision that was there before");
}
