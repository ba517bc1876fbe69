//! How a supervisor starts programs.
//!
//! Which isolation is permitted cannot be asked, only tried. So a start goes down the ladder until one is, and the next
//! start begins there. A refusal that may pass, as when the machine has no namespaces left, is not remembered.

use std::io;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::fs::{MemfdFlags, SealFlags, SeekFrom, fcntl_add_seals, memfd_create, seek};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::error::{Fault, Refusal, StartError, Step};
use crate::limits::{LAUNCH_OVERDUE, START_MAX};
use crate::message::{Order, Report, TreeName};
use crate::role::{LAUNCH, OWN_BINARY};
use crate::supervised::{Control, Shim, Tree};
use crate::{Isolation, Output, Program, Streams, Wanted, file_limit, guard, streams};

/// Starts programs, and remembers which isolation is permitted.
#[derive(Debug)]
pub struct Launcher {
    binary: PathBuf,
    wanted: Wanted,
    lock: Option<Arc<OwnedFd>>,
    /// The strongest that is permitted, once that is known.
    permitted: OnceLock<Isolation>,
    started: AtomicU64,
    weak: AtomicU64,
}

/// How many trees were started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// All.
    pub started: u64,
    /// Those that could only be ended by a weak kill.
    pub weak: u64,
}

/// A program that runs, and its pipes.
#[derive(Debug)]
pub struct Started {
    /// The program with all that it starts. Dropping it ends them.
    pub tree: Tree,
    /// Its standard output.
    pub stdout: Output,
    /// Its standard error.
    pub stderr: Output,
    /// What it writes to the descriptor of [`PROGRESS_VARIABLE`](crate::PROGRESS_VARIABLE).
    pub progress: Output,
}

impl Launcher {
    /// Starts programs through the small guard that was built in, or through this very binary, whose `main` calls
    /// [`run_role_if_asked`](crate::run_role_if_asked).
    pub fn new(wanted: Wanted) -> Self {
        let small = guard::built_in();
        Self::through(small.as_deref().unwrap_or(Path::new(OWN_BINARY)), wanted)
    }

    /// Starts programs through another binary whose `main` does: for tests, whose own `main` does not.
    pub fn through(binary: &Path, wanted: Wanted) -> Self {
        let (permitted, started, weak) = (OnceLock::new(), AtomicU64::new(0), AtomicU64::new(0));
        Self { binary: binary.to_owned(), wanted, lock: None, permitted, started, weak }
    }

    /// The same with a lock that lives as long as its trees: an open file on which `flock` is held, and which is closed
    /// when this process starts others. Launch and shim of each tree keep it open; the program never has it. So when
    /// the supervisor is dead, of whatever cause, somebody else gets the lock once every tree is empty, and not before.
    ///
    /// The launcher has the lock as well. A supervisor that drops it, and every other copy, once its tree has started leaves the
    /// lock to the tree alone: then it is free as soon as the tree is empty, also while the supervisor is stopped, and of a
    /// tree with a [deadline](Program::deadline) that is soon after the deadline, whatever becomes of the supervisor.
    ///
    /// That holds while one of a tree's two guards lives. If both are killed from outside, the lock may be free
    /// although something is left: in a namespace for the moment that the kernel needs to end it; otherwise, and
    /// above all with a weak kill, for as long as what is left goes on.
    #[must_use]
    pub fn holding(mut self, lock: Arc<OwnedFd>) -> Self {
        self.lock = Some(lock);
        self
    }

    /// Finds out what keeps a program together here that has this user and these limits, and starts nothing.
    pub async fn probe(&self, program: &Program) -> Result<Isolation, StartError> {
        program.check()?;
        let room = timeout(START_MAX, self.make_room(program));
        let (mut attempt, _) = room.await.map_err(|_| StartError::TooSlow)??;
        drop(attempt.control);
        leave(&mut attempt.launch).await;
        Ok(attempt.isolation)
    }

    /// How many trees it has started.
    pub fn counts(&self) -> Counts {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        Counts { started: count(&self.started), weak: count(&self.weak) }
    }

    /// Starts a program. If this is dropped before it is done, what there is of the program ends.
    pub async fn start(&self, program: &Program) -> Result<Started, StartError> {
        let start = self.start_in_room(program, async |attempt, lock| {
            attempt.start_with_pipes(program, lock).await
        });
        timeout(START_MAX, start).await.map_err(|_| StartError::TooSlow)?
    }

    /// Starts a program on these streams instead of pipes. It has no descriptor for progress then, and not the
    /// [`Program::stdin`] that it may name.
    pub async fn start_on(&self, streams: &Streams, program: &Program) -> Result<Tree, StartError> {
        let start = self.start_in_room(program, async |attempt, lock| {
            attempt.start(program, None, streams, lock).await
        });
        timeout(START_MAX, start).await.map_err(|_| StartError::TooSlow)?
    }

