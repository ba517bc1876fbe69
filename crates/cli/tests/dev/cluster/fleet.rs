//! Servers on one store.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use client::Client;
use client::spec::{CatchUp, TriggerSpec};
use engine::assignment::ranking;
use engine::id::ShardId;
use engine::limits::SHARDS_DEFAULT;
use rig::{Ask, PATIENCE, Road, Way, until};
use rustix::process::Signal;
use store::Store;
use store::clock::Stopwatch;
use store::ownership::{Ownership, owners};
use store::session::Roster;
use tempfile::TempDir;

use super::super::island::{self, Island, Lost};
use super::super::process::WATCHBELL;
use super::super::server::{Server, key_file};

/// Servers, by name.
pub(in crate::dev) struct Fleet {
    dir: TempDir,
    pub(in crate::dev) servers: BTreeMap<String, FleetServer>,
    pub(in crate::dev) admin: String,
    /// What all of them use, reached without any road.
    store: Store,
    /// What is started from now on.
    pub(in crate::dev) program: PathBuf,
}

/// A server that should run, and how to bring it back.
pub(in crate::dev) struct FleetServer {
    pub(in crate::dev) process: Option<Server>,
    store: String,
    listen: String,
    data: PathBuf,
    place: Place,
}

/// Where a server runs, and what lies between it and its store.
pub(in crate::dev) enum Place {
    /// Beside the test, with roads to its store, if any.
    Here(Vec<Road>),
    /// In a network of its own.
    Island(Island),
}

impl FleetServer {
    /// Starts it; it listens where it did before, from the first time on.
    async fn start(&mut self, program: &Path, name: &str) {
        let command = || match &self.place {
            Place::Here(_) => Command::new(program),
            Place::Island(island) => island.enter(program),
        };
        let more: &[&str] = match &self.place {
            Place::Here(_) => &[],
            Place::Island(_) => island::FLAGS,
        };
        let own = ["--node", name, "--listen", &self.listen];
        let flags = [&own, FLAGS, more];
        let server = Server::start_by(command, &self.store, &self.data, &flags).await;
        self.listen = server.address.to_string();
        self.process = Some(server);
    }
}

impl Fleet {
    /// Starts servers of these names, each on a store that it knows by a URL of its own, at its place.
    pub(in crate::dev) async fn start(store: &Store, servers: Vec<(&str, String, Place)>) -> Self {
        Self::start_by(Path::new(WATCHBELL), store, servers).await
    }

    async fn start_by(program: &Path, store: &Store, servers: Vec<(&str, String, Place)>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (running, admin, store) = (BTreeMap::new(), String::new(), store.clone());
        let mut fleet = Self { dir, servers: running, admin, store, program: program.to_owned() };
        for (name, store, place) in servers {
            let data = fleet.dir.path().join(name);
            // All have the same key, which the first one has made.
            if !fleet.admin.is_empty() {
                fs::write(key_file(&data), format!("{}\n", fleet.admin)).unwrap();
            }
            let listen = match &place {
                Place::Here(_) => "127.0.0.1:0".to_owned(),
                Place::Island(island) => format!("{}:0", island.address()),
            };
            let mut server = FleetServer { process: None, store, listen, data, place };
            server.start(&fleet.program, name).await;
            if fleet.admin.is_empty() {
                fleet.admin.clone_from(&server.process.as_ref().unwrap().admin);
            }
            fleet.servers.insert(name.to_owned(), server);
        }
        fleet
    }

    /// The same, with nothing between them and the store.
    pub(in crate::dev) async fn on(names: &[&str], url: &str, store: &Store) -> Self {
        Self::by(Path::new(WATCHBELL), names, url, store).await
    }

    /// The same, of a program that may be of another version.
    pub(in crate::dev) async fn by(
        program: &Path,
        names: &[&str],
        url: &str,
        store: &Store,
    ) -> Self {
        let servers = names.iter().map(|name| (*name, url.to_owned(), Place::Here(Vec::new())));
        Self::start_by(program, store, servers.collect()).await
    }

    pub(in crate::dev) fn names(&self) -> Vec<String> {
        self.servers.keys().cloned().collect()
    }

    /// Where a server listens, or will.
    pub(in crate::dev) fn url(&self, name: &str) -> String {
        format!("http://{}", self.servers[name].listen)
    }

