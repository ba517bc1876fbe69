//! Attempts of runs of queues: they are counted without a gap.
//!
//! An attempt is counted when it is recorded as given, and its number is used again only if it never began. That is not to
//! say that every number begins: the answer that gives a run may be lost with its server, and if the worker falls silent
//! then, nobody knows that it never began, so the attempt counts. But it is told: the history of a run has an entry for
//! each number, in order, and one that nobody began is an attempt of which nothing was heard. So whenever a record lands,
//! it has as many entries as it counts attempts, but for the one that a worker has or may have; and what a worker said
//! is said of attempts that began.
//!
//! What begins is on record by then, under its number and token, as given to whoever begins it, and nothing begins of a run that is
//! past, nor as a greater number than the run ended with. And what one claim is given is decided once, however often and
//! wherever the claim arrives.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::id::{RunId, ShardId};
use engine::instant::Instant;
use engine::limits::RUN_ATTEMPTS_KEPT_MAX;
use engine::past::{Attempt, Finished};
use engine::queue::dead::dead_at;
use engine::queue::given::{Claimant, ClaimedRecord, GivenRecord, GivenState, RunToken};
use engine::queue::record::placed_at;
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
        // A run that is past shares a record no more, though that may be there for others.
        for write in &commit.then {
            let past = match write {
                Write::Delete(key) => queued_at(key.as_str()),
                Write::Put(key, _) => dead_run(key.as_str()),
            };
            if let Some(run) = past {
                self.records.remove(&run);
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
        let Some(begun) = self.begun.get(&run) else {
            return self.unbegun += u64::from(ended.attempt);
        };
        if let Some((last, _)) = begun.last_key_value().filter(|(last, _)| **last > ended.attempt) {
            let what = format!("{id} began as attempt {last}, and ended as {}", ended.attempt);
            self.wrong.push((ShardPromise::NumbersGrow, what));
        }
        let known = begun.range(..=ended.attempt).count();
        self.unbegun += u64::from(ended.attempt).saturating_sub(known as u64);
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

/// The run that waits in a queue under this key, or waited there until it was given.
fn queued_at(key: &str) -> Option<Numbered> {
    let shard = shard_of(key)?;
    placed_at(shard, key).map(|(_, order)| (shard, order.sequence))
}

/// The run that is dead by this key.
fn dead_run(key: &str) -> Option<Numbered> {
    let shard = shard_of(key)?;
    dead_at(shard, key).map(|(_, sequence)| (shard, sequence))
}

fn shard_of(key: &str) -> Option<ShardId> {
    let (shard, _) = key.strip_prefix("shard/")?.split_once('/')?;
    Some(ShardId(shard.parse().ok()?))
}

/// The shard and the number in a key of this kind.
fn numbered(key: &str, kind: &str) -> Option<Numbered> {
    let (shard, rest) = key.strip_prefix("shard/")?.split_once('/')?;
    let number = rest.strip_prefix(kind)?.strip_prefix('/')?;
    Some((ShardId(shard.parse().ok()?), number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use engine::id::{ProjectId, SerialId};
    use engine::past::End;
    use engine::queue::backlog::ClaimOrder;
    use engine::queue::pick::RunRole;
    use engine::queue::record::{claimed_key, given_key, queued_key};
    use engine::queue::submitted::{GivenPlace, RunPlace};
    use engine::record::encode;
    use store::Key;

    use super::*;

    const SHARD: ShardId = ShardId(3);

    fn key(text: String) -> Key {
        Key::new(text).expect("a short key")
    }

    fn id(number: u64) -> RunId {
        RunId::submitted(SHARD, number, Instant(1), 7)
    }

    fn place(number: u64) -> RunPlace {
        let order = ClaimOrder { priority: 5, due: Instant(1), sequence: number };
        let (given, role) = (GivenPlace::Shared, RunRole::Plain);
        RunPlace { queue: SerialId(9), order, has_body: false, given, role }
    }

    /// Three runs are given together.
    fn claimed() -> (Attempts, Arc<GivenRecord>) {
        let worker = Claimant {
            worker: "0/w".into(),
            incarnation: 1,
            since: Some(0),
            claim: 2,
            lease_ms: 1_000,
        };
        let first = GivenRecord::first(worker, Instant(5));
        let given = Arc::new(GivenRecord { shared: Some(1), ..first });
        let record = ClaimedRecord::of(vec![1, 2, 3], Arc::clone(&given));
        let mut attempts = Attempts::default();
        let record = encode(FORMAT, &record);
        attempts.landed(&Commit::new().put(key(claimed_key(SHARD, 1)), record));
        (attempts, given)
    }

    fn promises(attempts: &mut Attempts) -> Vec<ShardPromise> {
        attempts.take_wrong().into_iter().map(|(promise, _)| promise).collect()
    }

    #[test]
    fn a_run_that_begins_after_its_end_is_noticed_though_others_share_its_record() {
        let (mut attempts, given) = claimed();
        attempts.begins(id(1), &given);
        assert_eq!(promises(&mut attempts), []);
        let dead = engine::queue::dead::dead_key(SHARD, SerialId(9), 3);
        let gone = key(queued_key(SHARD, &place(2)));
        attempts.landed(&Commit::new().delete(gone).put(key(dead), "{}"));
        for past in [2, 3] {
            attempts.begins(id(past), &given);
            assert_eq!(promises(&mut attempts), [ShardPromise::WrittenFirst], "{past}");
        }
        attempts.landed(&Commit::new().delete(key(given_key(SHARD, 1))));
        attempts.begins(id(1), &given);
        assert_eq!(promises(&mut attempts).len(), 2, "it began twice, and after its end");
    }

    #[test]
    fn a_run_that_began_as_a_greater_attempt_than_it_ended_with_is_noticed() {
        let (mut attempts, given) = claimed();
        let claimant = Claimant { claim: 3, ..given.claimant.clone() };
        let again = given.again(claimant, Instant(9));
        let again = GivenRecord { attempts: vec![Attempt::default()], ..again };
        attempts.begins(id(1), &given);
        let record = encode(FORMAT, &again);
        attempts.landed(&Commit::new().put(key(given_key(SHARD, 1)), record));
        attempts.begins(id(1), &again);
        assert_eq!(promises(&mut attempts), []);
        let ended = |attempt: u32| Finished {
            project: ProjectId::DEFAULT,
            trigger: SerialId(1),
            slot: Instant(1),
            generation: None,
            sequence: Some(1),
            notice: None,
            queue: None,
            end: End::Succeeded,
            at: Instant(9),
            attempt,
            attempts: vec![Attempt::default(); attempt as usize],
        };
        attempts.ended(id(1), &ended(2));
        assert_eq!(promises(&mut attempts), []);
        attempts.ended(id(1), &ended(1));
        assert_eq!(promises(&mut attempts), [ShardPromise::NumbersGrow]);
    }
}
