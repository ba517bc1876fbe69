//! Limits of a tree, where cgroups permit them.

use process::{Cause, End, Limits, Program, Started};

use crate::stage::{As, Mark, SUPERVISOR, Supervisor, isolations, sh, start};

#[tokio::test]
async fn a_program_that_forks_without_end_meets_its_limit_and_is_ended() {
    if !rig::is_root() {
        return;
    }
    for isolation in isolations() {
        let mark = Mark::new();
        let limits = Limits { processes_max: Some(40), ..Limits::default() };
        let program = Program::new(SUPERVISOR).argument("bomb");
        let Started { mut tree, .. } = start(isolation, &mark.on(program).limits(limits)).await;
        rig::until("the limit is met", rig::PATIENCE, async || {
            (mark.members().len() >= 35).then_some(())
        })
        .await;
        assert!(mark.members().len() <= 40, "{isolation}");
        tree.kill();
        let outcome = tree.ended().await.unwrap();
        mark.is_gone();
        assert_eq!((outcome.end, outcome.cause), (End::Signaled(9), Cause::Killed), "{isolation}");
    }
}

#[tokio::test]
async fn a_tree_may_have_as_many_processes_as_its_limit_and_not_one_more() {
    if !rig::is_root() {
        return;
    }
    for isolation in isolations() {
        let limits = Limits { processes_max: Some(5), ..Limits::default() };
        let within = "for i in 1 2 3 4; do sleep 1000 & done; exit 0";
        let Started { mut tree, .. } = start(isolation, &sh(within).limits(limits)).await;
        assert_eq!(tree.ended().await.unwrap().end, End::Exited(0), "{isolation}");
        // From the moment on in which the shim has left.
        let beyond = "one=$(sed -n 's/^[0-9]*:pids://p' /proc/self/cgroup); \
            two=$(sed -n 's/^0:://p' /proc/self/cgroup); \
            until cat /sys/fs/cgroup/pids$one/pids.max /sys/fs/cgroup$two/pids.max 2>/dev/null \
                | grep -qx 5; do :; done; \
            for i in 1 2 3 4 5; do sleep 1000 & done; exit 0";
        let Started { mut tree, mut stderr, .. } =
            start(isolation, &sh(beyond).limits(limits)).await;
        assert_eq!(tree.ended().await.unwrap().end, End::Exited(2), "{isolation}");
        let why = String::from_utf8(stderr.read_to_end().await.unwrap()).unwrap();
        assert!(why.contains("Cannot fork"), "{isolation}: {why}");
    }
}

#[tokio::test]
async fn a_tree_that_takes_more_memory_than_its_limit_is_ended_by_the_kernel() {
    if !rig::is_root() {
        return;
    }
    for isolation in isolations() {
        let limits = Limits { memory_bytes_max: Some(32 << 20), ..Limits::default() };
        let within = sh("head -c 8000000 /dev/zero | tail -c 8000000 >/dev/null").limits(limits);
        let Started { mut tree, .. } = start(isolation, &within).await;
        assert_eq!(tree.ended().await.unwrap().end, End::Exited(0), "{isolation}");
        let beyond =
            sh("head -c 100000000 /dev/zero | tail -c 100000000 >/dev/null").limits(limits);
        // The shell says there that somebody was killed.
        let Started { mut tree, stderr: _stderr, .. } = start(isolation, &beyond).await;
        let outcome = tree.ended().await.unwrap();
        assert_eq!(
            (outcome.end, outcome.cause),
            (End::Exited(128 + 9), Cause::Itself),
            "{isolation}"
        );
    }
}

#[tokio::test]
async fn a_limit_that_cannot_be_kept_is_an_error_that_says_so() {
    let who = if rig::is_root() { As::Nobody } else { As::Me };
    for isolation in ["auto+limit", "user-namespace+limit", "group+limit"] {
        let mut supervisor = Supervisor::start(who, isolation, "true");
        let line = supervisor.line().await;
        assert!(line.starts_with("refused the limit of processes cannot be kept here: "), "{line}");
        assert!(line.contains("setting the limit of processes in a cgroup"), "{line}");
        assert_eq!(supervisor.ended().await, Some(1));
    }
}

/// Cgroups go with their trees.
#[tokio::test]
async fn no_cgroup_is_left() {
    if !rig::is_root() {
        return;
    }
    let limits = Limits { memory_bytes_max: Some(64 << 20), processes_max: Some(10) };
    for isolation in isolations() {
        let program = sh("cat /proc/self/cgroup").limits(limits);
        let Started { mut tree, mut stdout, .. } = start(isolation, &program).await;
        let shown = String::from_utf8(stdout.read_to_end().await.unwrap()).unwrap();
        tree.ended().await.unwrap();
        let name_in = |line: &str| Some(line.split_once("/watchbell-")?.1.to_owned());
        let names: Vec<String> = shown.lines().filter_map(name_in).collect();
        assert!(!names.is_empty(), "{isolation}: {shown}");
        for name in names {
            let mut find = std::process::Command::new("find");
            find.args(["/sys/fs/cgroup", "-maxdepth", "8", "-name", &format!("watchbell-{name}")]);
            let found = find.output().unwrap().stdout;
            assert_eq!(String::from_utf8(found).unwrap(), "", "{isolation}");
        }
    }
}
