//! One server process, its directory and its log.

use std::fs::{File, Permissions};
use std::net::Ipv4Addr;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getuid, kill_process};
use tempfile::TempDir;
use tokio::net::TcpSocket;

/// `nobody`: what engines run as that refuse root.
pub(crate) const NOBODY: u32 = 65_534;

/// No engine takes nearly as long to start.
const START_MAX: Duration = Duration::from_secs(60);

/// A server that tests may treat badly. Killed when dropped.
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a command; what it says goes to `log`.
    pub fn start(command: &mut Command, log: &Path) -> Self {
        let program = command.get_program().to_string_lossy().into_owned();
        let out =
            File::options().create(true).append(true).open(log).expect("the log can be written");
        let err = out.try_clone().expect("a file has two handles");
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        let child = command.spawn().unwrap_or_else(|why| {
            panic!("{program} does not start ({why}): install it with scripts/need test")
        });
        Self { child, log: log.to_owned() }
    }

    /// As somebody who is not root, if this process is: some engines insist on it. Gives them the directory.
    pub fn humbly(command: &mut Command, dir: &TempDir) {
        if !is_root() {
            return;
        }
        chown(dir.path(), Some(NOBODY), Some(NOBODY)).expect("root may give a directory away");
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o700)).expect("it is ours");
        command.uid(NOBODY).gid(NOBODY).current_dir(dir.path());
    }

    /// Waits until `is_ready` says so; panics with the log if the process ends or takes too long.
    #[expect(clippy::disallowed_methods, reason = "a foreign server starts in real time")]
    pub fn await_ready(&mut self, mut is_ready: impl FnMut() -> bool) {
        let begin = Instant::now();
        while !is_ready() {
            let ended = self.child.try_wait().expect("it is our child");
            assert!(ended.is_none(), "the server has ended ({ended:?}):\n{}", self.log());
            assert!(begin.elapsed() < START_MAX, "the server does not start:\n{}", self.log());
            // Nothing tells when a foreign server is ready: asking is the only way.
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_none()
    }

    /// What it has said.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// The id of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// kill -9, and waits until it is gone.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// SIGTERM, and waits until it is gone.
    pub fn terminate(&mut self) {
        self.signal(Signal::TERM);
        self.await_end();
    }

    /// Waits until it is gone.
    pub(crate) fn await_end(&mut self) {
        let _ = self.child.wait();
    }

    /// SIGSTOP: it does nothing until it is woken.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on after a pause.
    pub fn wake(&self) {
        self.signal(Signal::CONT);
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let pid =
            Pid::from_raw(i32::try_from(self.child.id()).expect("a process id")).expect("not 0");
        let _ = kill_process(pid, signal);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Bytes that must be free in memory before anything is put there: three members of etcd reserve a quarter of it.
const MEMORY_FREE_MIN: u64 = 2 * 1024 * 1024 * 1024;

/// A temporary directory for what syncs all the time and need not survive a loss of power: in memory if there is plenty
/// of that. Whatever is killed finds there what it left, and no test waits for a disk that it shares with compilers.
pub fn directory() -> TempDir {
    const MEMORY: &str = "/dev/shm";
    let has_room = rustix::fs::statvfs(MEMORY)
        .is_ok_and(|about| about.f_bavail * about.f_frsize >= MEMORY_FREE_MIN);
    let dir = if has_room { tempfile::tempdir_in(MEMORY) } else { tempfile::tempdir() };
    dir.expect("a temporary directory")
}

/// Whether this process may do everything.
pub fn is_root() -> bool {
    getuid().is_root()
}

/// A port on which nobody listens, for whoever starts a server there: on Linux a port that is bound is given to nobody
/// who asks for any, and a server that reuses addresses, as all of ours do, still gets it while nobody listens. So it
/// stays reserved as long as this process runs, also while its server is dead.
pub fn free_port() -> u16 {
    static RESERVED: Mutex<Vec<TcpSocket>> = Mutex::new(Vec::new());
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_reuseaddr(true).expect("a new socket takes options");
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port");
    let port = socket.local_addr().expect("it is bound").port();
    RESERVED.lock().unwrap_or_else(PoisonError::into_inner).push(socket);
    port
}
