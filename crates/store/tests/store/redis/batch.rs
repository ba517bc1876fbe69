//! Commits that travel together: each is judged by itself, and only a lost answer is shared.

use std::pin::Pin;
use std::task::Poll;

use rig::redis::{Redis, Setup};
use store::{Commit, CommitError, Condition, Refusal, Store, Version};

use super::{key, open, put};

type Outcome = Result<Version, CommitError>;
type Waiting<'a> = Pin<Box<dyn Future<Output = Outcome> + 'a>>;

/// More than calls may be under way at once.
const MANY: usize = 8;

/// Commits that were handed in while the server stands still: some are under way already, and the rest waits for them.
struct Gathered<'a> {
    ahead: Vec<Waiting<'a>>,
    behind: Vec<Waiting<'a>>,
}

impl<'a> Gathered<'a> {
    async fn of(redis: &Redis, store: &'a Store, behind: Vec<Commit>) -> Self {
        redis.pause();
        let ahead = (0..MANY).map(|number| Commit::new().delete(key(&format!("ahead/{number}"))));
        Self { ahead: hand_in(store, ahead).await, behind: hand_in(store, behind).await }
    }

    /// The server goes on; what comes of those that waited, and by how many calls in all.
    async fn go_on(self, redis: &Redis) -> (Vec<Outcome>, u64) {
        redis.wake();
        let before = calls(redis);
        for ahead in self.ahead {
            ahead.await.unwrap();
        }
        let mut outcomes = Vec::new();
        for waiting in self.behind {
            outcomes.push(waiting.await);
        }
        (outcomes, calls(redis) - before)
    }
}

/// Each has been given to the store, in this order, and waits.
async fn hand_in<'a>(
    store: &'a Store,
    commits: impl IntoIterator<Item = Commit>,
) -> Vec<Waiting<'a>> {
    let mut all = Vec::new();
    for commit in commits {
        let mut waiting: Waiting<'a> = Box::pin(store.commit(commit));
        std::future::poll_fn(|context| {
            assert!(waiting.as_mut().poll(context).is_pending());
            Poll::Ready(())
        })
        .await;
        all.push(waiting);
    }
    all
}

/// How many scripts a server has run.
fn calls(redis: &Redis) -> u64 {
    let stats = redis.ask(&["INFO", "commandstats"]);
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    line.and_then(|rest| rest.split(',').next()).map_or(0, |count| count.parse().unwrap())
}

#[tokio::test]
async fn of_commits_that_contend_in_one_call_one_wins_and_the_others_see_it() {
    let redis = Setup::new().start();
    let store = open(&redis.url()).await;
    let claims = || (0..64).map(|who| put("k", &who.to_string()).when(Condition::Absent(key("k"))));
    let gathered = Gathered::of(&redis, &store, claims().collect()).await;
    let (outcomes, calls) = gathered.go_on(&redis).await;
    assert!(calls < MANY as u64, "64 commits took {calls} calls");
    let done: Vec<&Version> = outcomes.iter().filter_map(|outcome| outcome.as_ref().ok()).collect();
    let [&won] = done[..] else { panic!("{done:?} won") };
    assert_eq!(store.get(&key("k")).await.unwrap().unwrap().version, won);
    for outcome in &outcomes {
        match outcome {
            Ok(_) => {}
            Err(CommitError::Conflict(conflict)) => assert_eq!(conflict.found, Some(won)),
            Err(why) => panic!("{why}"),
        }
    }
}

#[tokio::test]
async fn commits_of_one_call_have_versions_of_their_own_that_grow() {
    let redis = Setup::new().start();
    let store = open(&redis.url()).await;
    let puts = (0..64).map(|number| put(&format!("k/{number}"), "")).collect();
    let (outcomes, _) = Gathered::of(&redis, &store, puts).await.go_on(&redis).await;
    let versions: Vec<Version> = outcomes.into_iter().map(Result::unwrap).collect();
    assert!(versions.is_sorted_by(|one, next| one < next), "{versions:?}");
    for (number, version) in versions.into_iter().enumerate() {
        let entry = store.get(&key(&format!("k/{number}"))).await.unwrap().unwrap();
        assert_eq!(entry.version, version);
    }
}

#[tokio::test]
async fn with_a_full_memory_what_only_deletes_is_done_and_what_travels_with_it_is_refused() {
    let redis = Setup::new().start();
    let store = open(&redis.url()).await;
    for name in ["large", "gone", "kept"] {
        store.commit(put(name, &"x".repeat(256 * 1024))).await.unwrap();
    }
    redis.ask(&["CONFIG", "SET", "maxmemory", "600kb"]);
    let commits = vec![
        Commit::new().delete(key("gone")),
        put("new", ""),
        put("other", "").delete(key("kept")),
        Commit::new().delete(key("large")),
        put("kept", ""),
    ];
    let (outcomes, calls) = Gathered::of(&redis, &store, commits).await.go_on(&redis).await;
    assert!(calls <= MANY as u64, "{calls}");
    let is_done: Vec<bool> = outcomes.iter().map(Result::is_ok).collect();
    assert_eq!(is_done, [true, false, false, true, false], "{outcomes:?}");
    for why in outcomes.into_iter().filter_map(Result::err) {
        assert!(matches!(why, CommitError::Refused(Refusal::Full { .. })), "{why}");
    }
    for (name, is_there) in [("gone", false), ("large", false), ("new", false), ("other", false)] {
        assert_eq!(store.get(&key(name)).await.unwrap().is_some(), is_there, "{name}");
    }
    let kept = store.get(&key("kept")).await.unwrap().unwrap();
    assert_eq!(kept.value.len(), 256 * 1024, "nothing is half done");
}

#[tokio::test]
async fn a_damaged_entry_is_told_to_whoever_looks_at_it_and_to_nobody_else() {
    let redis = Setup::new().start();
    let store = open(&redis.url()).await;
    store.commit(put("k", "")).await.unwrap();
    redis.ask(&["HSET", "{watchbell}:entries", "k", "no version"]);
    let commits = vec![
        put("before", ""),
        put("new", "").when(Condition::At(key("k"), Version(1))),
        put("behind", ""),
    ];
    let (outcomes, _) = Gathered::of(&redis, &store, commits).await.go_on(&redis).await;
    assert!(outcomes[0].is_ok() && outcomes[2].is_ok(), "{outcomes:?}");
    assert!(matches!(outcomes[1], Err(CommitError::Corrupt(_))), "{outcomes:?}");
}

#[tokio::test]
async fn a_call_that_is_not_answered_leaves_all_its_commits_unknown_and_is_done_whole_or_not_at_all()
 {
    let redis = Setup::new().start();
    let store = open(&redis.url()).await;
    let puts = (0..16).map(|number| put(&format!("k/{number}"), "")).collect();
    let gathered = Gathered::of(&redis, &store, puts).await;
    // Whoever is ahead stops waiting, so that the others leave, to a server that says nothing.
    drop(gathered.ahead);
    for waiting in gathered.behind {
        let outcome = waiting.await;
        assert!(matches!(outcome, Err(CommitError::Unknown(_))), "it was sent: {outcome:?}");
    }
    redis.wake();
    store.commit(put("after", "")).await.unwrap();
    let all = store.scan(store::Range::prefix("k/"), 100).await.unwrap().entries;
    assert!(all.is_empty() || all.len() == 16, "{all:?}");
}
