//! A tree, as its supervisor has it.
//!
//! Everything that must happen in time happens in the shim. What is here asks it, and waits. Dropping a [`Tree`] closes
//! the control socket, which ends the tree; only [`Tree::ended`] proves that it is empty.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Signal, pidfd_send_signal};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::process::Child;
use tokio::time::{Instant, sleep_until, timeout};

use crate::deadline::{Deadline, lateness};
use crate::error::Lost;
use crate::limits::{GRACE_MAX, LAUNCH_OVERDUE, SHIM_LATE, SHIM_OVERDUE, SHIM_OVERDUE_AGAIN};
use crate::message::{Order, Received, Report};
use crate::outcome::{Cause, End, Outcome};
use crate::{Isolation, clock};

/// A program that was started, with all that it starts.
#[derive(Debug)]
pub struct Tree {
    control: Control,
    shim: Arc<Shim>,
    launch: Child,
    isolation: Isolation,
    guards: Guards,
    started: Duration,
    /// Until when it may go on, as far as the shim was told.
    deadline: Option<Deadline>,
    /// The shim's last word, once it has said it.
    report: Option<Report>,
    /// When the shim should have ended the tree, if it was told to.
    overdue_at: Option<Instant>,
    /// Whether it was overdue before, and told to go on.
    was_nudged: bool,
    outcome: Option<Result<Outcome, Lost>>,
}

/// The processes that guard a tree, by their ids as the supervisor sees them while they are there: for people who look
/// for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guards {
    /// The parent of the shim.
    pub launch: Option<u32>,
    /// The parent of the program.
    pub shim: Option<u32>,
}

impl Tree {
    pub(crate) fn new(
        control: Control,
        shim: Arc<Shim>,
        launch: Child,
        isolation: Isolation,
        deadline: Option<Deadline>,
    ) -> Self {
        let started = clock::since_boot();
        let guards = Guards { launch: launch.id(), shim: shim.id };
        Self {
            control,
            shim,
            launch,
            isolation,
            guards,
            started,
            deadline,
            report: None,
            overdue_at: None,
            was_nudged: false,
            outcome: None,
        }
    }

    /// What keeps it together.
    pub fn isolation(&self) -> Isolation {
        self.isolation
    }

    /// Who guards it.
    pub fn guards(&self) -> Guards {
        self.guards
    }

    /// Sends SIGTERM to the program, and kills the tree when the grace is over. A second stop can only bring that forward.
    pub fn stop(&mut self, grace: Duration) {
        self.order(Order::Stop { grace }, grace.min(GRACE_MAX));
    }

    /// Kills the whole tree, at once.
    pub fn kill(&mut self) {
        self.order(Order::Kill, Duration::ZERO);
    }

    /// Lets it go on until this deadline, if that is later. For a program that was started with one
    /// ([`Program::deadline`](crate::Program::deadline)), and has not been told to end by it.
    pub fn confirm(&mut self, deadline: Deadline) {
        // A shim with so many orders that it takes no more gets the next one.
        let order = Order::Confirm { deadline };
        if order.send(&self.control.0, &[]).is_ok() {
            self.deadline = self.deadline.map(|earlier| earlier.max(deadline));
        }
    }

    /// Passes a signal on to the program, and to nothing else of the tree. What comes of it is the program's own doing.
    pub fn signal(&mut self, signal: Signal) {
        let _ = Order::Signal { signal }.send(&self.control.0, &[]);
    }

    /// A shim that does not take orders any more has either ended, or has so many that one of them ends it.
    fn order(&mut self, order: Order, due_in: Duration) {
        let _ = order.send(&self.control.0, &[]);
        let overdue_at = Instant::now() + due_in + SHIM_OVERDUE;
        self.overdue_at = Some(self.overdue_at.map_or(overdue_at, |at| at.min(overdue_at)));
    }

    /// Waits until the tree is empty, and tells what became of the program. May be dropped and called again, and says the
    /// same again once it has said it.
    pub async fn ended(&mut self) -> Result<Outcome, Lost> {
        if let Some(outcome) = &self.outcome {
            return outcome.clone();
        }
        self.hear_out_the_shim().await;
        let outcome = self.prove_empty().await.map(|empty_at| self.conclude(empty_at));
        self.outcome.insert(outcome).clone()
    }

