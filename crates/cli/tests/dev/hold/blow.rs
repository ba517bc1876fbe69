//! What befalls a machine in a storm: its processes are killed, stopped and told to stop, its packets are lost, its wall clock is
//! set.
//!
//! What is done to guards and programs is what root can do to them. Only a supervisor and both of its guards are never stopped
//! together, while the program goes on: docs/holds.md says that nobody ends it then.

use rig::Random;

use super::super::island::Lost;
use super::clock::{Clocks, hours};
use super::ground::Link;
use super::*;

/// What is done to a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Blow {
    KillSupervisor,
    KillLaunch,
    KillShim,
    KillProgram,
    TellToStop,
    SetClock,
    StopSupervisor,
    StopShim,
    StopProgram,
    StopAllThree,
    CutThere,
    CutBack,
    CutBoth,
}

pub(super) const BLOWS: [Blow; 13] = [
    Blow::KillSupervisor,
    Blow::KillLaunch,
    Blow::KillShim,
    Blow::KillProgram,
    Blow::TellToStop,
    Blow::SetClock,
    Blow::StopSupervisor,
    Blow::StopShim,
    Blow::StopProgram,
    Blow::StopAllThree,
    Blow::CutThere,
    Blow::CutBack,
    Blow::CutBoth,
];

impl Blow {
    /// Whether it lasts until somebody takes it back.
    pub(super) fn lasts(self) -> bool {
        self >= Self::StopSupervisor
    }
}

/// The processes of a machine, as far as they are there.
pub(super) struct Crew {
    pub(super) supervisor: u64,
    pub(super) launch: Option<u64>,
    pub(super) shim: Option<u64>,
    pub(super) program: Option<u64>,
}

impl Crew {
    pub(super) fn of(holder: &Holder) -> Self {
        let supervisor = u64::from(holder.child.id());
        let guard = |pid: &u64| words(*pid).contains("__watchbell_launch");
        let launch = children(supervisor).into_iter().find(guard);
        let child = |of: Option<u64>| children(of?).first().copied();
        let shim = child(launch);
        Self { supervisor, launch, shim, program: child(shim) }
    }
}

/// The children of a process.
fn children(pid: u64) -> Vec<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// What a process was started as.
fn words(pid: u64) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

/// All processes that were started with these words.
pub(super) fn started_with(wanted: &str) -> Vec<String> {
    let all = fs::read_dir("/proc").unwrap();
    all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .map(words)
        .filter(|words| words.contains(wanted))
        .collect()
}

/// Sends a signal to whoever of these is still there.
pub(super) fn send(pids: impl IntoIterator<Item = Option<u64>>, signal: Signal) {
    for pid in pids.into_iter().flatten() {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("the id of a process");
        let _ = kill_process(pid, signal);
    }
}

/// A machine: clocks, a way to where it meets others, and one supervisor after the other.
pub(super) struct Place {
    pub(super) clocks: Clocks,
    pub(super) link: Link,
    pub(super) holder: Holder,
    /// Who was stopped.
    stopped: [Option<u64>; 3],
    pub(super) is_hurt: bool,
}

impl Place {
    pub(super) fn new(clocks: Clocks, link: Link, holder: Holder) -> Self {
        Self { clocks, link, holder, stopped: [None; 3], is_hurt: false }
    }

    /// Whether the program runs here.
    pub(super) fn runs(&self) -> bool {
        Crew::of(&self.holder).shim.is_some()
    }

    pub(super) fn suffer(&mut self, blow: Blow, random: &mut Random) {
        let Crew { supervisor, launch, shim, program } = Crew::of(&self.holder);
        let mut stops = |pids: [Option<u64>; 3]| {
            self.stopped = pids;
            send(pids, Signal::STOP);
        };
        match blow {
            Blow::KillSupervisor => self.holder.kill(),
            Blow::KillLaunch => send([launch], Signal::KILL),
            Blow::KillShim => send([shim], Signal::KILL),
            Blow::KillProgram => send([program], Signal::KILL),
            Blow::TellToStop => send([Some(supervisor)], Signal::TERM),
            Blow::SetClock => {
                self.clocks.set_wall(hours(random.below(20_000).cast_signed() - 10_000));
            }
            Blow::StopSupervisor => stops([Some(supervisor), None, None]),
            Blow::StopShim => stops([shim, None, None]),
            Blow::StopProgram => stops([program, None, None]),
            Blow::StopAllThree => stops([Some(supervisor), shim, program]),
            Blow::CutThere => self.link.lose(Lost::There),
            Blow::CutBack => self.link.lose(Lost::Back),
            Blow::CutBoth => self.link.lose(Lost::Both),
        }
        self.is_hurt = blow.lasts();
    }

    /// Takes back what lasts.
    pub(super) fn heal(&mut self) {
        send(std::mem::take(&mut self.stopped), Signal::CONT);
        self.link.lose(Lost::Nothing);
        self.is_hurt = false;
    }
}
