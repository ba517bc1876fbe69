//! Programs that do not want to end, and how they do.

use std::process::{Command, Stdio};
use std::time::Duration;

use process::{Cause, End, Isolation, Started, Tree};
use rustix::process::Pid;

use crate::stage::{Bystander, Mark, isolations, sh, start, stop};

/// Longer than any test.
const LONG: Duration = Duration::from_secs(1000);

const SHORT: Duration = Duration::from_millis(50);

/// A tree of all that is hard to end: deaf to signals, forked twice, in sessions of their own, with children.
const STUBBORN: &str = "trap '' TERM INT HUP; \
    for i in 1 2 3 4; do \
        ( setsid sh -c 'trap \"\" TERM HUP; sleep 1000 & sleep 1000 & wait' & ) & \
    done; \
    ( ( sleep 1000 & ) & ) & \
    while :; do sleep 1000; done";

/// Processes of [`STUBBORN`], at least.
const STUBBORN_LEN: usize = 14;

#[tokio::test]
async fn a_stop_lets_a_program_end_by_itself() {
    for isolation in isolations() {
        let program = sh("trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.01; done");
        let Started { mut tree, mut stdout, .. } = start(isolation, &program).await;
        assert_eq!(stdout.read(&mut [0; 100]).await.unwrap(), 6);
        tree.stop(LONG);
        let outcome = tree.ended().await.unwrap();
        assert_eq!((outcome.end, outcome.cause), (End::Exited(3), Cause::Stopped), "{isolation}");
        assert_eq!(stdout.read_to_end().await.unwrap(), b"bye\n", "{isolation}");
    }
}

#[tokio::test]
async fn a_stubborn_tree_is_killed_after_its_grace() {
    for isolation in isolations() {
        let mark = Mark::new();
        let Started { mut tree, .. } = start(isolation, &mark.on(sh(STUBBORN))).await;
        mark.grown_to(STUBBORN_LEN).await;
        tree.stop(SHORT);
        let outcome = tree.ended().await.unwrap();
        mark.is_gone();
        let expected = (End::Signaled(9), Cause::KilledAfterGrace);
        assert_eq!((outcome.end, outcome.cause), expected, "{isolation}");
        assert!(outcome.duration >= SHORT, "{isolation}: {outcome:?}");
    }
}

#[tokio::test]
async fn a_kill_ends_a_stubborn_tree_at_once() {
    for isolation in isolations() {
        let mark = Mark::new();
        let Started { mut tree, .. } = start(isolation, &mark.on(sh(STUBBORN))).await;
        mark.grown_to(STUBBORN_LEN).await;
        tree.stop(LONG);
        tree.kill();
        let outcome = tree.ended().await.unwrap();
        mark.is_gone();
        assert_eq!((outcome.end, outcome.cause), (End::Signaled(9), Cause::Killed), "{isolation}");
    }
}

#[tokio::test]
async fn a_second_stop_only_brings_the_kill_forward() {
    for isolation in isolations() {
        let (mark, program) = (Mark::new(), sh("trap '' TERM; while :; do sleep 1000; done"));
        let Started { mut tree, .. } = start(isolation, &mark.on(program)).await;
        mark.grown_to(2).await;
        tree.stop(LONG);
        tree.stop(SHORT);
        tree.stop(LONG);
        let outcome = tree.ended().await.unwrap();
        assert_eq!(outcome.cause, Cause::KilledAfterGrace, "{isolation}");
        mark.is_gone();
    }
}

/// It leaves its group, and ends its main thread while another one runs: the kernel shows a zombie.
const HEADLESS: &str = r#"
import ctypes, fcntl, os, threading, time
os.setsid()
lock = open(os.environ["LOCK"], "r")
fcntl.flock(lock, fcntl.LOCK_EX)
def go_on():
    while open("/proc/self/stat").read().rsplit(") ", 1)[1][0] != "Z":
        time.sleep(0.001)
    print("headless", flush=True)
    time.sleep(1000)