    /// Until the shim is gone, and all that it said is heard.
    async fn hear_out_the_shim(&mut self) {
        loop {
            let overdue_at = self.overdue_at();
            let overdue = async {
                match overdue_at {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.shim.gone() => break,
                () = overdue => self.end_the_shim(),
            }
        }
        while let Ok(Some(Received { message, .. })) = self.control.receive_now() {
            self.report = Some(message);
        }
    }

    /// When the shim should have ended the tree at the latest.
    fn overdue_at(&self) -> Option<Instant> {
        let of_deadline = self.past_deadline().filter(|_| !self.was_nudged);
        self.overdue_at.into_iter().chain(of_deadline.map(|left| Instant::now() + left)).min()
    }

    /// How long it is until the tree should be gone because of its deadline.
    fn past_deadline(&self) -> Option<Duration> {
        let left = |deadline: Deadline| deadline.kill_at.saturating_sub(clock::since_boot());
        self.deadline.map(|deadline| left(deadline) + SHIM_LATE)
    }

    /// The shim had its time, so it was stopped by somebody: it shall go on, and finds its orders. If that does not help, in a
    /// namespace its death is the tree's; elsewhere nobody but the shim can end it.
    fn end_the_shim(&mut self) {
        let (signal, patience) = if self.isolation.is_namespace() && self.was_nudged {
            (Signal::KILL, None)
        } else {
            (Signal::CONT, self.past_deadline())
        };
        let _ = pidfd_send_signal(&self.shim.pidfd, signal);
        self.was_nudged = true;
        let patience = patience.map_or(SHIM_OVERDUE_AGAIN, |it| it.min(SHIM_OVERDUE_AGAIN));
        self.overdue_at = Some(Instant::now() + patience);
    }

    /// The shim is gone. Whose word is it that nothing is left: the kernel's, the shim's, or launch's, which ends what a shim
    /// that was killed has left behind? With the instant since boot at which that was known.
    async fn prove_empty(&mut self) -> Result<Duration, Lost> {
        let shim_gone_at = clock::since_boot();
        if self.isolation.is_namespace() || self.report.is_some() {
            // Only so that launch is reaped here, and not at some later time.
            let _ = timeout(LAUNCH_OVERDUE, self.launch.wait()).await;
            return Ok(shim_gone_at);
        }
        match self.launch.wait().await {
            Ok(status) if status.success() => Ok(clock::since_boot()),
            _ => Err(Lost),
        }
    }

    fn conclude(&self, empty_at: Duration) -> Outcome {
        let isolation = self.isolation;
        if let Some(Report::Ended { end, cause, duration, usage, kill_late }) = self.report {
            return Outcome { end, cause, duration, usage: Some(usage), isolation, kill_late };
        }
        let (end, cause) = (End::Unseen, Cause::ShimKilled);
        let duration = empty_at.saturating_sub(self.started);
        let kill_late = lateness(self.deadline.map(|deadline| deadline.kill_at), empty_at);
        Outcome { end, cause, duration, usage: None, isolation, kill_late }
    }
}

/// The supervisor's end of the control socket. The tree lives while it is open.
#[derive(Debug)]
pub(crate) struct Control(pub(crate) AsyncFd<OwnedFd>);

impl Control {
    /// The socket must not make anybody wait.
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Self> {
        watched(socket).map(Self)
    }

    /// The next report; none if nobody is left to make one.
    pub(crate) async fn receive(&self) -> io::Result<Option<Received<Report>>> {
        self.0.async_io(Interest::READABLE, |socket| Ok(Report::receive(socket)?)).await
    }

    /// The next report that is there already.
    fn receive_now(&self) -> Result<Option<Received<Report>>, Errno> {
        Report::receive(self.0.get_ref())
    }
}

/// The shim, by its descriptor: no other process can be mistaken for it.
#[derive(Debug)]
pub(crate) struct Shim {
    pidfd: AsyncFd<OwnedFd>,
    /// Its id here, which is another one in its own namespace.
    id: Option<u32>,
}

impl Shim {
    pub(crate) fn new(pidfd: OwnedFd) -> io::Result<Self> {
        let id = id_of(&pidfd);
        Ok(Self { pidfd: watched(pidfd)?, id })
    }

    /// Returns when it is gone: in a namespace, with everything that was there. The kernel says so when the last process
    /// of the namespace is reaped, not before.
    pub(crate) async fn gone(&self) {
        while !self.is_gone() {
            let ready = self.pidfd.readable().await;
            let mut ready = ready.expect("the runtime outlives who waits in it");
            if !self.is_gone() {
                ready.clear_ready();
            }
        }
    }

    fn is_gone(&self) -> bool {
        let mut asked = [PollFd::new(self.pidfd.get_ref(), PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(poll(&mut asked, Some(&now)), Ok(1..))
    }
}

/// The id of a process, as long as it is not reaped.
fn id_of(pidfd: &OwnedFd) -> Option<u32> {
    let about = format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd());
    let about = std::fs::read_to_string(about).ok()?;
    about.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok())
}

/// A descriptor that the runtime watches. What is deprecated is registering one that may be closed or lied about
/// meanwhile; an owned one cannot be, and what replaces it needs `unsafe`.
#[expect(deprecated, reason = "sound for a descriptor that is owned")]
fn watched(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(descriptor, Interest::READABLE)
}
