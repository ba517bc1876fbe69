//! What supervisor, launch and shim tell each other, over one socket.
//!
//! A message is eight numbers in one packet, some with descriptors beside them. There is no version: both ends are the
//! same binary, always. Reading and writing one needs no memory but the stack, so the shim may do it at any time.
//!
//! The supervisor gives orders, in this order: `Prepare`, which launch takes; then, once the shim is `Ready`, `Start`; then
//! any number of `Stop` and `Kill`. Before the shim is ready there is no program, so until then the closing of the socket
//! means that nothing is left, and afterwards the supervisor has the shim's descriptor to wait for.
//!
//! A tree may have an end: an instant of the clock since boot at which the shim ends it, whatever has become of the
//! supervisor, unless it is given a later one before (`Confirm`). The first comes with the start, so that there is no
//! moment without one.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::{Errno, Result};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::Isolation;
use crate::error::{Fault, Step};
use crate::limits::GRACE_MAX;
use crate::outcome::{Cause, End, Usage};
use crate::program::Limits;

const WORDS: usize = 8;
const BYTES: usize = WORDS * size_of::<u64>();

type Words = [u64; WORDS];

/// What the supervisor wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// To launch, with the lock that it is to hold, if there is one: make room for a tree like this, whose processes may have
    /// so many files open.
    Prepare { isolation: Isolation, limits: Limits, name: TreeName, files: Option<u64> },
    /// To the shim, with [`START_DESCRIPTORS`] descriptors and the lock, if there is one: start the program.
    Start { until: Option<Duration> },
    /// Let it go on until then.
    Confirm { until: Duration },
    /// End the program, and kill the tree after the grace.
    Stop { grace: Duration },
    /// Kill the tree.
    Kill,
}

/// Descriptors that come with [`Order::Start`]: progress first, so that it gets the lowest number; then the program, and
/// its standard input, output and error.
pub(crate) const START_DESCRIPTORS: usize = 5;

/// The most that come with any message: a lock may follow those of a start.
pub(crate) const DESCRIPTORS_MAX: usize = START_DESCRIPTORS + 1;

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
    Ended { end: End, cause: Cause, duration: Duration, usage: Usage },
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
            ],
            Self::Start { until } => [2, until.map_or(0, nanos), 0, 0, 0, 0, 0, 0],
            Self::Stop { grace } => [3, nanos(grace.min(GRACE_MAX)), 0, 0, 0, 0, 0, 0],
            Self::Kill => [4, 0, 0, 0, 0, 0, 0, 0],
            Self::Confirm { until } => [5, nanos(until), 0, 0, 0, 0, 0, 0],
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
            [2, until, ..] => Self::Start { until: some(until).map(Duration::from_nanos) },
            [3, grace, ..] => Self::Stop { grace: Duration::from_nanos(grace) },
            [4, ..] => Self::Kill,
            [5, until, ..] => Self::Confirm { until: Duration::from_nanos(until) },
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
            Self::Ready => [1, 0, 0, 0, 0, 0, 0, 0],
            Self::Refused { step, errno } => {
                [2, index(&Step::ALL, step), number(errno), 0, 0, 0, 0, 0]
            }
            Self::Started => [3, 0, 0, 0, 0, 0, 0, 0],
            Self::NotStarted { fault, errno } => {
                [4, index(&FAULTS, fault), number(errno), 0, 0, 0, 0, 0]
            }
            Self::Ended { end, cause, duration, usage } => {
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
            [5, kind, code, cause, duration, user, system, memory_peak_bytes] => Self::Ended {
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
            },
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
        let until = Duration::from_millis(7);
        let starts = [None, Some(until)].map(|until| Order::Start { until });
        let others = [Order::Stop { grace: until }, Order::Kill, Order::Confirm { until }];
        for order in starts.into_iter().chain(others) {
            assert_eq!(Order::read(order.words()), Some(order));
        }
        assert_eq!(Order::read([16; WORDS]), None);
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
        let ended = ends.map(|end| Report::Ended { end, cause, duration, usage });
        let refused = Step::ALL.map(|step| Report::Refused { step, errno: 38 });
        let faults = FAULTS.map(|fault| Report::NotStarted { fault, errno: 2 });
        let plain = [Report::Ready, Report::Started];
        for report in plain.into_iter().chain(ended).chain(refused).chain(faults) {
            assert_eq!(Report::read(report.words()), Some(report));
        }
    }
}