threading.Thread(target=go_on).start()
ctypes.CDLL(None).pthread_exit(None)
"#;

#[tokio::test]
async fn threads_without_their_main_thread_end_with_their_tree() {
    for isolation in isolations() {
        let lock = tempfile::NamedTempFile::new().unwrap();
        let program = sh("python3 -c \"$HEADLESS\" & wait")
            .variable("PATH", std::env::var_os("PATH").unwrap())
            .variable("HEADLESS", HEADLESS)
            .variable("LOCK", lock.path());
        let Started { mut tree, mut stdout, .. } = start(isolation, &program).await;
        assert_eq!(stdout.read(&mut [0; 100]).await.unwrap(), 9, "{isolation}");
        tree.kill();
        let outcome = tokio::time::timeout(rig::PATIENCE, tree.ended()).await;
        let outcome = outcome.expect("it ends in time").unwrap();
        assert_eq!((outcome.end, outcome.cause), (End::Signaled(9), Cause::Killed), "{isolation}");
        let is_free = lock.as_file().try_lock().is_ok();
        assert!(is_free, "{isolation}: a thread has the lock still");
    }
}

#[tokio::test]
async fn what_a_program_leaves_behind_ends_with_it() {
    for isolation in isolations() {
        let (mark, script) =
            (Mark::new(), STUBBORN.replace("while :; do sleep 1000; done", "read go"));
        // It ends when its input does, which the test holds.
        let script = format!("mkfifo $DIR/go; exec <$DIR/go; {script}");
        let dir = tempfile::tempdir().unwrap();
        let program = mark.on(sh(&script)).variable("DIR", dir.path());
        let Started { mut tree, .. } = start(isolation, &program).await;
        let go = dir.path().join("go");
        let opened = tokio::task::spawn_blocking(move || {
            while !go.exists() {
                std::thread::yield_now();
            }
            std::fs::File::options().write(true).open(go).unwrap()
        });
        let go = opened.await.unwrap();
        mark.grown_to(STUBBORN_LEN - 1).await;
        drop(go);
        let outcome = tree.ended().await.unwrap();
        mark.is_gone();
        assert_eq!((outcome.end, outcome.cause), (End::Exited(1), Cause::Itself), "{isolation}");
    }
}

#[tokio::test]
async fn a_program_that_closes_everything_is_ended_all_the_same() {
    for isolation in isolations() {
        let mark = Mark::new();
        let script = "for fd in 0 1 2 3 4 5 6 7 8 9; do eval \"exec $fd>&-\"; done; \
            trap '' TERM; while :; do sleep 1000; done";
        let Started { mut tree, mut stdout, mut stderr, mut progress } =
            start(isolation, &mark.on(sh(script))).await;
        for pipe in [&mut stdout, &mut stderr, &mut progress] {
            assert_eq!(pipe.read_to_end().await.unwrap(), b"", "{isolation}");
        }
        mark.grown_to(2).await;
        tree.stop(SHORT);
        assert_eq!(tree.ended().await.unwrap().cause, Cause::KilledAfterGrace, "{isolation}");
        mark.is_gone();
    }
}

#[tokio::test]
async fn a_program_whose_output_nobody_reads_is_ended_all_the_same() {
    for isolation in isolations() {
        let (mark, program) = (Mark::new(), sh("yes; sleep 1000"));
        let Started { mut tree, stdout, .. } = start(isolation, &mark.on(program)).await;
        mark.grown_to(2).await;
        tree.kill();
        assert_eq!(tree.ended().await.unwrap().cause, Cause::Killed, "{isolation}");
        drop(stdout);
        mark.is_gone();
    }
}

