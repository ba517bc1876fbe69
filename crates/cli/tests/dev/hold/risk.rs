//! Assumptions that are seen broken: each is told in the log, as a transition, in the metrics, by the events and metrics of a server on
//! the same store, and by `watchbell election show`.

use std::process::Stdio;
use std::time::Duration;

use client::Events;
use client::event::EventKind;
use rig::machine;
use rig::redis::{Redis, Setup};
use store::machine::{Machine, System};
use tempfile::TempDir;
use tokio::time::timeout;

use super::super::command::said;
use super::super::server::{Server, key_file};
use super::blow::{Crew, send};
use super::clock::{Clocks, killed_at};
use super::*;

/// A store, a server on it, and somebody who follows its events.
struct Scene {
    dir: TempDir,
    redis: Redis,
    server: Server,
    events: Events,
}

impl Scene {
    async fn begin(setup: Setup) -> Self {
        let (dir, redis) = (tempfile::tempdir().unwrap(), setup.start());
        let server = Server::start_on(&redis.url(), &dir.path().join("server")).await;
        let events = server.client().events().await.unwrap();
        Self { dir, redis, server, events }
    }

    /// Somebody who holds a program that runs for as long as this scene is there, whoever ends it or not.
    fn hold(&self, flags: &[&str]) -> Holder {
        self.hold_by(Command::new(WATCHBELL), flags)
    }

    fn hold_by(&self, mut command: Command, flags: &[&str]) -> Holder {
        let program = "while test -d $SCENE; do sleep 0.02; done";
        command.args(["hold", NAME, "--node", "anna", "--output", "json"]).args(flags);
        command.args(["--metrics", "127.0.0.1:0", "--lock-dir"]);
        command.arg(self.dir.path().join("anna.locks")).args(["--", "sh", "-c", program]);
        command.env("WATCHBELL_STORE", self.redis.url()).env("SCENE", self.dir.path());
        Holder::spawn(command, self.dir.path(), "anna")
    }

    /// Waits until everybody tells that this assumption was seen broken.
    async fn is_told(&mut self, anna: &Holder, reason: &str) {
        self.is_told_here(anna, reason).await;
        self.is_told_by_server(anna, reason).await;
        self.is_shown(anna, reason).await;
    }

    /// By whoever has seen it.
    async fn is_told_here(&self, anna: &Holder, reason: &str) {
        until(&format!("{reason} is told:\n{}", anna.log()), PATIENCE, || async {
            whats(anna, reason).first().map(|_| ())
        })
        .await;
        let field = format!("reason={reason}");
        let log = anna.logs(&field).await;
        let line = log.lines().find(|line| line.contains(&field)).unwrap();
        let words = ["WARN", "at most one is at risk", &whats(anna, reason)[0]];
        assert!(words.iter().all(|word| line.contains(word)), "{line}");
        let name = format!("watchbell_hold_at_most_one_at_risk_total{{reason=\"{reason}\"}}");
        assert!(anna.metric(&name).await >= 1);
    }

    /// By a server, which tells what it finds in the store.
    async fn is_told_by_server(&mut self, anna: &Holder, reason: &str) {
        let event = async {
            loop {
                let event = self.events.next().await.unwrap().what;
                if let EventKind::HoldAtRisk { name, node, reason: seen, what } = event
                    && seen.as_str() == reason
                {
                    return (name, node, what);
                }
            }
        };
        let event = timeout(PATIENCE, event).await.expect("an event tells of it");
        assert_eq!((&*event.0, &*event.1), (NAME, "anna"));
        assert!(whats(anna, reason).contains(&event.2), "{event:?}");
        let page = self.server.ask("GET", "/metrics").send().await.is(200).text;
        let name = format!("watchbell_hold_at_risk_total{{reason=\"{reason}\"}} ");
        assert!(page.lines().any(|line| line.starts_with(&name)), "{page}");
    }

    /// By `watchbell election show`.
    async fn is_shown(&self, anna: &Holder, reason: &str) {
        let line = until(&format!("{reason} is shown"), PATIENCE, || async {
            let shown = self.show().await;
            shown.lines().find(|line| line.contains(reason)).map(str::to_owned)
        })
        .await;
        println!("{line}");
        assert!(whats(anna, reason).iter().any(|what| line.ends_with(what)), "{line}");
    }

