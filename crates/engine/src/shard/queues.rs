//! Queues: the part of a shard that knows which there are, the runs that wait in them, and the workers that have some.
//!
//! What is in the store changes by [`super::memory::apply`] alone. What follows from it, such as who waits for runs, is
//! known to [`Workers`]. Its bounds are its own: what waits here stops no trigger, and a queue stops no other.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::id::{ProjectId, SerialId};
use crate::instant::Instant;
use crate::limits::{
    ACTIONS_KEPT_BYTES_MAX, QUEUE_WAITING_MAX, QUEUES_PER_SHARD_MAX, WAITING_PER_LONG_RUN,
};
use crate::mutant::{Mutant, also};
use crate::queue::backlog::ClaimOrder;
use crate::queue::claim::Workers;
use crate::queue::dead::DeadRuns;
use crate::queue::pick::PicksRecord;
use crate::queue::record::{QueueRecord, QueuedRecord, UniqueRecord};
use crate::queue::submitted::{RunPlace, SubmittedRun};
use crate::queue::unfinished::{QueueDelta, QueueLimits, UnfinishedRuns};

use super::attempts::by_wall;
use super::command::Rejection;
use super::output::Outputs;
use super::queue_alert::QueueAlerts;
use super::queue_failure::QueueFailures;
use super::queue_sight::QueueSight;
use super::runs::RunsBefore;
use super::{Now, Ticket};

/// The queues of a shard.
pub(super) struct Queues {
    records: BTreeMap<SerialId, Arc<QueueRecord>>,
    by_name: BTreeMap<(ProjectId, Box<str>), SerialId>,
    pub(super) runs: UnfinishedRuns,
    pub(super) workers: Workers,
    /// What claims that wait are told besides: queues that they named and that cannot be made.
    pub(super) refused: HashMap<Ticket, Vec<Box<str>>>,
    pub(super) alerts: QueueAlerts,
    pub(super) failures: QueueFailures,
    pub(super) sight: QueueSight,
    pub(super) outputs: Outputs,
    pub(super) dead: DeadRuns,
    unique: UniqueKeys,
    actions: KeptActions,
    /// Unfinished runs of triggers, by trigger, slot and number.
    of_trigger: BTreeSet<(SerialId, Instant, u64)>,
    /// Queues of which workers are chosen, and which of them may be.
    pub(super) picks: BTreeMap<SerialId, Arc<PicksRecord>>,
    /// When (steady) is looked again whether these are there.
    pub(super) look_at_picks: u64,
    /// Pauses that end by themselves.
    resumes: BTreeSet<(Instant, SerialId)>,
    /// Projects of which nothing is given.
    stopped: BTreeSet<ProjectId>,
    /// So many runs of a queue may wait, by what the store takes.
    waiting_max: usize,
}

/// A run as it was submitted, with its place.
#[derive(Debug, Clone)]
pub(super) struct QueuedRun {
    pub(super) place: RunPlace,
    pub(super) record: Arc<QueuedRecord>,
}

/// What [`super::memory::apply`] does.
impl Queues {
    pub(super) fn write(&mut self, record: &Arc<QueueRecord>) {
        let serial = record.id.serial;
        self.forget_pause(serial);
        self.by_name.insert((record.id.project, record.name.clone()), serial);
        let until = record.paused.as_ref().and_then(|pause| pause.until);
        self.resumes.extend(until.map(|until| (until, serial)));
        self.records.insert(serial, Arc::clone(record));
        self.alerts.watch(record);
        self.failures.write(record);
        self.limit(serial);
    }

    pub(super) fn forget(&mut self, serial: SerialId) {
        self.forget_pause(serial);
        self.alerts.forget(serial);
        self.failures.forget(serial);
        self.sight.forget(serial);
        self.picks.remove(&serial);
        if let Some(record) = self.records.remove(&serial) {
            self.by_name.remove(&(record.id.project, record.name.clone()));
        }
        self.runs.apply(&QueueDelta::NoQueue(serial));
        self.dead.forget_queue(serial);
    }

    pub(super) fn set_stopped(&mut self, project: ProjectId, is_stopped: bool) {
        if is_stopped {
            self.stopped.insert(project);
        } else {
            self.stopped.remove(&project);
        }
        self.alerts.look_soon();
        let of_project = self.records.iter().filter(|(_, record)| record.id.project == project);
        let serials: Vec<SerialId> = of_project.map(|(serial, _)| *serial).collect();
        for serial in serials {
            self.limit(serial);
        }
    }

    pub(super) fn submit(&mut self, run: &QueuedRun) {
        let RunPlace { queue, order, .. } = run.place;
        let submitted = run.record.submitted(queue, order);
        if let Some(trigger) = trigger_of(&submitted) {
            self.of_trigger.insert((trigger, submitted.born, order.sequence));
        }
        self.alerts.comes(queue, order.due);
        self.actions.keep(queue, order, &run.record);
        self.runs.apply(&QueueDelta::Submitted(submitted));
    }

