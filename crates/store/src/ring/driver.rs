//! To come.
use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use super::call::Call;
use super::{RingError, RingSettings};
use crate::session::Session;

/// Bounds of the classes in which it is counted how late turns are written, in milliseconds; one more class is beyond the last.
pub const LATE_MS_BOUNDS: [u64; 12] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000];

/// What a node did about rings since it started, and what it knows of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RingStats {
    /// Turns that this node wrote.
    pub turns: u64,
    /// Slots that it recorded as skipped.
    pub skipped: u64,
    /// Commits that it tried on records of subscriptions.
    pub tries: u64,
    /// Those that others were quicker with, or that met a change of members.
    pub lost: u64,
    /// How often it looked at a ring.
    pub looks: u64,
    /// How late the turns that it wrote were acknowledged, by the classes of [`LATE_MS_BOUNDS`].
    pub late: [u64; LATE_MS_BOUNDS.len() + 1],
    /// The sum of that, in milliseconds.
    pub late_ms_sum: u64,
    /// Rings and members of each project, as this node sees them.
    pub projects: BTreeMap<Arc<str>, ProjectRings>,
    /// Members that this node vouches for.
    pub sponsored: usize,
    /// Followers at this node.
    pub followers: usize,
}

/// What there is of a project.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProjectRings {
    /// Rings.
    pub rings: usize,
    /// Members of all of them.
    pub members: usize,
}

impl RingStats {
    pub(super) fn rings_of(&self, project: &str) -> usize {
        self.projects.get(project).map_or(0, |project| project.rings)
    }
}

/// The work that rings need. Run it until it returns.
pub struct RingDriver {
    session: Session,
    _settings: RingSettings,
    calls: mpsc::Receiver<Call>,
    stats: watch::Sender<RingStats>,
}

impl RingDriver {
    pub(super) fn new(
        session: &Session,
        settings: RingSettings,
        calls: mpsc::Receiver<Call>,
    ) -> Self {
        let stats = watch::Sender::new(RingStats::default());
        Self { session: session.clone(), _settings: settings, calls, stats }
    }

    pub(super) fn stats(&self) -> watch::Receiver<RingStats> {
        self.stats.subscribe()
    }

    /// Advances rings, hears members and tells followers until the session has ended.
    pub async fn run(&mut self) {
        let session = self.session.clone();
        let mut ended = std::pin::pin!(session.ended());
        loop {
            tokio::select! {
                biased;
                _ = &mut ended => return,
                call = self.calls.recv() => match call {
                    Some(call) => call.refuse(RingError::Unavailable("it is not built yet".into())),
                    None => return,
                },
            }
        }
    }
}
