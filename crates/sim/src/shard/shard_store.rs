//! The store, as far as one shard sees it: keys and values, a head, and a number that grows.
//!
//! A batch lands whole or not at all. Who may land one is not a matter of this simulation: the chain is
//! tried by the other one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use engine::id::{ProjectId, ShardId};
use engine::mutant::{self, Mutant};
use engine::notice::{Audience, Listener, Occasions};
use engine::queue::dead::dead;
use engine::queue::pick;
use engine::queue::record as queue;
use engine::record::{decode, encode};
use engine::shard::record::{self, FORMAT, HeadRecord, ReportRecord};
use engine::shard::{LoadError, Loading, Now, Put, Shard, ShardBatch};

/// The shard that is simulated.
pub const SHARD: ShardId = ShardId(7);

/// The cluster that it belongs to.
pub const CLUSTER: u64 = 0x5eed;

/// What is in the store.
#[derive(Default)]
pub struct ShardStore {
    /// Everything but the head.
    pub entries: BTreeMap<String, Vec<u8>>,
    /// The body of the shard's head.
    pub head: HeadRecord,
    /// How often the head was written.
    pub number: u64,
}

/// Somebody listens to the default project, and nobody to others.
fn audience() -> Audience {
    let listener = Listener::new("default", "http://listener.test/", Occasions::USUAL);
    let listener = Arc::new(listener.expect("a good URL"));
    Arc::new(move |project: ProjectId| project.is_default().then(|| Arc::clone(&listener)))
}

impl ShardStore {
    /// Writes a batch.
    pub fn land(&mut self, batch: &ShardBatch) {
        for put in &batch.puts {
            match put {
                Put::Value(key, value) => {
                    self.entries.insert(key.clone(), value.clone());
                }
                Put::Gone(key) => {
                    self.entries.remove(key);
                }
            }
        }
        self.head = batch.head.clone();
        self.number += 1;
    }

    /// Gives the shard a new owner, who carries over what the head says.
    pub fn claim(&mut self) {
        self.number += 1;
        if mutant::active(Mutant::ClaimWithoutOpen) {
            self.head.open.clear();
        }
    }

    /// A former owner writes what came of an attempt.
    pub fn put_report(&mut self, key: &str, report: &ReportRecord) {
        self.entries.insert(key.to_owned(), encode(FORMAT, report));
    }

    /// A report, if it is there.
    pub fn report(&self, key: &str) -> Option<ReportRecord> {
        let value = self.entries.get(key)?;
        Some(decode(value, FORMAT).expect("what a sender writes can be read"))
    }

    /// Where all reports are.
    pub fn reports(&self) -> BTreeSet<String> {
        self.below(&record::reports(SHARD)).map(|(key, _)| key.to_owned()).collect()
    }

    /// Whoever owns the shard reads everything. These sessions were there before that, and these reports.
    pub fn load(
        &self,
        reports: &BTreeSet<String>,
        senders: BTreeSet<Box<str>>,
        now: Now,
    ) -> Result<Shard, LoadError> {
        let mut loading = Loading::begin(SHARD, CLUSTER, &self.head);
        for (key, value) in self.below(&record::triggers(SHARD)) {
            loading.trigger(key, value)?;
        }
        for (key, value) in self.below(&record::states(SHARD)) {
            loading.state(key, value)?;
        }
        for (key, value) in self.below(&record::runs(SHARD)) {
            loading.run(key, value)?;
        }
        for (key, value) in self.below(&record::stopped(SHARD)) {
            loading.stopped(key, value)?;
        }
        for (key, value) in self.below(&record::lags(SHARD)) {
            loading.lag(key, value)?;
        }
        for (key, value) in self.below(&queue::queues(SHARD)) {
            loading.queue(key, value)?;
        }
        for (key, value) in self.below(&dead(SHARD)) {
            loading.dead(key, value)?;
        }
        for (key, value) in self.below(&queue::queued(SHARD)) {
            loading.queued(key, value)?;
        }
        for (key, value) in self.below(&pick::picks(SHARD)) {
            loading.picks(key, value)?;
        }
        for (key, value) in self.below(&pick::chosen(SHARD)) {
            loading.chosen(key, value)?;
        }
        for (key, value) in self.below(&pick::part_ends(SHARD)) {
            loading.part_ends(key, value)?;
        }
        for (key, value) in self.below(&queue::claimed(SHARD)) {
            loading.claimed(key, value)?;
        }
        for (key, value) in self.below(&queue::given(SHARD)) {
            loading.given(key, value)?;
        }
        for (key, value) in self.below(&record::reports(SHARD)) {
            if reports.contains(key) {
                loading.report(key, value)?;
            }
        }
        loading.set_senders(senders);
        loading.set_audience(audience());
        Ok(loading.finish(now))
    }

    fn below(&self, prefix: &str) -> impl Iterator<Item = (&str, &[u8])> {
        let from = self.entries.range(prefix.to_owned()..);
        let prefix = prefix.to_owned();
        from.take_while(move |(key, _)| key.starts_with(&prefix))
            .map(|(key, value)| (key.as_str(), value.as_slice()))
    }
}
