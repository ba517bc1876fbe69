//! Postgres for tests: one server, its standbys, and a pooler in front.
//!
//! Making a database system takes seconds, so it is made once per process and copied. The superuser is `postgres`, with
//! [`PASSWORD`]; what a test says in SQL it says over a socket that asks for none.

use std::fs::{self, OpenOptions, Permissions};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::process::NOBODY;
use crate::{Process, directory, free_port, is_root};

/// Of the superuser.
pub const PASSWORD: &str = "canary-7f3a";

/// Where Debian has the programs of its versions.
const VERSIONS: &str = "/usr/lib/postgresql";

/// A server that tests may treat badly. Killed when dropped, with its data.
pub struct Postgres {
    dir: TempDir,
    port: u16,
    process: Option<Process>,
    /// Kept for others to copy.
    template: Arc<TempDir>,
}

impl Postgres {
    /// Starts one with these lines of configuration.
    pub fn start(settings: &[&str]) -> Self {
        let dir = own_directory();
        let template = template();
        run(&dir, Command::new("cp").arg("-a").arg(template.path().join("data")).arg(dir.path()));
        Self::on(dir, template, settings)
    }

    /// A standby of this one, which follows it and takes no writes.
    #[must_use]
    pub fn standby(&self, settings: &[&str]) -> Self {
        let dir = own_directory();
        let mut copy = Command::new(program("pg_basebackup"));
        copy.args([
            "--checkpoint=fast",
            "--no-sync",
            "--write-recovery-conf",
            "--wal-method=stream",
        ])
        .arg("--host")
        .arg(self.dir.path())
        .args(["--port", &self.port.to_string(), "--username=postgres", "--pgdata"])
        .arg(dir.path().join("data"));
        run(&dir, &mut copy);
        Self::on(dir, Arc::clone(&self.template), settings)
    }

    fn on(dir: TempDir, template: Arc<TempDir>, settings: &[&str]) -> Self {
        let mut server = Self { dir, port: free_port(), process: None, template };
        let mut config = OpenOptions::new()
            .append(true)
            .open(server.data().join("postgresql.conf"))
            .expect("there is a configuration");
        // Small and quick to start; tests say so where they want another.
        let common = [
            "listen_addresses = '127.0.0.1'",
            "shared_buffers = 16MB",
            "max_wal_size = 256MB",
            "logging_collector = off",
            "autovacuum_naptime = 1h",
        ];
        for line in common.iter().chain(settings) {
            writeln!(config, "{line}").expect("it can be written");
        }
        server.bring_up();
        server
    }

    /// Starts it on the data that it has.
    pub fn bring_up(&mut self) {
        assert!(self.process.is_none(), "it runs");
        let mut command = Command::new(program("postgres"));
        command
            .arg("-D")
            .arg(self.data())
            .arg("-k")
            .arg(self.dir.path())
            .args(["-p", &self.port.to_string()])
            .process_group(0);
        Process::humbly(&mut command, &self.dir);
        let mut process = Process::start(&mut command, &self.dir.path().join("log"));
        let (socket, port) = (self.dir.path().to_owned(), self.port);
        process.await_ready(|| {
            let mut ask = Command::new(program("pg_isready"));
            ask.arg("-q").arg("-h").arg(&socket).args(["-p", &port.to_string()]);
            ask.status().is_ok_and(|status| status.success())
        });
        self.process = Some(process);
    }

