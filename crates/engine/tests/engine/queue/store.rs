//! The store of the simulated world, and what is checked whenever a commit lands in it.
//!
//! The checker knows nothing of the rules by which an owner decides: it compares what was in the store with what is.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use engine::id::{SerialId, ShardId};
use engine::instant::Instant;
use engine::limits::RUN_ATTEMPTS_KEPT_MAX;
use engine::past::{Attempt, End, Finished, Line, Segment};
use engine::queue::backlog::ConcurrencyKey;
use engine::queue::dead::{self, DeadRecord};
use engine::queue::given::{Claimant, ClaimedRecord, GivenRecord, GivenState, RunToken};
use engine::queue::rate::RateLimit;
use engine::queue::record::{self, QueueRecord, QueueSettings, QueuedRecord};
use engine::queue::submitted::SubmittedRun;
use engine::queue::worker::HeldRun;
use engine::record::decode;
use engine::shard::record::{FORMAT, HeadRecord, past};
use engine::shard::{DeadDefinition, Put};
use serde::de::DeserializeOwned;

use super::world::Time;

/// The shard that everything is about.
pub(super) const SHARD: ShardId = ShardId(3);

/// The queue in which one run of each key may be given at a time.
pub(super) const NARROW: &str = "narrow";
/// The queue in which two of each key may be, three runs altogether, and so many in a period.
pub(super) const WIDE: &str = "wide";
const RATE: RateLimit = RateLimit { runs: 5, period_ms: 8_000 };
/// So much are the wall clocks of two owners apart at most, and so much shorter a period may be.
pub(super) const APART_MAX: Time = 2_000;

/// One life of a server: which server, and which life.
pub(super) type ServerLife = (usize, u32);

/// What the chain of commits is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) owner: Option<ServerLife>,
    pub(super) number: u64,
    pub(super) nonce: u64,
    /// What the shard says.
    pub(super) body: HeadRecord,
}

/// What is written at once, if nobody wrote since.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) head: Head,
    pub(super) puts: Vec<Put>,
    /// Who is handed the shard: it has to be alive.
    pub(super) successor: Option<ServerLife>,
}

/// What a successor reads.
#[derive(Debug, Clone)]
pub(super) struct Content {
    pub(super) head: Head,
    pub(super) records: BTreeMap<String, Vec<u8>>,
}

/// A run, as its records say.
#[derive(Debug, Clone)]
pub(super) struct StoredRun {
    pub(super) submitted: SubmittedRun,
    pub(super) given: Option<Arc<GivenRecord>>,
}

/// How a run ended.
#[derive(Debug, Clone)]
pub(super) struct PastRun {
    pub(super) end: End,
    pub(super) is_poison: bool,
    pub(super) token: RunToken,
    pub(super) failures: u32,
}

impl PastRun {
    /// Whether it can be redriven.
    fn is_dead(&self) -> bool {
        matches!(self.end, End::Dead | End::Failed)
    }
}

/// The store, and what the checker remembers of it.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) content: Content,
    /// The runs of which there are records.
    pub(super) runs: BTreeMap<u64, StoredRun>,
    /// The queues, and which of them is the wide one.
    queues: BTreeMap<SerialId, bool>,
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
    /// When it was decided what a claim is given.
    sets: HashMap<(Arc<str>, u64, u64), Instant>,
    counted: BTreeSet<HeldRun>,
    given_of_wide: Vec<Time>,
    /// The run for which each unique key stood first. Their windows are longer than a world.
    unique: HashMap<Box<str>, u64>,
    /// Dead runs that were redriven, and as which runs.
    pub(super) redriven: BTreeMap<u64, u64>,
    violations: BTreeSet<&'static str>,
}

/// The limits of a queue.
pub(super) fn settings(name: &str) -> QueueSettings {
    if name == NARROW {
        QueueSettings { per_key: Some(1), ..QueueSettings::default() }
    } else {
        let (concurrency, per_key, rate) = (Some(3), Some(2), Some(RATE));
        QueueSettings { concurrency, per_key, rate, ..QueueSettings::default() }
    }
}

