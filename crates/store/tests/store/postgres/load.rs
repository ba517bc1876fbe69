//! Committers that remember what they were told, while somebody treats the store badly.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use store::{Commit, CommitError, Condition, Store, Version};
use tokio::task::JoinSet;

use super::{LONG, key, until};

/// Writers that each count up one key, by compare-and-set, until they are stopped.
pub(super) struct Load {
    store: Store,
    acknowledged: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    writers: JoinSet<Vec<(u64, Version)>>,
}

impl Load {
    pub(super) fn start(store: &Store, writers: usize) -> Self {
        let mut load = Self {
            store: store.clone(),
            acknowledged: Arc::default(),
            is_over: Arc::default(),
            writers: JoinSet::new(),
        };
        for writer in 0..writers {
            let (acknowledged, is_over) = (load.acknowledged.clone(), load.is_over.clone());
            load.writers.spawn(count_up(store.clone(), writer, acknowledged, is_over));
        }
        load
    }

    /// Waits for so many more acknowledgements.
    pub(super) async fn go_on(&self, count: u64) {
        let goal = self.acknowledged.load(Ordering::SeqCst) + count;
        until("more is acknowledged", async || self.acknowledged.load(Ordering::SeqCst) >= goal)
            .await;
    }

    /// Stops the writers, and makes sure that all that they were told is so.
    pub(super) async fn check(self) {
        self.is_over.store(true, Ordering::SeqCst);
        let told = tokio::time::timeout(LONG, self.writers.join_all()).await.expect("they stop");
        let mut versions = HashSet::new();
        for (writer, told) in told.into_iter().enumerate() {
            assert!(told.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1), "versions of a key grow");
            // Writers end in any order, so each says who it is by its first number.
            let last = told.last().unwrap_or_else(|| panic!("writer {writer} did something"));
            let name = told[0].0 / SPAN;
            let found = self.store.get(&key(format!("load/{name}"))).await.unwrap().unwrap();
            assert_eq!(
                number(found.value.as_bytes()),
                last.0,
                "what was acknowledged last is there"
            );
            assert!(
                told.iter().all(|(_, version)| versions.insert(*version)),
                "none is given twice"
            );
        }
    }
}

/// Numbers of a writer begin here, times its own.
const SPAN: u64 = 1_000_000_000;

async fn count_up(
    store: Store,
    writer: usize,
    acknowledged: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
) -> Vec<(u64, Version)> {
    let key = key(format!("load/{writer}"));
    let (mut next, mut before) = (writer as u64 * SPAN + 1, None);
    let mut told = Vec::new();
    while !is_over.load(Ordering::SeqCst) {
        let condition = match before {
            Some(version) => Condition::At(key.clone(), version),
            None => Condition::Absent(key.clone()),
        };
        let commit = Commit::new().when(condition).put(key.clone(), next.to_string());
        let version = loop {
            match store.commit(commit.clone()).await {
                Ok(version) => break version,
                // Only our own commit, sent before, can have been in the way.
                Err(CommitError::Conflict(_)) => match store.get(&key).await {
                    Ok(Some(found)) if number(found.value.as_bytes()) == next => {
                        break found.version;
                    }
                    Ok(found) => panic!("writer {writer} at {next} of {before:?} found {found:?}"),
                    Err(_) => {}
                },
                Err(CommitError::Unknown(_) | CommitError::Unavailable(_)) => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                Err(why) => panic!("{why}"),
            }
        };
        told.push((next, version));
        acknowledged.fetch_add(1, Ordering::SeqCst);
        (next, before) = (next + 1, Some(version));
    }
    told
}

fn number(value: &[u8]) -> u64 {
    std::str::from_utf8(value).unwrap().parse().unwrap()
}
