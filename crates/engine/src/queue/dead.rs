//! Dead runs: what is kept of runs that failed for good, so that somebody can have them carried out again.
//!
//! A run that ends `dead` or `failed` leaves its [`QueuedRecord`](super::record::QueuedRecord), and what it was about, where
//! they lay while it waited. Beside them a [`DeadRecord`] tells how it ended. Whoever redrives it reads all three; the shard
//! takes a new run and deletes them in one unit, so nothing is redriven twice.
//!
//! ```text
//! shard/<n>/dead/<queue>/<sequence>       [`DeadRecord`]
//! ```
//!
//! A shard remembers where dead runs are and how old they are, and nothing else of them. Of each queue, each project and the
//! whole shard the latest are kept, and none for longer than [`DEAD_RUNS_KEPT`]. If a shard has too many, those of the project
//! that has the most go.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::id::{Birth, ProjectId, RunId, SerialId, ShardId};
use crate::instant::Instant;
use crate::limits::{
    DEAD_BODIES_PER_PROJECT_MAX, DEAD_BODIES_PER_QUEUE_MAX, DEAD_BODIES_PER_SHARD_MAX,
    DEAD_RUNS_KEPT, DEAD_RUNS_PER_PROJECT_MAX, DEAD_RUNS_PER_QUEUE_MAX, DEAD_RUNS_PER_SHARD_MAX,
};
use crate::past::Finished;

use super::backlog::ClaimOrder;
use super::pick::RunRole;
use super::submitted::{GivenPlace, RunPlace};

/// How a run ended that can be redriven.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadRecord {
    /// As it is past, with the last of its attempts.
    pub run: Finished,
    /// The priority that it had.
    pub priority: u8,
    /// When it was first due: with the priority, this is where its other records are.
    pub due: Instant,
    /// Whether what it was about has a record of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_body: bool,
}

impl DeadRecord {
    /// Where its other records are.
    pub fn place(&self, queue: SerialId, sequence: u64) -> RunPlace {
        let order = ClaimOrder { priority: self.priority, due: self.due, sequence };
        let (given, role) = (GivenPlace::Nowhere, RunRole::Plain);
        RunPlace { queue, order, has_body: self.has_body, given, role }
    }
}

/// Where the dead runs of a shard are.
pub fn dead(shard: ShardId) -> String {
    format!("shard/{shard}/dead/")
}

/// Where the dead runs of a queue are, in the order in which they were submitted.
pub fn dead_of(shard: ShardId, queue: SerialId) -> String {
    format!("shard/{shard}/dead/{queue}/")
}

/// Where a dead run is.
pub fn dead_key(shard: ShardId, queue: SerialId, sequence: u64) -> String {
    format!("shard/{shard}/dead/{queue}/{sequence:016}")
}

/// Which run of which queue the record under this key is.
pub fn dead_at(shard: ShardId, key: &str) -> Option<(SerialId, u64)> {
    let (queue, sequence) = key.strip_prefix(&dead(shard))?.split_once('/')?;
    Some((queue.parse().ok()?, sequence.parse().ok()?))
}

/// What a shard remembers of a dead run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadRun {
    /// Its id.
    pub id: RunId,
    /// The project of its queue.
    pub project: ProjectId,
    /// Where its records are.
    pub place: RunPlace,
    /// When it ended.
    pub at: Instant,
}

impl DeadRun {
    /// What is remembered of a run that lay there and ended so.
    pub fn of(shard: ShardId, cluster: u64, place: RunPlace, run: &Finished) -> Self {
        let birth = run.generation.map_or(Birth::Demand(place.order.sequence), Birth::Slot);
        let letters = birth.letters(cluster);
        let id = RunId { shard, trigger: run.trigger, slot: run.slot, letters };
        Self { id, project: run.project, place, at: run.at }
    }
}

/// How many dead runs may be kept, and how many of these may be long.
#[derive(Debug, Clone, Copy)]
struct DeadBound {
    runs: usize,
    bodies: usize,
}

const OF_QUEUE: DeadBound =
    DeadBound { runs: DEAD_RUNS_PER_QUEUE_MAX, bodies: DEAD_BODIES_PER_QUEUE_MAX };