    pub(super) fn queued(&mut self, change: &QueueDelta) {
        self.runs.apply(change);
    }

    pub(super) fn set_picks(&mut self, queue: SerialId, picks: &Arc<PicksRecord>) {
        self.picks.insert(queue, Arc::clone(picks));
    }

    pub(super) fn write_unique(&mut self, queue: SerialId, record: &Arc<UniqueRecord>) {
        self.unique.write(queue, record);
    }

    pub(super) fn forget_unique(&mut self, queue: SerialId, key: &str) {
        self.unique.forget(queue, key);
    }

    fn forget_pause(&mut self, serial: SerialId) {
        let former = self.records.get(&serial).and_then(|record| record.paused.as_ref()?.until);
        if let Some(until) = former {
            self.resumes.remove(&(until, serial));
        }
    }

    /// Lets the limits of a queue be what its record and the state of its project say.
    fn limit(&mut self, serial: SerialId) {
        let Some(record) = self.records.get(&serial) else { return };
        let limits = record.limits();
        let is_paused = limits.is_paused || self.stopped.contains(&record.id.project);
        self.runs.apply(&QueueDelta::Limits(serial, QueueLimits { is_paused, ..limits }));
    }
}

impl Queues {
    /// None so far.
    pub(super) fn new() -> Self {
        let runs = UnfinishedRuns::default();
        Self {
            records: BTreeMap::new(),
            by_name: BTreeMap::new(),
            workers: Workers::new(&runs, Now { wall: Instant(0), steady: 0, random: 0 }),
            runs,
            refused: HashMap::new(),
            alerts: QueueAlerts::default(),
            failures: QueueFailures::default(),
            sight: QueueSight::default(),
            outputs: Outputs::default(),
            dead: DeadRuns::default(),
            unique: UniqueKeys::default(),
            actions: KeptActions::default(),
            of_trigger: BTreeSet::new(),
            picks: BTreeMap::new(),
            look_at_picks: 0,
            resumes: BTreeSet::new(),
            stopped: BTreeSet::new(),
            waiting_max: QUEUE_WAITING_MAX,
        }
    }

    /// Everything is read: workers are heard from here on.
    pub(super) fn listen(&mut self, now: Now) {
        self.runs.advance(now.wall);
        self.dead.keep_queues(|queue| self.records.contains_key(&queue));
        self.workers = Workers::new(&self.runs, now);
        also(Mutant::FormerUncounted, || self.runs.make_room_for_given());
    }

    /// So many runs of a queue may wait, by what the store takes.
    pub(super) fn set_waiting_max(&mut self, waiting_max: usize) {
        self.waiting_max = waiting_max.min(QUEUE_WAITING_MAX);
    }

    pub(super) fn get(&self, serial: SerialId) -> Option<&Arc<QueueRecord>> {
        self.records.get(&serial)
    }

    pub(super) fn named(&self, project: ProjectId, name: &str) -> Option<&Arc<QueueRecord>> {
        self.records.get(self.by_name.get(&(project, name.into()))?)
    }

    /// How many runs of a project wait in its queues.
    pub(super) fn waiting_of(&self, project: ProjectId) -> usize {
        let from = self.by_name.range((project, Box::default())..);
        let own = from.take_while(|((of, _), _)| *of == project);
        own.map(|(_, serial)| self.runs.census(*serial).waiting).sum()
    }

    /// Whether nothing of a queue is given because somebody wants it so.
    pub(super) fn is_held_back(&self, record: &QueueRecord) -> bool {
        record.paused.is_some() || self.stopped.contains(&record.id.project)
    }

