//! Backups of every store, restored to every store; damaged, cut short and restored again.

mod cut;
mod file;
mod former;
pub(super) mod sample;

use std::io::Cursor;
use std::sync::Arc;

use store::Store;
use store::backup::{RestoreError, Restored, check_finished, restore, take, verify};
use store::file::{FileStore, Sizes};
use store::machine::Machine;
use store::memory::MemoryStore;

use self::sample::{Still, contents, fill, restored};
use super::redis::open as open_redis;
use super::suite::SMALL;

/// A backup of this store.
pub(super) async fn backup(store: &Store) -> Vec<u8> {
    let mut bytes = Vec::new();
    let write = |more: &[u8]| {
        bytes.extend_from_slice(more);
        Ok(())
    };
    take(store, &Still::default(), "test", write).await.unwrap();
    bytes
}

pub(super) async fn put_back(store: &Store, bytes: &[u8]) -> Result<Restored, RestoreError> {
    let machine: Arc<dyn Machine> = Arc::new(Still::default());
    restore(store, &machine, Cursor::new(bytes), |_, _| {}).await
}

/// What every store must pass: two of a kind, both empty, are given.
pub(crate) async fn check_round_trip(one: &Store, other: &Store) {
    fill(one).await;
    let bytes = backup(one).await;
    let summary = verify(&bytes[..]).unwrap();
    assert_eq!((summary.census.triggers, summary.census.sessions), (2, 1));
    assert_eq!((summary.census.unfinished, summary.census.past), (1, 1));
    assert_eq!(summary.bytes, bytes.len() as u64);

    let before = contents(one).await;
    put_back(other, &bytes).await.unwrap();
    assert!(check_finished(other).await.unwrap().is_ok());
    let after = contents(other).await;
    assert_eq!(restored(&before), restored(&after), "what shall be the same is");
    sample::check_free(&before, &after);

    let why = put_back(other, &bytes).await.unwrap_err();
    assert!(matches!(why, RestoreError::NotEmpty { .. }), "{why}");
    assert!(why.to_string().contains("give a new one"), "{why}");
    assert_eq!(contents(other).await, after, "a refusal changes nothing");

    // A second generation is as good as the first.
    let second = backup(other).await;
    assert_eq!(verify(&second[..]).unwrap().census.triggers, 2);
}

#[tokio::test]
async fn a_memory_store_is_restored_as_it_was() {
    check_round_trip(&Store::new(MemoryStore::new()), &Store::new(MemoryStore::new())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_store_is_restored_as_it_was() {
    for sizes in [SMALL, Sizes::default()] {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let open = |dir: &tempfile::TempDir| {
            Store::new(FileStore::open_or_create(dir.path(), sizes).unwrap())
        };
        check_round_trip(&open(&one), &open(&other)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_one_kind_of_store_is_restored_to_another() {
    let (memory, dir) = (Store::new(MemoryStore::new()), tempfile::tempdir().unwrap());
    fill(&memory).await;
    let file = Store::new(FileStore::open_or_create(dir.path(), SMALL).unwrap());
    put_back(&file, &backup(&memory).await).await.unwrap();
    let again = Store::new(MemoryStore::new());
    put_back(&again, &backup(&file).await).await.unwrap();
    assert_eq!(restored(&contents(&again).await), restored(&contents(&memory).await));
}

#[tokio::test]
async fn a_store_on_which_no_server_ran_has_nothing_to_back_up() {
    let store = Store::new(MemoryStore::new());
    let why = take(&store, &Still::default(), "test", |_| Ok(())).await.unwrap_err();
    assert!(why.to_string().contains("nothing to back up"), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_store_is_restored_as_it_was() {
    let (one, other) = (rig::redis::Setup::new().start(), rig::redis::Setup::durable().start());
    check_round_trip(&open_redis(&one.url()).await, &open_redis(&other.url()).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_goes_from_file_to_redis_and_back() {
    let (dir, redis) = (tempfile::tempdir().unwrap(), rig::redis::Setup::new().start());
    let file = Store::new(FileStore::open_or_create(dir.path(), SMALL).unwrap());
    fill(&file).await;
    let store = open_redis(&redis.url()).await;
    put_back(&store, &backup(&file).await).await.unwrap();
    let memory = Store::new(MemoryStore::new());
    put_back(&memory, &backup(&store).await).await.unwrap();
    assert_eq!(restored(&contents(&memory).await), restored(&contents(&file).await));
}