impl Store {
    pub(super) fn new() -> Self {
        let body = HeadRecord::default();
        let head = Head { owner: None, number: 0, nonce: 0, body };
        Self {
            content: Content { head, records: BTreeMap::new() },
            runs: BTreeMap::new(),
            queues: BTreeMap::new(),
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
            unique: HashMap::new(),
            redriven: BTreeMap::new(),
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
        let record = self.runs.get(&sequence).and_then(|run| run.given.as_ref());
        record.is_some_and(|record| record.token == token && record.is_running())
    }

    /// Whether so many runs of a queue, by their keys, are more than may be.
    pub(super) fn is_too_many<'a>(&self, runs: impl Iterator<Item = &'a SubmittedRun>) -> bool {
        let mut by_key: HashMap<(SerialId, ConcurrencyKey), u32> = HashMap::new();
        let mut by_queue: HashMap<SerialId, u32> = HashMap::new();
        for run in runs {
            *by_queue.entry(run.queue).or_default() += 1;
            let key = run.details.as_ref().and_then(|details| details.key.as_ref());
            if let Some(key) = key.map(|named| named.key) {
                *by_key.entry((run.queue, key)).or_default() += 1;
            }
        }
        let settings = |queue| settings(if self.queues[queue] { WIDE } else { NARROW });
        by_key.iter().any(|((queue, _), count)| settings(queue).per_key < Some(*count))
            || by_queue
                .iter()
                .any(|(queue, count)| settings(queue).concurrency.is_some_and(|max| *count > max))
    }

    /// The queues there are.
    pub(super) fn queues(&self) -> Vec<SerialId> {
        self.queues.keys().copied().collect()
    }

    /// A worker was told that its result counted.
    pub(super) fn count(&mut self, held: HeldRun) {
        let is_new = self.counted.insert(held);
        self.bad("one attempt counted twice", !is_new);
    }

    /// A copy of a commit arrives. Says whether it is done, by this copy or an earlier one.
    pub(super) fn land(&mut self, batch: &Batch) -> bool {
        if self.content.head.number + 1 != batch.head.number {
            return self.content.head.nonce == batch.head.nonce;
        }
        if batch.successor.is_some_and(|successor| self.buried.contains(&successor)) {
            return false;
        }
        self.content.head = batch.head.clone();
        // A run may be submitted and given in one commit.
        let is_run = |put: &&Put| matches!(put, Put::Value(key, _) if record::placed_at(SHARD, key).is_some());
        let (runs, rest): (Vec<&Put>, Vec<&Put>) = batch.puts.iter().partition(is_run);
        for put in runs.into_iter().chain(rest) {
            match put {
                Put::Value(key, value) => {
                    self.content.records.insert(key.clone(), value.clone());
                    self.look_at(key, value);
                }
                Put::Gone(key) => {
                    self.content.records.remove(key);
                }
            }
        }
        // What is past is out of its queue in the same commit.
        for put in &batch.puts {
            if let Put::Gone(key) = put
                && let Some((_, order)) = record::placed_at(SHARD, key)
            {
                let is_past = self.past.contains_key(&order.sequence);
                self.bad("ended and nobody says how", !is_past);
            }
        }
        self.check_claimed();
        let running =
            self.runs.values().filter(|run| run.given.as_ref().is_some_and(|it| it.is_running()));
        let is_passed = self.is_too_many(running.map(|run| &run.submitted));
        self.bad("a limit is passed in the store", is_passed);
        true
    }

    /// What runs share that were given together is there as long as one of them shares it, and no longer.
    fn check_claimed(&mut self) {
        let has_own = |run: u64| self.content.records.contains_key(&record::given_key(SHARD, run));
        let (mut shared, mut is_left_behind) = (BTreeSet::new(), false);
        let prefix = record::claimed(SHARD);
        let claimed = self.content.records.range(prefix.clone()..);
        for (_, value) in claimed.take_while(|(key, _)| key.starts_with(&prefix)) {
            let claimed: ClaimedRecord = read(value);
            let share = |run: &u64| self.runs.contains_key(run) && !has_own(*run);
            let before = shared.len();
            shared.extend(claimed.numbers().filter(share));
            is_left_behind |= before == shared.len();
        }
        let mut given = self.runs.iter().filter(|(_, run)| run.given.is_some());
        let is_lost = given.any(|(run, _)| !has_own(*run) && !shared.contains(run));
        self.bad("given, and no record says so", is_lost);
        self.bad("a record that no run shares is left behind", is_left_behind);
    }

