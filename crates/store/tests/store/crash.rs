//! kill -9 at any moment: what was acknowledged is there, whole, and no version comes twice.

use std::path::Path;
use std::process::Command;

use rig::Random;

use super::child::{COMMITTER, Testimony, listen};

const WRITERS: &str = "4";

/// Rounds on one directory before a new one is taken, so that both old and new stores are killed.
const ROUNDS_PER_DIRECTORY: usize = 20;

/// One life of a child on `dir`, ended after a random number of acknowledgements.
async fn round(
    dir: &Path,
    testimony: &mut Testimony,
    random: &mut Random,
    lie: Option<&str>,
) -> Result<(), String> {
    let acknowledgements = 1 + random.place(60);
    let mut heard = 0;
    let mut verdict = Ok(());
    let mut command = Command::new(COMMITTER);
    command.arg("commit").arg(dir).arg(WRITERS).args(lie);
    listen(&mut command, |line| {
        verdict = verdict.clone().and(testimony.hear(line));
        heard += usize::from(line.starts_with("ack"));
        heard < acknowledgements
    });
    verdict?;
    if let Some(error) = testimony.errors.first() {
        return Err(format!("the child failed: {error}"));
    }
    testimony.check(dir).await
}

/// Runs so many rounds, and says in which one something was wrong, and what.
async fn rounds(rounds: usize, seed: u64, lie: Option<&str>) -> Result<usize, String> {
    let mut random = Random::new(seed);
    let mut acknowledgements = 0;
    for first in (0..rounds).step_by(ROUNDS_PER_DIRECTORY) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut testimony = Testimony::default();
        for number in first..rounds.min(first + ROUNDS_PER_DIRECTORY) {
            let verdict = round(dir.path(), &mut testimony, &mut random, lie).await;
            verdict.map_err(|why| format!("seed {seed}, round {number}: {why}"))?;
        }
        acknowledgements += testimony.acknowledgements;
    }
    Ok(acknowledgements)
}

#[tokio::test]
async fn every_acknowledged_commit_survives_kill_9_whole() {
    let acknowledgements = rounds(100, 1, None).await.unwrap();
    assert!(acknowledgements > 1_000, "only {acknowledgements} acknowledgements in 100 rounds");
}

#[tokio::test]
#[ignore = "long: make soak"]
async fn soak_every_acknowledged_commit_survives_kill_9_whole() {
    for seed in 100..150 {
        rounds(200, seed, None).await.unwrap();
    }
}

#[tokio::test]
async fn a_store_that_acknowledged_too_early_would_be_noticed() {
    let why = rounds(100, 2, Some("early-ack")).await.unwrap_err();
    assert!(why.contains("is there, and"), "{why}");
}

#[tokio::test]
async fn a_store_that_wrote_a_batch_in_halves_would_be_noticed() {
    let why = rounds(200, 3, Some("two-halves")).await.unwrap_err();
    assert!(why.contains("half a batch"), "{why}");
}

#[tokio::test]
async fn a_store_that_gave_a_version_twice_would_be_noticed() {
    let why = rounds(20, 4, Some("old-version")).await.unwrap_err();
    assert!(why.contains("was given twice") || why.contains("is there, and"), "{why}");
}
