//! Guards and supervisors that are killed, stopped, and killed while they are stopped.

use std::time::Duration;

use process::{Cause, End, Started};
use rustix::process::{Pid, Signal};

use crate::stage::{As, Mark, Supervisor, isolations, sh, signal, start, state, stop};

const STUBBORN: &str = "trap '' TERM INT HUP; \
    for i in 1 2 3 4 5 6 7 8 9 10; do ( setsid sh -c 'trap \"\" TERM HUP; sleep 1000 & wait' & ) & done; \
    while :; do sleep 1000; done";

/// Processes of [`STUBBORN`], at least.
const STUBBORN_LEN: usize = 22;

const SHORT: Duration = Duration::from_millis(20);

fn pid(id: Option<u32>) -> Pid {
    Pid::from_raw(i32::try_from(id.expect("it is there")).unwrap()).unwrap()
}

#[tokio::test]
async fn nothing_survives_its_supervisor() {
    for isolation in isolations() {
        let mut supervisor = Supervisor::start(As::Me, isolation.word(), STUBBORN);
        let guards = supervisor.started().await;
        assert_eq!(guards.isolation, isolation);
        supervisor.mark.grown_to(STUBBORN_LEN).await;
        signal(supervisor.id(), Signal::KILL);
        let took = supervisor.mark.gone();
        println!("{isolation}: gone {took:?} after kill -9 of the supervisor");
        both_gone(guards.launch, guards.shim).await;
    }
}

#[tokio::test]
async fn nothing_survives_a_supervisor_that_is_killed_while_it_is_stopped() {
    for isolation in isolations() {
        let mut supervisor = Supervisor::start(As::Me, isolation.word(), STUBBORN);
        let guards = supervisor.started().await;
        supervisor.mark.grown_to(STUBBORN_LEN).await;
        let id = supervisor.id();
        stop([id]).await;
        assert!(supervisor.mark.members().len() >= STUBBORN_LEN, "a pause ends nothing");
        signal(id, Signal::KILL);
        let took = supervisor.mark.gone();
        println!("{isolation}: gone {took:?} after kill -9 of the stopped supervisor");
        both_gone(guards.launch, guards.shim).await;
    }
}