    /// What a person sees.
    async fn show(&self) -> String {
        let mut command = Command::new(WATCHBELL);
        command.args(["election", "show", NAME, "--server", &self.server.url(), "--key-file"]);
        command.arg(key_file(&self.dir.path().join("server"))).stdin(Stdio::null());
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await;
        said(&output.unwrap(), 0).0
    }
}

/// What was seen each time that this assumption was seen broken, as its transition told.
fn whats(anna: &Holder, reason: &str) -> Vec<String> {
    let told = anna.events().into_iter();
    let told = told.filter(|told| told["event"] == "at_risk" && told["reason"] == reason);
    told.map(|told| told["what"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn that_a_kill_is_weak_is_told_everywhere() {
    let _machine = machine::waits().await;
    let mut scene = Scene::begin(Setup::durable()).await;
    let anna = scene.hold(&[&STEADY[..], &["--isolate", "group"]].concat());
    scene.is_told(&anna, "weak_kill").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn that_two_clocks_of_a_machine_do_not_agree_is_told_everywhere() {
    let _machine = machine::waits().await;
    let (mut scene, clocks) = (Scene::begin(Setup::durable()).await, Clocks::new());
    let mut command = Command::new(WATCHBELL);
    clocks.rule(&mut command);
    let anna = scene.hold_by(command, &STEADY);
    anna.runs().await;
    assert_eq!(anna.count("at_risk"), 0, "{}", anna.log());
    clocks.quicken_boot(5);
    scene.is_told(&anna, "clock_rates").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn that_a_program_was_killed_late_is_told_everywhere() {
    let _machine = machine::waits().await;
    let mut scene = Scene::begin(Setup::durable()).await;
    let anna = scene.hold(&["--ttl", "2s"]);
    anna.runs().await;
    let Crew { supervisor, launch, shim, .. } = Crew::of(&anna);
    // Nobody else campaigns, so nobody else runs it meanwhile.
    send([Some(supervisor), launch, shim], Signal::STOP);
    let late = Duration::from_millis(500);
    let kill_at = Duration::from_millis(killed_at(scene.dir.path(), "anna").unwrap().boot_ms);
    until("the program should have been killed some time ago", PATIENCE, || async {
        (System.reading().boot > kill_at + late).then_some(())
    })
    .await;
    send([launch, shim, Some(supervisor)], Signal::CONT);
    scene.is_told(&anna, "slow_kill").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn that_both_guards_were_killed_is_told_everywhere_and_nothing_is_started() {
    let _machine = machine::waits().await;
    let mut scene = Scene::begin(Setup::durable()).await;
    // Where a namespace binds the tree, the kernel ends it with the shim.
    let anna = scene.hold(&[&STEADY[..], &["--isolate", "group"]].concat());
    anna.runs().await;
    let Crew { launch, shim, program, .. } = Crew::of(&anna);
    send([launch, shim], Signal::KILL);
    anna.event("lost", 1).await;
    assert!(Guard(program.unwrap()).is_there(), "nobody ends it");
    scene.is_told(&anna, "guards_killed").await;
    assert!(Guard(program.unwrap()).is_there(), "nobody has ended it");
    assert_eq!(anna.count("running"), 1, "{}", anna.log());
    assert_eq!(anna.count("given_up"), 0, "{}", anna.log());
}

/// One of class B that comes back, as another one in its place would: it cannot say what it has forgotten. A server on the same
/// store begins anew then as well, and takes what it finds for known.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn that_a_store_may_have_forgotten_is_told() {
    let _machine = machine::waits().await;
    let setup = Setup::new().set("appendonly", "yes").set("appendfsync", "everysec");
    let mut scene = Scene::begin(setup).await;
    let anna = scene.hold(&["--ttl", "3s"]);
    let guard = anna.runs().await;
    tokio::task::block_in_place(|| scene.redis.restart());
    guard.is_gone().await;
    scene.is_told_here(&anna, "forgetful_store").await;
    anna.event("running", 2).await;
    scene.is_shown(&anna, "forgetful_store").await;
}
