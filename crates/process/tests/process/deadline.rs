//! Deadlines: trees that are told to end at one instant and killed at another, by nobody but their shim.
//!
//! Times are those of real processes. A tree is to be empty [`late_max`] after its kill, which a machine with time to spare keeps
//! by far; on a busy one an attempt may miss it, and another one with more time is made. None may miss [`NEVER_LATER`].

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use process::{Cause, Deadline, End, Isolation, Limits, Program, Started, since_boot};
use rustix::process::{Pid, Signal};

use crate::stage::{
    As, DONE, Mark, SUPERVISOR, Supervisor, TOO_SOON, deadline_variable, each_isolation,
    isolations, sh, signal, start, state, stop, until_after,
};

/// How late a tree may be empty on a machine that has time for it: what holds reckon with.
fn late_max(isolation: Isolation) -> Duration {
    match isolation {
        Isolation::Namespace | Isolation::UserNamespace | Isolation::Cgroup => {
            Duration::from_millis(100)
        }
        Isolation::Group => Duration::from_millis(400),
    }
}

/// How late it is never.
const NEVER_LATER: Duration = Duration::from_secs(5);

/// How long a program may run after a freeze in which its deadline passed.
const THAW_MAX: Duration = Duration::from_millis(10);

/// Longer than any test.
const LONG: Duration = Duration::from_secs(1000);

/// Told to end half-way.
fn in_time(soon: Duration) -> Deadline {
    let now = since_boot();
    Deadline { stop_at: now + soon / 2, kill_at: now + soon }
}

/// Whether this was soon enough.
fn judge(isolation: Isolation, late: Duration, max: Duration) -> ControlFlow<()> {
    assert!(late <= NEVER_LATER, "{isolation}: {late:?}");
    if late <= max { DONE } else { TOO_SOON }
}

/// Says `told` when it is told to end, and how long after the machine's start, and takes no notice of it. What the shell has
/// to say of others that were told is for nobody.
const OBSTINATE: &str = "exec 2>/dev/null; trap 'echo told $(cut -d\" \" -f1 /proc/uptime)' TERM; \
    echo ready; while :; do sleep 0.01; done";

/// Deaf to signals.
const DEAF: &str = "trap '' TERM INT HUP; while :; do sleep 1000; done";

/// Forked twice, deaf, in sessions of their own, with children.
const FORKED_TWICE: &str = "trap '' TERM INT HUP; \
    for i in 1 2 3 4 5 6 7 8; do ( setsid sh -c 'trap \"\" TERM HUP; sleep 1000 & wait' & ) & done; \
    while :; do sleep 1000; done";

/// Without any descriptor.
const CLOSED: &str = "trap '' TERM; for fd in 0 1 2 3 4 5 6 7 8 9; do eval \"exec $fd>&-\"; done; \
    while :; do sleep 1000; done";

/// Prints without end, which nobody reads.
const FLOODING: &str = "trap '' TERM; (setsid yes &); while :; do yes; done";

/// Everything that is hard to end.
fn hostile() -> Vec<(&'static str, Program)> {
    let mut all: Vec<_> = [
        ("deaf", DEAF),
        ("forked twice", FORKED_TWICE),
        ("closed", CLOSED),
        ("flooding", FLOODING),
    ]
    .map(|(name, script)| (name, sh(script)))
    .into();
    // Without a limit it would be the end of the machine.
    if rig::is_root() {
        let limits = Limits { processes_max: Some(40), ..Limits::default() };
        all.push(("forking", Program::new(SUPERVISOR).argument("bomb").limits(limits)));
    }
    all
}

#[tokio::test]
async fn every_hostile_program_is_gone_by_its_deadline() {
    for (name, program) in hostile() {
        each_isolation(async |isolation, soon| {
            let mark = Mark::new();
            let deadline = in_time(soon);
            let program = mark.on(program.clone()).deadline(deadline);
            let Started { mut tree, stdout: _stdout, .. } = start(isolation, &program).await;
            let outcome = tree.ended().await.unwrap();
            let seen_late = since_boot().saturating_sub(deadline.kill_at);
            mark.is_gone();
            if outcome.end == End::Unseen {
                return TOO_SOON;
            }
            // It may be told to end before it is deaf.
            let Some(late) = outcome.kill_late else { return TOO_SOON };
            assert!(late <= seen_late, "{name}, {isolation}: seen before it was so");
            let expected = (End::Signaled(9), Cause::Unconfirmed);
            assert_eq!((outcome.end, outcome.cause), expected, "{name}, {isolation}");
            println!("{name}, {isolation}: gone {late:?} after its deadline");
            judge(isolation, late, late_max(isolation))
        })
        .await;
    }
}

