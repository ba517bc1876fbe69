//! The server that is measured, in a process of its own, and what it says about itself.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use store::clock::Stopwatch;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::queue::Door;
use crate::exit::Ending;

/// How long a server may take to stop once it is told to.
const STOP_MAX: Duration = Duration::from_secs(30);

/// The file of the first key.
const ADMIN_KEY: &str = "admin-key";

/// A server that is ready. It is killed when this is dropped.
pub(super) struct Subject {
    process: Child,
    address: SocketAddr,
}

impl Subject {
    /// Starts one on a file store.
    pub(super) async fn on_file(binary: &Path, data: &Path) -> Result<Self, Ending> {
        Self::start(binary, &["dev", "--data", &data.display().to_string()]).await
    }

    /// Starts one on a store on the network; its first key goes to this directory.
    pub(super) async fn on_engine(binary: &Path, store: &str, dir: &Path) -> Result<Self, Ending> {
        let key = dir.join(ADMIN_KEY).display().to_string();
        let words = ["server", "--store", store, "--node", "bench", "--admin-key-file", &key];
        Self::start(binary, &[&words[..], &["--webhook-allow", "127.0.0.0/8"]].concat()).await
    }

    /// Starts a binary, and waits until it is ready.
    async fn start(binary: &Path, words: &[&str]) -> Result<Self, Ending> {
        let failed = |why| Ending::failed(format!("cannot start a server: {why}"));
        let mut process = Command::new(binary)
            .args(words)
            .args(["--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let stdout = process.stdout.take().expect("it was asked for");
        let said = BufReader::new(stdout).lines().next_line().await?.unwrap_or_default();
        let address = address_in(&said).ok_or_else(|| {
            Ending::failed(format!("the server does not say where it listens: {said}"))
        })?;
        while get(address, "/readyz").await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(Self { process, address })
    }

    /// Where it is, with its first key if it made one in this directory.
    pub(super) fn door(&self, dir: &Path) -> Door {
        let key = std::fs::read_to_string(dir.join(ADMIN_KEY)).ok();
        Door { address: self.address, key: key.map(|key| key.trim().to_owned()) }
    }

    pub(super) async fn metrics(&self) -> Result<Metrics, Ending> {
        let text = get(self.address, "/metrics").await;
        text.map(Metrics)
            .map_err(|why| Ending::failed(format!("cannot read the server's metrics: {why}")))
    }

    /// How long it took to answer a request for a page of triggers.
    pub(super) async fn asked(&self) -> Result<Duration, Ending> {
        let watch = Stopwatch::start();
        let page = get(self.address, "/v1/triggers?limit=10").await;
        page.map(|_| watch.elapsed())
            .map_err(|why| Ending::failed(format!("the server does not answer: {why}")))
    }

    /// What it has used so far, as the kernel says.
    pub(super) fn used(&self) -> Used {
        self.process.id().map(Used::by).unwrap_or_default()
    }

    /// Asks it to stop, and waits for that: says how long it took. One that does not stop is killed.
    pub(super) async fn stop(mut self) -> Result<Duration, Ending> {
        let watch = Stopwatch::start();
        let pid = self.process.id().and_then(|pid| i32::try_from(pid).ok());
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            // One that is gone already is found below.
            let _ = kill_process(pid, Signal::TERM);
        }
        let Ok(ended) = timeout(STOP_MAX, self.process.wait()).await else {
            return Err(Ending::failed(format!("the server did not stop within {STOP_MAX:?}")));
        };
        Ok(ended.map(|_| watch.elapsed())?)
    }
}

/// What a process has used.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Used {
    /// Time on a processor.
    pub(super) cpu: Duration,
    /// The most that ever was resident, in KiB.
    pub(super) memory_max: u32,
    /// What is resident, in KiB.
    pub(super) memory: u32,
}

impl Used {
    /// By this process.
    pub(super) fn by_this_process() -> Self {
        Self::by(std::process::id())
    }

    /// By a process and its children, as they are now: time on a processor only.
    pub(super) fn by_family(pid: u32) -> Self {
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let children = children.unwrap_or_default();
        let children = children.split_whitespace().filter_map(|pid| pid.parse().ok());
        let cpu = std::iter::once(pid).chain(children).map(|pid| Self::by(pid).cpu).sum();
        Self { cpu, ..Self::default() }
    }

