//! What there is to measure of a worker, as Prometheus reads it, and whether it lives and is ready.
//!
//! Everything is read at the moment of the scrape from what the worker and its commands count; nothing is kept here.
//!
//! A worker is alive as long as it answers. It is ready while a server answers it, it does not drain, and its spool can be
//! written: one that is not ready goes on with what it has, so nobody should kill it for that.

use std::fmt;
use std::sync::Arc;

use hyper::StatusCode;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use worker::Sight;
use worker::command::Commands;

use crate::pages::{Pages, text};

/// All metrics of a worker.
pub(crate) struct WorkerBoard {
    registry: Registry,
    sight: Arc<Sight>,
}

/// Reads them.
struct Reader {
    sight: Arc<Sight>,
    commands: Arc<Commands>,
}

impl WorkerBoard {
    pub(crate) fn new(sight: &Arc<Sight>, commands: &Arc<Commands>) -> Self {
        let (sight, commands) = (Arc::clone(sight), Arc::clone(commands));
        let mut registry = Registry::with_prefix("watchbell_worker");
        registry.register_collector(Box::new(Reader { sight: Arc::clone(&sight), commands }));
        Self { registry, sight }
    }

    /// Why it is not ready, if it is not.
    fn trouble(&self) -> Option<String> {
        if self.sight.is_draining() {
            return Some("it drains".to_owned());
        }
        if let Some(why) = self.sight.spool_trouble() {
            return Some(why);
        }
        match (self.sight.servers_gone_for(), self.sight.unheard_for()) {
            (Some(gone), _) => Some(format!("no server answers, for {} s", gone.as_secs())),
            (None, None) => Some("no server has answered yet".to_owned()),
            (None, Some(_)) => None,
        }
    }
}

impl Pages for WorkerBoard {
    const PATHS: &'static str = "/livez, /readyz and /metrics";

    fn metrics(&self) -> String {
        text(&self.registry)
    }

    fn other(&self, path: &str) -> Option<(StatusCode, String)> {
        (path == "/readyz").then(|| match self.trouble() {
            None => (StatusCode::OK, "ok\n".to_owned()),
            Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
        })
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Reader")
    }
}

impl Reader {
    fn counters(&self) -> [(&'static str, &'static str, u64); 16] {
        let (sight, counts) = (&self.sight, self.commands.counts());
        [
            ("given", "Runs that servers gave it", sight.given.get()),
            ("begun", "Runs that it has begun", sight.begun.get()),
            ("succeeded", "Attempts that succeeded", sight.succeeded.get()),
            ("failed", "Attempts that failed", sight.failed.get()),
            ("cancelled", "Attempts that were cancelled", sight.cancelled.get()),
            ("stopped", "Attempts that it ended early", sight.stopped.get()),
            ("died", "Attempts of former lives that left no result", sight.died.get()),
            ("lost", "Runs that it lost to others", sight.lost.get()),
            (
                "uncounted",
                "Results that were said once, and came too late to count",
                sight.uncounted.get(),
            ),
            ("requests", "Requests to servers", sight.requests.get()),
            ("requests_failed", "Requests to servers that failed", sight.requests_failed.get()),
            ("commands_started", "Commands that were started", counts.started),
            (
                "commands_weak",
                "Commands that only a weak kill could end: neither namespaces nor cgroups were permitted",
                counts.weak,
            ),
            ("commands_refused", "Commands that were refused", counts.refused),
            (
                "commands_lost",
                "Commands whose guards were both killed from outside: look for what is left of them",
                counts.lost,
            ),
            (
                "progress_lines_left_out",
                "Lines of progress that could not be read",
                counts.progress_lines_left_out,
            ),
        ]
    }

    fn gauges(&self) -> [(&'static str, &'static str, u64); 6] {
        let sight = &self.sight;
        [
            ("executing", "Runs that execute", sight.executing.get()),
            ("held", "Runs that it has, begun or not", sight.held.get()),
            ("capacity", "Runs that it carries out at a time", sight.capacity.get()),
            ("unreported", "Results that no server has taken yet", sight.unreported.get()),
            ("spool_bytes", "Bytes of the spool", sight.spool_bytes.get()),
            ("draining", "1 if it takes no more runs; 0 if it does", sight.is_draining().into()),
        ]
    }
}

impl Collector for Reader {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (name, help, count) in self.counters() {
            let metric = ConstCounter::new(count);
            let encoder = encoder.encode_descriptor(name, help, None, metric.metric_type())?;
            metric.encode(encoder)?;
        }
        for (name, help, value) in self.gauges() {
            let metric = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            let encoder = encoder.encode_descriptor(name, help, None, metric.metric_type())?;
            metric.encode(encoder)?;
        }
        let gone = self.sight.servers_gone_for().unwrap_or_default();
        let (name, help) = ("servers_gone_seconds", "For how long no server has answered");
        let metric = ConstGauge::new(gone.as_secs_f64());
        metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
    }
}

#[cfg(test)]
mod tests {
    use worker::command::CommandPolicy;

    use super::*;
    use crate::pages::at;

    fn board() -> WorkerBoard {
        let commands = Arc::new(Commands::new(CommandPolicy::default(), None));
        WorkerBoard::new(&Arc::new(Sight::default()), &commands)
    }

    #[test]
    fn every_count_is_shown_under_its_name() {
        let text = board().metrics();
        for name in [
            "given_total",
            "succeeded_total",
            "commands_started_total",
            "commands_weak_total",
            "executing",
            "unreported",
            "draining",
        ] {
            assert!(text.contains(&format!("\nwatchbell_worker_{name} 0\n")), "{name}: {text}");
        }
        assert!(text.contains("watchbell_worker_servers_gone_seconds 0"), "{text}");
    }

    #[test]
    fn a_worker_that_nobody_answered_is_alive_and_not_ready() {
        let board = board();
        assert_eq!(at(&board, "/livez").unwrap().0, StatusCode::OK);
        let (status, why) = at(&board, "/readyz").unwrap();
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(why, "no server has answered yet\n");
        assert_eq!(at(&board, "/"), None);
    }
}
