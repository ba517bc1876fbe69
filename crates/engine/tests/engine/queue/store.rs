//! The store of the simulated world, and what is checked whenever a commit lands in it.
//!
//! The checker knows nothing of the rules by which an owner decides: it compares what was in the store with what is.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use engine::id::SerialId;
use engine::past::End;
use engine::queue::backlog::ConcurrencyKey;
use engine::queue::decided::EndedRun;
use engine::queue::given::{Claimant, GivenRecord, GivenState, RunEnd, RunToken};
use engine::queue::rate::{RateLimit, RateWindow};
use engine::queue::unfinished::{QueueDelta, QueueLimits, SubmittedRun};
use engine::queue::worker::HeldRun;

use super::world::Time;

/// The queue in which one run of each key may be given at a time.
pub(super) const NARROW: SerialId = SerialId(1);
/// The queue in which two of each key may be, three runs altogether, and so many in a period.
pub(super) const WIDE: SerialId = SerialId(2);
const RATE: RateLimit = RateLimit { runs: 5, period_ms: 8_000 };
/// So much are the wall clocks of two owners apart at most, and so much shorter a period may be.
pub(super) const APART_MAX: Time = 2_000;

/// One life of a server: which server, and which life.
pub(super) type ServerLife = (usize, u32);

/// What the chain of commits is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) owner: Option<ServerLife>,
    pub(super) number: u64,
    pub(super) nonce: u64,
    /// Slots of a trigger that fed the queue.
    pub(super) fired: u64,
    /// Odd while the queues are paused. A late command has a lesser number, and changes nothing.
    pub(super) pause: u64,
}

/// What is written at once, if nobody wrote since.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) head: Head,
    /// When it was decided.
    pub(super) at: Time,
    pub(super) changes: Vec<QueueDelta>,
    pub(super) ended: Vec<EndedRun>,
    pub(super) keys: Vec<(UniqueKey, u64)>,
    /// What workers said that counted: results and releases, by the tokens that proved them.
    pub(super) proofs: Vec<HeldRun>,
    /// Who is handed the shard: it has to be alive.
    pub(super) successor: Option<ServerLife>,
}

/// Two runs never have the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum UniqueKey {
    Slot(u64),
    Client(u64),
}

/// What a successor reads.
#[derive(Debug, Clone)]
pub(super) struct Content {
    pub(super) head: Head,
    pub(super) runs: BTreeMap<u64, StoredRun>,
    pub(super) keys: BTreeMap<UniqueKey, u64>,
    /// What was given of the wide queue within the last period.
    pub(super) window: Option<RateWindow>,
}

#[derive(Debug, Clone)]
pub(super) struct StoredRun {
    pub(super) submitted: SubmittedRun,
    pub(super) given: Option<Arc<GivenRecord>>,
}

/// How a run ended.
#[derive(Debug, Clone)]
pub(super) struct PastRun {
    pub(super) end: RunEnd,
    pub(super) token: RunToken,
    pub(super) failures: u32,
}

/// The store, and what the checker remembers of it.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) content: Content,
    pub(super) past: BTreeMap<u64, PastRun>,
    pub(super) buried: BTreeSet<ServerLife>,
    pub(super) beats: HashMap<ServerLife, Time>,
    /// Somebody was told that nothing is given, and has not asked for the contrary.
    pub(super) is_paused: bool,
    /// Attempts that really began, by run.
    pub(super) begun: HashMap<u64, Vec<u32>>,
    pub(super) given: u64,
    pub(super) given_up: u64,
    pub(super) taken_back: u64,
    last_given: HashMap<u64, (u32, RunToken)>,
    /// The commit that answered a claim.
    sets: HashMap<(Arc<str>, u64, u64), u64>,
    counted: BTreeSet<HeldRun>,
    given_of_wide: Vec<Time>,
    violations: BTreeSet<&'static str>,
}

/// The limits of a queue, paused or not.
pub(super) fn limits(queue: SerialId, is_paused: bool) -> QueueLimits {
    if queue == NARROW {
        QueueLimits { is_paused, concurrency: None, per_key: Some(1), rate: None }
    } else {
        QueueLimits { is_paused, concurrency: Some(3), per_key: Some(2), rate: Some(RATE) }
    }
}

/// Whether so many runs of a queue, by their keys, are more than may be.
pub(super) fn is_too_many<'a>(runs: impl Iterator<Item = &'a SubmittedRun>) -> bool {
    let mut by_key: HashMap<(SerialId, ConcurrencyKey), u32> = HashMap::new();
    let mut by_queue: HashMap<SerialId, u32> = HashMap::new();
    for run in runs {
        *by_queue.entry(run.queue).or_default() += 1;
        if let Some(key) = run.key {
            *by_key.entry((run.queue, key)).or_default() += 1;
        }
    }
    by_key.iter().any(|((queue, _), count)| limits(*queue, false).per_key < Some(*count))
        || by_queue
            .iter()
            .any(|(queue, count)| limits(*queue, false).concurrency.is_some_and(|max| *count > max))
}

impl Store {
    pub(super) fn new() -> Self {
        let head = Head { owner: None, number: 0, nonce: 0, fired: 0, pause: 0 };
        Self {
            content: Content { head, runs: BTreeMap::new(), keys: BTreeMap::new(), window: None },
            past: BTreeMap::new(),
            buried: BTreeSet::new(),
            beats: HashMap::new(),
            is_paused: false,
            begun: HashMap::new(),
            given: 0,
            given_up: 0,
            taken_back: 0,
            last_given: HashMap::new(),
            sets: HashMap::new(),
            counted: BTreeSet::new(),
            given_of_wide: Vec::new(),
            violations: BTreeSet::new(),
        }
    }

