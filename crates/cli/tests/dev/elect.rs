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
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rig::{Ask, PATIENCE, until};
use serde_json::Value;

use super::actor::{Actor, metric, page};
use super::process::WATCHBELL;

/// T of whoever is not told another one: that of the Redis scheduler, and the shortest that anybody should need.
const T: Duration = Duration::from_secs(1);

/// For those who may not lapse, however busy the machine is.
const STEADY: [&str; 2] = ["--ttl", "5s"];

/// What everybody campaigns for.
const NAME: &str = "reports";

/// A candidate, which does not outlive the test.
struct Candidate(Actor);

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
    fn spawn(command: Command, dir: &Path, name: &str) -> Self {
        Self(Actor::spawn(command, dir, name))
    }

    /// Waits until it has a session. A store that refuses it before ends it, as anything wrong at a start does.
    async fn campaigns(&self) {
        self.event("candidate", 1).await;
    }

    /// Waits until it leads for the first time, and gives the token.
    async fn elected(&self) -> u64 {
        self.event("elected", 1).await["token"].as_u64().unwrap()
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
}

impl Deref for Candidate {
    type Target = Actor;

    fn deref(&self) -> &Actor {
        &self.0
    }
}

impl DerefMut for Candidate {
    fn deref_mut(&mut self) -> &mut Actor {
        &mut self.0
    }
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
