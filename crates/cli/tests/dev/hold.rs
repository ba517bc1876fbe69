//! `watchbell hold` on real stores: real processes, which are killed, stopped, told to stop and badly configured.

mod alone;
mod blow;
mod clock;
mod cut;
mod ground;
mod lifecycle;
mod outage;
mod recipe;
mod refusal;
mod risk;
mod signer;
mod storm;
mod surroundings;

use std::collections::BTreeMap;
use std::fs;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::Command;

use rig::{PATIENCE, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::actor::Actor;
use super::process::WATCHBELL;

/// What everybody holds.
const NAME: &str = "mailer";

/// For those who may not lapse, however busy the machine is.
const STEADY: [&str; 2] = ["--ttl", "5s"];

/// A program that notes in a file all the time who it is, under which token.
const TICKS: &str =
    "while :; do echo $NODE $WATCHBELL_TOKEN $(date +%s%N) >> $TICKS; sleep 0.02; done";

/// A supervisor, which does not outlive the test.
struct Holder(Actor);

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
    fn spawn(command: Command, dir: &Path, name: &str) -> Self {
        Self(Actor::spawn(command, dir, name))
    }

    /// Waits until its program runs for the first time, and gives the id of its guard.
    async fn runs(&self) -> Guard {
        Guard::of(&self.event("running", 1).await)
    }
}

impl Deref for Holder {
    type Target = Actor;

    fn deref(&self) -> &Actor {
        &self.0
    }
}

impl DerefMut for Holder {
    fn deref_mut(&mut self) -> &mut Actor {
        &mut self.0
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
