//! The init of a container: what PID 1 has to do, when we are it.
//!
//! PID 1 must reap every orphan, and the kernel gives it no default actions: a SIGTERM that it does not expect is lost.
//! A supervisor that reaped everybody would take the ends of its own children from whoever waits for them. So PID 1 does
//! this and nothing else, and the program that was meant runs as its child.

use std::os::unix::process::CommandExt;
use std::process::{Command, exit};

use nix::sys::signal::{SigSet, Signal as NixSignal, kill};
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
    let signals = SigSet::all();
    block(&signals);
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    let child = Command::new(OWN_BINARY).arg0(name).args(arguments).spawn();
    let child = child.unwrap_or_else(|why| {
        eprintln!("as PID 1, cannot start {OWN_BINARY} as a child: {why}");
        exit(NOT_STARTED)
    });
    let main = Pid::from_child(&child);
    loop {
        match signals.wait() {
            Ok(NixSignal::SIGCHLD) => reap(main),
            Ok(signal) => {
                let _ = kill(NixPid::from_raw(main.as_raw_pid()), signal);
            }
            // A signal without a name.
            Err(_) => {}
        }
    }
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