/// Also the guards leave.
async fn both_gone(launch: Pid, shim: Pid) {
    for guard in [launch, shim] {
        rig::until("a guard leaves", rig::PATIENCE, async || {
            matches!(state(guard), None | Some('Z')).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn nothing_survives_its_shim() {
    for isolation in isolations() {
        let mark = Mark::new();
        let Started { mut tree, .. } = start(isolation, &mark.on(sh(STUBBORN))).await;
        mark.grown_to(STUBBORN_LEN).await;
        signal(pid(tree.guards().shim), Signal::KILL);
        let outcome = tree.ended().await.unwrap();
        mark.is_gone();
        assert_eq!((outcome.end, outcome.cause), (End::Unseen, Cause::ShimKilled), "{isolation}");
        assert_eq!(outcome.usage, None);
    }
}

#[tokio::test]
async fn a_tree_goes_on_without_its_launch_and_is_ended_all_the_same() {
    for isolation in isolations() {
        let mark = Mark::new();
        let Started { mut tree, .. } = start(isolation, &mark.on(sh(STUBBORN))).await;
        mark.grown_to(STUBBORN_LEN).await;
        let launch = pid(tree.guards().launch);
        signal(launch, Signal::KILL);
        rig::until("launch is dead", rig::PATIENCE, async || {
            matches!(state(launch), None | Some('Z')).then_some(())
        })
        .await;
        assert!(mark.members().len() >= STUBBORN_LEN, "{isolation}");
        tree.stop(SHORT);
        let outcome = tree.ended().await.unwrap();
        mark.is_gone();
        let expected = (End::Signaled(9), Cause::KilledAfterGrace);
        assert_eq!((outcome.end, outcome.cause), expected, "{isolation}");
    }
}

#[tokio::test]
async fn when_both_guards_are_killed_a_namespace_is_proof_and_nothing_else_is() {
    for isolation in isolations() {
        let mark = Mark::new();
        let Started { mut tree, .. } = start(isolation, &mark.on(sh(STUBBORN))).await;
        mark.grown_to(STUBBORN_LEN).await;
        let guards = tree.guards();
        // Stopped first, so that launch cannot do the shim's work in between.
        signal(pid(guards.launch), Signal::STOP);
        signal(pid(guards.launch), Signal::KILL);
        signal(pid(guards.shim), Signal::KILL);
        let outcome = tree.ended().await;
        if matches!(isolation, process::Isolation::Namespace | process::Isolation::UserNamespace) {
            mark.is_gone();
            assert_eq!(outcome.unwrap().cause, Cause::ShimKilled, "{isolation}");
        } else {
            assert_eq!(outcome, Err(process::Lost), "{isolation}");
            // Nobody is left to do this: not even the cgroup is removed.
            let members = mark.members();
            let cgroup = cgroup_of(members[0]);
            for member in members {
                let _ = rustix::process::kill_process(member, Signal::KILL);
            }
            mark.gone();
            if let Some(cgroup) = cgroup {
                rig::until("the cgroup is empty", rig::PATIENCE, async || {
                    std::fs::remove_dir(&cgroup).ok()
                })
                .await;
            }
        }
    }
}

/// The cgroup of its tree that a process is in, if there is one.
fn cgroup_of(pid: Pid) -> Option<std::path::PathBuf> {
    let own = std::fs::read_to_string(format!("/proc/{}/cgroup", pid.as_raw_pid())).ok()?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    path.contains("watchbell-").then_some(())?;
    let mounts =
        ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(|mount| mount.to_owned() + "/" + path);
    mounts.into_iter().map(Into::into).find(|path: &std::path::PathBuf| path.exists())
}

#[tokio::test]
async fn a_stopped_shim_does_not_keep_a_tree_from_its_end() {
    for isolation in isolations() {
        let mark = Mark::new();
        let Started { mut tree, .. } = start(isolation, &mark.on(sh(STUBBORN))).await;
        mark.grown_to(STUBBORN_LEN).await;
        // Launch would let it go on.
        stop([tree.guards().launch, tree.guards().shim].map(pid)).await;
        tree.kill();
        let outcome = tree.ended().await.unwrap();
        mark.is_gone();
        assert_eq!((outcome.end, outcome.cause), (End::Signaled(9), Cause::Killed), "{isolation}");
    }
}

/// Nobody but a shim ends a tree whose supervisor is dead, so it is not left to whoever stopped it.
#[tokio::test]
async fn nothing_survives_its_supervisor_though_its_shim_was_stopped() {
    for isolation in isolations() {
        let mut supervisor = Supervisor::start(As::Me, isolation.word(), STUBBORN);
        let guards = supervisor.started().await;
        supervisor.mark.grown_to(STUBBORN_LEN).await;
        signal(guards.shim, Signal::STOP);
        signal(supervisor.id(), Signal::KILL);
        supervisor.mark.gone();
        both_gone(guards.launch, guards.shim).await;
    }
}

#[tokio::test]
async fn guards_leave_signals_for_their_unit_to_the_supervisor() {
    for isolation in isolations() {
        let mark = Mark::new();
        let Started { mut tree, .. } = start(isolation, &mark.on(sh(STUBBORN))).await;
        mark.grown_to(STUBBORN_LEN).await;
        let guards = tree.guards();
        for deaf in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
            signal(pid(guards.launch), deaf);
            signal(pid(guards.shim), deaf);
        }
        tree.stop(SHORT);
        let outcome = tree.ended().await.unwrap();
        mark.is_gone();
        assert_eq!(outcome.cause, Cause::KilledAfterGrace, "{isolation}");
    }
}

#[tokio::test]
async fn a_program_cannot_kill_its_shim_in_a_namespace() {
    for isolation in isolations() {
        if !isolation.word().contains("namespace") {
            continue;
        }
        let program = sh("kill -9 1; kill -TERM 1; kill -STOP 1; exit 5");
        let Started { mut tree, .. } = start(isolation, &program).await;
        let outcome = tree.ended().await.unwrap();
        assert_eq!((outcome.end, outcome.cause), (End::Exited(5), Cause::Itself), "{isolation}");
    }
}

/// Nothing is left behind for each tree: no process and no zombie.
#[tokio::test]
async fn many_trees_leave_nothing_behind() {
    for isolation in isolations() {
        let mut guards = Vec::new();
        for _ in 0..10 {
            let Started { mut tree, .. } = start(isolation, &sh("true")).await;
            guards.extend([pid(tree.guards().launch), pid(tree.guards().shim)]);
            tree.ended().await.unwrap();
        }
        for guard in guards {
            assert_eq!(state(guard), None, "{isolation}: a zombie");
        }
    }
}

/// Not even one that was started in the moment in which it was killed.
#[tokio::test]
async fn a_supervisor_that_is_killed_at_any_moment_leaves_nothing() {
    for isolation in isolations() {
        for step in 0..12 {
            let supervisor = Supervisor::start(As::Me, isolation.word(), STUBBORN);
            // Different moments of the start, and none of them matters.
            tokio::time::sleep(Duration::from_millis(step)).await;
            signal(supervisor.id(), Signal::KILL);
            supervisor.mark.gone();
        }
    }
}
