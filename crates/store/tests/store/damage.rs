//! Flipped bits anywhere in a store's directory: harmless, mended from the log, or reported. Never
//! served, never silently lost, never a panic that gets out.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{fs, panic};

use rig::Random;
use store::file::FileStore;
use store::{Commit, Entry, Key, OpenError, Range, ScanError, Store};

use super::child::SIZES;

/// A store to which nobody commits is soon tidy.
const COPIES_MAX: usize = 500;

/// What came of a damaged store.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// It opened, and everything was there.
    AllThere,
    /// It said what is wrong.
    Reported(String),
    /// It served something else than was written. This is what must not be.
    Wrong(String),
}

/// Opens the store and reads all of it.
async fn examine(dir: &Path, expected: &[Entry]) -> Outcome {
    let store = match FileStore::open_existing(dir, SIZES) {
        Ok(file) => Store::new(file),
        Err(
            why @ (OpenError::Corrupt(_)
            | OpenError::Format { .. }
            | OpenError::Io { .. }
            | OpenError::Missing { .. }),
        ) => return Outcome::Reported(why.to_string()),
        Err(other) => return Outcome::Wrong(format!("a strange reason not to open: {other}")),
    };
    match read_all(&store).await {
        Ok(found) if found == expected => Outcome::AllThere,
        Ok(found) => {
            Outcome::Wrong(format!("{} entries instead of {}", found.len(), expected.len()))
        }
        Err(ScanError::Corrupt(why)) => Outcome::Reported(why),
        Err(other) => Outcome::Wrong(format!("a strange reason not to read: {other}")),
    }
}

async fn read_all(store: &Store) -> Result<Vec<Entry>, ScanError> {
    let mut entries = Vec::new();
    let mut rest = Some(Range::all());
    while let Some(range) = rest {
        let page = store.scan(range, 1_000).await?;
        entries.extend(page.entries);
        rest = page.next;
    }
    Ok(entries)
}

/// A store with several segments and tables, an image of it as kill -9 leaves it (`crashed`), and of
/// a clean stop (`closed`).
struct Images {
    dir: tempfile::TempDir,
    expected: Vec<Entry>,
}

impl Images {
    async fn make() -> Self {
        let dir = rig::directory();
        let live = dir.path().join("closed");
        let store = Store::new(FileStore::open_or_create(&live, SIZES).unwrap());
        let mut random = Random::new(21);
        for number in 0..1_500 {
            let mut commit = Commit::new();
            for part in 0..=random.place(3) {
                let key = Key::new(format!(
                    "shard/{}/trigger/{:04}-{part}",
                    number % 4,
                    random.place(600)
                ))
                .unwrap();
                commit = if random.place(6) == 0 {
                    commit.delete(key)
                } else {
                    commit.put(
                        key,
                        format!(
                            "{{\"format\":1,\"number\":{number},\"x\":\"{:x<1$}\"}}",
                            "",
                            random.place(200)
                        ),
                    )
                };
            }
            store.commit(commit).await.unwrap();
        }
        let expected = read_all(&store).await.unwrap();
        copy_living(&live, &dir.path().join("crashed")).await;
        drop(store);
        Self { dir, expected }
    }

    fn copy(&self, image: &str, to: &Path) {
        copy(&self.dir.path().join(image), to);
    }
}

/// Copies the directory of a store that runs, as it is at one moment: a copy during which others were tidying it is
/// none, and is made again.
async fn copy_living(from: &Path, to: &Path) {
    for _ in 0..COPIES_MAX {
        let before = looks(from);
        copy(from, to);
        if looks(from) == before {
            return;
        }
        fs::remove_dir_all(to).unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{} is never left alone", from.display());
}

/// The length of each file below, and when it was written; nothing of those that vanish meanwhile.
fn looks(dir: &Path) -> BTreeMap<PathBuf, Option<(u64, SystemTime)>> {
    let mut found = BTreeMap::new();
    for file in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        if file.file_type().unwrap().is_dir() {
            found.extend(looks(&file.path()));
        } else {
            let about = file.metadata().ok();
            found.insert(file.path(), about.map(|about| (about.len(), about.modified().unwrap())));
        }
    }
    found
}

/// Copies a directory that others may still be tidying: what vanishes meanwhile is left out.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for file in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(file.file_name());
        if file.file_type().unwrap().is_dir() {
            copy(&file.path(), &target);
        } else {
            let _ = fs::copy(file.path(), target);
        }
    }
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for file in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        if file.file_type().unwrap().is_dir() {
            found.extend(files(&file.path()));
        } else if file.metadata().unwrap().len() > 0 && file.file_name() != "lock" {
            found.push(file.path());
        }
    }
    found.sort();
    found
}

/// Flips a bit, half of the time near the beginning or the end of a file, where its headers are.
fn flip(path: &Path, random: &mut Random) -> String {
    let mut bytes = fs::read(path).unwrap();
    let edge = bytes.len().min(256);
    let at = match random.place(4) {
        0 => random.place(edge),
        1 => bytes.len() - 1 - random.place(edge),
        _ => random.place(bytes.len()),
    };
    let bit = random.place(8);
    bytes[at] ^= 1 << bit;
    fs::write(path, bytes).unwrap();
    format!("bit {bit} of byte {at} of {}", path.display())
}

