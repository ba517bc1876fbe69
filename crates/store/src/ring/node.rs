//! The node that a driver works for: what it sees of itself and of others, and what it counts.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::instant::Instant;

use super::state::Mono;
use super::{RingPart, RingSettings};
use crate::machine::Machine;
use crate::session::Session;
use crate::{Class, Store};

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
    /// Those of them that did not win: others were quicker, members had changed, or the store gave no answer.
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

    pub(super) fn late_by(&mut self, late_ms: u64) {
        let class = LATE_MS_BOUNDS.partition_point(|bound| *bound < late_ms);
        self.late[class] += 1;
        self.late_ms_sum += late_ms;
    }
}

/// The node that a driver works for, as it sees itself and others.
pub(super) struct RingNode {
    pub(super) session: Session,
    pub(super) settings: RingSettings,
    /// The key of its session.
    pub(super) me: Arc<str>,
    /// All sessions that there are, and whether each is a server's that advances rings.
    pub(super) sessions: BTreeMap<Arc<str>, bool>,
    pub(super) is_stopping: bool,
    /// When the store last answered.
    pub(super) contact: Mono,
    pub(super) stats: RingStats,
    pub(super) followers_begun: u64,
}

impl RingNode {
    pub(super) fn machine(&self) -> &Arc<dyn Machine> {
        self.session.machine()
    }

    pub(super) fn store(&self) -> &Store {
        self.session.store()
    }

    pub(super) fn now(&self) -> Mono {
        self.machine().reading().raw
    }

    pub(super) fn wall_us(&self) -> i64 {
        i64::try_from(self.machine().wall_us()).unwrap_or(i64::MAX)
    }

    pub(super) fn wall(&self) -> Instant {
        Instant(self.wall_us() / 1_000)
    }

    pub(super) fn advances(&self) -> bool {
        self.settings.part == RingPart::Advances && !self.is_stopping
    }

    /// Whether it may take a turn now.
    pub(super) fn may_write(&self) -> bool {
        self.advances()
            && (self.settings.clock_is_good)()
            && (self.store().class() < Class::B || self.session.quarantine_left().is_zero())
    }

    pub(super) fn is_there(&self, session: &str) -> bool {
        self.sessions.contains_key(session) || *session == *self.me
    }
}
