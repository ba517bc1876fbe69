//! The receiver of all webhooks, in a process of its own.
//!
//! - [`serve`]: what runs in that process
//! - [`tally`]: what it counts

pub(super) mod serve;
mod tally;

use std::net::SocketAddr;

use engine::instant::Instant;

use super::child::Child;
use crate::triggers::Ending;
pub(super) use tally::Tally;

/// A receiver that listens.
pub(super) struct Receiver {
    child: Child,
    pub(super) hosts: Vec<SocketAddr>,
}

/// Which slots to watch: those from `from` on, up to but not including `to`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Watch {
    pub(super) from: Instant,
    pub(super) to: Instant,
    /// The interval of their triggers, if they have a jitter.
    pub(super) jittered_s: Option<u32>,
}

impl Receiver {
    /// Starts one that listens on so many ports.
    pub(super) async fn start(hosts: u16) -> Result<Self, Ending> {
        let args = ["triggers", "receiver", "--hosts", &hosts.to_string()].map(str::to_owned);
        let mut child = Child::of_ours("receiver", &args)?;
        let line = child.line().await?;
        let hosts = line.split_whitespace().filter_map(|text| text.parse().ok()).collect();
        Ok(Self { child, hosts })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.pid
    }

    /// Forgets everything, and watches these slots from now on.
    pub(super) async fn watch(&mut self, watch: Watch) -> Result<(), Ending> {
        let jittered = watch.jittered_s.unwrap_or(0);
        self.child.tell(&format!("watch {} {} {jittered}", watch.from.0, watch.to.0)).await?;
        self.child.line().await.map(drop)
    }

    /// Forgets everything.
    pub(super) async fn forget(&mut self) -> Result<(), Ending> {
        self.watch(Watch { from: Instant(0), to: Instant(0), jittered_s: None }).await
    }

    /// What it has counted since.
    pub(super) async fn tally(&mut self) -> Result<Tally, Ending> {
        self.child.tell("tell").await?;
        let line = self.child.line().await?;
        serde_json::from_str(&line)
            .map_err(|why| Ending::failed(format!("the receiver does not make sense: {why}")))
    }
}
