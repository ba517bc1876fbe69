//! The shim: the first process of a tree, and its last.
//!
//! It has one program, one socket, one timer for whatever is due first, and a list of ways in which the tree ends. Everything that it needs is made
//! before the program starts; from then on it allocates nothing, so that neither a machine without memory nor a program
//! that eats all of it keeps it from ending the tree.
//!
//! The order of its last steps is the promise: all processes are killed, all are reaped, what they used is counted, the
//! supervisor is told, and only then does the shim leave. In a namespace its leaving is also what the kernel ends the rest
//! with, should there be any.

use std::ffi::OsString;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, exit};
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::SigSet;
use nix::sys::signalfd::SignalFd;
use nix::sys::time::TimeVal;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, geteuid, getpid, kill_process, pidfd_open,
    set_child_subreaper, setsid, wait,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set, set_capabilities, set_no_new_privs,
};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use super::{block, refuse, take_control};
use crate::cgroup::Cgroups;
use crate::deadline::{Due, Term, lateness};
use crate::error::{Fault, Step};
use crate::message::{DESCRIPTORS_MAX, Order, Received, Report};
use crate::outcome::{Cause, End, Usage};
use crate::program::{PROGRESS_VARIABLE, Program};
use crate::tree::{self, Ender};
use crate::{Isolation, clock};

/// Does not return.
pub(super) fn run(arguments: Vec<OsString>) -> ! {
    let control = take_control();
    let (isolation, cgroups) = read(arguments).expect("launch wrote them");
    settle(isolation).unwrap_or_else(|(step, why)| refuse(control.as_fd(), step, &why));
    let ender = Ender::new(isolation, &cgroups)
        .unwrap_or_else(|why| refuse(control.as_fd(), Step::ReadProc, &why));
    let me = pidfd_open(getpid(), PidfdFlags::empty())
        .unwrap_or_else(|why| refuse(control.as_fd(), Step::Shim, &why.into()));
    let _ = Report::Ready.send(&control, &[me.as_fd()]);
    drop(me);

    let Ok(Some(Received { message: Order::Start { deadline, has_progress }, descriptors })) =
        Order::receive(&control)
    else {
        // The supervisor is gone, or has changed its mind: there is no program yet.
        cgroups.remove();
        exit(0)
    };
    let mut term = Term::of(deadline);
    if term.fall_due(clock::since_boot()) != Due::Nothing {
        // The machine slept, or the shim was stopped: nothing may begin that would have to end at once.
        cgroups.remove();
        let (end, cause, duration) = (End::Unseen, Cause::Unconfirmed, Duration::ZERO);
        let _ = Report::Started.send(&control, &[]);
        let report = Report::Ended { end, cause, duration, usage: usage(), kill_late: None };
        let _ = report.send(&control, &[]);
        exit(0)
    }
    let given = Given::of(descriptors, has_progress).expect("the supervisor is this binary");
    match Watch::begin(control.as_fd(), given, term, ender, &cgroups) {
        Ok(watch) => {
            let _ = Report::Started.send(&control, &[]);
            watch.keep(&cgroups)
        }
        Err((fault, why)) => {
            let errno = why.raw_os_error().unwrap_or(Errno::INVAL.raw_os_error());
            cgroups.remove();
            let _ = Report::NotStarted { fault, errno }.send(&control, &[]);
            exit(0)
        }
    }
}

fn read(arguments: Vec<OsString>) -> Option<(Isolation, Cgroups)> {
    let mut arguments = arguments.into_iter();
    let isolation = Isolation::of_word(arguments.next()?.to_str()?)?;
    Some((isolation, Cgroups::of_places(isolation, arguments)))
}

/// Makes itself at home where launch has put it.
fn settle(isolation: Isolation) -> Result<(), (Step, std::io::Error)> {
    // Out of reach of terminals, and of whoever signals the group of launch.
    let _ = setsid();
    match isolation {
        Isolation::Namespace => mount_proc(),
        Isolation::UserNamespace => mount_proc().and_then(|()| drop_rights()),
        Isolation::Cgroup | Isolation::Group => adopt_orphans(),
    }
}

