//! Workers of commands that are killed, frozen and told to stop, with their guards: no program outlives who may run it, and
//! each run ends once.

use std::fs;

use client::run::RunState;
use rig::{PATIENCE, machine, until};
use rustix::process::{Pid, Signal, kill_process};

use super::worker_command::{CommandWorker, Stage, gone, grown, mark, members};

/// The first attempt is deaf and leaves processes in sessions of their own; the next one succeeds. Each writes down that it began,
/// and whether it came to its end.
const DEAF_ONCE: &str = "echo $WATCHBELL_ATTEMPT >>begun; \
    if [ $WATCHBELL_ATTEMPT = 1 ]; then trap '' TERM HUP; (setsid sh -c 'trap \"\" TERM; sleep 1000 & wait' &); \
    while :; do sleep 1000; done; fi; echo $WATCHBELL_ATTEMPT >>ended";

/// Processes of the first attempt, at least.
const DEAF_LEN: usize = 4;

/// Isolations that every user may have.
const ISOLATIONS: [&str; 2] = ["namespace", "group"];

/// The guards of a worker's trees: each launch, and its shim.
async fn guards(worker: &CommandWorker) -> (Pid, Pid) {
    until("its guards are there", PATIENCE, || async {
        let launch = children(worker.pid()).into_iter().find(|pid| has_role(*pid, "launch"))?;
        let shim = children(launch).into_iter().find(|pid| has_role(*pid, "shim"))?;
        Some((launch, shim))
    })
    .await
}

fn children(of: Pid) -> Vec<Pid> {
    let tasks = fs::read_dir(format!("/proc/{}/task", of.as_raw_pid())).into_iter().flatten();
    let listed =
        tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok());
    let ids: Vec<String> =
        listed.flat_map(|list| list.split(' ').map(str::to_owned).collect::<Vec<_>>()).collect();
    ids.iter().filter_map(|id| Pid::from_raw(id.trim().parse().ok()?)).collect()
}

fn has_role(pid: Pid, role: &str) -> bool {
    let line = fs::read(format!("/proc/{}/cmdline", pid.as_raw_pid())).unwrap_or_default();
    String::from_utf8_lossy(&line).contains(&format!("__watchbell_{role}"))
}

#[tokio::test]
async fn nothing_outlives_a_worker_that_is_killed_and_its_run_ends_once() {
    let _share = machine::waits().await;
    for isolation in ISOLATIONS {
        let (stage, mark) = (Stage::new(), mark(&format!("killed-{isolation}")));
        let mut worker = stage.worker("w", &["--isolate", isolation]);
        let id = stage.submit(&mark, DEAF_ONCE).await;
        grown(&mark, DEAF_LEN).await;
        worker.signal(Signal::KILL);
        worker.ended().await;
        gone(&mark).await;
        // The next life says that it died, so nobody waits for the lease.
        let mut worker = stage.worker("w", &["--isolate", isolation]);
        let run = stage.is(&id, RunState::Succeeded).await;
        assert_eq!(run.attempt, 2, "{isolation}: {run:?}");
        assert_eq!((stage.read("begun"), stage.read("ended")), ("1\n2\n".into(), "2\n".into()));
        worker.stop().await;
    }
}

#[tokio::test]
async fn a_run_whose_shim_is_killed_has_failed_and_nothing_of_it_is_left() {
    let _share = machine::waits().await;
    for isolation in ISOLATIONS {
        let (stage, mark) = (Stage::new(), mark(&format!("shim-{isolation}")));
        let mut worker = stage.worker("w", &["--isolate", isolation]);
        let id = stage.submit(&mark, DEAF_ONCE).await;
        grown(&mark, DEAF_LEN).await;
        kill_process(guards(&worker).await.1, Signal::KILL).unwrap();
        let run = stage.is(&id, RunState::Succeeded).await;
        let why = run.attempts[0].error.clone().unwrap();
        assert!(why.contains("its shim was killed from outside"), "{isolation}: {why}");
        assert_eq!((run.attempt, stage.read("ended")), (2, "2\n".to_owned()), "{isolation}");
        gone(&mark).await;
        worker.stop().await;
    }
}

#[tokio::test]
async fn a_run_goes_on_without_its_launch_and_still_dies_with_its_worker() {
    let _share = machine::waits().await;
    for isolation in ISOLATIONS {
        let (stage, mark) = (Stage::new(), mark(&format!("launch-{isolation}")));
        let mut worker = stage.worker("w", &["--isolate", isolation]);
        let id = stage.submit(&mark, DEAF_ONCE).await;
        grown(&mark, DEAF_LEN).await;
        kill_process(guards(&worker).await.0, Signal::KILL).unwrap();
        until("launch is reaped or dead", PATIENCE, || async {
            let lives = children(worker.pid()).into_iter().any(|pid| has_role(pid, "launch"));
            (!lives).then_some(())
        })
        .await;
        assert!(members(&mark).len() >= DEAF_LEN, "{isolation}");
        worker.signal(Signal::KILL);
        worker.ended().await;
        gone(&mark).await;
        let mut worker = stage.worker("w", &["--isolate", isolation]);
        let run = stage.is(&id, RunState::Succeeded).await;
        assert_eq!((run.attempt, stage.read("ended")), (2, "2\n".to_owned()), "{isolation}");
        worker.stop().await;
    }
}

