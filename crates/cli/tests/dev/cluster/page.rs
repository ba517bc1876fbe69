//! The page about clusters, typed as a stranger would: every line of its first chapter, on each engine.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rig::etcd::Etcd;
use rig::postgres::Postgres;
use rig::{PATIENCE, machine, redis, until};
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::super::process::WATCHBELL;

const PAGE: &str = include_str!("../../../../../docs/clusters.md");

/// The ports that the page uses, each of which is another one here.
const PORTS: [&str; 3] = ["7401", "7402", "7403"];

/// What is typed in the chapter, line by line.
fn lines() -> Vec<&'static str> {
    let chapter = PAGE.split("\n## ").find(|part| part.starts_with("From one server")).unwrap();
    chapter.lines().filter_map(|line| line.strip_prefix("    ")).collect()
}

/// Somebody who types.
struct Stranger {
    dir: TempDir,
    settings: BTreeMap<String, String>,
    ports: BTreeMap<&'static str, u16>,
    /// Servers, in the order in which they were started.
    servers: Vec<Child>,
}

impl Stranger {
    fn new(store: &str) -> Self {
        let ports = PORTS.into_iter().map(|page| (page, rig::free_port())).collect();
        let settings = BTreeMap::from([("WATCHBELL_STORE".to_owned(), store.to_owned())]);
        Self { dir: tempfile::tempdir().unwrap(), settings, ports, servers: Vec::new() }
    }

    async fn types(&mut self, line: &str) {
        let mut line = line.to_owned();
        for (page, here) in &self.ports {
            line = line.replace(&format!("127.0.0.1:{page}"), &format!("127.0.0.1:{here}"));
        }
        let words = words(&line);
        match words[0].as_str() {
            "export" => {
                let (name, value) = words[1].split_once('=').unwrap();
                // Where the store is was told by the test.
                self.settings.entry(name.to_owned()).or_insert_with(|| value.to_owned());
            }
            "kill" => {
                let mut server = self.servers.remove(0);
                server.kill().unwrap();
                server.wait().unwrap();
            }
            "watchbell" if words[1] == "server" => self.starts(&words[1..]).await,
            "watchbell" => self.runs(&words[1..]).await,
            other => panic!("nobody knows how to type {other:?}"),
        }
    }

    fn command(&self, words: &[String]) -> Command {
        let mut command = Command::new(WATCHBELL);
        command.current_dir(self.dir.path()).args(words).envs(&self.settings).stdin(Stdio::null());
        command
    }

    async fn starts(&mut self, words: &[String]) {
        let log = self.dir.path().join(format!("server-{}", self.servers.len()));
        let mut command = self.command(words);
        let (out, err) =
            (fs::File::create(&log).unwrap(), fs::File::create(with_err(&log)).unwrap());
        self.servers.push(command.stdout(out).stderr(err).spawn().unwrap());
        until("the server listens", PATIENCE, || async {
            let said = fs::read_to_string(&log).unwrap();
            said.contains("listens on").then_some(())
        })
        .await;
    }

    /// Runs it until it is fine: who reads the page may have to look twice.
    async fn runs(&self, words: &[String]) {
        let words: &[String] = words;
        let said = until(&format!("{words:?} is fine"), PATIENCE, || async {
            let output = blocking(|| self.command(words).output().unwrap());
            output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
        })
        .await;
        println!("$ watchbell {}\n{said}", words.join(" "));
    }

    /// How many servers the second one knows of.
    fn servers_told(&self) -> usize {
        let at = SocketAddr::from(([127, 0, 0, 1], self.ports["7402"]));
        let words = format!("cluster status --output json --server http://{at}");
        let output = blocking(|| self.command(&self::words(&words)).output().unwrap());
        let told = serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap_or_default();
        told["nodes"].as_array().map_or(0, Vec::len)
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        for server in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

fn with_err(log: &Path) -> std::path::PathBuf {
    log.with_extension("err")
}

/// The words of a line, as a shell would read it.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut is_quoted) = (Vec::new(), String::new(), false);
    for char in line.chars() {
        match char {
            '\'' => is_quoted = !is_quoted,
            ' ' if !is_quoted => words.push(std::mem::take(&mut word)),
            char => word.push(char),
        }
    }
    words.push(word);
    words.into_iter().filter(|word| !word.is_empty()).collect()
}

async fn walk(store: &str) {
    let mut stranger = Stranger::new(store);
    for line in lines() {
        let is_kill = line.starts_with("kill");
        if is_kill {
            until("three servers are told", PATIENCE, || async {
                (stranger.servers_told() == 3).then_some(())
            })
            .await;
        }
        stranger.types(line).await;
        if is_kill {
            until("two servers are left", PATIENCE, || async {
                (stranger.servers_told() == 2).then_some(())
            })
            .await;
        }
    }
}

fn blocking<T>(work: impl FnOnce() -> T) -> T {
    tokio::task::block_in_place(work)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_goes_from_one_server_to_three_on_each_engine() {
    let _machine = machine::works().await;
    for scheme in ["etcd://", "postgres://", "redis://"] {
        let line = format!("export WATCHBELL_STORE={scheme}");
        assert!(lines().iter().any(|typed| typed.starts_with(&line)), "the page has {scheme}");
    }
    let etcd = blocking(Etcd::one);
    let postgres = blocking(|| Postgres::start(&[]));
    let redis = blocking(|| redis::Setup::durable().start());
    let etcd_url = format!("etcd://{}/watchbell", etcd.hosts());
    let mut walks = JoinSet::new();
    for url in [etcd_url, postgres.url(), redis.url()] {
        walks.spawn(async move { walk(&url).await });
    }
    walks.join_all().await;
}
