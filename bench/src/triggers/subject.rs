//! The server that is measured: `watchbell dev`, or `watchbell server` on an engine, in a process of its own.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::child::Child;
use super::metrics::Metrics;
use super::{Bench, wall_us};
use crate::triggers::Ending;

/// A server that is ready.
pub(super) struct Subject {
    child: Child,
    address: SocketAddr,
    /// When it was started, by the wall clock in microseconds.
    pub(super) started_us: u64,
    /// How long it took until it was ready.
    pub(super) ready_after: Duration,
}

impl Subject {
    /// Starts it on this store, and waits until it is ready.
    pub(super) async fn start(bench: &Bench, store: &Path) -> Result<Self, Ending> {
        let data = store.display().to_string();
        let args = ["dev", "--listen", "127.0.0.1:0", "--data", &data].map(str::to_owned);
        Self::start_by(bench, &args).await
    }

    /// Starts one of this name on a store on the network.
    pub(super) async fn start_on(bench: &Bench, store: &str, node: &str) -> Result<Self, Ending> {
        let key = bench.path().join("admin-key").display().to_string();
        let words = ["server", "--listen", "127.0.0.1:0", "--webhook-allow", "127.0.0.0/8"];
        let more = ["--node", node, "--admin-key-file", &key, "--store", store];
        let args: Vec<_> = words.into_iter().chain(more).map(str::to_owned).collect();
        Self::start_by(bench, &args).await
    }

    async fn start_by(bench: &Bench, args: &[String]) -> Result<Self, Ending> {
        let started_us = wall_us();
        let mut child = Child::start("server", &bench.watchbell, args)?;
        let line = child.line().await?;
        let address = address_in(&line)
            .ok_or_else(|| Ending::failed(format!("no address in what the server said: {line}")))?;
        while get(address, "/readyz").await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let ready_after = Duration::from_micros(wall_us().saturating_sub(started_us));
        Ok(Self { child, address, started_us, ready_after })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.pid
    }

    /// What it says about itself.
    pub(super) async fn metrics(&self) -> Result<Metrics, Ending> {
        let text = get(self.address, "/metrics").await;
        text.map(|text| Metrics::read(&text))
            .map_err(|why| Ending::failed(format!("cannot read the server's metrics: {why}")))
    }

    /// Stops it in order; says how long that took.
    pub(super) async fn stop(self) -> Result<Duration, Ending> {
        self.child.stop().await
    }

    /// Kills it, as a power cut would.
    pub(super) async fn kill(self) -> Result<(), Ending> {
        self.child.kill().await
    }
}

/// The first address in a sentence.
fn address_in(line: &str) -> Option<SocketAddr> {
    line.split("http://").nth(1)?.split_whitespace().next()?.trim_end_matches('.').parse().ok()
}

/// The body at a path, if the answer is a good one.
async fn get(address: SocketAddr, path: &str) -> Result<String, String> {
    let asked = async {
        let mut stream = TcpStream::connect(address).await?;
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = asked.await.map_err(|why| why.to_string())?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("the answer has no end")?;
    let status = head.lines().next().unwrap_or_default();
    if !status.starts_with("HTTP/1.1 200") {
        return Err(status.to_owned());
    }
    Ok(body.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_found_in_the_first_sentence() {
        let line = "watchbell listens on http://127.0.0.1:4711 and keeps its data in x";
        assert_eq!(address_in(line), "127.0.0.1:4711".parse().ok());
        assert_eq!(address_in("no"), None);
    }
}