    /// The queues there are.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<QueueRecord>> {
        self.records.values()
    }

    /// Whether a project can have no more queues here until it deletes one.
    pub(super) fn is_full_of(&self, project: ProjectId) -> bool {
        let of_project = self.records.values().filter(|record| record.id.project == project);
        of_project.count() >= QUEUES_PER_SHARD_MAX
    }

    /// How many runs may wait in a queue.
    pub(super) fn waiting_max(&self, record: &QueueRecord) -> usize {
        let own = record.settings.waiting_max.and_then(|max| usize::try_from(max).ok());
        own.unwrap_or(usize::MAX).min(self.waiting_max)
    }

    /// Whether so many more runs may wait in a queue, beside those that wait before it and have their places already.
    pub(super) fn check_room(
        &self,
        record: &QueueRecord,
        more: RunsBefore,
        before: RunsBefore,
    ) -> Result<(), Rejection> {
        let serial = record.id.serial;
        let waiting = self.runs.census(serial).waiting + before.runs;
        let max = self.waiting_max(record);
        if waiting + more.runs > max {
            return Err(Rejection::QueueIsFull { waiting, max });
        }
        let (long, max) = (self.runs.long(serial) + before.long, self.long_max());
        if more.long > 0 && long + more.long > max {
            return Err(Rejection::TooManyLongRuns { long, max });
        }
        Ok(())
    }

    /// How many runs of a queue may be long. Each may take a hundred times as much of the store as another.
    fn long_max(&self) -> usize {
        self.waiting_max / WAITING_PER_LONG_RUN
    }

    /// A run that is past leaves nothing behind.
    pub(super) fn ended(&mut self, run: &SubmittedRun) {
        self.actions.forget(run.queue, run.order);
        if let Some(trigger) = trigger_of(run) {
            self.of_trigger.remove(&(trigger, run.born, run.order.sequence));
        }
    }

    /// What a run is about, if that is in memory.
    pub(super) fn action(&self, queue: SerialId, order: ClaimOrder) -> Option<Arc<QueuedRecord>> {
        self.actions.of_queue.get(&queue)?.kept.get(&order).cloned()
    }

    /// The unfinished runs of a trigger that queues have, by their slots.
    pub(super) fn of_trigger(&self, trigger: SerialId) -> impl DoubleEndedIterator<Item = u64> {
        let (from, to) = (Instant(i64::MIN), Instant(i64::MAX));
        let runs = self.of_trigger.range((trigger, from, 0)..=(trigger, to, u64::MAX));
        runs.map(|(.., sequence)| *sequence)
    }

    /// The same, of a slot or of an instant at which a run was demanded.
    pub(super) fn of_slot(&self, trigger: SerialId, slot: Instant) -> impl Iterator<Item = u64> {
        let runs = self.of_trigger.range((trigger, slot, 0)..=(trigger, slot, u64::MAX));
        runs.map(|(.., sequence)| *sequence)
    }

    /// Which run a unique key stands for now.
    pub(super) fn unique(&self, queue: SerialId, key: &str, now: Now) -> Option<&UniqueRecord> {
        let record = self.unique.by_key.get(&(queue, key.into()))?;
        record.until.is_none_or(|until| until > now.wall).then_some(record)
    }

    /// A unique key whose time is over.
    pub(super) fn next_spent_key(&self, now: Now) -> Option<(SerialId, Box<str>)> {
        let (until, queue, key) = self.unique.ends.first()?;
        (*until <= now.wall).then(|| (*queue, key.clone()))
    }

    /// A queue whose pause is over.
    pub(super) fn next_resume(&self, now: Now) -> Option<SerialId> {
        self.resumes.first().filter(|(until, _)| *until <= now.wall).map(|(_, serial)| *serial)
    }

    pub(super) fn next_wakes(&self, now: Now) -> impl Iterator<Item = Instant> {
        let silent = self.workers.next_wake(&self.runs).map(|steady| by_wall(steady, now));
        let runs = self.runs.next_wake(now.wall);
        let resume = self.resumes.first().map(|(until, _)| *until);
        let key = self.unique.ends.first().map(|(until, ..)| *until);
        let dead = self.dead.next_wake(now.wall);
        let picked = self.picks.values().any(|picks| !picks.workers.is_empty());
        let picks = picked.then(|| by_wall(self.look_at_picks, now));
        [silent, runs, resume, key, self.alerts.next_wake(), dead, picks].into_iter().flatten()
    }
}

fn trigger_of(run: &SubmittedRun) -> Option<SerialId> {
    run.details.as_ref()?.trigger.as_ref().map(|trigger| trigger.serial)
}

/// Which runs unique keys stand for.
#[derive(Default)]
struct UniqueKeys {
    by_key: BTreeMap<(SerialId, Box<str>), Arc<UniqueRecord>>,
    /// When those end whose run is past.
    ends: BTreeSet<(Instant, SerialId, Box<str>)>,
}

impl UniqueKeys {
    fn write(&mut self, queue: SerialId, record: &Arc<UniqueRecord>) {
        self.forget(queue, &record.key);
        self.ends.extend(record.until.map(|until| (until, queue, record.key.clone())));
        self.by_key.insert((queue, record.key.clone()), Arc::clone(record));
    }

    fn forget(&mut self, queue: SerialId, key: &str) {
        if let Some(former) = self.by_key.remove(&(queue, key.into()))
            && let Some(until) = former.until
        {
            self.ends.remove(&(until, queue, former.key.clone()));
        }
    }
}

/// What runs are about, for those who claim them, as far as there is room: of each queue, of those that are claimed first. What
/// there is no room for goes from the queue that has most, so one that nobody serves leaves others their share. The rest is
/// read from the store.
#[derive(Default)]
struct KeptActions {
    of_queue: BTreeMap<SerialId, KeptOfQueue>,
    /// The queues that have some, by how many bytes these are.
    by_bytes: BTreeSet<(usize, SerialId)>,
    bytes: usize,
}

