//! Redis for tests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::{Process, directory, free_port};

/// No command of a test takes as long.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// A Redis that is to be.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    settings: Vec<(String, String)>,
    password: Option<String>,
    has_tls: bool,
}

impl Setup {
    /// Without password, and forgetful: no append-only file, and a snapshot only when it is told to save.
    pub fn new() -> Self {
        Self::default().set("save", "").set("appendonly", "no")
    }

    /// One that syncs what it acknowledges.
    pub fn durable() -> Self {
        Self::new().set("appendonly", "yes").set("appendfsync", "always")
    }

    /// A line of its configuration. The last one of a name holds.
    #[must_use]
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The password of the default user.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self.set("requirepass", password)
    }

    /// A replica of another one.
    #[must_use]
    pub fn replica_of(self, master: &Redis) -> Self {
        let port = master.port.to_string();
        self.set("replicaof", &format!("127.0.0.1 {port}"))
    }

    /// Speaks TLS as well, on a port of its own.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.has_tls = true;
        self
    }

    /// Starts it, and waits until it answers.
    pub fn start(self) -> Redis {
        let dir = directory();
        let tls_port = self.has_tls.then(|| write_certificate(&dir));
        let (port, log) = (free_port(), dir.path().join("log"));
        let process = Process::start(&mut command(&self, &dir, port, tls_port), &log);
        let mut redis = Redis { process, setup: self, port, tls_port, dir };
        redis.await_ready();
        redis
    }
}

/// A running Redis. Killed when dropped, with its data.
pub struct Redis {
    process: Process,
    setup: Setup,
    port: u16,
    tls_port: Option<u16>,
    dir: TempDir,
}

impl Redis {
    /// Its URL, with the password.
    pub fn url(&self) -> String {
        self.url_at(self.address())
    }

    /// The same by another way, such as a [`crate::Road`].
    pub fn url_at(&self, address: SocketAddr) -> String {
        let who = self.setup.password.as_ref().map(|word| format!(":{word}@")).unwrap_or_default();
        format!("redis://{who}{address}/0")
    }

    /// Its URL with TLS.
    pub fn tls_url(&self) -> String {
        let who = self.setup.password.as_ref().map(|word| format!(":{word}@")).unwrap_or_default();
        format!("rediss://{who}127.0.0.1:{}/0", self.tls_port.expect("set up with TLS"))
    }

    /// The certificate that it shows, which is its own issuer.
    pub fn ca(&self) -> PathBuf {
        self.dir.path().join("cert.pem")
    }

    /// Where it listens without TLS.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Where it listens with TLS.
    pub fn tls_address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.tls_port.expect("set up with TLS")).into()
    }

    /// What it answers to a command, as text; an error begins with a minus sign.
    ///
    /// # Panics
    ///
    /// If it does not answer.
    pub fn ask(&self, words: &[&str]) -> String {
        self.try_ask(words).unwrap_or_else(|why| panic!("{words:?}: {why}\n{}", self.process.log()))
    }

    /// kill -9, and waits until it is gone.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again on the data that it left, and waits until it answers.
    pub fn restart(&mut self) {
        self.process.kill();
        let log = self.dir.path().join("log");
        let mut command = command(&self.setup, &self.dir, self.port, self.tls_port);
        self.process = Process::start(&mut command, &log);
        self.await_ready();
    }

    /// Takes its directory away, so that it can save nothing any longer, whoever it runs as.
    pub fn lose_directory(&self) {
        std::fs::remove_dir_all(self.dir.path()).expect("it is ours");
    }

    /// SIGSTOP: it does nothing until it is woken.
    pub fn pause(&self) {
        self.process.pause();
    }

    /// Lets it go on after a pause.
    pub fn wake(&self) {
        self.process.wake();
    }

    fn await_ready(&mut self) {
        let (address, password) = (self.address(), self.setup.password.clone());
        self.process.await_ready(|| {
            let pong = ask(address, password.as_deref(), &["PING"]);
            // A replica whose master is slow and a server that needs another user's password are up as well.
            pong.is_ok_and(|pong| !pong.starts_with("-LOADING"))
        });
    }

    fn try_ask(&self, words: &[&str]) -> std::io::Result<String> {
        ask(self.address(), self.setup.password.as_deref(), words)
    }
}

fn command(setup: &Setup, dir: &TempDir, port: u16, tls_port: Option<u16>) -> Command {
    let mut command = Command::new("redis-server");
    command.current_dir(dir.path());
    let path = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
    let mut set = |name: &str, value: &str| {
        command.arg(format!("--{name}"));
        command.args(value.split(' '));
    };
    set("bind", "127.0.0.1");
    set("port", &port.to_string());
    set("dir", &path(""));
    if let Some(port) = tls_port {
        set("tls-port", &port.to_string());
        set("tls-cert-file", &path("cert.pem"));
        set("tls-key-file", &path("key.pem"));
        set("tls-auth-clients", "no");
    }
    for (name, value) in &setup.settings {
        set(name, value);
    }
    command
}

/// Returns a port for it.
fn write_certificate(dir: &TempDir) -> u16 {
    let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
    let write = |name: &str, text: String| {
        std::fs::write(dir.path().join(name), text).expect("the directory is ours");
    };
    write("cert.pem", made.cert.pem());
    write("key.pem", made.signing_key.serialize_pem());
    free_port()
}

/// The smallest client that there can be: one connection, one command.
fn ask(address: SocketAddr, password: Option<&str>, words: &[&str]) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_MAX)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    if let Some(password) = password {
        write(&mut stream, &["AUTH", password])?;
        read(&mut reader)?;
    }
    write(&mut stream, words)?;
    read(&mut reader)
}

fn write(stream: &mut TcpStream, words: &[&str]) -> std::io::Result<()> {
    let mut text = format!("*{}\r\n", words.len());
    for word in words {
        text.extend(["$", &word.len().to_string(), "\r\n", word, "\r\n"]);
    }
    stream.write_all(text.as_bytes())
}

fn read(reader: &mut BufReader<TcpStream>) -> std::io::Result<String> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    let line = line.trim_end();
    let (kind, rest) = line.split_at(line.len().min(1));
    let count: i64 = rest.parse().unwrap_or(0);
    match kind {
        "$" if count >= 0 => {
            let mut bytes = vec![0; usize::try_from(count).expect("not negative") + 2];
            reader.read_exact(&mut bytes)?;
            bytes.truncate(bytes.len() - 2);
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        }
        "*" => {
            let items: Result<Vec<_>, _> = (0..count).map(|_| read(reader)).collect();
            Ok(items?.join("\n"))
        }
        "-" => Ok(line.to_owned()),
        _ => Ok(rest.to_owned()),
    }
}