    /// By the process with this id; nothing where the kernel has no such files.
    fn by(pid: u32) -> Self {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}"));
        let stat = read("stat").unwrap_or_default();
        // The name, in brackets, may hold anything. The kernel counts in hundredths of a second.
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
        let ticks: u64 =
            fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
        let status = read("status").unwrap_or_default();
        let kib = |field: &str| {
            let found = status.lines().find_map(|line| line.strip_prefix(field));
            found.and_then(|kib| kib.split_whitespace().next()?.parse::<u32>().ok()).unwrap_or(0)
        };
        let cpu = Duration::from_millis(ticks * 10);
        Self { cpu, memory_max: kib("VmHWM:"), memory: kib("VmRSS:") }
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

/// What a server says about itself, in Prometheus' form.
pub(super) struct Metrics(String);

impl Metrics {
    /// The samples whose name and labels begin so.
    fn samples(&self, prefix: &str) -> impl Iterator<Item = (&str, f64)> {
        self.0.lines().filter_map(move |line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.strip_prefix(prefix)?, value.parse().ok()?))
        })
    }

    fn sum(&self, prefix: &str) -> f64 {
        self.samples(prefix).map(|(_, value)| value).sum()
    }

    /// Slots that are past.
    pub(super) fn slots(&self) -> f64 {
        self.sum("watchbell_slots_total{")
    }

    /// Slots whose runs succeeded, and are recorded durably.
    pub(super) fn succeeded(&self) -> f64 {
        let samples = self.samples("watchbell_slots_total{");
        samples.filter(|(labels, _)| labels.contains("state=\"succeeded\"")).map(|(_, n)| n).sum()
    }

    /// Commits of shards; those of the session are not among them.
    pub(super) fn commits(&self) -> f64 {
        self.sum("watchbell_commit_duration_seconds_count")
    }

    /// How late 99 of 100 first attempts left since an earlier look, at most: the bound of a bucket.
    pub(super) fn late_p99_ms(&self, before: &Self) -> Option<f64> {
        let counts = |metrics: &Self| -> Vec<(f64, f64)> {
            let buckets = metrics.samples("watchbell_lateness_seconds_bucket{le=\"");
            let bound = |text: &str| text.split('"').next()?.replace("+Inf", "inf").parse().ok();
            buckets.filter_map(|(label, count)| Some((bound(label)?, count))).collect()
        };
        // A server lists its buckets from the least bound to the greatest.
        let (now, then) = (counts(self), counts(before));
        let rose = |place: usize| now[place].1 - then.get(place).map_or(0.0, |(_, count)| *count);
        let wanted = rose(now.len().checked_sub(1)?) * 0.99;
        let found = (0..now.len()).find(|place| rose(*place) >= wanted)?;
        Some(now[found].0 * 1_000.0).filter(|bound| bound.is_finite())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# TYPE watchbell_slots counter\n\
        watchbell_slots_total{state=\"succeeded\",reason=\"\"} 5\n\
        watchbell_slots_total{state=\"skipped\",reason=\"overlap\"} 2\n\
        watchbell_lateness_seconds_bucket{le=\"0.001\"} 90\n\
        watchbell_lateness_seconds_bucket{le=\"0.002\"} 99\n\
        watchbell_lateness_seconds_bucket{le=\"+Inf\"} 100\n\
        # EOF\n";

    #[test]
    fn the_address_is_found_in_the_first_sentence() {
        let line = "watchbell listens on http://127.0.0.1:4711 and keeps its data in x";
        assert_eq!(address_in(line), "127.0.0.1:4711".parse().ok());
        assert_eq!(address_in("no"), None);
    }

    #[test]
    fn this_process_has_used_memory() {
        assert!(Used::by(std::process::id()).memory_max > 0 || !cfg!(target_os = "linux"));
    }

    #[test]
    fn samples_are_found_by_name_and_state_and_a_percentile_is_the_bound_of_its_bucket() {
        let metrics = Metrics(TEXT.to_owned());
        assert!((metrics.slots() - 7.0).abs() < 0.1 && (metrics.succeeded() - 5.0).abs() < 0.1);
        assert_eq!(metrics.late_p99_ms(&Metrics(String::new())), Some(2.0));
    }
}