const OF_PROJECT: DeadBound =
    DeadBound { runs: DEAD_RUNS_PER_PROJECT_MAX, bodies: DEAD_BODIES_PER_PROJECT_MAX };
const OF_SHARD: DeadBound =
    DeadBound { runs: DEAD_RUNS_PER_SHARD_MAX, bodies: DEAD_BODIES_PER_SHARD_MAX };

/// The dead runs of a shard.
#[derive(Debug, Default)]
pub struct DeadRuns {
    by_number: BTreeMap<u64, DeadRun>,
    by_queue: BTreeMap<SerialId, SomeDead>,
    by_project: BTreeMap<ProjectId, SomeDead>,
    all: SomeDead,
    /// Queues that are gone, and have some still.
    gone_queues: BTreeSet<SerialId>,
    /// Queues that have more than may be kept, or are gone.
    surplus_queues: BTreeSet<SerialId>,
    /// Projects that have more than may be kept.
    surplus_projects: BTreeSet<ProjectId>,
}

/// Some of the dead runs, by their age.
#[derive(Debug, Default)]
struct SomeDead {
    by_age: BTreeSet<(Instant, u64)>,
    bodies: usize,
}

impl SomeDead {
    fn insert(&mut self, run: &DeadRun) {
        self.by_age.insert((run.at, run.place.order.sequence));
        self.bodies += usize::from(run.place.has_body);
    }

    fn remove(&mut self, run: &DeadRun) {
        self.by_age.remove(&(run.at, run.place.order.sequence));
        self.bodies -= usize::from(run.place.has_body);
    }

    fn exceeds(&self, bound: DeadBound) -> bool {
        self.by_age.len() > bound.runs || self.bodies > bound.bodies
    }

    fn oldest(&self) -> Option<(Instant, u64)> {
        self.by_age.first().copied()
    }
}

impl DeadRuns {
    /// A run is dead.
    pub fn insert(&mut self, run: DeadRun) {
        let sequence = run.place.order.sequence;
        self.remove(sequence);
        self.by_number.insert(sequence, run);
        self.all.insert(&run);
        self.by_queue.entry(run.place.queue).or_default().insert(&run);
        self.by_project.entry(run.project).or_default().insert(&run);
        self.weigh(&run);
    }

    /// Nothing is kept of a dead run any more.
    pub fn remove(&mut self, sequence: u64) {
        let Some(run) = self.by_number.remove(&sequence) else { return };
        self.all.remove(&run);
        if let Some(of_queue) = self.by_queue.get_mut(&run.place.queue) {
            of_queue.remove(&run);
        }
        if let Some(of_project) = self.by_project.get_mut(&run.project) {
            of_project.remove(&run);
        }
        self.weigh(&run);
    }

    /// There is no such queue any more: its dead runs go.
    pub fn forget_queue(&mut self, queue: SerialId) {
        if self.by_queue.contains_key(&queue) {
            self.gone_queues.insert(queue);
            self.surplus_queues.insert(queue);
        }
    }

    /// Dead runs of queues that are not among these go. A predecessor may have begun with that.
    pub fn keep_queues(&mut self, is_known: impl Fn(SerialId) -> bool) {
        let gone: Vec<_> =
            self.by_queue.keys().copied().filter(|queue| !is_known(*queue)).collect();
        for queue in gone {
            self.forget_queue(queue);
        }
    }

    /// Looks whether there are too many beside a run that came or went.
    fn weigh(&mut self, run: &DeadRun) {
        let queue = run.place.queue;
        let of_queue = self.by_queue.get(&queue).filter(|dead| !dead.by_age.is_empty());
        match of_queue {
            Some(dead) if dead.exceeds(OF_QUEUE) || self.gone_queues.contains(&queue) => {
                self.surplus_queues.insert(queue);
            }
            Some(_) => _ = self.surplus_queues.remove(&queue),
            None => {
                self.by_queue.remove(&queue);
                self.gone_queues.remove(&queue);
                self.surplus_queues.remove(&queue);
            }
        }
        let of_project = self.by_project.get(&run.project).filter(|dead| !dead.by_age.is_empty());
        match of_project {
            Some(dead) if dead.exceeds(OF_PROJECT) => {
                self.surplus_projects.insert(run.project);
            }
            Some(_) => _ = self.surplus_projects.remove(&run.project),
            None => {
                self.by_project.remove(&run.project);
                self.surplus_projects.remove(&run.project);
            }
        }
    }

