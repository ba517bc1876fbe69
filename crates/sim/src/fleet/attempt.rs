//! Attempts of runs of queues: they are counted without a gap.
//!
//! An attempt is counted when it is recorded as given, and its number is used again only if it never began. That is not to
//! say that every number begins: the answer that gives a run may be lost with its server, and if the worker falls silent
//! then, nobody knows that it never began, so the attempt counts. But it is told: the history of a run has an entry for
//! each number, in order, and one that nobody began is an attempt of which nothing was heard. So whenever a record lands,
//! it has as many entries as it counts attempts, but for the one that a worker has or may have; and what a worker said
//! is said of attempts that began.
//!
//! What begins is on record by then, under its number and token, as given to whoever begins it. And what one claim is given
//! is decided once, however often and wherever the claim arrives.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::id::{RunId, ShardId};
use engine::instant::Instant;
use engine::limits::RUN_ATTEMPTS_KEPT_MAX;
use engine::past::{Attempt, Finished};
use engine::queue::given::{Claimant, ClaimedRecord, GivenRecord, GivenState, RunToken};
use engine::record::decode;
use engine::shard::record::FORMAT;
use store::{Commit, Write};

use crate::shard::promise::ShardPromise;

/// A run of a queue: its shard and its number.
type Numbered = (ShardId, u64);

/// The attempts of all runs, as far as is recorded, and as they began.
#[derive(Default)]
pub struct Attempts {
    /// What is recorded of runs that were given, last.
    records: BTreeMap<Numbered, Arc<GivenRecord>>,
    begun: BTreeMap<Numbered, BTreeMap<u32, RunToken>>,
    unbegun: u64,
    /// When it was decided what a claim is given: by shard, worker, incarnation and number.
    claims: BTreeMap<(ShardId, Arc<str>, u64, u64), Instant>,
    wrong: Vec<(ShardPromise, String)>,
}

impl Attempts {
    /// A commit has landed.
    pub fn landed(&mut self, commit: &Commit) {
        // What is recorded of a run alone comes after what was recorded of all that were given with it.
        for write in &commit.then {
            if let Write::Put(key, value) = write
                && let Some((shard, _)) = numbered(key.as_str(), "claimed")
            {
                let record: ClaimedRecord = decode(value.as_bytes(), FORMAT).expect("a record");
                record.numbers().for_each(|run| self.recorded((shard, run), &record.given));
            }
        }
        for write in &commit.then {
            match (numbered(write.key().as_str(), "given"), write) {
                (Some(run), Write::Delete(_)) => drop(self.records.remove(&run)),
                (Some(run), Write::Put(_, value)) => {
                    let record: GivenRecord = decode(value.as_bytes(), FORMAT).expect("a record");
                    self.recorded(run, &Arc::new(record));
                }
                (None, _) => {}
            }
        }
    }

    fn recorded(&mut self, run: Numbered, record: &Arc<GivenRecord>) {
        let open = match record.state {
            GivenState::Running | GivenState::InDoubt(_) => 1,
            GivenState::Waiting(_) => 0,
        };
        self.check_told(run, record.attempt.checked_sub(open), &record.attempts);
        self.check_claim(run, record);
        self.records.insert(run, Arc::clone(record));
    }

    /// A worker begins an attempt.
    pub fn begins(&mut self, id: RunId, given: &GivenRecord) {
        let run = (id.shard, id.trigger.0);
        let begun = self.begun.entry(run).or_default();
        if begun.insert(given.attempt, given.token).is_some() {
            let what = format!("attempt {} of {id} began twice", given.attempt);
            self.wrong.push((ShardPromise::NumbersGrow, what));
        }
        let is_recorded = self.records.get(&run).is_some_and(|record| {
            let is_it = record.attempt == given.attempt && record.token == given.token;
            is_it && record.is_running() && record.claimant == given.claimant
        });
        if !is_recorded {
            let what = format!("{id} begins as {given:?}, and is {:?}", self.records.get(&run));
            self.wrong.push((ShardPromise::WrittenFirst, what));
        }
    }

    /// How many attempts began, and how many of those that are told of in the past never did.
    pub fn begun(&self) -> (u64, u64) {
        (self.begun.values().map(|begun| begun.len() as u64).sum(), self.unbegun)
    }

    /// A run has ended.
    pub fn ended(&mut self, id: RunId, ended: &Finished) {
        let run = (id.shard, id.trigger.0);
        self.check_told(run, Some(ended.attempt), &ended.attempts);
        let begun = self.begun.get(&run).map_or(0, |begun| begun.range(..=ended.attempt).count());
        self.unbegun += u64::from(ended.attempt).saturating_sub(begun as u64);
    }

    /// What was found wrong since this was last called.
    pub fn take_wrong(&mut self) -> Vec<(ShardPromise, String)> {
        std::mem::take(&mut self.wrong)
    }

    /// What a claim is given is decided once.
    fn check_claim(&mut self, run: Numbered, record: &GivenRecord) {
        let Claimant { worker, incarnation, claim, .. } = &record.claimant;
        let claim = (run.0, Arc::clone(worker), *incarnation, *claim);
        let decided = *self.claims.entry(claim).or_insert(record.at);
        if decided != record.at {
            let what =
                format!("{run:?} is given by {record:?}, and others by the claim at {decided}");
            self.wrong.push((ShardPromise::OneState, what));
        }
    }

    /// Of so many attempts, and no others, is told; and those of which a worker told something began.
    fn check_told(&mut self, run: Numbered, over: Option<u32>, told: &[Attempt]) {
        let kept = over.map(|over| (over as usize).min(RUN_ATTEMPTS_KEPT_MAX));
        if kept != Some(told.len()) {
            let what = format!("{over:?} attempts of {run:?} are over, and {told:?} are told");
            return self.wrong.push((ShardPromise::NumbersGrow, what));
        }
        let none = BTreeMap::new();
        let begun = self.begun.get(&run).unwrap_or(&none);
        let numbers = (1..=over.unwrap_or(0)).rev();
        // Workers of the simulation say of nothing that it went wrong: who does is the owner, of a worker's silence.
        let mut of_workers =
            numbers.zip(told.iter().rev()).filter(|(_, attempt)| attempt.error.is_none());
        if let Some((number, attempt)) = of_workers.find(|(number, _)| !begun.contains_key(number))
        {
            let what = format!("{attempt:?} of {run:?} is told, and {number} never began");
            self.wrong.push((ShardPromise::RecordsAreTrue, what));
        }
    }
}

/// The shard and the number in a key of this kind.
fn numbered(key: &str, kind: &str) -> Option<Numbered> {
    let (shard, rest) = key.strip_prefix("shard/")?.split_once('/')?;
    let number = rest.strip_prefix(kind)?.strip_prefix('/')?;
    Some((ShardId(shard.parse().ok()?), number.parse().ok()?))
}