    async fn start_in_room<T>(
        &self,
        program: &Program,
        start: impl AsyncFnOnce(Attempt, Option<&OwnedFd>) -> Result<T, StartError>,
    ) -> Result<T, StartError> {
        program.check()?;
        let (attempt, refusals) = self.make_room(program).await?;
        let isolation = attempt.isolation;
        let started = start(attempt, self.lock.as_deref()).await?;
        self.remember(isolation, &refusals);
        Ok(started)
    }

    /// Goes down the ladder; with what was refused on the way.
    async fn make_room(&self, program: &Program) -> Result<(Attempt, Vec<Refusal>), StartError> {
        let mut refusals = Vec::new();
        for isolation in self.candidates(program) {
            let lock = self.lock.as_deref();
            match Attempt::begin(&self.binary, isolation, program, lock).await? {
                Ok(attempt) => return Ok((attempt, refusals)),
                Err(refusal) => match refusal.step {
                    Step::MemoryLimit => return Err(StartError::Limit { what: "memory", refusal }),
                    Step::ProcessLimit => {
                        return Err(StartError::Limit { what: "processes", refusal });
                    }
                    _ => refusals.push(refusal),
                },
            }
        }
        Err(StartError::Isolation { refusals })
    }

    fn candidates(&self, program: &Program) -> Vec<Isolation> {
        if let Wanted::Exactly(isolation) = self.wanted {
            return vec![isolation];
        }
        let from = self.permitted.get().copied().unwrap_or(Isolation::LADDER[0]);
        let ladder = Isolation::LADDER.into_iter().skip_while(|isolation| *isolation != from);
        // Nobody else has a name in the user namespace of the supervisor's own user.
        let needs_others = program.other_user().is_some();
        ladder
            .filter(|it| self.wanted.admits(*it))
            .filter(|it| !needs_others || *it != Isolation::UserNamespace)
            .collect()
    }

    fn remember(&self, isolation: Isolation, refusals: &[Refusal]) {
        self.started.fetch_add(1, Ordering::Relaxed);
        if isolation.is_weak() {
            self.weak.fetch_add(1, Ordering::Relaxed);
        }
        if self.permitted.get().is_some() {
            return;
        }
        for refusal in refusals {
            tracing::info!(%refusal, "an isolation of programs is not permitted here");
        }
        if refusals.iter().all(|refusal| is_lasting(&refusal.why)) {
            let _ = self.permitted.set(isolation);
        }
    }
}

/// Whether the same would be refused again: not if something was merely used up.
fn is_lasting(why: &io::Error) -> bool {
    let used_up = [Errno::NOSPC, Errno::USERS, Errno::AGAIN, Errno::NOMEM, Errno::NFILE];
    !used_up.iter().any(|errno| why.raw_os_error() == Some(errno.raw_os_error()))
}

/// A shim that is ready, without a program yet.
struct Attempt {
    isolation: Isolation,
    control: Control,
    launch: Child,
    shim: Arc<Shim>,
}

impl Attempt {
    /// Makes room for a tree, unless that is refused.
    async fn begin(
        binary: &Path,
        isolation: Isolation,
        program: &Program,
        lock: Option<&OwnedFd>,
    ) -> Result<Result<Self, Refusal>, StartError> {
        let (control, theirs) = control_pair().map_err(busy)?;
        let mut launch = spawn_launch(binary, theirs).map_err(busy)?;
        let (name, files) = (next_name(), file_limit::of_programs());
        let order = Order::Prepare { isolation, limits: program.limits, name, files };
        let with: Vec<_> = lock.into_iter().map(AsFd::as_fd).collect();
        order.send(&control.0, &with).map_err(|_| StartError::Interrupted)?;
        let Some(mut report) = control.receive().await.map_err(busy)? else {
            return Err(StartError::Interrupted);
        };
        match report.message {
            Report::Ready => {
                let pidfd = report.descriptors[0].take().expect("it comes with its descriptor");
                let shim = Arc::new(Shim::new(pidfd).map_err(busy)?);
                Ok(Ok(Self { isolation, control, launch, shim }))
            }
            Report::Refused { step, errno } => {
                leave(&mut launch).await;
                Ok(Err(Refusal { isolation, step, why: io::Error::from_raw_os_error(errno) }))
            }
            Report::Started | Report::NotStarted { .. } | Report::Ended { .. } => {
                unreachable!("nobody was told to start")
            }
        }
    }

    /// Starts the program in it, with a pipe for each thing that it prints.
    async fn start_with_pipes(
        self,
        program: &Program,
        lock: Option<&OwnedFd>,
    ) -> Result<Started, StartError> {
        let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(busy);
        let (stdout, their_stdout) = pipe()?;
        let (stderr, their_stderr) = pipe()?;
        let (progress, their_progress) = pipe()?;
        let stdin = stdin_of(program).map_err(busy)?;
        let streams = Streams { stdin, stdout: their_stdout, stderr: their_stderr };
        let shim = Arc::clone(&self.shim);
        let tree = self.start(program, Some(their_progress), &streams, lock).await?;
        let output = |pipe| Output::new(pipe, Arc::clone(&shim)).map_err(busy);
        let (stdout, stderr, progress) = (output(stdout)?, output(stderr)?, output(progress)?);
        Ok(Started { tree, stdout, stderr, progress })
    }

