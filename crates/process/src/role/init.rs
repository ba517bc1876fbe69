//! The init of a container: what PID 1 has to do, when we are it.
//!
//! PID 1 must reap every orphan, and the kernel gives it no default actions: a SIGTERM that it does not expect is lost.
//! A supervisor that reaped everybody would take the ends of its own children from whoever waits for them. So PID 1 does
//! this and nothing else, and the program that was meant runs as its child.
//!
//! Both are in one process group, so that the child may read from a terminal. What is typed there to interrupt it comes to
//! both, from the kernel: that is not passed on, or it would count twice.

use std::os::unix::process::CommandExt;
use std::process::{Command, exit};

use nix::libc::SI_KERNEL;
use nix::sys::signal::{SigSet, Signal as NixSignal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd, siginfo};
use nix::unistd::Pid as NixPid;
use rustix::process::{Pid, WaitOptions, WaitStatus, wait};

use super::{OWN_BINARY, block};

/// What shells say of a program that a signal has ended: this and its number.
const SIGNALED: i32 = 128;

/// How a shell ends if it cannot start a program.
const NOT_STARTED: i32 = 126;

/// Does not return.
#[expect(clippy::zombie_processes, reason = "everybody is reaped, and it among them")]
pub(super) fn run() -> ! {
    // Blocked before the child is there, so that none is lost; the child unblocks them.
    block(&SigSet::all());
    let signals = SignalFd::with_flags(&SigSet::all(), SfdFlags::SFD_CLOEXEC)
        .expect("a process without files has room for one");
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    let child = Command::new(OWN_BINARY).arg0(name).args(arguments).spawn();
    let child = child.unwrap_or_else(|why| {
        eprintln!("as PID 1, cannot start {OWN_BINARY} as a child: {why}");
        exit(NOT_STARTED)
    });
    let main = Pid::from_child(&child);
    loop {
        let Ok(Some(told)) = signals.read_signal() else { continue };
        match signal_of(&told) {
            Some(NixSignal::SIGCHLD) => reap(main),
            Some(signal) if !has_come_to_all(signal, &told) => {
                let _ = kill(NixPid::from_raw(main.as_raw_pid()), signal);
            }
            Some(_) | None => {}
        }
    }
}

/// None for a signal without a name.
fn signal_of(told: &siginfo) -> Option<NixSignal> {
    NixSignal::try_from(i32::try_from(told.ssi_signo).ok()?).ok()
}

/// Whether the terminal has sent it, which sends these to the whole group. When it hangs up it tells its session's leader alone.
fn has_come_to_all(signal: NixSignal, told: &siginfo) -> bool {
    let typed = [NixSignal::SIGINT, NixSignal::SIGQUIT, NixSignal::SIGTSTP, NixSignal::SIGWINCH];
    typed.contains(&signal) && told.ssi_code == SI_KERNEL
}

/// Reaps everybody, and ends with the main child. The kernel ends whatever is left in the container then.
fn reap(main: Pid) {
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        if pid == main {
            exit(code(status));
        }
    }
}

fn code(status: WaitStatus) -> i32 {
    let signaled = || SIGNALED + status.terminating_signal().unwrap_or(0);
    status.exit_status().unwrap_or_else(signaled)
}
