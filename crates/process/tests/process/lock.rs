//! A lock that is free only when every tree is empty, whoever was killed.

use std::fs::File;
use std::path::Path;

use process::{Launcher, Program, Started, Wanted};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal};

use crate::stage::{As, SUPERVISOR, Supervisor, TheirGuards, isolations, sh, signal, state, stop};

const DEAF: &str = "trap '' TERM INT HUP; \
    for i in 1 2 3 4 5 6 7 8; do ( setsid sh -c 'trap \"\" TERM HUP; sleep 1000 & wait' & ) & done; \
    while :; do sleep 1000; done";

/// Processes of [`DEAF`], at least.
const DEAF_LEN: usize = 18;

/// A file to be locked.
fn file() -> tempfile::NamedTempFile {
    tempfile::NamedTempFile::new().expect("a temporary file")
}

/// Whether somebody who was not there before gets the lock.
fn is_free(path: &Path) -> bool {
    let file = File::open(path).expect("it is there");
    flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
}

async fn freed(path: &Path) {
    rig::until("the lock is free", rig::PATIENCE, async || is_free(path).then_some(())).await;
}

/// A supervisor whose tree holds the lock and has grown.
async fn holder(isolation: &str, path: &Path) -> (Supervisor, TheirGuards) {
    let variable = format!("TEST_LOCK={}", path.display());
    let mut supervisor = Supervisor::start_through(&["env", &variable], As::Me, isolation, DEAF);
    let guards = supervisor.started().await;
    supervisor.mark.grown_to(DEAF_LEN).await;
    (supervisor, guards)
}

async fn dead(pid: Pid) {
    rig::until("it is dead", rig::PATIENCE, async || {
        matches!(state(pid), None | Some('Z')).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_lock_of_a_killed_supervisor_is_free_once_its_tree_is_empty() {
    for isolation in isolations() {
        let file = file();
        let (supervisor, _) = holder(isolation.word(), file.path()).await;
        assert!(!is_free(file.path()), "{isolation}");
        signal(supervisor.id(), Signal::KILL);
        freed(file.path()).await;
        supervisor.mark.is_gone();
    }
}

/// As long as the shim cannot end the tree, the tree is there, and so is the lock.
#[tokio::test]
async fn the_lock_of_a_killed_supervisor_is_held_while_its_tree_goes_on() {
    for isolation in isolations() {
        let file = file();
        let (supervisor, guards) = holder(isolation.word(), file.path()).await;
        // Launch would let a stopped shim go on.
        stop([guards.launch, guards.shim]).await;
        signal(supervisor.id(), Signal::KILL);
        dead(supervisor.id()).await;
        assert!(!is_free(file.path()), "{isolation}: guards live");
        signal(guards.launch, Signal::KILL);
        dead(guards.launch).await;
        assert!(!is_free(file.path()), "{isolation}: the shim lives");
        assert!(supervisor.mark.members().len() >= DEAF_LEN, "{isolation}");
        signal(guards.shim, Signal::CONT);
        freed(file.path()).await;
        supervisor.mark.is_gone();
    }
}

/// The other guard holds it as well: without a namespace it is launch that ends what is left.
#[tokio::test]
async fn the_lock_is_held_by_launch_when_the_shim_is_killed() {
    for isolation in isolations() {
        let file = file();
        let (supervisor, guards) = holder(isolation.word(), file.path()).await;
        stop([guards.launch]).await;
        signal(supervisor.id(), Signal::KILL);
        signal(guards.shim, Signal::KILL);
        dead(guards.shim).await;
        assert!(!is_free(file.path()), "{isolation}: launch lives");
        signal(guards.launch, Signal::CONT);
        freed(file.path()).await;
        supervisor.mark.is_gone();
    }
}

#[tokio::test]
async fn a_program_does_not_have_the_lock_of_its_tree() {
    for isolation in isolations() {
        let file = file();
        let held = file.reopen().expect("it is there");
        flock(&held, FlockOperation::LockExclusive).expect("it is nobody's");
        let launcher = Launcher::through(SUPERVISOR.as_ref(), Wanted::Exactly(isolation));
        let launcher = launcher.holding(std::sync::Arc::new(held.into()));
        let program = Program::new("/bin/ls").arguments(["-l", "/proc/self/fd"]);
        let Started { mut tree, mut stdout, .. } = launcher.start(&program).await.unwrap();
        let listed = String::from_utf8(stdout.read_to_end().await.unwrap()).unwrap();
        let name = file.path().to_str().unwrap();
        assert!(listed.contains("/proc/") && !listed.contains(name), "{isolation}: {listed}");
        tree.ended().await.unwrap();
        drop(launcher);
        freed(file.path()).await;
    }
}

/// The supervisor alone has it when nothing runs.
#[tokio::test]
async fn the_lock_is_free_when_all_trees_have_ended_and_the_supervisor_leaves() {
    for isolation in isolations() {
        let file = file();
        let held = file.reopen().expect("it is there");
        flock(&held, FlockOperation::LockExclusive).expect("it is nobody's");
        let launcher = Launcher::through(SUPERVISOR.as_ref(), Wanted::Exactly(isolation));
        let launcher = launcher.holding(std::sync::Arc::new(held.into()));
        assert_eq!(launcher.probe(&sh("")).await.unwrap(), isolation);
        for _ in 0..2 {
            launcher.start(&sh("true")).await.unwrap().tree.ended().await.unwrap();
        }
        assert_eq!(launcher.counts().started, 2, "a probe starts nothing");
        assert!(!is_free(file.path()), "{isolation}");
        drop(launcher);
        freed(file.path()).await;
    }
}
