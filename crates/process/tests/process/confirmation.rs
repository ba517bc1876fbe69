//! Trees that end at an instant unless they are confirmed, whatever their supervisor does.

use std::time::Duration;

use process::{Cause, End, Started};
use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};

use crate::stage::{As, Mark, Supervisor, isolations, sh, signal, start, state};

const DEAF: &str = "trap '' TERM INT HUP; (setsid sleep 1000 &); while :; do sleep 1000; done";

/// Long enough for a start, also on a busy machine.
const SOON: Duration = Duration::from_millis(1_500);

fn since_boot() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap()
}

#[tokio::test]
async fn a_tree_that_nobody_confirms_is_killed_at_its_instant() {
    for isolation in isolations() {
        let mark = Mark::new();
        let until = since_boot() + SOON;
        let Started { mut tree, .. } = start(isolation, &mark.on(sh(DEAF)).until(until)).await;
        let outcome = tree.ended().await.unwrap();
        mark.is_gone();
        assert!(since_boot() >= until, "{isolation}");
        let expected = (End::Signaled(9), Cause::Unconfirmed);
        assert_eq!((outcome.end, outcome.cause), expected, "{isolation}");
    }
}

#[tokio::test]
async fn a_program_whose_instant_is_over_is_not_begun() {
    for isolation in isolations() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("begun");
        let script = format!("touch {}", file.display());
        let Started { mut tree, .. } = start(isolation, &sh(&script).until(since_boot())).await;
        tree.confirm(since_boot() + SOON);
        let outcome = tree.ended().await.unwrap();
        let expected = (End::Unseen, Cause::Unconfirmed);
        assert_eq!((outcome.end, outcome.cause), expected, "{isolation}");
        assert!(!file.exists(), "{isolation}");
    }
}

#[tokio::test]
async fn a_tree_that_is_confirmed_goes_on_and_an_earlier_instant_takes_nothing_back() {
    for isolation in isolations() {
        let begun = since_boot();
        let short = begun + Duration::from_secs(1);
        let program = sh("sleep 1.5; exit 3").until(short);
        let Started { mut tree, .. } = start(isolation, &program).await;
        tree.confirm(begun + Duration::from_secs(1000));
        tree.confirm(short);
        let outcome = tree.ended().await.unwrap();
        assert_eq!((outcome.end, outcome.cause), (End::Exited(3), Cause::Itself), "{isolation}");
        assert!(since_boot() > short, "{isolation}");
    }
}

#[tokio::test]
async fn a_stop_does_not_keep_a_tree_beyond_its_instant() {
    for isolation in isolations() {
        let mark = Mark::new();
        let until = since_boot() + SOON;
        let Started { mut tree, .. } = start(isolation, &mark.on(sh(DEAF)).until(until)).await;
        mark.grown_to(2).await;
        tree.stop(Duration::from_secs(1000));
        let outcome = tree.ended().await.unwrap();
        mark.is_gone();
        assert_eq!(outcome.cause, Cause::Unconfirmed, "{isolation}");
    }
}

#[tokio::test]
async fn a_tree_ends_at_its_instant_while_its_supervisor_is_stopped() {
    for isolation in isolations() {
        let words = ["env", "TEST_UNTIL_MS=1500"];
        let mut supervisor = Supervisor::start_through(&words, As::Me, isolation.word(), DEAF);
        supervisor.started().await;
        supervisor.mark.grown_to(2).await;
        let id = supervisor.id();
        signal(id, Signal::STOP);
        rig::until("the tree ends", rig::PATIENCE, async || {
            supervisor.mark.members().is_empty().then_some(())
        })
        .await;
        assert_eq!(state(id), Some('T'), "{isolation}: it took no part in that");
        signal(id, Signal::CONT);
        assert_eq!(supervisor.line().await, "ended Signaled(9) Unconfirmed", "{isolation}");
    }
}
