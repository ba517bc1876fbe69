//! A server, a proxy before it, and workers as processes.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use client::Client;
use client::queue::RunSpec;
use client::run::{Run, RunState};
use rig::{FaultProxy, PATIENCE, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::super::process::{Dev, place};

/// A library for workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Library {
    Rust,
    Python,
    TypeScript,
}

impl Library {
    /// Its program `case_worker`, as it is started.
    pub(super) fn command(self) -> Command {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let (program, path, cure) = match self {
            Self::Rust => {
                let own = std::env::current_exe().unwrap();
                let target = own.ancestors().nth(2).expect("tests are in target/debug/deps");
                let build = "cargo build --package watchbell-worker --example case_worker";
                (None, target.join("examples/case_worker"), build)
            }
            Self::Python => {
                (Some("python3"), root.join("clients/python/tests/case_worker.py"), "look for it")
            }
            Self::TypeScript => {
                let path = root.join("clients/typescript/build/test/case_worker.js");
                (Some("node"), path, "scripts/libraries build")
            }
        };
        assert!(path.exists(), "there is no {}: {cure}", path.display());
        if self == Self::Rust {
            assert_current(&path, cure);
        }
        let mut command = Command::new(program.map_or(path.as_path(), Path::new));
        if program.is_some() {
            command.arg(&path);
        }
        command.env("PYTHONPATH", root.join("clients/python/src"));
        command.env("PYTHONDONTWRITEBYTECODE", "1").env_remove("WATCHBELL_KEY");
        command
    }
}

/// Refuses an example that was built before one of its sources was changed. Whoever runs a single test builds no examples.
fn assert_current(example: &Path, cure: &str) {
    let changed = |path: &Path| fs::metadata(path).and_then(|of| of.modified()).unwrap();
    let built = changed(example);
    // Cargo writes down what it is made of: `EXAMPLE: SOURCE SOURCE …`.
    let sources = fs::read_to_string(example.with_extension("d")).unwrap();
    let (_, sources) = sources.split_once(": ").unwrap();
    let newer = sources.split_whitespace().find(|source| changed(Path::new(source)) > built);
    assert_eq!(newer, None, "{} is older than this source: {cure}", example.display());
}

/// A server, and the way to it that workers take.
pub(super) struct House {
    library: Library,
    pub(super) dir: TempDir,
    data: PathBuf,
    server: Option<Dev>,
    pub(super) proxy: FaultProxy,
    workers: std::cell::Cell<usize>,
}

/// How a worker is made.
pub(super) struct Plan<'a> {
    pub(super) name: &'a str,
    pub(super) queues: &'a str,
    pub(super) capacity: usize,
    pub(super) lease_ms: u64,
}

impl Default for Plan<'_> {
    fn default() -> Self {
        Self { name: "web-1", queues: "mail", capacity: 8, lease_ms: 15_000 }
    }
}

impl House {
    pub(super) async fn of(library: Library) -> Self {
        let (dir, data) = place();
        let server = Dev::start(&data);
        let proxy = FaultProxy::to(server.address(), 7).await;
        Self { library, dir, data, server: Some(server), proxy, workers: 0.into() }
    }

    /// What tests ask by: not through the proxy.
    pub(super) fn client(&self) -> &Client {
        &self.server.as_ref().expect("the server is there").client
    }

    pub(super) fn kill_server(&mut self) {
        self.server.take().expect("the server is there").kill();
    }

    pub(super) fn start_server(&mut self) {
        let server = Dev::start(&self.data);
        self.proxy.lead_to(server.address());
        self.server = Some(server);
    }

    /// Starts a worker.
    pub(super) fn start(&self, plan: &Plan<'_>) -> CaseWorker {
        let number = self.workers.replace(self.workers.get() + 1);
        let mut command = self.library.command();
        command
            .env("WATCHBELL_SERVER", self.proxy.url())
            .env("WATCHBELL_QUEUE", plan.queues)
            .env("WATCHBELL_WORKER", plan.name)
            .env("CAPACITY", plan.capacity.to_string())
            .env("LEASE_MS", plan.lease_ms.to_string())
            .env("LABELS", "zone=b,version=7");
        CaseWorker::start(command, self.dir.path().join(format!("worker-{number}.out")))
    }

    pub(super) async fn submit(&self, handler: &str, payload: Value) -> String {
        self.submit_as(RunSpec { payload: Some(payload), ..spec(handler) }).await
    }

    pub(super) async fn submit_as(&self, spec: RunSpec) -> String {
        let queue = spec.queue.clone().or_else(|| Some("mail".to_owned()));
        self.client().submit(&RunSpec { queue, ..spec }).await.unwrap().id
    }

    pub(super) async fn cancel(&self, id: &str) {
        self.client().cancel_run(id).await.unwrap();
    }

    pub(super) async fn run(&self, id: &str) -> Run {
        self.client().run_by_id(id).await.unwrap()
    }

    /// Waits until a run has ended.
    pub(super) async fn ended(&self, id: &str) -> Run {
        self.reaches(id, RunState::is_end).await
    }

    /// Waits until a run is in such a state.
    pub(super) async fn reaches(&self, id: &str, is_it: impl Fn(RunState) -> bool) -> Run {
        until(&format!("the run {id} is as it should be"), PATIENCE, || async {
            self.client().run_by_id(id).await.ok().filter(|run| is_it(run.state))
        })
        .await
    }

    /// A file that is not there yet, by which a handler is let go.
    pub(super) fn gate(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

/// A run of this handler.
pub(super) fn spec(handler: &str) -> RunSpec {
    RunSpec { handler: Some(handler.to_owned()), ..RunSpec::default() }
}

/// A worker that is a process. It does not outlive the test.
pub(super) struct CaseWorker {
    child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl CaseWorker {
    /// Starts one by this command. What it says goes to this file, and what it logs to one beside it.
    pub(super) fn start(mut command: Command, stdout: PathBuf) -> Self {
        let stderr = stdout.with_extension("err");
        command
            .stdin(Stdio::null())
            .stdout(fs::File::create(&stdout).unwrap())
            .stderr(fs::File::create(&stderr).unwrap());
        Self { child: command.spawn().unwrap(), stdout, stderr }
    }

    /// What it has said, line by line.
    pub(super) fn lines(&self) -> Vec<String> {
        let said = fs::read_to_string(&self.stdout).unwrap();
        let whole = said.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(str::to_owned).collect()
    }

    /// Waits until it has said this.
    pub(super) async fn says(&self, line: &str) {
        let is_said = |said: &String| said == line || said.starts_with(&format!("{line} "));
        until(&format!("the worker says {line:?}"), PATIENCE, || async {
            self.lines().iter().any(is_said).then_some(())
        })
        .await;
    }

    /// How often it has begun a run.
    pub(super) fn begun(&self, id: &str) -> usize {
        let begin = format!("begin {id} ");
        self.lines().iter().filter(|line| line.starts_with(&begin)).count()
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end.
    pub(super) async fn end(&mut self) -> ExitStatus {
        until("the worker ends", PATIENCE, || {
            let status = self.child.try_wait().unwrap();
            async move { status }
        })
        .await
    }

    /// Kills it.
    pub(super) async fn kill(&mut self) {
        self.signal(Signal::KILL);
        assert_eq!(self.end().await.signal(), Some(Signal::KILL.as_raw()));
    }
}

impl Drop for CaseWorker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = fs::read_to_string(&self.stderr).unwrap_or_default();
            eprintln!("the worker said {:#?}, and logged:\n{log}", self.lines());
        }
    }
}
