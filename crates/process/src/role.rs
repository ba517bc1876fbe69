//! What this binary is, beside what people start it as: launch, shim, or the init of a container.
//!
//! Neither `fork` nor code between `fork` and `exec` can be had without `unsafe`. So each of these processes is the binary
//! once more, from the start, with a first argument that no person types. They do their work before anything else of the
//! program is there: no threads, which a user namespace does not permit, and no memory but their own.

mod init;
mod launch;
mod shim;

use std::ffi::OsString;
use std::os::fd::{BorrowedFd, OwnedFd};

use nix::sys::signal::SigSet;
use rustix::process::{Pid, getpid, getppid};

use crate::error::Step;
use crate::message::Report;

/// The running binary, also if its file was replaced or deleted meanwhile.
pub(crate) const OWN_BINARY: &str = "/proc/self/exe";

/// The first argument of launch.
pub(crate) const LAUNCH: &str = "__watchbell_launch";

/// The first argument of the shim.
const SHIM: &str = "__watchbell_shim";

/// How a role ends that was started by hand.
const MISUSED: i32 = 2;

/// Takes the role that this process was started for, if it was started for one, and does not return then. To be called
/// first thing in `main`, before there is a thread.
///
/// PID 1 of a container becomes an init: it starts this program again, with the same arguments, passes signals on to it,
/// reaps everything, and ends as it ends.
pub fn run_role_if_asked() {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        Some(role) if role == LAUNCH => launch::run(),
        Some(role) if role == SHIM => shim::run(arguments.collect::<Vec<OsString>>()),
        _ if getpid() == Pid::INIT => init::run(),
        // Our own init blocks signals, to lose none, before it starts us.
        _ if getppid() == Some(Pid::INIT) => block(&SigSet::empty()),
        _ => {}
    }
}

/// Blocks these signals and no others.
fn block(signals: &SigSet) {
    signals.thread_set_mask().expect("a mask of signals can be set");
}

/// The control socket, which nobody may use as standard input. Ends a role that was started by hand.
fn take_control() -> OwnedFd {
    let stdin = rustix::stdio::stdin();
    let is_socket = rustix::net::sockopt::socket_type(stdin).is_ok();
    let null = std::fs::File::open("/dev/null");
    let taken = rustix::io::fcntl_dupfd_cloexec(stdin, 3);
    match (is_socket, taken, null) {
        (true, Ok(control), Ok(null)) if rustix::stdio::dup2_stdin(&null).is_ok() => control,
        _ => {
            eprintln!("this is a part of watchbell that it starts itself, and nobody else");
            std::process::exit(MISUSED);
        }
    }
}

/// Tells the supervisor what is not permitted, and leaves.
fn refuse(control: BorrowedFd<'_>, step: Step, why: &std::io::Error) -> ! {
    let errno = why.raw_os_error().unwrap_or(rustix::io::Errno::INVAL.raw_os_error());
    let _ = Report::Refused { step, errno }.send(control, &[]);
    std::process::exit(0)
}
