//! What there is to measure of a hold, as Prometheus reads it.
//!
//! Everything is read at the moment of the scrape. Whether it may act, and for how long, is asked of the right itself.

use std::fmt;
use std::sync::Arc;

use ::hold::HoldSight;
use engine::hold::life::LifeState;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::pages::{Pages, text};

/// All metrics of a hold.
pub(super) struct HoldBoard(Registry);

/// Reads them.
#[derive(Debug)]
struct Reader(Arc<HoldSight>);

impl HoldBoard {
    pub(super) fn new(sight: &Arc<HoldSight>) -> Self {
        let mut registry = Registry::with_prefix("watchbell_hold");
        registry.register_collector(Box::new(Reader(Arc::clone(sight))));
        Self(registry)
    }
}

impl Collector for Reader {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let (figures, permit) = (self.0.figures(), self.0.permit());
        let (token, valid_for) =
            permit.map_or_else(Default::default, |permit| (permit.token.0, permit.valid_for));
        for (name, help, count) in [
            ("claims", "How often this node took the claim", figures.claims),
            ("starts", "How often the program was started", figures.starts),
            ("exits", "How often the program has ended", figures.exits),
            ("renewals", "Renewals that were acknowledged with the claim", figures.renewals),
            ("unhealthy", "Health commands that said nothing good", figures.unhealthy),
        ] {
            let metric = ConstCounter::new(count);
            metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)?;
        }
        let metric = ConstGauge::new(i64::try_from(token).unwrap_or(i64::MAX));
        let help = "The fencing token under which the program may run; 0 if it may not";
        metric.encode(encoder.encode_descriptor("token", help, None, metric.metric_type())?)?;
        let metric = ConstGauge::new(valid_for.as_secs_f64());
        let help = "For how long this node may act if nothing is renewed; 0 if it may not";
        let (name, kind) = ("valid_for_seconds", metric.metric_type());
        metric.encode(encoder.encode_descriptor(name, help, None, kind)?)?;
        let help = "1 for what this node does; 0 for all else";
        let mut states = encoder.encode_descriptor("state", help, None, MetricType::Gauge)?;
        for state in LifeState::ALL {
            let metric = ConstGauge::new(i64::from(state == figures.state));
            metric.encode(states.encode_family(&[("state", state.as_str())])?)?;
        }
        let (name, help) = ("at_most_one_at_risk", "Assumptions that were seen broken");
        let mut risks = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (reason, count) in figures.risks {
            let metric = ConstCounter::new(count);
            metric.encode(risks.encode_family(&[("reason", reason.as_str())])?)?;
        }
        Ok(())
    }
}

impl Pages for HoldBoard {
    fn metrics(&self) -> String {
        text(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_shown_under_its_name() {
        let text = HoldBoard::new(&Arc::new(HoldSight::default())).metrics();
        for line in [
            "claims_total 0",
            "starts_total 0",
            "exits_total 0",
            "renewals_total 0",
            "unhealthy_total 0",
            "token 0",
            "valid_for_seconds 0.0",
            "state{state=\"candidate\"} 1",
            "state{state=\"waiting_to_start\"} 0",
            "at_most_one_at_risk_total{reason=\"weak_kill\"} 0",
            "at_most_one_at_risk_total{reason=\"slow_kill\"} 0",
        ] {
            assert!(text.contains(&format!("\nwatchbell_hold_{line}\n")), "{line}: {text}");
        }
    }
}
