//! A `watchbell server` of its own, which does not outlive the test.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use client::Client;
use rig::{Ask, PATIENCE, until};
use rustix::process::{Pid, Signal, kill_process};

use super::process::{Spawned, WATCHBELL};

/// A server that runs.
pub(super) struct Server {
    spawned: Spawned,
    said: PathBuf,
    pub(super) address: SocketAddr,
    /// The text in the file of the first admin's key, if there is one.
    pub(super) admin: String,
}

/// Where a server on this directory keeps the first admin's key.
pub(super) fn key_file(data: &Path) -> PathBuf {
    data.with_extension("key")
}

/// Starts one on this directory that listens here, with more flags. What it says goes to files beside it.
pub(super) fn spawn(data: &Path, listen: &str, flags: &[&str]) -> (Spawned, PathBuf) {
    spawn_on(&url(data), data, listen, flags)
}

/// Starts one on this store.
fn spawn_on(store: &str, data: &Path, listen: &str, flags: &[&str]) -> (Spawned, PathBuf) {
    let own = ["--listen", listen, "--node", "test"];
    spawn_by(Command::new(WATCHBELL), store, data, &[&own, flags])
}

/// Starts one on this store by a command that becomes it.
fn spawn_by(
    mut command: Command,
    store: &str,
    data: &Path,
    flags: &[&[&str]],
) -> (Spawned, PathBuf) {
    let (said, log) = (data.with_extension("out"), data.with_extension("log"));
    let out = fs::File::create(&said).unwrap();
    let err = fs::File::options().create(true).append(true).open(&log).unwrap();
    command.args(["server", "--webhook-allow", "127.0.0.0/8", "--store", store]);
    command.arg("--admin-key-file").arg(key_file(data)).args(flags.concat());
    let child = command.stdout(out).stderr(err).stdin(Stdio::null()).spawn().unwrap();
    (Spawned { child, log }, said)
}

pub(super) fn url(data: &Path) -> String {
    format!("file:{}", data.display())
}

/// Starts one that does not get so far as to serve; how it ended, and what it said on stderr.
pub(super) async fn refused(data: &Path, listen: &str, flags: &[&str]) -> (Option<i32>, String) {
    let (mut spawned, said) = spawn(data, listen, flags);
    let status = ended(&mut spawned).await;
    assert_eq!(fs::read_to_string(said).unwrap(), "", "it had not begun to serve");
    (status.code(), fs::read_to_string(&spawned.log).unwrap())
}

/// Where a server says in its first line that it listens. That line is whole once there is a second one.
fn address_in(said: &str) -> Option<SocketAddr> {
    let address = said.split_whitespace().find_map(|word| word.split_once("://"));
    let (_, address) = address.filter(|_| said.lines().count() > 1)?;
    Some(address.trim_end_matches('.').parse().unwrap())
}

async fn ended(spawned: &mut Spawned) -> ExitStatus {
    until("the process ends", PATIENCE, || {
        let status = spawned.child.try_wait().unwrap();
        async move { status }
    })
    .await
}

impl Server {
    /// Starts one on loopback, and waits until it says where it listens.
    pub(super) async fn start(data: &Path, flags: &[&str]) -> Self {
        Self::start_at(data, "127.0.0.1:0", flags).await
    }

    /// Starts one that listens there.
    pub(super) async fn start_at(data: &Path, listen: &str, flags: &[&str]) -> Self {
        Self::listening(data, || spawn(data, listen, flags)).await
    }

    /// Starts one on this store; what it says goes to files beside `data`.
    pub(super) async fn start_on(store: &str, data: &Path) -> Self {
        Self::listening(data, || spawn_on(store, data, "127.0.0.1:0", &[])).await
    }

    /// The same, which tells everything in its log.
    pub(super) async fn start_telling_all_on(store: &str, data: &Path) -> Self {
        let flags = ["--log-level", "trace"];
        Self::listening(data, || spawn_on(store, data, "127.0.0.1:0", &flags)).await
    }

    /// Starts one on this store by a command that becomes it; the flags say who it is, and where it listens.
    pub(super) async fn start_by(
        command: impl Fn() -> Command,
        store: &str,
        data: &Path,
        flags: &[&[&str]],
    ) -> Self {
        Self::listening(data, || spawn_by(command(), store, data, flags)).await
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.spawned.child), signal).unwrap();
    }

    /// Waits until one that is started so says where it listens. It has a second to connect to its store, in all, and
    /// ends with 3 if that is too little on a busy machine: then it is started again, as who looks after servers would.
    async fn listening(data: &Path, start: impl Fn() -> (Spawned, PathBuf)) -> Self {
        let (mut spawned, said) = start();
        let address = until("it listens", PATIENCE, || {
            let address = address_in(&fs::read_to_string(&said).unwrap());
            let ended = spawned.child.try_wait().unwrap().filter(|_| address.is_none());
            if let Some(status) = ended {
                let log = fs::read_to_string(&spawned.log).unwrap();
                assert_eq!(status.code(), Some(3), "it ended before it listened: {log}");
                (spawned, _) = start();
            }
            async move { address }
        })
        .await;
        let admin = fs::read_to_string(key_file(data)).unwrap_or_default();
        Self { spawned, said, address, admin: admin.trim().to_owned() }
    }

    /// A request of an admin.
    pub(super) fn ask(&self, method: &str, path: &str) -> Ask {
        self.ask_as(&self.admin, method, path)
    }

    /// A request of somebody with this key.
    pub(super) fn ask_as(&self, key: &str, method: &str, path: &str) -> Ask {
        Ask::new(self.address, method, path).key(key)
    }

    /// A request without a key.
    pub(super) fn ask_without_key(&self, method: &str, path: &str) -> Ask {
        Ask::new(self.address, method, path)
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A client with an admin's key that tries nothing twice.
    pub(super) fn client(&self) -> Client {
        Client::builder(&self.url()).key(&self.admin).retries(0).build().unwrap()
    }

    pub(super) fn pid(&self) -> u32 {
        self.spawned.child.id()
    }

    /// Whether it still runs.
    pub(super) fn is_running(&mut self) -> bool {
        self.spawned.child.try_wait().unwrap().is_none()
    }

    /// Ends it as a loss of power would.
    pub(super) fn kill(&mut self) {
        self.spawned.child.kill().unwrap();
        self.spawned.child.wait().unwrap();
    }

    /// Stops it in order, and expects that all was well.
    pub(super) async fn stop(mut self) {
        kill_process(Pid::from_child(&self.spawned.child), Signal::TERM).unwrap();
        let status = ended(&mut self.spawned).await;
        assert_eq!(status.code(), Some(0), "{}", self.told());
    }

    /// All that it has said, and its predecessors on the same directory on stderr.
    pub(super) fn told(&self) -> String {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        read(&self.said) + &read(&self.spawned.log)
    }
}
