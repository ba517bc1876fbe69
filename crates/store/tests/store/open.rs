//! Opening: who is refused, and what they are told.

use std::fs;
use std::path::Path;

use store::file::{FileStore, Sizes};
use store::{Class, Commit, Key, OpenError, Store};

#[track_caller]
fn check_refused(dir: &Path, said: &[&str]) -> OpenError {
    let Err(why) = FileStore::open_or_create(dir, Sizes::default()) else {
        panic!("{} was opened", dir.display());
    };
    let sentence = why.to_string();
    for part in said {
        assert!(sentence.contains(part), "{sentence:?} does not say {part:?}");
    }
    why
}

#[test]
fn a_directory_in_use_is_refused_and_its_holder_named() {
    let dir = tempfile::tempdir().unwrap();
    let opened = FileStore::open_or_create(dir.path(), Sizes::default()).unwrap();
    let pid = std::process::id().to_string();
    let why = check_refused(dir.path(), &["in use by process", &pid, "stop that one first"]);
    assert!(matches!(why, OpenError::InUse { .. }));
    drop(opened);
    FileStore::open_existing(dir.path(), Sizes::default()).unwrap();
}

#[test]
fn a_directory_with_other_things_in_it_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("thesis.txt"), "years of work").unwrap();
    check_refused(dir.path(), &["holds no Watchbell store"]);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "not even a lock is left behind");
}

#[test]
fn a_lock_that_is_not_ours_is_somebodys_file() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("lock"), "precious content").unwrap();
    check_refused(dir.path(), &["holds no Watchbell store"]);
    assert_eq!(fs::read_to_string(dir.path().join("lock")).unwrap(), "precious content");
}

#[test]
fn a_file_in_the_place_of_the_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    check_refused(&file, &["file is not a directory", "give a directory"]);
}

#[test]
fn a_store_without_its_format_is_damaged_and_not_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    drop(FileStore::open_or_create(dir.path(), Sizes::default()).unwrap());
    fs::remove_file(dir.path().join("format")).unwrap();
    check_refused(dir.path(), &["damaged", "format is missing", "restore"]);
}

#[test]
fn a_store_that_is_not_there_is_not_made_by_looking() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    assert!(matches!(
        FileStore::open_existing(&missing, Sizes::default()),
        Err(OpenError::Missing { .. })
    ));
    assert!(!missing.exists());
    assert!(matches!(
        FileStore::open_existing(dir.path(), Sizes::default()),
        Err(OpenError::Missing { .. })
    ));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left behind");
}

#[tokio::test]
async fn opening_and_closing_again_and_again_keeps_everything_and_leaves_no_litter() {
    let dir = tempfile::tempdir().unwrap();
    let sizes = Sizes { segment_bytes: 64 * 1024, layer_bytes: 32 * 1024 };
    let mut last = store::Version(0);
    for round in 0..30 {
        let store = Store::new(FileStore::open_or_create(dir.path(), sizes).unwrap());
        for number in 0..round * 7 % 40 {
            let key = Key::new(format!("round/{round}/{number}")).unwrap();
            let version = store.commit(Commit::new().put(key, vec![b'x'; 500])).await.unwrap();
            assert!(version > last, "{version:?} after {last:?}");
            last = version;
        }
        for former in (1..=round).filter(|former| former * 7 % 40 > 0) {
            let key = Key::new(format!("round/{former}/0")).unwrap();
            assert!(store.get(&key).await.unwrap().is_some(), "round {former} in round {round}");
        }
    }
    let segments = fs::read_dir(dir.path().join("log")).unwrap().count();
    assert!(segments <= 6, "{segments} files in the log");
}

#[test]
fn the_class_tells_a_disk_from_memory() {
    let dir = tempfile::tempdir().unwrap();
    let class =
        Store::new(FileStore::open_or_create(dir.path(), Sizes::default()).unwrap()).class();
    let expected =
        if fs::read_to_string("/proc/mounts").is_ok_and(|mounts| on_tmpfs(&mounts, dir.path())) {
            Class::B
        } else {
            Class::S
        };
    assert_eq!(class, expected);
}

fn on_tmpfs(mounts: &str, path: &Path) -> bool {
    let below = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (point, kind) = (words.next()?, words.next()?);
        path.starts_with(point).then_some((point.len(), kind))
    });
    below.max_by_key(|(len, _)| *len).is_some_and(|(_, kind)| kind == "tmpfs" || kind == "ramfs")
}
