//! `watchbell worker` and its commands: the real binary, real programs, and what people see of them.

use std::fs;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::process::Command;

use client::Client;
use client::output::OutputStream;
use client::queue::{CommandSpec, RunSpec};
use client::run::{Run, RunState};
use client::spec::RetrySpec;
use rig::{Ask, PATIENCE, machine, until};
use rustix::process::Pid;
use tempfile::TempDir;

use super::actor::Actor;
use super::command::said;
use super::process::{Dev, WATCHBELL, place};

/// What every tree has in its environment, with a value of its own.
const VARIABLE: &str = "TEST_TREE";

/// A `watchbell worker`, which does not outlive the test.
pub(super) struct CommandWorker(Actor);

impl CommandWorker {
    /// One of this name that serves the queue `default` and may run everything. Its spool, and what it says, are below `dir`.
    pub(super) fn start(dir: &Path, name: &str, url: &str, flags: &[&str]) -> Self {
        let mut command = Command::new(WATCHBELL);
        command
            .args(["worker", "--server", url, "--name", name, "--allow-any", "--capacity", "4"])
            .args(["--metrics", "127.0.0.1:0", "--log-level", "info", "--spool"])
            .arg(dir.join("spool"))
            .args(flags);
        Self(Actor::spawn(command, dir, name))
    }

    /// Where its pages are.
    async fn address(&self) -> SocketAddr {
        until("it says where its metrics are", PATIENCE, || async {
            let out = self.said();
            let line = out.lines().rev().find_map(|line| line.strip_prefix("metrics: http://"))?;
            line.strip_suffix("/metrics")?.parse().ok()
        })
        .await
    }

    pub(super) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Deref for CommandWorker {
    type Target = Actor;

    fn deref(&self) -> &Actor {
        &self.0
    }
}

impl DerefMut for CommandWorker {
    fn deref_mut(&mut self) -> &mut Actor {
        &mut self.0
    }
}

impl Drop for CommandWorker {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = fs::read_to_string(&self.log).unwrap_or_default();
            eprintln!("{}:\n{log}", self.log.display());
        }
    }
}

/// A server, and a directory for everything.
pub(super) struct Stage {
    pub(super) dir: TempDir,
    pub(super) dev: Dev,
}

impl Stage {
    pub(super) fn new() -> Self {
        let (dir, data) = place();
        Self { dev: Dev::start(&data), dir }
    }

    pub(super) fn client(&self) -> &Client {
        &self.dev.client
    }

    pub(super) fn url(&self) -> &str {
        self.dev.client.url()
    }

    pub(super) fn worker(&self, name: &str, flags: &[&str]) -> CommandWorker {
        CommandWorker::start(self.dir.path(), name, self.url(), flags)
    }

    /// Lets a shell read a script, in a directory of the test, with a mark in its environment. It is tried again soon.
    pub(super) async fn submit(&self, mark: &str, script: &str) -> String {
        let command = CommandSpec {
            argv: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
            env: [(VARIABLE.to_owned(), mark.to_owned())].into(),
            dir: Some(self.dir.path().to_str().unwrap().to_owned()),
            stdin: None,
        };
        let retry = RetrySpec { delay: Some("1s".to_owned()), ..RetrySpec::default() };
        let spec = RunSpec {
            queue: Some("default".to_owned()),
            command: Some(command),
            retry: Some(retry),
            ..RunSpec::default()
        };
        self.client().submit(&spec).await.unwrap().id
    }

    /// Waits until a run is in this state.
    pub(super) async fn is(&self, id: &str, state: RunState) -> Run {
        until(&format!("{id} is {state:?}"), PATIENCE * 2, || async {
            self.client().run_by_id(id).await.ok().filter(|run| run.state == state)
        })
        .await
    }

    /// Waits until a script has made this file.
    pub(super) async fn made(&self, name: &str) {
        until(&format!("{name} is made"), PATIENCE, || async {
            self.dir.path().join(name).exists().then_some(())
        })
        .await;
    }

    /// What is in a file that a script writes.
    pub(super) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.dir.path().join(name)).unwrap_or_default()
    }
}