    /// A client of this server that tries again what surely was not done.
    pub(in crate::dev) fn patient_client(&self, name: &str) -> Client {
        Client::builder(&self.url(name)).key(&self.admin).build().unwrap()
    }

    pub(in crate::dev) fn kill(&mut self, name: &str) {
        let mut server = self.servers.get_mut(name).unwrap().process.take().unwrap();
        server.kill();
    }

    pub(in crate::dev) fn signal(&self, name: &str, signal: Signal) {
        self.servers[name].process.as_ref().unwrap().signal(signal);
    }

    /// Stops it in order, and says how long that took.
    pub(in crate::dev) async fn stop(&mut self, name: &str) -> Duration {
        let begun = Stopwatch::start();
        self.servers.get_mut(name).unwrap().process.take().unwrap().stop().await;
        begun.elapsed()
    }

    pub(in crate::dev) async fn bring_back(&mut self, name: &str) {
        self.servers.get_mut(name).unwrap().start(&self.program, name).await;
    }

    /// What happens between a server and its store.
    pub(in crate::dev) fn roads(&self, name: &str, there: Way, back: Way) {
        let Place::Here(roads) = &self.servers[name].place else { panic!("{name} is elsewhere") };
        for road in roads {
            road.there(there);
            road.back(back);
        }
    }

    /// Which packets are lost between a server in a network of its own and its store.
    pub(in crate::dev) fn lose(&self, name: &str, lost: Lost) {
        let Place::Island(island) = &self.servers[name].place else { panic!("{name} is here") };
        island.lose(lost);
    }

    /// Waits until every shard has the owner that it should have, among those that run.
    pub(in crate::dev) async fn settled(&self) {
        let running = self.servers.iter().filter(|(_, server)| server.process.is_some());
        let running: Vec<&str> = running.map(|(name, _)| name.as_str()).collect();
        self.settled_among(&running).await;
    }

    /// Waits until every shard has the owner that it should have, among these.
    pub(in crate::dev) async fn settled_among(&self, running: &[&str]) {
        until("all shards have their owners", PATIENCE * 2, || async {
            let roster = Roster::read(&self.store).await.ok()?;
            let owners = owners(&self.store).await.ok()?;
            let is_right = |(shard, owner): (&ShardId, &Ownership)| {
                let owner = owner.session.as_ref().filter(|owner| roster.contains(owner));
                let should = ranking(*shard, running)[0];
                owner.is_some_and(|owner| owner.node().as_str() == should)
            };
            let all = owners.len() == usize::from(SHARDS_DEFAULT);
            (all && owners.iter().all(is_right)).then_some(())
        })
        .await;
    }

    /// Has a server hand over all that it has.
    pub(in crate::dev) async fn drain(&self, name: &str) {
        self.ask("POST", name).await;
    }

    /// Lets it have shards again.
    pub(in crate::dev) async fn undrain(&self, name: &str) {
        self.ask("DELETE", name).await;
    }

    /// Asks until it is answered well: it says how things shall be in the end, and a busy server may refuse it for now.
    async fn ask(&self, method: &str, name: &str) {
        let address = self.servers[name].listen.parse().unwrap();
        let path = format!("/v1/cluster/nodes/{name}/drain");
        until(&format!("{method} {path} is answered well"), PATIENCE, || async {
            let answer = Ask::new(address, method, &path).key(&self.admin).send().await;
            if answer.status / 100 != 2 {
                println!("{method} {path}: {}", answer.text);
                return None;
            }
            Some(())
        })
        .await;
    }

    /// All that a server has said, over all its lives.
    pub(in crate::dev) fn log(&self, name: &str) -> String {
        fs::read_to_string(self.servers[name].data.with_extension("log")).unwrap_or_default()
    }
}

/// Logs are read by the tests.
const FLAGS: &[&str] = &["--log-format", "json", "--log-level", "info"];

/// A trigger that rings every so many seconds; what was missed is made up for, however much it is.
pub(in crate::dev) fn bell(name: &str, url: &str, every: &str) -> TriggerSpec {
    let mut spec = TriggerSpec::webhook(name, url.to_owned()).every(every);
    spec.catch_up = Some(CatchUp::All);
    spec.catch_up_cap = Some(1_000);
    spec
}