/// What is said of a time in `/proc/uptime` is true to a hundredth of a second.
fn told_at(line: &str) -> Duration {
    let at = line.strip_prefix("told ").unwrap_or_else(|| panic!("{line}"));
    Duration::from_secs_f64(at.trim().parse().expect("seconds")) + Duration::from_millis(10)
}

#[tokio::test]
async fn a_program_is_told_to_end_first_and_what_it_does_then_is_told() {
    each_isolation(async |isolation, soon| {
        let deadline = in_time(soon);
        let script = OBSTINATE.replace("' TERM", "; exit 3' TERM");
        let program = sh(&script).deadline(deadline);
        let Started { mut tree, mut stdout, .. } = start(isolation, &program).await;
        let outcome = tree.ended().await.unwrap();
        let said = String::from_utf8(stdout.read_to_end().await.unwrap()).unwrap();
        let Some(told) = said.strip_prefix("ready\n").filter(|told| !told.is_empty()) else {
            return TOO_SOON;
        };
        assert!(told_at(told) >= deadline.stop_at, "{isolation}: {said}");
        if outcome.end != End::Exited(3) {
            return TOO_SOON;
        }
        assert_eq!((outcome.cause, outcome.kill_late), (Cause::Unconfirmed, None), "{isolation}");
        DONE
    })
    .await;
}

/// Says when it is told to end, and ends; in the second case it was stopped meanwhile.
const TOLD: &str = "trap 'echo told; exit' TERM; echo ready; while :; do sleep 0.01; done";
const STOPPED: &str =
    "trap 'echo told; exit' TERM; echo ready; kill -STOP $$; while :; do sleep 0.01; done";

#[tokio::test]
async fn all_of_a_tree_is_told_to_end_also_what_was_stopped() {
    each_isolation(async |isolation, soon| {
        let script = "exec 2>/dev/null; trap : TERM; (setsid sh -c \"$TOLD\" &); sh -c \"$STOPPED\" & \
            while :; do sleep 1000; done";
        let program = sh(script).variable("TOLD", TOLD).variable("STOPPED", STOPPED);
        let program = program.deadline(in_time(soon));
        let Started { mut tree, mut stdout, .. } = start(isolation, &program).await;
        let outcome = tree.ended().await.unwrap();
        assert_eq!(outcome.cause, Cause::Unconfirmed, "{isolation}");
        let said = String::from_utf8(stdout.read_to_end().await.unwrap()).unwrap();
        let count = |word| said.lines().filter(|line| *line == word).count();
        match (count("ready"), count("told")) {
            (2, 2) => DONE,
            _ => TOO_SOON,
        }
    })
    .await;
}

#[tokio::test]
async fn a_stopped_supervisor_changes_nothing() {
    each_isolation(async |isolation, soon| {
        let deadline = in_time(soon);
        let words = ["env", &deadline_variable(deadline)];
        let script = format!("(trap '' TERM; setsid sleep 1000 &); {OBSTINATE}");
        let mut supervisor = Supervisor::start_through(&words, As::Me, isolation.word(), &script);
        supervisor.started().await;
        if supervisor.line().await != "ready" {
            return TOO_SOON;
        }
        let id = supervisor.id();
        stop([id]).await;
        if since_boot() >= deadline.stop_at {
            return TOO_SOON;
        }
        until_after(deadline.kill_at).await;
        supervisor.mark.gone();
        let late = since_boot().saturating_sub(deadline.kill_at);
        assert_eq!(state(id), Some('T'), "{isolation}: it took no part in that");
        println!("{isolation}: gone {late:?} after its deadline, its supervisor stopped");
        signal(id, Signal::CONT);
        let told = supervisor.line().await;
        if told.starts_with("ended") {
            return TOO_SOON;
        }
        assert!(told_at(&told) >= deadline.stop_at, "{isolation}: {told}");
        assert_eq!(supervisor.line().await, "ended Signaled(9) Unconfirmed", "{isolation}");
        judge(isolation, late, late_max(isolation))
    })
    .await;
}

