//! A `watchbell dev` of its own, which does not outlive the test.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use client::Client;
use rustix::process::{Pid, Signal, kill_process};
use store::clock::Stopwatch;
use tempfile::TempDir;
use tokio::sync::RwLock;

use super::wait::until;

pub(super) const WATCHBELL: &str = env!("CARGO_BIN_EXE_watchbell");

/// How long anything may take that is no matter of the test, on a machine that is busy.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// Tests that load the machine, or measure, have it to themselves: they hold this for writing, all others for
/// reading.
pub(super) static MACHINE: RwLock<()> = RwLock::const_new(());

/// A directory for a store, not made yet, and what keeps it until the test is over.
pub(super) fn place() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    (dir, data)
}

/// A process that runs.
pub(super) struct Dev {
    child: Child,
    log: PathBuf,
    /// It has more to say, and ends if nobody is there to hear it.
    _stdout: BufReader<ChildStdout>,
    pub(super) client: Client,
    /// From its start to its first word.
    pub(super) took: Duration,
}

impl Dev {
    /// Starts one on this directory, and waits until it says where it listens.
    pub(super) fn start(data: &Path) -> Self {
        let begun = Stopwatch::start();
        let log = data.with_extension("log");
        let file = fs::File::options().create(true).append(true).open(&log).unwrap();
        let mut child = Command::new(WATCHBELL)
            .args(["dev", "--listen", "127.0.0.1:0", "--data"])
            .arg(data)
            .stdout(Stdio::piped())
            .stderr(file)
            .spawn()
            .unwrap();
        let mut said = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut said).unwrap();
        let url = said.split_whitespace().find(|word| word.starts_with("http://"));
        let Some(url) = url else {
            let _ = child.kill();
            panic!("it said {said:?}, and {}", fs::read_to_string(&log).unwrap());
        };
        let client = Client::new(url).unwrap();
        Self { child, log, _stdout: stdout, client, took: begun.elapsed() }
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
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end.
    pub(super) async fn end(&mut self) -> ExitStatus {
        let child = &mut self.child;
        until("the process ends", PATIENCE, || {
            let status = child.try_wait().unwrap();
            async move { status }
        })
        .await
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
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = self.log();
            let tail: Vec<&str> = log.lines().rev().take(40).collect();
            eprintln!("the last words of the process, latest first:\n{}", tail.join("\n"));
        }
    }
}