    /// The dead runs that are kept.
    pub(super) fn dead(&self) -> impl Iterator<Item = u64> {
        let keys = self.content.records.keys();
        keys.filter_map(|key| Some(dead::dead_at(SHARD, key)?.1))
    }

    /// A dead run as whoever redrives it reads it, and its queue.
    pub(super) fn definition(&self, sequence: u64) -> Option<(SerialId, DeadDefinition)> {
        let queues = self.queues.keys();
        let (queue, record) = queues.into_iter().find_map(|queue| {
            let key = dead::dead_key(SHARD, *queue, sequence);
            Some((*queue, read::<DeadRecord>(self.content.records.get(&key)?)))
        })?;
        let key = record::queued_key(SHARD, &record.place(queue, sequence));
        let record = Box::new(read(self.content.records.get(&key)?));
        Some((queue, DeadDefinition { sequence, record }))
    }

    /// The run that somebody submitted, of one that may be it, redriven.
    pub(super) fn origin(&self, sequence: u64) -> u64 {
        let former = self.redriven.iter().find(|(_, run)| **run == sequence);
        former.map_or(sequence, |(former, _)| self.origin(*former))
    }

    /// Exactly those runs are kept as dead ones that are, and were not redriven; and what they were about is.
    pub(super) fn check_dead(&mut self) {
        let ended = self.past.iter().filter(|(_, past)| past.is_dead());
        let ended = ended.filter(|(run, _)| !self.redriven.contains_key(run));
        let ended: BTreeSet<u64> = ended.map(|(run, _)| *run).collect();
        let kept: BTreeSet<u64> = self.dead().collect();
        self.bad("dead, and not kept as such", !ended.is_subset(&kept));
        self.bad("redriven, and still dead", !kept.is_subset(&ended));
        let records = self.content.records.keys();
        let left: BTreeSet<u64> = records
            .filter_map(|key| record::placed_at(SHARD, key))
            .map(|(_, order)| order.sequence)
            .filter(|sequence| !self.runs.contains_key(sequence))
            .collect();
        self.bad("what a run was about is lost, or left behind", left != kept);
    }

    /// What a record that was written means.
    fn look_at(&mut self, key: &str, value: &[u8]) {
        if let Some((queue, order)) = record::placed_at(SHARD, key) {
            let record = read::<QueuedRecord>(value);
            if let Some(dead) = record.redriven_from {
                let former = self.redriven.insert(dead.trigger.0, order.sequence);
                self.bad("redriven twice", former.is_some());
                let is_dead = self.past.get(&dead.trigger.0).is_some_and(PastRun::is_dead);
                self.bad("redriven though it lives", !is_dead);
            }
            if let (Some(unique), None) = (&record.unique, record.redriven_from) {
                let first = *self.unique.entry(unique.key.clone()).or_insert(order.sequence);
                self.bad("one unique key, two runs", first != order.sequence);
            }
            let stored = record.submitted(queue, order);
            let stored = StoredRun { submitted: stored, given: None };
            let old = self.runs.insert(order.sequence, stored);
            let was_there = old.is_some() || self.past.contains_key(&order.sequence);
            self.bad("two runs with one number", was_there);
        } else if key.starts_with(&record::claimed(SHARD)) {
            let claimed: ClaimedRecord = read(value);
            for sequence in claimed.numbers() {
                // It may have ended in the commit that says that it was given.
                if self.runs.contains_key(&sequence) {
                    self.put_given(sequence, &claimed.given);
                }
            }
        } else if let Some(digits) = key.strip_prefix(&record::given(SHARD)) {
            let sequence = digits.parse().expect("the number of a run");
            self.put_given(sequence, &Arc::new(read(value)));
        } else if key.starts_with(&record::queues(SHARD)) {
            let queue: QueueRecord = read(value);
            self.queues.insert(queue.id.serial, &*queue.name == WIDE);
        } else if key.starts_with(&past(SHARD)) {
            for line in Segment::from_bytes(value).expect("a segment").lines {
                match line {
                    Line::Run(run) => self.end(&run),
                    Line::Skip(_) => self.bad("a slot is skipped where there are none", true),
                }
            }
        }
    }