#[tokio::test]
async fn a_confirmation_moves_both_instants() {
    each_isolation(async |isolation, soon| {
        let (first, second) = (in_time(soon), in_time(4 * soon));
        let program = sh(OBSTINATE).deadline(first);
        let Started { mut tree, mut stdout, .. } = start(isolation, &program).await;
        tree.confirm(second);
        if since_boot() >= first.stop_at {
            return TOO_SOON;
        }
        let mut said = [0; 100];
        if stdout.read(&mut said).await.unwrap() == 0 {
            return TOO_SOON;
        }
        let len = stdout.read(&mut said).await.unwrap();
        if len == 0 {
            return TOO_SOON;
        }
        let told = String::from_utf8_lossy(&said[..len]).into_owned();
        assert!(told_at(&told) >= second.stop_at, "{isolation}: {told}");
        let outcome = tree.ended().await.unwrap();
        assert!(since_boot() >= second.kill_at, "{isolation}");
        let expected = (End::Signaled(9), Cause::Unconfirmed);
        assert_eq!((outcome.end, outcome.cause), expected, "{isolation}");
        DONE
    })
    .await;
}

#[tokio::test]
async fn a_confirmation_takes_no_stop_back() {
    each_isolation(async |isolation, soon| {
        let deadline = in_time(soon);
        let program = sh(OBSTINATE).deadline(deadline);
        let Started { mut tree, mut stdout, .. } = start(isolation, &program).await;
        let (mut said, mut buffer) = (String::new(), [0; 100]);
        while !said.contains("told") {
            match stdout.read(&mut buffer).await.unwrap() {
                0 => return TOO_SOON,
                len => said += std::str::from_utf8(&buffer[..len]).unwrap(),
            }
        }
        tree.confirm(Deadline::sudden(since_boot() + LONG));
        let outcome = tree.ended().await.unwrap();
        assert!(since_boot() >= deadline.kill_at, "{isolation}");
        let expected = (End::Signaled(9), Cause::Unconfirmed);
        assert_eq!((outcome.end, outcome.cause), expected, "{isolation}");
        judge(isolation, outcome.kill_late.unwrap(), late_max(isolation))
    })
    .await;
}

#[tokio::test]
async fn a_grace_that_is_over_sooner_is_not_lengthened_by_a_deadline() {
    each_isolation(async |isolation, soon| {
        let deadline = Deadline { kill_at: since_boot() + LONG, ..in_time(soon) };
        let program = sh(OBSTINATE).deadline(deadline);
        let Started { mut tree, stdout: _stdout, .. } = start(isolation, &program).await;
        until_after(deadline.stop_at).await;
        tree.stop(Duration::from_millis(50));
        let outcome = tree.ended().await.unwrap();
        assert_eq!((outcome.cause, outcome.kill_late), (Cause::Unconfirmed, None), "{isolation}");
        DONE
    })
    .await;
}

fn pid(id: Option<u32>) -> Pid {
    Pid::from_raw(i32::try_from(id.expect("it is there")).unwrap()).unwrap()
}

#[tokio::test]
async fn a_supervisor_ends_a_tree_whose_guards_are_stopped() {
    each_isolation(async |isolation, soon| {
        let mark = Mark::new();
        let deadline = in_time(soon);
        let program = mark.on(sh(FORKED_TWICE)).deadline(deadline);
        let Started { mut tree, stdout: _stdout, .. } = start(isolation, &program).await;
        stop([tree.guards().launch, tree.guards().shim].map(pid)).await;
        if since_boot() >= deadline.stop_at {
            return TOO_SOON;
        }
        let outcome = tree.ended().await.unwrap();
        mark.is_gone();
        let late = outcome.kill_late.expect("nobody told it to end before");
        println!("{isolation}: gone {late:?} after its deadline, its guards stopped");
        // It waits a little before it takes a shim for stopped.
        judge(isolation, late, late_max(isolation) + Duration::from_millis(100))
    })
    .await;
}