/// A process outside of the tree has its standard output, and keeps it.
#[tokio::test]
async fn whoever_holds_the_output_from_outside_does_not_hold_up_its_end() {
    for isolation in isolations() {
        let dir = tempfile::tempdir().unwrap();
        let program =
            sh("echo $$ >$DIR/id.new; mv $DIR/id.new $DIR/id; echo printed; exec sleep 1000")
                .variable("DIR", dir.path());
        let Started { mut tree, mut stdout, .. } = start(isolation, &program).await;
        assert_eq!(stdout.read(&mut [0; 100]).await.unwrap(), 8);
        let id = program_of(&tree);
        // Holds the pipe open by its name.
        let pipe = format!("/proc/{id}/fd/1");
        let holder = std::fs::File::options().write(true).open(&pipe).unwrap();
        let mut sleep = Command::new("sleep");
        sleep.arg("1000").stdin(Stdio::null()).stdout(holder);
        let _holder = Bystander::start(&mut sleep);
        drop(sleep);
        tree.kill();
        tree.ended().await.unwrap();
        assert_eq!(stdout.read_to_end().await.unwrap(), b"", "{isolation}");
    }
}

/// The id of the program, as it is seen here.
fn program_of(tree: &Tree) -> i32 {
    children_of(tree)[0]
}

/// The children of the shim, with those that nobody has reaped.
fn children_of(tree: &Tree) -> Vec<i32> {
    let shim = tree.guards().shim.unwrap();
    let listed = std::fs::read_to_string(format!("/proc/{shim}/task/{shim}/children")).unwrap();
    listed.split_whitespace().map(|id| id.parse().unwrap()).collect()
}

#[tokio::test]
async fn a_program_that_was_stopped_by_a_signal_is_stopped_by_us() {
    for isolation in isolations() {
        let program = sh("trap 'exit 4' TERM; echo ready; while :; do sleep 0.01; done");
        let Started { mut tree, mut stdout, .. } = start(isolation, &program).await;
        stdout.read(&mut [0; 100]).await.unwrap();
        let id = Pid::from_raw(program_of(&tree)).unwrap();
        stop([id]).await;
        tree.stop(LONG);
        let outcome = tree.ended().await.unwrap();
        assert_eq!((outcome.end, outcome.cause), (End::Exited(4), Cause::Stopped), "{isolation}");
    }
}

#[tokio::test]
async fn orphans_are_reaped_while_a_program_runs() {
    for isolation in isolations() {
        let program = sh(
            "for i in 1 2 3 4 5 6 7 8 9 10; do (sh -c 'exec true' &); done; echo made; sleep 1000",
        );
        let Started { tree, mut stdout, .. } = start(isolation, &program).await;
        stdout.read(&mut [0; 100]).await.unwrap();
        // The program alone is left, once all of them have ended and come to the shim.
        rig::until("zombies go", rig::PATIENCE, async || {
            (children_of(&tree).len() == 1).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn dropping_a_tree_ends_it() {
    for isolation in isolations() {
        let mark = Mark::new();
        let started = start(isolation, &mark.on(sh(STUBBORN))).await;
        mark.grown_to(STUBBORN_LEN).await;
        drop(started);
        let took = mark.gone();
        println!("{isolation}: gone {took:?} after it was dropped");
    }
}

#[tokio::test]
async fn waiting_may_be_given_up_and_begun_again() {
    for isolation in isolations() {
        let program = sh("sleep 0.2");
        let Started { mut tree, .. } = start(isolation, &program).await;
        let early = tokio::time::timeout(Duration::from_millis(1), tree.ended()).await;
        assert!(early.is_err(), "{isolation}");
        assert_eq!(tree.ended().await.unwrap().end, End::Exited(0), "{isolation}");
    }
}

#[tokio::test]
async fn a_weak_kill_is_visible_and_counted() {
    for isolation in isolations() {
        let launcher = crate::stage::launcher(isolation);
        let Started { mut tree, .. } = launcher.start(&sh("")).await.unwrap();
        let outcome = tree.ended().await.unwrap();
        let weak = u64::from(isolation == Isolation::Group);
        assert_eq!(launcher.counts(), process::Counts { started: 1, weak });
        assert_eq!(outcome.isolation.is_weak(), weak == 1);
        assert_eq!(outcome.isolation.to_string().contains("weak kill"), weak == 1);
    }
}
