//! Members in Python and TypeScript: the ten lines of docs/rings.md, as they are printed there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use client::ring::{MAIN, SubscriptionSpec};
use rig::{PATIENCE, machine, until};
use rustix::process::{Pid, Signal, kill_process};

use super::super::process::{Dev, place};
use super::crowd::{Watcher, make};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The first block of this language in docs/rings.md, for this server.
fn example(language: &str, url: &str) -> String {
    let page = fs::read_to_string(root().join("docs/rings.md")).unwrap();
    let (_, rest) = page.split_once(&format!("```{language}\n")).unwrap();
    let (code, _) = rest.split_once("```").unwrap();
    let lines = code.lines().filter(|line| !line.trim().is_empty()).count();
    assert!(lines <= 10, "{code}");
    code.replace("http://127.0.0.1:7400", url)
}

/// A program that does not outlive the test.
struct Example(Child, PathBuf);

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Example {
    fn start(mut command: Command, dir: &Path) -> Self {
        let out = dir.join("example.out");
        let file = || fs::File::options().create(true).append(true).open(&out).unwrap();
        let child = command.stdin(Stdio::null()).stdout(file()).stderr(file()).spawn().unwrap();
        Self(child, out)
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.1).unwrap()
    }

    /// Waits until it has had so many turns; each is told once, with tokens that grow.
    async fn has_turns(&self, count: usize) {
        let said = until("it has turns", PATIENCE, || async {
            let said = self.said();
            (said.lines().filter(|line| line.starts_with("turn ")).count() >= count).then_some(said)
        })
        .await;
        let tokens: Vec<u64> = said
            .lines()
            .filter_map(|line| line.strip_prefix("turn ")?.rsplit(' ').next()?.parse().ok())
            .collect();
        assert!(tokens.windows(2).all(|pair| pair[0] < pair[1]), "{said}");
    }
}

/// The member takes its turns beside another one, and leaves when it is told to stop.
async fn takes_turns(command: impl Fn(&str, &Path) -> Command, language: &str) {
    let (dir, data) = place();
    let dev = Dev::start(&data);
    make(&dev.client, "checks", &SubscriptionSpec::every("200ms").accept("5s")).await;
    let mut crowd = super::crowd::Crowd::default();
    crowd.join(&[dev.client.clone()], "checks", "other").await;
    let watcher = Watcher::start(&[dev.client.clone()], "checks", MAIN).await;
    let code = example(language, dev.client.url());
    let example = Example::start(command(&code, dir.path()), dir.path());
    example.has_turns(4).await;
    kill_process(Pid::from_child(&example.0), Signal::INT).unwrap();
    watcher
        .sees("it is in the ring no more", |seen| {
            seen.others.iter().any(|event| {
                matches!(event, client::ring::RingEvent::Remove { member } if member == "web-1")
            })
        })
        .await;
    println!("{}", example.said());
    dev.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_python_member_of_ten_lines_takes_its_turns() {
    let _machine = machine::waits().await;
    let command = |code: &str, _: &Path| {
        let mut command = Command::new("python3");
        command.args(["-u", "-c", code]).env("PYTHONPATH", root().join("clients/python/src"));
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command
    };
    takes_turns(command, "python").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_typescript_member_of_ten_lines_takes_its_turns() {
    let _machine = machine::waits().await;
    let command = |code: &str, dir: &Path| {
        let library = root().join("clients/typescript/build/src/index.js");
        assert!(library.exists(), "there is no {}: scripts/libraries build", library.display());
        let path = dir.join("member.mjs");
        let from = format!("\"file://{}\"", library.canonicalize().unwrap().display());
        fs::write(&path, code.replace("\"watchbell\"", &from)).unwrap();
        let mut command = Command::new("node");
        command.arg(path);
        command
    };
    takes_turns(command, "ts").await;
}
