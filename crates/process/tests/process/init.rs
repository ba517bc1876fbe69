//! As PID 1 of a container.

use std::process::Stdio;

use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use crate::stage::{As, SUPERVISOR, Supervisor, pids, signal, state};

/// What makes a container of a command, as far as ids go.
const CONTAINER: [&str; 4] = ["unshare", "--pid", "--fork", "--mount-proc"];

/// The supervisor's init: the child of `unshare`.
fn init_of(supervisor: &Supervisor) -> rustix::process::Pid {
    let parent = supervisor.id().as_raw_pid();
    pids()
        .find(|pid| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let parent_of = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1));
            parent_of == Some(&parent.to_string())
        })
        .and_then(rustix::process::Pid::from_raw)
        .expect("unshare has a child")
}

#[tokio::test]
async fn it_supervises_and_ends_as_its_program_lets_it() {
    if !rig::is_root() {
        return;
    }
    for isolation in ["namespace", "group"] {
        let mut supervisor = Supervisor::start_through(&CONTAINER, As::Me, isolation, "echo $$");
        supervisor.started().await;
        let id: i32 = supervisor.line().await.parse().unwrap();
        assert!(isolation != "namespace" || id == 2, "{id}");
        assert_eq!(supervisor.line().await, "ended Exited(0) Itself");
        assert_eq!(supervisor.ended().await, Some(0));
    }
}

#[tokio::test]
async fn it_passes_signals_on_and_takes_all_with_it() {
    if !rig::is_root() {
        return;
    }
    let script = "trap '' TERM; (setsid sleep 1000 &); while :; do sleep 1000; done";
    for isolation in ["namespace", "cgroup", "group"] {
        let mut supervisor = Supervisor::start_through(&CONTAINER, As::Me, isolation, script);
        supervisor.started().await;
        supervisor.mark.grown_to(3).await;
        signal(init_of(&supervisor), Signal::TERM);
        supervisor.mark.gone();
        // The supervisor has no handler, so SIGTERM ended it; init says so as shells do.
        assert_eq!(supervisor.ended().await, Some(128 + Signal::TERM.as_raw()));
    }
}

#[tokio::test]
async fn it_reaps_what_nobody_else_does() {
    if !rig::is_root() {
        return;
    }
    let script = "trap 'exit 0' TERM; while :; do sleep 0.01; done";
    let mut supervisor = Supervisor::start_through(&CONTAINER, As::Me, "namespace", script);
    supervisor.started().await;
    supervisor.mark.grown_to(1).await;
    let init = init_of(&supervisor).as_raw_pid();
    // The shim, whose launch is killed, is an orphan: it comes to init, and ends there.
    let launch = children(children(init)[0])[0];
    let shim = children(launch)[0];
    let pid = |id| rustix::process::Pid::from_raw(id).unwrap();
    signal(pid(launch), Signal::KILL);
    rig::until("init has the shim", rig::PATIENCE, async || {
        children(init).contains(&shim).then_some(())
    })
    .await;
    signal(pid(shim), Signal::KILL);
    assert_eq!(supervisor.line().await, "ended Unseen ShimKilled");
    assert_eq!(supervisor.ended().await, Some(0));
}

/// A terminal tells the whole group of what is typed, and init and its child are in one.
#[tokio::test]
async fn an_interrupt_that_is_typed_counts_once() {
    if !rig::is_root() {
        return;
    }
    let words = [&["exec"], &CONTAINER[..], &[SUPERVISOR, "interrupts"]].concat().join(" ");
    let mut command = tokio::process::Command::new("script");
    command.args(["--quiet", "--flush", "--return", "--command", &words, "/dev/null"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut terminal = command.spawn().unwrap();
    let (mut keys, screen) = (terminal.stdin.take().unwrap(), terminal.stdout.take().unwrap());
    let mut screen = BufReader::new(screen).lines();
    let mut next = async || {
        let line = tokio::time::timeout(rig::PATIENCE, screen.next_line()).await;
        line.expect("it says something in time").unwrap()
    };
    assert_eq!(next().await.as_deref(), Some("hears"));
    let unshare = children(i32::try_from(terminal.id().unwrap()).unwrap())[0];
    let init = rustix::process::Pid::from_raw(children(unshare)[0]).unwrap();
    // So that it is late: two interrupts at one moment are one.
    signal(init, Signal::STOP);
    rig::until("it is stopped", rig::PATIENCE, async || (state(init) == Some('T')).then_some(()))
        .await;
    keys.write_all(b"\x03").await.unwrap();
    // What is typed may be shown before it.
    assert!(next().await.unwrap().ends_with("interrupted"));
    signal(init, Signal::TERM);
    signal(init, Signal::CONT);
    assert_eq!(next().await, None);
    assert!(terminal.wait().await.unwrap().success());
}

fn children(of: i32) -> Vec<i32> {
    let listed = std::fs::read_to_string(format!("/proc/{of}/task/{of}/children"));
    listed.unwrap_or_default().split_whitespace().map(|id| id.parse().unwrap()).collect()
}
