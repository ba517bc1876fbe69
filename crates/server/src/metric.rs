//! What there is to measure, as Prometheus reads it. Base units, and never an id as a label.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use client::election::{ElectionState, HoldState, RiskReason};
use engine::instant::Instant;
use engine::past::{Line, Reason};
use engine::queue::meter::QueueTally;
use engine::queue::unfinished::QueueCensus;
use engine::queue::worker::WorkerActivity;
use engine::shard::TriggerCensus;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::api::convert;
use crate::peers::View;

/// How slots ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SlotLabels {
    state: &'static str,
    reason: &'static str,
}

/// What triggers there are.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TriggerLabels {
    state: &'static str,
}

/// Where runs of queues are, or how they ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueLabels {
    state: &'static str,
}

/// What workers do.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WorkerLabels {
    state: &'static str,
}

/// How elections stand, or what held programs do.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ElectionLabels {
    state: &'static str,
}

/// Why programs may have run twice.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RiskLabels {
    reason: &'static str,
}

/// What was asked of the store, and what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StoreLabels {
    verb: &'static str,
    outcome: &'static str,
}

/// The metrics of a node.
pub struct NodeMetrics {
    registry: Registry,
    lateness: Histogram,
    slots: Family<SlotLabels, Counter>,
    triggers: Family<TriggerLabels, Gauge>,
    queue_runs: Family<QueueLabels, Gauge>,
    queue_ends: Family<QueueLabels, Counter>,
    queue_oldest: Gauge,
    queue_given: Counter,
    queue_start_delay: Histogram,
    queues_overdue: Gauge,
    workers: Family<WorkerLabels, Gauge>,
    output_stored: Counter<u64, AtomicU64>,
    in_flight: Gauge,
    waiting: Gauge,
    commit_seconds: Histogram,
    commit_bytes: Histogram,
    fires: Counter<u64, AtomicU64>,
    history: Gauge,
    over_budget: Counter,
    store: Family<StoreLabels, Counter>,
    elections: Family<ElectionLabels, Gauge>,
    holds: Family<ElectionLabels, Gauge>,
    risks: Family<RiskLabels, Counter>,
}

impl Default for NodeMetrics {
    fn default() -> Self {
        let mut all = Registry::with_prefix("watchbell");
        let new = Self {
            lateness: Histogram::new(exponential_buckets(0.001, 2.0, 18)),
            slots: Family::default(),
            triggers: Family::default(),
            queue_runs: Family::default(),
            queue_ends: Family::default(),
            queue_oldest: Gauge::default(),
            queue_given: Counter::default(),
            queue_start_delay: Histogram::new(exponential_buckets(0.001, 2.0, 24)),
            queues_overdue: Gauge::default(),
            workers: Family::default(),
            output_stored: Counter::default(),
            in_flight: Gauge::default(),
            waiting: Gauge::default(),
            commit_seconds: Histogram::new(exponential_buckets(0.000_25, 2.0, 16)),
            commit_bytes: Histogram::new(exponential_buckets(256.0, 4.0, 10)),
            fires: Counter::default(),
            history: Gauge::default(),
            over_budget: Counter::default(),
            store: Family::default(),
            elections: Family::default(),
            holds: Family::default(),
            risks: Family::default(),
            registry: Registry::default(),
        };
        all.register_with_unit(
            "lateness",
            "How late first attempts left",
            Unit::Seconds,
            new.lateness.clone(),
        );
        all.register("slots", "Slots and runs that ended, by state and reason", new.slots.clone());
        all.register("triggers", "Triggers, by state", new.triggers.clone());
        new.register_queues(&mut all);
        all.register("attempts_in_flight", "Attempts under way", new.in_flight.clone());
        all.register("attempts_waiting", "Attempts that wait for their host", new.waiting.clone());
        all.register_with_unit(
            "commit_duration",
            "How long commits took",
            Unit::Seconds,
            new.commit_seconds.clone(),
        );
        all.register_with_unit(
            "commit_size",
            "How large commits were",
            Unit::Bytes,
            new.commit_bytes.clone(),
        );
        all.register("fires", "First attempts that left", new.fires.clone());
        all.register_with_unit(
            "history_size",
            "Pages of the past, as far as they were counted since the start",
            Unit::Bytes,
            new.history.clone(),
        );
        all.register(
            "history_over_budget",
            "How often the oldest of the past had to go because there was too much of it",
            new.over_budget.clone(),
        );
        all.register(
            "store_operations",
            "What was asked of the store and answered, by verb and outcome",
            new.store.clone(),
        );
        new.register_elections(&mut all);
        Self { registry: all, ..new }
    }
}

