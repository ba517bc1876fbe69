//! Launch: makes room for a tree, starts its shim, and sees it out.
//!
//! A process cannot enter a new PID namespace, only its children are born in it. So the supervisor needs a process that
//! makes one and has a single child: this. It stays, for two reasons: somebody must reap the shim, also where PID 1
//! reaps nobody; and where there is no namespace it is the second guard. If the shim is killed there, its orphans come to
//! launch, which kills them. If launch is killed, the shim goes on without it. And if the shim is stopped, launch lets it go on.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio, exit};

use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::SigSet;
use rustix::process::{
    Pid, Signal, WaitOptions, getegid, geteuid, getpid, kill_process, set_child_subreaper, setsid,
    waitpid,
};
use rustix::thread::{
    CapabilitySet, capabilities, configure_capability_in_ambient_set, set_capabilities,
};

use super::{OWN_BINARY, SHIM, block, refuse, take_control};
use crate::cgroup::Cgroups;
use crate::error::Step;
use crate::message::Order;
use crate::tree::Ender;
use crate::{Isolation, file_limit};

/// Does not return. Ends with 0 if it has seen that nothing is left.
pub(super) fn run() -> ! {
    // Signals for the supervisor's whole group or unit are the supervisor's to act on. The shim starts like this as well.
    block(&SigSet::all());
    let control = take_control();
    close_strays(&control);
    let _ = setsid();
    let Ok(Some(mut order)) = Order::receive(&control) else { exit(0) };
    // Until the end of this process, which is the end of the tree; the shim gets it with its program.
    let lock = order.descriptors[0].take();
    let Order::Prepare { isolation, limits, name, files } = order.message else {
        unreachable!("what launch hears first is what to prepare")
    };

    if files.is_some() {
        // Lowering it is always permitted.
        let _ = file_limit::set(files);
    }
    let cgroups = Cgroups::make(isolation, limits, name)
        .unwrap_or_else(|(step, why)| refuse(control.as_fd(), step, &why));
    let refuse = |(step, why): (Step, io::Error)| -> ! {
        cgroups.remove();
        refuse(control.as_fd(), step, &why)
    };
    separate(isolation).unwrap_or_else(|why| refuse(why));
    let ender = Ender::new(isolation, &cgroups).unwrap_or_else(|why| refuse((Step::ReadProc, why)));
    let shim = match spawn_shim(&control, isolation, &cgroups) {
        Ok(shim) => Pid::from_child(&shim),
        Err(why) => refuse((Step::Shim, why)),
    };
    // The supervisor and the shim have the socket to themselves, so that each sees the other go.
    drop(control);
    see_out(shim, ender, &cgroups, lock)
}

/// What the supervisor inherited, or was given by whoever started it, is not for its programs.
fn close_strays(control: &OwnedFd) {
    use std::os::fd::AsRawFd;
    let Ok(listed) = std::fs::read_dir("/proc/self/fd") else { return };
    let numbers: Vec<i32> = listed
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|number| *number > 2 && *number != control.as_raw_fd())
        .collect();
    for number in numbers {
        // The one that the list was read from is among them, and closed already.
        let _ = nix::unistd::close(number);
    }
}

/// From here on a child is born apart from everything else.
fn separate(isolation: Isolation) -> Result<(), (Step, io::Error)> {
    let apart = CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNS;
    let unshare = |flags| unshare(flags).map_err(|why| (Step::Unshare, why.into()));
    match isolation {
        Isolation::Namespace => unshare(apart),
        Isolation::UserNamespace => {
            let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
            unshare(apart | CloneFlags::CLONE_NEWUSER)?;
            map_user(uid, gid).map_err(|why| (Step::MapUser, why))?;
            keep_right_to_mount().map_err(|why| (Step::Capability, why))
        }
        Isolation::Cgroup | Isolation::Group => {
            set_child_subreaper(Some(getpid())).map_err(|why| (Step::Shim, why.into()))
        }
    }
}

/// Everybody keeps the ids that they have.
fn map_user(uid: u32, gid: u32) -> io::Result<()> {
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))
}

/// Who is not root loses all rights when a binary is started, except ambient ones. The shim drops this one when it has
/// mounted `/proc`.
fn keep_right_to_mount() -> io::Result<()> {
    let mut sets = capabilities(None)?;
    sets.inheritable |= CapabilitySet::SYS_ADMIN;
    set_capabilities(None, sets)?;
    Ok(configure_capability_in_ambient_set(CapabilitySet::SYS_ADMIN, true)?)
}

fn spawn_shim(control: &OwnedFd, isolation: Isolation, cgroups: &Cgroups) -> io::Result<Child> {
    let cgroups =
        cgroups.places().flat_map(|place| [place.directory.as_ref(), place.home.as_ref()]);
    Command::new(OWN_BINARY)
        .args([SHIM, isolation.word()])
        .args(cgroups.map(|path: &Path| -> &OsStr { path.as_os_str() }).map(OsString::from))
        .stdin(control.try_clone()?)
        .stdout(Stdio::null())
        .spawn()
}

/// Waits for the shim, and ends what it left behind: nothing, unless it was killed. A shim that somebody stops could not end
/// its tree in time, so it goes on at once.
fn see_out(shim: Pid, mut ender: Ender, cgroups: &Cgroups, lock: Option<OwnedFd>) -> ! {
    while is_stopped(shim) {
        let _ = kill_process(shim, Signal::CONT);
    }
    ender.end(|_, _| {});
    cgroups.remove();
    drop(lock);
    exit(0)
}

/// Waits until the shim is stopped by a signal, or gone.
fn is_stopped(shim: Pid) -> bool {
    let changed = waitpid(Some(shim), WaitOptions::UNTRACED);
    let (_, status) = changed
        .expect("launch alone reaps its child, and has no signals")
        .expect("it was waited for");
    status.stopped()
}
