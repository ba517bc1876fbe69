//! A `watchbell dev` of its own, which does not outlive the test.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use client::Client;
use rig::{PATIENCE, until};
use rustix::process::{Pid, Signal, kill_process};
use store::clock::Stopwatch;
use tempfile::TempDir;

pub(super) const WATCHBELL: &str = env!("CARGO_BIN_EXE_watchbell");

/// What is measured: the program of these tests, or another build of it, which `WATCHBELL_QUICK` names.
#[expect(clippy::disallowed_methods, reason = "whoever measures says which build it is of")]
pub(super) fn measured() -> PathBuf {
    env::var("WATCHBELL_QUICK").map_or_else(|_| WATCHBELL.into(), PathBuf::from)
}

/// A directory for a store, not made yet, and what keeps it until the test is over.
pub(super) fn place() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    (dir, data)
}

/// How much memory a process has, in KiB.
pub(super) fn resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// A process that was started, and has perhaps not begun to serve.
pub(super) struct Spawned {
    pub(super) child: Child,
    pub(super) log: PathBuf,
}

/// Starts one on this directory by a command that becomes it.
pub(super) fn spawn(mut command: Command, data: &Path, stdout: Stdio) -> Spawned {
    let log = data.with_extension("log");
    let file = fs::File::options().create(true).append(true).open(&log).unwrap();
    command.args(["dev", "--listen", "127.0.0.1:0", "--data"]).arg(data);
    let child = command.stdout(stdout).stderr(file).spawn().unwrap();
    Spawned { child, log }
}

impl Spawned {
    /// Waits until it has said this, and gives all that it has said.
    pub(super) async fn says(&self, words: &str) -> String {
        until(&format!("it says {words:?}"), PATIENCE, || async {
            let said = fs::read_to_string(&self.log).unwrap();
            said.contains(words).then_some(said)
        })
        .await
    }

    /// Tells it to stop, and waits for its end.
    pub(super) async fn stop(&mut self) -> ExitStatus {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        end(&mut self.child).await
    }
}

impl Drop for Spawned {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn end(child: &mut Child) -> ExitStatus {
    until("the process ends", PATIENCE, || {
        let status = child.try_wait().unwrap();
        async move { status }
    })
    .await
}

/// A process that runs.
pub(super) struct Dev {
    spawned: Spawned,
    /// Kept open: what it has to say is heard.
    _stdout: BufReader<ChildStdout>,
    pub(super) client: Client,
    /// From its start to its first word.
    pub(super) took: Duration,
}

impl Dev {
    /// Starts one on this directory, and waits until it says where it listens.
    pub(super) fn start(data: &Path) -> Self {
        Self::start_by(Command::new(WATCHBELL), data)
    }

    /// Starts one by a command that becomes it.
    pub(super) fn start_by(command: Command, data: &Path) -> Self {
        let begun = Stopwatch::start();
        let mut spawned = spawn(command, data, Stdio::piped());
        let mut said = String::new();
        let mut stdout = BufReader::new(spawned.child.stdout.take().unwrap());
        stdout.read_line(&mut said).unwrap();
        let url = said.split_whitespace().find(|word| word.starts_with("http://"));
        let Some(url) = url else {
            panic!("it said {said:?}, and {}", fs::read_to_string(&spawned.log).unwrap());
        };
        // What a process does, not what a patient client makes of it.
        let client = Client::builder(url).retries(0).build().unwrap();
        Self { spawned, _stdout: stdout, client, took: begun.elapsed() }
    }

    /// Starts one, and kills it so much later, whatever it does then.
    pub(super) async fn start_and_kill(data: &Path, after: Duration) {
        let mut child = Command::new(WATCHBELL)
            .args(["dev", "--listen", "127.0.0.1:0", "--data"])
            .arg(data)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Not a wait for anything: how long this process lives.
        tokio::time::sleep(after).await;
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Ends it as a loss of power would.
    pub(super) fn kill(mut self) {
        self.spawned.child.kill().unwrap();
        self.spawned.child.wait().unwrap();
    }

    /// Where it listens.
    pub(super) fn address(&self) -> SocketAddr {
        let url = self.client.url().trim_start_matches("http://").trim_end_matches('/');
        url.parse().unwrap()
    }

    pub(super) fn pid(&self) -> u32 {
        self.spawned.child.id()
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.spawned.child), signal).unwrap();
    }

    /// Waits for its end.
    pub(super) async fn end(&mut self) -> ExitStatus {
        end(&mut self.spawned.child).await
    }

    /// Stops it in order, and expects that all was well.
    pub(super) async fn stop(mut self) -> Duration {
        let begun = Stopwatch::start();
        self.signal(Signal::TERM);
        let status = self.end().await;
        assert_eq!(status.code(), Some(0), "{}", self.log());
        begun.elapsed()
    }

    /// What it and its predecessors on the same directory have said.
    pub(super) fn log(&self) -> String {
        fs::read_to_string(&self.spawned.log).unwrap_or_default()
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let tail: Vec<&str> = log.lines().rev().take(40).collect();
            eprintln!("the last words of the process, latest first:\n{}", tail.join("\n"));
        }
    }
}