/// The processes that have this mark, those that are dead and not reaped aside.
pub(super) fn members(mark: &str) -> Vec<i32> {
    let entry = format!("{VARIABLE}={mark}");
    let all = fs::read_dir("/proc").unwrap();
    all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid: &i32| {
            let all = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            all.split(|byte| *byte == 0).any(|one| one == entry.as_bytes())
        })
        .collect()
}

/// Waits until nothing of a tree is left.
pub(super) async fn gone(mark: &str) {
    until(&format!("tree {mark} is gone"), PATIENCE, || async {
        members(mark).is_empty().then_some(())
    })
    .await;
}

/// Waits until a tree has so many processes.
pub(super) async fn grown(mark: &str, len: usize) {
    until(&format!("tree {mark} grows"), PATIENCE, || async {
        (members(mark).len() >= len).then_some(())
    })
    .await;
}

/// A mark that no other test has.
pub(super) fn mark(of: &str) -> String {
    format!("{of}-{}", std::process::id())
}

#[tokio::test]
async fn the_first_command_runs_in_two_lines() {
    let _share = machine::waits().await;
    let (_dir, data) = place();
    let mut first = Command::new(WATCHBELL);
    first.env("WATCHBELL_ALLOW", "/bin/echo");
    let dev = Dev::start_by(first, &data);
    let second = ["run", "submit", "--server", dev.client.url(), "--output", "json", "--"];
    let second = Command::new(WATCHBELL).args(second).args(["/bin/echo", "hello"]).output();
    let (taken, _) = said(&second.unwrap(), 0);
    let taken: serde_json::Value = serde_json::from_str(&taken).unwrap();
    let id = taken["id"].as_str().unwrap().to_owned();
    until("it has succeeded", PATIENCE, || async {
        let run = dev.client.run_by_id(&id).await.ok()?;
        (run.state == RunState::Succeeded).then_some(())
    })
    .await;
    let shown = ["run", "output", "--server", dev.client.url(), &id];
    assert_eq!(said(&Command::new(WATCHBELL).args(shown).output().unwrap(), 0).0, "hello\n");
    dev.stop().await;
}

#[tokio::test]
async fn dev_runs_nothing_that_is_not_allowed() {
    let _share = machine::waits().await;
    let (_dir, data) = place();
    let dev = Dev::start(&data);
    assert!(dev.client.workers().await.unwrap().items.is_empty());
    dev.stop().await;
}

#[tokio::test]
async fn what_a_command_prints_and_says_of_itself_is_seen_while_it_runs() {
    let _share = machine::waits().await;
    let stage = Stage::new();
    let mut worker = stage.worker("w", &[]);
    let script = "echo out; echo err >&2; echo '40 page 4 of 10' >&$WATCHBELL_PROGRESS_FD; \
        while [ ! -e go ]; do sleep 0.05; done; echo $WATCHBELL_ATTEMPT $WATCHBELL_QUEUE; exit 3";
    let id = stage.submit(&mark("seen"), script).await;
    until("its progress is seen", PATIENCE, || async {
        let run = stage.client().run_by_id(&id).await.ok()?;
        let progress = run.queued?.progress?;
        let text = progress.text.as_deref();
        (progress.percent == Some(40) && text == Some("page 4 of 10")).then_some(())
    })
    .await;
    until("what it printed is seen", PATIENCE, || async {
        let output = stage.client().run_output(&id).await.ok()?;
        let of = |stream| {
            let chunks = output.chunks.iter().filter(move |chunk| chunk.stream == stream);
            chunks.flat_map(|chunk| chunk.bytes().unwrap()).collect::<Vec<u8>>()
        };
        (of(OutputStream::Stdout) == b"out\n" && of(OutputStream::Stderr) == b"err\n").then_some(())
    })
    .await;
    let at = worker.address().await;
    let page = |path| async move { Ask::new(at, "GET", path).send().await };
    let metrics = page("/metrics").await.text;
    for line in ["watchbell_worker_commands_started_total 1\n", "watchbell_worker_executing 1\n"] {
        assert!(metrics.contains(line), "{line}{metrics}");
    }
    assert_eq!((page("/livez").await.status, page("/readyz").await.status), (200, 200));
    fs::write(stage.dir.path().join("go"), "").unwrap();
    // It is tried again, and fails again.
    until("it has failed twice", PATIENCE, || async {
        let run = stage.client().run_by_id(&id).await.ok()?;
        let failed = run.attempts.iter().filter(|attempt| attempt.exit_code == Some(3)).count();
        (failed >= 2).then_some(())
    })
    .await;
    let run = stage.client().run_by_id(&id).await.unwrap();
    assert_eq!(run.attempts[0].error.as_deref(), Some("exit code 3: err"));
    assert_eq!(run.attempts[0].worker.as_deref(), Some("w"));
    stage.client().cancel_run(&id).await.unwrap();
    worker.stop().await;
}