    /// kill -9 of all of its processes.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let children = Self::signal_all(&process, Signal::KILL);
            process.kill();
            // Until the last one is gone the data are in use.
            for child in children {
                while is_alive(child) {
                    std::thread::yield_now();
                }
            }
        }
    }

    /// A clean stop that waits for nobody.
    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.signal(Signal::INT);
            process.await_end();
        }
    }

    /// Nothing of it does anything until it is woken.
    pub fn pause(&self) {
        Self::signal_all(self.process.as_ref().expect("it runs"), Signal::STOP);
    }

    /// It goes on.
    pub fn wake(&self) {
        Self::signal_all(self.process.as_ref().expect("it runs"), Signal::CONT);
    }

    /// Each process of a server leads a group of its own, so the children are asked for, while their parent stands still
    /// and makes no more.
    fn signal_all(process: &Process, signal: Signal) -> Vec<u32> {
        process.pause();
        let children = children(process.id());
        for child in &children {
            let child = Pid::from_raw(i32::try_from(*child).expect("a process id"));
            let _ = kill_process(child.expect("not 0"), signal);
        }
        process.signal(signal);
        children
    }

    /// Says something in SQL as the superuser, in the database `postgres`, and returns what it answers.
    pub fn sql(&self, text: &str) -> String {
        self.sql_in("postgres", text)
    }

    /// The same in another database.
    pub fn sql_in(&self, database: &str, text: &str) -> String {
        let mut command = Command::new(program("psql"));
        command
            .args([
                "--no-psqlrc",
                "--quiet",
                "--tuples-only",
                "--no-align",
                "--set=ON_ERROR_STOP=1",
            ])
            .arg("--host")
            .arg(self.dir.path())
            .args(["--port", &self.port.to_string(), "--username=postgres", "--dbname", database])
            .args(["--command", text]);
        let output = command.output().expect("psql starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}: {said}\n{}", self.log());
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Makes a standby the primary.
    pub fn promote(&self) {
        assert_eq!(self.sql("SELECT pg_promote()"), "t", "{}", self.log());
    }

    /// Who connects over the network, and how: lines of `pg_hba.conf`, in the place of those there were.
    pub fn admit(&self, lines: &[&str]) {
        let lines =
            format!("local all all trust\nlocal replication all trust\n{}\n", lines.join("\n"));
        self.put("data/pg_hba.conf", lines.as_bytes());
        self.sql("SELECT pg_reload_conf()");
    }

    /// Speaks TLS from now on, with a certificate for this name, and returns the file of its issuer's.
    pub fn speak_tls(&self, name: &str) -> PathBuf {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
        self.put("data/server.crt", made.cert.pem().as_bytes());
        self.put("data/server.key", made.signing_key.serialize_pem().as_bytes());
        self.sql("ALTER SYSTEM SET ssl = on");
        self.sql("SELECT pg_reload_conf()");
        let issuer = self.dir.path().join("issuer.pem");
        fs::write(&issuer, made.cert.pem()).expect("it can be written");
        issuer
    }

    /// Writes a file that the server may read and nobody else.
    fn put(&self, name: &str, content: &[u8]) {
        let path = self.dir.path().join(name);
        fs::write(&path, content).expect("it can be written");
        give_away(&path, 0o600);
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The URL of its database `postgres`.
    pub fn url(&self) -> String {
        self.url_at(self.address())
    }

    /// The same by another road.
    pub fn url_at(&self, address: SocketAddr) -> String {
        format!("postgres://postgres:{PASSWORD}@{address}/postgres")
    }

    /// What it has said.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A pooler that hands a server's connections from client to client, after each transaction.
pub struct PgBouncer {
    _dir: TempDir,
    port: u16,
    _process: Process,
}

impl PgBouncer {
    /// In front of this server.
    pub fn before(server: &Postgres) -> Self {
        let dir = own_directory();
        let port = free_port();
        let config = format!(
            "[databases]\n* = host=127.0.0.1 port={} user=postgres password={PASSWORD}\n[pgbouncer]\n\
             listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = plain\n\
             auth_file = {}\npool_mode = transaction\nmax_client_conn = 200\ndefault_pool_size = 8\n",
            server.port,
            dir.path().join("users").display(),
        );
        for (name, content) in
            [("config", config), ("users", format!("\"postgres\" \"{PASSWORD}\"\n"))]
        {
            let path = dir.path().join(name);
            fs::write(&path, content).expect("it can be written");
            give_away(&path, 0o600);
        }
        let mut command = Command::new("pgbouncer");
        command.arg(dir.path().join("config"));
        Process::humbly(&mut command, &dir);
        let mut process = Process::start(&mut command, &dir.path().join("log"));
        process.await_ready(|| std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
        Self { _dir: dir, port, _process: process }
    }

    /// The URL of the database `postgres` behind it.
    pub fn url(&self) -> String {
        format!("postgres://postgres:{PASSWORD}@127.0.0.1:{}/postgres", self.port)
    }
}

/// A system to copy: made once for all that run at a time, and gone with the last of them.
fn template() -> Arc<TempDir> {
    static TEMPLATE: Mutex<Weak<TempDir>> = Mutex::new(Weak::new());
    let mut made = TEMPLATE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(template) = made.upgrade() {
        return template;
    }
    let dir = own_directory();
    let password = dir.path().join("password");
    fs::write(&password, PASSWORD).expect("it can be written");
    give_away(&password, 0o600);
    let mut initdb = Command::new(program("initdb"));
    initdb
        .args(["--no-sync", "--no-locale", "--encoding=UTF8", "--username=postgres"])
        .args(["--auth-local=trust", "--auth-host=scram-sha-256", "--pwfile"])
        .arg(&password)
        .arg("--pgdata")
        .arg(dir.path().join("data"));
    run(&dir, &mut initdb);
    let template = Arc::new(dir);
    *made = Arc::downgrade(&template);
    template
}

/// A directory of the user that servers run as.
fn own_directory() -> TempDir {
    let dir = directory();
    give_away(dir.path(), 0o700);
    dir
}

fn give_away(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
    if is_root() {
        chown(path, Some(NOBODY), Some(NOBODY)).expect("root may give a file away");
    }
}

fn run(dir: &TempDir, command: &mut Command) {
    Process::humbly(command, dir);
    let output = command.output().unwrap_or_else(|why| {
        panic!("{command:?} does not start ({why}): install it with scripts/need test")
    });
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// One of the programs of the newest version that is installed.
fn program(name: &str) -> PathBuf {
    let versions = fs::read_dir(VERSIONS).into_iter().flatten().flatten().map(|entry| entry.path());
    let number = |path: &PathBuf| -> u32 {
        path.file_name().and_then(|name| name.to_str()?.parse().ok()).unwrap_or_default()
    };
    let newest = versions.filter(|path| path.join("bin/postgres").exists()).max_by_key(number);
    let dir = newest.unwrap_or_else(|| {
        panic!("no Postgres below {VERSIONS}: install it with scripts/need test")
    });
    dir.join("bin").join(name)
}

/// Whether a process does something still; one that waits to be buried does not.
fn is_alive(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

/// The processes whose parent this is.
fn children(parent: u32) -> Vec<u32> {
    let path = format!("/proc/{parent}/task/{parent}/children");
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().filter_map(|number| number.parse().ok()).collect()
}