#[tokio::test]
async fn a_worker_that_was_frozen_beyond_its_lease_ends_what_another_one_has() {
    let _share = machine::waits().await;
    let (stage, mark) = (Stage::new(), mark("frozen"));
    let mut first = stage.worker("first", &["--lease", "2s", "--grace", "1d"]);
    let id = stage.submit(&mark, DEAF_ONCE).await;
    grown(&mark, DEAF_LEN).await;
    first.signal(Signal::STOP);
    let mut second = stage.worker("second", &[]);
    let run = stage.is(&id, RunState::Succeeded).await;
    assert_eq!(run.attempts.last().unwrap().worker.as_deref(), Some("second"));
    assert!(members(&mark).len() >= DEAF_LEN, "a frozen worker ends nothing");
    first.signal(Signal::CONT);
    // It is told that it has lost the run: there is no grace for that.
    gone(&mark).await;
    assert_eq!(stage.is(&id, RunState::Succeeded).await.attempts, run.attempts, "it ended once");
    first.stop().await;
    second.stop().await;
}

#[tokio::test]
async fn a_worker_that_is_told_to_stop_finishes_what_it_has() {
    let _share = machine::waits().await;
    let (stage, mark) = (Stage::new(), mark("drained"));
    let mut worker = stage.worker("w", &["--drain-timeout", "1h"]);
    let script = "touch begun; while [ ! -e go ]; do sleep 0.05; done; echo done >ended";
    let id = stage.submit(&mark, script).await;
    stage.made("begun").await;
    worker.signal(Signal::TERM);
    worker.logs("told to stop").await;
    let next = stage.submit(&mark, "echo never >never").await;
    fs::write(stage.dir.path().join("go"), "").unwrap();
    assert_eq!(worker.ended().await.code(), Some(0), "{}", worker.log());
    stage.is(&id, RunState::Succeeded).await;
    assert_eq!(stage.read("ended"), "done\n");
    // What came later waits for somebody else.
    stage.is(&next, RunState::Waiting).await;
    assert_eq!(stage.read("never"), "");
}

#[tokio::test]
async fn a_worker_that_has_waited_long_enough_ends_what_is_left_and_it_is_offered_again() {
    let _share = machine::waits().await;
    let (stage, mark) = (Stage::new(), mark("drain-timeout"));
    let flags = ["--drain-timeout", "500ms", "--grace", "100ms"];
    let mut worker = stage.worker("w", &flags);
    let id = stage.submit(&mark, DEAF_ONCE).await;
    grown(&mark, DEAF_LEN).await;
    worker.stop().await;
    gone(&mark).await;
    let mut worker = stage.worker("w", &flags);
    let run = stage.is(&id, RunState::Succeeded).await;
    let why = run.attempts[0].error.clone().unwrap_or_default();
    assert!(why.contains("the worker stopped before it was done"), "{run:?}");
    worker.stop().await;
}

#[tokio::test]
async fn a_second_signal_ends_everything_at_once() {
    let _share = machine::waits().await;
    let (stage, mark) = (Stage::new(), mark("twice"));
    let mut worker = stage.worker("w", &["--drain-timeout", "1h", "--grace", "1h"]);
    let id = stage.submit(&mark, DEAF_ONCE).await;
    grown(&mark, DEAF_LEN).await;
    worker.signal(Signal::TERM);
    worker.logs("told to stop").await;
    worker.signal(Signal::TERM);
    worker.ended().await;
    gone(&mark).await;
    let mut worker = stage.worker("w", &[]);
    let run = stage.is(&id, RunState::Succeeded).await;
    assert_eq!((run.attempt, stage.read("ended")), (2, "2\n".to_owned()));
    worker.stop().await;
}

#[tokio::test]
async fn two_workers_of_one_name_are_one_too_many() {
    let _share = machine::waits().await;
    let stage = Stage::new();
    let mut first = stage.worker("w", &[]);
    first.logs("").await;
    let id = stage.submit(&mark("one-name"), "true").await;
    stage.is(&id, RunState::Succeeded).await;
    let mut second = stage.worker("w", &[]);
    assert_eq!(second.ended().await.code(), Some(3));
    second.logs("another worker uses the spool").await;
    first.stop().await;
}