    fn put_given(&mut self, sequence: u64, record: &Arc<GivenRecord>) {
        self.bad("given after its end", self.past.contains_key(&sequence));
        let Some(run) = self.runs.get_mut(&sequence) else {
            return self.bad("given and never submitted", true);
        };
        let queue = run.submitted.queue;
        let old = run.given.replace(Arc::clone(record));
        self.bad(
            "a record forgot its token",
            old.as_ref().is_some_and(|old| old.token > record.token),
        );
        let open = u32::from(!matches!(record.state, GivenState::Waiting(_)));
        self.check_told(record.attempt.checked_sub(open), &record.attempts);
        if !record.is_running() {
            // A run that is given and comes back within one commit is written once.
            let last = self.last_given.entry(sequence).or_default();
            if last.1 < record.token {
                *last = (record.attempt, record.token);
            }
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
        // The same may have happened before it was given this time.
        let known = old.as_ref().map_or(0, |old| old.deaths);
        let deaths = record.deaths.saturating_sub(known);
        let is_next = (attempt + 1..=attempt + 1 + deaths).contains(&record.attempt);
        self.bad("a gap, or an attempt repeated", !is_next && !is_repeated);
        self.bad("given after cancel", old.is_some_and(|old| old.cancel));
        self.bad("given while paused", self.is_paused);
        let Claimant { worker, incarnation, claim, .. } = &record.claimant;
        let set = (Arc::clone(worker), *incarnation, *claim);
        // What a request is given is decided at once, and may take several commits.
        let first = *self.sets.entry(set).or_insert(record.at);
        self.bad("one request got two sets", first != record.at);
        if self.queues[&queue] {
            self.given_of_wide.push(record.at.0.unsigned_abs());
            // Those of one commit come in the order of their numbers.
            self.given_of_wide.sort_unstable();
            let period = Time::from(RATE.period_ms) - APART_MAX;
            let mut windows = self.given_of_wide.windows(RATE.runs as usize + 1);
            let is_passed = windows.any(|window| window[0] + period > window[RATE.runs as usize]);
            self.bad("a rate is passed", is_passed);
        }
    }

    /// Each number of an attempt that is over stands for one attempt that is told of: there is no gap.
    fn check_told(&mut self, over: Option<u32>, told: &[Attempt]) {
        let kept = over.map(|over| (over as usize).min(RUN_ATTEMPTS_KEPT_MAX));
        self.bad(
            "an attempt is counted and not told, or told and not counted",
            kept != Some(told.len()),
        );
    }

    fn end(&mut self, ended: &Finished) {
        let sequence = ended.trigger.0;
        self.check_told(Some(ended.attempt), &ended.attempts);
        let given = self.runs.remove(&sequence).and_then(|run| run.given);
        let (token, failures) =
            given.map_or_else(Default::default, |record| (record.token, record.failures));
        let is_poison = ended.queue.as_ref().is_some_and(|queue| queue.poison);
        let is_failure = matches!(ended.end, End::Dead | End::Failed) && !is_poison;
        let failures = failures + u32::from(is_failure);
        self.given_up += u64::from(ended.end == End::Unknown);
        let past = PastRun { end: ended.end, is_poison, token, failures };
        let old = self.past.insert(sequence, past);
        self.bad("two final states", old.is_some());
        // What is redriven and cancelled in one commit is seen here alone.
        if let Some(dead) = ended.queue.as_ref().and_then(|queue| queue.redriven_from) {
            let former = self.redriven.insert(dead.trigger.0, sequence);
            self.bad("redriven twice", former.is_some_and(|former| former != sequence));
        }
    }
}

fn read<T: DeserializeOwned>(value: &[u8]) -> T {
    decode(value, FORMAT).expect("a record")
}