#[tokio::test]
async fn what_is_not_allowed_fails_for_good_with_what_to_change() {
    let _share = machine::waits().await;
    let stage = Stage::new();
    let url = stage.url();
    let mut command = Command::new(WATCHBELL);
    command.args(["worker", "--server", url, "--name", "w", "--allow", "/bin/echo", "--spool"]);
    command.arg(stage.dir.path().join("spool"));
    let _worker = CommandWorker(Actor::spawn(command, stage.dir.path(), "w"));
    let id = stage.submit(&mark("refused"), "true").await;
    let run = until("it has ended", PATIENCE, || async {
        stage.client().run_by_id(&id).await.ok().filter(|run| run.ended.is_some())
    })
    .await;
    assert_eq!(run.attempts.len(), 1, "it was not tried again");
    let why = run.attempts[0].error.clone().unwrap();
    let said = "/bin/sh is not allowed on this worker: start the worker with --allow /bin/sh";
    assert!(why.starts_with(said), "{why}");
}

#[tokio::test]
async fn a_time_out_and_a_cancel_end_the_whole_tree() {
    let _share = machine::waits().await;
    let stage = Stage::new();
    let mut worker = stage.worker("w", &["--timeout", "1s", "--grace", "100ms"]);
    let deaf = "trap '' TERM; (setsid sleep 1000 &); while :; do sleep 1000; done";
    let late = stage.submit(&mark("late"), deaf).await;
    until("it has failed", PATIENCE, || async {
        let run = stage.client().run_by_id(&late).await.ok()?;
        let why = run.attempts.first()?.error.clone()?;
        (why == "timed out after 1s").then_some(())
    })
    .await;
    stage.client().cancel_run(&late).await.unwrap();
    worker.stop().await;
    gone(&mark("late")).await;
    let mut worker = stage.worker("w", &["--grace", "100ms"]);
    let cancelled = stage.submit(&mark("cancelled"), deaf).await;
    grown(&mark("cancelled"), 3).await;
    stage.client().cancel_run(&cancelled).await.unwrap();
    stage.is(&cancelled, RunState::Cancelled).await;
    gone(&mark("cancelled")).await;
    worker.stop().await;
}

#[test]
fn a_stranger_is_told_what_to_change() {
    let dir = tempfile::tempdir().unwrap();
    let told = |flags: &[&str], code| {
        let mut command = Command::new(WATCHBELL);
        command.args(["worker", "--server", "http://127.0.0.1:1"]).args(flags);
        said(&command.current_dir(dir.path()).env_clear().output().unwrap(), code).1
    };
    for (flags, code, words) in [
        (&[][..], 2, "this worker may run nothing: name programs with --allow"),
        (&["--allow", "echo"], 2, "--allow: echo is no absolute path"),
        (&["--allow", "/bin/echoo"], 2, "--allow: /bin/echoo cannot be found"),
        (&["--allow-any", "--allow", "/bin/echo"], 2, "give one of them"),
        (&["--allow-any", "--user", "no-such-user"], 2, "there is no user no-such-user"),
        (&["--allow-any", "--spool=here", "--queue", "a b"], 2, "names of workers and queues are"),
        (&["--allow-any", "--capacity", "0"], 2, "a number from 1 to 1000"),
        (&["--allow-any", "--spool", "/proc/no"], 4, "the spool cannot be used"),
    ] {
        let why = told(flags, code);
        assert!(why.contains(words), "{flags:?}: {why}");
    }
}