impl NodeMetrics {
    fn register_elections(&self, all: &mut Registry) {
        all.register(
            "elections",
            "Elections of all projects, by state, as this server saw them last",
            self.elections.clone(),
        );
        all.register("holds", "Those that are holds, by state", self.holds.clone());
        all.register(
            "hold_at_risk",
            "How often this server told that a held program may have run twice, by reason",
            self.risks.clone(),
        );
    }

    /// So elections stand.
    pub(crate) fn elections(&self, all: &[(ElectionState, Option<HoldState>)]) {
        let set = |family: &Family<ElectionLabels, Gauge>, state, count: usize| {
            let gauge = family.get_or_create(&ElectionLabels { state });
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        };
        for state in ElectionState::ALL {
            let count = all.iter().filter(|(of, _)| *of == state).count();
            set(&self.elections, state.as_str(), count);
        }
        for state in HoldState::ALL {
            let count = all.iter().filter(|(_, of)| *of == Some(state)).count();
            set(&self.holds, state.as_str(), count);
        }
    }

    /// It was told that a held program may have run twice.
    pub(crate) fn hold_at_risk(&self, reason: RiskReason) {
        self.risks.get_or_create(&RiskLabels { reason: reason.as_str() }).inc();
    }

    fn register_queues(&self, all: &mut Registry) {
        all.register(
            "queue_runs",
            "Unfinished runs of the queues that this server has, by state",
            self.queue_runs.clone(),
        );
        all.register("queue_ends", "Runs of queues that ended, by state", self.queue_ends.clone());
        all.register_with_unit(
            "queue_oldest_wait",
            "How long the oldest run of a queue is due that a worker could have",
            Unit::Seconds,
            self.queue_oldest.clone(),
        );
        all.register(
            "queue_given",
            "Runs of queues that were given to workers, attempt by attempt",
            self.queue_given.clone(),
        );
        all.register_with_unit(
            "queue_start_delay",
            "How long runs of queues had been due when a worker was given them",
            Unit::Seconds,
            self.queue_start_delay.clone(),
        );
        all.register(
            "queues_overdue",
            "Queues whose oldest run waits for longer than their alert_after",
            self.queues_overdue.clone(),
        );
        all.register(
            "workers",
            "Workers that this server heard of, by what they do",
            self.workers.clone(),
        );
        all.register_with_unit(
            "queue_output_stored",
            "What was stored of what runs of queues printed",
            Unit::Bytes,
            self.output_stored.clone(),
        );
    }

    /// A first attempt left, so late.
    pub(crate) fn late(&self, millis: i64) {
        self.fires.inc();
        let millis = u32::try_from(millis.max(0)).unwrap_or(u32::MAX);
        self.lateness.observe(f64::from(millis) / 1_000.0);
    }

    pub(crate) fn commit(&self, took: Duration, bytes: usize) {
        self.commit_seconds.observe(took.as_secs_f64());
        self.commit_bytes.observe(f64::from(u32::try_from(bytes).unwrap_or(u32::MAX)));
    }

    pub(crate) fn store(&self, verb: &'static str, outcome: &'static str) {
        self.store.get_or_create(&StoreLabels { verb, outcome }).inc();
    }

