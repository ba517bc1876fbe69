//! The runs that wait: the part of a shard that knows what for.
//!
//! Each of them has a record. It waits for an instant, for another run of its trigger, for its project to be enabled, for
//! room in its queue, or for its host. What is handed over for sending waits in memory, and what may have left is in doubt after a crash. So a
//! host that is slower than its runs gets no more than it can chew: the rest waits in the store, where it can wait
//! for long, and no other host notices. Slots that wait for their host are no runs yet: see `lag`.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::{ProjectId, SerialId};
use crate::instant::Instant;

use super::Now;
use super::attempts::by_wall;
use super::record::{RunRecord, RunState};

/// How long to wait before hosts are looked at again.
const LOOK_AGAIN_MS: u64 = 40;

/// How long to wait before queues that were full are looked at again.
const FULL_QUEUE_LOOK_MS: u64 = 1_000;

/// A queue that had no room for a run: those that are long need another kind of room.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FullQueue {
    project: ProjectId,
    name: Box<str>,
    is_long: bool,
}

impl FullQueue {
    fn of(run: &RunRecord) -> Option<Self> {
        let feed = run.target.feed()?;
        let (name, is_long) = (feed.form.queue.clone(), feed.is_long());
        Some(Self { project: run.project, name, is_long })
    }
}

/// Runs that wait, by the numbers of their records.
#[derive(Default)]
pub(super) struct WaitingRuns {
    for_instant: BTreeSet<(Instant, u64)>,
    /// Runs that wait for another one of their trigger to end.
    blocked: BTreeSet<(SerialId, u64)>,
    for_project: BTreeSet<u64>,
    /// Runs whose instant has come, by the origin of their host.
    for_host: BTreeMap<u64, BTreeSet<(Instant, u64)>>,
    /// When (steady) hosts are looked at again.
    look_again: u64,
    /// Runs that found their queue full, in the order in which they were to leave. No record says so.
    for_room: BTreeMap<FullQueue, BTreeSet<(Instant, u64)>>,
    /// When (steady) those queues are looked at again.
    look_at_queues: u64,
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
        if !self.for_room.is_empty()
            && let Some(queue) = FullQueue::of(run)
            && let Some(waiting) = self.for_room.get_mut(&queue)
        {
            waiting.remove(&(run.leaves_at, sequence));
            if waiting.is_empty() {
                self.for_room.remove(&queue);
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

    /// A run found its queue full.
    pub(super) fn wait_for_room(&mut self, sequence: u64, run: &RunRecord, now: Now) {
        let Some(queue) = FullQueue::of(run) else { return };
        if self.look_at_queues <= now.steady {
            self.look_at_queues = now.steady + FULL_QUEUE_LOOK_MS;
        }
        self.for_room.entry(queue).or_default().insert((run.leaves_at, sequence));
    }

    /// The queues that had no room for a run, if it is time to look at them, which then is not so for a while.
    pub(super) fn full_queues(&mut self, now: Now) -> Vec<FullQueue> {
        if self.for_room.is_empty() || self.look_at_queues > now.steady {
            return Vec::new();
        }
        self.look_at_queues = now.steady + FULL_QUEUE_LOOK_MS;
        self.for_room.keys().cloned().collect()
    }

    /// The first of the runs that wait for room in a queue.
    pub(super) fn first_for_room(&self, queue: &FullQueue) -> Option<u64> {
        self.for_room.get(queue)?.first().map(|(_, sequence)| *sequence)
    }

    /// Takes the next run whose instant has come.
    pub(super) fn next_due(&mut self, now: Now) -> Option<(Instant, u64)> {
        self.for_instant.first().filter(|(at, _)| *at <= now.wall)?;
        self.for_instant.pop_first()
    }

    /// A run whose instant has come waits for its host.
    pub(super) fn park(&mut self, origin: u64, run: (Instant, u64)) {
        self.for_host.entry(origin).or_default().insert(run);
    }

    /// The first of the runs that wait for a host.
    pub(super) fn first_parked(&self, origin: u64) -> Option<u64> {
        self.for_host.get(&origin)?.first().map(|(_, sequence)| *sequence)
    }

    /// Whether a run waits for this host.
    pub(super) fn waits_for(&self, origin: u64) -> bool {
        self.for_host.contains_key(&origin)
    }

    /// Whether a run waits for its host.
    pub(super) fn waits_for_any(&self) -> bool {
        !self.for_host.is_empty()
    }

    /// The hosts for which runs wait.
    pub(super) fn hosts(&self) -> impl Iterator<Item = u64> {
        self.for_host.keys().copied()
    }

    /// Whether it is time to look at hosts, which then is not so for a while.
    pub(super) fn is_time_to_look(&mut self, now: Now) -> bool {
        let is_time = self.look_again <= now.steady;
        if is_time {
            self.look_again = now.steady + LOOK_AGAIN_MS;
        }
        is_time
    }

    /// When to look at hosts again.
    pub(super) fn next_look(&self, now: Now) -> Instant {
        by_wall(self.look_again, now)
    }

    pub(super) fn next_wakes(&self, now: Now) -> impl Iterator<Item = Instant> {
        let room = (!self.for_room.is_empty()).then(|| by_wall(self.look_at_queues, now));
        self.for_instant.first().map(|(at, _)| *at).into_iter().chain(room)
    }
}
