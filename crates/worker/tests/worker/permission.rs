//! Whom commands run as, and what happens to whom nothing is permitted.

use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use client::output::OutputStream::Stdout;
use client::worker::RunResult;
use process::Isolation;
use rig::machine;
use serde_json::json;
use worker::command::{Account, CommandPolicy};

use crate::stage::{GUARD, Mark, carry, hands, is_root, policy, run_with, sh};

#[tokio::test]
async fn a_worker_that_is_root_runs_commands_as_who_it_is_told() {
    if !is_root() {
        return;
    }
    let _share = machine::waits().await;
    for isolation in [Isolation::Namespace, Isolation::Cgroup, Isolation::Group] {
        let account = Some(Account::of("nobody").unwrap());
        let hands = hands(CommandPolicy { account, ..policy(isolation) });
        let script = "id -u; id -G; echo $USER $LOGNAME; grep CapEff /proc/self/status";
        let (outcome, carried) = carry(&hands, sh(script)).await;
        assert_eq!(outcome.result, RunResult::Succeeded, "{isolation}: {outcome:?}");
        let told = carried.printed(Stdout);
        let lines: Vec<&str> = told.lines().collect();
        assert_eq!((lines[0], lines[2]), ("65534", "nobody nobody"), "{isolation}: {told}");
        assert!(lines[3].ends_with("\t0000000000000000"), "{isolation}: {told}");
    }
}

/// The guard's binary where everybody may read it, which is not so below everybody's home.
fn readable_by_all() -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let all = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(dir.path(), all).expect("it is ours");
    let copy = dir.path().join("guard");
    // By another process: if this one had it open for writing, so would children that other tests start meanwhile.
    let copied = std::process::Command::new("cp").arg(GUARD).arg(&copy).status();
    assert!(copied.expect("cp is there").success());
    let copy = copy.to_str().expect("a plain path").to_owned();
    (dir, copy)
}

/// What hands say that belong to `nobody`, through these commands; and nothing of their tree is left.
async fn of_nobody(through: &[&str]) -> String {
    let (_dir, copy) = readable_by_all();
    let mark = Mark::new();
    let script = "trap '' TERM; (setsid sleep 1000 &); echo \"user $(id -u)\"; exit 3";
    let command = json!({"argv": ["/bin/sh", "-c", script], "env": {"TEST_TREE": mark.text()}});
    let run = serde_json::to_string(&run_with(&json!({"command": command}))).unwrap();
    let mut words = vec!["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    if !rig::is_root() {
        words.clear();
    }
    words.extend(through);
    words.extend([copy.as_str(), "carry", "/bin/sh", run.as_str()]);
    let mut guard = tokio::process::Command::new(words[0]);
    let told = guard.args(&words[1..]).stdin(Stdio::null()).kill_on_drop(true).output();
    let told = tokio::time::timeout(rig::PATIENCE, told).await.expect("it ends in time").unwrap();
    mark.is_gone();
    assert!(told.status.success(), "{told:?}");
    String::from_utf8(told.stdout).unwrap()
}

#[tokio::test]
async fn an_ordinary_user_has_user_namespaces() {
    let _share = machine::waits().await;
    let told = of_nobody(&[]).await;
    assert!(told.contains("isolation user-namespace"), "{told}");
    assert!(told.contains("outcome Failed Some(\"exit code 3\") weak 0"), "{told}");
    if rig::is_root() {
        assert!(told.contains("printed user 65534"), "{told}");
    }
}

/// No more namespaces are permitted, and no cgroup may be written: what a container without privileges is like.
#[tokio::test]
async fn where_nothing_is_permitted_the_kill_is_weak_and_told() {
    if !is_root() {
        return;
    }
    let _share = machine::waits().await;
    let forbid = "echo 0 >/proc/sys/user/max_pid_namespaces && exec \"$@\"";
    let told = of_nobody(&["unshare", "--user", "--map-root-user", "sh", "-c", forbid, "sh"]).await;
    assert!(told.contains("isolation group"), "{told}");
    assert!(told.contains("outcome Failed Some(\"exit code 3\") weak 1"), "{told}");
}
