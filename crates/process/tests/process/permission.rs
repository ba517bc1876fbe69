//! Who may have which isolation, and what happens where none is permitted.

use process::{Isolation, Launcher, ProgramError, StartError, Started, Step, User, Wanted};
use rustix::process::Signal;

use crate::stage::{As, NOBODY, SUPERVISOR, Supervisor, launcher, sh, signal};

const DEAF: &str = "trap '' TERM; (setsid sleep 1000 &); while :; do sleep 1000; done";

/// Whom this test may be.
fn nobody() -> As {
    if rig::is_root() { As::Nobody } else { As::Me }
}

#[tokio::test]
async fn the_strongest_that_is_permitted_is_used() {
    let launcher = Launcher::through(SUPERVISOR.as_ref(), Wanted::Auto);
    let strongest = if rig::is_root() { Isolation::Namespace } else { Isolation::UserNamespace };
    for _ in 0..2 {
        let Started { mut tree, .. } = launcher.start(&sh("")).await.unwrap();
        assert_eq!(tree.ended().await.unwrap().isolation, strongest);
    }
    assert_eq!(launcher.counts(), process::Counts { started: 2, weak: 0 });
}

#[tokio::test]
async fn an_ordinary_user_has_a_user_namespace() {
    for wanted in ["auto", "user-namespace"] {
        let mut supervisor = Supervisor::start(nobody(), wanted, DEAF);
        let guards = supervisor.started().await;
        assert_eq!(guards.isolation, Isolation::UserNamespace);
        supervisor.mark.grown_to(3).await;
        signal(supervisor.id(), Signal::KILL);
        let took = supervisor.mark.gone();
        println!("ordinary user, {wanted}: gone {took:?} after kill -9 of the supervisor");
    }
}

#[tokio::test]
async fn a_program_in_a_user_namespace_is_who_it_was_and_has_no_rights() {
    let script = "id -u; grep -E 'Cap(Inh|Prm|Eff|Amb)' /proc/self/status";
    let mut supervisor = Supervisor::start(nobody(), "user-namespace", script);
    supervisor.started().await;
    let id = supervisor.line().await;
    if rig::is_root() {
        assert_eq!(id, NOBODY.to_string());
    }
    for _ in 0..4 {
        let line = supervisor.line().await;
        assert!(line.ends_with("\t0000000000000000"), "{line}");
    }
}

#[tokio::test]
async fn an_ordinary_user_may_not_have_the_others() {
    for (wanted, reason) in [
        ("namespace", "namespace: making the namespaces: Operation not permitted"),
        ("cgroup", "cgroup: making a cgroup: "),
    ] {
        let mut supervisor = Supervisor::start(nobody(), wanted, "true");
        let line = supervisor.line().await;
        assert!(line.starts_with("refused no isolation that was asked for"), "{line}");
        assert!(line.contains(reason), "{line}");
        assert_eq!(supervisor.ended().await, Some(1));
    }
}

#[tokio::test]
async fn an_ordinary_user_can_kill_weakly() {
    let mut supervisor = Supervisor::start(nobody(), "group", DEAF);
    let guards = supervisor.started().await;
    assert!(guards.isolation.is_weak());
    supervisor.mark.grown_to(3).await;
    signal(supervisor.id(), Signal::KILL);
    let took = supervisor.mark.gone();
    println!("ordinary user, group: gone {took:?} after kill -9 of the supervisor");
}

/// No more namespaces are permitted, and no cgroup may be written: what a container without privileges is like.
#[tokio::test]
async fn where_nothing_is_permitted_the_kill_is_weak_and_works() {
    if !rig::is_root() {
        return;
    }
    let mut supervisor = Supervisor::start(As::Confined, "auto", DEAF);
    let guards = supervisor.started().await;
    assert!(guards.isolation.is_weak(), "{}", guards.isolation);
    supervisor.mark.grown_to(3).await;
    signal(supervisor.id(), Signal::KILL);
    supervisor.mark.gone();
}

#[tokio::test]
async fn what_is_asked_for_is_had_or_refused() {
    if rig::is_root() {
        return;
    }
    let refused = launcher(Isolation::Namespace).start(&sh("")).await.unwrap_err();
    let StartError::Isolation { refusals } = refused else { panic!("{refused}") };
    assert_eq!(refusals.len(), 1);
    assert_eq!(refusals[0].step, Step::Unshare);
}

#[tokio::test]
async fn only_root_starts_programs_as_others() {
    let program = sh("").user(User { uid: 1, gid: 1 });
    let started = launcher(Isolation::Group).start(&program).await;
    if rig::is_root() {
        started.unwrap().tree.ended().await.unwrap();
    } else {
        let refused = StartError::Program(ProgramError::UserNeedsRoot);
        assert_eq!(started.unwrap_err().to_string(), refused.to_string());
    }
}

#[tokio::test]
async fn a_role_that_is_started_by_hand_says_so() {
    for role in ["__watchbell_launch", "__watchbell_shim"] {
        let ran = std::process::Command::new(SUPERVISOR).arg(role).output().unwrap();
        assert_eq!(ran.status.code(), Some(2));
        assert!(String::from_utf8(ran.stderr).unwrap().contains("and nobody else"));
    }
}