    /// Of whom the next one goes because there are too many: of a queue, of a project, or, if the shard has too many, of
    /// the project that has the most.
    fn surplus(&self) -> Option<&SomeDead> {
        if let Some(queue) = self.surplus_queues.first() {
            return self.by_queue.get(queue);
        }
        if let Some(project) = self.surplus_projects.first() {
            return self.by_project.get(project);
        }
        if self.all.bodies > OF_SHARD.bodies {
            return self.by_project.values().max_by_key(|dead| dead.bodies);
        }
        let most = || self.by_project.values().max_by_key(|dead| dead.by_age.len());
        self.all.exceeds(OF_SHARD).then(most).flatten()
    }

    /// A dead run.
    pub fn get(&self, sequence: u64) -> Option<&DeadRun> {
        self.by_number.get(&sequence)
    }

    /// The dead run with this id.
    pub fn find(&self, id: RunId) -> Option<&DeadRun> {
        let is_it = |run: &&DeadRun| run.id == id;
        // Runs that were submitted have their number in their id; those of triggers are looked for.
        let own = self.by_number.get(&id.trigger.0).filter(is_it);
        own.or_else(|| self.by_number.values().find(is_it))
    }

    /// How many dead runs of a queue are kept.
    pub fn count(&self, queue: SerialId) -> usize {
        self.by_queue.get(&queue).map_or(0, |of_queue| of_queue.by_age.len())
    }

    /// A dead run that is not kept any longer: the oldest where there are too many, or one that is too old.
    pub fn next_to_go(&self, now: Instant) -> Option<DeadRun> {
        let surplus = self.surplus().and_then(SomeDead::oldest);
        let old = self.all.oldest().filter(|(at, _)| at.after(DEAD_RUNS_KEPT) <= now);
        let (_, sequence) = surplus.or(old)?;
        self.by_number.get(&sequence).copied()
    }

