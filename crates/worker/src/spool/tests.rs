//! What a new life finds, whatever happened to the former one.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::sync::atomic::Ordering;

use serde_json::json;
use tempfile::{TempDir, tempdir};

use super::*;
use crate::Sight;
use crate::limits::RUNS_MAX;

const NONE: Duration = Duration::ZERO;

fn held(id: &str) -> HeldRun {
    HeldRun { id: id.to_owned(), token: 1 }
}

fn done(id: &str) -> DoneRun {
    serde_json::from_value(json!({"id": id, "token": 1, "result": "succeeded"})).unwrap()
}

async fn open(dir: &TempDir) -> Spool {
    Spool::open_within(dir.path(), "w", NONE).await.unwrap()
}

fn log_of(dir: &TempDir) -> PathBuf {
    dir.path().join("w/log")
}

/// What is left to be reported: ids and results.
fn left(spool: &Spool) -> Vec<(String, RunResult)> {
    spool.left().iter().map(|done| (done.id.clone(), done.result)).collect()
}

fn damaged(dir: &TempDir) -> usize {
    let entries = fs::read_dir(dir.path().join("w")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("damaged-")).count()
}

/// A life in which a is begun and finished, b is begun, c is through, and d was never begun.
async fn live(dir: &TempDir) {
    let journal = Journal::of(open(dir).await, Arc::default()).unwrap();
    assert!(journal.begun(vec![held("a"), held("b"), held("c")]).await);
    journal.result(&done("a")).await;
    journal.result(&done("c")).await;
    journal.over(vec![held("c")]);
    journal.close().await;
}

#[tokio::test]
async fn a_new_life_reports_results_and_what_was_begun_without_one_as_died() {
    let dir = tempdir().unwrap();
    live(&dir).await;
    let spool = open(&dir).await;
    let expected = [("a".to_owned(), RunResult::Succeeded), ("b".to_owned(), RunResult::Died)];
    assert_eq!(left(&spool), expected);
    drop(spool);
    // So does the one after it, until a server has taken them.
    let spool = open(&dir).await;
    assert_eq!(left(&spool), expected);
    let journal = Journal::of(spool, Arc::default()).unwrap();
    journal.over(vec![held("a"), held("b")]);
    journal.close().await;
    assert_eq!(left(&open(&dir).await), []);
}

#[tokio::test]
async fn lives_are_counted_up_and_only_the_first_says_since() {
    let dir = tempdir().unwrap();
    let first = open(&dir).await;
    assert_eq!(first.since(), first.incarnation(), "nobody knows what was before");
    let (incarnation, since) = (first.incarnation(), first.since());
    drop(first);
    let second = open(&dir).await;
    assert!(second.incarnation() > incarnation);
    assert_eq!(second.since(), since);
}

#[tokio::test]
async fn a_life_of_the_future_is_followed_by_a_greater_one() {
    let dir = tempdir().unwrap();
    drop(open(&dir).await);
    // The wall clock was set back by a year.
    let ahead = clock::wall_us() + 31_536_000_000_000;
    rewrite_life(&dir, |life| life.incarnation = ahead);
    assert_eq!(open(&dir).await.incarnation(), ahead + 1);
}

fn rewrite_life(dir: &TempDir, change: impl FnOnce(&mut LifeRecord)) {
    let text = fs::read(log_of(dir)).unwrap();
    let mut lines = text.split_inclusive(|byte| *byte == b'\n');
    let first = lines.next().unwrap();
    let Some(record::Record::Life(mut life)) = record::Record::read(first.trim_ascii_end()) else {
        panic!("the first record is a life");
    };
    change(&mut life);
    let mut bytes = Vec::new();
    record::Record::Life(life).write_to(&mut bytes);
    bytes.extend(lines.flatten());
    fs::write(log_of(dir), bytes).unwrap();
}

#[tokio::test]
async fn after_a_start_of_the_machine_the_worker_says_since_and_reports_what_it_has() {
    let dir = tempdir().unwrap();
    live(&dir).await;
    rewrite_life(&dir, |life| life.boot = "another".to_owned());
    let spool = open(&dir).await;
    assert_eq!(spool.since(), spool.incarnation());
    assert_eq!(left(&spool).len(), 2);
    let since = spool.since();
    drop(spool);
    assert_eq!(open(&dir).await.since(), since, "the life after it has a log that is whole");
}

