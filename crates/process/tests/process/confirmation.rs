//! Trees that end at an instant unless they are confirmed, whatever their supervisor does.

use std::time::Duration;

use process::{Cause, Deadline, End, Started, since_boot};
use rustix::process::{Pid, Signal};

use crate::stage::{
    As, DONE, Mark, SOON_MAX, Supervisor, TOO_SOON, deadline_variable, each_isolation, isolations,
    sh, signal, start, state, stop, until_after,
};

/// Says so to whoever listens.
const DEAF: &str =
    "trap '' TERM INT HUP; (setsid sleep 1000 &); echo deaf; while :; do sleep 1000; done";

#[tokio::test]
async fn a_tree_that_nobody_confirms_is_killed_at_its_instant() {
    each_isolation(async |isolation, soon| {
        let mark = Mark::new();
        let until = since_boot() + soon;
        let program = mark.on(sh(DEAF)).deadline(Deadline::sudden(until));
        let Started { mut tree, stdout: _stdout, .. } = start(isolation, &program).await;
        let outcome = tree.ended().await.unwrap();
        mark.is_gone();
        if outcome.end == End::Unseen {
            return TOO_SOON;
        }
        assert!(since_boot() >= until, "{isolation}");
        let expected = (End::Signaled(9), Cause::Unconfirmed);
        assert_eq!((outcome.end, outcome.cause), expected, "{isolation}");
        DONE
    })
    .await;
}

#[tokio::test]
async fn a_program_whose_instant_is_over_is_not_begun() {
    for isolation in isolations() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("begun");
        let script = format!("touch {}", file.display());
        let Started { mut tree, .. } =
            start(isolation, &sh(&script).deadline(Deadline::sudden(since_boot()))).await;
        tree.confirm(Deadline::sudden(since_boot() + SOON_MAX));
        let outcome = tree.ended().await.unwrap();
        let expected = (End::Unseen, Cause::Unconfirmed);
        assert_eq!((outcome.end, outcome.cause), expected, "{isolation}");
        assert!(!file.exists(), "{isolation}");
    }
}

#[tokio::test]
async fn a_tree_that_is_confirmed_goes_on_and_an_earlier_instant_takes_nothing_back() {
    each_isolation(async |isolation, soon| {
        let dir = tempfile::tempdir().unwrap();
        let short = since_boot() + soon;
        let program = sh("while [ ! -e $DIR/go ]; do sleep 0.01; done; exit 3")
            .variable("DIR", dir.path())
            .deadline(Deadline::sudden(short));
        let Started { mut tree, .. } = start(isolation, &program).await;
        tree.confirm(Deadline::sudden(short + Duration::from_secs(1000)));
        tree.confirm(Deadline::sudden(short));
        if since_boot() >= short {
            return TOO_SOON;
        }
        until_after(short).await;
        std::fs::write(dir.path().join("go"), "").unwrap();
        let outcome = tree.ended().await.unwrap();
        assert_eq!((outcome.end, outcome.cause), (End::Exited(3), Cause::Itself), "{isolation}");
        DONE
    })
    .await;
}

#[tokio::test]
async fn a_late_shim_hears_all_that_was_confirmed_before_it_judges() {
    each_isolation(async |isolation, soon| {
        let until = since_boot() + soon;
        let program = sh(DEAF).deadline(Deadline::sudden(until));
        let Started { mut tree, stdout: _stdout, .. } = start(isolation, &program).await;
        let shim = i32::try_from(tree.guards().shim.unwrap()).unwrap();
        let shim = Pid::from_raw(shim).unwrap();
        let launch = i32::try_from(tree.guards().launch.unwrap()).unwrap();
        // If its time was over sooner, it is not there. Launch would let it go on.
        stop([Pid::from_raw(launch).unwrap(), shim]).await;
        if since_boot() >= until {
            return TOO_SOON;
        }
        // Both are over when it goes on, and the last is not.
        tree.confirm(Deadline::sudden(until));
        tree.confirm(Deadline::sudden(until + Duration::from_nanos(1)));
        tree.confirm(Deadline::sudden(until + Duration::from_secs(1000)));
        until_after(until + Duration::from_nanos(1)).await;
        tree.kill();
        signal(shim, Signal::CONT);
        assert_eq!(tree.ended().await.unwrap().cause, Cause::Killed, "{isolation}");
        DONE
    })
    .await;
}

#[tokio::test]
async fn a_stop_does_not_keep_a_tree_beyond_its_instant() {
    each_isolation(async |isolation, soon| {
        let mark = Mark::new();
        let program = mark.on(sh(DEAF)).deadline(Deadline::sudden(since_boot() + soon));
        let Started { mut tree, mut stdout, .. } = start(isolation, &program).await;
        if stdout.read(&mut [0; 100]).await.unwrap() == 0 {
            return TOO_SOON;
        }
        tree.stop(Duration::from_secs(1000));
        let outcome = tree.ended().await.unwrap();
        mark.is_gone();
        assert_eq!(outcome.cause, Cause::Unconfirmed, "{isolation}");
        DONE
    })
    .await;
}

#[tokio::test]
async fn a_tree_ends_at_its_instant_while_its_supervisor_is_stopped() {
    each_isolation(async |isolation, soon| {
        let deadline = deadline_variable(Deadline::sudden(since_boot() + soon));
        let words = ["env", &deadline];
        let mut supervisor = Supervisor::start_through(&words, As::Me, isolation.word(), DEAF);
        supervisor.started().await;
        if supervisor.line().await != "deaf" {
            return TOO_SOON;
        }
        let id = supervisor.id();
        stop([id]).await;
        if supervisor.mark.members().is_empty() {
            return TOO_SOON;
        }
        rig::until("the tree ends", rig::PATIENCE, async || {
            supervisor.mark.members().is_empty().then_some(())
        })
        .await;
        assert_eq!(state(id), Some('T'), "{isolation}: it took no part in that");
        signal(id, Signal::CONT);
        assert_eq!(supervisor.line().await, "ended Signaled(9) Unconfirmed", "{isolation}");
        DONE
    })
    .await;
}