    /// Starts the program in it.
    async fn start(
        mut self,
        program: &Program,
        progress: Option<OwnedFd>,
        streams: &Streams,
        lock: Option<&OwnedFd>,
    ) -> Result<Tree, StartError> {
        let about = sealed(&program.encode()).map_err(busy)?;
        let streams = [&streams.stdin, &streams.stdout, &streams.stderr];
        let theirs = progress.iter().chain([&about]).chain(streams).chain(lock);
        let theirs: Vec<_> = theirs.map(AsFd::as_fd).collect();
        let (deadline, has_progress) = (program.deadline, progress.is_some());
        let start = Order::Start { deadline, has_progress };
        start.send(&self.control.0, &theirs).map_err(|_| StartError::Interrupted)?;
        drop((progress, about));

        let report = self.control.receive().await.map_err(busy)?;
        match report.map(|report| report.message) {
            Some(Report::Started) => {}
            Some(Report::NotStarted { fault, errno }) => {
                leave(&mut self.launch).await;
                return Err(not_started(program, fault, io::Error::from_raw_os_error(errno)));
            }
            None => return Err(StartError::Interrupted),
            Some(other) => unreachable!("nothing else follows a start: {other:?}"),
        }
        Ok(Tree::new(self.control, self.shim, self.launch, self.isolation, deadline))
    }
}

fn not_started(program: &Program, fault: Fault, why: io::Error) -> StartError {
    if is_busy(&why) {
        return StartError::Busy(why);
    }
    let path = match fault {
        Fault::Program | Fault::Interpreter | Fault::User => program.path.clone(),
        Fault::Directory => program.directory.clone(),
    };
    StartError::NotStartable { fault, path, why }
}

/// Whether the same may be possible in a moment: what was used up is free again, a program is no longer written to, or its
/// file system answers.
fn is_busy(why: &io::Error) -> bool {
    let used_up = [Errno::AGAIN, Errno::NOMEM, Errno::NFILE, Errno::MFILE];
    let unreadable =
        [Errno::TXTBSY, Errno::IO, Errno::STALE, Errno::TIMEDOUT, Errno::NOTCONN, Errno::HOSTDOWN];
    let mut busy = used_up.iter().chain(&unreadable);
    busy.any(|errno| why.raw_os_error() == Some(errno.raw_os_error()))
}

fn busy(why: impl Into<io::Error>) -> StartError {
    StartError::Busy(why.into())
}

/// Lets a launch that has nothing to do any more go, so that it is not left behind as a zombie.
async fn leave(launch: &mut Child) {
    let _ = timeout(LAUNCH_OVERDUE, launch.wait()).await;
}

/// The supervisor's end, which makes nobody wait, and the other, which does.
fn control_pair() -> io::Result<(Control, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    Ok((Control::new(ours)?, theirs))
}

/// Launch knows nothing but its socket. What it has to say if it panics goes where the supervisor's own words go.
fn spawn_launch(binary: &Path, control: OwnedFd) -> io::Result<Child> {
    let spawn = |binary: &Path, control: OwnedFd| {
        Command::new(binary)
            .arg(LAUNCH)
            .env_clear()
            .current_dir("/")
            .stdin(control)
            .stdout(Stdio::null())
            .spawn()
    };
    let again = control.try_clone()?;
    match spawn(binary, control) {
        // Files in memory may not be executed everywhere.
        Err(why) if why.kind() == io::ErrorKind::PermissionDenied => {
            spawn(Path::new(OWN_BINARY), again)
        }
        spawned => spawned,
    }
}

fn next_name() -> TreeName {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    TreeName { supervisor: std::process::id(), number }
}

/// Bytes need no pipe that somebody would have to fill while the program reads: they lie in memory, as a file.
fn stdin_of(program: &Program) -> io::Result<OwnedFd> {
    match &program.stdin {
        Some(bytes) => sealed(bytes),
        None => streams::nothing(),
    }
}

/// These bytes as a file that nobody can change.
fn sealed(bytes: &[u8]) -> io::Result<OwnedFd> {
    let file = memfd_create(c"watchbell", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = std::fs::File::from(file);
    file.write_all(bytes)?;
    seek(&file, SeekFrom::Start(0))?;
    let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    fcntl_add_seals(&file, seals)?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_cannot_be_read_at_the_moment_is_no_program_that_cannot_be_started() {
        let of = |errno: Errno| not_started(&Program::new("/x"), Fault::Program, errno.into());
        for errno in [Errno::TXTBSY, Errno::IO, Errno::STALE, Errno::TIMEDOUT, Errno::NOMEM] {
            assert!(matches!(of(errno), StartError::Busy(_)), "{errno}");
        }
        for errno in [Errno::NOENT, Errno::ACCESS, Errno::NOEXEC, Errno::NOTDIR] {
            assert!(matches!(of(errno), StartError::NotStartable { .. }), "{errno}");
        }
    }
}