    /// Notes a violation, if it is one.
    pub(super) fn bad(&mut self, what: &'static str, is_bad: bool) {
        if is_bad {
            self.violations.insert(what);
        }
    }

    pub(super) fn violations(&self) -> Vec<&'static str> {
        self.violations.iter().copied().collect()
    }

    /// Whether a worker has this run under this token, as far as is recorded.
    pub(super) fn is_running(&self, (sequence, token): HeldRun) -> bool {
        let record = self.content.runs.get(&sequence).and_then(|run| run.given.as_ref());
        record.is_some_and(|record| record.token == token && record.is_running())
    }

    /// A copy of a commit arrives. Says whether it is done, by this copy or an earlier one.
    pub(super) fn land(&mut self, batch: &Batch) -> bool {
        if self.content.head.number + 1 != batch.head.number {
            return self.content.head.nonce == batch.head.nonce;
        }
        if batch.successor.is_some_and(|successor| self.buried.contains(&successor)) {
            return false;
        }
        for held in &batch.proofs {
            let record = self.content.runs.get(&held.0).and_then(|run| run.given.as_ref());
            let is_stale = record.is_none_or(|record| record.token != held.1);
            self.bad("a stale token changed something", is_stale);
            let is_new = self.counted.insert(*held);
            self.bad("one attempt counted twice", !is_new);
        }
        let ended: HashMap<u64, &EndedRun> =
            batch.ended.iter().map(|ended| (ended.sequence, ended)).collect();
        for change in &batch.changes {
            match change {
                QueueDelta::Limits(..) => {}
                QueueDelta::Rate(_, window) => self.content.window = Some(window.clone()),
                QueueDelta::Submitted(run) => {
                    let stored = StoredRun { submitted: run.clone(), given: None };
                    let old = self.content.runs.insert(run.order.sequence, stored);
                    let was_there = old.is_some() || self.past.contains_key(&run.order.sequence);
                    self.bad("two runs with one number", was_there);
                }
                QueueDelta::Given(sequence, record) => {
                    self.put_given(*sequence, record, batch);
                }
                QueueDelta::Ended(sequence) => match ended.get(sequence) {
                    Some(ended) => self.end(ended),
                    None => self.bad("ended and nobody says how", true),
                },
            }
        }
        self.content.keys.extend(batch.keys.iter().copied());
        self.content.head = batch.head;
        let running = self
            .content
            .runs
            .values()
            .filter(|run| run.given.as_ref().is_some_and(|record| record.is_running()));
        let is_passed = is_too_many(running.map(|run| &run.submitted));
        self.bad("a limit is passed in the store", is_passed);
        true
    }

    fn put_given(&mut self, sequence: u64, record: &Arc<GivenRecord>, batch: &Batch) {
        self.bad("given after its end", self.past.contains_key(&sequence));
        let Some(run) = self.content.runs.get_mut(&sequence) else {
            return self.bad("given and never submitted", true);
        };
        let queue = run.submitted.queue;
        let old = run.given.replace(Arc::clone(record));
        self.bad(
            "a record forgot its token",
            old.as_ref().is_some_and(|old| old.token > record.token),
        );
        if !record.is_running() {
            self.given_up += u64::from(matches!(record.state, GivenState::InDoubt(_)));
            return;
        }
        if let Some(old) = old.as_ref().filter(|old| old.token == record.token) {
            let is_back = matches!(old.state, GivenState::InDoubt(_));
            self.taken_back += u64::from(is_back);
            return self.bad("taken back without doubt", !is_back && !old.is_running());
        }
        self.given += 1;
        let (attempt, token) = self.last_given.get(&sequence).copied().unwrap_or_default();
        self.last_given.insert(sequence, (record.attempt, record.token));
        self.bad("a token did not grow", record.token <= token);
        let has_begun =
            self.begun.get(&sequence).is_some_and(|begun| begun.contains(&record.attempt));
        let is_repeated = record.attempt == attempt && !has_begun;
        self.bad("a gap, or an attempt repeated", record.attempt != attempt + 1 && !is_repeated);
        self.bad("given after cancel", old.is_some_and(|old| old.cancel));
        self.bad("given while paused", self.is_paused);
        let Claimant { worker, incarnation, claim, .. } = &record.claimant;
        let set = (Arc::clone(worker), *incarnation, *claim);
        let first = *self.sets.entry(set).or_insert(batch.head.number);
        self.bad("one request got two sets", first != batch.head.number);
        if queue == WIDE {
            self.given_of_wide.push(batch.at);
            let period = Time::from(RATE.period_ms) - APART_MAX;
            let within = self.given_of_wide.iter().filter(|at| **at + period > batch.at);
            let is_passed = within.count() > RATE.runs as usize;
            self.bad("a rate is passed", is_passed);
        }
    }

    fn end(&mut self, ended: &EndedRun) {
        let given = self.content.runs.remove(&ended.sequence).and_then(|run| run.given);
        let (token, failures) =
            given.map_or_else(Default::default, |record| (record.token, record.failures));
        let is_failure = matches!(ended.end, RunEnd::Plain(End::Dead | End::Failed));
        let failures = failures + u32::from(is_failure);
        self.given_up += u64::from(ended.end == RunEnd::Plain(End::Unknown));
        let old = self.past.insert(ended.sequence, PastRun { end: ended.end, token, failures });
        self.bad("two final states", old.is_some());
    }
}
