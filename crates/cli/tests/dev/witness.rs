//! `watchbell witness` and real signers: at once, one after another, stopped, and without a witness.

use std::path::Path;
use std::process::Command;

use rig::{Ask, PATIENCE, machine, until};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use super::actor::Actor;
use super::process::WATCHBELL;

/// A process of this name that is told this.
fn start(dir: &Path, name: &str, words: &[&str], variables: &[(&str, &str)]) -> Actor {
    let mut command = Command::new(WATCHBELL);
    command.args(words).envs(variables.iter().copied());
    Actor::spawn(command, dir, name)
}

/// A witness and the signers that it hears.
struct Scene {
    dir: TempDir,
    witness: Actor,
    at: String,
}

impl Scene {
    async fn begin(flags: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let words = ["witness", "--listen", "127.0.0.1:0", "--output", "json"];
        let witness = start(dir.path(), "witness", &[&words[..], flags].concat(), &[]);
        let log = witness.logs("a report\n").await;
        let at = log.split(['/', ' ', ';']).find(|word| word.starts_with("127.0.0.1:"));
        Self { at: at.unwrap_or_else(|| panic!("{log}")).to_owned(), dir, witness }
    }

    /// A signer of this name, as a hold starts it.
    fn signer(&self, node: &str, token: &str, flags: &[&str]) -> Actor {
        let words = [&["demo-signer", "--witness", &self.at, "--every", "10ms"], flags].concat();
        let variables =
            [("WATCHBELL_HOLD", "reports"), ("WATCHBELL_TOKEN", token), ("WATCHBELL_NODE", node)];
        start(self.dir.path(), node, &words, &variables)
    }

    async fn report(&self) -> Value {
        Ask::new(self.at.parse().unwrap(), "GET", "/report").send().await.is(200).json()
    }

    /// Waits until so many more ticks of this node were heard, and gives how many there are then.
    async fn heard(&self, node: &str, more: u64) -> u64 {
        let ticks = |report: &Value| {
            let instances = report["holds"][0]["instances"].as_array().cloned().unwrap_or_default();
            let last = instances.iter().rfind(|it| it["node"] == node).cloned();
            last.map_or(0, |it| it["counts"]["ticks"].as_u64().unwrap())
        };
        let least = ticks(&self.report().await) + more;
        until(&format!("{node} is heard"), PATIENCE, || async {
            Some(ticks(&self.report().await)).filter(|ticks| *ticks >= least)
        })
        .await
    }

    /// Ends the witness. Gives its exit code and its report.
    async fn end(&mut self) -> (Option<i32>, Value) {
        self.witness.signal(Signal::INT);
        let code = self.witness.ended().await.code();
        (code, serde_json::from_str(&self.witness.said()).unwrap())
    }
}

