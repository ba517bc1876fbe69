//! etcd for tests: one member or three, encrypted or with passwords, small or large.

mod certificate;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::process::{Process, directory, free_port};

/// Times that a cluster is started when somebody else takes its ports.
const STARTS_MAX: usize = 5;

/// No cluster takes nearly as long to be ready.
const START_MAX: Duration = Duration::from_secs(60);

/// How soon members take their leader for dead.
#[derive(Debug, Clone, Copy, Default)]
pub enum Pace {
    /// Half of the default, so that a leader is found within a second also on a busy machine: where members die.
    #[default]
    Quick,
    /// Only if it is silent for longer than a busy machine keeps anybody waiting: where they all live.
    Calm,
}

/// How a cluster is set up.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    /// How soon members take their leader for dead.
    pub pace: Pace,
    /// Bytes that its database may have, if not the default.
    pub quota_bytes: Option<u64>,
    /// Clients reach it at this address as well, by the same ports.
    pub also_at: Option<Ipv4Addr>,
    /// Clients speak TLS.
    pub tls: bool,
    /// Clients need a password: `root`'s, and that of `wb`, who may do everything below `watchbell/`.
    pub password: Option<String>,
}

/// A cluster. Killed when dropped, with its data.
pub struct Etcd {
    dir: TempDir,
    setup: Setup,
    members: Vec<Member>,
}

struct Member {
    name: String,
    client: u16,
    peer: u16,
    /// Where its health is told, without TLS and passwords.
    health: u16,
    process: Option<Process>,
}

impl Etcd {
    /// A cluster of one member.
    pub fn one() -> Self {
        Self::start(1, &Setup::default())
    }

    /// A cluster of three members.
    pub fn three() -> Self {
        Self::start(3, &Setup::default())
    }

    /// Three members that keep their leader when the machine is busy.
    pub fn three_calm() -> Self {
        Self::start(3, &Setup { pace: Pace::Calm, ..Setup::default() })
    }

    /// So many members, set up like this; ready when this returns.
    pub fn start(members: usize, setup: &Setup) -> Self {
        for _ in 0..STARTS_MAX {
            if let Some(mut etcd) = Self::try_start(members, setup) {
                etcd.set_password();
                return etcd;
            }
        }
        panic!("somebody else takes every port that is free");
    }

    /// None if somebody else took a port.
    fn try_start(members: usize, setup: &Setup) -> Option<Self> {
        let dir = directory();
        if setup.tls {
            certificate::make(dir.path());
        }
        let member = |number| Member {
            name: format!("m{number}"),
            client: free_port(),
            peer: free_port(),
            health: free_port(),
            process: None,
        };
        let members = (0..members).map(member).collect();
        let mut etcd = Self { dir, setup: setup.clone(), members };
        for number in 0..etcd.members.len() {
            etcd.spawn(number);
        }
        (0..etcd.members.len()).all(|number| etcd.await_ready(number)).then_some(etcd)
    }

    /// Starts a member that was killed, with its data, and waits until it is ready.
    pub fn restart(&mut self, number: usize) {
        self.spawn(number);
        assert!(self.await_ready(number), "somebody else took the member's port");
    }

    /// Starts all members that were killed, and waits until they are ready.
    pub fn restart_all(&mut self) {
        for number in 0..self.members.len() {
            if self.members[number].process.is_none() {
                self.spawn(number);
            }
        }
        for number in 0..self.members.len() {
            assert!(self.await_ready(number), "somebody else took a member's port");
        }
    }

