//! Rings at a node: what it says about itself to [`store::ring`], the component that runs them, and what is measured.

use std::fmt::Write;
use std::sync::Arc;

use engine::limits::RING_PROJECTS_MEASURED_MAX;
use store::machine::within;
use store::ring::{LATE_MS_BOUNDS, RingDriver, RingPart, RingSettings, RingStats, Rings};
use store::session::{Session, SessionRecord};
use tokio::sync::watch;

use crate::handle::NodeStatus;
use crate::node::Component;
use crate::peers::{Peers, SCHEDULE};

/// The part of this node in the rings of its store. Whoever has the second of it starts it.
pub(crate) fn rings(session: &Session, peers: &Arc<Peers>) -> (Rings, RingDriver) {
    let view = peers.follow();
    let settings = RingSettings {
        is_server,
        clock_is_good: Arc::new(move || view.borrow().mine().is_some_and(|me| !me.is_apart)),
        part: RingPart::Advances,
    };
    Rings::new(session, settings)
}

/// Which sessions are of nodes that advance rings.
fn is_server(record: &SessionRecord) -> bool {
    record.roles.iter().any(|role| role == SCHEDULE)
}

/// Keeps the rings going, and takes no turn any more when the node begins to stop.
pub(crate) struct RingKeeper {
    pub(crate) rings: Rings,
    pub(crate) driver: RingDriver,
    pub(crate) session: Session,
    pub(crate) status: watch::Receiver<NodeStatus>,
}

impl Component for RingKeeper {
    const NAME: &'static str = "the keeper of rings";

    async fn run(mut self) {
        let stopping = async {
            // If nobody shows it any more, there is no node.
            let _ = self.status.wait_for(|status| !status.is_ready).await;
            within(self.session.machine(), self.session.ttl().length(), self.rings.stop()).await;
        };
        tokio::join!(stopping, self.driver.run());
    }
}

/// What there is to measure about rings, as Prometheus reads it.
pub(crate) fn metrics(stats: &RingStats) -> String {
    let mut text = String::new();
    let mut put = |name: &str, kind: &str, about: &str, lines: &[(String, f64)]| {
        let name = format!("watchbell_ring{name}");
        write!(text, "# HELP {name} {about}.\n# TYPE {name} {kind}\n").expect("a String");
        for (rest, value) in lines {
            writeln!(text, "{name}{rest} {value}").expect("a String never fails");
        }
    };
    for (name, about, count) in [
        ("_turns_total", "Turns that this server decided", stats.turns),
        ("_slots_skipped_total", "Slots that it recorded as skipped", stats.skipped),
        ("_tries_total", "Commits that it tried on subscriptions", stats.tries),
        ("_tries_lost_total", "Of these, those that another server was quicker with", stats.lost),
        ("_looks_total", "How often it looked at a ring in the store", stats.looks),
    ] {
        put(name, "counter", about, &[(String::new(), float(count))]);
    }
    let (mut classes, mut sum) = (Vec::new(), 0);
    for (number, count) in stats.late.iter().enumerate() {
        sum += count;
        let bound = LATE_MS_BOUNDS.get(number).map(|ms| (float(*ms) / 1_000.0).to_string());
        let bound = bound.unwrap_or_else(|| "+Inf".to_owned());
        classes.push((format!("_bucket{{le=\"{bound}\"}}"), float(sum)));
    }
    classes.push(("_sum".to_owned(), float(stats.late_ms_sum) / 1_000.0));
    classes.push(("_count".to_owned(), float(sum)));
    let about = "How late the turns that it decided were written after their slot";
    put("_lateness_seconds", "histogram", about, &classes);
    // Names of projects are few, and people chose them; of more than this the rest is one.
    let (mut rings, mut members, mut rest) = (Vec::new(), Vec::new(), (0, 0));
    for (number, (name, project)) in stats.projects.iter().enumerate() {
        if number < RING_PROJECTS_MEASURED_MAX {
            let label = format!("{{project=\"{name}\"}}");
            rings.push((label.clone(), float(project.rings as u64)));
            members.push((label, float(project.members as u64)));
        } else {
            rest = (rest.0 + project.rings, rest.1 + project.members);
        }
    }
    if rest.0 > 0 {
        let label = "{project=\"\"}".to_owned();
        rings.push((label.clone(), float(rest.0 as u64)));
        members.push((label, float(rest.1 as u64)));
    }
    put("s", "gauge", "Rings, by project", &rings);
    put("_members", "gauge", "Members of rings, by project", &members);
    for (name, about, count) in [
        ("_members_sponsored", "Members that this server vouches for", stats.sponsored),
        ("_followers", "Who follows rings at this server", stats.followers),
    ] {
        put(name, "gauge", about, &[(String::new(), float(count as u64))]);
    }
    text
}

#[expect(clippy::cast_precision_loss, reason = "a metric is a float")]
fn float(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use store::ring::ProjectRings;

    use super::*;

    #[test]
    fn rings_are_measured_by_what_this_server_did_and_by_project() {
        let mut stats =
            RingStats { turns: 7, tries: 8, lost: 1, late_ms_sum: 30, ..RingStats::default() };
        (stats.late[0], stats.late[4]) = (5, 2);
        let names = (0..=RING_PROJECTS_MEASURED_MAX).map(|number| format!("p{number:03}").into());
        stats.projects = names.map(|name| (name, ProjectRings { rings: 2, members: 3 })).collect();
        let text = metrics(&stats);
        for line in [
            "watchbell_ring_turns_total 7",
            "watchbell_ring_tries_lost_total 1",
            "watchbell_ring_lateness_seconds_bucket{le=\"0.001\"} 5",
            "watchbell_ring_lateness_seconds_bucket{le=\"0.02\"} 7",
            "watchbell_ring_lateness_seconds_bucket{le=\"+Inf\"} 7",
            "watchbell_ring_lateness_seconds_sum 0.03",
            "watchbell_ring_lateness_seconds_count 7",
            "watchbell_rings{project=\"p000\"} 2",
            "watchbell_ring_members{project=\"\"} 3",
        ] {
            assert!(text.lines().any(|one| one == line), "{line}: {text}");
        }
        assert!(!text.contains(&format!("p{RING_PROJECTS_MEASURED_MAX:03}")));
    }
}
