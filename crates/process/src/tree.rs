//! How a tree is ended: the one piece of work that shim and launch share.
//!
//! | isolation | kill | proof that it is empty |
//! |---|---|---|
//! | namespaces | a signal to all that the shim sees, which is its namespace | the shim's own exit |
//! | cgroup | `cgroup.kill`, then as below for whoever got out | nobody in the cgroup, no child left |
//! | group | the process group, then all descendants | no child left |
//!
//! Without a namespace, orphans of the tree become children of the shim (and of launch, if the shim is gone), so "no child
//! left" means that no descendant is left. Descendants are stopped before they are killed: what is stopped forks no more,
//! and keeps its place in whatever limit of processes there is, so that a program that forks all the time cannot win by
//! filling the places of those that were killed.

mod walk;

use std::io;
use std::os::fd::OwnedFd;

use nix::sys::signal::{SigSet, Signal as NixSignal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid as NixPid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, kill_process, kill_process_group, wait,
};

use crate::Isolation;
use crate::cgroup::{Cgroups, Populated};
use crate::limits::{LOOK_AGAIN, STOP_ROUNDS_MAX};
use walk::{Descendants, State};

/// Ends a tree. Made before there is one: ending allocates nothing.
pub(crate) struct Ender(Manner);

enum Manner {
    /// All that this process sees, except itself.
    Everything,
    /// All that descend from this process, and first those of a cgroup and of a group, if there are any.
    Descendants {
        cgroup: Option<CgroupKill>,
        group: Option<Pid>,
        descendants: Descendants,
        deaths: SignalFd,
    },
}

struct CgroupKill {
    kill: OwnedFd,
    populated: Populated,
}

impl Ender {
    /// For the first process of a tree, or for whoever started that.
    pub(crate) fn new(isolation: Isolation, cgroups: &Cgroups) -> io::Result<Self> {
        let is_first = rustix::process::getpid() == Pid::INIT;
        if isolation.is_namespace() && is_first {
            return Ok(Self(Manner::Everything));
        }
        let killable = cgroups.killable()?;
        let cgroup = killable.map(|(kill, populated)| CgroupKill { kill, populated });
        let (group, descendants, deaths) = (None, Descendants::of_me()?, deaths()?);
        Ok(Self(Manner::Descendants { cgroup, group, descendants, deaths }))
    }

    /// The group of the program: whoever has not left it is killed in one step.
    pub(crate) fn group(&mut self, of: Pid) {
        match &mut self.0 {
            Manner::Everything => {}
            Manner::Descendants { group, .. } => *group = Some(of),
        }
    }

    /// Sends SIGTERM to all of the tree, the program for certain, and as many others as are found. Who was stopped by a signal
    /// must go on to end.
    pub(crate) fn tell_to_end(&self, program: Pid) {
        let tell = |pid| {
            let _ = kill_process(pid, Signal::TERM);
            let _ = kill_process(pid, Signal::CONT);
        };
        match &self.0 {
            Manner::Everything => {
                let _ = kill(NixPid::from_raw(-1), NixSignal::SIGTERM);
                let _ = kill(NixPid::from_raw(-1), NixSignal::SIGCONT);
            }
            Manner::Descendants { descendants, .. } => {
                tell(program);
                descendants.each(|pid, _| {
                    if pid != program {
                        tell(pid);
                    }
                });
            }
        }
    }

    /// Kills and reaps until nothing is left, and tells of everyone reaped.
    pub(crate) fn end(&mut self, mut reaped: impl FnMut(Pid, WaitStatus)) {
        match &mut self.0 {
            Manner::Everything => {
                // All that this process may signal, except itself: in one step, which no fork escapes.
                let _ = kill(NixPid::from_raw(-1), NixSignal::SIGKILL);
                while let Ok(Some((pid, status))) = wait(WaitOptions::empty()) {
                    reaped(pid, status);
                }
            }
            Manner::Descendants { cgroup, group, descendants, deaths } => {
                if let Some(cgroup) = cgroup {
                    let _ = rustix::io::write(&cgroup.kill, b"1");
                }
                if let Some(group) = group.take() {
                    let _ = kill_process_group(group, Signal::KILL);
                }
                end_descendants(descendants, deaths, reaped);
                if let Some(cgroup) = cgroup {
                    cgroup.populated.wait_until_not(&cgroup.kill);
                }
            }
        }
    }
}

/// Tells of deaths of children, which every role has blocked as signals.
pub(crate) fn deaths() -> io::Result<SignalFd> {
    let mut deaths = SigSet::empty();
    deaths.add(NixSignal::SIGCHLD);
    Ok(SignalFd::with_flags(&deaths, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?)
}

/// Every death of a child is a reason to look again, and every descendant that is killed is a child when it dies, because
/// its parents are killed with it. So this does not spin. It waits for no death without end: a walk may have found nobody,
/// as when the machine has no descriptor left for it.
fn end_descendants(
    descendants: &Descendants,
    deaths: &SignalFd,
    mut reaped: impl FnMut(Pid, WaitStatus),
) {
    let patience = Timespec::try_from(LOOK_AGAIN).expect("it is short");
    loop {
        // Whoever dies from here on is told of below.
        while let Ok(Some(_)) = deaths.read_signal() {}
        // Reaps those that are dead before it looks: whoever has no child has nothing to look for.
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => reaped(pid, status),
                Ok(None) => break,
                Err(rustix::io::Errno::CHILD) => return,
                Err(_) => {}
            }
        }
        stop_all(descendants);
        // Whatever its state: of a zombie, threads may run.
        descendants.each(|pid, _| {
            let _ = kill_process(pid, Signal::KILL);
        });
        let _ = poll(&mut [PollFd::new(deaths, PollFlags::IN)], Some(&patience));
    }
}

/// Until nobody is seen to run who could fork. Threads of a zombie stop with the others, and nobody sees whether they have.
fn stop_all(descendants: &Descendants) {
    for _ in 0..STOP_ROUNDS_MAX {
        let mut running = 0;
        descendants.each(|pid, state| {
            if state != State::Stopped {
                running += u32::from(state == State::Runs);
                let _ = kill_process(pid, Signal::STOP);
            }
        });
        if running == 0 {
            return;
        }
    }
}
