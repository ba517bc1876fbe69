//! A restore that is cut short is recognised, refused to servers, and may be begun again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use store::backup::{RestoreError, check_finished, take};
use store::machine::Machine;
use store::memory::MemoryStore;
use store::{
    Adapter, Class, Commit, CommitError, Epoch, Hints, Limits, Page, Pending, Range, ScanError,
    Store, Version,
};

use super::sample::{LONGEST, Still, check_free, contents, fill, key, restored};
use super::{backup, put_back};

/// What becomes of commits on their way to a store that takes few writes at a time.
#[derive(Clone, Copy)]
enum Road {
    /// So many arrive, and then no more.
    Ends(usize),
    /// Each is done, and the first answer is lost.
    LosesAnswers,
}

struct Narrow {
    memory: Arc<MemoryStore>,
    road: Road,
    sent: AtomicUsize,
}

impl Narrow {
    fn store(memory: &Arc<MemoryStore>, road: Road) -> Store {
        Store::new(Self { memory: Arc::clone(memory), road, sent: AtomicUsize::new(0) })
    }
}

impl Adapter for Narrow {
    fn scan(&self, range: Range, limit: usize) -> Pending<'_, Result<Page, ScanError>> {
        self.memory.scan(range, limit)
    }

    fn commit(&self, commit: Commit) -> Pending<'_, Result<Version, CommitError>> {
        let sent = self.sent.fetch_add(1, Ordering::Relaxed);
        match self.road {
            Road::Ends(most) if sent >= most => {
                Box::pin(async { Err(CommitError::Corrupt("cut short on purpose".into())) })
            }
            Road::LosesAnswers if sent.is_multiple_of(2) => Box::pin(async {
                let _ = self.memory.commit(commit).await;
                Err(CommitError::Unknown("lost on purpose".into()))
            }),
            Road::Ends(_) | Road::LosesAnswers => self.memory.commit(commit),
        }
    }

    fn watch(&self, prefix: &str) -> Hints {
        self.memory.watch(prefix)
    }

    fn limits(&self) -> Limits {
        Limits { writes: 8, commit_bytes: 4_096, value_bytes: 2_048 }
    }

    fn class(&self) -> Class {
        Class::S
    }

    fn epoch(&self) -> Epoch {
        self.memory.epoch()
    }
}

async fn sample() -> (Store, Vec<u8>) {
    let store = Store::new(MemoryStore::new());
    fill(&store).await;
    let bytes = backup(&store).await;
    (store, bytes)
}

#[tokio::test]
async fn a_restore_that_is_cut_short_anywhere_is_refused_until_it_is_done_again() {
    let (source, bytes) = sample().await;
    for most in 0.. {
        let memory = Arc::new(MemoryStore::new());
        if put_back(&Narrow::store(&memory, Road::Ends(most)), &bytes).await.is_ok() {
            assert!(most > 3, "it took several commits");
            return;
        }
        let store = Store::shared(memory);
        if most > 0 {
            let why = check_finished(&store).await.unwrap().unwrap_err().to_string();
            assert!(why.contains("run watchbell restore again"), "{why}");
            let why = take(&store, &Still::default(), "test", |_| Ok(())).await.unwrap_err();
            assert!(why.to_string().contains("was not finished"), "{why}");
        }
        put_back(&store, &bytes).await.unwrap();
        check_finished(&store).await.unwrap().unwrap();
        let after = contents(&store).await;
        assert_eq!(restored(&after), restored(&contents(&source).await));
        check_free(&contents(&source).await, &after);
    }
}

#[tokio::test]
async fn another_backup_does_not_go_on_where_one_was_cut_short() {
    let (source, bytes) = sample().await;
    source.commit(Commit::new().put(key("more"), "x")).await.unwrap();
    let other = backup(&source).await;
    let memory = Arc::new(MemoryStore::new());
    put_back(&Narrow::store(&memory, Road::Ends(2)), &bytes).await.unwrap_err();
    let why = put_back(&Store::shared(memory), &other).await.unwrap_err();
    assert!(matches!(why, RestoreError::Other(_)), "{why}");
}

#[tokio::test]
async fn answers_that_are_lost_do_no_harm() {
    let (source, bytes) = sample().await;
    let memory = Arc::new(MemoryStore::new());
    put_back(&Narrow::store(&memory, Road::LosesAnswers), &bytes).await.unwrap();
    let after = contents(&Store::shared(memory)).await;
    assert_eq!(restored(&after), restored(&contents(&source).await));
    check_free(&contents(&source).await, &after);
}

#[tokio::test]
async fn a_former_restore_writes_nothing_once_another_has_begun() {
    let (_, bytes) = sample().await;
    let memory = Arc::new(MemoryStore::new());
    put_back(&Narrow::store(&memory, Road::Ends(2)), &bytes).await.unwrap_err();
    let store = Store::shared(memory);
    let mark = store.get(&key("cluster/restoring")).await.unwrap().unwrap();
    put_back(&store, &bytes).await.unwrap();
    let late = Commit::new()
        .when(store::Condition::At(mark.key.clone(), mark.version))
        .put(key("shard/0/head"), "late");
    assert!(matches!(store.commit(late).await, Err(CommitError::Conflict(_))));
}

#[tokio::test]
async fn a_store_that_somebody_began_to_use_is_left_alone() {
    let (_, bytes) = sample().await;
    let memory = Arc::new(MemoryStore::new());
    put_back(&Narrow::store(&memory, Road::Ends(2)), &bytes).await.unwrap_err();
    let store = Store::shared(memory);
    store.commit(Commit::new().put(key("node/bert/00000000000000cd"), "{}")).await.unwrap();
    let why = put_back(&store, &bytes).await.unwrap_err();
    assert!(matches!(why, RestoreError::InUse { .. }), "{why}");
    assert!(check_finished(&store).await.unwrap().is_err());
}

#[tokio::test]
async fn a_record_that_a_store_does_not_take_is_told_before_anything_is_written() {
    let (source, _) = sample().await;
    for (len, is_taken) in [(2_048, true), (2_049, false)] {
        source.commit(Commit::new().put(key("large"), vec![b'x'; len])).await.unwrap();
        let bytes = backup(&source).await;
        let memory = Arc::new(MemoryStore::new());
        let done = put_back(&Narrow::store(&memory, Road::Ends(usize::MAX)), &bytes).await;
        assert_eq!(done.is_ok(), is_taken, "{done:?}");
        assert_eq!(contents(&Store::shared(memory)).await.is_empty(), !is_taken);
    }
}

#[tokio::test]
async fn where_others_may_have_the_store_open_the_end_waits_until_they_have_stopped() {
    let (_, bytes) = sample().await;
    let machine = Arc::new(Still::default());
    let on: Arc<dyn Machine> = machine.clone();
    let store = Store::new(MemoryStore::new());
    store::backup::restore(&store, &on, std::io::Cursor::new(bytes), |_, _| {}).await.unwrap();
    assert!(machine.slept() >= LONGEST * 5 / 4, "{:?}", machine.slept());
    assert!(machine.slept() < LONGEST * 5 / 4 + Duration::from_secs(1), "{:?}", machine.slept());
}
