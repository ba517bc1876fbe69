//! Is it true that nothing was lost, and that nothing counted twice?
//!
//! Two accounts are held against each other. The server's: the record of each run, with its attempts. And the programs': what each
//! of them wrote down when it began and when it ended. A completion counts if the server recorded it in the very attempt, at the very
//! worker, in which a program says that it came to its end.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use client::run::{Run, RunState};

use super::journal::{Entry, Mark};
use super::plan::Task;

/// A server shows so many attempts of a run, the last ones.
const ATTEMPTS_SHOWN: u32 = 10;

/// What a run of the demonstration came to, as the server recorded it: none if it knows of none, the last one if it was redriven.
pub(super) type Records = BTreeMap<u32, Run>;

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Finding {
    /// The server knows nothing of it.
    Lost { task: u32 },
    /// It did not succeed.
    Unsuccessful { task: u32, state: RunState },
    /// It succeeded, and the last of its attempts did not.
    Uncounted { task: u32 },
    /// Two of its attempts succeeded by the record.
    CountedTwice { task: u32 },
    /// Two tasks have one run.
    Shared { task: u32, other: u32 },
    /// The record has more or fewer attempts than it counts.
    Gap { task: u32, counted: u32, recorded: u32 },
    /// No program says that it ended in the attempt that counted.
    Unmatched { task: u32, attempt: u32, worker: String },
    /// A program was begun twice under one token.
    BegunTwice { task: u32, attempt: u32 },
    /// A program was begun in an attempt that the server knows nothing of.
    Unknown { task: u32, attempt: u32 },
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost { task } => {
                write!(out, "run {task} is lost: the server has no record of it")
            }
            Self::Unsuccessful { task, state } => {
                write!(out, "run {task} did not succeed: it is {}", state.as_str())
            }
            Self::Uncounted { task } => {
                write!(out, "run {task} succeeded, and its last attempt did not")
            }
            Self::CountedTwice { task } => write!(out, "two attempts of run {task} count"),
            Self::Shared { task, other } => {
                write!(out, "runs {other} and {task} are the same to the server")
            }
            Self::Gap { task, counted, recorded } => {
                write!(out, "run {task} has {counted} attempts, and the server tells of {recorded}")
            }
            Self::Unmatched { task, attempt, worker } => write!(
                out,
                "run {task} is recorded as carried out by {worker} in attempt {attempt}, and no program says so"
            ),
            Self::BegunTwice { task, attempt } => {
                write!(out, "run {task} was begun twice in attempt {attempt}")
            }
            Self::Unknown { task, attempt } => {
                write!(
                    out,
                    "run {task} was begun in attempt {attempt}, which the server does not know"
                )
            }
        }
    }
}

/// What is wrong, by task; nothing if all is well.
pub(super) fn findings(tasks: &[Task], records: &Records, entries: &[Entry]) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut owners: BTreeMap<&str, u32> = BTreeMap::new();
    for task in tasks.iter().map(|task| task.number) {
        let Some(run) = records.get(&task) else {
            found.push(Finding::Lost { task });
            continue;
        };
        if let Some(other) = owners.insert(&run.id, task) {
            found.push(Finding::Shared { task, other });
        }
        found.extend(of_record(task, run));
        found.extend(of_completion(task, run, entries));
        found.extend(of_begins(task, run, entries));
    }
    found
}

/// What is wrong with a record alone.
fn of_record(task: u32, run: &Run) -> Vec<Finding> {
    if run.state != RunState::Succeeded {
        return vec![Finding::Unsuccessful { task, state: run.state }];
    }
    let mut found = Vec::new();
    let counted = run.attempts.iter().filter(|attempt| attempt.error.is_none()).count();
    if counted > 1 {
        found.push(Finding::CountedTwice { task });
    }
    if run.attempts.last().is_none_or(|last| last.error.is_some()) {
        found.push(Finding::Uncounted { task });
    }
    let recorded = u32::try_from(run.attempts.len()).unwrap_or(u32::MAX);
    if recorded != run.attempt.min(ATTEMPTS_SHOWN) {
        found.push(Finding::Gap { task, counted: run.attempt, recorded });
    }
    found
}

/// Whether a program came to its end in the attempt that counted.
fn of_completion(task: u32, run: &Run, entries: &[Entry]) -> Option<Finding> {
    let last = run.attempts.last().filter(|_| run.state == RunState::Succeeded)?;
    let worker = last.worker.clone().unwrap_or_default();
    let is_it = |entry: &Entry| {
        (entry.task, &entry.run, entry.attempt, &entry.worker)
            == (task, &run.id, run.attempt, &worker)
    };
    let mut tokens: Vec<u64> = Vec::new();
    for mark in [Mark::Begun, Mark::Ended] {
        tokens.extend(entries.iter().filter(|it| it.mark == mark && is_it(it)).map(|it| it.token));
    }
    let is_matched = matches!(tokens[..], [begun, ended] if begun == ended);
    (!is_matched).then_some(Finding::Unmatched { task, attempt: run.attempt, worker })
}

