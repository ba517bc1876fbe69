//! A process of a test, and the files with what it says. It does not outlive the test.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use rig::{Ask, PATIENCE, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// One that was started.
pub(super) struct Actor {
    pub(super) child: Child,
    /// What it says on stdout.
    pub(super) out: PathBuf,
    /// What it says on stderr.
    pub(super) log: PathBuf,
}

impl Actor {
    /// Starts it. What it says goes to files of this name.
    pub(super) fn spawn(mut command: Command, dir: &Path, name: &str) -> Self {
        let (out, log) = (dir.join(format!("{name}.out")), dir.join(format!("{name}.log")));
        let file = |path: &Path| fs::File::options().create(true).append(true).open(path).unwrap();
        command.stdin(Stdio::null()).stdout(file(&out)).stderr(file(&log));
        Self { child: command.spawn().unwrap(), out, log }
    }

    pub(super) fn said(&self) -> String {
        fs::read_to_string(&self.out).unwrap()
    }

    pub(super) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Waits until it has logged this, and gives all that it has logged.
    pub(super) async fn logs(&self, words: &str) -> String {
        until(&format!("it logs {words:?}"), PATIENCE, || async {
            Some(self.log()).filter(|log| log.contains(words))
        })
        .await
    }

    /// All transitions that it has told, if it tells in JSON: on stdout, or on stderr with its log where a program has stdout.
    /// Lines of others may be beside them.
    pub(super) fn events(&self) -> Vec<Value> {
        let told = |text: String| {
            let whole = text.lines().take(text.matches('\n').count());
            let events = whole.filter_map(|line| serde_json::from_str::<Value>(line).ok());
            events.filter(|told| told["event"].is_string()).collect::<Vec<_>>()
        };
        [told(self.said()), told(self.log())].concat()
    }

    pub(super) fn count(&self, event: &str) -> usize {
        self.events().iter().filter(|told| told["event"] == event).count()
    }

    /// Waits for the transition of this kind and number, from 1.
    pub(super) async fn event(&self, event: &str, number: usize) -> Value {
        let what = format!("{event} {number} of {}:\n{}", self.out.display(), self.log());
        until(&what, PATIENCE, || async {
            self.events().into_iter().filter(|told| told["event"] == event).nth(number - 1)
        })
        .await
    }

    /// Where it tells that its metrics are.
    pub(super) async fn address(&self) -> SocketAddr {
        self.event("metrics", 1).await["at"].as_str().unwrap().parse().unwrap()
    }

    /// The page with its metrics.
    pub(super) async fn metrics(&self) -> String {
        page(self.address().await).await
    }

    /// What they say of this name, which may have labels.
    pub(super) async fn metric(&self, name: &str) -> u64 {
        metric(&self.metrics().await, name)
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub(super) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(super) async fn ended(&mut self) -> ExitStatus {
        until("the process ends", PATIENCE, || {
            let status = self.child.try_wait().unwrap();
            async move { status }
        })
        .await
    }

    /// Tells it to stop, and expects that all was well.
    pub(super) async fn stop(&mut self) {
        self.signal(Signal::TERM);
        let status = self.ended().await;
        assert_eq!(status.code(), Some(0), "{}", self.log());
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A page with metrics.
pub(super) async fn page(at: SocketAddr) -> String {
    Ask::new(at, "GET", "/metrics").send().await.is(200).text
}

/// A number on that page.
pub(super) fn metric(page: &str, name: &str) -> u64 {
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {page}")).parse().unwrap()
}