async fn two_at_once(road: &[&str]) {
    let _machine = machine::waits().await;
    let mut scene = Scene::begin(&[]).await;
    let first = scene.signer("a", "1", road);
    scene.heard("a", 5).await;
    let second = scene.signer("b", "2", road);
    scene.heard("b", 5).await;
    scene.heard("a", 5).await;
    scene.witness.logs("reports: OVERLAP: a/").await;
    drop((first, second));
    let (code, report) = scene.end().await;
    assert_eq!(code, Some(13), "{report:#}");
    assert_eq!(report["all_is_well"], false);
    let overlaps = report["overlaps"].as_array().unwrap();
    assert_eq!(overlaps.len(), 1, "{report:#}");
    assert_eq!(
        (&overlaps[0]["earlier"]["node"], &overlaps[0]["basis"]),
        (&"a".into(), &"machine".into())
    );
    assert!(overlaps[0]["length_us"].as_u64().unwrap() >= 40_000, "{report:#}");
    assert_eq!(report["tokens_back"][0]["lower"]["token"], 1, "{report:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_signers_at_once_are_an_overlap_and_an_exit_code() {
    two_at_once(&[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_signers_at_once_are_seen_by_http_as_well() {
    two_at_once(&["--http"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_signer_after_another_is_no_overlap() {
    let _machine = machine::waits().await;
    let mut scene = Scene::begin(&[]).await;
    for (node, token, road) in [("a", "1", &[][..]), ("b", "2", &["--http"]), ("b", "2", &[])] {
        let mut signer = scene.signer(node, token, road);
        scene.heard(node, 5).await;
        signer.stop().await;
    }
    let killed = scene.signer("c", "3", &[]);
    scene.heard("c", 5).await;
    drop(killed);
    let (code, report) = scene.end().await;
    assert_eq!((code, &report["all_is_well"]), (Some(0), &Value::Bool(true)), "{report:#}");
    let hold = &report["holds"][0];
    assert_eq!(hold["instances"].as_array().unwrap().len(), 4, "{hold:#}");
    assert_eq!((&hold["fail_overs"]["count"], &hold["restarts"]["count"]), (&2.into(), &1.into()));
    assert!(hold["fail_overs"]["longest_us"].as_u64().unwrap() > 0, "{hold:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signer_that_is_stopped_and_goes_on_beside_another_one_is_seen_by_its_first_tick() {
    let _machine = machine::waits().await;
    let mut scene = Scene::begin(&[]).await;
    let first = scene.signer("a", "1", &[]);
    scene.heard("a", 5).await;
    first.signal(Signal::STOP);
    let second = scene.signer("b", "2", &[]);
    scene.heard("b", 5).await;
    assert_eq!(scene.report().await["all_is_well"], true, "whoever is stopped does not act");
    first.signal(Signal::CONT);
    scene.witness.logs("OVERLAP").await;
    drop((first, second));
    assert_eq!(scene.end().await.0, Some(13));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signer_that_is_stopped_makes_up_no_ticks_for_that_time() {
    let _machine = machine::waits().await;
    let mut scene = Scene::begin(&["--gap", "500ms"]).await;
    let signer = scene.signer("a", "1", &[]);
    scene.heard("a", 5).await;
    signer.signal(Signal::STOP);
    until("nobody has acted for a while", PATIENCE, || async {
        let silent = scene.report().await["holds"][0]["silent_for_us"].as_u64().unwrap();
        (silent > 1_000_000).then_some(())
    })
    .await;
    signer.signal(Signal::CONT);
    scene.heard("a", 5).await;
    let (code, report) = scene.end().await;
    let hold = &report["holds"][0];
    assert_eq!(code, Some(0), "{report:#}");
    let longest =
        hold["gaps"].as_array().unwrap().iter().max_by_key(|gap| gap["length_us"].as_u64());
    let longest = longest.unwrap_or_else(|| panic!("{report:#}"));
    assert!(longest["length_us"].as_u64().unwrap() > 1_000_000, "{report:#}");
    assert_eq!((&longest["lost"], &hold["counts"]["lost"]), (&0.into(), &0.into()), "{report:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signer_outlives_its_witness_and_says_so() {
    let _machine = machine::waits().await;
    let mut scene = Scene::begin(&[]).await;
    let mut signer = scene.signer("a", "1", &["--http"]);
    scene.heard("a", 5).await;
    let (code, _) = scene.end().await;
    assert_eq!(code, Some(0));
    signer.logs("is away").await;
    signer.stop().await;
    assert_eq!(signer.log().matches("is away").count(), 1, "{}", signer.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_witness_ends_after_so_long_with_a_report_for_people() {
    let _machine = machine::waits().await;
    let dir = tempfile::tempdir().unwrap();
    let words = ["witness", "--listen", "127.0.0.1:0", "--udp", "127.0.0.1:0", "--for", "100ms"];
    let mut witness = start(dir.path(), "witness", &words, &[]);
    assert_eq!(witness.ended().await.code(), Some(0), "{}", witness.log());
    assert!(witness.said().ends_with("nobody was heard\n"), "{}", witness.said());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_witness_or_a_signer_cannot_do_is_told_at_the_start() {
    let _machine = machine::waits().await;
    let scene = Scene::begin(&[]).await;
    let dir = scene.dir.path();
    let mut second = start(dir, "second", &["witness", "--listen", &scene.at], &[]);
    assert_eq!(second.ended().await.code(), Some(3));
    assert!(second.log().contains("give another address with --listen"), "{}", second.log());
    let words = ["witness", "--listen", "127.0.0.1:0", "--udp", &scene.at];
    let mut second = start(dir, "second", &words, &[]);
    assert_eq!(second.ended().await.code(), Some(3));
    assert!(second.log().contains("give another address with --udp"), "{}", second.log());
    for (words, said) in [
        (&["demo-signer"][..], "--hold <NAME>"),
        (&["demo-signer", "--hold", "a b"], "hold has 1 to 100 characters"),
        (&["demo-signer", "--hold", "a", "--witness", "x"], "write a host and a port"),
    ] {
        let mut signer = start(dir, "signer", words, &[]);
        assert_eq!(signer.ended().await.code(), Some(2), "{words:?}");
        assert!(signer.log().contains(said), "{words:?}: {}", signer.log());
    }
}