#[tokio::test]
async fn a_log_that_was_cut_anywhere_gives_what_was_whole_and_is_no_damage() {
    let dir = tempdir().unwrap();
    drop(open(&dir).await);
    let made = fs::read(log_of(&dir)).unwrap().len();
    live(&dir).await;
    let bytes = fs::read(log_of(&dir)).unwrap();
    let ends: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] == b'\n').collect();
    for cut in made..=bytes.len() {
        fs::write(log_of(&dir), &bytes[..cut]).unwrap();
        let spool = open(&dir).await;
        // A record is whole when only its newline is missing.
        let whole = ends.iter().filter(|end| cut >= **end).count();
        let expected: &[(&str, RunResult)] = match whole {
            1 => &[],
            2 => &[("a", RunResult::Died)],
            3 => &[("a", RunResult::Died), ("b", RunResult::Died)],
            4 => &[("a", RunResult::Died), ("b", RunResult::Died), ("c", RunResult::Died)],
            5 => &[("a", RunResult::Succeeded), ("b", RunResult::Died), ("c", RunResult::Died)],
            6 => {
                &[("a", RunResult::Succeeded), ("b", RunResult::Died), ("c", RunResult::Succeeded)]
            }
            7 => &[("a", RunResult::Succeeded), ("b", RunResult::Died)],
            other => panic!("{other} records"),
        };
        let found = left(&spool);
        let found: Vec<(&str, RunResult)> =
            found.iter().map(|(id, of)| (id.as_str(), *of)).collect();
        assert_eq!(found, expected, "cut at {cut}");
        assert!(spool.since() < spool.incarnation(), "cut at {cut}");
    }
    assert_eq!(damaged(&dir), 0);
}

#[tokio::test]
async fn a_log_that_was_being_made_is_made_again() {
    let dir = tempdir().unwrap();
    live(&dir).await;
    fs::write(dir.path().join("w/log.tmp"), "0123").unwrap();
    assert_eq!(left(&open(&dir).await).len(), 2);
}

#[tokio::test]
async fn any_byte_that_changed_is_told_and_what_is_readable_is_kept() {
    let dir = tempdir().unwrap();
    live(&dir).await;
    let bytes = fs::read(log_of(&dir)).unwrap();
    let life = bytes.iter().position(|byte| *byte == b'\n').unwrap();
    for at in (life + 1..bytes.len() - 1).step_by(7) {
        let mut changed = bytes.clone();
        changed[at] ^= 0x01;
        fs::write(log_of(&dir), &changed).unwrap();
        let spool = open(&dir).await;
        assert_eq!(spool.since(), spool.incarnation(), "byte {at}");
        assert!(!left(&spool).is_empty(), "byte {at}");
        let dirs = fs::read_dir(dir.path().join("w")).unwrap().map(|entry| entry.unwrap().path());
        let is_kept = |path: PathBuf| fs::read(path).unwrap() == changed;
        assert!(dirs.filter(|path| path.is_file()).any(is_kept), "byte {at}");
    }
    assert_eq!(damaged(&dir), 8, "no more are kept");
}

#[tokio::test]
async fn a_log_of_which_nothing_can_be_read_does_not_keep_the_worker_from_starting() {
    let dir = tempdir().unwrap();
    drop(open(&dir).await);
    for bytes in [&b""[..], &[0; 4_096], b"\xff\n\xff\n"] {
        fs::write(log_of(&dir), bytes).unwrap();
        let spool = open(&dir).await;
        assert_eq!(spool.since(), spool.incarnation());
    }
    assert_eq!(damaged(&dir), 3);
}

#[tokio::test]
async fn a_spool_of_a_newer_version_is_left_alone() {
    let dir = tempdir().unwrap();
    drop(open(&dir).await);
    rewrite_life(&dir, |life| life.format = FORMAT + 1);
    let before = fs::read(log_of(&dir)).unwrap();
    let why = Spool::open_within(dir.path(), "w", NONE).await.unwrap_err();
    assert!(matches!(why, SpoolError::Newer { found: 2, .. }), "{why}");
    assert_eq!(fs::read(log_of(&dir)).unwrap(), before);
}

#[tokio::test]
async fn a_second_process_of_the_same_name_is_refused_and_told_of_the_first() {
    let dir = tempdir().unwrap();
    let first = open(&dir).await;
    let why = Spool::open_within(dir.path(), "w", NONE).await.unwrap_err().to_string();
    assert!(why.contains(&format!("(process {})", std::process::id())), "{why}");
    assert!(Spool::open_within(dir.path(), "other", NONE).await.is_ok());
    drop(first);
    open(&dir).await;
}

