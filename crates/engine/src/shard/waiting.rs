//! The runs that wait: the part of a shard that knows what for.
//!
//! Each of them has a record. It waits for an instant, for another run of its trigger, for its project to be enabled, or
//! for its host. What is handed over for sending waits in memory, and what may have left is in doubt after a crash. So a
//! host that is slower than its triggers gets no more than it can chew: the rest waits in the store, where it can wait
//! for long, and no other host notices.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::id::SerialId;
use crate::instant::Instant;

use super::Now;
use super::attempts::by_wall;
use super::record::{RunRecord, RunState};

/// How much there is for a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HostLoad {
    /// Whatever is due may be handed over.
    Free,
    /// What has a record, or must not be in doubt, waits in the store.
    Busy,
    /// Everything waits in the store.
    Full,
}

/// Says how much there is for the host with an [origin](crate::webhook::Form::origin).
pub type HostLoadOf<'a> = &'a dyn Fn(u64) -> HostLoad;

/// How long to wait before a host is looked at again, and how many of its runs are then started at most: what is
/// started counts for its load only once it has left.
const LOOK_AGAIN_MS: u64 = 100;
const AT_ONCE_MAX: usize = 64;

/// Runs that wait, by the numbers of their records.
#[derive(Default)]
pub(super) struct WaitingRuns {
    for_instant: BTreeSet<(Instant, u64)>,
    /// Runs that wait for another one of their trigger to end.
    blocked: BTreeSet<(SerialId, u64)>,
    for_project: BTreeSet<u64>,
    /// Runs whose instant has come, by the origin of their host.
    for_host: BTreeMap<u64, BTreeSet<(Instant, u64)>>,
    /// Runs for a host that were started since hosts were last looked at.
    started: HashMap<u64, usize>,
    /// When (steady) hosts are looked at again.
    look_again: u64,
}

impl WaitingRuns {
    /// A run waits, as its record says.
    pub(super) fn add(&mut self, sequence: u64, run: &RunRecord) {
        match run.state {
            RunState::Waiting(at) | RunState::Backoff(at) => {
                self.for_instant.insert((at, sequence));
            }
            RunState::Blocked => self.block(run.trigger, sequence),
            RunState::Running => {}
        }
    }

    /// A run waits no more.
    pub(super) fn remove(&mut self, sequence: u64, run: &RunRecord) {
        self.blocked.remove(&(run.trigger, sequence));
        self.for_project.remove(&sequence);
        if let RunState::Waiting(at) | RunState::Backoff(at) = run.state {
            self.for_instant.remove(&(at, sequence));
            let origin = run.target.origin();
            if let Some(parked) = self.for_host.get_mut(&origin) {
                parked.remove(&(at, sequence));
                if parked.is_empty() {
                    self.for_host.remove(&origin);
                }
            }
        }
    }

    /// A run waits for another one of its trigger to end.
    pub(super) fn block(&mut self, trigger: SerialId, sequence: u64) {
        self.blocked.insert((trigger, sequence));
    }

    pub(super) fn is_blocked(&self, trigger: SerialId, sequence: u64) -> bool {
        self.blocked.contains(&(trigger, sequence))
    }

    pub(super) fn blocked_of(&self, trigger: SerialId) -> Vec<u64> {
        let blocked = self.blocked.range((trigger, 0)..=(trigger, u64::MAX));
        blocked.map(|(_, sequence)| *sequence).collect()
    }

    /// The triggers of which a run waits for another one to end.
    pub(super) fn blocked_triggers(&self) -> BTreeSet<SerialId> {
        self.blocked.iter().map(|(trigger, _)| *trigger).collect()
    }

    /// A run waits for its project to be enabled.
    pub(super) fn stop(&mut self, sequence: u64) {
        self.for_project.insert(sequence);
    }

    pub(super) fn take_stopped(&mut self) -> BTreeSet<u64> {
        std::mem::take(&mut self.for_project)
    }

    /// Takes the next run whose instant has come.
    pub(super) fn next_due(&mut self, now: Now) -> Option<(Instant, u64)> {
        self.for_instant.first().filter(|(at, _)| *at <= now.wall)?;
        self.for_instant.pop_first()
    }

    /// Whether one more run for a host may be started before it is looked at again.
    pub(super) fn may_start(&mut self, origin: u64) -> bool {
        let started = self.started.entry(origin).or_default();
        *started += 1;
        *started <= AT_ONCE_MAX
    }

    /// A run whose instant has come waits for its host.
    pub(super) fn park(&mut self, origin: u64, run: (Instant, u64)) {
        self.for_host.entry(origin).or_default().insert(run);
    }

    /// Lets some of the runs whose host is free again wait for their instant, if it is time to look.
    pub(super) fn unpark(&mut self, load: HostLoadOf<'_>, now: Now) {
        if self.look_again > now.steady {
            return;
        }
        self.look_again = now.steady + LOOK_AGAIN_MS;
        self.started.clear();
        self.for_host.retain(|origin, parked| {
            if load(*origin) == HostLoad::Free {
                let some = std::iter::from_fn(|| parked.pop_first()).take(AT_ONCE_MAX);
                self.for_instant.extend(some);
            }
            !parked.is_empty()
        });
    }

    pub(super) fn next_wakes(&self, now: Now) -> impl Iterator<Item = Instant> {
        let instant = self.for_instant.first().map(|(at, _)| *at);
        let host = (!self.for_host.is_empty()).then(|| by_wall(self.look_again, now));
        instant.into_iter().chain(host)
    }
}