/// Programs look for themselves in `/proc`, by the ids of their own namespace. Mounts of the machine still arrive here,
/// those made here stay here.
fn mount_proc() -> Result<(), (Step, std::io::Error)> {
    let receive_only = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount_change(c"/", receive_only)
        .and_then(|()| mount(c"proc", c"/proc", c"proc", flags, None))
        .map_err(|why| (Step::MountProc, why.into()))
}

/// What was needed to mount is not for the program. The shim may signal all of the tree without it: there is no other
/// user in this namespace.
fn drop_rights() -> Result<(), (Step, std::io::Error)> {
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    clear_ambient_capability_set()
        .and_then(|()| set_capabilities(None, sets))
        .map_err(|why| (Step::Capability, why.into()))
}

/// Without a namespace, orphans of the tree come here instead of to PID 1. And nothing in the tree becomes somebody whom
/// this user may not signal.
fn adopt_orphans() -> Result<(), (Step, std::io::Error)> {
    set_child_subreaper(Some(getpid()))
        .and_then(|()| if geteuid().is_root() { Ok(()) } else { set_no_new_privs(true) })
        .map_err(|why| (Step::Shim, why.into()))
}

/// What came with the order to start.
struct Given {
    progress: Option<OwnedFd>,
    about: OwnedFd,
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
    lock: Option<OwnedFd>,
}

impl Given {
    fn of(descriptors: [Option<OwnedFd>; DESCRIPTORS_MAX], has_progress: bool) -> Option<Self> {
        let mut all = descriptors.into_iter().flatten();
        let progress = if has_progress { Some(all.next()?) } else { None };
        let (about, stdin, stdout, stderr) = (all.next()?, all.next()?, all.next()?, all.next()?);
        Some(Self { progress, about, stdin, stdout, stderr, lock: all.next() })
    }
}

/// A program that runs, and what the shim watches it with.
struct Watch<'a> {
    control: BorrowedFd<'a>,
    deaths: SignalFd,
    timer: OwnedFd,
    ender: Ender,
    program: Pid,
    started: Duration,
    /// Why the program ends, if it does now.
    cause: Cause,
    /// When the tree is killed because it did not stop, if it was told to.
    grace_ends: Option<Duration>,
    /// Its right to go on.
    term: Term,
    /// How the program ended, and when.
    end: Option<(End, Duration)>,
    /// Held as long as the shim is there, and never passed on.
    _lock: Option<OwnedFd>,
}

/// Whether the tree goes on.
#[derive(PartialEq, Eq)]
enum Next {
    Watch,
    End,
}