#[tokio::test]
async fn a_new_life_waits_until_the_programs_of_the_former_one_have_ended() {
    let dir = tempdir().unwrap();
    let first = open(&dir).await;
    // What guards a program has it as well.
    let held = first.programs_lock().try_clone().unwrap();
    drop(first);
    let why = Spool::open_within(dir.path(), "w", NONE).await.unwrap_err().to_string();
    assert!(why.contains("programs of a former life") && why.contains("w/programs"), "{why}");
    assert!(why.contains("pstree -p PID") && why.contains("not these themselves"), "{why}");
    let patience = Duration::from_secs(60);
    let waits = Spool::open_within(dir.path(), "w", patience);
    let mut waits = std::pin::pin!(waits);
    tokio::select! {
        biased;
        _ = &mut waits => panic!("a program executes still"),
        () = tokio::task::yield_now() => {}
    }
    drop(held);
    waits.await.unwrap();
}

#[tokio::test]
async fn names_that_lead_elsewhere_are_refused() {
    let dir = tempdir().unwrap();
    for name in ["", ".", "..", "a/b"] {
        let why = Spool::open_within(dir.path(), name, NONE).await.unwrap_err();
        assert!(matches!(why, SpoolError::Name(_)), "{why}");
    }
}

#[tokio::test]
async fn on_a_full_disk_nothing_begins_results_are_kept_and_all_is_written_when_there_is_room() {
    let dir = tempdir().unwrap();
    let spool = open(&dir).await;
    let is_full = Arc::clone(&spool.log.is_full);
    let sight = Arc::new(Sight::default());
    let journal = Journal::of(spool, sight).unwrap();
    let mut trouble = journal.trouble();
    assert!(journal.begun(vec![held("a"), held("b")]).await);
    is_full.store(true, Ordering::SeqCst);
    journal.result(&done("a")).await;
    assert!(
        trouble.borrow_and_update().as_ref().is_some_and(|why| why.contains("cannot be written"))
    );
    assert!(!journal.is_kept());
    assert!(!journal.begun(vec![held("c")]).await);
    is_full.store(false, Ordering::SeqCst);
    trouble.changed().await.unwrap();
    assert_eq!(*trouble.borrow(), None);
    assert!(journal.begun(vec![held("d")]).await);
    journal.close().await;
    let expected = [("a", RunResult::Succeeded), ("b", RunResult::Died), ("d", RunResult::Died)];
    let expected = expected.map(|(id, of)| (id.to_owned(), of));
    assert_eq!(left(&open(&dir).await), expected);
}

#[tokio::test]
async fn a_log_stays_small_however_much_went_through_it() {
    let dir = tempdir().unwrap();
    let mut journal = Journal::of(open(&dir).await, Arc::default()).unwrap();
    let long = DoneRun { error: Some("x".repeat(1_000)), ..done("") };
    for round in 0..10 {
        let ids: Vec<String> = (0..RUNS_MAX).map(|at| format!("run_{round}_{at}")).collect();
        let runs: Vec<HeldRun> = ids.iter().map(|id| held(id)).collect();
        assert!(journal.begun(runs.clone()).await);
        // Written together: each waits for the sync of all.
        let mut results = tokio::task::JoinSet::new();
        let shared = Arc::new(journal);
        for id in ids {
            let (journal, done) = (Arc::clone(&shared), DoneRun { id, ..long.clone() });
            results.spawn(async move { journal.result(&done).await });
        }
        results.join_all().await;
        journal = Arc::into_inner(shared).unwrap();
        journal.over(runs);
    }
    journal.close().await;
    assert!(fs::metadata(log_of(&dir)).unwrap().len() < 6 * 1024 * 1024);
    assert_eq!(left(&open(&dir).await), []);
}

#[tokio::test]
async fn lines_of_another_kind_are_damage() {
    let dir = tempdir().unwrap();
    drop(open(&dir).await);
    let mut log = OpenOptions::new().append(true).open(log_of(&dir)).unwrap();
    log.write_all(b"0000000000000000 {\"begun\":{\"id\":\"a\",\"token\":1}}\n").unwrap();
    assert_eq!(left(&open(&dir).await), []);
    assert_eq!(damaged(&dir), 1);
}
