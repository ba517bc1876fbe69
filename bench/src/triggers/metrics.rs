//! What a server says about itself, read as Prometheus would.

use std::collections::BTreeMap;

use super::report::{float, whole};

/// The samples of one look, by name and labels.
#[derive(Debug, Clone, Default)]
pub(super) struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    pub(super) fn read(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let samples = lines.filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        Self(samples.collect())
    }

    /// The same of several servers together.
    pub(super) fn add(&mut self, other: Self) {
        for (key, value) in other.0 {
            *self.0.entry(key).or_default() += value;
        }
    }

    /// The sum of all samples with this name, whatever their labels.
    fn sum(&self, name: &str) -> u64 {
        let samples = self.0.iter().filter(|(key, _)| {
            key.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('{'))
        });
        whole(samples.map(|(_, value)| value).sum())
    }

    /// First attempts that left.
    pub(super) fn fires(&self) -> u64 {
        self.sum("watchbell_fires_total")
    }

    /// Runs that succeeded, and are recorded durably.
    pub(super) fn succeeded(&self) -> u64 {
        let good = |key: &str| key.contains("state=\"succeeded\"");
        let samples = self.0.iter().filter(|(key, _)| is_slot(key) && good(key));
        whole(samples.map(|(_, value)| value).sum())
    }

    /// Slots that ended in any other way.
    pub(super) fn not_succeeded(&self) -> u64 {
        self.sum("watchbell_slots_total") - self.succeeded()
    }

    /// Commits of shards; those of the session are not among them.
    pub(super) fn commits(&self) -> u64 {
        self.sum("watchbell_commit_duration_seconds_count")
    }

    /// Scans and commits that the store has answered.
    pub(super) fn store_operations(&self) -> u64 {
        self.sum("watchbell_store_operations_total")
    }

    /// Commits among these: of shards, of sessions, of everything.
    pub(super) fn store_commits(&self) -> u64 {
        let is_commit = |key: &str| {
            key.starts_with("watchbell_store_operations_total{") && key.contains("\"commit\"")
        };
        whole(self.0.iter().filter(|(key, _)| is_commit(key)).map(|(_, value)| value).sum())
    }

    /// Shards that the server has.
    pub(super) fn shards(&self) -> u64 {
        self.sum("watchbell_cluster_shards")
    }

    /// Triggers that will fire.
    pub(super) fn scheduled(&self) -> u64 {
        let samples = self.0.iter().filter(|(key, _)| {
            key.starts_with("watchbell_triggers{") && key.contains("\"scheduled\"")
        });
        whole(samples.map(|(_, value)| value).sum())
    }

    /// Attempts that wait for their host.
    pub(super) fn waiting(&self) -> u64 {
        self.sum("watchbell_attempts_waiting")
    }

    /// How late first attempts left since an earlier look: no later than this, for so many of a thousand. Only
    /// as exact as the histogram's buckets.
    pub(super) fn left_late_ms(&self, before: &Self, per_mille: u64) -> Option<f64> {
        const BUCKET: &str = "watchbell_lateness_seconds_bucket{le=\"";
        let mut buckets: Vec<(f64, f64)> = self
            .0
            .iter()
            .filter_map(|(key, value)| {
                let bound = key.strip_prefix(BUCKET)?.split('"').next()?;
                let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().ok()? };
                Some((bound, value - before.0.get(key).copied().unwrap_or_default()))
            })
            .collect();
        buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
        let wanted = buckets.last()?.1 * float(per_mille) / 1_000.0;
        let found = buckets.iter().find(|(_, count)| *count >= wanted)?;
        Some(found.0 * 1_000.0)
    }
}

fn is_slot(key: &str) -> bool {
    key.starts_with("watchbell_slots_total{")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# TYPE watchbell_fires counter\n\
        watchbell_fires_total 7\n\
        watchbell_slots_total{state=\"succeeded\",reason=\"\"} 5\n\
        watchbell_slots_total{state=\"skipped\",reason=\"overlap\"} 2\n\
        watchbell_lateness_seconds_bucket{le=\"0.001\"} 90\n\
        watchbell_lateness_seconds_bucket{le=\"0.002\"} 99\n\
        watchbell_lateness_seconds_bucket{le=\"+Inf\"} 100\n\
        # EOF\n";

    #[test]
    fn samples_are_found_by_name_and_state() {
        let metrics = Metrics::read(TEXT);
        assert_eq!((metrics.fires(), metrics.succeeded(), metrics.not_succeeded()), (7, 5, 2));
        assert_eq!(metrics.commits(), 0);
    }

    #[test]
    fn a_percentile_is_the_bound_of_its_bucket() {
        let (before, metrics) = (Metrics::default(), Metrics::read(TEXT));
        assert_eq!(metrics.left_late_ms(&before, 500), Some(1.0));
        assert_eq!(metrics.left_late_ms(&before, 990), Some(2.0));
        assert_eq!(metrics.left_late_ms(&before, 999), Some(f64::INFINITY));
    }
}