impl<'a> Watch<'a> {
    fn begin(
        control: BorrowedFd<'a>,
        given: Given,
        term: Term,
        mut ender: Ender,
        cgroups: &Cgroups,
    ) -> Result<Self, (Fault, std::io::Error)> {
        let failed = |why: Errno| (Fault::Program, why.into());
        let deaths = tree::deaths().map_err(|why| (Fault::Program, why))?;
        let timer =
            timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC).map_err(failed)?;
        cgroups.enter().map_err(|why| (Fault::Program, why))?;
        let Given { progress, about, stdin, stdout, stderr, lock } = given;
        let child = start(progress.as_ref(), about, [stdin, stdout, stderr]);
        cgroups.go_home();
        cgroups.tighten();
        let program = Pid::from_child(&child?);
        ender.group(program);
        let (started, cause) = (clock::since_boot(), Cause::Itself);
        let (grace_ends, end) = (None, None);
        let watch = Self {
            control,
            deaths,
            timer,
            ender,
            program,
            started,
            cause,
            grace_ends,
            term,
            end,
            _lock: lock,
        };
        watch.arm();
        Ok(watch)
    }

    /// Until the end. Nothing is allocated from here on.
    fn keep(mut self, cgroups: &Cgroups) -> ! {
        // Nobody was told of a death while no signal was blocked, so the first look is without one.
        let mut next = self.reap();
        while next == Next::Watch {
            next = self.wait();
        }
        let (program, end) = (self.program, &mut self.end);
        self.ender.end(|pid, status| see(program, end, pid, status));
        let kill_late = lateness(self.term.kill_at(), clock::since_boot());
        cgroups.remove();
        let (end, ended) = self.end.unwrap_or((End::Unseen, clock::since_boot()));
        let duration = ended.saturating_sub(self.started);
        let (cause, usage) = (self.cause, usage());
        let report = Report::Ended { end, cause, duration, usage, kill_late };
        let _ = report.send(self.control, &[]);
        exit(0)
    }

    /// Waits for whatever comes first, and does what follows from it.
    fn wait(&mut self) -> Next {
        let mut asked = [
            PollFd::from_borrowed_fd(self.control, PollFlags::IN),
            PollFd::new(&self.deaths, PollFlags::IN),
            PollFd::new(&self.timer, PollFlags::IN),
        ];
        if poll(&mut asked, None).is_err() {
            return Next::Watch;
        }
        let [ordered, died, due] = asked.map(|asked| !asked.revents().is_empty());
        // A program that has ended has ended by itself, also if an order came at the same moment.
        if died && self.reap() == Next::End {
            return Next::End;
        }
        if ordered && self.obey() == Next::End {
            return Next::End;
        }
        if !due {
            return Next::Watch;
        }
        // Orders that came by now may have moved the instant: all of them, since an earlier one takes nothing back.
        while self.is_ordered() {
            if self.obey() == Next::End {
                return Next::End;
            }
        }
        self.fall_due(clock::since_boot())
    }

    /// Does what is due, and sets the timer to what is due next.
    fn fall_due(&mut self, now: Duration) -> Next {
        match self.term.fall_due(now) {
            Due::Kill => {
                self.cause = Cause::Unconfirmed;
                return Next::End;
            }
            Due::Stop => {
                self.cause = Cause::Unconfirmed;
                self.ender.tell_to_end(self.program);
            }
            Due::Nothing => {}
        }
        if self.grace_ends.is_some_and(|at| at <= now) {
            if self.cause == Cause::Stopped {
                self.cause = Cause::KilledAfterGrace;
            }
            return Next::End;
        }
        self.arm();
        Next::Watch
    }

    /// Whether an order is there, or nobody to give one.
    fn is_ordered(&self) -> bool {
        let mut asked = [PollFd::from_borrowed_fd(self.control, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(poll(&mut asked, Some(&now)), Ok(1..))
    }

    fn obey(&mut self) -> Next {
        match Order::receive(self.control).map(|order| order.map(|order| order.message)) {
            Ok(Some(Order::Stop { grace })) => {
                self.stop(grace);
                Next::Watch
            }
            Ok(Some(Order::Confirm { deadline })) => {
                self.term.confirm(deadline);
                self.arm();
                Next::Watch
            }
            Ok(Some(Order::Signal { signal })) => {
                // It is our child and not reaped, so the id is its own.
                let _ = kill_process(self.program, signal);
                Next::Watch
            }
            Ok(Some(Order::Kill)) => {
                self.cause = Cause::Killed;
                Next::End
            }
            // Nobody supervises any more, or nobody who speaks as we do: the tree has no right to go on.
            Ok(Some(Order::Prepare { .. } | Order::Start { .. }) | None) | Err(_) => Next::End,
        }
    }

    fn stop(&mut self, grace: Duration) {
        let grace_ends = clock::since_boot() + grace;
        let grace_ends = self.grace_ends.map_or(grace_ends, |earlier| earlier.min(grace_ends));
        self.grace_ends = Some(grace_ends);
        if self.cause != Cause::Unconfirmed {
            self.cause = Cause::Stopped;
        }
        // A program that was stopped by a signal must go on to end.
        let _ = kill_process(self.program, Signal::TERM);
        let _ = kill_process(self.program, Signal::CONT);
        self.arm();
    }

    /// Sets the timer to the first instant at which something is due, if there is one: to an instant, so that it is
    /// also right after the machine slept.
    fn arm(&self) {
        let Some(at) = self.grace_ends.into_iter().chain(self.term.next_at()).min() else { return };
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let at = Timespec::try_from(at).expect("the clock since boot is far from its end");
        let value = Itimerspec { it_interval: never, it_value: at };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &value)
            .expect("an instant after boot can be waited for");
    }

    /// Reaps whoever died: the program, or an orphan of the tree.
    fn reap(&mut self) -> Next {
        while let Ok(Some(_)) = self.deaths.read_signal() {}
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            see(self.program, &mut self.end, pid, status);
        }
        if self.end.is_some() { Next::End } else { Next::Watch }
    }
}

