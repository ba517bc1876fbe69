//! What the demonstration is going to do: which runs there are, and who goes down and comes back when.
//!
//! The timetable is the one that the fault-tolerant task scheduler published. Lengths of runs are whole seconds from 1 to 20,
//! each as often as any other, in an order that a seed decides: so the work is the same for every seed, and the last who
//! was killed comes back while there is some left.

use std::fmt;
use std::time::Duration;

use engine::hash::mix;

use crate::args::demo::TasksArgs;

/// How many workers there are.
pub(super) const WORKERS: u8 = 3;

/// The longest run, in seconds.
const LONGEST: u32 = 20;

/// A worker has one place for so many runs of the plan.
const TASKS_PER_PLACE: u32 = 50;

/// How long a worker may be silent before its runs are given to others, at the speed at which it was published.
const LEASE: Duration = Duration::from_secs(5);

/// No server takes a shorter lease.
const LEASE_MIN: Duration = Duration::from_secs(1);

/// Who goes down when, and comes back when, in seconds.
const TIMETABLE: [(u64, Actor, Act); 8] = [
    (50, Actor::Worker(1), Act::Kill),
    (76, Actor::Worker(1), Act::Revive),
    (102, Actor::Server, Act::Kill),
    (143, Actor::Server, Act::Revive),
    (169, Actor::Worker(2), Act::Kill),
    (187, Actor::Worker(3), Act::Kill),
    (216, Actor::Worker(2), Act::Revive),
    (245, Actor::Worker(3), Act::Revive),
];

/// Whom the demonstration starts, kills and starts again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Actor {
    Server,
    /// By its number, from 1.
    Worker(u8),
}

impl Actor {
    /// All of them, in the order in which they are shown.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        std::iter::once(Self::Server).chain((1..=WORKERS).map(Self::Worker))
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server => out.pad("server"),
            Self::Worker(number) => out.pad(&format!("worker-{number}")),
        }
    }
}

/// What is done to an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    Kill,
    Revive,
}

/// One line of the timetable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    /// Since the beginning.
    pub(super) at: Duration,
    pub(super) actor: Actor,
    pub(super) act: Act,
}

/// One run of the demonstration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Task {
    /// From 1.
    pub(super) number: u32,
    pub(super) length: Duration,
}

/// What is going to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) tasks: Vec<Task>,
    /// In the order of their times.
    pub(super) steps: Vec<Step>,
    /// How many runs each worker carries out at a time.
    pub(super) capacity: u32,
    pub(super) lease: Duration,
    pub(super) speed: u32,
    pub(super) seed: u64,
}

impl Plan {
    pub(super) fn new(typed: &TasksArgs) -> Self {
        let speed = typed.speed;
        let timetable = TIMETABLE.into_iter().map(|(second, actor, act)| Step {
            at: Duration::from_secs(second) / speed,
            actor,
            act,
        });
        Self {
            tasks: tasks(typed),
            steps: if typed.no_chaos { Vec::new() } else { timetable.collect() },
            capacity: typed.tasks.div_ceil(TASKS_PER_PLACE),
            lease: (LEASE / speed).max(LEASE_MIN),
            speed,
            seed: typed.seed,
        }
    }

    /// When somebody who is down is going to be back, if that is planned.
    pub(super) fn back_at(&self, actor: Actor, now: Duration) -> Option<Duration> {
        let next = self.steps.iter().find(|step| step.actor == actor && step.at > now)?;
        (next.act == Act::Revive).then_some(next.at)
    }
}