/// What runs of a queue are about.
#[derive(Default)]
struct KeptOfQueue {
    kept: BTreeMap<ClaimOrder, Arc<QueuedRecord>>,
    bytes: usize,
}

impl KeptActions {
    fn keep(&mut self, queue: SerialId, order: ClaimOrder, record: &Arc<QueuedRecord>) {
        if record.action.is_none() || self.would_go_at_once(queue, order, record) {
            return;
        }
        self.change(queue, |own| {
            own.bytes += bytes_of(record);
            own.kept.insert(order, Arc::clone(record));
        });
        while self.bytes > ACTIONS_KEPT_BYTES_MAX
            && let Some(&(_, most)) = self.by_bytes.last()
        {
            self.change(most, |of_most| {
                if let Some((_, last)) = of_most.kept.pop_last() {
                    of_most.bytes -= bytes_of(&last);
                }
            });
        }
    }

    /// Whether there is no room for one more, its queue has most, and it is the last of it.
    fn would_go_at_once(&self, queue: SerialId, order: ClaimOrder, record: &QueuedRecord) -> bool {
        let has_most = self.by_bytes.last().is_some_and(|(_, most)| *most == queue);
        let last = || self.of_queue.get(&queue)?.kept.last_key_value();
        self.bytes + bytes_of(record) > ACTIONS_KEPT_BYTES_MAX
            && has_most
            && last().is_some_and(|(last, _)| order > *last)
    }

    fn forget(&mut self, queue: SerialId, order: ClaimOrder) {
        self.change(queue, |own| {
            if let Some(record) = own.kept.remove(&order) {
                own.bytes -= bytes_of(&record);
            }
        });
    }

    /// Changes what is kept of a queue. What is kept of none leaves nothing behind.
    fn change(&mut self, queue: SerialId, change: impl FnOnce(&mut KeptOfQueue)) {
        let own = self.of_queue.entry(queue).or_default();
        let before = own.bytes;
        change(own);
        let after = own.bytes;
        if after == 0 {
            self.of_queue.remove(&queue);
        }
        if before != after {
            self.by_bytes.remove(&(before, queue));
            self.by_bytes.extend((after > 0).then_some((after, queue)));
            self.bytes = self.bytes - before + after;
        }
    }
}

fn bytes_of(record: &QueuedRecord) -> usize {
    size_of::<QueuedRecord>() + record.action.as_ref().map_or(0, |action| action.get().len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::given::GivenPolicy;
    use crate::queue::pick::Pick;

    fn record() -> Arc<QueuedRecord> {
        Arc::new(QueuedRecord {
            born: Instant(5),
            trigger: None,
            expires: None,
            key: None,
            unique: None,
            labels: None,
            policy: GivenPolicy::default(),
            timeout_ms: None,
            redriven_from: None,
            pick: Pick::Any,
            action: serde_json::value::RawValue::from_string("{}".to_owned()).ok(),
        })
    }

    fn order(priority: u8, sequence: u64) -> ClaimOrder {
        ClaimOrder { priority, due: Instant(5), sequence }
    }

    #[test]
    fn what_is_claimed_first_is_kept_however_late_it_comes() {
        let (record, queue) = (record(), SerialId(1));
        let mut actions = KeptActions::default();
        let room = ACTIONS_KEPT_BYTES_MAX / bytes_of(&record);
        for sequence in 0..=room as u64 {
            actions.keep(queue, order(9, sequence), &record);
        }
        assert_eq!(actions.of_queue[&queue].kept.len(), room, "the last one found no room");
        actions.keep(queue, order(0, 99), &record);
        let kept = actions.of_queue[&queue].kept.clone();
        assert_eq!(kept.len(), room);
        assert!(kept.contains_key(&order(0, 99)));
        let last = order(9, room as u64 - 1);
        assert!(!kept.contains_key(&last), "it made room for one that is claimed before");
        for (order, _) in kept {
            actions.forget(queue, order);
        }
        assert_eq!((actions.bytes, actions.of_queue.len(), actions.by_bytes.len()), (0, 0, 0));
    }

    #[test]
    fn queues_share_the_room_though_one_of_them_was_there_first() {
        let (record, mut actions) = (record(), KeptActions::default());
        let room = ACTIONS_KEPT_BYTES_MAX / bytes_of(&record);
        for queue in [1, 2, 3] {
            (0..=room as u64).for_each(|run| actions.keep(SerialId(queue), order(5, run), &record));
        }
        for queue in [1, 2, 3] {
            let kept = actions.of_queue[&SerialId(queue)].kept.len();
            assert!(kept.abs_diff(room / 3) <= 1, "{queue} has {kept} of {room}");
        }
    }
}