    fn spawn(&mut self, number: usize) {
        let (dir, scheme) = (self.dir.path(), self.scheme());
        let peers: Vec<_> = self
            .members
            .iter()
            .map(|member| format!("{}=http://127.0.0.1:{}", member.name, member.peer))
            .collect();
        let member = &self.members[number];
        let (client, peer) = (
            format!("{scheme}://127.0.0.1:{}", member.client),
            format!("http://127.0.0.1:{}", member.peer),
        );
        let also = self.setup.also_at.map(|at| format!(",{scheme}://{at}:{}", member.client));
        let listen = client.clone() + &also.unwrap_or_default();
        let (heartbeat_ms, election_ms) = match self.setup.pace {
            Pace::Quick => ("50", "500"),
            Pace::Calm => ("300", "3000"),
        };
        let mut command = Command::new("etcd");
        command
            .args(["--name", &member.name])
            .arg("--data-dir")
            .arg(dir.join(&member.name))
            .args(["--listen-client-urls", &listen, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--listen-metrics-urls", &format!("http://127.0.0.1:{}", member.health)])
            .args(["--initial-cluster", &peers.join(",")])
            .args(["--heartbeat-interval", heartbeat_ms, "--election-timeout", election_ms])
            .args(["--bcrypt-cost", "4", "--logger", "zap", "--log-level", "warn"]);
        if let Some(bytes) = self.setup.quota_bytes {
            command.args(["--quota-backend-bytes", &bytes.to_string()]);
        }
        if self.setup.tls {
            command.arg("--cert-file").arg(dir.join("server.pem"));
            command.arg("--key-file").arg(dir.join("server.key"));
        }
        let log = dir.join(format!("{}.log", member.name));
        let process = Process::start(&mut command, &log);
        self.members[number].process = Some(process);
    }

    /// False if it ended because somebody else has its port.
    #[expect(clippy::disallowed_methods, reason = "a foreign server starts in real time")]
    fn await_ready(&mut self, number: usize) -> bool {
        let begin = Instant::now();
        let member = &mut self.members[number];
        let health = member.health;
        let process = member.process.as_mut().expect("it was started");
        while !get(health, "/health").is_some_and(|text| text.contains("\"health\":\"true\"")) {
            if !process.is_running() {
                let log = process.log();
                assert!(log.contains("address already in use"), "etcd has ended:\n{log}");
                return false;
            }
            assert!(begin.elapsed() < START_MAX, "etcd does not start:\n{}", process.log());
            // Nothing tells when a foreign server is ready: asking is the only way.
            std::thread::sleep(Duration::from_millis(10));
        }
        true
    }

    fn set_password(&mut self) {
        let Some(password) = self.setup.password.clone() else { return };
        for command in [
            &["user", "add", &format!("root:{password}")] as &[&str],
            &["user", "grant-role", "root", "root"],
            &["role", "add", "wb"],
            &["role", "grant-permission", "wb", "--prefix=true", "readwrite", "watchbell/"],
            &["user", "add", &format!("wb:{password}")],
            &["user", "grant-role", "wb", "wb"],
            &["user", "add", &format!("nobody:{password}")],
            &["auth", "enable"],
        ] {
            let done = self.ctl_without_password(command);
            assert!(done.status.success(), "{command:?}: {done:?}");
        }
    }

    /// `etcdctl` with these arguments, as root where passwords are needed.
    pub fn ctl(&self, arguments: &[&str]) -> String {
        self.try_ctl(arguments).unwrap_or_else(|why| panic!("etcdctl {arguments:?}: {why}"))
    }

    /// The same, where an error is what a test waits for.
    pub fn try_ctl(&self, arguments: &[&str]) -> Result<String, String> {
        let user = self.setup.password.iter().map(|password| format!("--user=root:{password}"));
        let arguments: Vec<_> =
            user.chain(arguments.iter().map(|&argument| argument.to_owned())).collect();
        let done = self.ctl_without_password(&arguments);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if done.status.success() { Ok(text(&done.stdout)) } else { Err(text(&done.stderr)) }
    }

    /// Makes all tokens invalid, as time does.
    pub fn forget_tokens(&self) {
        self.ctl(&["auth", "disable"]);
        let done = self.ctl_without_password(&["auth", "enable"]);
        assert!(done.status.success(), "{done:?}");
    }

    fn ctl_without_password<S: AsRef<std::ffi::OsStr>>(&self, arguments: &[S]) -> Output {
        let endpoints: Vec<_> = self
            .members
            .iter()
            .map(|member| format!("{}://127.0.0.1:{}", self.scheme(), member.client))
            .collect();
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").env("ETCDCTL_ENDPOINTS", endpoints.join(","));
        if self.setup.tls {
            command.env("ETCDCTL_CACERT", self.ca());
        }
        command.args(arguments).output().unwrap_or_else(|why| {
            panic!("etcdctl does not start ({why}): install it with scripts/need test")
        })
    }

    /// All members as a URL has them.
    pub fn hosts(&self) -> String {
        let hosts: Vec<_> =
            (0..self.len()).map(|number| self.address(number).to_string()).collect();
        hosts.join(",")
    }

    /// How many members there are.
    #[expect(clippy::len_without_is_empty, reason = "there is at least one")]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Where clients of a member go.
    pub fn address(&self, number: usize) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.members[number].client).into()
    }

    /// The issuer of its certificates.
    pub fn ca(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    /// Where tests may put files that end with it.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The member that leads, once there is one.
    #[expect(clippy::disallowed_methods, reason = "a foreign server elects in real time")]
    pub fn leader(&self) -> usize {
        let begin = Instant::now();
        loop {
            let leads = |member: &Member| {
                get(member.health, "/metrics")
                    .is_some_and(|text| text.contains("\netcd_server_is_leader 1"))
            };
            if let Some(leader) = self.members.iter().position(leads) {
                return leader;
            }
            assert!(begin.elapsed() < START_MAX, "no leader is elected");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Kills a member by kill -9.
    pub fn kill(&mut self, number: usize) {
        self.members[number].process = None;
    }

    /// kill -9 of all of them, and all that they hold: as if they had never been. To be started again.
    pub fn forget(&mut self) {
        for member in &mut self.members {
            member.process = None;
            std::fs::remove_dir_all(self.dir.path().join(&member.name)).expect("it has data");
        }
    }

    /// SIGSTOP: it does nothing until it is woken.
    pub fn pause(&self, number: usize) {
        self.signal(number, Signal::STOP);
    }

    /// Lets a member that was paused go on.
    pub fn wake(&self, number: usize) {
        self.signal(number, Signal::CONT);
    }

    fn signal(&self, number: usize, signal: Signal) {
        self.members[number].process.as_ref().expect("it runs").signal(signal);
    }

    fn scheme(&self) -> &'static str {
        if self.setup.tls { "https" } else { "http" }
    }
}

/// The body of an answer over plain HTTP, if there is one.
fn get(port: u16, path: &str) -> Option<String> {
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&at, Duration::from_secs(1)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}