/// Lengths from 1 to 20 seconds in turn, then in the order of a number that seed and place give.
fn tasks(typed: &TasksArgs) -> Vec<Task> {
    let mut lengths: Vec<(u64, u32)> = (0..typed.tasks)
        .map(|place| (mix(mix(typed.seed).wrapping_add(place.into())), place % LONGEST + 1))
        .collect();
    lengths.sort_unstable();
    let task = |(number, (_, length)): (u32, (u64, u32))| Task {
        number,
        length: Duration::from_secs(length.into()) / typed.speed,
    };
    (1..).zip(lengths).map(task).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::args::OutputFormat;

    pub(in crate::demo) fn typed(tasks: u32, seed: u64, times: u32) -> TasksArgs {
        let output = OutputFormat::Table;
        TasksArgs { speed: times, tasks, seed, no_chaos: false, keep: false, output }
    }

    fn plan(seed: u64, times: u32) -> Plan {
        Plan::new(&typed(100, seed, times))
    }

    #[test]
    fn the_timetable_is_the_published_one() {
        let clock = |at: Duration| format!("{}:{:02}", at.as_secs() / 60, at.as_secs() % 60);
        let plan = plan(1, 1);
        let lines: Vec<String> = plan
            .steps
            .iter()
            .map(|step| format!("{} {:?} {}", clock(step.at), step.act, step.actor))
            .collect();
        let published = [
            "0:50 Kill worker-1",
            "1:16 Revive worker-1",
            "1:42 Kill server",
            "2:23 Revive server",
            "2:49 Kill worker-2",
            "3:07 Kill worker-3",
            "3:36 Revive worker-2",
            "4:05 Revive worker-3",
        ];
        assert_eq!(lines, published);
        let worker = Actor::Worker(2);
        assert_eq!(plan.back_at(worker, plan.steps[4].at), Some(plan.steps[6].at));
        assert_eq!(plan.back_at(worker, Duration::ZERO), None, "it is up");
    }

    #[test]
    fn a_faster_demonstration_is_the_same_with_shorter_times() {
        let (usual, fast) = (plan(7, 1), plan(7, 10));
        for (slow, fast) in usual.steps.iter().zip(&fast.steps) {
            assert_eq!((slow.at, slow.actor, slow.act), (fast.at * 10, fast.actor, fast.act));
        }
        for (slow, fast) in usual.tasks.iter().zip(&fast.tasks) {
            assert_eq!((slow.number, slow.length), (fast.number, fast.length * 10));
        }
        assert_eq!((usual.lease, fast.lease), (LEASE, LEASE_MIN));
    }

    #[test]
    fn lengths_are_1_to_20_seconds_each_as_often_and_in_an_order_of_the_seed() {
        let lengths = |seed| -> Vec<u64> {
            plan(seed, 1).tasks.iter().map(|task| task.length.as_secs()).collect()
        };
        let mut sorted = lengths(1);
        sorted.sort_unstable();
        let expected: Vec<u64> = (1..=20).flat_map(|length| [length; 5]).collect();
        assert_eq!(sorted, expected);
        assert_eq!(lengths(1), lengths(1));
        assert_ne!(lengths(1), lengths(2));
    }

    #[test]
    fn a_worker_has_more_places_when_there_are_more_runs() {
        let capacity = |tasks| Plan::new(&typed(tasks, 1, 1)).capacity;
        assert_eq!([1, 50, 51, 100, 101, 1_000].map(capacity), [1, 1, 2, 2, 3, 20]);
    }

    /// When the work would be done, second by second, if whoever is up takes the next run at once and what was lost with a
    /// worker comes back after its patience.
    fn done_at(plan: &Plan) -> u64 {
        let patience = 7;
        let mut waiting: Vec<(u64, u64)> =
            plan.tasks.iter().rev().map(|task| (0, task.length.as_secs())).collect();
        let mut executing: Vec<(Actor, u64, u64)> = Vec::new();
        let mut up: Vec<Actor> = Actor::all().collect();
        for now in 0.. {
            executing.retain(|(_, ends, _)| *ends > now);
            for step in plan.steps.iter().filter(|step| step.at.as_secs() == now) {
                if step.act == Act::Revive {
                    up.push(step.actor);
                    continue;
                }
                up.retain(|actor| *actor != step.actor);
                // They stand behind all that were due before.
                let lost = executing.extract_if(.., |(actor, ..)| *actor == step.actor);
                let lost = lost.map(|(_, _, length)| (now + patience, length));
                waiting.splice(0..0, lost.collect::<Vec<_>>());
            }
            if executing.is_empty() && waiting.is_empty() {
                return now;
            }
            if !up.contains(&Actor::Server) {
                continue;
            }
            for worker in up.iter().filter(|actor| **actor != Actor::Server) {
                let has = |executing: &[(Actor, u64, u64)]| {
                    executing.iter().filter(|(actor, ..)| actor == worker).count()
                };
                while has(&executing) < plan.capacity as usize {
                    let next = waiting.iter().rposition(|(due, _)| *due <= now);
                    let Some(next) = next else { break };
                    let (_, length) = waiting.remove(next);
                    executing.push((*worker, now + length, length));
                }
            }
        }
        unreachable!("it counts for ever")
    }

    #[test]
    fn the_last_who_was_killed_comes_back_while_there_is_work() {
        let mut ends: Vec<u64> = (0..200).map(|seed| done_at(&plan(seed, 1))).collect();
        ends.sort_unstable();
        let (first, last) = (ends[0], ends[199]);
        assert!(first > 245 && last < 300, "from {first} to {last} seconds");
    }
}
