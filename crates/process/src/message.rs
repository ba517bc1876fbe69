//! What supervisor, launch and shim tell each other, over one socket.
//!
//! A message is nine numbers in one packet, some with descriptors beside them. There is no version: both ends are the
//! same binary, always. Reading and writing one needs no memory but the stack, so the shim may do it at any time.
//!
//! The supervisor gives orders, in this order: `Prepare`, which launch takes; then, once the shim is `Ready`, `Start`; then
//! any number of `Confirm`, `Signal`, `Stop` and `Kill`. Before the shim is ready there is no program, so until then the closing of the socket
//! means that nothing is left, and afterwards the supervisor has the shim's descriptor to wait for.
//!
//! A tree may have a deadline: two instants of the clock since boot at which the shim tells it to end and ends it, whatever
//! has become of the supervisor, unless it is given later ones before (`Confirm`). The first come with the start, so that
//! there is no moment without them.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::{Errno, Result};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::deadline::Deadline;
use crate::error::{Fault, Step};
use crate::limits::GRACE_MAX;
use crate::outcome::{Cause, End, Usage};
use crate::program::Limits;
use crate::{Isolation, Signal};

const WORDS: usize = 9;
const BYTES: usize = WORDS * size_of::<u64>();

type Words = [u64; WORDS];

/// What the supervisor wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// To launch, with the lock that it is to hold, if there is one: make room for a tree like this, whose processes may have
    /// so many files open.
    Prepare { isolation: Isolation, limits: Limits, name: TreeName, files: Option<u64> },
    /// To the shim, with these descriptors: what takes the program's progress, if it has that; the program; its standard
    /// input, output and error; and the lock, if there is one. Progress is first, so that it gets the lowest number.
    Start { deadline: Option<Deadline>, has_progress: bool },
    /// Let it go on until then.
    Confirm { deadline: Deadline },
    /// Pass a signal on to the program.
    Signal { signal: Signal },
    /// End the program, and kill the tree after the grace.
    Stop { grace: Duration },
    /// Kill the tree.
    Kill,
}

/// The most descriptors that come with any message: with [`Order::Start`].
pub(crate) const DESCRIPTORS_MAX: usize = 6;

/// What no other tree of this machine is called: cgroups have its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TreeName {
    pub(crate) supervisor: u32,
    pub(crate) number: u64,
}

/// What launch and shim say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Report {
    /// The shim is there; with a descriptor of it.
    Ready,
    /// This isolation is not permitted. Whoever says so leaves.
    Refused { step: Step, errno: i32 },
    /// The program runs.
    Started,
    /// The program does not start. The shim leaves.
    NotStarted { fault: Fault, errno: i32 },
    /// The tree is empty. The shim leaves.
    Ended { end: End, cause: Cause, duration: Duration, usage: Usage, kill_late: Option<Duration> },
}

/// A message with what came beside it.
pub(crate) struct Received<T> {
    pub(crate) message: T,
    pub(crate) descriptors: [Option<OwnedFd>; DESCRIPTORS_MAX],
}