    /// When to look again.
    pub fn next_wake(&self, now: Instant) -> Option<Instant> {
        if self.surplus().is_some() {
            return Some(Instant(now.0 + 1));
        }
        self.all.oldest().map(|(at, _)| at.after(DEAD_RUNS_KEPT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE: SerialId = SerialId(7);

    fn dead_run(queue: SerialId, sequence: u64, at: i64) -> DeadRun {
        let order = ClaimOrder { priority: 5, due: Instant(1), sequence };
        let (given, role) = (GivenPlace::Nowhere, RunRole::Plain);
        let place = RunPlace { queue, order, has_body: false, given, role };
        let id = RunId::submitted(ShardId(3), sequence, Instant(1), 9);
        DeadRun { id, project: ProjectId(1), place, at: Instant(at) }
    }

    fn goes(dead: &DeadRuns, now: i64) -> Option<u64> {
        dead.next_to_go(Instant(now)).map(|run| run.place.order.sequence)
    }

    #[test]
    fn a_key_says_whose_record_it_is() {
        let key = dead_key(ShardId(3), QUEUE, 12);
        assert!(key.starts_with(&dead_of(ShardId(3), QUEUE)), "{key}");
        assert_eq!(dead_at(ShardId(3), &key), Some((QUEUE, 12)));
        assert_eq!(dead_at(ShardId(4), &key), None);
    }

    #[test]
    fn the_oldest_go_first_when_there_are_too_many_and_all_go_in_time() {
        let mut dead = DeadRuns::default();
        let max = DEAD_RUNS_PER_QUEUE_MAX as u64;
        for sequence in 1..=max {
            // The one that came last ended first.
            dead.insert(dead_run(QUEUE, sequence, (max - sequence).cast_signed()));
        }
        assert_eq!((goes(&dead, 0), dead.count(QUEUE)), (None, DEAD_RUNS_PER_QUEUE_MAX));
        dead.insert(dead_run(QUEUE, max + 1, 99));
        assert_eq!(goes(&dead, 0), Some(max));
        dead.remove(max);
        assert_eq!(goes(&dead, 0), None);
        let kept = i64::try_from(DEAD_RUNS_KEPT.as_millis()).unwrap();
        assert_eq!(dead.next_wake(Instant(0)), Some(Instant(1 + kept)));
        assert_eq!((goes(&dead, kept), goes(&dead, kept + 1)), (None, Some(max - 1)));
    }

    #[test]
    fn long_ones_are_fewer() {
        let mut dead = DeadRuns::default();
        for sequence in 0..=DEAD_BODIES_PER_QUEUE_MAX as u64 {
            assert_eq!(goes(&dead, 0), None, "{sequence}");
            let mut run = dead_run(QUEUE, sequence + 1, 5);
            run.place.has_body = true;
            dead.insert(run);
        }
        assert_eq!(goes(&dead, 0), Some(1));
    }

    #[test]
    fn those_of_a_queue_that_is_gone_go_and_others_stay() {
        let mut dead = DeadRuns::default();
        dead.insert(dead_run(QUEUE, 1, 5));
        dead.insert(dead_run(SerialId(8), 2, 5));
        dead.keep_queues(|queue| queue == QUEUE);
        assert_eq!(goes(&dead, 0), Some(2));
        dead.remove(2);
        assert_eq!((goes(&dead, 0), dead.count(QUEUE)), (None, 1));
        assert_eq!(dead.find(dead_run(QUEUE, 1, 5).id).map(|run| run.at), Some(Instant(5)));
    }

    /// So many of each of these queues, whose numbers are those of their projects.
    fn filled(count: usize, projects: &[u32], has_body: bool) -> DeadRuns {
        let mut dead = DeadRuns::default();
        for (index, sequence) in (0..count * projects.len()).zip(1..) {
            let project = projects[index % projects.len()];
            // Several queues each, so that none of these has too many.
            let queue = SerialId(u64::from(project) * 1_000 + (index / projects.len() % 8) as u64);
            let mut run = dead_run(queue, sequence, sequence.cast_signed());
            run.project = ProjectId(project);
            run.place.has_body = has_body;
            dead.insert(run);
        }
        dead
    }

    #[test]
    fn of_a_project_with_many_queues_the_oldest_go() {
        for (max, has_body) in
            [(DEAD_RUNS_PER_PROJECT_MAX, false), (DEAD_BODIES_PER_PROJECT_MAX, true)]
        {
            let mut dead = filled(max, &[1], has_body);
            assert_eq!(goes(&dead, 0), None, "at the bound");
            let one_more = DeadRun {
                project: ProjectId(1),
                ..dead_run(SerialId(1_009), max as u64 + 1, i64::MAX)
            };
            let place = RunPlace { has_body, ..one_more.place };
            dead.insert(DeadRun { place, ..one_more });
            assert_eq!(goes(&dead, 0), Some(1));
            assert_eq!(dead.next_wake(Instant(5)), Some(Instant(6)));
            dead.remove(1);
            assert_eq!(goes(&dead, 0), None);
        }
    }

    #[test]
    fn of_a_shard_with_many_projects_those_of_the_one_that_has_most_go() {
        for (max, has_body) in [(DEAD_RUNS_PER_SHARD_MAX, false), (DEAD_BODIES_PER_SHARD_MAX, true)]
        {
            let projects: Vec<u32> = (1..=10).collect();
            let mut dead = filled(max / 10, &projects, has_body);
            assert_eq!(goes(&dead, 0), None, "at the bound");
            let mut one_more = dead_run(SerialId(7_000), max as u64 + 1, i64::MAX);
            (one_more.project, one_more.place.has_body) = (ProjectId(7), has_body);
            dead.insert(one_more);
            assert_eq!(goes(&dead, 0), Some(7), "the oldest of project 7");
            dead.remove(7);
            assert_eq!(goes(&dead, 0), None);
        }
    }
}