#[tokio::test]
async fn nothing_survives_a_supervisor_that_dies_before_the_deadline() {
    each_isolation(async |isolation, _| {
        let far = Deadline::sudden(since_boot() + LONG);
        let words = ["env", &deadline_variable(far)];
        let mut supervisor =
            Supervisor::start_through(&words, As::Me, isolation.word(), FORKED_TWICE);
        supervisor.started().await;
        supervisor.mark.grown_to(18).await;
        signal(supervisor.id(), Signal::KILL);
        let took = supervisor.mark.gone();
        println!("{isolation}: gone {took:?} after kill -9 of the supervisor");
        judge(isolation, took, late_max(isolation))
    })
    .await;
}

/// Whether somebody who was not there before gets the lock.
fn is_free(path: &Path) -> bool {
    std::fs::File::open(path).expect("it is there").try_lock().is_ok()
}

#[tokio::test]
async fn the_lock_is_free_when_the_tree_is_empty_though_its_supervisor_is_stopped() {
    each_isolation(async |isolation, soon| {
        let file = tempfile::NamedTempFile::new().unwrap();
        let deadline = in_time(soon);
        let lock = format!("TEST_LOCK={}", file.path().display());
        let words = ["env", &lock, &deadline_variable(deadline)];
        let mut supervisor =
            Supervisor::start_through(&words, As::Me, isolation.word(), FORKED_TWICE);
        supervisor.started().await;
        stop([supervisor.id()]).await;
        let is_held = !is_free(file.path());
        if since_boot() >= deadline.stop_at {
            return TOO_SOON;
        }
        assert!(is_held, "{isolation}");
        rig::until("the lock is free", rig::PATIENCE, async || is_free(file.path()).then_some(()))
            .await;
        supervisor.mark.is_gone();
        let late = since_boot().saturating_sub(deadline.kill_at);
        judge(isolation, late, late_max(isolation))
    })
    .await;
}

#[tokio::test]
async fn a_program_that_was_frozen_beyond_its_deadline_hardly_runs_when_it_is_thawed() {
    if !rig::is_root() {
        return;
    }
    each_isolation(async |isolation, soon| {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("clock");
        let last = || {
            let read = std::fs::read_to_string(&file).unwrap_or_default();
            read.parse().map(Duration::from_nanos)
        };
        let freezer = rig::Freezer::new(Mark::new().text());
        let deadline = in_time(soon);
        let enter = format!("echo $$ >{} && exec \"$@\"", freezer.members());
        let words = ["env", &deadline_variable(deadline), "sh", "-c", &enter, "sh"];
        let script = format!("exec {SUPERVISOR} clock {}", file.display());
        let mut supervisor = Supervisor::start_through(&words, As::Me, isolation.word(), &script);
        supervisor.started().await;
        rig::until("it runs", rig::PATIENCE, async || {
            (last().is_ok() || since_boot() >= deadline.stop_at).then_some(())
        })
        .await;
        let frozen = freezer.freeze().await;
        if since_boot() >= deadline.stop_at {
            return TOO_SOON;
        }
        let before = last().expect("it has written its clock");
        until_after(deadline.kill_at).await;
        assert_eq!(last(), Ok(before), "{isolation}: nothing moves");
        let thawed = since_boot();
        frozen.thaw();
        assert_eq!(supervisor.line().await, "ended Signaled(9) Unconfirmed", "{isolation}");
        supervisor.mark.is_gone();
        let after = last().expect("it has written its clock");
        let ran = if after == before { Duration::ZERO } else { after.saturating_sub(thawed) };
        println!("{isolation}: ran {ran:?} after it was thawed");
        judge(isolation, ran, THAW_MAX)
    })
    .await;
}

#[tokio::test]
async fn a_deadline_that_is_over_lets_nothing_begin() {
    for isolation in isolations() {
        let now = since_boot();
        for deadline in [
            Deadline { stop_at: now, kill_at: now + LONG },
            Deadline { stop_at: now + LONG, kill_at: now },
        ] {
            let mark = Mark::new();
            let program = mark.on(sh(DEAF)).deadline(deadline);
            let Started { mut tree, .. } = start(isolation, &program).await;
            let outcome = tree.ended().await.unwrap();
            let expected = (End::Unseen, Cause::Unconfirmed, None);
            assert_eq!((outcome.end, outcome.cause, outcome.kill_late), expected, "{isolation}");
            mark.is_gone();
        }
    }
}
