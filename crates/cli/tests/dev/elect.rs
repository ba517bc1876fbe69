//! `watchbell elect` on real engines: real processes, which are killed, stopped, cut off and annoyed.

mod ancestor;
mod deploy;
pub(crate) mod engine;
mod fault;
mod lifecycle;
mod secret;
mod state;
mod storm;
mod throttle;
mod witness;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rig::{Ask, PATIENCE, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::process::WATCHBELL;

/// T of whoever is not told another one: that of the Redis scheduler, and the shortest that anybody should need.
const T: Duration = Duration::from_secs(1);

/// For those who may not lapse, however busy the machine is.
const STEADY: [&str; 2] = ["--ttl", "5s"];

/// What everybody campaigns for.
const NAME: &str = "reports";

/// A candidate, which does not outlive the test.
struct Candidate {
    child: Child,
    out: PathBuf,
    log: PathBuf,
}

impl Candidate {
    /// One of this name on this store, which tells in JSON and serves metrics.
    fn start(dir: &Path, node: &str, url: &str, flags: &[&str]) -> Self {
        let mut command = Command::new(WATCHBELL);
        command.args(["elect", NAME, "--node", node, "--output", "json"]);
        if !flags.contains(&"--ttl") {
            command.args(["--ttl", "1s"]);
        }
        command.args(["--check-interval", "200ms", "--metrics", "127.0.0.1:0"]).args(flags);
        command.env("WATCHBELL_STORE", url);
        Self::spawn(command, dir, node)
    }

    /// One that is started so. What it says goes to files of this name.
    fn spawn(mut command: Command, dir: &Path, name: &str) -> Self {
        let (out, log) = (dir.join(format!("{name}.out")), dir.join(format!("{name}.log")));
        let file = |path: &Path| fs::File::create(path).unwrap();
        command.stdin(Stdio::null()).stdout(file(&out)).stderr(file(&log));
        Self { child: command.spawn().unwrap(), out, log }
    }

    /// All transitions that it has told.
    fn events(&self) -> Vec<Value> {
        let text = fs::read_to_string(&self.out).unwrap();
        let whole = text.lines().take(text.matches('\n').count());
        whole.map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect()
    }

    fn count(&self, event: &str) -> usize {
        self.events().iter().filter(|told| told["event"] == event).count()
    }

    /// Waits for the so-manieth transition of this kind.
    async fn event(&self, event: &str, number: usize) -> Value {
        let what = format!("{event} {number} of {}:\n{}", self.out.display(), self.log());
        until(&what, PATIENCE, || async {
            self.events().into_iter().filter(|told| told["event"] == event).nth(number - 1)
        })
        .await
    }

    /// Waits until it has a session. A store that refuses it before ends it, as anything wrong at a start does.
    async fn campaigns(&self) {
        self.event("candidate", 1).await;
    }

    /// Waits until it leads for the first time, and gives the token.
    async fn elected(&self) -> u64 {
        self.event("elected", 1).await["token"].as_u64().unwrap()
    }

    /// All that it has logged.
    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Waits until it has logged this, and gives all that it has logged.
    async fn logs(&self, words: &str) -> String {
        until(&format!("it logs {words:?}"), PATIENCE, || async {
            Some(self.log()).filter(|log| log.contains(words))
        })
        .await
    }

    /// Where its metrics are.
    async fn address(&self) -> SocketAddr {
        self.event("metrics", 1).await["at"].as_str().unwrap().parse().unwrap()
    }

    /// What its metrics say.
    async fn metric(&self, name: &str) -> u64 {
        metric(&page(self.address().await).await, name)
    }

    /// Whether it says that it leads.
    async fn leads(&self) -> bool {
        self.metric("watchbell_leader_current_leader").await == 1
    }

    /// Waits until it says that it leads. Whoever does says 0 for a while when its renewal is late, so one look does not
    /// tell that it does not.
    async fn says_1(&self) {
        leader(&[self]).await;
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    async fn ended(&mut self) -> ExitStatus {
        until("the process ends", PATIENCE, || {
            let status = self.child.try_wait().unwrap();
            async move { status }
        })
        .await
    }

    /// Tells it to stop, and expects that all was well.
    async fn stop(&mut self) {
        self.signal(Signal::TERM);
        let status = self.ended().await;
        assert_eq!(status.code(), Some(0), "{}", self.log());
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The page with metrics.
async fn page(at: SocketAddr) -> String {
    let answer = Ask::new(at, "GET", "/metrics").send().await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.text
}

/// A number on that page.
fn metric(page: &str, name: &str) -> u64 {
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {page}")).parse().unwrap()
}

/// Waits until one of them leads, and gives which.
async fn leader(candidates: &[&Candidate]) -> usize {
    until("somebody leads", PATIENCE, || async {
        for (place, candidate) in candidates.iter().enumerate() {
            if candidate.leads().await {
                return Some(place);
            }
        }
        None
    })
    .await
}