    pub(crate) fn history(&self, bytes: u64) {
        self.history.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    pub(crate) fn over_budget(&self) {
        self.over_budget.inc();
    }

    /// So many bytes of output were stored.
    pub(crate) fn add_output_stored(&self, bytes: u64) {
        self.output_stored.inc_by(bytes);
    }

    /// So many bytes of output were stored since the start.
    pub(crate) fn output_stored(&self) -> u64 {
        self.output_stored.get()
    }

    /// So many attempts are under way, and so many wait.
    pub(crate) fn in_flight(&self, in_flight: usize, waiting: usize) {
        self.in_flight.set(i64::try_from(in_flight).unwrap_or(i64::MAX));
        self.waiting.set(i64::try_from(waiting).unwrap_or(i64::MAX));
    }

    pub(crate) fn line(&self, line: &Line) {
        if let Line::Run(run) = line
            && run.queue.is_some()
            && run.notice.is_none()
        {
            let state = convert::end(run.end).as_str();
            // Of a run that had parts these are counted.
            let had_parts = run.queue.as_ref().is_some_and(|queue| queue.parts.is_some());
            let ends = if had_parts { 0 } else { 1 };
            self.queue_ends.get_or_create(&QueueLabels { state }).inc_by(ends);
            // One that was submitted is of no slot.
            if run.generation.is_none() {
                return;
            }
        }
        let (labels, count) = match line {
            Line::Run(run) if run.notice.is_some() => {
                (SlotLabels { state: convert::end(run.end).as_str(), reason: "notification" }, 1)
            }
            Line::Run(run) => (SlotLabels { state: convert::end(run.end).as_str(), reason: "" }, 1),
            Line::Skip(skip) => {
                (SlotLabels { state: "skipped", reason: reason(skip.reason) }, skip.count)
            }
        };
        self.slots.get_or_create(&labels).inc_by(count);
    }

    pub(crate) fn triggers(&self, shards: impl Iterator<Item = TriggerCensus>) {
        let mut all = TriggerCensus::default();
        for census in shards {
            all.add(census);
        }
        for (state, count) in [
            ("scheduled", all.scheduled),
            ("paused", all.paused),
            ("cancelled", all.cancelled),
            ("idle", all.idle),
        ] {
            let gauge = self.triggers.get_or_create(&TriggerLabels { state });
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// Where the unfinished runs of queues are.
    pub(crate) fn queues(&self, shards: impl Iterator<Item = QueueCensus>, now: Instant) {
        let (mut waiting, mut running, mut oldest) = (0_usize, 0_u64, None);
        for census in shards {
            waiting += census.waiting;
            running += u64::from(census.running);
            oldest = oldest.into_iter().chain(census.oldest).min();
        }
        let waiting = i64::try_from(waiting).unwrap_or(i64::MAX);
        let running = i64::try_from(running).unwrap_or(i64::MAX);
        for (state, count) in [("waiting", waiting), ("running", running)] {
            self.queue_runs.get_or_create(&QueueLabels { state }).set(count);
        }
        let age_ms = oldest.map_or(0, |oldest| now.0.saturating_sub(oldest.0).max(0));
        self.queue_oldest.set(age_ms / 1_000);
    }

    /// Runs of queues were given to workers.
    pub(crate) fn given(&self, tally: &QueueTally) {
        self.queue_given.inc_by(tally.start_delays_ms.len() as u64);
        for delay_ms in &tally.start_delays_ms {
            self.queue_start_delay.observe(f64::from(*delay_ms) / 1_000.0);
        }
    }

    pub(crate) fn overdue_queues(&self, count: usize) {
        self.queues_overdue.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// What workers do. One that several shards know is counted once.
    pub(crate) fn workers<'a>(&self, known: impl Iterator<Item = (&'a Arc<str>, WorkerActivity)>) {
        let mut by_name: HashMap<&str, WorkerActivity> = HashMap::new();
        for (name, activity) in known {
            let most = by_name.entry(name).or_insert(activity);
            *most = activity.max(*most);
        }
        let count = |of| by_name.values().filter(|activity| **activity == of).count();
        for (state, activity) in [
            ("idle", WorkerActivity::Idle),
            ("waiting", WorkerActivity::Waiting),
            ("silent", WorkerActivity::Silent),
            ("busy", WorkerActivity::Busy),
            ("draining", WorkerActivity::Draining),
        ] {
            let gauge = self.workers.get_or_create(&WorkerLabels { state });
            gauge.set(i64::try_from(count(activity)).unwrap_or(i64::MAX));
        }
    }

    /// As Prometheus reads it.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        text
    }
}

/// What there is to measure about the cluster, as this server sees it.
pub(crate) fn of_cluster(view: &View) -> String {
    let is_apart = view.mine().is_some_and(|server| server.is_apart);
    let gauges = [
        ("servers", "Servers of the cluster that are there", view.servers.len()),
        ("shards", "Shards that this server has", view.shards_of(&view.me).count()),
        ("shards_without_owner", "Shards that nobody has who is there", view.orphans().count()),
        (
            "clock_apart",
            "Whether the clock of this server is so far from the others' that it takes no shard",
            usize::from(is_apart),
        ),
    ];
    let mut text = String::new();
    for (name, about, value) in gauges {
        let name = format!("watchbell_cluster_{name}");
        writeln!(text, "# HELP {name} {about}.\n# TYPE {name} gauge\n{name} {value}")
            .expect("a String never fails");
    }
    text
}

fn reason(reason: Reason) -> &'static str {
    match reason {
        Reason::Paused => "paused",
        Reason::Overlap => "overlap",
        Reason::Misfire => "misfire",
        Reason::Cap => "cap",
        Reason::Limit => "limit",
        Reason::Superseded => "superseded",
        Reason::Disabled => "disabled",
        Reason::Pruned => "pruned",
        Reason::QueueFull => "queue_full",
    }
}

#[cfg(test)]
mod tests {
    use store::session::{NodeId, SessionKey};

    use super::*;

    #[test]
    fn a_cluster_is_measured_by_its_servers_and_shards() {
        let session = |name| SessionKey::new(&NodeId::new(name).unwrap(), 1);
        let mut view = View::alone(session("a"), 4);
        view.owners[3] = Some(session("gone"));
        view.servers[0].is_apart = true;
        let text = of_cluster(&view);
        for line in ["servers 1", "shards 3", "shards_without_owner 1", "clock_apart 1"] {
            assert!(text.contains(&format!("\nwatchbell_cluster_{line}\n")), "{line}: {text}");
        }
    }
}