impl Order {
    pub(crate) fn send(&self, socket: impl AsFd, with: &[BorrowedFd<'_>]) -> Result<()> {
        send(socket, self.words(), with)
    }

    /// The next order; none if the supervisor is gone. Waits for it if the socket does.
    pub(crate) fn receive(socket: impl AsFd) -> Result<Option<Received<Self>>> {
        receive(socket, Self::read)
    }

    fn words(&self) -> Words {
        match *self {
            Self::Prepare { isolation, limits, name, files } => [
                1,
                index(&Isolation::LADDER, isolation),
                limits.memory_bytes_max.unwrap_or(0),
                limits.processes_max.unwrap_or(0),
                name.supervisor.into(),
                name.number,
                files.unwrap_or(0),
                0,
                0,
            ],
            Self::Start { deadline, has_progress } => {
                let [stop_at, kill_at] = deadline.map_or([0, 0], instants);
                [2, stop_at, kill_at, has_progress.into(), 0, 0, 0, 0, 0]
            }
            Self::Stop { grace } => [3, nanos(grace.min(GRACE_MAX)), 0, 0, 0, 0, 0, 0, 0],
            Self::Kill => [4, 0, 0, 0, 0, 0, 0, 0, 0],
            Self::Confirm { deadline } => {
                let [stop_at, kill_at] = instants(deadline);
                [5, stop_at, kill_at, 0, 0, 0, 0, 0, 0]
            }
            Self::Signal { signal } => [6, number(signal.as_raw()), 0, 0, 0, 0, 0, 0, 0],
        }
    }

    fn read(words: Words) -> Option<Self> {
        let some = |number| (number != 0).then_some(number);
        Some(match words {
            [1, isolation, memory, processes, supervisor, number, files, ..] => Self::Prepare {
                isolation: at(&Isolation::LADDER, isolation)?,
                limits: Limits { memory_bytes_max: some(memory), processes_max: some(processes) },
                name: TreeName { supervisor: supervisor.try_into().ok()?, number },
                files: some(files),
            },
            [2, stop_at, kill_at, has_progress, ..] => {
                let deadline = some(kill_at).map(|kill_at| deadline(stop_at, kill_at));
                Self::Start { deadline, has_progress: has_progress != 0 }
            }
            [3, grace, ..] => Self::Stop { grace: Duration::from_nanos(grace) },
            [4, ..] => Self::Kill,
            [5, stop_at, kill_at, ..] => Self::Confirm { deadline: deadline(stop_at, kill_at) },
            [6, signal, ..] => {
                Self::Signal { signal: Signal::from_named_raw(signal.try_into().ok()?)? }
            }
            _ => return None,
        })
    }
}

impl Report {
    pub(crate) fn send(&self, socket: impl AsFd, with: &[BorrowedFd<'_>]) -> Result<()> {
        send(socket, self.words(), with)
    }

    /// The next report; none if nobody is left to make one. Waits for it if the socket does.
    pub(crate) fn receive(socket: impl AsFd) -> Result<Option<Received<Self>>> {
        receive(socket, Self::read)
    }

    fn words(&self) -> Words {
        match *self {
            Self::Ready => [1, 0, 0, 0, 0, 0, 0, 0, 0],
            Self::Refused { step, errno } => {
                [2, index(&Step::ALL, step), number(errno), 0, 0, 0, 0, 0, 0]
            }
            Self::Started => [3, 0, 0, 0, 0, 0, 0, 0, 0],
            Self::NotStarted { fault, errno } => {
                [4, index(&FAULTS, fault), number(errno), 0, 0, 0, 0, 0, 0]
            }
            Self::Ended { end, cause, duration, usage, kill_late } => {
                let (kind, code) = match end {
                    End::Exited(code) => (0, code),
                    End::Signaled(signal) => (1, signal),
                    End::Unseen => (2, 0),
                };
                [
                    5,
                    kind,
                    number(code),
                    index(&CAUSES, cause),
                    nanos(duration),
                    nanos(usage.cpu_user),
                    nanos(usage.cpu_system),
                    usage.memory_peak_bytes,
                    kill_late.map_or(0, nanos),
                ]
            }
        }
    }

    fn read(words: Words) -> Option<Self> {
        let errno = |number: u64| i32::try_from(number).ok();
        Some(match words {
            [1, ..] => Self::Ready,
            [2, step, why, ..] => Self::Refused { step: at(&Step::ALL, step)?, errno: errno(why)? },
            [3, ..] => Self::Started,
            [4, fault, why, ..] => {
                Self::NotStarted { fault: at(&FAULTS, fault)?, errno: errno(why)? }
            }
            [5, kind, code, cause, duration, user, system, memory_peak_bytes, late] => {
                Self::Ended {
                    end: match kind {
                        0 => End::Exited(errno(code)?),
                        1 => End::Signaled(errno(code)?),
                        2 => End::Unseen,
                        _ => return None,
                    },
                    cause: at(&CAUSES, cause)?,
                    duration: Duration::from_nanos(duration),
                    usage: Usage {
                        cpu_user: Duration::from_nanos(user),
                        cpu_system: Duration::from_nanos(system),
                        memory_peak_bytes,
                    },
                    kill_late: (late != 0).then(|| Duration::from_nanos(late)),
                }
            }
            _ => return None,
        })
    }
}

const FAULTS: [Fault; 4] = [Fault::Program, Fault::Interpreter, Fault::Directory, Fault::User];

const CAUSES: [Cause; 6] = [
    Cause::Itself,
    Cause::Stopped,
    Cause::KilledAfterGrace,
    Cause::Killed,
    Cause::Unconfirmed,
    Cause::ShimKilled,
];

fn index<T: PartialEq + Copy>(all: &[T], one: T) -> u64 {
    let at = all.iter().position(|other| *other == one).expect("the list has all of them");
    at as u64
}

fn at<T: Copy>(all: &[T], index: u64) -> Option<T> {
    all.get(usize::try_from(index).ok()?).copied()
}

fn number(code: i32) -> u64 {
    u64::try_from(code).unwrap_or(0)
}

/// Neither is 0, which says that there is no deadline: an instant that is over is over a moment later as well.
fn instants(deadline: Deadline) -> [u64; 2] {
    [deadline.stop_at, deadline.kill_at].map(|at| nanos(at).max(1))
}

fn deadline(stop_at: u64, kill_at: u64) -> Deadline {
    let [stop_at, kill_at] = [stop_at, kill_at].map(Duration::from_nanos);
    Deadline { stop_at, kill_at }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Sends one message, or says that there is no room now; it never waits.
fn send(socket: impl AsFd, words: Words, with: &[BorrowedFd<'_>]) -> Result<()> {
    let mut bytes = [0; BYTES];
    for (bytes, word) in bytes.chunks_exact_mut(size_of::<u64>()).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !with.is_empty() {
        let fits = beside.push(SendAncillaryMessage::ScmRights(with));
        assert!(fits, "no message has more descriptors");
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(socket, &[IoSlice::new(&bytes)], &mut beside, flags).map(drop)
}

/// Takes one message; none at the end. What nobody of us sends is an error.
fn receive<T>(socket: impl AsFd, read: impl Fn(Words) -> Option<T>) -> Result<Option<Received<T>>> {
    let mut bytes = [0; BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let into = &mut [IoSliceMut::new(&mut bytes)];
    let got = loop {
        match recvmsg(&socket, into, &mut beside, RecvFlags::CMSG_CLOEXEC) {
            // Who closes while something is unread resets the connection: that is told once, before the messages that
            // came earlier.
            Err(Errno::INTR | Errno::CONNRESET) => {}
            other => break other?,
        }
    };
    if got.bytes == 0 {
        return Ok(None);
    }
    let mut descriptors = [const { None }; DESCRIPTORS_MAX];
    let came = beside.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    for (place, descriptor) in descriptors.iter_mut().zip(came.flatten()) {
        *place = Some(descriptor);
    }
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(size_of::<u64>())) {
        *word = u64::from_le_bytes(bytes.try_into().expect("a chunk is a word"));
    }
    let message = read(words).ok_or(Errno::BADMSG)?;
    Ok(Some(Received { message, descriptors }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    #[test]
    fn orders_arrive_as_they_were_given() {
        let limits = Limits { memory_bytes_max: Some(1 << 40), processes_max: None };
        let name = TreeName { supervisor: 7, number: u64::MAX };
        for isolation in Isolation::LADDER {
            let order = Order::Prepare { isolation, limits, name, files: Some(1024) };
            assert_eq!(Order::read(order.words()), Some(order));
        }
        let (grace, later) = (Duration::from_millis(7), Duration::from_millis(8));
        let deadline = Deadline { stop_at: grace, kill_at: later };
        for has_progress in [false, true] {
            for deadline in [None, Some(deadline)] {
                let order = Order::Start { deadline, has_progress };
                assert_eq!(Order::read(order.words()), Some(order));
            }
        }
        let signal = Order::Signal { signal: Signal::WINCH };
        for order in [Order::Stop { grace }, Order::Kill, Order::Confirm { deadline }, signal] {
            assert_eq!(Order::read(order.words()), Some(order));
        }
        assert_eq!(Order::read([16; WORDS]), None);
    }

    #[test]
    fn a_deadline_at_the_start_of_the_machine_is_one() {
        let order = Order::Start { deadline: Some(deadline(0, 0)), has_progress: true };
        let Some(Order::Start { deadline, .. }) = Order::read(order.words()) else { panic!() };
        assert!(deadline.is_some());
    }

    #[test]
    fn what_was_sent_before_a_close_arrives_though_orders_were_not_read() {
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        Report::Started.send(&theirs, &[]).unwrap();
        Order::Kill.send(&ours, &[]).unwrap();
        drop(theirs);
        assert_eq!(Report::receive(&ours).unwrap().unwrap().message, Report::Started);
        assert!(Report::receive(&ours).unwrap().is_none());
    }

    #[test]
    fn a_grace_is_cut_to_the_longest() {
        let longer = Order::Stop { grace: GRACE_MAX + Duration::from_nanos(1) };
        assert_eq!(Order::read(longer.words()), Some(Order::Stop { grace: GRACE_MAX }));
    }

    #[test]
    fn reports_arrive_as_they_were_made() {
        let usage = Usage {
            cpu_user: Duration::from_micros(3),
            cpu_system: Duration::from_secs(4),
            memory_peak_bytes: 5,
        };
        let (cause, duration) = (Cause::KilledAfterGrace, Duration::from_nanos(9));
        let ends = [End::Exited(255), End::Signaled(64), End::Unseen];
        let lates = [None, Some(duration)];
        let ended = ends.into_iter().flat_map(|end| {
            lates.map(|kill_late| Report::Ended { end, cause, duration, usage, kill_late })
        });
        let refused = Step::ALL.map(|step| Report::Refused { step, errno: 38 });
        let faults = FAULTS.map(|fault| Report::NotStarted { fault, errno: 2 });
        let plain = [Report::Ready, Report::Started];
        for report in plain.into_iter().chain(ended).chain(refused).chain(faults) {
            assert_eq!(Report::read(report.words()), Some(report));
        }
    }
}