/// Notes how the program ended.
fn see(program: Pid, end: &mut Option<(End, Duration)>, pid: Pid, status: WaitStatus) {
    if pid != program {
        return;
    }
    let how = match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => End::Exited(code),
        (None, Some(signal)) => End::Signaled(signal),
        (None, None) => return,
    };
    *end = Some((how, clock::since_boot()));
}

/// Starts the program. A signal that somebody sends the whole unit may end the shim in between, where no namespace
/// protects it: then launch ends what there is.
fn start(
    progress: Option<&OwnedFd>,
    about: OwnedFd,
    [stdin, stdout, stderr]: [OwnedFd; 3],
) -> Result<Child, (Fault, std::io::Error)> {
    let mut bytes = Vec::new();
    std::fs::File::from(about).read_to_end(&mut bytes).map_err(|why| (Fault::Program, why))?;
    let program = Program::decode(&bytes).expect("the supervisor is this binary");

    let mut command = Command::new(&program.path);
    if let Some(name) = &program.name {
        command.arg0(name);
    }
    command
        .args(&program.arguments)
        .env_clear()
        .envs(program.variables.iter().map(|(name, value)| (name, value)))
        .current_dir(&program.directory)
        .stdin(stdin)
        .stdout(stdout)
        .stderr(stderr)
        .process_group(0);
    if let Some(progress) = progress {
        fcntl_setfd(progress, FdFlags::empty()).map_err(|why| (Fault::Program, why.into()))?;
        command.env(PROGRESS_VARIABLE, progress.as_raw_fd().to_string());
    }
    if let Some(user) = program.user {
        // This also leaves all supplementary groups.
        command.uid(user.uid).gid(user.gid);
    }
    block(&SigSet::empty());
    let child = command.spawn();
    block(&SigSet::all());
    child.map_err(|why| (fault(&program, &why), why))
}

/// Which part of a start was refused: the operating system tells only why.
fn fault(program: &Program, why: &std::io::Error) -> Fault {
    use std::io::ErrorKind::{NotFound, PermissionDenied};
    let is_there = |path: &Path| path.symlink_metadata().is_ok();
    if !program.directory.is_dir() {
        return Fault::Directory;
    }
    match why.kind() {
        NotFound if is_there(&program.path) => Fault::Interpreter,
        // Files say EACCES; EPERM is what becoming somebody else says.
        PermissionDenied
            if program.user.is_some() && why.raw_os_error() == Some(Errno::PERM.raw_os_error()) =>
        {
            Fault::User
        }
        _ => Fault::Program,
    }
}

/// What all processes that were reaped here used, and all that they had reaped.
fn usage() -> Usage {
    let duration = |time: TimeVal| {
        let whole = Duration::from_secs(u64::try_from(time.tv_sec()).unwrap_or(0));
        whole + Duration::from_micros(u64::try_from(time.tv_usec()).unwrap_or(0))
    };
    let used = getrusage(UsageWho::RUSAGE_CHILDREN).expect("what children used can be asked");
    Usage {
        cpu_user: duration(used.user_time()),
        cpu_system: duration(used.system_time()),
        memory_peak_bytes: u64::try_from(used.max_rss()).unwrap_or(0) * 1024,
    }
}
