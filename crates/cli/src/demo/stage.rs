//! The processes of the demonstration: who is up, who is down, and how one goes from there to here.
//!
//! Server and workers are this very binary, each a plain child that anybody may kill. They are started from the thread that
//! runs the demonstration and from no other, because the kernel kills them when the thread that started them is gone.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::net::TcpSocket;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::plan::{Actor, Plan};
use crate::exit::Ending;

/// The queue of the demonstration.
pub(super) const QUEUE: &str = "tasks";

/// How long whoever is told to stop at the end may take.
const STOP_MAX: Duration = Duration::from_secs(3);

/// How many bytes of a log are looked at for its last line.
const LOG_END: usize = 2_000;

/// All processes, and what they need.
pub(super) struct Stage {
    binary: PathBuf,
    dir: PathBuf,
    address: SocketAddr,
    /// Bound, so that nobody gets the port while the server is down.
    _port: TcpSocket,
    capacity: u32,
    lease: Duration,
    up: BTreeMap<Actor, Child>,
}

impl Stage {
    /// Prepares a directory. Nobody is up.
    pub(super) fn new(dir: &Path, plan: &Plan) -> Result<Self, Ending> {
        let failed = |why: io::Error| Ending::failed(format!("cannot prepare: {why}"));
        let binary = std::env::current_exe().map_err(failed)?;
        if !binary.exists() {
            return Err(Ending::failed(
                "this binary was replaced since it was started: start the demonstration again",
            ));
        }
        fs::write(dir.join("settings.toml"), "").map_err(failed)?;
        for worker in Actor::all().filter(|actor| *actor != Actor::Server) {
            fs::create_dir(dir.join(worker.to_string())).map_err(failed)?;
        }
        let port = TcpSocket::new_v4().map_err(failed)?;
        port.set_reuseaddr(true).map_err(failed)?;
        port.bind((Ipv4Addr::LOCALHOST, 0).into()).map_err(failed)?;
        let address = port.local_addr().map_err(failed)?;
        Ok(Self {
            binary,
            dir: dir.to_owned(),
            address,
            _port: port,
            capacity: plan.capacity,
            lease: plan.lease,
            up: BTreeMap::new(),
        })
    }

    /// Where the server is, when it is up.
    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A file of settings without any, so that nobody's own change what is shown.
    pub(super) fn settings(&self) -> PathBuf {
        self.dir.join("settings.toml")
    }

    /// The binary of all processes, runs included.
    pub(super) fn binary(&self) -> &Path {
        &self.binary
    }

    /// The id of the process, if it is up.
    pub(super) fn pid(&self, actor: Actor) -> Option<u32> {
        self.up.get(&actor)?.id()
    }

    /// Starts somebody who is down.
    pub(super) fn start(&mut self, actor: Actor) -> Result<(), Ending> {
        let failed = |why: io::Error| Ending::failed(format!("cannot start {actor}: {why}"));
        let log = File::options().create(true).append(true).open(self.log(actor));
        let log = log.map_err(failed)?;
        let mut command = Command::new(&self.binary);
        command
            .args(["demo", "actor", &std::process::id().to_string(), "--", "--config"])
            .arg(self.settings())
            .args(self.words(actor))
            .current_dir(&self.dir)
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(failed)?)
            .stderr(log)
            // Ctrl-C at the terminal is for the demonstration, which ends them itself.
            .process_group(0)
            .kill_on_drop(true);
        for name in foreign_settings() {
            command.env_remove(name);
        }
        self.up.insert(actor, command.spawn().map_err(failed)?);
        Ok(())
    }

    fn words(&self, actor: Actor) -> Vec<OsString> {
        let mut words: Vec<OsString> = Vec::new();
        let mut say = |flag: &str, value: OsString| words.extend([flag.into(), value]);
        match actor {
            Actor::Server => {
                say("--listen", self.address.to_string().into());
                say("--data", self.dir.join("store").into());
                words.insert(0, "dev".into());
            }
            Actor::Worker(_) => {
                say("--server", self.url().into());
                say("--queue", QUEUE.into());
                say("--name", actor.to_string().into());
                say("--allow", self.binary.clone().into());
                say("--dir", self.dir.join(actor.to_string()).into());
                say("--capacity", self.capacity.to_string().into());
                say("--lease", format!("{}ms", self.lease.as_millis()).into());
                say("--spool", self.dir.join("spool").into());
                words.insert(0, "worker".into());
            }
        }
        words
    }

    /// kill -9, and waits until it is gone.
    pub(super) async fn kill(&mut self, actor: Actor) {
        if let Some(mut child) = self.up.remove(&actor) {
            // One that is gone already is as dead as it can be.
            let _ = child.kill().await;
        }
    }

    /// Who has ended though nobody here wanted it, and how.
    pub(super) fn fallen(&mut self) -> Vec<(Actor, ExitStatus)> {
        let ended = self.up.iter_mut().filter_map(|(actor, child)| {
            let status = child.try_wait().ok().flatten()?;
            Some((*actor, status))
        });
        let ended: Vec<_> = ended.collect();
        self.up.retain(|actor, _| !ended.iter().any(|(gone, _)| gone == actor));
        ended
    }

    fn log(&self, actor: Actor) -> PathBuf {
        self.dir.join(format!("{actor}.log"))
    }

    /// The last line of somebody's log.
    pub(super) fn last_word(&self, actor: Actor) -> String {
        let log = fs::read(self.log(actor)).unwrap_or_default();
        let end = String::from_utf8_lossy(&log[log.len().saturating_sub(LOG_END)..]).into_owned();
        let line = end.lines().rev().find(|line| !line.trim().is_empty());
        line.map_or_else(|| "nothing".to_owned(), |line| line.trim().to_owned())
    }

    /// Tells all to stop, the workers first, and kills who does not.
    pub(super) async fn close(mut self) {
        while let Some((_, mut child)) = self.up.pop_last() {
            let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
            let told = pid.is_some_and(|pid| kill_process(pid, Signal::TERM).is_ok());
            if !told || timeout(STOP_MAX, child.wait()).await.is_err() {
                let _ = child.kill().await;
            }
        }
    }

    /// Kills all, at once.
    pub(super) async fn clear(mut self) {
        while let Some((_, mut child)) = self.up.pop_last() {
            let _ = child.kill().await;
        }
    }
}

/// Settings of whoever started the demonstration: they are for servers and queues of theirs.
fn foreign_settings() -> impl Iterator<Item = OsString> {
    let names = std::env::vars_os().map(|(name, _)| name);
    names.filter(|name| name.as_encoded_bytes().starts_with(b"WATCHBELL_"))
}
