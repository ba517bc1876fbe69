//! How fast a store is: what `watchbell store check` measures.
//!
//! Each measurement runs for a fixed time and keeps every latency, up to a bound, so that the rare
//! slow ones show.

use std::time::Duration;

use tokio::task::JoinSet;

use crate::clock::Stopwatch;
use crate::conformance::{ClauseResult, ClauseViolation};
use crate::{Commit, Key, Range, Store};

/// Latencies kept of one measurement; later ones are only counted.
const SAMPLES_MAX: usize = 1_000_000;

/// Bytes of a value that is written to measure: about what a small trigger takes.
const VALUE_BYTES: usize = 200;

/// The latencies that matter to people.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Latencies {
    /// Half are quicker.
    pub p50: Duration,
    /// All but one in a hundred are quicker.
    pub p99: Duration,
    /// All but one in a thousand are quicker.
    pub p999: Duration,
    /// The slowest of all.
    pub max: Duration,
}

impl Latencies {
    /// Of these samples; all zero if there are none.
    pub fn of(mut samples: Vec<Duration>) -> Self {
        samples.sort_unstable();
        let Some(&max) = samples.last() else {
            return Self::default();
        };
        let at = |per_mille: usize| samples[(samples.len() - 1) * per_mille / 1_000];
        Self { p50: at(500), p99: at(990), p999: at(999), max }
    }
}

/// What one measurement found.
#[derive(Debug, Clone, Copy)]
pub struct Speed {
    /// How many calls were done.
    pub count: usize,
    /// The time that they took together.
    pub elapsed: Duration,
    /// How long each one took.
    pub latencies: Latencies,
}

impl Speed {
    /// How many calls were done per second.
    #[expect(clippy::cast_precision_loss, reason = "a rate for people needs no more than 53 bits")]
    pub fn per_second(&self) -> f64 {
        self.count as f64 / self.elapsed.as_secs_f64().max(f64::EPSILON)
    }
}

/// Commits of one write each, by so many writers at once, each waiting for its own.
pub async fn commits(
    store: &Store,
    prefix: &str,
    writers: usize,
    duration: Duration,
) -> ClauseResult<Speed> {
    let clock = Stopwatch::start();
    let mut tasks = JoinSet::new();
    for writer in 0..writers {
        let (store, prefix) = (store.clone(), format!("{prefix}{writers}/{writer}/"));
        tasks.spawn(async move {
            let mut samples = Vec::new();
            let mut count = 0;
            while clock.elapsed() < duration {
                let key = Key::new(format!("{prefix}{:06}", count % 10_000))
                    .expect("short and printable");
                let commit = Commit::new().put(key, vec![b'x'; VALUE_BYTES]);
                let each = Stopwatch::start();
                store.commit(commit).await?;
                note(&mut samples, each.elapsed(), writers);
                count += 1;
            }
            Ok::<_, ClauseViolation>((count, samples))
        });
    }
    gather(tasks, clock).await
}

/// Pages of a hundred entries of what [`commits`] wrote, one after the other.
pub async fn scans(store: &Store, prefix: &str, duration: Duration) -> ClauseResult<Speed> {
    let clock = Stopwatch::start();
    let (store, whole) = (store.clone(), Range::prefix(prefix));
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut samples = Vec::new();
        let mut count = 0;
        let mut rest = whole.clone();
        while clock.elapsed() < duration {
            let each = Stopwatch::start();
            let page = store.scan(rest, 100).await?;
            note(&mut samples, each.elapsed(), 1);
            count += 1;
            rest = page.next.unwrap_or_else(|| whole.clone());
        }
        Ok::<_, ClauseViolation>((count, samples))
    });
    gather(tasks, clock).await
}

fn note(samples: &mut Vec<Duration>, sample: Duration, sharers: usize) {
    if samples.len() < SAMPLES_MAX / sharers {
        samples.push(sample);
    }
}

async fn gather(
    mut tasks: JoinSet<ClauseResult<(usize, Vec<Duration>)>>,
    clock: Stopwatch,
) -> ClauseResult<Speed> {
    let mut count = 0;
    let mut samples = Vec::new();
    while let Some(task) = tasks.join_next().await {
        let (more, latencies) = task.map_err(|why| ClauseViolation::Broken(why.to_string()))??;
        count += more;
        samples.extend(latencies);
    }
    Ok(Speed { count, elapsed: clock.elapsed(), latencies: Latencies::of(samples) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_taken_from_the_sorted_samples() {
        let samples = (1..=1_000).rev().map(Duration::from_micros).collect();
        let found = Latencies::of(samples);
        let micros = |latency: Duration| latency.as_micros();
        assert_eq!(
            [found.p50, found.p99, found.p999, found.max].map(micros),
            [500, 990, 999, 1_000]
        );
        assert_eq!(Latencies::of(vec![]), Latencies::default());
    }
}