/// What is wrong with the programs that were begun for a run.
fn of_begins(task: u32, run: &Run, entries: &[Entry]) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut tokens = BTreeSet::new();
    let begun = entries.iter().filter(|it| it.mark == Mark::Begun && it.run == run.id);
    for Entry { attempt, token, .. } in begun {
        if !tokens.insert(*token) {
            found.push(Finding::BegunTwice { task, attempt: *attempt });
        }
        if *attempt > run.attempt {
            found.push(Finding::Unknown { task, attempt: *attempt });
        }
    }
    found
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use client::run::{Attempt, RunKind};

    use super::*;
    use crate::demo::journal::tests::entry;

    const THEN: &str = "2027-01-15T08:00:00Z";

    fn attempt(worker: &str, error: Option<&str>) -> Attempt {
        Attempt {
            at: THEN.parse().unwrap(),
            latency_ms: 1,
            status: None,
            error: error.map(str::to_owned),
            response: None,
            worker: Some(worker.to_owned()),
            exit_code: error.is_none().then_some(0),
        }
    }

    /// A run that succeeded by these attempts, of which the last one counted.
    pub(in crate::demo) fn run(task: u32, workers: &[&str]) -> Run {
        let (last, before) = workers.split_last().unwrap();
        let silent =
            |worker: &&str| attempt(worker, Some("its worker was not heard of for 1250 ms"));
        Run {
            id: format!("run_{task}"),
            trigger: None,
            name: None,
            kind: RunKind::Run,
            event: None,
            slot: THEN.parse().unwrap(),
            on_demand: true,
            state: RunState::Succeeded,
            not_before: None,
            ended: Some(THEN.parse().unwrap()),
            attempt: u32::try_from(workers.len()).unwrap(),
            attempts: before.iter().map(silent).chain([attempt(last, None)]).collect(),
            queued: None,
            skipped: None,
        }
    }

    fn tasks() -> Vec<Task> {
        [1, 2].map(|number| Task { number, length: Duration::from_secs(1) }).to_vec()
    }

    /// Run 1 by worker 1; run 2 by worker 1, which died, and then by worker 2.
    fn good() -> (Records, Vec<Entry>) {
        let runs = [run(1, &["worker-1"]), run(2, &["worker-1", "worker-2"])];
        let entries = [
            entry(Mark::Begun, 1, 1, "worker-1"),
            entry(Mark::Begun, 2, 1, "worker-1"),
            entry(Mark::Ended, 1, 1, "worker-1"),
            entry(Mark::Begun, 2, 2, "worker-2"),
            entry(Mark::Ended, 2, 2, "worker-2"),
        ];
        ((1..).zip(runs).collect(), entries.to_vec())
    }

    #[track_caller]
    fn finds(change: impl FnOnce(&mut Records, &mut Vec<Entry>), expected: &[Finding]) {
        let (mut records, mut entries) = good();
        change(&mut records, &mut entries);
        assert_eq!(findings(&tasks(), &records, &entries), expected);
    }

    #[test]
    fn what_went_well_is_found_to_be_well() {
        finds(|_, _| (), &[]);
    }

    #[test]
    fn a_run_that_is_lost_or_did_not_succeed_is_noticed() {
        finds(|records, _| drop(records.remove(&2)), &[Finding::Lost { task: 2 }]);
        let dead = RunState::Dead;
        finds(
            |records, _| records.get_mut(&1).unwrap().state = dead,
            &[Finding::Unsuccessful { task: 1, state: dead }],
        );
    }

    #[test]
    fn a_run_that_counts_twice_is_noticed() {
        finds(
            |records, _| records.get_mut(&2).unwrap().attempts[0].error = None,
            &[Finding::CountedTwice { task: 2 }],
        );
        finds(
            |records, _| {
                let first = records[&1].clone();
                records.insert(2, first);
            },
            &[
                Finding::Shared { task: 2, other: 1 },
                Finding::Unmatched { task: 2, attempt: 1, worker: "worker-1".to_owned() },
            ],
        );
    }

    #[test]
    fn an_attempt_that_is_missing_or_failed_is_noticed() {
        finds(
            |records, _| drop(records.get_mut(&2).unwrap().attempts.remove(0)),
            &[Finding::Gap { task: 2, counted: 2, recorded: 1 }],
        );
        finds(
            |records, _| {
                records.get_mut(&1).unwrap().attempts[0].error = Some("no".to_owned());
            },
            &[Finding::Uncounted { task: 1 }],
        );
    }

    #[test]
    fn a_completion_that_no_program_tells_of_is_noticed() {
        let unmatched = Finding::Unmatched { task: 2, attempt: 2, worker: "worker-2".to_owned() };
        let expected = [unmatched];
        finds(|_, entries| drop(entries.remove(4)), &expected);
        finds(|_, entries| entries[4].worker = "worker-3".to_owned(), &expected);
        finds(|_, entries| entries[4].attempt = 1, &expected);
        finds(|_, entries| entries[4].token += 1, &expected);
        finds(|_, entries| entries.push(entries[4].clone()), &expected);
    }

    #[test]
    fn a_program_that_was_begun_twice_or_unknown_to_the_server_is_noticed() {
        finds(
            |_, entries| entries.push(entries[1].clone()),
            &[Finding::BegunTwice { task: 2, attempt: 1 }],
        );
        finds(
            |_, entries| entries.push(entry(Mark::Begun, 1, 2, "worker-3")),
            &[Finding::Unknown { task: 1, attempt: 2 }],
        );
    }
}
