//! `watchbell hold` on real stores: real processes, which are killed, stopped, told to stop and badly configured.

mod alone;
mod lifecycle;
mod recipe;
mod refusal;
mod storm;
mod surroundings;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use rig::{Ask, PATIENCE, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::process::WATCHBELL;

/// What everybody holds.
const NAME: &str = "mailer";

/// For those who may not lapse, however busy the machine is.
const STEADY: [&str; 2] = ["--ttl", "5s"];

/// A program that notes in a file all the time who it is, under which token.
const TICKS: &str =
    "while :; do echo $NODE $WATCHBELL_TOKEN $(date +%s%N) >> $TICKS; sleep 0.02; done";

/// A supervisor, which does not outlive the test.
struct Holder {
    child: Child,
    out: PathBuf,
    log: PathBuf,
}

/// The flags of a holder and its program.
struct Held<'a> {
    flags: &'a [&'a str],
    /// What a shell runs.
    program: &'a str,
}

impl Holder {
    /// One of this name on this store, whose program notes who it is.
    fn start(dir: &Path, node: &str, url: &str, flags: &[&str]) -> Self {
        Self::with(dir, node, url, &Held { flags, program: TICKS })
    }

    /// One that runs this by a shell, and tells in JSON.
    fn with(dir: &Path, node: &str, url: &str, held: &Held<'_>) -> Self {
        let mut command = Command::new(WATCHBELL);
        command.args(["hold", NAME, "--node", node, "--output", "json", "--lock-dir"]);
        command.arg(dir.join(format!("{node}.locks"))).args(held.flags);
        command.args(["--metrics", "127.0.0.1:0", "--", "sh", "-c", held.program]);
        command.env("WATCHBELL_STORE", url).env("WATCHBELL_LOG_LEVEL", "info");
        command.env("NODE", node).env("TICKS", dir.join("ticks"));
        Self::spawn(command, dir, node)
    }

    /// One that is started so. What it says goes to files of this name.
    fn spawn(mut command: Command, dir: &Path, name: &str) -> Self {
        let (out, log) = (dir.join(format!("{name}.out")), dir.join(format!("{name}.log")));
        let file = |path: &Path| fs::File::options().create(true).append(true).open(path).unwrap();
        command.stdin(Stdio::null()).stdout(file(&out)).stderr(file(&log));
        Self { child: command.spawn().unwrap(), out, log }
    }

    /// All transitions that it has told: on stderr, with its log, or on stdout if the program prints elsewhere.
    fn events(&self) -> Vec<Value> {
        let told = |path: &Path| {
            let text = fs::read_to_string(path).unwrap();
            let whole = text.lines().take(text.matches('\n').count());
            let events = whole.filter_map(|line| serde_json::from_str::<Value>(line).ok());
            events.filter(|told| told["event"].is_string()).collect::<Vec<_>>()
        };
        [told(&self.out), told(&self.log)].concat()
    }

    fn count(&self, event: &str) -> usize {
        self.events().iter().filter(|told| told["event"] == event).count()
    }

    /// Waits for the transition of this kind and number, from 1.
    async fn event(&self, event: &str, number: usize) -> Value {
        let what = format!("{event} {number} of {}:\n{}", self.out.display(), self.log());
        until(&what, PATIENCE, || async {
            self.events().into_iter().filter(|told| told["event"] == event).nth(number - 1)
        })
        .await
    }

    /// Waits until its program runs for the first time, and gives the id of its guard.
    async fn runs(&self) -> Guard {
        Guard::of(&self.event("running", 1).await)
    }

    /// All that it has logged.
    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Where its metrics are.
    async fn address(&self) -> SocketAddr {
        self.event("metrics", 1).await["at"].as_str().unwrap().parse().unwrap()
    }

    /// The page with its metrics.
    async fn metrics(&self) -> String {
        let answer = Ask::new(self.address().await, "GET", "/metrics").send().await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.text
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

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The guard of a program: as long as it is there, so is the program.
#[derive(Debug, Clone, Copy)]
struct Guard(u64);

impl Guard {
    fn of(running: &Value) -> Self {
        Self(running["pid"].as_u64().unwrap_or_else(|| panic!("{running}")))
    }

    fn is_there(self) -> bool {
        let state = fs::read_to_string(format!("/proc/{}/stat", self.0)).unwrap_or_default();
        let state = state.rsplit_once(") ").map(|(_, state)| state.starts_with('Z'));
        state == Some(false)
    }

    /// Waits until the program is gone.
    async fn is_gone(self) {
        until("the program is gone", PATIENCE, || async { (!self.is_there()).then_some(()) }).await;
    }
}

/// From when to when each program ran, by node and token, as it noted itself: in the order of their beginnings.
fn stretches(dir: &Path) -> Vec<(String, u128, u128)> {
    let mut all: BTreeMap<String, (u128, u128)> = BTreeMap::new();
    let text = fs::read_to_string(dir.join("ticks")).unwrap_or_default();
    for line in text.lines().take(text.matches('\n').count()) {
        let (who, at) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
        let at: u128 = at.parse().unwrap_or_else(|_| panic!("{line}"));
        let (first, last) = all.entry(who.to_owned()).or_insert((at, at));
        (*first, *last) = ((*first).min(at), (*last).max(at));
    }
    let mut stretches: Vec<_> =
        all.into_iter().map(|(who, (first, last))| (who, first, last)).collect();
    stretches.sort_by_key(|(_, first, _)| *first);
    stretches
}

/// Waits until so many programs have run, and fails if two of them did at a time.
async fn ran_one_after_the_other(dir: &Path, count: usize) {
    until(&format!("{count} programs run"), PATIENCE, || async {
        (stretches(dir).len() >= count).then_some(())
    })
    .await;
    let stretches = stretches(dir);
    assert_eq!(stretches.len(), count, "{stretches:?}");
    for pair in stretches.windows(2) {
        let [(one, _, last), (other, first, _)] = pair else { unreachable!("there are two") };
        assert!(last < first, "{one} and {other} ran at a time: {stretches:?}");
    }
}