async fn flips(image: &str, count: usize, seed: u64) -> (usize, usize) {
    let images = Images::make().await;
    let mut random = Random::new(seed);
    let (mut all_there, mut reported, mut wrong) = (0, 0, String::new());
    for _ in 0..count {
        let dir = rig::directory();
        images.copy(image, dir.path());
        let files = files(dir.path());
        let place = flip(&files[random.place(files.len())], &mut random);
        match examine(dir.path(), &images.expected).await {
            Outcome::AllThere => all_there += 1,
            Outcome::Reported(why)
                if why.contains("restore")
                    || why.contains("start again")
                    || why.contains("upgrade") =>
            {
                reported += 1;
            }
            other => writeln!(wrong, "seed {seed}: {place}: {other:?}").unwrap(),
        }
    }
    assert_eq!(wrong, "", "with {all_there} harmless and {reported} reported");
    (all_there, reported)
}

/// Panics inside the tree are caught and reported; without this they would fill the test's output.
fn quietly() {
    panic::set_hook(Box::new(|info| {
        let place = info.location().map_or("", |location| location.file());
        if !place.contains("lsm-tree") && !place.contains("sfa") {
            eprintln!("{info}");
        }
    }));
}

#[tokio::test]
async fn the_images_are_sound_before_they_are_damaged() {
    let images = Images::make().await;
    for image in ["crashed", "closed"] {
        let dir = rig::directory();
        images.copy(image, dir.path());
        assert_eq!(examine(dir.path(), &images.expected).await, Outcome::AllThere, "{image}");
    }
    assert!(images.expected.len() > 500);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_flips_after_a_crash_lose_nothing_silently() {
    quietly();
    let (all_there, reported) = flips("crashed", 500, 22).await;
    println!("after a crash: {all_there} harmless or mended, {reported} reported");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_flips_after_a_clean_stop_lose_nothing_silently() {
    quietly();
    let (all_there, reported) = flips("closed", 500, 23).await;
    println!("after a clean stop: {all_there} harmless or mended, {reported} reported");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: make soak"]
async fn soak_flips_lose_nothing_silently() {
    quietly();
    for seed in 1_000..1_010 {
        flips("crashed", 2_000, seed).await;
        flips("closed", 2_000, seed).await;
    }
}

/// What an engine does that takes damage for the end of its log: the seal tells, and without the seal
/// the examination would still notice.
#[tokio::test]
async fn a_log_that_was_cut_behind_a_damaged_record_would_be_noticed() {
    let dir = rig::directory();
    let live = dir.path().join("live");
    let store =
        Store::new(FileStore::open_or_create(&live, store::file::Sizes::default()).unwrap());
    for number in 0..100 {
        let key = Key::new(format!("k{number}")).unwrap();
        store.commit(Commit::new().put(key, "value")).await.unwrap();
    }
    let expected = read_all(&store).await.unwrap();
    let crashed = dir.path().join("crashed");
    copy(&live, &crashed);
    let segment = crashed.join("log/00000000000000000001.log");
    let mut bytes = fs::read(&segment).unwrap();
    let half = bytes.iter().rposition(|byte| *byte != 0).unwrap() / 2;
    bytes[half..].fill(0);
    fs::write(&segment, bytes).unwrap();
    let outcome = examine(&crashed, &expected).await;
    assert!(matches!(&outcome, Outcome::Reported(why) if why.contains("to 100")), "{outcome:?}");
    fs::write(crashed.join("log/seal"), [0; 8192]).unwrap();
    let outcome = examine(&crashed, &expected).await;
    assert!(matches!(outcome, Outcome::Wrong(_)), "{outcome:?}");
}

#[tokio::test]
async fn an_index_without_its_list_is_damage_and_its_tables_are_left_alone() {
    let images = Images::make().await;
    let dir = rig::directory();
    images.copy("closed", dir.path());
    let current = fs::read(dir.path().join("index/current")).unwrap();
    fs::remove_file(dir.path().join("index/current")).unwrap();
    for _ in 0..2 {
        let outcome = examine(dir.path(), &images.expected).await;
        assert!(matches!(outcome, Outcome::Reported(_)), "{outcome:?}");
    }
    fs::write(dir.path().join("index/current"), current).unwrap();
    assert_eq!(
        examine(dir.path(), &images.expected).await,
        Outcome::AllThere,
        "once it is put back"
    );
}

/// A log that cannot be read for a moment does not show that it has everything.
#[tokio::test]
async fn a_damaged_index_stays_in_its_place_when_the_log_cannot_be_read() {
    let images = Images::make().await;
    let dir = rig::directory();
    images.copy("closed", dir.path());
    let current = fs::read(dir.path().join("index/current")).unwrap();
    fs::write(dir.path().join("index/current"), "rubbish").unwrap();
    // A directory in the place of a segment is an error to read, whoever reads it.
    let segment = dir.path().join("log").join("00000000000000009999.log");
    fs::create_dir(&segment).unwrap();
    assert!(matches!(examine(dir.path(), &images.expected).await, Outcome::Reported(_)));
    fs::remove_dir(&segment).unwrap();
    fs::write(dir.path().join("index/current"), current).unwrap();
    assert_eq!(examine(dir.path(), &images.expected).await, Outcome::AllThere);
}

#[tokio::test]
async fn a_damaged_index_is_made_anew_while_the_log_has_everything() {
    let dir = rig::directory();
    let store =
        Store::new(FileStore::open_or_create(dir.path(), store::file::Sizes::default()).unwrap());
    for number in 0..100 {
        let key = Key::new(format!("k{number}")).unwrap();
        store.commit(Commit::new().put(key, "value")).await.unwrap();
    }
    let expected = read_all(&store).await.unwrap();
    drop(store);
    fs::write(dir.path().join("index/current"), "rubbish").unwrap();
    assert_eq!(examine(dir.path(), &expected).await, Outcome::AllThere);
    assert!(dir.path().join("index.damaged").exists(), "the damaged one is kept aside for a look");
}
